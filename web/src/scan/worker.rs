//! Reads the values of one tensor, or of all. The results are kept with the open checkpoint, even
//! if reading was stopped.

use std::collections::HashMap;
use std::rc::Rc;

use statelens_checkpoint::{Error, Layout, Result, Tensor, TensorId, Unwatched, Value, order};
use statelens_tensor::{BUFFER, Machine as _, drain};
use statelens_values::weights::{
    CHECKS, Measured, Noticed, Survey, TensorOutcome, countable, findings, to_hash, to_read_by_rows,
};
use statelens_values::{Accumulator, Summary};

use wasm_bindgen::JsValue;

use crate::inspector::message::RowDetails;
use crate::protocol::FromWorker;
use crate::protocol::assist::AssistedPass;
use crate::protocol::task::TaskResult;
use crate::quantised;
use crate::values::message::{RowStatistics, ScanReport, ScanRequest, TensorValues};
use crate::worker::job::Job;
use crate::worker::measurements::{Measurements, Results, SharedMeasurements};
use crate::worker::opened::OpenCheckpoint;
use crate::worker::pool;
use crate::worker::port::now;
use crate::worker::reading::{Driver, drive};
use crate::worker::session::SharedSession;
use crate::worker::task::Task;

/// A tensor of at most this many bytes is read at once, while the page waits.
const MAX_QUICK: u64 = 4 << 20;
/// Bytes of a tensor that are summarised at a time.
const PART: u64 = 32 << 20;
/// Bytes read to estimate how long reading all of it takes.
const SAMPLE: u64 = 64 << 20;
/// Number of tensors whose histograms are all kept; beyond it, those of small tensors are discarded
/// and computed again when needed.
const MAX_HISTOGRAMS: usize = 20_000;
/// Number of values below which the histograms of a tensor are computed only when it is selected.
const MIN_HISTOGRAM: u64 = 512;

/// Begins reading all tensors.
pub(crate) fn start_scan(session: &SharedSession, job: Job, _: ScanRequest, _: &JsValue) {
    let Some((open, found)) = session.borrow().measurements() else { return };
    Task::start(open, job, async move |task: &Task| {
        scan(&task.open, &found, &task.job, |progress| task.progress(progress)).await
    });
}

/// Begins reading one tensor.
pub(crate) fn start_read(session: &SharedSession, job: Job, row: u32, _: &JsValue) {
    let Some((open, found)) = session.borrow().measurements() else { return };
    let work = async move |task: &Task| read(task, &found, row).await;
    Task::start(open, job, work);
}

/// Begins measuring the speed.
pub(crate) fn start_rate(session: &SharedSession, job: Job, row: u32) {
    let Some(open) = session.borrow().open.clone() else { return };
    job.clone().spawn(async move {
        // An error is reported when the tensor itself is read.
        if let Ok(rate) = rate(&open, row, &job).await {
            job.post(&FromWorker::Rate(rate));
        }
        open.report_fetched(&job);
    });
}

/// Adds the statistics of a row's values, or the number of bytes to read for them.
pub(crate) fn inspect(
    open: &OpenCheckpoint,
    found: &SharedMeasurements,
    inspected: &mut RowDetails,
) {
    let Some((id, tensor)) = tensor(open, inspected.row) else { return };
    let Some(numbers) = countable(tensor).filter(|_| inspected.has_values) else { return };
    let known = found.borrow().measured.get(&id).filter(|known| known.is_whole()).cloned();
    let known = known.or_else(|| {
        if !is_quick(open, &numbers) {
            return None;
        }
        let mut accumulator = Accumulator::new();
        accumulator.begin(&numbers.dtype, 0);
        let mut take = |bytes: &[u8]| {
            accumulator.feed(bytes);
            Ok(())
        };
        // The error is shown with the values, which are read separately.
        drain(&open.checkpoint.files, &numbers, BUFFER, &mut Unwatched, &mut take).ok()?;
        let measured = Rc::new(Measured::of(&accumulator.finish()));
        found.borrow_mut().measured.insert(id, measured.clone());
        Some(measured)
    });
    inspected.unread = if known.is_some() { None } else { numbers.nbytes() };
    inspected.remote = open.sources.server().is_some();
    inspected.values = known.map(|known| {
        let measured = (*known).clone();
        Box::new(TensorValues { row: inspected.row, measured, ..TensorValues::default() })
    });
}

/// Returns whether a tensor can be read in a moment.
fn is_quick(open: &OpenCheckpoint, tensor: &Tensor) -> bool {
    // A compressed storage is read in full, however small the tensor in it.
    let packed = matches!(tensor.layout, Layout::Packed(_));
    tensor.nbytes().is_some_and(|bytes| bytes <= MAX_QUICK)
        && !packed
        && open.sources.server().is_none()
}

fn tensor(open: &OpenCheckpoint, row: u32) -> Option<(TensorId, &Tensor)> {
    open.checkpoint.tensor_of(open.leaves.get(row as usize)?.target)
}

