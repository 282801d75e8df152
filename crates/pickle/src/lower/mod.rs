//! Converts the graph of a pickle to the tree of a checkpoint.
//!
//! The first occurrence of an object in file order owns it, further ones are links; cycles end in
//! links, too. Objects are recognised by the structures that libraries write ([`python`],
//! [`numpy`], [`torch`]); an unrecognised object becomes a [`Value::Opaque`].

mod keys;
mod modules;
mod numpy;
mod objects;
mod python;
mod release;
mod sub_byte;
mod torch;
mod unused;

pub(crate) use sub_byte::per_byte;
pub(crate) use torch::dtype;
pub use torch::view;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use statelens_checkpoint::{
    Array, Builder, DType, Dict, DictClass, DictKey, Finding, Form, Global, Grade, Limits, List,
    ListClass, Opaque, Progress, Quantizer, Result, Set, Sparse, Tensor, Text, Tuple, TupleClass,
    Unwatched, Value, ValueId, try_alloc,
};

use release::ObjectHolders;
use unused::StorageUses;

use crate::python2::Spelled;
use crate::storages::StorageName;
use crate::{BuiltObject, Node, NodeId, Pickle, Storage, Storages};

#[derive(Debug)]
pub struct Lowered {
    pub root: ValueId,
    /// Findings: tensors without data, invalid structures.
    pub findings: Vec<Finding>,
}

impl Pickle {
    /// Adds the objects of the pickle to `builder`, without recursion.
    ///
    /// Fails if `builder`'s limits are reached.
    pub fn lower(&self, builder: &mut Builder, storages: &mut dyn Storages) -> Result<Lowered> {
        self.lower_node(self.root(), builder, storages)
    }

    /// Like [`Pickle::lower`], for a part of the pickle.
    pub fn lower_node(
        &self,
        root: NodeId,
        builder: &mut Builder,
        storages: &mut dyn Storages,
    ) -> Result<Lowered> {
        let mut state = LoweringState::default();
        let progress = &mut Unwatched;
        let mut lowering =
            Lowering { pickle: self, builder, storages, progress, state: &mut state };
        let root = lowering.visit(root)?;
        while lowering.step()? {}
        Ok(state.lowered(root))
    }

    /// Like [`Pickle::lower`], but each distributed tensor becomes the part of it that this file
    /// holds. Also returns the value of each of them, and the node that describes it.
    pub fn lower_parts(
        &self,
        builder: &mut Builder,
        storages: &mut dyn Storages,
    ) -> Result<(Lowered, Vec<(ValueId, NodeId)>)> {
        let mut state = LoweringState { parts: Some(Vec::new()), ..LoweringState::default() };
        let progress = &mut Unwatched;
        let mut lowering =
            Lowering { pickle: self, builder, storages, progress, state: &mut state };
        let root = lowering.visit(self.root())?;
        while lowering.step()? {}
        let nodes = state.parts.take().unwrap_or_default();
        let found = nodes.into_iter().filter_map(|node| Some((*state.done.get(&node)?, node)));
        let parts = found.collect();
        Ok((state.lowered(root), parts))
    }

    /// Like [`Pickle::lower`], reporting tensors as they are found. Frees the objects of the pickle
    /// on the way: afterwards only its metadata may be used.
    pub fn lower_all(
        &mut self,
        builder: &mut Builder,
        storages: &mut dyn Storages,
        progress: &mut dyn Progress,
    ) -> Result<Lowered> {
        let mut state =
            LoweringState { release: Some(ObjectHolders::of(self)?), ..LoweringState::default() };
        let mut root = None;
        loop {
            let mut lowering = Lowering {
                pickle: self,
                builder: &mut *builder,
                storages: &mut *storages,
                progress: &mut *progress,
                state: &mut state,
            };
            let is_done = match root {
                None => {
                    root = Some(lowering.visit(self.root())?);
                    false
                }
                Some(_) => !lowering.step()?,
            };
            if let Some(release) = &mut state.release {
                release.apply(self)?;
            }
            if let (Some(root), true) = (root, is_done) {
                return Ok(state.lowered(root));
            }
        }
    }
}

pub(crate) struct Lowering<'a> {
    pickle: &'a Pickle,
    builder: &'a mut Builder,
    storages: &'a mut dyn Storages,
    progress: &'a mut dyn Progress,
    state: &'a mut LoweringState,
}

