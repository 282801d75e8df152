//! Counts the parameters of the model.

use statelens_checkpoint::{Checkpoint, FileId, Layout, Leaf};

use super::config::Config;
use super::{roles, weights};
use crate::entry::LeafSummary;
use crate::parameters::ParameterCount;
use crate::summary::CheckpointSummary;

/// Counts the parameters of a checkpoint; does not read tensors. `leaves` and `summary` are those
/// of `checkpoint`. The width of packed weights may only be in `config`.
pub fn parameters(
    checkpoint: &Checkpoint,
    leaves: &[Leaf],
    summary: &CheckpointSummary,
    config: Option<&Config>,
) -> ParameterCount {
    let (entries, places) = model_entries(checkpoint, leaves);
    let state = summary.model().map(|(name, _)| name.to_owned());
    let model = parameters_among(&entries, &places, state.as_deref(), config);
    ParameterCount { model, all: summary.all.elements, state }
}

/// Counts the parameters among entries. `state` is the state that is the model, if there are
/// others.
pub(crate) fn parameters_among(
    entries: &[LeafSummary],
    places: &[Option<(FileId, u64)>],
    state: Option<&str>,
    config: Option<&Config>,
) -> u64 {
    let own = Config::of_entries(entries);
    let config = config.or(own.as_ref());
    let (unpacked, _) = weights::unpacked(entries, places, state, config);
    let counted = unpacked.iter().filter(|tensor| {
        let stored = &tensor.stored;
        let buffer = !tensor.trained || roles::is_buffer(&stored.parsed, tensor.shape.len());
        stored.tied.is_none() && !buffer
    });
    counted.fold(0, |all, tensor| all.saturating_add(tensor.params))
}

/// Returns the leaves that may belong to a model, and the location of each one's bytes, if known.
pub(super) fn model_entries(
    checkpoint: &Checkpoint,
    leaves: &[Leaf],
) -> (Vec<LeafSummary>, Vec<Option<(FileId, u64)>>) {
    let place = |leaf: &Leaf| {
        let (_, tensor) = checkpoint.tensor_of(leaf.target)?;
        match &tensor.layout {
            Layout::Span(span) if span.len > 0 => Some((span.file, span.offset)),
            _ => None,
        }
    };
    let leaves = leaves.iter().filter(|leaf| !leaf.outside_state);
    leaves.map(|leaf| (LeafSummary::new(checkpoint, leaf), place(leaf))).unzip()
}
