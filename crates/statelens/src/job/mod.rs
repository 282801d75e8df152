//! Jobs: work that is divided into numbered tasks, which any engine may run on any machines.
//!
//! A job is a folder with a small recipe, `job.json`. [`Job::plan_conversion`] writes it;
//! [`Job::run`] runs one task and writes its result, `results/NNNNN.json`, once and last;
//! [`Job::commit`] completes the output when all results are there. Every step may be repeated, and
//! a process may be killed at any time: tasks write to fixed places of temporary files, and a
//! result appears complete or not at all.
//!
//! A plan is divided into ranges of its output. A task is a plan of its own: runs of segments, and
//! parts of tensors (`Data::part`), whose positions are known. The same executor and sinks run it.
//! Late segments are made at the commit, from the checksums in the results of the tasks. A file
//! whose positions depend on the data is one task. `convert`, jobs and the page plan with
//! `convert::OutputOptions`; `convert` and jobs create and complete their files with the functions
//! in `statelens/src/write.rs`.

mod commit;
mod digest;
mod division;
mod listing;
mod many;
mod memory;
mod new;
mod objects;
mod options;
mod planned;
mod reading;
mod recipe;
mod results;
mod store;
mod stored;
mod summed;
mod task;

use std::fs;
use std::path::{Path, PathBuf};

pub use many::{CheckpointResult, ManyReport};
pub use options::{EditTexts, JobOptions};
pub use reading::{Reading, SourceIdentity};
pub use recipe::{ConvertRecipe, JobOutput, JobWork, ManyCommand, ManyRecipe, ManySource, Recipe};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use statelens_checkpoint::{Error, ErrorKind, Loss, Plan, Progress, Result, Setting, advice};
use statelens_convert::RunReport;
use statelens_values::report_json;

use many::ManyResult;
use new::NewJob;
use planned::JobConversion;
use reading::JobOpener;
use results::TaskResult;

use crate::files::PathText as _;
use crate::job_store::JobStore;
use crate::refusal::Refusal;
use crate::report::{CastEffects, path_texts};

/// A planned job.
pub struct Job {
    place: PathBuf,
    store: Box<dyn JobStore>,
    recipe: Recipe,
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskEnd {
    /// It is done now.
    Done,
    /// It was done before.
    DoneBefore,
}

/// The progress of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobStatus {
    /// Number of tasks.
    pub tasks: u64,
    /// Number of tasks with a result.
    pub done: u64,
    /// Tasks that failed, with the last error, unless they are done.
    pub failed: Vec<(u64, String)>,
    /// Tasks without a result, in order.
    pub missing: Vec<u64>,
    /// Whether the job is committed.
    pub committed: bool,
}

impl JobStatus {
    /// Returns the status as JSON, as `statelens job status --json` prints it.
    pub fn json(&self) -> String {
        #[derive(Serialize)]
        struct Report<'a> {
            tasks: u64,
            done: u64,
            committed: bool,
            missing: &'a [u64],
            failed: Vec<FailedTask<'a>>,
        }
        #[derive(Serialize)]
        struct FailedTask<'a> {
            task: u64,
            error: &'a str,
        }
        let failed = self.failed.iter().map(|(task, error)| FailedTask { task: *task, error });
        report_json(&Report {
            tasks: self.tasks,
            done: self.done,
            committed: self.committed,
            missing: &self.missing,
            failed: failed.collect(),
        })
    }
}

/// A conversion that is committed.
pub enum Committed {
    /// It was committed before. This is the report of that commit, as JSON.
    Before(String),
    /// It was committed now.
    Now(Box<CommittedConversion>),
}

/// The result of committing a conversion.
pub struct CommittedConversion {
    /// The plan, for its losses and its source.
    pub plan: Plan,
    /// The report of all tasks.
    pub report: RunReport,
    /// Shards of the replaced checkpoint, which were removed.
    pub removed: Vec<PathBuf>,
}

