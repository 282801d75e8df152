//! State dicts of Python as checkpoints, to be written.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyComplex, PyDict, PyFloat, PyFrozenSet, PyInt, PyList,
    PyMemoryView, PySet, PySlice, PyString, PyTuple,
};
use statelens::parts::checkpoint::{
    Array, Builder, Dict, DictClass, DictKey, FileSet, FormatInfo, Int, Layout, Limits, List, Set,
    Span, Tensor, Text, Tuple, ValueId,
};
use statelens::{Checkpoint, DType, Error, ReadAt, Result, Value};

use crate::checkpoint::NativeCheckpoint;
use crate::errors::raised;

/// Containers in containers that are followed: Python's own limit.
const MOST_DEPTH: usize = 1_000;

/// Collects the values of a state dict. Tensors stay where they are in memory.
pub(crate) struct Collector<'py> {
    /// Describes tensors, arrays and others; `pystatelens._savers.described`.
    describe: Bound<'py, PyAny>,
    builder: Builder,
    files: FileSet,
    /// The values by identity of their objects, which are held so that no other takes their place.
    seen: HashMap<usize, (ValueId, Bound<'py, PyAny>)>,
}

/// What `describe` returns for an object that Python itself lacks.
#[derive(FromPyObject)]
enum Described<'py> {
    /// dtype, shape, the memory, whether it is an array, and whether it is a scalar.
    Memory(String, Vec<u64>, Bound<'py, PyAny>, bool, bool),
    /// The names of a dtype, and whether it is NumPy's.
    DType(String, bool),
    /// A device.
    Device(String),
}

impl<'py> Collector<'py> {
    /// Returns a checkpoint with the values of `object`.
    pub(crate) fn collect(
        object: &Bound<'py, PyAny>,
        describe: Bound<'py, PyAny>,
    ) -> PyResult<Checkpoint> {
        // Its own program made it, so no size is suspicious.
        let limits = Limits::none();
        let builder = Builder::new(&limits);
        let (files, seen) = (FileSet::default().within(&limits), HashMap::new());
        let mut collector = Self { describe, builder, files, seen };
        let root = collector.value(object, 0)?;
        let Self { builder, files, .. } = collector;
        let core = builder.finish(root, FormatInfo::default(), files, Vec::new());
        core.map(Checkpoint::from).map_err(|error| raised(object.py(), &error))
    }

    fn push(&mut self, py: Python<'py>, value: Value) -> PyResult<ValueId> {
        self.builder.push(value).map_err(|error| raised(py, &error))
    }

    fn value(&mut self, object: &Bound<'py, PyAny>, depth: usize) -> PyResult<ValueId> {
        let py = object.py();
        if let Some(plain) = plain(object)? {
            return self.push(py, plain);
        }
        let identity = object.as_ptr() as usize;
        if let Some((known, _)) = self.seen.get(&identity) {
            let link = Value::Link(*known);
            return self.push(py, link);
        }
        if depth > MOST_DEPTH {
            return Err(raised(py, &Error::limit("the state dict is nested too deeply")));
        }
        let id = self.push(py, Value::None)?;
        self.seen.insert(identity, (id, object.clone()));
        let value = match self.container(object, depth + 1)? {
            Some(value) => value,
            None => self.described(object)?,
        };
        if let Some(place) = self.builder.value_mut(id) {
            *place = value;
        }
        Ok(id)
    }

    fn items(
        &mut self,
        items: impl Iterator<Item = Bound<'py, PyAny>>,
        depth: usize,
    ) -> PyResult<Vec<ValueId>> {
        items.map(|item| self.value(&item, depth)).collect()
    }

    fn container(&mut self, object: &Bound<'py, PyAny>, depth: usize) -> PyResult<Option<Value>> {
        if let Ok(dict) = object.cast::<PyDict>() {
            let class = match dict.get_type().name()?.to_str()? {
                "OrderedDict" => DictClass::Ordered,
                _ => DictClass::Dict,
            };
            let mut entries = Vec::new();
            for (key, item) in dict.iter() {
                entries.push((key_of(&key)?, self.value(&item, depth)?));
            }
            return Ok(Some(Value::Dict(Dict { class, entries })));
        }
        if let Ok(list) = object.cast::<PyList>() {
            let items = self.items(list.iter(), depth)?;
            return Ok(Some(Value::List(List { items, ..List::default() })));
        }
        if let Ok(tuple) = object.cast::<PyTuple>() {
            let items = self.items(tuple.iter(), depth)?;
            return Ok(Some(Value::Tuple(Tuple { items, ..Tuple::default() })));
        }
        let frozen = object.is_instance_of::<PyFrozenSet>();
        if frozen || object.is_instance_of::<PySet>() {
            let members = object.try_iter()?.collect::<PyResult<Vec<_>>>()?;
            let items = self.items(members.into_iter(), depth)?;
            return Ok(Some(Value::Set(Set { frozen, items })));
        }
        Ok(None)
    }

