//! Heaps, which store names, variable-length values, and dense attributes and links.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use hdf5_reader::StorageBuffer;
use hdf5_reader::btree_v2::{BTreeV2Header, BTreeV2Record, collect_btree_v2_records_storage};
use hdf5_reader::checksum::jenkins_lookup3;
use hdf5_reader::fractal_heap::{FractalHeap, FractalHeapDirectBlockCache};
use hdf5_reader::io::Cursor;
use hdf5_reader::local_heap::LocalHeap;
use statelens_checkpoint::{Error, Limits, Result, Text, order, try_alloc};

use crate::block::{BlockContext as Sealed, little};
use crate::decode::text;
use crate::error::from_reader;
use crate::source::{Source, Widths};

/// The names of an old-style group, in one range of bytes.
pub(crate) struct HeapNames(StorageBuffer);

impl HeapNames {
    pub(crate) fn read(source: &Source, address: u64, limits: &Limits) -> Result<Self> {
        let Widths { offset, length } = source.widths;
        let heap = LocalHeap::parse_at_storage(source, address, offset, length);
        let heap = heap.map_err(from_reader)?;
        let len = heap.data_segment_size;
        source.room(heap.data_segment_address, len)?;
        Limits::check("bytes of the names of a group", len, limits.structure)?;
        source.spend(len)?;
        let bytes = source.bytes(heap.data_segment_address, len)?;
        let free = free_list(&bytes, heap.free_list_offset, usize::from(length));
        free.map_err(|error| source.at(address, error))?;
        Ok(Self(bytes))
    }

    /// Returns the NUL-terminated name at an offset.
    pub(crate) fn get(&self, offset: u64) -> Result<Text> {
        let tail = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..));
        match tail {
            Some(tail) if tail.contains(&0) => Ok(text(tail)),
            _ => Err(Error::damaged("a name is outside the heap of its group")),
        }
    }
}

/// Checks the free list of a local heap: libhdf5 reads it with the heap, and does not open a group
/// whose list leads outside. Each free block holds the offset of the next one, or 1, and its own
/// length.
fn free_list(heap: &[u8], first: u64, width: usize) -> Result<()> {
    let bad = || Error::damaged("the free list of a group's local heap is invalid");
    let mut next = first;
    // Free blocks don't overlap, so a longer list must be a cycle.
    let mut left = heap.len() / (2 * width).max(1);
    while next != NONE_FREE {
        let start = usize::try_from(next).ok().filter(|start| *start > 0).ok_or_else(bad)?;
        let piece = heap.get(start..).and_then(|piece| piece.get(..2 * width)).ok_or_else(bad)?;
        let (after, len) = piece.split_at(width);
        let end = next.checked_add(little(len)).filter(|end| *end <= heap.len() as u64);
        left = left.checked_sub(1).filter(|_| end.is_some()).ok_or_else(bad)?;
        next = little(after);
    }
    Ok(())
}

/// Marks the end of the free list.
const NONE_FREE: u64 = 1;

/// Variable-length values, many to a collection. Caches recently read collections.
#[derive(Debug, Default)]
pub(crate) struct GlobalHeap {
    cache: Mutex<Collections>,
}

#[derive(Default)]
struct Collections {
    by_address: HashMap<u64, Arc<Collection>>,
    bytes: usize,
}

struct Collection {
    bytes: StorageBuffer,
    /// Index, offset and length of each object, sorted by index.
    objects: Vec<(u16, usize, usize)>,
}

/// A variable-length value, with the collection that holds it.
pub(crate) struct HeapValue(Option<(Arc<Collection>, Range<usize>)>);

impl HeapValue {
    pub(crate) fn as_slice(&self) -> &[u8] {
        let found = self.0.as_ref();
        found.and_then(|(from, range)| from.bytes.get(range.clone())).unwrap_or_default()
    }
}

impl std::fmt::Debug for Collections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Collections({}, {} bytes)", self.by_address.len(), self.bytes)
    }
}

/// Bytes of cached collections; a single one may be larger.
const KEPT: usize = 4 << 20;

