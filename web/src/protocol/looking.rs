//! What page and worker say about a matrix that is looked at as a picture.

use serde::{Deserialize, Serialize};
use statelens_inspect::picture::BlockMap;
use statelens_stats::MatrixLine;

use super::error::ErrorText;
pub use super::frame::MatrixSelection;
use super::{ranked, singular};

/// What the page asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum LookingRequest {
    /// The whole matrix in at most so many blocks across and down, or nothing more of one.
    Overview(Option<(MatrixSelection, u32, u32)>),
    /// The values of a window: its first row and column, how many rows and columns.
    Cells(MatrixSelection, [u64; 4]),
    /// About its singular values.
    Singular(singular::SingularRequest),
    /// Make a file of a tensor, or stop that.
    Take(Option<Take>),
    /// Rank its rows by norm, or stop that.
    Ranked(Option<ranked::RankedRequest>),
}

/// What a file is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Take {
    /// The row of the tensor.
    pub row: u32,
    /// What of it, as Python has it between brackets; nothing of the whole.
    pub slice: String,
    /// As what.
    pub kind: TakeAs,
    /// Whether numbers become float32.
    pub single: bool,
    /// The name of the file.
    pub name: String,
}

/// What a tensor is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TakeAs {
    /// Text, a line for each row.
    Csv,
    /// Its bytes, little-endian.
    Raw,
    /// An array of NumPy.
    Npy,
    /// An archive of one.
    Npz,
    /// A safetensors file.
    Safetensors,
}

impl TakeAs {
    /// All of them, those first that hold dtype and shape.
    pub const ALL: [Self; 5] = [Self::Npy, Self::Npz, Self::Safetensors, Self::Csv, Self::Raw];

    /// The extension of such a file, and the name of the format.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Raw => "raw",
            Self::Npy => "npy",
            Self::Npz => "npz",
            Self::Safetensors => "safetensors",
        }
    }

    /// Whether NumPy has to know the dtype.
    #[must_use]
    pub fn is_numpy(self) -> bool {
        matches!(self, Self::Npy | Self::Npz)
    }
}

/// What the worker answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum LookingReply {
    /// What is known of the whole so far.
    Overview(MatrixSelection, Box<PackedOverview>, OverviewProgress),
    /// It can't be read.
    Failed(MatrixSelection, ErrorText),
    /// The values of a window.
    Cells(MatrixSelection, Result<Box<Cells>, ErrorText>),
    /// About its singular values.
    Singular(MatrixSelection, singular::SingularReply),
    /// About the rows of a tensor by norm.
    Ranked(u32, ranked::RankedReply),
    /// A file of a tensor is being made: bytes, and all of them.
    Taking(u64, u64),
    /// It is made, and beside this message; its name.
    Taken(String),
    /// It can't be made.
    NotTaken(ErrorText),
}

/// How far an overview is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverviewProgress {
    /// Bytes that were read, and all of them.
    pub done: u64,
    /// All of them.
    pub total: u64,
    /// Whether it was ended: all was read, or it was stopped.
    pub ended: bool,
}

/// The values of a window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cells {
    /// Its first row and column, how many rows and columns.
    pub window: [u64; 4],
    /// Their texts, row by row, as Python would print them; those beyond the end are empty.
    pub texts: Vec<String>,
    /// As numbers; NaN where they are none.
    pub numbers: Vec<f64>,
    /// Their bits in hexadecimal, the highest first.
    pub bits: Vec<String>,
    /// Bytes of an element.
    pub size: u64,
    /// Milliseconds that reading them took.
    pub millis: f64,
}

/// A map as bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PackedOverview {
    matrix: (u64, u64),
    block: (u64, u64),
    size: (u32, u32),
    #[serde(with = "serde_bytes")]
    bytes: Vec<u8>,
}

impl PackedOverview {
    /// Packs a map.
    #[must_use]
    pub fn of(map: &BlockMap) -> Self {
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
        Self { matrix: map.matrix, block: map.block, size, bytes }
    }

    /// The map; `None` if it is not one.
    #[must_use]
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
    use statelens_stats::{Matrix, Overview};

    use super::*;

    #[test]
    fn a_map_comes_back_as_it_was() {
        let matrix = Matrix::of(&[2, 3, 5], &[1]).unwrap();
        let mut all = Overview::new(&DType::U8, matrix, 2, 2).unwrap();
        all.feed(&(0..15).collect::<Vec<u8>>());
        let map = BlockMap::of(&all);
        assert_eq!(PackedOverview::of(&map).map(), Some(map));
        assert_eq!(PackedOverview { size: (2, 2), ..PackedOverview::default() }.map(), None);
    }
}
