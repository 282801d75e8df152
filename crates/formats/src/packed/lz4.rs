//! Files of LZ4: consecutive frames (`lz4_Frame_format.md` 1.6).

use std::io::{self, Read};

use lz4_flex::frame::FrameDecoder;

use crate::section::SectionStream;

/// Decompresses all frames of a file.
pub(super) struct Lz4(FrameDecoder<SectionStream>);

impl Lz4 {
    pub(super) fn new(source: SectionStream) -> Self {
        Self(FrameDecoder::new(source))
    }
}

impl Read for Lz4 {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // The decoder also returns nothing at the end of each frame, and then begins the next.
        match self.0.read(into)? {
            0 => self.0.read(into),
            read => Ok(read),
        }
    }
}
