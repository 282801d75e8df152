//! Keys of dicts.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use statelens_checkpoint::{DictKey, Global, Int, Text};

use super::{Entries, Lowering, NOT_YET};
use crate::repr::{LENGTH, join};
use crate::{Node, NodeId, Pickle};

/// Maximum number of parts of a tuple as a key, all levels together.
const KEY_PARTS: usize = 256;
/// Maximum number of bytes of a byte string as a key, if an old protocol spells it as text.
const KEY_BYTES: usize = 4096;
/// Maximum nesting of tuples in a key.
const KEY_DEPTH: usize = 8;

impl Pickle {
    /// Returns a node as a dict key, if it consists of plain parts; see [`DictKey`].
    pub fn dict_key(&self, id: NodeId) -> Option<DictKey> {
        part(self, id, KEY_DEPTH, &mut { KEY_PARTS })
    }
}

impl Lowering<'_> {
    /// Returns keys, with placeholders for their values, and the nodes of the values. As in Python,
    /// a later entry with an equal key replaces the earlier value in its place.
    pub(super) fn entries(&self, entries: &[(NodeId, NodeId)]) -> (Entries, Vec<NodeId>) {
        let keys = entries.iter().enumerate();
        let keys: Entries = keys.map(|(at, (key, _))| (self.key(*key, at), NOT_YET)).collect();
        let (mut keys, values) = match may_repeat(&keys) {
            false => (keys, entries.iter().map(|(_, value)| *value).collect()),
            true => self.distinct(entries),
        };
        // Objects are different keys, even if they print alike.
        let mut seen = HashSet::new();
        for (at, (key, _)) in keys.iter_mut().enumerate() {
            if let DictKey::Other(text) = key
                && !seen.insert(text.clone())
            {
                *text = format!("{} {at}", text.to_lossy()).into();
            }
        }
        (keys, values)
    }

    /// Returns the entries of a dict with keys as [`Self::entries`] returns them.
    pub(super) fn keyed(
        &self,
        entries: &[(NodeId, NodeId)],
    ) -> impl Iterator<Item = (DictKey, NodeId)> + use<> {
        let (keys, values) = self.entries(entries);
        keys.into_iter().map(|(key, _)| key).zip(values)
    }

    /// Like [`Lowering::entries`], for keys that may occur twice.
    fn distinct(&self, entries: &[(NodeId, NodeId)]) -> (Entries, Vec<NodeId>) {
        let mut keys: Entries = Vec::with_capacity(entries.len());
        let mut values = Vec::with_capacity(entries.len());
        let mut places: HashMap<Equal, usize> = HashMap::with_capacity(entries.len());
        for (key, value) in entries {
            let key = self.key(*key, keys.len());
            match Equal::of(&key).map(|equal| places.entry(equal)) {
                Some(std::collections::hash_map::Entry::Occupied(place)) => {
                    values[*place.get()] = *value;
                    continue;
                }
                Some(std::collections::hash_map::Entry::Vacant(place)) => {
                    place.insert(keys.len());
                }
                None => {}
            }
            keys.push((key, NOT_YET));
            values.push(*value);
        }
        (keys, values)
    }

    /// Returns a key. The name of an object as a key includes its position, which makes it unique.
    fn key(&self, id: NodeId, place: usize) -> DictKey {
        let pickle = self.pickle;
        let mut left = KEY_PARTS;
        let key = part(pickle, id, KEY_DEPTH, &mut left);
        // A key with a single part costs as much as its own place in the file.
        let affordable = self.afford((KEY_PARTS - left).saturating_sub(1));
        key.filter(|_| affordable).unwrap_or_else(|| {
            let text = self.repr(id).unwrap_or_else(|| match pickle.node(id) {
                Node::Tuple(_) => self.spelled(id).unwrap_or_else(|| format!("(... {place})")),
                Node::Global(global) => short(global),
                Node::Object(object) => match pickle.global(object.callable) {
                    // The state of an optimizer that was saved whole.
                    Some(global) if global.is("torch._utils", "_rebuild_parameter") => {
                        format!("<torch.nn.parameter.Parameter object {place}>")
                    }
                    Some(global) => {
                        let text =
                            self.spelled(id).unwrap_or_else(|| format!("<{}>", short(&global)));
                        format!("{} object {place}>", text.strip_suffix('>').unwrap_or(&text))
                    }
                    None => format!("<object {place}>"),
                },
                _ => self.spelled(id).unwrap_or_else(|| format!("<object {place}>")),
            });
            DictKey::Other(text.into())
        })
    }

    /// Returns the text of [`Self::spell`], within the budget: many keys may be the same object.
    fn spelled(&self, id: NodeId) -> Option<String> {
        let mut text = String::new();
        let found = (self.state.work.get() > 0).then(|| self.spell(id, KEY_DEPTH, &mut text))?;
        let is_affordable = self.afford(found.map_or(LENGTH, |()| text.len()));
        found.filter(|()| is_affordable).map(|()| text)
    }

    /// Appends the text of a key: its `repr`, or its class with all that it is made from, which
    /// distinguishes it from those of other files. `None` if not everything is plain, or if it is
    /// nested more than `depth` levels.
    fn spell(&self, id: NodeId, depth: usize, out: &mut String) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let pickle = self.pickle;
        if let Some(text) = self.repr(id) {
            out.push_str(&text);
        } else {
            match pickle.node(id) {
                Node::Tuple(items) => self.spell_all("(", pickle.items(*items), ")", depth, out)?,
                Node::List(items) => self.spell_all("[", items, "]", depth, out)?,
                Node::Set(items) => self.spell_all("{", items, "}", depth, out)?,
                Node::FrozenSet(items) => self.spell_all("{", items, "}", depth, out)?,
                Node::Dict(entries) => self.spell_entries(entries, depth, out)?,
                Node::Object(_) => {
                    let object = pickle.object(id).filter(|object| object.kwargs.is_none())?;
                    let (mut class, mut args) = pickle.call(id)?;
                    if &*class.name == "_reconstructor"
                        && let [own, ..] = args
                    {
                        (class, args) = (pickle.global(*own)?, &[]);
                    }
                    out.push('<');
                    out.push_str(&short(&class));
                    if !args.is_empty() {
                        self.spell_all("(", args, ")", depth, out)?;
                    }
                    for state in &object.states {
                        out.push(' ');
                        self.spell(*state, depth, out)?;
                    }
                    if !object.items.is_empty() {
                        self.spell_all(" [", &object.items, "]", depth, out)?;
                    }
                    if !object.entries.is_empty() {
                        self.spell_entries(&object.entries, depth, out)?;
                    }
                    out.push('>');
                }
                _ => return None,
            }
        }
        (out.len() <= LENGTH).then_some(())
    }

    fn spell_all(
        &self,
        start: &str,
        items: &[NodeId],
        end: &str,
        depth: usize,
        out: &mut String,
    ) -> Option<()> {
        join(start, items, end, out, |item, out| self.spell(item, depth, out))
    }

    fn spell_entries(
        &self,
        entries: &[(NodeId, NodeId)],
        depth: usize,
        out: &mut String,
    ) -> Option<()> {
        for (index, (key, value)) in entries.iter().enumerate() {
            self.spell_all(if index > 0 { ", " } else { "{" }, &[*key], ": ", depth, out)?;
            self.spell(*value, depth, out)?;
        }
        out.push('}');
        Some(())
    }
}

