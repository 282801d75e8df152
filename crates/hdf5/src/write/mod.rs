//! Plans HDF5 files.
//!
//! The format is h5py's default, so that everything opens it: superblock 0, groups as symbol
//! tables, object headers 1, strings in global heaps. Without a filter every size is known from
//! shapes and dtypes, so the structure comes first, followed by the data. With a filter the data
//! comes first, then the structure with the addresses of the chunks, and the superblock is made
//! last. Structures follow the HDF5 File Format Specification, version 3.0.

mod attribute;
mod bytes;
mod chunks;
mod datatype;
mod dense;
mod encode;
mod group;
mod heap;
mod message;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

pub use attribute::{Attribute, AttributeValue};
pub use datatype::{CompoundField, Datatype};
pub use encode::Filter;
pub use message::Space;
use statelens_checkpoint::{
    Checksum, Data, Encoding, Error, Outcomes, Result, Segment, StoredChunk, TensorId,
    WrittenSegment, try_alloc,
};

use bytes::{Put, UNDEFINED};
use heap::Heap;
use message::{Messages, kind};

/// A file to plan.
#[derive(Debug, Default)]
pub struct FilePlan {
    /// Attributes of the root group.
    pub attributes: Vec<Attribute>,
    datasets: Vec<(Dataset, u32)>,
    /// The root group first; a group comes before those in it.
    groups: Vec<BTreeMap<String, PlannedLink>>,
}

/// A dataset of a [`FilePlan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatasetId(usize);

#[derive(Debug, Clone, Copy)]
enum PlannedLink {
    Group(usize),
    Dataset(DatasetId),
}

/// A dataset to plan.
#[derive(Debug)]
pub struct Dataset {
    /// Element type.
    pub datatype: Datatype,
    /// Shape.
    pub space: Space,
    /// Elements; their size must match datatype and shape.
    pub content: Content,
    /// Its attributes. Datasets of one dtype and shape often share them.
    pub attributes: Arc<[Attribute]>,
}

/// The elements of a dataset.
#[derive(Debug)]
pub enum Content {
    /// No elements: the shape is null.
    None,
    /// A few known bytes.
    Bytes(Vec<u8>),
    /// The logical bytes of a tensor of the plan's source.
    Tensor(TensorId),
}

/// A planned file.
#[derive(Debug)]
pub struct PlannedSegments {
    /// Parts of the file.
    pub segments: Vec<Segment>,
    /// The same as [`statelens_checkpoint::PlannedFile::head_last`].
    pub head_last: bool,
}

impl FilePlan {
    /// Creates a file with an empty root group.
    pub fn new() -> Self {
        Self { groups: vec![BTreeMap::new()], ..Self::default() }
    }

    /// Adds a dataset at a path, with h5py's rules: `/` creates groups; a leading `/`, repeated
    /// ones and `.` are ignored. Fails if no dataset can be put there.
    pub fn add(&mut self, path: &str, dataset: Dataset) -> Result<DatasetId> {
        if let Space::Simple(shape) = &dataset.space
            && shape.len() > MAX_DIMENSIONS
        {
            return Err(Error::unsupported(format!(
                "an array of {} dimensions; HDF5 knows {MAX_DIMENSIONS}",
                shape.len()
            )));
        }
        let id = DatasetId(self.datasets.len());
        self.place(path, id)?;
        try_alloc::push(&mut self.datasets, (dataset, 1))?;
        Ok(id)
    }

    /// Adds a further path to a dataset: a hard link.
    pub fn link(&mut self, path: &str, to: DatasetId) -> Result<()> {
        self.place(path, to)?;
        if let Some((_, links)) = self.datasets.get_mut(to.0) {
            *links += 1;
        }
        Ok(())
    }

    /// Plans the file. With a filter, arrays of 4 KiB and more are split into chunks and encoded.
    pub fn plan(self, filter: Option<Filter>) -> Result<PlannedSegments> {
        if self.attributes.len() > group::MAX_DENSE {
            return Err(Error::unsupported(format!(
                "{} attributes on the root group; {} can be written",
                self.attributes.len(),
                group::MAX_DENSE
            )));
        }
        if let Some(long) = self.attributes.iter().find(|one| one.name.len() > MAX_NAME) {
            return Err(Error::unsupported(format!(
                "an attribute whose name has {} bytes; an object header has room for {MAX_NAME}",
                long.name.len()
            )));
        }
        match filter {
            None => self.structure_first(),
            Some(filter) => self.structure_last(filter),
        }
    }

