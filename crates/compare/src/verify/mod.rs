//! Verifies a checkpoint: reads all of it, as far as possible only once, compares every checksum in
//! its files, and counts NaN and infinite values.
//!
//! [`Verification`] is a [`Machine`](statelens_tensor::Machine), like a comparison; [`verify`] is
//! for callers that may block.
//!
//! If a checksum covers the stored bytes of a tensor, they are read once for both. Checks that run
//! when a file is opened (the structures of HDF5, the pickle of a PyTorch file) are among the
//! checkpoint's findings, which are problems here; so is anything that can't be decoded.

mod file_hash;
mod manifest;
mod numbers;
mod passing;
mod report;
mod scales;
mod spans;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod values;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use statelens_checkpoint::{
    Checkpoint, DType, Error, ErrorKind, FileId, Grade, Layout, Leaf, Progress, Replica, Result,
    Span, Tensor, TensorId, order,
};
use statelens_formats::checks::{Check, Checks};
use statelens_tensor::{
    Buffer, InOrder, Pieces, Pour, Work, drive, elements, grain, verbatim_span,
};
use statelens_values::reading::{Repetition, tensors_of};
use statelens_values::{Accumulator, Summary, index};

use crate::diff::has_attributes;
use numbers::ElementNumbers;
use passing::{Passed, PassedTensor, Passing};
use spans::Places;
use table::PerTensor;
use tally::Tally;

pub use file_hash::{FileHash, NOT_AS_LISTED};
pub use manifest::Manifest;
pub use report::{
    MatchingEntries, NonFiniteTensor, Problem, ReportLine, Trouble, UnreadTensor,
    VerificationReport, VerificationResult,
};
pub use scales::check_scales;
pub use statelens_quantised::ScaleFault;
pub use tally::NonFinite;
pub use values::PlainNumbers;

/// Maximum memory of a gather, in bytes.
const BUDGET: usize = 8 << 20;

/// Number of bytes that the driver reads at once.
const BUFFER: usize = 256 << 10;

/// Number of elements of a tensor that one worker processes at a time.
const PIECE: u64 = 8 << 20;

/// Number of preceding problems that are searched for a duplicate.
const NEAR: usize = 64;

/// Maximum number of tensor keys listed for wrong bytes.
const MAX_LISTED: usize = 4;

statelens_tensor::in_order! {
    /// Verifies a checkpoint: a machine that is fed its files.
    pub struct Verification(Verifying);
}

/// The work of a [`Verification`]: reads a whole checkpoint, in the order of the files.
pub struct Verifying {
    checkpoint: Arc<Checkpoint>,
    leaves: Vec<Leaf>,
    keys: PerTensor<String>,
    checks: Vec<Check>,
    jobs: Vec<ReadJob>,
    pieces: Pieces,
    /// Whether to compute hashes.
    hashing: bool,
    /// The sizes in bytes of tensors that the caller hashes.
    hashed_outside: Range<u64>,
    /// Accumulators that are not in use, if statistics are computed. They are pooled because each
    /// is large.
    accumulators: Option<Mutex<Vec<Accumulator>>>,
}

/// The results of a [`Verification`] so far.
pub struct VerificationResults {
    hashes: HashMap<TensorId, String>,
    summaries: Vec<(TensorId, Box<Summary>)>,
    not_finite: PerTensor<NonFinite>,
    report: VerificationReport,
    /// Result of the job whose last piece is still missing.
    begun: Option<Result<Passed>>,
    /// The hashes of copies whose other copy was not read yet, by the index of the replica.
    copies: HashMap<usize, Option<u128>>,
}

/// Bytes that are read from start to end.
struct ReadJob {
    /// The index of its check, if it belongs to one.
    check: Option<usize>,
    /// The copy that it reads, if it reads one: the index of the replica, and which of its copies.
    copy: Option<(usize, usize)>,
    /// The tensors whose bytes it contains unchanged, in order.
    tensors: Vec<JobTensor>,
    bytes: u64,
}

