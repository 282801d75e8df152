//! Renames the modules in `_metadata`, the attribute of a state dict with the version of each
//! module, along with the keys of the state dict.
//!
//! `torch.nn.Module.state_dict` writes the attribute, and `load_state_dict` reads it. The new names
//! are those of `torch.nn.modules.utils.consume_prefix_in_state_dict_if_present`.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{
    Builder, Checkpoint, Dict, DictClass, DictKey, Finding, FindingKind, Grade, Result, Text,
    Value, ValueId,
};

use super::keys::{NewKey, VERSIONS as ATTRIBUTE};
use crate::Edit;

/// The key of the version of a module.
const VERSION: &str = "version";
/// The version of a module whose class sets none: `torch.nn.Module._version`.
const PLAIN_VERSION: i64 = 1;

/// A dict with attributes, and the container that holds its leaves after an edit.
#[derive(Debug)]
pub(super) struct MovedDict {
    pub(super) id: ValueId,
    /// The start of its keys, with a dot at the end unless it is the root.
    pub(super) old_start: String,
    /// The new container.
    pub(super) place: ValueId,
    /// The start of the keys in the new container.
    pub(super) new_start: String,
    /// Whether the new container holds nothing else, so that it is the dict itself.
    pub(super) whole: bool,
}

/// Moves the attributes of dicts to their new places, and renames the modules in `_metadata`.
/// `source` has all keys, `filtered` those that are kept, `keys` are their new names. Returns
/// findings for omitted modules.
pub(super) fn follow(
    builder: &mut Builder,
    edit: &Edit,
    source: &Checkpoint,
    filtered: &Checkpoint,
    keys: &[NewKey],
    moved: &[MovedDict],
) -> Result<Vec<Finding>> {
    let before = keys_below(source, moved);
    let mut places: Vec<(ValueId, NewAttributes<'_>)> = Vec::new();
    let (mut modules, mut others) = (Vec::new(), Vec::new());
    for dict in moved {
        let at = places.iter().position(|(place, _)| *place == dict.place);
        let at = at.unwrap_or_else(|| {
            places.push((dict.place, NewAttributes::default()));
            places.len() - 1
        });
        let new = &mut places[at].1;
        let is_shared =
            source.attributes(dict.id).is_some_and(|id| matches!(source.value(id), Value::Link(_)));
        for (name, value) in filtered.named_attributes(dict.id) {
            match filtered.value(filtered.resolve(value)) {
                Value::Dict(versions) if *name == ATTRIBUTE => {
                    let renaming = Renaming::new(edit, dict, keys, &before);
                    new.versions.class = Some(versions.class.clone());
                    for (key, value) in &versions.entries {
                        match renaming.key(key) {
                            NewModule::At(name) => new.versions.add(name, *value, key),
                            NewModule::Gone => {}
                            NewModule::Unknown => {
                                modules.push(format!("{}{key}", dict.old_start));
                            }
                        }
                    }
                    new.versions.add_outer(filtered, versions);
                }
                _ if dict.whole && !new.others.iter().any(|(known, ..)| *known == name) => {
                    new.others.push((name, value, is_shared));
                }
                _ => others.push(format!("`{name}` of `{}`", dict.old_start.trim_end_matches('.'))),
            }
        }
    }
    for (place, new) in places {
        new.write(builder, filtered, place)?;
    }
    Ok(left_out(&modules, &others))
}

/// Returns the findings for omitted modules.
fn left_out(modules: &[String], others: &[String]) -> Vec<Finding> {
    let finding = |title: &str, names: &[String], why: &str| {
        let more = match names.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        Finding::new(Grade::Warning, title)
            .kind(FindingKind::LeftOut)
            .detail(format!("{}{more}: {why}", names.first().map_or("", |name| name)))
    };
    let mut findings = Vec::new();
    if !modules.is_empty() {
        let why = "the keys of a module move apart, so no new name fits. PyTorch loads such a \
                   module as if an old release had saved it.";
        findings.push(finding("versions of modules (`_metadata`) are left out", modules, why));
    }
    if !others.is_empty() {
        let why = "the dict is joined with others, or its keys move apart.";
        findings.push(finding("Python attributes of dicts are left out", others, why));
    }
    findings
}

/// Returns the keys below each dict, relative to it, as they were before keys were left out.
fn keys_below(source: &Checkpoint, moved: &[MovedDict]) -> Vec<(ValueId, String)> {
    let dicts: HashSet<ValueId> = moved.iter().map(|dict| dict.id).collect();
    let parents = super::parents(source);
    let mut found = Vec::new();
    for leaf in source.each_leaf() {
        let mut at = leaf.id;
        for from in (0..leaf.key.parts.len()).rev() {
            let Some(Some(parent)) = parents.get(at.0 as usize) else { break };
            at = *parent;
            if dicts.contains(&at) {
                found.push((at, joined(&leaf.key.parts[from..])));
            }
        }
    }
    found
}

fn joined(parts: &[statelens_checkpoint::KeyPart]) -> String {
    let parts: Vec<String> = parts.iter().map(|part| part.text().to_lossy().into()).collect();
    parts.join(".")
}

/// The new name of a module.
enum NewModule {
    At(DictKey),
    /// All its keys are left out, and its name may now mean another module.
    Gone,
    Unknown,
}

/// The new names of the modules of one dict.
struct Renaming<'a> {
    edit: &'a Edit,
    dict: &'a MovedDict,
    /// For each module with keys, the start of its new keys if they have one in common.
    starts: HashMap<String, Option<String>>,
    /// The starts of all new keys of the dict, at each dot.
    new_starts: HashSet<String>,
    /// The modules that had keys.
    before: HashSet<String>,
}

