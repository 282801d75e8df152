//! Reads `.metadata`.
//!
//! Its objects are instances of plain classes, whose attributes are set by the pickle as their
//! state.

use std::collections::HashMap;

use statelens_checkpoint::{DType, Error, Limits, Result, Text};
use statelens_pickle::{Node, NodeId, Pickle};

use super::tree::PathStep;

/// The maximum number of chunks of all tensors, independent of the limits: a list shared by several
/// tensors counts for each.
const MAX_CHUNKS: u64 = 1 << 20;

pub(super) struct Metadata<'a> {
    pickle: &'a Pickle,
    entries: &'a [(NodeId, NodeId)],
    paths: HashMap<Text, NodeId>,
    /// The shapes of tensors that Megatron flattened.
    flattened: HashMap<Text, Vec<u64>>,
    storage_data: HashMap<StorageIndex, StorageInfo>,
    /// The version of the format, `1.0.0` in recent releases; may be empty.
    pub(super) version: String,
    chunks: u64,
    limits: Limits,
}

pub(super) struct MetadataEntry {
    pub(super) name: Text,
    pub(super) kind: EntryKind,
}

pub(super) enum EntryKind {
    /// A value, pickled separately.
    Value,
    /// A tensor in chunks; each has the index of its first element and its shape.
    Tensor { dtype: DType, shape: Vec<u64>, chunks: Vec<(Vec<u64>, Vec<u64>)> },
    /// An unknown kind, perhaps of newer releases, with its class name.
    Other(String),
}

/// The key of a stored item: its name, and for a chunk the index of its first element.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct StorageIndex {
    name: Text,
    at: Option<Vec<u64>>,
}

#[derive(Debug, Clone)]
pub(super) struct StorageInfo {
    /// The file, relative to the checkpoint's folder.
    pub(super) file: Text,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// The transforms of the bytes, such as a compression, in the order in which they are undone.
    pub(super) transforms: Vec<String>,
}

