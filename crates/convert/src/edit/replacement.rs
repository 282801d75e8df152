//! Group references in replacements.

use regex_lite::Regex;
use statelens_checkpoint::{Error, Result};

/// Returns the replacement with every group in braces: `$1_x` is group 1 and `_x`, where the
/// library would take the longest possible name. A number ends with its digits, unless a group has
/// the longer name. Fails if the expression has no such group.
pub(super) fn braced(pattern: &Regex, replacement: &str) -> Result<String> {
    let mut out = String::with_capacity(replacement.len());
    let mut rest = replacement;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(after) = after.strip_prefix('$') {
            out.push_str("$$");
            rest = after;
            continue;
        }
        let inner = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let (name, after) = match inner {
            Some(found) => found,
            None => bare(pattern, after),
        };
        if name.is_empty() {
            // A literal dollar sign.
            out.push_str("$$");
            rest = &rest[at + 1..];
            continue;
        }
        if !has_group(pattern, name) {
            return Err(Error::refused(format!(
                "the expression has no group `{name}` for the replacement `{replacement}`"
            ))
            .advice(
                "Put that part of the expression in parentheses: (\\d+) is $1. ${1} is the same \
                 where a digit follows, and $$ is a dollar sign.",
            ));
        }
        out.push_str("${");
        out.push_str(name);
        out.push('}');
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Splits off the group name at the start of a text without braces.
fn bare<'a>(pattern: &Regex, text: &'a str) -> (&'a str, &'a str) {
    let end = |within: fn(char) -> bool| text.find(|c| !within(c)).unwrap_or(text.len());
    let long = end(|c| c.is_ascii_alphanumeric() || c == '_');
    let digits = end(|c| c.is_ascii_digit());
    match digits > 0 && !has_group(pattern, &text[..long]) {
        true => text.split_at(digits),
        false => text.split_at(long),
    }
}

fn has_group(pattern: &Regex, name: &str) -> bool {
    match name.parse::<usize>() {
        Ok(number) => number < pattern.captures_len(),
        Err(_) => pattern.capture_names().flatten().any(|known| known == name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_number_ends_after_its_digits() {
        let pattern = Regex::new(r"(\d+)(?<name>x)").unwrap();
        for (replacement, expected) in [
            ("h.$1_x", "h.${1}_x"),
            ("$1a$2", "${1}a${2}"),
            ("${1}0$$", "${1}0$$"),
            ("$name.$0", "${name}.${0}"),
            ("costs $ 5", "costs $$ 5"),
        ] {
            assert_eq!(braced(&pattern, replacement).unwrap(), expected);
        }
        for bad in ["$3", "$10", "${x}", "$name_x", "$x"] {
            assert!(braced(&pattern, bad).is_err(), "{bad}");
        }
    }
}