/// A tensor within the bytes of a job.
#[derive(Clone)]
struct JobTensor {
    range: Range<u64>,
    tensor: TensorId,
}

impl Verification {
    /// Prepares a verification; does not read weights yet. `checks` are those of the checkpoint's
    /// files. With `hashing`, the tensors are hashed, so that they can be compared with a manifest.
    pub fn new(checkpoint: Arc<Checkpoint>, checks: Checks, hashing: bool) -> Self {
        let leaves = checkpoint.leaves();
        let (keys, order) = keys_of(&checkpoint, &leaves);
        let mut report = VerificationReport {
            result: VerificationResult::default(),
            summed: checks.summed,
            structure: checks.structure,
            attributes: false,
        };
        report.result.without_checksum = checks.without;
        report.result.problems = checkpoint
            .findings
            .iter()
            .filter(|finding| finding.grade == Grade::Damage || finding.refused)
            .map(problem_of_finding)
            .collect();
        for (what, error) in &checks.broken {
            report.result.problems.push(Problem::of_error(Trouble::Damaged, what, error));
        }
        let places = spans::places(&checkpoint, &keys);
        let not_finite = PerTensor::of(&checkpoint);
        let mut verifying = Verifying {
            checkpoint,
            leaves,
            keys,
            checks: checks.checks,
            jobs: Vec::new(),
            pieces: Pieces::default(),
            hashing,
            hashed_outside: 0..0,
            accumulators: None,
        };
        verifying.plan(&order, places, &mut report);
        let (hashes, summaries) = (HashMap::new(), Vec::new());
        let copies = HashMap::new();
        let results =
            VerificationResults { hashes, summaries, not_finite, report, begun: None, copies };
        Self(InOrder::of(verifying, results))
    }

    /// Also computes statistics of the tensors from the same bytes. Tensors whose values are not
    /// numbers, such as quantised blocks, do not have statistics; nor do constants, unless hashes
    /// are computed.
    #[must_use]
    pub fn with_statistics(mut self) -> Self {
        self.work_mut().accumulators = Some(Mutex::default());
        self
    }

    /// Leaves the hashes of tensors of these sizes in bytes to the caller, if their bytes are fed as
    /// they are stored. For callers that hash faster, or concurrently; see
    /// [`Verification::hashed_outside`].
    #[must_use]
    pub fn hashing_outside(mut self, sizes: Range<u64>) -> Self {
        self.work_mut().hashed_outside = sizes;
        self
    }

    /// Returns the tensor whose bytes are fed next, and their number, if the caller hashes it. Its
    /// hash is passed to [`Verification::add_hash`], unless bytes of it can't be read.
    pub fn hashed_outside(&self) -> Option<(TensorId, u64)> {
        self.work().hashed_outside(self.next())
    }

    /// Adds the SHA-256 of a tensor, in hexadecimal.
    pub fn add_hash(&mut self, tensor: TensorId, hash: String) {
        self.sum_mut().hashes.insert(tensor, hash);
    }

    /// Takes the statistics that were completed since the last call.
    pub fn take_summaries(&mut self) -> Vec<(TensorId, Box<Summary>)> {
        std::mem::take(&mut self.sum_mut().summaries)
    }

    /// Returns the SHA-256 of the tensors read so far, in hexadecimal, if hashes are computed.
    pub fn hashes(&self) -> &HashMap<TensorId, String> {
        &self.sum().hashes
    }

