//! The recorded end of a container.
//!
//! The superblock holds the address of the end, counted from the start of the file, and the base
//! address that all other addresses are relative to. libhdf5 uses the place where it found the
//! superblock as the base, moves the recorded end by the difference (H5F__super_read), refuses a
//! file that ends before it, and refuses everything beyond it.

use hdf5_reader::Storage;
use hdf5_reader::io::Cursor;
use statelens_checkpoint::{Error, Result, grouped};

use crate::error::from_reader;
use crate::file::dataset::{DataLocation, Dataset};
use crate::file::{Groups, Hdf5File};
use crate::source::Source;

/// A mismatch between a container's recorded end and the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndMismatch {
    /// The file ends this many bytes before the recorded end.
    CutShort(u64),
    /// This many bytes of the container lie beyond the recorded end.
    Behind(u64),
    /// The recorded base address is not the start of the container, and the recorded end does not
    /// agree with it either.
    Elsewhere,
}

/// Reads the base address from the superblock.
///
/// It is at byte 24 in version 0, 28 in version 1 and 12 since (HDF5 file format, II.A).
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
    /// Compares the recorded end with the file and the objects found in it; `None` if they agree.
    pub fn end(&self, found: &Groups) -> Option<EndMismatch> {
        if self.source.is_undefined(self.superblock().eof_address) {
            return None;
        }
        let Some(end) = self.recorded_end() else { return Some(EndMismatch::Elsewhere) };
        if end > Storage::len(&self.source) {
            return self.missing().map(EndMismatch::CutShort);
        }
        let reached = self.source.reached().max(found.data_end);
        (reached > end).then(|| EndMismatch::Behind(reached - end))
    }

    /// Adds to an error about the root group, without which nothing can be read, how much of the
    /// file is missing if it is cut short.
    pub fn root_error(&self, error: Error) -> Error {
        let error = error.context("the root group can't be read");
        let Some(missing) = self.missing() else { return error };
        let len = Storage::len(&self.source);
        error.advice(format!(
            "The file is cut short: {} of {} bytes are there. Copy or download it again.",
            grouped(len),
            grouped(len.saturating_add(missing))
        ))
    }

    /// Returns the number of bytes between the end of the file and a later recorded end.
    fn missing(&self) -> Option<u64> {
        let (end, recorded) = (self.recorded_end()?, self.superblock().eof_address);
        // After a user block, writers count the end from either start.
        let least = recorded.min(recorded.saturating_sub(self.source.base()).max(1)).min(end);
        least.checked_sub(Storage::len(&self.source)).filter(|missing| *missing > 0)
    }

    /// Returns the recorded end of the container, from its start; `None` if it is undefined or
    /// contradicts itself.
    pub fn recorded_end(&self) -> Option<u64> {
        let recorded = self.superblock().eof_address;
        if self.source.is_undefined(recorded) {
            return None;
        }
        let end = recorded.checked_sub(self.recorded_base)?;
        // If a user block was prepended later, the recorded addresses don't include it.
        let at_its_start = [0, self.source.base()].contains(&self.recorded_base);
        (at_its_start || end == Storage::len(&self.source)).then_some(end)
    }
}

/// Returns the address up to which a dataset's data is known to extend.
pub(super) fn extent(dataset: &Dataset) -> Option<u64> {
    match &dataset.stored {
        DataLocation::Contiguous(address) => {
            let bytes = dataset.count().ok()?.checked_mul(dataset.datatype.size)?;
            address.as_ref()?.checked_add(bytes)
        }
        _ => None,
    }
}