    fn place(&mut self, path: &str, dataset: DatasetId) -> Result<()> {
        let (groups, name) = split(path)?;
        let mut at = 0;
        for part in groups {
            let next = self.groups.len();
            match self.groups[at].get(part) {
                Some(PlannedLink::Group(group)) => at = *group,
                Some(PlannedLink::Dataset(_)) => {
                    return Err(Error::refused(format!(
                        "`{part}` on the way to `{path}` is a dataset, not a group"
                    )));
                }
                None => {
                    self.groups[at].insert(part.into(), PlannedLink::Group(next));
                    self.groups.push(BTreeMap::new());
                    at = next;
                }
            }
        }
        match self.groups[at].entry(name.into()) {
            Entry::Vacant(vacant) => {
                vacant.insert(PlannedLink::Dataset(dataset));
                Ok(())
            }
            Entry::Occupied(taken) => Err(Error::refused(match taken.get() {
                PlannedLink::Group(_) => {
                    format!("`{path}` is a group, because other datasets are below it")
                }
                PlannedLink::Dataset(_) => format!("there already is a dataset at `{path}`"),
            })),
        }
    }

    fn structure_first(self) -> Result<PlannedSegments> {
        let mut heap = Heap::new(0, SUPERBLOCK as usize);
        let positions = self.structure(&mut heap, &|_| DataPlacement::Deferred)?;
        let mut head = heap.finish();
        let mut end = head.len() as u64;
        let mut segments = Vec::new();
        for ((dataset, _), position) in self.datasets.iter().zip(positions) {
            let (Content::Tensor(tensor), Some(position)) = (&dataset.content, position) else {
                continue;
            };
            head[position..position + 8].copy_from_slice(&end.to_le_bytes());
            segments.push(data(*tensor, None));
            let size = dataset.nbytes()?;
            let padded = size.checked_next_multiple_of(8).ok_or_else(too_large)?;
            if padded > size {
                segments.push(Segment::Zeros(padded - size));
            }
            end = end.checked_add(padded).ok_or_else(too_large)?;
        }
        head[..SUPERBLOCK as usize].copy_from_slice(&superblock(SUPERBLOCK, end));
        let mut pieces = pieces(head)?;
        pieces.append(&mut segments);
        Ok(PlannedSegments { segments: pieces, head_last: false })
    }

    fn structure_last(self, filter: Filter) -> Result<PlannedSegments> {
        let mut segments = vec![Segment::Zeros(SUPERBLOCK)];
        // The segment of each dataset's data, its encoding, and its number of chunks.
        let mut places = try_alloc::vec(self.datasets.len() as u64)?;
        let mut most = 0;
        for (dataset, _) in &self.datasets {
            let Content::Tensor(tensor) = dataset.content else {
                places.push(None);
                continue;
            };
            let encoding = match &dataset.space {
                Space::Simple(shape) if dataset.nbytes()? >= MIN_CHUNKED => {
                    let encoding = filter.encoding(shape, dataset.datatype.size());
                    let count = chunks::count(shape, &encoding)?;
                    most = count.max(most);
                    Some((encoding, count))
                }
                _ => None,
            };
            places.push(Some((segments.len(), encoding.clone())));
            segments.push(data(tensor, encoding.map(|(encoding, _)| encoding)));
        }
        let last = segments.len();

        // The size of the structure depends only on the number of chunks, not on their addresses.
        let anywhere = vec![StoredChunk { offset: 0, len: 0, mask: 0 }; most];
        let mut heap = Heap::new(0, 0);
        self.structure(&mut heap, &|index| match &places[index] {
            Some((_, Some((encoding, count)))) => {
                DataPlacement::Chunks { encoding, filter, chunks: &anywhere[..*count] }
            }
            _ => DataPlacement::Deferred,
        })?;
        // The structure begins at a multiple of 8.
        let len = heap.finish().len() as u64 + 7;

        let make = move |outcomes: &Outcomes<'_>| {
            let start = outcome(outcomes, last - 1)?.end().max(SUPERBLOCK);
            let base = start.next_multiple_of(8);
            let mut out = vec![0; (base - start) as usize];
            let mut heap = Heap::new(base, 0);
            self.structure(&mut heap, &|index| {
                let Some((segment, encoding)) = &places[index] else {
                    return DataPlacement::Deferred;
                };
                let found = outcomes.here().get(*segment);
                match encoding {
                    Some((encoding, _)) => DataPlacement::Chunks {
                        encoding,
                        filter,
                        chunks: found.map_or(&[], |outcome| &outcome.chunks),
                    },
                    None => DataPlacement::At(found.map_or(UNDEFINED, |outcome| outcome.offset)),
                }
            })?;
            out.extend(heap.finish());
            out.resize(len as usize, 0);
            Ok(out)
        };
        segments.push(Segment::Late { len: Some(len), make: Arc::new(make) });
        segments[0] = Segment::Late {
            len: Some(SUPERBLOCK),
            make: Arc::new(move |outcomes| {
                let structure = outcome(outcomes, last)?;
                Ok(superblock(structure.offset.next_multiple_of(8), structure.end()))
            }),
        };
        Ok(PlannedSegments { segments, head_last: true })
    }

    /// Writes everything except superblock and data, the root group first. `stored` returns the
    /// location of a dataset's data. Returns the positions in the block of addresses that must be
    /// filled in for data that follows.
    fn structure<'a>(
        &self,
        heap: &mut Heap,
        stored: &dyn Fn(usize) -> DataPlacement<'a>,
    ) -> Result<Vec<Option<usize>>> {
        let places: Vec<_> = self.groups.iter().map(|_| group::GroupRef::reserve(heap)).collect();
        let mut headers = try_alloc::vec(self.datasets.len() as u64)?;
        let mut positions = try_alloc::vec(self.datasets.len() as u64)?;
        // A block that grows while it is written is copied again and again.
        let attributes = self.datasets.iter().map(|(dataset, _)| len_of(&dataset.attributes));
        let links = self.datasets.len() as u64 * (LINK + DATASET);
        heap.room(attributes.sum::<u64>() + len_of(&self.attributes) + links)?;
        let mut messages = Messages::default();
        for (index, (dataset, links)) in self.datasets.iter().enumerate() {
            heap.room(len_of(&dataset.attributes))?;
            messages.truncate(0);
            let (header, position) = dataset.write(stored(index), *links, heap, &mut messages)?;
            headers.push(header);
            positions.push(position);
        }
        for (index, (group, place)) in self.groups.iter().zip(&places).enumerate() {
            try_alloc::ahead(LINK * group.len() as u64)?;
            let links: Vec<_> = group
                .iter()
                .map(|(name, link)| match link {
                    PlannedLink::Group(group) => {
                        (name.as_str(), group::LinkTarget::Group(places[*group]))
                    }
                    PlannedLink::Dataset(id) => {
                        (name.as_str(), group::LinkTarget::Dataset(headers[id.0]))
                    }
                })
                .collect();
            let attributes = if index == 0 { self.attributes.as_slice() } else { &[] };
            heap.room(len_of(attributes) + LINK * links.len() as u64)?;
            group::write(*place, &links, attributes, heap);
        }
        Ok(positions)
    }
}

