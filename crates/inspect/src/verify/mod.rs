//! Whether a checkpoint is sound: all of it is read, once as far as that goes, every checksum
//! that its files have is looked at, and numbers that are none are counted.
//!
//! [`Verification`] is a state machine, as [`compare`](crate::compare) is: it says which span it
//! needs and is fed those bytes in pieces of any size. [`verify`] is the driver for callers that
//! may block.
//!
//! Where a checksum is of the very bytes of a tensor, they pass once for both. What is looked at
//! when a file is opened (the structures of HDF5, the pickle of a PyTorch file) is among the
//! checkpoint's findings, which are problems here; so is what does not decode.

mod against;
mod report;
mod spans;
mod table;
mod tally;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, DType, Error, FileId, Grade, Layout, Leaf, Progress, Quantizer, Result, Span,
    Tensor, TensorId, Value, ValueId, order,
};
use statelens_formats::checks::{Check, Checks};
use statelens_tensor::crc::Summing;
use statelens_tensor::{Gather, Need as GatherNeed, elements, verbatim_span};

use crate::manifest::Repetition;
use spans::Places;
use table::Table;
use tally::Tally;

pub use against::Manifest;
pub(crate) use report::not_finite;
pub use report::{Line, Numbers, Problem, Report, Trouble};
pub use tally::NonFinite;

/// What a [`Verification`] waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The bytes of this span, through [`Verification::feed`], in order, in pieces of any size.
    Feed(Span),
    /// A call of [`Verification::step`].
    Step,
    /// Nothing: everything was looked at.
    Done,
}

/// Bytes that a gather may hold.
const BUDGET: usize = 8 << 20;

/// Bytes that the driver reads at once.
const BUFFER: usize = 256 << 10;

/// Problems before one that may be the same.
const NEAR: usize = 64;

/// A verification of a checkpoint.
pub struct Verification {
    checkpoint: Arc<Checkpoint>,
    leaves: Vec<Leaf>,
    keys: Table<String>,
    checks: Vec<Check>,
    jobs: Vec<Job>,
    next: usize,
    current: Option<Box<Current>>,
    /// Whether hashes are wanted, too.
    hashing: bool,
    hashes: HashMap<TensorId, String>,
    not_finite: Table<NonFinite>,
    report: Report,
    progress: (u64, u64),
}

/// Something to be read from its start to its end.
struct Job {
    /// Which of the checks, if it is of one.
    check: Option<usize>,
    /// The tensors whose bytes are in it as they are, in order.
    tensors: Vec<Inner>,
    bytes: u64,
}

/// A tensor in the bytes of a job.
struct Inner {
    range: Range<u64>,
    tensor: TensorId,
}

/// A job that is being done.
struct Current {
    gather: Gather,
    summing: Option<Summing>,
    /// Bytes that have passed.
    at: u64,
    /// The first tensor of the job that has not passed.
    inner: usize,
    tally: Option<Tally>,
}

impl Verification {
    /// Looks at everything but weights: `checks` are those of the checkpoint's files. With
    /// `hashing`, the tensors are hashed, to be held against a manifest.
    pub fn new(checkpoint: Arc<Checkpoint>, checks: Checks, hashing: bool) -> Self {
        let leaves = checkpoint.leaves();
        let (keys, order) = keys_of(&checkpoint, &leaves);
        let mut report =
            Report { without: checks.without, summed: checks.summed, ..Report::default() };
        report.problems = checkpoint
            .findings
            .iter()
            .filter(|finding| finding.grade == Grade::Damage)
            .map(problem_of_finding)
            .collect();
        for (what, error) in &checks.broken {
            report.problems.push(Problem::of_error(Trouble::Damaged, what, error));
        }
        let places = spans::places(&checkpoint, &keys);
        let not_finite = Table::of(&checkpoint);
        let mut verification = Self {
            checkpoint,
            leaves,
            keys,
            checks: checks.checks,
            jobs: Vec::new(),
            next: 0,
            current: None,
            hashing,
            hashes: HashMap::new(),
            not_finite,
            report,
            progress: (0, 0),
        };
        verification.plan(&order, places);
        verification
    }

    /// What it waits for.
    pub fn need(&self) -> Need {
        match &self.current {
            Some(current) => match current.gather.need() {
                GatherNeed::Feed(span) => Need::Feed(span),
                GatherNeed::Step | GatherNeed::Done => Need::Step,
            },
            None if self.next < self.jobs.len() => Need::Step,
            None => Need::Done,
        }
    }

