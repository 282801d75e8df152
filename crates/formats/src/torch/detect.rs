//! Telling it apart.

use crate::archive::ZIP;
use crate::{Probe, Score};

/// How sure this format is: a zip archive at the start, the magic number of the stream that
/// torch wrote before release 1.6, or a zip archive behind something else.
pub fn score(probe: &Probe<'_>) -> Score {
    let head = probe.head();
    if head.starts_with(ZIP) || statelens_pickle::is_stream(head) {
        return Score::Container;
    }
    if is_tar(head) {
        return Score::Maybe;
    }
    // A zip archive may follow a shell script or the like; an HDF5 file may hold one, too.
    match head.windows(ZIP.len()).any(|bytes| bytes == ZIP) {
        true => Score::Holds,
        false => Score::No,
    }
}

/// A tar archive, as releases before 0.2 wrote.
pub(super) fn is_tar(head: &[u8]) -> bool {
    head.get(257..262) == Some(b"ustar")
}
