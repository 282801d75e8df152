//! Datasets: their description and the location of their bytes.

use std::borrow::Cow;
use std::sync::Arc;

use hdf5_reader::io::Cursor;
use hdf5_reader::local_heap::LocalHeap;
use hdf5_reader::messages::layout::{self, ChunkIndexing, DataLayout};
use hdf5_reader::messages::{
    MSG_DATA_LAYOUT, MSG_DATASPACE, MSG_DATATYPE, MSG_EXTERNAL_FILES, MSG_FILL_VALUE,
    MSG_FILL_VALUE_OLD, MSG_FILTER_PIPELINE, external_files, fill_value, filter_pipeline,
};
use statelens_checkpoint::{
    Chunked, Chunks, Concat, Error, ErrorKind, FileSet, Layout, Limits, Part, Result, Span, Tensor,
    Text,
};

use crate::Hdf5File;
use crate::datatype::{Class, Datatype};
use crate::error::from_reader;
use crate::file::attribute::count;
use crate::file::chunks::{ChunkPlace, DatasetChunks};
use crate::filters::{self, FilterDescription};
use crate::header::{Message, Messages};
use crate::heap::HeapNames;
use crate::numpy::ElementType;
use crate::source::Widths;

#[derive(Debug, Clone)]
pub struct Dataset {
    pub datatype: Arc<Datatype>,
    /// Its shape; `None` for the null dataspace, which has no elements.
    pub shape: Option<Vec<u64>>,
    /// Its maximum shape; `u64::MAX` if unlimited.
    pub max_shape: Option<Vec<u64>>,
    /// The filters of its chunks, in the order they were applied.
    pub filters: Arc<[FilterDescription]>,
    /// The element for places that were never written; empty for zeros.
    pub fill: Arc<[u8]>,
    pub(crate) stored: DataLocation,
}

#[derive(Debug, Clone)]
pub(crate) enum DataLocation {
    Compact(Arc<[u8]>),
    /// In one range, or not allocated yet.
    Contiguous(Option<u64>),
    Chunked(ChunkPlace),
    /// In other files, as a sequence of segments.
    External(Vec<ExternalSegment>),
    /// In a way that is not supported; the text gives the reason.
    Elsewhere(Text),
}

/// A segment of a dataset in another file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalSegment {
    /// The file name as it was written: absolute, or relative to this file.
    pub file: Text,
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes; `u64::MAX` for all that there are.
    pub len: u64,
}

impl Dataset {
    pub fn count(&self) -> Result<u64> {
        count(self.shape.as_deref())
    }

    /// Returns whether its bytes are in one range of the file, without filters.
    pub fn is_contiguous(&self) -> bool {
        matches!(self.stored, DataLocation::Contiguous(_) | DataLocation::Compact(_))
    }

    /// Returns the element type and shape of the dataset as a tensor, including the dimensions of
    /// an array in each element; `None` for the null dataspace and for elements stored in a heap.
    pub fn element(&self) -> Option<(ElementType, Vec<u64>)> {
        let shape = self.shape.as_ref()?;
        let element = self.datatype.element()?;
        let shape = shape.iter().chain(&element.dims).copied().collect();
        Some((element, shape))
    }

    /// Returns the segments in other files, if the bytes are there.
    pub fn segments(&self) -> &[ExternalSegment] {
        match &self.stored {
            DataLocation::External(segments) => segments,
            _ => &[],
        }
    }

    /// Returns the storage for display: `contiguous`, `chunks [10, 4], shuffle, gzip 4`.
    pub fn describe(&self) -> String {
        match &self.stored {
            DataLocation::Compact(_) => "compact".into(),
            DataLocation::Contiguous(Some(_)) => "contiguous".into(),
            DataLocation::Contiguous(None) => "not written".into(),
            DataLocation::Chunked(place) if self.filters.is_empty() => {
                format!("chunks {:?}", place.shape)
            }
            DataLocation::Chunked(place) => {
                format!("chunks {:?}, {}", place.shape, crate::filters::describe(&self.filters))
            }
            DataLocation::External(segments) => {
                format!("in {} pieces of other files", segments.len())
            }
            DataLocation::Elsewhere(_) => "not in this file".into(),
        }
    }
}

