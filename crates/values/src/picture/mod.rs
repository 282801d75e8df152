//! A matrix as a picture: coloured blocks with axes, a legend and a title; as pixels and as SVG.

mod chart;
mod colour;
mod draw;
mod raster;
mod svg;

pub use chart::{Chart, Series, SharedAxis, power_of_ten};
pub use colour::{ColourScaling, Colours, ODD, Rgb, Show, of_value};
pub use draw::{Picture, ticks};
pub use raster::{Raster, raster};
pub use svg::escaped;
pub use svg::svg;

use statelens_stats::{MatrixLine, Overview};

/// The data of a picture of a matrix: a few figures per block.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BlockMap {
    /// Number of rows and of columns of the matrix.
    pub matrix: (u64, u64),
    /// Number of rows and of columns of a block.
    pub block: (u64, u64),
    /// Number of blocks down and across.
    pub size: (usize, usize),
    /// The value of largest magnitude of each block, row by row; NaN without finite values.
    pub largest: Vec<f64>,
    /// The index in the matrix of that value, or of one that is not finite, if there is one.
    pub at: Vec<u64>,
    /// The mean magnitude of each block; NaN without finite values.
    pub mean: Vec<f64>,
    /// A bit set per block: 1 if values were read, 2 for NaN, 4 for infinities.
    pub marks: Vec<u8>,
    /// Statistics of the rows of blocks.
    pub rows: Vec<MatrixLine>,
    /// Statistics of the columns of blocks.
    pub columns: Vec<MatrixLine>,
}

/// Values of the block were read.
pub const SEEN: u8 = 1;
/// The block contains NaN.
pub const NAN: u8 = 2;
/// The block contains infinities.
pub const INFINITE: u8 = 4;

impl BlockMap {
    /// Returns the data of an overview.
    pub fn of(overview: &Overview) -> Self {
        let matrix = overview.matrix();
        let tiles = overview.tiles();
        Self {
            matrix: (matrix.rows(), matrix.columns),
            block: overview.block(),
            size: overview.size(),
            largest: tiles.iter().map(|it| it.largest.map_or(f64::NAN, |it| it.0)).collect(),
            at: tiles
                .iter()
                .map(|it| it.first_odd.or(it.largest.map(|it| it.1)).unwrap_or(u64::MAX))
                .collect(),
            mean: tiles.iter().map(|it| it.mean().unwrap_or(f64::NAN)).collect(),
            marks: tiles
                .iter()
                .map(|it| {
                    let mark = |is: bool, mark| if is { mark } else { 0 };
                    mark(it.count > 0, SEEN)
                        | mark(it.nan > 0, NAN)
                        | mark(it.infinite > 0, INFINITE)
                })
                .collect(),
            rows: overview.rows(),
            columns: overview.columns(),
        }
    }

    /// Swaps rows and columns.
    pub fn transposed(&self) -> Self {
        let turn = |(one, other)| (other, one);
        Self {
            matrix: turn(self.matrix),
            block: turn(self.block),
            size: (self.size.1, self.size.0),
            largest: self.turned(&self.largest),
            at: self.turned(&self.at),
            mean: self.turned(&self.mean),
            marks: self.turned(&self.marks),
            rows: self.columns.clone(),
            columns: self.rows.clone(),
        }
    }

    /// Describes the picture in a sentence, as alternative text.
    pub fn text(&self) -> String {
        self.text_of_slice(|row| row, |column| column)
    }

    /// As [`Self::text`], for a slice of a tensor: the functions return the number in the tensor of a
    /// row and of a column of the slice.
    pub fn text_of_slice(
        &self,
        row_of: impl Fn(u64) -> u64,
        column_of: impl Fn(u64) -> u64,
    ) -> String {
        let (down, across) = self.size;
        let (high, wide) = self.block;
        let blocks = match self.block {
            (1, 1) => "each cell is a value".to_owned(),
            _ => format!("each of {down} \u{d7} {across} cells is a block of {high} \u{d7} {wide}"),
        };
        let mut text = format!("{} \u{d7} {} values; {blocks}", self.matrix.0, self.matrix.1);
        let finite = self.largest.iter().enumerate().filter(|(_, value)| value.is_finite());
        if let Some((at, value)) = finite.max_by(|one, other| one.1.abs().total_cmp(&other.1.abs()))
        {
            let (row, column) = (at / across.max(1), at % across.max(1));
            let range = |name: &str, of: &dyn Fn(u64) -> u64, at: usize, block: u64, count: u64| {
                let start = at as u64 * block;
                let end = (start + block).min(count) - 1;
                if start == end {
                    format!("{name} {}", of(start))
                } else {
                    format!("{name}s {} to {}", of(start), of(end))
                }
            };
            let rows = range("row", &row_of, row, high, self.matrix.0);
            let columns = range("column", &column_of, column, wide, self.matrix.1);
            let value = crate::number_text(*value).replace('-', "\u{2212}");
            text += &format!("; the value of largest magnitude is {value}, in {rows}, {columns}");
        }
        let marked = |mark| self.marks.iter().filter(|it| **it & mark != 0).count();
        for (count, what) in [(marked(NAN), "NaN"), (marked(INFINITE), "infinities")] {
            if count > 0 {
                let blocks = if count == 1 { "cell has" } else { "cells have" };
                text += &format!("; {count} {blocks} {what}");
            }
        }
        text + "."
    }

