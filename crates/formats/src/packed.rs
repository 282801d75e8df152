//! Decompression within limits.

mod bzip2;
mod lz4;
mod parts;
mod xz;
mod zstd;

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Arc;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use statelens_checkpoint::{Error, ReadAt, Result, try_alloc};

use crate::section::{Section, SectionStream, exactly, some};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Packing {
    Deflate,
    Gzip,
    Zlib,
    /// The format of joblib before 0.10: a length in hexadecimal digits before a zlib stream.
    OldJoblib,
    Bzip2,
    Xz,
    /// LZMA with its own header (`lzma.FORMAT_ALONE`).
    Lzma,
    /// LZMA as in zip archives: with a different header and without a length.
    ZipLzma,
    Zstd,
    /// The frames of LZ4, as joblib writes them.
    Lz4,
    /// A format that is recognised but not decompressed.
    Other(&'static str),
}

impl Packing {
    pub(crate) fn of(head: &[u8]) -> Option<Self> {
        Some(match head {
            [0x1f, 0x8b, 8, ..] => Self::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..] => Self::Bzip2,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            [0x78, flags, ..] if (0x7800 | u16::from(*flags)).is_multiple_of(31) => Self::Zlib,
            // As recognised by joblib: the lowest byte of the dictionary size is 0. So is the first
            // byte of the code.
            [0x5d, 0, ..] if head.get(LZMA_HEADER) == Some(&0) => Self::Lzma,
            [b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c, ..] => Self::Other("a 7z archive"),
            [0x04, 0x22, 0x4d, 0x18, ..] => Self::Lz4,
            [b'R', b'a', b'r', b'!', 0x1a, 7, ..] => Self::Other("a RAR archive"),
            _ => return None,
        })
    }

    /// Like [`Packing::of`], for the start of a file or member: also accepts formats whose magic
    /// numbers are too short to search for elsewhere.
    pub(crate) fn at_start(head: &[u8]) -> Option<Self> {
        match head {
            // An empty bzip2 stream, which others may follow.
            [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => {
                Some(Self::Bzip2)
            }
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            [b'Z', b'F', ..] if old_joblib(head).is_some() => Some(Self::OldJoblib),
            // A window smaller than usual.
            [first @ (0x08 | 0x18 | 0x28 | 0x38 | 0x48 | 0x58 | 0x68), flags, ..]
                if (u16::from(*first) << 8 | u16::from(*flags)).is_multiple_of(31) =>
            {
                Some(Self::Zlib)
            }
            _ => Self::of(head).or_else(|| is_lzma(head).then_some(Self::Lzma)),
        }
    }

    /// Returns whether its magic number is conclusive. For other formats, a failure to decompress
    /// is not damage.
    pub(crate) fn is_certain(self) -> bool {
        !matches!(self, Self::Zlib | Self::Lzma | Self::OldJoblib)
    }

    /// Returns the cost of a stream, in units of the budget, in addition to that of its bytes.
    pub(crate) fn stream_cost(self) -> u64 {
        match self {
            Self::Bzip2 | Self::Xz => 3_000_000,
            Self::Zstd => 40_000,
            _ => 0,
        }
    }

    /// Returns the cost per byte of output: some formats are much slower than others.
    pub(crate) fn weight(self) -> u64 {
        match self {
            Self::Bzip2 => 6,
            Self::Xz | Self::Lzma | Self::ZipLzma => 4,
            _ => 1,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Deflate => "deflate",
            Self::Gzip => "gzip",
            Self::Zlib | Self::OldJoblib => "zlib",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
            Self::Lzma | Self::ZipLzma => "lzma",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Other(what) => what,
        }
    }

    /// Returns a reader of the decompressed bytes with back-references of at most `window` bytes.
    /// The error is the reason in words.
    pub(crate) fn reader(
        self,
        part: Section,
        window: u64,
        used: UsedInput,
    ) -> Result<Box<dyn Read>, String> {
        let whole = |part: Section| part.stream(0, used.bytes.clone());
        let from = |part: Section, at: u64| part.stream(at, used.bytes.clone());
        Ok(match self {
            Self::Deflate => Box::new(DeflateDecoder::new(whole(part))),
            Self::Gzip => Box::new(MultiGzDecoder::new(whole(part))),
            Self::Zlib => Box::new(ZlibDecoder::new(whole(part))),
            Self::OldJoblib => {
                let head = some(&part, 0, OLD_JOBLIB + 1).map_err(|error| error.to_string())?;
                let start = old_joblib(&head).ok_or("it has no header")?;
                Box::new(ZlibDecoder::new(from(part, start)))
            }
            Self::Bzip2 => Box::new(bzip2::Bzip2::new(whole(part), used.streams.clone())),
            Self::Xz => Box::new(xz::Xz::new(whole(part), window, used.streams.clone())),
            Self::Lzma => {
                let header = exactly::<LZMA_HEADER>(&part, 0).ok_or("it has no header")?;
                let [props, a, b, c, d, size @ ..] = header;
                let dictionary = u32::from_le_bytes([a, b, c, d]);
                let len = u64::from_le_bytes(size);
                lzma(from(part, LZMA_HEADER as u64), props, dictionary, len, window)?
            }
            Self::ZipLzma => {
                let [_, _, 5, 0, props, a, b, c, d] =
                    exactly::<9>(&part, 0).ok_or("it has no header")?
                else {
                    return Err("its header is of another kind".to_owned());
                };
                let dictionary = u32::from_le_bytes([a, b, c, d]);
                lzma(from(part, 9), props, dictionary, u64::MAX, window)?
            }
            Self::Zstd => Box::new(zstd::Zstd::new(whole(part), window, used.streams.clone())),
            Self::Lz4 => Box::new(lz4::Lz4::new(whole(part))),
            Self::Other(_) => return Err("Statelens does not unpack it".to_owned()),
        })
    }
}

/// What a reader has used of its source so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsedInput {
    /// Number of bytes, which may include read-ahead.
    bytes: Rc<Cell<u64>>,
    /// Number of streams, if the format has a cost for each.
    streams: Rc<Cell<u64>>,
}