    /// Bytes that were looked at, and all of them.
    pub fn progress(&self) -> (u64, u64) {
        let within = self.current.as_ref().map_or(0, |current| current.at);
        (self.progress.0.saturating_add(within), self.progress.1)
    }

    /// Takes the next bytes of the span that [`Verification::need`] named, not more than that.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        self.go_on(|gather, _, out| gather.feed(bytes, out))
    }

    /// Goes on where no bytes are needed.
    pub fn step(&mut self) -> Result<()> {
        if self.current.is_none() {
            return self.begin();
        }
        self.go_on(|gather, checkpoint, out| match gather.need() {
            GatherNeed::Step => gather.step(&checkpoint.files, out),
            _ => Ok(()),
        })
    }

    /// What was found; complete once nothing is needed any more. Hashes were asked for if there
    /// is a manifest.
    pub fn into_report(mut self, manifest: Option<&Manifest>) -> Result<Report> {
        for leaf in &self.leaves {
            for (tensor_id, _) in tensors_of(&self.checkpoint, leaf.target) {
                let Some(found) = self.not_finite.take(tensor_id) else { continue };
                let tensor = self.checkpoint.tensor(tensor_id)?;
                self.report.numbers.push(Numbers {
                    key: self.keys.get(tensor_id).cloned().unwrap_or_default(),
                    found,
                    elements: tensor.numel().unwrap_or(0),
                    first: crate::compare::unravel(found.first.unwrap_or(0), &tensor.shape),
                });
            }
        }
        // What was noticed in looking for the bytes, and again in reading them, is one problem.
        let mut told: Vec<Problem> = Vec::new();
        for problem in std::mem::take(&mut self.report.problems) {
            let near = told.len().saturating_sub(NEAR);
            if !told[near..].contains(&problem) {
                told.push(problem);
            }
        }
        self.report.problems = told;
        if let Some(manifest) = manifest {
            let hashes = std::mem::take(&mut self.hashes);
            let (matching, problems) =
                against::against(&self.checkpoint, &self.leaves, hashes, manifest)?;
            self.report.manifest = Some((matching + problems.len() as u64, matching));
            self.report.problems.extend(problems);
        }
        Ok(self.report)
    }

    /// Decides what is read, in the order in which it lies in the files.
    fn plan(&mut self, ids: &[TensorId], places: Places) {
        self.report.problems.extend(places.problems);
        self.report.checksums = places.in_chunks;
        let mut jobs: Vec<((FileId, u64), Job)> = Vec::new();
        let mut spans: Vec<(Span, usize)> = Vec::new();
        for (index, check) in self.checks.iter().enumerate() {
            let span = place_of(&check.layout);
            spans.push((span, jobs.len()));
            let bytes = len_of(&check.layout);
            let job = Job { check: Some(index), tensors: Vec::new(), bytes };
            jobs.push(((span.file, span.offset), job));
        }
        order::by_key(&mut spans, |(span, _)| (span.file, span.offset, span.len));
        let mut repetition = Repetition::new(&self.checkpoint);
        // Those that are read by themselves.
        let mut alone: Vec<Inner> = Vec::new();
        for id in ids {
            let Ok(tensor) = self.checkpoint.tensor(*id) else { continue };
            let key = self.keys.get(*id).cloned().unwrap_or_default();
            if let Some(why) = places.missing.get(*id) {
                self.report.unread.push((key, why.clone()));
                continue;
            }
            if !repetition.allows(tensor) {
                let why = "a few bytes that are repeated beyond measure".to_owned();
                self.report.unread.push((key, why));
                continue;
            }
            let nbytes = tensor.nbytes().unwrap_or(0);
            self.report.tensors += 1;
            self.report.bytes = self.report.bytes.saturating_add(nbytes);
            if let Some((job, range)) = within(tensor, &self.checks, &spans) {
                if let Some((_, job)) = jobs.get_mut(job) {
                    job.tensors.push(Inner { range, tensor: *id });
                }
                continue;
            }
            let lies = !matches!(tensor.layout, Layout::Fill(_) | Layout::Inline(_));
            let covered = places.checked.get(*id).is_some() || covered(&tensor.layout, &spans);
            self.report.unchecked += u64::from(lies && nbytes > 0 && !covered);
            alone.push(Inner { range: 0..nbytes, tensor: *id });
        }
        for (_, job) in &mut jobs {
            alone.extend(job.part());
        }
        for inner in alone {
            let place = places.starts.get(inner.tensor).copied().unwrap_or((FileId(0), 0));
            let bytes = inner.range.end;
            jobs.push((place, Job { check: None, tensors: vec![inner], bytes }));
        }
        order::by_key(&mut jobs, |(place, _)| *place);
        self.jobs = jobs.into_iter().map(|(_, job)| job).collect();
        self.progress.1 = self.jobs.iter().fold(0, |sum, job| sum.saturating_add(job.bytes));
    }

    /// Prepares the next job.
    fn begin(&mut self) -> Result<()> {
        let Some(job) = self.jobs.get(self.next) else { return Ok(()) };
        let known = job.check.and_then(|index| self.checks.get(index)?.found);
        if known.is_some() && job.tensors.is_empty() {
            self.end(Ok(None));
            return Ok(());
        }
        match self.current(job) {
            Ok(Some(current)) => {
                self.current = Some(Box::new(current));
                self.go_on(|_, _, _| Ok(()))
            }
            Ok(None) => {
                self.end(Ok(None));
                Ok(())
            }
            Err(error) => self.give_up(error),
        }
    }

    /// The machine for a job; `None` if its one element was looked at, which is all there is.
    fn current(&self, job: &Job) -> Result<Option<Current>> {
        let checkpoint = &self.checkpoint;
        let check = job.check.and_then(|index| self.checks.get(index));
        let (gather, summing) = match (check, job.tensors.first()) {
            (Some(check), _) => {
                let bytes = Tensor::new(DType::U8, vec![job.bytes], check.layout.clone());
                let gather = Gather::new(&checkpoint.files, &bytes, 0..job.bytes, BUDGET)?;
                (gather, Some(check.algorithm.begin()))
            }
            (None, Some(inner)) => {
                let tensor = checkpoint.tensor(inner.tensor)?;
                if matches!(tensor.layout, Layout::Fill(_)) && !self.hashing {
                    return Ok(None);
                }
                let numel = tensor.numel().unwrap_or(0);
                (Gather::new(&checkpoint.files, tensor, 0..numel, BUDGET)?, None)
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(Current { gather, summing, at: 0, inner: 0, tally: None }))
    }

    fn go_on(
        &mut self,
        act: impl FnOnce(&mut Gather, &Checkpoint, &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let (Some(current), Some(job)) = (&mut self.current, self.jobs.get(self.next)) else {
            return Err(Error::io("bytes were fed to a verification that needs none"));
        };
        let Current { gather, summing, at, inner, tally } = &mut **current;
        let mut passing = Passing {
            checkpoint: &self.checkpoint,
            tensors: &job.tensors,
            hashing: self.hashing,
            hashes: &mut self.hashes,
            not_finite: &mut self.not_finite,
            at,
            inner,
            tally,
        };
        let mut out = |bytes: &[u8]| {
            if let Some(summing) = summing {
                summing.update(bytes);
            }
            passing.pass(bytes)
        };
        let acted = act(gather, &self.checkpoint, &mut out);
        // Said here, so that whoever feeds need not know where a file ends.
        let there = || match gather.need() {
            GatherNeed::Feed(span) => self.checkpoint.files.check(span),
            _ => Ok(()),
        };
        if let Err(error) = acted.and_then(|()| there()) {
            return self.give_up(error);
        }
        if gather.need() != GatherNeed::Done {
            return Ok(());
        }
        // What has no bytes is not passed by any.
        passing.pass(&[])?;
        let sum = self.current.take().and_then(|current| current.summing).map(Summing::value);
        self.end(Ok(sum));
        Ok(())
    }

    /// One tensor that can't be read is a problem.
    fn give_up(&mut self, error: Error) -> Result<()> {
        let error = crate::of_one_tensor(error)?;
        self.current = None;
        self.end(Err(error));
        Ok(())
    }

    /// Notes what came of a job, the sum of its bytes if that was made.
    fn end(&mut self, outcome: Result<Option<u32>>) {
        let Some(job) = self.jobs.get(self.next) else { return };
        self.next += 1;
        self.progress.0 = self.progress.0.saturating_add(job.bytes);
        let check = job.check.and_then(|index| self.checks.get(index));
        let first = job.tensors.first().map(|inner| inner.tensor);
        let key = |id: &TensorId| self.keys.get(*id).cloned().unwrap_or_default();
        match (outcome, check) {
            (Err(error), check) => {
                let what = match (check, &first) {
                    (Some(check), _) => check.what.clone(),
                    (None, Some(tensor)) => key(tensor),
                    (None, None) => String::new(),
                };
                let mut problem = Problem::of_error(Trouble::Damaged, &what, &error);
                if problem.file.is_empty()
                    && let Some(check) = check
                {
                    let file = place_of(&check.layout).file;
                    problem.file = self.checkpoint.files.name(file).to_owned();
                }
                self.report.problems.push(problem);
            }
            (Ok(sum), Some(check)) => {
                report::count(&mut self.report.checksums, check.algorithm.name(), 1);
                let made = || sum.map(|sum| check.algorithm.stored(sum));
                let found = check.found.or_else(made).unwrap_or_default();
                if found != check.expected {
                    let span = place_of(&check.layout);
                    let lies = job.tensors.iter().map(|inner| key(&inner.tensor));
                    let lies: Vec<String> = lies.filter(|key| *key != check.what).take(4).collect();
                    let text = match lies.as_slice() {
                        [] => "its bytes are not those that were written".to_owned(),
                        keys => format!(
                            "its bytes are not those that were written; stored there: `{}`{}",
                            keys.join("`, `"),
                            if job.tensors.len() > keys.len() { " and more" } else { "" },
                        ),
                    };
                    let sum = |sum: u32| format!("{} {sum:08x}", check.algorithm.name());
                    self.report.problems.push(Problem {
                        trouble: Trouble::Checksum,
                        key: check.what.clone(),
                        file: self.checkpoint.files.name(span.file).to_owned(),
                        offset: Some(span.offset),
                        text,
                        expected: sum(check.expected),
                        found: sum(found),
                    });
                }
            }
            (Ok(_), None) => {
                // A constant that was not gone through: its one element tells.
                let Some(id) = first else { return };
                let Ok(tensor) = self.checkpoint.tensor(id) else { return };
                if matches!(tensor.layout, Layout::Fill(_)) && !self.hashing {
                    self.constant(id);
                }
            }
        }
    }

    fn constant(&mut self, id: TensorId) {
        let Ok(tensor) = self.checkpoint.tensor(id) else { return };
        let numel = tensor.numel().unwrap_or(0);
        if numel == 0 {
            return;
        }
        match elements(&self.checkpoint.files, tensor, 0..1) {
            Ok(bytes) => {
                let mut tally = Tally::new(tensor, false);
                tally.update(&bytes);
                let (mut found, _) = tally.finish();
                found.nan = found.nan.saturating_mul(numel);
                found.inf = found.inf.saturating_mul(numel);
                if found.first.is_some() {
                    self.not_finite.set(id, found);
                }
            }
            Err(error) => {
                let key = self.keys.get(id).cloned().unwrap_or_default();
                self.report.problems.push(Problem::of_error(Trouble::Damaged, &key, &error));
            }
        }
    }
}

impl Job {
    /// Puts its tensors in order; takes out those that overlap others, to be read by themselves.
    fn part(&mut self) -> Vec<Inner> {
        let mut tensors = std::mem::take(&mut self.tensors);
        order::by_key(&mut tensors, |inner| (inner.range.start, inner.range.end));
        let mut alone = Vec::new();
        for inner in tensors {
            match self.tensors.last() {
                Some(last) if last.range.end > inner.range.start => {
                    let range = 0..inner.range.end - inner.range.start;
                    alone.push(Inner { range, ..inner });
                }
                _ => self.tensors.push(inner),
            }
        }
        alone
    }
}

/// Bytes on their way to the tensors that they are of.
struct Passing<'a> {
    checkpoint: &'a Checkpoint,
    tensors: &'a [Inner],
    hashing: bool,
    hashes: &'a mut HashMap<TensorId, String>,
    not_finite: &'a mut Table<NonFinite>,
    at: &'a mut u64,
    inner: &'a mut usize,
    tally: &'a mut Option<Tally>,
}