/// The state of the lowering. It borrows nothing, because the pickle changes between two steps.
struct LoweringState {
    /// The places in the tree of the visited nodes that have an identity; about one in ten nodes.
    done: HashMap<NodeId, ValueId>,
    stack: Vec<LoweringFrame>,
    /// Attributes that are still to be lowered, with their owner. They come last, so that objects
    /// shared with the tree belong to the tree.
    attributes: Vec<(ValueId, NodeId)>,
    /// Byte strings that were read, decoded from text if necessary.
    bytes: HashMap<Spelled, Option<Arc<[u8]>>>,
    dtypes: HashMap<NodeId, Option<numpy::NumpyElement>>,
    /// Storages that are pickled by themselves.
    nested: HashMap<Spelled, Option<(StorageName, Storage)>>,
    /// Tensors that were looked up by a key, and their first place.
    looked_up: HashMap<Text, NodeId>,
    /// The parts of storages that tensors use.
    uses: StorageUses,
    /// The number of copied entries of modules.
    copies: usize,
    modules: HashSet<NodeId>,
    problems: Problems,
    work: Cell<usize>,
    /// Reference counts, if objects are freed on the way.
    release: Option<ObjectHolders>,
    /// The distributed tensors so far, if they are lowered as the parts that the file holds.
    parts: Option<Vec<NodeId>>,
}

impl Default for LoweringState {
    fn default() -> Self {
        Self {
            done: HashMap::new(),
            stack: Vec::new(),
            attributes: Vec::new(),
            bytes: HashMap::new(),
            dtypes: HashMap::new(),
            nested: HashMap::new(),
            looked_up: HashMap::new(),
            uses: StorageUses::default(),
            copies: 0,
            modules: HashSet::new(),
            problems: Problems::default(),
            work: Cell::new(WORK),
            release: None,
            parts: None,
        }
    }
}

impl LoweringState {
    fn lowered(self, root: ValueId) -> Lowered {
        let mut findings = self.problems.findings();
        findings.extend(self.uses.finding());
        Lowered { root, findings }
    }

    /// Records that a part of the container on top of the stack has been lowered.
    fn lowered_part(&mut self) -> Result<()> {
        let (Some(release), Some(frame)) = (&mut self.release, self.stack.last()) else {
            return Ok(());
        };
        match frame.ids.len().checked_sub(1).and_then(|at| frame.parts.get(at)) {
            Some(part) if frame.is_open => try_alloc::push(&mut release.lowered, *part),
            _ => Ok(()),
        }
    }
}

/// How many shared items may be processed again, and how many characters printed. Without this
/// limit, a small file could request the same work a million times.
const WORK: usize = 1 << 23;

/// The id of a value that does not exist yet.
const NOT_YET: ValueId = ValueId(u32::MAX);

/// A value whose parts are being lowered.
struct LoweringFrame {
    node: NodeId,
    value: ValueId,
    assembly: Assembly,
    parts: Vec<NodeId>,
    ids: Vec<ValueId>,
    /// Whether its parts are freed as they are lowered.
    is_open: bool,
}

/// The path to the part that was lowered last, formatted like a key.
struct KeyPath<'a>(&'a [LoweringFrame]);

impl fmt::Display for KeyPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut dot = "";
        for frame in self.0 {
            let Some(at) = frame.ids.len().checked_sub(1) else { continue };
            match &frame.assembly {
                Assembly::Dict(_, entries) | Assembly::Object { entries, .. } => {
                    match entries.get(at) {
                        Some((key, _)) => write!(f, "{dot}{key}")?,
                        None => continue,
                    }
                }
                Assembly::List(_) | Assembly::Tuple(_) => write!(f, "{dot}{at}")?,
                _ => continue,
            }
            dot = ".";
        }
        Ok(())
    }
}

/// The result of interpreting a node.
enum LoweredNode {
    /// An immutable value: copied at every occurrence.
    Plain(Value),
    /// A value without parts that has an identity.
    Unique(Value),
    /// A value with parts.
    Parts(Assembly, Vec<NodeId>),
    /// A value with parts, and attributes set on it.
    With(Assembly, Vec<NodeId>, NodeId),
    /// The same as another node.
    Same(NodeId),
}

/// The entries of a dict; values are filled in once they have ids.
type Entries = Vec<(DictKey, ValueId)>;

