//! The values of a config: Python's plain values, in order.

use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

use indexmap::{Equivalent, IndexMap};
use statelens_checkpoint::{Error, Result};

/// Limit on the number of values in a config, with its aliases expanded.
pub(crate) const MAX_NODES: usize = 500_000;

/// Limit on levels of values that a conversion nests; twice that of a config.
const MAX_LEVELS: usize = 200;

/// A value of a config, as Python has it after reading.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits, as decimal digits.
    BigInt(String),
    /// A float, which may be infinite or NaN.
    Float(f64),
    Text(String),
    /// A date as it was written; PyYAML converts `2024-05-01` to one.
    Date(String),
    List(List),
    /// A dict, usually with string keys.
    Map(Map),
}

#[derive(Debug, Clone, Default)]
pub struct List {
    items: Vec<Value>,
    shared: Option<u32>,
}

/// A dict in the order of its keys, and a mark of the object if it occurs several times.
#[derive(Debug, Clone, Default)]
pub struct Map {
    entries: IndexMap<MapKey, Value>,
    shared: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum MapKey {
    /// A string, as nearly all keys are.
    Text(String),
    /// A number, a truth value or `None`, which YAML allows.
    Other(Box<Value>),
}

impl Value {
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    pub fn as_map_mut(&mut self) -> Option<&mut Map> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    pub fn as_list(&self) -> Option<&List> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }

