//! The subset of a tensor's statistics that summaries contain.

use serde::{Deserialize, Serialize};
use statelens_checkpoint::DType;
use statelens_stats::{Accumulator, Statistics};

/// Statistics of the values of a tensor; of moduli for complex numbers. Records and quantised
/// blocks do not have statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SummaryStatistics {
    /// Number of all values.
    pub count: u64,
    /// Number of NaN values.
    pub nan: u64,
    /// Number of infinite values.
    pub infinite: u64,
    /// Number of zeros of either sign.
    pub zeros: u64,
    /// The smallest finite value. Like the following figures, `None` if there are no finite values.
    #[serde(with = "crate::json::float")]
    pub min: Option<f64>,
    /// The largest finite value.
    #[serde(with = "crate::json::float")]
    pub max: Option<f64>,
    /// The mean of the finite values.
    #[serde(with = "crate::json::float")]
    pub mean: Option<f64>,
    /// The standard deviation of the finite values with numpy's default: divided by the count, not
    /// by the count minus one.
    #[serde(with = "crate::json::float")]
    pub std: Option<f64>,
}

impl SummaryStatistics {
    /// Returns the number of finite values.
    pub fn finite(&self) -> u64 {
        self.count.saturating_sub(self.nan).saturating_sub(self.infinite)
    }

    /// Returns the largest finite magnitude.
    pub fn abs_max(&self) -> Option<f64> {
        Some(self.min?.abs().max(self.max?.abs()))
    }
}

/// Computes [`SummaryStatistics`] of logical bytes as they arrive.
#[derive(Debug)]
pub struct Statistician {
    accumulator: Accumulator,
}

impl Statistician {
    /// Returns `None` if the elements are not numeric, or hold two values each.
    pub fn new(dtype: &DType) -> Option<Self> {
        let mut accumulator = Accumulator::new();
        let known = *dtype != DType::F4E2M1FNX2 && accumulator.begin(dtype, 0);
        known.then_some(Self { accumulator })
    }

    /// Processes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.accumulator.feed(bytes);
    }

    /// Returns the statistics.
    pub fn finish(mut self) -> SummaryStatistics {
        SummaryStatistics::from(&self.accumulator.finish().statistics())
    }
}

impl From<&Statistics> for SummaryStatistics {
    fn from(of: &Statistics) -> Self {
        Self {
            count: of.count,
            nan: of.nan,
            infinite: of.pos_inf + of.neg_inf,
            zeros: of.zeros,
            min: of.min,
            max: of.max,
            mean: of.mean,
            std: of.std,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dtype: &DType, bytes: &[u8], piece: usize) -> SummaryStatistics {
        let mut machine = Statistician::new(dtype).unwrap();
        bytes.chunks(piece).for_each(|piece| machine.feed(piece));
        machine.finish()
    }

    #[test]
    fn statistics_match_numpy() {
        // numpy.array([1, 2, 3, 4, 0, -2.5], dtype=numpy.float32): mean 1.25, std 2.1164…
        let values = [1f32, 2.0, 3.0, 4.0, 0.0, -2.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let found = of(&DType::F32, &bytes, 1_000);
        assert_eq!((found.count, found.nan, found.infinite, found.zeros), (9, 1, 2, 1));
        assert_eq!((found.min, found.max, found.mean), (Some(-2.5), Some(4.0), Some(1.25)));
        assert_eq!(found.abs_max(), Some(4.0));
        assert!((found.std.unwrap() - 2.116_404_183_200_049).abs() < 1e-12, "{:?}", found.std);
        assert_eq!(found.finite(), 6);
    }

    #[test]
    fn statistics_do_not_depend_on_pieces() {
        let mut seed = 7u32;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Floats of various magnitudes, up to some hundreds.
            ((seed >> 8) as f32 / 1e4 - 800.0).to_le_bytes()
        })
        .take(5_000)
        .flatten()
        .collect();
        let whole = of(&DType::F32, &bytes, bytes.len());
        for piece in [1, 3, 7, 4_096, 5_001] {
            assert_eq!(of(&DType::F32, &bytes, piece), whole, "in pieces of {piece}");
        }
        let values: Vec<f64> =
            bytes.as_chunks().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect();
        let mean = values.iter().sum::<f64>() / 5_000.0;
        let std = (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 5_000.0).sqrt();
        for (found, wanted) in [(whole.mean.unwrap(), mean), (whole.std.unwrap(), std)] {
            assert!((found / wanted - 1.0).abs() < 1e-12, "{found} {wanted}");
        }
    }

    #[test]
    fn computes_statistics_of_other_dtypes_and_of_no_elements() {
        let ints: Vec<u8> = [-3i64, 5, 0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let found = of(&DType::I64, &ints, 5);
        assert_eq!((found.min, found.max, found.zeros), (Some(-3.0), Some(5.0), 1));
        assert_eq!(of(&DType::Bool, &[0, 1, 1, 0], 3).mean, Some(0.5));
        assert_eq!(of(&DType::BF16, &[0xc0, 0xbf], 1).abs_max(), Some(1.5));
        let none = Statistician::new(&DType::F32).unwrap().finish();
        assert_eq!((none, none.abs_max()), (SummaryStatistics::default(), None));
        let complex = [3f32, -4.0].map(f32::to_le_bytes).concat();
        assert_eq!(of(&DType::C64, &complex, 3).max, Some(5.0));
        assert!(Statistician::new(&DType::Bits8).is_none());
        let large = [f64::MAX, f64::MAX].map(f64::to_le_bytes).concat();
        assert_eq!(of(&DType::F64, &large, 16).mean, Some(f64::MAX));
        // A deviation of 1 around 1e15, which the sum of squares of doubles can't resolve.
        let far = [1e15 - 1.0, 1e15 + 1.0].map(f64::to_le_bytes).concat();
        assert_eq!(of(&DType::F64, &far, 5).std, Some(1.0));
        let small = [1e-310f64, -1e-310].map(f64::to_le_bytes).concat();
        assert_eq!(of(&DType::F64, &small, 16).std, Some(1e-310));
    }
}
