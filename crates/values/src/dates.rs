//! NumPy's dates as ISO 8601.

/// Formats a `datetime64` with a code like `M8[ns]` or `M8[25s]`. Returns `None` for unsupported
/// units, and for years that do not have four digits.
pub(crate) fn text(code: &str, count: i64) -> Option<String> {
    let unit = code.split_once('[')?.1.strip_suffix(']')?;
    let digits = unit.find(|c: char| !c.is_ascii_digit())?;
    let (step, unit) = unit.split_at(digits);
    let step: i128 = if step.is_empty() { 1 } else { step.parse().ok()? };
    let count = i128::from(count).checked_mul(step)?;
    // Ticks per second, and the number of decimals.
    let (per_second, decimals) = match unit {
        "Y" => return year(count.checked_add(1970)?).map(|year| format!("{year:04}")),
        "M" => {
            let year = year(count.div_euclid(12).checked_add(1970)?)?;
            return Some(format!("{year:04}-{:02}", count.rem_euclid(12) + 1));
        }
        "W" => return date(count.checked_mul(7)?),
        "D" => return date(count),
        "h" => return time(count.checked_mul(3600)?, 0, 0).map(|text| text[..13].to_owned()),
        "m" => return time(count.checked_mul(60)?, 0, 0).map(|text| text[..16].to_owned()),
        "s" => (1, 0),
        "ms" => (1_000, 3),
        "us" => (1_000_000, 6),
        "ns" => (1_000_000_000, 9),
        "ps" => (1_000_000_000_000, 12),
        "fs" => (1_000_000_000_000_000, 15),
        "as" => (1_000_000_000_000_000_000, 18),
        _ => return None,
    };
    time(count.div_euclid(per_second), count.rem_euclid(per_second), decimals)
}

fn time(seconds: i128, fraction: i128, decimals: usize) -> Option<String> {
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let text = format!("{}T{hour:02}:{minute:02}:{second:02}", date(day)?);
    Some(match decimals {
        0 => text,
        decimals => format!("{text}.{fraction:0decimals$}"),
    })
}

fn year(year: i128) -> Option<i128> {
    (0..=9999).contains(&year).then_some(year)
}

/// Returns the date `days` days after 1970-01-01 (Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms").
fn date(days: i128) -> Option<String> {
    let shifted = days.checked_add(719_468)?;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * of_era + of_era / 4 - of_era / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let of_year = of_era + era * 400 + i128::from(month <= 2);
    Some(format!("{:04}-{month:02}-{day:02}", year(of_year)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_dates_as_numpy_does() {
        // Expected values are str(numpy.datetime64(count, unit)) of numpy 2.4.
        for (code, count, wanted) in [
            ("M8[ns]", 1_700_000_000_123_456_789, "2023-11-14T22:13:20.123456789"),
            ("M8[s]", 0, "1970-01-01T00:00:00"),
            ("M8[s]", -1, "1969-12-31T23:59:59"),
            ("M8[D]", 11_016, "2000-02-29"),
            ("M8[M]", -1, "1969-12"),
            ("M8[Y]", 54, "2024"),
            ("M8[h]", 1, "1970-01-01T01"),
            ("M8[m]", 61, "1970-01-01T01:01"),
            ("M8[W]", 1, "1970-01-08"),
            ("M8[25s]", 2, "1970-01-01T00:00:50"),
            ("M8[ms]", -1, "1969-12-31T23:59:59.999"),
        ] {
            assert_eq!(text(code, count).as_deref(), Some(wanted), "{code}");
        }
        for (code, count) in [("M8", 1), ("M8[Y]", 1 << 40), ("M8[as", 1), ("M8[q]", 1)] {
            assert_eq!(text(code, count), None, "{code}");
        }
    }
}
