//! Comparing two checkpoints, whatever formats they are in: keys, kinds, shapes, dtypes, values.
//!
//! [`Comparison`] is a state machine: it says which span of which checkpoint it needs, is fed
//! those bytes in pieces of any size, and holds two tensors' worth of little more than one piece.
//! [`compare`] is the driver for callers that may block.
//!
//! What is compared: every leaf by its flat key. The classes of containers that are not empty and
//! ties between leaves are only if [`Options::structure`] asks for it, and attributes are not;
//! formats differ in what they can hold of these.
//!
//! Numbers: 0.0 and -0.0 are equal; a NaN equals a NaN in the same place, unless
//! [`Options::nan_differs`] says as torch does; an infinity equals itself. Errors, mean and
//! cosine are taken over all elements but those that are NaN or infinite alike on both sides. A NaN
//! on one side only is a class of difference of its own: errors and cosine are not defined then.
//! The relative error is that to the right side, and infinite where that is zero. Integers are
//! compared exactly.
//!
//! Where dtypes differ, that is a difference, and the numbers are compared all the same: both
//! widened exactly, and again with the finer side rounded to the coarser one's dtype, which tells
//! a cast ("equal at bfloat16 precision") from other values.

mod lane;
mod numbers;
mod pairs;
mod report;
mod sets;
mod structure;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, DType, Error, Progress, Result, Span, Tensor};
use statelens_tensor::{Cast, Gather, Need as GatherNeed};

use lane::Lane;
use pairs::Pair;

pub use numbers::Numbers;
pub(crate) use pairs::same_value;
pub(crate) use report::unravel;
pub use report::{Difference, Report, Values, What};

/// How to compare.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Options {
    /// Numbers within these bounds match; without it they have to be equal.
    pub tolerance: Option<Tolerance>,
    /// Two NaNs in the same place differ, as `torch.equal` has it.
    pub nan_differs: bool,
    /// Tensors of other dtypes match if their numbers do.
    pub ignore_dtype: bool,
    /// A numpy array and a tensor match if their numbers do.
    pub ignore_type: bool,
    /// The classes of containers are to be the same, and which leaves are one.
    pub structure: bool,
}

/// `|left - right| <= absolute + relative * |right|`, as `torch.allclose` has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// `rtol`.
    pub relative: f64,
    /// `atol`.
    pub absolute: f64,
}

impl Default for Tolerance {
    /// Torch's: `rtol` 1e-5, `atol` 1e-8.
    fn default() -> Self {
        Self { relative: 1e-5, absolute: 1e-8 }
    }
}

/// One of the two checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The first one.
    Left,
    /// The second one, which errors are relative to.
    Right,
}

/// What a [`Comparison`] waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The bytes of this span of one side's files, through [`Comparison::feed`], in order, in
    /// pieces of any size.
    Feed(Side, Span),
    /// A call of [`Comparison::step`].
    Step,
    /// Nothing: everything was compared.
    Done,
}

/// Bytes that each of the two gathers may hold.
const BUDGET: usize = 8 << 20;

/// Bytes that the driver reads at once.
const BUFFER: usize = 256 << 10;

/// A comparison of two checkpoints.
pub struct Comparison {
    left: Arc<Checkpoint>,
    right: Arc<Checkpoint>,
    options: Options,
    pairs: Vec<Pair>,
    matches: Vec<Option<usize>>,
    next: usize,
    current: Option<Box<Current>>,
    report: Report,
    progress: (u64, u64),
}

/// A pair of tensors that is being compared.
struct Current {
    left: Stream,
    right: Stream,
    lane: Lane,
    numbers: Numbers,
    rounding: Option<Rounding>,
    /// Logical bytes of both, as the progress counts them, and how many of them are done.
    bytes: u64,
    done: u64,
}

/// What it comes to with the finer side rounded to the dtype of the coarser one.
struct Rounding {
    side: Side,
    /// To the coarser dtype, and back to that in which both are compared.
    there: Cast,
    back: Cast,
    numbers: Numbers,
}

/// What was found of the numbers of a pair: as they are, and with the finer side rounded to the
/// dtype of that name.
struct Outcome {
    numbers: Numbers,
    rounded: Option<(String, Numbers)>,
}

/// The logical bytes of one side that wait for the other.
struct Stream {
    gather: Gather,
    size: usize,
    waiting: Vec<u8>,
}

impl Comparison {
    /// Compares everything but the elements of tensors at once; those follow as they are fed.
    pub fn new(left: Arc<Checkpoint>, right: Arc<Checkpoint>, options: Options) -> Self {
        let mut report = Report::default();
        let (pairs, matches) = pairs::pairs(&left, &right, &options, &mut report);
        if options.structure {
            structure::structure(&left, &right, &mut report);
        }
        let total = pairs.iter().fold(0u64, |total, pair| total.saturating_add(pair.bytes));
        let (next, progress) = (0, (0, total));
        Self { left, right, options, pairs, matches, next, current: None, report, progress }
    }

