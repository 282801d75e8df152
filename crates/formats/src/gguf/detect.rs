//! Telling it apart.

use crate::{Probe, Score};

/// What a file begins with, in either byte order.
pub(crate) const MAGIC: &[u8] = b"GGUF";

/// How sure this format is.
pub fn score(probe: &Probe<'_>) -> Score {
    if probe.head().starts_with(MAGIC) { Score::Magic } else { Score::No }
}
