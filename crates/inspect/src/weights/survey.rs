//! Reading tensors once, for their statistics; or again, for hashes of those that may be equal, or row
//! by row.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use statelens_checkpoint::{Checkpoint, DType, Layout, Result, Tensor, TensorId};
use statelens_stats::{
    Accumulator, Histogram, MatrixLines, Rows, Scale, Statistics, Summary, has_statistics,
};
use statelens_tensor::{BUDGET, Pour, Receive, grain};

use crate::pieces::Pieces;
use crate::reading::{Repetition, missing};
use crate::work::{InOrder, Work};

/// Bins of a histogram that people look at.
const BINS: usize = 48;

/// What was found of the values of a tensor.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measured {
    /// The numbers.
    pub statistics: Statistics,
    /// The values in bins of one width.
    pub linear: Histogram,
    /// The values in bins by magnitude, to both sides of zero.
    pub log: Histogram,
}

impl Measured {
    /// What a summary comes to.
    pub fn of(summary: &Summary) -> Self {
        Self {
            statistics: summary.statistics(),
            linear: summary.histogram(Scale::Linear, BINS),
            log: summary.histogram(Scale::Log, BINS + 1),
        }
    }

    /// The numbers alone, where very many are kept.
    pub fn without_histograms(self) -> Self {
        Self { statistics: self.statistics, ..Self::default() }
    }

    /// Whether its histograms are there, if it has any.
    pub fn is_whole(&self) -> bool {
        self.statistics.finite() == 0 || !self.linear.counts.is_empty()
    }
}

/// What became of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum TensorOutcome {
    /// Its values were read.
    Read(Box<Summary>),
    /// SHA-256 of its logical bytes.
    Hash([u8; 32]),
    /// Its rows and columns.
    Lines(Box<MatrixLines>),
    /// It has no values that are numbers, or too many of them: why not.
    Without(String),
    /// They can't be read: why not.
    Unread(String),
}

/// The tensor as one that statistics can be made of: itself, or with its blocks as numbers.
pub fn countable(tensor: &Tensor) -> Option<Cow<'_, Tensor>> {
    match has_statistics(&tensor.dtype) {
        true => Some(Cow::Borrowed(tensor)),
        false => statelens_tensor::numbers(tensor).filter(|numbers| has_statistics(&numbers.dtype)),
    }
}

/// Reads tensors: a machine that is fed their files. What can't be read is told, and it goes on with
/// the next.
pub type Survey = InOrder<Surveying>;

/// What a [`Survey`] reads.
pub struct Surveying {
    checkpoint: Arc<Checkpoint>,
    wants: Wants,
    /// Each once; of those that are not read, why not.
    tensors: Vec<(TensorId, Option<TensorOutcome>)>,
    pieces: Pieces,
    /// Those that nobody needs now: each is large.
    accumulators: Mutex<Vec<Accumulator>>,
}

/// What of a tensor is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wants {
    Statistics,
    Hash,
    Lines,
}

/// What a [`Survey`] has found.
#[derive(Default)]
pub struct SurveyResults {
    told: Vec<(TensorId, TensorOutcome)>,
    /// What is known of the tensor whose last part is still to come.
    begun: Option<Result<Option<TensorOutcome>>>,
}

/// What the bytes of a part go to.
pub enum Into {
    /// Statistics.
    #[doc(hidden)]
    Count(Box<ValueCounter>),
    /// A hash.
    #[doc(hidden)]
    Hash(Box<Sha256>),
    /// Rows and columns.
    #[doc(hidden)]
    Lines(Box<Rows>),
}

/// Counts values, and can tell of them before all have come.
pub struct ValueCounter {
    accumulator: Accumulator,
    dtype: DType,
    /// The element that comes next, where the accumulator began anew, and what was counted before.
    at: u64,
    before: Summary,
    /// Bytes since then.
    passed: u64,
}

impl Survey {
    /// Of these tensors, each read once, in this order.
    pub fn new(checkpoint: Arc<Checkpoint>, tensors: impl IntoIterator<Item = TensorId>) -> Self {
        Self::plan(checkpoint, tensors, Wants::Statistics, u64::MAX)
    }

    /// As [`Survey::new`], with tensors divided into parts of about so many bytes where nothing is read
    /// twice for that, for a driver that reads several at once. That changes nothing in what is found.
    pub fn divided(
        checkpoint: Arc<Checkpoint>,
        tensors: impl IntoIterator<Item = TensorId>,
        bytes: u64,
    ) -> Self {
        Self::plan(checkpoint, tensors, Wants::Statistics, bytes)
    }

    /// As [`Survey::new`], for hashes.
    pub fn hashing(
        checkpoint: Arc<Checkpoint>,
        tensors: impl IntoIterator<Item = TensorId>,
    ) -> Self {
        Self::plan(checkpoint, tensors, Wants::Hash, u64::MAX)
    }

    /// As [`Survey::new`], for rows and columns: a tensor of several dimensions is rows of all but the
    /// first of them, and nothing is told of others.
    pub fn by_rows(
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
            let why = why_not(tensor, wants, &mut repetition);
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
        let surveying = Surveying { checkpoint, wants, tensors, pieces, accumulators };
        Self::of(surveying, SurveyResults::default())
    }

    /// What was found since this was asked before.
    pub fn take(&mut self) -> Vec<(TensorId, TensorOutcome)> {
        self.sum.take()
    }

