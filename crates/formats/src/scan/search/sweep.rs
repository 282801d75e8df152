//! Searches all bytes for data that no reader leads to: pickles, archives and compressed files
//! before, after or between other data.

use statelens_checkpoint::Result;

use super::super::starts::{self, Scratch, Start, StartKind, Starts};
use super::super::tar;
use super::super::workers::{self, Buffers};
use super::{Blob, Certainty, READ, Search, hdf5, members};

/// The cost of a step on the way back from a name to its start.
const STEP: u64 = 4;
/// The cost of opening a container, in units of the budget.
const OPEN: u64 = 20_000;

impl Search<'_> {
    pub(super) fn sweep(&mut self, blob: &Blob) -> Result<()> {
        let direct = self.direct.clone().filter(|_| self.is_file(blob));
        let source = direct.as_ref().unwrap_or(&blob.source);
        let (buffers, mut at) = (Buffers::default(), 0);
        while at < source.len() {
            self.at(blob, at)?;
            let found = workers::find(&**source, at, self.workers, &buffers)?;
            if !self.spend((found.end - at) * READ) {
                return Ok(());
            }
            at = found.end;
            for (range, mut starts) in found.pieces {
                loop {
                    let end = starts.end;
                    if !self.starts(blob, starts)? {
                        return Ok(());
                    }
                    if end >= range.end {
                        break;
                    }
                    // There are so many starts that the search of the piece ended early.
                    starts = starts::find(&**source, end..range.end, &mut Scratch::default())?;
                }
            }
        }
        Ok(())
    }

    /// Examines the starts in a piece, until the budget is exhausted. Returns whether it is not.
    fn starts(&mut self, blob: &Blob, starts: Starts) -> Result<bool> {
        if !self.spend(starts.steps.saturating_mul(STEP)) {
            return Ok(false);
        }
        for start in starts.found {
            self.start(blob, start)?;
            if self.budget.is_exhausted() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn start(&mut self, blob: &Blob, start: Start) -> Result<()> {
        let at = start.at;
        match start.kind {
            StartKind::Pickle => self.swept(blob, at, Certainty::Marked),
            StartKind::Name(begin) => self.swept(blob, begin, Certainty::Bare),
            StartKind::Packed(packing) => {
                self.perhaps_packed(blob, at, packing);
                Ok(())
            }
            _ if !self.spend(OPEN) => Ok(()),
            StartKind::Numpy => self.numpy(blob, at),
            StartKind::ZipEnd => self.archive(blob, at),
            StartKind::ZipMember => {
                members::orphan(self, blob, at);
                Ok(())
            }
            StartKind::Tar(header) if tar::is_header(&*blob.source, header) => {
                self.tar(blob, header, false)
            }
            StartKind::Tar(_) => Ok(()),
            StartKind::Hdf5 => hdf5::examine(self, &blob.part("HDF5", at, u64::MAX)),
        }
    }

    fn swept(&mut self, blob: &Blob, at: u64, certainty: Certainty) -> Result<()> {
        if self.is_run(blob, at) {
            return Ok(());
        }
        match self.pickle(blob, at, certainty)? {
            Some((_, end)) => self.sequence(blob, end, Certainty::Perhaps),
            None => Ok(()),
        }
    }
}
