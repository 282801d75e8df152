//! Compressed bytes, unpacked within bounds.

use std::io::{self, BufReader, Read};
use std::sync::Arc;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use statelens_checkpoint::{Error, ReadAt, Result, room};

use super::lacks_memory;
use super::section::{Section, SectionStream, exactly, some};

/// How bytes are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Packing {
    Deflate,
    Gzip,
    Zlib,
    Bzip2,
    Xz,
    Lzma,
    /// LZMA as zip archives have it: another header, and no length.
    ZipLzma,
    Zstd,
    /// What is known and not unpacked here.
    Other(&'static str),
}

impl Packing {
    /// What bytes that begin like this are compressed by.
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        Some(match head {
            [0x1f, 0x8b, 8, ..] => Self::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..] => Self::Bzip2,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            [0x78, flags, ..] if (0x7800 | u16::from(*flags)).is_multiple_of(31) => Self::Zlib,
            [0x5d, 0, 0, ..] if head.len() > 13 => Self::Lzma,
            [b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c, ..] => Self::Other("a 7z archive"),
            [0x04, 0x22, 0x4d, 0x18, ..] => Self::Other("compressed by LZ4"),
            [b'R', b'a', b'r', b'!', 0x1a, 7, ..] => Self::Other("a RAR archive"),
            _ => return None,
        })
    }

    /// Whether a few bytes suffice to be sure: of others, what can't be unpacked is no damage.
    pub(super) fn is_certain(self) -> bool {
        !matches!(self, Self::Zlib | Self::Lzma)
    }

    /// For people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Deflate => "deflate",
            Self::Gzip => "gzip",
            Self::Zlib => "zlib",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
            Self::Lzma | Self::ZipLzma => "lzma",
            Self::Zstd => "zstd",
            Self::Other(what) => what,
        }
    }

    /// What unpacks it; the error is a reason in words.
    pub(super) fn reader(self, part: Section) -> Result<Box<dyn Read>, String> {
        let stream = |part: Section| -> SectionStream { part.stream() };
        Ok(match self {
            Self::Deflate => Box::new(DeflateDecoder::new(stream(part))),
            Self::Gzip => Box::new(MultiGzDecoder::new(stream(part))),
            Self::Zlib => Box::new(ZlibDecoder::new(stream(part))),
            Self::Bzip2 => Box::new(bzip2::read::MultiBzDecoder::new(stream(part))),
            Self::Xz => {
                if asks_too_much(&part) {
                    return Err("it asks for more memory than is given".to_owned());
                }
                Box::new(lzma_rust2::XzReader::new(BufReader::new(stream(part)), true))
            }
            Self::Lzma => {
                let memory = (MOST_WINDOW >> 10) as u32;
                let reader = BufReader::new(stream(part));
                let reader = lzma_rust2::LzmaReader::new_mem_limit(reader, memory, None);
                Box::new(reader.map_err(|error| error.to_string())?)
            }
            Self::ZipLzma => {
                let head = exactly::<9>(&part, 0).ok_or("it has no header")?;
                let window = u32::from_le_bytes([head[5], head[6], head[7], head[8]]);
                if u64::from(window) > MOST_WINDOW || head[2..4] != [5, 0] {
                    return Err("it asks for more memory than is given".to_owned());
                }
                let rest = BufReader::new(stream(Section::new(Arc::new(part), 9, u64::MAX)));
                let reader =
                    lzma_rust2::LzmaReader::new_with_props(rest, u64::MAX, head[4], window, None);
                Box::new(reader.map_err(|error| error.to_string())?)
            }
            Self::Zstd => {
                let window = exactly::<18>(&part, 0).map_or(0, |head| zstd_window(&head));
                if window > MOST_WINDOW {
                    return Err("it asks for more memory than is given".to_owned());
                }
                let reader = ruzstd::decoding::StreamingDecoder::new(stream(part));
                Box::new(reader.map_err(|error| error.to_string())?)
            }
            Self::Other(_) => return Err("Statelens does not unpack it".to_owned()),
        })
    }
}

/// The most memory for what was unpacked last and is referred to.
const MOST_WINDOW: u64 = 128 << 20;

/// Whether a block of an xz file asks for a dictionary that is too large. Its crate takes the
/// memory that any block claims, so the headers of all blocks are looked for beforehand: they
/// begin at multiples of four and end with their CRC-32.
fn asks_too_much(part: &Section) -> bool {
    const STEP: u64 = 256 << 10;
    let mut at = 0;
    while at < part.len() {
        let Ok(bytes) = some(part, at, STEP + 1024) else { return false };
        let ends = bytes.len().min(STEP as usize);
        for start in (0..ends).step_by(4) {
            if block_dictionary(&bytes[start..]).is_some_and(|size| size > MOST_WINDOW) {
                return true;
            }
        }
        at += STEP;
    }
    false
}