    /// For each leaf of the left side, in the order of its leaves, the leaf on the right that it
    /// is compared with.
    pub fn matches(&self) -> &[Option<usize>] {
        &self.matches
    }

    /// What was found so far: all but elements from the start, those as they are compared; in
    /// the order in which it was found.
    pub fn so_far(&self) -> &Report {
        &self.report
    }

    /// How many pairs of tensors were compared to their end.
    pub fn compared(&self) -> usize {
        self.next
    }

    /// The leaves of the left side whose elements are still to be compared.
    pub fn waiting(&self) -> impl Iterator<Item = usize> {
        places(self.pairs.iter().skip(self.next))
    }

    /// The leaves of the left side that stand for the pairs of tensors from `from` on that were
    /// compared to their end.
    pub fn settled(&self, from: usize) -> impl Iterator<Item = usize> {
        places(self.pairs.iter().take(self.next).skip(from))
    }

    /// What it waits for.
    pub fn need(&self) -> Need {
        match &self.current {
            Some(current) => current.need(),
            None if self.next < self.pairs.len() => Need::Step,
            None => Need::Done,
        }
    }

    /// Logical bytes of both sides that are compared, and all of them.
    pub fn progress(&self) -> (u64, u64) {
        let within = self.current.as_ref().map_or(0, |current| current.done.min(current.bytes));
        (self.progress.0.saturating_add(within), self.progress.1)
    }

    /// Takes the next bytes of the span that [`Comparison::need`] named, not more than that.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(current) = &mut self.current else {
            return Err(Error::io("bytes were fed to a comparison that needs none"));
        };
        let Need::Feed(side, _) = current.need() else {
            return Err(Error::io("bytes were fed to a comparison that needs none"));
        };
        let Stream { gather, waiting, .. } = current.stream(side);
        let fed = gather.feed(bytes, &mut |piece| {
            waiting.extend_from_slice(piece);
            Ok(())
        });
        self.after(fed)
    }

    /// Goes on where no bytes are needed.
    pub fn step(&mut self) -> Result<()> {
        let Some(current) = &mut self.current else {
            return self.begin();
        };
        let side = current.turn();
        let files = match side {
            Side::Left => &self.left.files,
            Side::Right => &self.right.files,
        };
        let Stream { gather, waiting, .. } = current.stream(side);
        let stepped = match gather.need() {
            GatherNeed::Step => gather.step(files, &mut |piece| {
                waiting.extend_from_slice(piece);
                Ok(())
            }),
            _ => Ok(()),
        };
        self.after(stepped)
    }

    /// What was found; complete once nothing is needed any more.
    pub fn into_report(mut self) -> Report {
        self.report.sort();
        self.report
    }

    /// Prepares the next pair.
    fn begin(&mut self) -> Result<()> {
        let Some(pair) = self.pairs.get(self.next) else { return Ok(()) };
        let (left, right) = (self.left.tensor(pair.left)?, self.right.tensor(pair.right)?);
        if let (true, true) = (pairs::same_constant(left, right), !self.options.nan_differs) {
            self.end(Ok(None));
            return Ok(());
        }
        match Current::new(&self.left, left, &self.right, right, pair) {
            Ok(current) => {
                self.current = Some(Box::new(current));
                self.after(Ok(()))
            }
            Err(error) => self.give_up(error),
        }
    }

    /// Compares what both sides have of the current pair, and ends it when that is all.
    fn after(&mut self, outcome: Result<()>) -> Result<()> {
        if let Err(error) = outcome {
            return self.give_up(error);
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        current.compare(&self.options);
        if current.is_done() {
            let outcome = self.current.take().map(|current| {
                let Current { numbers, rounding, .. } = *current;
                let rounded = rounding.map(|rounding| {
                    let Rounding { there, numbers, .. } = rounding;
                    (there.target().name().to_owned(), numbers)
                });
                Outcome { numbers, rounded }
            });
            self.end(Ok(outcome));
        }
        Ok(())
    }

    /// One tensor that can't be read is a difference.
    fn give_up(&mut self, error: Error) -> Result<()> {
        let error = crate::of_one_tensor(error)?;
        self.current = None;
        self.end(Err(error));
        Ok(())
    }

    fn end(&mut self, outcome: Result<Option<Outcome>>) {
        let Some(pair) = self.pairs.get(self.next) else { return };
        self.progress.0 = self.progress.0.saturating_add(pair.bytes);
        self.report.compared(pair, outcome);
        self.next += 1;
    }
}

/// The leaves of the left side that pairs stand for.
fn places<'a>(pairs: impl Iterator<Item = &'a Pair>) -> impl Iterator<Item = usize> {
    pairs.flat_map(|pair| pair.places.iter().map(|(order, ..)| *order))
}

