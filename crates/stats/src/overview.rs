//! A matrix of any size as an image of limited size: the matrix is split into blocks, and each
//! block is represented by its largest value.

use statelens_checkpoint::{DType, Result};
use statelens_tensor::Receive;

use crate::begun::Begun;
use crate::kind::ElementKind;
use crate::norm::Norm;
use crate::rows::MatrixLine;

/// A matrix within a tensor: consecutive elements in C order, arranged in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Matrix {
    /// The index of its first element in the tensor.
    pub first: u64,
    /// Number of elements; the last row may be incomplete.
    pub len: u64,
    /// Number of elements per row.
    pub columns: u64,
}

impl Matrix {
    /// Returns the last two dimensions of a tensor at the index `leading` of the other dimensions;
    /// a tensor of one dimension is one row. Returns `None` if the index is out of range or the
    /// matrix is empty.
    pub fn of(shape: &[u64], leading: &[u64]) -> Option<Self> {
        let (before, last) = shape.split_at(shape.len().saturating_sub(2));
        if before.len() != leading.len() || shape.contains(&0) {
            return None;
        }
        let len = last.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim))?;
        let mut first = 0u64;
        for (dim, index) in before.iter().zip(leading) {
            first = first.checked_mul(*dim)?.checked_add(*index).filter(|_| index < dim)?;
        }
        let first = first.checked_mul(len)?;
        first.checked_add(len)?;
        Some(Self { first, len, columns: last.last().copied().unwrap_or(1) })
    }

    /// Returns the same elements in rows of `columns` elements.
    #[must_use]
    pub fn folded(self, columns: u64) -> Self {
        Self { columns: columns.clamp(1, self.len.max(1)), ..self }
    }

    /// Returns the number of rows, including an incomplete one.
    pub fn rows(&self) -> u64 {
        self.len.div_ceil(self.columns.max(1))
    }
}

/// A summary of one block of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tile {
    /// Number of values seen so far.
    pub count: u64,
    /// Number of NaN values.
    pub nan: u64,
    /// Number of infinite values.
    pub infinite: u64,
    /// The finite value of the largest magnitude, and its index in the matrix. Among equal
    /// magnitudes, the one with the lowest index.
    pub largest: Option<(f64, u64)>,
    /// The index in the matrix of the first value that is not finite.
    pub first_odd: Option<u64>,
    sum: f64,
    norm: Norm,
}

impl Tile {
    /// Returns the mean magnitude of the finite values; `None` if all values are NaN or infinite, or
    /// if the sum overflows a double.
    pub fn mean(&self) -> Option<f64> {
        let finite = self.count - self.nan - self.infinite;
        (finite > 0 && self.sum.is_finite()).then(|| self.sum / finite as f64)
    }

    /// Returns the square root of the sum of squares of the finite values.
    pub fn norm(&self) -> f64 {
        self.norm.root()
    }

    /// Adds values one by one, so that the result does not depend on how they are split.
    fn add(&mut self, values: &[f64], first: u64) {
        self.count += values.len() as u64;
        let (mut sum, mut norm) = (self.sum, self.norm);
        let mut most = self.largest.map_or(-1.0, |(value, _)| value.abs());
        for (value, number) in values.iter().zip(first..) {
            let magnitude = value.abs();
            if magnitude <= f64::MAX {
                sum += magnitude;
                norm.add(magnitude);
                if magnitude > most {
                    most = magnitude;
                    self.largest = Some((*value, number));
                }
            } else {
                self.nan += u64::from(value.is_nan());
                self.infinite += u64::from(value.is_infinite());
                self.first_odd = self.first_odd.or(Some(number));
            }
        }
        (self.sum, self.norm) = (sum, norm);
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.nan += other.nan;
        self.infinite += other.infinite;
        self.sum += other.sum;
        self.norm.merge(&other.norm);
        if let Some((value, number)) = other.largest {
            let better = self.largest.is_none_or(|(before, at)| {
                let (before, now) = (before.abs(), value.abs());
                now > before || now == before && number < at
            });
            if better {
                self.largest = Some((value, number));
            }
        }
        self.first_odd = match (self.first_odd, other.first_odd) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
    }
}

