//! State dicts of Python as checkpoints, to be written.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyList, PySet, PyString, PyTuple};
use statelens::files::FileSource;
use statelens::parts::checkpoint::{
    Array, Builder, ByteOrder, Dict, DictClass, DictKey, FileId, FileSet, FormatInfo, Global, Key,
    KeyPart, Layout, Limits, List, Opaque, Quantizer, Relocation, Set, Span, Sparse, Strided,
    Tensor, TensorClass, TensorId, Tuple, ValueId,
};
use statelens::{Checkpoint, DType, Error, Value};

use crate::checkpoint::NativeCheckpoint;
use crate::dtype::dtype_of;
use crate::errors::raised;
use crate::memory::Memory;
use crate::plain::plain;
use crate::tensor::NativeTensor;
use crate::text::{from_python, to_python};

/// Maximum nesting of containers: that of Python's own recursion.
const MAX_DEPTH: usize = 1_000;
/// The names of the parts of sparse tensors.
const SPARSE_PARTS: [&str; 6] =
    ["indices", "values", "crow_indices", "col_indices", "ccol_indices", "row_indices"];
/// Maximum nesting of tuples in a key.
const MAX_KEY_DEPTH: usize = 100;

/// Collects the values of a state dict. Tensors stay where they are in memory.
pub(crate) struct Collector<'py> {
    /// Describes tensors, arrays and others; `pystatelens._savers.described`.
    describe: Bound<'py, PyAny>,
    builder: Builder,
    files: FileSet,
    /// The values by identity of their objects, which are held so that no other takes their place.
    seen: HashMap<usize, (ValueId, Bound<'py, PyAny>)>,
    /// The storages of torch by their address, with their lengths and their numbers.
    storages: HashMap<usize, (FileId, u64, u32)>,
    /// The tensors of torch: two with the same view of one storage are tied.
    views: HashMap<TensorView, ValueId>,
    /// The sets of files of open checkpoints, and their tensors, by set and by storage or number:
    /// those that are equal are tied.
    relocations: Vec<(FileSet, Relocation)>,
    /// The numbers of the storages of these checkpoints, by set and by number there.
    lazy_storages: HashMap<(usize, u32), u32>,
    /// The number of the next storage, descending: an edited checkpoint has numbers of its own.
    next_storage: u32,
    lazy: HashMap<LazyOrigin, Vec<(Tensor, ValueId)>>,
    /// The files on disk of these checkpoints.
    sources: Vec<Arc<FileSource>>,
    /// The containers that are being filled, the innermost last.
    open: Vec<OpenContainer<'py>>,
}

/// Address of the storage, first element, shape, strides and dtype of a tensor.
type TensorView = (usize, u64, Vec<u64>, Vec<i64>, String);

/// The set of files of a tensor, and its storage or its number.
type LazyOrigin = (usize, Result<u32, TensorId>);

/// A container, and those of its items that are not yet collected.
struct OpenContainer<'py> {
    id: ValueId,
    kind: ContainerKind,
    keys: Vec<DictKey>,
    items: std::vec::IntoIter<Bound<'py, PyAny>>,
    done: Vec<ValueId>,
}

enum ContainerKind {
    Dict(DictClass),
    List,
    Tuple,
    Set { frozen: bool },
}

