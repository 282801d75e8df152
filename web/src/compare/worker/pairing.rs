//! Applies the comparison's key edits to the first checkpoint.

use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Result};
use statelens_convert::{Edit, Rename};

use crate::compare::message::{CompareOptions, NO_ROW};
use crate::worker::opened::OpenCheckpoint;

/// Returns the first checkpoint with its keys edited, so that they can be matched with the
/// second's.
pub(crate) fn renamed(left: &OpenCheckpoint, options: &CompareOptions) -> Result<Arc<Checkpoint>> {
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
        true => left.checkpoint.clone(),
        false => Arc::new(edit.apply(&left.checkpoint)?),
    })
}

/// Returns the row of each leaf of an edited checkpoint. Edits keep the ids of values.
pub(crate) fn rows(open: &OpenCheckpoint, edited: &Arc<Checkpoint>) -> Vec<u32> {
    if Arc::ptr_eq(&open.checkpoint, edited) {
        return (0..open.leaves.len() as u32).collect();
    }
    let mut row_of = vec![NO_ROW; open.checkpoint.values().len()];
    for (row, leaf) in (0u32..).zip(open.leaves.iter()) {
        if let Some(place) = row_of.get_mut(leaf.id.0 as usize) {
            *place = row;
        }
    }
    let leaves = edited.leaves();
    leaves.iter().map(|leaf| row_of.get(leaf.id.0 as usize).copied().unwrap_or(NO_ROW)).collect()
}
