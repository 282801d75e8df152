//! New keys from old ones: texts that remember which of their dots stand between steps.

use std::collections::HashMap;

use statelens_checkpoint::{Checkpoint, DictKey, Error, KeyPart, Leaf, Result, ValueId};

use crate::{Edit, Rename};

/// How many keys an error names.
const NAMED: usize = 3;

/// The key of a leaf while rules are applied to it.
#[derive(Debug, Clone)]
pub(super) struct NewKey {
    /// The leaf.
    pub(super) leaf: Leaf,
    /// The containers above it in the source, from the root down; one for each step.
    pub(super) above: Vec<ValueId>,
    /// The steps as text, joined with dots.
    pub(super) text: String,
    /// The dots that stand between steps, in order.
    pub(super) dots: Vec<Dot>,
    /// Whether a rule changed it.
    pub(super) changed: bool,
}

/// A dot that stands between two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dot {
    /// Where it is in the text, in bytes.
    pub(super) at: usize,
    /// What it leads into was this one of the containers above the leaf; `None` for a new one.
    pub(super) into: Option<usize>,
}

/// The keys of all leaves after the rules that make new ones, in order.
pub(super) fn new_keys(edit: &Edit, source: &Checkpoint) -> Result<Vec<NewKey>> {
    let parents = super::parents(source);
    let nested = Nested::new(source);
    let mut keys: Vec<NewKey> =
        source.leaves().into_iter().map(|leaf| NewKey::old(leaf, &parents)).collect();
    strip_prefix(&mut keys, &edit.strip_prefix)?;
    for key in &mut keys {
        for rename in &edit.rename {
            key.rename(rename, source.root(), &nested);
        }
        if !edit.prefix.is_empty() && !key.is_apart() {
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
    let mut without = keys.iter().filter(|key| !key.text.starts_with(prefix) && !key.is_apart());
    let named: Vec<String> =
        without.by_ref().take(NAMED).map(|key| format!("`{}`", key.text)).collect();
    if !named.is_empty() {
        let more = match without.count() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let verb = if named.len() == 1 && more.is_empty() { "does" } else { "do" };
        return Err(Error::refused(format!(
            "{}{more} {verb} not start with `{prefix}`",
            named.join(", ")
        ))
        .advice(format!("Take only keys that do, with the pattern `{prefix}*`.")));
    }
    for key in keys.iter_mut().filter(|key| key.text.starts_with(prefix)) {
        key.remove_start(prefix.len());
    }
    Ok(())
}

/// Which containers hold containers.
struct Nested(Vec<bool>);

impl Nested {
    fn new(source: &Checkpoint) -> Self {
        let holds = |value: &statelens_checkpoint::Value| {
            value.children().iter().any(|child| source.value(*child).is_container())
        };
        Self(source.values().iter().map(|value| value.is_container() && holds(value)).collect())
    }

    fn is(&self, id: ValueId) -> bool {
        self.0.get(id.0 as usize).copied().unwrap_or(false)
    }
}

impl NewKey {
    /// Whether it belongs to no state dict, as `__metadata__` and the attributes of a module do:
    /// then it has no prefix of a model, and gets none.
    fn is_apart(&self) -> bool {
        self.leaf.outside_state || self.text.starts_with("__")
    }

    /// The key that a leaf has.
    fn old(leaf: Leaf, parents: &[Option<ValueId>]) -> Self {
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
        Self { leaf, above, text, dots, changed: false }
    }

    fn rename(&mut self, rename: &Rename, root: ValueId, nested: &Nested) {
        // From the last match to the first, so that what is still to be replaced stays in place.
        for (range, replacement) in rename.places(&self.text).into_iter().rev() {
            self.replace(range, &replacement, root, nested);
        }
    }

    /// Puts another text in the place of a part of it; see [`Edit`] for what becomes of dots.
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
        // The dots that go: for each, whether it stood between steps and what it led into.
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
        // The last of the new ones is what the last of the old ones was, and so on.
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

    /// Makes every dot one between steps, but for those of numbers and the like that were keys.
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

    /// The steps of the key.
    pub(super) fn steps(&self) -> Vec<KeyStep<'_>> {
        let mut steps = Vec::with_capacity(self.dots.len() + 1);
        if self.leaf.key.parts.is_empty() && !self.changed {
            return steps;
        }
        let mut start = 0;
        // What the step lies in, and what it leads into.
        let mut from = (!self.above.is_empty()).then_some(0);
        for dot in &self.dots {
            steps.push(KeyStep { text: &self.text[start..dot.at], from, into: dot.into });
            start = dot.at + 1;
            from = dot.into;
        }
        steps.push(KeyStep { text: &self.text[start..], from, into: None });
        steps
    }

    /// The step of the old key that a new one is: from the same container, by the same text.
    pub(super) fn kept_part(&self, step: &KeyStep<'_>) -> Option<&KeyPart> {
        self.old_part(step).filter(|part| part.text().to_lossy() == step.text)
    }

    /// The step of the old key from the container that a new one is from.
    pub(super) fn old_part(&self, step: &KeyStep<'_>) -> Option<&KeyPart> {
        self.leaf.key.parts.get(step.from?)
    }
}

/// One step of a new key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyStep<'a> {
    pub(super) text: &'a str,
    /// What it lies in was this one of the containers above the leaf, if it was one.
    pub(super) from: Option<usize>,
    /// What it leads into was this one.
    pub(super) into: Option<usize>,
}
