//! The objects that a pickle describes, before they are interpreted, and their references.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use statelens_checkpoint::pieces::{Pieces, Slices};
use statelens_checkpoint::{Error, Form, Global, Int, Limits, Result, Text, try_alloc};

use crate::opcode::OpcodeSet;

/// Index of an object in a [`Pickle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

/// One object that a pickle describes.
///
/// A checkpoint takes about ten of them per tensor, so they are kept small: anything larger than a
/// text is boxed.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    None,
    Bool(bool),
    Int(Int),
    Float(f64),
    Str(Text),
    /// `bytes`; also Python 2's `str` if it is not valid text.
    Bytes(Arc<[u8]>),
    ByteArray(Arc<[u8]>),
    List(Box<Vec<NodeId>>),
    Tuple(Items),
    Set(Box<Vec<NodeId>>),
    FrozenSet(Box<[NodeId]>),
    /// A dict: every entry in the order it was set, repeated keys included.
    Dict(Box<Vec<(NodeId, NodeId)>>),
    Global(Arc<Global>),
    /// The result of a call, with later changes.
    Object(Call),
    /// An object that the loader would look up by an identifier, e.g. a storage.
    Persistent(NodeId),
    /// The n-th out-of-band buffer.
    Buffer(u32),
    /// The n-th entry of `copyreg`'s extension registry.
    Extension(u32),
}

/// The items of a tuple, stored in a list that all tuples of a [`Pickle`] share: most have one or
/// two, for which a vector would take more memory. See [`Pickle::items`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Items {
    start: u32,
    len: u32,
}

/// The result of a call. [`Pickle::made`] adds the later changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Kind of call. `Reference`: no call, but the global itself, which is changed later.
    pub form: Form,
    /// The class or function: a [`Node::Global`], or the result of an expression.
    pub callable: NodeId,
    /// The arguments: a [`Node::Tuple`] in every pickle that Python writes.
    pub args: NodeId,
    /// Index into the pickle's list of changes, plus 1; 0: no changes.
    more: u32,
}

/// The result of a call, with later changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BuiltObject<'a> {
    pub form: Form,
    pub callable: NodeId,
    pub args: NodeId,
    /// Accessible through `Deref`.
    more: &'a More,
}

/// Changes to an object after its creation, and rarely used arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct More {
    /// Keyword arguments, a [`Node::Dict`].
    pub kwargs: Option<NodeId>,
    /// The states set by each `BUILD`, in order.
    pub states: Vec<NodeId>,
    /// The number of nodes of the pickle at the last `BUILD`: nodes from this number on were made
    /// after it.
    pub(crate) built_at: Option<u32>,
    /// Items that would be appended or added.
    pub items: Vec<NodeId>,
    /// Entries that would be set with `[key] = value`.
    pub entries: Vec<(NodeId, NodeId)>,
}

impl More {
    const NOTHING: Self = Self {
        kwargs: None,
        states: Vec::new(),
        built_at: None,
        items: Vec::new(),
        entries: Vec::new(),
    };
}

impl Call {
    pub(crate) fn new(form: Form, callable: NodeId, args: NodeId) -> Self {
        Self { form, callable, args, more: 0 }
    }
}

impl<'a> BuiltObject<'a> {
    /// Returns the changes, with the lifetime of the pickle.
    pub fn more(&self) -> &'a More {
        self.more
    }
}

impl Deref for BuiltObject<'_> {
    type Target = More;

    fn deref(&self) -> &More {
        self.more
    }
}

/// Shared by all objects without changes.
static NOTHING: More = More::NOTHING;

/// A class or function that a pickle names.
#[derive(Debug, Clone, PartialEq)]
pub struct GlobalUse {
    pub global: Arc<Global>,
    /// Byte offset of the opcode in the pickle.
    pub offset: u64,
    /// Whether the name would be computed while the pickle is loaded; unknown parts of it are `?`.
    pub computed: bool,
}

