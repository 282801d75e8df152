//! One task of a conversion.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use statelens_checkpoint::{Error, Progress, Result};

use super::planned::JobConversion;
use super::recipe::JobOutput;
use super::results::{TaskResult, WrittenRange};
use super::summed::{SummedSink, range_sum};
use crate::executor;
use crate::files::PathText as _;
use crate::files::{self, open_error};
use crate::output::open_unlinked;
use crate::sink::FileSink;

impl JobConversion<'_> {
    /// Runs a task and returns its result. Writes the same bytes to the same places whenever it is
    /// repeated.
    pub(crate) fn run(&self, index: u64, progress: &mut dyn Progress) -> Result<TaskResult> {
        let started = Instant::now();
        let task = self.division.task(&self.plan, index)?;
        if self.is_remote() {
            return self.send(index, &task, started, progress);
        }
        let mut open_files: Vec<Option<Arc<fs::File>>> = vec![None; self.recipe.outputs.len()];
        let mut places = Vec::new();
        for run in &task.runs {
            let (Some(output), Some(file)) =
                (self.recipe.outputs.get(run.file), open_files.get_mut(run.file))
            else {
                return Err(Error::io("a task writes a file that the job does not name"));
            };
            let file = match file {
                Some(file) => file.clone(),
                none => none.insert(Arc::new(open(output)?)).clone(),
            };
            places.push((file, run.at));
        }
        let mut sink = SummedSink::new(FileSink::at(places.clone()));
        let report = executor::run(task.plan.clone(), &mut sink, progress)?;
        let sums = sink.finish()?;
        for (file, output) in open_files.iter().zip(&self.recipe.outputs) {
            // Another machine may read these bytes as soon as the result exists.
            if let Some(file) = file {
                file.sync_data().map_err(|error| {
                    Error::io(format!("it can't be flushed to the disk: {error}"))
                        .in_file(output.path.to_text())
                })?;
            }
        }
        self.check_sources()?;
        let mut result = TaskResult::new(&task, &report);
        for ((run, (file, at)), sum) in task.runs.iter().zip(&places).zip(sums) {
            let len = sum.len;
            let value = match sum.patched {
                // Bytes that were replaced are in the sum.
                true => range_sum(&*files::written(file)?, *at, sum.len, |_| Ok(()))?,
                false => sum.value,
            };
            result.written.push(WrittenRange { file: run.file, at: run.at, len, sum: value });
        }
        result.seconds = started.elapsed().as_secs_f64();
        Ok(result)
    }
}

/// Opens the temporary file of an output, which the job's plan has created.
fn open(output: &JobOutput) -> Result<fs::File> {
    let path = output.temporary.as_deref().unwrap_or(Path::new(""));
    open_unlinked(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::refused("the unfinished output of the job is gone")
            .in_file(path.to_text())
            .coded("job-ended")
            .advice("The job was aborted or committed."),
        _ => open_error(&error, path),
    })
}
