//! Reads tensors on all cores.

use std::path::Path;
use std::sync::Arc;

use statelens::statistics::{self, first_read};
use statelens_checkpoint::{Checkpoint, Leaf, Result, TensorId};
use statelens_values::weights::{Survey, TensorOutcome};

use crate::output::stop_signal;
use crate::progress::{Bar, Unit};
use crate::{limits, remote};

/// Reads the tensors of these leaves and calls `out` once per tensor, in the order of the leaves.
pub(crate) fn each(
    file: &Path,
    checkpoint: &Arc<Checkpoint>,
    leaves: &[Leaf],
    out: impl FnMut(TensorId, TensorOutcome) -> Result<()>,
) -> Result<()> {
    limits::check(checkpoint, "reading all values")?;
    drive(file, first_read(checkpoint, leaves), "reading", out)
}

/// Reads the tensors of a survey and calls `out` with its results, in the order of the survey.
pub(crate) fn drive(
    file: &Path,
    survey: Survey,
    what: &'static str,
    mut out: impl FnMut(TensorId, TensorOutcome) -> Result<()>,
) -> Result<()> {
    let mut bar = Bar::new(what, Unit::Bytes).stopped_by(stop_signal()?);
    statistics::drive(survey, remote::workers(&[file]), &mut bar, &mut out)
}
