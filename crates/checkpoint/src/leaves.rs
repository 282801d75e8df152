//! Flattening: every leaf of the tree with its key, in file order.

use std::collections::{HashMap, HashSet};

use crate::{
    Checkpoint, Dict, DictKey, Key, KeyPart, Limits, List, Opaque, Result, Set, Text, Tuple, Value,
    ValueId,
};

/// A leaf of a state dict: a value that is no container, an empty container, or a link.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaf {
    /// Its path.
    pub key: Key,
    /// The name by which the file and the user know it: [`Key::flat`], or what the file calls it
    /// where that differs.
    pub flat: Text,
    /// The value as it stands in the tree; may be a link.
    pub id: ValueId,
    /// The value it is: `id`, or the link's target.
    pub target: ValueId,
    /// The flat key of the target, if this is a link.
    pub alias_of: Option<Text>,
    /// It hangs inside an object that was not built (a pickled module, say), which is a leaf of
    /// its own before this one. Only tensors and arrays are listed from there.
    pub inside_object: bool,
}

impl Leaf {
    /// The top-level state that it belongs to: the first step of its key, up to the first dot, or
    /// what else [`crate::separator`] says stands between names.
    pub fn state(&self, separator: char) -> String {
        let first = match self.key.parts.first() {
            Some(first) => Key { parts: vec![first.clone()] }.flat(),
            None => self.flat.clone(),
        };
        let name = first.to_lossy();
        name.split_once(separator).map_or(&*name, |(state, _)| state).to_owned()
    }
}

impl Checkpoint {
    /// All leaves in file order. Their number and the length of their keys are bounded: the
    /// checkpoint was built within [`crate::Limits`].
    pub fn leaves(&self) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        let mut names: HashMap<ValueId, Text> = HashMap::new();
        let linked: HashSet<ValueId> = self
            .values()
            .iter()
            .filter_map(|value| if let Value::Link(target) = value { Some(*target) } else { None })
            .collect();
        let mut walk = Walk::new(self);
        while let Some(step) = walk.next() {
            if !step.is_leaf && !linked.contains(&step.id) {
                continue;
            }
            let key = Key { parts: walk.path.clone() };
            let flat = self.stored_key(step.id).cloned().unwrap_or_else(|| key.flat());
            if linked.contains(&step.id) {
                names.insert(step.id, flat.clone());
            }
            if step.is_leaf {
                leaves.push(Leaf {
                    key,
                    flat,
                    id: step.id,
                    target: self.resolve(step.id),
                    alias_of: None,
                    inside_object: step.inside,
                });
            }
        }
        for leaf in &mut leaves {
            if leaf.target != leaf.id {
                leaf.alias_of = Some(names.get(&leaf.target).cloned().unwrap_or_else(|| "".into()));
            }
        }
        leaves
    }

    /// The flat keys of some values, containers included; one that hangs nowhere in the tree has
    /// none.
    pub fn flat_keys(&self, wanted: &HashSet<ValueId>) -> HashMap<ValueId, Text> {
        let mut keys = HashMap::new();
        let mut walk = Walk::new(self);
        while let Some(step) = walk.next() {
            if wanted.contains(&step.id) {
                keys.insert(step.id, Key { parts: walk.path.clone() }.flat());
            }
        }
        keys
    }

    /// Fails if the tree is deeper than the limit, or its keys together longer.
    pub(crate) fn check_keys(&self, limits: &Limits) -> Result<()> {
        let mut parts = 0;
        let mut bytes = 0u64;
        // A link names its target by key, so a key is told once for each link to it.
        let mut links: HashMap<ValueId, u64> = HashMap::new();
        for value in self.values() {
            if let Value::Link(target) = value {
                *links.entry(*target).or_default() += 1;
            }
        }
        let mut walk = Walk::new(self);
        while let Some(step) = walk.next() {
            let depth = walk.path.len() as u64;
            Limits::check("nesting of containers", depth, limits.depth)?;
            if step.is_leaf {
                parts += depth;
                Limits::check("steps in all keys together", parts, limits.key_steps)?;
            }
            let told = u64::from(step.is_leaf) + links.get(&step.id).copied().unwrap_or(0);
            if told > 0 {
                let len = walk.path.iter().map(flat_len).sum::<u64>() + depth;
                bytes = bytes.saturating_add(len.saturating_mul(told));
                Limits::check("bytes of all keys together", bytes, limits.key_bytes)?;
            }
        }
        Ok(())
    }
}

