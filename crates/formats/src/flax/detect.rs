use std::sync::Arc;

use statelens_checkpoint::{Limits, Memory};

use super::packed::{Cursor, Head};
use crate::{Probe, Score};

/// Scores a file by running its first bytes as MessagePack, which has no magic number: the file
/// must begin with a non-empty map, whose first key is a string, or an integer if arrays follow,
/// and the rest of the first bytes must be valid.
pub(crate) fn score(probe: &Probe<'_>) -> Score {
    let head = probe.head();
    // A single array: extension 1 with shape, name and bytes.
    if let [0xc7, _, 1, 0x93, ..] | [0xc8, _, _, 1, 0x93, ..] | [0xc9, _, _, _, _, 1, 0x93, ..] =
        head
    {
        return Score::Maybe;
    }
    if !matches!(head.first(), Some(0x81..=0x8f | 0xde | 0xdf)) {
        return Score::No;
    }
    let limits = Limits::default();
    let source = Arc::new(Memory::from(head.to_vec()));
    let mut cursor = Cursor::new(source, &limits);
    let mut open = vec![1u64];
    let mut seen = 0;
    // Number of arrays, by which a truncated file, or one whose first key is an integer, is
    // recognised.
    let mut arrays = 0;
    let mut named = true;
    let cut = |arrays: u32, named, seen: u32| match probe.len() > head.len() as u64 && seen > 2 {
        is_long if arrays == 0 && !(is_long && named) => Score::No,
        _ => Score::Maybe,
    };
    // Parses until the end of the head, which may be anywhere.
    while let Some(left) = open.last_mut() {
        if *left == 0 {
            open.pop();
            continue;
        }
        *left -= 1;
        let next = match cursor.head() {
            Ok(next) => next,
            // Truncated by the end of the head, or not MessagePack.
            Err(_) if cursor.starved => return cut(arrays, named, seen),
            Err(_) => return Score::No,
        };
        match next {
            Head::Int(_) | Head::Uint(_) if seen == 1 => named = false,
            Head::Str(_) => {}
            _ if seen == 1 => return Score::No,
            // An array of NumPy is three items.
            Head::Ext(1 | 3, _)
                if head.get(cursor.at as usize).is_none_or(|next| *next == 0x93) =>
            {
                arrays += 1;
            }
            _ => {}
        }
        seen += 1;
        match next {
            Head::Map(len) => open.push(len.saturating_mul(2)),
            Head::Array(len) => open.push(len),
            Head::Str(len) | Head::Bin(len) | Head::Ext(_, len) if cursor.skip(len).is_err() => {
                // The first string or array may be longer than the head.
                return cut(arrays, named, seen.max(3));
            }
            _ => {}
        }
        if open.len() > 1000 {
            return Score::No;
        }
    }
    if named || arrays > 0 { Score::Maybe } else { Score::No }
}