impl ConvertRecipe {
    /// Returns the report of the commit as JSON, as `statelens job commit --json` prints it;
    /// `committed` is the result of [`Job::commit`].
    pub fn json(&self, committed: &Committed) -> String {
        match committed {
            Committed::Before(report) => report.clone(),
            Committed::Now(committed) => self.report(committed, false),
        }
    }

    fn report(&self, committed: &CommittedConversion, committed_before: bool) -> String {
        let CommittedConversion { plan, report, removed } = committed;
        let paths: Vec<PathBuf> = self.outputs.iter().map(|output| output.path.clone()).collect();
        #[derive(Serialize)]
        struct Report {
            committed_before: bool,
            files: Vec<String>,
            removed: Vec<String>,
            bytes: u64,
            cast: CastEffects,
        }
        report_json(&Report {
            committed_before,
            files: path_texts(&paths),
            removed: path_texts(removed),
            bytes: report.bytes,
            cast: CastEffects::new(report, &report.worst(&plan.source)),
        })
    }
}

/// Variables with the number of a task, by which engines start many.
const VARIABLES: [&str; 4] =
    ["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "AWS_BATCH_JOB_ARRAY_INDEX", "STATELENS_TASK"];

/// Returns the number of the task that an engine gives to this process.
pub fn index_from_environment() -> Result<u64> {
    let found = VARIABLES.iter().find_map(|name| Some((name, std::env::var(name).ok()?)));
    let (name, text) = found.ok_or_else(|| {
        Error::refused("the number of the task is not given")
            .advice(format!("Name it, or set one of {}.", VARIABLES.join(", ")))
    })?;
    text.trim()
        .parse()
        .map_err(|_| Error::refused(format!("{name} is not the number of a task: {text:?}")))
}

const RECIPE: &str = "job.json";
const COMMITTED: &str = "committed.json";

/// Checkpoints of a task, unless the number of tasks is given.
const CHECKPOINTS: u64 = 10;

impl Job {
    /// Opens a job that was planned in the folder `place`, or under a prefix of an object store.
    pub fn open(place: &Path) -> Result<Self> {
        let place = &store::absolute(place)?;
        let store = store::at(place)?;
        let named = |error: Error| error.in_file(place.to_text());
        let bytes = store.read(RECIPE)?.ok_or_else(|| {
            named(Error::refused("there is no job").coded("no-job"))
                .advice(advice![Setting::PlanJob, " plans one."])
        })?;
        let recipe = Recipe::parse(&bytes).map_err(named)?;
        Ok(Self { place: place.to_owned(), store, recipe })
    }

    /// Plans a conversion in about `tasks` tasks, or in a number that suits its size. `refusal`
    /// refuses losses, unless the options accept them. Also returns the losses.
    pub fn plan_conversion(
        place: &Path,
        options: JobOptions,
        tasks: Option<u64>,
        refusal: Refusal,
        progress: &mut dyn Progress,
    ) -> Result<(Self, Vec<Loss>)> {
        let place = &store::absolute(place)?;
        let options = JobOptions {
            source: store::absolute(&options.source)?,
            destination: store::absolute(&options.destination)?,
            reading: options.reading.absolute()?,
            ..options
        };
        let store = free(place)?;
        let new = NewJob::plan(options, tasks, refusal, progress)?;
        let (recipe, losses) = (new.recipe.clone(), new.losses.clone());
        let job = Self::create(place, store, recipe)?;
        new.keep();
        Ok((job, losses))
    }

    /// Plans a command on many checkpoints in `tasks` tasks, at most one for each, or in one for
    /// every ten. `paths` are files, folders, globs, addresses, prefixes of object stores that end
    /// in `/`, or `@` and the path of a list with one of these on each line, as is `list`.
    pub fn plan_many(
        place: &Path,
        command: ManyCommand,
        paths: &[PathBuf],
        list: Option<&Path>,
        reading: Reading,
        tasks: Option<u64>,
    ) -> Result<Self> {
        let place = &store::absolute(place)?;
        let store = free(place)?;
        let all_files = matches!(command, ManyCommand::Scan { .. });
        let checkpoints = listing::sources(paths, list, all_files)?;
        let count = checkpoints.len() as u64;
        let largest = checkpoints.iter().filter_map(|one| one.bytes).max().unwrap_or(0);
        let tasks = tasks.unwrap_or_else(|| count.div_ceil(CHECKPOINTS));
        let recipe = Recipe {
            statelens: 1,
            version: recipe::VERSION.to_owned(),
            id: String::new(),
            tasks: tasks.clamp(1, count.max(1)),
            memory: memory::of_many(largest),
            work: JobWork::Many(Box::new(ManyRecipe {
                command,
                checkpoints,
                reading: reading.absolute()?,
            })),
            checksum: String::new(),
        }
        .summed()?;
        Self::create(place, store, recipe)
    }

    fn create(place: &Path, store: Box<dyn JobStore>, recipe: Recipe) -> Result<Self> {
        match store.create(RECIPE, &text(&recipe)?)? {
            true => Ok(Self { place: place.to_owned(), store, recipe }),
            false => Err(taken(place)),
        }
    }

    /// Returns the recipe.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Returns the place of the job.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Runs tasks, each of which may be repeated at any time; `ended` is called after each. Tasks
    /// that are done are not run again.
    pub fn run(
        &self,
        tasks: impl IntoIterator<Item = u64>,
        progress: &mut dyn Progress,
        ended: &mut dyn FnMut(u64, TaskEnd) -> Result<()>,
    ) -> Result<()> {
        let mut worker = None;
        for task in tasks {
            self.check_task(task)?;
            if self.has_result(task)? {
                ended(task, TaskEnd::DoneBefore)?;
                continue;
            }
            let mut run = || {
                let worker = match &mut worker {
                    Some(worker) => worker,
                    none => none.insert(self.worker(progress)?),
                };
                self.result_of(worker, task, progress)
            };
            let result = run().inspect_err(|error| self.note_failure(task, error))?;
            self.store.create(&result_name(task), &result)?;
            ended(task, TaskEnd::Done)?;
        }
        Ok(())
    }

    /// Runs the tasks of the group `index`, each of which has `per` tasks.
    pub fn run_group(
        &self,
        index: u64,
        per: u64,
        progress: &mut dyn Progress,
        ended: &mut dyn FnMut(u64, TaskEnd) -> Result<()>,
    ) -> Result<()> {
        let (count, per) = (self.recipe.tasks, per.max(1));
        let first = index.saturating_mul(per);
        if first >= count {
            return Err(Error::refused(format!("there is no task {index}"))
                .in_file(self.place.to_text())
                .expected(format!("0 to {}", count.div_ceil(per) - 1)));
        }
        self.run(first..first.saturating_add(per).min(count), progress, ended)
    }

    /// Prepares for the tasks that this process runs.
    fn worker(&self, progress: &mut dyn Progress) -> Result<Worker<'_>> {
        Ok(match &self.recipe.work {
            JobWork::Convert(_) => Worker::Convert(JobConversion::again(&self.recipe, progress)?),
            JobWork::Many(many) => Worker::Many(many, many.reading.opener()?),
        })
    }

    /// Runs a task; returns its result as it is stored.
    fn result_of(
        &self,
        worker: &Worker<'_>,
        task: u64,
        progress: &mut dyn Progress,
    ) -> Result<Vec<u8>> {
        match worker {
            Worker::Convert(planned) => {
                stored::encoded(&self.recipe, task, &planned.run(task, progress)?)
            }
            Worker::Many(recipe, opener) => {
                let sources = self.slice(recipe, task);
                let result = many::run(recipe, opener, sources, progress)?;
                stored::encoded(&self.recipe, task, &result)
            }
        }
    }

    /// Combines the results of a job of many checkpoints, and commits it with the report. Refuses
    /// while results are missing. May be repeated.
    pub fn commit_many(&self) -> Result<ManyReport> {
        if let Some(bytes) = self.store.read(COMMITTED)? {
            return parsed(&bytes, COMMITTED, &self.place);
        }
        let many = self.many()?;
        self.check_complete()?;
        let result = |task| -> Result<ManyResult> {
            let result: ManyResult = self.result(task)?;
            result
                .check(self.slice(many, task))
                .map_err(|error| error.in_file(result_name(task)))?;
            Ok(result)
        };
        let results = (0..self.recipe.tasks).map(result);
        let report = many::merged(&many.command, &many.checkpoints, results)?;
        self.store.create(COMMITTED, &text(&report)?)?;
        Ok(report)
    }

    /// Returns the recipe of a job of many checkpoints.
    fn many(&self) -> Result<&ManyRecipe> {
        match &self.recipe.work {
            JobWork::Many(many) => Ok(many),
            JobWork::Convert(_) => Err(Error::refused("this job converts a checkpoint")),
        }
    }

    /// Returns the checkpoints of a task: consecutive ones, about as many in each task.
    fn slice<'a>(&self, many: &'a ManyRecipe, task: u64) -> &'a [ManySource] {
        let all = many.checkpoints.len() as u64;
        let start = |task: u64| {
            let at = u128::from(all) * u128::from(task) / u128::from(self.recipe.tasks.max(1));
            usize::try_from(at).unwrap_or(usize::MAX)
        };
        many.checkpoints.get(start(task)..start(task + 1)).unwrap_or_default()
    }

    /// Completes the output of a conversion. Refuses while results are missing, or if a source has
    /// changed. `refusal` refuses casts that lost numbers, unless the options of the job accept
    /// losses. A job that was committed before returns the same report again.
    pub fn commit(&self, refusal: Refusal, progress: &mut dyn Progress) -> Result<Committed> {
        if let Some(report) = self.store.read(COMMITTED)? {
            let report: Box<RawValue> = parsed(&report, COMMITTED, &self.place)?;
            return Ok(Committed::Before(report.get().to_owned()));
        }
        self.check_complete()?;
        let planned = JobConversion::again(&self.recipe, progress)?;
        let results = (0..self.recipe.tasks).map(|task| self.result(task));
        let results: Vec<TaskResult> = results.collect::<Result<_>>()?;
        let (report, removed) = planned.commit(&results, refusal, progress)?;
        let committed = CommittedConversion { plan: planned.plan, report, removed };
        self.store.create(COMMITTED, planned.recipe.report(&committed, true).as_bytes())?;
        Ok(Committed::Now(Box::new(committed)))
    }

    /// Returns which tasks are done, failed or missing.
    pub fn status(&self) -> Result<JobStatus> {
        let done = self.numbers("results")?;
        let mut failed = Vec::new();
        for task in self.numbers("failed")?.into_iter().filter(|task| !done.contains(task)) {
            let why = self.store.read(&failure_name(task))?.unwrap_or_default();
            let why: Value = serde_json::from_slice(&why).unwrap_or_default();
            let error = why.get("error").and_then(Value::as_str).unwrap_or("unknown");
            failed.push((task, error.to_owned()));
        }
        let missing: Vec<u64> =
            (0..self.recipe.tasks).filter(|task| !done.contains(task)).collect();
        Ok(JobStatus {
            tasks: self.recipe.tasks,
            done: self.recipe.tasks - missing.len() as u64,
            failed,
            missing,
            committed: self.store.read(COMMITTED)?.is_some(),
        })
    }

    /// Removes everything that the job has written, except for files of a committed job.
    pub fn abort(self) -> Result<()> {
        if let JobWork::Convert(convert) = &self.recipe.work {
            if self.store.read(COMMITTED)?.is_none() {
                objects::abort(&convert.outputs)?;
            }
            for path in convert.outputs.iter().filter_map(|output| output.temporary.as_ref()) {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(Error::io(format!("it can't be removed: {error}"))
                            .in_file(path.to_text()));
                    }
                    _ => {}
                }
            }
            for folder in convert.folders.iter().rev() {
                // A folder with other files stays.
                let _ = fs::remove_dir(folder);
            }
        }
        self.store.remove()
    }

    fn check_task(&self, task: u64) -> Result<()> {
        match task < self.recipe.tasks {
            true => Ok(()),
            false => Err(Error::refused(format!("there is no task {task}"))
                .in_file(self.place.to_text())
                .expected(format!("0 to {}", self.recipe.tasks - 1))),
        }
    }

    fn check_complete(&self) -> Result<()> {
        let JobStatus { tasks, missing, failed, .. } = self.status()?;
        let Some(first) = missing.first() else { return Ok(()) };
        let error = Error::io(format!("{} of {tasks} tasks have no result yet", missing.len()))
            .in_file(self.place.to_text())
            .coded("results-missing");
        Err(match failed.first() {
            Some((task, why)) => error.advice(format!("Task {task} failed: {why}")),
            None => error.advice(format!("Run the others, the first of which is {first}.")),
        })
    }

    fn has_result(&self, task: u64) -> Result<bool> {
        match self.store.read(&result_name(task))? {
            Some(bytes) => self.decoded::<IgnoredAny>(task, &bytes).map(|_| true),
            None => Ok(false),
        }
    }

    fn result<T: DeserializeOwned>(&self, task: u64) -> Result<T> {
        let name = result_name(task);
        let bytes = self.store.read(&name)?;
        let bytes = bytes.ok_or_else(|| Error::io("a result is gone").in_file(&*name))?;
        self.decoded(task, &bytes)
    }

    fn decoded<T: DeserializeOwned>(&self, task: u64, bytes: &[u8]) -> Result<T> {
        stored::decoded(&self.recipe, task, bytes)
            .map_err(|error| error.in_file(self.place.join(result_name(task)).to_text()))
    }

    /// Returns the numbers of the objects in a folder of the job.
    fn numbers(&self, folder: &str) -> Result<std::collections::BTreeSet<u64>> {
        let names = self.store.names(folder)?;
        let number = |name: &String| name.strip_suffix(".json")?.parse().ok();
        Ok(names.iter().filter_map(number).collect())
    }

    /// Records why a task failed, for `status`. If that fails, too, the error itself is enough.
    fn note_failure(&self, task: u64, error: &Error) {
        if error.kind() == ErrorKind::Cancelled || error.code() == "job-ended" {
            return;
        }
        let failure = json!({ "statelens": 1, "code": error.code(), "error": error.to_string() });
        if let Ok(text) = text(&failure) {
            let _ = self.store.replace(&failure_name(task), &text);
        }
    }
}

