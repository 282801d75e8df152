//! Exact sums: big integers in a unit that all values are multiples of. The order of addition and
//! the split of the values therefore make no difference, and only the final results are rounded,
//! once.

use std::borrow::Cow;

use num_bigint::BigUint;

use crate::short::{self, UNIT, round_short};

/// The sums of numbers, of their magnitudes and of their squares.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct ExactSums {
    /// The sums are in units of 2^(`shift` - 1074), the squares in units of the square of that.
    /// Sums of 32-bit floats would have more than 900 zero bits at the end in the unit of doubles.
    shift: u32,
    /// The sums of the magnitudes of positive and of negative numbers.
    positive: BigUint,
    negative: BigUint,
    /// The sum of squares.
    squares: BigUint,
}

impl PartialEq for ExactSums {
    fn eq(&self, other: &Self) -> bool {
        let shift = self.shift.min(other.shift);
        let (one, other) = (self.in_unit(shift), other.in_unit(shift));
        one.positive == other.positive
            && one.negative == other.negative
            && one.squares == other.squares
    }
}

/// Figures computed from exact sums.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Moments {
    pub(crate) mean: f64,
    /// The exact mean minus `mean`, which is rounded.
    pub(crate) rest: f64,
    pub(crate) std: f64,
    pub(crate) l1: f64,
    pub(crate) l2: f64,
    pub(crate) abs_mean: f64,
}

impl ExactSums {
    /// Adds a group of integers of the same sign in units of 2^(`shift` - 1074), given by the sum
    /// of their magnitudes and the sum of their squares, which is `squares + carries * 2^128`.
    pub(crate) fn add(
        &mut self,
        shift: u32,
        negative: bool,
        sum: u128,
        squares: u128,
        carries: u64,
    ) {
        if sum == 0 {
            return;
        }
        self.lower(shift);
        let shift = shift - self.shift;
        let side = if negative { &mut self.negative } else { &mut self.positive };
        *side += BigUint::from(sum) << shift;
        self.squares += BigUint::from(squares) << (2 * shift);
        if carries > 0 {
            self.squares += BigUint::from(carries) << (2 * shift + 128);
        }
    }

    /// Makes the unit at most that of `shift`.
    fn lower(&mut self, shift: u32) {
        if self.is_empty() {
            self.shift = shift;
        } else if shift < self.shift {
            let by = self.shift - shift;
            self.positive <<= by;
            self.negative <<= by;
            self.squares <<= 2 * by;
            self.shift = shift;
        }
    }