impl Passing<'_> {
    fn pass(&mut self, bytes: &[u8]) -> Result<()> {
        let here = *self.at..self.at.saturating_add(bytes.len() as u64);
        *self.at = here.end;
        while let Some(Inner { range, tensor: id }) = self.tensors.get(*self.inner) {
            if range.start > here.end || (range.start == here.end && range.end > here.end) {
                return Ok(());
            }
            if self.tally.is_none() {
                let tensor = self.checkpoint.tensor(*id)?;
                *self.tally = Some(Tally::new(tensor, self.hashing));
            }
            let (from, to) = (range.start.max(here.start), range.end.min(here.end));
            if from < to
                && let Some(tally) = self.tally
            {
                // Both lie within the bytes that are here.
                tally.update(&bytes[(from - here.start) as usize..(to - here.start) as usize]);
            }
            if range.end > here.end {
                return Ok(());
            }
            *self.inner += 1;
            let Some(tally) = self.tally.take() else { continue };
            let (found, hash) = tally.finish();
            if found.first.is_some() {
                self.not_finite.set(*id, found);
            }
            if let Some(hash) = hash {
                self.hashes.insert(*id, hash);
            }
        }
        Ok(())
    }
}

/// Where a check's bytes begin in the file.
fn place_of(layout: &Layout) -> Span {
    match layout {
        Layout::Span(span) => *span,
        Layout::Packed(packed) => packed.span,
        _ => Span { file: FileId(0), offset: 0, len: 0 },
    }
}

