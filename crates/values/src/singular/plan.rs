//! The cost of computing singular values, estimated in advance.

use statelens_checkpoint::{DType, Error, Result, grouped};

use statelens_stats::Matrix;
use statelens_stats::kind::ElementKind;

/// The singular values to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Which {
    /// All of a small matrix, the largest ones of a large one.
    #[default]
    Usual,
    /// All singular values.
    All,
    /// The given number of the largest.
    Largest(u32),
}

/// How the singular values will be computed, and the cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct SingularPlan {
    /// Number of rows of the matrix.
    #[serde(skip)]
    pub rows: u64,
    /// Number of columns of the matrix.
    #[serde(skip)]
    pub columns: u64,
    /// How many of the largest are computed; `None` for all.
    pub largest: Option<u32>,
    /// Maximum number of passes over the matrix.
    pub passes: u32,
    /// Maximum number of bytes read.
    pub bytes: u64,
    /// Memory in bytes.
    pub memory: u64,
    /// Approximate number of multiplications and additions.
    pub operations: u64,
}

/// Up to this length of the smaller side, all singular values are computed by default.
pub const USUALLY_ALL: u64 = 1024;
/// Up to this length of the smaller side, all singular values are computed on request.
pub const MAX_FOR_ALL: u64 = 4096;
/// Default number of the largest singular values.
pub const USUALLY_LARGEST: u32 = 32;
/// Maximum number, unless all are computed.
pub const MAX_LARGEST: u32 = 64;
/// Number of operations above which the computation must be requested explicitly.
const MANY: u64 = 200_000_000_000;
/// Maximum number of passes for the largest singular values.
const PASSES: u32 = 8;

impl SingularPlan {
    /// Plans the computation for a matrix of elements of this dtype, in at most `memory` bytes.
    pub fn new(dtype: &DType, matrix: Matrix, which: Which, memory: u64) -> Result<Self> {
        let kind = ElementKind::of(dtype).filter(|kind| !matches!(kind, ElementKind::Complex(_)));
        let kind = kind.ok_or_else(|| {
            Error::unsupported(format!("singular values of {} can't be computed", dtype.name()))
        })?;
        let columns = matrix.columns.saturating_mul(kind.values());
        let rows = matrix.rows();
        if rows.checked_mul(matrix.columns) != Some(matrix.len) || matrix.len == 0 {
            return Err(Error::refused("it is not a matrix, so it has no singular values"));
        }
        let (small, large) = (rows.min(columns), rows.max(columns));
        let bytes = dtype.bytes_of(matrix.len).unwrap_or(u64::MAX);
        let squared = small.saturating_mul(small);
        let all = Self {
            rows,
            columns,
            largest: None,
            passes: 1,
            bytes,
            memory: match rows >= columns {
                true => squared.saturating_mul(8),
                false => squared.saturating_add(small.saturating_mul(large)).saturating_mul(8),
            },
            operations: squared
                .saturating_mul(2)
                .saturating_mul(large)
                .saturating_add(squared.saturating_mul(3).saturating_mul(small)),
        };
        let fits = all.memory <= memory;
        let usual = fits && small <= USUALLY_ALL && all.operations <= MANY;
        let wanted = match which {
            Which::Usual if usual => return Ok(all),
            Which::All if fits && small <= MAX_FOR_ALL => return Ok(all),
            Which::All => {
                return Err(Error::refused(format!(
                    "all singular values of a matrix of {rows} x {columns}"
                ))
                .expected(format!(
                    "a smaller side of at most {}, and at most {} bytes of memory: this would take {}",
                    grouped(MAX_FOR_ALL),
                    grouped(memory),
                    grouped(all.memory)
                )));
            }
            Which::Usual => USUALLY_LARGEST,
            Which::Largest(count) => count.clamp(1, MAX_LARGEST),
        };
        if u64::from(wanted) >= small {
            return Ok(all);
        }
        let largest = Self { largest: Some(wanted), passes: PASSES, ..all };
        let block = largest.block();
        let memory_of = columns.saturating_mul(block).saturating_mul(8 * u64::from(PASSES + 2));
        if memory_of > memory {
            return Err(Error::refused(format!(
                "singular values of a matrix of {columns} columns"
            ))
            .expected(format!(
                "at most {} bytes of memory: this would take {}",
                grouped(memory),
                grouped(memory_of)
            )));
        }
        Ok(Self {
            bytes: bytes.saturating_mul(PASSES.into()),
            memory: memory_of,
            operations: rows
                .saturating_mul(columns)
                .saturating_mul(4 * block)
                .saturating_mul(PASSES.into()),
            ..largest
        })
    }

    /// Returns the number of vectors per pass.
    pub(super) fn block(&self) -> u64 {
        let wanted = u64::from(self.largest.unwrap_or(0));
        (wanted / 2 + 4).min(self.rows).min(self.columns)
    }

    /// Returns the number of rows that are processed together, limited to keep a step short.
    pub(super) fn together(&self) -> u64 {
        const STEP: u64 = 1 << 26;
        let each = match self.largest {
            None => self.columns.saturating_mul(2 * self.columns.min(self.rows)),
            Some(_) => self.columns.saturating_mul(4 * self.block()),
        };
        (STEP / each.max(1)).clamp(1, 64).min(self.rows)
    }
}
