//! The values of a state dict.
//!
//! Values live in one table ([`crate::Checkpoint::value`]) and refer to each other by [`ValueId`].
//! Every value has exactly one parent; a further occurrence of the same object is a
//! [`Value::Link`]. So a file can't make the tree larger than itself by naming a list a thousand
//! times, a cycle is finite, and nothing recurses on depth, dropping included.

use std::fmt;
use std::sync::Arc;

use crate::{ByteOrder, DType, Int, TensorId, Text, ValueId};

/// One value of a state dict.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Python's `None`.
    None,
    /// A bool.
    Bool(bool),
    /// An integer of any size.
    Int(Int),
    /// A float; NaN, infinities and -0.0 included.
    Float(f64),
    /// A complex number: real, imaginary.
    Complex(f64, f64),
    /// A string.
    Str(Text),
    /// `bytes`, or `bytearray` if `mutable`.
    Bytes {
        /// The bytes.
        data: Arc<[u8]>,
        /// Whether it is a `bytearray`.
        mutable: bool,
    },
    /// A list or deque.
    List(List),
    /// A tuple, named tuple or `torch.Size`.
    Tuple(Tuple),
    /// A set or frozenset.
    Set(Set),
    /// A dict of any class.
    Dict(Dict),
    /// A torch tensor.
    Tensor(TensorId),
    /// A numpy array or scalar.
    Array(Array),
    /// A sparse torch tensor.
    Sparse(Box<Sparse>),
    /// A dtype as a value.
    DType {
        /// The dtype.
        dtype: DType,
        /// The byte order of numpy's dtype; `None` for torch's.
        numpy: Option<ByteOrder>,
    },
    /// A `torch.device`, e.g. `cuda:0`.
    Device(Text),
    /// The same object as another value: tied weights, a shared list, a cycle. Its target is never
    /// a link.
    Link(ValueId),
    /// A global that a pickle names, with its arguments. Never instantiated.
    Opaque(Box<Opaque>),
}

/// A list or similar.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct List {
    /// Kind of list.
    pub class: ListClass,
    /// The items.
    pub items: Vec<ValueId>,
}

/// The kinds of lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListClass {
    /// `list`.
    #[default]
    List,
    /// `collections.deque` and its `maxlen`.
    Deque(Option<u64>),
}

/// A tuple or similar.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tuple {
    /// Kind of tuple.
    pub class: TupleClass,
    /// The items.
    pub items: Vec<ValueId>,
}

/// The kinds of tuples.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TupleClass {
    /// `tuple`.
    #[default]
    Tuple,
    /// `torch.Size`; its items are integers.
    Size,
    /// The class of a named tuple. In an `Arc` because most values don't need it.
    Named(Arc<Global>),
}

/// A set.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Set {
    /// Whether it is a `frozenset`.
    pub frozen: bool,
    /// The members, in file order.
    pub items: Vec<ValueId>,
}

/// An ordered dict of any class.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Dict {
    /// Kind of dict.
    pub class: DictClass,
    /// Keys and values in file order. A later entry with the same key has replaced the earlier one.
    pub entries: Vec<(DictKey, ValueId)>,
}

/// The kinds of dicts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DictClass {
    /// `dict`.
    #[default]
    Dict,
    /// `collections.OrderedDict`.
    Ordered,
    /// `collections.defaultdict` and its factory for missing keys.
    Default(Option<Arc<Global>>),
    /// `collections.Counter`.
    Counter,
    /// A subclass, or an object that was filled like a dict.
    Other(Arc<Global>),
    /// An object that was not instantiated: its attributes and constructor arguments. The entry
    /// `__class__` is its class, `__reduce__` the function that would return it.
    Object(Arc<Global>),
}

/// A key of a dict, with its type.
#[derive(Debug, Clone, PartialEq)]
pub enum DictKey {
    /// A string.
    Str(Text),
    /// An integer.
    Int(Int),
    /// A bool.
    Bool(bool),
    /// A float.
    Float(f64),
    /// `None`.
    None,
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A tuple of keys.
    Tuple(Vec<DictKey>),
    /// Any other hashable value, as Python prints it.
    Other(Text),
}

/// A numpy array or scalar.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// The elements.
    pub tensor: TensorId,
    /// Whether it is a numpy scalar rather than an array without dimensions.
    pub scalar: bool,
}

