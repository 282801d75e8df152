//! Runs plans on all cores: large tensors are divided into parts that are processed in parallel.

use std::marker::PhantomData;

use statelens_checkpoint::{Error, FileSet, Plan, Progress, Result, Span};
use statelens_convert::{Parcel, Parcels, Run, RunReport, Sink, run_blocking, run_divided};
use statelens_tensor::{CastReport, InOrder, Pour, Work};

use crate::parallel;

/// More workers cost memory and gain little, because their output is written in order.
pub(crate) const MOST_WORKERS: usize = 8;

/// Runs a plan with the same output as [`run_blocking`], on all cores. A remote source is read by
/// one thread.
pub fn run(plan: Plan, sink: &mut dyn Sink, progress: &mut dyn Progress) -> Result<RunReport> {
    let workers = parallel::cores().min(MOST_WORKERS);
    match workers < 2 || plan.source.files.is_remote() {
        true => run_blocking(plan, sink, progress),
        false => run_on(plan, sink, workers, progress),
    }
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
    let divide =
        |run: &mut Run, parcels: Parcels, sink: &mut dyn Sink, progress: &mut dyn Progress| {
            let (done, total) = run.progress();
            let making = Making(parcels, PhantomData);
            let mut machine = InOrder::of(making, Taking { run, sink });
            let mut progress = Within { done, total, of: progress };
            parallel::drive(&mut machine, workers, &mut progress)
        };
    run_divided(plan, sink, &divide, progress)
}

/// The parcels of a run with lifetime `'a`, which workers produce.
struct Making<'a>(Parcels, PhantomData<fn(&'a ())>);

/// Consumes the parcels in order.
struct Taking<'a> {
    run: &'a mut Run,
    sink: &'a mut (dyn Sink + 'a),
}

impl<'a> Work for Making<'a> {
    type Part = Pour<Parcel>;
    type Found = Result<(Parcel, CastReport)>;
    type Sum = Taking<'a>;

    fn parts(&self) -> usize {
        self.0.count()
    }

    fn size(&self, part: usize) -> u64 {
        self.0.bytes(part)
    }

    fn begin(&self, part: usize) -> Result<Option<Self::Part>> {
        self.0.begin(part).map(Some)
    }

    fn end(&self, _: usize, machine: Option<Self::Part>, read: Result<()>) -> Self::Found {
        read?;
        let made = machine.ok_or_else(|| Error::io("a part of a tensor was not read"))?;
        let cast = made.cast_report();
        Ok((made.into, cast))
    }

    fn take(&self, sum: &mut Self::Sum, _: usize, found: Self::Found) -> Result<()> {
        let (parcel, cast) = found?;
        let Taking { run, sink } = sum;
        run.supply(&parcel, cast, &mut |bytes| sink.write(bytes))
    }
}

/// Reports the progress of one tensor as the progress of the whole run.
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

    use statelens_checkpoint::{Checkpoint, Error, ErrorKind, FileSet, Limits, Memory, Unwatched};
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
        let asked = RequestedOptions {
            compression: compression.map(str::to_owned),
            ..RequestedOptions::default()
        };
        statelens_formats::writing(id).unwrap().target(&asked).unwrap()
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
            (run_blocking(plan, &mut bytes, &mut Unwatched).unwrap(), bytes.all)
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
            for workers in [1, 3] {
                let plan = plan(from.clone(), &edit(cast), target, "file").unwrap();
                let mut made = Bytes::default();
                let divided = run_on(plan, &mut made, workers, &mut Unwatched).unwrap();
                assert!(made.all == bytes, "{cast} to {target:?} on {workers}");
                assert!(divided == report, "{cast} to {target:?} on {workers}");
            }
            let plan = plan(from.clone(), &edit(cast), target, "file").unwrap();
            let seen = std::cell::Cell::new(0);
            let count =
                |run: &mut Run, parcels: Parcels, _: &mut dyn Sink, _: &mut dyn Progress| {
                    seen.set(seen.get() + parcels.count());
                    assert!(run.parcels().is_some());
                    Err(Error::cancelled())
                };
            let stopped = run_divided(plan, &mut Bytes::default(), &count, &mut Unwatched);
            let ended = stopped.map_err(|error| error.kind()).err();
            assert!(ended.is_none_or(|kind| kind == ErrorKind::Cancelled));
            divided += usize::from(seen.get() > 2);
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
        run_blocking(plan_of(&source(), &target), &mut bytes, &mut Unwatched).unwrap();
        let mut bytes = bytes.all;
        let middle = bytes.len() / 3;
        bytes[middle..middle + 64].fill(0xff);
        let damaged = opened(bytes);
        let torch = self::target("torch", None);
        let mut made = Bytes::default();
        let one = run_blocking(plan_of(&damaged, &torch), &mut made, &mut Unwatched).unwrap_err();
        for workers in [1, 3] {
            let mut made = Bytes::default();
            let divided = run_on(plan_of(&damaged, &torch), &mut made, workers, &mut Unwatched);
            assert_eq!(divided.unwrap_err(), one);
        }
    }
}
