//! Returns the first keys of a large file before its tree is parsed. The tree has the length of all
//! keys together, twice, but begins with a plain form of them.

use statelens_checkpoint::json::Parser;
use statelens_checkpoint::{Result, Text};

use super::{FIRST, join};

/// Smaller trees (in bytes) are parsed in a moment, so nothing is reported in advance.
const LARGE: usize = 1 << 20;
/// The maximum depth of nested dicts that are searched.
const DEEPEST: usize = 16;

/// Returns the first flat keys of a large tree, or nothing for a small one.
pub(super) fn keys(spec: &[u8]) -> Vec<Text> {
    if spec.len() < LARGE { Vec::new() } else { leaves(spec) }
}

/// Returns the flat keys of the first dict with values, up to the first value that is a container.
fn leaves(spec: &[u8]) -> Vec<Text> {
    let mut found = Vec::new();
    // Truncated or unexpected text ends the list.
    drop(gather(&mut Parser::lenient(spec), &mut found));
    found
}

fn gather(parser: &mut Parser<'_>, found: &mut Vec<Text>) -> Result<()> {
    let mut path: Option<Text> = None;
    parser.array()?;
    parser.item(&mut true)?;
    for _ in 0..DEEPEST {
        parser.object()?;
        let mut first = true;
        let inner = loop {
            let Some(name) = parser.entry(&mut first)? else { return Ok(()) };
            let flat = path.as_ref().map_or_else(|| name.clone(), |path| join(path, &name));
            if parser.at_text() {
                parser.text()?;
                found.push(flat);
                if found.len() == FIRST {
                    return Ok(());
                }
            } else if found.is_empty() {
                break flat;
            } else {
                return Ok(());
            }
        };
        path = Some(inner);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_keys_are_those_of_the_first_dict_with_values() {
        let leaves = |spec: &str| {
            let found = leaves(spec.as_bytes());
            found.iter().map(|key| key.to_string()).collect::<Vec<_>>()
        };
        let of_two = r#"[ {"model": {"a.b": "*", "c": "*", "d": {"e": "*"}}, "x": "*"}, "[1,"#;
        assert_eq!(leaves(of_two), ["model.a.b", "model.c"]);
        assert_eq!(leaves(r#"[{"a": "*", "b": "*", "c": "#), ["a", "b"]);
        assert_eq!(leaves(r#"[{"a": {"b": {}}}"#), [""; 0]);
        assert_eq!(leaves("[[1]]"), [""; 0]);
        let many: Vec<String> = (0..1000).map(|at| format!(r#""k{at}": "*""#)).collect();
        assert_eq!(leaves(&format!("[{{{}}}]", many.join(","))).len(), FIRST);
        assert!(leaves(&r#"[{"a":"#.repeat(100_000)).is_empty());
    }
}
