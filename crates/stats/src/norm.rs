//! Sums of squares that neither overflow nor underflow: squares of very large and of very small
//! values are summed separately, scaled.

/// A sum of squares.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Norm {
    plain: f64,
    /// Squares of values above [`LARGE`], divided by [`SCALE`].
    large: f64,
    /// Squares of values below [`SMALL`], multiplied by [`SCALE`].
    small: f64,
}

/// 2^571: scaled by this, the squares of the largest and of the smallest doubles are doubles.
const SCALE: f64 = f64::from_bits((1023 + 571) << 52);
/// Squares of values outside these limits may overflow or underflow.
const LARGE: f64 = 1e140;
const SMALL: f64 = 1e-140;

impl Norm {
    /// Adds the square of a finite magnitude.
    pub(crate) fn add(&mut self, magnitude: f64) {
        if (SMALL..=LARGE).contains(&magnitude) {
            self.plain += magnitude * magnitude;
        } else if magnitude > LARGE {
            let scaled = magnitude / SCALE;
            self.large += scaled * scaled;
        } else {
            let scaled = magnitude * SCALE;
            self.small += scaled * scaled;
        }
    }

    /// Adds another sum.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.plain += other.plain;
        self.large += other.large;
        self.small += other.small;
    }

    /// Returns the square root of the sum.
    pub(crate) fn root(&self) -> f64 {
        let (plain, large, small) = (self.plain.sqrt(), self.large.sqrt(), self.small.sqrt());
        if large > 0.0 {
            large.hypot(plain / SCALE) * SCALE
        } else if plain > 0.0 {
            plain.hypot(small / SCALE)
        } else {
            small / SCALE
        }
    }
}
