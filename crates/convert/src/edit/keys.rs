//! New keys: texts that remember which of their dots separate steps.

use std::collections::HashMap;

use statelens_checkpoint::{Checkpoint, DictKey, Error, KeyPart, Leaf, Result, ValueId};

use super::graph;
use crate::{Edit, Rename};

/// Maximum number of keys that an error names.
const NAMED: usize = 3;

/// The attribute of the state dict of a module with the versions of modules.
pub(super) const VERSIONS: &str = "_metadata";

fn has_versions(source: &Checkpoint, id: ValueId) -> bool {
    source.named_attributes(id).iter().any(|(name, _)| **name == VERSIONS)
}

/// The key of a leaf while rules are applied to it.
#[derive(Debug, Clone)]
pub(super) struct NewKey {
    pub(super) leaf: Leaf,
    /// The containers above it in the source, from the root down; one per step.
    pub(super) above: Vec<ValueId>,
    /// The steps as text, joined with dots.
    pub(super) text: String,
    /// The dots that separate steps, in order.
    pub(super) dots: Vec<Dot>,
    /// Whether a rule changed it.
    pub(super) changed: bool,
    /// Whether it is TensorFlow's object graph, which has one name in all checkpoints.
    is_graph: bool,
}

/// A dot that separates two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dot {
    /// Byte offset in the text.
    pub(super) at: usize,
    /// The container above the leaf that the dot leads into, by index; `None` for a new container.
    pub(super) into: Option<usize>,
}

/// Returns the keys of all leaves after the renaming rules, in order.
pub(super) fn new_keys(edit: &Edit, source: &Checkpoint) -> Result<Vec<NewKey>> {
    let parents = super::parents(source);
    let nested = Nested::new(source);
    let mut keys: Vec<NewKey> =
        source.leaves().into_iter().map(|leaf| NewKey::old(leaf, source, &parents)).collect();
    strip_prefix(&mut keys, &edit.strip_prefix)?;
    for key in keys.iter_mut().filter(|key| !key.is_graph) {
        for rename in &edit.rename {
            key.rename(rename, source.root(), &nested);
        }
        if !edit.prefix.is_empty() && !key.is_outside_model() {
            key.replace(0..0, &edit.prefix, source.root(), &nested);
        }
        if edit.nest {
            key.nest();
        }
    }
    Ok(keys)
}

fn strip_prefix(keys: &mut [NewKey], prefix: &str) -> Result<()> {
    if prefix.is_empty() {
        return Ok(());
    }
    let mut without =
        keys.iter().filter(|key| !key.text.starts_with(prefix) && !key.is_outside_model());
    let named: Vec<String> =
        without.by_ref().take(NAMED).map(|key| format!("`{}`", key.text)).collect();
    if !named.is_empty() {
        let more = match without.count() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        return Err(Error::refused(format!(
            "the prefix `{prefix}` is missing from {}{more}",
            named.join(", ")
        ))
        .advice(format!("Select only keys that begin with it, with the pattern `{prefix}*`.")));
    }
    for key in keys.iter_mut().filter(|key| key.text.starts_with(prefix)) {
        key.remove_start(prefix.len());
    }
    Ok(())
}

/// Whether each value is a container of containers. The state dict of a module is not one: its names
/// have dots, whatever its values are.
struct Nested(Vec<bool>);

impl Nested {
    fn new(source: &Checkpoint) -> Self {
        let holds = |value: &statelens_checkpoint::Value| {
            value.children().iter().any(|child| source.value(*child).is_container())
        };
        let mut nested: Vec<bool> =
            source.values().iter().map(|value| value.is_container() && holds(value)).collect();
        let all = (0..source.values().len() as u32).map(ValueId);
        for id in all.filter(|id| has_versions(source, *id)) {
            if let Some(nested) = nested.get_mut(id.0 as usize) {
                *nested = false;
            }
        }
        Self(nested)
    }

    fn is(&self, id: ValueId) -> bool {
        self.0.get(id.0 as usize).copied().unwrap_or(false)
    }
}

impl NewKey {
    /// Returns whether the key is outside the state dict, like `__metadata__` and the attributes of
    /// a module: such keys have no prefix of a model, and get none.
    fn is_outside_model(&self) -> bool {
        self.leaf.outside_state || self.is_graph || self.text.starts_with("__")
    }

    /// Returns the original key of a leaf.
    fn old(leaf: Leaf, source: &Checkpoint, parents: &[Option<ValueId>]) -> Self {
        let mut above = Vec::new();
        let mut at = leaf.id;
        for _ in &leaf.key.parts {
            let Some(Some(parent)) = parents.get(at.0 as usize) else { break };
            above.push(*parent);
            at = *parent;
        }
        above.reverse();
        let mut text = String::new();
        let mut dots = Vec::new();
        for (index, part) in leaf.key.parts.iter().enumerate() {
            if index > 0 {
                dots.push(Dot { at: text.len(), into: (index < above.len()).then_some(index) });
                text.push('.');
            }
            text.push_str(&part.text().to_lossy());
        }
        let is_graph = graph::is_graph(source, &text);
        Self { leaf, above, text, dots, changed: false, is_graph }
    }

