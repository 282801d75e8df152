//! The interface between the lowering and the container of a pickle.

use std::collections::HashMap;
use std::sync::Arc;

use statelens_checkpoint::{ByteOrder, DType, Global, Layout, Tensor};

use crate::{Node, NodeId, Pickle};

/// A lookup of the storages that a torch pickle names.
pub trait Storages {
    /// Returns the storage under `key`, which has `len` bytes according to the pickle.
    ///
    /// A missing storage is returned as a [`Layout::Missing`] with the reason.
    fn storage(&mut self, key: &str, len: u64) -> Storage;

    /// Returns the tensor under `key`: the oldest files name whole tensors.
    fn tensor(&mut self, _key: &str) -> Option<Tensor> {
        None
    }

    /// Returns the byte order of every number in every storage.
    fn byte_order(&self) -> ByteOrder {
        ByteOrder::Little
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Storage {
    /// Id of the storage, see [`Tensor::storage`].
    pub number: u32,
    /// Location: a `Span`, `Packed`, `Inline` or `Missing`.
    pub layout: Layout,
    /// Actual size in bytes.
    pub len: u64,
}

/// The lookup for a bare pickle, whose storages are all missing.
#[derive(Debug, Clone, Default)]
pub struct NoStorages {
    numbers: HashMap<String, u32>,
}

impl Storages for NoStorages {
    fn storage(&mut self, key: &str, len: u64) -> Storage {
        let next = self.numbers.len() as u32;
        Storage {
            number: *self.numbers.entry(key.to_owned()).or_insert(next),
            layout: Layout::Missing("a bare pickle holds no storages".into()),
            len,
        }
    }
}

/// A storage as named by a persistent id.
#[derive(Debug, Clone)]
pub(crate) struct StorageName {
    /// `None` for untyped bytes.
    pub(crate) dtype: Option<DType>,
    pub(crate) class: Arc<Global>,
    pub(crate) key: String,
    /// Size in elements of `dtype`.
    pub(crate) numel: u64,
    /// First element, for a view of a storage.
    pub(crate) offset: u64,
}

impl StorageName {
    pub(crate) fn unit(&self) -> u64 {
        self.dtype.as_ref().map_or(1, DType::itemsize)
    }

    pub(crate) fn len(&self) -> Result<u64, String> {
        let len = self.numel.checked_mul(self.unit());
        len.ok_or_else(|| "Its size does not fit 64 bits".to_owned())
    }
}

impl Pickle {
    /// Returns the key of each storage that a persistent id names, and its length in bytes.
    pub fn storage_lengths(&self) -> impl Iterator<Item = (String, u64)> {
        self.nodes().filter_map(|(_, node)| {
            let Node::Persistent(name) = node else { return None };
            let storage = self.storage_name(*name)?;
            let len = storage.len().unwrap_or(u64::MAX);
            Some((storage.key, len))
        })
    }

    /// Returns how many tensors would be made whose values are indices into other tensors: sparse
    /// and nested ones. torch checks these values only when it loads just weights.
    pub fn indexed_tensors(&self) -> u64 {
        let is_indexed = |id: NodeId| {
            self.global(id).is_some_and(|global| {
                let name = &*global.name;
                &*global.module == "torch._utils"
                    && matches!(name, "_rebuild_sparse_tensor" | "_rebuild_nested_tensor")
            })
        };
        let calls = self.nodes().filter(|(_, node)| {
            let Node::Object(call) = node else { return false };
            is_indexed(call.callable)
                || self
                    .sequence(call.args)
                    .and_then(<[_]>::first)
                    .is_some_and(|first| is_indexed(*first))
        });
        calls.count() as u64
    }

    /// Parses `('storage', class, key, location, numel[, (view key, offset, size)])`.
    pub(crate) fn storage_name(&self, id: NodeId) -> Option<StorageName> {
        let (class, key, numel, view) = match self.sequence(id)? {
            [kind, class, key, _location, numel, view @ ..] if self.text(*kind)? == "storage" => {
                (*class, *key, *numel, view.first())
            }
            _ => return None,
        };
        let class = self.global(class)?;
        let Node::Int(numel) = self.node(numel) else { return None };
        let key = match self.node(key) {
            Node::Int(key) => key.to_string(),
            // A record's name is at most 64 KiB; a longer key would be copied needlessly.
            _ => self.text(key).filter(|key| key.as_bytes().len() <= 1 << 16)?.to_string(),
        };
        let offset = match view.and_then(|view| self.sequence(*view)) {
            Some([_key, offset, _size]) => u64::try_from(self.int(*offset)?).ok()?,
            _ => 0,
        };
        let dtype = storage_dtype(&class)?;
        Some(StorageName { dtype, class, key, numel: numel.to_u64()?, offset })
    }
}

/// torch's storage classes and their element types.
pub static STORAGE_CLASSES: [(&str, DType); 17] = [
    ("DoubleStorage", DType::F64),
    ("FloatStorage", DType::F32),
    ("HalfStorage", DType::F16),
    ("BFloat16Storage", DType::BF16),
    ("LongStorage", DType::I64),
    ("IntStorage", DType::I32),
    ("ShortStorage", DType::I16),
    ("CharStorage", DType::I8),
    ("ByteStorage", DType::U8),
    ("BoolStorage", DType::Bool),
    ("ComplexDoubleStorage", DType::C128),
    ("ComplexFloatStorage", DType::C64),
    ("QInt8Storage", DType::QInt8),
    ("QUInt8Storage", DType::QUInt8),
    ("QInt32Storage", DType::QInt32),
    ("QUInt4x2Storage", DType::QUInt4x2),
    ("QUInt2x4Storage", DType::QUInt2x4),
];

/// Returns the element type of a storage class, `Some(None)` for untyped bytes; `None` if it is not
/// a storage class.
pub fn storage_dtype(class: &Global) -> Option<Option<DType>> {
    if !matches!(&*class.module, "torch" | "torch.cuda" | "torch.storage" | "torch.sparse") {
        return None;
    }
    if matches!(&*class.name, "UntypedStorage" | "_UntypedStorage") {
        return Some(None);
    }
    STORAGE_CLASSES
        .iter()
        .find(|(name, _)| *name == &*class.name)
        .map(|(_, dtype)| Some(dtype.clone()))
}
