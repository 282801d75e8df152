//! Edits an object graph along with the keys of its checkpoint: the new keys of the values, and the
//! names of the objects on the way to them.
//!
//! A key begins with the path of its object: `model/dense/kernel/.ATTRIBUTES/VARIABLE_VALUE`. If
//! `model/` becomes `net/`, the child `model` of the root is renamed, so that
//! `tf.train.Checkpoint(net=…)` restores the new checkpoint. All other fields are unchanged.

use std::collections::HashSet;

use statelens_checkpoint::Result;

use super::proto::{FieldValue, Message, put, put_bytes, put_number};

/// What separates the path of an object from the name of its value.
const ATTRIBUTES: &str = "/.ATTRIBUTES/";
/// A step of a path that leads to a slot of an optimizer, which is not a child.
const SLOT: &str = ".OPTIMIZER_SLOT";

/// An edited graph.
#[derive(Debug, PartialEq, Eq)]
pub struct EditedGraph {
    pub bytes: Vec<u8>,
    /// The number of values with new keys.
    pub renamed: usize,
    /// The number of values that are no longer in the graph.
    pub removed: usize,
    /// New keys of which the path is that of another object.
    pub unclear: Vec<String>,
}

/// Returns the graph with new keys. `new_key` returns the new key of a value, or `None` if it is
/// left out. Fails if `bytes` is not a graph.
pub fn edit_graph(bytes: &[u8], new_key: &dyn Fn(&str) -> Option<String>) -> Result<EditedGraph> {
    let mut graph = Graph::parse(bytes)?;
    let mut edited = EditedGraph { bytes: Vec::new(), renamed: 0, removed: 0, unclear: Vec::new() };
    let mut moves = Vec::new();
    for (at, node) in graph.nodes.iter_mut().enumerate() {
        let mut attributes = Vec::with_capacity(node.attributes.len());
        for attribute in std::mem::take(&mut node.attributes) {
            let old = key_of(&attribute)?;
            match new_key(&old) {
                Some(new) if new == old => {
                    moves.push((at, old, new));
                    attributes.push(attribute);
                }
                Some(new) => {
                    attributes.push(with_key(&attribute, &new)?);
                    edited.renamed += 1;
                    moves.push((at, old, new));
                }
                None => edited.removed += 1,
            }
        }
        node.attributes = attributes;
    }
    if edited.renamed > 0 {
        edited.unclear = graph.rename_objects(&moves);
    }
    edited.bytes = graph.encode();
    Ok(edited)
}

struct Graph {
    nodes: Vec<EditedNode>,
    /// Other fields of the graph.
    others: Vec<u8>,
}

#[derive(Default)]
struct EditedNode {
    children: Vec<(String, usize)>,
    /// The messages of its values.
    attributes: Vec<Vec<u8>>,
    /// Its other fields.
    others: Vec<u8>,
}

impl Graph {
    fn parse(bytes: &[u8]) -> Result<Self> {
        let mut graph = Self { nodes: Vec::new(), others: Vec::new() };
        for field in Message::new(bytes) {
            match field? {
                (1, FieldValue::Bytes(bytes)) => graph.nodes.push(EditedNode::parse(bytes)?),
                (number, value) => put(&mut graph.others, number, value),
            }
        }
        Ok(graph)
    }

    /// Renames the children on the paths of the keys. `moves` has the node of each value with its
    /// old and new key. Returns the new keys whose path already leads to another object.
    fn rename_objects(&mut self, moves: &[(usize, String, String)]) -> Vec<String> {
        let mut unclear = Vec::new();
        let (mut used, mut left): (HashSet<_>, HashSet<_>) = Default::default();
        let mut paths = Vec::new();
        for (at, old, new) in moves {
            let (Some(old), Some(path)) = (path_of(old), path_of(new)) else { continue };
            let Some(nodes) = self.walk(&old).filter(|nodes| nodes.last() == Some(at)) else {
                continue;
            };
            let edges = nodes.iter().copied().zip(old.iter().cloned());
            match old == path {
                true => used.extend(edges),
                false => {
                    left.extend(edges);
                    paths.push((new, old, path, nodes));
                }
            }
        }
        for (key, old, path, nodes) in &paths {
            // The objects at the end of the path are those of the old one.
            let alike = old.iter().rev().zip(path.iter().rev());
            let alike = alike.take_while(|(one, other)| one == other).count();
            let mut at = 0;
            for (depth, name) in path.iter().enumerate() {
                let rest = path.len() - depth - 1;
                // The root stays the root: it has other children.
                let own = (rest <= alike && rest + 1 < nodes.len())
                    .then(|| nodes[nodes.len() - 1 - rest]);
                let known = self.child(at, name);
                let is_left =
                    left.contains(&(at, name.clone())) && !used.contains(&(at, name.clone()));
                let next = match (known, own) {
                    (Some(known), Some(own)) if known == own => own,
                    (Some(_), Some(own)) if is_left => {
                        self.nodes[at].children.retain(|(child, _)| child != name);
                        self.nodes[at].children.push((name.clone(), own));
                        own
                    }
                    (Some(_), Some(_)) => {
                        unclear.push((*key).clone());
                        break;
                    }
                    (Some(known), None) if !is_left => known,
                    (_, own) => {
                        let own = own.unwrap_or_else(|| {
                            self.nodes.push(EditedNode::default());
                            self.nodes.len() - 1
                        });
                        self.nodes[at].children.retain(|(child, _)| child != name);
                        self.nodes[at].children.push((name.clone(), own));
                        own
                    }
                };
                used.insert((at, name.clone()));
                at = next;
            }
        }
        for (at, name) in left.difference(&used) {
            self.nodes[*at].children.retain(|(child, _)| child != name);
        }
        unclear
    }

