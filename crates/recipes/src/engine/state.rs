//! A state dict during a conversion.

use indexmap::IndexMap;
use statelens_checkpoint::{Checkpoint, DictKey, Error, Result, Tensor, Value, ValueId, try_alloc};

use crate::value::Value as Plain;

/// Approximate memory per key in a state or a step, in bytes: names, shapes, the rule.
const EACH: u64 = 2_000;

#[derive(Debug, Clone, Default)]
pub struct State {
    entries: IndexMap<String, StateValue>,
    /// Plain numbers that accompany the tensors.
    facts: IndexMap<String, Plain>,
}

#[derive(Debug, Clone)]
pub enum StateValue {
    /// A tensor, with the source value that it equals if it is unchanged.
    Tensor(Tensor, Option<ValueId>),
    /// Python's `None`.
    None,
    /// Any other value of the source, unchanged.
    Value(ValueId),
}

impl State {
    pub fn of(checkpoint: &Checkpoint, dict: ValueId) -> Result<Self> {
        let Value::Dict(dict) = checkpoint.value(checkpoint.resolve(dict)) else {
            return Err(Error::refused(format!(
                "the model's state is a {}, not a dict",
                checkpoint.value(dict).kind()
            )));
        };
        let mut state = Self::default();
        try_alloc::ahead(dict.entries.len() as u64 * EACH)?;
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

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &StateValue)> {
        self.entries.iter().map(|(key, item)| (&**key, item))
    }

    pub fn get(&self, key: &str) -> Option<&StateValue> {
        self.entries.get(key)
    }

    pub fn tensor(&self, key: &str) -> Option<&Tensor> {
        match self.entries.get(key) {
            Some(StateValue::Tensor(tensor, _)) => Some(tensor),
            _ => None,
        }
    }

    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Fails if there is not enough memory for another state with as many keys.
    pub fn room(&self) -> Result<()> {
        try_alloc::ahead(self.entries.len() as u64 * EACH)
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sets the value of a key; an existing key keeps its position.
    pub fn set(&mut self, key: String, value: StateValue) {
        self.entries.insert(key, value);
    }

    pub fn only(key: &str, value: StateValue) -> Self {
        let mut state = Self::default();
        state.set(key.to_owned(), value);
        state
    }

    pub fn fact(&self, key: &str) -> Option<&Plain> {
        self.facts.get(key)
    }

    pub fn set_fact(&mut self, key: String, fact: Plain) {
        self.facts.insert(key, fact);
    }

    /// Renames the keys; their order stays the same.
    pub fn renamed(self, rename: impl Fn(String) -> String) -> Self {
        let entries = self.entries.into_iter().map(|(key, item)| (rename(key), item)).collect();
        Self { entries, facts: self.facts }
    }

    pub fn extend(&mut self, other: Self) {
        self.entries.extend(other.entries);
    }

    /// Keeps the entries for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &StateValue) -> bool) {
        self.entries.retain(|key, item| keep(key, item));
    }

    /// Replaces every tensor for which `change` returns another.
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
