//! Frees a pickle's objects while the tree is built, which would otherwise both be in memory at the
//! end. A tensor takes about nine objects.
//!
//! An object is freed when nothing refers to it any more, as in Python. The parts of a dict or list
//! are freed one by one as they are lowered, if only the tree above can lead to it; from then on
//! the container counts as empty.

use statelens_checkpoint::{Form, Result, try_alloc};

use super::Assembly;
use crate::{Node, NodeId, Pickle};

/// Reference counts of the objects of a pickle, and the objects to free next.
pub(super) struct ObjectHolders {
    /// Number of references to each object; [`ALWAYS`]: at least that many, and it is never freed.
    holders: Vec<u8>,
    /// Dicts and lists whose parts are to be taken.
    pub(super) opened: Vec<NodeId>,
    /// Parts that have been lowered.
    pub(super) lowered: Vec<NodeId>,
}

/// The count from which references are no longer counted.
const ALWAYS: u8 = u8::MAX;

impl ObjectHolders {
    pub(super) fn of(pickle: &Pickle) -> Result<Self> {
        let mut holders = try_alloc::filled(0u8, pickle.nodes.len())?;
        for (_, node) in pickle.nodes() {
            pickle.each_reference(node, &mut |part| {
                if let Some(count) = holders.get_mut(part.0 as usize) {
                    *count = count.saturating_add(1);
                }
            });
        }
        let mut release = Self { holders, opened: Vec::new(), lowered: Vec::new() };
        release.keep(NodeId(0));
        // States of nodes other than objects are looked up by number.
        pickle.states.values().flatten().for_each(|state| release.keep(*state));
        Ok(release)
    }

    /// Never frees an object.
    pub(super) fn keep(&mut self, id: NodeId) {
        if let Some(count) = self.holders.get_mut(id.0 as usize) {
            *count = ALWAYS;
        }
    }

    /// Returns whether the parts of a node, which are those of `assembly`, may be taken from it: it
    /// must be in one place (the root is in none and has no references), and own them itself.
    pub(super) fn may_open(
        &self,
        pickle: &Pickle,
        id: NodeId,
        is_root: bool,
        assembly: &Assembly,
    ) -> bool {
        let holders = self.holders.get(id.0 as usize).copied();
        let is_one = holders == Some(u8::from(!is_root));
        is_one
            && match (pickle.node(id), assembly) {
                (Node::Dict(_), Assembly::Dict(..)) | (Node::List(_), Assembly::List(_)) => true,
                (Node::Object(call), Assembly::Dict(..)) => {
                    let object = pickle.made(*call);
                    object.form == Form::Call
                        && object.kwargs.is_none()
                        && pickle.sequence(object.args).is_some_and(<[_]>::is_empty)
                }
                _ => false,
            }
    }

    /// Frees the recorded objects.
    pub(super) fn apply(&mut self, pickle: &mut Pickle) -> Result<()> {
        let mut free = Vec::new();
        while let Some(id) = self.opened.pop() {
            self.open(pickle, id, &mut free)?;
        }
        while let Some(id) = self.lowered.pop() {
            self.drop(id, &mut free)?;
        }
        while let Some(id) = free.pop() {
            self.free(pickle, id, &mut free)?;
        }
        Ok(())
    }

    /// Takes the parts from a dict or list. Its keys are in the tree already.
    fn open(&mut self, pickle: &mut Pickle, id: NodeId, free: &mut Vec<NodeId>) -> Result<()> {
        let entries = match pickle.nodes.get_mut(id.0 as usize) {
            Some(Node::List(items)) => {
                **items = Vec::new();
                return Ok(());
            }
            Some(Node::Dict(entries)) => std::mem::take(&mut **entries),
            Some(Node::Object(_)) => match pickle.more_mut(id)? {
                Some(more) => std::mem::take(&mut more.entries),
                None => return Ok(()),
            },
            _ => return Ok(()),
        };
        entries.iter().try_for_each(|(key, _)| self.drop(*key, free))
    }

    /// Removes one reference.
    fn drop(&mut self, id: NodeId, free: &mut Vec<NodeId>) -> Result<()> {
        match self.holders.get_mut(id.0 as usize) {
            None | Some(&mut (0 | ALWAYS)) => Ok(()),
            Some(count) => {
                *count -= 1;
                if *count == 0 { try_alloc::push(free, id) } else { Ok(()) }
            }
        }
    }

    fn free(&mut self, pickle: &mut Pickle, id: NodeId, free: &mut Vec<NodeId>) -> Result<()> {
        let Some(node) = pickle.nodes.take(id.0 as usize, Node::None) else { return Ok(()) };
        let mut result = Ok(());
        pickle.each_reference(&node, &mut |part| {
            if result.is_ok() {
                result = self.drop(part, free);
            }
        });
        match node {
            Node::Tuple(items) => pickle.forget(items),
            Node::Object(call) => pickle.forget_more(call),
            _ => {}
        }
        result
    }
}
