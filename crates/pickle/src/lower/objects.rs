//! Objects of unknown classes: their fields become the entries of a dict, and their class one more
//! entry. Nothing is instantiated.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{
    Dict, DictClass, DictKey, Form, Global, Opaque, Result, Text, Value, ValueId,
};

use super::{Assembly, Entries, LoweredNode, Lowering, NOT_YET};
use crate::{BuiltObject, Node, NodeId};

/// Maximum number of arguments of a call that is shown in one line, such as that of an enum's
/// member.
const SHORT_ARGS: usize = 6;
/// Maximum number of bytes of a text among such arguments.
const SHORT_TEXT: usize = 256;

/// The entries of an object: unique keys, and a node for each.
#[derive(Default)]
pub(super) struct Fields {
    keys: Entries,
    nodes: Vec<NodeId>,
    names: HashMap<Text, usize>,
}

impl Fields {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds an entry. A name that exists already is prefixed with `origin`.
    pub(super) fn add(&mut self, key: DictKey, node: NodeId, origin: &str) {
        let mut key = key;
        while let DictKey::Str(text) = &key {
            if !self.names.contains_key(text) {
                self.names.insert(text.clone(), self.nodes.len());
                break;
            }
            let bytes = [origin.as_bytes(), b".", text.as_bytes()].concat();
            match Text::from_surrogatepass(&bytes) {
                Ok(longer) => key = DictKey::Str(longer),
                Err(_) => break,
            }
        }
        self.keys.push((key, NOT_YET));
        self.nodes.push(node);
    }

    /// Sets a field, as `BUILD` does: an existing one of that name is replaced.
    fn set(&mut self, key: DictKey, node: NodeId) {
        let place = match &key {
            DictKey::Str(text) => self.names.get(text).copied(),
            _ => None,
        };
        match place.and_then(|place| self.nodes.get_mut(place)) {
            Some(old) => *old = node,
            None => self.add(key, node, "__dict__"),
        }
    }
}

