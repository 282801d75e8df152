//! Flattens the tree into leaves with keys, in file order.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::iter::Enumerate;
use std::slice;

use crate::unfolded::text_len;
use crate::{
    Checkpoint, Dict, DictClass, DictKey, Key, KeyPart, Limits, List, Result, Set, Text, Tuple,
    Unfolded, Value, ValueId, try_alloc,
};

/// A leaf of a state dict: a value that is not a container, an empty container, or a link.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaf {
    /// Path of the leaf.
    pub key: Key,
    /// Name of the leaf for the user: the one stored in the file if there is one, else
    /// [`Key::flat`].
    pub flat: Text,
    /// The value in the tree; may be a link.
    pub id: ValueId,
    /// The link's target, or `id` if the value is not a link.
    pub target: ValueId,
    /// The flat key of the target, if this is a link.
    pub alias_of: Option<Text>,
    /// Whether the leaf belongs to a pickled module whose `state_dict()` omits it: the class, plain
    /// attributes, buffers that are not persistent. See [`Checkpoint::is_outside_state`].
    pub outside_state: bool,
}

impl Leaf {
    /// Returns the top-level state that the leaf belongs to: the first step of its key, up to the
    /// first `separator`, which is a dot or what [`crate::separator`] returned.
    pub fn state(&self, separator: char) -> Cow<'_, str> {
        let first = match self.key.parts.first() {
            Some(KeyPart::Field(DictKey::Str(text)) | KeyPart::Attribute(DictKey::Str(text))) => {
                text.to_lossy()
            }
            Some(first) => Cow::Owned(first.text().to_lossy().into_owned()),
            None => self.flat.to_lossy(),
        };
        match (first.find(separator), first) {
            (None, first) => first,
            (Some(end), Cow::Borrowed(first)) => Cow::Borrowed(&first[..end]),
            (Some(end), Cow::Owned(first)) => Cow::Owned(first[..end].to_owned()),
        }
    }
}

impl Checkpoint {
    /// Returns all leaves in file order. Their number and the length of their keys are bounded: the
    /// checkpoint was built within [`crate::Limits`].
    pub fn leaves(&self) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        // The count is known since the checkpoint was built; here it only sizes the vector.
        leaves.reserve_exact(usize::try_from(self.unfolded().leaves).unwrap_or(0));
        leaves.extend(self.each_leaf());
        leaves
    }

    /// Returns an iterator over the leaves; a list of all takes more memory than the tree.
    pub fn each_leaf(&self) -> Leaves<'_> {
        let mut linked: HashSet<ValueId> = HashSet::new();
        for value in self.values() {
            if let Value::Link(target) = value {
                linked.insert(*target);
            }
        }
        let names = if linked.is_empty() { HashMap::new() } else { self.known_names(&linked) };
        Leaves { walk: Walk::new(self), names }
    }

    /// Returns an iterator over the ids of the leaves, without their keys.
    pub fn leaf_ids(&self) -> impl Iterator<Item = ValueId> {
        let mut walk = Walk::new(self);
        std::iter::from_fn(move || {
            loop {
                let reached = walk.next()?;
                if reached.is_leaf {
                    return Some(reached.id);
                }
            }
        })
    }

    /// Returns the flat keys of some values, containers included. Values outside the tree are
    /// omitted.
    pub fn flat_keys(&self, wanted: &HashSet<ValueId>) -> HashMap<ValueId, Text> {
        let mut keys = HashMap::new();
        let mut walk = Walk::new(self);
        while let Some(reached) = walk.next() {
            if wanted.contains(&reached.id) {
                keys.insert(reached.id, Key { parts: walk.path.clone() }.flat());
            }
        }
        keys
    }

    /// Like [`Checkpoint::flat_keys`], with the name stored in the file where there is one.
    fn known_names(&self, wanted: &HashSet<ValueId>) -> HashMap<ValueId, Text> {
        let mut names = self.flat_keys(wanted);
        for (id, name) in &mut names {
            if let Some(stored) = self.stored_key(*id) {
                *name = stored.clone();
            }
        }
        names
    }

    /// Sums up the tree. Fails if the tree or the total length of its keys exceeds the limits.
    pub(crate) fn measure(&self, limits: &Limits) -> Result<Unfolded> {
        let mut unfolded = Unfolded::of_tensors(self.tensors(), &self.files);
        let mut parts = 0;
        let mut bytes = 0u64;
        // A link names its target by key, so a key is counted once more for each link to it.
        let mut links: HashMap<ValueId, u64> = HashMap::new();
        for value in self.values() {
            if let Value::Link(target) = value {
                try_alloc::make_room_in_map(&mut links, 1)?;
                *links.entry(*target).or_default() += 1;
            }
        }
        let mut walk = Walk::new(self);
        while let Some(reached) = walk.next() {
            let depth = walk.path.len() as u64;
            Limits::check("nesting of containers", depth, limits.depth)?;
            if reached.is_leaf {
                parts += depth;
                Limits::check("steps in all keys together", parts, limits.key_steps)?;
                unfolded.leaves += 1;
                let text = text_len(self.value(self.resolve(reached.id)));
                unfolded.text_bytes = unfolded.text_bytes.saturating_add(text);
            }
            let linked =
                if links.is_empty() { 0 } else { links.get(&reached.id).copied().unwrap_or(0) };
            let name_count = u64::from(reached.is_leaf) + linked;
            if name_count > 0 {
                let len = walk.path.iter().map(flat_len).sum::<u64>() + depth;
                bytes = bytes.saturating_add(len.saturating_mul(name_count));
                Limits::check("bytes of all keys together", bytes, limits.key_bytes)?;
            }
        }
        unfolded.text_bytes = unfolded.text_bytes.saturating_add(bytes);
        Ok(unfolded)
    }
}