impl Hdf5File {
    /// Assembles a dataset from its header messages.
    pub(crate) fn read_dataset(&self, messages: &Messages) -> Result<Dataset> {
        let body = |kind: u16| match messages.first(kind) {
            None => Ok(None),
            Some(Message { shared: true, body, .. }) => {
                self.resolve(kind, body).map(|body| Some(Cow::Owned(body)))
            }
            Some(message) => Ok(Some(Cow::Borrowed(message.body))),
        };
        let missing = |what: &str| Error::damaged(format!("a dataset without {what}"));
        let described = body(MSG_DATATYPE)?.ok_or_else(|| missing("a datatype"))?;
        let unsealed = messages.unsealed && matches!(described, Cow::Borrowed(_));
        let datatype = self.datatype(&described, unsealed)?;
        let space = body(MSG_DATASPACE)?.ok_or_else(|| missing("a dataspace"))?;
        let (shape, max_shape) = self.dataspace(&space)?;
        let filters = match body(MSG_FILTER_PIPELINE)? {
            None => Vec::new(),
            Some(body) => self.source.parse(&body, filter_pipeline::parse)?.filters,
        };
        crate::filters::check_names(&filters)?;
        let (new, old) = (body(MSG_FILL_VALUE)?, body(MSG_FILL_VALUE_OLD)?);
        let fill = self.fill(&datatype, new.as_deref(), old.as_deref())?;
        let stored = match (body(MSG_EXTERNAL_FILES)?, body(MSG_DATA_LAYOUT)?) {
            (Some(body), _) => self.segments(&body)?,
            (None, Some(body)) => {
                self.stored(&body, shape.as_ref().map_or(0, Vec::len), datatype.size)?
            }
            (None, None) => return Err(missing("a layout")),
        };
        if let DataLocation::Compact(data) = &stored {
            let bytes = count(shape.as_deref())?.checked_mul(datatype.size);
            if bytes != Some(data.len() as u64) {
                return Err(Error::damaged(format!("compact data of {} bytes", data.len()))
                    .expected("as many as its elements take"));
            }
        }
        Ok(Dataset { datatype, shape, max_shape, filters: filters.into(), fill, stored })
    }

    fn fill(
        &self,
        datatype: &Datatype,
        new: Option<&[u8]>,
        old: Option<&[u8]>,
    ) -> Result<Arc<[u8]>> {
        let message = match (new, old) {
            (Some(body), _) => self.source.parse(body, fill_value::parse_new)?,
            (None, Some(body)) => self.source.parse(body, fill_value::parse_old)?,
            (None, None) => return Ok([].into()),
        };
        let value = message.value.unwrap_or_default();
        // A fill value with another size than the elements would have another type, which libhdf5
        // never writes.
        Ok(if value.len() as u64 == datatype.size { value.into() } else { [].into() })
    }

    fn segments(&self, body: &[u8]) -> Result<DataLocation> {
        let message = self.source.parse(body, external_files::parse)?;
        if body.first() != Some(&1) {
            return Err(Error::damaged("a list of other files of an unknown version"));
        }
        // Fails early with the reason if the heap is invalid.
        let Widths { offset, length } = self.source.widths;
        LocalHeap::parse_at_storage(&self.source, message.heap_address, offset, length)
            .map_err(from_reader)?;
        let names = HeapNames::read(&self.source, message.heap_address, &self.limits)?;
        let segments = message.slots.iter().map(|slot| {
            Ok(ExternalSegment {
                file: names.get(slot.name_offset)?,
                offset: slot.offset,
                len: slot.size,
            })
        });
        Ok(DataLocation::External(segments.collect::<Result<_>>()?))
    }

