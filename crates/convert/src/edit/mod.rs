//! Edits of a checkpoint: selection, renaming and casts.

mod cast;
mod filter;
mod graph;
mod keys;
mod listed;
mod metadata;
mod names;
mod replacement;
mod state;
mod tree;
mod untie;
mod unused;
mod versions;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use regex_lite::Regex;
use statelens_checkpoint::{
    Checkpoint, DType, Error, Leaf, Result, Text, Value, ValueId, known_key,
};

use crate::Pattern;

pub use cast::{CastRule, dtype_named};
pub(crate) use state::state_only;
pub use unused::Unused;

/// A selection from a checkpoint, with new keys and dtypes. The default keeps everything unchanged.
///
/// The parts are applied in the order of the fields, each to the result of those before it:
/// `untie`, `states`, `select` and `exclude` see the keys of the source; `strip_prefix`, `rename`
/// and `prefix` change keys in that order; `nest` splits the changed keys; `casts` see the final
/// keys.
///
/// A key is renamed as text, its steps joined with dots. The value then moves to the place of its
/// new key, which depends on the dots in the text:
///
/// - text that no rule touches keeps its steps: a dot that separates steps still does, a dot within
///   a name stays within a name;
/// - the dots of a replacement take the roles of the dots in the replaced text, counted from the
///   last: `^model_state_dict\.=>model.` renames a dict and splits no name below it;
/// - further dots have the role of the first replaced dot. If no dot was replaced, they start a
///   dict in a place with dicts, lists or tuples among the neighbours, and stay within the name if
///   there are only leaves. So a flat state dict stays flat, and a nested one nested.
///
/// Dicts and lists keep their kind, order and attributes; a list with an item that was moved or
/// renamed becomes a dict, since lists have no names. A dict of which all keys move to another place
/// is that dict in its new place. The modules in `_metadata` of a state dict are renamed with its
/// keys, and so are the parameters in the lists of optimizers and DeepSpeed. Values that are the
/// same object remain so.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Edit {
    /// Gives each name of a tensor a copy of its own: nothing is tied, and no memory is shared.
    pub untie: bool,
    /// The top-level states to keep; all if empty. As in the Cerebras trainer, keys that start with
    /// `__` are kept as well. In a name with dots, the state is the part before the first dot.
    pub states: Vec<String>,
    /// Keeps the leaves that match one of these; all if empty.
    pub select: Vec<Pattern>,
    /// Removes leaves from those.
    pub exclude: Vec<Pattern>,
    /// A prefix to remove from every key. Each key must have it, except those that start with `__`,
    /// which belong to the checkpoint and not to a state. Empty for none.
    pub strip_prefix: String,
    /// Replacements, applied one after another.
    pub rename: Vec<Rename>,
    /// A prefix to add to every key, except those that start with `__`. Empty for none.
    pub prefix: String,
    /// Splits names at their dots into nested dicts, even if all names in a dict are numbers, since
    /// nothing says that it was a list.
    pub nest: bool,
    /// Dtypes for floating-point tensors. Integers (an optimizer's step) and plain numbers are
    /// unchanged, and so are numpy arrays in a checkpoint with torch tensors, unless a pattern
    /// names them. The first rule whose pattern matches decides; one without a pattern is for all
    /// keys that no pattern matches.
    pub casts: Vec<CastRule>,
}

/// A replacement in keys: of each match of an expression, or of whole keys by a list.
#[derive(Debug, Clone)]
pub struct Rename {
    text: String,
    rule: RenameRule,
}

#[derive(Debug, Clone)]
enum RenameRule {
    Expression(Regex, String),
    Names(HashMap<String, String>),
}

impl Rename {
    /// Parses replacements; fails as [`Rename::parse`] does.
    pub fn all(texts: &[String]) -> Result<Vec<Self>> {
        texts.iter().map(|text| Self::parse(text)).collect()
    }

    /// Parses `REGEX=>REPLACEMENT`. In the replacement `$1` and `$name` insert the text that a
    /// group of the expression matched (`${1}` if a digit follows), `$$` a `$`. A group that the
    /// expression does not have is refused, since it would insert nothing.
    pub fn parse(text: &str) -> Result<Self> {
        let Some((pattern, replacement)) = text.split_once("=>") else {
            return Err(Error::refused(format!("`{text}` is not a replacement"))
                .expected("REGEX=>REPLACEMENT, e.g. ^model\\.=>net."));
        };
        let compiled = Regex::new(pattern).map_err(|error| {
            Error::refused(format!("`{pattern}` is not a regular expression: {error}"))
        })?;
        let replacement = replacement::braced(&compiled, replacement)?;
        Ok(Self { text: text.to_owned(), rule: RenameRule::Expression(compiled, replacement) })
    }