/// The location of a dataset's data.
enum DataPlacement<'a> {
    /// Contiguous, placed once the structure is complete.
    Deferred,
    /// Contiguous at this address.
    At(u64),
    /// In chunks.
    Chunks { encoding: &'a Encoding, filter: Filter, chunks: &'a [StoredChunk] },
}

impl Dataset {
    /// Returns the bytes of the elements.
    fn nbytes(&self) -> Result<u64> {
        let count = match &self.space {
            Space::Null => 0,
            Space::Scalar => 1,
            Space::Simple(shape) if shape.contains(&0) => 0,
            Space::Simple(shape) => shape
                .iter()
                .try_fold(1u64, |count, dim| count.checked_mul(*dim))
                .ok_or_else(too_large)?,
        };
        count.checked_mul(u64::from(self.datatype.size())).ok_or_else(too_large)
    }

    /// Writes the object header, with everything that it refers to. Returns its address, and the
    /// position in the block of the data's address if that is not known yet.
    fn write(
        &self,
        stored: DataPlacement<'_>,
        links: u32,
        heap: &mut Heap,
        messages: &mut Messages,
    ) -> Result<(u64, Option<usize>)> {
        let size = self.nbytes()?;
        messages.push(kind::DATASPACE, 0, |out| message::dataspace(&self.space, out));
        messages.push(kind::DATATYPE, 1, |out| self.datatype.encode_into(out));
        let later =
            matches!((&stored, &self.content), (DataPlacement::Deferred, Content::Tensor(_)));
        match stored {
            DataPlacement::Deferred | DataPlacement::At(_) => {
                let address = match (&self.content, stored) {
                    (Content::Bytes(bytes), _) => heap.append(bytes),
                    (_, DataPlacement::At(address)) if size > 0 => address,
                    _ => UNDEFINED,
                };
                messages.push(kind::FILL_VALUE, 1, |out| out.extend(message::fill_value(2)));
                messages.push(kind::LAYOUT, 0, |out| message::contiguous(address, size, out));
            }
            DataPlacement::Chunks { encoding, filter, chunks } => {
                let Space::Simple(shape) = &self.space else {
                    return Err(Error::unsupported("chunks without dimensions"));
                };
                let tree = chunks::write(shape, encoding, chunks, heap)?;
                messages.push(kind::FILL_VALUE, 1, |out| out.extend(message::fill_value(3)));
                let layout = message::chunked(tree, &encoding.chunk, self.datatype.size());
                messages.push(kind::LAYOUT, 0, |out| out.extend(layout));
                let filters = message::filters(filter, &self.datatype);
                messages.push(kind::FILTERS, 1, |out| out.extend(filters));
            }
        }
        let count = messages.count();
        for attribute in &*self.attributes {
            messages.push(kind::ATTRIBUTE, 0, |out| attribute.encode_into(heap, out));
        }
        if messages.bodies(count).all(|body| body.len() <= message::MAX_MESSAGE) {
            let position = heap.bytes.len() + messages.position(kind::LAYOUT);
            let header = heap.append_with(|out| messages.header_into(0, links, out));
            let open = later && size > 0;
            return Ok((header, open.then_some(position + message::CONTIGUOUS_ADDRESS)));
        }
        if links > 1 || size > 0 {
            return Err(Error::unsupported(
                "attributes of more than 64 KiB on a dataset with elements, or with two names",
            ));
        }
        let names = self.attributes.iter().map(|one| &*one.name);
        let named: Vec<_> = names.zip(messages.bodies(count)).collect();
        let info = dense::store(&named, heap);
        messages.truncate(count);
        messages.push(kind::ATTRIBUTE_INFO, 0, |out| out.extend(info));
        Ok((heap.append(&messages.header_v2()), None))
    }
}

