//! Compares two checkpoints in any formats: keys, kinds, shapes, dtypes, values.
//!
//! [`Comparison`] is a [`Machine`](statelens_tensor::Machine): it reports which span of which
//! checkpoint it needs, and holds little more than one piece of two tensors in memory. [`compare`]
//! is for callers that may block.
//!
//! Leaves are compared by flat key. Attributes (of HDF5, `__metadata__` of safetensors) and the
//! types of dict keys are compared between files of the same format. The classes of containers that
//! are not empty and of tensors, the nesting of keys, and ties between leaves, are compared only
//! with [`DiffOptions::structure`], because formats differ in which of these they can represent.
//!
//! Numbers: 0.0 and -0.0 are equal. A NaN equals a NaN in the same place, unless
//! [`DiffOptions::nan_differs`] selects torch's rule; an infinity equals itself. Errors, mean and
//! cosine cover all elements except those that are NaN or infinite alike on both sides. A NaN on
//! one side only is a separate class of difference: errors and cosine are then undefined. The
//! relative error is relative to the right side, and infinite where that is zero. Integers are
//! compared exactly.
//!
//! A different dtype is a difference, but the numbers are compared all the same: first with both
//! sides widened exactly, then with the finer side rounded to the coarser dtype. The latter
//! distinguishes a cast ("equal at bfloat16 precision") from different values.

mod attributes;
mod common_type;
mod document;
mod elements;
mod layers;
mod lockstep;
mod optimizers;
mod pairs;
mod renames;
mod report;
mod sets;
mod structure;
mod tensor_diff;
mod tensor_pair;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Leaf, Progress, Result, Text, ValueId};
use statelens_stats::{Equality, Numbers};
use statelens_tensor::{Buffer, InOrder, Pieces, Work, drive};

pub(crate) use attributes::has_attributes;
use lockstep::Both;
use optimizers::Optimizers;
use pairs::TensorPair;
use tensor_pair::{Current, PairNumbers};

pub use elements::{Distance, ElementDifference, NumericComparison};
pub use layers::{PairChange, Quantity, Role, by_layer, role_of, roles};
pub(crate) use pairs::same_value;
pub use renames::{Basis, Renamed, Unpaired, rename_map};
pub use report::{ComparisonReport, Difference, DifferenceKind};
pub use statelens_stats::{Spread, Tolerance};
pub use tensor_diff::{
    Outlines, TENSOR_DIFF_BLOCKS, TensorComparing, TensorComparison, TensorDifference, type_text,
};

/// Options of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DiffOptions {
    /// Numbers within these bounds match; without them, numbers must be equal.
    pub tolerance: Option<Tolerance>,
    /// Two NaNs in the same place differ, as in `torch.equal`.
    pub nan_differs: bool,
    /// Tensors with different dtypes match if their numbers match.
    pub ignore_dtype: bool,
    /// A numpy array and a tensor match if their numbers match.
    pub ignore_type: bool,
    /// The classes of containers and the ties between leaves must be the same.
    pub structure: bool,
}

impl DiffOptions {
    fn equality(&self) -> Equality {
        Equality { tolerance: self.tolerance, nan_differs: self.nan_differs }
    }
}

/// Two tensors in Python attributes with the same name: order, key, name, and both tensors.
type AttributePair = (usize, Text, String, ValueId, ValueId);

/// Number of elements of a pair that one worker compares at a time.
const PIECE: u64 = 4 << 20;

/// Number of bytes that the driver reads at once.
const BUFFER: usize = 256 << 10;

statelens_tensor::in_order! {
    /// Compares two checkpoints: a machine that is fed the files of both. The left one is
    /// [source](statelens_tensor::Machine::source) 0.
    pub struct Comparison(Comparing);
}

/// A checkpoint and its leaves.
type Side<'a> = (&'a Checkpoint, &'a [Leaf]);