    /// Returns the integer, if it is one. As in Python, `True` is 1.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Bool(truth) => Some(i64::from(*truth)),
            _ => None,
        }
    }

    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            Self::BigInt(digits) => digits.parse().ok(),
            _ => self.as_int().map(|number| number as f64),
        }
    }

    pub fn is_null(&self) -> bool {
        *self == Self::Null
    }

    /// Returns the short texts, numbers and truth values in it, as texts with their dotted keys,
    /// such as `model.layers`. In a very large config, returns only the first ones.
    pub fn scalars(&self) -> Vec<(String, String)> {
        const MAX_LEN: usize = 200;
        const MAX_SCALARS: usize = 20_000;
        let mut found = Vec::new();
        let mut open = vec![(String::new(), self)];
        while let Some((path, value)) = open.pop() {
            if path.len() > MAX_LEN || found.len() + open.len() > MAX_SCALARS {
                continue;
            }
            let below = |name: &str| match path.is_empty() {
                true => name.to_owned(),
                false => format!("{path}.{name}"),
            };
            match value {
                Self::Map(map) => open.extend(map.iter().filter_map(|(key, value)| match key {
                    MapKey::Text(name) if name.len() <= MAX_LEN => Some((below(name), value)),
                    _ => None,
                })),
                Self::List(list) => {
                    let items = list.iter().take(MAX_LEN).enumerate();
                    open.extend(items.map(|(at, item)| (below(&at.to_string()), item)));
                }
                Self::Text(text) if text.len() <= MAX_LEN => found.push((path, text.clone())),
                Self::Bool(truth) => found.push((path, truth.to_string())),
                Self::Int(number) => found.push((path, number.to_string())),
                Self::Float(number) => {
                    found.push((path, statelens_checkpoint::float_repr(*number)))
                }
                Self::Text(_) | Self::Null | Self::BigInt(_) | Self::Date(_) => {}
            }
        }
        found
    }

    /// Returns the value at a path of keys and of positions in lists.
    pub fn at(&self, path: &[String]) -> Option<&Self> {
        path.iter().try_fold(self, |value, step| match value {
            Self::Map(map) => map.get(step),
            Self::List(list) => step.parse().ok().and_then(|at: usize| list.get(at)),
            _ => None,
        })
    }

    /// Returns Python's `bool(value)`.
    pub fn is_true(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(truth) => *truth,
            Self::Int(number) => *number != 0,
            Self::BigInt(_) | Self::Date(_) => true,
            Self::Float(number) => *number != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::List(list) => !list.is_empty(),
            Self::Map(map) => !map.is_empty(),
        }
    }

    /// Returns the result of Python's `==`: `1`, `1.0` and `True` are equal, and the order of keys
    /// does not matter.
    pub fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(left), Self::List(right)) => {
                left.len() == right.len() && left.iter().zip(right.iter()).all(|(l, r)| l.equals(r))
            }
            (Self::Map(left), Self::Map(right)) => {
                left.len() == right.len()
                    && left.iter().all(|(key, value)| {
                        right.entries.get(key).is_some_and(|other| value.equals(other))
                    })
            }
            (Self::BigInt(left), Self::BigInt(right)) => left == right,
            (Self::Int(left), Self::Int(right)) => left == right,
            _ => match (self.as_f64(), other.as_f64()) {
                (Some(left), Some(right)) => left == right,
                _ => self == other,
            },
        }
    }

    /// Returns the value for a message: as Python prints it, shortened if it is long.
    pub fn quoted(&self) -> String {
        const MAX_LEN: usize = 60;
        let text = match self {
            Self::Null => "None".to_owned(),
            Self::Bool(true) => "True".to_owned(),
            Self::Bool(false) => "False".to_owned(),
            Self::Int(number) => number.to_string(),
            Self::BigInt(digits) | Self::Date(digits) => digits.clone(),
            Self::Float(number) => statelens_checkpoint::float_repr(*number),
            Self::Text(text) => text.clone(),
            Self::List(list) if list.is_empty() => "[]".to_owned(),
            Self::List(list) => {
                let items: Vec<String> = list.iter().take(9).map(Self::quoted).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Map(map) => format!("a section of {}", count(map.len(), "key")),
        };
        match text.char_indices().nth(MAX_LEN) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }

    /// Fails if `times` copies of it would exceed the limit on values.
    pub(crate) fn can_repeat(&self, times: usize) -> Result<()> {
        if self.nodes().saturating_mul(times) <= MAX_NODES {
            return Ok(());
        }
        Err(too_large())
    }

    /// Returns the number of values in it, including itself; long texts count as several.
    pub(crate) fn nodes(&self) -> usize {
        match self {
            Self::Text(text) | Self::BigInt(text) | Self::Date(text) => 1 + text.len() / 64,
            Self::List(list) => 1 + list.iter().map(Self::nodes).sum::<usize>(),
            Self::Map(map) => 1 + map.values().map(|value| 1 + value.nodes()).sum::<usize>(),
            _ => 1,
        }
    }

    /// Fails if it would be nested too deep below `levels` sections.
    pub(crate) fn can_nest(&self, levels: usize) -> Result<()> {
        if self.depth().saturating_add(levels) <= MAX_LEVELS {
            return Ok(());
        }
        Err(Error::limit(format!("the converted config has more than {MAX_LEVELS} levels")))
    }

    fn depth(&self) -> usize {
        let below = match self {
            Self::List(list) => list.iter().map(Self::depth).max(),
            Self::Map(map) => map.values().map(Self::depth).max(),
            _ => None,
        };
        1 + below.unwrap_or(0)
    }

    /// Returns the mark of the object, if it may occur several times.
    pub(crate) fn shared(&self) -> Option<u32> {
        match self {
            Self::List(list) => list.shared,
            Self::Map(map) => map.shared,
            _ => None,
        }
    }

    /// Replaces or removes marks.
    pub(crate) fn remark(&mut self, other: &mut impl FnMut(u32) -> Option<u32>) {
        match self {
            Self::List(list) => {
                list.shared = list.shared.and_then(&mut *other);
                list.items.iter_mut().for_each(|item| item.remark(other));
            }
            Self::Map(map) => {
                map.shared = map.shared.and_then(&mut *other);
                map.entries.values_mut().for_each(|value| value.remark(other));
            }
            _ => {}
        }
    }

    /// Marks the value as an occurrence of an object. Equal values with one mark are written once.
    pub(crate) fn share(&mut self, mark: u32) {
        match self {
            Self::List(list) => list.shared = Some(mark),
            Self::Map(map) => map.shared = Some(mark),
            _ => {}
        }
    }
}

pub(crate) fn too_large() -> Error {
    Error::limit("the converted config expands to more than 500,000 values")
}

