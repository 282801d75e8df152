//! Compares a pair of tensors in detail: the distributions of the values on both sides and of their
//! differences, and where the tensors differ.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use statelens_checkpoint::{Checkpoint, DType, Error, Leaf, Result, Tensor, shape_text};
use statelens_tensor::{InOrder, Pieces, Work};
use statelens_values::json::Float;
use statelens_values::picture::BlockMap;
use statelens_values::{
    Accumulator, Matrix, Overview, Scale, Summary, fields, has_statistics, missing,
    statistics_fields,
};

use super::common_type;
use super::lockstep::{self, Both, Taker};

statelens_tensor::in_order! {
    /// Compares two tensors in one pass: a machine that is fed the files of both. The left one is
    /// [source](statelens_tensor::Machine::source) 0. It holds a [`TensorDifference`] for each part that is
    /// being read.
    pub struct TensorComparison(TensorComparing);
}

/// The work of a [`TensorComparison`].
pub struct TensorComparing {
    left: (Arc<Checkpoint>, Tensor),
    right: (Arc<Checkpoint>, Tensor),
    /// Measured in values, not in elements.
    matrix: Matrix,
    /// Number of values per element.
    each: u64,
    /// Maximum number of blocks of the map, across and down.
    blocks: (u32, u32),
    pieces: Pieces,
    /// Accumulators that are not in use. They are pooled because each is large.
    accumulators: Mutex<Vec<Accumulator>>,
}

/// A detailed comparison of two tensors of the same shape. Differences are right − left; for
/// complex numbers, the modulus of that. The difference is 0 for equal values, and for infinities
/// and NaN in the same place.
#[derive(Debug, Clone, Default)]
pub struct TensorDifference {
    /// Summary of the left values.
    pub left: Summary,
    /// Summary of the right values.
    pub right: Summary,
    /// Summary of the differences.
    pub differences: Summary,
    /// The map of the differences: |right − left| in blocks. `None` until something is read.
    pub map: Option<Overview>,
    /// Number of positions that are NaN on both sides, on the left only, and on the right only.
    pub nan: [u64; 3],
    /// The shape that positions refer to: that of the tensors, with the last dimension doubled if
    /// an element holds two values.
    pub shape: Vec<u64>,
}

/// The distributions of two sets of values over the same bins.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Outlines {
    /// The edges, one more than there are bins.
    pub edges: Vec<f64>,
    /// Number of finite left values in each bin.
    pub left: Vec<u64>,
    /// Number of finite right values in each bin.
    pub right: Vec<u64>,
}

/// The usual maximum number of blocks of the map, across and down.
pub const TENSOR_DIFF_BLOCKS: (u32, u32) = (256, 160);

/// Number of elements that one worker reads at a time.
const PIECE: u64 = 4 << 20;

impl TensorComparison {
    /// Prepares the comparison of two leaves, with a map of at most `blocks` blocks across and
    /// down. Fails if they can't be subtracted: not numeric, different shapes, no data.
    pub fn new(
        left: (Arc<Checkpoint>, &Leaf),
        right: (Arc<Checkpoint>, &Leaf),
        blocks: (u32, u32),
    ) -> Result<Self> {
        let side = |(of, leaf): (Arc<Checkpoint>, &Leaf)| {
            let tensor = wanted(&of, leaf)?;
            Ok::<_, Error>((of, tensor))
        };
        let (left, right) = (side(left)?, side(right)?);
        let (one, two) = (&left.1, &right.1);
        if one.shape != two.shape {
            let shapes = [one, two].map(|tensor| shape_text(&tensor.shape));
            return Err(Error::refused(format!(
                "their shapes are {} and {}",
                shapes[0], shapes[1]
            )));
        }
        let each = values_of(&one.dtype);
        if one.dtype.is_complex() != two.dtype.is_complex() || each != values_of(&two.dtype) {
            let text = format!("{} and {} can't be compared", one.dtype, two.dtype);
            return Err(Error::unsupported(text));
        }
        let numel = one.numel().and_then(|numel| numel.checked_mul(each));
        let len = numel.ok_or_else(|| Error::damaged("a tensor too large to count"))?;
        let columns = one.shape.last().map_or(1, |last| last.saturating_mul(each));
        let matrix = Matrix { first: 0, len, columns };
        let mut pieces = Pieces::default();
        pieces.push(0, len / each.max(1), lockstep::grain(one, two), PIECE);
        let accumulators = Mutex::default();
        let found =
            TensorDifference { shape: shape(&one.shape, each), ..TensorDifference::default() };
        let comparing = TensorComparing { left, right, matrix, each, blocks, pieces, accumulators };
        Ok(Self(InOrder::of(comparing, found)))
    }

    /// Returns the result for the parts read so far.
    pub fn so_far(&self) -> &TensorDifference {
        self.sum()
    }

    /// Returns the result, which is complete once the machine needs nothing more.
    pub fn into_found(self) -> TensorDifference {
        self.0.into_parts().1
    }
}

