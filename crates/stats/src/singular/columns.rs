//! Matrices by columns, and what is done with two columns.

use statelens_checkpoint::{Result, room};

/// A matrix whose columns lie one behind the other.
#[derive(Debug, Clone, Default)]
pub(super) struct Columns {
    height: usize,
    values: Vec<f64>,
}

impl Columns {
    /// So many columns of zeros.
    pub(super) fn zeros(height: usize, count: usize) -> Result<Self> {
        Ok(Self { height, values: room::filled(0.0, height.saturating_mul(count))? })
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

    /// A column, and another one behind it.
    pub(super) fn two(&mut self, one: usize, other: usize) -> (&mut [f64], &mut [f64]) {
        let (before, rest) = self.values.split_at_mut(other * self.height);
        (&mut before[one * self.height..][..self.height], &mut rest[..self.height])
    }

    pub(super) fn push(&mut self, column: &[f64]) -> Result<()> {
        room::make_room(&mut self.values, column.len() as u64)?;
        self.values.extend_from_slice(column);
        Ok(())
    }
}

/// Terms of a sum that are added up side by side.
const LANES: usize = 8;

/// The inner product.
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

/// Adds so many times another column.
pub(super) fn add(to: &mut [f64], times: f64, from: &[f64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += times * from;
    }
}

/// Makes of a column the vector of the reflection that leaves only its first value: what that
/// becomes, and by what the vector's products are multiplied; 0 if there is nothing to reflect.
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

/// Reflects a column.
pub(super) fn reflect(column: &mut [f64], vector: &[f64], scale: f64) {
    if scale != 0.0 {
        let times = -scale * dot(vector, column);
        add(column, times, vector);
    }
}
