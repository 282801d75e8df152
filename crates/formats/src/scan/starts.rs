//! Searches bytes for the starts of pickles, archives and compressed files.
//!
//! The result for a place depends only on the bytes around it, so the pieces of a file can be
//! searched in any order, on several threads. A vectorised search finds the bytes that a start must
//! have: a line break or `STACK_GLOBAL` for a name, two bytes of a magic number for everything else.
//! Only these places are compared byte by byte.

mod candidates;
mod names;

use std::ops::Range;

use flate2::Decompress;
use statelens_checkpoint::{ReadAt, Result, try_alloc};
use statelens_pickle::opcode as op;

use super::zip;
use crate::packed::Packing;

/// The first bytes of a NumPy array.
pub(super) const NUMPY: &[u8] = b"\x93NUMPY";
/// The first bytes of an HDF5 file.
pub(super) const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";
const TAR: &[u8] = b"ustar";

/// The maximum distance from a name back to the start of its pickle.
const BACK: usize = 600;
/// The number of bytes before a piece that a start in it may depend on.
const BEFORE: usize = BACK + names::MAX_LINE + 1;
/// The number of bytes after a piece that are available for a start in it.
const AHEAD: usize = 1 << 10;
/// The number of bytes searched at once: few enough for the cache next to the processor.
const BLOCK: usize = 32 << 10;
/// The number of starts after which the search of a piece ends early.
const MAX_STARTS: usize = 1 << 14;
/// The number of steps after which the search of a piece ends early. The budget is only charged once
/// some pieces were searched.
const MAX_STEPS: u64 = 4_000_000;
/// The offset of the magic number in a tar header.
const USTAR: usize = 257;

/// A place where something may start, as an offset in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    /// The place whose bytes were recognised. Starts are sorted by it.
    pub(super) at: u64,
    pub(super) kind: StartKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartKind {
    /// A pickle with `PROTO`.
    Pickle,
    /// A name in a pickle, which begins at this offset.
    Name(u64),
    Numpy,
    /// The end record of a zip archive.
    ZipEnd,
    /// The header of a member of a zip archive.
    ZipMember,
    /// A header of a tar archive, which begins at this offset.
    Tar(u64),
    Hdf5,
    Packed(Packing),
}

/// The starts in a piece of a source.
#[derive(Debug, Default)]
pub(super) struct Starts {
    pub(super) found: Vec<Start>,
    /// The offset up to which the piece was searched: its end, unless there are very many starts.
    pub(super) end: u64,
    /// The number of steps, in addition to one per byte.
    pub(super) steps: u64,
}

/// What a search reuses from piece to piece.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    buffer: Vec<u8>,
    masks: Vec<u32>,
    inflater: Option<Decompress>,
}

/// Finds the starts in a range of a source.
pub(super) fn find(
    source: &dyn ReadAt,
    range: Range<u64>,
    scratch: &mut Scratch,
) -> Result<Starts> {
    let Scratch { buffer, masks, inflater } = scratch;
    let from = range.start.saturating_sub(BEFORE as u64);
    let end = range.end.min(source.len());
    let until = end.saturating_add(AHEAD as u64).min(source.len());
    let len = until.saturating_sub(from);
    try_alloc::make_room(buffer, len.saturating_sub(buffer.len() as u64))?;
    buffer.resize(len as usize, 0);
    source.read_at(from, buffer)?;
    let mut piece = Piece { bytes: buffer, from, starts: Starts::default(), inflater };
    let mut at = (range.start - from) as usize;
    let stop = end.saturating_sub(from) as usize;
    while at < stop && piece.starts.found.len() < MAX_STARTS && piece.starts.steps < MAX_STEPS {
        let block = at..stop.min(at + BLOCK);
        candidates::find(piece.bytes, &block, masks);
        for (number, mask) in masks.iter().enumerate().filter(|(_, mask)| **mask != 0) {
            piece.candidates(at + number * candidates::LANES, *mask);
        }
        at = block.end;
    }
    let mut starts = piece.starts;
    starts.end = from + at as u64;
    Ok(starts)
}

/// The bytes of a piece, and those around it.
struct Piece<'a> {
    bytes: &'a [u8],
    /// The offset of the bytes in the source.
    from: u64,
    starts: Starts,
    inflater: &'a mut Option<Decompress>,
}