/// Returns the dtype and shape of a leaf, such as `float32 [2, 3]`; an empty text if it is not a tensor.
pub fn type_text(of: &Checkpoint, leaf: &Leaf) -> String {
    let tensor = of.tensor_of(leaf.target).map(|(_, tensor)| tensor);
    tensor.map_or_else(String::new, |it| format!("{} {}", it.dtype, shape_text(&it.shape)))
}

impl TensorDifference {
    /// Returns the distributions of both sides over the same bins.
    pub fn outlines(&self, scale: Scale, bins: usize) -> Outlines {
        let mut all = self.left.clone();
        all.merge(&self.right);
        let edges = all.histogram(scale, bins).edges;
        let of = |side: &Summary| match side.finite() {
            0 => vec![0; edges.len().saturating_sub(1)],
            _ => side.histogram_between(edges.clone()).counts,
        };
        let (left, right) = (of(&self.left), of(&self.right));
        Outlines { edges, left, right }
    }

    /// Returns the number of values that differ.
    pub fn differing(&self) -> u64 {
        self.differences.count() - self.differences.statistics().zeros
    }

    /// Returns the blocks of |right − left| for drawing.
    pub fn drawn(&self) -> Option<BlockMap> {
        self.map.as_ref().map(BlockMap::of)
    }

    /// Returns the entry of `diff --closer --json` of the tensors `key`, whose dtypes and shapes are
    /// `types`, with histograms of `bins` bins.
    pub fn fields(
        &self,
        key: &str,
        types: &[String; 2],
        scale: Scale,
        bins: usize,
    ) -> impl Serialize {
        let side = |of: &Summary| {
            statistics_fields(&of.statistics(), of.histogram(scale, bins), Some(&self.shape))
        };
        let map = self.drawn().map(|map| {
            // A block without numbers is `null`.
            let largest = map.largest.iter().map(|it| Float((!it.is_nan()).then(|| it.abs())));
            let largest: Vec<_> = largest.collect();
            let (rows, columns) = map.matrix;
            let map = fields! {
                rows: rows,
                columns: columns,
                block: map.block,
                size: map.size,
                largest: largest,
            };
            fields! { map: map }
        });
        fields! {
            key: key,
            left_type: &types[0],
            right_type: &types[1],
            differing: self.differing(),
            nan_on_both_sides: self.nan[0],
            nan_left_only: self.nan[1],
            nan_right_only: self.nan[2],
            left: side(&self.left),
            right: side(&self.right),
            difference: side(&self.differences),
            distributions: self.outlines(scale, bins),
            #[serde(flatten)]
            map: map,
        }
    }

    /// Adds the result of the values that follow.
    fn merge(&mut self, next: Self) {
        self.left.merge(&next.left);
        self.right.merge(&next.right);
        self.differences.merge(&next.differences);
        match (&mut self.map, next.map) {
            (Some(map), Some(next)) => map.merge(&next),
            (map, next) => *map = map.take().or(next),
        }
        self.nan.iter_mut().zip(next.nan).for_each(|(all, next)| *all += next);
    }
}

/// Accumulates a pair of tensors, or a part of one, as they are read.
pub struct PairAccumulator {
    /// Accumulators of the left side, the right side, and the differences.
    accumulators: [Accumulator; 3],
    map: Option<Overview>,
    nan: [u64; 3],
    dtypes: (DType, DType),
}

impl TensorComparing {
    fn pool(&self) -> MutexGuard<'_, Vec<Accumulator>> {
        self.accumulators.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accumulator(&self, dtype: &DType, start: u64) -> Accumulator {
        let mut accumulator = self.pool().pop().unwrap_or_default();
        accumulator.begin(dtype, start);
        accumulator
    }
}

impl Work for TensorComparing {
    type Part = Both<PairAccumulator>;
    type Found = Result<TensorDifference>;
    type Sum = TensorDifference;

    fn parts(&self) -> usize {
        self.pieces.count()
    }

    fn size(&self, part: usize) -> u64 {
        let Range { start, end } = self.pieces.range(part);
        let of = |tensor: &Tensor| tensor.dtype.bytes_of(end - start).unwrap_or(0);
        of(&self.left.1).saturating_add(of(&self.right.1))
    }

    fn begin(&self, part: usize) -> Result<Option<Both<PairAccumulator>>> {
        let range = self.pieces.range(part);
        let ((of_left, left), (of_right, right)) = (&self.left, &self.right);
        let first = range.start.saturating_mul(self.each);
        let (across, down) = self.blocks;
        let mut map = Overview::new(&DType::F64, self.matrix, across, down);
        if let Some(map) = &mut map {
            map.seek(first);
        }
        let accumulators = [
            self.accumulator(&left.dtype, range.start),
            self.accumulator(&right.dtype, range.start),
            self.accumulator(&DType::F64, first),
        ];
        let dtypes = (left.dtype.clone(), right.dtype.clone());
        let part = PairAccumulator { accumulators, map, nan: [0; 3], dtypes };
        let (left, right) = ((&**of_left, left, &left.dtype), (&**of_right, right, &right.dtype));
        Both::new(left, right, range, part).map(Some)
    }

