//! Statistics as JSON and as short texts.

use serde::Serialize;
use statelens_checkpoint::{counted, float_repr, grouped};

use crate::fields;
use crate::json::{Float, Object};
use statelens_stats::{QUANTILES, Statistics};

/// Returns statistics as in JSON; figures without a value are `null`. Positions are indices into a
/// tensor of this shape; left out for several tensors (`None`).
pub fn statistics_fields<H: Serialize>(
    of: &Statistics,
    histogram: H,
    shape: Option<&[u64]>,
) -> impl Serialize + use<H> {
    let positions = shape.map(|shape| {
        let values = index_shape(shape, of.count);
        let index = |at: Option<u64>| at.map(|at| index(&values, at));
        fields! {
            abs_max_at: index(of.abs_max.map(|(_, at)| at)),
            first_nan: index(of.first_nan),
            first_inf: index(of.first_inf),
        }
    });
    let exact = of.whole.filter(|whole| !fits(whole.0) || !fits(whole.1));
    let exact =
        exact.map(|(min, max)| fields! { min_exact: min.to_string(), max_exact: max.to_string() });
    let quantile = |(at, part): (usize, &f64)| {
        (float_repr(*part), Float(of.quantiles.map(|quantiles| quantiles[at])))
    };
    fields! {
        count: of.count,
        nan: of.nan,
        pos_inf: of.pos_inf,
        neg_inf: of.neg_inf,
        zeros: of.zeros,
        subnormal: of.subnormal,
        min: Float(of.min),
        max: Float(of.max),
        mean: Float(of.mean),
        std: Float(of.std),
        l1: Float(of.l1),
        l2: Float(of.l2),
        abs_mean: Float(of.abs_mean),
        abs_max: Float(of.abs_max.map(|(value, _)| value)),
        #[serde(flatten)]
        positions: positions,
        #[serde(flatten)]
        exact: exact,
        quantiles: Object(QUANTILES.iter().enumerate().map(quantile).collect()),
        quantiles_exact: of.exact,
        histogram: histogram,
        beyond_6_std: of.beyond_6_std,
        kurtosis: Float(of.kurtosis),
        all_equal: of.all_equal(),
        all_zero: of.all_zero(),
    }
}

/// Returns the shape that positions in statistics refer to: if an element holds two values, the
/// last dimension counts values.
fn index_shape(shape: &[u64], values: u64) -> Vec<u64> {
    let elements = shape.iter().fold(1, |all: u64, dim| all.saturating_mul(*dim));
    let mut shape = shape.to_vec();
    if elements > 0
        && let Some(last) = shape.last_mut()
    {
        *last *= values / elements;
    }
    shape
}

/// Converts an index in C order to an index in each dimension.
pub fn index(shape: &[u64], number: u64) -> Vec<u64> {
    let mut rest = number;
    let mut index: Vec<u64> = shape
        .iter()
        .rev()
        .map(|dim| {
            let at = rest % (*dim).max(1);
            rest /= (*dim).max(1);
            at
        })
        .collect();
    index.reverse();
    index
}

/// Formats a number with four significant digits, like `%.4g` in C.
pub fn number_text(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return float_repr(value).trim_end_matches(".0").to_owned();
    }
    let text = format!("{value:.3e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let plain = match exponent {
        -5..=5 => format!("{value:.*}", (3 - exponent).max(0) as usize),
        _ => digits.to_owned(),
    };
    let plain = match plain.contains('.') {
        true => plain.trim_end_matches('0').trim_end_matches('.'),
        false => &plain,
    };
    match exponent {
        -5..=5 => plain.to_owned(),
        _ => format!("{plain}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}

/// Draws a histogram as a line of text with one character per bin.
pub fn bars(counts: &[u64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let bar = |count: u64| match count {
        0 => ' ',
        // The smallest bar is still visible.
        count => BARS[(count as f64 / most as f64 * 7.999) as usize % 8],
    };
    counts.iter().map(|count| bar(*count)).collect()
}

fn fits(value: i128) -> bool {
    value.unsigned_abs() <= 1 << 53
}

/// Formats counts: `3 NaN, 1 infinite`.
pub fn non_finite_counts(nan: u64, inf: u64) -> String {
    match (nan, inf) {
        (0, inf) => format!("{} infinite", grouped(inf)),
        (nan, 0) => format!("{} NaN", grouped(nan)),
        (nan, inf) => format!("{} NaN, {} infinite", grouped(nan), grouped(inf)),
    }
}

/// Formats counts: `1 NaN in 1 tensor`; `None` if both are 0.
pub fn non_finite_text(nan: u64, inf: u64, count: u64) -> Option<String> {
    (nan > 0 || inf > 0)
        .then(|| format!("{} in {}", non_finite_counts(nan, inf), counted(count, "tensor")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_short_numbers() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0186251, "-0.01863"),
            (123456.0, "123456"),
            (1234567.0, "1.235e+06"),
            (1.5, "1.5"),
            (-1e-9, "-1e-09"),
            (2f64.powi(63), "9.223e+18"),
            (f64::INFINITY, "inf"),
            (100.0, "100"),
        ] {
            assert_eq!(number_text(value), text);
        }
    }

    #[test]
    fn converts_offsets_to_indices() {
        assert_eq!(index(&[2, 3, 4], 23), [1, 2, 3]);
        assert_eq!(index(&[], 0), Vec::<u64>::new());
        assert_eq!(index_shape(&[2, 8], 32), [2, 16]);
        assert_eq!(bars(&[0, 1, 100, 50]), " ▁█▄");
    }
}