/// What a process prepares once for the tasks that it runs.
enum Worker<'a> {
    Convert(JobConversion<'a>),
    Many(&'a ManyRecipe, JobOpener),
}

/// Returns whether a task that failed with this error should be tried again: another machine or
/// another time may help. Otherwise the files, the options or the job itself are the reason.
pub fn worth_trying_again(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Limit | ErrorKind::Cancelled)
}

/// Returns the store at a place without a job.
fn free(place: &Path) -> Result<Box<dyn JobStore>> {
    let store = store::at(place)?;
    match store.read(RECIPE)? {
        None => Ok(store),
        Some(_) => Err(taken(place)),
    }
}

fn taken(place: &Path) -> Error {
    Error::refused("there is a job already").in_file(place.to_text()).coded("exists").advice(
        advice!["Name another place for the job, or remove that one with ", Setting::AbortJob, "."],
    )
}

fn result_name(task: u64) -> String {
    format!("results/{task:05}.json")
}

fn failure_name(task: u64) -> String {
    format!("failed/{task:05}.json")
}

fn text(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value)
        .map_err(|error| Error::unsupported(format!("it can't be written as JSON: {error}")))
}

fn parsed<T: DeserializeOwned>(bytes: &[u8], name: &str, place: &Path) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        Error::damaged(format!("this is not what a job writes: {error}"))
            .in_file(place.join(name).to_text())
    })
}