/// A sparse torch tensor, as its dense parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Sparse {
    /// `sparse_coo`, `sparse_csr`, `sparse_csc`, `sparse_bsr` or `sparse_bsc`.
    pub layout: String,
    /// Element type of the values.
    pub dtype: DType,
    /// Shape of the sparse tensor.
    pub shape: Vec<u64>,
    /// The parts by torch's names: `indices` and `values`, or `crow_indices`, `col_indices`, …
    pub parts: Vec<(&'static str, ValueId)>,
    /// The `is_coalesced` flag of a COO tensor.
    pub coalesced: Option<bool>,
}

/// The dotted name of a Python object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Global {
    /// The module, e.g. `collections`.
    pub module: Arc<str>,
    /// The name within the module, e.g. `OrderedDict`; may contain dots.
    pub name: Arc<str>,
}

impl Global {
    /// Creates the global `module.name`.
    pub fn new(module: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { module: module.into(), name: name.into() }
    }

    /// Returns whether this is `module.name`.
    pub fn is(&self, module: &str, name: &str) -> bool {
        *self.module == *module && *self.name == *name
    }
}

impl fmt::Display for Global {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.module, self.name)
    }
}

/// A global that a pickle names, with the arguments that it would have been called with. Nothing
/// was called.
#[derive(Debug, Clone, PartialEq)]
pub struct Opaque {
    /// The class or function.
    pub global: Global,
    /// How it was used.
    pub form: Form,
    /// Positional arguments.
    pub args: Vec<ValueId>,
    /// The state that `BUILD` would have set.
    pub state: Option<ValueId>,
    /// The items that `APPEND` would have added.
    pub items: Vec<ValueId>,
    /// The entries that `SETITEM` would have set; also keyword arguments.
    pub entries: Vec<(ValueId, ValueId)>,
    /// Python's `repr` of it, for the harmless classes that we know (dates, paths, ranges, …).
    pub repr: Option<Text>,
    /// The tensor to compare instead of `repr`, if that is only a beginning: a digest of each
    /// element, or the reason why they are not known. It is not part of the tree, and never converted.
    pub contents: Option<TensorId>,
}

impl Opaque {
    /// Creates a global that is only named, or a format's own kind of value; printed as `repr`.
    pub fn reference(global: Global, repr: Option<Text>) -> Self {
        Self {
            global,
            form: Form::Reference,
            args: Vec::new(),
            state: None,
            items: Vec::new(),
            entries: Vec::new(),
            repr,
            contents: None,
        }
    }
}

/// How a pickle uses a global.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Only named: a class or function as a value.
    Reference,
    /// Called with arguments (`REDUCE`, `INST`, `OBJ`).
    Call,
    /// Created without calling `__init__` (`NEWOBJ`, `NEWOBJ_EX`).
    Instance,
}

impl Value {
    /// Returns the values directly below this one, in order; not the target of a link.
    pub fn children(&self) -> Vec<ValueId> {
        let mut ids = Vec::new();
        self.each_child(|id| ids.push(id));
        ids
    }

    /// Removes the items and entries of a container whose values `keep` refuses.
    pub fn retain_children(&mut self, keep: impl Fn(&ValueId) -> bool) {
        match self {
            Self::Dict(Dict { entries, .. }) => entries.retain(|(_, id)| keep(id)),
            Self::List(List { items, .. }) | Self::Set(Set { items, .. }) => items.retain(keep),
            Self::Tuple(Tuple { class, items }) => {
                let before = items.len();
                items.retain(keep);
                if items.len() < before {
                    // A named tuple or `torch.Size` with fewer items becomes a plain tuple.
                    *class = TupleClass::Tuple;
                }
            }
            _ => {}
        }
    }

    /// Calls `each` for each of [`Value::children`], without building a list.
    pub(crate) fn each_child(&self, mut each: impl FnMut(ValueId)) {
        match self {
            Self::List(List { items, .. })
            | Self::Tuple(Tuple { items, .. })
            | Self::Set(Set { items, .. }) => items.iter().for_each(|id| each(*id)),
            Self::Dict(dict) => dict.entries.iter().for_each(|(_, id)| each(*id)),
            Self::Sparse(sparse) => sparse.parts.iter().for_each(|(_, id)| each(*id)),
            Self::Opaque(opaque) => {
                opaque.args.iter().chain(&opaque.state).for_each(|id| each(*id));
                opaque.items.iter().for_each(|id| each(*id));
                for (key, value) in &opaque.entries {
                    each(*key);
                    each(*value);
                }
            }
            _ => {}
        }
    }