impl GlobalHeap {
    /// Returns the bytes of a variable-length element: `element` is its length, a heap address and
    /// an index, as stored in the file; `unit` is the size of the units that the length counts.
    pub(crate) fn get(
        &self,
        source: &Source,
        element: &[u8],
        unit: u64,
        limits: &Limits,
    ) -> Result<HeapValue> {
        let mut cursor = Cursor::new(element);
        let count = cursor.read_u32_le().map_err(from_reader)?;
        let address = cursor.read_offset(source.widths.offset).map_err(from_reader)?;
        let len = u64::from(count).checked_mul(unit).ok_or_else(outside)?;
        if len == 0 || address == 0 || source.is_undefined(address) {
            return Ok(HeapValue(None));
        }
        let value = self.object(source, element.get(4..).unwrap_or_default(), limits)?;
        // As in libhdf5 since 1.14: a value is all of its object.
        match len == value.as_slice().len() as u64 {
            true => Ok(value),
            false => Err(outside()),
        }
    }

    /// Returns the bytes of the object that a heap address and an index refer to.
    pub(crate) fn object(
        &self,
        source: &Source,
        reference: &[u8],
        limits: &Limits,
    ) -> Result<HeapValue> {
        let mut cursor = Cursor::new(reference);
        let address = cursor.read_offset(source.widths.offset).map_err(from_reader)?;
        let index = cursor.read_u32_le().map_err(from_reader)?;
        let collection = self.collection(source, address, limits)?;
        let place = u16::try_from(index).ok().and_then(|index| collection.place(index));
        let (offset, len) = place.ok_or_else(outside)?;
        Limits::check("bytes of one string", len as u64, limits.string)?;
        source.spend(len as u64)?;
        Ok(HeapValue(Some((collection, offset..offset + len))))
    }

    fn collection(
        &self,
        source: &Source,
        address: u64,
        limits: &Limits,
    ) -> Result<Arc<Collection>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(collection) = cache.by_address.get(&address) {
            return Ok(collection.clone());
        }
        let collection = Collection::read(source, address, limits);
        let collection = Arc::new(collection.map_err(|error| source.at(address, error))?);
        if collection.bytes.len() > KEPT && collection.objects.len() == 1 {
            // One long text, which is unlikely to be read again, is not cached.
            return Ok(collection);
        }
        if cache.bytes + collection.bytes.len() > KEPT {
            cache.by_address.clear();
            cache.bytes = 0;
        }
        cache.bytes += collection.bytes.len();
        cache.by_address.insert(address, collection.clone());
        Ok(collection)
    }
}

fn unlisted() -> Error {
    Error::damaged("the objects of a global heap collection do not fill it")
}

fn outside() -> Error {
    Error::damaged("a variable-length value is not in the heap that it names")
}

impl Collection {
    fn read(source: &Source, address: u64, limits: &Limits) -> Result<Self> {
        let width = usize::from(source.widths.length);
        let head = source.bytes(address, 8 + width as u64)?;
        let [b'G', b'C', b'O', b'L', 1, _, _, _, size @ ..] = &*head else {
            return Err(Error::damaged(
                "there is no global heap at the address that a value gives",
            ));
        };
        let size = little(size);
        source.room(address, size)?;
        Limits::check("bytes of one heap collection", size, limits.structure)?;
        source.spend(size)?;
        let bytes = source.owned_bytes(address, size)?;
        let (mut objects, mut free) = (Vec::new(), false);
        let mut at = 8 + width;
        while let Some(head) = bytes.get(at..at + 8 + width) {
            let index = u16::from_le_bytes([head[0], head[1]]);
            let start = at + 8 + width;
            let len = usize::try_from(little(&head[8..])).ok();
            if index == 0 {
                // Free space is contiguous, and its length includes its own head.
                let end = len.and_then(|len| at.checked_add(len));
                let end = end.filter(|end| (start..=bytes.len()).contains(end));
                at = end.filter(|_| !free).ok_or_else(unlisted)?;
                free = true;
                continue;
            }
            let end = len.and_then(|len| start.checked_add(len)?.checked_next_multiple_of(8));
            let (Some(len), Some(end)) = (len, end.filter(|end| *end <= bytes.len())) else {
                return Err(unlisted());
            };
            objects.push((index, start, len));
            at = end;
        }
        // A rest that is too short for an object is free space, too.
        if free && at < bytes.len() {
            return Err(unlisted());
        }
        // Writers number objects in ascending order, so this rarely sorts.
        if !objects.is_sorted_by_key(|(index, ..)| *index) {
            order::by_key(&mut objects, |(index, ..)| u64::from(*index));
        }
        Ok(Self { bytes, objects })
    }

    /// Returns offset and length of an object; of the last one, if several have its index.
    fn place(&self, index: u16) -> Option<(usize, usize)> {
        let end = self.objects.partition_point(|(other, ..)| *other <= index);
        let (found, offset, len) = self.objects[..end].last()?;
        (*found == index).then_some((*offset, *len))
    }
}

