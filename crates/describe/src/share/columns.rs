//! Serialises the leaves of an outline: each pattern once, then columns of numbers.
//!
//! A pattern is a leaf with a hole for each number in its key, value and link. One column has the
//! pattern of each leaf; the column of the first, second, … number has its difference from that
//! number of the previous leaf. Repeated layers give repeated bytes, which deflate well.

use std::collections::HashMap;

use statelens_checkpoint::varint::write_number;
use statelens_checkpoint::{DType, Error, Result};

use super::LeafSummary;
use super::bytes::{Unpacker, cut, put_signed};
use crate::LeafKind;

/// Replaces a number in a text; a byte that does not occur in UTF-8.
const HOLE: u8 = 0xff;
/// Ends a text. Takes less space when deflated than lengths before texts. Does not occur in UTF-8,
/// either.
const END: u8 = 0xfe;
/// Maximum number of leaves that are read.
const MAX_LEAVES: usize = 200_000;
/// Maximum number of bytes of text that are read, with holes filled.
const MAX_TEXT: usize = 32 << 20;

/// A leaf without its numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct LeafPattern {
    key: Vec<u8>,
    kind: LeafKind,
    dtype: String,
    shape: Vec<u64>,
    /// Number of elements and bytes, unless dtype and shape determine them.
    sizes: Option<(u64, u64)>,
    value: Vec<u8>,
    link: Option<Vec<u8>>,
    /// The number of holes in its texts.
    holes: usize,
}

/// Writes all leaves.
pub(super) fn write(entries: &[LeafSummary], out: &mut Vec<u8>) {
    let mut ids = HashMap::new();
    let mut patterns = Vec::new();
    let mut leaves = Vec::with_capacity(entries.len());
    for entry in entries {
        let (pattern, numbers) = LeafPattern::of(entry);
        let next = ids.len();
        let id = *ids.entry(pattern.clone()).or_insert(next);
        if id == next {
            patterns.push(pattern);
        }
        leaves.push((id, numbers));
    }
    write_number(out, patterns.len() as u64);
    patterns.iter().for_each(|pattern| pattern.write(out));
    write_number(out, leaves.len() as u64);
    leaves.iter().for_each(|(id, _)| write_number(out, *id as u64));
    let columns = patterns.iter().map(|pattern| pattern.holes).max().unwrap_or(0);
    for column in 0..columns {
        let mut before = 0;
        for number in leaves.iter().filter_map(|(_, numbers)| numbers.get(column)) {
            put_signed(out, number.wrapping_sub(before) as i64);
            before = *number;
        }
    }
}

/// Reads what [`write()`] wrote.
pub(super) fn read(from: &mut Unpacker<'_>) -> Result<Vec<LeafSummary>> {
    let mut patterns = Vec::new();
    for _ in 0..from.count()? {
        patterns.push(LeafPattern::read(from)?);
    }
    let count = from.count()?;
    if count > MAX_LEAVES {
        return Err(too_much());
    }
    let mut leaves = Vec::new();
    let mut text = 0usize;
    for _ in 0..count {
        let id = usize::try_from(from.number()?).unwrap_or(usize::MAX);
        let pattern = patterns.get(id).ok_or_else(cut)?;
        text = text.saturating_add(pattern.text_len());
        leaves.push((pattern, Vec::new()));
    }
    if text > MAX_TEXT {
        return Err(too_much());
    }
    let mut open: Vec<usize> = (0..count).collect();
    for column in 0.. {
        open.retain(|at| leaves[*at].0.holes > column);
        if open.is_empty() {
            break;
        }
        let mut before = 0u64;
        for at in &open {
            before = before.checked_add_signed(from.signed()?).ok_or_else(cut)?;
            leaves[*at].1.push(before);
        }
    }
    Ok(leaves.into_iter().map(|(pattern, numbers)| pattern.entry(&numbers)).collect())
}

fn too_much() -> Error {
    Error::limit(format!(
        "this summary has more than {MAX_LEAVES} keys, or {MAX_TEXT} bytes of text"
    ))
}

impl LeafPattern {
    /// Returns the pattern of an entry and its numbers.
    fn of(entry: &LeafSummary) -> (Self, Vec<u64>) {
        let mut numbers = Vec::new();
        let key = punch(&entry.key, &mut numbers);
        let value = match entry.kind {
            LeafKind::Int => punch(&entry.value, &mut numbers),
            _ => entry.value.as_bytes().to_vec(),
        };
        let link = entry.link.as_ref().map(|link| punch(link, &mut numbers));
        let sizes = (entry.params, entry.bytes);
        let natural = natural_sizes(entry.kind, &entry.dtype, &entry.shape);
        let pattern = Self {
            key,
            kind: entry.kind,
            dtype: entry.dtype.clone(),
            shape: entry.shape.clone(),
            sizes: (natural != Some(sizes)).then_some(sizes),
            value,
            link,
            holes: numbers.len(),
        };
        (pattern, numbers)
    }

