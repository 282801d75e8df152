//! Flattens a state dict as the Cerebras library does: containers in order, and their leaves with
//! flat keys.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{
    Checkpoint, Dict, DictClass, DictKey, Error, Global, Limits, List, ListClass, Result, Set,
    TensorId, Text, Tuple, TupleClass, Value, ValueId,
};

use super::node::{ContainerClass, FlatLeaf, FormatFamily, Outline, StructureNode};
use super::report::{self, EXCLUDE, LossReport};
use super::{spec, tree};
use crate::advice;
use crate::views::{self, same_view};

/// The maximum number of nodes. A few links to containers that each hold further links can expand
/// to more than fits into memory.
const MAX_NODES: u64 = 1_000_000;

/// The maximum nesting. The library's loader recurses twice per level, and Python's limit is a
/// thousand; it loaded 490 levels in a test.
const MAX_NESTED: u32 = 450;

/// Outlines a state dict. Fails only if it is too large; everything else goes into the report.
pub(super) fn outline(
    source: &Checkpoint,
    family: FormatFamily,
    most_leaves: u64,
    report: &mut LossReport,
) -> Result<Outline> {
    let mut outline = Outline::default();
    let mut ties = Ties::default();
    let mut path: Vec<u8> = Vec::new();
    let mut open: HashSet<ValueId> = HashSet::new();
    let mut stack = vec![Visit::Enter { id: source.root(), parent: 0, step: None, depth: 0 }];
    while let Some(visit) = stack.pop() {
        let (id, parent, step, depth) = match visit {
            Visit::Leave(id) => {
                open.remove(&id);
                continue;
            }
            Visit::Enter { id, parent, step, depth } => (id, parent, step, depth),
        };
        path.truncate(parent);
        if let Some(step) = step {
            if depth > 1 {
                path.push(b'.');
            }
            path.extend_from_slice(&step);
        }
        let places = outline.nodes.len() as u64;
        Limits::check("containers and leaves, links written out", places, MAX_NODES)?;
        let key = || Text::from_surrogatepass(&path).unwrap_or_else(|_| "".into());
        let linked = id != source.resolve(id);
        let id = source.resolve(id);
        let Some(container) = OutlineContainer::of(source, id, family, report, &key) else {
            let leaf = outline.leaves.len();
            if leaf as u64 == most_leaves {
                return Err(Error::unsupported(format!(
                    "more than {most_leaves} leaves: the format keeps an attribute for each on one \
                     object, which has no room for more"
                ))
                .advice(advice::exclude()));
            }
            if source.attributes(id).is_some() {
                report.lose(report::OF_TENSORS, &key());
            }
            let first = ties.first(source, id, leaf, report, &key);
            outline.nodes.push(StructureNode::Leaf);
            outline.leaves.push(FlatLeaf { key: key(), id, first });
            continue;
        };
        if !open.insert(id) {
            report.refuse(&key(), "a container that holds itself", EXCLUDE);
            continue;
        }
        if depth >= MAX_NESTED {
            report.refuse(&key(), "containers nested deeper than the library can load", EXCLUDE);
            open.remove(&id);
            continue;
        }
        if linked {
            report.lose(report::COPIES, &key());
        }
        if source.attributes(id).is_some() {
            report.lose(report::ATTRIBUTES, &key());
        }
        stack.push(Visit::Leave(id));
        let OutlineContainer { class, keys, children } = container;
        outline.nodes.push(StructureNode::Container { class, keys, children: children.len() });
        let parent = path.len();
        stack.extend(children.into_iter().rev().map(|(step, id)| Visit::Enter {
            id,
            parent,
            step: Some(step),
            depth: depth + 1,
        }));
    }
    Ok(outline)
}

enum Visit {
    /// A value, the length of its parent's path, its own step, and its depth.
    Enter {
        id: ValueId,
        parent: usize,
        step: Option<Vec<u8>>,
        depth: u32,
    },
    Leave(ValueId),
}

/// A container as it will be written: its children with their steps in the flat key.
struct OutlineContainer {
    class: ContainerClass,
    keys: Vec<DictKey>,
    children: Vec<(Vec<u8>, ValueId)>,
}

