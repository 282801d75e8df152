//! Messages about the files or ranks that hold a checkpoint, and the pieces of a tensor.

use serde::{Deserialize, Serialize};
use statelens_values::SummaryStatistics;

/// The files or ranks that hold a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StoragePlaces {
    /// A line about a joined checkpoint: `FSDP, 8 ranks, 291 tensors`. Empty for other checkpoints.
    pub line: String,
    /// Whether a part is missing.
    pub incomplete: bool,
    /// Their names, in order: `rank 3`, or names of files; empty if there is only one.
    pub names: Vec<String>,
    /// Whether they are ranks.
    pub are_ranks: bool,
    /// Runs of bytes along the tape: the index of the name ([`MISSING`] if no file holds the bytes),
    /// and the number of bytes.
    pub runs: Vec<(u32, u64)>,
}

/// Stands for "no place".
pub const MISSING: u32 = u32::MAX;

/// The pieces of a tensor.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TensorPieces {
    /// The names of the files that hold them.
    pub files: Vec<String>,
    /// The pieces, in the order of the elements.
    pub pieces: Vec<TensorPiece>,
    /// Indices into [`StoragePlaces::names`] of the ranks that hold no piece.
    pub without: Vec<u32>,
}

/// A piece of a tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorPiece {
    /// The index of its first element in the tensor, per dimension; of a range of elements in C
    /// order, one number.
    pub at: Vec<u64>,
    /// Its shape; of a range, the number of elements.
    pub shape: Vec<u64>,
    /// An index into [`StoragePlaces::names`]; [`MISSING`] if no file holds it.
    pub place: u32,
    /// An index into [`TensorPieces::files`].
    pub file: u32,
    /// Offset of its bytes, or of the archive or stream with them, and their number.
    pub offset: u64,
    pub bytes: u64,
    /// The places that hold further copies.
    pub copies: Vec<u32>,
}

/// Reads the values of a piece: the row of the tensor, and the index of the piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PieceRequest {
    pub row: u32,
    pub piece: u32,
}

/// The statistics of a piece.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PieceStatistics {
    pub request: PieceRequest,
    pub statistics: SummaryStatistics,
}
