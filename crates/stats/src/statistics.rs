//! The figures that are shown to users.

use serde::{Deserialize, Serialize};

use crate::Summary;
use crate::exact::Moments;

/// Statistics of the values of a tensor. Unless stated otherwise they cover the finite values only.
/// A figure is `None` if there is no value to compute it from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// Number of all values.
    pub count: u64,
    /// Number of NaN values.
    pub nan: u64,
    /// Number of values that are positive infinity.
    pub pos_inf: u64,
    /// Number of values that are negative infinity.
    pub neg_inf: u64,
    /// Number of zeros of either sign.
    pub zeros: u64,
    /// Number of values that are subnormal in their dtype, which holds them with fewer digits.
    pub subnormal: u64,
    /// The smallest value.
    pub min: Option<f64>,
    /// The largest value.
    pub max: Option<f64>,
    /// The smallest and the largest value if all are integers, which doubles may not hold exactly.
    pub whole: Option<(i128, i128)>,
    /// The mean.
    pub mean: Option<f64>,
    /// The standard deviation with numpy's default: divided by the count, not by the count minus
    /// one.
    pub std: Option<f64>,
    /// The sum of the magnitudes.
    pub l1: Option<f64>,
    /// The square root of the sum of squares.
    pub l2: Option<f64>,
    /// The mean of the magnitudes.
    pub abs_mean: Option<f64>,
    /// The largest magnitude, and the index in C order of the first value that has it.
    pub abs_max: Option<(f64, u64)>,
    /// The index of the first NaN.
    pub first_nan: Option<u64>,
    /// The index of the first infinity of either sign.
    pub first_inf: Option<u64>,
    /// The values at [`QUANTILES`].
    pub quantiles: Option<[f64; QUANTILES.len()]>,
    /// Whether quantiles are exact; otherwise they are within 1/256.
    pub exact: bool,
    /// Number of values that are more than six standard deviations from the mean.
    pub beyond_6_std: u64,
    /// Excess kurtosis: the fourth moment divided by the square of the second, minus 3, so that a
    /// normal distribution has 0. Also `None` if the values are too close together to compute it.
    pub kurtosis: Option<f64>,
}

/// The fractions at which quantiles are reported.
pub const QUANTILES: [f64; 5] = [0.01, 0.25, 0.5, 0.75, 0.99];

impl Statistics {
    /// Returns the number of finite values.
    pub fn finite(&self) -> u64 {
        self.count - self.nan - self.pos_inf - self.neg_inf
    }

    /// Returns whether all values are the same number or the same infinity.
    pub fn all_equal(&self) -> bool {
        let infinite = self.pos_inf.max(self.neg_inf);
        // Two different integers may be the same double, but then their deviation is not 0.
        let one = self.finite() == self.count && self.min == self.max && self.std == Some(0.0);
        self.count > 0 && (infinite == self.count || one)
    }

    /// Returns the bits of the figures that distinguish tensors: equal tensors have equal bits.
    pub fn bits(&self) -> [u64; 17] {
        let double = |value: Option<f64>| value.map_or(u64::MAX, f64::to_bits);
        let index = |index: Option<u64>| index.unwrap_or(u64::MAX);
        [
            self.count,
            self.nan,
            self.pos_inf,
            self.neg_inf,
            self.zeros,
            self.subnormal,
            double(self.min),
            double(self.max),
            double(self.mean),
            double(self.std),
            double(self.l1),
            double(self.l2),
            index(self.abs_max.map(|(_, index)| index)),
            index(self.first_nan),
            index(self.first_inf),
            double(self.quantiles.map(|quantiles| quantiles[2])),
            self.beyond_6_std,
        ]
    }

    /// Returns whether all values are zero.
    pub fn all_zero(&self) -> bool {
        self.count > 0 && self.zeros == self.count
    }
}

impl Summary {
    /// Computes the statistics.
    pub fn statistics(&self) -> Statistics {
        let summary = self;
        let finite = summary.finite();
        let moments = summary.sums.moments(finite);
        let quantile = |part| summary.quantile(part);
        let quantiles =
            summary.extremes.map(|_| QUANTILES.map(|part| quantile(part).unwrap_or(0.0)));
        let shape = moments.and_then(|moments| TailStatistics::of(summary, &moments));
        Statistics {
            count: summary.count,
            nan: summary.nan,
            pos_inf: summary.pos_inf,
            neg_inf: summary.neg_inf,
            zeros: summary.zeros,
            subnormal: summary.subnormal,
            min: summary.extremes.map(|extremes| extremes.0),
            max: summary.extremes.map(|extremes| extremes.1),
            whole: summary.whole,
            mean: moments.map(|moments| moments.mean),
            std: moments.map(|moments| moments.std),
            l1: moments.map(|moments| moments.l1),
            l2: moments.map(|moments| moments.l2),
            abs_mean: moments.map(|moments| moments.abs_mean),
            abs_max: summary.largest,
            first_nan: summary.first_nan,
            first_inf: summary.first_inf,
            quantiles,
            exact: summary.is_exact(),
            beyond_6_std: shape.as_ref().map_or(0, |shape| shape.beyond),
            kurtosis: shape.and_then(|shape| shape.kurtosis),
        }
    }
}

/// Figures that can only be computed once the mean and the deviation are known.
struct TailStatistics {
    beyond: u64,
    kurtosis: Option<f64>,
}

impl TailStatistics {
    fn of(summary: &Summary, moments: &Moments) -> Option<Self> {
        let Moments { mean, rest, std, .. } = *moments;
        if std == 0.0 || !std.is_finite() {
            return None;
        }
        // Sums of integers are the same in any order.
        let (mut beyond, mut fourth, mut second) = (0, 0u128, 0u128);
        const ONE: f64 = (1u64 << 40) as f64;
        summary.each(|value, count| {
            let away = match value - mean {
                away if away.is_finite() => (away - rest) / std,
                _ => value / std - mean / std,
            };
            let away = away.abs();
            beyond += if away > 6.0 { count } else { 0 };
            let square = away * away;
            let times = |part: f64| ((part * ONE) as u128).saturating_mul(count.into());
            fourth = fourth.saturating_add(times(square * square));
            second = second.saturating_add(times(square));
        });
        let many = summary.finite() as f64;
        // This is 1, except for the error that comes from values known only by their bins.
        let variance = second as f64 / ONE / many;
        let kurtosis = fourth as f64 / ONE / many - 3.0;
        let known = (variance - 1.0).abs() < 0.01;
        Some(Self { beyond: if known { beyond } else { 0 }, kurtosis: known.then_some(kurtosis) })
    }
}
