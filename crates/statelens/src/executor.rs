//! Runs plans: carries out their steps one after the other. The parts of large tensors are made on
//! all cores.
//!
//! # The walk of a tensor's bytes
//!
//! The command, for a tensor that is cast or decompressed, and for one that is copied unchanged:
//!
//! ```text
//! file ─read_at→ buffer ─feed→ Gather (order, casts) → Making (chunks) → FileSink ─its writer threads→ pwrite
//! file ─read_at by the writer thread→ 512 KiB piece → pwrite
//! ```
//!
//! The page: `Blob.stream()`, or ranges of a remote file → `worker/reading.rs` (up to 16 MiB ahead)
//! → `Gather` → `Making` → a sink in the browser (a file handle, the origin's private file system,
//! or a Blob). A tensor that is copied unchanged becomes a slice of the source Blob and is not read
//! at all.
//!
//! **State machines.** Everything that reads weights implements `tensor::Machine` (`need`, `feed`,
//! `step`, `progress`): tensors (`Pour`), comparisons, verification, statistics, manifests. There
//! are three drivers: `tensor::drive` blocks; `worker/reading.rs` is the page's;
//! `statelens::parallel` uses all cores. The parallel driver takes work that is split into parts
//! (`tensor::Work`) and merges the results in order, so they do not depend on the number of
//! threads. A conversion is written in order, so it is split within a tensor: a large
//! `convert::Make` has parts. `statelens/src/executor.rs` carries out the steps of a run, and makes
//! the parts on all cores.

use statelens_checkpoint::{FileSet, Plan, Progress, Result, Span};
use statelens_convert::{MadePart, Make, Run, RunReport, Step, TensorWriter};
use statelens_tensor::{Buffer, drive};

use crate::parallel;
use crate::sink::Sink;

/// More workers cost memory and gain little, because their output is written in order.
pub(crate) const MOST_WORKERS: usize = 8;

/// Bytes that are read at once: few enough to stay in the processor's cache until they are checked
/// and written (with 4 MiB it took half as long again).
const BUFFER: usize = 256 << 10;

/// Maximum number of bytes that a sink copies at once: progress is reported after each call.
const COPY: u64 = 64 << 20;

/// Runs a plan: reads the source, and fills `sink` from the first byte to the last. The output does
/// not depend on the number of cores; a remote source is read by one thread. Progress is in bytes;
/// if `progress` cancels the run, the sink is left incomplete and an error is returned.
pub fn run(plan: Plan, sink: &mut dyn Sink, progress: &mut dyn Progress) -> Result<RunReport> {
    let workers = if plan.source.files.is_remote() { 1 } else { parallel::cores() };
    run_on(plan, sink, workers.min(MOST_WORKERS), progress)
}

/// Runs a plan without writing anything, to count what its casts do to the numbers.
pub fn count(plan: Plan, progress: &mut dyn Progress) -> Result<RunReport> {
    run(plan, &mut Nowhere, progress)
}

/// A sink that discards everything.
struct Nowhere;

impl Sink for Nowhere {
    fn begin(&mut self, _index: usize) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn copy(&mut self, _files: &FileSet, _span: Span) -> Result<()> {
        Ok(())
    }

    fn patch_head(&mut self, _head: &[u8]) -> Result<()> {
        Ok(())
    }
}

fn run_on(
    plan: Plan,
    sink: &mut dyn Sink,
    workers: usize,
    progress: &mut dyn Progress,
) -> Result<RunReport> {
    let mut run = Run::new(plan, false)?;
    let mut buffer = Buffer::new(BUFFER);
    loop {
        let step = run.next_step()?;
        let (done, total) = run.progress();
        progress.check(done, total)?;
        let mut progress = Within { done, total, of: progress };
        match step {
            Some(Step::Begin(index)) => sink.begin(index)?,
            Some(Step::Bytes(bytes)) => sink.write(&bytes)?,
            Some(Step::Copy(span)) => copy(run.files(), span, sink, &mut progress)?,
            Some(Step::Make(make)) if workers > 1 && make.parts() > 1 => {
                divide(
                    &make,
                    &mut TensorWriter { run: &mut run, file: sink },
                    workers,
                    &mut progress,
                )?;
            }
            Some(Step::Make(make)) => {
                let mut machine = make.all(TensorWriter { run: &mut run, file: sink })?;
                drive(&mut machine, &mut buffer, &mut progress)?;
                let cast = machine.cast_report();
                machine.into.end()?.run.made(cast);
            }
            Some(Step::Head(head)) => sink.patch_head(&head)?,
            None => return Ok(run.into_report()),
        }
    }
}

