//! Reads tensors once for their statistics, and some of them again: for hashes of those that may be
//! equal, or row by row.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use statelens_checkpoint::{Checkpoint, DType, Layout, Result, Tensor, TensorId};
use statelens_tensor::{BUDGET, InOrder, Pieces, Pour, Receive, Work, grain};

use crate::reading::{Repetition, missing};
use statelens_stats::{
    Accumulator, ByteHash, Histogram, MatrixLines, Rows, Scale, Statistics, Summary, has_statistics,
};

/// Number of bins of a displayed histogram.
const BINS: usize = 48;

/// Bytes at the start of a part that are compared with those of earlier parts.
const START: usize = 16;

/// The measured values of a tensor.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Measured {
    /// The statistics.
    pub statistics: Statistics,
    /// The histogram with bins of equal width.
    pub linear: Histogram,
    /// The histogram with logarithmic bins on both sides of zero.
    pub log: Histogram,
}

impl Measured {
    /// Computes the figures of a summary.
    pub fn of(summary: &Summary) -> Self {
        Self::with(summary.statistics(), summary)
    }

    /// Computes the histograms of a summary whose statistics are known.
    pub fn with(statistics: Statistics, summary: &Summary) -> Self {
        Self {
            statistics,
            linear: summary.histogram(Scale::Linear, BINS),
            log: summary.histogram(Scale::Log, BINS + 1),
        }
    }

    /// Drops the histograms, where very many of these are kept.
    pub fn without_histograms(self) -> Self {
        Self { statistics: self.statistics, ..Self::default() }
    }

    /// Returns whether it has its histograms, or does not need any.
    pub fn is_whole(&self) -> bool {
        self.statistics.finite() == 0 || !self.linear.counts.is_empty()
    }
}

/// The result of reading a tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TensorOutcome {
    /// The summary of its values.
    Read(Box<Summary>),
    /// A hash of its logical bytes, which is the same for equal tensors in this process only.
    Hash(u128),
    /// Statistics of its rows, and of its columns if requested. They are not sent to other processes.
    #[serde(skip)]
    Lines(Box<MatrixLines>),
    /// The tensor is not numeric, or has too many repeated values; the reason.
    Without(String),
    /// The values can't be read; the reason.
    Unread(String),
}

/// Returns the tensor in a form that statistics can be computed of: itself, or with its blocks
/// decoded to numbers.
pub fn countable(tensor: &Tensor) -> Option<Cow<'_, Tensor>> {
    match has_statistics(&tensor.dtype) {
        true => Some(Cow::Borrowed(tensor)),
        false => statelens_tensor::numbers(tensor).filter(|numbers| has_statistics(&numbers.dtype)),
    }
}

statelens_tensor::in_order! {
    /// Reads tensors: a machine that is fed their files. It reports tensors that can't be read and
    /// continues with the next one.
    pub struct Survey(Surveying);
}

/// The work of a [`Survey`].
pub struct Surveying {
    checkpoint: Arc<Checkpoint>,
    wants: Wants,
    /// The tensors, each once; for those that are not read, the reason.
    tensors: Vec<(TensorId, Option<TensorOutcome>)>,
    pieces: Pieces,
    /// Accumulators that are not in use. They are pooled because each is large.
    accumulators: Mutex<Vec<Accumulator>>,
    /// The starts of the parts, if those that begin like an earlier one are hashed.
    starts: Option<Arc<Starts>>,
}

/// Hashes of the dtype, the shape, the position and the first bytes of the parts that were begun.
#[derive(Default)]
struct Starts {
    seen: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

/// A statistic of a tensor or of a part of it, and the hash of its bytes if it begins like an
/// earlier one.
#[doc(hidden)]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PartOutcome {
    outcome: TensorOutcome,
    /// Hashes of other processes can't be compared.
    #[serde(skip)]
    hash: Option<Box<ByteHash>>,
}

/// The kind of result that is computed of each tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wants {
    Statistics,
    Hash,
    Rows,
    Lines,
}

/// The results of a [`Survey`] so far.
#[derive(Default)]
pub struct SurveyResults {
    outcomes: Vec<(TensorId, TensorOutcome)>,
    /// The result so far of the tensor whose last part is still missing.
    begun: Option<Result<Option<PartOutcome>>>,
}

/// The receiver of the bytes of a part.
pub enum Into {
    /// Statistics.
    #[doc(hidden)]
    Count(Box<ValueCounter>),
    /// A hash.
    #[doc(hidden)]
    Hash(Box<ByteHash>),
    /// Rows and columns.
    #[doc(hidden)]
    Lines(Box<Rows>),
}

