//! Running a plan for callers that may block.

use statelens_checkpoint::{FileSet, Plan, Progress, Result, Span};
use statelens_tensor::{Buffer, Receive, drive};

use crate::{Parcels, ReadingRun, Run, RunOptions, RunReport, Step};

/// Bytes that are read at once: few enough to stay in the processor's cache until they are
/// checked and written (4 MiB took half as long again).
const BUFFER: usize = 256 << 10;

/// Bytes that a sink is asked to copy at once: progress is told after each.
const COPY: u64 = 64 << 20;

/// Where new files go.
pub trait Sink {
    /// What follows belongs to this file of the plan; the one before it is complete.
    fn begin(&mut self, index: usize) -> Result<()>;

    /// Adds bytes at the end.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Adds a span of the source at the end. Where the system can copy from file to file, a
    /// sink does that; otherwise the bytes are read and written.
    fn copy(&mut self, files: &FileSet, span: Span) -> Result<()> {
        let mut buffer = vec![0; span.len.min(BUFFER as u64) as usize];
        let (mut offset, end) = (span.offset, span.offset.saturating_add(span.len));
        while offset < end {
            let len = (end - offset).min(BUFFER as u64) as usize;
            files.read(span.file, offset, &mut buffer[..len])?;
            self.write(&buffer[..len])?;
            offset += len as u64;
        }
        Ok(())
    }

    /// Replaces the first bytes of the file.
    fn patch_head(&mut self, head: &[u8]) -> Result<()>;
}

/// Runs a plan: reads the source, and fills `sink` from the first byte to the last. Progress is
/// in bytes; where it says stop, the sink is left incomplete and the error says so.
pub fn run_blocking(
    plan: Plan,
    sink: &mut dyn Sink,
    progress: &mut dyn Progress,
) -> Result<RunReport> {
    run(Run::new(plan, RunOptions::default())?, sink, None, progress)
}

/// Supplies a run with the parcels of one tensor, all of them, in their order; what comes of them
/// goes to the sink.
pub type Divide<'a> =
    dyn Fn(&mut Run, Parcels, &mut dyn Sink, &mut dyn Progress) -> Result<()> + 'a;

/// As [`run_blocking`]; the parcels of large tensors come from `divide`, which may make several at
/// once.
pub fn run_divided(
    plan: Plan,
    sink: &mut dyn Sink,
    divide: &Divide<'_>,
    progress: &mut dyn Progress,
) -> Result<RunReport> {
    let options = RunOptions { divide: true, ..RunOptions::default() };
    run(Run::new(plan, options)?, sink, Some(divide), progress)
}

fn run(
    mut run: Run,
    sink: &mut dyn Sink,
    divide: Option<&Divide<'_>>,
    progress: &mut dyn Progress,
) -> Result<RunReport> {
    let mut buffer = Buffer::new(BUFFER);
    loop {
        drive(&mut ReadingRun { run: &mut run, into: sink }, &mut buffer, progress)?;
        match run.step() {
            Step::Begin(index) => {
                sink.begin(index)?;
                run.begun();
            }
            Step::Copy(span) => {
                let span = Span { len: span.len.min(COPY), ..span };
                sink.copy(run.files(), span)?;
                run.copied(span.len);
            }
            Step::Head(head) => {
                sink.patch_head(&head)?;
                run.patched();
            }
            Step::Read(_) | Step::Work => {
                if let Some((divide, parcels)) = divide.zip(run.parcels().cloned()) {
                    divide(&mut run, parcels, sink, progress)?;
                }
            }
            Step::Done => return Ok(run.into_report()),
        }
        let (done, total) = run.progress();
        progress.check(done, total)?;
    }
}

impl Receive for dyn Sink + '_ {
    fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        self.write(bytes)
    }
}
