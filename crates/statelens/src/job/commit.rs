//! Completes the output of a conversion whose tasks are all done.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use statelens_checkpoint::{Error, Progress, Result, WrittenSegment};
use statelens_compare::ReadBack;
use statelens_convert::RunReport;

use super::planned::JobConversion;
use super::recipe::JobOutput;
use super::results::{TaskResult, WrittenRange, merged};
use super::summed::check_ranges;
use crate::files;
use crate::files::PathText as _;
use crate::output::{Output, same_file};
use crate::refusal::Refusal;
use crate::sink::write_at;
use crate::write::complete;

/// The state of an output file of a job.
enum OutputState {
    /// It has its temporary name.
    Open(Output),
    /// It has its final name: the job was interrupted while it gave the names.
    Named(Arc<fs::File>),
}

impl OutputState {
    fn file(&self) -> &Arc<fs::File> {
        match self {
            Self::Open(output) => &output.file,
            Self::Named(file) => file,
        }
    }
}

impl JobConversion<'_> {
    /// Checks what the tasks wrote, completes the files, reads them back, and gives them their
    /// names. `results` come in the order of the tasks; `refusal` refuses casts that lost numbers,
    /// unless the options accept them. Also returns the shards that were removed.
    pub(crate) fn commit(
        &self,
        results: &[TaskResult],
        refusal: Refusal,
        progress: &mut dyn Progress,
    ) -> Result<(RunReport, Vec<PathBuf>)> {
        let mut report = merged(&self.plan, &self.division, results)?;
        if !self.recipe.options.lossy {
            refusal.check_casts(&self.plan.source, &report)?;
        }
        if self.is_remote() {
            self.complete(results, &mut report, progress)?;
            return Ok((report, Vec::new()));
        }
        let replace = self.recipe.options.replace;
        let states = self.recipe.outputs.iter().map(|output| state(output, replace));
        let states: Vec<OutputState> = states.collect::<Result<_>>()?;
        let files: Vec<Arc<fs::File>> = states.iter().map(|state| state.file().clone()).collect();
        let written: Vec<WrittenRange> =
            results.iter().flat_map(|result| &result.written).copied().collect();
        let readable = files.iter().map(files::written).collect::<Result<Vec<_>>>()?;
        check_ranges(&readable, &written, progress)?;
        let mut late = |file: usize, at: u64, bytes: &[u8]| {
            let Some(OutputState::Open(output)) = states.get(file) else { return Ok(()) };
            write_at(&output.file, bytes, at)
                .map_err(|error| Error::io(format!("writing failed: {error}")))
        };
        self.division.late(&self.plan, &mut report.outcomes, &mut late)?;
        let len = |outcomes: &Vec<WrittenSegment>| {
            outcomes.last().map_or(0, |last| last.offset + last.len)
        };
        report.bytes = report.outcomes.iter().map(len).sum();
        for (state, outcomes) in states.iter().zip(&report.outcomes) {
            // A file whose size was not known may have been longer in an interrupted attempt.
            if let OutputState::Open(output) = state {
                output
                    .file
                    .set_len(len(outcomes))
                    .map_err(|error| Error::io(format!("the file can't be completed: {error}")))?;
            }
        }
        let paths: Vec<PathBuf> =
            self.recipe.outputs.iter().map(|output| output.path.clone()).collect();
        let open = |state| match state {
            OutputState::Open(output) => Some(output),
            OutputState::Named(_) => None,
        };
        let outputs = states.into_iter().filter_map(open).collect();
        let limits = self.recipe.options.reading.limits();
        let writing = self.recipe.options.writing(&limits, &self.sources);
        let read_back = ReadBack::of(&self.plan);
        let removed = complete(&read_back, &files, &paths, outputs, &writing, progress)?;
        Ok((report, removed))
    }
}

/// Returns the state of an output file.
fn state(output: &JobOutput, replace: bool) -> Result<OutputState> {
    let temporary = output.temporary.as_deref().unwrap_or(Path::new(""));
    let named = || fs::OpenOptions::new().read(true).open(&output.path).map(Arc::new);
    match fs::symlink_metadata(temporary) {
        Ok(_) if same_file(temporary, &output.path) => {
            // It was interrupted between giving the name and removing the temporary one.
            fs::remove_file(temporary).and_then(|()| named()).map(OutputState::Named)
        }
        Ok(_) => {
            return Output::adopt(temporary.to_owned(), &output.path, replace)
                .map(OutputState::Open);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => named().map(OutputState::Named),
        Err(error) => Err(error),
    }
    .map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::refused("the unfinished output of the job is gone")
            .in_file(temporary.to_text())
            .coded("job-ended")
            .advice("The job was aborted. Plan it again."),
        _ => files::open_error(&error, temporary),
    })
}
