//! The numbers that people read.

use crate::Summary;
use crate::exact::Moments;

/// What the values of a tensor are like: what is not said of all is said of the finite ones. What
/// there is no value for is `None`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Statistics {
    /// All values.
    pub count: u64,
    /// Those that are no number.
    pub nan: u64,
    /// Infinities.
    pub pos_inf: u64,
    /// Negative ones.
    pub neg_inf: u64,
    /// Zeros, of either sign.
    pub zeros: u64,
    /// Those that are so small that their dtype holds them with fewer digits.
    pub subnormal: u64,
    /// The smallest.
    pub min: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
    /// The smallest and the largest of whole numbers, which doubles may not hold.
    pub whole: Option<(i128, i128)>,
    /// The mean.
    pub mean: Option<f64>,
    /// The standard deviation, as numpy has it: divided by their number, not by one less.
    pub std: Option<f64>,
    /// The sum of magnitudes.
    pub l1: Option<f64>,
    /// The root of the sum of squares.
    pub l2: Option<f64>,
    /// The mean of magnitudes.
    pub abs_mean: Option<f64>,
    /// The largest magnitude, and the number of the first value that has it, counted in C order.
    pub abs_max: Option<(f64, u64)>,
    /// The first NaN.
    pub first_nan: Option<u64>,
    /// The first infinity of either sign.
    pub first_inf: Option<u64>,
    /// Values at [`QUANTILES`].
    pub quantiles: Option<[f64; QUANTILES.len()]>,
    /// Whether quantiles are exact; else they are within 1/256.
    pub exact: bool,
    /// How many lie more than six standard deviations from the mean.
    pub beyond_6_std: u64,
    /// The fourth moment over the square of the second, less 3, so that it is 0 of a normal
    /// distribution; `None` also if the values lie so close together that it is not known.
    pub kurtosis: Option<f64>,
}

/// The parts that quantiles are told of.
pub const QUANTILES: [f64; 5] = [0.01, 0.25, 0.5, 0.75, 0.99];

impl Statistics {
    /// How many values are finite.
    pub fn finite(&self) -> u64 {
        self.count - self.nan - self.pos_inf - self.neg_inf
    }

    /// Whether all values are one number, or one infinity.
    pub fn all_equal(&self) -> bool {
        let infinite = self.pos_inf.max(self.neg_inf);
        // Two whole numbers may be one double, and then they deviate.
        let one = self.finite() == self.count && self.min == self.max && self.std == Some(0.0);
        self.count > 0 && (infinite == self.count || one)
    }

    /// Whether all values are zero.
    pub fn all_zero(&self) -> bool {
        self.count > 0 && self.zeros == self.count
    }
}

impl Summary {
    /// What it comes to.
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

/// What needs mean and deviation first.
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
        // Whole numbers add up to the same in any order.
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
        // 1 but for what is lost where only bins are known.
        let variance = second as f64 / ONE / many;
        let kurtosis = fourth as f64 / ONE / many - 3.0;
        let known = (variance - 1.0).abs() < 0.01;
        Some(Self { beyond: if known { beyond } else { 0 }, kurtosis: known.then_some(kurtosis) })
    }
}