/// Counts values and can report intermediate statistics.
pub struct ValueCounter {
    accumulator: Accumulator,
    dtype: DType,
    /// The index of the next element, the point where the accumulator was last restarted, and the
    /// summary of everything before that point.
    at: u64,
    before: Summary,
    /// Number of bytes since the restart.
    passed: u64,
    /// The hash, and what decides whether it is computed.
    hash: Option<Box<ByteHash>>,
    undecided: Option<(Arc<Starts>, u64)>,
}

impl Survey {
    /// Reads the statistics of these tensors, each once, in this order.
    pub fn new(checkpoint: Arc<Checkpoint>, tensors: impl IntoIterator<Item = TensorId>) -> Self {
        Self::plan(checkpoint, tensors, Wants::Statistics, u64::MAX)
    }

    /// Like [`Survey::new`], but divides tensors into parts of about `bytes` bytes where that does
    /// not cause repeated reads, so that a driver can read several parts at once. The results are
    /// the same.
    pub fn divided(
        checkpoint: Arc<Checkpoint>,
        tensors: impl IntoIterator<Item = TensorId>,
        bytes: u64,
    ) -> Self {
        Self::plan(checkpoint, tensors, Wants::Statistics, bytes)
    }

    /// Also hashes tensors that begin like an earlier one, which saves reading them again: the
    /// hashes follow the statistics in the results. Tensors that are equal may be left out.
    #[must_use]
    pub fn hashing_repeated(mut self) -> Self {
        self.work_mut().starts = Some(Arc::default());
        self
    }

    /// Like [`Survey::new`], but computes hashes.
    pub fn hashing(
        checkpoint: Arc<Checkpoint>,
        tensors: impl IntoIterator<Item = TensorId>,
    ) -> Self {
        Self::plan(checkpoint, tensors, Wants::Hash, u64::MAX)
    }

    /// Like [`Survey::new`], but computes statistics of rows. A row of a tensor has all dimensions
    /// except the first; tensors of one dimension are skipped.
    pub fn by_rows(
        checkpoint: Arc<Checkpoint>,
        tensors: impl IntoIterator<Item = TensorId>,
    ) -> Self {
        Self::plan(checkpoint, tensors, Wants::Rows, u64::MAX)
    }

    /// Like [`Survey::by_rows`], but reports columns too, which takes longer.
    pub fn by_rows_and_columns(
        checkpoint: Arc<Checkpoint>,
        tensors: impl IntoIterator<Item = TensorId>,
    ) -> Self {
        Self::plan(checkpoint, tensors, Wants::Lines, u64::MAX)
    }

    fn plan(
        checkpoint: Arc<Checkpoint>,
        ids: impl IntoIterator<Item = TensorId>,
        wants: Wants,
        piece: u64,
    ) -> Self {
        let mut repetition = Repetition::new(&checkpoint);
        let (mut seen, mut tensors, mut pieces) = (HashSet::new(), Vec::new(), Pieces::default());
        for id in ids {
            let Ok(tensor) = checkpoint.tensor(id) else { continue };
            if !seen.insert(id) {
                continue;
            }
            let why = skip_reason(tensor, wants, &mut repetition);
            let index = tensors.len();
            match wanted(tensor, wants).filter(|_| why.is_none()) {
                Some(tensor) => {
                    let grain = grain(&tensor).filter(|_| piece < u64::MAX);
                    let most = piece / tensor.dtype.itemsize().max(1);
                    pieces.push(index, tensor.numel().unwrap_or(0), grain, most);
                }
                None => pieces.push(index, 0, None, 0),
            }
            tensors.push((id, why));
        }
        let accumulators = Mutex::default();
        let surveying =
            Surveying { checkpoint, wants, tensors, pieces, accumulators, starts: None };
        Self(InOrder::of(surveying, SurveyResults::default()))
    }

    /// Returns the results since the last call.
    pub fn take(&mut self) -> Vec<(TensorId, TensorOutcome)> {
        self.sum_mut().take()
    }

    /// Returns the statistics so far of the tensor that is being read; `None` in the middle of an
    /// element.
    pub fn so_far(&mut self) -> Option<(TensorId, Measured)> {
        let (next, work) = (self.next(), self.work());
        let (id, _) = *work.tensors.get(work.pieces.item(next))?;
        let Into::Count(counting) = &mut self.current_mut()?.into else { return None };
        let mut summary = counting.so_far()?;
        if let Some(Ok(Some(begun))) = &self.sum().begun
            && let TensorOutcome::Read(begun) = &begun.outcome
        {
            summary.merge(begun);
        }
        Some((id, Measured::of(&summary)))
    }
}

