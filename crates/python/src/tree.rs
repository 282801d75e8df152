//! Values of a state dict as Python objects.

use std::collections::{HashMap, HashSet};

use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{
    PyByteArray, PyBytes, PyComplex, PyDict, PyFrozenSet, PyInt, PyList, PySet, PyTuple,
};
use statelens::parts::checkpoint::{
    ByteOrder, DType, DictClass, DictKey, Int, Layout, List, ListClass, Opaque, Quantizer, Set,
    Span, Sparse, Tensor, TensorClass, TensorId, Text, ValueId,
};
use statelens::{Checkpoint, Error, Value};

use crate::dtype::numpy_only;
use crate::errors::raised;
use crate::sharing::{SharedStorages, StorageKey, StorageView};
use crate::tensor::NativeTensor;
use crate::text::to_python;

/// Builds Python objects. An object that occurs several times in the checkpoint is one object here,
/// so tied tensors stay tied. `maker` makes tensors and whatever else Python itself lacks; its
/// methods are those of `pystatelens._makers.Maker`.
pub(crate) struct Trees<'a, 'py> {
    checkpoint: &'a Checkpoint,
    maker: &'a Bound<'py, PyAny>,
    /// The first key of each tensor.
    keys: HashMap<TensorId, String>,
    made: HashMap<ValueId, Bound<'py, PyAny>>,
    /// The tensors made, by storage and first element: the same view of a storage is one object.
    views: HashMap<(u32, u64), Vec<MadeTensor<'py>>>,
    /// Tuples and frozen sets whose items are being made.
    begun: HashSet<ValueId>,
    /// The storages that several views share, if they share memory in the result.
    shared: SharedStorages,
    /// The memory of these storages.
    memory: HashMap<StorageKey, Bound<'py, PyAny>>,
}

/// A tensor and its Python object.
type MadeTensor<'py> = (TensorId, Bound<'py, PyAny>);

/// The next thing to do; there is no recursion on the depth of a file.
enum Task {
    Visit(ValueId),
    /// All items of this container have been visited.
    Finish(ValueId),
}

impl<'a, 'py> Trees<'a, 'py> {
    /// Builds the leaf `id`, which has the key `key`.
    pub(crate) fn of_leaf(
        checkpoint: &'a Checkpoint,
        id: ValueId,
        key: &str,
        maker: &'a Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let tensor = checkpoint.inner().tensor_of(id);
        let keys = tensor.map(|(tensor, _)| (tensor, key.to_owned())).into_iter().collect();
        Self::new(checkpoint, maker, keys).build(id)
    }

    /// Builds the value `id` with everything below it. `keys` are those of the tensors.
    pub(crate) fn below(
        checkpoint: &'a Checkpoint,
        id: ValueId,
        keys: HashMap<TensorId, String>,
        maker: &'a Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut trees = Self::new(checkpoint, maker, keys);
        if maker.getattr("shares_memory")?.extract()? {
            trees.shared = SharedStorages::below(checkpoint.inner(), id);
        }
        trees.build(id)
    }

    fn new(
        checkpoint: &'a Checkpoint,
        maker: &'a Bound<'py, PyAny>,
        keys: HashMap<TensorId, String>,
    ) -> Self {
        Self {
            checkpoint,
            maker,
            keys,
            made: HashMap::new(),
            views: HashMap::new(),
            begun: HashSet::new(),
            shared: SharedStorages::default(),
            memory: HashMap::new(),
        }
    }

