//! Dense attribute storage, for attributes of more than 64 KiB, which don't fit in a message, and
//! for more attributes than a header of version 1 can count.
//!
//! Every attribute is a "huge" object of a fractal heap, which may be anywhere in the file. One
//! version-2 B-tree finds the objects by number, another the attributes by the hash of their name.

use super::bytes::{Put, UNDEFINED};
use super::heap::Heap;
use statelens_checkpoint::order;

/// Stores attributes, as name and encoded message, and returns the body of the attribute info
/// message for them.
pub(super) fn store(attributes: &[(&str, &[u8])], heap: &mut Heap) -> Vec<u8> {
    let mut objects = Vec::new();
    let mut names = Vec::new();
    let mut total = 0u64;
    for (number, (name, body)) in (1u64..).zip(attributes) {
        total += body.len() as u64;
        objects.u64(heap.append(body));
        objects.u64(body.len() as u64);
        objects.u64(number);
        names.push((checksum(name.as_bytes()), *name, number));
    }
    // Names with the same hash are sorted by name.
    order::natural(&mut names);
    let mut by_name = Vec::new();
    for (hash, _, number) in names {
        // A heap ID: a huge object, by its number; then flags and creation order, which are not
        // tracked.
        by_name.u64(0x10 | number << 8);
        by_name.push(0);
        by_name.u32(0);
        by_name.u32(hash);
    }
    let objects = tree(1, 24, &objects, heap);
    let fractal = fractal_heap(attributes.len() as u64, total, objects, heap);
    let by_name = tree(8, 17, &by_name, heap);
    let mut info = vec![0, 0];
    info.u64(fractal);
    info.u64(by_name);
    info
}

/// Writes a fractal heap without managed objects, with the parameters of the HDF5 library.
fn fractal_heap(count: u64, total: u64, objects: u64, heap: &mut Heap) -> u64 {
    let mut out = Vec::from(*b"FRHP\0");
    // Length of IDs, of filters; checksums in direct blocks; the largest managed object.
    out.u16(8);
    out.u16(0);
    out.push(2);
    out.u32(4096);
    out.u64(count);
    out.u64(objects);
    // Free space and its manager; managed space, allocated, iterator, objects.
    for value in [0, UNDEFINED, 0, 0, 0, 0] {
        out.u64(value);
    }
    // Size and number of huge objects, then of tiny objects.
    for value in [total, count, 0, 0] {
        out.u64(value);
    }
    // The parameters of the doubling table, which is empty.
    out.u16(4);
    out.u64(1024);
    out.u64(1 << 16);
    out.u16(40);
    out.u16(1);
    out.u64(UNDEFINED);
    out.u16(0);
    out.u32(checksum(&out));
    heap.append(&out)
}

/// Bytes of a node, for trees larger than one small leaf.
const NODE: usize = 1 << 16;
/// Bytes of a node in addition to its records: signature, version, type, checksum.
const AROUND: usize = 10;

/// Maximum number of attributes in trees of two levels, limited by the longer records.
pub(super) const MAX_ATTRIBUTES: usize = {
    let leaf = (NODE - AROUND) / 24;
    let root = (NODE - AROUND - POINTER) / (24 + POINTER);
    root * leaf
};

/// Bytes per child in an inner node: its address, and its number of records.
const POINTER: usize = 8 + 2;