/// A value without its parts.
enum Assembly {
    Plain(Value),
    List(ListClass),
    Tuple(TupleClass),
    Set {
        frozen: bool,
    },
    Dict(DictClass, Entries),
    Sparse {
        layout: String,
        shape: Vec<u64>,
        names: Vec<&'static str>,
        coalesced: Option<bool>,
    },
    /// Parts: for a per-channel quantizer, scales and zero points.
    Tensor(Box<Tensor>, Option<u64>),
    Array {
        tensor: Box<Tensor>,
        scalar: bool,
    },
    /// Parts: the values of the entries. The class is inserted before the first entry that is
    /// outside the state dict of a module, or else before all entries.
    Object {
        class: Box<Opaque>,
        entries: Entries,
        /// For a module: the number of entries in its state dict, which come first.
        state: Option<usize>,
    },
    /// An array with a mask. Parts: the fill value for masked elements.
    Masked {
        data: Box<Tensor>,
        mask: Box<Tensor>,
    },
    /// Parts: arguments, state, items.
    Opaque {
        opaque: Box<Opaque>,
        args: usize,
        state: bool,
    },
}

impl Lowering<'_> {
    /// Takes `work` from the budget for shared objects; `false` if it is exhausted.
    fn afford(&self, work: usize) -> bool {
        let left = self.state.work.get().checked_sub(work);
        self.state.work.set(left.unwrap_or(0));
        left.is_some()
    }

    fn repr(&self, id: NodeId) -> Option<String> {
        let text = if self.state.work.get() > 0 { self.pickle.repr(id) } else { None };
        let cost = text.as_ref().map_or(crate::repr::LENGTH / 16, String::len);
        text.filter(|_| self.afford(cost))
    }

    /// Lowers one more part; `false` if no part was left.
    fn step(&mut self) -> Result<bool> {
        let Some(frame) = self.state.stack.last() else {
            let Some((value, node)) = self.state.attributes.pop() else { return Ok(false) };
            let attributes = self.visit(node)?;
            self.builder.set_attributes(value, attributes);
            return Ok(true);
        };
        let depth = self.state.stack.len();
        if let Some(part) = frame.parts.get(frame.ids.len()) {
            let id = self.visit(*part)?;
            self.state.stack[depth - 1].ids.push(id);
            if self.state.stack.len() == depth {
                self.state.lowered_part()?;
            }
        } else if let Some(frame) = self.state.stack.pop() {
            drop(frame.parts);
            let value = self.assemble(frame.assembly, frame.ids)?;
            if let Value::Tensor(tensor) = value
                && let Some(tensor) = self.builder.tensor(tensor)
            {
                self.progress.found(&KeyPath(&self.state.stack), &tensor.dtype, &tensor.shape);
            }
            if let Some(slot) = self.builder.value_mut(frame.value) {
                *slot = value;
            }
            self.state.lowered_part()?;
        }
        Ok(true)
    }

    fn visit(&mut self, node: NodeId) -> Result<ValueId> {
        let mut node = node;
        // A few steps are enough for what libraries write; longer chains are not followed.
        for _ in 0..8 {
            if let Some(id) = self.state.done.get(&node).copied() {
                return match self.shared_module(node) {
                    Some((assembly, parts)) => self.begin(node, assembly, parts, false),
                    None => self.builder.push(Value::Link(id)),
                };
            }
            match self.shape(node)? {
                LoweredNode::Plain(value) => return self.builder.push(value),
                LoweredNode::Unique(value) => {
                    let id = self.builder.push(value)?;
                    self.remember(node, id)?;
                    return Ok(id);
                }
                LoweredNode::Parts(assembly, parts) => {
                    return self.begin(node, assembly, parts, true);
                }
                LoweredNode::With(assembly, parts, attributes) => {
                    if let Some(release) = &mut self.state.release {
                        release.keep(attributes);
                    }
                    let id = self.begin(node, assembly, parts, true)?;
                    self.state.attributes.push((id, attributes));
                    return Ok(id);
                }
                LoweredNode::Same(other) => node = other,
            }
        }
        self.builder.push(Value::None)
    }

    fn remember(&mut self, node: NodeId, value: ValueId) -> Result<()> {
        try_alloc::insert(&mut self.state.done, node, value).map(drop)
    }

    /// Adds the value before its parts are known, so that they can link to it. `is_first`: whether
    /// this is its first occurrence.
    fn begin(
        &mut self,
        node: NodeId,
        assembly: Assembly,
        parts: Vec<NodeId>,
        is_first: bool,
    ) -> Result<ValueId> {
        let allowed = self.builder.limits().depth;
        Limits::check("nesting of containers", self.state.stack.len() as u64, allowed)?;
        let is_open = self.open(node, &assembly)?;
        let value = self.builder.push(Value::None)?;
        if is_first {
            self.remember(node, value)?;
        }
        let ids = try_alloc::vec(parts.len() as u64)?;
        self.state.stack.push(LoweringFrame { node, value, assembly, parts, ids, is_open });
        Ok(value)
    }

    /// Returns whether the parts of a container may be freed as they are lowered, and records it.
    fn open(&mut self, node: NodeId, assembly: &Assembly) -> Result<bool> {
        let Some(release) = &mut self.state.release else { return Ok(false) };
        let (is_root, is_part) = match self.state.stack.last() {
            None => (node == self.pickle.root(), false),
            Some(frame) => {
                (false, frame.is_open && frame.parts.get(frame.ids.len()) == Some(&node))
            }
        };
        let may = (is_root || is_part) && release.may_open(self.pickle, node, is_root, assembly);
        if may {
            try_alloc::push(&mut release.opened, node)?;
        }
        Ok(may)
    }

    fn assemble(&mut self, assembly: Assembly, ids: Vec<ValueId>) -> Result<Value> {
        Ok(match assembly {
            Assembly::Plain(value) => value,
            Assembly::List(class) => Value::List(List { class, items: ids }),
            Assembly::Tuple(class) => Value::Tuple(Tuple { class, items: ids }),
            Assembly::Set { frozen } => Value::Set(Set { frozen, items: ids }),
            Assembly::Dict(class, mut entries) => {
                for ((_, place), id) in entries.iter_mut().zip(ids) {
                    *place = id;
                }
                Value::Dict(Dict { class, entries })
            }
            Assembly::Sparse { layout, shape, names, coalesced } => {
                let dtype = ids.last().and_then(|id| self.dtype_of(*id)).unwrap_or(DType::F32);
                let parts = names.into_iter().zip(ids.iter().copied()).collect();
                Value::Sparse(Box::new(Sparse { layout, dtype, shape, parts, coalesced }))
            }
            Assembly::Tensor(mut tensor, axis) => {
                if let (Some(axis), [scales, zero_points]) = (axis, &*ids) {
                    tensor.quantizer = Some(Quantizer::PerChannel {
                        scales: *scales,
                        zero_points: *zero_points,
                        axis,
                    });
                }
                Value::Tensor(self.builder.push_tensor(*tensor)?)
            }
            Assembly::Array { tensor, scalar } => {
                Value::Array(Array { tensor: self.builder.push_tensor(*tensor)?, scalar })
            }
            Assembly::Object { class, entries, state } => {
                self.assemble_object(*class, entries, state, &ids)?
            }
            Assembly::Masked { data, mask } => {
                let class = Global::new("numpy.ma", "MaskedArray");
                let class = empty(class, Form::Instance);
                let mut entries: Entries = Vec::with_capacity(3);
                for (name, tensor) in [("data", data), ("mask", mask)] {
                    let tensor = self.builder.push_tensor(*tensor)?;
                    let array = Value::Array(Array { tensor, scalar: false });
                    entries.push((name.into(), self.builder.push(array)?));
                }
                let fill = ids.first().map(|id| ("fill_value".into(), *id));
                entries.extend(fill);
                let places: Vec<ValueId> = entries.iter().map(|(_, id)| *id).collect();
                self.assemble_object(class, entries, None, &places)?
            }
            Assembly::Opaque { mut opaque, args, state } => {
                let (args, rest) = ids.split_at(args);
                let (state, items) = rest.split_at(usize::from(state));
                opaque.args = args.to_vec();
                opaque.state = state.first().copied();
                opaque.items = items.to_vec();
                Value::Opaque(opaque)
            }
        })
    }

    fn dtype_of(&mut self, id: ValueId) -> Option<DType> {
        let id = match self.builder.value(id)? {
            Value::Link(target) => *target,
            _ => id,
        };
        match self.builder.value(id)? {
            Value::Tensor(tensor) => {
                let tensor = *tensor;
                self.builder.tensor_mut(tensor).map(|tensor| tensor.dtype.clone())
            }
            _ => None,
        }
    }

    fn shape(&mut self, id: NodeId) -> Result<LoweredNode> {
        let pickle = self.pickle;
        Ok(match pickle.node(id) {
            Node::None => LoweredNode::Plain(Value::None),
            Node::Bool(value) => LoweredNode::Plain(Value::Bool(*value)),
            Node::Int(value) => LoweredNode::Plain(Value::Int(value.clone())),
            Node::Float(value) => LoweredNode::Plain(Value::Float(*value)),
            Node::Str(text) => LoweredNode::Plain(Value::Str(text.clone())),
            Node::Bytes(data) => LoweredNode::Plain(bytes(data.clone())),
            Node::ByteArray(data) => {
                LoweredNode::Unique(Value::Bytes { data: data.clone(), mutable: true })
            }
            Node::List(items) => self.with_attributes(id, Assembly::List(ListClass::List), items),
            Node::Tuple(items) => match pickle.items(*items) {
                [] => LoweredNode::Plain(Value::Tuple(Tuple::default())),
                items => self.with_attributes(id, Assembly::Tuple(TupleClass::Tuple), items),
            },
            Node::Set(items) => self.with_attributes(id, Assembly::Set { frozen: false }, items),
            Node::FrozenSet(items) => {
                self.with_attributes(id, Assembly::Set { frozen: true }, items)
            }
            Node::Dict(entries) => {
                let (keys, values) = self.entries(entries);
                self.with_attributes(id, Assembly::Dict(DictClass::Dict, keys), &values)
            }
            Node::Global(global) => self.global(global),
            Node::Object(call) => self.object(id, &pickle.made(*call))?,
            Node::Persistent(name) => self.persistent(id, *name)?,
            Node::Buffer(_) => reference("pickle", "PickleBuffer", None),
            Node::Extension(code) => {
                reference("copyreg", &format!("_extension_registry[{code}]"), None)
            }
        })
    }

    fn with_attributes(&self, id: NodeId, assembly: Assembly, parts: &[NodeId]) -> LoweredNode {
        match self.pickle.state(id) {
            Some(state) => LoweredNode::With(assembly, parts.to_vec(), state),
            None => LoweredNode::Parts(assembly, parts.to_vec()),
        }
    }

    fn global(&self, global: &Arc<Global>) -> LoweredNode {
        if let Some(dtype) = torch::dtype(global) {
            return LoweredNode::Plain(Value::DType { dtype, numpy: None });
        }
        let repr = crate::repr::global(global);
        reference(&global.module, &global.name, repr)
    }

    fn object(&mut self, id: NodeId, object: &BuiltObject<'_>) -> Result<LoweredNode> {
        if let Some(global) = self.pickle.global(id) {
            return Ok(self.global(&global));
        }
        if let Some(shape) = self.python(id, object) {
            return Ok(shape);
        }
        if let Some(shape) = self.numpy(id) {
            return Ok(shape);
        }
        if let Some(shape) = self.torch(id)? {
            return Ok(shape);
        }
        Ok(self.unknown(id, object))
    }

    /// Returns the name of a class that `dill` recreates: `_create_type(type, 'Name', bases,
    /// dict)`.
    fn made_class(&self, id: NodeId) -> Option<Global> {
        let pickle = self.pickle;
        let (function, args) = pickle.call(id)?;
        let [_meta, name, _bases, dict] = args else { return None };
        if !crate::graph::is_dill(&function) || &*function.name != "_create_type" {
            return None;
        }
        let short = |id| pickle.str(id).filter(|name| name.len() < 1000);
        let found = pickle.dict(*dict).is_some_and(|dict| dict.len() < 1000);
        let module = found.then(|| pickle.field(*dict, "__module__")).flatten().and_then(short);
        Some(Global::new(module.unwrap_or("__main__"), short(*name)?))
    }
}