/// Maximum number of blocks: they take 100 MB.
pub const MOST_TILES: u64 = 1 << 20;

/// A matrix in blocks of one size, computed in one pass over its bytes, which may arrive in pieces
/// of any size. Overviews of parts can be merged ([`Overview::merge`]). Counts and largest values
/// do not depend on the split; means and norms do, but only by the rounding of their sums.
#[derive(Debug, Clone)]
pub struct Overview {
    kind: ElementKind,
    /// Measured in values, not in elements: some elements hold two values.
    matrix: Matrix,
    /// Number of rows and of columns of a block.
    block: (u64, u64),
    /// Number of blocks down and across.
    size: (usize, usize),
    tiles: Vec<Tile>,
    /// The index in the matrix of the next value.
    at: u64,
    /// The bytes of an element that has not fully arrived.
    begun: Begun,
}

impl Overview {
    /// Returns an empty overview of at most `across` by `down` blocks. Returns `None` if the
    /// elements are not numeric, if the matrix is empty, or if there are too many blocks.
    pub fn new(dtype: &DType, matrix: Matrix, across: u32, down: u32) -> Option<Self> {
        let kind = ElementKind::of(dtype)?;
        let each = kind.values();
        let matrix = Matrix {
            first: matrix.first.checked_mul(each)?,
            len: matrix.len.checked_mul(each)?,
            columns: matrix.columns.checked_mul(each)?,
        };
        if matrix.len == 0 || matrix.columns == 0 || across == 0 || down == 0 {
            return None;
        }
        let block = (matrix.rows().div_ceil(down.into()), matrix.columns.div_ceil(across.into()));
        let size = (matrix.rows().div_ceil(block.0), matrix.columns.div_ceil(block.1));
        let count = size.0.checked_mul(size.1).filter(|count| *count <= MOST_TILES)?;
        let tiles = vec![Tile::default(); count as usize];
        let size = (size.0 as usize, size.1 as usize);
        Some(Self { kind, matrix, block, size, tiles, at: 0, begun: Begun::default() })
    }

    /// Sets the index in the matrix of the element that the next bytes start with.
    pub fn seek(&mut self, element: u64) {
        self.begun.clear();
        self.at = element.saturating_mul(self.kind.values());
    }

