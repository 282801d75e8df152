//! The elements of a tensor as a plan writes them: gathered, cast, and cut into chunks. A large
//! tensor is divided into parts that can be made in parallel, where every byte needs processing.

use std::ops::Range;
use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, Data, Encoding, Error, Layout, Result, StoredChunk, Tensor,
};
use statelens_tensor::{BUDGET, Pour, Receive, grain};

use crate::cutter::Cutter;

/// Approximate logical bytes of a part. One part per processor is in memory, plus some that wait
/// for their turn.
const PART: u64 = 512 << 10;
/// The largest part, in bytes, for tensors that can't be divided further.
const MAX_PART: u64 = 16 << 20;
/// Smaller tensors are not worth dividing.
const WORTH: u64 = 1 << 20;

/// Elements of a tensor to make for a new file.
#[derive(Clone)]
pub struct Make {
    source: Arc<Checkpoint>,
    data: Data,
    elements: Range<u64>,
    /// Elements of each part but the last.
    size: u64,
}

/// A receiver of made bytes.
pub trait TakeMade {
    /// Takes the next bytes: a chunk, whose offset is not known yet, or any number of bytes of a
    /// tensor without chunks.
    fn take(&mut self, bytes: &[u8], chunk: Option<StoredChunk>) -> Result<()>;
}

/// Cuts the logical bytes of a tensor into chunks, if it is written in chunks, and passes them on.
pub struct Making<T> {
    /// The receiver.
    pub to: T,
    cutter: Option<Cutter>,
    /// The remaining logical bytes.
    left: u64,
}

/// Made bytes that wait for their turn.
#[derive(Default)]
pub struct MadePart {
    bytes: Vec<u8>,
    chunks: Vec<StoredChunk>,
}

impl Make {
    /// Fails if the tensor can't be made.
    pub(crate) fn new(source: &Arc<Checkpoint>, data: Data) -> Result<Self> {
        let tensor = source.tensor(data.tensor)?;
        let elements = data.elements(tensor);
        let numel = elements.end.saturating_sub(elements.start);
        let part = data.nbytes(tensor).and_then(|bytes| part(tensor, &data, numel, bytes));
        let size = part.unwrap_or(numel).max(1);
        let make = Self { source: source.clone(), data, elements, size };
        if part.is_some() {
            // Checked before the first part is written.
            make.all(MadePart::default())?;
        }
        Ok(make)
    }

    /// Returns the number of parts; 1 if the tensor can't be divided, or is not worth it.
    pub fn parts(&self) -> usize {
        let numel = self.elements.end.saturating_sub(self.elements.start);
        usize::try_from(numel.div_ceil(self.size)).unwrap_or(usize::MAX)
    }

    /// Returns the logical bytes of a part.
    pub fn bytes(&self, part: usize) -> u64 {
        let Range { start, end } = self.range(part);
        let tensor = self.source.tensor(self.data.tensor);
        tensor.ok().and_then(|tensor| tensor.dtype.bytes_of(end - start)).unwrap_or(0)
    }

    /// Returns the machine that makes a part. The parts in order are the bytes of
    /// [`Make::all`]. When the machine is done, call [`Making::end`].
    pub fn part<T: TakeMade>(&self, part: usize, to: T) -> Result<Pour<Making<T>>> {
        self.begin(self.range(part), to)
    }

    /// Returns the machine that makes all elements. When it is done, call [`Making::end`].
    pub fn all<T: TakeMade>(&self, to: T) -> Result<Pour<Making<T>>> {
        self.begin(self.elements.clone(), to)
    }

    fn begin<T: TakeMade>(&self, range: Range<u64>, to: T) -> Result<Pour<Making<T>>> {
        let files = &self.source.files;
        let tensor = self.source.tensor(self.data.tensor)?;
        let bytes = |elements| tensor.dtype.bytes_of(elements).unwrap_or(0);
        let cutter = match &self.data.encoding {
            Some(encoding) => {
                let cutter = Cutter::new(encoding, tensor, files.limits())?;
                Some(cutter.starting_at(bytes(range.start)))
            }
            None => None,
        };
        let left = bytes(range.end.saturating_sub(range.start));
        Pour::new(files, tensor, range, BUDGET, Making { to, cutter, left })
    }