    /// Returns the figures as CSV, one line per block.
    pub fn csv(&self) -> String {
        let mut text = "row,column,rows,columns,largest,mean_magnitude,nan,infinite\n".to_owned();
        let across = self.size.1.max(1);
        for (at, value) in self.largest.iter().enumerate() {
            let (row, column) =
                ((at / across) as u64 * self.block.0, (at % across) as u64 * self.block.1);
            let rows = self.block.0.min(self.matrix.0 - row.min(self.matrix.0));
            let columns = self.block.1.min(self.matrix.1 - column.min(self.matrix.1));
            let number = |value: f64| match value.is_nan() {
                true => String::new(),
                false => statelens_checkpoint::float_repr(value),
            };
            let mark = |mark| u8::from(self.marks.get(at).is_some_and(|it| it & mark != 0));
            let mean = self.mean.get(at).copied().unwrap_or(f64::NAN);
            let (value, mean) = (number(*value), number(mean));
            let (nan, infinite) = (mark(NAN), mark(INFINITE));
            text += &format!("{row},{column},{rows},{columns},{value},{mean},{nan},{infinite}\n");
        }
        text
    }

    fn turned<T: Copy>(&self, of: &[T]) -> Vec<T> {
        let (down, across) = self.size;
        let at = |column: usize| (0..down).map(move |row| row * across + column);
        (0..across).flat_map(at).filter_map(|at| of.get(at).copied()).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use statelens_checkpoint::DType;

    use super::*;
    use statelens_stats::Matrix;

    /// 4 rows of 6 values, in blocks of 2 by 2: one value is NaN, the largest magnitude is in the
    /// last block.
    pub(crate) fn map() -> BlockMap {
        let mut values: Vec<f32> = (0..24).map(|at| at as f32 / 8.0).collect();
        (values[2], values[23]) = (f32::NAN, -8.0);
        let matrix = Matrix::of(&[4, 6], &[]).unwrap();
        let mut all = Overview::new(&DType::F32, matrix, 3, 2).unwrap();
        values.iter().for_each(|value| all.feed(&value.to_le_bytes()));
        BlockMap::of(&all)
    }

    #[test]
    fn describes_the_picture_as_text() {
        assert_eq!(
            map().text(),
            "4 \u{d7} 6 values; each of 2 \u{d7} 3 cells is a block of 2 \u{d7} 2; the value of largest \
             magnitude is \u{2212}8, in rows 2 to 3, columns 4 to 5; 1 cell has NaN."
        );
        let matrix = Matrix::of(&[1, 2], &[]).unwrap();
        let mut all = Overview::new(&DType::F32, matrix, 2, 1).unwrap();
        [1f32, 2.0].iter().for_each(|value| all.feed(&value.to_le_bytes()));
        assert_eq!(
            BlockMap::of(&all).text(),
            "1 \u{d7} 2 values; each cell is a value; the value of largest magnitude is 2, in row 0, column 1."
        );
        let text = map().text_of_slice(|row| 10 + row, |column| 60 + 2 * column);
        assert!(text.contains("in rows 12 to 13, columns 68 to 70;"), "{text}");
    }

    #[test]
    fn transposes_the_map() {
        let map = map();
        let turned = map.transposed();
        assert_eq!((turned.matrix, turned.size), ((6, 4), (3, 2)));
        assert_eq!(turned.largest[5], -8.0);
        assert_eq!((turned.largest[0], turned.largest[1]), (map.largest[0], map.largest[3]));
        assert_eq!(turned.transposed().marks, map.marks);
    }

    #[test]
    fn csv_has_one_line_per_block() {
        let csv = map().csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 7);
        assert_eq!(lines[2], "0,2,2,2,1.125,0.8333333333333334,1,0");
        assert!(lines[6].starts_with("2,4,2,2,-8.0,"), "{}", lines[6]);
    }
}