/// The objects of one pickle. Nothing was called to make them.
#[derive(Debug, Clone, Default)]
pub struct Pickle {
    pub(crate) nodes: Pieces<Node>,
    /// The items of all tuples.
    pub(crate) items: Slices<NodeId>,
    /// Changes to objects; most objects have none.
    pub(crate) more: Vec<More>,
    pub(crate) root: Option<NodeId>,
    pub(crate) globals: Vec<GlobalUse>,
    pub(crate) extensions: Vec<(u32, u64)>,
    /// States set on nodes other than [`Node::Object`].
    pub(crate) states: HashMap<NodeId, Vec<NodeId>>,
    pub(crate) protocol: u8,
    pub(crate) opcodes: OpcodeSet,
    pub(crate) end: u64,
    pub(crate) base: u64,
    pub(crate) overlong_frame: Option<u64>,
    /// Constructs that CPython accepts but no pickler writes: the first of each kind, and its
    /// offset.
    pub(crate) oddities: Vec<(Oddity, u64)>,
    /// Limits, which also apply to pickles inside this one.
    pub(crate) limits: Limits,
}

/// A construct that CPython accepts but no pickler writes, and that the objects of a [`Pickle`]
/// don't show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Oddity {
    /// `list[key] = value`.
    ListItemSet,
    /// Bytes are added to or replaced in a `bytearray`.
    ByteArrayChanged,
    /// Items are added to the object behind a persistent id, an extension code or a buffer.
    UnknownChanged,
    /// A frame ends after `STOP`: if another pickle follows, loaders start it at that end.
    FrameBehindStop,
    /// A frame ends within an opcode or another frame: the unpickler in C drops the bytes before
    /// that end if it reads from a file, but continues if it has all bytes.
    FrameCrossed,
}

/// A pickle that breaks off, and the objects up to that point.
#[derive(Debug, Clone)]
pub struct Broken {
    /// The error, with its offset.
    pub error: Error,
    /// Whether it was valid as far as its bytes went, so that more bytes may complete it.
    pub starved: bool,
    /// The end of the operand that is cut short or exceeds a limit, in bytes from the start; 0 if
    /// unknown.
    pub needed: u64,
    /// The name at the end of the bytes, if they end in `GLOBAL`: the unpickler in Python drops its
    /// last byte and imports it.
    pub cut_name: Option<Global>,
    /// Whether it breaks off at a memo entry that was never set: an `Unpickler` that loaded another
    /// pickle before still has the entries of that one.
    pub unset_memo: bool,
    /// The objects before the error; has no root.
    pub pickle: Box<Pickle>,
    /// The dicts that were being filled at the error, outermost first, each with the key that leads
    /// to it. Ends before the first dict whose key is ambiguous.
    pub open: Vec<(Option<NodeId>, NodeId)>,
    /// Complete pickles that would be loaded before it.
    pub before: Vec<Pickle>,
}

impl From<Broken> for Error {
    fn from(broken: Broken) -> Self {
        broken.error
    }
}

impl Pickle {
    pub fn root(&self) -> NodeId {
        // Only a pickle inside `Broken` has no root; node 0 is always `None`.
        self.root.unwrap_or(NodeId(0))
    }

