//! Reading tensors once, for their statistics; or for hashes of those that may be equal.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use statelens_checkpoint::{Checkpoint, DType, Error, Layout, Result, Tensor, TensorId};
use statelens_stats::{Accumulator, Histogram, Scale, Statistics, Summary, has_statistics};
use statelens_tensor::{BUDGET, Gather, Need};

use crate::manifest::{Repetition, missing};

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
pub enum Outcome {
    /// Its values were read.
    Measured(Box<Measured>),
    /// SHA-256 of its logical bytes.
    Hash([u8; 32]),
    /// They were not, or it has none that are numbers: why not.
    Unread(String),
}

/// The tensor as one that statistics can be made of: itself, or with its blocks as numbers.
pub fn countable(tensor: &Tensor) -> Option<Cow<'_, Tensor>> {
    match has_statistics(&tensor.dtype) {
        true => Some(Cow::Borrowed(tensor)),
        false => statelens_tensor::numbers(tensor).filter(|numbers| has_statistics(&numbers.dtype)),
    }
}

/// Reads tensors: asks for spans of their files, and is fed them. What can't be read is told, and it
/// goes on with the next.
pub struct Survey {
    checkpoint: Arc<Checkpoint>,
    hashes: bool,
    /// Tensors that are to be read, the next one last.
    waiting: Vec<TensorId>,
    current: Option<Current>,
    accumulator: Accumulator,
    found: Vec<(TensorId, Outcome)>,
    done: u64,
    total: u64,
}

/// The tensor that is being read.
struct Current {
    id: TensorId,
    gather: Gather,
    into: Into,
    /// Bytes that were passed on, and all of them.
    passed: u64,
    len: u64,
}

enum Into {
    Count {
        dtype: DType,
        /// What was counted before the accumulator began anew.
        before: Box<Summary>,
    },
    Hash(Box<Sha256>),
}

impl Survey {
    /// Of these tensors, each read once, in this order.
    pub fn new(checkpoint: Arc<Checkpoint>, tensors: impl IntoIterator<Item = TensorId>) -> Self {
        Self::begin(checkpoint, tensors, false)
    }

    /// As [`Survey::new`], for hashes.
    pub fn hashing(
        checkpoint: Arc<Checkpoint>,
        tensors: impl IntoIterator<Item = TensorId>,
    ) -> Self {
        Self::begin(checkpoint, tensors, true)
    }

    fn begin(
        checkpoint: Arc<Checkpoint>,
        tensors: impl IntoIterator<Item = TensorId>,
        hashes: bool,
    ) -> Self {
        let mut repetition = Repetition::new(&checkpoint);
        let (mut seen, mut waiting, mut found, mut total) =
            (HashSet::new(), Vec::new(), Vec::new(), 0u64);
        for id in tensors {
            let Ok(tensor) = checkpoint.tensor(id) else { continue };
            if !seen.insert(id) {
                continue;
            }
            let numbers = countable(tensor);
            let why = match &numbers {
                _ if missing(tensor).is_some() => {
                    missing(tensor).map(|why| why.to_lossy().into_owned())
                }
                None if !hashes => Some(format!("{} has no numbers that are known", tensor.dtype)),
                _ if !repetition.allows(tensor) => {
                    Some("a few bytes that are repeated beyond measure".into())
                }
                _ => None,
            };
            match why {
                Some(why) => found.push((id, Outcome::Unread(why))),
                None => {
                    waiting.push(id);
                    total = total.saturating_add(bytes(tensor, hashes));
                }
            }
        }
        waiting.reverse();
        let accumulator = Accumulator::new();
        Self { checkpoint, hashes, waiting, current: None, accumulator, found, done: 0, total }
    }

    /// What it needs next.
    pub fn need(&self) -> Need {
        match &self.current {
            Some(current) => match current.gather.need() {
                Need::Done => Need::Step,
                need => need,
            },
            None if self.waiting.is_empty() => Need::Done,
            None => Need::Step,
        }
    }