/// Writes a version-2 B-tree: one leaf, or a root above nearly full leaves. There must be at most
/// [`MAX_ATTRIBUTES`] records.
fn tree(kind: u8, record: u16, records: &[u8], heap: &mut Heap) -> u64 {
    let size = usize::from(record);
    let count = records.len() / size;
    let node = if count * size + AROUND <= 512 { 512 } else { NODE };
    let most = (node - AROUND) / size;
    let (root, in_root, depth) = match count <= most {
        true => (leaf(kind, records, node, heap), count, 0),
        false => {
            // There is one record between two leaves.
            let leaves = (count + 1).div_ceil(most + 1);
            let (each, more) = ((count + 1 - leaves) / leaves, (count + 1 - leaves) % leaves);
            let mut between = Vec::new();
            let mut children = Vec::new();
            let mut rest = records;
            for number in 0..leaves {
                let here = each + usize::from(number < more);
                let (now, later) = rest.split_at(here * size);
                children.u64(leaf(kind, now, node, heap));
                // The field has as many bytes as needed to count the records of a full leaf.
                children.u16(here as u16);
                let (one, later) = later.split_at(size.min(later.len()));
                between.extend_from_slice(one);
                rest = later;
            }
            let mut inner = Vec::from(*b"BTIN\0");
            inner.push(kind);
            inner.extend(between);
            inner.extend(children);
            inner.u32(checksum(&inner));
            inner.resize(node, 0);
            (heap.append(&inner), leaves - 1, 1)
        }
    };
    let mut out = Vec::from(*b"BTHD\0");
    out.push(kind);
    out.u32(node as u32);
    out.u16(record);
    out.u16(depth);
    out.extend([100, 40]);
    out.u64(root);
    out.u16(in_root as u16);
    out.u64(count as u64);
    out.u32(checksum(&out));
    heap.append(&out)
}

fn leaf(kind: u8, records: &[u8], node: usize, heap: &mut Heap) -> u64 {
    let mut leaf = Vec::from(*b"BTLF\0");
    leaf.push(kind);
    leaf.extend_from_slice(records);
    leaf.u32(checksum(&leaf));
    leaf.resize(node.max(leaf.len()), 0);
    heap.append(&leaf)
}

/// Computes Bob Jenkins' lookup3 (`hashlittle`, initial value 0), the checksum of every newer
/// structure of HDF5, and the hash of names.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32);
    let (mut a, mut b, mut c) = (start, start, start);
    let mut rest = bytes;
    while rest.len() > 12 {
        let (head, tail) = rest.split_at(12);
        let [x, y, z] = words(head);
        (a, b, c) = (a.wrapping_add(x), b.wrapping_add(y), c.wrapping_add(z));
        mix(&mut a, &mut c, &mut b, 4);
        mix(&mut b, &mut a, &mut c, 6);
        mix(&mut c, &mut b, &mut a, 8);
        mix(&mut a, &mut c, &mut b, 16);
        mix(&mut b, &mut a, &mut c, 19);
        mix(&mut c, &mut b, &mut a, 4);
        rest = tail;
    }
    if rest.is_empty() {
        return c;
    }
    let [x, y, z] = words(rest);
    (a, b, c) = (a.wrapping_add(x), b.wrapping_add(y), c.wrapping_add(z));
    for (first, second, third) in [(14, 11, 25), (16, 4, 14)] {
        c = (c ^ b).wrapping_sub(b.rotate_left(first));
        a = (a ^ c).wrapping_sub(c.rotate_left(second));
        b = (b ^ a).wrapping_sub(a.rotate_left(third));
    }
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

/// Performs one step of the mixing: `x -= z; x ^= rot(z, shift); z += y`.
fn mix(x: &mut u32, z: &mut u32, y: &mut u32, shift: u32) {
    *x = x.wrapping_sub(*z) ^ z.rotate_left(shift);
    *z = z.wrapping_add(*y);
}

/// Returns up to 12 bytes as three little-endian words, padded with zeros.
fn words(bytes: &[u8]) -> [u32; 3] {
    let mut padded = [0; 12];
    padded[..bytes.len()].copy_from_slice(bytes);
    let word = |at: usize| {
        u32::from_le_bytes([padded[at], padded[at + 1], padded[at + 2], padded[at + 3]])
    };
    [word(0), word(4), word(8)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values documented in lookup3.c.
    #[test]
    fn checksum_is_lookup3() {
        assert_eq!(checksum(b""), 0xdeadbeef);
        assert_eq!(checksum(b"Four score and seven years ago"), 0x17770551);
    }
}
