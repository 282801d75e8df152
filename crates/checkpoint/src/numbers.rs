//! Numbers in names: splits names at their number, and formats the numbers of many names as ranges.

use crate::order;

/// Maximum number of ranges in a label; of more, only the first ones and the last are written, with
/// `…` in between.
const MAX_RANGES: usize = 4;

/// A name split at its last number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered<'a> {
    /// The text before the number.
    pub before: &'a str,
    /// The number as it is written.
    pub digits: &'a str,
    /// The text after the number.
    pub after: &'a str,
    /// The number.
    pub number: u64,
}

impl<'a> Numbered<'a> {
    /// Splits a name; `None` if it contains no number, or one of more than 18 digits.
    #[inline]
    pub fn of(name: &'a str) -> Option<Self> {
        let is_digit = |byte: &u8| byte.is_ascii_digit();
        let end = name.bytes().rposition(|byte| is_digit(&byte))? + 1;
        let start = name.as_bytes()[..end].iter().rposition(|byte| !is_digit(byte));
        let start = start.map_or(0, |at| at + 1);
        // Slicing next to an ASCII digit is always at a character boundary.
        let (digits, number) = name
            .get(start..end)
            .and_then(|digits| (digits.len() <= 18).then_some(digits).zip(digits.parse().ok()))?;
        Some(Self { before: &name[..start], digits, after: &name[end..], number })
    }

    /// Returns true if the name is only a number.
    #[inline]
    pub fn is_all(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }
}

/// Returns the key with `*` for each component that is a number, and those numbers.
pub fn pattern(key: &str, dot: char) -> (String, Vec<u64>) {
    let (mut out, mut numbers) = (String::with_capacity(key.len()), Vec::new());
    for (at, part) in key.split(dot).enumerate() {
        if at > 0 {
            out.push(dot);
        }
        match Numbered::of(part).filter(Numbered::is_all) {
            Some(found) => {
                numbers.push(found.number);
                out.push('*');
            }
            None => out.push_str(part),
        }
    }
    (out, numbers)
}

/// Joins keys of the same [`pattern`] into one, with the ranges of each number:
/// `layers.0–31.weight`. `None` if their patterns differ, or there are no keys.
pub fn joined<'a>(mut keys: impl Iterator<Item = &'a str>, dot: char) -> Option<String> {
    let first = keys.next()?;
    let (wanted, numbers) = pattern(first, dot);
    let mut places: Vec<Vec<u64>> = numbers.into_iter().map(|number| vec![number]).collect();
    for key in keys {
        let (other, numbers) = pattern(key, dot);
        if other != wanted {
            return None;
        }
        places.iter_mut().zip(numbers).for_each(|(place, number)| place.push(number));
    }
    let mut places = places.into_iter();
    let parts = first.split(dot).map(|part| match Numbered::of(part).filter(Numbered::is_all) {
        Some(_) => match places.next().as_deref() {
            // A component that is the same in all keys is copied, including leading zeros.
            Some(numbers) if numbers.iter().any(|number| *number != numbers[0]) => label(numbers),
            _ => part.to_owned(),
        },
        None => part.to_owned(),
    });
    Some(parts.collect::<Vec<String>>().join(dot.encode_utf8(&mut [0; 4])))
}

/// Formats numbers, given in any order, as ranges: `0–2,4–31`. Many ranges are shortened to the
/// first ones and the last: `0,2,4,…,62`.
pub fn label(numbers: &[u64]) -> String {
    let mut sorted = numbers.to_vec();
    order::natural(&mut sorted);
    sorted.dedup();
    let texts: Vec<String> = sorted.iter().map(u64::to_string).collect();
    let members = sorted.iter().zip(&texts).map(|(number, text)| (*number, text.as_str()));
    ranges(members)
}

/// Formats ascending numbers, given with their digits, as ranges.
pub fn ranges<'a>(members: impl Iterator<Item = (u64, &'a str)>) -> String {
    let mut ranges: Vec<(&str, &str)> = Vec::new();
    let mut before = None;
    for (number, text) in members {
        match ranges.last_mut() {
            Some(range) if before.and_then(|before: u64| before.checked_add(1)) == Some(number) => {
                range.1 = text;
            }
            _ => ranges.push((text, text)),
        }
        before = Some(number);
    }
    let mut out = String::new();
    let left_out = (MAX_RANGES - 1)..ranges.len().saturating_sub(1);
    for (at, (first, last)) in ranges.iter().enumerate() {
        if ranges.len() > MAX_RANGES && left_out.contains(&at) {
            if at == left_out.start {
                out.push_str(",\u{2026}");
            }
            continue;
        }
        if at > 0 {
            out.push(',');
        }
        out.push_str(first);
        if first != last {
            out.push('\u{2013}');
            out.push_str(last);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_names_at_the_last_number() {
        let parts = |name| {
            Numbered::of(name).map(|found| (found.before, found.digits, found.after, found.number))
        };
        assert_eq!(parts("12"), Some(("", "12", "", 12)));
        assert_eq!(parts("conv2d_07é"), Some(("conv2d_", "07", "é", 7)));
        assert_eq!(parts("layers"), None);
        assert_eq!(parts(""), None);
        assert_eq!(parts("99999999999999999999"), None);
        assert_eq!(pattern("h.10.mlp_3.2.w", '.'), ("h.*.mlp_3.*.w".to_owned(), vec![10, 2]));
    }

    #[test]
    fn joins_keys_of_one_pattern() {
        let one = |keys: &[&str]| joined(keys.iter().copied(), '.');
        assert_eq!(one(&["h.10.w", "h.0.w", "h.1.w"]), Some("h.0\u{2013}1,10.w".to_owned()));
        assert_eq!(one(&["h.01.e.2", "h.01.e.3"]), Some("h.01.e.2\u{2013}3".to_owned()));
        assert_eq!(one(&["h.1.w", "g.1.w"]), None);
        assert_eq!(one(&[]), None);
    }

    #[test]
    fn prints_numbers_as_ranges() {
        assert_eq!(label(&[3]), "3");
        assert_eq!(label(&[1, 10, 0, 2, 2]), "0\u{2013}2,10");
        assert_eq!(label(&[0, 2, 4, 6]), "0,2,4,6");
        assert_eq!(
            label(&[0, 1, 4, 6, 8, 9, 11, u64::MAX]),
            format!("0\u{2013}1,4,6,\u{2026},{}", u64::MAX)
        );
        assert_eq!(label(&[]), "");
    }
}