/// Returns the approximate size of attributes in a file, in bytes.
fn len_of(attributes: &[Attribute]) -> u64 {
    attributes.iter().map(|attribute| attribute.len() as u64).sum()
}

/// Returns a structure as segments. Its end is cut off again and again, so that only a piece is
/// twice in memory.
fn pieces(mut structure: Vec<u8>) -> Result<Vec<Segment>> {
    let mut pieces = Vec::new();
    while !structure.is_empty() {
        let start = (structure.len() - 1) / PIECE * PIECE;
        try_alloc::ahead((structure.len() - start) as u64)?;
        pieces.push(Segment::Bytes(structure[start..].into()));
        structure.truncate(start);
        structure.shrink_to_fit();
    }
    pieces.reverse();
    Ok(pieces)
}

/// Bytes of a piece of the structure.
const PIECE: usize = 8 << 20;
/// Approximate bytes of a dataset's header, without attributes.
const DATASET: u64 = 160;
/// Smaller arrays are not split into chunks: an index of chunks takes up to 2 KiB.
const MIN_CHUNKED: u64 = 4096;
/// Approximate bytes of a name and an address in a group, including the structures for them.
const LINK: u64 = 128;

/// Bytes of the superblock.
const SUPERBLOCK: u64 = 96;
const MAX_DIMENSIONS: usize = 32;
/// Leaves enough room for the rest of an attribute message of the root group.
const MAX_NAME: usize = 65_000;

/// Returns the superblock, version 0, of a file of `end` bytes whose root group is at `root`.
fn superblock(root: u64, end: u64) -> Vec<u8> {
    let mut out = Vec::from(*b"\x89HDF\r\n\x1a\n");
    // Versions of all structures, sizes of offsets and lengths.
    out.extend([0, 0, 0, 0, 0, 8, 8, 0]);
    out.u16(group::LEAF_RANK);
    out.u16(group::TREE_RANK);
    out.u32(0);
    // Base address, free space, end of file, driver information.
    for value in [0, UNDEFINED, end, UNDEFINED] {
        out.u64(value);
    }
    out.u64(0);
    group::group_entry(&mut out, root);
    out
}

fn data(tensor: TensorId, encoding: Option<Encoding>) -> Segment {
    Segment::Data(Data { encoding, ..Data::plain(tensor, Checksum::None) })
}

/// Splits a path into its groups and the name.
fn split(path: &str) -> Result<(Vec<&str>, &str)> {
    if path.contains('\0') {
        return Err(Error::refused(format!("`{}` holds a NUL", path.escape_default())));
    }
    let (groups, name) = path.rsplit_once('/').unwrap_or(("", path));
    if name.is_empty() || name == "." {
        return Err(Error::refused("no name is left for the dataset after the last `/`"));
    }
    Ok((groups.split('/').filter(|part| !part.is_empty() && *part != ".").collect(), name))
}

trait HasEnd {
    fn end(&self) -> u64;
}

impl HasEnd for WrittenSegment {
    fn end(&self) -> u64 {
        self.offset + self.len
    }
}

fn outcome<'a>(outcomes: &Outcomes<'a>, index: usize) -> Result<&'a WrittenSegment> {
    outcomes
        .here()
        .get(index)
        .ok_or_else(|| Error::io("the structure of the file was requested before its data"))
}

fn too_large() -> Error {
    Error::unsupported("a dataset of more bytes than 64 bits can count")
}