impl Piece<'_> {
    fn push(&mut self, at: usize, kind: StartKind) {
        self.starts.found.push(Start { at: self.from + at as u64, kind });
    }

    /// Adds the starts at the candidates in a mask, whose first place is `at`.
    // Not inlined: the loop over the masks, most of which are empty, must stay small.
    #[inline(never)]
    fn candidates(&mut self, at: usize, mut mask: u32) {
        while mask != 0 {
            self.candidate(at + mask.trailing_zeros() as usize);
            mask &= mask - 1;
        }
    }

    /// Adds the starts that are recognised by the bytes at a place.
    fn candidate(&mut self, at: usize) {
        let bytes = self.bytes;
        let here = &bytes[at..];
        match here {
            [b'\n', ..] => self.lines(at),
            [op::STACK_GLOBAL, b'N', ..] if here.starts_with(NUMPY) => {
                self.push(at, StartKind::Numpy)
            }
            [op::STACK_GLOBAL, ..] => {
                let floor = at.saturating_sub(BACK);
                for start in names::stacked(&bytes[floor..at], &mut self.starts.steps) {
                    let begin = self.from + (floor + start) as u64;
                    self.push(at, StartKind::Name(begin));
                }
            }
            [b'u', b's', ..] if here.starts_with(TAR) => {
                if let Some(header) = (self.from + at as u64).checked_sub(USTAR as u64) {
                    self.push(at, StartKind::Tar(header));
                }
            }
            _ => self.magic(at),
        }
    }

    /// Finds `GLOBAL` and `INST` whose first line ends at `end`.
    fn lines(&mut self, end: usize) {
        let bytes = self.bytes;
        let is_after = |at: usize| bytes.get(at).copied().is_some_and(names::is_name);
        if end < 2 || !names::is_name(bytes[end - 1]) || !is_after(end + 1) {
            return;
        }
        let floor = end.saturating_sub(names::MAX_LINE + 1);
        let run = bytes[floor..end].iter().rev().take_while(|byte| names::is_name(**byte)).count();
        let opcodes = end - run..end.saturating_sub(1);
        let is_opcode = |at: &usize| matches!(bytes[*at], op::GLOBAL | op::INST);
        self.starts.steps += 2 * run as u64;
        if !opcodes.clone().any(|at| is_opcode(&at)) || names::line(&bytes[end + 1..]).is_none() {
            return;
        }
        self.starts.steps += names::MAX_LINE as u64;
        for at in opcodes.filter(is_opcode) {
            let place = self.from + at as u64;
            if bytes[at] == op::GLOBAL {
                // The mark of its arguments may be the byte before.
                let marked = at > 0 && bytes[at - 1] == op::MARK;
                self.push(end, StartKind::Name(place - u64::from(marked)));
                continue;
            }
            let floor = at.saturating_sub(BACK);
            let marks = bytes[floor..at].iter().enumerate().rev();
            let marks = marks.filter(|(_, byte)| **byte == op::MARK).take(4);
            self.starts.steps += BACK as u64;
            for (mark, _) in marks {
                let begin = self.from + (floor + mark) as u64;
                self.push(end, StartKind::Name(begin));
            }
        }
    }

    fn magic(&mut self, at: usize) {
        let here = &self.bytes[at..];
        let kind = match here {
            // If `PROTO` is repeated, the last one suffices.
            [0x80, 2..=5, 0x80, 2..=5, ..] => return,
            [0x80, 2..=5, next, ..] if op::is_opcode(*next) => StartKind::Pickle,
            [b'P', ..] if here.starts_with(zip::END) => StartKind::ZipEnd,
            [b'P', ..] if here.starts_with(zip::LOCAL) => StartKind::ZipMember,
            [0x89, ..] if here.starts_with(HDF5) => StartKind::Hdf5,
            _ => {
                let Some(packing) = Packing::of(here) else { return };
                if !packing.is_certain() {
                    self.starts.steps += 1_000;
                    if !is_plausible(packing, here, self.inflater) {
                        return;
                    }
                }
                StartKind::Packed(packing)
            }
        };
        self.push(at, kind);
    }
}