    fn end(
        &self,
        _part: usize,
        both: Option<Both<PairAccumulator>>,
        read: Result<()>,
    ) -> Result<TensorDifference> {
        let Some(both) = both else { return read.map(|()| TensorDifference::default()) };
        let PairAccumulator { accumulators, map, nan, .. } = both.into_taker();
        let [left, right, differences] = accumulators.map(|mut accumulator| {
            let summary = accumulator.finish();
            self.pool().push(accumulator);
            summary
        });
        read.map(|()| TensorDifference { left, right, differences, map, nan, shape: Vec::new() })
    }

    fn take(
        &self,
        sum: &mut TensorDifference,
        _part: usize,
        found: Result<TensorDifference>,
    ) -> Result<()> {
        found.map(|found| sum.merge(found))
    }
}

impl Taker for PairAccumulator {
    fn take(&mut self, left: &[u8], right: &[u8]) {
        let Self { accumulators, map, nan, dtypes } = self;
        let [of_left, of_right, of_both] = accumulators;
        of_left.feed(left);
        of_right.feed(right);
        let differences = differences(dtypes, left, right, nan);
        for some in differences.chunks(BATCH) {
            let bytes: Vec<u8> = some.iter().flat_map(|value| value.to_le_bytes()).collect();
            of_both.feed(&bytes);
            if let Some(map) = map.as_mut() {
                map.feed(&bytes);
            }
        }
    }
}

/// Number of differences that are passed on at a time.
const BATCH: usize = 2 << 10;

/// Returns the tensor of a leaf as numbers; complex dtypes are widened to complex128.
fn wanted(checkpoint: &Checkpoint, leaf: &Leaf) -> Result<Tensor> {
    let (_, tensor) = checkpoint
        .tensor_of(leaf.target)
        .ok_or_else(|| Error::refused(format!("`{}` is not a tensor", leaf.flat.to_lossy())))?;
    if let Some(why) = missing(tensor) {
        let text = format!("`{}` has no data: {}", leaf.flat.to_lossy(), why.to_lossy());
        return Err(Error::refused(text));
    }
    let numbers = statelens_tensor::numbers(tensor).filter(|it| has_statistics(&it.dtype));
    let numbers = numbers.ok_or_else(|| {
        Error::unsupported(format!("values of {} can't be decoded", tensor.dtype))
    })?;
    let mut numbers = numbers.into_owned();
    if numbers.dtype.is_complex() {
        numbers.dtype = DType::C128;
    }
    Ok(numbers)
}

/// Returns the number of values per element.
fn values_of(dtype: &DType) -> u64 {
    if *dtype == DType::F4E2M1FNX2 { 2 } else { 1 }
}

fn shape(of: &[u64], each: u64) -> Vec<u64> {
    let mut shape = of.to_vec();
    if let Some(last) = shape.last_mut() {
        *last = last.saturating_mul(each);
    }
    shape
}

/// Returns the right elements minus the left ones; counts NaNs.
fn differences(
    (of_left, of_right): &(DType, DType),
    left: &[u8],
    right: &[u8],
    nan: &mut [u64; 3],
) -> Vec<f64> {
    if common_type::are_ints(of_left, of_right) {
        let size = |dtype: &DType| usize::try_from(dtype.itemsize().max(1)).unwrap_or(1);
        let left = left.chunks_exact(size(of_left)).map(|it| common_type::integer(of_left, it));
        let right = right.chunks_exact(size(of_right)).map(|it| common_type::integer(of_right, it));
        // The nearest double to the exact difference.
        return left.zip(right).map(|(left, right)| (right - left) as f64).collect();
    }
    let mut between = |left: f64, right: f64, complex: bool| {
        let both_nan = left.is_nan() && right.is_nan();
        let at = [both_nan, left.is_nan(), right.is_nan()].iter().position(|it| *it);
        if let Some(count) = at.and_then(|at| nan.get_mut(at)) {
            *count += 1;
        }
        match (left == right || both_nan, complex) {
            (true, _) => 0.0,
            (false, false) => right - left,
            (false, true) => f64::NAN,
        }
    };
    if of_left.is_complex() {
        let part = |bytes: &[u8]| bytes.first_chunk().map_or(0.0, |it| f64::from_le_bytes(*it));
        let pairs = left.chunks_exact(16).zip(right.chunks_exact(16));
        let difference = |(left, right): (&[u8], &[u8])| {
            let (one, two) = ((part(left), part(&left[8..])), (part(right), part(&right[8..])));
            let is_nan = |it: (f64, f64)| it.0.is_nan() || it.1.is_nan();
            match (is_nan(one), is_nan(two)) {
                (false, false) if one == two => 0.0,
                (false, false) => (two.0 - one.0).hypot(two.1 - one.1),
                (left, right) => {
                    let of = |is: bool| if is { f64::NAN } else { 0.0 };
                    between(of(left), of(right), true)
                }
            }
        };
        return pairs.map(difference).collect();
    }
    let (left, right) = (Overview::values(of_left, left), Overview::values(of_right, right));
    left.into_iter().zip(right).map(|(left, right)| between(left, right, false)).collect()
}