    /// Returns the report, which is complete once the machine needs nothing more. A manifest
    /// requires `hashing`.
    pub fn into_report(self, manifest: Option<&Manifest>) -> Result<VerificationReport> {
        let (work, results) = self.0.into_parts();
        let Verifying { checkpoint, leaves, keys, .. } = &work;
        let VerificationResults { hashes, mut not_finite, mut report, .. } = results;
        for leaf in leaves {
            for (tensor_id, _) in tensors_of(checkpoint, leaf.target) {
                let Some(found) = not_finite.take(tensor_id) else { continue };
                let tensor = checkpoint.tensor(tensor_id)?;
                let key = keys.get(tensor_id).cloned().unwrap_or_default();
                report.result.scales.extend(scales::of_blocks(tensor, &key, &found));
                report.result.not_finite.extend(found.first.map(|first| NonFiniteTensor {
                    key,
                    nan: found.nan,
                    inf: found.inf,
                    params: tensor.numel().unwrap_or(0),
                    first: index(&tensor.shape, first),
                }));
            }
        }
        let plain = PlainNumbers::find(checkpoint, leaves);
        report.result.not_finite_values = plain.not_finite;
        report.result.not_checked.extend(plain.not_checked);
        // A problem that was noticed both when locating and when reading the bytes is reported
        // once.
        let mut all_problems: Vec<Problem> = Vec::new();
        for problem in std::mem::take(&mut report.result.problems) {
            let near = all_problems.len().saturating_sub(NEAR);
            if !all_problems[near..].contains(&problem) {
                all_problems.push(problem);
            }
        }
        report.result.problems = all_problems;
        if let Some(manifest) = manifest {
            report.attributes = has_attributes(checkpoint);
            let (matching, problems) = manifest::compare(checkpoint, leaves, hashes, manifest)?;
            report.result.manifest =
                Some(MatchingEntries { entries: matching + problems.len() as u64, matching });
            report.result.problems.extend(problems);
        }
        Ok(report)
    }
}

impl Verifying {
    /// Plans the jobs, in the order of their bytes in the files.
    fn plan(&mut self, ids: &[TensorId], places: Places, report: &mut VerificationReport) {
        report.result.problems.extend(places.problems);
        report.result.checksums = places.in_chunks;
        let mut jobs: Vec<((FileId, u64), ReadJob)> = Vec::new();
        let mut spans: Vec<(Span, usize)> = Vec::new();
        for (index, check) in self.checks.iter().enumerate() {
            let span = place_of(&check.layout);
            spans.push((span, jobs.len()));
            let bytes = len_of(&check.layout);
            let job = ReadJob { check: Some(index), copy: None, tensors: Vec::new(), bytes };
            jobs.push(((span.file, span.offset), job));
        }
        order::by_key(&mut spans, |(span, _)| (span.file, span.offset, span.len));
        let mut repetition = Repetition::new(&self.checkpoint);
        // Tensors that are read separately.
        let mut alone: Vec<JobTensor> = Vec::new();
        for id in ids {
            let Ok(tensor) = self.checkpoint.tensor(*id) else { continue };
            let key = self.keys.get(*id).cloned().unwrap_or_default();
            if let Some(why) = places.missing.get(*id) {
                report.result.unread.push(UnreadTensor { key, why: why.clone() });
                continue;
            }
            if !repetition.allows(tensor) {
                let why = "a few bytes that are repeated too often".to_owned();
                report.result.unread.push(UnreadTensor { key, why });
                continue;
            }
            if let Some(why) = why_not_checked(&tensor.dtype) {
                report.result.not_checked.push(UnreadTensor { key, why });
            }
            let nbytes = tensor.nbytes().unwrap_or(0);
            report.result.tensors += 1;
            report.result.bytes = report.result.bytes.saturating_add(nbytes);
            if let Some((job, range)) = within(tensor, &self.checks, &spans) {
                if let Some((_, job)) = jobs.get_mut(job) {
                    job.tensors.push(JobTensor { range, tensor: *id });
                }
                continue;
            }
            let covered = places.checked.get(*id).is_some()
                || covered(&tensor.layout, &spans, report.structure);
            report.result.unchecked_tensors += u64::from(nbytes > 0 && !covered);
            alone.push(JobTensor { range: 0..nbytes, tensor: *id });
        }
        for (_, job) in &mut jobs {
            alone.extend(job.part());
        }
        for inner in alone {
            let place = places.starts.get(inner.tensor).copied().unwrap_or((FileId(0), 0));
            let bytes = inner.range.end;
            jobs.push((place, ReadJob { check: None, copy: None, tensors: vec![inner], bytes }));
        }
        for (index, replica) in self.checkpoint.replicas.iter().enumerate() {
            for (which, copy) in replica.copies.iter().enumerate() {
                let bytes = copy.nbytes().unwrap_or(0);
                let place = spans::start(&copy.layout).unwrap_or((FileId(0), 0));
                let copy = Some((index, which));
                jobs.push((place, ReadJob { check: None, copy, tensors: Vec::new(), bytes }));
            }
        }
        order::by_key(&mut jobs, |(place, _)| *place);
        self.jobs = jobs.into_iter().map(|(_, job)| job).collect();
        for (at, job) in self.jobs.iter().enumerate() {
            let (numel, grain) = match self.of(job) {
                (None, Some(tensor)) => match self.checkpoint.tensor(tensor) {
                    // A hash needs all bytes in order, so the tensor can't be split.
                    Ok(tensor) => (tensor.numel(), grain(tensor).filter(|_| !self.hashing)),
                    Err(_) => (None, None),
                },
                _ => (Some(job.bytes), None),
            };
            self.pieces.push(at, numel.unwrap_or(0), grain, PIECE);
        }
    }

