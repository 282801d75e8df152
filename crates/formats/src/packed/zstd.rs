//! Files of Zstandard: consecutive frames, some of which may be empty (RFC 8878).

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use ruzstd::decoding::FrameDecoder;
use ruzstd::decoding::StreamingDecoder;

use super::parts::PartCount;
use crate::section::SectionStream;

/// Number of frames that may be short: the tables of each take some 30 microseconds.
const MAX_SHORT: u64 = 1 << 14;
/// Mean number of decompressed bytes of further frames.
const MIN_MEAN: u64 = 4 << 10;

/// Decompresses all frames of a file. One decoder is used for all: a small file may have a hundred
/// thousand frames, and a decoder has large tables.
pub(super) struct Zstd {
    state: State,
    frames: PartCount,
}

enum State {
    Between(SectionStream, Box<FrameDecoder>),
    InFrame(Decoder),
    Ended,
}

/// The magic number was already read, so it is chained before the rest.
type Decoder = StreamingDecoder<io::Chain<io::Cursor<[u8; 4]>, SectionStream>, Box<FrameDecoder>>;

impl Zstd {
    pub(super) fn new(source: SectionStream, window: u64, frames: Rc<Cell<u64>>) -> Self {
        let mut decoder = Box::new(FrameDecoder::new());
        decoder.set_max_window_size(window);
        let frames = PartCount::new(frames, MAX_SHORT, MIN_MEAN);
        Self { state: State::Between(source, decoder), frames }
    }

    fn frame(mut source: SectionStream, decoder: Box<FrameDecoder>) -> io::Result<State> {
        let mut magic = [0; 4];
        if source.read(&mut magic[..1])? == 0 {
            return Ok(State::Ended);
        }
        source.read_exact(&mut magic[1..])?;
        if (0x184d_2a50..=0x184d_2a5f).contains(&u32::from_le_bytes(magic)) {
            let mut len = [0; 4];
            source.read_exact(&mut len)?;
            let len = u64::from(u32::from_le_bytes(len));
            let skipped = io::copy(&mut (&mut source).take(len), &mut io::sink())?;
            return match skipped == len {
                true => Ok(State::Between(source, decoder)),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        let source = io::Cursor::new(magic).chain(source);
        let decoder = StreamingDecoder::new_with_decoder(source, decoder);
        Ok(State::InFrame(decoder.map_err(io::Error::other)?))
    }
}

impl Read for Zstd {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Between(source, decoder) => {
                    self.frames.begin(1)?;
                    self.state = Self::frame(source, decoder)?;
                }
                State::InFrame(mut decoder) => {
                    let read = decoder.read(into)?;
                    if read > 0 || into.is_empty() {
                        self.frames.add(read);
                        self.state = State::InFrame(decoder);
                        return Ok(read);
                    }
                    let (source, decoder) = decoder.into_parts();
                    self.state = State::Between(source.into_inner().1, decoder);
                }
                State::Ended => return Ok(0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use statelens_checkpoint::Memory;

    use super::*;
    use crate::section::Section;

    #[test]
    fn reads_all_frames() {
        // A block of one byte, an empty frame, a frame to skip.
        let one = |byte| vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0, 9, 0, 0, byte];
        let empty = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0, 1, 0, 0];
        let skipped = vec![0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, b'x'];
        let file = [one(b'a'), empty.clone(), skipped, one(b'b'), empty].concat();
        let part = Section::new(Arc::new(Memory::from(file)), 0, u64::MAX);
        let mut text = String::new();
        Zstd::new(part.stream(0, Rc::default()), 1 << 20, Rc::default())
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "ab");
    }

    #[test]
    fn refuses_thousands_of_short_frames() {
        let empty = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0];
        let part = Section::new(Arc::new(Memory::from(empty.repeat(100_000))), 0, u64::MAX);
        let frames = Rc::default();
        let mut reader = Zstd::new(part.stream(0, Rc::default()), 1 << 20, Rc::clone(&frames));
        assert!(reader.read_to_end(&mut Vec::new()).is_err());
        assert_eq!(frames.get(), MAX_SHORT + 1);
    }

    #[test]
    fn refuses_large_windows() {
        for (window, is_read) in [(10, true), (31, false)] {
            // The magic number, no options, the size of the window, and a block of one byte.
            let frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (window - 10) << 3, 9, 0, 0, b'N'];
            let part = Section::new(Arc::new(Memory::from(frame)), 0, u64::MAX);
            let mut bytes = Vec::new();
            let read = Zstd::new(part.stream(0, Rc::default()), 1 << 20, Rc::default())
                .read_to_end(&mut bytes);
            assert_eq!(read.is_ok(), is_read, "2 ** {window}");
        }
    }
}
