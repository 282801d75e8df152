//! Compares the open checkpoint with a second one: structure at once, values from two streams; and
//! checks whether the first would load into the second.

pub mod pairing;
pub mod tensor_diff;

use std::rc::{Rc, Weak};

use statelens_checkpoint::{Checkpoint, Error, ErrorKind, ReadAt, Result};
use statelens_compare::check::{self, CheckReport, Reference};
use statelens_compare::diff::{Comparison, DiffOptions, Difference, PairChange, Tolerance};
use statelens_convert::EditTexts;
use statelens_tensor::Machine as _;
use wasm_bindgen::JsValue;
use web_sys::File;

use crate::compare::message::{
    CompareOptions, CompareRequest, ComparedFile, ComparisonUpdate, NO_ROW, ReportFormat,
    StructureDifference,
};
use crate::compare::worker::pairing::{AlikeSides, renamed, rows};
use crate::protocol::FromWorker;
use crate::protocol::assist::AssistedPass;
use crate::protocol::job::JobKind;
use crate::read_as::message::ReadAs;
use crate::worker::blob::BlobSource;
use crate::worker::command_line::command_line;
use crate::worker::compared::ComparedCheckpoint;
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::pool;
use crate::worker::port::files_of;
use crate::worker::reading::drive;
use crate::worker::session::{Session, SharedSession};
use crate::worker::sources::Sources;
use crate::worker::task::Task;
use crate::{compare, open, text};

/// Maximum size in bytes of a list of keys.
const MAX_LIST_SIZE: f64 = 64e6;

/// Closes the second checkpoint.
fn close_compared(session: &mut Session) {
    for kind in [JobKind::Compare, JobKind::TensorDiff, JobKind::Renames] {
        session.jobs.stop(kind);
    }
    session.compared = ComparedCheckpoint::default();
}

/// Handles a request of the page.
pub(crate) fn handle_request(
    session: &SharedSession,
    job: Job,
    request: CompareRequest,
    data: &JsValue,
) {
    match request {
        CompareRequest::Open { files, main } => {
            close_compared(&mut session.borrow_mut());
            let handles = files_of(data);
            let listing = if let [one] = handles.as_slice() { Some(one.clone()) } else { None };
            // Limits that the user raised for the first checkpoint apply to the second too.
            let limits = session.borrow().open.as_ref().map(|open| open.limits.clone());
            let limits = limits.unwrap_or_default();
            let sources = Rc::new(Sources::sent(data, &files, &job));
            let opened =
                open::worker::open(&files, sources, main, (&limits, ReadAs::default()), &job);
            let reply = match opened {
                Ok((open, opened)) => {
                    session.borrow_mut().compared.open = Some(open);
                    Ok(ComparedFile::Checkpoint(Box::new(opened)))
                }
                Err(error) => match listed(listing) {
                    Ok(Some(list)) => {
                        let keys = list.len() as u64;
                        session.borrow_mut().compared.list = Some(list);
                        Ok(ComparedFile::List(keys))
                    }
                    Err(own) if own.kind() == ErrorKind::Refused => Err(text::error(&own)),
                    Ok(None) | Err(_) => Err(*error),
                },
            };
            job.post(&FromWorker::ComparedOpened(reply));
        }
        CompareRequest::Picked(a, b) => {
            close_compared(&mut session.borrow_mut());
            let Some(open) = session.borrow().open.clone() else { return };
            match ComparedCheckpoint::of_rows(&open, a, b) {
                Ok(compared) => session.borrow_mut().compared = compared,
                Err(error) => job.post(&FromWorker::ComparedOpened(Err(text::error(&error)))),
            }
        }
        CompareRequest::Check { strict, release } => {
            let mut session = session.borrow_mut();
            let Session { open: Some(first), compared, .. } = &mut *session else { return };
            if let Some(keys) = compared.keys(first) {
                let checked = check_loads(first, keys.clone(), strict, &release);
                job.post(&FromWorker::LoadChecked(Box::new(checked)));
            }
        }
        CompareRequest::Report(format) => {
            let session = session.borrow();
            let sides = session.compared_sides().map(|(left, right)| [left, right]);
            let (Some(report), Some(sides)) = (&session.compared.report, sides) else { return };
            let names = sides.map(|side| side.source_name());
            let names = [names[0].as_str(), names[1].as_str()];
            let text = match format {
                ReportFormat::Json => report.json() + "\n",
                ReportFormat::Markdown => report.markdown(names),
                ReportFormat::Html => report.html(names),
            };
            let name = format.file_name().to_owned();
            job.post(&FromWorker::Summary { name, text });
        }
        CompareRequest::Close => close_compared(&mut session.borrow_mut()),
    }
}

