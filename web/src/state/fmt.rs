//! Formats numbers and keys.

/// Formats a count with its noun: `1 tensor`, `2,304 tensors`.
pub use statelens_checkpoint::counted as plural;
/// Formats an exact count with commas: `13,476,889,245`.
pub use statelens_checkpoint::grouped as exact;
/// Formats bytes in decimal units: `13.5 GB`, `262 MB`, `8.19 kB`, `4 B`.
pub use statelens_checkpoint::size_short as bytes;
use statelens_checkpoint::{known_key, visible};

/// Formats a count in short: `6.74 B`, `131.07 M`, `4.10 k`, `291`.
pub fn count(count: u64) -> String {
    const UNITS: [&str; 6] = ["k", "M", "B", "T", "Q", "Qi"];
    let mut value = count as f64;
    let mut unit = None;
    // 999,995 would read "1000.00 k": switch to the next unit where rounding would reach it.
    for name in UNITS {
        if value < if unit.is_none() { 1000.0 } else { 999.95 } {
            break;
        }
        value /= 1000.0;
        unit = Some(name);
    }
    unit.map_or_else(|| count.to_string(), |unit| format!("{value:.2} {unit}"))
}

/// Formats a shape: `[4096, 11008]`.
pub fn shape(dims: &[u64]) -> String {
    let dims: Vec<String> = dims.iter().map(u64::to_string).collect();
    format!("[{}]", dims.join(", "))
}

/// Quotes a word of a command for a shell.
pub fn quoted(word: &str) -> String {
    let plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '=' | ',' | ':');
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Replaces a leading `-`, and that of an exponent, by a true minus sign, for display; copied
/// numbers keep `-`.
pub fn minus(text: &str) -> String {
    if text.contains("e-") && text.parse::<f64>().is_ok() {
        return text.replace('-', "\u{2212}");
    }
    match text.strip_prefix('-') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit() || c == 'i') => {
            format!("\u{2212}{rest}")
        }
        _ => text.to_owned(),
    }
}

/// Formats a float for a narrow cell, with at most four significant digits; the result is never
/// longer than the input.
pub fn cell(text: &str) -> String {
    let Ok(number) = text.parse::<f64>() else { return text.to_owned() };
    if !number.is_finite() || !text.contains(['.', 'e']) {
        return minus(text);
    }
    let size = number.abs();
    let short = if size != 0.0 && !(1e-3..1e5).contains(&size) {
        format!("{number:.2e}")
    } else {
        let places = if size >= 1000.0 {
            1
        } else if size >= 100.0 {
            2
        } else if size >= 10.0 {
            3
        } else {
            4
        };
        format!("{number:.places$}")
    };
    minus(if short.len() < text.len() { &short } else { text })
}

/// Formats a duration: `0.21 s`, `34.6 s`, `4 min 10 s`.
pub fn seconds(millis: f64) -> String {
    let seconds = millis / 1000.0;
    if seconds < 10.0 {
        format!("{seconds:.2} s")
    } else if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else {
        whole_seconds(seconds)
    }
}

/// Formats the time left, to the second up to 90 s, then to 10 s.
pub fn time_left(millis: f64) -> String {
    let seconds = (millis / 1000.0).ceil();
    whole_seconds(if seconds > 90.0 { (seconds / 10.0).round() * 10.0 } else { seconds })
}

