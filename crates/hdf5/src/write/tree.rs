//! Version-1 B-trees, of any depth.

use super::bytes::{Put, UNDEFINED};
use super::heap::Heap;

#[derive(Clone, Copy)]
pub(super) enum NodeType {
    /// The leaves of a group.
    Group,
    Chunks,
}

/// Builds a tree over `children` and returns its root node, which is not in the file yet, unlike
/// the nodes below it. `keys` are those before, between and after the children, all of one length.
/// A node has room for `width` children.
pub(super) fn build(
    node_type: NodeType,
    width: usize,
    mut children: Vec<u64>,
    mut keys: Vec<Vec<u8>>,
    heap: &mut Heap,
) -> Vec<u8> {
    let mut level = 0;
    while children.len() > width {
        let count = children.len().div_ceil(width);
        let mut above = Vec::new();
        let mut above_keys = vec![keys[0].clone()];
        let first = heap.address(heap.bytes.len());
        let mut size = 0;
        for (index, group) in children.chunks(width).enumerate() {
            let from = index * width;
            let node_keys = &keys[from..=from + group.len()];
            // All nodes have the same size and are stored side by side.
            let neighbour = |index: usize| first + (index * size) as u64;
            let left = if index == 0 { UNDEFINED } else { neighbour(index - 1) };
            let mut node = node(node_type, level, width, group, node_keys, left, UNDEFINED);
            size = node.len();
            if index + 1 < count {
                let right = first + ((index + 1) * size) as u64;
                node[RIGHT..RIGHT + 8].copy_from_slice(&right.to_le_bytes());
            }
            above.push(heap.append(&node));
            above_keys.push(keys[from + group.len()].clone());
        }
        (children, keys) = (above, above_keys);
        level += 1;
    }
    node(node_type, level, width, &children, &keys, UNDEFINED, UNDEFINED)
}

/// The offset in a node of its right neighbour's address.
const RIGHT: usize = 16;

fn node(
    node_type: NodeType,
    level: u8,
    width: usize,
    children: &[u64],
    keys: &[Vec<u8>],
    left: u64,
    right: u64,
) -> Vec<u8> {
    let mut out = Vec::from(*b"TREE");
    out.extend([node_type as u8, level]);
    out.u16(children.len() as u16);
    out.u64(left);
    out.u64(right);
    for (key, child) in keys.iter().zip(children) {
        out.extend_from_slice(key);
        out.u64(*child);
    }
    let key = keys.last().map_or(&[][..], Vec::as_slice);
    if !children.is_empty() {
        out.extend_from_slice(key);
    }
    // Every node has the size of a full one.
    out.resize(24 + width * 8 + (width + 1) * key.len(), 0);
    out
}
