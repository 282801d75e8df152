//! Sequential reading in large pieces.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use statelens_checkpoint::{ErrorKind, ObjectHeader, ReadAt, Result};

/// Bytes fetched at once: at first, and at most.
const MIN_BYTES: u64 = 1 << 20;
const MAX_BYTES: u64 = 16 << 20;

/// The single piece buffered for all files of a checkpoint: weights are read once, in order.
#[derive(Default)]
pub struct Window(Mutex<StreamedPiece>);

#[derive(Default)]
struct StreamedPiece {
    file: usize,
    start: u64,
    bytes: Vec<u8>,
}

/// A file whose weights are read through a [`Window`], in pieces that grow as long as reads are
/// sequential.
pub struct Streamed {
    source: Arc<dyn ReadAt>,
    window: Arc<Window>,
    number: usize,
}

impl Streamed {
    /// Wraps a file; `number` must differ between files that share the window.
    pub fn new(source: Arc<dyn ReadAt>, window: Arc<Window>, number: usize) -> Self {
        Self { source, window, number }
    }
}

impl ReadAt for Streamed {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn version(&self) -> Option<String> {
        self.source.version()
    }

    fn described(&self) -> Result<Option<ObjectHeader>> {
        self.source.described()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let mut piece = self.window.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let held = piece.bytes.len() as u64;
            let end = piece.start + held;
            let here = piece.file == self.number && (piece.start..end).contains(&at);
            if !here {
                let follows = piece.file == self.number && at == end && held > 0;
                let ahead =
                    if follows { (held * 2).clamp(MIN_BYTES, MAX_BYTES) } else { MIN_BYTES };
                let len = ahead.max((rest.len() as u64).min(MAX_BYTES)).min(self.len() - at);
                // Free the old piece first, so that there is never more than one.
                *piece = StreamedPiece::default();
                let mut bytes = vec![0; len as usize];
                let mut read = self.source.read_at(at, &mut bytes);
                if read.as_ref().is_err_and(|error| error.kind() == ErrorKind::Limit)
                    && rest.len() < bytes.len()
                {
                    // Without reading ahead, the limit may suffice.
                    bytes.truncate(rest.len());
                    read = self.source.read_at(at, &mut bytes);
                }
                read?;
                *piece = StreamedPiece { file: self.number, start: at, bytes };
                continue;
            }
            let from = (at - piece.start) as usize;
            let len = (piece.bytes.len() - from).min(rest.len());
            let (now, later) = rest.split_at_mut(len);
            now.copy_from_slice(&piece.bytes[from..from + len]);
            (at, rest) = (at + len as u64, later);
        }
        Ok(())
    }
}

impl fmt::Debug for Streamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Streamed({:?})", self.source)
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::Error;

    use super::*;

    #[derive(Debug)]
    struct RequestedRanges(Mutex<Vec<(u64, usize)>>);

    impl ReadAt for RequestedRanges {
        fn len(&self) -> u64 {
            40 << 20
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            self.0.lock().unwrap().push((offset, buffer.len()));
            for (at, slot) in (offset..).zip(buffer) {
                *slot = (at % 251) as u8;
            }
            Ok(())
        }
    }

    #[test]
    fn a_limit_on_fetching_leaves_out_what_is_read_ahead() {
        #[derive(Debug)]
        struct Limited;
        impl ReadAt for Limited {
            fn len(&self) -> u64 {
                40 << 20
            }
            fn read_at(&self, _: u64, buffer: &mut [u8]) -> Result<()> {
                match buffer.len() > 300_000 {
                    true => Err(Error::limit("this takes more than allowed")),
                    false => Ok(()),
                }
            }
        }
        let file = Streamed::new(Arc::new(Limited), Arc::new(Window::default()), 0);
        for at in [0, 300_000, 7 << 20] {
            file.read_at(at, &mut vec![0; 300_000]).unwrap();
        }
        assert!(file.read_at(0, &mut vec![0; 300_001]).is_err());
    }

    #[test]
    fn sequential_reads_grow_in_size() {
        let source = Arc::new(RequestedRanges(Mutex::default()));
        let window = Arc::new(Window::default());
        let file = |number| Streamed::new(source.clone(), window.clone(), number);
        let (one, other) = (file(0), file(1));
        let mut buffer = vec![0; 300_000];
        for offset in (7..30 << 20).step_by(buffer.len()) {
            one.read_at(offset, &mut buffer).unwrap();
            let equal = (offset..).zip(&buffer).all(|(at, byte)| *byte == (at % 251) as u8);
            assert!(equal, "at {offset}");
        }
        let lens = |source: &RequestedRanges| -> Vec<usize> {
            std::mem::take(&mut *source.0.lock().unwrap()).iter().map(|read| read.1 >> 20).collect()
        };
        assert_eq!(lens(&source), [1, 2, 4, 8, 16]);
        other.read_at(0, &mut buffer).unwrap();
        one.read_at(0, &mut buffer).unwrap();
        one.read_at(5, &mut buffer[..10]).unwrap();
        assert_eq!(lens(&source), [1, 1]);
        one.read_at((40 << 20) - 100_000, &mut buffer[..100_000]).unwrap();
        assert!(one.read_at(0, &mut vec![0; 20 << 20]).is_ok());
    }
}
