//! A state dict between its file and its recipe.

use indexmap::IndexMap;
use statelens_checkpoint::{Checkpoint, DictKey, Error, Result, Tensor, Value, ValueId, room};

use crate::language::Scalar;

/// About what a key takes in a state or a step, in bytes: names, shapes, the rule that was followed.
const EACH: u64 = 2_000;

/// What a state dict holds under each of its keys, in order.
#[derive(Debug, Clone, Default)]
pub struct State {
    entries: IndexMap<String, StateValue>,
    /// Plain numbers beside the tensors.
    facts: IndexMap<String, Scalar>,
}

/// What is under a key.
#[derive(Debug, Clone)]
pub enum StateValue {
    /// A tensor; the value of the source that it is, if nothing was done to it.
    Tensor(Tensor, Option<ValueId>),
    /// Python's `None`.
    None,
    /// Something else of the source, as it is.
    Value(ValueId),
}

impl State {
    /// What a dict of a checkpoint holds.
    pub fn of(checkpoint: &Checkpoint, dict: ValueId) -> Result<Self> {
        let Value::Dict(dict) = checkpoint.value(checkpoint.resolve(dict)) else {
            return Err(Error::refused(format!(
                "the model's state is a {}, not a dict",
                checkpoint.value(dict).kind()
            )));
        };
        let mut state = Self::default();
        room::ahead(dict.entries.len() as u64 * EACH)?;
        for (key, id) in &dict.entries {
            let DictKey::Str(key) = key else {
                return Err(Error::refused(format!("the key {key} of the model is not a text")));
            };
            let target = checkpoint.resolve(*id);
            let item = match (checkpoint.tensor_of(target), checkpoint.value(target)) {
                (Some((_, tensor)), _) => StateValue::Tensor(tensor.clone(), Some(*id)),
                (None, Value::None) => StateValue::None,
                _ => StateValue::Value(*id),
            };
            state.entries.insert(key.to_lossy().into_owned(), item);
        }
        Ok(state)
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Keys and what is under them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &StateValue)> {
        self.entries.iter().map(|(key, item)| (&**key, item))
    }

    /// What is under a key.
    pub fn get(&self, key: &str) -> Option<&StateValue> {
        self.entries.get(key)
    }

    /// The tensor under a key.
    pub fn tensor(&self, key: &str) -> Option<&Tensor> {
        match self.entries.get(key) {
            Some(StateValue::Tensor(tensor, _)) => Some(tensor),
            _ => None,
        }
    }

    /// Whether there is something under a key.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Fails where there is no memory for another state of as many keys.
    pub fn room(&self) -> Result<()> {
        room::ahead(self.entries.len() as u64 * EACH)
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Puts something under a key; one that was there before keeps its place.
    pub fn set(&mut self, key: String, value: StateValue) {
        self.entries.insert(key, value);
    }

    /// One item.
    pub fn only(key: &str, value: StateValue) -> Self {
        let mut state = Self::default();
        state.set(key.to_owned(), value);
        state
    }

    /// A plain number that is under a key.
    pub fn fact(&self, key: &str) -> Option<&Scalar> {
        self.facts.get(key)
    }

    /// Notes a plain number.
    pub fn set_fact(&mut self, key: String, fact: Scalar) {
        self.facts.insert(key, fact);
    }

    /// The same items under other keys, in the same order.
    pub fn renamed(self, rename: impl Fn(String) -> String) -> Self {
        let entries = self.entries.into_iter().map(|(key, item)| (rename(key), item)).collect();
        Self { entries, facts: self.facts }
    }

    /// Adds what another state holds.
    pub fn extend(&mut self, other: Self) {
        self.entries.extend(other.entries);
    }

    /// What `keep` says of each.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &StateValue) -> bool) {
        self.entries.retain(|key, item| keep(key, item));
    }

    /// Changes every tensor.
    pub fn map_tensors(
        &mut self,
        mut change: impl FnMut(&str, &Tensor) -> Result<Option<Tensor>>,
    ) -> Result<()> {
        for (key, item) in &mut self.entries {
            if let StateValue::Tensor(tensor, _) = item
                && let Some(changed) = change(key, tensor)?
            {
                *item = StateValue::Tensor(changed, None);
            }
        }
        Ok(())
    }
}