    pub fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(id.0 as usize).unwrap_or(&Node::None)
    }

    /// Iterates over all objects, including those that were popped from the stack.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.numbered().map(|(index, node)| (NodeId(index as u32), node))
    }

    /// Returns every class or function that the pickle names, in file order.
    pub fn globals(&self) -> &[GlobalUse] {
        &self.globals
    }

    /// Returns the highest protocol that the pickle announces; 0 by default.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Returns the opcodes that it consists of.
    pub fn opcodes(&self) -> &OpcodeSet {
        &self.opcodes
    }

    /// Returns the length in bytes, `STOP` included.
    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn str(&self, id: NodeId) -> Option<&str> {
        match self.node(id) {
            Node::Str(text) => text.as_str(),
            _ => None,
        }
    }

    /// Returns a string, lone surrogates included; also Python 2's byte strings.
    pub fn text(&self, id: NodeId) -> Option<Text> {
        match self.node(id) {
            Node::Str(text) => Some(text.clone()),
            Node::Bytes(bytes) => std::str::from_utf8(bytes).ok().map(Text::from),
            _ => None,
        }
    }

    /// Returns an integer if it fits; bools count, as in Python.
    pub fn int(&self, id: NodeId) -> Option<i64> {
        match self.node(id) {
            Node::Int(int) => int.to_i64(),
            Node::Bool(value) => Some(i64::from(*value)),
            _ => None,
        }
    }

    /// Returns a float; integers count, as in Python.
    pub fn float(&self, id: NodeId) -> Option<f64> {
        match self.node(id) {
            Node::Float(value) => Some(*value),
            _ => self.int(id).map(|int| int as f64),
        }
    }

    /// Returns the items of a tuple or list.
    pub fn sequence(&self, id: NodeId) -> Option<&[NodeId]> {
        match self.node(id) {
            Node::Tuple(items) => Some(self.items(*items)),
            Node::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the items of a tuple of this pickle.
    pub fn items(&self, items: Items) -> &[NodeId] {
        self.items.get(items.start, items.len)
    }

    /// Returns whether there are opcodes that CPython accepts in places where no pickler writes
    /// them.
    pub fn is_odd(&self) -> bool {
        !self.oddities.is_empty()
    }

    /// Returns whether a frame claims more bytes than there are.
    pub fn has_overlong_frame(&self) -> bool {
        self.overlong_frame.is_some()
    }

    /// Records a construct that no pickler writes.
    pub(crate) fn note(&mut self, oddity: Oddity, offset: u64) {
        if self.oddities.iter().all(|(known, _)| *known != oddity) {
            self.oddities.push((oddity, offset));
        }
    }

    pub(crate) fn keep(&mut self, items: &[NodeId]) -> Result<Items> {
        Limits::check("items of a tuple", items.len() as u64, u64::from(u32::MAX))?;
        Ok(Items { start: self.items.push(items)?, len: items.len() as u32 })
    }

    pub(crate) fn forget(&mut self, items: Items) {
        self.items.forget(items.start, items.len);
    }

    pub(crate) fn forget_more(&mut self, call: Call) {
        let more = (call.more as usize).checked_sub(1).and_then(|index| self.more.get_mut(index));
        if let Some(more) = more {
            *more = More::NOTHING;
        }
    }

    /// Returns the items of a list, tuple, set or frozenset.
    pub(crate) fn members<'a>(&'a self, node: &'a Node) -> Option<&'a [NodeId]> {
        match node {
            Node::List(items) | Node::Set(items) => Some(items),
            Node::Tuple(items) => Some(self.items(*items)),
            Node::FrozenSet(items) => Some(items),
            _ => None,
        }
    }

    /// Visits all references of a node; for an object, callable and arguments come last.
    pub(crate) fn each_reference(&self, node: &Node, each: &mut dyn FnMut(NodeId)) {
        self.each_content_reference(node, each);
        if let Node::Object(call) = node {
            each(call.callable);
            each(call.args);
        }
    }

    /// Visits all references of a node, except the callable and arguments of an object.
    pub(crate) fn each_content_reference(&self, node: &Node, each: &mut dyn FnMut(NodeId)) {
        self.members(node).unwrap_or_default().iter().for_each(|item| each(*item));
        match node {
            Node::Dict(entries) => entries.iter().for_each(|(key, value)| {
                each(*key);
                each(*value);
            }),
            Node::Persistent(id) => each(*id),
            Node::Object(call) => {
                let object = self.made(*call);
                object.kwargs.iter().for_each(|id| each(*id));
                object.states.iter().chain(&object.items).for_each(|id| each(*id));
                object.entries.iter().for_each(|(key, value)| {
                    each(*key);
                    each(*value);
                });
            }
            _ => {}
        }
    }

    /// Returns the entries of a plain dict.
    pub fn dict(&self, id: NodeId) -> Option<&[(NodeId, NodeId)]> {
        match self.node(id) {
            Node::Dict(entries) => Some(entries),
            _ => None,
        }
    }

    /// Returns the last value of a plain dict under a string key.
    pub fn field(&self, dict: NodeId, key: &str) -> Option<NodeId> {
        let entries = self.dict(dict)?;
        entries.iter().rev().find(|(name, _)| self.str(*name) == Some(key)).map(|(_, value)| *value)
    }

    pub fn object(&self, id: NodeId) -> Option<BuiltObject<'_>> {
        match self.node(id) {
            Node::Object(call) => Some(self.made(*call)),
            _ => None,
        }
    }

    /// Returns the result of a call of this pickle, with later changes.
    pub fn made(&self, call: Call) -> BuiltObject<'_> {
        let Call { form, callable, args, more } = call;
        let more = (more as usize).checked_sub(1).and_then(|index| self.more.get(index));
        BuiltObject { form, callable, args, more: more.unwrap_or(&NOTHING) }
    }

    /// Returns the changes to an object for editing; `None` if the node is not an object.
    pub(crate) fn more_mut(&mut self, id: NodeId) -> Result<Option<&mut More>> {
        let Some(Node::Object(call)) = self.nodes.get_mut(id.0 as usize) else { return Ok(None) };
        if call.more == 0 {
            try_alloc::push(&mut self.more, More::NOTHING)?;
            // There are at most as many as objects, whose numbers have 32 bits.
            call.more = self.more.len() as u32;
        }
        Ok(self.more.get_mut(call.more as usize - 1))
    }

    /// Returns the class or function that a node refers to: named directly, or spelled in one of
    /// the ways of `dill` (`_load_type('int')`, `_get_attr(_import_module('numpy'), 'scalar')`).
    pub fn global(&self, id: NodeId) -> Option<Arc<Global>> {
        match self.node(id) {
            Node::Global(global) => Some(global.clone()),
            Node::Object(call) => self.spelled_global(&self.made(*call)),
            // `('module', class, file, source)`: a class of `torch.nn.Module` with its source.
            Node::Persistent(id) => match self.sequence(*id)? {
                [kind, class, ..] if self.str(*kind) == Some("module") => match self.node(*class) {
                    Node::Global(global) => Some(global.clone()),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the callable and positional arguments of a call or instantiation.
    pub fn call(&self, id: NodeId) -> Option<(Arc<Global>, &[NodeId])> {
        let object = self.object(id)?;
        Some((self.global(object.callable)?, self.sequence(object.args)?))
    }

    /// Returns the state that the last `BUILD` would set on the node.
    pub fn state(&self, id: NodeId) -> Option<NodeId> {
        match self.node(id) {
            Node::Object(call) => self.made(*call).states.last().copied(),
            _ => self.states.get(&id)?.last().copied(),
        }
    }

    /// Returns the class in another class that protocols before 4 spell as
    /// `getattr(ShardedTensor, 'ProcessGroupState')`. No other is known.
    fn nested_class(&self, args: &[NodeId]) -> Option<Arc<Global>> {
        let [class, name] = args else { return None };
        let Node::Global(class) = self.node(*class) else { return None };
        let module = "torch.distributed._shard.sharded_tensor.api";
        let known =
            class.is(module, "ShardedTensor") && self.str(*name) == Some("ProcessGroupState");
        known.then(|| Arc::new(Global::new(module, "ShardedTensor.ProcessGroupState")))
    }

    pub(crate) fn spelled_global(&self, object: &BuiltObject<'_>) -> Option<Arc<Global>> {
        let Node::Global(function) = self.node(object.callable) else { return None };
        let args = self.sequence(object.args)?;
        // A real name is short, and a long one would be copied on every call.
        let name = |id| self.str(id).filter(|name| name.len() < 1000);
        if function.is("builtins", "getattr") && object.form == Form::Call {
            return self.nested_class(args);
        }
        if !is_dill(function) || object.form != Form::Call {
            return None;
        }
        match (&*function.name, args) {
            ("_load_type", [class]) => Some(Arc::new(Global::new("builtins", name(*class)?))),
            ("_get_attr", [module, attribute]) => {
                let (import, args) = match self.node(*module) {
                    Node::Object(object) => match self.node(object.callable) {
                        Node::Global(global) => (global, self.sequence(object.args)?),
                        _ => return None,
                    },
                    _ => return None,
                };
                let [module] = args else { return None };
                let known = is_dill(import) && &*import.name == "_import_module";
                known.then(|| Some(Global::new(name(*module)?, name(*attribute)?)))?.map(Arc::new)
            }
            _ => None,
        }
    }
}

/// Returns whether the global is one of the `dill` module's own functions.
pub(crate) fn is_dill(global: &Global) -> bool {
    matches!(&*global.module, "dill._dill" | "dill.dill")
}

/// Returns the error for a pickle that violates the format.
pub(crate) fn damaged(what: impl Into<String>) -> Error {
    Error::damaged(format!("the pickle is broken: {}", what.into()))
}