    /// Returns the tensor that the caller hashes while a part is read, and its bytes.
    pub fn hashed_outside(&self, part: usize) -> Option<(TensorId, u64)> {
        let job = self.jobs.get(self.pieces.item(part))?;
        self.is_hashed_outside(job).then_some((job.tensors.first()?.tensor, job.bytes))
    }

    /// Returns whether the caller hashes the tensor of a job: the job consists of its stored bytes.
    fn is_hashed_outside(&self, job: &ReadJob) -> bool {
        let [JobTensor { range, tensor }] = job.tensors.as_slice() else { return false };
        let is_stored = || match self.of(job).0 {
            Some(check) => check.found.is_none() && matches!(check.layout, Layout::Span(_)),
            None => self.checkpoint.tensor(*tensor).is_ok_and(|it| verbatim_span(it).is_some()),
        };
        let is_whole = *range == (0..job.bytes);
        self.hashing && is_whole && self.hashed_outside.contains(&job.bytes) && is_stored()
    }

    fn key(&self, tensor: TensorId) -> String {
        self.keys.get(tensor).cloned().unwrap_or_default()
    }

    /// Returns the range of bytes that a part has in its job.
    fn bytes_of(&self, part: usize) -> Range<u64> {
        let (item, range) = (self.pieces.item(part), self.pieces.range(part));
        let size = match self.of(&self.jobs[item]) {
            (None, Some(tensor)) => {
                let tensor = self.checkpoint.tensor(tensor).ok();
                return tensor.map_or(0..0, |tensor| {
                    let bytes = |at| tensor.dtype.bytes_of(at).unwrap_or(u64::MAX);
                    bytes(range.start)..bytes(range.end)
                });
            }
            _ => self.jobs[item].bytes,
        };
        0..size
    }

    /// Returns the check of a job, and the first tensor in it.
    fn of(&self, job: &ReadJob) -> (Option<&Check>, Option<TensorId>) {
        let check = job.check.and_then(|index| self.checks.get(index));
        (check, job.tensors.first().map(|inner| inner.tensor))
    }

    /// Returns an accumulator for a job, if statistics are computed.
    fn accumulator(&self) -> Option<Accumulator> {
        let mut pool = self.accumulators.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(pool.pop().unwrap_or_default())
    }

    /// Returns whether a tensor is a constant for which reading one element suffices.
    fn needs_one_element(&self, tensor: &Tensor) -> bool {
        matches!(tensor.layout, Layout::Fill(_)) && !self.hashing
    }

