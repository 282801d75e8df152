//! Rebuilds nested dicts and lists from flat names and their paths.

use std::collections::HashMap;

use statelens_checkpoint::{
    Builder, Dict, DictKey, Error, Limits, List, Result, Text, Value, ValueId,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathStep {
    Key(Text),
    Index(u64),
}

/// Containers that are being filled. The first one is the root, a dict.
#[derive(Debug)]
pub(super) struct ContainerTree {
    nodes: Vec<ContainerNode>,
    /// Total number of slots in all containers.
    slots: u64,
}

#[derive(Debug)]
enum ContainerNode {
    Dict { places: HashMap<Text, usize>, entries: Vec<(Text, Slot)> },
    List(Vec<Slot>),
}

#[derive(Debug, Clone, Copy)]
enum Slot {
    Empty,
    Node(usize),
    Value(ValueId),
}

impl ContainerTree {
    pub(super) fn new() -> Self {
        Self { nodes: vec![ContainerNode::dict()], slots: 0 }
    }

    /// Inserts a value at the end of a path, creating containers on the way. If an index is past
    /// the end of a list, the list is padded with `None`, as in torch.
    pub(super) fn insert(
        &mut self,
        path: &[PathStep],
        value: ValueId,
        limits: &Limits,
    ) -> Result<()> {
        let mut at = 0;
        for (index, step) in path.iter().enumerate() {
            let fresh = self.nodes.len();
            let slot = self.slot(at, step, limits)?;
            match (*slot, path.get(index + 1)) {
                (Slot::Empty, None) => {
                    *slot = Slot::Value(value);
                    return Ok(());
                }
                (Slot::Empty, Some(next)) => {
                    *slot = Slot::Node(fresh);
                    self.nodes.push(match next {
                        PathStep::Key(_) => ContainerNode::dict(),
                        PathStep::Index(_) => ContainerNode::List(Vec::new()),
                    });
                    at = fresh;
                }
                (Slot::Node(node), Some(_)) => at = node,
                _ => return Err(clash(step)),
            }
        }
        Err(Error::damaged("a value has a path without steps"))
    }

    fn slot(&mut self, node: usize, step: &PathStep, limits: &Limits) -> Result<&mut Slot> {
        let mut added = 0;
        let slot = match (&mut self.nodes[node], step) {
            (ContainerNode::Dict { places, entries }, PathStep::Key(key)) => {
                let place = *places.entry(key.clone()).or_insert(entries.len());
                if place == entries.len() {
                    entries.push((key.clone(), Slot::Empty));
                    added = 1;
                }
                &mut entries[place].1
            }
            (ContainerNode::List(items), PathStep::Index(index)) => {
                let len = items.len() as u64;
                added = index.saturating_add(1).saturating_sub(len);
                let total = self.slots.saturating_add(added);
                Limits::check("values in the checkpoint", total, limits.values)?;
                let index = *index as usize;
                if added > 0 {
                    items.resize(index + 1, Slot::Empty);
                }
                &mut items[index]
            }
            _ => return Err(clash(step)),
        };
        self.slots = self.slots.saturating_add(added);
        Ok(slot)
    }

    pub(super) fn build(self, builder: &mut Builder) -> Result<ValueId> {
        // Containers only refer to later ones, so in reverse order all children are done first.
        let mut done: Vec<ValueId> = Vec::with_capacity(self.nodes.len());
        let last = self.nodes.len() - 1;
        for node in self.nodes.into_iter().rev() {
            let mut id = |slot: Slot| match slot {
                Slot::Value(id) => Ok(id),
                Slot::Node(node) => Ok(done[last - node]),
                Slot::Empty => builder.push(Value::None),
            };
            let value = match node {
                ContainerNode::Dict { entries, .. } => {
                    let entries = entries.into_iter();
                    let entries = entries.map(|(key, slot)| Ok((DictKey::Str(key), id(slot)?)));
                    Value::Dict(Dict {
                        entries: entries.collect::<Result<_>>()?,
                        ..Dict::default()
                    })
                }
                ContainerNode::List(items) => {
                    let items = items.into_iter().map(id).collect::<Result<_>>()?;
                    Value::List(List { items, ..List::default() })
                }
            };
            done.push(builder.push(value)?);
        }
        Ok(done[last])
    }
}

impl ContainerNode {
    fn dict() -> Self {
        Self::Dict { places: HashMap::new(), entries: Vec::new() }
    }
}

fn clash(step: &PathStep) -> Error {
    let step = match step {
        PathStep::Key(key) => format!("{key:?}"),
        PathStep::Index(index) => index.to_string(),
    };
    Error::damaged(format!("two values of the metadata have paths that clash at {step}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use statelens_checkpoint::{FileSet, FormatInfo};

    fn flat(paths: &[&[PathStep]]) -> Result<Vec<String>> {
        let mut limits = Limits::default();
        limits.values = 100;
        let mut builder = Builder::new(&limits);
        let mut tree = ContainerTree::new();
        for (number, path) in (0i64..).zip(paths) {
            let value = builder.push(Value::Int(number.into()))?;
            tree.insert(path, value, &limits)?;
        }
        let root = tree.build(&mut builder)?;
        let checkpoint =
            builder.finish(root, FormatInfo::default(), FileSet::default(), Vec::new())?;
        let leaves = checkpoint.leaves();
        Ok(leaves
            .iter()
            .map(|leaf| match checkpoint.value(leaf.id) {
                Value::Int(int) => format!("{}={int}", leaf.flat),
                other => format!("{} {}", leaf.flat, other.kind()),
            })
            .collect())
    }

    #[test]
    fn paths_become_dicts_and_lists() {
        let key = |name: &str| PathStep::Key(name.into());
        let paths: [&[PathStep]; 5] = [
            &[key("a"), key("x.y")],
            &[key("b"), PathStep::Index(2), key("lr")],
            &[key("c")],
            &[key("a"), key("z")],
            &[key("b"), PathStep::Index(0), key("lr")],
        ];
        assert_eq!(
            flat(&paths).unwrap(),
            ["a.x.y=0", "a.z=3", "b.0.lr=4", "b.1 none", "b.2.lr=1", "c=2"]
        );
        for clash in [
            &[&[key("a")][..], &[key("a")]][..],
            &[&[key("a")], &[key("a"), key("b")]],
            &[&[key("a"), key("b")], &[key("a")]],
            &[&[key("a"), key("b")], &[key("a"), PathStep::Index(0)]],
            &[&[]],
            &[&[key("a"), PathStep::Index(u64::MAX)]],
            &[&[key("a"), PathStep::Index(98)], &[key("b"), PathStep::Index(98)]],
        ] {
            assert!(flat(clash).is_err(), "{clash:?}");
        }
    }
}
