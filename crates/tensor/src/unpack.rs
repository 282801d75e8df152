//! Decompresses a storage piece by piece: deflate, bzip2 and LZMA, the methods of Python's
//! `zipfile`, and Zstandard.

use std::io::Read;
use std::ops::Range;

use flate2::{Decompress, FlushDecompress};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use statelens_checkpoint::{Error, Packed, Packing, Result, Span, try_alloc};

use crate::{Need, Out};

const PIECE: usize = 64 << 10;

/// The largest LZMA dictionary that is allocated, in bytes.
const MAX_DICTIONARY: u32 = 128 << 20;

/// Decompresses a storage and passes on the range `wanted`.
pub(crate) struct Unpack {
    packing: Packing,
    /// Compressed bytes that have not been fed yet.
    rest: Span,
    /// Start of the stream. Errors name this offset, because the position within the stream depends
    /// on how it is cut into pieces.
    start: u64,
    /// Decompressed length of the storage; the largest number if more bytes may follow it.
    len: u64,
    wanted: Range<u64>,
    at: u64,
    decoder: Decoder,
    piece: Vec<u8>,
    done: bool,
}

enum Decoder {
    Deflate(Decompress),
    Bzip2(bzip2::Decompress),
    /// The compressed bytes so far: the decoder reads from a source instead of being fed.
    Lzma(Vec<u8>),
    /// The bytes of an incomplete block, and whether the header of the frame was read.
    Zstd {
        frame: Box<FrameDecoder>,
        pending: Vec<u8>,
        started: bool,
    },
}

struct Progressed {
    read: usize,
    written: usize,
    ended: bool,
}

impl Unpack {
    /// Creates the machine. `wanted` counts from the end of the skipped bytes.
    pub(crate) fn new(packed: &Packed, wanted: Range<u64>) -> Result<Self> {
        let shifted = |at: u64| {
            let too_long =
                || Error::damaged("a compressed tensor is longer than 64 bits can count");
            at.checked_add(packed.skip).ok_or_else(too_long)
        };
        Ok(Self {
            packing: packed.packing,
            start: packed.span.offset,
            rest: packed.span,
            len: match packed.packing {
                Packing::Zstd => u64::MAX,
                _ => shifted(packed.len)?,
            },
            wanted: shifted(wanted.start)?..shifted(wanted.end)?,
            at: 0,
            decoder: match packed.packing {
                Packing::Deflate => Decoder::Deflate(Decompress::new(false)),
                Packing::Bzip2 => Decoder::Bzip2(bzip2::Decompress::new(false)),
                Packing::Lzma => Decoder::Lzma(Vec::new()),
                Packing::Zstd => Decoder::Zstd {
                    frame: Box::new(FrameDecoder::new()),
                    pending: Vec::new(),
                    started: false,
                },
            },
            piece: vec![0; PIECE],
            done: false,
        })
    }

    pub(crate) fn need(&self) -> Need {
        if self.done { Need::Done } else { Need::Feed(self.rest) }
    }

    pub(crate) fn feed(&mut self, mut bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        self.rest.offset += bytes.len() as u64;
        self.rest.len -= bytes.len() as u64;
        if let Decoder::Lzma(stored) = &mut self.decoder {
            try_alloc::make_room(stored, bytes.len() as u64)?;
            stored.extend_from_slice(bytes);
            return match self.rest.len {
                0 => self.lzma(out),
                _ => Ok(()),
            };
        }
        loop {
            let Progressed { read, written, ended } =
                self.decoder.run(bytes, &mut self.piece).map_err(|error| {
                    self.damaged(format!("the compressed bytes are invalid: {error}"))
                })?;
            bytes = bytes.get(read..).unwrap_or_default();
            self.pass_on(written, out)?;
            if ended {
                return self.end(bytes.len() as u64 + self.rest.len);
            }
            if self.at >= self.wanted.end && self.at < self.len {
                // The caller does not need the rest.
                self.done = true;
                return Ok(());
            }
            if read == 0 && written == 0 {
                break;
            }
        }
        if self.rest.len == 0 {
            return Err(self.damaged("the compressed bytes end before their end is marked".into()));
        }
        Ok(())
    }