/// Compares: structure at once, then values.
pub(crate) fn start(session: &SharedSession, job: Job, options: Box<CompareOptions>, _: &JsValue) {
    let Some((left, right)) = session.borrow().compared_sides() else { return };
    // Two tensors of a checkpoint are not checkpoints that another worker could open.
    let pass =
        (!session.borrow().compared.is_of_rows()).then(|| AssistedPass::Compare(options.clone()));
    session.borrow_mut().compared.report = None;
    let session = Rc::downgrade(session);
    Task::start(left, job, async move |task: &Task| {
        let (structure, prepared) = match prepare(&task.open, &right, &options) {
            Ok((structure, comparison, updates)) => (Ok(structure), Ok((comparison, updates))),
            Err(error) => (Err(text::error(&error)), Err(Error::cancelled())),
        };
        let total = prepared.as_ref().map_or(0, |(comparison, _)| comparison.progress().1);
        let structure = Some(structure);
        task.post_partial(ComparisonUpdate { structure, ..Default::default() });
        task.progress((0, total));
        let (comparison, updates) = prepared?;
        run((task, &right), session, comparison, updates, pass).await
    });
}

/// State needed to send updates of a comparison.
struct CompareUpdates {
    /// For each leaf compared, its row in the first.
    rows: Vec<u32>,
    /// For each leaf of the second, its row.
    of_right: Vec<u32>,
    /// How many differences, pairs and norms were already sent.
    reply: (usize, usize, usize),
}

/// Compares structure, and prepares comparing elements.
fn prepare(
    left: &OpenCheckpoint,
    right: &OpenCheckpoint,
    options: &CompareOptions,
) -> Result<(StructureDifference, Comparison, CompareUpdates)> {
    for side in [left, right] {
        side.checkpoint.unfolded().check("comparing all values", &side.limits)?;
    }
    let alike = AlikeSides::new(left, right)?;
    let (first, second) = (renamed(&alike.left, options)?, alike.right);
    let how = DiffOptions {
        tolerance: options.tolerance.map(|(relative, absolute)| Tolerance { relative, absolute }),
        nan_differs: options.nan_differs,
        ignore_dtype: options.ignore_dtype,
        ignore_type: options.ignore_type,
        structure: false,
    };
    let rename = suggested(&first, &second);
    let (rows, of_right) = (rows(left, &first), rows(right, &second));
    let mut updates = CompareUpdates { rows, of_right, reply: (0, 0, 0) };
    let comparison = Comparison::new(first, second, how);
    let mut pairs = vec![NO_ROW; left.leaves.len()];
    for (row, found) in updates.rows.iter().zip(comparison.matches()) {
        if let (Some(pair), Some(found)) = (pairs.get_mut(*row as usize), found) {
            *pair = updates.of_right.get(*found).copied().unwrap_or(NO_ROW);
        }
    }
    let structure = StructureDifference {
        pairs,
        found: updates.new_differences(&comparison),
        outside: outside(right, &updates.of_right),
        waiting: comparison.waiting().map(|leaf| updates.row(leaf)).collect(),
        rename,
        quantised: alike.one_is_quantised,
        command: command(left, right, options),
    };
    Ok((structure, comparison, updates))
}

