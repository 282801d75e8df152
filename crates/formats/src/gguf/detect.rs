use crate::{Probe, Score};

/// The first bytes of a file, in either byte order.
pub(crate) const MAGIC: &[u8] = b"GGUF";

pub(crate) fn score(probe: &Probe<'_>) -> Score {
    if probe.head().starts_with(MAGIC) { Score::Magic } else { Score::No }
}
