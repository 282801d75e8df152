//! Files of xz: streams of blocks, each with its own filters (`xz-file-format.txt` 1.1.0). The
//! container is parsed here because its crate recurses on empty streams and allocates any
//! dictionary that a block claims. Checksums are not verified: Python returns the bytes before it
//! verifies them.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use lzma_rust2::Lzma2Reader;
use lzma_rust2::filter::bcj::BcjReader;
use lzma_rust2::filter::delta::DeltaReader;

use super::parts::PartCount;
use crate::section::SectionStream;

const MAGIC: &[u8] = b"\xfd7zXZ\0";
/// Number of blocks that may be short, with a dictionary of [`DICTIONARY`]: milliseconds each.
const MAX_SHORT: u64 = 256;
/// Mean number of decompressed bytes of further blocks.
const MIN_MEAN: u64 = 4 << 10;
/// The usual size of a dictionary in bytes.
const DICTIONARY: u64 = 8 << 20;

/// Decompresses all streams of a file.
pub(super) struct Xz {
    state: State,
    /// The length in bytes of the check after a block.
    check: usize,
    /// The maximum dictionary size in bytes.
    window: u64,
    blocks: PartCount,
}

enum State {
    /// Before a stream, or after the last one.
    Between(Counted),
    /// At the start of a block or of the index.
    InStream(Counted),
    InBlock(Box<Chain>),
    Ended,
}

impl Xz {
    pub(super) fn new(source: SectionStream, window: u64, blocks: Rc<Cell<u64>>) -> Self {
        let source = Counted { source, read: 0 };
        let blocks = PartCount::new(blocks, MAX_SHORT, MIN_MEAN);
        Self { state: State::Between(source), check: 0, window, blocks }
    }

    /// Starts the next stream; returns `false` at the end of the file.
    fn stream(&mut self, source: &mut Counted) -> io::Result<bool> {
        let mut first = [0];
        // Streams may be padded with zeros.
        loop {
            if source.read(&mut first)? == 0 {
                return Ok(false);
            }
            if first != [0] {
                break;
            }
        }
        let mut header = [0; 11];
        source.read_exact(&mut header)?;
        if first[0] != MAGIC[0] || header[..5] != MAGIC[1..] {
            return Err(invalid("something that is not of xz follows"));
        }
        self.check = match header[6] & 15 {
            0 => 0,
            1..=3 => 4,
            4..=6 => 8,
            7..=9 => 16,
            10..=12 => 32,
            _ => 64,
        };
        Ok(true)
    }

    /// Opens the next block, or returns to the state between streams at the end of the stream.
    fn block(&mut self, mut source: Counted) -> io::Result<State> {
        let mut size = [0];
        source.read = 0;
        source.read_exact(&mut size)?;
        if size == [0] {
            index(&mut source)?;
            return Ok(State::Between(source));
        }
        let mut header = vec![0; usize::from(size[0]) * 4 + 3];
        source.read_exact(&mut header)?;
        source.read = 0;
        let filters =
            filters(&header).ok_or_else(|| invalid("the header of a block is damaged"))?;
        let mut chain = Chain::Source(source);
        for (id, properties) in filters.into_iter().rev() {
            let start = || match *properties {
                [] => Some(0),
                [a, b, c, d] => usize::try_from(u32::from_le_bytes([a, b, c, d])).ok(),
                _ => None,
            };
            let start = |make: fn(Box<Chain>, usize) -> BcjReader<Box<Chain>>, chain: Chain| {
                let start = start().ok_or_else(|| invalid("a filter has other properties"))?;
                Ok::<_, io::Error>(Chain::Bcj(make(Box::new(chain), start)))
            };
            chain = match (id, &*properties) {
                (0x21, [bits]) => {
                    let size = dictionary(*bits);
                    if size > self.window {
                        return Err(invalid("it needs more memory than the limit allows"));
                    }
                    self.blocks.begin(1 + size / DICTIONARY)?;
                    Chain::Lzma2(Box::new(Lzma2Reader::new(Box::new(chain), size as u32, None)))
                }
                (3, [distance]) => {
                    Chain::Delta(DeltaReader::new(Box::new(chain), usize::from(*distance) + 1))
                }
                (4, _) => start(BcjReader::new_x86, chain)?,
                (5, _) => start(BcjReader::new_ppc, chain)?,
                (6, _) => start(BcjReader::new_ia64, chain)?,
                (7, _) => start(BcjReader::new_arm, chain)?,
                (8, _) => start(BcjReader::new_arm_thumb, chain)?,
                (9, _) => start(BcjReader::new_sparc, chain)?,
                (10, _) => start(BcjReader::new_arm64, chain)?,
                (11, _) => start(BcjReader::new_riscv, chain)?,
                _ => return Err(invalid("it uses a filter that Statelens does not know")),
            };
        }
        Ok(State::InBlock(Box::new(chain)))
    }
}