impl<'a> Renaming<'a> {
    fn new(
        edit: &'a Edit,
        dict: &'a MovedDict,
        keys: &[NewKey],
        before: &[(ValueId, String)],
    ) -> Self {
        let mut starts: HashMap<String, Option<String>> = HashMap::new();
        let mut new_starts = HashSet::from([String::new()]);
        for key in keys {
            let Some(from) = key.above.iter().position(|id| *id == dict.id) else { continue };
            let old = joined(key.leaf.key.parts.get(from..).unwrap_or_default());
            let direct = old.rfind('.').map_or(0, |at| at + 1);
            new_starts.extend(modules_of(&key.text).map(|(_, start)| start.to_owned()));
            for (module, start) in modules_of(&old) {
                let rest = &old[start.len()..];
                // The last step of a key is the name of a parameter, which may change by itself.
                let new = match start.len() == direct {
                    true => Some(&key.text[..key.text.rfind('.').map_or(0, |at| at + 1)]),
                    false => key
                        .text
                        .strip_suffix(rest)
                        .filter(|start| start.is_empty() || start.ends_with('.')),
                };
                match starts.get_mut(module) {
                    None => drop(starts.insert(module.to_owned(), new.map(str::to_owned))),
                    Some(known) if known.as_deref() != new => *known = None,
                    Some(_) => {}
                }
            }
        }
        let own = before.iter().filter(|(id, _)| *id == dict.id);
        let before = own.flat_map(|(_, key)| modules_of(key).map(|(module, _)| module.to_owned()));
        let before = before.collect();
        Self { edit, dict, starts, new_starts, before }
    }

    fn key(&self, key: &DictKey) -> NewModule {
        match key {
            DictKey::Str(module) => match module.as_str() {
                Some(module) => self.module(module),
                None => NewModule::At(key.clone()),
            },
            _ => NewModule::At(key.clone()),
        }
    }

    fn module(&self, module: &str) -> NewModule {
        let at = |name: &str| NewModule::At(DictKey::from(name));
        let old = match module {
            "" => self.dict.old_start.clone(),
            module => format!("{}{module}.", self.dict.old_start),
        };
        let Some(new) = self.start(module, &old) else {
            return match module {
                // A dict still has a root module if a prefix of all its keys is removed.
                "" => at(""),
                _ => NewModule::Unknown,
            };
        };
        let had_keys = self.before.contains(module) && !self.starts.contains_key(module);
        if had_keys && new == old && !module.is_empty() {
            return NewModule::Gone;
        }
        match new.strip_prefix(&*self.dict.new_start) {
            Some(name) => at(name.strip_suffix('.').unwrap_or(name)),
            None if module.is_empty() => at(""),
            None => NewModule::Unknown,
        }
    }

    /// Returns the start of the new keys of a module, with a dot at the end.
    fn start(&self, module: &str, old: &str) -> Option<String> {
        match self.starts.get(module) {
            Some(Some(start)) => return Some(start.clone()),
            // Its keys do not move together: the rules decide if some of its keys follow them.
            Some(None) if !module.is_empty() => {
                let renamed = renamed(self.edit, old);
                return self.new_starts.contains(&renamed).then_some(renamed);
            }
            Some(None) => return None,
            None => {}
        }
        // A module without keys follows the rules, or the module that it is in.
        let renamed = renamed(self.edit, old);
        if renamed != old || module.is_empty() {
            return Some(renamed);
        }
        let outer = modules_of(module).map(|(outer, _)| outer).filter(|outer| !outer.is_empty());
        for outer in outer.collect::<Vec<_>>().into_iter().rev() {
            if let Some(Some(start)) = self.starts.get(outer) {
                return Some(format!("{start}{}.", &module[outer.len() + 1..]));
            }
        }
        Some(renamed)
    }
}

/// Returns the modules that a key belongs to, the outermost first: name, and start of the key.
fn modules_of(key: &str) -> impl Iterator<Item = (&str, &str)> {
    let inner = key.match_indices('.').map(|(at, _)| (&key[..at], &key[..at + 1]));
    std::iter::once(("", "")).chain(inner)
}

/// Applies the rules to the start of keys.
pub(super) fn renamed(edit: &Edit, start: &str) -> String {
    let outside = start.starts_with("__");
    let mut text = start.strip_prefix(&*edit.strip_prefix).unwrap_or(start).to_owned();
    for rename in &edit.rename {
        for (range, new) in rename.places(&text).into_iter().rev() {
            text.replace_range(range, &new);
        }
    }
    if !outside {
        text.insert_str(0, &edit.prefix);
    }
    text
}

