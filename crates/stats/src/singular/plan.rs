//! What finding singular values takes, told before it begins.

use statelens_checkpoint::{DType, Error, Result, grouped};

use crate::kind::ElementKind;
use crate::overview::Matrix;

/// Which singular values are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Which {
    /// All of a small matrix, the largest of a large one.
    #[default]
    Usual,
    /// All of them.
    All,
    /// So many of the largest.
    Largest(u32),
}

/// How singular values are found, and what that takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SingularPlan {
    /// Rows of the matrix.
    pub rows: u64,
    /// Columns of the matrix.
    pub columns: u64,
    /// How many of the largest; all of them if `None`.
    pub largest: Option<u32>,
    /// How often the matrix is read, at most.
    pub passes: u32,
    /// Bytes that are read, at most.
    pub bytes: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Multiplications and additions, about.
    pub operations: u64,
}

/// All are found of what has no more rows, or columns, than this.
pub const USUALLY_ALL: u64 = 1024;
/// All are found on demand up to here.
pub const MOST_ALL: u64 = 4096;
/// So many of the largest are told.
pub const USUALLY_LARGEST: u32 = 32;
/// More are not found but with all.
pub const MOST_LARGEST: u32 = 64;
/// Operations that are not begun without being asked for.
const MANY: u64 = 200_000_000_000;
/// How often a matrix is read for its largest.
const PASSES: u32 = 8;

impl SingularPlan {
    /// For a matrix of elements of this dtype, in at most so many bytes of memory.
    pub fn new(dtype: &DType, matrix: Matrix, which: Which, memory: u64) -> Result<Self> {
        let kind = ElementKind::of(dtype).filter(|kind| !matches!(kind, ElementKind::Complex(_)));
        let kind = kind.ok_or_else(|| {
            Error::unsupported(format!("singular values of {} are not found", dtype.name()))
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
            Which::All if fits && small <= MOST_ALL => return Ok(all),
            Which::All => {
                return Err(Error::refused(format!(
                    "all singular values of a matrix of {rows} x {columns}"
                ))
                .expected(format!(
                    "a smaller side of at most {}, and at most {} bytes of memory: this would take {}",
                    grouped(MOST_ALL),
                    grouped(memory),
                    grouped(all.memory)
                )));
            }
            Which::Usual => USUALLY_LARGEST,
            Which::Largest(count) => count.clamp(1, MOST_LARGEST),
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

    /// How many vectors there are in a pass.
    pub(super) fn block(&self) -> u64 {
        let wanted = u64::from(self.largest.unwrap_or(0));
        (wanted / 2 + 4).min(self.rows).min(self.columns)
    }

    /// Rows that are taken together: as many as keep a step short.
    pub(super) fn together(&self) -> u64 {
        const STEP: u64 = 1 << 26;
        let each = match self.largest {
            None => self.columns.saturating_mul(2 * self.columns.min(self.rows)),
            Some(_) => self.columns.saturating_mul(4 * self.block()),
        };
        (STEP / each.max(1)).clamp(1, 64).min(self.rows)
    }
}
