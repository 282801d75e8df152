//! Runs plans for callers that may block.

use statelens_checkpoint::{FileSet, Plan, Progress, Result, Span};
use statelens_tensor::{Buffer, Receive, drive};

use crate::{Parcels, ReadingRun, Run, RunOptions, RunReport, Step};

/// Bytes that are read at once: few enough to stay in the processor's cache until they are checked
/// and written (with 4 MiB it took half as long again).
const BUFFER: usize = 256 << 10;

/// The most bytes that a sink copies at once: progress is reported after each call.
const COPY: u64 = 64 << 20;

/// The destination of new files.
pub trait Sink {
    /// Starts this file of the plan; the previous one is complete.
    fn begin(&mut self, index: usize) -> Result<()>;

    /// Appends bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Appends a span of the source. If the operating system can copy from file to file, a sink
    /// does that; otherwise the bytes are read and written.
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

/// Runs a plan: reads the source, and fills `sink` from the first byte to the last. Progress is in
/// bytes; if `progress` cancels the run, the sink is left incomplete and an error is returned.
pub fn run_blocking(
    plan: Plan,
    sink: &mut dyn Sink,
    progress: &mut dyn Progress,
) -> Result<RunReport> {
    run(Run::new(plan, RunOptions::default())?, sink, None, progress)
}

/// Supplies a run with all parcels of one tensor in order; the resulting bytes go to the sink.
pub type Divide<'a> =
    dyn Fn(&mut Run, Parcels, &mut dyn Sink, &mut dyn Progress) -> Result<()> + 'a;

/// Like [`run_blocking`]; the parcels of large tensors come from `divide`, which may process
/// several at once.
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
