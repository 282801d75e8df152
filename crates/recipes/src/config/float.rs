//! Numbers as Python prints them.

/// As Python's `repr(float)`: the fewest digits that read back the same.
pub(super) fn repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::repr;

    #[test]
    fn as_python_prints_them() {
        let expected = [
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e22, "1e+22"),
            (5e-324, "5e-324"),
            (1.5e300, "1.5e+300"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "nan"),
        ];
        for (number, text) in expected {
            assert_eq!(repr(number), text);
        }
    }
}