fn whole_seconds(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, 0) => format!("{m} min"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// Formats a rate: `392 MB/s`.
pub fn rate(bytes_done: u64, millis: f64) -> String {
    if millis <= 0.0 {
        return String::new();
    }
    format!("{}/s", bytes((bytes_done as f64 * 1000.0 / millis) as u64))
}

/// Returns a percentage, rounded down; it is 100 only if the part is the whole.
pub fn percent(part: u64, whole: u64) -> u32 {
    if whole == 0 || part >= whole {
        return 100;
    }
    (part as f64 / whole as f64 * 100.0).floor().min(99.0) as u32
}

/// Splits a key into a prefix, which is dimmed and truncated first, and an informative end.
///
/// The end is the last segment, or the last two if the last one alone says little. The suffix that
/// TensorFlow adds to every variable of an object graph is left out.
pub fn key_parts(key: &str) -> (&str, &str) {
    let name = known_key(key);
    let dots: Vec<usize> = name
        .match_indices(['.', '/'])
        .map(|(at, _)| at + 1)
        .filter(|&at| at < name.len())
        .collect();
    let Some(&last) = dots.last() else { return ("", name) };
    // A number alone is not informative: `params.3`, `ln_1.weight` and `0.lr` keep the segment
    // before it.
    let cut = match dots.len() {
        1 if name[last..].chars().all(|c| c.is_ascii_digit()) => 0,
        1 => last,
        n => {
            let word = &name[dots[n - 2]..last - 1];
            let short_tail = matches!(&name[last..], "weight" | "bias")
                || name[last..].chars().all(|c| c.is_ascii_digit());
            if short_tail && !word.is_empty() { dots[n - 2] } else { last }
        }
    };
    name.split_at(cut)
}

/// Texts with more characters than this are shortened.
const MAX_TEXT: usize = 300;

/// Returns the beginning and the end of a very long text; `None` for others.
pub fn ends(text: &str) -> Option<(&str, &str)> {
    text.char_indices().nth(MAX_TEXT)?;
    let (start, _) = text.char_indices().nth(MAX_TEXT / 3)?;
    let (end, _) = text.char_indices().rev().nth(MAX_TEXT / 3)?;
    Some((&text[..start], &text[end..]))
}

/// Escapes the invisible characters of a text, and leaves out the middle of a very long one.
pub fn shortened(text: &str) -> String {
    let text = visible(text);
    ends(&text).map(|(start, end)| format!("{start} \u{2026} {end}")).unwrap_or(text)
}

/// Describes the place of a value in its file.
pub fn in_file(byte: u64) -> String {
    format!("byte {} of the file", exact(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_counts() {
        for (number, expected) in
            [(291, "291"), (4096, "4.10 k"), (131_072_000, "131.07 M"), (6_738_415_616, "6.74 B")]
        {
            assert_eq!(count(number), expected);
        }
        assert_eq!(exact(13_476_889_245), "13,476,889,245");
        assert_eq!(exact(0), "0");
    }

    #[test]
    fn commands_are_quoted_for_a_shell() {
        assert_eq!(quoted("a-b_c.mdl"), "a-b_c.mdl");
        assert_eq!(quoted("optimizer.*"), "'optimizer.*'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn cells_are_short_and_signed() {
        for (text, expected) in [
            ("-0.003890991", "\u{2212}0.0039"),
            ("0.1", "0.1"),
            ("1e-08", "1e\u{2212}08"),
            ("-1.2345678e-12", "\u{2212}1.23e\u{2212}12"),
            ("5000", "5000"),
            ("-7", "\u{2212}7"),
            ("nan", "nan"),
            ("-inf", "\u{2212}inf"),
            ("True", "True"),
            ("12345.678", "12345.7"),
        ] {
            assert_eq!(cell(text), expected);
        }
    }

    #[test]
    fn formats_durations_and_rates() {
        assert_eq!(seconds(213.0), "0.21 s");
        assert_eq!(seconds(34_600.0), "34.6 s");
        assert_eq!(seconds(250_000.0), "4 min 10 s");
        assert_eq!(time_left(17_200.0), "18 s");
        assert_eq!(time_left(124_000.0), "2 min");
        assert_eq!(rate(392_000_000, 1000.0), "392 MB/s");
        assert_eq!(rate(1_450_000_000, 1000.0), "1.45 GB/s");
    }

    #[test]
    fn percent_is_100_only_when_done() {
        assert_eq!(percent(999_999, 1_000_000), 99);
        assert_eq!(percent(1_000_000, 1_000_000), 100);
        assert_eq!(percent(0, 0), 100);
    }

    #[test]
    fn key_parts_keep_the_end() {
        for (key, head, tail) in [
            ("global_step", "", "global_step"),
            ("a.b", "a.", "b"),
            ("d.0", "", "d.0"),
            ("model.model.lm_head.weight", "model.model.", "lm_head.weight"),
            ("optimizer.param_groups.0.lr", "optimizer.param_groups.0.", "lr"),
            ("optimizer.param_groups.0.params.3", "optimizer.param_groups.0.", "params.3"),
            ("a/w/.ATTRIBUTES/VARIABLE_VALUE", "a/", "w"),
            ("step/.ATTRIBUTES/VARIABLE_VALUE", "", "step"),
            ("x.", "", "x."),
            ("", "", ""),
        ] {
            assert_eq!(key_parts(key), (head, tail), "{key}");
        }
    }
}