/// The attributes of a new container.
#[derive(Default)]
struct NewAttributes<'a> {
    versions: Versions,
    /// Attributes other than `_metadata`, and whether another dict has them as well.
    others: Vec<(&'a Text, ValueId, bool)>,
}

impl NewAttributes<'_> {
    /// Sets them. The versions are copied, so that another dict with the same attribute keeps its
    /// own.
    fn write(self, builder: &mut Builder, source: &Checkpoint, place: ValueId) -> Result<()> {
        let mut attributes = Vec::new();
        for (name, value, is_shared) in self.others {
            let value = match is_shared {
                true => builder.push(Value::Link(source.resolve(value)))?,
                false => value,
            };
            attributes.push((DictKey::Str(name.clone()), value));
        }
        if let Some(class) = self.versions.class {
            let mut entries = Vec::new();
            for (module, version) in self.versions.entries {
                let version = match version {
                    Some(version) => copy(builder, source, version)?,
                    None => {
                        let version = builder.push(Value::Int(PLAIN_VERSION.into()))?;
                        let entries = vec![(VERSION.into(), version)];
                        builder.push(Value::Dict(Dict { entries, ..Dict::default() }))?
                    }
                };
                entries.push((module, version));
            }
            let versions = builder.push(Value::Dict(Dict { class, entries }))?;
            attributes.push((ATTRIBUTE.into(), versions));
        }
        if attributes.is_empty() {
            return Ok(());
        }
        // A plain dict has no attributes.
        if let Some(Value::Dict(Dict { class: class @ DictClass::Dict, .. })) =
            builder.value_mut(place)
        {
            *class = DictClass::Ordered;
        }
        let attributes = Dict { entries: attributes, ..Dict::default() };
        let attributes = builder.push(Value::Dict(attributes))?;
        builder.set_attributes(place, attributes);
        Ok(())
    }
}

/// The new entries of `_metadata` in order. If two modules get one name, the one that was renamed
/// counts, as in torch.
#[derive(Default)]
struct Versions {
    class: Option<DictClass>,
    /// Modules with the values of the source, or without one if the module is new.
    entries: Vec<(DictKey, Option<ValueId>)>,
    /// The positions of modules, and whether they were renamed.
    places: HashMap<String, (usize, bool)>,
}

impl Versions {
    fn add(&mut self, module: DictKey, value: ValueId, old: &DictKey) {
        let name = format!("{} {module}", module.kind());
        let renamed = module != *old;
        match self.places.get(&name).copied() {
            None => {
                self.places.insert(name, (self.entries.len(), renamed));
                self.entries.push((module, Some(value)));
            }
            Some((at, before)) if renamed || !before => {
                self.entries[at] = (module, Some(value));
                self.places.insert(name, (at, renamed));
            }
            Some(_) => {}
        }
    }

    /// Adds the modules that a new prefix puts around the root module. torch writes them for every
    /// module around another.
    fn add_outer(&mut self, source: &Checkpoint, old: &Dict) {
        let root = old.entries.iter().find(|(key, _)| *key == DictKey::from(""));
        let Some((_, root)) = root else { return };
        let Value::Dict(value) = source.value(source.resolve(*root)) else { return };
        if !value.entries.iter().any(|(key, _)| *key == DictKey::from(VERSION)) {
            return;
        }
        let moved = self.entries.iter().find(|(_, value)| *value == Some(*root));
        let Some((DictKey::Str(name), _)) = moved else { return };
        let name = name.to_lossy().into_owned();
        let known = |outer: &str| self.places.contains_key(&format!("str {outer}"));
        let outer = modules_of(&name).map(|(outer, _)| outer);
        let outer = outer.filter(|outer| *outer != name && !known(outer));
        let outer: Vec<_> = outer.map(|outer| (DictKey::from(outer), None)).collect();
        let count = outer.len();
        self.entries.splice(0..0, outer);
        for (at, _) in self.places.values_mut() {
            *at += count;
        }
        for at in 0..count {
            self.places.insert(format!("str {}", self.entries[at].0), (at, false));
        }
    }
}

/// Returns a copy of a small dict of plain values, or a link to any other value.
fn copy(builder: &mut Builder, source: &Checkpoint, id: ValueId) -> Result<ValueId> {
    let id = source.resolve(id);
    match source.value(id) {
        Value::Dict(dict) => {
            let mut entries = Vec::with_capacity(dict.entries.len());
            for (key, value) in &dict.entries {
                let value = source.resolve(*value);
                let copied = match source.value(value) {
                    plain if plain.children().is_empty() => plain.clone(),
                    _ => Value::Link(value),
                };
                entries.push((key.clone(), builder.push(copied)?));
            }
            builder.push(Value::Dict(Dict { class: dict.class.clone(), entries }))
        }
        plain if plain.children().is_empty() => {
            let plain = plain.clone();
            builder.push(plain)
        }
        _ => builder.push(Value::Link(id)),
    }
}
