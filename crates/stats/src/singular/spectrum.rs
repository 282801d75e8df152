//! What singular values say about a matrix.

/// The singular values of a matrix, all of them or the largest.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Spectrum {
    /// The largest first.
    pub values: Vec<f64>,
    /// How far each may be from a true one, at most.
    pub errors: Vec<f64>,
    /// Rows and columns of the matrix.
    pub shape: (u64, u64),
    /// The sum of the squares of all elements, which is that of all singular values.
    pub squares: f64,
    /// Whether there are no others.
    pub whole: bool,
    /// How often the matrix was read.
    pub passes: u32,
}

/// A number, or the least that it can be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AtLeast<T> {
    /// The number.
    pub number: T,
    /// Whether it may be more.
    pub or_more: bool,
}

impl Spectrum {
    /// What is not larger than this is zero but for rounding, as `numpy.linalg.matrix_rank` has it:
    /// the largest times the larger side times the precision of a double.
    pub fn tolerance(&self) -> f64 {
        self.largest() * self.shape.0.max(self.shape.1) as f64 * f64::EPSILON
    }

    /// How many are not zero but for rounding.
    pub fn rank(&self) -> AtLeast<u64> {
        let least = self.tolerance();
        let pairs = self.values.iter().zip(&self.errors);
        let count = pairs.take_while(|(value, error)| **value > least.max(**error)).count();
        AtLeast { number: count as u64, or_more: !self.whole && count == self.values.len() }
    }

    /// The largest over the smallest: infinite where that is zero but for rounding.
    pub fn condition(&self) -> Option<AtLeast<f64>> {
        let last = *self.values.last()?;
        let is_zero = last <= self.tolerance();
        let number = if is_zero { f64::INFINITY } else { self.largest() / last };
        (self.largest() > 0.0).then_some(AtLeast { number, or_more: !self.whole && !is_zero })
    }

    /// The sum of all squares over the largest of them.
    pub fn stable_rank(&self) -> Option<f64> {
        let most = self.largest();
        (most > 0.0).then(|| (self.squares / (most * most)).max(1.0))
    }

    /// What the values that are told have of the squares of all.
    pub fn captured(&self) -> f64 {
        let told: f64 = self.values.iter().map(|value| value * value).sum();
        if self.squares > 0.0 { (told / self.squares).min(1.0) } else { 1.0 }
    }

    /// How many of the largest have this part of the squares of all; `None` if those that are told
    /// don't.
    pub fn holding(&self, part: f64) -> Option<u64> {
        let mut sum = 0.0;
        let enough = part * self.squares;
        let at = self.values.iter().position(|value| {
            sum += value * value;
            sum >= enough
        });
        at.map(|at| at as u64 + 1).filter(|_| self.squares > 0.0)
    }

    /// The exponential of the entropy of the values over their sum (Roy and Vetterli's effective rank);
    /// `None` unless all are told.
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
