//! Reading.

use statelens_checkpoint::{Checkpoint, Error, FileSet, Limits, Progress, Result};

/// Opens it.
pub fn read(_files: FileSet, _limits: &Limits, _progress: &mut dyn Progress) -> Result<Checkpoint> {
    Err(Error::unsupported("this reader is not built yet"))
}