    /// What the values of the tensor that is being read are like so far; `None` between two bytes of
    /// an element.
    pub fn so_far(&mut self) -> Option<(TensorId, Measured)> {
        let (id, _) = self.work.tensors.get(self.work.pieces.item(self.next))?;
        let Into::Count(counting) = &mut self.current.as_mut()?.into else { return None };
        let mut summary = counting.so_far()?;
        if let Some(Ok(Some(TensorOutcome::Read(begun)))) = &self.sum.begun {
            summary.merge(begun);
        }
        Some((*id, Measured::of(&summary)))
    }
}

impl Surveying {
    fn accumulators(&self) -> MutexGuard<'_, Vec<Accumulator>> {
        self.accumulators.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SurveyResults {
    /// What was found since this was asked before.
    pub fn take(&mut self) -> Vec<(TensorId, TensorOutcome)> {
        std::mem::take(&mut self.told)
    }
}

impl Work for Surveying {
    type Part = Pour<Into>;
    type Found = Result<Option<TensorOutcome>>;
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
            Wants::Lines => match row_of(&tensor).and_then(|row| Rows::new(&tensor.dtype, row)) {
                Some(rows) => Into::Lines(Box::new(rows)),
                None => return Ok(None),
            },
            Wants::Statistics => {
                let mut accumulator = self.accumulators().pop().unwrap_or_default();
                accumulator.begin(&tensor.dtype, range.start);
                let (dtype, at) = (tensor.dtype.clone(), range.start);
                let before = Summary::default();
                Into::Count(Box::new(ValueCounter { accumulator, dtype, at, before, passed: 0 }))
            }
        };
        Pour::new(&self.checkpoint.files, &tensor, range, BUDGET, into).map(Some)
    }

    fn end(&self, _part: usize, machine: Option<Self::Part>, read: Result<()>) -> Self::Found {
        let found = machine.map(|pour| match pour.into {
            Into::Hash(hasher) => TensorOutcome::Hash(hasher.finalize().into()),
            Into::Lines(rows) => TensorOutcome::Lines(Box::new(rows.finish())),
            Into::Count(counting) => {
                let ValueCounter { mut accumulator, mut before, .. } = *counting;
                before.merge(&accumulator.finish());
                self.accumulators().push(accumulator);
                TensorOutcome::Read(Box::new(before))
            }
        });
        read.map(|()| found)
    }

    fn take(&self, sum: &mut SurveyResults, part: usize, found: Self::Found) -> Result<()> {
        let (id, why) = &self.tensors[self.pieces.item(part)];
        let merge = |all: &mut Option<TensorOutcome>, part| {
            if let (Some(TensorOutcome::Read(all)), Some(TensorOutcome::Read(part))) = (all, part) {
                all.merge(&part);
            }
        };
        let Some(found) = self.pieces.join(part, &mut sum.begun, found, merge) else {
            return Ok(());
        };
        let outcome = match found {
            Ok(found) => found.or_else(|| why.clone()),
            Err(error) => Some(TensorOutcome::Unread(crate::of_one_tensor(error)?.to_string())),
        };
        sum.told.extend(outcome.map(|outcome| (*id, outcome)));
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
                counting.accumulator.feed(bytes);
            }
            Self::Hash(hasher) => hasher.update(bytes),
            Self::Lines(rows) => rows.feed(bytes),
        }
        Ok(())
    }
}

/// Why a tensor is not read; `None` if it is.
fn why_not(tensor: &Tensor, wants: Wants, repetition: &mut Repetition) -> Option<TensorOutcome> {
    if wanted(tensor, wants).is_none() {
        let why = format!("the numbers of {} are not known", tensor.dtype);
        return Some(TensorOutcome::Without(why));
    }
    if let Some(why) = missing(tensor) {
        return Some(TensorOutcome::Unread(why.to_lossy().into_owned()));
    }
    let repeated = || TensorOutcome::Without("a few bytes that are repeated beyond measure".into());
    (!repetition.allows(tensor)).then(repeated)
}

/// The tensor as it is read: as numbers, unless its bytes are hashed.
fn wanted(tensor: &Tensor, wants: Wants) -> Option<Cow<'_, Tensor>> {
    if wants == Wants::Hash { Some(Cow::Borrowed(tensor)) } else { countable(tensor) }
}

/// Elements in a row of a tensor of several dimensions.
fn row_of(tensor: &Tensor) -> Option<u64> {
    let (_, row) = tensor.shape.split_first().filter(|(_, row)| !row.is_empty())?;
    row.iter().try_fold(1, |all: u64, dim| all.checked_mul(*dim))
}

/// Tensors that may be equal bit for bit, those in one group with each other: of one dtype and shape,
/// with equal statistics. Those of one value are not among them, nor those that lie in one place.
pub(super) fn twins<'a>(
    checkpoint: &Checkpoint,
    measured: impl Iterator<Item = (TensorId, &'a Statistics)>,
) -> Vec<Vec<TensorId>> {
    let mut by_look: HashMap<String, Vec<TensorId>> = HashMap::new();
    let mut places = HashSet::new();
    for (id, statistics) in measured {
        let Ok(tensor) = checkpoint.tensor(id) else { continue };
        if statistics.count < 2 || statistics.all_equal() {
            continue;
        }
        if let Layout::Span(span) = &tensor.layout
            && !places.insert((span.file, span.offset))
        {
            continue;
        }
        // Shortest texts of doubles tell all of their bits.
        let look = format!("{} {:?} {statistics:?}", tensor.dtype, tensor.shape);
        by_look.entry(look).or_default().push(id);
    }
    let mut groups: Vec<Vec<TensorId>> =
        by_look.into_values().filter(|group| group.len() > 1).collect();
    statelens_checkpoint::order::natural(&mut groups);
    groups
}
