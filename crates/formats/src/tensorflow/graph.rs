//! The object graph of `tf.train.Checkpoint`, which maps keys to objects
//! (`tensorflow/core/protobuf/trackable_object_graph.proto`).

use std::collections::{HashMap, VecDeque};

use statelens_checkpoint::{Limits, Result};

use super::proto::{FieldValue, Message};

/// The key under which the graph is stored.
pub(super) const KEY: &[u8] = super::GRAPH_KEY.as_bytes();

/// The object to which a key belongs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct KeyObject {
    /// The path of the object in Python from the root, such as `model.layers.0.kernel`; empty for
    /// the root.
    pub(super) object: String,
    /// If this is an optimizer slot, the variable it belongs to and the name of the slot.
    pub(super) slot: Option<(String, String)>,
    /// The variable's own name, such as `dense/kernel:0`.
    pub(super) variable: String,
}

#[derive(Default)]
struct TrackableObject<'a> {
    children: Vec<(u64, &'a [u8])>,
    /// The key, and the variable's own name.
    attributes: Vec<(&'a [u8], &'a [u8])>,
    /// The node of the variable, the name of the slot, and the node of the slot.
    slots: Vec<(u64, &'a [u8], u64)>,
}

/// The parent of an object and the object's name in it; `None` for the root.
type ParentLink<'a> = Option<(usize, &'a [u8])>;

/// Returns the object of each key. Keys of objects that can't be reached from the root have no
/// names. Names are omitted if they would be too long in total.
pub(super) fn names(bytes: &[u8], limits: &Limits) -> Result<HashMap<Vec<u8>, KeyObject>> {
    let mut nodes = Vec::new();
    for field in Message::new(bytes) {
        if let (1, FieldValue::Bytes(bytes)) = field? {
            nodes.push(node(bytes)?);
        }
    }
    // Finds the shortest path to each object, as TensorFlow does. Slots are not children.
    let mut ways: Vec<Option<ParentLink<'_>>> = vec![None; nodes.len()];
    let mut next = VecDeque::new();
    if let Some(root) = ways.first_mut() {
        *root = Some(None);
        next.push_back(0);
    }
    while let Some(at) = next.pop_front() {
        for (child, name) in &nodes[at].children {
            let Ok(child) = usize::try_from(*child) else { continue };
            if let Some(way @ None) = ways.get_mut(child) {
                *way = Some(Some((at, name)));
                next.push_back(child);
            }
        }
    }
    let mut left = limits.key_bytes;
    let mut path = |node: u64| -> Option<String> {
        let mut at = usize::try_from(node).ok()?;
        let mut steps = Vec::new();
        loop {
            match ways.get(at)? {
                Some(Some((parent, name))) => {
                    left = left.checked_sub(name.len() as u64 + 1)?;
                    steps.push(String::from_utf8_lossy(name));
                    at = *parent;
                }
                Some(None) => break,
                None => return None,
            }
        }
        steps.reverse();
        Some(steps.join("."))
    };
    let mut names = HashMap::new();
    for (at, node) in (0u64..).zip(&nodes) {
        for (key, variable) in &node.attributes {
            let Some(object) = path(at) else { continue };
            let variable = String::from_utf8_lossy(variable).into_owned();
            names.insert(key.to_vec(), KeyObject { object, slot: None, variable });
        }
    }
    for (at, node) in (0u64..).zip(&nodes) {
        for (of, slot, slot_node) in &node.slots {
            let attributes = usize::try_from(*slot_node).ok().and_then(|at| nodes.get(at));
            let Some(attributes) = attributes.map(|node| &node.attributes) else { continue };
            for (key, variable) in attributes {
                let (Some(object), Some(of)) = (path(at), path(*of)) else { continue };
                let slot = Some((of, String::from_utf8_lossy(slot).into_owned()));
                let variable = String::from_utf8_lossy(variable).into_owned();
                names.insert(key.to_vec(), KeyObject { object, slot, variable });
            }
        }
    }
    Ok(names)
}

fn node(bytes: &[u8]) -> Result<TrackableObject<'_>> {
    let mut node = TrackableObject::default();
    for field in Message::new(bytes) {
        let (number, FieldValue::Bytes(bytes)) = field? else { continue };
        let mut numbers = [0; 4];
        let mut texts = [&[][..]; 4];
        if !(1..=3).contains(&number) {
            continue;
        }
        for field in Message::new(bytes) {
            let (number, field) = field?;
            let at = usize::try_from(number).ok().filter(|at| *at < 4);
            match (at, field) {
                (Some(at), FieldValue::Varint(value)) => numbers[at] = value,
                (Some(at), FieldValue::Bytes(value)) => texts[at] = value,
                _ => {}
            }
        }
        match number {
            1 => node.children.push((numbers[1], texts[2])),
            2 => node.attributes.push((texts[3], texts[2])),
            _ => node.slots.push((numbers[1], texts[2], numbers[3])),
        }
    }
    Ok(node)
}