/// The dictionary that the xz block asks for whose header is at the start of `bytes`, if one is.
fn block_dictionary(bytes: &[u8]) -> Option<u64> {
    let (&size, &flags) = (bytes.first()?, bytes.get(1)?);
    if size == 0 || flags & 0x3c != 0 {
        return None;
    }
    let (header, crc) = bytes.get(..(usize::from(size) + 1) * 4)?.split_last_chunk::<4>()?;
    if crc32fast::hash(header) != u32::from_le_bytes(*crc) {
        return None;
    }
    // The filter LZMA2 has one byte of properties; whatever else looks like it only asks for more.
    let asked = header.windows(3).filter(|bytes| bytes[..2] == [0x21, 1]).map(|bytes| bytes[2]);
    asked.max().map(|bits| match bits {
        40.. => u64::from(u32::MAX),
        bits => (2 | u64::from(bits & 1)) << (bits / 2 + 11),
    })
}

/// The window of a zstd frame; 0 if it is that of the content's length.
fn zstd_window(head: &[u8; 18]) -> u64 {
    let flags = head[4];
    if flags & 0x20 != 0 {
        // A single segment: as long as its content.
        let dictionary = [0, 1, 2, 4][usize::from(flags & 3)];
        let field = &head[5 + dictionary..];
        return match flags >> 6 {
            0 => u64::from(field[0]),
            1 => u64::from(u16::from_le_bytes([field[0], field[1]])) + 256,
            2 => u64::from(u32::from_le_bytes([field[0], field[1], field[2], field[3]])),
            _ => field[..8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        };
    }
    let (exponent, mantissa) = (u64::from(head[5] >> 3), u64::from(head[5] & 7));
    let base = 1u64 << (10 + exponent);
    base + base / 8 * mantissa
}

/// What became of unpacking.
pub(super) struct Unpacked {
    /// What was unpacked, as far as it was wanted.
    pub(super) bytes: Vec<u8>,
    /// Why it ended before its end, if it did.
    pub(super) broken: Option<String>,
    /// What is still to come, if there is more.
    pub(super) more: Option<Box<dyn Read>>,
}

/// Unpacks up to `most` bytes. Fails only where there is no memory for them.
pub(super) fn unpack(source: &Arc<dyn ReadAt>, packing: Packing, most: u64) -> Result<Unpacked> {
    let mut bytes = Vec::new();
    let part = Section::new(source.clone(), 0, u64::MAX);
    let mut reader = match packing.reader(part) {
        Ok(reader) => reader,
        Err(why) => return Ok(Unpacked { bytes, broken: Some(why), more: None }),
    };
    let broken = match fill(&mut reader, &mut bytes, most) {
        Ok(()) => None,
        Err(error) => match no_memory(&error) {
            Some(error) => return Err(error.clone()),
            None => Some(error.to_string()),
        },
    };
    let more = broken.is_none() && bytes.len() as u64 >= most;
    Ok(Unpacked { bytes, broken, more: more.then_some(reader) })
}

/// What says that there was no memory for it, if that is what went wrong.
pub(super) fn no_memory(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref::<Error>().filter(|error| lacks_memory(error))
}

/// Reads on until there are `most` bytes or no more come. What came before an error is kept.
pub(super) fn fill(reader: &mut dyn Read, bytes: &mut Vec<u8>, most: u64) -> io::Result<()> {
    let mut piece = vec![0; 4 << 10];
    while (bytes.len() as u64) < most {
        let rest = (most - bytes.len() as u64).min(piece.len() as u64) as usize;
        match reader.read(&mut piece[..rest]) {
            Ok(0) => break,
            Ok(read) => {
                room::make_room(bytes, read as u64).map_err(io::Error::other)?;
                bytes.extend_from_slice(&piece[..read]);
                if bytes.len() > 64 << 10 {
                    piece.resize(64 << 10, 0);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_xz_block_that_asks_for_gigabytes_is_seen_before_it_is_opened() {
        let header = |bits: u8| {
            let mut header = vec![2, 0, 0x21, 1, bits, 0, 0, 0];
            header.extend(crc32fast::hash(&header).to_le_bytes());
            header
        };
        assert_eq!(block_dictionary(&header(28)), Some(64 << 20));
        assert_eq!(block_dictionary(&header(40)), Some(u64::from(u32::MAX)));
        let mut broken = header(40);
        broken[4] ^= 1;
        assert_eq!(block_dictionary(&broken), None);
    }

    #[test]
    fn a_zstd_window_is_read_as_it_is_specified() {
        let mut head = [0; 18];
        head[5] = 0xff;
        assert_eq!(zstd_window(&head), (1 << 41) + (1 << 41) / 8 * 7);
        head[4] = 0x20;
        head[5] = 200;
        assert_eq!(zstd_window(&head), 200);
    }
}