    /// Decompresses an LZMA stream once all of its bytes are present.
    fn lzma(&mut self, out: &mut Out<'_>) -> Result<()> {
        let Decoder::Lzma(stored) = &mut self.decoder else { return Ok(()) };
        let stored = std::mem::take(stored);
        let senseless = |unpack: &Self, error: std::io::Error| {
            unpack.damaged(format!("the compressed bytes are invalid: {error}"))
        };
        let mut reader = lzma(&stored, self.len)?.map_err(|error| senseless(self, error))?;
        while self.at < self.len && self.at < self.wanted.end {
            let written = reader.read(&mut self.piece).map_err(|error| senseless(self, error))?;
            if written == 0 {
                return self.end(0);
            }
            self.pass_on(written, out)?;
        }
        self.done = true;
        Ok(())
    }

    fn pass_on(&mut self, written: usize, out: &mut Out<'_>) -> Result<()> {
        let piece = self.at..self.at + written as u64;
        if piece.end > self.len {
            return Err(
                self.damaged(format!("decompressed, there are more than {} bytes", self.len))
            );
        }
        self.at = piece.end;
        let from = self.wanted.start.clamp(piece.start, piece.end);
        let to = self.wanted.end.clamp(piece.start, piece.end);
        if from < to {
            out(&self.piece[(from - piece.start) as usize..(to - piece.start) as usize])?;
        }
        Ok(())
    }

    fn end(&mut self, left_over: u64) -> Result<()> {
        if self.len == u64::MAX && self.at >= self.wanted.end {
            // More bytes may follow those of the tensor.
            self.done = true;
            return Ok(());
        }
        if self.at != self.len || left_over > 0 {
            return Err(self.damaged(format!(
                "decompressed, there are {} bytes, with {left_over} compressed ones left over",
                self.at
            )));
        }
        self.done = true;
        Ok(())
    }

    fn damaged(&self, what: String) -> Error {
        Error::damaged(format!("a compressed tensor is damaged: {what}")).at(self.start).expected(
            format!(
                "a {} stream of {} bytes",
                self.packing.name(),
                if self.len == u64::MAX { self.wanted.end } else { self.len }
            ),
        )
    }
}

impl Decoder {
    fn run(
        &mut self,
        bytes: &[u8],
        piece: &mut [u8],
    ) -> std::result::Result<Progressed, Box<dyn std::error::Error>> {
        match self {
            Self::Deflate(machine) => {
                let (read, written) = (machine.total_in(), machine.total_out());
                let status = machine.decompress(bytes, piece, FlushDecompress::None)?;
                Ok(Progressed {
                    read: (machine.total_in() - read) as usize,
                    written: (machine.total_out() - written) as usize,
                    ended: status == flate2::Status::StreamEnd,
                })
            }
            Self::Bzip2(machine) => {
                let (read, written) = (machine.total_in(), machine.total_out());
                let status = machine.decompress(bytes, piece)?;
                Ok(Progressed {
                    read: (machine.total_in() - read) as usize,
                    written: (machine.total_out() - written) as usize,
                    ended: status == bzip2::Status::StreamEnd,
                })
            }
            Self::Lzma(_) => Ok(Progressed { read: bytes.len(), written: 0, ended: false }),
            Self::Zstd { frame, pending, started } => {
                pending.extend_from_slice(bytes);
                let read = bytes.len();
                if !*started {
                    if zstd_header_len(pending).is_none_or(|len| pending.len() < len) {
                        return Ok(Progressed { read, written: 0, ended: false });
                    }
                    let mut source = pending.as_slice();
                    frame.init(&mut source)?;
                    let used = pending.len() - source.len();
                    pending.drain(..used);
                    *started = true;
                }
                let (mut used, mut written) = (0, 0);
                if frame.can_collect() > 0 {
                    written = frame.read(piece)?;
                } else if let Some(block) = zstd_block(pending) {
                    (used, written) = frame.decode_from_to(block, piece)?;
                    used = used.min(pending.len());
                    pending.drain(..used);
                }
                let ended = frame.is_finished() && frame.can_collect() == 0;
                if ended
                    && let Some(stored) = frame.get_checksum_from_data()
                    && frame.get_calculated_checksum() != Some(stored)
                {
                    return Err("the checksum of the frame is wrong".into());
                }
                // Bytes that were taken out of the block count as progress, too.
                Ok(Progressed { read: read.max(used), written, ended })
            }
        }
    }
}

/// Returns the length of the header of a frame of Zstandard (RFC 8878, 3.1.1.1), once enough of it is
/// there. A small frame is shorter than the longest header.
fn zstd_header_len(bytes: &[u8]) -> Option<usize> {
    let flags = *bytes.get(4)?;
    let is_single = flags & 0x20 != 0;
    let dictionary = [0, 1, 2, 4][usize::from(flags & 3)];
    let size = match (flags >> 6, is_single) {
        (0, false) => 0,
        (0, true) => 1,
        (power, _) => 1usize << power,
    };
    Some(5 + usize::from(!is_single) + dictionary + size)
}