/// A fractal heap: dense attributes and links.
///
/// Objects in its direct blocks are located here. hdf5-reader 0.12 treats the offset of a block
/// below a second level of indirect blocks as an offset in the whole heap, so heaps of more than
/// about 512 kB fail. Huge, tiny and filtered objects are read by hdf5-reader.
pub(crate) struct DenseHeap<'a> {
    source: &'a Source,
    address: u64,
    heap: FractalHeap,
    limits: &'a Limits,
    cache: FractalHeapDirectBlockCache,
    indirect: HashMap<u64, Arc<[u8]>>,
    /// The direct block of the last object: offset in the heap, size, bytes.
    last: Option<(u64, u64, StorageBuffer)>,
    /// The numbered huge objects, once their index has been read: number, address and length.
    huge: Option<Vec<(u64, u64, u64)>>,
}

/// Reads the index of a heap's huge objects: number, address and length, sorted by number.
fn huge_objects(
    source: &Source,
    heap: &FractalHeap,
    limits: &Limits,
) -> Result<Vec<(u64, u64, u64)>> {
    let Widths { offset, length } = source.widths;
    let index = heap.btree_huge_objects_address;
    let at = |error: Error| source.at(index, error);
    let header = BTreeV2Header::parse_at_storage(source, index, offset, length)
        .map_err(from_reader)
        .map_err(at)?;
    Limits::check("huge objects of a heap", header.total_records, limits.members)?;
    let records =
        collect_btree_v2_records_storage(source, &header, offset, length, None, &[], None)
            .map_err(from_reader)
            .map_err(at)?;
    let mut listed = try_alloc::vec(records.len() as u64)?;
    listed.extend(records.into_iter().filter_map(|record| match record {
        BTreeV2Record::HugeIndirectNonFiltered { address, length, object_id } => {
            Some((object_id, address, length))
        }
        _ => None,
    }));
    // libhdf5 searches numbers by binary search, which fails if they are out of order.
    match listed.is_sorted_by(|(one, ..), (next, ..)| one < next) {
        true => Ok(listed),
        false => Err(at(Error::damaged("an index of huge objects is out of order"))),
    }
}

/// The location of a direct block.
struct DirectBlock {
    address: u64,
    offset: u64,
    size: u64,
}

/// The flag for direct blocks with checksums.
const CHECKED_BLOCKS: u8 = 2;

/// Maximum number of levels of indirect blocks; each at least doubles the heap, so 64 exceeds 64
/// bits.
const LEVELS: u32 = 64;

impl<'a> DenseHeap<'a> {
    pub(crate) fn open(source: &'a Source, address: u64, limits: &'a Limits) -> Result<Self> {
        let Widths { offset, length } = source.widths;
        let heap = FractalHeap::parse_at_storage(source, address, offset, length);
        Ok(Self {
            source,
            address,
            heap: heap.map_err(from_reader)?,
            limits,
            cache: FractalHeapDirectBlockCache::default(),
            indirect: HashMap::new(),
            last: None,
            huge: None,
        })
    }

    /// Returns the offset in the heap of the object with that heap ID, for sorting.
    pub(crate) fn offset(&self, id: &[u8]) -> u64 {
        let bytes = id.iter().skip(1).take(offset_bytes(&self.heap).min(8));
        bytes.enumerate().fold(0, |n, (index, byte)| n | u64::from(*byte) << (8 * index))
    }

    pub(crate) fn get(&mut self, id: &[u8]) -> Result<Vec<u8>> {
        let managed = id.first().is_some_and(|flags| flags >> 4 & 3 == 0);
        if managed && self.heap.io_filters_len == 0 {
            return self.managed(id);
        }
        if !managed {
            // hdf5-reader checks the length in the ID of a huge or tiny object against the file;
            // its size is bounded by that of the file.
            Limits::check(
                "bytes of huge heap objects",
                self.heap.huge_objects_size,
                self.limits.structure,
            )?;
        }
        let Widths { offset, length } = self.source.widths;
        let is_huge = id.first().is_some_and(|flags| flags >> 4 & 3 == 1);
        let numbered = id.len() < 1 + usize::from(offset) + usize::from(length);
        if is_huge && numbered && self.heap.io_filters_len == 0 {
            return self.huge(id);
        }
        self.heap
            .get_object_storage_cached(id, self.source, offset, length, &mut self.cache)
            .map_err(from_reader)
    }

