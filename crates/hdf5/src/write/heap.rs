//! The metadata block of a file, and the global heap collections in it.

use statelens_checkpoint::{Result, try_alloc};

use super::bytes::Put;

/// Everything in a file except its superblock and data: one growing block with a known address.
/// Strings of variable length are stored in it, in collections.
pub(super) struct Heap {
    base: u64,
    /// The block so far; every structure in it begins at a multiple of 8.
    pub(super) bytes: Vec<u8>,
    open: Option<Collection>,
    next_size: usize,
}

/// A global heap collection with room left.
struct Collection {
    start: usize,
    size: usize,
    used: usize,
    objects: u16,
}

const COLLECTION_HEADER: usize = 16;
const OBJECT_HEADER: usize = 16;
/// The minimum size of a collection, which the HDF5 library enforces.
const MIN_SIZE: usize = 4096;
/// Collections grow up to this size. Reading one string reads its whole collection.
const USUAL: usize = 1 << 16;

impl Heap {
    /// Creates a block at byte `base` of the file, a multiple of 8. It begins with `lead` zeros,
    /// also a multiple of 8.
    pub(super) fn new(base: u64, lead: usize) -> Self {
        Self { base, bytes: vec![0; lead], open: None, next_size: MIN_SIZE }
    }

    /// Reserves room for `bytes` more bytes, and some extra.
    pub(super) fn room(&mut self, bytes: u64) -> Result<()> {
        try_alloc::make_room(&mut self.bytes, bytes.saturating_add(64 << 10))
    }

    /// Returns the address in the file of a position in the block.
    pub(super) fn address(&self, position: usize) -> u64 {
        self.base + position as u64
    }

    pub(super) fn append(&mut self, structure: &[u8]) -> u64 {
        self.append_with(|out| out.extend_from_slice(structure))
    }

    /// Appends a structure that `write` appends to the block, and returns its address.
    pub(super) fn append_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let address = self.address(self.bytes.len());
        write(&mut self.bytes);
        self.bytes.align();
        address
    }

    /// Appends zeros, to be filled in later, and returns their position in the block.
    pub(super) fn reserve(&mut self, len: usize) -> usize {
        let position = self.bytes.len();
        self.bytes.zeros(len);
        self.bytes.align();
        position
    }

    pub(super) fn fill(&mut self, position: usize, structure: &[u8]) {
        self.bytes[position..position + structure.len()].copy_from_slice(structure);
    }

    /// Stores a string in the global heap and appends the reference to it to `out`.
    pub(super) fn put(&mut self, text: &[u8], out: &mut Vec<u8>) {
        out.u32(text.len() as u32);
        if text.is_empty() {
            out.u64(0);
            out.u32(0);
            return;
        }
        let need = OBJECT_HEADER + text.len().next_multiple_of(8);
        let fits = |open: &Collection| open.used + need <= open.size && open.objects < u16::MAX;
        if need > USUAL / 2 {
            // Large strings have a collection each; the open collection remains open.
            let mut own = self.collection((COLLECTION_HEADER + need).max(MIN_SIZE));
            self.write(&mut own, text, need, out);
            self.close(&own);
            return;
        }
        let mut open = match self.open.take() {
            Some(open) if fits(&open) => open,
            full => {
                if let Some(full) = full {
                    self.close(&full);
                }
                let size = self.next_size.max((COLLECTION_HEADER + need).next_power_of_two());
                self.next_size = (size * 2).min(USUAL);
                self.collection(size)
            }
        };
        self.write(&mut open, text, need, out);
        self.open = Some(open);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        if let Some(open) = self.open.take() {
            self.close(&open);
        }
        self.bytes
    }

    fn collection(&mut self, size: usize) -> Collection {
        let mut header = Vec::from(*b"GCOL\x01\0\0\0");
        header.u64(size as u64);
        let start = self.reserve(size);
        self.fill(start, &header);
        Collection { start, size, used: COLLECTION_HEADER, objects: 0 }
    }

    fn write(&mut self, into: &mut Collection, text: &[u8], need: usize, out: &mut Vec<u8>) {
        into.objects += 1;
        let mut header = [0; OBJECT_HEADER];
        header[..2].copy_from_slice(&into.objects.to_le_bytes());
        header[8..].copy_from_slice(&(text.len() as u64).to_le_bytes());
        let at = into.start + into.used;
        self.fill(at, &header);
        self.fill(at + OBJECT_HEADER, text);
        into.used += need;
        out.u64(self.address(into.start));
        out.u32(u32::from(into.objects));
    }

    /// Writes the remaining free space as object 0, unless it is smaller than a header.
    fn close(&mut self, full: &Collection) {
        let left = full.size - full.used;
        if left >= OBJECT_HEADER {
            self.fill(full.start + full.used + 8, &(left as u64).to_le_bytes());
        }
    }
}