impl Surveying {
    fn accumulators(&self) -> MutexGuard<'_, Vec<Accumulator>> {
        self.accumulators.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the hash of a part from an offset in bytes, and what decides whether it is computed.
    fn undecided(&self, tensor: &Tensor, offset: u64) -> Option<(Box<ByteHash>, Arc<Starts>, u64)> {
        let starts = self.starts.as_ref()?;
        let hash = ByteHash::from_offset(offset).filter(|_| has_statistics(&tensor.dtype))?;
        let key = starts.hasher.hash_one((tensor.dtype.to_string(), &tensor.shape, offset));
        Some((Box::new(hash), starts.clone(), key))
    }
}

impl Starts {
    /// Returns whether an earlier part began with the same bytes. Zeros are not a sign of a copy.
    fn repeats(&self, key: u64, bytes: &[u8]) -> bool {
        let Some(start) = bytes.first_chunk::<START>().filter(|start| **start != [0; START]) else {
            return false;
        };
        let start = self.hasher.hash_one((key, start));
        !self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(start)
    }
}

impl SurveyResults {
    /// Returns the results since the last call.
    pub fn take(&mut self) -> Vec<(TensorId, TensorOutcome)> {
        std::mem::take(&mut self.outcomes)
    }
}

impl Work for Surveying {
    type Part = Pour<Into>;
    type Found = Result<Option<PartOutcome>>;
    type Sum = SurveyResults;

    fn parts(&self) -> usize {
        self.pieces.count()
    }

    fn size(&self, part: usize) -> u64 {
        let range = self.pieces.range(part);
        let tensor = self.checkpoint.tensor(self.tensors[self.pieces.item(part)].0).ok();
        let tensor = tensor.and_then(|tensor| wanted(tensor, self.wants));
        let bytes = tensor.and_then(|it| it.dtype.bytes_of(range.end - range.start));
        bytes.unwrap_or(u64::MAX)
    }

    fn begin(&self, part: usize) -> Result<Option<Self::Part>> {
        let range = self.pieces.range(part);
        let (id, why) = &self.tensors[self.pieces.item(part)];
        let tensor = self.checkpoint.tensor(*id)?;
        let Some(tensor) = wanted(tensor, self.wants).filter(|_| why.is_none()) else {
            return Ok(None);
        };
        let into = match self.wants {
            Wants::Hash => Into::Hash(Box::default()),
            Wants::Rows | Wants::Lines => {
                let new = match self.wants {
                    Wants::Rows => Rows::without_columns,
                    _ => Rows::new,
                };
                match row_of(&tensor).and_then(|row| new(&tensor.dtype, row)) {
                    Some(rows) => Into::Lines(Box::new(rows)),
                    None => return Ok(None),
                }
            }
            Wants::Statistics => {
                let mut accumulator = self.accumulators().pop().unwrap_or_default();
                accumulator.begin(&tensor.dtype, range.start);
                let (dtype, at) = (tensor.dtype.clone(), range.start);
                let before = Summary::default();
                let offset = at.saturating_mul(dtype.itemsize());
                let hashed = self.checkpoint.tensor(*id)?;
                let (hash, undecided) = match self.undecided(hashed, offset) {
                    Some((hash, starts, key)) => (Some(hash), Some((starts, key))),
                    None => (None, None),
                };
                let passed = 0;
                let counter =
                    ValueCounter { accumulator, dtype, at, before, passed, hash, undecided };
                Into::Count(Box::new(counter))
            }
        };
        Pour::new(&self.checkpoint.files, &tensor, range, BUDGET, into).map(Some)
    }

    fn end(&self, _part: usize, machine: Option<Self::Part>, read: Result<()>) -> Self::Found {
        let found = machine.map(|pour| {
            let mut repeated = None;
            let outcome = match pour.into {
                Into::Hash(mut hash) => TensorOutcome::Hash(hash.finish()),
                Into::Lines(rows) => TensorOutcome::Lines(Box::new(rows.finish())),
                Into::Count(counting) => {
                    let ValueCounter { mut accumulator, mut before, hash, undecided, .. } =
                        *counting;
                    repeated = hash.filter(|_| undecided.is_none());
                    before.merge(&accumulator.finish());
                    self.accumulators().push(accumulator);
                    TensorOutcome::Read(Box::new(before))
                }
            };
            PartOutcome { outcome, hash: repeated }
        });
        read.map(|()| found)
    }