/// What `describe` returns for an object that Python itself lacks.
#[derive(FromPyObject)]
enum Described<'py> {
    /// An array of NumPy: dtype, shape, the memory, and whether it is a scalar.
    Array(Bound<'py, PyAny>, Vec<u64>, Bound<'py, PyAny>, bool),
    /// A tensor of an open checkpoint, whether it is an array, and its quantizer.
    Lazy(Bound<'py, NativeTensor>, bool, Option<QuantizerParts<'py>>),
    /// A tensor of torch: dtype, shape, address and memory of the storage, first element, strides.
    Tensor(String, Vec<u64>, usize, Bound<'py, PyAny>, u64, Vec<i64>),
    /// A sparse tensor: layout, dtype, shape, parts by name, and whether it is coalesced.
    Sparse(String, String, Vec<u64>, Bound<'py, PyDict>, Option<bool>),
    /// A quantised tensor of torch: dtype, shape, the integers, and their scales.
    Quantized(String, Vec<u64>, Bound<'py, PyAny>, ScaleParts<'py>),
    /// An object of a class that is not created: module, name and text.
    Opaque((String, String, Option<String>)),
    /// The dtype of NumPy, and whether it is big-endian; for torch's, `None`.
    DType(Bound<'py, PyAny>, Option<bool>),
    /// A device.
    Device(String),
    /// The keys and values of a mapping.
    Mapping(Bound<'py, PyList>),
}

/// The scales and zero points of a quantised tensor of torch.
#[derive(FromPyObject)]
enum ScaleParts<'py> {
    /// The scale and the zero point.
    Tensor(f64, i64),
    /// The tensors of scales and zero points, and the axis.
    Channels(Bound<'py, PyAny>, Bound<'py, PyAny>, u64),
}

/// How quantised integers represent numbers.
#[derive(FromPyObject)]
enum QuantizerParts<'py> {
    /// The scale and the zero point.
    Tensor(f64, i64),
    /// The scales, the zero points, and the axis.
    Channels(Bound<'py, NativeTensor>, Bound<'py, NativeTensor>, u64),
}

impl<'py> Collector<'py> {
    /// Returns a checkpoint with the values of `object`.
    pub(crate) fn collect(
        object: &Bound<'py, PyAny>,
        describe: Bound<'py, PyAny>,
    ) -> PyResult<Checkpoint> {
        // Its own program made it, so no size is suspicious.
        let limits = Limits::none();
        let files = FileSet::default().within(&limits);
        let mut collector = Self::new(describe, Builder::new(&limits), files);
        let root = collector.all(object)?;
        let Self { builder, files, sources, .. } = collector;
        let core = builder.finish(root, FormatInfo::default(), files, Vec::new());
        core.map(|core| Checkpoint::built(core, sources))
            .map_err(|error| raised(object.py(), &error))
    }

    /// Returns a checkpoint in which some leaves have other values. Keys that it lacks are added at
    /// the top.
    fn update(
        of: &NativeCheckpoint,
        updates: &Bound<'py, PyDict>,
        describe: Bound<'py, PyAny>,
    ) -> PyResult<Checkpoint> {
        let py = updates.py();
        let core = of.checkpoint.inner();
        let mut collector = Self::new(describe, core.edit(), core.files.clone());
        let mut added = Vec::new();
        for (key, object) in updates.iter() {
            let key = from_python(key.cast::<PyString>()?)?;
            let known = of.find(&key).map_err(|error| raised(py, &error))?;
            let new = collector.all(&object)?;
            match known {
                // Tied keys are one value, and change together.
                Some(id) => {
                    let value = collector.builder.value(new).cloned().unwrap_or(Value::None);
                    collector.set(core.resolve(id), value);
                    collector.moved(new, core.resolve(id));
                }
                None => added.push((DictKey::Str(key), new)),
            }
        }
        if !added.is_empty() {
            match collector.builder.value_mut(core.root()) {
                Some(Value::Dict(root)) => root.entries.extend(added),
                _ => {
                    let error = Error::refused("keys can only be added to a dict");
                    return Err(raised(py, &error));
                }
            }
        }
        let Self { builder, files, sources, .. } = collector;
        let built = builder.finish(core.root(), core.format.clone(), files, core.findings.clone());
        let sources = of.checkpoint.sources().iter().cloned().chain(sources).collect();
        built.map(|core| Checkpoint::built(core, sources)).map_err(|error| raised(py, &error))
    }

    /// Forgets a value that was moved to the id `to`.
    fn moved(&mut self, from: ValueId, to: ValueId) {
        self.set(from, Value::None);
        let seen = self.seen.values_mut().map(|(id, _)| id);
        let lazy = self.lazy.values_mut().flatten().map(|(_, id)| id);
        let ids = seen.chain(lazy).chain(self.views.values_mut());
        ids.filter(|id| **id == from).for_each(|id| *id = to);
    }

    fn new(describe: Bound<'py, PyAny>, builder: Builder, files: FileSet) -> Self {
        Self {
            describe,
            builder,
            files,
            seen: HashMap::new(),
            storages: HashMap::new(),
            views: HashMap::new(),
            relocations: Vec::new(),
            lazy_storages: HashMap::new(),
            next_storage: u32::MAX,
            lazy: HashMap::new(),
            sources: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Collects an object and everything in it, without recursion; returns its id.
    fn all(&mut self, object: &Bound<'py, PyAny>) -> PyResult<ValueId> {
        let root = self.begin(object)?;
        while let Some(container) = self.open.last_mut() {
            if let Some(item) = container.items.next() {
                let id = self.begin(&item)?;
                if let Some(container) = self.open.iter_mut().rev().find(|one| one.id != id) {
                    container.done.push(id);
                }
                continue;
            }
            let Some(OpenContainer { id, kind, keys, done: items, .. }) = self.open.pop() else {
                break;
            };
            let value = match kind {
                ContainerKind::Dict(class) => {
                    Value::Dict(Dict { class, entries: keys.into_iter().zip(items).collect() })
                }
                ContainerKind::List => Value::List(List { items, ..List::default() }),
                ContainerKind::Tuple => Value::Tuple(Tuple { items, ..Tuple::default() }),
                ContainerKind::Set { frozen } => Value::Set(Set { frozen, items }),
            };
            self.set(id, value);
        }
        Ok(root)
    }

    fn push(&mut self, py: Python<'py>, value: Value) -> PyResult<ValueId> {
        self.builder.push(value).map_err(|error| raised(py, &error))
    }

    fn set(&mut self, id: ValueId, value: Value) {
        if let Some(place) = self.builder.value_mut(id) {
            *place = value;
        }
    }

    /// Collects an object, or opens it if it is a container; returns its id.
    fn begin(&mut self, object: &Bound<'py, PyAny>) -> PyResult<ValueId> {
        let py = object.py();
        if let Some(plain) = plain(object)? {
            return self.push(py, plain);
        }
        let identity = object.as_ptr() as usize;
        if let Some((known, _)) = self.seen.get(&identity) {
            let link = Value::Link(*known);
            return self.push(py, link);
        }
        if self.open.len() > MAX_DEPTH {
            return Err(raised(py, &Error::limit("the state dict is nested too deeply")));
        }
        let id = self.push(py, Value::None)?;
        self.seen.insert(identity, (id, object.clone()));
        if let Some(container) = self.container(object, id)? {
            self.open.push(container);
        } else if let Some(value) = self.described(object, id)? {
            self.set(id, value);
        }
        Ok(id)
    }

    /// Returns a container of Python that is still to be filled.
    fn container(
        &self,
        object: &Bound<'py, PyAny>,
        id: ValueId,
    ) -> PyResult<Option<OpenContainer<'py>>> {
        let mut keys = Vec::new();
        let (kind, items) = if let Ok(dict) = object.cast::<PyDict>() {
            let class = match dict.get_type().name()?.to_str()? {
                "OrderedDict" => DictClass::Ordered,
                _ => DictClass::Dict,
            };
            let mut items = Vec::new();
            for (key, item) in dict.iter() {
                keys.push(self.key_of(&key)?);
                items.push(item);
            }
            (ContainerKind::Dict(class), items)
        } else if let Ok(list) = object.cast::<PyList>() {
            (ContainerKind::List, list.iter().collect())
        } else if let Ok(tuple) = object.cast::<PyTuple>() {
            (ContainerKind::Tuple, tuple.iter().collect())
        } else {
            let frozen = object.is_instance_of::<PyFrozenSet>();
            if !frozen && !object.is_instance_of::<PySet>() {
                return Ok(None);
            }
            let members = object.try_iter()?.collect::<PyResult<_>>()?;
            (ContainerKind::Set { frozen }, members)
        };
        Ok(Some(OpenContainer { id, kind, keys, items: items.into_iter(), done: Vec::new() }))
    }

    /// Returns the value of an object that Python itself lacks; `None` if it was opened as a
    /// container.
    fn described(&mut self, object: &Bound<'py, PyAny>, id: ValueId) -> PyResult<Option<Value>> {
        let py = object.py();
        let key = to_python(py, &self.key().flat())?;
        let described = self.describe.call1((object, key))?;
        Ok(Some(match described.extract()? {
            Described::Array(dtype, shape, memory, scalar) => {
                let dtype = self.dtype(&dtype)?;
                let (file, len) = self.memory(&memory)?;
                let layout = Layout::Span(Span { file, offset: 0, len });
                let tensor = self.builder.push_tensor(Tensor::new(dtype, shape, layout));
                let tensor = tensor.map_err(|error| raised(py, &error))?;
                Value::Array(Array { tensor, scalar })
            }
            Described::Tensor(dtype, shape, address, memory, offset, strides) => {
                let view = (address, offset, shape.clone(), strides.clone(), dtype.clone());
                if let Some(tied) = self.views.get(&view) {
                    return Ok(Some(Value::Link(*tied)));
                }
                self.views.insert(view, id);
                let dtype = self.dtype(PyString::new(py, &dtype).as_any())?;
                let (file, len, number) = match self.storages.get(&address) {
                    Some(known) => *known,
                    None => {
                        let (file, len) = self.memory(&memory)?;
                        let added = (file, len, self.new_storage());
                        self.storages.insert(address, added);
                        added
                    }
                };
                let storage = Arc::new(Layout::Span(Span { file, offset: 0, len }));
                let strided = Strided { storage, storage_len: len, offset, strides };
                let tensor = Tensor::new(dtype, shape, Layout::Strided(strided));
                let tensor = Tensor { storage: Some(number), ..tensor };
                let tensor = self.builder.push_tensor(tensor);
                Value::Tensor(tensor.map_err(|error| raised(py, &error))?)
            }
            Described::Lazy(tensor, is_array, quantizer) => {
                self.lazy(&tensor, id, is_array, quantizer)?
            }
            Described::Sparse(layout, dtype, shape, parts, coalesced) => {
                let dtype = self.dtype(PyString::new(py, &dtype).as_any())?;
                let mut found = Vec::new();
                for (name, part) in parts.iter() {
                    let name = from_python(name.cast::<PyString>()?)?;
                    let known = SPARSE_PARTS.iter().find(|known| name.as_str() == Some(known));
                    if let Some(known) = known {
                        found.push((*known, self.leaf(&part)?));
                    }
                }
                let sparse = Sparse { layout, dtype, shape, parts: found, coalesced };
                Value::Sparse(Box::new(sparse))
            }
            Described::Quantized(dtype, shape, memory, scales) => {
                let dtype = self.dtype(PyString::new(py, &dtype).as_any())?;
                let quantizer = Some(match scales {
                    ScaleParts::Tensor(scale, zero_point) => {
                        Quantizer::PerTensor { scale, zero_point }
                    }
                    ScaleParts::Channels(scales, zero_points, axis) => {
                        let scales = self.leaf(&scales)?;
                        let zero_points = self.leaf(&zero_points)?;
                        Quantizer::PerChannel { scales, zero_points, axis }
                    }
                });
                let (file, len) = self.memory(&memory)?;
                let layout = Layout::Span(Span { file, offset: 0, len });
                let tensor = Tensor { quantizer, ..Tensor::new(dtype, shape, layout) };
                let tensor = self.builder.push_tensor(tensor);
                Value::Tensor(tensor.map_err(|error| raised(py, &error))?)
            }
            Described::Opaque((module, name, text)) => {
                let text = text.as_deref().map(Into::into);
                Value::Opaque(Box::new(Opaque::reference(Global::new(module, name), text)))
            }
            Described::DType(dtype, is_big) => {
                let order = |is_big| if is_big { ByteOrder::Big } else { ByteOrder::Little };
                Value::DType { dtype: self.dtype(&dtype)?, numpy: is_big.map(order) }
            }
            Described::Device(name) => Value::Device(name.as_str().into()),
            Described::Mapping(pairs) => {
                let (mut keys, mut items) = (Vec::new(), Vec::new());
                for pair in pairs.iter() {
                    let (key, item): (Bound<'py, PyAny>, Bound<'py, PyAny>) = pair.extract()?;
                    keys.push(self.key_of(&key)?);
                    items.push(item);
                }
                let kind = ContainerKind::Dict(DictClass::Dict);
                let (items, done) = (items.into_iter(), Vec::new());
                self.open.push(OpenContainer { id, kind, keys, items, done });
                return Ok(None);
            }
        }))
    }

    /// Refers to a tensor of an open checkpoint, which is read when it is written.
    fn lazy(
        &mut self,
        native: &Bound<'py, NativeTensor>,
        id: ValueId,
        is_array: bool,
        quantizer: Option<QuantizerParts<'py>>,
    ) -> PyResult<Value> {
        let tensor = &native.get().0;
        let known = self.relocations.iter().position(|(files, _)| files.is(tensor.files()));
        let set = known.unwrap_or(self.relocations.len());
        if known.is_none() {
            let relocation = Relocation::new(tensor.files(), &mut self.files);
            self.relocations.push((tensor.files().clone(), relocation));
            self.sources.extend(tensor.sources().iter().cloned());
        }
        let inner = tensor.inner();
        if let Some(origin) = inner.storage.map(Ok).or(tensor.id().map(Err)) {
            let equal = self.lazy.entry((set, origin)).or_default();
            if let Some((_, tied)) = equal.iter().find(|(other, _)| other == inner) {
                return Ok(Value::Link(*tied));
            }
            equal.push((inner.clone(), id));
        }
        let quantizer = match quantizer {
            None => None,
            Some(QuantizerParts::Tensor(scale, zero_point)) => {
                Some(Quantizer::PerTensor { scale, zero_point })
            }
            Some(QuantizerParts::Channels(scales, zero_points, axis)) => {
                let scales = self.part(&scales)?;
                Some(Quantizer::PerChannel { scales, zero_points: self.part(&zero_points)?, axis })
            }
        };
        let storage = inner.storage.map(|storage| {
            let known = self.lazy_storages.get(&(set, storage)).copied();
            known.unwrap_or_else(|| {
                let number = self.new_storage();
                self.lazy_storages.insert((set, storage), number);
                number
            })
        });
        // `Parameter` and `requires_grad` are not part of a state dict in Python, either.
        let plain = Tensor {
            storage,
            requires_grad: false,
            class: TensorClass::Tensor,
            quantizer,
            ..inner.clone()
        };
        let relocated = self.relocations.get(set).map(|(_, by)| by.tensor(&plain));
        let tensor = self.builder.push_tensor(relocated.unwrap_or(plain));
        let tensor = tensor.map_err(|error| raised(native.py(), &error))?;
        Ok(match is_array {
            true => Value::Array(Array { tensor, scalar: false }),
            false => Value::Tensor(tensor),
        })
    }

    /// Collects a tensor that is a part of another value; returns its id.
    fn leaf(&mut self, object: &Bound<'py, PyAny>) -> PyResult<ValueId> {
        let id = self.push(object.py(), Value::None)?;
        if let Some(value) = self.described(object, id)? {
            self.set(id, value);
        }
        Ok(id)
    }

    /// Adds a tensor of an open checkpoint that is a part of another value; returns its id.
    fn part(&mut self, native: &Bound<'py, NativeTensor>) -> PyResult<ValueId> {
        let id = self.push(native.py(), Value::None)?;
        let value = self.lazy(native, id, false, None)?;
        self.set(id, value);
        Ok(id)
    }

    fn dtype(&self, dtype: &Bound<'py, PyAny>) -> PyResult<DType> {
        dtype_of(dtype)?.ok_or_else(|| {
            let what = match dtype.str() {
                Ok(name) => format!("no format has the dtype `{name}`"),
                Err(_) => "no format has this dtype".into(),
            };
            raised(dtype.py(), &self.at(Error::unsupported(what)))
        })
    }

    /// Returns the number of a new storage.
    fn new_storage(&mut self) -> u32 {
        let number = self.next_storage;
        self.next_storage = number.saturating_sub(1);
        number
    }

    /// Adds the memory of an array to the files; returns its file and its length.
    fn memory(&mut self, memory: &Bound<'py, PyAny>) -> PyResult<(FileId, u64)> {
        let memory = Memory::new(memory)?;
        let len = memory.byte_len();
        let name = format!("tensor {}", self.files.count());
        Ok((self.files.push(name, Arc::new(memory)), len))
    }

    /// Returns the key of the item that is being collected.
    fn key(&self) -> Key {
        let innermost = self.open.len().saturating_sub(1);
        let parts = self.open.iter().enumerate().map(|(depth, container)| {
            // The container in it is one of its items already.
            let at = container.done.len().saturating_sub(usize::from(depth < innermost));
            match (&container.kind, container.keys.get(at)) {
                (ContainerKind::Dict(_), Some(key)) => KeyPart::Field(key.clone()),
                _ => KeyPart::Index(at as u64),
            }
        });
        Key { parts: parts.collect() }
    }

    /// Adds the key of the item that is being collected to an error.
    fn at(&self, error: Error) -> Error {
        match self.key().flat() {
            key if key.is_empty() => error,
            key => error.context(format!("`{key}`")),
        }
    }

    /// Converts the key of a dict, without recursion.
    fn key_of(&self, key: &Bound<'py, PyAny>) -> PyResult<DictKey> {
        // The tuples around the current part: their parts so far, and those still to come.
        let mut outer: Vec<(Vec<DictKey>, std::vec::IntoIter<Bound<'py, PyAny>>)> = Vec::new();
        let mut next = key.clone();
        loop {
            let mut made = if let Ok(items) = next.cast_exact::<PyTuple>() {
                if outer.len() >= MAX_KEY_DEPTH {
                    let what = format!("a key has tuples in more than {MAX_KEY_DEPTH} tuples");
                    return Err(raised(key.py(), &self.at(Error::limit(what))));
                }
                outer.push((Vec::new(), items.iter().collect::<Vec<_>>().into_iter()));
                None
            } else {
                Some(self.plain_key(&next)?)
            };
            // Completes the tuples that end here.
            loop {
                let Some((parts, items)) = outer.last_mut() else {
                    match made {
                        Some(key) => return Ok(key),
                        None => break,
                    }
                };
                parts.extend(made.take());
                if let Some(item) = items.next() {
                    next = item;
                    break;
                }
                made = outer.pop().map(|(parts, _)| DictKey::Tuple(parts));
            }
        }
    }

    fn plain_key(&self, key: &Bound<'py, PyAny>) -> PyResult<DictKey> {
        Ok(match plain(key)? {
            Some(Value::None) => DictKey::None,
            Some(Value::Bool(value)) => DictKey::Bool(value),
            Some(Value::Int(value)) => DictKey::Int(value),
            Some(Value::Float(value)) => DictKey::Float(value),
            Some(Value::Str(value)) => DictKey::Str(value),
            Some(Value::Bytes { data, mutable: false }) => DictKey::Bytes(data),
            _ => {
                let what = format!("{} can't be the key of a dict", key.repr()?);
                return Err(raised(key.py(), &self.at(Error::unsupported(what))));
            }
        })
    }
}

/// Returns a state dict as an open checkpoint, which can be converted to any format.
#[pyfunction]
pub(crate) fn collect<'py>(
    object: &Bound<'py, PyAny>,
    describe: Bound<'py, PyAny>,
) -> PyResult<NativeCheckpoint> {
    Collector::collect(object, describe).map(NativeCheckpoint::from)
}

/// Returns an open checkpoint in which some leaves have other values.
#[pyfunction]
pub(crate) fn updated<'py>(
    of: &Bound<'py, NativeCheckpoint>,
    updates: &Bound<'py, PyDict>,
    describe: Bound<'py, PyAny>,
) -> PyResult<NativeCheckpoint> {
    Collector::update(of.get(), updates, describe).map(NativeCheckpoint::from)
}