    fn range(&self, part: usize) -> Range<u64> {
        let Range { start: first, end } = self.elements;
        let start = |part: u64| first.saturating_add(part.saturating_mul(self.size)).min(end);
        start(part as u64)..start((part as u64).saturating_add(1))
    }
}

impl<T: TakeMade> Receive for Making<T> {
    fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        let Self { to, cutter, left } = self;
        *left = left.checked_sub(bytes.len() as u64).ok_or_else(|| {
            Error::damaged("a tensor has more bytes than its shape and dtype need")
        })?;
        match cutter {
            None => to.take(bytes, None),
            Some(cutter) => cutter.feed(bytes, &mut |chunk, stored| to.take(chunk, Some(stored))),
        }
    }
}

impl<T> Making<T> {
    /// Returns the receiver. Fails if bytes are missing.
    pub fn end(self) -> Result<T> {
        match self.left {
            0 => Ok(self.to),
            left => Err(Error::damaged(format!("a tensor ends {left} bytes early"))),
        }
    }
}

impl MadePart {
    /// Passes the bytes on.
    pub fn pass(&self, to: &mut impl TakeMade) -> Result<()> {
        if self.chunks.is_empty() {
            return to.take(&self.bytes, None);
        }
        let mut rest = &*self.bytes;
        for chunk in &self.chunks {
            let (encoded, after) = rest.split_at((chunk.len as usize).min(rest.len()));
            rest = after;
            to.take(encoded, Some(*chunk))?;
        }
        Ok(())
    }
}

impl TakeMade for MadePart {
    fn take(&mut self, bytes: &[u8], chunk: Option<StoredChunk>) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        self.chunks.extend(chunk);
        Ok(())
    }
}

/// Returns the number of elements of a part; `None` if the tensor can't be divided, or is not worth
/// it.
fn part(tensor: &Tensor, data: &Data, numel: u64, bytes: u64) -> Option<u64> {
    // Bytes that are only copied are not worth handing to another thread.
    let is_cast = tensor.stored != tensor.dtype;
    let packed = data.encoding.is_some() || matches!(tensor.layout, Layout::Chunked(_));
    if bytes < WORTH || !(packed || is_cast) {
        return None;
    }
    let read = grain(tensor)?;
    let written = data.encoding.as_ref().map_or(Some(1), |encoding| written(tensor, encoding))?;
    let both = read.checked_mul(written / common(read, written))?;
    // There are at least as many bytes as elements, except for dtypes of less than a byte.
    let part = (numel / bytes.div_ceil(PART).max(1)).max(1);
    let size = both.checked_mul(part.div_ceil(both).max(1))?;
    tensor.dtype.bytes_of(size)?;
    let largest = u128::from(size) * u128::from(bytes) / u128::from(numel.max(1));
    (size < numel && largest <= u128::from(MAX_PART)).then_some(size)
}

/// Returns a number of elements: at its multiples chunks begin, and only chunks at the end of the
/// tensor are padded.
fn written(tensor: &Tensor, encoding: &Encoding) -> Option<u64> {
    let (shape, chunk) = (&tensor.shape, &encoding.chunk);
    let cut = shape.iter().zip(chunk).rposition(|(dim, chunk)| dim != chunk).unwrap_or(0);
    let elements =
        |lengths: &[u64]| lengths.iter().try_fold(1u64, |all, len| all.checked_mul(*len));
    let begins = if cut == 0 { elements(chunk)? } else { elements(shape.get(cut..)?)? };
    (begins > 0).then_some(begins)
}

/// Returns the greatest common divisor of numbers above 0.
fn common(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one.max(1)
}