    /// Returns the counts of a constant tensor; `None` if its value is finite.
    fn constant(&self, id: TensorId) -> Result<Option<NonFinite>> {
        let tensor = self.checkpoint.tensor(id)?;
        let numel = tensor.numel().unwrap_or(0);
        if numel == 0 {
            return Ok(None);
        }
        let mut tally = Tally::new(tensor, false);
        tally.update(&elements(&self.checkpoint.files, tensor, 0..1)?);
        let (mut found, _) = tally.finish();
        found.nan = found.nan.saturating_mul(numel);
        found.inf = found.inf.saturating_mul(numel);
        Ok(found.first.is_some().then_some(found))
    }

    /// Returns the copy that a job reads, and the replica that it is of.
    fn copy(&self, job: &ReadJob) -> Option<(&Replica, &Tensor)> {
        let (index, which) = job.copy?;
        let replica = self.checkpoint.replicas.get(index)?;
        Some((replica, replica.copies.get(which)?))
    }

    /// Creates the problem for copies that are not equal.
    fn differ(&self, replica: &Replica) -> Problem {
        let file = |copy: &Tensor| {
            let place = spans::start(&copy.layout);
            place.map_or("", |(file, _)| self.checkpoint.files.name(file)).to_owned()
        };
        let [used, other] = &replica.copies;
        let (used, other) = (file(used), file(other));
        Problem {
            trouble: Trouble::Copies,
            key: replica.key.to_lossy().into_owned(),
            file: String::new(),
            offset: None,
            text: format!("its copies in {used} and {other} differ; the one in {used} is shown"),
            expected: String::new(),
            found: String::new(),
        }
    }

    /// Creates the problem for bytes of a job that can't be read.
    fn unreadable(&self, job: &ReadJob, error: &Error) -> Problem {
        let (check, tensor) = self.of(job);
        let what = match (check, tensor) {
            (None, None) => {
                let copy = self.copy(job);
                copy.map(|(replica, _)| replica.key.to_string()).unwrap_or_default()
            }
            (Some(check), _) => check.what.clone(),
            (None, tensor) => tensor.map(|tensor| self.key(tensor)).unwrap_or_default(),
        };
        let mut problem = Problem::of_error(Trouble::Damaged, &what, error);
        if problem.file.is_empty()
            && let Some(check) = check
        {
            let file = place_of(&check.layout).file;
            problem.file = self.checkpoint.files.name(file).to_owned();
        }
        problem
    }

    /// Creates the problem for a checksum that does not match.
    fn wrong(&self, job: &ReadJob, check: &Check, found: u32) -> Problem {
        let span = place_of(&check.layout);
        // Tensors without bytes are not affected.
        let has_bytes = |id| self.checkpoint.tensor(id).is_ok_and(|it| it.numel() != Some(0));
        let lies = job.tensors.iter().map(|inner| inner.tensor).filter(|id| has_bytes(*id));
        let mut lies = lies.map(|id| self.key(id)).filter(|key| *key != check.what);
        let keys: Vec<String> = lies.by_ref().take(MAX_LISTED).collect();
        let more = if lies.next().is_some() { " and more" } else { "" };
        let mut text = "its bytes have changed since they were written".to_owned();
        if !keys.is_empty() {
            text += &format!("; stored there: `{}`{more}", keys.join("`, `"));
        }
        let sum = |sum: u32| format!("{} {sum:08x}", check.algorithm.name());
        Problem {
            trouble: Trouble::Checksum,
            key: check.what.clone(),
            file: self.checkpoint.files.name(span.file).to_owned(),
            offset: Some(span.offset),
            text,
            expected: sum(check.expected),
            found: sum(found),
        }
    }
}

impl Work for Verifying {
    type Part = Pour<Passing>;
    type Found = Passed;
    type Sum = VerificationResults;

