//! Splits a line into words, calls with arguments, and quoted texts.

/// A call such as `split(1; q H, k H)`: its name and the text between the parentheses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecipeCall<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
}

/// Returns the line without a comment after ` #` and without spaces around it.
pub(super) fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted && before.is_whitespace() => return line[..at].trim(),
            _ => {}
        }
        before = c;
    }
    line.trim()
}

/// Returns the text before and after the last separate word `word` outside of quotes.
pub(crate) fn split_word<'a>(line: &'a str, word: &str) -> (&'a str, Option<&'a str>) {
    let mut quoted = false;
    let mut found = None;
    for (at, c) in line.char_indices() {
        quoted ^= c == '"';
        let alone = |rest: &str| rest.strip_prefix(word).is_some_and(|rest| rest.starts_with(' '));
        if !quoted && c == ' ' && alone(&line[at + 1..]) {
            found = Some(at);
        }
    }
    match found {
        Some(at) => (line[..at].trim(), Some(line[at + 1 + word.len()..].trim())),
        None => (line.trim(), None),
    }
}

/// Returns the first word and the rest.
pub(super) fn first_word(line: &str) -> (&str, &str) {
    match line.split_once(char::is_whitespace) {
        Some((word, rest)) => (word, rest.trim()),
        None => (line, ""),
    }
}

/// Parses a sequence of calls: `transpose split(1; q H, k H)`.
pub(super) fn calls(mut text: &str) -> Result<Vec<RecipeCall<'_>>, String> {
    let mut calls = Vec::new();
    loop {
        text = text.trim_start();
        if text.is_empty() {
            return Ok(calls);
        }
        let end = text.find(|c: char| c == '(' || c.is_whitespace()).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        if !rest.starts_with('(') {
            calls.push(RecipeCall { name, arguments: "" });
            text = rest;
            continue;
        }
        let close = closing(rest).ok_or_else(|| format!("`{name}(` is not closed"))?;
        calls.push(RecipeCall { name, arguments: rest[1..close].trim() });
        text = &rest[close + 1..];
    }
}

/// Splits arguments at each `by` outside of parentheses.
pub(super) fn arguments(text: &str, by: char) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut depth, mut start) = (0usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            c if c == by && depth == 0 => {
                found.push(text[start..at].trim());
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    if !text.trim().is_empty() {
        found.push(text[start..].trim());
    }
    found
}

/// Returns the position of the parenthesis that closes the one at the start of `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_lines() {
        assert_eq!(without_comment("  a.#b  # what"), "a.#b");
        assert_eq!(without_comment("x \"# no\" # yes"), "x \"# no\"");
        assert_eq!(split_word("a when b when c", "when"), ("a when b", Some("c")));
        assert_eq!(split_word("refuse \"a when b\"", "when"), ("refuse \"a when b\"", None));
        assert_eq!(arguments("q H, k max(a, b)", ','), ["q H", "k max(a, b)"]);
        let found = calls("transpose split(1; q (H), v H) x").unwrap();
        assert_eq!(found[1], RecipeCall { name: "split", arguments: "1; q (H), v H" });
        assert_eq!(found.len(), 3);
        assert!(calls("split(1").is_err());
    }
}