impl OutlineContainer {
    /// Returns `None` if the value is a leaf.
    fn of(
        source: &Checkpoint,
        id: ValueId,
        family: FormatFamily,
        report: &mut LossReport,
        key: &dyn Fn() -> Text,
    ) -> Option<Self> {
        let sequence = |class, items: &[ValueId]| {
            let step = |index: usize| index.to_string().into_bytes();
            let children = items.iter().enumerate().map(|(at, id)| (step(at), *id)).collect();
            Some(Self { class, keys: Vec::new(), children })
        };
        match source.value(id) {
            Value::List(List { class: ListClass::List, items }) => {
                sequence(ContainerClass::List, items)
            }
            Value::List(List { class: ListClass::Deque(maxlen), items }) => match family {
                FormatFamily::V05 => {
                    if maxlen.is_some() {
                        report.lose(report::MAXLEN, &key());
                    }
                    sequence(ContainerClass::Deque, items)
                }
                FormatFamily::V04 if source.holds_tensor(id) => {
                    report.lose(report::DEQUE_04, &key());
                    sequence(ContainerClass::List, items)
                }
                FormatFamily::V04 => None,
            },
            Value::Tuple(Tuple { class, items }) => {
                match class {
                    TupleClass::Tuple => {}
                    TupleClass::Size => report.lose(report::SIZE, &key()),
                    TupleClass::Named(_) => report.lose(report::NAMED, &key()),
                }
                sequence(ContainerClass::Tuple, items)
            }
            Value::Set(Set { frozen: false, items }) => match family {
                FormatFamily::V05 => sequence(ContainerClass::Set, items),
                FormatFamily::V04 if source.holds_tensor(id) => {
                    report.lose(report::SET_04, &key());
                    sequence(ContainerClass::List, items)
                }
                FormatFamily::V04 => None,
            },
            // A namespace of plain values is pickled as an object.
            Value::Dict(dict) if is_namespace(dict) && !source.holds_tensor(id) => None,
            Value::Dict(dict) => Some(Self::dict(source, dict, family, report, key)),
            _ => None,
        }
    }

    fn dict(
        source: &Checkpoint,
        dict: &Dict,
        family: FormatFamily,
        report: &mut LossReport,
        key: &dyn Fn() -> Text,
    ) -> Self {
        let mut own_class = None;
        let without_class;
        let dict = if let DictClass::Object(_) = dict.class {
            let mut plain = dict.clone();
            plain.entries.retain(|entry| {
                let is_class = super::objects::names_class(source, dict, entry);
                if is_class {
                    own_class = Some(below(&key(), &entry.0));
                }
                !is_class
            });
            without_class = plain;
            &without_class
        } else {
            dict
        };
        if let Some(class) = &own_class {
            report.lose(report::CLASS, &class.as_str().into());
        }
        let mut steps: Vec<Vec<u8>> = dict.entries.iter().map(|(key, _)| step(key)).collect();
        let class = match &dict.class {
            DictClass::Dict => ContainerClass::Dict,
            DictClass::Ordered => ContainerClass::Ordered,
            DictClass::Object(_) if own_class.is_some() => ContainerClass::Dict,
            DictClass::Counter | DictClass::Other(_) | DictClass::Object(_) => {
                report.lose(report::DICT, &key());
                ContainerClass::Dict
            }
            DictClass::Default(_) if family == FormatFamily::V04 => {
                report.lose(report::DEFAULT_04, &key());
                ContainerClass::Dict
            }
            DictClass::Default(factory) => match factory.as_ref().zip(default_steps(dict)) {
                Some((factory, known)) => {
                    steps = known;
                    ContainerClass::Default(Global::clone(factory))
                }
                None => {
                    report.lose(report::DEFAULT, &key());
                    ContainerClass::Dict
                }
            },
        };
        let children = steps.into_iter().zip(dict.entries.iter().map(|(_, id)| *id)).collect();
        Self { class, keys: keys(dict, family, report, key), children }
    }
}

/// Returns whether an object is a namespace; their classes are part of every Python.
fn is_namespace(dict: &Dict) -> bool {
    let DictClass::Object(class) = &dict.class else { return false };
    class.is("argparse", "Namespace") || class.is("types", "SimpleNamespace")
}