    /// Takes the first bytes of the span that was asked for, as many as there are.
    ///
    /// # Errors
    /// What ends everything: a disk that can't be read, a wish to stop.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        let Current { gather, into, passed, .. } = &mut current;
        let accumulator = &mut self.accumulator;
        let fed = gather.feed(bytes, &mut |bytes| pass(bytes, into, accumulator, passed));
        self.go_on(current, fed)
    }

    /// Goes on without bytes.
    ///
    /// # Errors
    /// As [`Survey::feed`].
    pub fn step(&mut self) -> Result<()> {
        let Some(mut current) = self.current.take() else { return self.next() };
        if current.gather.need() != Need::Step {
            let summary = self.accumulator.finish();
            self.done = self.done.saturating_add(current.len);
            let outcome = match current.into {
                Into::Hash(hasher) => Outcome::Hash(hasher.finalize().into()),
                Into::Count { mut before, .. } => {
                    before.merge(&summary);
                    Outcome::Measured(Box::new(Measured::of(&before)))
                }
            };
            self.found.push((current.id, outcome));
            return Ok(());
        }
        let Current { gather, into, passed, .. } = &mut current;
        let (accumulator, files) = (&mut self.accumulator, &self.checkpoint.files);
        let stepped = gather.step(files, &mut |bytes| pass(bytes, into, accumulator, passed));
        self.go_on(current, stepped)
    }

    /// The bytes that it needs can't be read: goes on with the next tensor.
    ///
    /// # Errors
    /// As [`Survey::feed`].
    pub fn give_up(&mut self, error: Error) -> Result<()> {
        match self.current.take() {
            Some(current) => self.leave(current.id, current.len, error),
            None => Err(error),
        }
    }

    /// Bytes that were gone through, and all of them.
    pub fn progress(&self) -> (u64, u64) {
        let current = self.current.as_ref().map_or(0, |current| current.passed);
        (self.done.saturating_add(current), self.total)
    }

    /// What was found since this was asked before.
    pub fn take(&mut self) -> Vec<(TensorId, Outcome)> {
        std::mem::take(&mut self.found)
    }

    /// What the values of the tensor that is being read are like so far; `None` between two bytes of
    /// an element.
    pub fn so_far(&mut self) -> Option<(TensorId, Measured)> {
        let Current { id, into: Into::Count { dtype, before }, passed, .. } =
            self.current.as_mut()?
        else {
            return None;
        };
        let size = dtype.itemsize().max(1);
        if *passed == 0 || !passed.is_multiple_of(size) {
            return None;
        }
        before.merge(&self.accumulator.finish());
        self.accumulator.begin(dtype, *passed / size);
        Some((*id, Measured::of(before)))
    }

    fn next(&mut self) -> Result<()> {
        let Some(id) = self.waiting.pop() else { return Ok(()) };
        let tensor = self.checkpoint.tensor(id)?;
        let numbers = if self.hashes { None } else { countable(tensor) };
        let tensor = numbers.as_deref().unwrap_or(tensor);
        let len = bytes(tensor, true);
        let numel = tensor.numel().unwrap_or(u64::MAX);
        match Gather::new(&self.checkpoint.files, tensor, 0..numel, BUDGET) {
            Ok(gather) => {
                let into = match self.hashes {
                    true => Into::Hash(Box::default()),
                    false => {
                        self.accumulator.begin(&tensor.dtype, 0);
                        Into::Count { dtype: tensor.dtype.clone(), before: Box::default() }
                    }
                };
                self.current = Some(Current { id, gather, into, passed: 0, len });
                Ok(())
            }
            Err(error) => self.leave(id, len, error),
        }
    }

    fn go_on(&mut self, current: Current, ended: Result<()>) -> Result<()> {
        match ended {
            Ok(()) => {
                self.current = Some(current);
                Ok(())
            }
            Err(error) => self.leave(current.id, current.len, error),
        }
    }

    fn leave(&mut self, id: TensorId, len: u64, error: Error) -> Result<()> {
        let error = crate::of_one_tensor(error)?;
        self.done = self.done.saturating_add(len);
        self.found.push((id, Outcome::Unread(error.to_string())));
        Ok(())
    }
}

/// Tensors that may be equal bit for bit, those in one group with each other: of one dtype and shape,
/// with equal statistics. Those of one value are not among them, nor those that lie in one place.
pub fn twins<'a>(
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

fn pass(
    bytes: &[u8],
    into: &mut Into,
    accumulator: &mut Accumulator,
    passed: &mut u64,
) -> Result<()> {
    *passed += bytes.len() as u64;
    match into {
        Into::Count { .. } => accumulator.feed(bytes),
        Into::Hash(hasher) => hasher.update(bytes),
    }
    Ok(())
}

/// Logical bytes that are gone through, of blocks as numbers unless they are taken as they are.
fn bytes(tensor: &Tensor, as_it_is: bool) -> u64 {
    let numbers = if as_it_is { None } else { countable(tensor) };
    numbers.as_deref().unwrap_or(tensor).nbytes().unwrap_or(u64::MAX)
}
