//! Writes the object graph: tensors are named after objects, and a message describes the objects,
//! so that `tf.train.Checkpoint` finds each variable by its attribute path. See
//! [`crate::tensorflow::graph`] for the format.

use std::collections::HashMap;

use statelens_checkpoint::{DictKey, Error, Key, KeyPart, Result, Setting, advice};

use super::losses::COUNTER;
use super::names::NamedTensor;
use super::strings;
use super::values::{Body, LeafTensor};
use crate::advice;
use crate::crc;
use crate::tensorflow::proto::{put_bytes, put_number};
use crate::tensorflow::{dtype, graph};

/// The suffix of the name of an object's value.
const VALUE: &[u8] = b"/.ATTRIBUTES/VARIABLE_VALUE";

/// A node of the graph: an object of the state.
#[derive(Default)]
struct TrackableObject {
    /// Names and node indices of the children.
    children: Vec<(Vec<u8>, u64)>,
    /// The full name and the key of its value, if it has one.
    value: Option<(Vec<u8>, Vec<u8>)>,
}

/// Adds the save counter if it is missing; returns whether it was added.
pub(super) fn count_saves(items: &mut Vec<LeafTensor>) -> bool {
    let is_counter = |tensor: &LeafTensor| {
        steps(&tensor.key).first().is_some_and(|step| step == COUNTER.as_bytes())
    };
    if items.iter().any(is_counter) {
        return false;
    }
    let one = 1i64.to_le_bytes();
    items.push(LeafTensor {
        key: Key { parts: vec![KeyPart::Field(COUNTER.into())] },
        dtype: dtype::number("int64"),
        shape: Vec::new(),
        body: Body::Made(one.to_vec(), crc::masked(&one)),
    });
    true
}

/// Names the tensors after objects, and adds the graph as another tensor.
pub(super) fn name(items: Vec<LeafTensor>) -> Result<Vec<NamedTensor>> {
    let mut nodes = vec![TrackableObject::default()];
    let mut known: HashMap<(u64, Vec<u8>), u64> = HashMap::new();
    let mut named = Vec::with_capacity(items.len() + 1);
    for item in items {
        let steps = steps(&item.key);
        if steps.first().is_some_and(|step| step == graph::KEY) {
            return Err(Error::refused("the checkpoint has an object graph of its own")
                .advice(advice!["Remove ", Setting::ObjectGraph, " to keep that one."]));
        }
        let mut at = 0u64;
        let mut path = Vec::new();
        for step in &steps {
            if step.is_empty() {
                return Err(Error::refused(format!(
                    "`{}` has a step without a name, which no object has",
                    item.key.flat()
                ))
                .advice(advice::rename_or_exclude()));
            }
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(escaped(step));
            at = *known.entry((at, step.clone())).or_insert_with(|| {
                let child = nodes.len() as u64;
                nodes.push(TrackableObject::default());
                nodes[at as usize].children.push((step.clone(), child));
                child
            });
        }
        let full = path.clone();
        path.extend(VALUE);
        // If an object has two values, they have the same name, which is refused later.
        nodes[at as usize].value = Some((full, path.clone()));
        named.push(NamedTensor { name: path, tensor: item });
    }
    let (bytes, crc) = strings::encode(&[&encode(&nodes)]);
    named.push(NamedTensor {
        name: graph::KEY.to_vec(),
        tensor: LeafTensor {
            key: Key::default(),
            dtype: dtype::STRING,
            shape: Vec::new(),
            body: Body::Made(bytes, crc),
        },
    });
    Ok(named)
}

/// Returns the names of the objects on the path to a value. A flat key with slashes is already a
/// path.
fn steps(key: &Key) -> Vec<Vec<u8>> {
    let mut steps = Vec::new();
    for part in &key.parts {
        match part {
            KeyPart::Field(DictKey::Bytes(bytes)) => steps.push(bytes.to_vec()),
            part => {
                let text = Key { parts: vec![part.clone()] }.flat();
                match key.parts.len() {
                    1 => steps.extend(text.as_bytes().split(|byte| *byte == b'/').map(Vec::from)),
                    _ => steps.push(text.as_bytes().to_vec()),
                }
            }
        }
    }
    if steps.is_empty() {
        steps.push(b"value".to_vec());
    }
    steps
}

/// Escapes a name for use in a path, where slashes and dots have a meaning.
fn escaped(name: &[u8]) -> Vec<u8> {
    let mut step = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'.' => step.extend(b".."),
            b'/' => step.extend(b".S"),
            byte => step.push(*byte),
        }
    }
    step
}

fn encode(nodes: &[TrackableObject]) -> Vec<u8> {
    let mut graph = Vec::new();
    for node in nodes {
        let mut bytes = Vec::new();
        for (name, child) in &node.children {
            let mut reference = Vec::new();
            put_number(&mut reference, 1, *child);
            put_bytes(&mut reference, 2, name);
            put_bytes(&mut bytes, 1, &reference);
        }
        if let Some((full, key)) = &node.value {
            let mut attribute = Vec::new();
            put_bytes(&mut attribute, 1, b"VARIABLE_VALUE");
            put_bytes(&mut attribute, 2, full);
            put_bytes(&mut attribute, 3, key);
            put_bytes(&mut bytes, 2, &attribute);
        }
        put_bytes(&mut graph, 1, &bytes);
    }
    graph
}
