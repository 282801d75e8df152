//! Matrices stored by column, and operations on columns.

use statelens_checkpoint::{Result, try_alloc};

/// A matrix whose columns are stored one after the other.
#[derive(Debug, Clone, Default)]
pub(super) struct Columns {
    height: usize,
    values: Vec<f64>,
}

impl Columns {
    /// Returns a matrix of `count` columns of zeros.
    pub(super) fn zeros(height: usize, count: usize) -> Result<Self> {
        Ok(Self { height, values: try_alloc::filled(0.0, height.saturating_mul(count))? })
    }

    pub(super) fn count(&self) -> usize {
        self.values.len() / self.height.max(1)
    }

    pub(super) fn get(&self, at: usize) -> &[f64] {
        &self.values[at * self.height..][..self.height]
    }

    pub(super) fn get_mut(&mut self, at: usize) -> &mut [f64] {
        &mut self.values[at * self.height..][..self.height]
    }

    /// Returns two columns; `other` must come after `one`.
    pub(super) fn two(&mut self, one: usize, other: usize) -> (&mut [f64], &mut [f64]) {
        let (before, rest) = self.values.split_at_mut(other * self.height);
        (&mut before[one * self.height..][..self.height], &mut rest[..self.height])
    }

    pub(super) fn push(&mut self, column: &[f64]) -> Result<()> {
        try_alloc::make_room(&mut self.values, column.len() as u64)?;
        self.values.extend_from_slice(column);
        Ok(())
    }
}

/// Number of partial sums that are computed in parallel.
const LANES: usize = 8;

/// Returns the inner product.
pub(super) fn dot(one: &[f64], other: &[f64]) -> f64 {
    let (ones, one_rest) = one.as_chunks::<LANES>();
    let (others, other_rest) = other.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (one, other) in ones.iter().zip(others) {
        for (sum, (one, other)) in sums.iter_mut().zip(one.iter().zip(other)) {
            *sum += one * other;
        }
    }
    let rest: f64 = one_rest.iter().zip(other_rest).map(|(one, other)| one * other).sum();
    sums.iter().sum::<f64>() + rest
}

/// Adds `times` times the column `from` to `to`.
pub(super) fn add(to: &mut [f64], times: f64, from: &[f64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += times * from;
    }
}

/// Replaces a column by the vector of the reflection that maps it to a multiple of the first unit
/// vector. Returns the remaining first value and the factor for the vector's inner products; the
/// factor is 0 if there is nothing to reflect.
pub(super) fn reflector(column: &mut [f64]) -> (f64, f64) {
    let Some((first, rest)) = column.split_first_mut() else { return (0.0, 0.0) };
    let below = dot(rest, rest);
    if below == 0.0 {
        return (*first, 0.0);
    }
    let norm = (*first * *first + below).sqrt();
    let (kept, magnitude) = (if *first > 0.0 { -norm } else { norm }, first.abs());
    *first -= kept;
    (kept, 1.0 / (norm * (norm + magnitude)))
}

/// Applies a reflection to a column.
pub(super) fn reflect(column: &mut [f64], vector: &[f64], scale: f64) {
    if scale != 0.0 {
        let times = -scale * dot(vector, column);
        add(column, times, vector);
    }
}