/// Returns the comparison of two checkpoints.
pub(crate) fn comparison(
    left: &OpenCheckpoint,
    right: &OpenCheckpoint,
    options: &CompareOptions,
) -> Result<Comparison> {
    prepare(left, right, options).map(|(_, comparison, _)| comparison)
}

/// Returns the rows that are not among `rows`.
fn outside(open: &OpenCheckpoint, rows: &[u32]) -> Vec<u32> {
    let mut known = vec![false; open.leaves.len()];
    for row in rows {
        if let Some(known) = known.get_mut(*row as usize) {
            *known = true;
        }
    }
    (0..).zip(known).filter(|(_, known)| !known).map(|(row, _)| row).collect()
}

/// Suggests the replacement that would pair most of the unpaired keys, as a rule.
fn suggested(left: &Checkpoint, right: &Checkpoint) -> Option<(String, u64)> {
    let result = check::compare_keys(Reference::of(left, ""), Reference::of(right, ""), "");
    result.rename.map(|change| (change.rule(), change.keys))
}

impl CompareUpdates {
    /// Returns the row of a leaf of the first.
    fn row(&self, leaf: usize) -> u32 {
        self.rows.get(leaf).copied().unwrap_or(NO_ROW)
    }

    /// Takes the differences that were not sent yet.
    fn new_differences(&mut self, of: &Comparison) -> Vec<compare::message::Difference> {
        let differences = &of.so_far().differences;
        let new = differences.get(self.reply.0..).unwrap_or_default();
        let found = new.iter().map(|one| self.difference(of, one)).collect();
        self.reply.0 = differences.len();
        found
    }

    fn difference(&self, of: &Comparison, found: &Difference) -> compare::message::Difference {
        let leaf = found.leaf();
        let matches = of.matches();
        let b = match leaf.checked_sub(matches.len()) {
            Some(right) => Some(right),
            None => matches.get(leaf).copied().flatten(),
        };
        let b = b.and_then(|right| self.of_right.get(right)).copied().unwrap_or(NO_ROW);
        compare::message::Difference {
            a: self.row(leaf),
            b,
            kind: found.kind.clone(),
            part: found.part.clone(),
            parameter: found.parameter_text().unwrap_or_default(),
        }
    }

    /// Posts `progress` in bytes, and everything that was not sent yet.
    fn post(&mut self, task: &Task, of: &Comparison, progress: (u64, u64)) {
        let settled = of.settled(self.reply.1).map(|leaf| self.row(leaf)).collect();
        self.reply.1 = of.compared();
        let all = &of.so_far().changes;
        let new = all
            .get(self.reply.2..)
            .unwrap_or_default()
            .iter()
            .map(|one| PairChange { leaf: self.row(one.leaf) as usize, ..one.clone() });
        let measured = new.collect();
        self.reply.2 = all.len();
        let found = self.new_differences(of);
        let update = ComparisonUpdate { settled, found, measured, ..Default::default() };
        task.post_partial(update);
        task.progress(progress);
    }
}

/// Compares values until done or stopped.
async fn run(
    (task, right): (&Task, &OpenCheckpoint),
    session: Weak<std::cell::RefCell<Session>>,
    mut comparison: Comparison,
    mut updates: CompareUpdates,
    pass: Option<AssistedPass>,
) -> Result<ComparisonUpdate> {
    let (sides, job) = ([&task.open, right], &task.job);
    let mut ended = match pass {
        Some(pass) => {
            let each = |comparison: &mut Comparison, _, due| {
                if let Some(progress) = due {
                    updates.post(task, comparison, progress);
                }
            };
            pool::share(&mut comparison, &sides, pass, job, each).await
        }
        None => Ok(()),
    };
    // The user agreed to a number of bytes to fetch of the first: fetching more than that is an
    // error.
    let sources = [&task.open.sources, &right.sources];
    if ended.is_ok() {
        ended = drive(&mut comparison, &sources, &task.job, |comparison, time| {
            if time {
                updates.post(task, comparison, comparison.progress());
            }
        })
        .await;
    }
    updates.post(task, &comparison, comparison.progress());
    ended?;
    let report = comparison.into_report();
    let (millis, close, nans) = (task.millis(), report.close, report.nan);
    if let Some(session) = session.upgrade() {
        session.borrow_mut().compared.report = Some(report);
    }
    Ok(ComparisonUpdate { millis, close, nans, ..Default::default() })
}