    /// Returns the sums in a unit at most that of `shift`.
    fn in_unit(&self, shift: u32) -> Cow<'_, Self> {
        match shift < self.shift && !self.is_empty() {
            true => {
                let mut sums = self.clone();
                sums.lower(shift);
                Cow::Owned(sums)
            }
            false => Cow::Borrowed(self),
        }
    }

    fn is_empty(&self) -> bool {
        self.squares.bits() == 0
    }

    /// Adds numbers of at most 17 significant bits, none of which is a subnormal double. Fastest if
    /// numbers with the same exponent are adjacent.
    pub(crate) fn add_short(&mut self, values: impl Iterator<Item = (f64, u64)>) {
        const CUT: u32 = 36;
        let (mut of, mut sum, mut squares) = ((0, false), 0u128, 0u128);
        for (value, count) in values.filter(|(value, _)| *value != 0.0) {
            let (mantissa, shift) = parts(value);
            let next = (shift + CUT, value < 0.0);
            if next != of {
                self.add(of.0, of.1, sum, squares, 0);
                (of, sum, squares) = (next, 0, 0);
            }
            let (mantissa, count) = (u128::from(mantissa >> CUT), u128::from(count));
            sum += mantissa * count;
            squares += mantissa * mantissa * count;
        }
        self.add(of.0, of.1, sum, squares, 0);
    }

    /// Returns the sums of positive numbers, of the magnitudes of negative ones, and of squares, in
    /// units of 2^-1074 and 2^-2148.
    pub(crate) fn parts(&self) -> [BigUint; 3] {
        let Self { positive, negative, squares, .. } = self.in_unit(0).into_owned();
        [positive, negative, squares]
    }

    /// Restores the sums from their parts.
    pub(crate) fn of([positive, negative, squares]: [BigUint; 3]) -> Self {
        let mut sums = Self { shift: 0, positive, negative, squares };
        let zeros = sums.zeros();
        sums.positive >>= zeros;
        sums.negative >>= zeros;
        sums.squares >>= 2 * zeros;
        sums.shift = zeros as u32;
        sums
    }

    /// Returns the number of zero bits that all sums have at the end, and the squares twice.
    fn zeros(&self) -> u64 {
        let zeros = |number: &BigUint, per: u64| number.trailing_zeros().map(|zeros| zeros / per);
        let zeros = [zeros(&self.positive, 1), zeros(&self.negative, 1), zeros(&self.squares, 2)];
        zeros.into_iter().flatten().min().unwrap_or(0)
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        self.lower(other.shift);
        let other = other.in_unit(self.shift);
        self.positive += &other.positive;
        self.negative += &other.negative;
        self.squares += &other.squares;
    }

    /// Computes the figures of `count` numbers; `None` if `count` is 0.
    pub(crate) fn moments(&self, count: u64) -> Option<Moments> {
        if count == 0 {
            return None;
        }
        if let Some(moments) = self.short_moments(count) {
            return Some(moments);
        }
        let zeros = self.zeros();
        let cut = zeros + u64::from(self.shift);
        let unit = UNIT + cut as i64;
        let (positive, negative) = (&self.positive >> zeros, &self.negative >> zeros);
        let squares = &self.squares >> (2 * zeros);
        let one = BigUint::from(1u32);
        let many = BigUint::from(count);
        let all = &positive + &negative;
        let (is_negative, sum) = match positive >= negative {
            true => (false, positive - negative),
            false => (true, negative - positive),
        };
        let mean = ratio(&sum, &many, unit);
        let (mantissa, shift) = parts(mean);
        // The unit of the mean may be smaller than that of the sums.
        let (shift, fine) = (u64::from(shift), cut.min(shift.into()));
        let rounded = (BigUint::from(mantissa) << (shift - fine)) * &many;
        let exact = &sum << (cut - fine);
        let unit_of_rest = UNIT + fine as i64;
        let rest = match exact >= rounded {
            true => ratio(&(exact - rounded), &many, unit_of_rest),
            false => -ratio(&(rounded - exact), &many, unit_of_rest),
        };
        // count² times the variance. Never negative, because the sums are exact.
        let spread = &many * &squares - &sum * &sum;
        Some(Moments {
            mean: if is_negative { -mean } else { mean },
            rest: if is_negative { -rest } else { rest },
            std: root(&spread, &(&many * &many), 2 * unit),
            l1: ratio(&all, &one, unit),
            l2: root(&squares, &one, 2 * unit),
            abs_mean: ratio(&all, &many, unit),
        })
    }
}

impl ExactSums {
    /// Computes the figures without big integers; `None` if the sums are too long for that.
    fn short_moments(&self, count: u64) -> Option<Moments> {
        let [positive, negative, squares] =
            [&self.positive, &self.negative, &self.squares].map(|sum| u128::try_from(sum).ok());
        let (positive, negative, squares) = (positive?, negative?, squares?);
        let unit = UNIT + i64::from(self.shift);
        let many = u128::from(count);
        let all = positive.checked_add(negative)?;
        let (is_negative, sum) = match positive >= negative {
            true => (false, positive - negative),
            false => (true, negative - positive),
        };
        let mean = short::ratio(sum, many, unit)?;
        let (mantissa, shift) = parts(mean);
        let fine = self.shift.min(shift);
        let rounded = short::shifted(mantissa.into(), shift - fine)?.checked_mul(many)?;
        let exact = short::shifted(sum, self.shift - fine)?;
        let rest = short::ratio(exact.abs_diff(rounded), many, UNIT + i64::from(fine))?;
        let rest = if exact >= rounded { rest } else { -rest };
        // count² times the variance. Never negative, because the sums are exact.
        let spread = many.checked_mul(squares)?.checked_sub(sum.checked_mul(sum)?)?;
        Some(Moments {
            mean: if is_negative { -mean } else { mean },
            rest: if is_negative { -rest } else { rest },
            std: short::root(spread, many.checked_mul(many)?, 2 * unit)?,
            l1: short::ratio(all, 1, unit)?,
            l2: short::root(squares, 1, 2 * unit)?,
            abs_mean: short::ratio(all, many, unit)?,
        })
    }
}

