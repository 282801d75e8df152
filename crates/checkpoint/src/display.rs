//! Numbers, shapes and lists for display.

use std::fmt::Write as _;

/// Formats `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a count with its noun: `1 key`, `2,000 keys`.
pub fn counted(number: u64, noun: &str) -> String {
    let end = match (number, noun.as_bytes().last()) {
        (1, _) => "",
        (_, Some(b's')) => "es",
        _ => "s",
    };
    format!("{} {noun}{end}", grouped(number))
}

/// Names the place of a flat key in a text: the key, or `the root` for the empty one.
pub fn place_text(key: &str) -> &str {
    if key.is_empty() { "the root" } else { key }
}

/// Formats the first of some names, and how many more there are: `a, b and 1,234 more`.
pub fn listed<Name: AsRef<str>>(names: &[Name], most: usize) -> String {
    let few: Vec<&str> = names.iter().take(most).map(AsRef::as_ref).collect();
    let few = few.join(", ");
    match names.len().saturating_sub(most) {
        0 => few,
        more => format!("{few} and {} more", grouped(more as u64)),
    }
}

/// Returns whether a word is one of `words`, which white space separates.
pub fn has_word(words: &str, word: &str) -> bool {
    words.split_ascii_whitespace().any(|known| known == word)
}

/// Formats a shape like torch: `[2, 3]`; `[]` for a scalar.
pub fn shape_text(shape: &[u64]) -> String {
    let mut text = String::from("[");
    for (at, dim) in shape.iter().enumerate() {
        text.push_str(if at > 0 { ", " } else { "" });
        // Writing to a string can't fail.
        let _ = write!(text, "{dim}");
    }
    text.push(']');
    text
}

/// Capitalises the first letter, unless the first word is a name: it contains a dot, a slash, an
/// underscore or a digit, as `config.json` does.
pub fn capitalised(text: &str) -> String {
    let word = text.split_whitespace().next().unwrap_or_default();
    let word = word.trim_end_matches(['.', ',', ':', ';', '!', '?']);
    if word.contains(|c: char| matches!(c, '.' | '/' | '\\' | '_') || c.is_ascii_digit()) {
        return text.to_owned();
    }
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Formats bytes in decimal units with three digits: `1.23 MB`; small numbers exactly: `12 bytes`.
pub fn size_text(bytes: u64) -> String {
    sized(bytes, "bytes")
}

/// Like [`size_text`], for tables and other narrow places: `12 B`.
pub fn size_short(bytes: u64) -> String {
    sized(bytes, "B")
}

/// Formats bytes with three digits, rounded half up; `unit` is the unit of numbers below 1,000.
fn sized(bytes: u64, unit: &str) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1_000 {
        return format!("{bytes} {unit}");
    }
    // The digits after the first, as an exponent.
    let mut more = bytes.ilog10();
    let step = 10u64.pow(more - 2);
    let mut value = bytes / step + u64::from(bytes % step >= step / 2);
    if value == 1_000 {
        (value, more) = (100, more + 1);
    }
    let unit = UNITS[more as usize / 3 - 1];
    match more % 3 {
        0 => format!("{}.{:02} {unit}", value / 100, value % 100),
        1 => format!("{}.{} {unit}", value / 10, value % 10),
        _ => format!("{value} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_not_capitalise_names() {
        assert_eq!(capitalised("the file is empty"), "The file is empty");
        assert_eq!(capitalised("done."), "Done.");
        assert_eq!(capitalised("config.json does not fit"), "config.json does not fit");
        assert_eq!(capitalised("a/b.pt: damaged"), "a/b.pt: damaged");
        assert_eq!(capitalised("bfloat16 has no place"), "bfloat16 has no place");
        assert_eq!(capitalised(""), "");
    }

    #[test]
    fn counts_use_singular_and_plural() {
        assert_eq!(counted(1, "tensor"), "1 tensor");
        assert_eq!(counted(2304, "tensor"), "2,304 tensors");
        assert_eq!(counted(0, "alias"), "0 aliases");
    }

    #[test]
    fn long_lists_end_with_a_count() {
        let names: Vec<String> = (0..10).map(|at| format!("k{at}")).collect();
        assert_eq!(listed(&names, 4), "k0, k1, k2, k3 and 6 more");
        assert_eq!(listed(&names[..2], 4), "k0, k1");
        assert_eq!(listed(&names[..0], 4), "");
    }

    #[test]
    fn groups_digits_by_three() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn formats_sizes_for_people() {
        assert_eq!(size_text(999), "999 bytes");
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.00 kB"),
            (1_234, "1.23 kB"),
            (1_235, "1.24 kB"),
            (9_994, "9.99 kB"),
            (9_999, "10.0 kB"),
            (12_345_678, "12.3 MB"),
            (262_144, "262 kB"),
            (999_499, "999 kB"),
            (999_500, "1.00 MB"),
            (13_476_889_245, "13.5 GB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(size_short(bytes), text);
        }
    }
}
