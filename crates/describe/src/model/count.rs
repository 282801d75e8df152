//! Counts the parameters of the model.

use statelens_checkpoint::{Checkpoint, Leaf, both};

use super::config::Config;
use super::leaf::{ModelLeaf, flat_leaves, model_leaves};
use super::packed::Unpacked;
use super::{roles, weights};
use crate::parameters::ParameterCount;
use crate::summary::CheckpointSummary;

/// Returns the summary of a checkpoint and the number of its parameters, for which a flat dict needs
/// no list of all leaves. See [`parameters`].
pub fn summarised(
    checkpoint: &Checkpoint,
    config: Option<&Config>,
) -> (CheckpointSummary, ParameterCount) {
    let workers = checkpoint.files.workers();
    let summary = || CheckpointSummary::of(checkpoint);
    let (summary, leaves) = both(workers, summary, || flat_leaves(checkpoint));
    let Some(leaves) = leaves else {
        let parameters = parameters(checkpoint, &checkpoint.leaves(), &summary, config);
        return (summary, parameters);
    };
    let state = summary.model().map(|(name, _)| name.to_owned());
    let model = parameters_among(&leaves, state.as_deref(), config);
    let all = summary.totals.all.elements;
    (summary, ParameterCount { model, all, state })
}

/// Counts the parameters of a checkpoint; does not read tensors. `leaves` and `summary` are those
/// of `checkpoint`. The width of packed weights may only be in `config`.
pub fn parameters(
    checkpoint: &Checkpoint,
    leaves: &[Leaf],
    summary: &CheckpointSummary,
    config: Option<&Config>,
) -> ParameterCount {
    let state = summary.model().map(|(name, _)| name.to_owned());
    let model = parameters_among(&model_leaves(checkpoint, leaves), state.as_deref(), config);
    ParameterCount { model, all: summary.totals.all.elements, state }
}

/// Counts the parameters among leaves. `state` is the state that is the model, if there are others.
pub(crate) fn parameters_among(
    leaves: &[ModelLeaf<'_>],
    state: Option<&str>,
    config: Option<&Config>,
) -> u64 {
    let own = Config::of_leaves(leaves);
    let config = config.or(own.as_ref());
    let mut count = 0u64;
    weights::unpacked(leaves, state, config, |tensor| {
        if tensor.tied.is_none() && !is_buffer(&tensor) {
            count = count.saturating_add(tensor.params);
        }
    });
    count
}

/// Returns whether a tensor is not trained. Parses only the few keys that may be those of buffers.
fn is_buffer(tensor: &Unpacked<'_>) -> bool {
    let rank = tensor.shape.len();
    !tensor.trained
        || roles::may_be_buffer(tensor.key, rank) && roles::is_buffer(&tensor.parsed(), rank)
}
