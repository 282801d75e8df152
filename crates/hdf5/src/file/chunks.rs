//! The chunks of a dataset: looks them up in the index, and undoes their filters.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use hdf5_reader::Storage;
use hdf5_reader::btree_v2::BTreeV2Header;
use hdf5_reader::chunk_index::{
    ChunkEntry, collect_implicit_chunk_entries, collect_v2_chunk_entries_storage,
    single_chunk_entry,
};
use hdf5_reader::extensible_array::collect_extensible_array_chunk_entries_storage;
use hdf5_reader::fixed_array::collect_fixed_array_chunk_entries_storage;
use hdf5_reader::messages::layout::ChunkIndexing;
use statelens_checkpoint::{
    Chunk, Chunked, Chunks, Error, FileId, FileSet, Limits, Result, Span, try_alloc,
};

use crate::error::from_reader;
use crate::filters::{self, FilterDescription};
use crate::index::{arrays, tree::ChunkTree};
use crate::source::{Source, Widths};

/// The location of the chunks of a dataset.
#[derive(Debug, Clone)]
pub(crate) struct ChunkPlace {
    /// Address of the index, or of the only chunk; `None` if nothing was written.
    pub(crate) address: Option<u64>,
    pub(crate) shape: Vec<u32>,
    /// `None` for the version 1 tree of old files.
    pub(crate) index: Option<ChunkIndexing>,
    /// Whether chunks that extend over the edge are not filtered.
    pub(crate) plain_edges: bool,
}

pub(crate) struct DatasetChunks {
    pub(crate) file: FileId,
    pub(crate) base: u64,
    pub(crate) widths: Widths,
    pub(crate) address: u64,
    pub(crate) place: ChunkPlace,
    /// Shape of the dataset, without the dimensions of an array in each element.
    pub(crate) shape: Vec<u64>,
    pub(crate) max_shape: Option<Vec<u64>>,
    pub(crate) further_dims: usize,
    /// Bytes of an element, including an array in it.
    pub(crate) element: u64,
    pub(crate) chunk_bytes: u64,
    pub(crate) filters: Arc<[FilterDescription]>,
    pub(crate) fill: Arc<[u8]>,
    /// Children that fit in a node of a version 1 tree.
    pub(crate) width: u64,
    /// Maximum number of chunks that may be listed.
    pub(crate) most: u64,
    /// The recorded end of the container, from its start: libhdf5 reads nothing beyond it.
    pub(crate) end: Option<u64>,
}

impl Chunks for DatasetChunks {
    fn table(&self, files: &FileSet) -> Result<Vec<Chunk>> {
        let in_file = |error: Error| error.in_file(files.name(self.file));
        let source = Source::new(files.structure(self.file)?, self.base, self.widths);
        let entries = self.entries(&source).map_err(in_file)?;
        Limits::check("chunks of a dataset", entries.len() as u64, self.most).map_err(in_file)?;
        let mut seen = HashSet::with_capacity(entries.len());
        let mut chunks = Vec::with_capacity(entries.len());
        for entry in entries {
            if source.is_undefined(entry.address)
                || entry.offsets.iter().zip(&self.shape).any(|(at, dim)| at >= dim)
            {
                // Never written, or left over from before the dataset shrank.
                continue;
            }
            let chunk = self.chunk(entry).map_err(in_file)?;
            if !seen.insert(chunk.at.clone()) {
                return Err(in_file(Error::damaged(format!(
                    "two chunks are recorded at {:?}",
                    chunk.at
                ))));
            }
            chunks.push(chunk);
        }
        Ok(chunks)
    }

    fn decode(&self, chunk: &Chunk, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let too_large = || Error::limit("a chunk is larger than this machine can hold");
        let len = usize::try_from(self.chunk_bytes).map_err(|_| too_large())?;
        let element = usize::try_from(self.element).map_err(|_| too_large())?;
        filters::decode(&self.filters, chunk.mask, stored, element, len, out)
            .map_err(|error| error.at(chunk.span.offset))
    }

    fn fill(&self) -> &[u8] {
        &self.fill
    }

    fn describe(&self) -> String {
        filters::describe(&self.filters)
    }
}

impl DatasetChunks {
    fn entries(&self, source: &Source) -> Result<Vec<ChunkEntry>> {
        let Widths { offset, length } = self.widths;
        let dims = self.place.shape.as_slice();
        let rank = self.shape.len() as u32;
        let filtered = !self.filters.is_empty();
        let entries = match &self.place.index {
            None => return self.tree(source).entries(),
            Some(ChunkIndexing::SingleChunk { filtered_size, filters }) => {
                Ok(vec![single_chunk_entry(self.address, *filtered_size, *filters, dims.len())])
            }
            Some(ChunkIndexing::Implicit) => {
                let element = usize::try_from(self.element).unwrap_or(usize::MAX);
                let end = Storage::len(source);
                collect_implicit_chunk_entries(self.address, &self.shape, dims, element, None, end)
            }
            Some(ChunkIndexing::FixedArray { .. }) => {
                arrays::fixed(source, self.address, filtered)?;
                // The array has an entry for every chunk of the maximum shape, not of the current
                // one.
                let shape = self.max_shape.as_deref().unwrap_or(&self.shape);
                collect_fixed_array_chunk_entries_storage(
                    source,
                    self.address,
                    offset,
                    length,
                    shape,
                    dims,
                    None,
                )
            }
            Some(ChunkIndexing::ExtensibleArray { .. }) => {
                arrays::extensible(source, self.address, filtered)?;
                collect_extensible_array_chunk_entries_storage(
                    source,
                    self.address,
                    offset,
                    length,
                    &self.shape,
                    self.max_shape.as_deref(),
                    dims,
                    None,
                )
            }
            Some(ChunkIndexing::BTreeV2) => {
                let header = BTreeV2Header::parse_at_storage(source, self.address, offset, length);
                let header = header.map_err(from_reader)?;
                Limits::check("chunks of a dataset", header.total_records, self.most)?;
                let entries = collect_v2_chunk_entries_storage(
                    source,
                    self.address,
                    offset,
                    length,
                    rank,
                    dims,
                    None,
                );
                let entries = entries.map_err(from_reader)?;
                let kind = if filtered { 11 } else { 10 };
                // libhdf5 finds a chunk by binary search, so the order is part of the index.
                let ordered = entries.is_sorted_by(|left, right| left.offsets < right.offsets);
                if header.btree_type != kind
                    || header.total_records != entries.len() as u64
                    || !ordered
                {
                    let what = "the tree of a dataset's chunks contradicts its header";
                    return Err(source.at(self.address, Error::damaged(what)));
                }
                return Ok(entries);
            }
        };
        entries.map_err(from_reader)
    }

