use crate::archive::{ZIP, behind, is_array};
use crate::{Probe, Score};

/// Scores a file that begins with a zip archive or with the magic number of the stream format of
/// releases before 1.6, or that has a zip archive after other data.
pub(crate) fn score(probe: &Probe<'_>) -> Score {
    let head = probe.head();
    if head.starts_with(ZIP) || statelens_pickle::is_stream(head) {
        return Score::Container;
    }
    if is_tar(head) {
        return Score::Maybe;
    }
    // A zip archive may follow a shell script or similar. An HDF5 file may also contain one.
    match behind(head) {
        Some(first) if !is_array(first) => Score::Holds,
        _ => Score::No,
    }
}

/// Returns whether this is a tar archive, as written by releases before 0.2.
pub(super) fn is_tar(head: &[u8]) -> bool {
    head.get(257..262) == Some(b"ustar")
}
