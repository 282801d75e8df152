//! Structures of Python's own library, and of `dill`.

use std::sync::Arc;

use statelens_checkpoint::{DictClass, Form, Global, ListClass, TupleClass, Value};

use super::{Assembly, LoweredNode, Lowering, bytes, reference};
use crate::graph::is_dill;
use crate::{BuiltObject, Node, NodeId, Pickle};

impl Lowering<'_> {
    pub(super) fn python(&mut self, id: NodeId, object: &BuiltObject<'_>) -> Option<LoweredNode> {
        let (global, args) = self.pickle.call(id)?;
        let (module, name) = (&*global.module, &*global.name);
        match (module, name) {
            ("collections", "OrderedDict") => self.mapping(object, args, DictClass::Ordered),
            ("collections", "Counter") => self.mapping(object, args, DictClass::Counter),
            ("collections", "defaultdict") => {
                let Some((first, rest)) = args.split_first() else {
                    return self.mapping(object, args, DictClass::Default(None));
                };
                let factory = match self.pickle.node(*first) {
                    Node::None => None,
                    // A factory that is not a class or function is a field of an object.
                    _ => Some(self.pickle.global(*first)?),
                };
                self.mapping(object, rest, DictClass::Default(factory))
            }
            ("collections", "deque") => self.deque(object, args),
            ("builtins", _) => self.builtin(id, object, name, args),
            ("_codecs", "encode") => self.bytes_of(id).map(|data| LoweredNode::Plain(bytes(data))),
            ("copyreg", "_reconstructor") => self.reconstructor(object, args),
            ("copyreg", "__newobj__") => {
                let (class, rest) = args.split_first()?;
                let class = self.pickle.global(*class)?;
                self.instance(object, &class, rest)
            }
            ("torch.jit._pickle", _) => self.restored(args),
            _ if is_dill(&global) => self.dill(name, args),
            _ if object.form == Form::Instance => self.instance(object, &global, args),
            _ if object.form == Form::Call && args.is_empty() => self.filled(object, &global),
            _ => None,
        }
    }

    /// Returns the bytes of a node, however the protocol spells them. Bytes decoded from text are
    /// cached, because many objects may be spelled with the same text.
    pub(super) fn bytes_of(&mut self, id: NodeId) -> Option<Arc<[u8]>> {
        let spelled = self.pickle.spelled(id)?;
        if let Some(data) = self.state.bytes.get(&spelled) {
            return data.clone();
        }
        let data = self.pickle.spelled_bytes(spelled);
        self.state.bytes.insert(spelled, data.clone());
        data
    }

    fn builtin(
        &mut self,
        id: NodeId,
        object: &BuiltObject<'_>,
        name: &str,
        args: &[NodeId],
    ) -> Option<LoweredNode> {
        let untouched = object.items.is_empty() && object.entries.is_empty();
        match (name, args) {
            ("bytes", _) => self.bytes_of(id).map(|data| LoweredNode::Plain(bytes(data))),
            ("bytearray", _) => {
                let data = self.bytes_of(id)?;
                Some(LoweredNode::Unique(Value::Bytes { data, mutable: true }))
            }
            ("complex", [real, imaginary]) => {
                let (real, imaginary) = (self.pickle.float(*real)?, self.pickle.float(*imaginary)?);
                Some(LoweredNode::Plain(Value::Complex(real, imaginary)))
            }
            ("set" | "frozenset", _) => {
                let mut items = match args {
                    [] => Vec::new(),
                    [items] => self.members(*items)?,
                    _ => return None,
                };
                items.extend(&object.items);
                Some(LoweredNode::Parts(Assembly::Set { frozen: name == "frozenset" }, items))
            }
            ("list", []) => {
                Some(LoweredNode::Parts(Assembly::List(ListClass::List), object.items.clone()))
            }
            ("list", [items]) if untouched => {
                Some(LoweredNode::Parts(Assembly::List(ListClass::List), self.members(*items)?))
            }
            ("tuple", []) if untouched => {
                Some(LoweredNode::Plain(Value::Tuple(statelens_checkpoint::Tuple::default())))
            }
            ("tuple", [items]) if untouched => {
                Some(LoweredNode::Parts(Assembly::Tuple(TupleClass::Tuple), self.members(*items)?))
            }
            ("dict", _) => self.mapping(object, args, DictClass::Dict),
            ("int" | "str" | "float" | "bool", [value]) if untouched => {
                let plain = match (name, self.pickle.node(*value)) {
                    ("int", Node::Int(_))
                    | ("str", Node::Str(_))
                    | ("float", Node::Float(_))
                    | ("bool", Node::Bool(_)) => *value,
                    _ => return None,
                };
                Some(LoweredNode::Same(plain))
            }
            ("type", [_]) => {
                let repr = self.repr(id)?;
                let class = repr.strip_prefix("<class '")?.strip_suffix("'>")?.to_owned();
                Some(reference("builtins", &class, Some(repr)))
            }
            _ => None,
        }
    }

    fn members(&self, id: NodeId) -> Option<Vec<NodeId>> {
        let items = self.pickle.members(self.pickle.node(id))?;
        self.afford(items.len()).then(|| items.to_vec())
    }

    /// Recognises a dict by its class: the entries of its argument, then those that were set on it.
    fn mapping(
        &self,
        object: &BuiltObject<'_>,
        args: &[NodeId],
        class: DictClass,
    ) -> Option<LoweredNode> {
        if !object.items.is_empty() || has_fields(self.pickle, object) {
            return None;
        }
        let mut entries = match args {
            [] => Vec::new(),
            [source] => match (self.pickle.dict(*source), self.pickle.sequence(*source)) {
                (Some(entries), _) if self.afford(entries.len()) => entries.to_vec(),
                (_, Some(pairs)) if self.afford(pairs.len()) => pairs
                    .iter()
                    .map(|pair| match self.pickle.sequence(*pair) {
                        Some([key, value]) => Some((*key, *value)),
                        _ => None,
                    })
                    .collect::<Option<_>>()?,
                _ => return None,
            },
            _ => return None,
        };
        entries.extend(&object.entries);
        let (keys, values) = self.entries(&entries);
        Some(with_state(object, Assembly::Dict(class, keys), values))
    }

    fn deque(&self, object: &BuiltObject<'_>, args: &[NodeId]) -> Option<LoweredNode> {
        if has_fields(self.pickle, object) {
            return None;
        }
        let (items, maxlen) = match args {
            [] => (Vec::new(), None),
            [items] => (self.members(*items)?, None),
            [items, maxlen] => {
                let maxlen = match self.pickle.node(*maxlen) {
                    Node::None => None,
                    _ => Some(u64::try_from(self.pickle.int(*maxlen)?).ok()?),
                };
                (self.members(*items)?, maxlen)
            }
            _ => return None,
        };
        let items = [items, object.items.clone()].concat();
        Some(with_state(object, Assembly::List(ListClass::Deque(maxlen)), items))
    }

    /// Recognises instances in protocols 0 and 1: class, built-in base, value of that base.
    fn reconstructor(&self, object: &BuiltObject<'_>, args: &[NodeId]) -> Option<LoweredNode> {
        let [class, base, value] = args else { return None };
        let class = self.pickle.global(*class)?;
        let base = self.pickle.global(*base)?;
        if &*base.module != "builtins" || has_fields(self.pickle, object) {
            return None;
        }
        match (&*base.name, self.pickle.node(*value)) {
            ("dict", Node::Dict(entries)) if self.afford(entries.len()) => {
                let (keys, values) = self.entries(entries);
                let class = match class.is("collections", "OrderedDict") {
                    true => DictClass::Ordered,
                    false => DictClass::Other(class),
                };
                Some(with_state(object, Assembly::Dict(class, keys), values))
            }
            ("tuple", Node::Tuple(items)) => {
                let class = TupleClass::Named(class);
                Some(with_state(object, Assembly::Tuple(class), self.pickle.items(*items).to_vec()))
            }
            _ => None,
        }
    }

    /// Recognises the result of `NEWOBJ`: a named tuple if it was made from several values and then
    /// left unchanged (nothing else that Python pickles looks like that), a kind of dict if it was
    /// filled by key.
    fn instance(
        &self,
        object: &BuiltObject<'_>,
        class: &Arc<Global>,
        args: &[NodeId],
    ) -> Option<LoweredNode> {
        let untouched =
            object.items.is_empty() && object.entries.is_empty() && object.states.is_empty();
        if args.len() >= 2 && untouched && object.kwargs.is_none() {
            let class = TupleClass::Named(class.clone());
            return Some(LoweredNode::Parts(Assembly::Tuple(class), args.to_vec()));
        }
        match args {
            [] => self.filled(object, class),
            _ => None,
        }
    }

    /// Recognises a kind of dict: an object that was made without arguments and then filled by key.
    fn filled(&self, object: &BuiltObject<'_>, class: &Arc<Global>) -> Option<LoweredNode> {
        let is_filled = !object.entries.is_empty() && object.items.is_empty();
        if !is_filled || object.kwargs.is_some() || has_fields(self.pickle, object) {
            return None;
        }
        let (keys, values) = self.entries(&object.entries);
        let class = DictClass::Other(class.clone());
        Some(with_state(object, Assembly::Dict(class, keys), values))
    }

    /// Unwraps the type marks of TorchScript: `build_intlist([1, 2])`, `restore_type_tag(value,
    /// 'Dict[str, int]')`.
    fn restored(&self, args: &[NodeId]) -> Option<LoweredNode> {
        args.first().map(|value| LoweredNode::Same(*value))
    }

    /// Recognises values that `dill` spells as an expression to evaluate. Nothing is evaluated:
    /// only the spellings that it is known to write are recognised.
    fn dill(&self, name: &str, args: &[NodeId]) -> Option<LoweredNode> {
        let ("_eval_repr", [text]) = (name, args) else { return None };
        match self.pickle.str(*text)? {
            "Ellipsis" => Some(reference("builtins", "Ellipsis", Some("Ellipsis".into()))),
            "NotImplemented" => {
                Some(reference("builtins", "NotImplemented", Some("NotImplemented".into())))
            }
            text => {
                let inner = text.strip_prefix("range(")?.strip_suffix(')')?;
                let numbers = inner.split(", ").map(str::parse::<i64>);
                let numbers = numbers.collect::<Result<Vec<_>, _>>().ok()?;
                let sound = (2..=3).contains(&numbers.len());
                sound.then(|| reference("builtins", "range", Some(text.to_owned())))
            }
        }
    }
}

/// Returns whether attributes other than the `_metadata` of a state dict are set on a dict or list.
fn has_fields(pickle: &Pickle, object: &BuiltObject<'_>) -> bool {
    object.states.iter().any(|state| match pickle.dict(*state) {
        Some([]) => false,
        Some([(name, _)]) => pickle.str(*name) != Some("_metadata"),
        _ => true,
    })
}

fn with_state(object: &BuiltObject<'_>, assembly: Assembly, parts: Vec<NodeId>) -> LoweredNode {
    match object.states.last() {
        Some(state) => LoweredNode::With(assembly, parts, *state),
        None => LoweredNode::Parts(assembly, parts),
    }
}