impl Lowering<'_> {
    /// Converts an object that no library is known for.
    pub(super) fn unknown(&mut self, id: NodeId, object: &BuiltObject<'_>) -> LoweredNode {
        if let Some(module) = self.module(id, object) {
            return module;
        }
        let (class, form, args) = self.made_from(object);
        let is_bare = object.items.is_empty() && object.entries.is_empty();
        let is_plain = is_bare && object.kwargs.is_none() && object.states.is_empty();
        let is_namespace =
            class.is("argparse", "Namespace") || class.is("types", "SimpleNamespace");
        if is_bare
            && !is_namespace
            && let Some(repr) = self.repr(id)
        {
            let opaque = Opaque { repr: Some(repr.into()), ..super::empty(class, form) };
            let state = object.states.last().copied();
            return opaque_of(opaque, args, state, &[]);
        }
        if is_plain && args.len() <= SHORT_ARGS && args.iter().all(|arg| self.is_short(*arg)) {
            return opaque_of(super::empty(class, form), args, None, &[]);
        }
        let mut fields = Fields::default();
        self.fill(&mut fields, &args, object);
        object_of(class, form, fields, None)
    }

    /// Returns an object that has only these fields.
    pub(super) fn with_fields(&mut self, class: Global, state: NodeId) -> LoweredNode {
        let mut fields = Fields::default();
        self.state_fields(&mut fields, state);
        object_of(class, Form::Instance, fields, None)
    }

    /// Returns the class or function, how it is used, and the arguments. A function that is itself
    /// the result of a call is returned as the first argument.
    pub(super) fn made_from(&self, object: &BuiltObject<'_>) -> (Global, Form, Vec<NodeId>) {
        let pickle = self.pickle;
        let global = pickle.global(object.callable);
        let args = pickle.sequence(object.args).filter(|args| self.afford(args.len()));
        // Instances in older protocols: class, built-in base, value of that base.
        if let (Some(function), Some([class, base, value])) = (&global, args)
            && function.is("copyreg", "_reconstructor")
            && let (Some(class), Some(base)) = (pickle.global(*class), pickle.global(*base))
        {
            let is_object = base.is("builtins", "object");
            let args = if is_object { Vec::new() } else { vec![*value] };
            return ((*class).clone(), Form::Instance, args);
        }
        if let (Some(function), Some([class, args @ ..])) = (&global, args)
            && function.is("copyreg", "__newobj__")
            && let Some(class) = pickle.global(*class)
        {
            return ((*class).clone(), Form::Instance, args.to_vec());
        }
        let mut all = Vec::new();
        let class = match global {
            Some(class) => (*class).clone(),
            // The behaviour of a class that `dill` recreates is code, not a field.
            None => self.made_class(object.callable).unwrap_or_else(|| {
                all.push(object.callable);
                Global::new("?", "call")
            }),
        };
        match args {
            Some(args) => all.extend(args),
            None => all.push(object.args),
        }
        (class, object.form, all)
    }

    /// Returns whether an argument is short and plain.
    fn is_short(&self, id: NodeId) -> bool {
        match self.pickle.node(id) {
            Node::None | Node::Bool(_) | Node::Float(_) | Node::Global(_) => true,
            Node::Int(int) => int.to_i64().is_some(),
            Node::Str(text) => text.as_bytes().len() <= SHORT_TEXT,
            Node::Bytes(bytes) => bytes.len() <= SHORT_TEXT,
            _ => false,
        }
    }

    /// Adds everything that an object is made from and filled with.
    pub(super) fn fill(&self, fields: &mut Fields, args: &[NodeId], object: &BuiltObject<'_>) {
        for (index, arg) in args.iter().enumerate() {
            fields.add(DictKey::from(format!("args[{index}]").as_str()), *arg, "args");
        }
        if let Some(kwargs) = object.kwargs {
            self.add_entries(fields, kwargs, "kwargs");
        }
        for state in &object.states {
            self.state_fields(fields, *state);
        }
        self.add_contents(fields, object);
    }

    /// Adds the contents that an object got after it was created.
    pub(super) fn add_contents(&self, fields: &mut Fields, object: &BuiltObject<'_>) {
        for (index, item) in (0u64..).zip(&object.items) {
            fields.add(DictKey::Int(index.into()), *item, "items");
        }
        for (key, value) in self.keyed(&object.entries) {
            fields.add(key, value, "entries");
        }
    }

    /// Adds the fields of a state: attributes, those in `__slots__` (`(attributes, slots)`), or as
    /// `state` if only the class can interpret it.
    pub(super) fn state_fields(&self, fields: &mut Fields, state: NodeId) {
        let pickle = self.pickle;
        let is_fields =
            |id: &NodeId| matches!(pickle.node(*id), Node::None) || pickle.dict(*id).is_some();
        match pickle.node(state) {
            Node::Dict(_) => self.set_entries(fields, state),
            Node::Tuple(parts) => match pickle.items(*parts) {
                [attributes, slots] if is_fields(attributes) && is_fields(slots) => {
                    self.set_entries(fields, *attributes);
                    self.set_entries(fields, *slots);
                }
                _ => fields.set("state".into(), state),
            },
            _ => fields.set("state".into(), state),
        }
    }

    fn set_entries(&self, fields: &mut Fields, dict: NodeId) {
        let entries = self.pickle.dict(dict).unwrap_or_default();
        // A dict that is shared by many objects is kept as one entry.
        if !self.afford(entries.len()) {
            return fields.set("state".into(), dict);
        }
        for (key, value) in self.keyed(entries) {
            fields.set(key, value);
        }
    }

    fn add_entries(&self, fields: &mut Fields, dict: NodeId, origin: &str) {
        let entries = self.pickle.dict(dict).unwrap_or_default();
        if !self.afford(entries.len()) {
            return fields.add(origin.into(), dict, origin);
        }
        for (key, value) in self.keyed(entries) {
            fields.add(key, value, origin);
        }
    }

    /// Returns the dict of an object whose parts have been lowered.
    pub(super) fn assemble_object(
        &mut self,
        class: Opaque,
        mut entries: Entries,
        state: Option<usize>,
        ids: &[ValueId],
    ) -> Result<Value> {
        let name = match class.form {
            Form::Call => "__reduce__",
            Form::Instance | Form::Reference => "__class__",
        };
        let global = class.global;
        let reference = Opaque::reference(global.clone(), None);
        let reference = self.builder.push(Value::Opaque(Box::new(reference)))?;
        for ((_, place), id) in entries.iter_mut().zip(ids) {
            *place = *id;
        }
        let names: HashSet<&Text> = entries
            .iter()
            .filter_map(|(key, _)| match key {
                DictKey::Str(text) => Some(text),
                _ => None,
            })
            .collect();
        let mut name = name.to_owned();
        while names.contains(&Text::from(name.as_str())) {
            name.push('_');
        }
        let at = state.unwrap_or(0).min(entries.len());
        entries.insert(at, (DictKey::from(name.as_str()), reference));
        if state.is_some() {
            for (_, id) in &entries[at..] {
                self.builder.set_outside_state(*id, true);
            }
        }
        Ok(Value::Dict(Dict { class: DictClass::Object(global.into()), entries }))
    }
}

/// Returns an object that is one leaf.
pub(super) fn opaque_of(
    opaque: Opaque,
    args: Vec<NodeId>,
    state: Option<NodeId>,
    items: &[NodeId],
) -> LoweredNode {
    let mut parts = args;
    let args = parts.len();
    parts.extend(state);
    parts.extend(items);
    let opaque = Box::new(opaque);
    LoweredNode::Parts(Assembly::Opaque { opaque, args, state: state.is_some() }, parts)
}

/// Returns an object with these fields; for a module, with the number of fields in its state dict.
pub(super) fn object_of(
    class: Global,
    form: Form,
    fields: Fields,
    state: Option<usize>,
) -> LoweredNode {
    let class = Box::new(super::empty(class, form));
    LoweredNode::Parts(Assembly::Object { class, entries: fields.keys, state }, fields.nodes)
}
