//! The memo of a pickle.

use std::collections::HashMap;

use statelens_checkpoint::{Int, Result, try_alloc};

use crate::NodeId;

/// The memo, by index. Python counts indices from 0 up, so those are in a vector; all others are in
/// maps.
#[derive(Default)]
pub(super) struct Memo {
    counted: Vec<NodeId>,
    others: HashMap<u64, NodeId>,
    /// Indices above 64 bits, which are possible because Python's memo is a dict.
    large: HashMap<Int, NodeId>,
}

impl Memo {
    /// Returns the number of entries, which is the index that `MEMOIZE` sets.
    pub(super) fn len(&self) -> usize {
        self.counted.len() + self.others.len() + self.large.len()
    }

    pub(super) fn get(&self, index: u64) -> Option<NodeId> {
        let counted = usize::try_from(index).ok().and_then(|index| self.counted.get(index));
        counted.or_else(|| self.others.get(&index)).copied()
    }

    /// Like [`Memo::get`], for an index that was spelled as text.
    pub(super) fn get_int(&self, index: &Int) -> Option<NodeId> {
        match index.to_u64() {
            Some(index) => self.get(index),
            None => self.large.get(index).copied(),
        }
    }

    pub(super) fn set(&mut self, index: u64, id: NodeId) -> Result<()> {
        let place = usize::try_from(index).ok().and_then(|index| self.counted.get_mut(index));
        if let Some(place) = place {
            *place = id;
        } else if self.counted.len() as u64 == index {
            try_alloc::push(&mut self.counted, id)?;
            if !self.others.is_empty() {
                self.others.remove(&index);
            }
        } else {
            try_alloc::insert(&mut self.others, index, id)?;
        }
        Ok(())
    }

    /// Like [`Memo::set`], for an index that was spelled as text.
    pub(super) fn set_int(&mut self, index: Int, id: NodeId) -> Result<()> {
        match index.to_u64() {
            Some(index) => self.set(index, id),
            None => try_alloc::insert(&mut self.large, index, id).map(drop),
        }
    }
}