/// An iterator over the leaves of a checkpoint in file order. See [`Checkpoint::each_leaf`].
#[derive(Debug)]
pub struct Leaves<'a> {
    walk: Walk<'a>,
    /// Names of the targets of links.
    names: HashMap<ValueId, Text>,
}

impl Iterator for Leaves<'_> {
    type Item = Leaf;

    fn next(&mut self) -> Option<Leaf> {
        let reached = loop {
            let reached = self.walk.next()?;
            if reached.is_leaf {
                break reached;
            }
        };
        let checkpoint = self.walk.checkpoint;
        let key = Key { parts: self.walk.path.clone() };
        let flat = checkpoint.stored_key(reached.id).cloned().unwrap_or_else(|| key.flat());
        let target = checkpoint.resolve(reached.id);
        let alias_of = (target != reached.id)
            .then(|| self.names.get(&target).cloned().unwrap_or_else(|| "".into()));
        Some(Leaf { key, flat, id: reached.id, target, alias_of, outside_state: reached.outside })
    }
}

/// A walk over the tree in file order, without recursion.
#[derive(Debug)]
struct Walk<'a> {
    checkpoint: &'a Checkpoint,
    /// The path of the value returned last.
    path: Vec<KeyPart>,
    /// The open containers, outermost first.
    open: Vec<OpenContainer<'a>>,
    started: bool,
}

/// A container whose children are being visited.
#[derive(Debug)]
struct OpenContainer<'a> {
    children: Children<'a>,
    /// Length of its path.
    depth: usize,
    /// Whether its children are outside the state dict.
    outside: bool,
}

/// The remaining children of a value, and the step that leads to each.
#[derive(Debug)]
enum Children<'a> {
    Items(Enumerate<slice::Iter<'a, ValueId>>),
    Entries {
        entries: slice::Iter<'a, (DictKey, ValueId)>,
        quoted: HashMap<&'a Text, Text>,
        is_object: bool,
    },
}

/// A value that the walk has reached.
struct Reached {
    id: ValueId,
    is_leaf: bool,
    outside: bool,
}

impl<'a> Walk<'a> {
    fn new(checkpoint: &'a Checkpoint) -> Self {
        Self { checkpoint, path: Vec::new(), open: Vec::new(), started: false }
    }

