//! Exact sums: big integers in units of the smallest positive double. The order of addition and the
//! split of the values therefore make no difference, and only the final results are rounded, once.

use num_bigint::BigUint;

/// The sums of numbers, of their magnitudes and of their squares.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ExactSums {
    /// The sums of the magnitudes of positive and of negative numbers, in units of 2^-1074.
    positive: BigUint,
    negative: BigUint,
    /// The sum of squares, in units of 2^-2148.
    squares: BigUint,
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

/// The exponent of the unit of sums.
pub(crate) const UNIT: i64 = -1074;

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
        let side = if negative { &mut self.negative } else { &mut self.positive };
        *side += BigUint::from(sum) << shift;
        self.squares += BigUint::from(squares) << (2 * shift);
        if carries > 0 {
            self.squares += BigUint::from(carries) << (2 * shift + 128);
        }
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

    /// Returns the sums of positive numbers, of the magnitudes of negative ones, and of squares.
    pub(crate) fn parts(&self) -> [&BigUint; 3] {
        [&self.positive, &self.negative, &self.squares]
    }

    /// Restores the sums from their parts.
    pub(crate) fn of([positive, negative, squares]: [BigUint; 3]) -> Self {
        Self { positive, negative, squares }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.positive += &other.positive;
        self.negative += &other.negative;
        self.squares += &other.squares;
    }

    /// Computes the figures of `count` numbers; `None` if `count` is 0.
    pub(crate) fn moments(&self, count: u64) -> Option<Moments> {
        if count == 0 {
            return None;
        }
        // In the largest unit that all sums are multiples of, the integers are short: sums of
        // 32-bit floats have more than 900 zero bits at the end.
        let zeros = |number: &BigUint, per: u64| number.trailing_zeros().map(|zeros| zeros / per);
        let zeros = [zeros(&self.positive, 1), zeros(&self.negative, 1), zeros(&self.squares, 2)];
        let cut = zeros.into_iter().flatten().min().unwrap_or(0);
        let unit = UNIT + cut as i64;
        let (positive, negative) = (&self.positive >> cut, &self.negative >> cut);
        let squares = &self.squares >> (2 * cut);
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
    let exponent = exponent + drop as i64;
    let len = i64::from(64 - top.leading_zeros());
    // The exponent of the lowest bit of a double of this magnitude.
    let last = (exponent + len - 53).max(UNIT);
    let away = last - exponent;
    let kept = match away {
        ..=0 => top << -away.max(-63),
        1..=64 => {
            let kept = u128::from(top) >> away;
            let cut = u128::from(top) & ((1 << away) - 1);
            let half = 1u128 << (away - 1);
            let up = cut > half || cut == half && (rest || kept & 1 == 1);
            kept as u64 + u64::from(up)
        }
        _ => 0,
    };
    match last {
        1024.. => f64::INFINITY,
        // Both factors and the product are doubles, so there is no second rounding.
        _ => kept as f64 * power_of_two(last),
    }
}

/// Returns 2 to a power between -1074 and 1023.
pub(crate) fn power_of_two(power: i64) -> f64 {
    match power {
        ..-1022 => f64::from_bits(1u64 << (power + 1074).clamp(0, 51)),
        _ => f64::from_bits(((power + 1023).clamp(1, 2046) as u64) << 52),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn squares_carry_beyond_128_bits() {
        let mut sums = ExactSums::default();
        // Five values of 2^63, the largest power of two of `u64`: 5 * 2^126 = 2^126 + 2^128.
        sums.add(1074, false, 5 << 63, 1 << 126, 1);
        assert_eq!(sums.moments(5).unwrap().l2, 5f64.sqrt() * 2f64.powi(63));
    }
}
