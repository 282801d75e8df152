//! Links that hold the structure of a checkpoint after the `#`, which browsers do not send to
//! servers: `BASE#s=1.` and the outline, packed (`pack.rs`), deflated and in URL-safe base64 (RFC
//! 4648, section 5) without padding.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF as TO_THE_END;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};
use serde::{Deserialize, Serialize};
use statelens_checkpoint::{Error, Result};

use super::pack::{Precision, pack, unpack};
use super::{LeafSummary, Outline};

/// Maximum length of a link that is made or opened, in characters after the `#`.
pub const MAX_CHARACTERS: usize = 16_000;

/// The prefix of the data: marks it as a summary and has the version.
const MARK: &str = "s=1.";
/// Maximum size in bytes of an inflated fragment.
const MAX_BYTES: usize = 1 << 20;

/// The representation of keys in a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum KeysAs {
    /// Unchanged.
    #[default]
    Plain,
    /// Each segment of a name is replaced by four letters, assigned in order of appearance. Equal
    /// names stay equal within the link, but nothing can be looked up or guessed.
    Coded,
    /// Left out; the position replaces the key.
    Hidden,
}

/// The contents of a link in addition to name, format, dtypes and shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkOptions {
    /// The representation of keys.
    pub keys: KeysAs,
    /// Values that are not tensors. Only with plain keys, because a value may contain a name.
    pub values: bool,
    /// Findings. Only with plain keys, because a finding may mention one.
    pub findings: bool,
    /// Statistics of tensors, rounded, if they have been computed.
    pub statistics: bool,
}

/// Number of characters that each part of a link takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkParts {
    /// Name, format, and the fixed parts.
    pub head: usize,
    /// Keys, dtypes and shapes.
    pub keys: usize,
    /// Statistics.
    pub statistics: usize,
    /// Findings.
    pub findings: usize,
    /// Values.
    pub values: usize,
}

/// Returns the outline reduced to what the link will contain.
pub fn without_link(outline: &Outline, options: &LinkOptions) -> Outline {
    let plain = options.keys == KeysAs::Plain;
    let mut names = CodedNames::default();
    let entries = outline.entries.iter().enumerate().map(|(at, entry)| {
        let mut name = |key: &str| match options.keys {
            KeysAs::Plain => key.to_owned(),
            KeysAs::Coded => names.coded(key),
            KeysAs::Hidden => String::new(),
        };
        LeafSummary {
            key: if options.keys == KeysAs::Hidden { at.to_string() } else { name(&entry.key) },
            link: entry.link.as_deref().map(&mut name),
            value: if plain && options.values { entry.value.clone() } else { String::new() },
            statistics: entry.statistics.filter(|_| options.statistics),
            ..entry.clone()
        }
    });
    Outline {
        // Counted here, because the count depends on names, which coded keys do not have.
        parameters: Some(outline.parameters().model),
        entries: entries.collect(),
        findings: if plain && options.findings { outline.findings.clone() } else { Vec::new() },
        content: None,
        ..outline.clone()
    }
}

/// Returns the address of a page at `base`, with the link. Fails if `base` has a `#`, or if the link
/// would be too long.
pub fn address(base: &str, outline: &Outline, options: &LinkOptions) -> Result<String> {
    if base.contains('#') {
        return Err(Error::refused(format!("`{base}` already has a #, which the link needs"))
            .advice("Give the address of the page without it."));
    }
    Ok(format!("{base}{}", link(outline, options)?))
}

/// Returns the link, as the part to append to a page's address: `#s=1.…`. Fails if it would be
/// longer than [`MAX_CHARACTERS`].
pub fn link(outline: &Outline, options: &LinkOptions) -> Result<String> {
    let bytes = pack(&without_link(outline, options), Precision::Rounded);
    let advice = "Share the summary as a file: HTML opens everywhere.";
    if bytes.len() >= MAX_BYTES {
        return Err(Error::limit(format!(
            "the link would expand to {} bytes; it must be less than {MAX_BYTES}",
            bytes.len()
        ))
        .advice(advice));
    }
    let fragment = format!("{MARK}{}", text(&bytes));
    if fragment.len() > MAX_CHARACTERS {
        return Err(Error::limit(format!(
            "the link would have {} characters; the limit is {MAX_CHARACTERS}",
            fragment.len()
        ))
        .advice(advice));
    }
    Ok(format!("#{fragment}"))
}