    fn parts(&self) -> usize {
        self.pieces.count()
    }

    fn size(&self, part: usize) -> u64 {
        let job = &self.jobs[self.pieces.item(part)];
        let Range { start, end } = self.bytes_of(part);
        (end - start).min(job.bytes)
    }

    fn begin(&self, part: usize) -> Result<Option<Self::Part>> {
        let (checkpoint, job) = (&self.checkpoint, &self.jobs[self.pieces.item(part)]);
        let (check, tensor) = self.of(job);
        let passing = |check: Option<&Check>| {
            let summing = check.map(|check| check.algorithm.begin());
            let start = self.bytes_of(part).start;
            let hashing = self.hashing && !self.is_hashed_outside(job);
            Passing::new(checkpoint.clone(), job.tensors.clone(), summing, hashing, start)
                .counting(self.accumulator())
        };
        let pour = match (check, tensor) {
            (Some(check), None) if check.found.is_some() => return Ok(None),
            (Some(check), _) => {
                let bytes = Tensor::new(DType::U8, vec![job.bytes], check.layout.clone());
                Pour::all(&checkpoint.files, &bytes, BUDGET, passing(Some(check)))?
            }
            (None, Some(id)) => {
                let tensor = checkpoint.tensor(id)?;
                if self.needs_one_element(tensor) {
                    return Ok(None);
                }
                let range = self.pieces.range(part);
                Pour::new(&checkpoint.files, tensor, range, BUDGET, passing(None))?
            }
            (None, None) => match self.copy(job) {
                Some((_, copy)) => {
                    Pour::all(&checkpoint.files, copy, BUDGET, passing(None).of_copy())?
                }
                None => return Ok(None),
            },
        };
        Ok(Some(pour))
    }

    fn end(&self, part: usize, machine: Option<Self::Part>, read: Result<()>) -> Passed {
        if let Some(mut pour) = machine {
            let passed = pour.into.finish(read);
            if let (Some(pool), Some(spare)) = (&self.accumulators, pour.into.take_accumulator()) {
                pool.lock().unwrap_or_else(PoisonError::into_inner).push(spare);
            }
            return passed;
        }
        let mut passed = Passed { outcome: read.map(|()| None), copy: None, tensors: Vec::new() };
        let job = &self.jobs[self.pieces.item(part)];
        if let (None, Some(id), Ok(_)) = (job.check, self.of(job).1, &passed.outcome) {
            match self.constant(id) {
                Ok(found) => passed.tensors.extend(found.map(|not_finite| PassedTensor {
                    tensor: id,
                    not_finite,
                    hash: None,
                    summary: None,
                })),
                Err(error) => passed.outcome = Err(error),
            }
        }
        passed
    }

    fn take(&self, sum: &mut VerificationResults, part: usize, found: Passed) -> Result<()> {
        let VerificationResults { hashes, summaries, not_finite, report, begun, copies } = sum;
        let Some(Ok(found)) = self.pieces.join(part, begun, Ok(found), Passed::merge) else {
            return Ok(());
        };
        for PassedTensor { tensor, not_finite: odd, hash, summary } in found.tensors {
            if odd != NonFinite::default() {
                not_finite.set(tensor, odd);
            }
            hashes.extend(hash.map(|hash| (tensor, hash)));
            summaries.extend(summary.map(|summary| (tensor, summary)));
        }
        let job = &self.jobs[self.pieces.item(part)];
        match (found.outcome, self.of(job).0) {
            // Unreadable bytes are a problem, and the verification continues.
            (Err(error), _) => {
                let error = statelens_values::reading::of_one_tensor(error)?;
                match (self.of(job), error.kind()) {
                    ((None, Some(id)), ErrorKind::Limit | ErrorKind::Unsupported) => {
                        let (key, why) = (self.key(id), error.to_string());
                        report.result.unread.push(UnreadTensor { key, why });
                    }
                    _ => report.result.problems.push(self.unreadable(job, &error)),
                }
            }
            (Ok(sum), Some(check)) => {
                report::count(&mut report.result.checksums, check.algorithm.name(), 1);
                let made = || sum.map(|sum| check.algorithm.stored(sum));
                let found = check.found.or_else(made).unwrap_or_default();
                if found != check.expected {
                    report.result.problems.push(self.wrong(job, check, found));
                }
            }
            (Ok(_), None) => {
                let Some((index, _)) = job.copy else { return Ok(()) };
                match copies.remove(&index) {
                    None => drop(copies.insert(index, found.copy)),
                    Some(other) if other == found.copy => {}
                    Some(_) => {
                        report.result.problems.extend(
                            self.checkpoint.replicas.get(index).map(|replica| self.differ(replica)),
                        );
                    }
                }
            }
        }
        Ok(())
    }
}