/// Returns the error for a value that can't be converted. `name` is its key.
pub(crate) fn unfit(name: &str, value: &Value, expected: impl Into<String>) -> Error {
    Error::refused(format!("{name} is {}", value.quoted())).expected(expected)
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

impl Map {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.entries.get_mut(key)
    }

    pub fn contains(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Sets a key; an existing key keeps its position.
    pub fn set(&mut self, key: impl Into<MapKey>, value: impl Into<Value>) {
        self.entries.insert(key.into(), value.into());
    }

    pub fn set_default(&mut self, key: &str, value: impl Into<Value>) {
        if !self.contains(key) {
            self.set(key, value);
        }
    }

    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.entries.shift_remove(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&MapKey, &Value)> {
        self.entries.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&MapKey, &mut Value)> {
        self.entries.iter_mut()
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().filter_map(MapKey::as_str)
    }

    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.entries.values()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl MapKey {
    /// Returns the key as a text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Other(_) => None,
        }
    }

    /// Converts a value to a key; lists and dicts can't be keys.
    pub(crate) fn of(value: Value) -> Option<Self> {
        match value {
            Value::Text(text) => Some(Self::Text(text)),
            Value::List(_) | Value::Map(_) => None,
            other => Some(Self::Other(Box::new(other))),
        }
    }
}

impl PartialEq for List {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
    }
}

impl PartialEq for Map {
    /// Returns whether both have the same keys and values in the same order.
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for MapKey {}

impl Hash for MapKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            // Hashes like `str`, so that keys can be looked up by it.
            Self::Text(text) => text.as_str().hash(state),
            Self::Other(value) => value.quoted().hash(state),
        }
    }
}

impl Equivalent<MapKey> for str {
    fn equivalent(&self, key: &MapKey) -> bool {
        key.as_str() == Some(self)
    }
}

impl Deref for List {
    type Target = Vec<Value>;

    fn deref(&self) -> &Vec<Value> {
        &self.items
    }
}

impl DerefMut for List {
    fn deref_mut(&mut self) -> &mut Vec<Value> {
        &mut self.items
    }
}

impl<V: Into<Value>> FromIterator<V> for List {
    fn from_iter<I: IntoIterator<Item = V>>(items: I) -> Self {
        Self { items: items.into_iter().map(Into::into).collect(), shared: None }
    }
}

impl<K: Into<MapKey>> FromIterator<(K, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, Value)>>(entries: I) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value)).collect();
        Self { entries, shared: None }
    }
}

impl<K: Into<MapKey>, const N: usize> From<[(K, Value); N]> for Map {
    fn from(entries: [(K, Value); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl IntoIterator for Map {
    type Item = (MapKey, Value);
    type IntoIter = indexmap::map::IntoIter<MapKey, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

macro_rules! conversions {
    ($($from:ty => $to:ident, $value:ident => $converted:expr;)*) => {
        $(impl From<$from> for $to {
            fn from($value: $from) -> Self {
                $converted
            }
        })*
    };
}

conversions! {
    &str => MapKey, text => Self::Text(text.to_owned());
    String => MapKey, text => Self::Text(text);
    &str => Value, text => Self::Text(text.to_owned());
    String => Value, text => Self::Text(text);
    bool => Value, truth => Self::Bool(truth);
    i64 => Value, number => Self::Int(number);
    f64 => Value, number => Self::Float(number);
    List => Value, list => Self::List(list);
    Map => Value, map => Self::Map(map);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_as_in_python() {
        assert!(Value::Int(0).equals(&Value::Float(0.0)));
        assert!(Value::Bool(true).equals(&Value::Int(1)));
        assert!(!Value::Text("1".into()).equals(&Value::Int(1)));
        assert!(!Value::Null.equals(&Value::Bool(false)));
    }

    #[test]
    fn resetting_a_key_keeps_its_position() {
        let mut map = Map::new();
        map.set("b", 1);
        map.set("a", 2);
        map.set("b", 3);
        assert_eq!(map.keys().collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(map.get("b"), Some(&Value::Int(3)));
    }
}
