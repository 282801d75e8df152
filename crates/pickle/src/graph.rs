//! What a pickle describes, before anybody decides what it means: objects that name each other.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use statelens_checkpoint::pieces::{Pieces, Slices};
use statelens_checkpoint::{Error, Form, Global, Int, Limits, Result, Text, room};

/// Which object of a [`Pickle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

/// One object that a pickle describes.
///
/// A checkpoint takes about ten for each tensor, so they are kept small: what is larger than a
/// text is behind a pointer.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// Python's `None`.
    None,
    /// A bool.
    Bool(bool),
    /// An integer.
    Int(Int),
    /// A float.
    Float(f64),
    /// A string.
    Str(Text),
    /// `bytes`; also Python 2's `str` where it is no text.
    Bytes(Arc<[u8]>),
    /// `bytearray`.
    ByteArray(Arc<[u8]>),
    /// A list.
    List(Box<Vec<NodeId>>),
    /// A tuple.
    Tuple(Items),
    /// A set.
    Set(Box<Vec<NodeId>>),
    /// A frozenset.
    FrozenSet(Box<[NodeId]>),
    /// A dict: every entry in the order it was set, repeated keys included.
    Dict(Box<Vec<(NodeId, NodeId)>>),
    /// A class or function by name.
    Global(Arc<Global>),
    /// What a call would make, and what would then be done to it.
    Object(Call),
    /// What the loader would look up under an identifier, e.g. a storage.
    Persistent(NodeId),
    /// The n-th buffer that would be passed beside the pickle.
    Buffer(u32),
    /// What the n-th entry of `copyreg`'s extension registry would be.
    Extension(u32),
}

/// The items of a tuple, in the list that all tuples of a [`Pickle`] share: most have one or two,
/// which take more room by themselves. See [`Pickle::items`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Items {
    start: u32,
    len: u32,
}

/// What a call would make. [`Pickle::made`] tells what would then be done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// How it would be made. `Reference`: it is the global itself, to which things are done.
    pub form: Form,
    /// The class or function: a [`Node::Global`], or what an expression would give.
    pub callable: NodeId,
    /// The arguments: a [`Node::Tuple`] in every pickle that Python writes.
    pub args: NodeId,
    /// Which of the pickle's lists of what is done to objects, from 1; 0: nothing is done.
    more: u32,
}

/// What a call would make, and what would then be done to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BuiltObject<'a> {
    /// See [`Call::form`].
    pub form: Form,
    /// See [`Call::callable`].
    pub callable: NodeId,
    /// See [`Call::args`].
    pub args: NodeId,
    /// Read through the object itself.
    more: &'a More,
}

/// What is done to an object after it would be made, and what few are made with.
#[derive(Debug, Clone, PartialEq)]
pub struct More {
    /// Keyword arguments, a [`Node::Dict`].
    pub kwargs: Option<NodeId>,
    /// What each `BUILD` would set, in order.
    pub states: Vec<NodeId>,
    /// The number of nodes of the pickle at the last `BUILD`: later nodes are made after it.
    pub(crate) built_at: Option<u32>,
    /// What would be appended or added.
    pub items: Vec<NodeId>,
    /// What would be set with `[key] = value`.
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
    /// What is done to it, which lives as long as the pickle.
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

/// What objects share that have nothing.
static NOTHING: More = More::NOTHING;

/// A class or function that a pickle names.
#[derive(Debug, Clone, PartialEq)]
pub struct GlobalUse {
    /// Its name in Python 3: `__builtin__.xrange` is `builtins.range`.
    pub global: Arc<Global>,
    /// Byte offset of the opcode in the pickle.
    pub offset: u64,
    /// The name would be put together while the pickle is loaded; what is not known of it is `?`.
    pub computed: bool,
}

/// The objects of one pickle. Nothing was called to make them.
#[derive(Debug, Clone, Default)]
pub struct Pickle {
    pub(crate) nodes: Pieces<Node>,
    /// The items of all tuples.
    pub(crate) items: Slices<NodeId>,
    /// What is done to objects; most have nothing.
    pub(crate) more: Vec<More>,
    pub(crate) root: Option<NodeId>,
    pub(crate) globals: Vec<GlobalUse>,
    pub(crate) extensions: Vec<(u32, u64)>,
    /// States set on what is no [`BuiltObject`].
    pub(crate) states: HashMap<NodeId, Vec<NodeId>>,
    pub(crate) protocol: u8,
    pub(crate) end: u64,
    pub(crate) base: u64,
    pub(crate) frame_lies: Option<u64>,
    /// What CPython accepts and no pickler writes: the first of each kind, and its offset.
    pub(crate) oddities: Vec<(Oddity, u64)>,
    /// What may be spent, on pickles inside it, too.
    pub(crate) limits: Limits,
}

/// What CPython accepts and no pickler writes, and what the objects of a [`Pickle`] do not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Oddity {
    /// `list[key] = value`.
    ListItemSet,
    /// Bytes are added to a `bytearray`, or set.
    ByteArrayChanged,
    /// Items are added to what a persistent id, an extension code or a buffer stands for.
    UnknownChanged,
    /// A frame ends behind `STOP`: where another pickle follows, loaders begin it at that end.
    FrameBehindStop,
    /// A frame ends within an opcode or another frame: the unpickler in C drops the bytes before
    /// that end if it reads from a file, and reads on if it has all bytes.
    FrameCrossed,
}

