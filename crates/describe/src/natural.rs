//! Natural sort order: `h.2` before `h.10`.

use std::cmp::Ordering;

/// Compares two keys: runs of digits as numbers, everything else by characters.
pub fn natural_order(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one, other);
    loop {
        let (left, right) = (digits(one), digits(other));
        if !left.is_empty() && !right.is_empty() {
            let (short, long) = (left.trim_start_matches('0'), right.trim_start_matches('0'));
            let order = short.len().cmp(&long.len()).then_with(|| short.cmp(long));
            // `007` and `7` are the same number; the shorter text comes first.
            let order = order.then_with(|| left.len().cmp(&right.len()));
            if order.is_ne() {
                return order;
            }
            (one, other) = (&one[left.len()..], &other[right.len()..]);
            continue;
        }
        let (mut rest_one, mut rest_other) = (one.chars(), other.chars());
        match (rest_one.next(), rest_other.next()) {
            (None, None) => return Ordering::Equal,
            (left, right) if left != right => return left.cmp(&right),
            _ => (one, other) = (rest_one.as_str(), rest_other.as_str()),
        }
    }
}

/// Returns the leading digits of a text.
fn digits(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_numbers_numerically() {
        let mut keys = ["h.10.w", "h.2.w", "h.2.b", "h", "h.02.w", "g.99", "h.2"];
        keys.sort_by(|one, other| natural_order(one, other));
        assert_eq!(keys, ["g.99", "h", "h.2", "h.2.b", "h.2.w", "h.02.w", "h.10.w"]);
    }
}
