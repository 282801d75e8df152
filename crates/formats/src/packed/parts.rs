//! Counts the streams, frames or blocks of a compressed file. Each has a decoder of its own, whose
//! tables may take a thousand times longer to set up than the few bytes of a short one to decode.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

/// The parts of a file so far.
pub(super) struct PartCount {
    /// Number of parts, which the caller sees.
    count: Rc<Cell<u64>>,
    /// Number of decompressed bytes.
    len: u64,
    /// Number of parts that may be short.
    max_short: u64,
    /// Mean number of decompressed bytes of further parts.
    min_mean: u64,
}

impl PartCount {
    pub(super) fn new(count: Rc<Cell<u64>>, max_short: u64, min_mean: u64) -> Self {
        Self { count, len: 0, max_short, min_mean }
    }

    /// Adds a part that costs as much as `weight` usual ones. Fails if there are too many short ones.
    pub(super) fn begin(&mut self, weight: u64) -> io::Result<()> {
        let count = self.count.get() + weight;
        self.count.set(count);
        match count > self.max_short && self.len / count < self.min_mean {
            true => Err(io::Error::other("it has hundreds of parts of a few bytes each")),
            false => Ok(()),
        }
    }

    /// Adds decompressed bytes.
    pub(super) fn add(&mut self, len: usize) {
        self.len += len as u64;
    }
}