    /// Returns the maximum number of bytes that a leaf of this pattern takes.
    fn text_len(&self) -> usize {
        self.key.len()
            + self.dtype.len()
            + self.shape.len() * 8
            + self.value.len()
            + self.link.as_ref().map_or(0, Vec::len)
            + self.holes * 20
    }

    fn entry(&self, numbers: &[u64]) -> LeafSummary {
        let mut numbers = numbers.iter();
        let mut fill = |text: &[u8]| {
            let mut out = Vec::with_capacity(text.len());
            for byte in text {
                match *byte {
                    HOLE => {
                        out.extend(numbers.next().map(u64::to_string).unwrap_or_default().bytes())
                    }
                    byte => out.push(byte),
                }
            }
            String::from_utf8(out).unwrap_or_default()
        };
        let (key, value) = (fill(&self.key), fill(&self.value));
        let link = self.link.as_ref().map(|link| fill(link));
        let (params, bytes) = self
            .sizes
            .or_else(|| natural_sizes(self.kind, &self.dtype, &self.shape))
            .unwrap_or_default();
        LeafSummary {
            key,
            kind: self.kind,
            dtype: self.dtype.clone(),
            shape: self.shape.clone(),
            params,
            bytes,
            value,
            link,
            statistics: None,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        // A kind without a code is not a tensor.
        let kind = self.kind as u8;
        let flags = u8::from(self.sizes.is_some())
            | u8::from(!self.value.is_empty()) << 1
            | u8::from(self.link.is_some()) << 2;
        out.push(kind | flags << 4);
        put_ended(out, &self.key);
        if self.kind.has_shape() {
            put_ended(out, self.dtype.as_bytes());
            write_number(out, self.shape.len() as u64);
            self.shape.iter().for_each(|dim| write_number(out, *dim));
        }
        if let Some((params, bytes)) = self.sizes {
            write_number(out, params);
            write_number(out, bytes);
        }
        if !self.value.is_empty() {
            put_ended(out, &self.value);
        }
        if let Some(link) = &self.link {
            put_ended(out, link);
        }
    }

    fn read(from: &mut Unpacker<'_>) -> Result<Self> {
        let head = from.byte()?;
        let kind = *LeafKind::ALL.get(usize::from(head & 15)).ok_or_else(cut)?;
        let has = |flag: u8| head >> 4 & flag != 0;
        let key = template(from)?;
        let (mut dtype, mut shape) = (String::new(), Vec::new());
        if kind.has_shape() {
            dtype = String::from_utf8(from.until(END)?.to_vec()).map_err(|_| cut())?;
            for _ in 0..from.count()? {
                shape.push(from.number()?);
            }
        }
        let sizes = if has(1) { Some((from.number()?, from.number()?)) } else { None };
        let value = if has(2) { template(from)? } else { Vec::new() };
        let link = if has(4) { Some(template(from)?) } else { None };
        let texts = [&key, &value].into_iter().chain(link.as_ref());
        let holes = texts.flatten().filter(|byte| **byte == HOLE).count();
        Ok(Self { key, kind, dtype, shape, sizes, value, link, holes })
    }
}

fn put_ended(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(text);
    out.push(END);
}

/// Reads a text with holes; it must be UTF-8 between them.
fn template(from: &mut Unpacker<'_>) -> Result<Vec<u8>> {
    let bytes = from.until(END)?;
    let proper = bytes.split(|byte| *byte == HOLE).all(|piece| std::str::from_utf8(piece).is_ok());
    if proper { Ok(bytes.to_vec()) } else { Err(cut()) }
}

/// Replaces numbers by holes if parsing and printing reproduces their digits.
fn punch(text: &str, numbers: &mut Vec<u64>) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        let end = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
        let (digits, after) = from.split_at(end);
        out.extend_from_slice(before.as_bytes());
        match digits.parse() {
            Ok(number) if digits.len() <= 15 && (digits == "0" || !digits.starts_with('0')) => {
                numbers.push(number);
                out.push(HOLE);
            }
            _ => out.extend_from_slice(digits.as_bytes()),
        }
        rest = after;
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// Returns the number of elements and bytes that dtype and shape determine.
fn natural_sizes(kind: LeafKind, dtype: &str, shape: &[u64]) -> Option<(u64, u64)> {
    if !kind.has_shape() {
        return Some((0, 0));
    }
    let dtype = DType::from_torch_name(dtype)?;
    let params = shape.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim))?;
    Some((params, dtype.bytes_of(params)?))
}