    fn stored(&self, body: &[u8], rank: usize, element: u64) -> Result<DataLocation> {
        let address = |address: u64| (!self.source.is_undefined(address)).then_some(address);
        let [version, second, third, ..] = *body else {
            return Err(Error::damaged("a layout message that ends too early"));
        };
        let class = if version < 3 { third } else { second };
        if (4..=5).contains(&version) && class == 3 {
            return Ok(DataLocation::Elsewhere(
                "a virtual dataset: its elements are in other datasets, which are not followed"
                    .into(),
            ));
        }
        if version < 3 {
            return self.old_stored(body, class, rank);
        }
        Ok(match self.source.parse(body, layout::parse)?.layout {
            DataLayout::Compact { data } => DataLocation::Compact(data.into()),
            DataLayout::Contiguous { address: at, .. } => DataLocation::Contiguous(address(at)),
            DataLayout::Chunked { address: at, mut dims, element_size, chunk_indexing } => {
                // Since version 4 the element's size follows the chunk's shape, also in
                // hdf5-reader.
                let size = match version {
                    3 => Some(element_size),
                    _ if dims.len() == rank + 1 => dims.pop(),
                    _ => None,
                };
                if let Some(size) = size.filter(|size| u64::from(*size) != element) {
                    return Err(Error::damaged(format!("chunks of elements of {size} bytes"))
                        .expected(format!("the {element} bytes of the datatype")));
                }
                // A key of the old index has 32 bits for a chunk's size.
                let bytes = dims.iter().try_fold(element, |n, dim| n.checked_mul((*dim).into()));
                if version == 3 && bytes.is_none_or(|bytes| bytes > u64::from(u32::MAX)) {
                    return Err(Error::damaged(format!("chunks of shape {dims:?}"))
                        .expected("less than 4 GiB in each"));
                }
                DataLocation::Chunked(ChunkPlace {
                    address: address(at),
                    shape: dims,
                    index: chunk_indexing,
                    plain_edges: version >= 4 && third & 1 == 1,
                })
            }
        })
    }

    /// Parses layouts of versions 1 and 2, which hdf5-reader 0.12 takes for shorter than they are.
    fn old_stored(&self, body: &[u8], class: u8, rank: usize) -> Result<DataLocation> {
        let mut cursor = Cursor::new(body);
        let mut read = || {
            cursor.skip(1)?;
            let dimensions = cursor.read_u8()?;
            cursor.skip(6)?;
            let at = if class == 0 { 0 } else { cursor.read_offset(self.source.widths.offset)? };
            let dims = (0..dimensions).map(|_| cursor.read_u32_le());
            let dims = dims.collect::<hdf5_reader::error::Result<Vec<u32>>>()?;
            let data = match class {
                0 => {
                    let len = cursor.read_u32_le()?;
                    cursor.read_bytes(len as usize)?
                }
                _ => &[],
            };
            hdf5_reader::error::Result::Ok((at, dims, data))
        };
        let (at, mut dims, data) = read().map_err(from_reader)?;
        let address = (!self.source.is_undefined(at)).then_some(at);
        Ok(match class {
            0 => DataLocation::Compact(data.into()),
            1 => DataLocation::Contiguous(address),
            _ => {
                dims.truncate(rank);
                DataLocation::Chunked(ChunkPlace {
                    address,
                    shape: dims,
                    index: None,
                    plain_edges: false,
                })
            }
        })
    }

    /// Returns a dataset as a tensor, without reading its bytes.
    ///
    /// Fails for the null dataspace, for elements stored in a heap, and for chunks that exceed the
    /// limit. For a dataset in files that are not in `files`, or with unsupported filters, the
    /// tensor's layout says so.
    pub fn tensor(&self, dataset: &Dataset, files: &FileSet) -> Result<Tensor> {
        let Some((element, shape)) = dataset.element() else {
            return Err(Error::unsupported(format!(
                "elements of type {} don't form a tensor",
                dataset.datatype.describe()
            )));
        };
        let elements = count(Some(&shape))?;
        let bytes = elements.checked_mul(element.dtype.itemsize());
        let bytes =
            bytes.ok_or_else(|| Error::damaged("a dataset has more bytes than fit 64 bits"))?;
        let layout = self.layout(dataset, files, &element, &shape, bytes)?;
        Ok(Tensor { byte_order: element.order, ..Tensor::new(element.dtype, shape, layout) })
    }