    /// Returns the nodes on a path, the root first.
    fn walk(&self, path: &[String]) -> Option<Vec<usize>> {
        let mut nodes = vec![0];
        for name in path {
            nodes.push(self.child(*nodes.last()?, name)?);
        }
        Some(nodes)
    }

    fn child(&self, at: usize, name: &str) -> Option<usize> {
        let children = &self.nodes.get(at)?.children;
        let (_, child) = children.iter().find(|(child, _)| child == name)?;
        (*child < self.nodes.len()).then_some(*child)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for node in &self.nodes {
            let mut own = Vec::new();
            for (name, child) in &node.children {
                let mut reference = Vec::new();
                put_number(&mut reference, 1, *child as u64);
                put_bytes(&mut reference, 2, name.as_bytes());
                put_bytes(&mut own, 1, &reference);
            }
            for attribute in &node.attributes {
                put_bytes(&mut own, 2, attribute);
            }
            own.extend_from_slice(&node.others);
            put_bytes(&mut bytes, 1, &own);
        }
        bytes.extend_from_slice(&self.others);
        bytes
    }
}

impl EditedNode {
    fn parse(bytes: &[u8]) -> Result<Self> {
        let mut node = Self::default();
        for field in Message::new(bytes) {
            match field? {
                (1, FieldValue::Bytes(child)) => {
                    let (mut id, mut name) = (0, String::new());
                    for field in Message::new(child) {
                        match field? {
                            (1, FieldValue::Varint(value)) => id = value,
                            (2, FieldValue::Bytes(text)) => {
                                name = String::from_utf8_lossy(text).into_owned();
                            }
                            _ => {}
                        }
                    }
                    node.children.push((name, usize::try_from(id).unwrap_or(usize::MAX)));
                }
                (2, FieldValue::Bytes(attribute)) => node.attributes.push(attribute.to_vec()),
                (number, value) => put(&mut node.others, number, value),
            }
        }
        Ok(node)
    }
}

/// The field of a value with its key.
const KEY_FIELD: u64 = 3;

fn key_of(attribute: &[u8]) -> Result<String> {
    let mut key = String::new();
    for field in Message::new(attribute) {
        if let (KEY_FIELD, FieldValue::Bytes(text)) = field? {
            key = String::from_utf8_lossy(text).into_owned();
        }
    }
    Ok(key)
}

fn with_key(attribute: &[u8], key: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for field in Message::new(attribute) {
        match field? {
            (KEY_FIELD, FieldValue::Bytes(_)) => put_bytes(&mut bytes, KEY_FIELD, key.as_bytes()),
            (number, value) => put(&mut bytes, number, value),
        }
    }
    Ok(bytes)
}

/// Returns the names of the objects that lead to the object of a key; `None` for a slot, and for a
/// key that is not a path.
fn path_of(key: &str) -> Option<Vec<String>> {
    let (path, _) = key.split_once(ATTRIBUTES)?;
    let steps: Vec<&str> = path.split('/').collect();
    (!steps.contains(&SLOT)).then(|| steps.into_iter().map(unescaped).collect())
}