impl ReadJob {
    /// Sorts its tensors; removes and returns those that overlap others, to be read separately.
    fn part(&mut self) -> Vec<JobTensor> {
        let mut tensors = std::mem::take(&mut self.tensors);
        order::by_key(&mut tensors, |inner| (inner.range.start, inner.range.end));
        let mut alone = Vec::new();
        for inner in tensors {
            match self.tensors.last() {
                Some(last) if last.range.end > inner.range.start => {
                    let range = 0..inner.range.end - inner.range.start;
                    alone.push(JobTensor { range, ..inner });
                }
                _ => self.tensors.push(inner),
            }
        }
        alone
    }
}

/// Returns why elements of this dtype can't be checked for numbers that are not finite; `None` if
/// they can.
pub fn why_not_checked(dtype: &DType) -> Option<String> {
    let (_, all) = ElementNumbers::of(dtype);
    (!all).then(|| format!("`{}` can't be decoded", dtype.name()))
}

/// Returns whether elements of this dtype have floating-point numbers, or may have some that can't
/// be decoded.
pub fn may_have_floats(dtype: &DType) -> bool {
    let (numbers, all) = ElementNumbers::of(dtype);
    !all || numbers != ElementNumbers::Without
}

/// Reads a tensor and counts its numbers that are not finite.
pub fn count_not_finite(
    checkpoint: &Checkpoint,
    tensor: TensorId,
    progress: &mut dyn Progress,
) -> Result<NonFinite> {
    let of = checkpoint.tensor(tensor)?;
    let mut pour = Pour::all(&checkpoint.files, of, BUDGET, Tally::new(of, false))?;
    drive(&mut pour, &mut Buffer::new(BUFFER), progress)?;
    Ok(pour.into.finish().0)
}

/// Returns the location of a check's bytes in the file.
fn place_of(layout: &Layout) -> Span {
    match layout {
        Layout::Span(span) => *span,
        Layout::Packed(packed) => packed.span,
        _ => Span { file: FileId(0), offset: 0, len: 0 },
    }
}

/// Returns the number of bytes that a check covers.
fn len_of(layout: &Layout) -> u64 {
    match layout {
        Layout::Packed(packed) => packed.len,
        other => place_of(other).len,
    }
}

/// Finds the check whose bytes contain those of a tensor unchanged. Returns its job, and the range
/// within it.
fn within(
    tensor: &Tensor,
    checks: &[Check],
    spans: &[(Span, usize)],
) -> Option<(usize, Range<u64>)> {
    if let Layout::Packed(packed) = &tensor.layout {
        let (span, job) = around(packed.span, spans)?;
        let plain = Tensor { layout: Layout::Span(packed.span), ..tensor.clone() };
        let whole = span == packed.span
            && matches!(checks.get(job)?.layout, Layout::Packed(_))
            && plain.is_verbatim()
            && plain.nbytes() == Some(packed.len);
        return whole.then(|| (job, packed.skip..packed.skip.saturating_add(packed.len)));
    }
    let span = verbatim_span(tensor)?;
    let (outer, job) = around(span, spans)?;
    let start = span.offset - outer.offset;
    let plain = matches!(checks.get(job)?.layout, Layout::Span(_));
    plain.then_some((job, start..start + span.len))
}