/// A walk over the tree in file order, without recursion.
struct Walk<'a> {
    checkpoint: &'a Checkpoint,
    /// The path of the value that was last returned.
    path: Vec<KeyPart>,
    /// Value, length of its parent's path, its own step, and whether it is inside an object.
    stack: Vec<(ValueId, usize, Option<KeyPart>, bool)>,
}

struct Step {
    id: ValueId,
    is_leaf: bool,
    inside: bool,
}

impl<'a> Walk<'a> {
    fn new(checkpoint: &'a Checkpoint) -> Self {
        let stack = vec![(checkpoint.root(), 0, None, false)];
        Self { checkpoint, path: Vec::new(), stack }
    }

    fn next(&mut self) -> Option<Step> {
        let (id, parent, part, inside) = self.stack.pop()?;
        self.path.truncate(parent);
        self.path.extend(part);
        let value = self.checkpoint.value(id);
        let opaque = matches!(value, Value::Opaque(_));
        let children = children_with_keys(self.checkpoint, value);
        let is_leaf = if inside {
            let itself = self.checkpoint.value(self.checkpoint.resolve(id));
            matches!(itself, Value::Tensor(_) | Value::Array(_))
        } else {
            opaque || !value.is_container() || children.is_empty()
        };
        let within = inside || opaque;
        if !within || self.checkpoint.holds_tensor(id) {
            let depth = self.path.len();
            let below = children.into_iter().rev();
            self.stack.extend(below.map(|(part, child)| (child, depth, part, within)));
        }
        Some(Step { id, is_leaf, inside })
    }
}

/// Bytes that a step takes in a flat key.
fn flat_len(part: &KeyPart) -> u64 {
    let len = match part {
        KeyPart::Field(DictKey::Str(text)) | KeyPart::Inside(text) => text.as_bytes().len(),
        KeyPart::Field(key) => key.to_string().len(),
        KeyPart::Index(_) => 20,
    };
    len as u64
}

/// The children of a value and the step that leads to each. An object's state dict needs no
/// step of its own: its keys are the attributes.
fn children_with_keys(checkpoint: &Checkpoint, value: &Value) -> Vec<(Option<KeyPart>, ValueId)> {
    let indexed = |items: &[ValueId]| {
        (0..).zip(items).map(|(index, id)| (Some(KeyPart::Index(index)), *id)).collect()
    };
    match value {
        Value::List(List { items, .. })
        | Value::Tuple(Tuple { items, .. })
        | Value::Set(Set { frozen: false, items }) => indexed(items),
        Value::Dict(Dict { entries, .. }) => {
            entries.iter().map(|(key, id)| (Some(KeyPart::Field(key.clone())), *id)).collect()
        }
        Value::Opaque(opaque) => inside(checkpoint, opaque),
        _ => Vec::new(),
    }
}

fn inside(checkpoint: &Checkpoint, opaque: &Opaque) -> Vec<(Option<KeyPart>, ValueId)> {
    let named = |name: String| Some(KeyPart::Inside(name.into()));
    let mut children: Vec<_> = (0..)
        .zip(&opaque.args)
        .map(|(index, id): (u32, _)| (named(format!("args[{index}]")), *id))
        .collect();
    if let Some(state) = opaque.state {
        let part = match checkpoint.value(state) {
            Value::Dict(_) => None,
            _ => named("state".into()),
        };
        children.push((part, state));
    }
    children.extend((0..).zip(&opaque.items).map(|(index, id)| (Some(KeyPart::Index(index)), *id)));
    for (key, id) in &opaque.entries {
        let part = match checkpoint.value(*key) {
            Value::Str(text) => KeyPart::Inside(text.clone()),
            Value::Int(int) => KeyPart::Inside(int.to_string().into()),
            _ => KeyPart::Inside("?".into()),
        };
        children.push((Some(part), *id));
    }
    children
}