impl Current {
    fn new(
        left_of: &Checkpoint,
        left: &Tensor,
        right_of: &Checkpoint,
        right: &Tensor,
        pair: &Pair,
    ) -> Result<Self> {
        let stream = |of: &Checkpoint, tensor: &Tensor, dtype| -> Result<Stream> {
            let mut tensor = tensor.clone();
            tensor.dtype = dtype;
            let numel = tensor.numel().unwrap_or(0);
            let gather = Gather::new(&of.files, &tensor, 0..numel, BUDGET)?;
            let size = usize::try_from(tensor.dtype.itemsize().max(1)).unwrap_or(usize::MAX);
            Ok(Stream { gather, size, waiting: Vec::new() })
        };
        let (lane, left_as, right_as) = lane::lane(&left.dtype, &right.dtype).ok_or_else(|| {
            Error::unsupported(format!("{} and {} can't be compared", left.dtype, right.dtype))
        })?;
        let rounding = match pair.dtypes {
            Some(_) => Rounding::new(&left.dtype, &right.dtype, &left_as),
            None => None,
        };
        Ok(Self {
            left: stream(left_of, left, left_as)?,
            right: stream(right_of, right, right_as)?,
            numbers: Numbers::new(lane.is_numeric()),
            rounding,
            lane,
            bytes: pair.bytes,
            done: 0,
        })
    }

    fn stream(&mut self, side: Side) -> &mut Stream {
        match side {
            Side::Left => &mut self.left,
            Side::Right => &mut self.right,
        }
    }

    /// The side that is behind, so that the other's elements wait for nothing more.
    fn turn(&self) -> Side {
        let behind = |stream: &Stream| match stream.gather.need() {
            GatherNeed::Done => usize::MAX,
            _ => stream.waiting.len() / stream.size,
        };
        if behind(&self.left) <= behind(&self.right) { Side::Left } else { Side::Right }
    }

    fn need(&self) -> Need {
        let side = self.turn();
        let stream = match side {
            Side::Left => &self.left,
            Side::Right => &self.right,
        };
        match stream.gather.need() {
            GatherNeed::Feed(span) => Need::Feed(side, span),
            GatherNeed::Step | GatherNeed::Done => Need::Step,
        }
    }

    fn compare(&mut self, options: &Options) {
        let (left, right) = (&mut self.left, &mut self.right);
        let count = (left.waiting.len() / left.size).min(right.waiting.len() / right.size);
        if count == 0 {
            return;
        }
        let (of_left, of_right) = (count * left.size, count * right.size);
        let blocks = (&left.waiting[..of_left], &right.waiting[..of_right]);
        self.lane.compare(blocks.0, blocks.1, options, &mut self.numbers);
        if let Some(rounding) = &mut self.rounding {
            rounding.compare(&self.lane, blocks, options);
        }
        left.waiting.drain(..of_left);
        right.waiting.drain(..of_right);
        self.done = self.done.saturating_add((of_left + of_right) as u64);
    }

    fn is_done(&self) -> bool {
        let done = |stream: &Stream| stream.gather.need() == GatherNeed::Done;
        done(&self.left) && done(&self.right)
    }
}

impl Rounding {
    /// Of two dtypes that are compared as a third; `None` if neither is the coarser one.
    fn new(left: &DType, right: &DType, both: &DType) -> Option<Self> {
        let coarser = lane::coarser(left, right)?;
        let side = if coarser == left { Side::Right } else { Side::Left };
        let (there, back) = (Cast::new(both, coarser).ok()?, Cast::new(coarser, both).ok()?);
        Some(Self { side, there, back, numbers: Numbers::new(true) })
    }

    fn compare(&mut self, lane: &Lane, (left, right): (&[u8], &[u8]), options: &Options) {
        let (mut coarse, mut rounded) = (Vec::new(), Vec::new());
        self.there.run(if self.side == Side::Left { left } else { right }, &mut coarse);
        self.back.run(&coarse, &mut rounded);
        match self.side {
            Side::Left => lane.compare(&rounded, right, options, &mut self.numbers),
            Side::Right => lane.compare(left, &rounded, options, &mut self.numbers),
        }
    }
}

/// Compares two checkpoints, reading as it goes. Progress is in logical bytes of both.
pub fn compare(
    left: Arc<Checkpoint>,
    right: Arc<Checkpoint>,
    options: Options,
    progress: &mut dyn Progress,
) -> Result<Report> {
    let (of_left, of_right) = (left.files.clone(), right.files.clone());
    let mut comparison = Comparison::new(left, right, options);
    let mut buffer = Vec::new();
    loop {
        match comparison.need() {
            Need::Feed(side, span) => {
                let len = span.len.min(BUFFER as u64) as usize;
                if buffer.len() < len {
                    buffer.resize(len, 0);
                }
                let files = match side {
                    Side::Left => &of_left,
                    Side::Right => &of_right,
                };
                files.read(span.file, span.offset, &mut buffer[..len])?;
                comparison.feed(&buffer[..len])?;
            }
            Need::Step => comparison.step()?,
            Need::Done => return Ok(comparison.into_report()),
        }
        let (done, total) = comparison.progress();
        progress.check(done, total)?;
    }
}