/// Returns the rows of all tensors, in order, without links.
fn rows(open: &OpenCheckpoint) -> Vec<(TensorId, u32)> {
    let checkpoint = &open.checkpoint;
    (0..)
        .zip(open.leaves.iter())
        .filter(|(_, leaf)| {
            let of = checkpoint.value(leaf.target);
            leaf.alias_of.is_none() && matches!(of, Value::Tensor(_) | Value::Array(_))
        })
        .filter_map(|(row, leaf)| Some((checkpoint.tensor_of(leaf.target)?.0, row)))
        .collect()
}

/// Sorts tensors by their places in the files, so that they are read from one stream.
fn in_file_order(open: &OpenCheckpoint, ids: &mut [TensorId]) {
    let place = |id: &TensorId| match open.checkpoint.tensor(*id).map(|tensor| &tensor.layout) {
        Ok(Layout::Span(span)) => (span.file.0, span.offset),
        _ => (u32::MAX, 0),
    };
    order::by_key(ids, place);
}

/// Returns the machine that reads the statistics of tensors.
pub(crate) fn survey(open: &OpenCheckpoint, tensors: Vec<TensorId>) -> Survey {
    Survey::divided(open.checkpoint.clone(), tensors, PART)
}

/// Reads all tensors whose values are not known yet. Posts their statistics, and calls `progress`
/// with the bytes done and in total.
pub(crate) async fn scan(
    open: &OpenCheckpoint,
    found: &SharedMeasurements,
    job: &Job,
    progress: impl Fn((u64, u64)),
) -> Result<ScanReport> {
    let began = now();
    let rows = rows(open);
    let mut of: HashMap<TensorId, Vec<u32>> = HashMap::new();
    rows.iter().for_each(|(id, row)| of.entry(*id).or_default().push(*row));
    // Post known results at once.
    let (mut fresh, mut wanted) = (Vec::new(), Vec::new());
    for (id, row) in &rows {
        match found.borrow().measured.get(id) {
            Some(measured) => fresh.push((*row, (&measured.statistics).into())),
            None => wanted.push(*id),
        }
    }
    in_file_order(open, &mut wanted);
    let pass = AssistedPass::Scan(wanted.iter().map(|id| id.0).collect());
    let mut survey = survey(open, wanted).hashing_repeated();
    let mut updates =
        ScanUpdates { job, open, progress: &progress, of: &of, fresh, before: (0, 0) };
    updates.post_reply(survey.progress());
    let mut ended = pool::share(&mut survey, &[open], pass, job, |survey: &mut Survey, _, due| {
        updates.record(found, survey.take());
        if let Some(progress) = due {
            updates.post_reply(progress);
        }
    })
    .await;
    if ended.is_ok() {
        ended = feed(&mut survey, found, &mut updates).await;
    }
    let (bytes, total) = survey.progress();
    updates.post_reply((bytes, total));
    if ended.is_ok() {
        ended = reread(open, found, &mut updates, (bytes, total)).await;
    }
    match ended {
        // If the scan was stopped, keep and report the results so far.
        Err(error) if job.check().is_ok() => return Err(error),
        _ => {}
    }
    let mut found = found.borrow_mut();
    // The results of a scan that was stopped are those of some tensors only.
    found.scans += u32::from(bytes >= total);
    let unread = rows.iter().filter_map(|(id, row)| Some((*row, found.unread.get(id)?.clone())));
    Ok(ScanReport {
        rows: Vec::new(),
        bytes,
        unread_bytes: total - bytes.min(total),
        millis: now() - began,
        unread: unread.collect(),
        findings: quantised::worker::noticed(open)
            .into_iter()
            .chain(noticed(open, &found))
            .collect(),
        checks: CHECKS.map(str::to_owned).to_vec(),
    })
}

/// Reads some tensors again: those to hash, because they may be equal, and those to measure by
/// rows.
async fn reread(
    open: &OpenCheckpoint,
    found: &SharedMeasurements,
    updates: &mut ScanUpdates<'_>,
    before: (u64, u64),
) -> Result<()> {
    let (hash, by_rows) = {
        let found = found.borrow();
        let results = Results(open, &found);
        let hash = to_hash(&open.checkpoint, &open.leaves, &results);
        (hash, to_read_by_rows(&open.checkpoint, &open.leaves, &results))
    };
    updates.before = before;
    let mut survey = Survey::hashing(open.checkpoint.clone(), hash);
    feed(&mut survey, found, updates).await?;
    let (done, total) = survey.progress();
    updates.before = (before.0 + done, before.1 + total);
    let mut survey = Survey::by_rows(open.checkpoint.clone(), by_rows);
    feed(&mut survey, found, updates).await
}

/// Runs a survey, and keeps and posts its results.
async fn feed(
    survey: &mut Survey,
    found: &SharedMeasurements,
    updates: &mut ScanUpdates<'_>,
) -> Result<()> {
    let (sources, job) = (&updates.open.sources, updates.job);
    let ended = drive(survey, &[sources], job, |survey, time| {
        updates.record(found, survey.take());
        if time {
            updates.post_reply(survey.progress());
        }
    })
    .await;
    updates.record(found, survey.take());
    ended
}