/// The length of an LZMA header: properties, dictionary size, and uncompressed length.
const LZMA_HEADER: usize = 13;
/// Number of bytes at the end of LZMA data that a decoder may leave unread.
const LZMA_END: u64 = 5;
/// The length of the header of [`Packing::OldJoblib`]; Python 2 wrote an additional space.
const OLD_JOBLIB: u64 = 2 + 19;
/// The maximum distance of back-references in bytes.
pub(crate) const WINDOW: u64 = 128 << 20;

/// Returns whether liblzma would accept the bytes as LZMA with arbitrary properties. If `lzma.open`
/// does not find xz, it requires a dictionary size of a usual form and a plausible length
/// (`lzma_alone_decoder.c`, picky). If LZMA is requested explicitly, it accepts any dictionary
/// size; of these, only streams without a length are recognised here.
fn is_lzma(head: &[u8]) -> bool {
    let [props, a, b, c, d, size @ ..] = head else { return false };
    let dictionary = u32::from_le_bytes([*a, *b, *c, *d]);
    let rest = dictionary & dictionary.wrapping_sub(1);
    let round = dictionary == u32::MAX || rest == 0 || rest == (dictionary ^ rest) << 1;
    let Some((size, code)) = size.split_first_chunk::<8>() else { return false };
    let sound = match u64::from_le_bytes(*size) {
        u64::MAX => true,
        size => round && size < 1 << 38,
    };
    *props < 9 * 5 * 5 && dictionary > 0 && sound && code.first() == Some(&0)
}

/// Limits the dictionary to the window: data with back-references beyond that fails.
fn lzma(
    source: SectionStream,
    props: u8,
    dictionary: u32,
    len: u64,
    window: u64,
) -> Result<Box<dyn Read>, String> {
    let cut = u64::from(dictionary).min(window) as u32;
    let reader = lzma_rust2::LzmaReader::new_with_props(source, len, props, cut, None);
    Ok(Box::new(reader.map_err(|error| error.to_string())?))
}

/// Returns the offset of the zlib stream in an old joblib file.
fn old_joblib(head: &[u8]) -> Option<u64> {
    let digits = head.strip_prefix(b"ZF")?.get(..19)?.trim_ascii();
    let digits = digits.strip_prefix(b"0x").or(digits.strip_prefix(b"0X")).unwrap_or(digits);
    let sound = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b'_' | b'L');
    let start = OLD_JOBLIB + u64::from(head.get(OLD_JOBLIB as usize) == Some(&b' '));
    (!digits.is_empty() && digits.iter().all(sound)).then_some(start)
}

pub(crate) struct Unpacked {
    /// The decompressed bytes, up to the requested number.
    pub(crate) bytes: Vec<u8>,
    /// The reason why it ended early, if it did.
    pub(crate) broken: Option<String>,
    /// A reader for the remaining output, if there is more.
    pub(crate) more: Option<Box<dyn Read>>,
    /// Number of source bytes that were read, which may include read-ahead.
    pub(crate) used: u64,
    /// Number of streams, if the format has a cost for each.
    pub(crate) streams: u64,
    /// Whether Python would get more or different output.
    pub(crate) differs: bool,
}

/// Output of LZMA that needs only a small dictionary. Bytes that look like a header are frequent, and
/// each may ask for a dictionary of gigabytes.
const SHORT: u64 = 4 << 10;

/// Decompresses up to `most` bytes. `depth` is the nesting depth of the source's compression. Fails
/// only if there is not enough memory.
pub(crate) fn unpack(
    source: &Arc<dyn ReadAt>,
    packing: Packing,
    most: u64,
    depth: u32,
) -> Result<Unpacked> {
    if matches!(packing, Packing::Lzma | Packing::ZipLzma) && most > SHORT {
        // No distance is longer than the output.
        let short = unpack_in(source, packing, SHORT, SHORT, depth)?;
        if short.more.is_none() {
            return Ok(short);
        }
    }
    unpack_in(source, packing, most, WINDOW >> depth, depth)
}

