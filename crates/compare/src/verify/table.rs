//! A table of values per tensor.

use statelens_checkpoint::{Checkpoint, TensorId};

/// A value for some of the tensors of a checkpoint, by tensor id.
pub(super) struct PerTensor<T>(Vec<Option<T>>);

impl<T> PerTensor<T> {
    /// Returns an empty table.
    pub(super) fn of(checkpoint: &Checkpoint) -> Self {
        Self(checkpoint.tensors().iter().map(|_| None).collect())
    }

    pub(super) fn get(&self, id: TensorId) -> Option<&T> {
        self.0.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn set(&mut self, id: TensorId, value: T) {
        if let Some(place) = self.0.get_mut(id.0 as usize) {
            *place = Some(value);
        }
    }

    pub(super) fn take(&mut self, id: TensorId) -> Option<T> {
        self.0.get_mut(id.0 as usize)?.take()
    }
}