/// Returns the keys to write. Keys that the structure can't hold become strings.
fn keys(
    dict: &Dict,
    family: FormatFamily,
    report: &mut LossReport,
    at: &dyn Fn() -> Text,
) -> Vec<DictKey> {
    let held = |key: &DictKey| match family {
        FormatFamily::V04 => tree::can_hold(key),
        FormatFamily::V05 => spec::can_hold(key),
    };
    if dict.entries.iter().all(|(key, _)| held(key)) {
        return dict.entries.iter().map(|(key, _)| key.clone()).collect();
    }
    let above = at();
    let mut write = |key: &DictKey| {
        if held(key) {
            return key.clone();
        }
        report.lose(report::KEY, &below(&above, key).into());
        DictKey::Str(key.to_string().into())
    };
    let written = dict.entries.iter().map(|(key, _)| write(key));
    let written: Vec<DictKey> = written.collect();
    let mut strings = HashSet::new();
    let twice = written.iter().any(|key| match key {
        DictKey::Str(text) => !strings.insert(text.as_bytes()),
        _ => false,
    });
    if twice {
        report.refuse(&at(), "a dict in which two keys have the same text", EXCLUDE);
    }
    written
}

/// Returns the flat key of an entry of a container.
fn below(container: &Text, key: &DictKey) -> String {
    let above = container.to_string();
    if above.is_empty() { key.to_string() } else { format!("{above}.{key}") }
}

/// Returns Python's `str` of a key.
fn step(key: &DictKey) -> Vec<u8> {
    match key {
        DictKey::Str(text) => text.as_bytes().to_vec(),
        key => key.to_string().into_bytes(),
    }
}

/// Returns the steps to the entries of a defaultdict. When saving and loading, the Cerebras library
/// mistakes the factory and the list of keys for the first two keys, and does not find a third.
/// Returns `None` if there are more than two entries, or if Python's representation of these two is
/// unknown.
fn default_steps(dict: &Dict) -> Option<Vec<Vec<u8>>> {
    let DictClass::Default(Some(factory)) = &dict.class else { return None };
    let printed = match (&*factory.module, &*factory.name) {
        (
            "builtins",
            name @ ("int" | "float" | "str" | "list" | "dict" | "set" | "tuple" | "bool" | "bytes"
            | "complex" | "frozenset"),
        ) => format!("<class '{name}'>"),
        ("collections", name @ ("OrderedDict" | "Counter" | "deque" | "defaultdict")) => {
            format!("<class 'collections.{name}'>")
        }
        _ => return None,
    };
    let mut keys = Vec::new();
    for (key, _) in &dict.entries {
        keys.push(match key {
            DictKey::Str(text) => {
                let plain = |c: char| matches!(c, ' '..='~') && c != '\'' && c != '\\';
                format!("'{}'", text.as_str().filter(|text| text.chars().all(plain))?)
            }
            DictKey::Int(_) | DictKey::Bool(_) | DictKey::None => key.to_string(),
            _ => return None,
        });
    }
    let list = format!("[{}]", keys.join(", "));
    let steps = [printed, list].into_iter().take(keys.len()).map(String::into_bytes);
    (keys.len() <= 2).then(|| steps.collect())
}

/// The first leaf with each object, and with each view of shared memory.
#[derive(Default)]
struct Ties {
    values: HashMap<ValueId, usize>,
    tensors: HashMap<TensorId, usize>,
    /// Keyed by memory and fingerprint.
    views: HashMap<(u32, u64), Vec<(TensorId, usize)>>,
    memories: HashSet<u32>,
}

impl Ties {
    /// Returns the earliest leaf that is the same object as the leaf with index `leaf`, unless that
    /// is itself.
    fn first(
        &mut self,
        source: &Checkpoint,
        id: ValueId,
        leaf: usize,
        report: &mut LossReport,
        key: &dyn Fn() -> Text,
    ) -> Option<usize> {
        let first = *self.values.entry(id).or_insert(leaf);
        if first != leaf {
            return Some(first);
        }
        let Value::Tensor(tensor_id) = source.value(id) else { return None };
        let first = *self.tensors.entry(*tensor_id).or_insert(leaf);
        if first != leaf {
            return Some(first);
        }
        let tensor = source.tensor(*tensor_id).ok()?;
        let memory = tensor.storage?;
        let known = self.views.entry((memory, views::fingerprint(tensor))).or_default();
        let same = known
            .iter()
            .find(|(other, _)| source.tensor(*other).is_ok_and(|other| same_view(tensor, other)));
        if let Some((_, first)) = same {
            return Some(*first);
        }
        known.push((*tensor_id, leaf));
        if !self.memories.insert(memory) && tensor.nbytes() != Some(0) {
            report.lose(report::SHARED, &key());
        }
        None
    }
}