/// Like [`unpack`], with a window of this number of bytes.
fn unpack_in(
    source: &Arc<dyn ReadAt>,
    packing: Packing,
    most: u64,
    window: u64,
    depth: u32,
) -> Result<Unpacked> {
    let mut bytes = Vec::new();
    let part = Section::new(source.clone(), 0, u64::MAX);
    let used = UsedInput::default();
    let mut reader = match packing.reader(part, window, used.clone()) {
        Ok(reader) => reader,
        Err(why) => {
            let used = used.bytes.get();
            let broken = Some(why);
            return Ok(Unpacked { bytes, broken, more: None, used, streams: 0, differs: false });
        }
    };
    let mut broken = match fill(&mut reader, &mut bytes, most) {
        Ok(()) => None,
        Err(error) => match no_memory(&error) {
            Some(error) => return Err(error.clone()),
            None => Some(error.to_string()),
        },
    };
    if broken.is_some() {
        let part = Section::new(source.clone(), 0, u64::MAX);
        if let Ok(mut again) = packing.reader(part, window, UsedInput::default()) {
            read_to_the_error(&mut again, &mut bytes, most);
        }
    }
    let more = broken.is_none() && bytes.len() as u64 >= most;
    let (used, streams) = (used.bytes.get(), used.streams.get());
    let mut differs = false;
    if packing == Packing::Lzma && !bytes.is_empty() {
        // Python continues with the data that follows, which may also be xz.
        if broken.is_none() && !more && used + LZMA_END < source.len() {
            broken = Some("other bytes follow it".to_owned());
            differs = true;
        }
        let dictionary = exactly::<5>(&**source, 0)
            .map_or(0, |head| u64::from(u32::from_le_bytes([head[1], head[2], head[3], head[4]])));
        // Other data that looks like a header yields a few bytes at most.
        let expands = bytes.len() as u64 > used;
        differs |= broken.is_some() && expands && dictionary > WINDOW >> depth;
    }
    Ok(Unpacked { bytes, broken, more: more.then_some(reader), used, streams, differs })
}

/// Returns the underlying error if it is a lack of memory.
pub(crate) fn no_memory(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref::<Error>().filter(|error| error.code() == try_alloc::CODE)
}

/// Reads until there are `most` bytes or the input ends. Bytes read before an error are kept.
pub(crate) fn fill(reader: &mut dyn Read, bytes: &mut Vec<u8>, most: u64) -> io::Result<()> {
    let mut piece = vec![0; 4 << 10];
    while (bytes.len() as u64) < most {
        let rest = (most - bytes.len() as u64).min(piece.len() as u64) as usize;
        match reader.read(&mut piece[..rest]) {
            Ok(0) => break,
            Ok(read) => {
                try_alloc::make_room(bytes, read as u64).map_err(io::Error::other)?;
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

/// Adds the bytes that a reader can return before it fails, after `bytes`, which it returned before.
/// A reader that fails in the middle of a buffer loses the bytes that are in it; Python's unpickler
/// would get them.
fn read_to_the_error(again: &mut dyn Read, bytes: &mut Vec<u8>, most: u64) {
    let known = io::copy(&mut again.take(bytes.len() as u64), &mut io::sink());
    if known.ok() != Some(bytes.len() as u64) {
        return;
    }
    let mut byte = [0];
    while (bytes.len() as u64) < most && matches!(again.read(&mut byte), Ok(1)) {
        if try_alloc::make_room(bytes, 1).is_err() {
            return;
        }
        bytes.push(byte[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers are those of `lzma.compress(…, format=FORMAT_ALONE)` of Python 3.11, and some
    /// that `lzma.decompress` refuses or accepts only with that format.
    #[test]
    fn recognises_lzma_headers_as_python_does() {
        let header = |props: u8, dictionary: u32, size: u64| {
            let mut header = vec![props];
            header.extend(dictionary.to_le_bytes());
            header.extend(size.to_le_bytes());
            header.push(0);
            header
        };
        for (props, dictionary, size, expected) in [
            (0x5d, 8 << 20, u64::MAX, true),
            (0x5d, 4096, u64::MAX, true),
            (0x00, 4096, 30, true),
            (0x5e, 6 << 10, u64::MAX, true),
            (0x5d, 256 << 20, u64::MAX, true),
            (0x5d, u32::MAX, u64::MAX, true),
            (0x0a, 12_345, u64::MAX, true),
            (0x5d, 5 << 10, 30, false),
            (0x5d, 4096, 1 << 38, false),
            (225, 4096, u64::MAX, false),
        ] {
            let header = header(props, dictionary, size);
            assert_eq!(is_lzma(&header), expected, "{header:?}");
        }
    }

    #[test]
    fn old_joblib_files_begin_with_their_length() {
        let header = |text: &str| format!("ZF{text:<19}x").into_bytes();
        assert_eq!(old_joblib(&header("0x1c")), Some(21));
        assert_eq!(old_joblib(&header("0x1cL")), Some(21));
        assert_eq!(old_joblib(b"ZF0x1c                ".as_slice()), Some(22));
        assert_eq!(old_joblib(&header("words")), None);
        assert_eq!(old_joblib(b"ZF0x1c"), None);
    }
}