    fn next(&mut self) -> Option<Reached> {
        if !std::mem::replace(&mut self.started, true) {
            return Some(self.enter(self.checkpoint.root(), false));
        }
        loop {
            let open = self.open.last_mut()?;
            match open.children.next() {
                Some((part, id)) => {
                    let outside = open.outside;
                    self.path.truncate(open.depth);
                    self.path.push(part);
                    return Some(self.enter(id, outside));
                }
                None => self.open.pop(),
            };
        }
    }

    /// Enters a value; its children come next.
    fn enter(&mut self, id: ValueId, outside: bool) -> Reached {
        let outside = outside || self.checkpoint.is_outside_state(id);
        let children = Children::of(self.checkpoint.value(id));
        let is_leaf = children.is_empty();
        if !is_leaf {
            self.open.push(OpenContainer { children, depth: self.path.len(), outside });
        }
        Reached { id, is_leaf, outside }
    }
}

impl<'a> Children<'a> {
    fn of(value: &'a Value) -> Self {
        match value {
            Value::List(List { items, .. })
            | Value::Tuple(Tuple { items, .. })
            | Value::Set(Set { frozen: false, items }) => Self::Items(items.iter().enumerate()),
            Value::Dict(Dict { class, entries }) => Self::Entries {
                entries: entries.iter(),
                quoted: quoted(entries),
                is_object: matches!(class, DictClass::Object(_)),
            },
            _ => Self::Items([].iter().enumerate()),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Items(items) => items.len() == 0,
            Self::Entries { entries, .. } => entries.len() == 0,
        }
    }

    fn next(&mut self) -> Option<(KeyPart, ValueId)> {
        match self {
            Self::Items(items) => {
                items.next().map(|(index, id)| (KeyPart::Index(index as u64), *id))
            }
            Self::Entries { entries, quoted, is_object } => entries.next().map(|(key, id)| {
                let quoted = match key {
                    DictKey::Str(text) => quoted.get(text),
                    _ => None,
                };
                let part = match quoted {
                    Some(quoted) => KeyPart::Quoted { key: key.clone(), text: quoted.clone() },
                    None if *is_object => KeyPart::Attribute(key.clone()),
                    None => KeyPart::Field(key.clone()),
                };
                (part, *id)
            }),
        }
    }
}

/// Returns the text keys of a dict that print like another key of another type (`'0'` and `0`),
/// each with the quoted text that distinguishes it.
fn quoted(entries: &[(DictKey, ValueId)]) -> HashMap<&Text, Text> {
    let is_text = |key: &DictKey| matches!(key, DictKey::Str(_));
    let count = entries.iter().filter(|(key, _)| is_text(key)).count();
    let mut quoted = HashMap::new();
    if count == 0 || count == entries.len() {
        return quoted;
    }
    let others = entries.iter().filter(|(key, _)| !is_text(key));
    let mut taken: HashSet<Text> = others.map(|(key, _)| key.to_string().into()).collect();
    let texts = || {
        entries.iter().filter_map(|(key, _)| match key {
            DictKey::Str(text) => Some(text),
            _ => None,
        })
    };
    let alike: Vec<&Text> = texts().filter(|text| taken.contains(*text)).collect();
    if alike.is_empty() {
        return quoted;
    }
    taken.extend(texts().cloned());
    for text in alike {
        let mut name = text.clone();
        while taken.contains(&name) {
            let bytes = [b"'", name.as_bytes(), b"'"].concat();
            name = Text::from_surrogatepass(&bytes).unwrap_or_else(|_| name.clone());
        }
        taken.insert(name.clone());
        quoted.insert(text, name);
    }
    quoted
}

/// Returns the bytes that a step takes in a flat key.
fn flat_len(part: &KeyPart) -> u64 {
    let len = match part {
        KeyPart::Field(DictKey::Str(text))
        | KeyPart::Attribute(DictKey::Str(text))
        | KeyPart::Quoted { text, .. } => text.as_bytes().len(),
        KeyPart::Field(key) | KeyPart::Attribute(key) => key.to_string().len(),
        KeyPart::Index(_) => 20,
    };
    len as u64
}
