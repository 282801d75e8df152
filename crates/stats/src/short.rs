//! Quotients and roots of integers that fit in 128 bits, rounded once to doubles. Functions return
//! `None` if a number is too long.

/// The exponent of the smallest double, and of the unit of exact sums.
pub(crate) const UNIT: i64 = -1074;

/// Bits of a quotient, and of one whose root is taken: more than a double has.
const QUOTIENT: u32 = 60;
const SQUARE: u32 = 120;

/// Returns `over / under * 2^exponent`, rounded to the nearest double.
pub(crate) fn ratio(over: u128, under: u128, exponent: i64) -> Option<f64> {
    let Quotient { whole, rest, shift } = quotient(over, under, QUOTIENT, 1)?;
    let drop = bits(whole).saturating_sub(64);
    let rest = rest || (drop > 0 && whole.trailing_zeros() < drop);
    Some(round_short((whole >> drop) as u64, rest, exponent - i64::from(shift) + i64::from(drop)))
}

/// Returns the square root of `over / under * 2^exponent`, rounded to the nearest double.
/// `exponent` must be even.
pub(crate) fn root(over: u128, under: u128, exponent: i64) -> Option<f64> {
    let Quotient { whole, rest, shift } = quotient(over, under, SQUARE, 2)?;
    // A short quotient is exact, but its root may not be.
    let by = SQUARE.saturating_sub(bits(whole)) / 2 * 2;
    let (whole, shift) = (whole << by, shift + by);
    let root = whole.isqrt();
    let rest = rest || root * root != whole;
    Some(round_short(root as u64, rest, (exponent - i64::from(shift)) / 2))
}

/// Returns `number * 2^shift`.
pub(crate) fn shifted(number: u128, shift: u32) -> Option<u128> {
    (number == 0 || shift <= number.leading_zeros()).then(|| number.checked_shl(shift).unwrap_or(0))
}

/// Returns `top * 2^exponent`, and a little more if there is a `rest`, rounded to the nearest double. `top` must have more bits than a double if
/// there is a rest.
pub(crate) fn round_short(top: u64, rest: bool, exponent: i64) -> f64 {
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

/// `over / under * 2^shift`, rounded down.
struct Quotient {
    whole: u128,
    /// Whether there is a remainder.
    rest: bool,
    shift: u32,
}

/// Divides as in long division, until there is no remainder or the quotient has `least` bits. The
/// shift is a multiple of `step`.
fn quotient(over: u128, under: u128, least: u32, step: u32) -> Option<Quotient> {
    // Remainders can then be shifted by at least 32 bits.
    if under == 0 || bits(under) > 96 {
        return None;
    }
    let (mut whole, mut rest, mut shift) = (over / under, over % under, 0);
    while rest > 0 && bits(whole) < least {
        // The remainder is smaller than the divisor, so its quotient has at most `by` bits.
        let by = rest.leading_zeros().min(128 - bits(whole)).min(least) / step * step;
        rest <<= by;
        whole = (whole << by) | (rest / under);
        rest %= under;
        shift += by;
    }
    Some(Quotient { whole, rest: rest > 0, shift })
}

fn bits(number: u128) -> u32 {
    128 - number.leading_zeros()
}
