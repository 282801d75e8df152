//! Files of bzip2: consecutive streams, some of which may be empty.

use std::cell::Cell;
use std::io::{self, BufRead as _, BufReader, Read};
use std::rc::Rc;

use bzip2::bufread::BzDecoder;

use super::parts::PartCount;
use crate::section::SectionStream;

/// Number of streams that may be short. A decoder has tables of megabytes, so a stream of 14 bytes
/// takes milliseconds.
const MAX_SHORT: u64 = 256;
/// Mean number of decompressed bytes of further streams.
const MIN_MEAN: u64 = 4 << 10;

/// Decompresses all streams of a file.
pub(super) struct Bzip2 {
    /// `None` after the end or an error.
    decoder: Option<BzDecoder<BufReader<SectionStream>>>,
    streams: PartCount,
}

impl Bzip2 {
    pub(super) fn new(source: SectionStream, streams: Rc<Cell<u64>>) -> Self {
        streams.set(1);
        let streams = PartCount::new(streams, MAX_SHORT, MIN_MEAN);
        Self { decoder: Some(BzDecoder::new(BufReader::new(source))), streams }
    }
}

impl Read for Bzip2 {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(mut decoder) = self.decoder.take() {
            let read = decoder.read(into)?;
            if read > 0 || into.is_empty() {
                self.streams.add(read);
                self.decoder = Some(decoder);
                return Ok(read);
            }
            let mut source = decoder.into_inner();
            if source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.streams.begin(1)?;
            self.decoder = Some(BzDecoder::new(source));
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use statelens_checkpoint::Memory;

    use super::*;
    use crate::section::Section;

    fn bzip2(bytes: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        let level = bzip2::Compression::best();
        bzip2::read::BzEncoder::new(bytes, level).read_to_end(&mut packed).unwrap();
        packed
    }

    fn read(file: Vec<u8>) -> (io::Result<usize>, usize, u64) {
        let part = Section::new(Arc::new(Memory::from(file)), 0, u64::MAX);
        let streams = Rc::default();
        let mut bytes = Vec::new();
        let mut reader = Bzip2::new(part.stream(0, Rc::default()), Rc::clone(&streams));
        let read = reader.read_to_end(&mut bytes);
        (read, bytes.len(), streams.get())
    }

    #[test]
    fn reads_all_streams() {
        let file = [bzip2(b"a"), bzip2(b""), bzip2(b"bc")].concat();
        let (result, len, streams) = read(file);
        assert_eq!((result.unwrap(), len, streams), (3, 3, 3));
        let (result, len, _) = read([bzip2(b"a"), b"other".to_vec()].concat());
        assert_eq!((result.is_err(), len), (true, 1));
    }

    /// The number of decoders is limited, not the time.
    #[test]
    fn refuses_thousands_of_short_streams() {
        let (result, len, streams) = read(bzip2(b"a").repeat(20_000));
        assert!(result.unwrap_err().to_string().contains("parts of a few bytes"));
        assert_eq!((len as u64, streams), (MAX_SHORT, MAX_SHORT + 1));
        let (result, len, _) = read(bzip2(&[7; 2 * MIN_MEAN as usize]).repeat(600));
        assert_eq!((result.unwrap(), len), (len, 600 * 2 * MIN_MEAN as usize));
    }
}