    /// Parses a list of old and new names for whole keys, in two columns separated by white space,
    /// or as a JSON object. Fails if a name occurs twice.
    pub fn list(text: &str) -> Result<Self> {
        let names = names::parse(text)?;
        Ok(Self {
            text: format!("a list of {} names", names.len()),
            rule: RenameRule::Names(names),
        })
    }

    /// Returns the replacement as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the replacements in a key, in order: range and new text. A key that also has a
    /// shorter name is tried under that one if nothing matches the full key.
    fn places(&self, key: &str) -> Vec<(std::ops::Range<usize>, String)> {
        let places = self.places_in(key);
        let known = known_key(key);
        if places.is_empty() && known != key { self.places_in(known) } else { places }
    }

    fn places_in(&self, key: &str) -> Vec<(std::ops::Range<usize>, String)> {
        match &self.rule {
            RenameRule::Expression(pattern, replacement) => {
                let place = |captures: regex_lite::Captures<'_>| {
                    let mut new = String::new();
                    captures.expand(replacement, &mut new);
                    (captures.get(0).map_or(0..0, |found| found.range()), new)
                };
                pattern.captures_iter(key).map(place).collect()
            }
            RenameRule::Names(names) => {
                names.get(key).map(|new| (0..key.len(), new.clone())).into_iter().collect()
            }
        }
    }
}

impl PartialEq for Rename {
    fn eq(&self, other: &Self) -> bool {
        let names = |rename: &Self| match &rename.rule {
            RenameRule::Names(names) => Some(names.clone()),
            RenameRule::Expression(..) => None,
        };
        self.text == other.text && names(self) == names(other)
    }
}

/// The effect of an edit on one leaf of the source.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Flat key in the source.
    pub old: String,
    /// Flat key afterwards; `None` if the leaf is left out.
    pub new: Option<String>,
    /// Dtype in the source, if it is a tensor or array.
    pub old_dtype: Option<DType>,
    /// Dtype afterwards, if it is a tensor or array that is not left out.
    pub new_dtype: Option<DType>,
}

impl Change {
    /// Returns whether key or dtype differ, or the leaf is left out.
    pub fn is_any(&self) -> bool {
        self.new.as_ref() != Some(&self.old) || self.old_dtype != self.new_dtype
    }
}

impl Edit {
    /// Returns whether the edit changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the edited checkpoint. Containers keep their kind and order; those that lost all
    /// their leaves are removed, and a list that lost some is shorter. A link whose target is gone
    /// becomes the value itself; further links then lead to it there.
    ///
    /// Fails if nothing is left, if a state or a pattern matches nothing (it may be misspelt), if
    /// two keys would become one, or if tensors can't be cast to a dtype.
    pub fn apply(&self, source: &Checkpoint) -> Result<Checkpoint> {
        Ok(self.run(source)?.0)
    }

    /// Like [`Edit::apply`], but also returns the effect on each leaf of the source, in the source's
    /// order.
    pub fn apply_and_preview(&self, source: &Checkpoint) -> Result<(Checkpoint, Vec<Change>)> {
        let (edited, moved) = self.run(source)?;
        let changes = changes(source, &edited, &moved);
        Ok((edited, changes))
    }

    /// Returns the edited checkpoint and the changes, none if the edit is empty. Also fails if a
    /// rename or a cast matches only keys that are not written.
    pub(crate) fn for_writing(
        &self,
        source: Arc<Checkpoint>,
    ) -> Result<(Arc<Checkpoint>, Vec<Change>)> {
        if self.is_empty() {
            return Ok((source, Vec::new()));
        }
        let (edited, changes) = self.apply_and_preview(&source)?;
        state::refuse_outside(self, &source, &edited)?;
        Ok((Arc::new(edited), changes))
    }