/// Reads a manifest, or a list of keys; `None` if the file is neither.
fn listed(file: Option<File>) -> Result<Option<Vec<check::Expected>>> {
    let Some(file) = file.filter(|file| file.size() <= MAX_LIST_SIZE) else { return Ok(None) };
    let name = file.name();
    let source = BlobSource::alone(file);
    let mut head = vec![0; source.len().min(512) as usize];
    source.read_at(0, &mut head)?;
    if !check::is_text(&head) {
        return Ok(None);
    }
    let mut text = vec![0; source.len() as usize];
    source.read_at(0, &mut text)?;
    check::parse_reference(&text).map_err(|error| error.in_file(name))
}

/// Checks whether the first would load into the second, as `statelens check` does.
fn check_loads(
    left: &OpenCheckpoint,
    keys: CheckReport,
    strict: bool,
    release: &str,
) -> compare::message::StateDictCheck {
    let release = check::LibraryRelease::parse(release).ok();
    let options = check::CheckOptions { strict, release, ..check::CheckOptions::default() };
    let file = &left.checkpoint;
    let result = keys.judged(file, &options);
    let of_trainer =
        check::version_of(file).is_some() || statelens_formats::cerebras::is_cerebras(file);
    let releases = check::RELEASES.iter().filter(|_| of_trainer);
    compare::message::StateDictCheck {
        loads: result.loads,
        matching: result.matching,
        counts: [&result.missing, &result.unexpected].map(|keys| keys.len() as u64),
        shapes: result.shapes.len() as u64,
        lines: result.lines(),
        prefixed: result.prefixed,
        of_release: result.remarks().iter().map(|(_, text)| text::advice(text)).collect(),
        rename: result.rename.map(|change| (change.option, change.keys)),
        releases: releases.map(|release| (*release).to_owned()).collect(),
        states: (result.file_state, result.reference_state),
        strict,
    }
}

/// Returns the equivalent command, quoted for a shell.
fn command(left: &OpenCheckpoint, right: &OpenCheckpoint, options: &CompareOptions) -> String {
    let name = |open: &OpenCheckpoint| {
        let files = &open.checkpoint.files;
        files.main().map(|id| files.name(id).to_owned()).unwrap_or_default()
    };
    let mut words = vec!["diff".to_owned(), name(left), name(right)];
    words.extend(left.read_as.dtypes().flat_map(|dtype| ["--read-as".into(), dtype.to_owned()]));
    let edits = EditTexts {
        strip_prefix: options.strip_prefix.clone(),
        rename: options.rename.clone(),
        rename_list: (!options.names.is_empty()).then(|| options.names.clone()),
        prefix: options.prefix.clone(),
        ..EditTexts::default()
    };
    words.extend(edits.arguments());
    let mut add = |flag: &str, value: &str| words.extend([flag.to_owned(), value.to_owned()]);
    if let Some((relative, absolute)) = options.tolerance {
        add("--op", "allclose");
        add("--rtol", &statelens_checkpoint::float_repr(relative));
        add("--atol", &statelens_checkpoint::float_repr(absolute));
    }
    let flags = [
        (options.nan_differs, "--nan-differs"),
        (options.ignore_dtype, "--ignore-dtype"),
        (options.ignore_type, "--ignore-type"),
    ];
    words.extend(flags.iter().filter(|(on, _)| *on).map(|(_, flag)| (*flag).to_owned()));
    command_line(&words)
}
