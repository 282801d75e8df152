//! Modules of torch that were pickled whole: their entries are those of `state_dict()`, with its
//! names and in its order, followed by all other attributes.
//!
//! A module is recognised by its attributes `_parameters`, `_buffers` and `_modules`
//! (`torch/nn/modules/module.py`), whatever its class. `Module._save_to_state_dict` saves its
//! parameters and then its buffers, except those that are `None` or in
//! `_non_persistent_buffers_set`; `Module.state_dict` continues with its child modules.

use std::collections::HashSet;

use statelens_checkpoint::{DictKey, has_word};

use super::objects::{Fields, object_of};
use super::{Assembly, LoweredNode, Lowering};
use crate::{BuiltObject, Node, NodeId};

/// The attributes that make up the state dict.
const STATE: [&str; 3] = ["_parameters", "_buffers", "_modules"];
/// The attribute that names the buffers to omit.
const NOT_PERSISTENT: &str = "_non_persistent_buffers_set";
/// Attributes of every module, which are omitted if empty.
const HOOKS: &str = "
    _backward_hooks _backward_pre_hooks _forward_hooks _forward_hooks_always_called
    _forward_hooks_with_kwargs _forward_pre_hooks _forward_pre_hooks_with_kwargs
    _load_state_dict_post_hooks _load_state_dict_pre_hooks _state_dict_hooks _state_dict_pre_hooks
    _non_persistent_buffers_set
";

