//! Messages about a matrix shown as a picture.

pub mod ranked;
pub mod singular;

use serde::{Deserialize, Serialize};
use statelens_values::MatrixLine;
use statelens_values::picture::BlockMap;

pub use crate::protocol::selection::MatrixSelection;

/// Reads a whole matrix, reduced to at most this many blocks across and down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverviewRequest {
    pub selection: MatrixSelection,
    pub across: u32,
    pub down: u32,
}

/// A tensor to export, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExportRequest {
    pub row: u32,
    /// A slice in Python's notation, without the brackets; empty for the whole tensor.
    pub slice: String,
    pub kind: ExportFormat,
    /// Whether numbers are converted to float32.
    pub single: bool,
    pub name: String,
}

/// An exported tensor; the file is sent with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedFile {
    pub name: String,
}

/// The file formats for exporting a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExportFormat {
    /// Text, one line per row.
    Csv,
    /// Raw bytes, little-endian.
    Raw,
    /// A NumPy array.
    Npy,
    /// A NumPy archive of one array.
    Npz,
    Safetensors,
}

impl ExportFormat {
    /// All of them; those that hold dtype and shape first.
    pub const ALL: [Self; 5] = [Self::Npy, Self::Npz, Self::Safetensors, Self::Csv, Self::Raw];

    /// Returns the file extension, which is also the name of the format.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Raw => "raw",
            Self::Npy => "npy",
            Self::Npz => "npz",
            Self::Safetensors => "safetensors",
        }
    }

    /// Returns whether NumPy must support the dtype.
    pub fn is_numpy(self) -> bool {
        matches!(self, Self::Npy | Self::Npz)
    }
}

/// The values of a window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cells {
    /// The first row and column, the number of rows and columns.
    pub window: [u64; 4],
    /// Texts row by row, as Python would print them; those beyond the matrix are empty.
    pub texts: Vec<String>,
    /// The values as numbers; NaN if they are not numbers.
    pub numbers: Vec<f64>,
    /// The bits in hexadecimal, the highest first.
    pub bits: Vec<String>,
    /// Bytes per element.
    pub size: u64,
    /// The byte of the file at which the tensor begins, if its elements are stored one after the
    /// other.
    pub first: Option<u64>,
    /// Milliseconds spent reading.
    pub millis: f64,
}

/// A block map, packed as bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PackedOverview {
    matrix: (u64, u64),
    block: (u64, u64),
    size: (u32, u32),
    /// Bytes read, and in total.
    pub read: (u64, u64),
    #[serde(with = "serde_bytes")]
    bytes: Vec<u8>,
}

impl PackedOverview {
    pub fn of(map: &BlockMap, read: (u64, u64)) -> Self {
        let mut bytes = map.marks.clone();
        let lines = map.rows.iter().chain(&map.columns);
        let lines = lines.flat_map(|line| [line.abs_max, line.norm, line.not_finite as f64]);
        for number in map.largest.iter().chain(&map.mean).copied().chain(lines) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in &map.at {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let size = (map.size.0 as u32, map.size.1 as u32);
        Self { matrix: map.matrix, block: map.block, size, read, bytes }
    }

    /// Unpacks the map; `None` if the bytes are not a map.
    pub fn map(&self) -> Option<BlockMap> {
        let size = (self.size.0 as usize, self.size.1 as usize);
        let count = size.0.checked_mul(size.1)?;
        let (marks, rest) = self.bytes.split_at_checked(count)?;
        let (numbers, ends) = rest.as_chunks();
        if !ends.is_empty() || numbers.len() != 3 * count + 3 * (size.0 + size.1) {
            return None;
        }
        let floats = |from: usize, to: usize| {
            numbers[from..to].iter().map(|it| f64::from_le_bytes(*it)).collect::<Vec<f64>>()
        };
        let lines = |from: usize, count: usize| {
            let line =
                |it: &[f64]| MatrixLine { abs_max: it[0], norm: it[1], not_finite: it[2] as u64 };
            floats(from, from + 3 * count).chunks(3).map(line).collect()
        };
        let profiles = 3 * (size.0 + size.1);
        Some(BlockMap {
            matrix: self.matrix,
            block: self.block,
            size,
            marks: marks.to_vec(),
            largest: floats(0, count),
            mean: floats(count, 2 * count),
            rows: lines(2 * count, size.0),
            columns: lines(2 * count + 3 * size.0, size.1),
            at: numbers[2 * count + profiles..].iter().map(|it| u64::from_le_bytes(*it)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::DType;
    use statelens_values::{Matrix, Overview};

    use super::*;

    #[test]
    fn block_map_round_trips() {
        let matrix = Matrix::of(&[2, 3, 5], &[1]).unwrap();
        let mut all = Overview::new(&DType::U8, matrix, 2, 2).unwrap();
        all.feed(&(0..15).collect::<Vec<u8>>());
        let map = BlockMap::of(&all);
        assert_eq!(PackedOverview::of(&map, (0, 0)).map(), Some(map));
        assert_eq!(PackedOverview { size: (2, 2), ..PackedOverview::default() }.map(), None);
    }
}
