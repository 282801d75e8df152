//! What a pickle puts aside.

use std::collections::HashMap;

use statelens_checkpoint::{Result, room};

use crate::NodeId;

/// What was put aside, by number. Python counts them from 0 up, so a list holds them; whatever
/// has another number is in a map.
#[derive(Default)]
pub(super) struct Memo {
    counted: Vec<NodeId>,
    others: HashMap<u32, NodeId>,
}

impl Memo {
    pub(super) fn len(&self) -> usize {
        self.counted.len() + self.others.len()
    }

    pub(super) fn get(&self, index: u32) -> Option<NodeId> {
        self.counted.get(index as usize).or_else(|| self.others.get(&index)).copied()
    }

    pub(super) fn set(&mut self, index: u32, id: NodeId) -> Result<()> {
        if let Some(place) = self.counted.get_mut(index as usize) {
            *place = id;
        } else if self.counted.len() == index as usize {
            room::push(&mut self.counted, id)?;
            if !self.others.is_empty() {
                self.others.remove(&index);
            }
        } else {
            room::insert(&mut self.others, index, id)?;
        }
        Ok(())
    }
}
