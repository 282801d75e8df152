//! Counts the parameters of the model.

use statelens_checkpoint::{Checkpoint, FileId, Layout, Leaf};

use super::config::Config;
use super::parts;
use super::weights::Weights;
use crate::entry::LeafSummary;
use crate::parameters::ParameterCount;
use crate::summary::CheckpointSummary;

/// Counts the parameters of a checkpoint; does not read tensors. `leaves` are those of
/// `checkpoint`.
pub fn parameters(checkpoint: &Checkpoint, leaves: &[Leaf]) -> ParameterCount {
    let summary = CheckpointSummary::new(checkpoint, leaves);
    let (entries, places) = model_entries(checkpoint, leaves);
    let state = summary.model().map(|(name, _)| name.to_owned());
    let model = parameters_among(&entries, &places, state.as_deref());
    ParameterCount { model, all: summary.all.elements, state }
}

/// Counts the parameters among entries. `state` is the state that is the model, if there are
/// others.
pub(crate) fn parameters_among(
    entries: &[LeafSummary],
    places: &[Option<(FileId, u64)>],
    state: Option<&str>,
) -> u64 {
    let own = Config::of_entries(entries);
    let weights = Weights::new(entries, places, state, own.as_ref());
    parts::params(&parts::sums(&weights, &[], None))
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