    fn rename(&mut self, rename: &Rename, root: ValueId, nested: &Nested) {
        // From the last match to the first, so that the remaining ranges stay valid.
        for (range, replacement) in rename.places(&self.text).into_iter().rev() {
            self.replace(range, &replacement, root, nested);
        }
    }

    /// Replaces a range of the text; see [`Edit`] for the treatment of dots.
    fn replace(
        &mut self,
        range: std::ops::Range<usize>,
        replacement: &str,
        root: ValueId,
        nested: &Nested,
    ) {
        if self.text.get(range.clone()) == Some(replacement) {
            return;
        }
        // The removed dots: for each, whether it separated steps and what it led into.
        let kind = |at: usize| {
            let index = self.dots.binary_search_by_key(&at, |dot| dot.at).ok()?;
            self.dots.get(index).copied()
        };
        let old: Vec<Option<Dot>> = self.text[range.clone()]
            .match_indices('.')
            .map(|(at, _)| kind(range.start + at))
            .collect();
        let further = match old.first() {
            Some(first) => first.is_some(),
            None => match self.dots.iter().rev().find(|dot| dot.at < range.start) {
                Some(Dot { into: Some(into), .. }) => nested.is(self.above[*into]),
                Some(Dot { into: None, .. }) => true,
                None => nested.is(root),
            },
        };
        let new: Vec<usize> = replacement.match_indices('.').map(|(at, _)| at).collect();
        // New dots correspond to the old ones, counted from the last.
        let made = new.iter().enumerate().filter_map(|(index, at)| {
            let from_end = new.len() - index;
            let at = range.start + at;
            match old.len().checked_sub(from_end) {
                Some(same) => old[same].map(|dot| Dot { at, into: dot.into }),
                None => further.then_some(Dot { at, into: None }),
            }
        });
        let mut dots: Vec<Dot> =
            self.dots.iter().copied().filter(|dot| dot.at < range.start).collect();
        dots.extend(made);
        let behind = self.dots.iter().filter(|dot| dot.at >= range.end);
        dots.extend(behind.map(|dot| Dot { at: dot.at - range.len() + replacement.len(), ..*dot }));
        self.dots = dots;
        self.text.replace_range(range, replacement);
        self.changed = true;
    }

    fn remove_start(&mut self, len: usize) {
        self.text.drain(..len);
        self.dots.retain(|dot| dot.at >= len);
        self.dots.iter_mut().for_each(|dot| dot.at -= len);
        self.changed = true;
    }

    /// Makes every dot a separator, except those within numbers and other keys that are not texts.
    fn nest(&mut self) {
        let old: HashMap<usize, Option<usize>> =
            self.dots.iter().map(|dot| (dot.at, dot.into)).collect();
        let mut dots = Vec::new();
        let mut start = 0;
        for step in self.steps() {
            let plain = match self.kept_part(&step) {
                Some(KeyPart::Field(key) | KeyPart::Attribute(key)) => {
                    matches!(key, DictKey::Str(_))
                }
                Some(KeyPart::Quoted { .. }) => false,
                Some(KeyPart::Index(_)) | None => true,
            };
            if plain {
                let inner = step.text.match_indices('.');
                dots.extend(inner.map(|(at, _)| Dot { at: start + at, into: None }));
            }
            start += step.text.len();
            if let Some(into) = old.get(&start) {
                dots.push(Dot { at: start, into: *into });
                start += 1;
            }
        }
        if dots.len() != self.dots.len() {
            self.dots = dots;
            self.changed = true;
        }
    }

    pub(super) fn steps(&self) -> Vec<KeyStep<'_>> {
        let mut steps = Vec::with_capacity(self.dots.len() + 1);
        if self.leaf.key.parts.is_empty() && !self.changed {
            return steps;
        }
        let mut start = 0;
        // The container of the step; the dot after it gives what the step leads into.
        let mut from = (!self.above.is_empty()).then_some(0);
        for dot in &self.dots {
            steps.push(KeyStep { text: &self.text[start..dot.at], from, into: dot.into });
            start = dot.at + 1;
            from = dot.into;
        }
        steps.push(KeyStep { text: &self.text[start..], from, into: None });
        steps
    }

    /// Returns the step of the old key that equals a new one: from the same container, with the
    /// same text.
    pub(super) fn kept_part(&self, step: &KeyStep<'_>) -> Option<&KeyPart> {
        self.old_part(step).filter(|part| part.text().to_lossy() == step.text)
    }

    /// Returns the step of the old key from the same container as a new one.
    pub(super) fn old_part(&self, step: &KeyStep<'_>) -> Option<&KeyPart> {
        self.leaf.key.parts.get(step.from?)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct KeyStep<'a> {
    pub(super) text: &'a str,
    /// The container that the step starts from, by index in the containers above the leaf; `None`
    /// for a new one.
    pub(super) from: Option<usize>,
    /// The container that it leads into, in the same way.
    pub(super) into: Option<usize>,
}
