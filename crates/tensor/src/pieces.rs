//! Regroups pieces of any size into whole elements.

use statelens_checkpoint::Result;

use crate::Out;

/// Passes on whole elements; an incomplete one waits for the next piece.
#[derive(Debug)]
pub(crate) struct Elements {
    size: usize,
    /// The start of an incomplete element.
    part: Vec<u8>,
}

impl Elements {
    /// Creates the buffer for elements of `size` bytes, which must fit in a `usize`.
    pub(crate) fn new(size: u64) -> Self {
        Self { size: (size as usize).max(1), part: Vec::new() }
    }

    pub(crate) fn feed(&mut self, mut piece: &[u8], out: &mut Out<'_>) -> Result<()> {
        if !self.part.is_empty() {
            let (head, rest) = piece.split_at(piece.len().min(self.size - self.part.len()));
            self.part.extend_from_slice(head);
            piece = rest;
            if self.part.len() < self.size {
                return Ok(());
            }
            out(&self.part)?;
            self.part.clear();
        }
        let (whole, rest) = piece.split_at(piece.len() - piece.len() % self.size);
        self.part.extend_from_slice(rest);
        if whole.is_empty() { Ok(()) } else { out(whole) }
    }

    /// Returns whether the input so far ends with a whole element.
    pub(crate) fn is_whole(&self) -> bool {
        self.part.is_empty()
    }
}
