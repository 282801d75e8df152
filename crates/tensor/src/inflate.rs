//! A deflated storage, decompressed as it comes.

use std::ops::Range;

use flate2::{Decompress, FlushDecompress, Status};
use statelens_checkpoint::{Error, Packed, Result, Span};

use crate::{Need, Out};

const PIECE: usize = 64 << 10;

/// Raw deflate (RFC 1951) of a storage, of which `range` is wanted.
pub(crate) struct Inflate {
    /// Compressed bytes that were not fed yet.
    rest: Span,
    /// Where the stream begins. How far it was read when damage was met depends on the pieces.
    start: u64,
    /// The storage's length once decompressed.
    len: u64,
    wanted: Range<u64>,
    /// Decompressed bytes so far.
    at: u64,
    machine: Decompress,
    piece: Vec<u8>,
    done: bool,
}

impl Inflate {
    /// `wanted` counts from behind what is skipped.
    pub(crate) fn new(packed: &Packed, wanted: Range<u64>) -> Result<Self> {
        let shifted = |at: u64| {
            let too_long =
                || Error::damaged("a compressed tensor is longer than 64 bits can count");
            at.checked_add(packed.skip).ok_or_else(too_long)
        };
        Ok(Self {
            start: packed.span.offset,
            rest: packed.span,
            len: shifted(packed.len)?,
            wanted: shifted(wanted.start)?..shifted(wanted.end)?,
            at: 0,
            machine: Decompress::new(false),
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
        loop {
            let (read, written) = (self.machine.total_in(), self.machine.total_out());
            let status =
                self.machine.decompress(bytes, &mut self.piece, FlushDecompress::None).map_err(
                    |error| self.damaged(format!("the compressed bytes make no sense: {error}")),
                )?;
            let read = (self.machine.total_in() - read) as usize;
            let written = (self.machine.total_out() - written) as usize;
            bytes = &bytes[read..];
            self.pass_on(written, out)?;
            if status == Status::StreamEnd {
                return self.end(bytes.len() as u64 + self.rest.len);
            }
            if self.at >= self.wanted.end && self.at < self.len {
                // The caller wants nothing of what follows.
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
        Error::damaged(format!("a compressed tensor is damaged: {what}"))
            .at(self.start)
            .expected(format!("a deflate stream of {} bytes", self.len))
    }
}

impl std::fmt::Debug for Inflate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inflate({} of {:?})", self.at, self.wanted)
    }
}