    /// Calls `each` for the id of each item of a list, tuple, set or dict.
    pub fn each_child_mut(&mut self, mut each: impl FnMut(&mut ValueId)) {
        match self {
            Self::List(List { items, .. })
            | Self::Tuple(Tuple { items, .. })
            | Self::Set(Set { items, .. }) => items.iter_mut().for_each(each),
            Self::Dict(dict) => dict.entries.iter_mut().for_each(|(_, id)| each(id)),
            _ => {}
        }
    }

    /// Adds to the id of every value and tensor that this one refers to.
    pub(crate) fn shift(&mut self, values: u32, tensors: u32) {
        let move_all = |ids: &mut Vec<ValueId>| ids.iter_mut().for_each(|id| id.0 += values);
        match self {
            Self::List(List { items, .. })
            | Self::Tuple(Tuple { items, .. })
            | Self::Set(Set { items, .. }) => move_all(items),
            Self::Dict(dict) => dict.entries.iter_mut().for_each(|(_, id)| id.0 += values),
            Self::Sparse(sparse) => sparse.parts.iter_mut().for_each(|(_, id)| id.0 += values),
            Self::Opaque(opaque) => {
                move_all(&mut opaque.args);
                opaque.state.iter_mut().for_each(|id| id.0 += values);
                opaque.contents.iter_mut().for_each(|id| id.0 += tensors);
                move_all(&mut opaque.items);
                for (key, value) in &mut opaque.entries {
                    key.0 += values;
                    value.0 += values;
                }
            }
            Self::Link(id) => id.0 += values,
            Self::Tensor(id) => id.0 += tensors,
            Self::Array(array) => array.tensor.0 += tensors,
            Self::None
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Float(_)
            | Self::Complex(..)
            | Self::Str(_)
            | Self::Bytes { .. }
            | Self::DType { .. }
            | Self::Device(_) => {}
        }
    }

    /// Returns whether flattening descends into the value.
    pub fn is_container(&self) -> bool {
        matches!(
            self,
            Self::List(_) | Self::Tuple(_) | Self::Dict(_) | Self::Set(Set { frozen: false, .. })
        )
    }

    /// Returns the word for it in tables and manifests.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Complex(..) => "complex",
            Self::Str(_) => "str",
            Self::Bytes { .. } => "bytes",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Set(Set { frozen: false, .. }) => "set",
            Self::Dict(_) => "dict",
            Self::Tensor(_) => "tensor",
            Self::Array(_) => "ndarray",
            Self::Sparse(_) => "sparse",
            Self::Link(_) => "link",
            Self::Set(Set { frozen: true, .. })
            | Self::DType { .. }
            | Self::Device(_)
            | Self::Opaque(_) => "object",
        }
    }
}

impl DictKey {
    /// Returns the word for its type.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Str(_) => "str",
            Self::Int(_) => "int",
            Self::Bool(_) => "bool",
            Self::Float(_) => "float",
            Self::None => "none",
            Self::Bytes(_) => "bytes",
            Self::Tuple(_) => "tuple",
            Self::Other(_) => "object",
        }
    }
}

impl fmt::Display for DictKey {
    /// Formats like Python's `str()` of the key, which flattening puts between the dots.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Str(text) => write!(f, "{text}"),
            Self::Int(int) => write!(f, "{int}"),
            Self::Bool(true) => f.write_str("True"),
            Self::Bool(false) => f.write_str("False"),
            Self::Float(float) => f.write_str(&crate::float_repr(*float)),
            Self::None => f.write_str("None"),
            Self::Bytes(bytes) => write!(f, "b'{}'", bytes.escape_ascii()),
            Self::Tuple(keys) => {
                // A tuple key's depth is bounded by the reader that built it.
                f.write_str("(")?;
                for (index, key) in keys.iter().enumerate() {
                    if index > 0 {
                        f.write_str(", ")?;
                    }
                    match key {
                        Self::Str(text) => write!(f, "'{text}'")?,
                        key => write!(f, "{key}")?,
                    }
                }
                f.write_str(if keys.len() == 1 { ",)" } else { ")" })
            }
            Self::Other(text) => write!(f, "{text}"),
        }
    }
}

impl From<&str> for DictKey {
    fn from(text: &str) -> Self {
        Self::Str(text.into())
    }
}
