//! Reads tensors on all cores.

use statelens::parts::checkpoint::{Leaf, TensorId};
use statelens::parts::values::weights::TensorOutcome;
use statelens::statistics::{self, first_read};
use statelens::{Checkpoint, Result};

use crate::progress::{Bar, Unit};

/// Reads the tensors of these leaves and calls `out` once per tensor, in the order of the leaves.
pub(crate) fn each(
    checkpoint: &Checkpoint,
    leaves: &[Leaf],
    mut out: impl FnMut(TensorId, TensorOutcome) -> Result<()>,
) -> Result<()> {
    checkpoint.check_size("reading all values")?;
    let survey = first_read(checkpoint.inner(), leaves);
    let mut bar = Bar::stoppable("reading", Unit::Bytes)?;
    statistics::drive(survey, checkpoint.workers(), &mut bar, &mut out)?;
    checkpoint.unchanged()
}