/// Returns whether there is more evidence for a compression than its magic number of two or three
/// bytes, which is frequent among weights.
fn is_plausible(packing: Packing, here: &[u8], inflater: &mut Option<Decompress>) -> bool {
    match (packing, here) {
        // The levels that zlib writes, and no preset dictionary.
        (Packing::Zlib, [_, 0x01 | 0x5e | 0x9c | 0xda, rest @ ..]) => inflates(rest, inflater),
        // No length, or one below a terabyte; then the first byte of the code, which is 0.
        (Packing::Lzma, _) => here.get(5..14).is_some_and(|bytes| {
            bytes[8] == 0 && (bytes[..8] == [0xff; 8] || bytes[5..8] == [0; 3])
        }),
        _ => false,
    }
}

/// Returns whether deflated data begins here: its first bytes decompress, or all of a short stream.
fn inflates(bytes: &[u8], inflater: &mut Option<Decompress>) -> bool {
    const SAMPLE: usize = 64;
    let kind = match bytes {
        // A stored block: the length is repeated inverted.
        [first, a, b, c, d, ..] if first & 6 == 0 => return *a == !*c && *b == !*d,
        [first, ..] => first & 6,
        [] => return false,
    };
    // This block type is reserved.
    if kind == 6 {
        return false;
    }
    let mut out = [0; SAMPLE];
    let inflater = inflater.get_or_insert_with(|| Decompress::new(false));
    inflater.reset(false);
    let bytes = &bytes[..bytes.len().min(AHEAD)];
    let ended = inflater.decompress(bytes, &mut out, flate2::FlushDecompress::None);
    match ended {
        Ok(flate2::Status::StreamEnd) => true,
        Ok(_) => inflater.total_out() == SAMPLE as u64,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::Memory;

    use super::*;

    fn starts(bytes: &[u8], piece: u64) -> Vec<Start> {
        let source = Memory::from(bytes.to_vec());
        let (mut found, mut at) = (Vec::new(), 0);
        while at < source.len() {
            let starts = find(&source, at..at + piece, &mut Scratch::default()).unwrap();
            assert!(starts.found.is_sorted_by_key(|start| start.at));
            found.extend(starts.found);
            at = starts.end;
        }
        found
    }

    /// Everything is found wherever a piece ends.
    #[test]
    fn starts_do_not_depend_on_the_pieces() {
        let mut bytes = vec![7; 300];
        for start in [
            &b"\x80\x02cos\nsystem\n(S'x'\ntR."[..],
            b"\x8c\x02os\x94\x8c\x06system\x94\x93\x8c\x04true\x85R.",
            b"(S'x'\nios\nsystem\n.",
            b"PK\x05\x06PK\x03\x04ustar\x89HDF\r\n\x1a\n\x93NUMPY\x01\0",
            b"\x1f\x8b\x08\xfd7zXZ\0BZh91AY&SY\x28\xb5\x2f\xfd\x04\x22\x4d\x18",
            b"\x78\x9c\x4b\x04\x00\x5d\0\0\x80\0\xff\xff\xff\xff\xff\xff\xff\xff\0",
        ] {
            bytes.extend(start);
            bytes.extend([7; 11]);
        }
        bytes.extend([7; 300]);
        let whole = starts(&bytes, u64::MAX >> 1);
        assert_eq!(whole.len(), 17, "{whole:?}");
        for piece in [1, 2, 3, 7, 64, 333] {
            assert_eq!(starts(&bytes, piece), whole, "{piece}");
        }
    }

    #[test]
    fn search_ends_early_where_starts_are_dense() {
        let bytes = b"\x80\x02.".repeat(MAX_STARTS + BLOCK);
        let source = Memory::from(bytes.clone());
        let first = find(&source, 0..source.len(), &mut Scratch::default()).unwrap();
        assert!(first.end < source.len() && first.found.len() < MAX_STARTS + BLOCK);
        assert_eq!(starts(&bytes, u64::MAX >> 1).len(), MAX_STARTS + BLOCK);
    }

    #[test]
    fn recognises_deflated_data_of_every_block_type() {
        let (fixed, mut inflater) = (b"\x4b\x04\x00", None);
        for (what, bytes, expected) in [
            ("stored", &b"\x01\x02\x00\xfd\xffab"[..], true),
            ("stored, with another length", b"\x01\x02\x00\xfc\xffab", false),
            ("fixed codes", fixed, true),
            ("the reserved type", b"\x07\x02\x00\xfd\xff", false),
            ("nothing", b"", false),
        ] {
            assert_eq!(inflates(bytes, &mut inflater), expected, "{what}");
        }
    }
}