/// Splits the magnitude of a finite number into `mantissa * 2^(shift - 1074)`.
fn parts(value: f64) -> (u64, u32) {
    let bits = value.to_bits();
    let field = (bits >> 52 & 0x7ff) as u32;
    let fraction = bits & ((1 << 52) - 1);
    match field {
        0 => (fraction, 0),
        _ => (fraction | 1 << 52, field - 1),
    }
}

/// Bits of a quotient, and of one whose root is taken: more than a double has, and few enough for
/// short integers.
const QUOTIENT: i64 = 66;
const SQUARE: i64 = 124;

/// Returns `over / under * 2^exponent`, rounded to the nearest double.
fn ratio(over: &BigUint, under: &BigUint, exponent: i64) -> f64 {
    let shift = QUOTIENT + under.bits() as i64 - over.bits() as i64;
    let (scaled, is_cut) = shifted(over, shift);
    let quotient = &scaled / under;
    let rest = is_cut || &quotient * under != scaled;
    round(&quotient, rest, exponent - shift)
}

/// Returns the square root of `over / under * 2^exponent`, rounded to the nearest double.
/// `exponent` must be even.
fn root(over: &BigUint, under: &BigUint, exponent: i64) -> f64 {
    let shift = SQUARE + under.bits() as i64 - over.bits() as i64;
    let shift = shift + shift.rem_euclid(2);
    let (scaled, is_cut) = shifted(over, shift);
    let quotient = &scaled / under;
    let root = quotient.sqrt();
    let rest = is_cut || &root * &root * under != scaled;
    round(&root, rest, (exponent - shift) / 2)
}

/// Returns `number * 2^shift`, rounded down, and whether it had a fraction.
fn shifted(number: &BigUint, shift: i64) -> (BigUint, bool) {
    let places = shift.unsigned_abs();
    match shift {
        0.. => (number << places, false),
        _ => (number >> places, number.trailing_zeros().is_some_and(|zeros| zeros < places)),
    }
}

