//! Reads tensors on all cores.

use statelens::parts::checkpoint::{Leaf, TensorId};
use statelens::parts::values::weights::{Survey, TensorOutcome};
use statelens::statistics::{self, first_read};
use statelens::{Checkpoint, Result};

use crate::progress::{Bar, Unit};

/// Reads the tensors of these leaves and calls `out` once per tensor, in the order of the leaves.
pub(crate) fn each(
    checkpoint: &Checkpoint,
    leaves: &[Leaf],
    out: impl FnMut(TensorId, TensorOutcome) -> Result<()>,
) -> Result<()> {
    checkpoint.check_size("reading all values")?;
    drive(checkpoint, first_read(checkpoint.inner(), leaves), "reading", out)
}

/// Reads the tensors of a survey and calls `out` with its results, in the order of the survey.
pub(crate) fn drive(
    checkpoint: &Checkpoint,
    survey: Survey,
    what: &'static str,
    mut out: impl FnMut(TensorId, TensorOutcome) -> Result<()>,
) -> Result<()> {
    let mut bar = Bar::stoppable(what, Unit::Bytes)?;
    statistics::drive(survey, checkpoint.workers(), &mut bar, &mut out)?;
    checkpoint.unchanged()
}