impl Read for Xz {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Between(mut source) => {
                    if !self.stream(&mut source)? {
                        return Ok(0);
                    }
                    self.state = State::InStream(source);
                }
                State::InStream(source) => self.state = self.block(source)?,
                State::InBlock(mut chain) => {
                    let read = chain.read(into)?;
                    if read > 0 || into.is_empty() {
                        self.blocks.add(read);
                        self.state = State::InBlock(chain);
                        return Ok(read);
                    }
                    let mut source = chain.into_source();
                    let padding = source.read.next_multiple_of(4) - source.read;
                    let behind = padding as usize + self.check;
                    source.read_exact(&mut [0; 3 + 64][..behind])?;
                    self.state = State::InStream(source);
                }
                State::Ended => return Ok(0),
            }
        }
    }
}

/// Parses the filters, first to last: IDs and properties.
fn filters(header: &[u8]) -> Option<Vec<(u64, Vec<u8>)>> {
    let (header, crc) = header.split_last_chunk::<4>()?;
    // The checksum also covers the size byte.
    let size = u8::try_from((header.len() + 5) / 4 - 1).ok()?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[size]);
    hasher.update(header);
    if hasher.finalize() != u32::from_le_bytes(*crc) {
        return None;
    }
    let (flags, mut rest) = header.split_first()?;
    for present in [flags & 0x40, flags & 0x80] {
        if present != 0 {
            number(&mut rest).ok()?;
        }
    }
    (0..=flags & 3)
        .map(|_| {
            let id = number(&mut rest).ok()?;
            let len = usize::try_from(number(&mut rest).ok()?).ok()?;
            let (properties, after) = rest.split_at_checked(len)?;
            rest = after;
            Some((id, properties.to_vec()))
        })
        .collect()
}

/// Reads a number of variable length (7 bits per byte, lowest first; at most nine bytes).
fn number(source: &mut impl Read) -> io::Result<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let mut byte = [0];
        source.read_exact(&mut byte)?;
        value |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(invalid("a number is too long"))
}

/// Decodes the size of a dictionary in bytes.
fn dictionary(bits: u8) -> u64 {
    match bits {
        40.. => u64::from(u32::MAX),
        bits => (2 | u64::from(bits & 1)) << (bits / 2 + 11),
    }
}

/// Skips the index and the footer of a stream, which are not needed.
fn index(source: &mut Counted) -> io::Result<()> {
    let records = number(source)?;
    for _ in 0..records {
        number(source)?;
        number(source)?;
    }
    let padding = source.read.next_multiple_of(4) - source.read;
    source.read_exact(&mut [0; 3 + 4 + 12][..padding as usize + 4 + 12])
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A source that counts the bytes read.
struct Counted {
    source: SectionStream,
    read: u64,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(into)?;
        self.read += read as u64;
        Ok(read)
    }
}

/// The filters of a block. The innermost reads the file.
enum Chain {
    Source(Counted),
    Lzma2(Box<Lzma2Reader<Box<Chain>>>),
    Delta(DeltaReader<Box<Chain>>),
    Bcj(BcjReader<Box<Chain>>),
}

impl Chain {
    fn into_source(mut self) -> Counted {
        loop {
            self = match self {
                Self::Source(source) => return source,
                Self::Lzma2(reader) => *reader.into_inner(),
                Self::Delta(reader) => *reader.into_inner(),
                Self::Bcj(reader) => *reader.into_inner(),
            };
        }
    }
}

impl Read for Chain {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Source(source) => source.read(into),
            Self::Lzma2(reader) => reader.read(into),
            Self::Delta(reader) => reader.read(into),
            Self::Bcj(reader) => reader.read(into),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use statelens_checkpoint::Memory;

    use super::*;
    use crate::section::Section;

    /// `lzma.compress(b"a")` of Python 3.11.
    const SHORT: [u8; 60] = [
        253, 55, 122, 88, 90, 0, 0, 4, 230, 214, 180, 70, 2, 0, 33, 1, 22, 0, 0, 0, 116, 47, 229,
        163, 1, 0, 0, 97, 0, 0, 0, 0, 5, 43, 101, 46, 119, 132, 2, 51, 0, 1, 25, 1, 165, 44, 129,
        204, 31, 182, 243, 125, 1, 0, 0, 0, 0, 4, 89, 90,
    ];

    #[test]
    fn refuses_thousands_of_short_blocks() {
        for (times, is_read) in [(100, true), (10_000, false)] {
            let file = Memory::from(SHORT.repeat(times));
            let part = Section::new(Arc::new(file), 0, u64::MAX);
            let blocks = Rc::default();
            let mut reader = Xz::new(part.stream(0, Rc::default()), 1 << 27, Rc::clone(&blocks));
            assert_eq!(reader.read_to_end(&mut Vec::new()).is_ok(), is_read, "{times}");
            assert!(blocks.get() <= MAX_SHORT + 2, "{blocks:?}");
        }
    }

    #[test]
    fn decodes_the_dictionary_size() {
        assert_eq!(dictionary(0), 4 << 10);
        assert_eq!(dictionary(28), 64 << 20);
        assert_eq!(dictionary(40), u64::from(u32::MAX));
    }
}