    /// Processes the next bytes; ignores those beyond the matrix.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut begun = std::mem::take(&mut self.begun);
        begun.feed(self.kind.size(), bytes, &mut |whole| {
            whole.chunks(PIECE).for_each(|piece| self.take(piece));
        });
        self.begun = begun;
    }

    /// Merges the overview of another part of the same matrix with the same blocks.
    pub fn merge(&mut self, other: &Self) {
        if (self.matrix, self.size) != (other.matrix, other.size) {
            return;
        }
        for (tile, other) in self.tiles.iter_mut().zip(&other.tiles) {
            tile.merge(other);
        }
    }

    /// Returns this overview with its empty tiles filled from `other`, if `other` has the same
    /// blocks.
    pub fn over(&self, other: &Self) -> Self {
        let mut both = self.clone();
        if (self.matrix, self.size) == (other.matrix, other.size) {
            for (tile, other) in both.tiles.iter_mut().zip(&other.tiles) {
                if tile.count == 0 {
                    *tile = *other;
                }
            }
        }
        both
    }

    /// Returns the values of elements of this dtype, converted as in statistics; empty if the
    /// elements are not numeric.
    pub fn values(dtype: &DType, elements: &[u8]) -> Vec<f64> {
        ElementKind::of(dtype).map_or_else(Vec::new, |kind| kind.all(elements))
    }

    /// Returns the matrix, measured in values.
    pub fn matrix(&self) -> Matrix {
        self.matrix
    }

    /// Returns the number of rows and of columns of a block; blocks at the end may have fewer.
    pub fn block(&self) -> (u64, u64) {
        self.block
    }

    /// Returns the number of blocks down and across.
    pub fn size(&self) -> (usize, usize) {
        self.size
    }

    /// Returns the blocks, row by row.
    pub fn tiles(&self) -> &[Tile] {
        &self.tiles
    }

    /// Summarises each row of blocks as one line.
    pub fn rows(&self) -> Vec<MatrixLine> {
        self.tiles.chunks(self.size.1).map(|tiles| line(tiles.iter())).collect()
    }

    /// Summarises each column of blocks as one line.
    pub fn columns(&self) -> Vec<MatrixLine> {
        let across = self.size.1;
        (0..across).map(|at| line(self.tiles.iter().skip(at).step_by(across))).collect()
    }

    fn take(&mut self, elements: &[u8]) {
        let values = self.kind.all(elements);
        let mut rest = values.as_slice();
        while !rest.is_empty() && self.at < self.matrix.len {
            let (row, column) = (self.at / self.matrix.columns, self.at % self.matrix.columns);
            let end = (column / self.block.1 + 1) * self.block.1;
            let room = (end.min(self.matrix.columns) - column).min(self.matrix.len - self.at);
            let room = usize::try_from(room).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest.split_at(room);
            let tile =
                (row / self.block.0) as usize * self.size.1 + (column / self.block.1) as usize;
            if let Some(tile) = self.tiles.get_mut(tile) {
                tile.add(now, self.at);
            }
            self.at += room as u64;
            rest = later;
        }
    }
}

/// Number of bytes that are converted to values at a time.
const PIECE: usize = 16 << 10;

fn line<'a>(tiles: impl Iterator<Item = &'a Tile>) -> MatrixLine {
    let mut all = Tile::default();
    tiles.for_each(|tile| all.merge(tile));
    MatrixLine {
        abs_max: all.largest.map_or(0.0, |(value, _)| value.abs()),
        norm: all.norm(),
        not_finite: all.nan + all.infinite,
    }
}