    fn described(&mut self, object: &Bound<'py, PyAny>) -> PyResult<Value> {
        let py = object.py();
        let unknown =
            |name: &str| raised(py, &Error::refused(format!("there is no dtype `{name}`")));
        match self.describe.call1((object,))?.extract()? {
            Described::Memory(name, shape, memory, is_array, scalar) => {
                let dtype = DType::from_torch_name(&name).ok_or_else(|| unknown(&name))?;
                let memory = Memory::new(&memory)?;
                let len = memory.len();
                let file =
                    self.files.push(format!("tensor {}", self.files.count()), Arc::new(memory));
                let layout = Layout::Span(Span { file, offset: 0, len });
                let tensor = self.builder.push_tensor(Tensor::new(dtype, shape, layout));
                let tensor = tensor.map_err(|error| raised(py, &error))?;
                Ok(match is_array {
                    true => Value::Array(Array { tensor, scalar }),
                    false => Value::Tensor(tensor),
                })
            }
            Described::DType(name, numpy) => {
                let dtype = DType::from_torch_name(&name).ok_or_else(|| unknown(&name))?;
                Ok(Value::DType { dtype, numpy })
            }
            Described::Device(name) => Ok(Value::Device(name.as_str().into())),
        }
    }
}

/// Returns the value of an object that is not a container.
fn plain(object: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    Ok(Some(if object.is_none() {
        Value::None
    } else if object.is_exact_instance_of::<PyBool>() {
        Value::Bool(object.extract()?)
    } else if object.is_exact_instance_of::<PyInt>() {
        Value::Int(int(object)?)
    } else if object.is_exact_instance_of::<PyFloat>() {
        Value::Float(object.extract()?)
    } else if object.is_exact_instance_of::<PyString>() {
        Value::Str(text(object)?)
    } else if let Ok(bytes) = object.cast_exact::<PyBytes>() {
        Value::Bytes { data: bytes.as_bytes().into(), mutable: false }
    } else if let Ok(bytes) = object.cast_exact::<PyByteArray>() {
        Value::Bytes { data: bytes.to_vec().into(), mutable: true }
    } else if object.is_exact_instance_of::<PyComplex>() {
        Value::Complex(object.getattr("real")?.extract()?, object.getattr("imag")?.extract()?)
    } else {
        return Ok(None);
    }))
}

fn key_of(key: &Bound<'_, PyAny>) -> PyResult<DictKey> {
    if let Ok(items) = key.cast_exact::<PyTuple>() {
        // A key that contains itself does not exist: tuples are complete when they are hashed.
        return Ok(DictKey::Tuple(
            items.iter().map(|item| key_of(&item)).collect::<PyResult<_>>()?,
        ));
    }
    Ok(match plain(key)? {
        Some(Value::None) => DictKey::None,
        Some(Value::Bool(value)) => DictKey::Bool(value),
        Some(Value::Int(value)) => DictKey::Int(value),
        Some(Value::Float(value)) => DictKey::Float(value),
        Some(Value::Str(value)) => DictKey::Str(value),
        Some(Value::Bytes { data, mutable: false }) => DictKey::Bytes(data),
        _ => {
            let error = Error::unsupported(format!("{} can't be the key of a dict", key.repr()?));
            return Err(raised(key.py(), &error));
        }
    })
}

fn int(object: &Bound<'_, PyAny>) -> PyResult<Int> {
    if let Ok(small) = object.extract::<i64>() {
        return Ok(small.into());
    }
    let bits: usize = object.call_method0("bit_length")?.extract()?;
    let options = PyDict::new(object.py());
    options.set_item("signed", true)?;
    let bytes = object.call_method("to_bytes", (bits / 8 + 1, "little"), Some(&options))?;
    Ok(Int::from_le_bytes(bytes.cast::<PyBytes>()?.as_bytes()))
}

/// Returns a string, which may have lone surrogates.
fn text(object: &Bound<'_, PyAny>) -> PyResult<Text> {
    let bytes = object.call_method1("encode", ("utf-8", "surrogatepass"))?;
    let text = Text::from_surrogatepass(bytes.cast::<PyBytes>()?.as_bytes());
    text.map_err(|_| raised(object.py(), &Error::damaged("a string that is not Unicode")))
}

/// The memory of an array.
struct Memory {
    /// A `memoryview` of its bytes.
    view: Py<PyAny>,
    len: u64,
}

impl Memory {
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let view = PyMemoryView::from(object)?;
        Ok(Self { len: view.len()? as u64, view: view.into_any().unbind() })
    }

    fn copy(&self, py: Python<'_>, offset: u64, out: &mut [u8]) -> PyResult<()> {
        let start = isize::try_from(offset)?;
        let stop = start.saturating_add(isize::try_from(out.len())?);
        let part = self.view.bind(py).get_item(PySlice::new(py, start, stop, 1))?;
        PyBuffer::<u8>::get(&part)?.copy_to_slice(py, out)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({})", self.len)
    }
}

impl ReadAt for Memory {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        Python::attach(|py| self.copy(py, offset, out)).map_err(|error| {
            Error::io(format!("reading memory failed: {error}")).at(offset).caused_by(error)
        })
    }
}

/// A state dict as an open checkpoint, which can be converted to any format.
#[pyfunction]
pub(crate) fn collect<'py>(
    object: &Bound<'py, PyAny>,
    describe: Bound<'py, PyAny>,
) -> PyResult<NativeCheckpoint> {
    Collector::collect(object, describe).map(NativeCheckpoint)
}