/// The work of a [`Comparison`]: reads the tensors with the same keys.
pub struct Comparing {
    left: Arc<Checkpoint>,
    right: Arc<Checkpoint>,
    options: DiffOptions,
    pairs: Vec<TensorPair>,
    pieces: Pieces,
    matches: Vec<Option<usize>>,
}

/// The results of a [`Comparison`] so far.
pub struct ComparisonResults {
    report: ComparisonReport,
    /// Result of the pair whose last piece is still missing.
    begun: Option<Result<Option<PairNumbers>>>,
}

impl Comparison {
    /// Compares everything except the elements of tensors, which are compared as they are fed.
    pub fn new(left: Arc<Checkpoint>, right: Arc<Checkpoint>, options: DiffOptions) -> Self {
        let (of_left, of_right) = (left.leaves(), right.leaves());
        let sides = [(&*left, &*of_left), (&*right, &*of_right)];
        let mut report = ComparisonReport::new(Optimizers::of(sides));
        let inside = attributes::attributes(sides, &options, &mut report);
        let (pairs, matches) = pairs::pairs(sides, &options, &mut report, inside);
        let is_alike = left.format.id == right.format.id;
        if options.structure || is_alike {
            let exact = options.structure && is_alike;
            structure::paths(sides, &matches, exact, &mut report);
        }
        if options.structure {
            structure::structure(sides, &mut report);
        }
        let mut pieces = Pieces::default();
        for (at, pair) in pairs.iter().enumerate() {
            let numel = pair.shape.iter().fold(1u64, |numel, dim| numel.saturating_mul(*dim));
            pieces.push(at, numel, pair.grain(&left, &right), PIECE);
        }
        let comparing = Comparing { left, right, options, pairs, pieces, matches };
        Self(InOrder::of(comparing, ComparisonResults { report, begun: None }))
    }

    /// Returns, for each leaf of the left side, the index of the leaf on the right that it is
    /// compared with.
    pub fn matches(&self) -> &[Option<usize>] {
        &self.work().matches
    }

    /// Returns the differences found so far, in the order in which they were found. It is complete
    /// except for elements, which are added as they are compared.
    pub fn so_far(&self) -> &ComparisonReport {
        &self.sum().report
    }

    /// Returns the number of pairs of tensors that were compared completely.
    pub fn compared(&self) -> usize {
        self.work().pieces.item(self.next())
    }

    /// Returns the leaves of the left side whose elements are not compared yet.
    pub fn waiting(&self) -> impl Iterator<Item = usize> {
        self.places(self.work().pairs.iter().skip(self.compared()))
    }

    /// Returns the leaves of the left side that belong to the completely compared pairs of tensors,
    /// from pair `from` on.
    pub fn settled(&self, from: usize) -> impl Iterator<Item = usize> {
        self.places(self.work().pairs.iter().take(self.compared()).skip(from))
    }

    /// Returns the leaves of the left side that refer to these pairs.
    fn places<'a>(
        &self,
        pairs: impl Iterator<Item = &'a TensorPair>,
    ) -> impl Iterator<Item = usize> {
        // Tensors in attributes are not leaves.
        let leaves = self.matches().len();
        pairs
            .flat_map(|pair| pair.places.iter().map(|(order, ..)| *order))
            .filter(move |order| *order < leaves)
    }

    /// Returns the report, which is complete once the machine needs nothing more.
    pub fn into_report(self) -> ComparisonReport {
        let mut report = self.0.into_parts().1.report;
        report.sort();
        report
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
        let (left, right) = pair.sides(&self.left, &self.right)?;
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
            // An unreadable tensor is a difference, not an error.
            Some(Err(error)) => Err(statelens_values::reading::of_one_tensor(error)?),
        };
        sum.report.compared(&self.pairs[self.pieces.item(part)], found);
        Ok(())
    }
}

/// Compares two checkpoints, reading synchronously. Progress is in logical bytes of both.
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