/// A pickle that breaks off, and what it described until then.
#[derive(Debug, Clone)]
pub struct Broken {
    /// What is wrong and where.
    pub error: Error,
    /// Whether it was fine as far as its bytes went: it may go on.
    pub starved: bool,
    /// Where the operand ends that is cut short, or that is longer than the limit, in bytes from the
    /// first of all; 0 if that is not known.
    pub needed: u64,
    /// The name that the bytes end in, if they end in `GLOBAL`: the unpickler in Python drops the
    /// last byte and imports it.
    pub cut_name: Option<Global>,
    /// Whether it breaks off at a memo entry that was never set: an `Unpickler` that has loaded
    /// another pickle before it has the entries of that one.
    pub unset_memo: bool,
    /// What came before in it; has no root.
    pub pickle: Box<Pickle>,
    /// The dicts that were being filled where it broke off, the outermost first, each with the key
    /// that leads to it; up to the first of which that is not plain to see.
    pub open: Vec<(Option<NodeId>, NodeId)>,
    /// Pickles that are whole and would be loaded before it.
    pub before: Vec<Pickle>,
}

impl From<Broken> for Error {
    fn from(broken: Broken) -> Self {
        broken.error
    }
}

impl Pickle {
    /// What unpickling would return.
    pub fn root(&self) -> NodeId {
        // A pickle without a root only exists inside `Broken`; its nodes start with `None`.
        self.root.unwrap_or(NodeId(0))
    }

