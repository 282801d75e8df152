//! The tree of a state dict, as both families of the format describe it: nested containers with
//! leaves for the values.

use std::sync::Arc;

use statelens_checkpoint::json::{Document, Id, JsonNode};
use statelens_checkpoint::{
    DictClass, DictKey, Error, Global, Interner, Key, KeyPart, Limits, ListClass, Result, Text,
    TupleClass, try_alloc,
};
use statelens_pickle::{Node as PickleNode, NodeId, Pickle};

#[derive(Debug)]
pub(super) struct Spec {
    pub(super) nodes: Vec<SpecNode>,
}

/// A container or a leaf. Most nodes are leaves, which need no further data.
#[derive(Debug)]
pub(super) struct SpecNode(pub(super) Option<Box<SpecContainer>>);

/// A container, and the steps to its children.
#[derive(Debug)]
pub(super) struct SpecContainer {
    pub(super) shape: NodeKind,
    /// The index of the first child; the others follow it.
    first: usize,
    pub(super) steps: Steps,
}

#[derive(Debug)]
pub(super) enum Steps {
    /// This number of positions.
    Positions(usize),
    /// Keys. Their names in the file are Python's `str` of them.
    Keys(Vec<DictKey>),
    /// Keys and their names in the file. `None` for a child that the library lost on writing.
    Renamed(Vec<DictKey>, Vec<Option<Text>>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum NodeKind {
    List(ListClass),
    Tuple(TupleClass),
    Set,
    /// A dict with the keys of its children.
    Dict(DictClass),
    /// A serialised value, and what the library needs to restore it.
    NestedObject,
}

impl SpecNode {
    pub(super) fn children(&self) -> std::ops::Range<usize> {
        self.0.as_ref().map_or(0..0, |branch| branch.first..branch.first + branch.steps.len())
    }
}

impl SpecContainer {
    /// Returns the index of a child and its name in the file, or `None` beyond the last child.
    pub(super) fn child(&self, at: usize) -> Option<(usize, Option<Text>)> {
        (at < self.steps.len()).then(|| (self.first + at, self.steps.stored(at)))
    }

    /// Returns whether the names of its children in the file differ from their keys.
    pub(super) fn is_renamed(&self) -> bool {
        matches!(self.steps, Steps::Renamed(..))
    }
}

impl Steps {
    fn len(&self) -> usize {
        match self {
            Self::Positions(count) => *count,
            Self::Keys(keys) | Self::Renamed(keys, _) => keys.len(),
        }
    }

    fn stored(&self, at: usize) -> Option<Text> {
        match self {
            Self::Positions(_) => Some(at.to_string().into()),
            // Python's `str` of the key.
            Self::Keys(keys) => match keys.get(at)? {
                DictKey::Str(text) => Some(text.clone()),
                key => Some(Key { parts: vec![KeyPart::Field(key.clone())] }.flat()),
            },
            Self::Renamed(_, stored) => stored.get(at).cloned().flatten(),
        }
    }
}

impl Spec {
    /// Parses the JSON that torch's `treespec_dumps` writes: a protocol number and a node.
    pub(super) fn from_json(text: Text, limits: &Limits) -> Result<Self> {
        let document = Document::parse_sharing(text.as_bytes(), &mut Interner::default())?;
        // The text is as long as all keys together.
        drop(text);
        let [protocol, root] = document.items(document.root()) else {
            return Err(bad("it is not a protocol and a tree"));
        };
        if document.node(*protocol) != &JsonNode::Int(1i64.into()) {
            return Err(Error::unsupported(format!(
                "the tree of the state dict is written in protocol {}",
                document.python(*protocol)
            ))
            .expected("protocol 1"));
        }
        let mut building = Building::new(limits.values);
        let mut open = vec![(building.slot()?, *root)];
        while let Some((slot, id)) = open.pop() {
            let field = |name: &str| document.get(id, name);
            let children = field("children_spec").map_or(&[][..], |id| document.items(id));
            let shape = json_shape(&document, field("type"), field("context"), children.len())?;
            open.extend(building.fill(slot, shape, children)?);
        }
        Ok(building.spec)
    }

    /// Reads a pickled `torch.utils._pytree.TreeSpec`.
    pub(super) fn from_pickle(pickle: &Pickle, limits: &Limits) -> Result<Self> {
        // Each reference to a node takes at least a byte, which limits the size of a tree with
        // shared branches.
        let mut building = Building::new(limits.values.min(pickle.end()));
        let mut open = vec![(building.slot()?, pickle.root())];
        while let Some((slot, id)) = open.pop() {
            let state =
                pickle.state(id).ok_or_else(|| bad("one of its nodes is not a TreeSpec"))?;
            let field = |name: &str| pickle.field(state, name);
            let children =
                field("children_specs").and_then(|id| pickle.sequence(id)).unwrap_or_default();
            let shape = pickle_shape(pickle, field("type"), field("context"), children.len())?;
            open.extend(building.fill(slot, shape, children)?);
        }
        Ok(building.spec)
    }
}

struct Building {
    spec: Spec,
    most: u64,
}

impl Building {
    fn new(most: u64) -> Self {
        Self { spec: Spec { nodes: Vec::new() }, most }
    }

    fn slot(&mut self) -> Result<usize> {
        Limits::check("values of the state dict", self.spec.nodes.len() as u64 + 1, self.most)?;
        try_alloc::push(&mut self.spec.nodes, SpecNode(None))?;
        Ok(self.spec.nodes.len() - 1)
    }

    /// Sets the kind of a node; a node without a kind is a leaf. Returns its children, which are
    /// still to be filled.
    fn fill<T: Copy>(
        &mut self,
        slot: usize,
        shape: Option<(NodeKind, Steps)>,
        children: &[T],
    ) -> Result<Vec<(usize, T)>> {
        let Some((shape, steps)) = shape else {
            return match children {
                [] => Ok(Vec::new()),
                _ => Err(bad("a leaf of it has children")),
            };
        };
        let first = self.spec.nodes.len();
        try_alloc::make_room(&mut self.spec.nodes, children.len() as u64)?;
        let mut open = try_alloc::vec(children.len() as u64)?;
        for child in children.iter().take(steps.len()) {
            open.push((self.slot()?, *child));
        }
        self.spec.nodes[slot] = SpecNode(Some(Box::new(SpecContainer { shape, first, steps })));
        Ok(open)
    }
}

fn bad(what: &str) -> Error {
    Error::damaged(format!("the tree of the state dict is invalid: {what}"))
}

/// Returns the names of the children of a defaultdict. Its context is the factory and the list of
/// keys, and the library iterates over the context as if it were the keys: the first value is
/// stored under the name of the factory, the second under the list of all keys, and all further
/// ones are lost.
fn defaulted(keys: Vec<DictKey>, factory: &str, list: &str) -> Steps {
    let mut stored = vec![None; keys.len()];
    for (place, name) in stored.iter_mut().zip([factory, list]) {
        *place = Some(name.into());
    }
    Steps::Renamed(keys, stored)
}

fn json_shape(
    document: &Document,
    class: Option<Id>,
    context: Option<Id>,
    count: usize,
) -> Result<Option<(NodeKind, Steps)>> {
    let class = match class.map(|id| document.node(id)) {
        None | Some(JsonNode::Null) => return Ok(None),
        Some(JsonNode::Str(text)) => text.to_lossy().into_owned(),
        Some(_) => return Err(bad("one of its nodes has a type that is not a name")),
    };
    let keys = || -> Result<Vec<DictKey>> {
        let text = context
            .and_then(|id| document.node(id).text())
            .ok_or_else(|| bad("a dict of it has no keys"))?;
        let inner = Document::parse(text.as_bytes())?;
        Ok(inner.items(inner.root()).iter().map(|id| json_key(&inner, *id)).collect())
    };
    let checked = |keys: Vec<DictKey>| match keys.len() == count {
        true => Ok(keys),
        false => Err(bad("a dict of it has more keys than values, or fewer")),
    };
    let dict = |class: DictClass| Ok((NodeKind::Dict(class), Steps::Keys(checked(keys()?)?)));
    let shape = match class.as_str() {
        "builtins.dict" => dict(DictClass::Dict),
        "collections.OrderedDict" => dict(DictClass::Ordered),
        "torch.fx.immutable_collections.immutable_dict" => {
            let class = Global::new("torch.fx.immutable_collections", "immutable_dict");
            dict(DictClass::Other(class.into()))
        }
        "builtins.list" | "torch.fx.immutable_collections.immutable_list" => {
            Ok((NodeKind::List(ListClass::List), Steps::Positions(count)))
        }
        "collections.deque" => {
            Ok((NodeKind::List(ListClass::Deque(None)), Steps::Positions(count)))
        }
        "builtins.tuple" => Ok((NodeKind::Tuple(TupleClass::Tuple), Steps::Positions(count))),
        "builtins.set" => Ok((NodeKind::Set, Steps::Positions(count))),
        "collections.namedtuple" => {
            let name = context.and_then(|id| document.node(id).text());
            match name {
                Some(name) if *name == "NestedObject" => {
                    Ok((NodeKind::NestedObject, Steps::Positions(count)))
                }
                name => {
                    let name = name
                        .map_or_else(|| "namedtuple".into(), |name| name.to_lossy().into_owned());
                    let class = TupleClass::Named(Global::new("", name).into());
                    Ok((NodeKind::Tuple(class), Steps::Positions(count)))
                }
            }
        }
        "collections.defaultdict" => {
            let context = context.ok_or_else(|| bad("a defaultdict of it has no keys"))?;
            let list = document
                .get(context, "dict_context")
                .ok_or_else(|| bad("a defaultdict of it has no keys"))?;
            let keys = document.items(list).iter().map(|id| json_key(document, *id)).collect();
            let name =
                |field: &str| document.field(context, field).and_then(JsonNode::text).cloned();
            let factory = match (name("default_factory_module"), name("default_factory_name")) {
                (Some(module), Some(name)) => {
                    Some(Arc::new(Global::new(&*module.to_lossy(), &*name.to_lossy())))
                }
                _ => None,
            };
            let steps = defaulted(
                checked(keys)?,
                &factory_repr(factory.as_deref()),
                &document.python(list).to_string(),
            );
            Ok((NodeKind::Dict(DictClass::Default(factory)), steps))
        }
        other => {
            Err(Error::unsupported(format!("the state dict holds a container of class {other}")))
        }
    };
    shape.map(Some)
}

/// Returns a key as JSON represents it, where a tuple is a list.
fn json_key(document: &Document, id: Id) -> DictKey {
    match document.node(id) {
        JsonNode::Str(text) => DictKey::Str(text.clone()),
        JsonNode::Int(int) => DictKey::Int(int.clone()),
        JsonNode::Bool(value) => DictKey::Bool(*value),
        JsonNode::Float(float) => DictKey::Float(*float),
        JsonNode::Null => DictKey::None,
        JsonNode::Array(items)
            if items.iter().all(|id| !matches!(document.node(*id), JsonNode::Array(_))) =>
        {
            DictKey::Tuple(items.iter().map(|id| json_key(document, *id)).collect())
        }
        _ => DictKey::Other(document.python(id).to_string().into()),
    }
}

fn factory_repr(factory: Option<&Global>) -> String {
    match factory {
        None => "None".into(),
        Some(class) if &*class.module == "builtins" => format!("<class '{}'>", class.name),
        Some(class) => format!("<class '{class}'>"),
    }
}

fn pickle_shape(
    pickle: &Pickle,
    class: Option<NodeId>,
    context: Option<NodeId>,
    count: usize,
) -> Result<Option<(NodeKind, Steps)>> {
    let Some(class) = class.filter(|id| !matches!(pickle.node(*id), PickleNode::None)) else {
        return Ok(None);
    };
    let class = pickle
        .global(class)
        .ok_or_else(|| bad("one of its nodes has a type that is not a class"))?;
    let keys = |list: Option<NodeId>| -> Result<Vec<DictKey>> {
        let list = list
            .and_then(|id| pickle.sequence(id))
            .ok_or_else(|| bad("a dict of it has no keys"))?;
        if list.len() != count {
            return Err(bad("a dict of it has more keys than values, or fewer"));
        }
        Ok(list.iter().map(|id| pickle_key(pickle, *id)).collect())
    };
    Ok(Some(match (&*class.module, &*class.name) {
        ("builtins", "dict") => (NodeKind::Dict(DictClass::Dict), Steps::Keys(keys(context)?)),
        ("collections", "OrderedDict") => {
            (NodeKind::Dict(DictClass::Ordered), Steps::Keys(keys(context)?))
        }
        // Early releases had their own dict class for tensors and scalars.
        (_, "TensorScalarDict") => (NodeKind::Dict(DictClass::Dict), Steps::Keys(keys(context)?)),
        ("builtins", "list") => (NodeKind::List(ListClass::List), Steps::Positions(count)),
        ("collections", "deque") => {
            let limit =
                context.and_then(|id| pickle.int(id)).and_then(|len| u64::try_from(len).ok());
            (NodeKind::List(ListClass::Deque(limit)), Steps::Positions(count))
        }
        ("builtins", "tuple") => (NodeKind::Tuple(TupleClass::Tuple), Steps::Positions(count)),
        ("builtins", "set") => (NodeKind::Set, Steps::Positions(count)),
        ("torch", "Size") => (NodeKind::Tuple(TupleClass::Size), Steps::Positions(count)),
        ("collections", "namedtuple") => {
            let class = context.and_then(|id| pickle.global(id));
            let class = class.unwrap_or_else(|| Arc::new(Global::new("collections", "namedtuple")));
            (NodeKind::Tuple(TupleClass::Named(class)), Steps::Positions(count))
        }
        ("collections", "defaultdict") => {
            let parts = context.and_then(|id| pickle.sequence(id)).unwrap_or_default();
            let list = parts.get(1).copied();
            let factory = parts.first().and_then(|id| pickle.global(*id));
            let keys = keys(list)?;
            let repr = keys.iter().map(key_repr).collect::<Vec<_>>().join(", ");
            let steps = defaulted(keys, &factory_repr(factory.as_deref()), &format!("[{repr}]"));
            (NodeKind::Dict(DictClass::Default(factory)), steps)
        }
        _ => {
            return Err(Error::unsupported(format!(
                "the state dict holds a container of class {class}"
            )));
        }
    }))
}

/// Returns Python's `repr` of a key.
fn key_repr(key: &DictKey) -> String {
    match key {
        DictKey::Str(_) => {
            let tuple = DictKey::Tuple(vec![key.clone()]).to_string();
            tuple.trim_start_matches('(').trim_end_matches(",)").to_owned()
        }
        key => key.to_string(),
    }
}

fn pickle_key(pickle: &Pickle, id: NodeId) -> DictKey {
    pickle.dict_key(id).unwrap_or_else(|| {
        // The representation of a class or a number is cheap, however often it is used as a key.
        let complex = || pickle.call(id).is_some_and(|(class, _)| class.is("builtins", "complex"));
        let cheap = pickle.global(id).is_some() || complex();
        let text = if cheap { pickle.repr(id) } else { None };
        DictKey::Other(text.unwrap_or_else(|| "an object".into()).into())
    })
}
