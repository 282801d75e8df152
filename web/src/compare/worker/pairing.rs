//! Applies the comparison's key edits to the first checkpoint.

use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Leaf, Result};
use statelens_convert::{Edit, Rename};
use statelens_quantised::{compared_by_numbers, dequantise, with_original_names};

use crate::compare::message::{CompareOptions, NO_ROW};
use crate::worker::opened::OpenCheckpoint;

/// Both sides of a comparison in one form.
pub(crate) struct AlikeSides {
    pub(crate) left: Arc<Checkpoint>,
    pub(crate) right: Arc<Checkpoint>,
    /// Whether only one side is quantised: the question is how far it is from the other.
    pub(crate) one_is_quantised: bool,
}

impl AlikeSides {
    /// Returns both sides with quantised weights as tensors of numbers. If one has llama.cpp's
    /// names, it gets those of Hugging Face.
    pub(crate) fn new(left: &OpenCheckpoint, right: &OpenCheckpoint) -> Result<Self> {
        let stored = [left, right].map(|side| side.stored().checkpoint);
        let [one, other] = &stored;
        let renamed = [with_original_names(one, other)?, with_original_names(other, one)?];
        let [one, other] = match renamed {
            [Some(renamed), None] => [Arc::new(renamed), other.clone()],
            [None, Some(renamed)] => [one.clone(), Arc::new(renamed)],
            _ => stored.clone(),
        };
        let are_renamed = !(Arc::ptr_eq(&one, &stored[0]) && Arc::ptr_eq(&other, &stored[1]));
        let found = [dequantise(&one, None)?, dequantise(&other, None)?];
        let by_numbers = match &found {
            [Some(one), Some(other)] => compared_by_numbers(&one.weights, &other.weights),
            _ => false,
        };
        let both = found.map(|found| found.map(|found| Arc::new(found.checkpoint)));
        let (left, right, one_is_quantised) = match both {
            [Some(dense), None] => (dense, other, true),
            [None, Some(dense)] => (one, dense, true),
            [Some(one), Some(other)] if are_renamed || by_numbers => (one, other, false),
            [None, None] if are_renamed => (one, other, false),
            _ => (left.checkpoint.clone(), right.checkpoint.clone(), false),
        };
        Ok(Self { left, right, one_is_quantised })
    }
}

/// Returns the leaf of an edited checkpoint that is shown as this row.
pub(crate) fn leaf(open: &OpenCheckpoint, edited: &Checkpoint, row: u32) -> Option<Leaf> {
    let id = open.leaves.get(row as usize)?.id;
    edited.leaves().into_iter().find(|leaf| leaf.id == id)
}

/// Returns the first checkpoint with its keys edited, so that they can be matched with the
/// second's.
pub(crate) fn renamed(left: &Arc<Checkpoint>, options: &CompareOptions) -> Result<Arc<Checkpoint>> {
    let mut rename = Rename::all(&options.rename)?;
    if !options.names.is_empty() {
        rename.push(Rename::list(&options.names)?);
    }
    let edit = Edit {
        strip_prefix: options.strip_prefix.clone(),
        rename,
        prefix: options.prefix.clone(),
        ..Edit::default()
    };
    Ok(match edit.is_empty() {
        true => left.clone(),
        false => Arc::new(edit.apply(left)?),
    })
}

/// Returns the row of each leaf of an edited checkpoint. Edits keep the ids of values.
pub(crate) fn rows(open: &OpenCheckpoint, edited: &Arc<Checkpoint>) -> Vec<u32> {
    if Arc::ptr_eq(&open.checkpoint, edited) {
        return (0..open.leaves.len() as u32).collect();
    }
    let most = open.checkpoint.values().len().max(edited.values().len());
    let mut row_of = vec![NO_ROW; most];
    for (row, leaf) in (0u32..).zip(open.leaves.iter()) {
        if let Some(place) = row_of.get_mut(leaf.id.0 as usize) {
            *place = row;
        }
    }
    let leaves = edited.leaves();
    leaves.iter().map(|leaf| row_of.get(leaf.id.0 as usize).copied().unwrap_or(NO_ROW)).collect()
}
