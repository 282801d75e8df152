//! Reads tensors on all cores.

use std::path::Path;
use std::sync::Arc;

use statelens::parallel;
use statelens_checkpoint::{Checkpoint, Leaf, Result, TensorId, Value};
use statelens_inspect::weights::{Survey, TensorOutcome};

use crate::output::stop_signal;
use crate::progress::{Bar, Unit};
use crate::{limits, remote};

/// Bytes of a tensor that are read as one part. The division into parts changes no result.
const PIECE: u64 = 32 << 20;

/// Reads the tensors of these leaves and calls `out` once per tensor, in the order of the leaves.
pub(crate) fn each(
    file: &Path,
    checkpoint: &Arc<Checkpoint>,
    leaves: &[Leaf],
    out: impl FnMut(TensorId, TensorOutcome) -> Result<()>,
) -> Result<()> {
    limits::check(checkpoint, "reading all values")?;
    let tensors = leaves.iter().filter_map(|leaf| match checkpoint.value(leaf.target) {
        Value::Tensor(_) | Value::Array(_) => Some(checkpoint.tensor_of(leaf.target)?.0),
        _ => None,
    });
    drive(file, Survey::divided(checkpoint.clone(), tensors, PIECE), "reading", out)
}

/// Reads the tensors of a survey and calls `out` with its results, in the order of the survey.
pub(crate) fn drive(
    file: &Path,
    mut survey: Survey,
    what: &'static str,
    mut out: impl FnMut(TensorId, TensorOutcome) -> Result<()>,
) -> Result<()> {
    let mut bar = Bar::new(what, Unit::Bytes).stopped_by(stop_signal()?);
    parallel::drive_watched(&mut survey, remote::workers(&[file]), &mut bar, |found| {
        found.take().into_iter().try_for_each(|(id, outcome)| out(id, outcome))
    })
}