/// Rounds `whole * 2^exponent` to the nearest double, ties to even. `rest` means that the exact
/// number is slightly larger.
fn round(whole: &BigUint, rest: bool, exponent: i64) -> f64 {
    let drop = whole.bits().saturating_sub(64);
    let top = (whole >> drop).iter_u64_digits().next().unwrap_or(0);
    let rest = rest || whole.trailing_zeros().is_some_and(|zeros| zeros < drop);
    round_short(top, rest, exponent + drop as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::short::power_of_two;

    impl ExactSums {
        fn add_value(&mut self, value: f64) {
            let (mantissa, shift) = parts(value);
            let mantissa = u128::from(mantissa);
            self.add(shift, value.is_sign_negative(), mantissa, mantissa * mantissa, 0);
        }
    }

    fn of(values: &[f64]) -> Moments {
        let mut sums = ExactSums::default();
        values.iter().for_each(|value| sums.add_value(*value));
        sums.moments(values.len() as u64).unwrap()
    }

    #[test]
    fn single_values_are_exact() {
        for value in [1.0, -0.1, 1e300, -f64::MAX, 5e-324, -2.2e-308, 3.3e-310, 0.0] {
            let found = of(&[value]);
            assert_eq!((found.mean, found.l1, found.l2), (value, value.abs(), value.abs()));
            assert_eq!(found.std, 0.0);
        }
    }

    #[test]
    fn sums_lose_no_precision() {
        assert_eq!(of(&[1e300, 1.0, -1e300, 2.0]).mean, 0.75);
        let large = of(&[f64::MAX, f64::MAX, -f64::MAX]);
        assert_eq!((large.mean, large.l1), (f64::MAX / 3.0, f64::INFINITY));
        // Deviations of 1 around 1e15: sqrt(2/3).
        let far = of(&[1e15 - 1.0, 1e15, 1e15 + 1.0]);
        assert_eq!((far.mean, far.std), (1e15, (2f64 / 3.0).sqrt()));
        let small = of(&[5e-324, -5e-324]);
        assert_eq!((small.mean, small.std), (0.0, 5e-324));
        let far = 2f64.powi(1000);
        assert_eq!(of(&[3.0 * far, 4.0 * far]).l2, 5.0 * far);
    }

    /// Sums are exact in any unit, so values of any magnitude have the same figures, scaled.
    #[test]
    fn figures_scale_with_powers_of_two() {
        let values = [0.1f64, -0.7, 3.0, 1e-9, -2.5, 0.3333].map(|value| f64::from(value as f32));
        let plain = of(&values);
        for power in [-700, -149, -1, 1, 52, 400] {
            let scale = power_of_two(power);
            let scaled = of(&values.map(|value| value * scale));
            let same = |a: f64, b: f64| assert_eq!(a * scale, b, "2^{power}");
            same(plain.mean, scaled.mean);
            same(plain.rest, scaled.rest);
            same(plain.std, scaled.std);
            same(plain.l1, scaled.l1);
            same(plain.l2, scaled.l2);
            same(plain.abs_mean, scaled.abs_mean);
        }
    }

    #[test]
    fn batched_sums_equal_single_additions() {
        let values = [(0.75, 1_000), (-1.0, 3), (0.0, 4), (1.5, 20), (-65504.0, 7), (0.8125, 1)];
        let mut short = ExactSums::default();
        short.add_short(values.into_iter());
        let mut each = ExactSums::default();
        for (value, count) in values {
            (0..count).for_each(|_| each.add_value(value));
        }
        assert_eq!(short, each);
        let largest = f64::from_bits(0x47ef_e000_0000_0000);
        let mut most = ExactSums::default();
        most.add_short(std::iter::once((largest, u64::MAX)));
        let found = most.moments(u64::MAX).unwrap();
        assert_eq!((found.mean, found.std), (largest, 0.0));
    }

    /// The figures of short sums are those of long ones, bit by bit.
    #[test]
    fn short_sums_have_the_figures_of_long_ones() {
        let mut state = 7u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 11
        };
        let mut short = 0;
        for round in 0..2_000 {
            let scale = power_of_two(next() as i64 % 290 - 145);
            let count = 1 + next() % 40;
            let spread = next() % 24;
            let values: Vec<f64> = (0..count)
                .map(|_| {
                    let size = power_of_two(-((next() % (spread + 1)) as i64));
                    let value = (next() as f64 / (1u64 << 52) as f64 - 1.0) * size;
                    let value = if round % 3 == 0 { (value * 64.0).round() } else { value };
                    f64::from((value * scale) as f32)
                })
                .collect();
            let mut sums = ExactSums::default();
            values.iter().for_each(|value| sums.add_value(*value));
            let found = sums.short_moments(count).filter(|_| !sums.is_empty());
            let Some(found) = found else { continue };
            short += 1;
            // In the unit of doubles, the sums are long.
            let mut long = sums.clone();
            long.lower(0);
            assert_eq!(long.short_moments(count), None, "{values:?}");
            let expected = long.moments(count).unwrap();
            assert_eq!(bits(&found), bits(&expected), "{values:?}");
        }
        assert!(short > 1_000, "{short} of 2000 sums were short");
    }

    fn bits(of: &Moments) -> [u64; 6] {
        [of.mean, of.rest, of.std, of.l1, of.l2, of.abs_mean].map(f64::to_bits)
    }

    #[test]
    fn sums_in_different_units_add_up() {
        let values = [1.5, -3e-40, 1e30, 5e-324, -0.1];
        let sum = |values: &[f64]| {
            let mut sums = ExactSums::default();
            values.iter().for_each(|value| sums.add_value(*value));
            sums
        };
        let whole = sum(&values);
        for cut in 0..=values.len() {
            let mut merged = sum(&values[..cut]);
            merged.merge(&sum(&values[cut..]));
            assert_eq!(merged, whole);
            assert_eq!(merged.parts(), whole.parts());
            assert_eq!(ExactSums::of(merged.parts()), whole);
        }
        assert_ne!(sum(&[1.0]), sum(&[2.0]));
        assert_ne!(sum(&[1.0]), ExactSums::default());
    }

    #[test]
    fn squares_carry_beyond_128_bits() {
        let mut sums = ExactSums::default();
        // Five values of 2^63, the largest power of two of `u64`: 5 * 2^126 = 2^126 + 2^128.
        sums.add(1074, false, 5 << 63, 1 << 126, 1);
        assert_eq!(sums.moments(5).unwrap().l2, 5f64.sqrt() * 2f64.powi(63));
    }
}
