//! Figures derived from singular values.

/// The singular values of a matrix: all of them, or the largest.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Spectrum {
    /// The singular values in descending order.
    pub values: Vec<f64>,
    /// The maximum error of each value.
    pub errors: Vec<f64>,
    /// Number of rows and of columns of the matrix.
    pub shape: (u64, u64),
    /// The sum of the squares of all elements, which equals that of all singular values.
    pub squares: f64,
    /// Whether `values` has all singular values.
    pub whole: bool,
    /// Number of passes over the matrix.
    pub passes: u32,
}

/// A number that is exact or a lower bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AtLeast<T> {
    /// The number.
    pub number: T,
    /// Whether the number is a lower bound.
    pub or_more: bool,
}

impl Spectrum {
    /// Returns the limit up to which a singular value counts as zero, as in
    /// `numpy.linalg.matrix_rank`: the largest singular value times the larger side times the
    /// epsilon of a double.
    pub fn tolerance(&self) -> f64 {
        self.largest() * self.shape.0.max(self.shape.1) as f64 * f64::EPSILON
    }

    /// Returns how many values are not zero within rounding.
    pub fn rank(&self) -> AtLeast<u64> {
        let least = self.tolerance();
        let pairs = self.values.iter().zip(&self.errors);
        let count = pairs.take_while(|(value, error)| **value > least.max(**error)).count();
        AtLeast { number: count as u64, or_more: !self.whole && count == self.values.len() }
    }

    /// Returns the largest value divided by the smallest; infinite if the smallest is zero within
    /// rounding.
    pub fn condition(&self) -> Option<AtLeast<f64>> {
        let last = *self.values.last()?;
        let is_zero = last <= self.tolerance();
        let number = if is_zero { f64::INFINITY } else { self.largest() / last };
        (self.largest() > 0.0).then_some(AtLeast { number, or_more: !self.whole && !is_zero })
    }

    /// Returns the sum of the squares of all singular values divided by the largest square.
    pub fn stable_rank(&self) -> Option<f64> {
        let most = self.largest();
        (most > 0.0).then(|| (self.squares / (most * most)).max(1.0))
    }

    /// Returns the share that the known values have in the sum of the squares of all.
    pub fn captured(&self) -> f64 {
        let captured_squares: f64 = self.values.iter().map(|value| value * value).sum();
        if self.squares > 0.0 { (captured_squares / self.squares).min(1.0) } else { 1.0 }
    }

    /// Returns how many of the largest values are needed for this share of the sum of squares;
    /// `None` if the known values do not reach it.
    pub fn holding(&self, part: f64) -> Option<u64> {
        let mut sum = 0.0;
        let enough = part * self.squares;
        let at = self.values.iter().position(|value| {
            sum += value * value;
            sum >= enough
        });
        at.map(|at| at as u64 + 1).filter(|_| self.squares > 0.0)
    }

    /// Returns the effective rank of Roy and Vetterli: the exponential of the entropy of the values
    /// divided by their sum. `None` unless all values are known.
    pub fn effective_rank(&self) -> Option<f64> {
        let sum: f64 = self.values.iter().sum();
        let parts = self.values.iter().map(|value| value / sum).filter(|part| *part > 0.0);
        let entropy = -parts.map(|part| part * part.ln()).sum::<f64>();
        (self.whole && sum > 0.0).then(|| entropy.exp())
    }

    fn largest(&self) -> f64 {
        self.values.first().copied().unwrap_or(0.0)
    }
}
