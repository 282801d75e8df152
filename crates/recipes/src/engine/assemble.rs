//! Builds a checkpoint from a state dict.

use std::collections::HashSet;

use statelens_checkpoint::{
    Builder, Checkpoint, Dict, DictKey, Int, List, Result, TensorId, Value, ValueId,
};

use super::state::{State, StateValue};
use crate::config::{self, MapKey};

/// A new checkpoint under construction, which reuses the values of a source.
#[derive(Debug)]
pub struct Assembly<'a> {
    source: &'a Checkpoint,
    builder: Builder,
    /// Tensors that the new checkpoint uses already.
    used: HashSet<TensorId>,
}

impl<'a> Assembly<'a> {
    pub fn of(source: &'a Checkpoint) -> Self {
        Self { source, builder: source.edit(), used: HashSet::new() }
    }

    /// Adds a dict with the contents of a state.
    pub fn state(&mut self, state: &State) -> Result<ValueId> {
        let entries = self.items(state)?;
        self.dict(entries)
    }

    /// Adds the contents of a state and returns them with their keys.
    pub fn items(&mut self, state: &State) -> Result<Vec<(DictKey, ValueId)>> {
        let mut entries = Vec::with_capacity(state.len());
        for (key, item) in state.iter() {
            let value = match item {
                StateValue::None => Value::None,
                StateValue::Value(id) => self.source.value(self.source.resolve(*id)).clone(),
                StateValue::Tensor(tensor, from) => {
                    let own = from.and_then(|from| self.source.tensor_of(from));
                    match own.filter(|(own, _)| self.used.insert(*own)) {
                        Some((own, _)) => Value::Tensor(own),
                        None => {
                            let mut tensor = tensor.clone();
                            tensor.storage = None;
                            Value::Tensor(self.builder.push_tensor(tensor)?)
                        }
                    }
                }
            };
            entries.push((DictKey::from(key), self.builder.push(value)?));
        }
        Ok(entries)
    }

    pub fn dict(&mut self, entries: Vec<(DictKey, ValueId)>) -> Result<ValueId> {
        self.builder.push(Value::Dict(Dict { entries, ..Dict::default() }))
    }

    /// Gives a new dict the attributes of a dict of the source.
    pub fn keep_attributes(&mut self, old: ValueId, new: ValueId) {
        let builder = &mut self.builder;
        builder.set_raw_attributes(new, self.source.raw_attributes(old).to_vec());
        builder.set_attribute_types(new, self.source.attribute_types(old).to_vec());
    }

    /// Gives a new dict with the same keys the class and the Python attributes of a dict of the
    /// source.
    pub fn keep_python_attributes(&mut self, old: ValueId, new: ValueId) {
        let Some(attributes) = self.source.attributes(old) else { return };
        let (Value::Dict(old), Some(Value::Dict(dict))) =
            (self.source.value(old), self.builder.value_mut(new))
        else {
            return;
        };
        dict.class = old.class.clone();
        self.builder.set_attributes(new, attributes);
    }

    pub fn value(&mut self, value: Value) -> Result<ValueId> {
        self.builder.push(value)
    }

    pub fn list(&mut self, items: Vec<ValueId>) -> Result<ValueId> {
        self.value(Value::List(List { items, ..List::default() }))
    }

    pub fn builder(&mut self) -> &mut Builder {
        &mut self.builder
    }

    /// Adds a config, converted to values of a checkpoint. Recurses; the depth of a parsed config
    /// is bounded.
    pub fn config(&mut self, config: &config::Value) -> Result<ValueId> {
        use config::Value as From;
        let value = match config {
            From::Null => Value::None,
            From::Bool(truth) => Value::Bool(*truth),
            From::Int(number) => Value::Int(Int::from(*number)),
            From::BigInt(text) | From::Text(text) | From::Date(text) => {
                Value::Str(text.as_str().into())
            }
            From::Float(number) => Value::Float(*number),
            From::List(list) => {
                let items: Result<Vec<ValueId>> =
                    list.iter().map(|item| self.config(item)).collect();
                Value::List(List { items: items?, ..List::default() })
            }
            From::Map(map) => {
                let mut entries = Vec::with_capacity(map.len());
                for (key, value) in map.iter() {
                    let key = match key {
                        MapKey::Text(text) => DictKey::from(text.as_str()),
                        MapKey::Other(other) => DictKey::from(&*other.quoted()),
                    };
                    entries.push((key, self.config(value)?));
                }
                Value::Dict(Dict { entries, ..Dict::default() })
            }
        };
        self.builder.push(value)
    }

    pub fn finish(self, root: ValueId) -> Result<Checkpoint> {
        let Self { source, mut builder, .. } = self;
        // Containers of the source that are unused now must not refer to values in the new ones.
        let mut kept = vec![false; source.values().len()];
        let mut open = vec![root];
        let mut seen = HashSet::new();
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            if let Some(slot) = kept.get_mut(id.0 as usize) {
                *slot = true;
            }
            let Some(value) = builder.value(id) else { continue };
            open.extend(value.children());
            open.extend(builder.attributes(id));
            if let Value::Link(target) = value {
                open.push(*target);
            }
        }
        for (index, _) in kept.iter().enumerate().filter(|(_, kept)| !**kept) {
            if let Some(value) = builder.value_mut(ValueId(index as u32)) {
                *value = Value::None;
            }
        }
        let Checkpoint { format, files, findings, .. } = source;
        builder.finish(root, format.clone(), files.clone(), findings.clone())
    }
}
