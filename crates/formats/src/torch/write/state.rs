//! The pickle of a state dict, and its losses.

use std::collections::HashSet;

use statelens_checkpoint::{
    Checkpoint, Error, Layout, Loss, Losses, Quantizer, Result, TensorId, Text, Value, ValueId,
};

use super::pickler::Pickler;
use super::stand_in::{StandIn, is_torch, stand_in};
use super::storages::Storages;
use crate::advice;

pub(super) struct PickledState<'a> {
    source: &'a Checkpoint,
    /// Tensors in the order in which the pickle first refers to them.
    tensors: Vec<TensorId>,
    /// Losses by value, since computing keys requires a walk of the tree.
    losses: Losses<ValueId>,
}

impl<'a> PickledState<'a> {
    /// Finds the tensors. Fails if the data of a tensor is missing.
    pub(super) fn new(source: &'a Checkpoint) -> Result<Self> {
        let mut state = Self { source, tensors: Vec::new(), losses: Losses::default() };
        let mut seen = HashSet::new();
        let mut missing = Vec::new();
        let mut stack = vec![source.root()];
        while let Some(id) = stack.pop() {
            let value = source.value(id);
            if let Value::Link(target) = value {
                // A target elsewhere in the tree is visited there.
                stack.push(*target);
                continue;
            }
            if !seen.insert(id) {
                continue;
            }
            if let Some((tensor, _)) = source.tensor_of(id).filter(|(_, t)| is_torch(&t.dtype)) {
                state.tensors.push(tensor);
                missing.extend(missing_data(source, id));
            } else if let Value::Tensor(_) = value {
                // If the file of a tensor is missing, even its dtype may be unknown.
                missing.extend(missing_data(source, id));
            }
            let mut below = written_children(source, id);
            below.reverse();
            stack.extend(below);
        }
        if !missing.is_empty() {
            return Err(refuse_missing(source, &missing));
        }
        let mut once = HashSet::new();
        state.tensors.retain(|tensor| once.insert(*tensor));
        Ok(state)
    }

    /// Returns the tensors to be stored, in the order of the pickle.
    pub(super) fn tensors(&self) -> &[TensorId] {
        &self.tensors
    }

    /// Returns the pickle, once every tensor has a storage.
    pub(super) fn pickle(&mut self, storages: &Storages) -> Result<Vec<u8>> {
        let linked = linked(self.source);
        Pickler::new(self.source, storages, linked, &mut self.losses).run()
    }

    pub(super) fn losses(self) -> Vec<Loss> {
        let all: HashSet<ValueId> = self.losses.keys().copied().collect();
        if all.is_empty() {
            return Vec::new();
        }
        let keys = self.source.flat_keys(&all);
        self.losses.finish(|id| keys.get(&id).map(ToString::to_string))
    }
}

/// Returns the values with several references. Plain scalars are not included; they are written
/// again.
fn linked(source: &Checkpoint) -> HashSet<ValueId> {
    let scalar = |id: &ValueId| {
        use Value::*;
        matches!(source.value(*id), None | Bool(_) | Int(_) | Float(_) | Complex(..) | DType { .. })
    };
    let targets = source.values().iter().filter_map(|value| match value {
        Value::Link(target) => Some(*target),
        _ => None,
    });
    targets.filter(|id| !scalar(id)).collect()
}

/// Returns the children that are written for a value. An object that can't be written itself is
/// replaced by its contents.
fn written_children(source: &Checkpoint, id: ValueId) -> Vec<ValueId> {
    match source.value(id) {
        Value::Opaque(opaque) => match stand_in(source, id, opaque) {
            StandIn::Value(value) => vec![value],
            StandIn::Items(items) => items.to_vec(),
            StandIn::Entries(entries) => entries.iter().map(|(_, value)| *value).collect(),
            StandIn::Text(_) => Vec::new(),
        },
        Value::Tensor(tensor) => match source.tensor(*tensor).map(|t| &t.quantizer) {
            Ok(Some(Quantizer::PerChannel { scales, zero_points, .. })) => {
                vec![*scales, *zero_points]
            }
            _ => Vec::new(),
        },
        value => value.children(),
    }
}

/// Returns the value and the reason, if the data of its tensor is missing.
fn missing_data(source: &Checkpoint, id: ValueId) -> Option<(ValueId, Text)> {
    match &source.tensor_of(id)?.1.layout {
        Layout::Missing(why) => Some((id, why.clone())),
        _ => None,
    }
}

fn refuse_missing(source: &Checkpoint, missing: &[(ValueId, Text)]) -> Error {
    let keys = source.flat_keys(&missing.iter().map(|(id, _)| *id).collect());
    let names = missing.iter().filter_map(|(id, _)| Some(keys.get(id)?.to_string()));
    let why = missing.first().map_or_else(|| "".into(), |(_, why)| why.clone());
    advice::no_data(missing.len(), names, &why)
}