/// Returns the first block of a frame of Zstandard, if it is complete (RFC 8878, 3.1.1.2), with the
/// checksum after the last one. Blocks are decoded one by one, because four bytes may hold 128 kB.
fn zstd_block(bytes: &[u8]) -> Option<&[u8]> {
    let header = bytes.first_chunk::<3>()?;
    let header = u32::from_le_bytes([header[0], header[1], header[2], 0]);
    let is_repeated = header >> 1 & 3 == 1;
    let len = 3 + if is_repeated { 1 } else { header as usize >> 3 };
    let block = bytes.get(..len)?;
    let is_last = header & 1 == 1;
    Some(if is_last { bytes.get(..len + 4).unwrap_or(block) } else { block })
}

/// Returns the decoder for an LZMA stream in a zip archive (APPNOTE 5.8.8): two bytes of version,
/// the length of the properties (5), the properties, the stream. `len` is the decompressed length.
fn lzma(stored: &[u8], len: u64) -> Result<std::io::Result<lzma_rust2::LzmaReader<&[u8]>>> {
    let Some(([_, _, 5, 0, properties, dictionary @ ..], rest)) = stored.split_first_chunk::<9>()
    else {
        return Err(Error::damaged("an LZMA stream without its header"));
    };
    let dictionary = u32::from_le_bytes(*dictionary);
    // A dictionary longer than the output is never filled.
    let used = dictionary.min(u32::try_from(len).unwrap_or(u32::MAX));
    if used > MAX_DICTIONARY {
        return Err(Error::limit(format!("an LZMA stream with a dictionary of {used} bytes"))
            .expected(format!("at most {MAX_DICTIONARY}")));
    }
    try_alloc::ahead(used.into())?;
    Ok(lzma_rust2::LzmaReader::new_with_props(rest, len, *properties, used, None))
}

/// Decompresses a whole stream; `None` unless the result has `len` bytes.
///
/// # Errors
/// There is not enough memory, or the dictionary of an LZMA stream is too large.
pub fn unpacked(packing: Packing, stored: &[u8], len: u64) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    // Deflate expands one byte to at most 1,032; a larger claim reserves no memory in advance.
    try_alloc::make_room(&mut bytes, len.min((stored.len() as u64).saturating_mul(1040)))?;
    let limit = len.saturating_add(1);
    let done = match packing {
        Packing::Deflate => {
            flate2::bufread::DeflateDecoder::new(stored).take(limit).read_to_end(&mut bytes)
        }
        Packing::Bzip2 => {
            bzip2::bufread::BzDecoder::new(stored).take(limit).read_to_end(&mut bytes)
        }
        Packing::Lzma => match lzma(stored, len)? {
            Ok(reader) => reader.take(limit).read_to_end(&mut bytes),
            Err(error) => Err(error),
        },
        Packing::Zstd => match StreamingDecoder::new(stored) {
            Ok(decoder) => decoder.take(limit).read_to_end(&mut bytes),
            Err(error) => Err(std::io::Error::other(error)),
        },
    };
    Ok((done.is_ok() && bytes.len() as u64 == len).then_some(bytes))
}

/// Decompresses the first `len` bytes of a stream, or fewer if it is shorter or damaged.
pub fn unpacked_start(packing: Packing, stored: &[u8], len: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    // An error is ignored, since the bytes before it are still useful.
    let _ = match packing {
        Packing::Deflate => {
            flate2::bufread::DeflateDecoder::new(stored).take(len).read_to_end(&mut bytes)
        }
        Packing::Bzip2 => bzip2::bufread::BzDecoder::new(stored).take(len).read_to_end(&mut bytes),
        Packing::Lzma => match lzma(stored, u64::MAX >> 2) {
            Ok(Ok(reader)) => reader.take(len).read_to_end(&mut bytes),
            _ => Ok(0),
        },
        Packing::Zstd => match StreamingDecoder::new(stored) {
            Ok(decoder) => decoder.take(len).read_to_end(&mut bytes),
            Err(_) => Ok(0),
        },
    };
    bytes
}

impl std::fmt::Debug for Unpack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Unpack({} of {:?})", self.at, self.wanted)
    }
}