    fn layout(
        &self,
        dataset: &Dataset,
        files: &FileSet,
        element: &ElementType,
        shape: &[u64],
        bytes: u64,
    ) -> Result<Layout> {
        if bytes == 0 {
            return Ok(Layout::Inline([].into()));
        }
        match &dataset.stored {
            DataLocation::Compact(data) => {
                let len = usize::try_from(bytes).ok();
                let data = len.and_then(|len| data.get(..len));
                let data = data.ok_or_else(|| Error::damaged("compact data ends too early"))?;
                Ok(Layout::Inline(data.into()))
            }
            DataLocation::Contiguous(Some(address)) => {
                let offset = self.source.base().checked_add(*address);
                let offset = offset.ok_or_else(|| Error::damaged("an address past 64 bits"))?;
                Ok(Layout::Span(Span { file: self.id, offset, len: bytes }))
            }
            DataLocation::Contiguous(None) => Ok(fill(dataset, element)),
            DataLocation::Chunked(place) => self.chunked(dataset, place, files, element, shape),
            DataLocation::External(segments) => Ok(external(segments, files, shape, bytes)),
            DataLocation::Elsewhere(reason) => Ok(Layout::Missing(reason.clone())),
        }
    }

    fn chunked(
        &self,
        dataset: &Dataset,
        place: &ChunkPlace,
        files: &FileSet,
        element: &ElementType,
        shape: &[u64],
    ) -> Result<Layout> {
        let Some(address) = place.address else { return Ok(fill(dataset, element)) };
        let own = dataset.shape.as_deref().unwrap_or_default();
        if place.shape.len() != own.len() || place.shape.contains(&0) {
            return Err(Error::damaged(format!(
                "chunks of shape {:?} in a dataset of shape {own:?}",
                place.shape
            )));
        }
        let in_chunk = place.shape.iter().try_fold(1u64, |n, dim| n.checked_mul(u64::from(*dim)));
        let chunk_bytes =
            in_chunk.and_then(|n| n.checked_mul(dataset.datatype.size)).unwrap_or(u64::MAX);
        if dataset.filters.is_empty()
            && place.shape.iter().zip(own).all(|(chunk, dim)| u64::from(*chunk) >= *dim)
            && place.shape.iter().zip(own).skip(1).all(|(chunk, dim)| u64::from(*chunk) == *dim)
            && matches!(
                place.index,
                Some(ChunkIndexing::SingleChunk { .. } | ChunkIndexing::Implicit)
            )
        {
            // A single chunk without filters is a span, whatever its size.
            let offset = self.source.base().checked_add(address);
            let offset = offset.ok_or_else(|| Error::damaged("an address past 64 bits"))?;
            let len = count(Some(shape))?.saturating_mul(element.dtype.itemsize());
            return Ok(Layout::Span(Span { file: self.id, offset, len }));
        }
        Limits::check("bytes of one chunk", chunk_bytes, self.limits.chunk)?;
        let whole =
            place.shape.iter().map(|dim| u64::from(*dim)).chain(element.dims.iter().copied());
        let chunks = DatasetChunks {
            file: self.id,
            base: self.source.base(),
            widths: self.source.widths,
            address,
            place: place.clone(),
            shape: own.to_vec(),
            max_shape: dataset.max_shape.clone(),
            further_dims: element.dims.len(),
            element: dataset.datatype.size,
            chunk_bytes,
            filters: dataset.filters.clone(),
            fill: fill_bytes(dataset, element),
            width: self.chunk_tree_width,
            most: self.limits.members,
            end: self.recorded_end(),
        };
        if let Err(error) = filters::check(&dataset.filters, 0) {
            // An optional filter that could not be applied is skipped by the mask of each chunk.
            let table = chunks.table(files)?;
            let used =
                table.iter().find_map(|chunk| filters::check(&dataset.filters, chunk.mask).err());
            match used.or(table.is_empty().then_some(error)) {
                Some(error) if error.kind() == ErrorKind::Damaged => return Err(error),
                Some(error) => return Ok(Layout::Missing(error.what().into())),
                None => {}
            }
        }
        Ok(Layout::Chunked(Chunked { shape: whole.collect(), chunks: Arc::new(chunks) }))
    }

    /// Returns a dataset as a tensor of opaque bytes: its elements as stored in the file, whatever
    /// their type.
    pub fn opaque(&self, dataset: &Dataset, files: &FileSet) -> Result<Tensor> {
        let Datatype { size, .. } = *dataset.datatype;
        let datatype = Arc::new(Datatype { size, class: Class::Opaque { tag: "".into() } });
        self.tensor(&Dataset { datatype, ..dataset.clone() }, files)
    }

