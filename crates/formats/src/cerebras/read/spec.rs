//! The tree of a state dict, as both families of the format describe it: a nesting of
//! containers with a leaf where each value goes.

use std::sync::Arc;

use statelens_checkpoint::{
    DictClass, DictKey, Error, Global, Interner, Key, KeyPart, Limits, ListClass, Result, Text,
    TupleClass,
};
use statelens_pickle::{Node as PickleNode, NodeId, Pickle};

use crate::json::{Document, Id, Node};

/// The tree; its first node is the root.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) nodes: Vec<SpecNode>,
}

/// A container or a leaf.
#[derive(Debug)]
pub(super) struct SpecNode {
    pub(super) shape: Shape,
    pub(super) children: Vec<Child>,
}

/// What is at a node.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    Leaf,
    List(ListClass),
    Tuple(TupleClass),
    Set,
    /// Keys are those of the children.
    Dict(DictClass),
    /// A value and what the library must know to make something of it.
    NestedObject,
}

/// A child, and the two names of the step that leads to it.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) node: usize,
    /// Its key, in a dict.
    pub(super) key: Option<DictKey>,
    /// What the file calls the step; none where the library that wrote it lost the child.
    pub(super) stored: Option<Text>,
    /// That is not what its key gives.
    pub(super) renamed: bool,
}

impl Spec {
    /// From the JSON that torch's `treespec_dumps` writes: a protocol and a node.
    pub(super) fn from_json(text: Text, limits: &Limits) -> Result<Self> {
        let document = Document::parse_sharing(text.as_bytes(), &mut Interner::default())?;
        // It is as long as all keys together.
        drop(text);
        let [protocol, root] = document.items(document.root()) else {
            return Err(bad("it is not a protocol and a tree"));
        };
        if document.node(*protocol) != &Node::Int(1i64.into()) {
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
            let (shape, steps) = shape;
            open.extend(building.fill(slot, shape, steps, children)?);
        }
        Ok(building.spec)
    }

    /// From a pickled `torch.utils._pytree.TreeSpec`.
    pub(super) fn from_pickle(pickle: &Pickle, limits: &Limits) -> Result<Self> {
        // Every node takes a byte to name, so a tree that shares its branches can't grow.
        let mut building = Building::new(limits.values.min(pickle.end()));
        let mut open = vec![(building.slot()?, pickle.root())];
        while let Some((slot, id)) = open.pop() {
            let state =
                pickle.state(id).ok_or_else(|| bad("one of its nodes is not a TreeSpec"))?;
            let field = |name: &str| pickle.field(state, name);
            let children =
                field("children_specs").and_then(|id| pickle.sequence(id)).unwrap_or_default();
            let (shape, steps) =
                pickle_shape(pickle, field("type"), field("context"), children.len())?;
            open.extend(building.fill(slot, shape, steps, children)?);
        }
        Ok(building.spec)
    }
}

struct Building {
    spec: Spec,
    most: u64,
}

/// For each child: its key in a dict, and what the file calls the step.
type Steps = Vec<(Option<DictKey>, Option<Text>)>;

impl Building {
    fn new(most: u64) -> Self {
        Self { spec: Spec { nodes: Vec::new() }, most }
    }

    fn slot(&mut self) -> Result<usize> {
        Limits::check("values of the state dict", self.spec.nodes.len() as u64 + 1, self.most)?;
        self.spec.nodes.push(SpecNode { shape: Shape::Leaf, children: Vec::new() });
        Ok(self.spec.nodes.len() - 1)
    }

    /// Makes a node what it is; returns its children, still to be filled.
    fn fill<T: Copy>(
        &mut self,
        slot: usize,
        shape: Shape,
        steps: Steps,
        children: &[T],
    ) -> Result<Vec<(usize, T)>> {
        if shape == Shape::Leaf && !children.is_empty() {
            return Err(bad("a leaf of it has children"));
        }
        let mut filled = Vec::with_capacity(children.len());
        let mut open = Vec::with_capacity(children.len());
        let renamed = matches!(shape, Shape::Dict(DictClass::Default(_)));
        for (child, (key, stored)) in children.iter().zip(steps) {
            let node = self.slot()?;
            filled.push(Child { node, key, stored, renamed });
            open.push((node, *child));
        }
        self.spec.nodes[slot] = SpecNode { shape, children: filled };
        Ok(open)
    }
}

fn bad(what: &str) -> Error {
    Error::damaged(format!("the tree of the state dict can't be understood: {what}"))
}

fn positions(count: usize) -> Steps {
    (0..count).map(|index| (None, Some(index.to_string().into()))).collect()
}

/// The steps of a dict: Python's `str()` of each key.
fn named(keys: Vec<DictKey>) -> Steps {
    keys.into_iter()
        .map(|key| {
            let step = Key { parts: vec![KeyPart::Field(key.clone())] }.flat();
            (Some(key), Some(step))
        })
        .collect()
}

/// A defaultdict's context is its factory and its keys, and the library walks that as if it were
/// the keys: the first value goes by the factory's name, the second by the list of all keys,
/// and any further one is lost.
fn defaulted(keys: Vec<DictKey>, factory: &str, list: &str) -> Steps {
    let mut wrong = [factory, list].into_iter().map(|name| Some(Text::from(name)));
    keys.into_iter().map(|key| (Some(key), wrong.next().flatten())).collect()
}