    fn build(mut self, id: ValueId) -> PyResult<Bound<'py, PyAny>> {
        let mut tasks = vec![Task::Visit(id)];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Visit(id) => self.visit(id, &mut tasks)?,
                Task::Finish(id) => self.finish(id)?,
            }
        }
        self.made(id)
    }

    fn py(&self) -> Python<'py> {
        self.maker.py()
    }

    fn made(&self, id: ValueId) -> PyResult<Bound<'py, PyAny>> {
        let made = self.made.get(&self.checkpoint.inner().resolve(id)).cloned();
        made.ok_or_else(|| {
            let error = Error::unsupported("a tuple that contains itself has no value in Python");
            raised(self.py(), &error)
        })
    }

    /// Makes the object of a value. Containers are finished when their items are made; lists and
    /// dicts exist before, because their items may refer to them.
    fn visit(&mut self, id: ValueId, tasks: &mut Vec<Task>) -> PyResult<()> {
        let core = self.checkpoint.inner();
        let id = core.resolve(id);
        if self.made.contains_key(&id) {
            return Ok(());
        }
        let value = core.value(id);
        let object = match value {
            Value::List(List { class, .. }) => Some(self.list(*class)?),
            Value::Dict(dict) => Some(self.dict(&dict.class)?),
            Value::Set(Set { frozen: false, .. }) => Some(PySet::empty(self.py())?.into_any()),
            Value::Tuple(_) | Value::Set(_) => None,
            value => {
                let leaf = self.leaf(value)?;
                self.made.insert(id, leaf);
                return Ok(());
            }
        };
        match object {
            Some(object) => drop(self.made.insert(id, object)),
            // It is above this place, so its items refer to it.
            None if !self.begun.insert(id) => return Ok(()),
            None => {}
        }
        tasks.push(Task::Finish(id));
        tasks.extend(value.children().into_iter().rev().map(Task::Visit));
        Ok(())
    }

    fn finish(&mut self, id: ValueId) -> PyResult<()> {
        let py = self.py();
        let core = self.checkpoint.inner();
        match core.value(id) {
            Value::List(list) => {
                let object = self.made(id)?;
                for item in &list.items {
                    object.call_method1("append", (self.made(*item)?,))?;
                }
            }
            Value::Dict(dict) => {
                let object = self.made(id)?;
                for (key, item) in &dict.entries {
                    object.set_item(self.key(key)?, self.made(*item)?)?;
                }
            }
            Value::Set(set) => {
                let items = set.items.iter().map(|item| self.made(*item));
                let items = items.collect::<PyResult<Vec<_>>>()?;
                let filled = match set.frozen {
                    true => PyFrozenSet::new(py, items).map(|made| made.into_any()),
                    false => self.made(id).and_then(|object| {
                        object.call_method1("update", (items,))?;
                        Ok(object)
                    }),
                };
                self.made.insert(id, filled.map_err(|error| unhashable(py, error))?);
            }
            Value::Tuple(tuple) => {
                let items = tuple.items.iter().map(|item| self.made(*item));
                let items = items.collect::<PyResult<Vec<_>>>()?;
                self.made.insert(id, PyTuple::new(py, items)?.into_any());
            }
            _ => {}
        }
        Ok(())
    }

    fn list(&self, class: ListClass) -> PyResult<Bound<'py, PyAny>> {
        match class {
            ListClass::List => Ok(PyList::empty(self.py()).into_any()),
            ListClass::Deque(most) => {
                let deque = self.py().import("collections")?.getattr("deque")?;
                deque.call1((PyTuple::empty(self.py()), most))
            }
        }
    }

    /// Returns an empty dict of a class of the standard library; `dict` for others.
    fn dict(&self, class: &DictClass) -> PyResult<Bound<'py, PyAny>> {
        let name = match class {
            DictClass::Ordered => "OrderedDict",
            DictClass::Default(_) => "defaultdict",
            DictClass::Counter => "Counter",
            DictClass::Dict | DictClass::Other(_) | DictClass::Object(_) => {
                return Ok(PyDict::new(self.py()).into_any());
            }
        };
        self.py().import("collections")?.getattr(name)?.call0()
    }

    fn key(&self, key: &DictKey) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py();
        match key {
            DictKey::Str(text) | DictKey::Other(text) => self.text(text),
            DictKey::Int(int) => self.int(int),
            DictKey::Bool(value) => value.into_bound_py_any(py),
            DictKey::Float(value) => value.into_bound_py_any(py),
            DictKey::None => Ok(py.None().into_bound(py)),
            DictKey::Bytes(bytes) => Ok(PyBytes::new(py, bytes).into_any()),
            // The depth of such a key is bounded by the reader.
            DictKey::Tuple(keys) => {
                let keys = keys.iter().map(|key| self.key(key)).collect::<PyResult<Vec<_>>>()?;
                Ok(PyTuple::new(py, keys)?.into_any())
            }
        }
    }

    fn leaf(&mut self, value: &Value) -> PyResult<Bound<'py, PyAny>> {
        let (py, maker) = (self.py(), self.maker);
        match value {
            Value::Bool(value) => value.into_bound_py_any(py),
            Value::Int(int) => self.int(int),
            Value::Float(value) => value.into_bound_py_any(py),
            Value::Complex(real, imaginary) => {
                Ok(PyComplex::from_doubles(py, *real, *imaginary).into_any())
            }
            Value::Str(text) => self.text(text),
            Value::Bytes { data, mutable: true } => Ok(PyByteArray::new(py, data).into_any()),
            Value::Bytes { data, .. } => Ok(PyBytes::new(py, data).into_any()),
            Value::Tensor(id) => self.view(*id),
            Value::Array(array) => {
                maker.call_method1("array", (self.tensor(array.tensor)?, array.scalar))
            }
            Value::Sparse(sparse) => self.sparse(sparse),
            Value::DType { dtype, numpy } => {
                let descr = numpy_only(py, dtype)?;
                let big = numpy.map(|order| order == ByteOrder::Big);
                maker.call_method1("dtype", (dtype.name(), big, descr))
            }
            Value::Device(name) => maker.call_method1("device", (self.text(name)?,)),
            Value::Opaque(opaque) => self.opaque(opaque),
            Value::None
            | Value::Link(_)
            | Value::List(_)
            | Value::Tuple(_)
            | Value::Set(_)
            | Value::Dict(_) => Ok(py.None().into_bound(py)),
        }
    }

    /// Makes a tensor, unless another that is the same view of the same storage was made.
    fn view(&mut self, id: TensorId) -> PyResult<Bound<'py, PyAny>> {
        let core = self.checkpoint.inner();
        let tensor = core.tensor(id).map_err(|error| raised(self.py(), &error))?;
        let start = match &tensor.layout {
            Layout::Strided(view) => view.offset,
            _ => 0,
        };
        let place = tensor.storage.map(|storage| (storage, start));
        let known = place.and_then(|place| self.views.get(&place));
        let same = known.into_iter().flatten().find(|(other, _)| core.tensor(*other) == Ok(tensor));
        if let Some((_, made)) = same {
            return Ok(made.clone());
        }
        let mut made = match self.shared.view(tensor) {
            Some((view, covered, first)) => self.shared_view(id, tensor, &view, covered, first)?,
            None => self.maker.call_method1("tensor", (self.tensor(id)?, self.quantizer(id)?))?,
        };
        let is_parameter = tensor.class == TensorClass::Parameter;
        if is_parameter || tensor.requires_grad {
            made =
                self.maker.call_method1("wrapped", (made, is_parameter, tensor.requires_grad))?;
        }
        if let Some(place) = place {
            self.views.entry(place).or_default().push((id, made.clone()));
        }
        Ok(made)
    }

    /// Makes a view of the memory that the views of a storage share, which is read once.
    fn shared_view(
        &mut self,
        id: TensorId,
        tensor: &Tensor,
        view: &StorageView,
        covered: Span,
        first: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let memory = match self.memory.get(&view.storage) {
            Some(memory) => memory.clone(),
            None => {
                let bytes = Tensor::new(DType::U8, vec![covered.len], Layout::Span(covered));
                let bytes = NativeTensor(self.tensor(id)?.0.with(bytes));
                let memory = self.maker.call_method1("memory", (bytes,))?;
                self.memory.insert(view.storage, memory.clone());
                memory
            }
        };
        let shape = PyTuple::new(self.py(), &tensor.shape)?;
        let strides = PyTuple::new(self.py(), &view.strides)?;
        let dtype = tensor.dtype.name();
        self.maker.call_method1("view", (self.tensor(id)?, memory, dtype, shape, first, strides))
    }

    fn tensor(&self, id: TensorId) -> PyResult<NativeTensor> {
        let key = self.keys.get(&id).map_or("", |key| key);
        let tensor = self.checkpoint.tensor_by_id(id, key);
        tensor.map(NativeTensor).map_err(|error| raised(self.py(), &error))
    }

    /// Returns the scale and the zero point of a quantised tensor; for one per channel, tensors of
    /// them and the axis.
    fn quantizer(&self, id: TensorId) -> PyResult<Option<Bound<'py, PyAny>>> {
        let core = self.checkpoint.inner();
        let tensor = core.tensor(id).map_err(|error| raised(self.py(), &error))?;
        let part = |id: ValueId| match core.tensor_of(id) {
            Some((tensor, _)) => self.tensor(tensor).map(Some),
            None => Ok(None),
        };
        match &tensor.quantizer {
            None => Ok(None),
            Some(Quantizer::PerTensor { scale, zero_point }) => {
                (*scale, *zero_point).into_bound_py_any(self.py()).map(Some)
            }
            Some(Quantizer::PerChannel { scales, zero_points, axis }) => {
                let parts = (part(*scales)?, part(*zero_points)?, *axis);
                parts.into_bound_py_any(self.py()).map(Some)
            }
        }
    }

    fn sparse(&self, sparse: &Sparse) -> PyResult<Bound<'py, PyAny>> {
        let parts = PyDict::new(self.py());
        for (name, id) in &sparse.parts {
            if let Some((tensor, _)) = self.checkpoint.inner().tensor_of(*id) {
                parts.set_item(name, self.tensor(tensor)?)?;
            }
        }
        let shape = PyTuple::new(self.py(), &sparse.shape)?;
        let about = (&sparse.layout, sparse.dtype.name(), shape, parts, sparse.coalesced);
        self.maker.call_method1("sparse", about)
    }

    fn opaque(&self, opaque: &Opaque) -> PyResult<Bound<'py, PyAny>> {
        let repr = opaque.repr.as_ref().map(|repr| self.text(repr)).transpose()?;
        let name = (&*opaque.global.module, &*opaque.global.name, repr);
        self.maker.call_method1("opaque", name)
    }

    fn int(&self, int: &Int) -> PyResult<Bound<'py, PyAny>> {
        match int.to_i64() {
            Some(small) => small.into_bound_py_any(self.py()),
            None => {
                let options = PyDict::new(self.py());
                options.set_item("signed", true)?;
                let bytes = PyBytes::new(self.py(), &int.to_le_bytes());
                let class = self.py().get_type::<PyInt>();
                class.call_method("from_bytes", (bytes, "little"), Some(&options))
            }
        }
    }

    fn text(&self, text: &Text) -> PyResult<Bound<'py, PyAny>> {
        to_python(self.py(), text)
    }
}

/// Returns the error for a set whose members Python can't hash, which only a crafted file has.
fn unhashable(py: Python<'_>, error: PyErr) -> PyErr {
    match error.is_instance_of::<PyTypeError>(py) {
        true => {
            let what = "a set with a member that can't be hashed has no value in Python";
            raised(py, &Error::unsupported(what).caused_by(error))
        }
        false => error,
    }
}
