//! Jobs: conversions, and commands for many checkpoints, divided into tasks.

use std::path::PathBuf;

use pyo3::prelude::*;
use statelens::job::{Job, JobWork, ManyCommand, TaskEnd, index_from_environment};
use statelens::statistics::Grouping;
use statelens::{Error, Refusal};

use crate::convert::ConvertOptions;
use crate::errors::detached;
use crate::place::OpenOptions;
use crate::watch::Watch;

/// Plans a conversion; returns the recipe as JSON.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python's layer groups them")]
pub(crate) fn job_plan(
    py: Python<'_>,
    source: PathBuf,
    path: PathBuf,
    job: PathBuf,
    tasks: Option<u64>,
    options: ConvertOptions,
    reading: OpenOptions,
    max_fetch: Option<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    Watch::new(progress).over(py, |progress| {
        let mut options = options.of_job(source, &path)?;
        let read_as = std::mem::take(&mut options.reading.read_as);
        options.reading = reading.of_job(max_fetch);
        options.reading.read_as.extend(read_as);
        let (job, _) = Job::plan_conversion(&job, options, tasks, Refusal::default(), progress)?;
        job.recipe().json()
    })
}

/// The options of a command for many checkpoints.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ManyOptions {
    finite: bool,
    allow: Vec<String>,
    by: Option<String>,
}

/// Plans a command for many checkpoints; returns the recipe as JSON.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python's layer groups them")]
pub(crate) fn job_plan_many(
    py: Python<'_>,
    command: &str,
    paths: Vec<PathBuf>,
    job: PathBuf,
    tasks: Option<u64>,
    options: ManyOptions,
    reading: OpenOptions,
    max_fetch: Option<u64>,
) -> PyResult<String> {
    detached(py, || {
        let command = match command {
            "verify" => ManyCommand::Verify { finite: options.finite },
            "scan" => ManyCommand::Scan { allow: options.allow },
            "stats" => {
                let by = options.by.as_deref().map(Grouping::named).transpose()?;
                ManyCommand::Stats { by }
            }
            "manifest" => ManyCommand::Manifest {},
            _ => {
                return Err(Error::refused(format!("there is no command `{command}` for jobs"))
                    .expected("verify, scan, stats or manifest"));
            }
        };
        let reading = reading.of_job(max_fetch);
        Job::plan_many(&job, command, &paths, None, reading, tasks)?.recipe().json()
    })
}

/// Runs a group of tasks; returns their numbers, and whether each was done before.
#[pyfunction]
pub(crate) fn job_run(
    py: Python<'_>,
    job: PathBuf,
    index: Option<u64>,
    per: u64,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<(u64, bool)>> {
    Watch::new(progress).over(py, |progress| {
        let index = index.map_or_else(index_from_environment, Ok)?;
        let mut ends = Vec::new();
        Job::open(&job)?.run_group(index, per, progress, &mut |task, end| {
            ends.push((task, end == TaskEnd::DoneBefore));
            Ok(())
        })?;
        Ok(ends)
    })
}

/// Completes a job; returns the report as JSON.
#[pyfunction]
pub(crate) fn job_commit(
    py: Python<'_>,
    job: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    Watch::new(progress).over(py, |progress| {
        let job = Job::open(&job)?;
        let recipe = match &job.recipe().work {
            JobWork::Convert(recipe) => recipe,
            JobWork::Many(_) => return job.commit_many()?.json(),
        };
        Ok(recipe.json(&job.commit(Refusal::default(), progress)?))
    })
}

/// Returns which tasks are done, failed or missing, as JSON.
#[pyfunction]
pub(crate) fn job_status(py: Python<'_>, job: PathBuf) -> PyResult<String> {
    detached(py, || Ok(Job::open(&job)?.status()?.json()))
}

/// Removes everything that a job has written.
#[pyfunction]
pub(crate) fn job_abort(py: Python<'_>, job: PathBuf) -> PyResult<()> {
    detached(py, || Job::open(&job)?.abort())
}
