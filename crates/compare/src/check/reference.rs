//! The keys that are expected of a checkpoint, and parsing of lists that people write.

use serde::Serialize;
use statelens_checkpoint::{Error, Result, shape_text};
use statelens_formats::manifest;

/// An expected key and its type, as far as known.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Expected {
    /// The flat key.
    pub key: String,
    /// Torch's name of the dtype, without `torch.`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// The shape; `None` if it is not a tensor, or if the shape is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<u64>>,
}

impl Expected {
    /// Formats the type as far as known: `float32 [2, 3]`.
    pub fn type_text(&self) -> String {
        let dtype = self.dtype.as_deref().unwrap_or("?");
        match (&self.shape, &self.dtype) {
            (None, None) => String::new(),
            (None, Some(dtype)) => dtype.clone(),
            (Some(shape), _) => format!("{dtype} {}", shape_text(shape)),
        }
    }
}

/// Returns whether a file with these first bytes may be a list or a manifest: it is text, and not a
/// web page or a Git LFS pointer.
pub fn is_text(head: &[u8]) -> bool {
    let other = [&b"<"[..], b"version https://git-lfs"];
    !head.is_empty()
        && !head.iter().any(|byte| *byte < 9 || *byte == 0x7f)
        && !other.iter().any(|start| head.trim_ascii_start().starts_with(start))
}

/// Parses a manifest or a list of keys; `None` if it is neither.
pub fn parse_reference(text: &[u8]) -> Result<Option<Vec<Expected>>> {
    let start = text.trim_ascii_start();
    if start.starts_with(b"{") || start.starts_with(b"[") {
        // JSON that is not a manifest may be the index of a sharded checkpoint.
        let (entries, _) = manifest::read(text)?;
        let expected = entries.into_iter().map(|entry| Expected {
            key: entry.key.to_lossy().into_owned(),
            dtype: entry.dtype,
            shape: entry.shape,
        });
        return Ok(Some(expected.collect()).filter(|list: &Vec<_>| !list.is_empty()));
    }
    std::str::from_utf8(text).ok().map(parse_list).transpose()
}

/// Parses a list of keys, one per line: `key dtype shape`, where the shape, or both dtype and
/// shape, are optional. A shape is `[2, 3]`, `(2, 3)`, `2,3` or `2x3`; `[]` is a scalar; the dtype
/// `?` matches any. Empty lines and lines that start with `#` are skipped. Lines of `statelens
/// manifest`, with four tab-separated columns, are accepted as well.
pub fn parse_list(text: &str) -> Result<Vec<Expected>> {
    let mut list = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end();
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let one = match line.split('\t').collect::<Vec<_>>().as_slice() {
            [_value, dtype, shape, key] => parts(key, Some(dtype), Some(shape), true),
            _ => parse_line(line),
        };
        list.push(one.ok_or_else(|| {
            Error::refused(format!(
                "line {number} is not of the form `key dtype shape`: `{}`",
                cut(line)
            ))
            .expected("for example `model.norm.weight float32 [32]`")
        })?);
    }
    match list.is_empty() {
        true => Err(Error::refused("it has no keys")),
        false => Ok(list),
    }
}

fn cut(line: &str) -> String {
    statelens_checkpoint::visible(&line.chars().take(80).collect::<String>())
}

fn parse_line(line: &str) -> Option<Expected> {
    let line = line.trim();
    // A shape in brackets may contain spaces.
    if line.ends_with([']', ')']) {
        let open = line.rfind(['[', '('])?;
        let (head, shape) = line.split_at(open);
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), dtype, None) => parts(key, dtype, Some(shape), false),
            _ => None,
        };
    }
    let mut words = line.split_whitespace();
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(key), dtype, shape, None) => parts(key, dtype, shape, false),
        _ => None,
    }
}

/// Parses columns. In a manifest, only tensors have a shape; the dtype of other values is their
/// kind, which is ignored.
fn parts(key: &str, dtype: Option<&str>, shape: Option<&str>, manifest: bool) -> Option<Expected> {
    let dtype = dtype.filter(|dtype| *dtype != "?");
    let dtype = dtype.map(|dtype| dtype.strip_prefix("torch.").unwrap_or(dtype).to_owned());
    let shape = match shape {
        None => None,
        Some("") if manifest => None,
        Some(shape) => Some(parse_shape(shape)?),
    };
    let dtype = dtype.filter(|_| !manifest || shape.is_some());
    Some(Expected { key: key.to_owned(), dtype, shape })
}

fn parse_shape(text: &str) -> Option<Vec<u64>> {
    let inner = text.trim().trim_start_matches(['[', '(']).trim_end_matches([']', ')']);
    let between = if inner.contains(',') { ',' } else { 'x' };
    // Python writes a one-dimensional shape with a trailing comma.
    let inner = inner.trim().trim_end_matches(',');
    if inner.is_empty() {
        return Some(Vec::new());
    }
    inner.split(between).map(|dim| dim.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: &str, dtype: Option<&str>, shape: Option<&[u64]>) -> Expected {
        Expected {
            key: key.into(),
            dtype: dtype.map(str::to_owned),
            shape: shape.map(<[u64]>::to_vec),
        }
    }

    #[test]
    fn parses_handwritten_lists() {
        let list = parse_list(
            "# what we expect\n\na.w float32 [2, 3]\nb torch.bfloat16 (4,)\nc ? 5x6\nd float16 7,8\n\
             e\nf int64 []\ng [2]\nhash\tfloat32\t[2]\th i\n3\tint\t\tj\n",
        )
        .unwrap();
        assert_eq!(
            list,
            [
                one("a.w", Some("float32"), Some(&[2, 3])),
                one("b", Some("bfloat16"), Some(&[4])),
                one("c", None, Some(&[5, 6])),
                one("d", Some("float16"), Some(&[7, 8])),
                one("e", None, None),
                one("f", Some("int64"), Some(&[])),
                one("g", None, Some(&[2])),
                one("h i", Some("float32"), Some(&[2])),
                one("j", None, None),
            ]
        );
    }

    #[test]
    fn distinguishes_lists_from_other_text() {
        for (head, is) in [
            ("a float32 [2]\n", true),
            ("{\"entries\":[]}", true),
            ("", false),
            ("\u{1}", false),
            ("\n<!DOCTYPE html>", false),
            ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", false),
        ] {
            assert_eq!(is_text(head.as_bytes()), is, "{head}");
        }
        let list = parse_reference(b"a float32 [2]").unwrap().unwrap();
        assert_eq!(list, parse_list("a float32 [2]").unwrap());
        assert_eq!(parse_reference(b"\xff a").unwrap(), None);
        assert!(parse_reference(b"{").is_err());
    }

    #[test]
    fn reports_invalid_lines_with_their_number() {
        for (text, said) in [
            ("a float32 [2]\nb float32 2 3 4", "line 2"),
            ("a float32 [2, x]", "line 1"),
            ("# nothing", "no key"),
        ] {
            let error = parse_list(text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
