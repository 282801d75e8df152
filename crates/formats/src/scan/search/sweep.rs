//! Searches all bytes for data that no reader leads to: pickles, archives and compressed files
//! before, after or between other data.

use statelens_checkpoint::Result;
use statelens_pickle::opcode as op;

use super::super::packed::Packing;
use super::super::section::some;
use super::super::{tar, zip};
use super::{Blob, Certainty, NUMPY, Search};
use super::{hdf5, members};

/// The number of bytes processed at once, and the number of bytes after them that are available for
/// a match that begins in them.
const PIECE: u64 = 1 << 20;
const AHEAD: u64 = 1 << 10;
/// The maximum distance from a name back to the start of its pickle.
const BACK: usize = 600;

/// The offset of the magic number in a tar header.
const USTAR: u64 = 257;

impl Search<'_> {
    pub(super) fn sweep(&mut self, blob: &Blob) -> Result<()> {
        let len = blob.source.len();
        let mut at = 0;
        while at < len {
            self.at(blob, at)?;
            let from = at.saturating_sub(BACK as u64);
            let bytes = some(&*blob.source, from, at - from + PIECE + AHEAD)?;
            let skip = (at - from) as usize;
            let stop = bytes.len().min(skip + PIECE as usize);
            for place in skip..stop {
                let second = bytes.get(place + 1).copied().unwrap_or_default();
                if may_begin(bytes[place], second) {
                    self.start(blob, from, &bytes, place)?;
                }
            }
            at += PIECE;
        }
        Ok(())
    }

    /// Examines what may begin at a place. `bytes` are those of the blob from `from` on.
    fn start(&mut self, blob: &Blob, from: u64, bytes: &[u8], place: usize) -> Result<()> {
        let at = from + place as u64;
        let here = &bytes[place..];
        match here {
            // If `PROTO` is repeated, the last one suffices.
            [0x80, 2..=5, 0x80, 2..=5, ..] => Ok(()),
            [0x80, 2..=5, ..] => self.swept(blob, at, Certainty::Marked),
            [b'c', ..] if names(&here[1..]) => {
                // The mark of its arguments may be the byte before.
                let marked = place > 0 && bytes[place - 1] == b'(';
                self.swept(blob, at - u64::from(marked), Certainty::Bare)
            }
            [b'i', ..] if names(&here[1..]) => {
                let floor = place.saturating_sub(BACK);
                let marks = bytes[floor..place].iter().enumerate().rev();
                let marks = marks.filter(|(_, byte)| **byte == b'(').take(4);
                for (mark, _) in marks {
                    self.swept(blob, from + (floor + mark) as u64, Certainty::Bare)?;
                }
                Ok(())
            }
            [0x93, ..] if here.starts_with(NUMPY) => self.numpy(blob, at),
            [0x93, ..] => match stacked(&bytes[place.saturating_sub(BACK)..place]) {
                Some(back) => self.swept(blob, at - back as u64, Certainty::Bare),
                None => Ok(()),
            },
            [b'P', ..] if here.starts_with(zip::END) => self.archive(blob, at),
            [b'P', ..] if here.starts_with(zip::LOCAL) => {
                members::orphan(self, blob, at);
                Ok(())
            }
            [b'u', ..] if here.starts_with(b"ustar") => match at.checked_sub(USTAR) {
                Some(header) if tar::is_header(&*blob.source, header) => {
                    self.tar(blob, header, false)
                }
                _ => Ok(()),
            },
            [0x89, ..] if here.starts_with(b"\x89HDF\r\n\x1a\n") => {
                hdf5::examine(self, &blob.part("HDF5", at, u64::MAX))
            }
            [0x1f | 0xfd | b'B' | 0x28 | 0x78 | 0x5d, ..] => {
                if let Some(packing) = Packing::of(here)
                    && (packing.is_certain() || is_plausible(packing, here))
                {
                    self.perhaps_packed(blob, at, packing);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn swept(&mut self, blob: &Blob, at: u64, certainty: Certainty) -> Result<()> {
        if self.is_run(blob, at) {
            return Ok(());
        }
        match self.pickle(blob, at, certainty)? {
            Some((_, end)) => self.sequence(blob, end, Certainty::Perhaps),
            None => Ok(()),
        }
    }
}

/// Returns whether anything the sweep looks for may begin with these two bytes. Nothing shorter
/// than two bytes does harm.
fn may_begin(first: u8, second: u8) -> bool {
    let pair = usize::from(u16::from_be_bytes([first, second]));
    BEGINNINGS[pair / 64] >> (pair % 64) & 1 == 1
}

/// A bit for each two bytes that may begin something.
static BEGINNINGS: [u64; 1024] = {
    let mut bits = [0; 1024];
    let mut pair = 0;
    while pair < 1 << 16 {
        let (first, second) = ((pair >> 8) as u8, (pair & 0xff) as u8);
        let begins = match first {
            op::PROTO => matches!(second, 2..=5),
            op::GLOBAL | op::INST => is_name(second),
            // `STACK_GLOBAL`, or an array of numpy.
            op::STACK_GLOBAL => true,
            b'P' => second == b'K',
            b'u' => second == b's',
            0x89 => second == b'H',
            // gzip, xz, bzip2, zstd, zlib and LZMA.
            0x1f => second == 0x8b,
            0xfd => second == b'7',
            b'B' => second == b'Z',
            0x28 => second == 0xb5,
            0x78 => matches!(second, 0x01 | 0x5e | 0x9c | 0xda),
            0x5d => second == 0,
            _ => false,
        };
        if begins {
            bits[pair / 64] |= 1 << (pair % 64);
        }
        pair += 1;
    }
    bits
};

/// Returns whether there is more evidence for a compression than its magic number of two or three
/// bytes, which is frequent among weights.
fn is_plausible(packing: Packing, here: &[u8]) -> bool {
    match (packing, here) {
        // The levels that zlib writes, and no preset dictionary.
        (Packing::Zlib, [_, 0x01 | 0x5e | 0x9c | 0xda, rest @ ..]) => inflates(rest),
        // No length, or one below a terabyte; then the first byte of the code, which is 0.
        (Packing::Lzma, _) => here.get(5..14).is_some_and(|bytes| {
            bytes[8] == 0 && (bytes[..8] == [0xff; 8] || bytes[5..8] == [0; 3])
        }),
        _ => false,
    }
}

/// Returns whether deflated data begins here: its first bytes decompress, or all of a short stream.
fn inflates(bytes: &[u8]) -> bool {
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
    let mut inflater = flate2::Decompress::new(false);
    let bytes = &bytes[..bytes.len().min(AHEAD as usize)];
    let ended = inflater.decompress(bytes, &mut out, flate2::FlushDecompress::None);
    match ended {
        Ok(flate2::Status::StreamEnd) => true,
        Ok(_) => inflater.total_out() == SAMPLE as u64,
        Err(_) => false,
    }
}

/// Returns whether two lines follow that are names.
fn names(bytes: &[u8]) -> bool {
    let Some(module) = line(bytes) else { return false };
    bytes.get(module + 1..).and_then(line).is_some()
}

/// Returns the length of a line that is a dotted name, if there is one.
fn line(bytes: &[u8]) -> Option<usize> {
    let len = bytes.iter().take(200).position(|byte| !is_name(*byte))?;
    (len > 0 && bytes[len] == b'\n').then_some(len)
}

const fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.'
}

/// Searches for the operands of `STACK_GLOBAL` at the end of `bytes`: two strings that are names,
/// followed only by opcodes that store them in the memo. Any string opcode counts. Returns their
/// distance from the end.
fn stacked(bytes: &[u8]) -> Option<usize> {
    if !may_end_name(bytes) {
        return None;
    }
    let start = (0..bytes.len())
        .filter(|at| TEXTS[usize::from(bytes[*at])])
        .find(|at| text(bytes, *at).and_then(|end| text(bytes, end)) == Some(bytes.len()));
    start.map(|start| bytes.len() - start)
}

/// The opcodes of strings.
const TEXTS: [bool; 256] = {
    let mut texts = [false; 256];
    let opcodes = [
        op::SHORT_BINUNICODE,
        op::BINUNICODE,
        op::BINUNICODE8,
        op::UNICODE,
        op::STRING,
        op::BINSTRING,
        op::SHORT_BINSTRING,
    ];
    let mut at = 0;
    while at < opcodes.len() {
        texts[opcodes[at] as usize] = true;
        at += 1;
    }
    texts
};

/// Returns whether bytes end with a name or with an opcode that stores it in the memo. This
/// excludes most places quickly.
fn may_end_name(bytes: &[u8]) -> bool {
    match bytes {
        [.., op::BINPUT, _] | [.., op::LONG_BINPUT, _, _, _, _] => true,
        [.., b'\n' | op::MEMOIZE] => true,
        _ => ends_with_counted_name(bytes),
    }
}

/// Returns whether bytes end with a name after an opcode with its length.
fn ends_with_counted_name(bytes: &[u8]) -> bool {
    let run = bytes.iter().rev().take_while(|byte| is_name_or_escape(**byte)).count();
    (1..=run).any(|len| match bytes[..bytes.len() - len] {
        [.., op::SHORT_BINUNICODE | op::SHORT_BINSTRING, stated] => usize::from(stated) == len,
        [.., op::BINUNICODE | op::BINSTRING, a, b, c, d]
            if u32::from_le_bytes([a, b, c, d]) as usize == len =>
        {
            true
        }
        [.., op::BINUNICODE8, low, high, 0, 0, 0, 0, 0, 0] => {
            usize::from(u16::from_le_bytes([low, high])) == len
        }
        _ => false,
    })
}

fn is_name_or_escape(byte: u8) -> bool {
    is_name(byte) || byte == b'\\'
}

/// Returns the end of a string at `at` that is a name, including the opcode that stores it in the
/// memo.
fn text(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at + 1..)?;
    // Only the name in a line is read, which is shorter than the line in most other data.
    let run = |from: usize| {
        let name = rest.get(from..)?;
        Some(name.iter().take_while(|byte| is_name_or_escape(**byte)).count() as u64)
    };
    let (start, len): (usize, u64) = match *bytes.get(at)? {
        op::SHORT_BINUNICODE | op::SHORT_BINSTRING => (1, u64::from(*rest.first()?)),
        op::BINUNICODE | op::BINSTRING => (4, u64::from(u32::from_le_bytes(*rest.first_chunk()?))),
        op::BINUNICODE8 => (8, u64::from_le_bytes(*rest.first_chunk()?)),
        op::UNICODE => (0, run(0)?),
        op::STRING => (1, run(1)?),
        _ => return None,
    };
    let len = usize::try_from(len).ok().filter(|len| *len > 0)?;
    let name = rest.get(start..start.checked_add(len)?)?;
    if !name.iter().all(|byte| is_name_or_escape(*byte)) {
        return None;
    }
    let end = at + 1 + start + len;
    let end = match bytes[at] {
        op::UNICODE => end + 1,
        op::STRING => end + 2,
        _ => end,
    };
    if matches!(bytes[at], op::UNICODE | op::STRING) && bytes.get(end - 1) != Some(&b'\n') {
        return None;
    }
    Some(match bytes.get(end) {
        Some(&op::MEMOIZE) => end + 1,
        Some(&op::BINPUT) => end + 2,
        Some(&op::LONG_BINPUT) => end + 5,
        Some(&op::PUT) => end + 2 + line_len(bytes.get(end + 1..)?)?,
        _ => end,
    })
}

fn line_len(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_stacked_names_in_every_spelling() {
        let spellings: [&[u8]; 7] = [
            b"\x8c\x02os",
            b"X\x02\0\0\0os",
            b"\x8d\x02\0\0\0\0\0\0\0os",
            b"Vos\n",
            b"S'os'\n",
            b"T\x02\0\0\0os",
            b"U\x02os",
        ];
        let memos: [&[u8]; 5] = [b"", b"\x94", b"q\x07", b"r\x07\0\0\0", b"p7\n"];
        for module in spellings {
            for memo in memos {
                for name in spellings {
                    let names = [module, memo, name, memo].concat();
                    let bytes = [b"\xff\xff", &names[..]].concat();
                    assert_eq!(stacked(&bytes), Some(names.len()), "{}", names.escape_ascii());
                }
            }
        }
        for not_names in
            [&b"\x8c\x02os\x8c\x03o s"[..], b"\x8c\x02os", b"\x8c\x02osN\x8c\x02os", b"S'os\n"]
        {
            assert_eq!(stacked(not_names), None, "{}", not_names.escape_ascii());
        }
    }

    #[test]
    fn recognises_deflated_data_of_every_block_type() {
        let fixed = b"\x4b\x04\x00";
        for (what, bytes, expected) in [
            ("stored", &b"\x01\x02\x00\xfd\xffab"[..], true),
            ("stored, with another length", b"\x01\x02\x00\xfc\xffab", false),
            ("fixed codes", fixed, true),
            ("the reserved type", b"\x07\x02\x00\xfd\xff", false),
            ("nothing", b"", false),
        ] {
            assert_eq!(inflates(bytes), expected, "{what}");
        }
    }
}
