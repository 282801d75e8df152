//! The list of checkpoints that a run keeps.

use statelens_checkpoint::{Error, Result};

/// The name of the list in a run folder.
pub const INDEX: &str = "checkpoints_index.yaml";

/// Parses the list and returns its paths in order. It is YAML, restricted to a list of plain or
/// quoted strings; anything else is an error.
pub fn parse_index(text: &str) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || line == "---" || line == "[]" {
            continue;
        }
        let item = line.strip_prefix('-').filter(|rest| rest.starts_with(' '));
        match item.map(str::trim).and_then(string) {
            Some(path) => paths.push(path),
            None => {
                return Err(Error::damaged(format!("line {number} is not understood: {line}"))
                    .expected("a list of paths, one per line after `- `")
                    .in_file(INDEX));
            }
        }
    }
    Ok(paths)
}

fn string(text: &str) -> Option<String> {
    if let Some(inner) = text.strip_prefix('\'') {
        return Some(inner.strip_suffix('\'')?.replace("''", "'"));
    }
    if let Some(inner) = text.strip_prefix('"') {
        let inner = inner.strip_suffix('"')?;
        // Handles only the escapes that a path is likely to need.
        let mut out = String::new();
        let mut chars = inner.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.next()? {
                    c @ ('\\' | '"' | '/') => out.push(c),
                    _ => return None,
                },
                c => out.push(c),
            }
        }
        return Some(out);
    }
    let plain =
        !text.is_empty() && !text.starts_with(['[', '{', '&', '*', '!', '|', '>', '%', '@']);
    (plain && !text.contains(": ")).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_lists_of_paths() {
        let text =
            "- model_dir/checkpoint_5.mdl\n- 'it''s here/checkpoint_6.mdl'\n- \"a \\\"b\\\"\"\n";
        let expected = ["model_dir/checkpoint_5.mdl", "it's here/checkpoint_6.mdl", "a \"b\""];
        assert_eq!(parse_index(text).unwrap(), expected);
        assert_eq!(parse_index("[]\n").unwrap(), [""; 0]);
        assert_eq!(parse_index("").unwrap(), [""; 0]);
        for text in ["a: b", "- [a]", "-a", "- 'a", "- &x a"] {
            assert!(parse_index(text).is_err(), "{text}");
        }
    }
}
