//! Splits logical bytes into chunks and encodes each by itself.

use std::sync::Arc;

use statelens_checkpoint::{Encode, Encoding, Error, Limits, Result, StoredChunk, Tensor};

/// Splits the C order of a tensor into the chunks of an [`Encoding`] and encodes them.
pub(crate) struct Cutter {
    encoder: Arc<dyn Encode>,
    /// Bytes of a chunk, and of one row of the dimension that is split.
    chunk: usize,
    row: u64,
    /// Bytes of the current row so far.
    in_row: u64,
    plain: Vec<u8>,
    encoded: Vec<u8>,
}

impl Cutter {
    /// Creates the cutter. Fails if the chunks are not contiguous in C order, or too large to be
    /// held in memory.
    pub(crate) fn new(encoding: &Encoding, tensor: &Tensor, limits: &Limits) -> Result<Self> {
        let (shape, chunk) = (&tensor.shape, &encoding.chunk);
        let fits = shape.len() == chunk.len() && !chunk.contains(&0);
        let cut = shape.iter().zip(chunk).rposition(|(dim, chunk)| dim != chunk).unwrap_or(0);
        if !fits || chunk.iter().take(cut).any(|len| *len != 1) {
            return Err(Error::unsupported(format!(
                "writing a tensor of shape {shape:?} in chunks of shape {chunk:?}"
            )));
        }
        let bytes = |shape: &[u64]| {
            let size = tensor.dtype.itemsize();
            shape.iter().try_fold(size, |bytes, dim| bytes.checked_mul(*dim)).unwrap_or(u64::MAX)
        };
        let size = bytes(chunk);
        Limits::check("bytes of a chunk", size, limits.chunk)?;
        Ok(Self {
            encoder: encoding.encoder.clone(),
            // The size is below the limit, so it fits in a `usize`.
            chunk: size as usize,
            row: bytes(shape.get(cut..).unwrap_or(&[])),
            in_row: 0,
            plain: Vec::new(),
            encoded: Vec::new(),
        })
    }

    /// Starts after `before` bytes, which must end at the end of a chunk.
    pub(crate) fn starting_at(mut self, before: u64) -> Self {
        self.in_row = before % self.row.max(1);
        self
    }

    /// Takes logical bytes; `out` gets the encoded bytes of each complete chunk. The caller must
    /// fill in the offset of the chunk.
    pub(crate) fn feed(
        &mut self,
        mut piece: &[u8],
        out: &mut dyn FnMut(&[u8], StoredChunk) -> Result<()>,
    ) -> Result<()> {
        while !piece.is_empty() {
            let room = (self.chunk - self.plain.len()) as u64;
            let take = room.min(self.row - self.in_row).min(piece.len() as u64) as usize;
            let (now, rest) = piece.split_at(take);
            piece = rest;
            self.in_row += take as u64;
            if self.plain.is_empty() && take == self.chunk {
                self.encode(Some(now), out)?;
            } else {
                self.plain.extend_from_slice(now);
                if self.plain.len() == self.chunk || self.in_row == self.row {
                    self.encode(None, out)?;
                }
            }
            if self.in_row == self.row {
                self.in_row = 0;
            }
        }
        Ok(())
    }

    /// Encodes a whole chunk, or else the collected bytes, padded with zeros.
    fn encode(
        &mut self,
        whole: Option<&[u8]>,
        out: &mut dyn FnMut(&[u8], StoredChunk) -> Result<()>,
    ) -> Result<()> {
        self.encoded.clear();
        let mask = match whole {
            Some(plain) => self.encoder.encode(plain, &mut self.encoded)?,
            None => {
                self.plain.resize(self.chunk, 0);
                let mask = self.encoder.encode(&self.plain, &mut self.encoded)?;
                self.plain.clear();
                mask
            }
        };
        let len = self.encoded.len() as u64;
        out(&self.encoded, StoredChunk { offset: 0, len, mask })
    }
}