impl Lowering<'_> {
    /// Recognises a module: an object with such attributes, or one that is made from them.
    pub(super) fn module(&mut self, id: NodeId, object: &BuiltObject<'_>) -> Option<LoweredNode> {
        if let Some(inner) = self.compiled(id) {
            return Some(self.compiled_module(id, object, inner));
        }
        let attributes = self.module_attributes(id)?;
        let mut fields = self.state_dict(attributes)?;
        let state = fields.len();
        self.add_others(&mut fields, attributes);
        let (class, form, args) = self.made_from(object);
        self.add_made_from(&mut fields, object, &args, attributes);
        self.state.modules.insert(id);
        Some(object_of(class, form, fields, Some(state)))
    }

    /// Returns the module that `torch.compile` wraps: the first argument of
    /// `OptimizedModule(module, context)` (`torch/_dynamo/eval_frame.py` of torch 2.15). Earlier
    /// releases pickle the wrapper like any other module.
    fn compiled(&self, id: NodeId) -> Option<NodeId> {
        let (class, args) = self.pickle.call(id)?;
        let is_wrapper = class.is("torch._dynamo.eval_frame", "OptimizedModule");
        let inner = args.first().copied().filter(|_| is_wrapper)?;
        self.module_attributes(inner).map(|_| inner)
    }

    /// Converts such a wrapper: `state_dict()` has the wrapped module as `_orig_mod`.
    fn compiled_module(&self, id: NodeId, object: &BuiltObject<'_>, inner: NodeId) -> LoweredNode {
        let (class, form, _) = self.made_from(object);
        let mut fields = Fields::default();
        fields.add("_orig_mod".into(), inner, "_modules");
        let state = fields.len();
        let args = self.pickle.call(id).map(|(_, args)| args).unwrap_or_default();
        for (index, arg) in args.iter().enumerate().skip(1) {
            fields.add(DictKey::from(format!("args[{index}]").as_str()), *arg, "args");
        }
        self.fill(&mut fields, &[], object);
        object_of(class, form, fields, Some(state))
    }

    /// Handles a module that another module contains and that has a place elsewhere: `state_dict()`
    /// has its tensors under both names. `None` for anything else.
    pub(super) fn shared_module(&mut self, id: NodeId) -> Option<(Assembly, Vec<NodeId>)> {
        if !self.state.modules.contains(&id) {
            return None;
        }
        let frame = self.state.stack.last()?;
        let Assembly::Object { state: Some(state), .. } = &frame.assembly else { return None };
        let is_child = frame.ids.len() < *state;
        let is_within = self.state.stack.iter().any(|frame| frame.node == id);
        if !is_child || is_within || !self.afford(self.state.stack.len()) {
            return None;
        }
        let attributes = self.module_attributes(id)?;
        let fields = self.state_dict(attributes)?;
        // All copies together may be about as large as the file.
        let copies = self.state.copies.saturating_add(fields.len().max(1));
        if copies > self.pickle.nodes.len().saturating_add(COPIES) {
            return None;
        }
        self.state.copies = copies;
        let state = fields.len();
        let (class, form, _) = self.made_from(&self.pickle.object(id)?);
        match object_of(class, form, fields, Some(state)) {
            LoweredNode::Parts(assembly, parts) => Some((assembly, parts)),
            _ => None,
        }
    }

    /// Returns the dict of the attributes of a module.
    fn module_attributes(&self, id: NodeId) -> Option<NodeId> {
        let pickle = self.pickle;
        let object = pickle.object(id)?;
        let of_state = |state: &NodeId| match pickle.node(*state) {
            Node::Tuple(parts) => pickle.items(*parts).first().copied(),
            _ => Some(*state),
        };
        let state = object.states.last().and_then(of_state);
        // `_reconstruct_persistent_obj({…, 'state': attributes})` of StyleGAN, and
        // `reduce_graph_module(attributes, …)` of torch.fx.
        let first = pickle.sequence(object.args).and_then(|args| args.first().copied());
        let nested = first
            .filter(|first| self.is_small(*first))
            .and_then(|first| pickle.field(first, "state"));
        [state, nested, first].into_iter().flatten().find(|dict| self.is_module(*dict))
    }

    /// Returns whether a dict is short enough to be searched.
    fn is_small(&self, dict: NodeId) -> bool {
        self.pickle.dict(dict).is_some_and(|entries| self.afford(entries.len()))
    }

    fn is_module(&self, attributes: NodeId) -> bool {
        self.is_small(attributes)
            && STATE.iter().all(|name| {
                let field = self.pickle.field(attributes, name);
                field.is_some_and(|field| self.mapping_entries(field).is_some())
            })
    }

    /// Returns the entries of a dict or an `OrderedDict`.
    fn mapping_entries(&self, id: NodeId) -> Option<Vec<(NodeId, NodeId)>> {
        let pickle = self.pickle;
        if let Some(entries) = pickle.dict(id) {
            return self.afford(entries.len()).then(|| entries.to_vec());
        }
        let (class, args) = pickle.call(id)?;
        if !class.is("collections", "OrderedDict") {
            return None;
        }
        let mut entries = Vec::new();
        if let [pairs] = args {
            let pairs = pickle.sequence(*pairs).filter(|pairs| self.afford(pairs.len()))?;
            for pair in pairs {
                let [key, value] = pickle.sequence(*pair)? else { return None };
                entries.push((*key, *value));
            }
        }
        let object = pickle.object(id)?;
        if !self.afford(object.entries.len()) {
            return None;
        }
        entries.extend(&object.entries);
        Some(entries)
    }

    /// Returns the named values of one of the three attributes.
    fn named(&self, attributes: NodeId, name: &str) -> Option<Vec<(DictKey, NodeId)>> {
        let entries = self.mapping_entries(self.pickle.field(attributes, name)?)?;
        Some(self.keyed(&entries).collect())
    }

    fn is_none(&self, id: NodeId) -> bool {
        matches!(self.pickle.node(id), Node::None)
    }

    /// Returns the names of the buffers that are not persistent.
    fn not_persistent(&self, attributes: NodeId) -> HashSet<String> {
        let pickle = self.pickle;
        let members = |id: NodeId| match pickle.call(id) {
            Some((_, [items])) => pickle.members(pickle.node(*items)),
            _ => pickle.members(pickle.node(id)),
        };
        let names = pickle.field(attributes, NOT_PERSISTENT).and_then(members).unwrap_or_default();
        match self.afford(names.len()) {
            true => names.iter().filter_map(|id| pickle.str(*id)).map(str::to_owned).collect(),
            false => HashSet::new(),
        }
    }

    /// Returns whether a value is in the state dict of a module that has it under `key` in the
    /// attribute `name`.
    fn is_state(&self, name: &str, key: &DictKey, value: NodeId, not: &HashSet<String>) -> bool {
        let persistent = || match key {
            DictKey::Str(text) => text.as_str().is_none_or(|text| !not.contains(text)),
            _ => true,
        };
        match name {
            _ if self.is_none(value) => false,
            "_buffers" => persistent(),
            "_modules" => self.module_attributes(value).is_some() || self.compiled(value).is_some(),
            _ => true,
        }
    }

    /// Returns one level of the result of `state_dict()`.
    fn state_dict(&self, attributes: NodeId) -> Option<Fields> {
        let not = self.not_persistent(attributes);
        let mut fields = Fields::default();
        for name in STATE {
            for (key, value) in self.named(attributes, name)? {
                if self.is_state(name, &key, value, &not) {
                    fields.add(key, value, name);
                }
            }
        }
        Some(fields)
    }

    /// Adds the attributes that `state_dict()` omits, and the omitted entries of the three.
    fn add_others(&self, fields: &mut Fields, attributes: NodeId) {
        let not = self.not_persistent(attributes);
        for name in STATE {
            for (key, value) in self.named(attributes, name).unwrap_or_default() {
                if !self.is_state(name, &key, value, &not) {
                    fields.add(key, value, name);
                }
            }
        }
        for (key, value) in self.keyed(self.pickle.dict(attributes).unwrap_or_default()) {
            let known = match &key {
                DictKey::Str(text) => text.as_str().unwrap_or_default(),
                _ => "",
            };
            let is_said = STATE.contains(&known)
                || known == NOT_PERSISTENT
                || has_word(HOOKS, known) && self.is_empty(value);
            if !is_said {
                fields.add(key, value, "__dict__");
            }
        }
    }

    /// Returns whether a dict, `OrderedDict` or set is empty.
    fn is_empty(&self, id: NodeId) -> bool {
        self.mapping_entries(id).is_some_and(|entries| entries.is_empty())
    }

    /// Adds what a module is made from in addition to its attributes: arguments, slots, items.
    fn add_made_from(
        &self,
        fields: &mut Fields,
        object: &BuiltObject<'_>,
        args: &[NodeId],
        attributes: NodeId,
    ) {
        let pickle = self.pickle;
        for (index, arg) in args.iter().enumerate() {
            let wraps = || pickle.field(*arg, "state") == Some(attributes);
            let name = format!("args[{index}]");
            if *arg == attributes {
                continue;
            }
            if pickle.dict(*arg).is_some() && self.is_small(*arg) && wraps() {
                for (key, value) in self.keyed(pickle.dict(*arg).unwrap_or_default()) {
                    if value != attributes {
                        fields.add(DictKey::from(format!("{name}.{key}").as_str()), value, "args");
                    }
                }
                continue;
            }
            fields.add(DictKey::from(name.as_str()), *arg, "args");
        }
        for state in object.states.iter().filter(|state| **state != attributes) {
            match pickle.node(*state) {
                Node::Tuple(parts) => match pickle.items(*parts) {
                    [first, slots] if *first == attributes && self.is_none(*slots) => {}
                    [first, slots] if *first == attributes => {
                        fields.add("__slots__".into(), *slots, "__slots__");
                    }
                    _ => fields.add("state".into(), *state, "state"),
                },
                _ => fields.add("state".into(), *state, "state"),
            }
        }
        self.add_contents(fields, object);
    }
}

/// The number of entries of modules that may be copied, however small the file.
const COPIES: usize = 4096;