    /// Returns a huge object by the number in its ID. hdf5-reader searches the whole index for
    /// each, which takes hours for a hundred thousand; here the index is read once.
    fn huge(&mut self, id: &[u8]) -> Result<Vec<u8>> {
        let bad = || Error::damaged("a huge object is not in the heap that it names");
        let number = little(id.get(1..id.len().min(9)).ok_or_else(bad)?);
        let listed = match &mut self.huge {
            Some(listed) => listed,
            none => none.insert(huge_objects(self.source, &self.heap, self.limits)?),
        };
        let place = listed.binary_search_by_key(&number, |(number, ..)| *number);
        let (_, address, len) = listed[place.map_err(|_| bad())?];
        Ok(self.source.bytes(address, len)?.to_vec())
    }

    fn managed(&mut self, id: &[u8]) -> Result<Vec<u8>> {
        let bad = || Error::damaged("an object is not in the fractal heap that it names");
        let offset_width = usize::from(self.heap.max_heap_size).div_ceil(8);
        let largest = self.heap.max_direct_block_size.min(self.heap.max_managed_object_size);
        let length_width = (1..8).find(|width| largest >> (8 * width) == 0).unwrap_or(8);
        if offset_width > 8 {
            return Err(bad());
        }
        let offset = little(id.get(1..1 + offset_width).ok_or_else(bad)?);
        let len =
            little(id.get(1 + offset_width..1 + offset_width + length_width).ok_or_else(bad)?);
        let inside = |at: u64, size: u64| offset >= at && offset - at < size;
        if !self.last.as_ref().is_some_and(|(at, size, _)| inside(*at, *size)) {
            let block = self.find(offset)?;
            Limits::check("bytes of a heap block", block.size, self.limits.structure)?;
            let bytes = self.direct(&block)?;
            self.last = Some((block.offset, block.size, bytes));
        }
        let (at, _, bytes) = self.last.as_ref().ok_or_else(bad)?;
        let start = usize::try_from(offset - at).map_err(|_| bad())?;
        let end =
            usize::try_from(len).ok().and_then(|len| start.checked_add(len)).ok_or_else(bad)?;
        bytes.get(start..end).map(<[u8]>::to_vec).ok_or_else(bad)
    }

    /// Returns the verified bytes of a direct block. The checksum, if there is one, is computed
    /// with zeros in place of the checksum.
    fn direct(&self, block: &DirectBlock) -> Result<StorageBuffer> {
        let bytes = self.source.bytes(block.address, block.size)?;
        self.begins(&bytes, b"FHDB", block.address, block.offset)?;
        let at = self.head();
        if self.heap.flags & CHECKED_BLOCKS != 0 {
            let Some((head, tail)) = bytes.split_at_checked(at) else {
                return Err(self.sealed().wrong(block.address));
            };
            let Some((sum, data)) = tail.split_first_chunk::<4>() else {
                return Err(self.sealed().wrong(block.address));
            };
            if jenkins_lookup3(&[head, &[0; 4], data].concat()) != u32::from_le_bytes(*sum) {
                return Err(self.sealed().wrong(block.address));
            }
        }
        Ok(bytes)
    }

