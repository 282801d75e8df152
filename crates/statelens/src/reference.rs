//! Lists of the keys that a checkpoint should have.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use crate::files::PathText as _;
use statelens_checkpoint::{Error, Result};
use statelens_compare::check::{Expected, is_text, parse_reference};

/// Bytes of the longest list that is read.
const MAX_LIST: u64 = 256 << 20;

/// Reads a manifest or a list of keys from a file; returns `None` if the file is neither.
///
/// # Errors
/// Fails if the file breaks off, or if a line is not one of a list.
pub fn listed_keys(path: &Path) -> Result<Option<Vec<Expected>>> {
    let readable = fs::metadata(path).is_ok_and(|data| data.is_file() && data.len() <= MAX_LIST);
    let Some(file) = readable.then(|| fs::File::open(path).ok()).flatten() else { return Ok(None) };
    let mut head = Vec::new();
    if (&file).take(512).read_to_end(&mut head).is_err() || !is_text(&head) {
        return Ok(None);
    }
    let in_file = |error: Error| error.in_file(path.to_text());
    let text =
        fs::read(path).map_err(|error| in_file(Error::io(format!("it can't be read: {error}"))))?;
    parse_reference(&text).map_err(in_file)
}