/// Copies a span, and reports the progress of large ones.
fn copy(
    files: &FileSet,
    span: Span,
    sink: &mut dyn Sink,
    progress: &mut dyn Progress,
) -> Result<()> {
    let mut done = 0;
    while done < span.len {
        let len = (span.len - done).min(COPY);
        sink.copy(files, Span { offset: span.offset + done, len, ..span })?;
        done += len;
        progress.check(done, span.len)?;
    }
    Ok(())
}

/// Makes the parts of a tensor on all workers, and writes them in order.
fn divide(
    make: &Make,
    writing: &mut TensorWriter<'_, dyn Sink + '_>,
    workers: usize,
    progress: &mut dyn Progress,
) -> Result<()> {
    let part = |part, buffer: &mut Buffer, progress: &mut dyn Progress| {
        let mut machine = make.part(part, MadePart::default())?;
        drive(&mut machine, buffer, progress)?;
        let cast = machine.cast_report();
        Ok((machine.into.end()?, cast))
    };
    let size = |part| make.bytes(part);
    parallel::in_order(0..make.parts(), workers, size, part, progress, |made: Result<_>| {
        let (part, cast) = made?;
        writing.run.made(cast);
        part.pass(writing)
    })
}

/// Reports the progress of one step as the progress of the whole run.
struct Within<'a> {
    done: u64,
    total: u64,
    of: &'a mut dyn Progress,
}