    /// The object.
    pub fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(id.0 as usize).unwrap_or(&Node::None)
    }

    /// Every object, those that were popped from the stack included.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.numbered().map(|(index, node)| (NodeId(index as u32), node))
    }

    /// Every class or function that it names, in file order.
    pub fn globals(&self) -> &[GlobalUse] {
        &self.globals
    }

    /// The highest protocol that it announces; 0 if none.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// How many bytes it took, `STOP` included.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The text of a string.
    pub fn str(&self, id: NodeId) -> Option<&str> {
        match self.node(id) {
            Node::Str(text) => text.as_str(),
            _ => None,
        }
    }

    /// The string, lone surrogates included; Python 2's byte strings count.
    pub fn text(&self, id: NodeId) -> Option<Text> {
        match self.node(id) {
            Node::Str(text) => Some(text.clone()),
            Node::Bytes(bytes) => std::str::from_utf8(bytes).ok().map(Text::from),
            _ => None,
        }
    }

    /// The integer if it fits; bools count, as in Python.
    pub fn int(&self, id: NodeId) -> Option<i64> {
        match self.node(id) {
            Node::Int(int) => int.to_i64(),
            Node::Bool(value) => Some(i64::from(*value)),
            _ => None,
        }
    }

    /// The float; integers count, as in Python.
    pub fn float(&self, id: NodeId) -> Option<f64> {
        match self.node(id) {
            Node::Float(value) => Some(*value),
            _ => self.int(id).map(|int| int as f64),
        }
    }

    /// The items of a tuple or list.
    pub fn sequence(&self, id: NodeId) -> Option<&[NodeId]> {
        match self.node(id) {
            Node::Tuple(items) => Some(self.items(*items)),
            Node::List(items) => Some(items),
            _ => None,
        }
    }

    /// The items of a tuple of this pickle.
    pub fn items(&self, items: Items) -> &[NodeId] {
        self.items.get(items.start, items.len)
    }

    /// Whether it has opcodes that CPython accepts in places where no pickler writes them.
    pub fn is_odd(&self) -> bool {
        !self.oddities.is_empty()
    }

    /// Whether a frame claims more bytes than there are.
    pub fn frame_goes_on(&self) -> bool {
        self.frame_lies.is_some()
    }

    /// Notes what no pickler writes.
    pub(crate) fn note(&mut self, oddity: Oddity, offset: u64) {
        if self.oddities.iter().all(|(known, _)| *known != oddity) {
            self.oddities.push((oddity, offset));
        }
    }

    /// Keeps the items of a tuple.
    pub(crate) fn keep(&mut self, items: &[NodeId]) -> Result<Items> {
        Limits::check("items of a tuple", items.len() as u64, u64::from(u32::MAX))?;
        Ok(Items { start: self.items.push(items)?, len: items.len() as u32 })
    }

    /// Lets go of the items of a tuple that is not needed any more.
    pub(crate) fn forget(&mut self, items: Items) {
        self.items.forget(items.start, items.len);
    }

    /// Lets go of what is done to an object that is not needed any more.
    pub(crate) fn forget_more(&mut self, call: Call) {
        let more = (call.more as usize).checked_sub(1).and_then(|index| self.more.get_mut(index));
        if let Some(more) = more {
            *more = More::NOTHING;
        }
    }

    /// What a list, tuple, set or frozenset holds.
    pub(crate) fn members<'a>(&'a self, node: &'a Node) -> Option<&'a [NodeId]> {
        match node {
            Node::List(items) | Node::Set(items) => Some(items),
            Node::Tuple(items) => Some(self.items(*items)),
            Node::FrozenSet(items) => Some(items),
            _ => None,
        }
    }

    /// Everything that a node holds; of an object, what it is called with last.
    pub(crate) fn each_part(&self, node: &Node, each: &mut dyn FnMut(NodeId)) {
        self.each_held(node, each);
        if let Node::Object(call) = node {
            each(call.callable);
            each(call.args);
        }
    }

    /// Everything that a node holds, but what an object is called with.
    pub(crate) fn each_held(&self, node: &Node, each: &mut dyn FnMut(NodeId)) {
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

    /// The entries of a plain dict.
    pub fn dict(&self, id: NodeId) -> Option<&[(NodeId, NodeId)]> {
        match self.node(id) {
            Node::Dict(entries) => Some(entries),
            _ => None,
        }
    }

    /// The last value of a plain dict under a string key.
    pub fn field(&self, dict: NodeId, key: &str) -> Option<NodeId> {
        let entries = self.dict(dict)?;
        entries.iter().rev().find(|(name, _)| self.str(*name) == Some(key)).map(|(_, value)| *value)
    }

    /// The object, if it is one.
    pub fn object(&self, id: NodeId) -> Option<BuiltObject<'_>> {
        match self.node(id) {
            Node::Object(call) => Some(self.made(*call)),
            _ => None,
        }
    }

    /// What a call of this pickle would make, with what would then be done to it.
    pub fn made(&self, call: Call) -> BuiltObject<'_> {
        let Call { form, callable, args, more } = call;
        let more = (more as usize).checked_sub(1).and_then(|index| self.more.get(index));
        BuiltObject { form, callable, args, more: more.unwrap_or(&NOTHING) }
    }

    /// What is done to an object, to be changed; `None` if the node is something else.
    pub(crate) fn more_mut(&mut self, id: NodeId) -> Result<Option<&mut More>> {
        let Some(Node::Object(call)) = self.nodes.get_mut(id.0 as usize) else { return Ok(None) };
        if call.more == 0 {
            room::push(&mut self.more, More::NOTHING)?;
            // There are no more of them than objects, whose numbers have 32 bits.
            call.more = self.more.len() as u32;
        }
        Ok(self.more.get_mut(call.more as usize - 1))
    }

    /// The class or function that a node stands for: named outright, or spelled the ways that
    /// `dill` spells it (`_load_type('int')`, `_get_attr(_import_module('numpy'), 'scalar')`).
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

    /// A call or instantiation: what, and the positional arguments.
    pub fn call(&self, id: NodeId) -> Option<(Arc<Global>, &[NodeId])> {
        let object = self.object(id)?;
        Some((self.global(object.callable)?, self.sequence(object.args)?))
    }

    /// What the last `BUILD` would set on the node.
    pub fn state(&self, id: NodeId) -> Option<NodeId> {
        match self.node(id) {
            Node::Object(call) => self.made(*call).states.last().copied(),
            _ => self.states.get(&id)?.last().copied(),
        }
    }

    pub(crate) fn spelled_global(&self, object: &BuiltObject<'_>) -> Option<Arc<Global>> {
        let Node::Global(function) = self.node(object.callable) else { return None };
        let args = self.sequence(object.args)?;
        // A real name is short; a long one would be copied at every look.
        let name = |id| self.str(id).filter(|name| name.len() < 1000);
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

/// Whether the global is one of the `dill` module's own functions.
pub(crate) fn is_dill(global: &Global) -> bool {
    matches!(&*global.module, "dill._dill" | "dill.dill")
}

/// The error of a pickle that breaks the rules of pickles.
pub(crate) fn damaged(what: impl Into<String>) -> Error {
    Error::damaged(format!("the pickle is broken: {}", what.into()))
}
