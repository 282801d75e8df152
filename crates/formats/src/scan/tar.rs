//! Tar archives, as leniently as their readers take them.

use std::sync::Arc;

use statelens_checkpoint::ReadAt;

use super::section::{exactly, some};

/// Unit of a tar archive.
pub(super) const BLOCK: u64 = 512;

/// A file in a tar archive.
pub(super) struct TarMember {
    pub(super) name: String,
    /// Where its header is.
    pub(super) header: u64,
    pub(super) start: u64,
    pub(super) len: u64,
}

/// Whether a header of a member is at `at`: its checksum is right, and it has a name.
pub(super) fn is_header(source: &dyn ReadAt, at: u64) -> bool {
    exactly::<{ BLOCK as usize }>(source, at).is_some_and(|header| sound(&header))
}

/// The members from `at` on; at most `most`.
pub(super) fn members(source: &Arc<dyn ReadAt>, mut at: u64, most: usize) -> Vec<TarMember> {
    let mut members = Vec::new();
    // A name that is too long for a header is a member of its own before it.
    let mut long = None;
    while members.len() < most
        && let Some(header) = exactly::<{ BLOCK as usize }>(&**source, at)
        && sound(&header)
    {
        let start = at + BLOCK;
        let Some(len) = number(&header[124..136]) else { break };
        let kind = header[156];
        if kind == b'L' {
            let name = some(&**source, start, len.min(4096)).unwrap_or_default();
            long = Some(text(&name));
        } else if !matches!(kind, b'K' | b'x' | b'g') {
            let name = long.take().unwrap_or_else(|| text(&header[..100]));
            members.push(TarMember { name, header: at, start, len });
        }
        let Some(end) = start.checked_add(len) else { break };
        at = end.div_ceil(BLOCK).saturating_mul(BLOCK);
    }
    members
}

fn text(bytes: &[u8]) -> String {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(name);
    name.strip_prefix("./").unwrap_or(&name).to_owned()
}

fn sound(header: &[u8; BLOCK as usize]) -> bool {
    let Some(expected) = number(&header[148..156]) else { return false };
    let bytes = |at: usize| if (148..156).contains(&at) { b' ' } else { header[at] };
    let unsigned: u64 = (0..header.len()).map(|at| u64::from(bytes(at))).sum();
    let signed: i64 = (0..header.len()).map(|at| i64::from(bytes(at).cast_signed())).sum();
    header[0] != 0 && (unsigned == expected || i64::try_from(expected) == Ok(signed))
}

/// A number in octal digits, or in binary where the first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    if let [0x80, rest @ ..] = field {
        let low = rest.last_chunk::<8>().map(|low| u64::from_be_bytes(*low));
        return low.filter(|_| rest[..rest.len().saturating_sub(8)].iter().all(|byte| *byte == 0));
    }
    let digits = field.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(digits).ok()?.trim_matches(' ');
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}
