//! The state file, `checkpoint`, which lists the checkpoints in a folder and names the latest.
//!
//! It is a `CheckpointState` message in text format
//! (`tensorflow/python/training/checkpoint_state.proto`), which TensorFlow writes with one field
//! per line.

use statelens_checkpoint::{Error, FileId, FileSet, Limits, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateFile {
    /// The prefix of the latest checkpoint, relative or absolute.
    pub(super) latest: String,
    /// The prefixes of all checkpoints that are kept, oldest first.
    pub(super) all: Vec<String>,
}

const LATEST: &str = "model_checkpoint_path";
const ALL: &str = "all_model_checkpoint_paths";

/// The maximum size read; TensorFlow never keeps so many checkpoints.
const MAX_BYTES: u64 = 1 << 20;

/// Returns whether the first bytes are those of a state file.
pub(super) fn is_state(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    [LATEST, ALL].iter().any(|name| {
        head.strip_prefix(name.as_bytes())
            .is_some_and(|rest| rest.trim_ascii_start().starts_with(b":"))
    })
}

impl StateFile {
    pub(super) fn read(files: &FileSet, id: FileId) -> Result<Self> {
        Limits::check("bytes of a state file", files.len(id), MAX_BYTES)?;
        let bytes = files.read_vec(id, 0, files.len(id))?;
        Self::parse(&bytes).map_err(|error| error.in_file(files.name(id)))
    }

    /// Returns the content for display.
    pub(super) fn facts(&self) -> [(String, String); 2] {
        let mut shown = self.all.iter().rev().take(10).cloned().collect::<Vec<_>>();
        shown.reverse();
        let more = match self.all.len() - shown.len() {
            0 => String::new(),
            more => format!("{more} older ones, "),
        };
        [
            ("Latest checkpoint".into(), self.latest.clone()),
            ("Checkpoints kept".into(), more + &shown.join(", ")),
        ]
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let (mut latest, mut all) = (None, Vec::new());
        let text = String::from_utf8_lossy(bytes);
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let Some(value) = quoted(value.trim()) else { continue };
            match name.trim() {
                LATEST => latest = Some(value),
                ALL => all.push(value),
                _ => {}
            }
        }
        match latest.or_else(|| all.last().cloned()).filter(|path| !path.is_empty()) {
            Some(latest) => Ok(Self { latest, all }),
            None => Err(Error::damaged("the state file names no checkpoint")
                .expected(format!("a line {LATEST}: \"…\""))),
        }
    }
}

/// Parses a string in quotes, with C escapes.
fn quoted(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut bytes = Vec::new();
    let mut rest = inner.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (escape, after) = rest.split_first()?;
        rest = after;
        let digits = |rest: &[u8], most: usize, radix| {
            let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
            let len = rest.iter().take(most).take_while(is_digit).count();
            let digits = std::str::from_utf8(&rest[..len]).ok()?;
            Some((u8::from_str_radix(digits, radix).ok()?, len))
        };
        bytes.push(match escape {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'x' => {
                let (byte, len) = digits(rest, 2, 16)?;
                rest = &rest[len..];
                byte
            }
            b'0'..=b'7' => {
                let octal = inner.as_bytes().get(inner.len() - rest.len() - 1..)?;
                let (byte, len) = digits(octal, 3, 8)?;
                rest = &octal[len..];
                byte
            }
            other => *other,
        });
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_c_escapes() {
        assert_eq!(quoted(r#""a\"b\\c""#).unwrap(), "a\"b\\c");
        assert_eq!(quoted(r#""\303\244\x41\n""#).unwrap(), "ä\u{41}\n");
        assert_eq!(quoted("'x'").unwrap(), "x");
        assert_eq!(quoted(r#""\777""#), None);
        assert_eq!(quoted("\""), None);
        assert_eq!(quoted("x"), None);
    }

    #[test]
    fn latest_defaults_to_the_last_path() {
        let state =
            StateFile::parse(b"all_model_checkpoint_paths: \"a\"\nlast_preserved: 1\n").unwrap();
        assert_eq!(state.latest, "a");
        assert!(StateFile::parse(b"model_checkpoint_path: \"\"").is_err());
        assert!(is_state(b"model_checkpoint_path: \"m\""));
        assert!(!is_state(b"model_checkpoint_paths"));
    }
}
