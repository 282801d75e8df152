use statelens_hdf5::Hdf5File;

use crate::{Probe, Score};

pub(crate) fn score(probe: &Probe<'_>) -> Score {
    if Hdf5File::is_likely(probe.head()) { Score::Container } else { Score::No }
}