    fn take(&self, sum: &mut SurveyResults, part: usize, found: Self::Found) -> Result<()> {
        let (id, why) = &self.tensors[self.pieces.item(part)];
        let merge = |all: &mut Option<PartOutcome>, part: Option<PartOutcome>| {
            let (Some(all), Some(part)) = (all, part) else { return };
            if let (TensorOutcome::Read(all), TensorOutcome::Read(part)) =
                (&mut all.outcome, &part.outcome)
            {
                all.merge(part);
            }
            all.hash = all
                .hash
                .take()
                .zip(part.hash)
                .and_then(|(mut all, next)| all.append(*next).then_some(all));
        };
        let Some(found) = self.pieces.join(part, &mut sum.begun, found, merge) else {
            return Ok(());
        };
        let (outcome, hash) = match found {
            Ok(Some(PartOutcome { outcome, hash })) => (Some(outcome), hash),
            Ok(None) => (why.clone(), None),
            Err(error) => (
                Some(TensorOutcome::Unread(crate::reading::of_one_tensor(error)?.to_string())),
                None,
            ),
        };
        let hash = hash.map(|mut hash| TensorOutcome::Hash(hash.finish()));
        sum.outcomes.extend(outcome.into_iter().chain(hash).map(|outcome| (*id, outcome)));
        Ok(())
    }
}

impl ValueCounter {
    fn so_far(&mut self) -> Option<Summary> {
        let size = self.dtype.itemsize().max(1);
        if self.passed == 0 || !self.passed.is_multiple_of(size) {
            return None;
        }
        self.before.merge(&self.accumulator.finish());
        self.at += self.passed / size;
        self.passed = 0;
        self.accumulator.begin(&self.dtype, self.at);
        Some(self.before.clone())
    }
}

impl Receive for Into {
    fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Count(counting) => {
                counting.passed += bytes.len() as u64;
                if let Some((starts, key)) = counting.undecided.take()
                    && !starts.repeats(key, bytes)
                {
                    counting.hash = None;
                }
                if let Some(hash) = &mut counting.hash {
                    hash.feed(bytes);
                }
                counting.accumulator.feed(bytes);
            }
            Self::Hash(hash) => hash.feed(bytes),
            Self::Lines(rows) => rows.feed(bytes),
        }
        Ok(())
    }
}

/// Returns why a tensor is not read; `None` if it is.
fn skip_reason(
    tensor: &Tensor,
    wants: Wants,
    repetition: &mut Repetition,
) -> Option<TensorOutcome> {
    if wanted(tensor, wants).is_none() {
        let why = format!("values of {} can't be decoded", tensor.dtype);
        return Some(TensorOutcome::Without(why));
    }
    if let Some(why) = missing(tensor) {
        return Some(TensorOutcome::Unread(why.to_lossy().into_owned()));
    }
    let repeated = || TensorOutcome::Without("a few bytes that are repeated too often".into());
    (!repetition.allows(tensor)).then(repeated)
}

/// Returns the tensor in the form in which it is read: as numbers, unless its bytes are hashed.
fn wanted(tensor: &Tensor, wants: Wants) -> Option<Cow<'_, Tensor>> {
    if wants == Wants::Hash { Some(Cow::Borrowed(tensor)) } else { countable(tensor) }
}

/// Returns the number of elements in a row of a tensor of several dimensions.
fn row_of(tensor: &Tensor) -> Option<u64> {
    let (_, row) = tensor.shape.split_first().filter(|(_, row)| !row.is_empty())?;
    row.iter().try_fold(1, |all: u64, dim| all.checked_mul(*dim))
}

/// Returns groups of tensors that may be equal bit for bit: same dtype, same shape, equal
/// statistics. Leaves out tensors with a single value, and those with the same location in a file.
pub(super) fn twins<'a>(
    checkpoint: &Checkpoint,
    measured: impl Iterator<Item = (TensorId, &'a Statistics)>,
) -> Vec<Vec<TensorId>> {
    // Few of many tensors have a twin, so only those with equal signs are compared in full.
    let mut signs = Vec::new();
    for (at, (id, statistics)) in measured.enumerate() {
        let Ok(tensor) = checkpoint.tensor(id) else { continue };
        if statistics.count < 2 || statistics.all_equal() {
            continue;
        }
        let sign = statistics.bits().iter().fold(0, |sign: u64, bits| {
            (sign.rotate_left(23) ^ bits).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        signs.push((sign, at, id, tensor, statistics));
    }
    statelens_checkpoint::order::by(&mut signs, |one, other| {
        (one.0, one.1).cmp(&(other.0, other.1))
    });
    let mut by_statistics: HashMap<_, Vec<TensorId>> = HashMap::new();
    let mut places = HashSet::new();
    for alike in signs.chunk_by(|one, other| one.0 == other.0).filter(|alike| alike.len() > 1) {
        for (_, _, id, tensor, statistics) in alike {
            if let Layout::Span(span) = &tensor.layout
                && !places.insert((span.file, span.offset))
            {
                continue;
            }
            let key = (&tensor.dtype, tensor.shape.as_slice(), statistics.bits());
            by_statistics.entry(key).or_default().push(*id);
        }
    }
    let mut groups: Vec<Vec<TensorId>> =
        by_statistics.into_values().filter(|group| group.len() > 1).collect();
    statelens_checkpoint::order::natural(&mut groups);
    groups
}
