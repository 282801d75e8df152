//! Old-style groups: symbol tables, with sorted leaves below a version-1 B-tree.

use super::attribute::Attribute;
use super::bytes::Put;
use super::dense;
use super::heap::Heap;
use super::message::{Messages, kind};
use super::tree;

/// Half the symbols per leaf and half the children per tree node, as in the superblock.
pub(super) const LEAF_RANK: u16 = 4;
pub(super) const TREE_RANK: u16 = 16;
const SYMBOLS: usize = 2 * LEAF_RANK as usize;
const CHILDREN: usize = 2 * TREE_RANK as usize;

const HEAP_HEADER: usize = 32;
const NODE: usize = 24 + 8 * (2 * CHILDREN + 1);
const LEAF: usize = 8 + 40 * SYMBOLS;
/// Size of the object header: its prefix and two messages of 16 bytes each.
const HEADER: usize = 16 + 2 * 24;

/// Maximum number of attributes that a header of version 1 can count.
const MAX_COUNTED: usize = 65_533;
/// Maximum number of attributes of a group. If a header can't count them, they are stored densely.
pub(super) const MAX_DENSE: usize = dense::MAX_ATTRIBUTES;

/// The parts of a group that others refer to, side by side, so that one position locates all:
/// header of the local heap, root of the B-tree, object header.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupRef(usize);

pub(super) enum LinkTarget {
    /// A dataset's object header.
    Dataset(u64),
    Group(GroupRef),
}

impl GroupRef {
    pub(super) fn reserve(heap: &mut Heap) -> Self {
        Self(heap.reserve(HEAP_HEADER + NODE + HEADER))
    }

    /// Returns the addresses of object header, B-tree and local heap of a group at `start` of the
    /// file.
    pub(super) fn addresses(start: u64) -> (u64, u64, u64) {
        let tree = start + HEAP_HEADER as u64;
        (tree + NODE as u64, tree, start)
    }
}

/// Writes a group to its reserved place. `links` must be sorted by the bytes of their names.
pub(super) fn write(
    group: GroupRef,
    links: &[(&str, LinkTarget)],
    attributes: &[Attribute],
    heap: &mut Heap,
) {
    let start = heap.address(group.0);
    let (_, tree_address, heap_address) = GroupRef::addresses(start);

    // The empty name at 0 is the lower bound of the B-tree.
    let mut names = vec![0; 8];
    let mut leaves = Vec::new();
    let mut leaf = Vec::with_capacity(LEAF);
    for symbols in links.chunks(SYMBOLS) {
        leaf.clear();
        leaf.extend(*b"SNOD\x01\0");
        leaf.u16(symbols.len() as u16);
        let mut last = 0;
        for (name, target) in symbols {
            last = names.len() as u64;
            names.name(name);
            leaf.u64(last);
            entry(&mut leaf, target, heap);
        }
        leaf.resize(LEAF, 0);
        leaves.push((heap.append(&leaf), last));
    }

    let mut keys = vec![0u64.to_le_bytes().to_vec()];
    keys.extend(leaves.iter().map(|(_, last)| last.to_le_bytes().to_vec()));
    let children: Vec<u64> = leaves.into_iter().map(|(address, _)| address).collect();
    let root = tree::build(tree::NodeType::Group, CHILDREN, children, keys, heap);
    heap.fill(group.0 + HEAP_HEADER, &root);

    let names = (heap.append(&names), names.len() as u64);
    let mut header = Vec::from(*b"HEAP\0\0\0\0");
    header.u64(names.1);
    // No free space.
    header.u64(1);
    header.u64(names.0);
    heap.fill(group.0, &header);

    let mut messages = Messages::default();
    messages.push(kind::SYMBOL_TABLE, 0, |out| {
        out.u64(tree_address);
        out.u64(heap_address);
    });
    let mut more = Messages::default();
    for attribute in attributes {
        more.push(kind::ATTRIBUTE, 0, |out| attribute.encode_into(heap, out));
    }
    if attributes.len() > MAX_COUNTED {
        let names = attributes.iter().map(|one| &*one.name);
        let named: Vec<_> = names.zip(more.bodies(0)).collect();
        let info = dense::store(&named, heap);
        messages.push(kind::ATTRIBUTE_INFO, 0, |out| out.extend(info));
        // It is shorter than a header of version 1.
        return heap.fill(group.0 + HEAP_HEADER + NODE, &messages.header_v2());
    }
    if more.count() > 0 {
        let block = more.encoded();
        let address = heap.append(block);
        messages.push(kind::CONTINUATION, 0, |out| {
            out.u64(address);
            out.u64(block.len() as u64);
        });
    } else {
        // An empty message of the same size.
        messages.push(0, 0, |out| out.zeros(16));
    }
    let mut header = Vec::with_capacity(HEADER);
    messages.header_into(more.count(), 1, &mut header);
    heap.fill(group.0 + HEAP_HEADER + NODE, &header);
}

/// Appends a symbol table entry without its name. For a group, it caches the group's addresses.
fn entry(out: &mut Vec<u8>, target: &LinkTarget, heap: &Heap) {
    match target {
        LinkTarget::Dataset(address) => {
            out.u64(*address);
            out.zeros(24);
        }
        LinkTarget::Group(group) => group_entry(out, heap.address(group.0)),
    }
}

/// Appends the entry of the group at `start` of the file.
pub(super) fn group_entry(out: &mut Vec<u8>, start: u64) {
    let (header, tree, names) = GroupRef::addresses(start);
    out.u64(header);
    out.u32(1);
    out.u32(0);
    out.u64(tree);
    out.u64(names);
}