fn json_shape(
    document: &Document,
    class: Option<Id>,
    context: Option<Id>,
    count: usize,
) -> Result<(Shape, Steps)> {
    let class = match class.map(|id| document.node(id)) {
        None | Some(Node::Null) => return Ok((Shape::Leaf, Vec::new())),
        Some(Node::Str(text)) => text.to_lossy().into_owned(),
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
    let dict = |class: DictClass| Ok((Shape::Dict(class), named(checked(keys()?)?)));
    match class.as_str() {
        "builtins.dict" => dict(DictClass::Dict),
        "collections.OrderedDict" => dict(DictClass::Ordered),
        "torch.fx.immutable_collections.immutable_dict" => {
            let class = Global::new("torch.fx.immutable_collections", "immutable_dict");
            dict(DictClass::Other(class.into()))
        }
        "builtins.list" | "torch.fx.immutable_collections.immutable_list" => {
            Ok((Shape::List(ListClass::List), positions(count)))
        }
        "collections.deque" => Ok((Shape::List(ListClass::Deque(None)), positions(count))),
        "builtins.tuple" => Ok((Shape::Tuple(TupleClass::Tuple), positions(count))),
        "builtins.set" => Ok((Shape::Set, positions(count))),
        "collections.namedtuple" => {
            let name = context.and_then(|id| document.node(id).text());
            match name {
                Some(name) if *name == "NestedObject" => {
                    Ok((Shape::NestedObject, positions(count)))
                }
                name => {
                    let name = name
                        .map_or_else(|| "namedtuple".into(), |name| name.to_lossy().into_owned());
                    let class = TupleClass::Named(Global::new("", name).into());
                    Ok((Shape::Tuple(class), positions(count)))
                }
            }
        }
        "collections.defaultdict" => {
            let context = context.ok_or_else(|| bad("a defaultdict of it has no keys"))?;
            let list = document
                .get(context, "dict_context")
                .ok_or_else(|| bad("a defaultdict of it has no keys"))?;
            let keys = document.items(list).iter().map(|id| json_key(document, *id)).collect();
            let name = |field: &str| document.field(context, field).and_then(Node::text).cloned();
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
            Ok((Shape::Dict(DictClass::Default(factory)), steps))
        }
        other => {
            Err(Error::unsupported(format!("the state dict holds a container of class {other}")))
        }
    }
}

/// A key as JSON keeps it: a tuple has become a list.
fn json_key(document: &Document, id: Id) -> DictKey {
    match document.node(id) {
        Node::Str(text) => DictKey::Str(text.clone()),
        Node::Int(int) => DictKey::Int(int.clone()),
        Node::Bool(value) => DictKey::Bool(*value),
        Node::Float(float) => DictKey::Float(*float),
        Node::Null => DictKey::None,
        Node::Array(items)
            if items.iter().all(|id| !matches!(document.node(*id), Node::Array(_))) =>
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
) -> Result<(Shape, Steps)> {
    let Some(class) = class.filter(|id| !matches!(pickle.node(*id), PickleNode::None)) else {
        return Ok((Shape::Leaf, Vec::new()));
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
    Ok(match (&*class.module, &*class.name) {
        ("builtins", "dict") => (Shape::Dict(DictClass::Dict), named(keys(context)?)),
        ("collections", "OrderedDict") => (Shape::Dict(DictClass::Ordered), named(keys(context)?)),
        // Early releases had a dict of their own for tensors and scalars.
        (_, "TensorScalarDict") => (Shape::Dict(DictClass::Dict), named(keys(context)?)),
        ("builtins", "list") => (Shape::List(ListClass::List), positions(count)),
        ("collections", "deque") => {
            let limit =
                context.and_then(|id| pickle.int(id)).and_then(|len| u64::try_from(len).ok());
            (Shape::List(ListClass::Deque(limit)), positions(count))
        }
        ("builtins", "tuple") => (Shape::Tuple(TupleClass::Tuple), positions(count)),
        ("builtins", "set") => (Shape::Set, positions(count)),
        ("torch", "Size") => (Shape::Tuple(TupleClass::Size), positions(count)),
        ("collections", "namedtuple") => {
            let class = context.and_then(|id| pickle.global(id));
            let class = class.unwrap_or_else(|| Arc::new(Global::new("collections", "namedtuple")));
            (Shape::Tuple(TupleClass::Named(class)), positions(count))
        }
        ("collections", "defaultdict") => {
            let parts = context.and_then(|id| pickle.sequence(id)).unwrap_or_default();
            let list = parts.get(1).copied();
            let factory = parts.first().and_then(|id| pickle.global(*id));
            let keys = keys(list)?;
            let repr = keys.iter().map(key_repr).collect::<Vec<_>>().join(", ");
            let steps = defaulted(keys, &factory_repr(factory.as_deref()), &format!("[{repr}]"));
            (Shape::Dict(DictClass::Default(factory)), steps)
        }
        _ => {
            return Err(Error::unsupported(format!(
                "the state dict holds a container of class {class}"
            )));
        }
    })
}

/// Python's `repr` of a key.
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
        // The text of a class or a number costs little, however often it is a key.
        let complex = || pickle.call(id).is_some_and(|(class, _)| class.is("builtins", "complex"));
        let cheap = pickle.global(id).is_some() || complex();
        let text = if cheap { pickle.repr(id) } else { None };
        DictKey::Other(text.unwrap_or_else(|| "an object".into()).into())
    })
}