/// Returns the name of a child from a step of a path. A dot is written as two, a slash as `.S`
/// (`_escape_local_name` in `tensorflow/python/checkpoint/trackable_view.py`).
fn unescaped(step: &str) -> String {
    let mut name = String::with_capacity(step.len());
    let mut chars = step.chars().peekable();
    while let Some(next) = chars.next() {
        name.push(match (next, chars.peek()) {
            ('.', Some('S')) => '/',
            (other, _) => other,
        });
        if next == '.' {
            chars.next_if(|after| matches!(after, 'S' | '.'));
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(fields: &[(u64, FieldValue<'_>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        fields.iter().for_each(|(number, value)| put(&mut bytes, *number, *value));
        bytes
    }

    /// Returns the graph of `model.w` and `model.b`, with a field that is not known.
    fn graph() -> Vec<u8> {
        let child = |id, name: &'static str| {
            message(&[(1, FieldValue::Varint(id)), (2, FieldValue::Bytes(name.as_bytes()))])
        };
        let value = |key: &str| {
            let name = FieldValue::Bytes(b"VARIABLE_VALUE");
            message(&[(1, name), (3, FieldValue::Bytes(key.as_bytes()))])
        };
        let root = child(1, "model");
        let (w, b) = (child(2, "w"), child(3, "b"));
        let keys =
            ["w", "b"].map(|name| value(&format!("model/{name}/.ATTRIBUTES/VARIABLE_VALUE")));
        let nodes = [
            message(&[(1, FieldValue::Bytes(&root))]),
            message(&[(1, FieldValue::Bytes(&w)), (1, FieldValue::Bytes(&b))]),
            message(&[(2, FieldValue::Bytes(&keys[0])), (5, FieldValue::Bytes(&[8, 1]))]),
            message(&[(2, FieldValue::Bytes(&keys[1]))]),
        ];
        let nodes: Vec<_> = nodes.iter().map(|node| (1, FieldValue::Bytes(node))).collect();
        message(&nodes)
    }

    fn names(bytes: &[u8]) -> Vec<String> {
        let names = super::super::graph::names(bytes, &statelens_checkpoint::Limits::default());
        let mut names: Vec<String> = names
            .unwrap()
            .into_iter()
            .map(|(key, object)| format!("{} {}", String::from_utf8_lossy(&key), object.object))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn keeps_an_unchanged_graph_byte_for_byte() {
        let edited = edit_graph(&graph(), &|key| Some(key.to_owned())).unwrap();
        assert_eq!((edited.bytes, edited.renamed, edited.removed), (graph(), 0, 0));
    }

    #[test]
    fn renames_objects_with_their_keys_and_drops_values_that_are_gone() {
        let edit = |new_key: &dyn Fn(&str) -> Option<String>| {
            let edited = edit_graph(&graph(), new_key).unwrap();
            assert!(edited.unclear.is_empty());
            names(&edited.bytes)
        };
        const END: &str = "/.ATTRIBUTES/VARIABLE_VALUE";
        let net = edit(&|key| Some(key.replace("model/", "net/")));
        assert_eq!(net, [format!("net/b{END} net.b"), format!("net/w{END} net.w")]);
        let root = edit(&|key| Some(key.replace("model/", "")));
        assert_eq!(root, [format!("b{END} b"), format!("w{END} w")]);
        let below = edit(&|key| Some(format!("a/{key}")));
        assert_eq!(
            below,
            [format!("a/model/b{END} a.model.b"), format!("a/model/w{END} a.model.w")]
        );
        let one = edit(&|key| (!key.contains("/b/")).then(|| key.replace("model/", "net/")));
        assert_eq!(one, [format!("net/w{END} net.w")]);
        let swapped = edit(&|key| {
            let new = if key.contains("/b/") { "model/w" } else { "model/b" };
            Some(format!("{new}{END}"))
        });
        assert_eq!(swapped, [format!("model/b{END} model.b"), format!("model/w{END} model.w")]);
        let plain = edit(&|key| Some(key.replace(END, "")));
        assert_eq!(plain, ["model/b model.b", "model/w model.w"]);
    }

    #[test]
    fn reads_escaped_steps() {
        for (step, name) in [("a", "a"), ("a..b", "a.b"), ("a.Sb", "a/b"), ("..S", ".S")] {
            assert_eq!(unescaped(step), name);
        }
    }

    #[test]
    fn refuses_what_is_not_a_graph() {
        let graph = graph();
        for len in [1, 3, graph.len() - 1] {
            assert!(edit_graph(&graph[..len], &|key| Some(key.to_owned())).is_err());
        }
        // A child with a number that no node has.
        let child = message(&[(1, FieldValue::Varint(u64::MAX)), (2, FieldValue::Bytes(b"model"))]);
        let node = message(&[(1, FieldValue::Bytes(&child))]);
        let bad = message(&[(1, FieldValue::Bytes(&node))]);
        assert!(edit_graph(&bad, &|key| Some(format!("a/{key}"))).is_ok());
    }
}