/// Opens the outline in the part of an address after the `#`.
pub fn open_link(fragment: &str) -> Result<Outline> {
    let again = "Request the link again, or the summary as a file.";
    let fragment = fragment.strip_prefix('#').unwrap_or(fragment);
    if fragment.len() > MAX_CHARACTERS {
        return Err(Error::limit(format!(
            "this link has {} characters; the limit is {MAX_CHARACTERS}",
            fragment.len()
        ))
        .advice(again));
    }
    let Some(data) = fragment.strip_prefix(MARK) else {
        return Err(match fragment.strip_prefix("s=") {
            Some(_) => Error::unsupported("this link was made by a newer Statelens")
                .advice("Open it with a newer one."),
            None => Error::damaged("this link holds no summary").advice(again),
        });
    };
    let damaged = || Error::damaged("this link is damaged: a part of it was lost or changed");
    let bytes = URL_SAFE_NO_PAD.decode(data).map_err(|_| damaged().advice(again))?;
    inflate(&bytes).ok_or_else(damaged).and_then(|bytes| unpack(&bytes)).map_err(
        |error| match error.kind() {
            statelens_checkpoint::ErrorKind::Limit => error.advice(again),
            _ => damaged().advice(again),
        },
    )
}

impl LinkParts {
    /// Returns the length of the link.
    pub fn length(&self) -> usize {
        self.head + self.keys + self.statistics + self.findings + self.values
    }

    /// Measures the parts by removing one after the other.
    pub fn measure(outline: &Outline, options: &LinkOptions) -> Self {
        let length =
            |outline: &Outline| MARK.len() + text(&pack(outline, Precision::Rounded)).len();
        let mut left = without_link(outline, options);
        let all = length(&left);
        left.entries.iter_mut().for_each(|entry| entry.value.clear());
        let no_values = length(&left);
        left.findings.clear();
        let no_findings = length(&left);
        left.entries.iter_mut().for_each(|entry| entry.statistics = None);
        let no_statistics = length(&left);
        left.entries.clear();
        let head = length(&left);
        Self {
            head,
            keys: no_statistics.saturating_sub(head),
            statistics: no_findings.saturating_sub(no_statistics),
            findings: no_values.saturating_sub(no_findings),
            values: all.saturating_sub(no_values),
        }
    }
}

/// Returns packed bytes as text: deflated, and in base64.
pub(super) fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(deflate(bytes))
}

/// Deflates with `miniz_oxide`, in the command as well, so that command and page make identical
/// links.
fn deflate(bytes: &[u8]) -> Vec<u8> {
    miniz_oxide::deflate::compress_to_vec(bytes, 9)
}

/// Inflates; `None` if the data is incomplete or too large.
fn inflate(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![0; MAX_BYTES];
    let (status, read, written) =
        decompress(&mut DecompressorOxide::new(), bytes, &mut out, 0, TO_THE_END);
    out.truncate(written);
    (status == TINFLStatus::Done && read == bytes.len()).then_some(out)
}

/// Assigns codes to names.
#[derive(Default)]
struct CodedNames {
    codes: HashMap<String, usize>,
}

impl CodedNames {
    fn coded(&mut self, key: &str) -> String {
        let mut out = String::new();
        for piece in key.split_inclusive(['.', '/']) {
            let part = piece.strip_suffix(['.', '/']).unwrap_or(piece);
            let end = &piece[part.len()..];
            // A number is a position, not a name.
            if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
                out.push_str(piece);
                continue;
            }
            let next = self.codes.len();
            let code = match self.codes.get(part) {
                Some(code) => *code,
                None => {
                    self.codes.insert(part.to_owned(), next);
                    next
                }
            };
            letters(code, &mut out);
            out.push_str(end);
        }
        out
    }
}

/// Appends the letters of a code: unique for the first 26⁴ codes, and dissimilar for neighbouring
/// ones.
fn letters(code: usize, out: &mut String) {
    const ALL: u64 = 26 * 26 * 26 * 26;
    // The factor is coprime to the number of codes, so that all results are different.
    let mut mixed = ((code as u64 % ALL) * 282_475 + 300_000) % ALL;
    for _ in 0..4 {
        out.push(char::from(b'a' + (mixed % 26) as u8));
        mixed /= 26;
    }
    if code as u64 >= ALL {
        out.push_str(&(code as u64 / ALL).to_string());
    }
}
