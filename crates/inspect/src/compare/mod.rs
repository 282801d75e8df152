//! Comparing two checkpoints, whatever formats they are in: keys, kinds, shapes, dtypes, values.
//!
//! [`Comparison`] is a [`Machine`](statelens_tensor::Machine): it says which span of which checkpoint it
//! needs, and holds two tensors' worth of little more than one piece. [`compare`] is for callers that
//! may block.
//!
//! What is compared: every leaf by its flat key, and attributes (of HDF5, `__metadata__` of safetensors) between
//! files of one format. The classes of containers that are not empty and ties between leaves are only if
//! [`DiffOptions::structure`] asks for it; formats differ in what they can hold of these.
//!
//! Numbers: 0.0 and -0.0 are equal; a NaN equals a NaN in the same place, unless
//! [`DiffOptions::nan_differs`] says as torch does; an infinity equals itself. Errors, mean and
//! cosine are taken over all elements but those that are NaN or infinite alike on both sides. A NaN
//! on one side only is a class of difference of its own: errors and cosine are not defined then.
//! The relative error is that to the right side, and infinite where that is zero. Integers are
//! compared exactly.
//!
//! Where dtypes differ, that is a difference, and the numbers are compared all the same: both
//! widened exactly, and again with the finer side rounded to the coarser one's dtype, which tells
//! a cast ("equal at bfloat16 precision") from other values.

mod attributes;
mod both;
mod closer;
mod current;
mod lane;
mod layers;
mod numbers;
mod optimizers;
mod pairs;
mod renames;
mod report;
mod sets;
mod spread;
mod structure;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Progress, Result};
use statelens_tensor::{Buffer, drive};

use crate::pieces::Pieces;
use crate::work::{InOrder, Work};
use both::Both;
use current::{Current, PairNumbers};
use pairs::TensorPair;

pub use closer::{Close, Closer, Closing, Outlines};
pub use layers::{PairChange, Quantity, Role, by_layer, role_of, roles};
pub use numbers::Numbers;
pub use optimizers::Optimizers;
pub(crate) use pairs::same_value;
pub use renames::{Basis, Renamed, Unpaired, rename_map};
pub(crate) use report::unravel;
pub use report::{ComparisonReport, Difference, DifferenceKind, NumericComparison};
pub use spread::Spread;

/// How to compare.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DiffOptions {
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

/// Elements of a pair that are compared by one worker.
const PIECE: u64 = 4 << 20;

/// Bytes that the driver reads at once.
const BUFFER: usize = 256 << 10;

/// Compares two checkpoints: a machine that is fed the files of both, the left one of which is
/// [source](statelens_tensor::Machine::source) 0.
pub type Comparison = InOrder<Comparing>;

/// What a [`Comparison`] reads: the tensors that stand at the same keys.
pub struct Comparing {
    left: Arc<Checkpoint>,
    right: Arc<Checkpoint>,
    options: DiffOptions,
    pairs: Vec<TensorPair>,
    pieces: Pieces,
    matches: Vec<Option<usize>>,
}

/// What a [`Comparison`] has found.
pub struct ComparisonResults {
    report: ComparisonReport,
    /// Of the pair whose last piece is still to come.
    begun: Option<Result<Option<PairNumbers>>>,
}

impl Comparison {
    /// Compares everything but the elements of tensors at once; those follow as they are fed.
    pub fn new(left: Arc<Checkpoint>, right: Arc<Checkpoint>, options: DiffOptions) -> Self {
        let mut report = ComparisonReport::default();
        let (pairs, matches) = pairs::pairs(&left, &right, &options, &mut report);
        attributes::attributes(&left, &right, &mut report);
        if options.structure {
            structure::structure(&left, &right, &mut report);
        }
        let mut pieces = Pieces::default();
        for (at, pair) in pairs.iter().enumerate() {
            let numel = pair.shape.iter().fold(1u64, |numel, dim| numel.saturating_mul(*dim));
            pieces.push(at, numel, pair.grain(&left, &right), PIECE);
        }
        let comparing = Comparing { left, right, options, pairs, pieces, matches };
        Self::of(comparing, ComparisonResults { report, begun: None })
    }

