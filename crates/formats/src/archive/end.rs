//! The end of a zip archive, which says how long the directory is.
//!
//! The crate `zip` goes by the number of entries and where the first is. Python's `zipfile` and
//! torch's reader go by the length, too, and refuse an archive whose directory is said to be longer
//! than it. PKWARE's appnote, 4.3.14 to 4.3.16.

use statelens_checkpoint::{Error, ReadAt, Result, Span, room};

/// The record that ends an archive, without its comment; the one before it that holds 64 bits, and
/// what tells where that is.
const END: &[u8] = b"PK\x05\x06";
const END_LEN: u64 = 22;
const LARGE: &[u8] = b"PK\x06\x06";
const LARGE_LEN: u64 = 56;
const LOCATOR: &[u8] = b"PK\x06\x07";
const LOCATOR_LEN: u64 = 20;
const MOST_COMMENT: u64 = u16::MAX as u64;

/// Fails if the directory, which begins `start` bytes into the archive, is said to go on past its
/// end.
pub(super) fn check(source: &dyn ReadAt, archive: Span, start: u64) -> Result<()> {
    let Some(size) = size(source, archive)? else { return Ok(()) };
    if start.checked_add(size).is_none_or(|end| end > archive.len) {
        return Err(Error::damaged(format!(
            "the archive's directory is said to be {size} bytes long, which is more than there are"
        ))
        .at(archive.offset.saturating_add(start))
        .advice("The file may be cut short: compare its size with the original."));
    }
    Ok(())
}

/// Fails where there is no memory for what `zip` makes of the directory: about 400 bytes for an entry,
/// which takes 75 and more in the file.
pub(super) fn room(source: &dyn ReadAt, archive: Span) -> Result<()> {
    let size = size(source, archive)?.filter(|size| *size <= archive.len);
    room::ahead(size.unwrap_or(0).saturating_mul(5))
}

/// How long the directory is said to be; `None` if there is no end record where one may be.
pub(super) fn size(source: &dyn ReadAt, archive: Span) -> Result<Option<u64>> {
    let within = (LARGE_LEN + LOCATOR_LEN + END_LEN + MOST_COMMENT).min(archive.len);
    let mut tail = room::zeros(within)?;
    source.read_at(archive.offset + (archive.len - within), &mut tail)?;
    let Some(at) = tail.windows(END.len()).rposition(|bytes| bytes == END) else {
        return Ok(None);
    };
    let Some(size) = tail.get(at + 12..at + 16).and_then(|size| size.try_into().ok()) else {
        return Ok(None);
    };
    let size = u32::from_le_bytes(size);
    // The larger record is right before what tells of it, which is right before this one.
    let large = at.checked_sub((LOCATOR_LEN + LARGE_LEN) as usize).and_then(|at| tail.get(at..));
    let large = large.filter(|large| {
        large.starts_with(LARGE) && large[LARGE_LEN as usize..].starts_with(LOCATOR)
    });
    let large = large.and_then(|large| large.get(40..48)?.try_into().ok());
    Ok(Some(large.map_or(u64::from(size), u64::from_le_bytes)))
}