impl<'a> Metadata<'a> {
    pub(super) fn new(pickle: &'a Pickle, limits: &Limits) -> Result<Self> {
        let root = pickle.root();
        if class(pickle, root).as_deref() != Some("Metadata") {
            return Err(Error::damaged("this pickle is not metadata of a distributed checkpoint")
                .expected("an instance of torch.distributed.checkpoint.metadata.Metadata"));
        }
        let field = |name| pickle.field(pickle.state(root)?, name);
        let entries = field("state_dict_metadata").and_then(|dict| pickle.dict(dict));
        let entries = entries.ok_or_else(|| unclear("has no state_dict_metadata"))?;
        Limits::check("names in the metadata", entries.len() as u64, limits.members)?;
        let paths = field("planner_data").and_then(|dict| pickle.dict(dict)).unwrap_or_default();
        let paths = paths.iter().filter_map(|(name, path)| Some((pickle.text(*name)?, *path)));
        let stored = field("storage_data").and_then(|dict| pickle.dict(dict)).unwrap_or_default();
        let of_megatron =
            field("mcore_data").and_then(|dict| pickle.dict(dict)).unwrap_or_default();
        let flattened = of_megatron.iter().filter_map(|(name, data)| {
            let shape = pickle.field(*data, "nd_reformulated_orig_global_shape")?;
            Some((pickle.text(*name)?, lengths(pickle, shape)?))
        });
        // Entries that can't be read have no location; that is reported where the location is
        // needed.
        let storage_data = stored.iter().filter_map(|(index, info)| {
            Some((read_index(pickle, *index)?, read_storage_info(pickle, *info)?))
        });
        Ok(Self {
            pickle,
            entries,
            paths: paths.collect(),
            flattened: flattened.collect(),
            storage_data: storage_data.collect(),
            version: field("version").and_then(|id| pickle.str(id)).unwrap_or_default().to_owned(),
            chunks: 0,
            limits: limits.clone(),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the entry with this number, in file order.
    pub(super) fn entry(&mut self, number: usize) -> Result<MetadataEntry> {
        let pickle = self.pickle;
        let (name, value) = self.entries.get(number).ok_or_else(|| unclear("ends early"))?;
        let name = pickle.text(*name).ok_or_else(|| unclear("has a name that is not a string"))?;
        let kind = match class(pickle, *value).as_deref() {
            Some("BytesStorageMetadata") => EntryKind::Value,
            Some("TensorStorageMetadata") => {
                let kind = self.tensor(*value)?;
                kind.ok_or_else(|| unclear(&format!("does not describe {name:?} as a tensor")))?
            }
            other => EntryKind::Other(other.unwrap_or("no class").to_owned()),
        };
        Ok(MetadataEntry { name, kind })
    }

    /// Returns the location of a value, or of the chunk that begins at `at`.
    pub(super) fn storage_info(&self, name: &Text, at: Option<&[u64]>) -> Option<&StorageInfo> {
        self.storage_data.get(&StorageIndex { name: name.clone(), at: at.map(<[u64]>::to_vec) })
    }

    /// Returns the shape of a tensor that Megatron flattened before it was stored.
    pub(super) fn flattened(&self, name: &Text) -> Option<&[u64]> {
        self.flattened.get(name).map(Vec::as_slice)
    }

    /// Returns the number of each entry by its name.
    pub(super) fn numbers(&self) -> HashMap<Text, usize> {
        let names = self.entries.iter().enumerate();
        names.filter_map(|(at, (name, _))| Some((self.pickle.text(*name)?, at))).collect()
    }

    /// Returns the locations of all items, in arbitrary order.
    pub(super) fn storage_infos(&self) -> impl Iterator<Item = &StorageInfo> {
        self.storage_data.values()
    }

    /// Returns the path for a name, or the name itself if the file does not store a path for it.
    pub(super) fn path(&self, name: &Text) -> Result<Vec<PathStep>> {
        let Some(path) = self.paths.get(name) else { return Ok(vec![PathStep::Key(name.clone())]) };
        let pickle = self.pickle;
        let steps = pickle.sequence(*path).unwrap_or_default();
        Limits::check("steps of a path", steps.len() as u64, self.limits.depth)?;
        let step = |id: &NodeId| match pickle.node(*id) {
            Node::Int(index) => Some(PathStep::Index(index.to_u64()?)),
            _ => Some(PathStep::Key(pickle.text(*id)?)),
        };
        let steps: Option<Vec<PathStep>> = steps.iter().map(step).collect();
        steps
            .filter(|steps| !steps.is_empty())
            .ok_or_else(|| unclear(&format!("has no valid path for {name:?}")))
    }

    /// Returns `None` if the description of the tensor is invalid.
    fn tensor(&mut self, id: NodeId) -> Result<Option<EntryKind>> {
        let pickle = self.pickle;
        let field = |id, name| pickle.field(pickle.state(id)?, name);
        let chunks = field(id, "chunks").and_then(|list| pickle.sequence(list));
        let (Some(dtype), Some(shape), Some(chunks)) = (
            field(id, "properties").and_then(|properties| read_dtype(pickle, properties)),
            field(id, "size").and_then(|size| self.lengths(size)),
            chunks,
        ) else {
            return Ok(None);
        };
        self.chunks = self.chunks.saturating_add(chunks.len() as u64);
        Limits::check("chunks of tensors", self.chunks, self.limits.members.min(MAX_CHUNKS))?;
        let chunks = chunks.iter().map(|chunk| {
            let at = self.lengths(field(*chunk, "offsets")?)?;
            Some((at, self.lengths(field(*chunk, "sizes")?)?))
        });
        let chunks: Option<Vec<_>> = chunks.collect();
        Ok(chunks.map(|chunks| EntryKind::Tensor { dtype, shape, chunks }))
    }

    fn lengths(&self, id: NodeId) -> Option<Vec<u64>> {
        lengths(self.pickle, id).filter(|lengths| lengths.len() as u64 <= self.limits.rank)
    }
}

fn unclear(what: &str) -> Error {
    Error::damaged(format!("the metadata {what}"))
}

/// Returns the class of an instance without its module, which has changed over time.
fn class(pickle: &Pickle, id: NodeId) -> Option<String> {
    let global = pickle.global(pickle.object(id)?.callable)?;
    global.module.starts_with("torch.distributed").then(|| global.name.to_string())
}

/// Reads `torch.Size((…))`, or a sequence of numbers.
fn lengths(pickle: &Pickle, id: NodeId) -> Option<Vec<u64>> {
    let numbers = match pickle.call(id) {
        Some((global, [items])) if global.is("torch", "Size") => *items,
        Some(_) => return None,
        None => id,
    };
    let numbers = pickle.sequence(numbers)?.iter();
    numbers.map(|number| u64::try_from(pickle.int(*number)?).ok()).collect()
}

/// Reads the dtype from a tensor's properties, where it is the first item of a tuple.
fn read_dtype(pickle: &Pickle, properties: NodeId) -> Option<DType> {
    let state = pickle.state(properties)?;
    let dtype = match pickle.sequence(state) {
        Some(state) => *state.first()?,
        None => pickle.field(state, "dtype")?,
    };
    let global = pickle.global(dtype).filter(|global| &*global.module == "torch")?;
    DType::from_torch_name(&global.name)
}

/// Reads a `MetadataIndex(fqn, offset, index)`.
fn read_index(pickle: &Pickle, id: NodeId) -> Option<StorageIndex> {
    let state = pickle.state(id)?;
    let name = pickle.text(pickle.field(state, "fqn")?)?;
    let at = match pickle.field(state, "offset") {
        Some(offset) if *pickle.node(offset) != Node::None => Some(lengths(pickle, offset)?),
        _ => None,
    };
    Some(StorageIndex { name, at })
}

/// Reads a `_StorageInfo(relative_path, offset, length, transform_descriptors)`.
fn read_storage_info(pickle: &Pickle, id: NodeId) -> Option<StorageInfo> {
    let state = pickle.state(id)?;
    let number = |name| u64::try_from(pickle.int(pickle.field(state, name)?)?).ok();
    let transforms = pickle.field(state, "transform_descriptors");
    let transforms = transforms.and_then(|list| pickle.sequence(list)).unwrap_or_default();
    let transform = |id: &NodeId| pickle.str(*id).unwrap_or("?").chars().take(100).collect();
    Some(StorageInfo {
        file: pickle.text(pickle.field(state, "relative_path")?)?,
        offset: number("offset")?,
        len: number("length")?,
        transforms: transforms.iter().take(16).map(transform).collect(),
    })
}