/// Returns the last of the sorted spans that begins at or before a span, if it also contains its
/// end.
fn around(span: Span, spans: &[(Span, usize)]) -> Option<(Span, usize)> {
    let after =
        spans.partition_point(|(other, _)| (other.file, other.offset) <= (span.file, span.offset));
    let (outer, job) = *spans.get(after.checked_sub(1)?)?;
    inside(span, outer).then_some((outer, job))
}

/// Returns whether all bytes of a layout are covered by checks; those in the file's structure are
/// covered if `structure` is set.
fn covered(layout: &Layout, spans: &[(Span, usize)], structure: bool) -> bool {
    let mut open = vec![layout];
    while let Some(layout) = open.pop() {
        let found = match layout {
            Layout::Span(span) => around(*span, spans).is_some(),
            Layout::Packed(packed) => around(packed.span, spans).is_some(),
            // Small archives are checked member by member.
            Layout::Deferred(deferred) => {
                let span = deferred.span();
                let before = |(other, _): &(Span, usize)| {
                    (other.file, other.offset) < (span.file, span.offset)
                };
                let first = spans.get(spans.partition_point(before));
                first.is_some_and(|(first, _)| inside(*first, span))
            }
            Layout::Strided(strided) => {
                open.push(&strided.storage);
                true
            }
            Layout::Concat(concat) => {
                open.extend(concat.parts.iter().map(|part| &part.layout));
                true
            }
            Layout::Computed(computed) => {
                open.extend(computed.layouts());
                true
            }
            Layout::Dequantised(parts) => {
                open.extend(parts.layouts());
                true
            }
            Layout::Inline(_) => structure,
            Layout::Fill(_) => true,
            Layout::Chunked(_) | Layout::Missing(_) => false,
        };
        if !found {
            return false;
        }
    }
    true
}

fn inside(span: Span, outer: Span) -> bool {
    let end = |span: Span| span.offset.saturating_add(span.len);
    span.file == outer.file && span.offset >= outer.offset && end(span) <= end(outer)
}

/// Returns the keys of tensors, and the tensors in the order of the tree.
fn keys_of(checkpoint: &Checkpoint, leaves: &[Leaf]) -> (PerTensor<String>, Vec<TensorId>) {
    let (mut keys, mut order) = (PerTensor::of(checkpoint), Vec::new());
    for leaf in leaves {
        for (id, part) in tensors_of(checkpoint, leaf.target) {
            if keys.get(id).is_none() {
                order.push(id);
                let key = leaf.flat.to_lossy();
                keys.set(
                    id,
                    if part.is_empty() { key.into_owned() } else { format!("{key}: {part}") },
                );
            }
        }
    }
    (keys, order)
}

fn problem_of_finding(finding: &statelens_checkpoint::Finding) -> Problem {
    // The title may have the place already.
    let place = if finding.title.contains(&finding.place) { "" } else { &finding.place };
    let parts = [finding.title.as_str(), place, finding.detail.as_str()];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    Problem {
        trouble: Trouble::Finding,
        key: String::new(),
        file: String::new(),
        offset: None,
        text: parts.collect::<Vec<_>>().join(": "),
        expected: String::new(),
        found: String::new(),
    }
}

/// Verifies a checkpoint, reading synchronously, and compares it with a manifest, if there is one.
pub fn verify(
    checkpoint: Arc<Checkpoint>,
    checks: Checks,
    manifest: Option<&Manifest>,
    progress: &mut dyn Progress,
) -> Result<VerificationReport> {
    let mut verification = Verification::new(checkpoint, checks, manifest.is_some());
    drive(&mut verification, &mut Buffer::new(BUFFER), progress)?;
    verification.into_report(manifest)
}