    /// Reads the bytes of a small dataset: strings, sequences, or values to be shown.
    ///
    /// Undoes filters, but returns the elements as stored in the file. Fails if their size exceeds
    /// the limit for structures.
    pub fn read(&self, dataset: &Dataset, files: &FileSet) -> Result<Vec<u8>> {
        let bytes = dataset.count()?.saturating_mul(dataset.datatype.size);
        Limits::check("bytes of a dataset that is read whole", bytes, self.limits.structure)?;
        self.source.spend(bytes)?;
        if dataset.shape.is_none() {
            return Ok(Vec::new());
        }
        let Tensor { layout, shape, .. } = self.opaque(dataset, files)?;
        match layout {
            Layout::Inline(data) => Ok(data.to_vec()),
            Layout::Fill(one) => Ok(one.repeat(dataset.count()? as usize)),
            Layout::Span(span) => files.read_vec(span.file, span.offset, span.len),
            Layout::Chunked(chunked) => {
                crate::file::chunks::gather(&chunked, files, &shape, dataset.datatype.size, bytes)
            }
            Layout::Missing(reason) => {
                let error = Error::unsupported(reason.to_string());
                match dataset.stored {
                    // Files that are missing.
                    DataLocation::External(_) => Err(error),
                    _ => Err(error.coded(crate::NOT_DECODED)),
                }
            }
            _ => Err(Error::unsupported("elements spread over several files are not read whole")),
        }
    }
}

fn fill_bytes(dataset: &Dataset, element: &ElementType) -> Arc<[u8]> {
    if dataset.fill.is_empty() {
        return [].into();
    }
    // The fill value of an array type is a whole array. Its first element is used for all, assuming
    // they are equal: h5py can't make libhdf5 write anything else.
    let size = usize::try_from(element.dtype.itemsize()).unwrap_or(usize::MAX);
    dataset.fill.get(..size).map_or_else(|| [].into(), Arc::from)
}

fn fill(dataset: &Dataset, element: &ElementType) -> Layout {
    let bytes = fill_bytes(dataset, element);
    match bytes.is_empty() {
        true => Layout::Fill(vec![0; element.dtype.itemsize() as usize].into()),
        false => Layout::Fill(bytes),
    }
}

/// Returns the segments as parts along the first dimension, if each ends with a whole row.
fn external(segments: &[ExternalSegment], files: &FileSet, shape: &[u64], bytes: u64) -> Layout {
    let rows = shape.first().copied().unwrap_or(1).max(1);
    let row = bytes / rows;
    let mut parts = Vec::new();
    let mut done = 0;
    for segment in segments {
        if done == bytes {
            break;
        }
        let name = segment.file.to_lossy();
        let Some(file) = find_file(files, &name) else {
            return Layout::Missing(
                format!("the data is in the file {name}, which was not given: open both together")
                    .into(),
            );
        };
        let there = files.len(file).saturating_sub(segment.offset);
        let len = segment.len.min(bytes - done);
        if len > there || row == 0 || len % row != 0 {
            let what =
                if len > there { "ends before the data does" } else { "holds pieces of rows" };
            return Layout::Missing(format!("the file {name}, where the data is, {what}").into());
        }
        let mut shape = shape.to_vec();
        if let Some(first) = shape.first_mut() {
            *first = len / row;
        }
        done += len;
        let span = Span { file, offset: segment.offset, len };
        parts.push(Part { shape, layout: Layout::Span(span) });
    }
    match parts.as_mut_slice() {
        _ if done < bytes => {
            Layout::Missing("the files that hold the data end before it does".into())
        }
        [one] => one.layout.clone(),
        _ => Layout::Concat(Concat { axis: 0, parts }),
    }
}

/// Returns the file with that path, by the whole path or else by its last part: a path in a
/// checkpoint is from the machine that wrote it.
pub fn find_file(files: &FileSet, path: &str) -> Option<statelens_checkpoint::FileId> {
    let last = |path: &str| path.rsplit(['/', '\\']).next().map(str::to_owned);
    files.find(path).or_else(|| {
        let wanted = last(path)?;
        files.iter().find(|(_, file)| last(&file.name).as_ref() == Some(&wanted)).map(|(id, _)| id)
    })
}
