//! Reading tensors on all cores.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use statelens_checkpoint::{
    Checkpoint, Error, ErrorKind, Layout, Leaf, Result, Tensor, TensorId, Value,
};
use statelens_inspect::{Repetition, missing};
use statelens_stats::{Accumulator, Summary, has_statistics};
use statelens_tensor::drain_range;

use crate::output::stop_signal;
use crate::progress::{Bar, Unit};
use crate::{limits, remote, workers};

/// What became of a leaf.
pub(crate) enum Found {
    /// Its values were read.
    Read(Box<Summary>),
    /// It has none that statistics could be made of: why not.
    Without(String),
    /// They can't be read: why not.
    Failed(String),
}

/// Bytes of a tensor that are read as one job. Where jobs begin changes no result.
const PIECE: u64 = 32 << 20;

/// Bytes that are read at once: few enough to stay in the cache until they are counted.
const BUFFER: usize = 128 << 10;

/// Reads the tensors of these leaves, each once, and hands over what was found of each leaf's tensor,
/// once per tensor, in the order of the leaves.
pub(crate) fn each(
    file: &Path,
    checkpoint: &Checkpoint,
    leaves: &[Leaf],
    mut out: impl FnMut(TensorId, Found) -> Result<()>,
) -> Result<()> {
    limits::check(checkpoint, "reading all values")?;
    let mut plan = Plan::default();
    let mut repetition = Repetition::new(checkpoint);
    for leaf in leaves {
        plan.add(checkpoint, leaf, &mut repetition);
    }
    let mut bar = Bar::new("reading", Unit::Bytes).stopped_by(stop_signal()?);
    // A server is asked for one part after the other: each part that is read grows.
    let workers = if remote::address(file).is_some() { 1 } else { workers::count() };
    let mut current: Option<(usize, Result<Summary>)> = None;
    let mut untold = plan.tensors.iter().enumerate().peekable();
    let mut tell = |index: usize, found: Found| -> Result<()> {
        // What was not read is told in its place.
        while let Some((_, planned)) = untold.next_if(|(at, _)| *at < index) {
            match planned.without.clone() {
                Some(Without::Numbers(why)) => out(planned.id, Found::Without(why))?,
                Some(Without::Bytes(why)) => out(planned.id, Found::Failed(why))?,
                None => {}
            }
        }
        if let Some((_, planned)) = untold.next_if(|(at, _)| *at == index) {
            out(planned.id, found)?;
        }
        Ok(())
    };
    let finish = |result: Result<Summary>| match result {
        Ok(summary) => Ok(Found::Read(Box::new(summary))),
        Err(error) => of_one_tensor(error).map(|error| Found::Failed(error.to_string())),
    };
    workers::run(
        &plan.jobs,
        workers,
        plan.bytes,
        &mut bar,
        Accumulator::new,
        |accumulator, job, watch| {
            let tensor = &plan.tensors[job.tensor].numbers;
            accumulator.begin(&tensor.dtype, job.range.start);
            let range = job.range.clone();
            drain_range(&checkpoint.files, tensor, range, BUFFER, watch, &mut |bytes| {
                accumulator.feed(bytes);
                Ok(())
            })?;
            Ok(accumulator.finish())
        },
        |index, result| {
            let tensor = plan.jobs[index].tensor;
            match &mut current {
                Some((before, all)) if *before == tensor => match (all.as_mut(), result) {
                    (Ok(all), Ok(part)) => all.merge(&part),
                    (Ok(_), Err(error)) => *all = Err(error),
                    (Err(_), _) => {}
                },
                _ => {
                    if let Some((before, all)) = current.take() {
                        tell(before, finish(all)?)?;
                    }
                    current = Some((tensor, result));
                }
            }
            Ok(())
        },
    )?;
    if let Some((before, all)) = current.take() {
        tell(before, finish(all)?)?;
    }
    tell(usize::MAX, Found::Without(String::new()))
}

/// What is read.
#[derive(Default)]
struct Plan<'a> {
    tensors: Vec<Planned<'a>>,
    known: HashMap<TensorId, ()>,
    jobs: Vec<Job>,
    bytes: u64,
}

struct Planned<'a> {
    id: TensorId,
    numbers: Cow<'a, Tensor>,
    without: Option<Without>,
}

/// What a tensor does not have, and why.
#[derive(Clone)]
enum Without {
    Numbers(String),
    Bytes(String),
}

/// A part of a tensor.
struct Job {
    tensor: usize,
    /// In elements.
    range: Range<u64>,
}

impl<'a> Plan<'a> {
    fn add(&mut self, checkpoint: &'a Checkpoint, leaf: &Leaf, repetition: &mut Repetition) {
        if !matches!(checkpoint.value(leaf.target), Value::Tensor(_) | Value::Array(_)) {
            return;
        }
        let Some((id, tensor)) = checkpoint.tensor_of(leaf.target) else { return };
        if self.known.insert(id, ()).is_some() {
            return;
        }
        let index = self.tensors.len();
        let numbers = numbers(tensor);
        let without = match &numbers {
            None => {
                let why = format!("the numbers of {} are not known", tensor.dtype);
                Some(Without::Numbers(why))
            }
            Some(_) if missing(tensor).is_some() => {
                missing(tensor).map(|why| Without::Bytes(why.to_lossy().into()))
            }
            Some(_) if !repetition.allows(tensor) => {
                Some(Without::Numbers("a few bytes that are repeated beyond measure".into()))
            }
            Some(_) => None,
        };
        let numbers = numbers.unwrap_or(Cow::Borrowed(tensor));
        if without.is_none() {
            let numel = numbers.numel().unwrap_or(0);
            let item = numbers.dtype.itemsize().max(1);
            self.bytes = self.bytes.saturating_add(numel.saturating_mul(item));
            // What lies in one run can be read from anywhere; chunks would be decoded twice.
            let piece = match numbers.layout {
                Layout::Span(_) => (PIECE / item).max(1),
                _ => u64::MAX,
            };
            let mut start = 0u64;
            loop {
                let end = numel.min(start.saturating_add(piece));
                self.jobs.push(Job { tensor: index, range: start..end });
                start = end;
                if start >= numel {
                    break;
                }
            }
        }
        self.tensors.push(Planned { id, numbers, without });
    }
}

/// The tensor as one whose elements statistics can be made of.
fn numbers(tensor: &Tensor) -> Option<Cow<'_, Tensor>> {
    match has_statistics(&tensor.dtype) {
        true => Some(Cow::Borrowed(tensor)),
        false => statelens_tensor::numbers(tensor).filter(|numbers| has_statistics(&numbers.dtype)),
    }
}

/// An error that concerns one tensor only; a disk that can't be read, a limit that the user can
/// raise, and a wish to stop are the end of everything.
fn of_one_tensor(error: Error) -> Result<Error> {
    match error.kind() {
        ErrorKind::Cancelled | ErrorKind::Io => Err(error),
        ErrorKind::Limit if error.next_step().is_some() => Err(error),
        _ => Ok(error),
    }
}