impl Progress for Within<'_> {
    fn report(&mut self, done: u64, _total: u64) -> bool {
        self.of.report(self.done.saturating_add(done), self.total)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use statelens_checkpoint::{
        Checkpoint, ErrorKind, FileSet, Limits, Memory, Segment, Unwatched,
    };
    use statelens_convert::{CastRule, Edit, WriteTarget, plan};
    use statelens_formats::RequestedOptions;

    use super::*;

    /// Collects the output, one file after the other.
    #[derive(Default)]
    struct Bytes {
        all: Vec<u8>,
        file: usize,
    }

    impl Sink for Bytes {
        fn begin(&mut self, _: usize) -> Result<()> {
            self.file = self.all.len();
            Ok(())
        }

        fn write(&mut self, bytes: &[u8]) -> Result<()> {
            self.all.extend_from_slice(bytes);
            Ok(())
        }

        fn patch_head(&mut self, head: &[u8]) -> Result<()> {
            self.all[self.file..][..head.len()].copy_from_slice(head);
            Ok(())
        }
    }

    fn opened(bytes: Vec<u8>) -> Arc<Checkpoint> {
        let files = FileSet::single("file", Memory::from(bytes));
        Arc::new(statelens_formats::open(files, &Limits::default(), &mut Unwatched).unwrap())
    }

    /// Returns numbers that compress a little, in tensors of 9 MB whose rows no chunk divides
    /// evenly, and a small one.
    fn source() -> Arc<Checkpoint> {
        let shapes = [("a.weight", [1_501, 1_499]), ("b.bias", [3, 7]), ("c.weight", [37, 61_001])];
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        let mut state = 7u32;
        for (key, shape) in shapes {
            let start = data.len();
            for _ in 0..shape[0] * shape[1] {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                data.extend_from_slice(&((state >> 20) as f32 * 1.001 - 2_000.0).to_le_bytes());
            }
            let of = serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()] });
            header.insert(key.to_owned(), of);
        }
        let header = serde_json::to_vec(&header).unwrap();
        opened([&(header.len() as u64).to_le_bytes(), &*header, &data].concat())
    }

    fn target(id: &str, compression: Option<&str>) -> WriteTarget {
        let options = RequestedOptions {
            compression: compression.map(str::to_owned),
            ..RequestedOptions::default()
        };
        statelens_formats::writing(id).unwrap().target(&options).unwrap()
    }

    #[test]
    fn parallel_output_equals_sequential_output() {
        let source = source();
        let edit = |cast: &str| {
            let casts: Vec<String> = [cast].map(str::to_owned).into();
            let casts = CastRule::all(casts.iter().filter(|cast| !cast.is_empty())).unwrap();
            Edit { casts, ..Edit::default() }
        };
        let alone = |from: &Arc<Checkpoint>, cast: &str, target: &WriteTarget| {
            let plan = plan(from.clone(), &edit(cast), target, "file").unwrap();
            let mut bytes = Bytes::default();
            (run_on(plan, &mut bytes, 1, &mut Unwatched).unwrap(), bytes.all)
        };
        let [lz4, gzip] = ["lz4", "gzip"].map(|by| target("cerebras", Some(by)));
        let compressed = opened(alone(&source, "", &lz4).1);
        let mut divided = 0;
        for (from, cast, target) in [
            (&source, "bfloat16", &target("torch", None)),
            (&source, "float16", &target("npz", None)),
            (&source, "bfloat16", &target("tensorflow", None)),
            (&source, "", &lz4),
            (&source, "float64", &gzip),
            (&compressed, "", &target("torch", None)),
            (&compressed, "", &target("safetensors", None)),
            (&compressed, "bfloat16", &lz4),
        ] {
            let (report, bytes) = alone(from, cast, target);
            for workers in [2, 3] {
                let plan = plan(from.clone(), &edit(cast), target, "file").unwrap();
                let mut made = Bytes::default();
                let divided = run_on(plan, &mut made, workers, &mut Unwatched).unwrap();
                assert!(made.all == bytes, "{cast} to {target:?} on {workers}");
                assert!(divided == report, "{cast} to {target:?} on {workers}");
            }
            let plan = plan(from.clone(), &edit(cast), target, "file").unwrap();
            let mut run = Run::new(plan, false).unwrap();
            let mut parts = 0;
            // Fails at the first index of chunks, because no tensor is made.
            while let Ok(Some(step)) = run.next_step() {
                if let Step::Make(make) = step {
                    parts = parts.max(make.parts());
                }
            }
            divided += usize::from(parts > 2);
        }
        assert_eq!(divided, 8, "each of them casts, packs or unpacks");
    }

    #[test]
    fn damaged_chunk_gives_the_same_error_in_parallel() {
        let target = target("cerebras", Some("gzip"));
        let plan_of = |from: &Arc<Checkpoint>, to: &WriteTarget| {
            plan(from.clone(), &Edit::default(), to, "file").unwrap()
        };
        let mut bytes = Bytes::default();
        run_on(plan_of(&source(), &target), &mut bytes, 1, &mut Unwatched).unwrap();
        let mut bytes = bytes.all;
        let middle = bytes.len() / 3;
        bytes[middle..middle + 64].fill(0xff);
        let damaged = opened(bytes);
        let torch = self::target("torch", None);
        let mut made = Bytes::default();
        let one = run_on(plan_of(&damaged, &torch), &mut made, 1, &mut Unwatched).unwrap_err();
        for workers in [2, 3] {
            let mut made = Bytes::default();
            let divided = run_on(plan_of(&damaged, &torch), &mut made, workers, &mut Unwatched);
            assert_eq!(divided.unwrap_err(), one);
        }
    }
    #[test]
    fn cancelled_run_returns_an_error() {
        struct StopAfter(u64);
        impl Progress for StopAfter {
            fn report(&mut self, done: u64, _total: u64) -> bool {
                done < self.0
            }
        }
        let source = source();
        let mut plan = plan(source, &Edit::default(), &target("torch", None), "file").unwrap();
        plan.files[0].segments.insert(0, Segment::Zeros(300_000));
        let mut made = Bytes::default();
        let error = run_on(plan, &mut made, 1, &mut StopAfter(100_000)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert!(made.all.len() < 200_000);
    }
}
