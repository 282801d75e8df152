//! Where a container says that it ends.
//!
//! The superblock holds the address of the end, counted from the start of the file, and the base
//! address that all others are relative to. libhdf5 takes the place where it found the superblock
//! for the base, moves the recorded end by the difference (H5F__super_read), refuses a file that
//! ends before, and refuses whatever lies behind it.

use hdf5_reader::Storage;
use hdf5_reader::io::Cursor;
use statelens_checkpoint::Result;

use crate::error::from_reader;
use crate::file::dataset::{DataLocation, Dataset};
use crate::file::{Groups, Hdf5File};
use crate::header::Widths;
use crate::source::Source;

/// How a container's recorded end disagrees with the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndMismatch {
    /// The file ends so many bytes before.
    CutShort(u64),
    /// So many bytes of it lie behind.
    Behind(u64),
    /// The recorded base address is not where the container begins, and the recorded end does not
    /// agree with it either.
    Elsewhere,
}

/// The base address that a superblock records, from its first bytes.
///
/// It stands at byte 24 in version 0, 28 in version 1 and 12 since (HDF5 file format, II.A).
pub(crate) fn recorded_base(whole: &Source, start: u64, version: u8, width: u8) -> Result<u64> {
    let at = match version {
        0 => 24,
        1 => 28,
        _ => 12,
    };
    let bytes = whole.bytes(start.saturating_add(at), u64::from(width))?;
    Cursor::new(bytes.as_ref()).read_offset(width).map_err(from_reader)
}

impl Hdf5File {
    /// How the recorded end disagrees with the file and with what was found in it; `None` if it
    /// doesn't.
    pub fn end(&self, found: &Groups) -> Option<EndMismatch> {
        let recorded = self.superblock().eof_address;
        let Widths { offset, .. } = self.widths;
        if Cursor::is_undefined_offset(recorded, offset) {
            return None;
        }
        let len = Storage::len(&self.source);
        let Some(end) = self.recorded_end() else { return Some(EndMismatch::Elsewhere) };
        if end > len {
            // Behind a user block, writers count the end from either start.
            let least = recorded.min(recorded.saturating_sub(self.source.base()).max(1)).min(end);
            return least
                .checked_sub(len)
                .filter(|missing| *missing > 0)
                .map(EndMismatch::CutShort);
        }
        let reached = self.source.reached().max(found.data_end);
        (reached > end).then(|| EndMismatch::Behind(reached - end))
    }

    /// Where the container says that it ends, from its start; `None` if it doesn't, or says it in
    /// a way that contradicts itself.
    pub(crate) fn recorded_end(&self) -> Option<u64> {
        let recorded = self.superblock().eof_address;
        if Cursor::is_undefined_offset(recorded, self.widths.offset) {
            return None;
        }
        let end = recorded.checked_sub(self.recorded_base)?;
        // A container that a user block was put before records what it did without.
        let at_its_start = [0, self.source.base()].contains(&self.recorded_base);
        (at_its_start || end == Storage::len(&self.source)).then_some(end)
    }
}

/// The address that a dataset's data is known to reach up to.
pub(super) fn extent(dataset: &Dataset) -> Option<u64> {
    match &dataset.stored {
        DataLocation::Contiguous(address) => {
            let bytes = dataset.count().ok()?.checked_mul(dataset.datatype.size)?;
            address.as_ref()?.checked_add(bytes)
        }
        _ => None,
    }
}