impl Receive for Overview {
    fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        self.feed(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn of(values: &[f32], shape: &[u64], across: u32, down: u32) -> Overview {
        let matrix = Matrix::of(shape, &vec![0; shape.len().saturating_sub(2)]).unwrap();
        let mut all = Overview::new(&DType::F32, matrix, across, down).unwrap();
        all.feed(&bytes(values));
        all
    }

    /// 7 rows of 5 values, so that blocks at both ends are incomplete.
    fn odd() -> Vec<f32> {
        (0..35u16).map(|at| f32::from((at * 17) % 35) - 17.0).collect()
    }

    #[test]
    fn blocks_contain_their_largest_magnitude() {
        // Expected values from numpy: a = ((np.arange(35) * 17) % 35 - 17).reshape(7, 5), in blocks
        // of 3 rows and 2 columns.
        let found = of(&odd(), &[7, 5], 3, 3);
        assert_eq!((found.size(), found.block()), ((3, 3), (3, 2)));
        let values = odd();
        for (at, tile) in found.tiles().iter().enumerate() {
            let (top, left) = (at / 3 * 3, at % 3 * 2);
            let cells = (top..7.min(top + 3))
                .flat_map(|row| (left..5.min(left + 2)).map(move |column| row * 5 + column));
            let cells: Vec<usize> = cells.collect();
            let most = cells.iter().map(|at| values[*at].abs()).fold(0.0, f32::max);
            let first = cells.iter().find(|at| values[**at].abs() == most).unwrap();
            assert_eq!(tile.largest, Some((values[*first].into(), *first as u64)), "block {at}");
            let sum: f32 = cells.iter().map(|at| values[*at].abs()).sum();
            assert_eq!(tile.mean(), Some(f64::from(sum) / cells.len() as f64), "block {at}");
            let squares: f32 = cells.iter().map(|at| values[*at] * values[*at]).sum();
            assert!((tile.norm() - f64::from(squares).sqrt()).abs() < 1e-12, "block {at}");
            assert_eq!(tile.count, cells.len() as u64);
        }
    }

    #[test]
    fn overview_does_not_depend_on_piece_size() {
        let mut values: Vec<f32> =
            (0..11 * 13).map(|at| ((at * 7919) % 101) as f32 / 7.0 - 7.0).collect();
        (values[17], values[50], values[51]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
        let whole = of(&values, &[11, 13], 4, 5);
        let bytes = bytes(&values);
        for piece in 1..40 {
            let mut cut = Overview::new(&DType::F32, whole.matrix(), 4, 5).unwrap();
            bytes.chunks(piece).for_each(|piece| cut.feed(piece));
            assert_eq!(whole.tiles(), cut.tiles(), "pieces of {piece}");
        }
        assert_eq!(whole.tiles().iter().map(|tile| tile.nan).sum::<u64>(), 1);
        assert_eq!(whole.tiles().iter().map(|tile| tile.infinite).sum::<u64>(), 2);
        assert_eq!(whole.tiles()[1].first_odd, Some(17));
    }

    #[test]
    fn merges_parts_in_any_order() {
        let values = odd();
        let whole = of(&values, &[7, 5], 2, 2);
        let bytes = bytes(&values);
        for cut in 0..=35u64 {
            let part = |from: u64, to: u64| {
                let mut part = Overview::new(&DType::F32, whole.matrix(), 2, 2).unwrap();
                part.seek(from);
                part.feed(&bytes[from as usize * 4..to as usize * 4]);
                part
            };
            let mut all = part(cut, 35);
            all.merge(&part(0, cut));
            for (one, other) in whole.tiles().iter().zip(all.tiles()) {
                assert_eq!(
                    (one.count, one.largest, one.mean()),
                    (other.count, other.largest, other.mean())
                );
            }
        }
    }

    #[test]
    fn first_of_equal_magnitudes_wins() {
        let found = of(&[1.0, -3.0, 3.0, -3.0], &[2, 2], 1, 1);
        assert_eq!(found.tiles()[0].largest, Some((-3.0, 1)));
        let zeros = of(&[-0.0, 0.0], &[2], 1, 1);
        assert_eq!(zeros.tiles()[0].largest.map(|(_, at)| at), Some(0));
    }

    #[test]
    fn blocks_without_finite_values_have_no_maximum() {
        let found = of(&[f32::NAN, f32::INFINITY], &[1, 2], 1, 1).tiles()[0];
        assert_eq!((found.largest, found.mean(), found.nan, found.infinite), (None, None, 1, 1));
        assert_eq!((found.norm(), found.first_odd), (0.0, Some(0)));
    }

    #[test]
    fn norms_survive_overflow_and_underflow_of_squares() {
        let matrix = Matrix::of(&[4], &[]).unwrap();
        let mut all = Overview::new(&DType::F64, matrix, 1, 1).unwrap();
        [3e200, -4e200, 0.0, f64::MAX].map(f64::to_le_bytes).iter().for_each(|it| all.feed(it));
        assert_eq!(all.tiles()[0].largest, Some((f64::MAX, 3)));
        assert_eq!(all.tiles()[0].norm(), f64::MAX);
        let mut all = Overview::new(&DType::F64, matrix, 1, 1).unwrap();
        let tiny: Vec<u8> =
            [3e-200, -4e-200, 0.0, 0.0].iter().flat_map(|it: &f64| it.to_le_bytes()).collect();
        all.feed(&tiny);
        let norm = all.tiles()[0].norm();
        assert!((norm / 5e-200 - 1.0).abs() < 1e-14, "{norm}");
    }

    #[test]
    fn matrix_is_the_last_two_dimensions() {
        let of = |shape: &[u64], leading: &[u64]| {
            Matrix::of(shape, leading).map(|it| (it.first, it.rows(), it.columns))
        };
        assert_eq!(of(&[2, 3, 4, 5], &[1, 2]), Some((100, 4, 5)));
        assert_eq!(of(&[7], &[]), Some((0, 1, 7)));
        assert_eq!(of(&[], &[]), Some((0, 1, 1)));
        assert_eq!(of(&[2, 3, 4], &[2]), None);
        assert_eq!(of(&[2, 3, 4], &[]), None);
        assert_eq!(of(&[0, 4], &[]), None);
        assert_eq!(of(&[u64::MAX, 2, u64::MAX], &[1]), None);
        let folded = Matrix::of(&[10], &[]).unwrap().folded(4);
        assert_eq!((folded.rows(), folded.columns, folded.len), (3, 4, 10));
        let mut all = Overview::new(&DType::U8, folded, 4, 3).unwrap();
        all.feed(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let found: Vec<_> =
            all.tiles().iter().map(|tile| tile.largest.map(|(value, _)| value)).collect();
        assert_eq!(found[8..], [Some(9.0), Some(10.0), None, None]);
    }

    #[test]
    fn overview_supports_every_dtype_of_statistics() {
        let largest = |dtype: &DType, bytes: &[u8], columns: u64| {
            let matrix = Matrix { first: 0, len: columns, columns };
            let mut all = Overview::new(dtype, matrix, 1, 1)?;
            all.feed(bytes);
            all.tiles()[0].largest
        };
        assert_eq!(largest(&DType::BF16, &[0x80, 0x3f, 0x00, 0xc0], 2), Some((-2.0, 1)));
        assert_eq!(largest(&DType::F16, &[0x00, 0x3c, 0x00, 0x40], 2), Some((2.0, 1)));
        assert_eq!(largest(&DType::F8E4M3FN, &[0x38, 0xfe], 2), Some((-448.0, 1)));
        assert_eq!(largest(&DType::I8, &[0x80, 0x7f], 2), Some((-128.0, 0)));
        assert_eq!(largest(&DType::Bool, &[0, 1], 2), Some((1.0, 1)));
        assert_eq!(largest(&DType::I64, &(-9i64).to_le_bytes(), 1), Some((-9.0, 0)));
        // An element of two values.
        assert_eq!(largest(&DType::F4E2M1FNX2, &[0xf2], 1), Some((-6.0, 1)));
        let complex: Vec<u8> = [3f32, -4.0].iter().flat_map(|it| it.to_le_bytes()).collect();
        assert_eq!(largest(&DType::C64, &complex, 1), Some((5.0, 0)));
        assert_eq!(largest(&DType::Bits8, &[1], 1), None);
    }

    #[test]
    fn profiles_summarise_rows_and_columns_of_blocks() {
        let found = of(&[3.0, 4.0, 0.0, f32::NAN, -12.0, 5.0], &[2, 3], 3, 2);
        let line = |abs_max, norm, not_finite| MatrixLine { abs_max, norm, not_finite };
        assert_eq!(found.rows(), [line(4.0, 5.0, 0), line(12.0, 13.0, 1)]);
        assert_eq!(found.columns()[1], line(12.0, 160f64.sqrt(), 0));
    }

    #[test]
    fn refuses_too_many_blocks() {
        let matrix = Matrix::of(&[1 << 30, 1 << 30], &[]).unwrap();
        assert!(Overview::new(&DType::F32, matrix, u32::MAX, u32::MAX).is_none());
        assert!(Overview::new(&DType::F32, matrix, 0, 1).is_none());
        let all = Overview::new(&DType::F32, matrix, 512, 256).unwrap();
        assert_eq!((all.size(), all.block()), ((256, 512), (1 << 22, 1 << 21)));
    }
}