/// How many bytes a check is of.
fn len_of(layout: &Layout) -> u64 {
    match layout {
        Layout::Packed(packed) => packed.len,
        other => place_of(other).len,
    }
}

/// The check whose bytes hold those of a tensor as they are, by its job, and where in them.
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

/// The last of the sorted spans that begins before a span, or with it, if it goes on to its end.
fn around(span: Span, spans: &[(Span, usize)]) -> Option<(Span, usize)> {
    let after =
        spans.partition_point(|(other, _)| (other.file, other.offset) <= (span.file, span.offset));
    let (outer, job) = *spans.get(after.checked_sub(1)?)?;
    inside(span, outer).then_some((outer, job))
}

/// Whether a storage, or all parts of a whole, lie in bytes that some check is of.
fn covered(layout: &Layout, spans: &[(Span, usize)]) -> bool {
    let mut open = vec![layout];
    while let Some(layout) = open.pop() {
        let found = match layout {
            Layout::Span(span) => around(*span, spans).is_some(),
            Layout::Packed(packed) => around(packed.span, spans).is_some(),
            // A small archive is checked member by member.
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
            Layout::Fill(_) | Layout::Inline(_) => true,
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

/// The tensors of a value: itself, or the parts of a sparse one, and those of its quantizer, each
/// with a name if it is a part.
fn tensors_of(checkpoint: &Checkpoint, id: ValueId) -> Vec<(TensorId, &'static str)> {
    let mut found = Vec::new();
    let mut push = |id: ValueId, name| {
        found.extend(checkpoint.tensor_of(id).map(|(tensor, _)| (tensor, name)));
    };
    match checkpoint.value(id) {
        Value::Sparse(sparse) => sparse.parts.iter().for_each(|(name, part)| push(*part, *name)),
        _ => {
            push(id, "");
            let quantizer = checkpoint.tensor_of(id).and_then(|(_, t)| t.quantizer.as_ref());
            if let Some(Quantizer::PerChannel { scales, zero_points, .. }) = quantizer {
                push(*scales, "scales");
                push(*zero_points, "zero_points");
            }
        }
    }
    found
}

/// What tensors are called, and in which order they come.
fn keys_of(checkpoint: &Checkpoint, leaves: &[Leaf]) -> (Table<String>, Vec<TensorId>) {
    let (mut keys, mut order) = (Table::of(checkpoint), Vec::new());
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
    Problem {
        trouble: Trouble::Finding,
        key: String::new(),
        file: String::new(),
        offset: None,
        text: [finding.title.as_str(), finding.place.as_str(), finding.detail.as_str()]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(": "),
        expected: String::new(),
        found: String::new(),
    }
}

/// Verifies a checkpoint, reading as it goes; with a manifest, holds it against that.
pub fn verify(
    checkpoint: Arc<Checkpoint>,
    checks: Checks,
    manifest: Option<&Manifest>,
    progress: &mut dyn Progress,
) -> Result<Report> {
    let files = checkpoint.files.clone();
    let mut verification = Verification::new(checkpoint, checks, manifest.is_some());
    let mut buffer = Vec::new();
    loop {
        match verification.need() {
            Need::Feed(span) => {
                let len = span.len.min(BUFFER as u64) as usize;
                if buffer.len() < len {
                    buffer.resize(len, 0);
                }
                files.read(span.file, span.offset, &mut buffer[..len])?;
                verification.feed(&buffer[..len])?;
            }
            Need::Step => verification.step()?,
            Need::Done => return verification.into_report(manifest),
        }
        let (done, total) = verification.progress();
        progress.check(done, total)?;
    }
}
