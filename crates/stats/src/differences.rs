//! The distribution of the differences between two tensors, counted during the comparison: without
//! a second pass, and in little memory.

/// Number of bars of a [`Spread`]; odd, so that one of them is around zero.
const BARS: usize = 33;

/// The distribution of the differences, right − left. Only values that differ are counted, because
/// many equal ones would hide a few that differ. For complex numbers, the modulus of the difference
/// is used.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Spread {
    /// The bars cover the range from minus to plus this value: three times the root mean square of
    /// the differences counted.
    pub within: f64,
    /// Number of differences in each of 33 bars of equal width; each difference is known to within
    /// an eighth of its magnitude.
    pub counts: Vec<u64>,
}

/// Differences are counted by the sign, the exponent and three mantissa bits of their value as
/// float32.
const SHIFT: u32 = 20;
const RANGES: usize = 1 << (32 - SHIFT);

/// Nonzero differences, counted by range.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
#[serde(from = "Vec<u64>", into = "Vec<u64>")]
pub(crate) struct SpreadCounts(Option<Box<[u64; RANGES]>>);

impl From<SpreadCounts> for Vec<u64> {
    fn from(counts: SpreadCounts) -> Self {
        counts.0.map_or_else(Self::new, |counts| counts.to_vec())
    }
}

impl From<Vec<u64>> for SpreadCounts {
    fn from(counts: Vec<u64>) -> Self {
        Self(counts.into_boxed_slice().try_into().ok())
    }
}

impl SpreadCounts {
    /// Counts a difference.
    #[inline]
    pub(crate) fn add(&mut self, difference: f64) {
        let counts = self.0.get_or_insert_with(|| Box::new([0; RANGES]));
        counts[((difference as f32).to_bits() >> SHIFT) as usize] += 1;
    }

    /// Counts the differences that are not zero.
    #[inline]
    pub(crate) fn add_all(&mut self, differences: &[f64]) {
        let counts = self.0.get_or_insert_with(|| Box::new([0; RANGES]));
        for difference in differences {
            let range = ((*difference as f32).to_bits() >> SHIFT) as usize;
            counts[range] += u64::from(*difference != 0.0);
        }
    }

    pub(crate) fn merge(&mut self, next: Self) {
        match (&mut self.0, next.0) {
            (Some(all), Some(next)) => {
                all.iter_mut().zip(*next).for_each(|(all, next)| *all += next)
            }
            (all, next) => *all = all.take().or(next),
        }
    }

    /// Converts the counts to bars; `squares` is the sum of the squares of the differences counted.
    /// Returns `None` if nothing was counted, or only values that are zero or infinite as float32.
    pub(crate) fn spread(&self, squares: f64) -> Option<Spread> {
        let counts = self.0.as_deref()?;
        let within = 3.0 * (squares / counts.iter().sum::<u64>() as f64).sqrt();
        if !(f64::from(f32::MIN_POSITIVE)..f64::from(f32::MAX)).contains(&within) {
            return None;
        }
        let mut bars = [0.0; BARS];
        let width = 2.0 * within / BARS as f64;
        for (key, &count) in (0u32..).zip(counts).filter(|(_, count)| **count > 0) {
            let bits = key << SHIFT;
            // The last range of each sign holds infinities, which are outside of all bars.
            let end =
                |bits: u32| Some(f64::from(f32::from_bits(bits))).filter(|end| end.is_finite());
            let (Some(one), Some(other)) = (end(bits), end(bits + ((1 << SHIFT) - 1))) else {
                continue;
            };
            let (low, high) =
                ((one.min(other) + within) / width, (one.max(other) + within) / width);
            if high <= 0.0 || low >= BARS as f64 {
                continue;
            }
            let first = low.floor().max(0.0) as usize;
            for (bar, at) in bars.iter_mut().zip(0u32..).skip(first) {
                let at = f64::from(at);
                let part = high.min(at + 1.0) - low.max(at);
                // The range is so close to zero that its width vanishes next to that of a bar.
                let share = if high > low { part / (high - low) } else { 1.0 };
                *bar += share.max(0.0) * count as f64;
                if high <= at + 1.0 {
                    break;
                }
            }
        }
        Some(Spread { within, counts: bars.iter().map(|bar| bar.round() as u64).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(differences: &[f64]) -> Option<Spread> {
        let mut counts = SpreadCounts::default();
        differences.iter().for_each(|one| counts.add(*one));
        counts.spread(differences.iter().map(|one| one * one).sum())
    }

    #[test]
    fn counts_each_difference_in_a_nearby_bar() {
        // A uniform distribution of 2,000 values from −1 to 1, whose root mean square is 1/√3.
        let uniform: Vec<f64> =
            (-1000..=1000).filter(|at| *at != 0).map(|at| f64::from(at) / 1000.0).collect();
        let spread = of(&uniform).unwrap();
        assert!((spread.within - 3f64.sqrt()).abs() < 2e-3, "{spread:?}");
        assert_eq!(spread.counts.len(), BARS);
        let total: u64 = spread.counts.iter().sum();
        assert!(total.abs_diff(2000) <= BARS as u64 / 2, "{spread:?}");
        // The range from −1 to 1 is covered by bars 7 to 25, the outermost of which are partly
        // filled.
        let (inside, outside) = (&spread.counts[9..24], &spread.counts[..6]);
        assert!(inside.iter().all(|count| (90..122).contains(count)), "{spread:?}");
        assert!(outside.iter().all(|count| *count == 0), "{spread:?}");
    }

    #[test]
    fn separates_signs_and_merges_parts() {
        let (mut all, mut parts) = (SpreadCounts::default(), SpreadCounts::default());
        let differences = [0.5, 0.25, -2.0, 0.5, 1e-3];
        for some in differences.chunks(2) {
            let mut part = SpreadCounts::default();
            some.iter().for_each(|one| part.add(*one));
            parts.merge(part);
        }
        differences.iter().for_each(|one| all.add(*one));
        assert_eq!(all, parts);
        let spread = all.spread(differences.iter().map(|one| one * one).sum()).unwrap();
        let side = |bars: &[u64]| bars.iter().sum::<u64>();
        let middle = BARS / 2;
        assert_eq!((side(&spread.counts[..middle]), side(&spread.counts[middle + 1..])), (1, 3));
        // Next to 1, the widths of these ranges vanish.
        assert_eq!(of(&[1.0, -1e-20, 1e-20, 1e-20]).unwrap().counts[middle], 3);
    }

    #[test]
    fn differences_below_float32_precision_have_no_bars() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[1e-300, -1e-300]), None);
        assert_eq!(of(&[1e300, -1e300]), None);
        // A value far beyond all others is outside of all bars.
        let mut far = vec![1.0; 100];
        far.push(1e30);
        assert_eq!(of(&far).unwrap().counts[BARS / 2], 100);
    }
}
