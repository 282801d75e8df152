//! The end records of a zip archive, which give the length of the directory.
//!
//! The crate `zip` uses only the number of entries and the offset of the first. Python's `zipfile`
//! and torch's reader also use the length, and reject an archive that is shorter than the claimed
//! length of its directory. See PKWARE's appnote, 4.3.14 to 4.3.16.

use statelens_checkpoint::{Error, ReadAt, Result, Span, try_alloc};

/// The end record without its comment, the Zip64 end record before it, and the locator of the
/// latter.
const END: &[u8] = b"PK\x05\x06";
const END_LEN: u64 = 22;
const LARGE: &[u8] = b"PK\x06\x06";
const LARGE_LEN: u64 = 56;
const LOCATOR: &[u8] = b"PK\x06\x07";
const LOCATOR_LEN: u64 = 20;
const MAX_COMMENT: u64 = u16::MAX as u64;

/// Fails if the directory, which begins `start` bytes into the archive, claims to extend past the
/// end of the archive.
pub(super) fn check(source: &dyn ReadAt, archive: Span, start: u64) -> Result<()> {
    let Some(size) = size(source, archive)? else { return Ok(()) };
    if start.checked_add(size).is_none_or(|end| end > archive.len) {
        return Err(Error::damaged(format!(
            "the archive's directory claims {size} bytes, which is more than there are"
        ))
        .at(archive.offset.saturating_add(start))
        .advice("The file may be cut short: compare its size with the original."));
    }
    Ok(())
}

/// Fails if there is not enough memory for what `zip` allocates for the directory: about 400 bytes
/// for an entry, which takes at least 75 bytes in the file.
pub(super) fn room(source: &dyn ReadAt, archive: Span) -> Result<()> {
    let size = size(source, archive)?.filter(|size| *size <= archive.len);
    try_alloc::ahead(size.unwrap_or(0).saturating_mul(5))
}

/// Returns the claimed length of the directory, or `None` if there is no end record.
pub(super) fn size(source: &dyn ReadAt, archive: Span) -> Result<Option<u64>> {
    let within = (LARGE_LEN + LOCATOR_LEN + END_LEN + MAX_COMMENT).min(archive.len);
    let mut tail = try_alloc::zeros(within)?;
    source.read_at(archive.offset + (archive.len - within), &mut tail)?;
    let Some(at) = tail.windows(END.len()).rposition(|bytes| bytes == END) else {
        return Ok(None);
    };
    let Some(size) = tail.get(at + 12..at + 16).and_then(|size| size.try_into().ok()) else {
        return Ok(None);
    };
    let size = u32::from_le_bytes(size);
    // The Zip64 end record directly precedes its locator, which directly precedes this record.
    let large = at.checked_sub((LOCATOR_LEN + LARGE_LEN) as usize).and_then(|at| tail.get(at..));
    let large = large.filter(|large| {
        large.starts_with(LARGE) && large[LARGE_LEN as usize..].starts_with(LOCATOR)
    });
    let large = large.and_then(|large| large.get(40..48)?.try_into().ok());
    Ok(Some(large.map_or(u64::from(size), u64::from_le_bytes)))
}