    /// For each leaf of the left side, in the order of its leaves, the leaf on the right that it
    /// is compared with.
    pub fn matches(&self) -> &[Option<usize>] {
        &self.work.matches
    }

    /// What was found so far: all but elements from the start, those as they are compared; in
    /// the order in which it was found.
    pub fn so_far(&self) -> &ComparisonReport {
        &self.sum.report
    }

    /// How many pairs of tensors were compared to their end.
    pub fn compared(&self) -> usize {
        self.work.pieces.item(self.next)
    }

    /// The leaves of the left side whose elements are still to be compared.
    pub fn waiting(&self) -> impl Iterator<Item = usize> {
        places(self.work.pairs.iter().skip(self.compared()))
    }

    /// The leaves of the left side that stand for the pairs of tensors from `from` on that were
    /// compared to their end.
    pub fn settled(&self, from: usize) -> impl Iterator<Item = usize> {
        places(self.work.pairs.iter().take(self.compared()).skip(from))
    }

    /// What was found; complete once nothing is needed any more.
    pub fn into_report(mut self) -> ComparisonReport {
        self.sum.report.sort();
        self.sum.report
    }
}

impl Work for Comparing {
    type Part = Both<Current>;
    type Found = Result<Option<PairNumbers>>;
    type Sum = ComparisonResults;

    fn parts(&self) -> usize {
        self.pieces.count()
    }

    fn size(&self, part: usize) -> u64 {
        let pair = &self.pairs[self.pieces.item(part)];
        let Range { start, end } = self.pieces.range(part);
        let of = |checkpoint: &Checkpoint, id| {
            let tensor = checkpoint.tensor(id).ok();
            tensor.and_then(|tensor| tensor.dtype.bytes_of(end - start)).unwrap_or(0)
        };
        of(&self.left, pair.left).saturating_add(of(&self.right, pair.right))
    }

    fn begin(&self, part: usize) -> Result<Option<Both<Current>>> {
        let pair = &self.pairs[self.pieces.item(part)];
        let (left, right) = (self.left.tensor(pair.left)?, self.right.tensor(pair.right)?);
        if pairs::same_constant(left, right) && !self.options.nan_differs {
            return Ok(None);
        }
        let sides = ((&*self.left, left), (&*self.right, right));
        let range = self.pieces.range(part);
        Current::new(sides, range, pair.dtypes.is_some(), self.options).map(Some)
    }

    fn end(
        &self,
        _part: usize,
        machine: Option<Both<Current>>,
        read: Result<()>,
    ) -> Result<Option<PairNumbers>> {
        read.map(|()| machine.map(|both| both.into_taker().outcome()))
    }

    fn take(
        &self,
        sum: &mut ComparisonResults,
        part: usize,
        found: Result<Option<PairNumbers>>,
    ) -> Result<()> {
        let merge = |all: &mut Option<PairNumbers>, part| {
            if let (Some(all), Some(part)) = (all, part) {
                all.merge(part);
            }
        };
        let found = match self.pieces.join(part, &mut sum.begun, found, merge) {
            None => return Ok(()),
            Some(Ok(found)) => Ok(found),
            // One tensor that can't be read is a difference.
            Some(Err(error)) => Err(crate::of_one_tensor(error)?),
        };
        sum.report.compared(&self.pairs[self.pieces.item(part)], found);
        Ok(())
    }
}

/// The leaves of the left side that pairs stand for.
fn places<'a>(pairs: impl Iterator<Item = &'a TensorPair>) -> impl Iterator<Item = usize> {
    pairs.flat_map(|pair| pair.places.iter().map(|(order, ..)| *order))
}

/// Compares two checkpoints, reading as it goes. Progress is in logical bytes of both.
pub fn compare(
    left: Arc<Checkpoint>,
    right: Arc<Checkpoint>,
    options: DiffOptions,
    progress: &mut dyn Progress,
) -> Result<ComparisonReport> {
    let mut comparison = Comparison::new(left, right, options);
    drive(&mut comparison, &mut Buffer::new(BUFFER), progress)?;
    Ok(comparison.into_report())
}
