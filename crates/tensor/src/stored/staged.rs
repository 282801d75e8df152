//! Bytes that are written to scratch before they are read in another order.

use std::fmt;
use std::sync::Arc;

use statelens_checkpoint::{Area, FileSet, Result};

use super::LayoutMachine;
use crate::{Need, Out};

/// Runs one machine, whose output goes to scratch, and then another that reads it from there.
pub(crate) struct Staged {
    first: LayoutMachine,
    /// `None` once everything is written, when only the reader needs it.
    area: Option<Arc<dyn Area>>,
    written: u64,
    next: LayoutMachine,
}

impl Staged {
    /// Creates a machine that writes the output of `first` to `area` and then runs `next`, which
    /// reads it.
    pub(crate) fn before(
        first: LayoutMachine,
        area: Arc<dyn Area>,
        next: LayoutMachine,
    ) -> LayoutMachine {
        LayoutMachine::Staged(Box::new(Self { first, area: Some(area), written: 0, next }))
    }

    pub(crate) fn need(&self) -> Need {
        match self.first.need() {
            Need::Done => self.next.need(),
            need => need,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        self.run(out, |stored, out| stored.feed(bytes, out))
    }

    pub(crate) fn step(&mut self, files: &FileSet, out: &mut Out<'_>) -> Result<()> {
        self.run(out, |stored, out| stored.step(files, out))
    }

    fn run(
        &mut self,
        out: &mut Out<'_>,
        call: impl FnOnce(&mut LayoutMachine, &mut Out<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(area) = self.area.as_ref().filter(|_| self.first.need() != Need::Done) else {
            return call(&mut self.next, out);
        };
        let written = &mut self.written;
        call(&mut self.first, &mut |piece| {
            area.write_at(*written, piece)?;
            *written += piece.len() as u64;
            Ok(())
        })?;
        if self.first.need() == Need::Done {
            // Frees the buffers of the first machine.
            (self.first, self.area) = (LayoutMachine::Done, None);
        }
        Ok(())
    }
}

impl fmt::Debug for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Staged({:?}, then {:?})", self.first, self.next)
    }
}