    /// Returns the edited checkpoint, and the values that replaced links to them, by link.
    fn run(&self, source: &Checkpoint) -> Result<(Checkpoint, HashMap<ValueId, ValueId>)> {
        let untied;
        let source = if self.untie {
            untied = untie::untie(source)?;
            &untied
        } else {
            source
        };
        let mut builder = source.edit();
        let filtered =
            !(self.states.is_empty() && self.select.is_empty() && self.exclude.is_empty());
        if filtered {
            let kept = filter::keep(self, source)?;
            let names_states = !self.states.is_empty() && source.format.traits.further_states;
            let is_selected = !self.select.is_empty() || names_states;
            filter::filter(&mut builder, source, &kept, is_selected);
        }
        let (reached, moved) = filter::place_links(&mut builder, source)?;
        filter::clear(&mut builder, &reached);
        let mut edited = builder.rebuild(source)?;
        if filtered {
            filter::forget(source, &mut edited);
        }
        if self.renames() {
            let keys = keys::new_keys(self, &edited)?;
            if keys.iter().any(|key| key.changed) {
                edited = tree::moved(self, source, &edited, &keys)?;
            }
        }
        if let Some(followed) = graph::follow(&edited, source, &moved)? {
            edited = followed;
        }
        if self.renames()
            && let Some(followed) =
                listed::follow(self, source, &edited, || changes(source, &edited, &moved))?
        {
            edited = followed;
        }
        if (filtered || self.renames())
            && let Some(stale) = metadata::stale(&edited, || changes(source, &edited, &moved))
        {
            edited.findings.push(stale);
        }
        if !self.casts.is_empty() {
            edited = cast::cast(&self.casts, &edited, &reached)?;
        }
        Ok((edited, moved))
    }

    /// Returns the patterns of `exclude`, and the replacements, that match nothing in `source`:
    /// most likely they are misspelt. Fails as [`Edit::apply`] does.
    pub fn unused(&self, source: &Checkpoint) -> Result<Unused> {
        unused::unused(self, source)
    }

    fn renames(&self) -> bool {
        let Self { strip_prefix, rename, prefix, nest, .. } = self;
        !(strip_prefix.is_empty() && rename.is_empty() && prefix.is_empty()) || *nest
    }
}

fn changes(
    source: &Checkpoint,
    edited: &Checkpoint,
    moved: &HashMap<ValueId, ValueId>,
) -> Vec<Change> {
    let own = |leaf: Leaf| (leaf.id, leaf.flat);
    // Attributes of a module that are not part of its state dict are not written.
    let written = edited.leaves().into_iter().filter(|leaf| !leaf.outside_state);
    let leaves: HashMap<ValueId, Text> = written.map(own).collect();
    let places: HashSet<ValueId> = moved.values().copied().collect();
    // A link to a whole dict may have become that dict, which is not a leaf.
    let containers = edited.flat_keys(&places);
    let key_of = |id: ValueId| match moved.get(&id) {
        Some(place) => leaves.get(place).or_else(|| containers.get(place)),
        None if places.contains(&id) => None,
        None => leaves.get(&id),
    };
    let change = |leaf: &Leaf| {
        let new = key_of(leaf.id).map(|key| key.to_lossy().into_owned());
        let at = moved.get(&leaf.id).copied().unwrap_or(leaf.id);
        Change {
            old: leaf.flat.to_lossy().into_owned(),
            old_dtype: dtype_of(source, leaf.id),
            new_dtype: new.as_ref().and_then(|_| dtype_of(edited, at)),
            new,
        }
    };
    source.leaves().iter().map(change).collect()
}

fn dtype_of(checkpoint: &Checkpoint, id: ValueId) -> Option<DType> {
    match checkpoint.value(checkpoint.resolve(id)) {
        Value::Sparse(sparse) => Some(sparse.dtype.clone()),
        _ => checkpoint.tensor_of(id).map(|(_, tensor)| tensor.dtype.clone()),
    }
}

/// Returns the parent of each value in the tree, down to the leaves.
fn parents(source: &Checkpoint) -> Vec<Option<ValueId>> {
    let mut parents = vec![None; source.values().len()];
    let mut stack = vec![source.root()];
    while let Some(id) = stack.pop() {
        let value = source.value(id);
        if !value.is_container() {
            continue;
        }
        for child in value.children() {
            if let Some(parent) = parents.get_mut(child.0 as usize) {
                *parent = Some(id);
                stack.push(child);
            }
        }
    }
    parents
}

#[cfg(test)]
mod tests;