/// Returns an [`Opaque`] without parts.
fn empty(global: Global, form: Form) -> Opaque {
    Opaque {
        global,
        form,
        args: Vec::new(),
        state: None,
        items: Vec::new(),
        entries: Vec::new(),
        repr: None,
        contents: None,
    }
}

fn reference(module: &str, name: &str, repr: Option<String>) -> LoweredNode {
    let opaque = empty(Global::new(module, name), Form::Reference);
    LoweredNode::Plain(Value::Opaque(Box::new(Opaque { repr: repr.map(Into::into), ..opaque })))
}

fn bytes(data: Arc<[u8]>) -> Value {
    Value::Bytes { data, mutable: false }
}

/// The title of a problem because of which torch refuses the file.
const BACKWARDS: &str = "A tensor runs backwards through its storage";

/// Problems with tensors, counted by kind.
#[derive(Default)]
struct Problems {
    by_title: Vec<(&'static str, Grade, String, u64)>,
}

impl Problems {
    fn add(&mut self, grade: Grade, title: &'static str, detail: impl Into<String>) {
        match self.by_title.iter_mut().find(|problem| problem.0 == title) {
            Some(problem) => problem.3 += 1,
            None => self.by_title.push((title, grade, detail.into(), 1)),
        }
    }

    fn findings(self) -> Vec<Finding> {
        self.by_title
            .into_iter()
            .map(|(title, grade, detail, count)| {
                let detail = match count {
                    1 => format!("{detail}."),
                    _ => format!("{count} times; the first: {detail}."),
                };
                let finding = Finding::new(grade, title).detail(detail);
                if title == BACKWARDS { finding.refused() } else { finding }
            })
            .collect()
    }
}