/// Results of a scan that were not sent to the page yet.
struct ScanUpdates<'a> {
    job: &'a Job,
    open: &'a OpenCheckpoint,
    progress: &'a dyn Fn((u64, u64)),
    of: &'a HashMap<TensorId, Vec<u32>>,
    fresh: RowStatistics,
    /// Bytes done before this survey, and their total.
    before: (u64, u64),
}

impl ScanUpdates<'_> {
    fn record(&mut self, found: &SharedMeasurements, outcomes: Vec<(TensorId, TensorOutcome)>) {
        for (id, outcome) in outcomes {
            let mut found = found.borrow_mut();
            match outcome {
                TensorOutcome::Read(summary) => {
                    let measured = measured(self.open, id, &summary, found.measured.len());
                    let rows = self.of.get(&id).into_iter().flatten();
                    self.fresh.extend(rows.map(|row| (*row, (&measured.statistics).into())));
                    found.unread.remove(&id);
                    found.measured.insert(id, measured.into());
                }
                TensorOutcome::Hash(hash) => {
                    found.hashes.insert(id, hash);
                }
                TensorOutcome::Lines(lines) => {
                    found.lines.insert(id, *lines);
                }
                TensorOutcome::Without(reason) | TensorOutcome::Unread(reason) => {
                    found.unread.insert(id, reason);
                }
            }
        }
    }

    fn post_reply(&mut self, (done, total): (u64, u64)) {
        let (done, total) = (done + self.before.0, total.saturating_add(self.before.1));
        let rows = std::mem::take(&mut self.fresh);
        let report = Box::new(ScanReport { rows, ..ScanReport::default() });
        self.job.post(&FromWorker::Partial(TaskResult::Scan(report)));
        (self.progress)((done, total));
    }
}

/// Returns the measurements of a tensor to keep in addition to `known` others: without histograms
/// if they are computed in a moment when the tensor is selected.
pub(crate) fn measured(
    open: &OpenCheckpoint,
    id: TensorId,
    summary: &Summary,
    known: usize,
) -> Measured {
    let statistics = summary.statistics();
    let is_rare = known > MAX_HISTOGRAMS || statistics.count < MIN_HISTOGRAM;
    let is_quick = || open.checkpoint.tensor(id).is_ok_and(|tensor| is_quick(open, tensor));
    match is_rare && is_quick() {
        true => Measured { statistics, ..Measured::default() },
        false => Measured::with(statistics, summary),
    }
}

async fn read(task: &Task, found: &SharedMeasurements, row: u32) -> Result<TensorValues> {
    let open = &task.open;
    let (id, _) = tensor(open, row).ok_or_else(|| Error::refused("this is not a tensor"))?;
    let mut survey = Survey::divided(open.checkpoint.clone(), [id], PART);
    drive(&mut survey, &[&open.sources], &task.job, |survey, time| {
        if time {
            let so_far = survey.so_far();
            if let Some((_, measured)) = so_far {
                task.post_partial(TensorValues { row, measured, ..TensorValues::default() });
            }
            task.progress(survey.progress());
        }
    })
    .await?;
    match survey.take().pop() {
        Some((_, TensorOutcome::Read(summary))) => {
            let measured = Measured::of(&summary);
            found.borrow_mut().measured.insert(id, Rc::new(measured.clone()));
            let (bytes, _) = survey.progress();
            Ok(TensorValues { row, measured, bytes, millis: task.millis() })
        }
        Some((_, TensorOutcome::Without(reason) | TensorOutcome::Unread(reason))) => {
            Err(Error::damaged(reason))
        }
        _ => Err(Error::refused("it was not read")),
    }
}

/// Measures bytes per millisecond by reading a part of a tensor.
async fn rate(open: &OpenCheckpoint, row: u32, job: &Job) -> Result<f64> {
    let (id, _) = tensor(open, row).ok_or_else(|| Error::refused("this is not a tensor"))?;
    let mut survey = Survey::new(open.checkpoint.clone(), [id]);
    let mut driver = Driver::new(&[&open.sources], job);
    let began = now();
    let sample_done = |survey: &Survey| survey.progress().0 >= SAMPLE;
    let each = async |survey: &mut Survey, _| match sample_done(survey) {
        true => Err(Error::cancelled()),
        false => Ok(()),
    };
    let ended = driver.drive(&mut survey, each).await;
    let rate = survey.progress().0 as f64 / (now() - began).max(0.1);
    driver.close().await;
    match survey.take().pop() {
        Some((_, TensorOutcome::Unread(reason))) => Err(Error::damaged(reason)),
        _ if sample_done(&survey) => Ok(rate),
        _ => ended.map(|()| rate),
    }
}

fn noticed(open: &OpenCheckpoint, measurements: &Measurements) -> Vec<Noticed> {
    findings(&open.checkpoint, &open.leaves, &Results(open, measurements))
}