    fn tree<'a>(&'a self, source: &'a Source) -> ChunkTree<'a> {
        ChunkTree {
            source,
            root: self.address,
            chunk: &self.place.shape,
            element: self.element,
            width: self.width,
            most: self.most,
            end: self.end,
        }
    }

    fn chunk(&self, entry: ChunkEntry) -> Result<Chunk> {
        let ChunkEntry { address, size, filter_mask, offsets: mut at } = entry;
        let dims = &self.place.shape;
        let aligned = at.iter().zip(dims).all(|(at, dim)| at % u64::from(*dim) == 0);
        if at.len() != self.shape.len() || !aligned {
            return Err(Error::damaged(format!("a chunk at {at:?} of chunks of shape {dims:?}")));
        }
        let over_edge = at
            .iter()
            .zip(dims)
            .zip(&self.shape)
            .any(|((at, chunk), dim)| at.saturating_add(u64::from(*chunk)) > *dim);
        let plain = self.place.plain_edges && over_edge;
        if self.place.index.is_none() && self.filters.is_empty() && size != self.chunk_bytes {
            return Err(Error::damaged(format!("a chunk of {size} bytes without filters"))
                .expected(format!("{} bytes", self.chunk_bytes)));
        }
        let len = if self.filters.is_empty() || plain { self.chunk_bytes } else { size };
        if let Some(end) = self.end
            && address.checked_add(len).is_none_or(|behind| behind > end)
        {
            return Err(Error::damaged("a chunk is past the end that the file records")
                .at(self.base.saturating_add(address))
                .expected(format!("one before byte {}", self.base.saturating_add(end)))
                .advice("The file is damaged: copy or download it again."));
        }
        let offset =
            self.base.checked_add(address).filter(|offset| offset.checked_add(len).is_some());
        let offset =
            offset.ok_or_else(|| Error::damaged("the address of a chunk is past 64 bits"))?;
        at.resize(at.len() + self.further_dims, 0);
        let mask = if plain { u32::MAX } else { filter_mask };
        Ok(Chunk { at, span: Span { file: self.file, offset, len }, mask })
    }
}

impl fmt::Debug for DatasetChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatasetChunks({} from {}, {})", self.file.0, self.address, self.describe())
    }
}

/// Returns the elements of a small dataset in C order; `bytes` is their checked length.
pub(crate) fn gather(
    chunked: &Chunked,
    files: &FileSet,
    shape: &[u64],
    element: u64,
    bytes: u64,
) -> Result<Vec<u8>> {
    let size = element as usize;
    let mut out = match chunked.chunks.fill() {
        [] => try_alloc::zeros(bytes)?,
        fill => {
            let mut out = Vec::new();
            try_alloc::make_room(&mut out, bytes)?;
            out.extend(fill.iter().cycle().take(bytes as usize / fill.len() * fill.len()));
            out
        }
    };
    let mut plain = Vec::new();
    for chunk in chunked.chunks.table(files)? {
        let stored = files.read_vec(chunk.span.file, chunk.span.offset, chunk.span.len)?;
        chunked.chunks.decode(&chunk, &stored, &mut plain)?;
        // Copies the part of the chunk that is inside the dataset, run by run.
        let extent: Vec<u64> = chunk
            .at
            .iter()
            .zip(&chunked.shape)
            .zip(shape)
            .map(|((at, chunk), dim)| (dim - at).min(*chunk))
            .collect();
        let runs: u64 = extent.iter().rev().skip(1).product();
        let run = extent.last().copied().unwrap_or(1) as usize * size;
        for index in 0..runs {
            let mut left = index;
            let (mut from, mut to) = (0u64, 0u64);
            let mut within = vec![0; extent.len()];
            for (axis, dim) in extent.iter().enumerate().rev().skip(1) {
                within[axis] = left % dim;
                left /= dim;
            }
            for (axis, at) in within.iter().enumerate() {
                from = from * chunked.shape[axis] + at;
                to = to * shape[axis] + chunk.at[axis] + at;
            }
            let (from, to) = (from as usize * size, to as usize * size);
            if let (Some(from), Some(to)) = (plain.get(from..from + run), out.get_mut(to..to + run))
            {
                to.copy_from_slice(from);
            }
        }
    }
    Ok(out)
}