/// Returns whether two of the keys have the same hash. A list of hashes takes a tenth of the memory
/// of a map of the keys.
fn may_repeat(keys: &Entries) -> bool {
    let state = RandomState::new();
    let hashes = keys.iter().filter_map(|(key, _)| Equal::of(key));
    let mut hashes: Vec<u64> = hashes.map(|key| state.hash_one(key)).collect();
    hashes.sort_unstable();
    hashes.windows(2).any(|pair| pair[0] == pair[1])
}

fn short(global: &Global) -> String {
    global.to_string().chars().take(200).collect()
}

/// Converts a node to a key, descending at most `depth` levels.
fn part(pickle: &Pickle, id: NodeId, depth: usize, parts: &mut usize) -> Option<DictKey> {
    *parts = parts.checked_sub(1)?;
    Some(match pickle.node(id) {
        Node::None => DictKey::None,
        Node::Bool(value) => DictKey::Bool(*value),
        Node::Int(value) => DictKey::Int(value.clone()),
        Node::Float(value) => DictKey::Float(*value),
        Node::Str(text) => DictKey::Str(text.clone()),
        Node::Bytes(bytes) => DictKey::Bytes(bytes.clone()),
        Node::Object(_) if depth > 0 => {
            if let Some(key) = numpy_scalar(pickle, id) {
                return Some(key);
            }
            let spelled = pickle.spelled(id)?;
            let len = Some(pickle.spelled_len(spelled)).filter(|len| *len <= KEY_BYTES)?;
            *parts = parts.checked_sub(len / 64)?;
            DictKey::Bytes(pickle.spelled_bytes(spelled)?)
        }
        Node::Tuple(items) => {
            let depth = depth.checked_sub(1)?;
            let items = pickle.items(*items).iter().map(|item| part(pickle, *item, depth, parts));
            DictKey::Tuple(items.collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

/// Returns a numpy scalar that is an integer, a bool, a `float64` or a string: it equals Python's
/// value, and prints like it.
fn numpy_scalar(pickle: &Pickle, id: NodeId) -> Option<DictKey> {
    let (global, args) = pickle.call(id)?;
    let [dtype, data] = args else { return None };
    if &*global.name != "scalar" || !global.module.starts_with("numpy") {
        return None;
    }
    let (_, names) = pickle.call(*dtype)?;
    let code = pickle.str(*names.first()?)?;
    let spelled = pickle.spelled(*data).filter(|data| pickle.spelled_len(*data) <= KEY_BYTES)?;
    let mut data = pickle.spelled_bytes(spelled)?.to_vec();
    let state = pickle.state(*dtype).and_then(|state| pickle.sequence(state)).unwrap_or_default();
    let text = code.starts_with('U');
    if state.get(1).and_then(|order| pickle.str(*order)) == Some(">") {
        let unit = if text { 4 } else { data.len() };
        data.chunks_exact_mut(unit.max(1)).for_each(<[u8]>::reverse);
    }
    if text {
        let (units, []) = data.as_chunks::<4>() else { return None };
        let text = units.iter().map(|unit| char::from_u32(u32::from_le_bytes(*unit)));
        return Some(DictKey::Str(text.collect::<Option<String>>()?.into()));
    }
    if data.is_empty() || data.len() > 8 {
        return None;
    }
    let negative = code.starts_with('i') && data.last().is_some_and(|byte| *byte >= 0x80);
    let mut bits = [if negative { 0xff } else { 0 }; 8];
    bits[..data.len()].copy_from_slice(&data);
    Some(match code {
        "b1" => DictKey::Bool(bits[0] != 0),
        "i1" | "i2" | "i4" | "i8" => DictKey::Int(i64::from_le_bytes(bits).into()),
        "u1" | "u2" | "u4" | "u8" => DictKey::Int(u64::from_le_bytes(bits).into()),
        "f8" => DictKey::Float(f64::from_le_bytes(bits)),
        _ => return None,
    })
}

/// A key that is equal if Python's keys are: `1`, `1.0` and `True` are one key.
#[derive(PartialEq, Eq, Hash)]
enum Equal {
    None,
    Int(Int),
    Float(u64),
    Str(Text),
    Bytes(Arc<[u8]>),
    Tuple(Vec<Equal>),
}

impl Equal {
    fn of(key: &DictKey) -> Option<Self> {
        Some(match key {
            DictKey::None => Self::None,
            DictKey::Bool(value) => Self::Int(i64::from(*value).into()),
            DictKey::Int(value) => Self::Int(value.clone()),
            DictKey::Float(value) if value.is_nan() => return None,
            DictKey::Float(value) => {
                // Floats beyond 64 bits that equal an integer are treated as different from it,
                // since such duplicate keys don't occur.
                let int = *value as i64;
                match int as f64 == *value && int != i64::MAX {
                    true => Self::Int(int.into()),
                    false => Self::Float(value.to_bits()),
                }
            }
            DictKey::Str(text) => Self::Str(text.clone()),
            DictKey::Bytes(bytes) => Self::Bytes(bytes.clone()),
            DictKey::Tuple(items) => {
                Self::Tuple(items.iter().map(Self::of).collect::<Option<_>>()?)
            }
            DictKey::Other(_) => return None,
        })
    }
}
