//! Telling it apart.

use statelens_hdf5::Hdf5File;

use crate::{Probe, Score};

/// How sure this format is.
pub fn score(probe: &Probe<'_>) -> Score {
    if Hdf5File::is_likely(probe.head()) { Score::Container } else { Score::No }
}
