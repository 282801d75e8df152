use statelens_checkpoint::Limits;
use statelens_hdf5::Hdf5File;

use crate::{Probe, Score};

/// Scores an HDF5 file whose root group has the attribute `__spec__`.
pub(crate) fn score(probe: &Probe<'_>) -> Score {
    if !Hdf5File::is_likely(probe.head()) {
        return Score::No;
    }
    let files = probe.files();
    let file = files.main().and_then(|main| Hdf5File::open(files, main, &Limits::default()));
    match file.and_then(|file| file.root_has("__spec__")) {
        Ok(true) => Score::Exact,
        Ok(false) | Err(_) => Score::No,
    }
}
