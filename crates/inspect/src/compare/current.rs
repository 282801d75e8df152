//! A pair of tensors that is being compared.

use std::ops::Range;

use statelens_checkpoint::{Checkpoint, DType, Error, FileSet, Result, Tensor};
use statelens_tensor::{Cast, Machine, Need, Pour};

use super::lane::{self, Lane};
use super::{DiffOptions, Numbers};

/// Bytes that each of the two gathers may hold.
const BUDGET: usize = 8 << 20;

/// One of the two checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// A pair of tensors that is being compared.
pub struct Current {
    left: Stream,
    right: Stream,
    lane: Lane,
    options: DiffOptions,
    numbers: Numbers,
    rounding: Option<Rounding>,
    /// Logical bytes of both that are done.
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
pub struct Outcome {
    pub(super) numbers: Numbers,
    pub(super) rounded: Option<(String, Numbers)>,
}

impl Outcome {
    /// Adds what was found of the elements that follow.
    pub(super) fn merge(&mut self, next: Self) {
        self.numbers.merge(next.numbers);
        if let (Some((_, all)), Some((_, next))) = (&mut self.rounded, next.rounded) {
            all.merge(next);
        }
    }
}

/// The logical bytes of one side that wait for the other.
struct Stream {
    pour: Pour<Vec<u8>>,
    size: usize,
}

impl Current {
    /// Of these elements of two tensors. Where `dtypes_count`, those differ and it is told.
    pub(super) fn new(
        ((left_of, left), (right_of, right)): ((&Checkpoint, &Tensor), (&Checkpoint, &Tensor)),
        range: Range<u64>,
        dtypes_count: bool,
        options: DiffOptions,
    ) -> Result<Self> {
        let stream = |of: &Checkpoint, tensor: &Tensor, dtype| -> Result<Stream> {
            let mut tensor = tensor.clone();
            tensor.dtype = dtype;
            let pour = Pour::new(&of.files, &tensor, range.clone(), BUDGET, Vec::new())?;
            let size = usize::try_from(tensor.dtype.itemsize().max(1)).unwrap_or(usize::MAX);
            Ok(Stream { pour, size })
        };
        let (lane, left_as, right_as) = lane::lane(&left.dtype, &right.dtype).ok_or_else(|| {
            Error::unsupported(format!("{} and {} can't be compared", left.dtype, right.dtype))
        })?;
        let rounding = match dtypes_count {
            true => Rounding::new(&left.dtype, &right.dtype, &left_as),
            false => None,
        };
        Ok(Self {
            left: stream(left_of, left, left_as)?,
            right: stream(right_of, right, right_as)?,
            numbers: Numbers::new(lane.is_numeric()),
            rounding,
            lane,
            options,
            done: 0,
        })
    }

    pub(super) fn outcome(self) -> Outcome {
        let rounded = self.rounding.map(|rounding| {
            let Rounding { there, numbers, .. } = rounding;
            (there.target().name().to_owned(), numbers)
        });
        Outcome { numbers: self.numbers, rounded }
    }

    /// The side that is behind, so that the other's elements wait for nothing more.
    fn turn(&self) -> Side {
        let behind = |stream: &Stream| match stream.pour.need() {
            Need::Done => usize::MAX,
            _ => stream.pour.into.len() / stream.size,
        };
        if behind(&self.left) <= behind(&self.right) { Side::Left } else { Side::Right }
    }

    fn stream(&self) -> &Pour<Vec<u8>> {
        match self.turn() {
            Side::Left => &self.left.pour,
            Side::Right => &self.right.pour,
        }
    }

    fn stream_mut(&mut self) -> &mut Pour<Vec<u8>> {
        match self.turn() {
            Side::Left => &mut self.left.pour,
            Side::Right => &mut self.right.pour,
        }
    }

    /// Compares what both sides have.
    fn compare(&mut self) {
        let (left, right) = (&mut self.left, &mut self.right);
        let (of_left, of_right) = (&mut left.pour.into, &mut right.pour.into);
        let count = (of_left.len() / left.size).min(of_right.len() / right.size);
        if count == 0 {
            return;
        }
        let (left, right) = (count * left.size, count * right.size);
        let blocks = (&of_left[..left], &of_right[..right]);
        self.lane.compare(blocks.0, blocks.1, &self.options, &mut self.numbers);
        if let Some(rounding) = &mut self.rounding {
            rounding.compare(&self.lane, blocks, &self.options);
        }
        of_left.drain(..left);
        of_right.drain(..right);
        self.done = self.done.saturating_add((left + right) as u64);
    }
}

impl Machine for Current {
    fn need(&self) -> Need {
        self.stream().need()
    }

    fn files(&self) -> &FileSet {
        self.stream().files()
    }

    fn source(&self) -> usize {
        usize::from(self.turn() == Side::Right)
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream_mut().feed(bytes)?;
        self.compare();
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        self.stream_mut().step()?;
        self.compare();
        Ok(())
    }

    fn progress(&self) -> (u64, u64) {
        let all = self.left.pour.progress().1.saturating_add(self.right.pour.progress().1);
        (self.done, all)
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

    fn compare(&mut self, lane: &Lane, (left, right): (&[u8], &[u8]), options: &DiffOptions) {
        let (mut coarse, mut rounded) = (Vec::new(), Vec::new());
        self.there.run(if self.side == Side::Left { left } else { right }, &mut coarse);
        self.back.run(&coarse, &mut rounded);
        match self.side {
            Side::Left => lane.compare(&rounded, right, options, &mut self.numbers),
            Side::Right => lane.compare(left, &rounded, options, &mut self.numbers),
        }
    }
}