    fn sealed(&self) -> Sealed<'a> {
        let what = "a block of a fractal heap";
        Sealed { source: self.source, what, owner: self.address }
    }

    /// Returns the size of a block's head: signature, version, address of the heap, offset in the
    /// heap.
    fn head(&self) -> usize {
        5 + usize::from(self.source.widths.offset) + offset_bytes(&self.heap)
    }

    /// Checks the head of a block.
    fn begins(&self, bytes: &[u8], signature: &[u8; 4], address: u64, offset: u64) -> Result<()> {
        let heap = 5 + usize::from(self.source.widths.offset);
        let sound = bytes.starts_with(signature)
            && bytes.get(4) == Some(&0)
            && bytes.get(5..heap).is_some_and(|at| little(at) == self.address)
            && bytes.get(heap..self.head()).is_some_and(|at| little(at) == offset);
        match sound {
            true => Ok(()),
            false => {
                let what = "a block of a fractal heap is not where it should be";
                Err(self.source.at(address, Error::damaged(what)))
            }
        }
    }

    /// Finds the direct block that holds an offset of the heap.
    fn find(&mut self, offset: u64) -> Result<DirectBlock> {
        let bad = || Error::damaged("an offset is outside its fractal heap");
        let heap = &self.heap;
        let (width, first, largest) =
            (u64::from(heap.table_width), heap.starting_block_size, heap.max_direct_block_size);
        if width == 0
            || first == 0
            || !first.is_power_of_two()
            || !largest.is_power_of_two()
            || largest < first
        {
            return Err(Error::damaged("a fractal heap with an invalid doubling table"));
        }
        let mut address = heap.root_block_address;
        if heap.current_rows_in_root_indirect == 0 {
            return Ok(DirectBlock { address, offset: 0, size: first });
        }
        let direct_rows = u64::from(largest.ilog2() - first.ilog2()) + 2;
        let mut rows = u64::from(heap.current_rows_in_root_indirect);
        let mut base = 0u64;
        for _ in 0..LEVELS {
            // Rows 0 and 1 have blocks of the first size, each further row of twice the size
            // before.
            let within = offset.checked_sub(base).ok_or_else(bad)?;
            let (row, column, row_start, size) = place(within, width, first).ok_or_else(bad)?;
            if row >= rows {
                return Err(bad());
            }
            let block = self.indirect(address, rows, base)?;
            let entry = row.checked_mul(width).and_then(|entry| entry.checked_add(column));
            let at = entry.and_then(|entry| usize::try_from(entry).ok()).ok_or_else(bad)?;
            let wide = usize::from(self.source.widths.offset);
            let head = 5 + wide + offset_bytes(&self.heap);
            let child = block.get(head + at * wide..head + (at + 1) * wide).ok_or_else(bad)?;
            let child = child.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
            if self.source.is_undefined(child) {
                return Err(bad());
            }
            base = base
                .checked_add(row_start)
                .and_then(|base| base.checked_add(column.checked_mul(size)?))
                .ok_or_else(bad)?;
            address = child;
            if row < direct_rows {
                return Ok(DirectBlock { address, offset: base, size });
            }
            // A child indirect block covers `size` bytes of the heap, which determines its rows.
            rows = u64::from((size / first / width).max(1).ilog2()) + 1;
        }
        Err(bad())
    }

    /// Returns the verified bytes of an indirect block.
    fn indirect(&mut self, address: u64, rows: u64, base: u64) -> Result<Arc<[u8]>> {
        if let Some(block) = self.indirect.get(&address) {
            return Ok(block.clone());
        }
        let bad = || Error::damaged("a block of a fractal heap is not where it should be");
        let width = u64::from(self.heap.table_width);
        let wide = u64::from(self.source.widths.offset);
        let entries = rows.checked_mul(width).and_then(|entries| entries.checked_mul(wide));
        let len =
            entries.and_then(|len| len.checked_add(5 + wide + offset_bytes(&self.heap) as u64 + 4));
        let len = len.ok_or_else(bad)?;
        Limits::check("bytes of a heap block", len, self.limits.structure)?;
        let bytes = self.sealed().summed(address, len)?;
        self.begins(&bytes, b"FHIB", address, base)?;
        let body = bytes.get(..bytes.len().saturating_sub(4)).unwrap_or_default();
        let block: Arc<[u8]> = body.into();
        self.indirect.insert(address, block.clone());
        Ok(block)
    }
}

/// Returns the size of an offset in the heap, in bytes.
fn offset_bytes(heap: &FractalHeap) -> usize {
    usize::from(heap.max_heap_size).div_ceil(8)
}

/// Returns row, column, start of the row and size of its blocks, for an offset in a doubling table.
fn place(offset: u64, width: u64, first: u64) -> Option<(u64, u64, u64, u64)> {
    let row_0 = width.checked_mul(first)?;
    let (row, start, size) = match offset / row_0 {
        0 => (0, 0, first),
        times => {
            let row = u64::from(times.ilog2()) + 1;
            let start = row_0.checked_mul(1 << (row - 1))?;
            (row, start, first.checked_mul(1 << (row - 1))?)
        }
    };
    Some((row, (offset - start) / size, start, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locates_rows_of_the_doubling_table() {
        // Width 4, first block 512: rows start at 0, 2048, 4096, 8192.
        for (offset, expected) in [
            (0, (0, 0, 0, 512)),
            (2047, (0, 3, 0, 512)),
            (2048, (1, 0, 2048, 512)),
            (4095, (1, 3, 2048, 512)),
            (4096, (2, 0, 4096, 1024)),
            (8191, (2, 3, 4096, 1024)),
            (8192, (3, 0, 8192, 2048)),
        ] {
            assert_eq!(place(offset, 4, 512), Some(expected), "{offset}");
        }
        assert_eq!(place(1, u64::MAX, 2), None);
    }
}
