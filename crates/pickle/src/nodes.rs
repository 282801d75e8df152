//! The objects of a pickle, in a list that grows without being copied: it is the largest thing that
//! reading a pickle holds, and one that doubles needs three times its room while it does.

use std::ops::{Index, IndexMut};

use statelens_checkpoint::{Result, room};

use crate::Node;

/// All objects, by number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Nodes {
    /// All but the last hold [`CHUNK`].
    chunks: Vec<Vec<Node>>,
}

/// Objects of a piece.
const CHUNK: usize = 1 << 14;

impl Nodes {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        let last = self.chunks.last().map_or(0, Vec::len);
        self.chunks.len().saturating_sub(1) * CHUNK + last
    }

    pub(crate) fn get(&self, at: usize) -> Option<&Node> {
        self.chunks.get(at / CHUNK)?.get(at % CHUNK)
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Node> {
        self.chunks.get_mut(at / CHUNK)?.get_mut(at % CHUNK)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.chunks.iter().flatten()
    }

    /// Adds one; fails where there is no memory for it.
    pub(crate) fn push(&mut self, node: Node) -> Result<()> {
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => room::push(last, node),
            before => {
                // The first grows, for most pickles are small.
                let room = if before.is_some() { CHUNK as u64 } else { 1 };
                let mut chunk = room::vec(room)?;
                chunk.push(node);
                room::push(&mut self.chunks, chunk)
            }
        }
    }
}

impl Index<usize> for Nodes {
    type Output = Node;

    fn index(&self, at: usize) -> &Node {
        &self.chunks[at / CHUNK][at % CHUNK]
    }
}

impl IndexMut<usize> for Nodes {
    fn index_mut(&mut self, at: usize) -> &mut Node {
        &mut self.chunks[at / CHUNK][at % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_one_list() {
        let mut nodes = Nodes::default();
        assert_eq!((nodes.len(), nodes.get(0)), (0, None));
        for at in 0..3 * CHUNK {
            assert_eq!(nodes.len(), at);
            nodes.push(Node::Float(at as f64)).unwrap();
        }
        for at in [0, 1, CHUNK - 1, CHUNK, 2 * CHUNK, 3 * CHUNK - 1] {
            assert_eq!(nodes.get(at), Some(&Node::Float(at as f64)));
            nodes[at] = Node::None;
            assert_eq!(nodes[at], Node::None);
        }
        assert_eq!(nodes.get(3 * CHUNK), None);
        assert_eq!(nodes.iter().filter(|node| **node == Node::None).count(), 6);
        assert_eq!(nodes.iter().count(), 3 * CHUNK);
    }
}
