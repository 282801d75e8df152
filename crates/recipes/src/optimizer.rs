//! Converts an optimizer's moments with the renames and permutations of their parameters.
//!
//! A moment has the shape of its parameter, so operations that move elements apply to both.
//! Operations that compute (a scale, a sum, rows of padding) are refused, with the key.

use std::collections::HashMap;

use indexmap::{IndexMap, IndexSet};
use statelens_checkpoint::{
    Checkpoint, DictKey, Error, Int, Layout, Result, Setting, Tensor, Value, ValueId, advice,
};

use crate::engine::{self, Assembly, Move, State, StateValue};

/// The placeholder for moments of tensors that are not parameters.
const NO_MOMENTS: &str = "this is not a parameter";

/// The state of an optimizer, by the parameters of the source.
#[derive(Debug)]
pub(crate) struct Optimizer {
    /// The whole dict.
    dict: ValueId,
    /// The number or name in `state` of each parameter, and its group.
    parameters: IndexMap<String, (DictKey, usize)>,
    groups: Vec<ValueId>,
}

/// The moments with their new keys, and the origin of these.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// The converted moments of one kind.
    pub(crate) state: State,
    /// The old and new keys of each rule that was applied, step by step.
    pub(crate) steps: Vec<Vec<Move>>,
}

/// Returns the state of the optimizer in a checkpoint.
pub(crate) fn dict(source: &Checkpoint) -> Option<ValueId> {
    let names = ["optimizer", "optimizer_state_dict", "optimizer_state"];
    names.iter().find_map(|name| engine::dict(source, source.root(), name))
}

impl Optimizer {
    /// Matches states with parameters. `left_out` are keys of the model that the recipe drops:
    /// buffers, or duplicates of another key.
    pub(crate) fn of(
        source: &Checkpoint,
        model: &State,
        left_out: &[String],
        rename: &dyn Fn(&str) -> String,
    ) -> Result<Self> {
        let dict = dict(source).ok_or_else(|| {
            let error = Error::refused("the checkpoint has no state of an optimizer");
            error.advice(advice!["Convert without ", Setting::WithOptimizer, "."])
        })?;
        let groups = engine::dict(source, dict, "param_groups");
        let groups = groups.map_or(Vec::new(), |groups| list(source, groups));
        if groups.is_empty() {
            return Err(Error::refused("the optimizer's state has no param_groups"));
        }
        let mut numbered = Vec::new();
        for (group, id) in groups.iter().enumerate() {
            let params = engine::dict(source, *id, "params");
            let params = params.map_or(Vec::new(), |params| list(source, params));
            let named = engine::dict(source, *id, "param_names").map(|names| list(source, names));
            if named.as_ref().is_some_and(|named| named.len() != params.len()) {
                return Err(Error::damaged("param_names are more or fewer than params"));
            }
            for (at, id) in params.into_iter().enumerate() {
                let key = key_of(source.value(id))?;
                let name = named.as_ref().and_then(|named| named.get(at)).copied();
                let name = match (name.map(|name| source.value(name)), &key) {
                    (Some(Value::Str(name)), _) => Some(rename(&name.to_lossy())),
                    (None, DictKey::Str(name)) => Some(rename(&name.to_lossy())),
                    _ => None,
                };
                numbered.push((key, group, name));
            }
        }
        let mut parameters = IndexMap::new();
        if numbered.iter().all(|(_, _, name)| name.is_some()) {
            for (key, group, name) in numbered {
                let name = name.unwrap_or_default();
                if model.tensor(&name).is_none() {
                    return Err(Error::refused(format!(
                        "the optimizer has a parameter `{name}`, but the model doesn't"
                    )));
                }
                parameters.insert(name, (key, group));
            }
        } else {
            if groups.len() > 1 {
                return Err(Error::refused(format!(
                    "the optimizer has {} groups of parameters by number, without param_names: the \
                     parameters can't be identified",
                    groups.len()
                )));
            }
            if is_sorted(source, model) {
                return Err(Error::refused(
                    "the optimizer numbers its parameters, and safetensors files have them in the \
                     order of their names: the parameters can't be identified",
                )
                .advice(
                    "Its param_names would identify them, or the weights as torch.save wrote \
                         them.",
                ));
            }
            let names = in_order(model, left_out, numbered.len())?;
            let all = names.into_iter().zip(numbered);
            parameters.extend(all.map(|(name, (key, group, _))| (name, (key, group))));
        }
        Ok(Self { dict, parameters, groups })
    }

    /// Converts the whole state. `carry` applies the conversion of the model to a state dict of
    /// moments.
    pub(crate) fn carried(
        &self,
        source: &Checkpoint,
        model: &State,
        carry: &mut dyn FnMut(State) -> Result<Moved>,
        assembly: &mut Assembly<'_>,
    ) -> Result<ValueId> {
        let (moments, others) = self.states(source, model)?;
        let mut new: IndexMap<String, Vec<(DictKey, ValueId)>> = IndexMap::new();
        let mut first: HashMap<String, Tensor> = HashMap::new();
        let mut origins: Option<IndexMap<String, IndexSet<String>>> = None;
        for (name, state) in moments {
            let moved = carry(state)?;
            let from = origins_of(&moved.steps);
            for (key, item) in moved.state.iter() {
                let StateValue::Tensor(tensor, _) = item else { continue };
                if is_none(&tensor.layout) {
                    continue;
                }
                if holds_none(&tensor.layout) {
                    return Err(Error::refused(format!(
                        "`{key}` joins parameters with moments and parameters without"
                    )));
                }
                let id = Value::Tensor(assembly.builder().push_tensor(tensor.clone())?);
                let entry = (DictKey::from(name.as_str()), assembly.value(id)?);
                first.entry(key.to_owned()).or_insert_with(|| tensor.clone());
                new.entry(key.to_owned()).or_default().push(entry);
            }
            origins.get_or_insert(from);
        }
        let origins =
            origins.ok_or_else(|| Error::refused("the optimizer's state holds no moments"))?;
        // One parameter with two keys has one state.
        let mut kept: Vec<Tensor> = Vec::new();
        new.retain(|key, _| {
            let Some(tensor) = first.get(key) else { return true };
            let own = !kept.iter().any(|other| is_same(other, tensor));
            kept.push(tensor.clone());
            own
        });
        self.assemble(source, &new, &origins, &others, assembly)
    }

    /// Returns the moments of each kind as a state dict with the model's keys, and the other values
    /// of each parameter.
    fn states(&self, source: &Checkpoint, model: &State) -> Result<(Moments, Others)> {
        let state = engine::dict(source, self.dict, "state")
            .ok_or_else(|| Error::refused("the optimizer's dict has no `state`"))?;
        let Value::Dict(states) = source.value(state) else {
            return Err(Error::refused("the optimizer's `state` is not a dict"));
        };
        // In HDF5, numbers are stored as texts.
        let states = states.entries.iter();
        let by_key: HashMap<String, ValueId> =
            states.map(|(key, id)| (key.to_string(), source.resolve(*id))).collect();
        let mut moments: IndexMap<String, HashMap<String, Tensor>> = IndexMap::new();
        let mut others: Others = HashMap::new();
        for (name, (key, _)) in &self.parameters {
            let parameter = model.tensor(name).ok_or_else(|| missing(name))?;
            let Some(Value::Dict(own)) = by_key.get(&key.to_string()).map(|id| source.value(*id))
            else {
                return Err(missing(name));
            };
            for (kind, id) in &own.entries {
                let DictKey::Str(kind) = kind else { continue };
                let (kind, id) = (kind.to_lossy().into_owned(), source.resolve(*id));
                match source.tensor_of(id) {
                    Some((_, tensor))
                        if tensor.shape == parameter.shape && !tensor.shape.is_empty() =>
                    {
                        moments.entry(kind).or_default().insert(name.clone(), tensor.clone());
                    }
                    Some((_, tensor)) if tensor.numel() != Some(1) => {
                        return Err(Error::refused(format!(
                            "`{kind}` of `{name}` has the shape {:?}, the parameter {:?}: it can't \
                             be converted with the parameter",
                            tensor.shape, parameter.shape
                        )));
                    }
                    _ => others.entry(name.clone()).or_default().push((kind, id)),
                }
            }
        }
        let mut all = Vec::new();
        for (kind, of) in moments {
            let mut state = State::default();
            for (key, item) in model.iter() {
                let item = match item {
                    // Another key of the same tensor has its moments.
                    StateValue::Tensor(tensor, _) => {
                        let own = of.get(key).or_else(|| of.get(self.twin(model, key, tensor)?));
                        let none = || Layout::Missing(NO_MOMENTS.into());
                        let none = || Tensor { layout: none(), storage: None, ..tensor.clone() };
                        if own.is_none() && self.parameters.contains_key(key) {
                            return Err(missing(key).context(format!("`{kind}`")));
                        }
                        StateValue::Tensor(own.cloned().unwrap_or_else(none), None)
                    }
                    other => other.clone(),
                };
                state.set(key.to_owned(), item);
            }
            all.push((kind, state));
        }
        Ok((all, others))
    }

    /// Returns the parameter that is the same tensor under another key.
    fn twin(&self, model: &State, key: &str, tensor: &Tensor) -> Option<&str> {
        if self.parameters.contains_key(key) {
            return None;
        }
        let mut names = self.parameters.keys().map(String::as_str);
        names.find(|name| model.tensor(name).is_some_and(|other| is_same(other, tensor)))
    }

    fn assemble(
        &self,
        source: &Checkpoint,
        new: &IndexMap<String, Vec<(DictKey, ValueId)>>,
        origins: &IndexMap<String, IndexSet<String>>,
        others: &Others,
        assembly: &mut Assembly<'_>,
    ) -> Result<ValueId> {
        let mut states = Vec::new();
        let mut groups: Vec<Vec<(usize, &str)>> = vec![Vec::new(); self.groups.len()];
        // As in torch, numbers increase group by group.
        let mut by_group: Vec<Vec<&str>> = vec![Vec::new(); self.groups.len()];
        for key in new.keys() {
            by_group[self.group_of(key, origins)?].push(key);
        }
        let mut number = 0;
        for (group, keys) in by_group.iter().enumerate() {
            for key in keys {
                let mut entries = Vec::new();
                for (kind, id) in self.kept(source, key, origins, others)? {
                    let id = assembly.value(source.value(id).clone())?;
                    entries.push((DictKey::from(kind.as_str()), id));
                }
                entries.extend(new.get(*key).into_iter().flatten().cloned());
                let id = assembly.dict(entries)?;
                states.push((DictKey::Int(Int::from(number as i64)), id));
                groups[group].push((number, key));
                number += 1;
            }
        }
        let states = assembly.dict(states)?;
        let mut list = Vec::new();
        for (group, members) in self.groups.iter().zip(&groups) {
            let Value::Dict(old) = source.value(*group) else { continue };
            let mut group = old.clone();
            group.entries.retain(|(key, _)| !is(key, "params") && !is(key, "param_names"));
            let mut numbers = Vec::new();
            let mut names = Vec::new();
            for (number, name) in members {
                numbers.push(assembly.value(Value::Int(Int::from(*number as i64)))?);
                names.push(assembly.value(Value::Str((*name).into()))?);
            }
            for (key, items) in [("params", numbers), ("param_names", names)] {
                group.entries.push((DictKey::from(key), assembly.list(items)?));
            }
            list.push(assembly.value(Value::Dict(group))?);
        }
        let list = assembly.list(list)?;
        let mut entries = Vec::new();
        if let Value::Dict(old) = source.value(self.dict) {
            for (key, id) in &old.entries {
                let id = match key {
                    key if is(key, "state") => states,
                    key if is(key, "param_groups") => list,
                    _ => *id,
                };
                entries.push((key.clone(), id));
            }
        }
        assembly.dict(entries)
    }

    /// Returns the group of the parameters that a new one was converted from.
    fn group_of(&self, key: &str, origins: &IndexMap<String, IndexSet<String>>) -> Result<usize> {
        let from = origins.get(key).into_iter().flatten();
        let groups: IndexSet<usize> =
            from.filter_map(|from| self.parameters.get(from)).map(|(_, group)| *group).collect();
        match groups.len() {
            0 | 1 => Ok(groups.first().copied().unwrap_or(0)),
            _ => {
                Err(Error::refused(format!("`{key}` joins parameters of several optimizer groups")))
            }
        }
    }

    /// Returns values other than moments, such as `step`. They must be the same for all parameters
    /// that are combined.
    fn kept(
        &self,
        source: &Checkpoint,
        key: &str,
        origins: &IndexMap<String, IndexSet<String>>,
        others: &Others,
    ) -> Result<Vec<(String, ValueId)>> {
        let mut all = origins.get(key).into_iter().flatten().filter_map(|from| others.get(from));
        let Some(first) = all.next() else { return Ok(Vec::new()) };
        for other in all {
            let same = first.len() == other.len()
                && first.iter().zip(other).all(|((one, id), (other, other_id))| {
                    one == other && same_value(source, *id, *other_id)
                });
            if !same {
                return Err(Error::refused(format!(
                    "`{key}` joins parameters at different optimizer steps"
                )));
            }
        }
        Ok(first.clone())
    }
}

type Moments = Vec<(String, State)>;
type Others = HashMap<String, Vec<(String, ValueId)>>;

/// Returns whether the model's files do not keep the order of its parameters.
fn is_sorted(source: &Checkpoint, model: &State) -> bool {
    let tensors = model.iter().filter_map(|(_, item)| match item {
        StateValue::Tensor(tensor, _) => Some(tensor),
        _ => None,
    });
    let mut files = tensors.filter_map(|tensor| match &tensor.layout {
        Layout::Span(span) => Some(span.file),
        _ => None,
    });
    files.any(|file| {
        let mut all = source.files.iter();
        all.any(|(id, entry)| id == file && entry.name.ends_with(".safetensors"))
    })
}

/// Returns the model's parameters in order, if the optimizer only numbers them.
fn in_order(model: &State, left_out: &[String], count: usize) -> Result<Vec<String>> {
    let all = |but: &[String]| {
        let mut found: Vec<(&str, &Tensor)> = Vec::new();
        for (key, item) in model.iter() {
            let StateValue::Tensor(tensor, _) = item else { continue };
            let again = found.iter().any(|(_, other)| is_same(other, tensor));
            if tensor.dtype.is_float() && !again && !but.iter().any(|own| own == key) {
                found.push((key, tensor));
            }
        }
        found.into_iter().map(|(key, _)| key.to_owned()).collect::<Vec<_>>()
    };
    let every = all(&[]);
    if every.len() == count {
        return Ok(every);
    }
    let some = all(left_out);
    match some.len() == count {
        true => Ok(some),
        false => Err(Error::refused(format!(
            "the optimizer numbers {count} parameters, the model has {}: the parameters can't be \
             identified",
            every.len()
        ))),
    }
}

/// Returns whether two keys have the same tensor.
fn is_same(one: &Tensor, other: &Tensor) -> bool {
    let stored = matches!(one.layout, Layout::Span(_) | Layout::Strided(_) | Layout::Chunked(_));
    stored && one.shape == other.shape && one.layout == other.layout
}

/// Returns, for each final key, the initial keys that it was converted from.
fn origins_of(steps: &[Vec<Move>]) -> IndexMap<String, IndexSet<String>> {
    let mut before: Option<IndexMap<String, IndexSet<String>>> = None;
    for step in steps {
        let mut after: IndexMap<String, IndexSet<String>> = IndexMap::new();
        for one in step {
            let from: IndexSet<String> = one
                .from
                .iter()
                .flat_map(|key| match &before {
                    Some(before) => before.get(key).cloned().unwrap_or_default(),
                    None => IndexSet::from([key.clone()]),
                })
                .collect();
            for key in &one.to {
                after.entry(key.clone()).or_default().extend(from.iter().cloned());
            }
        }
        before = Some(after);
    }
    before.unwrap_or_default()
}

/// Returns whether the tensor was not a parameter.
fn is_none(layout: &Layout) -> bool {
    matches!(layout, Layout::Missing(why) if *why == *NO_MOMENTS)
}

/// Returns whether any part of the tensor was not a parameter.
fn holds_none(layout: &Layout) -> bool {
    match layout {
        Layout::Missing(_) => is_none(layout),
        Layout::Concat(concat) => concat.parts.iter().any(|part| holds_none(&part.layout)),
        Layout::Strided(view) => holds_none(&view.storage),
        _ => false,
    }
}

fn same_value(source: &Checkpoint, one: ValueId, other: ValueId) -> bool {
    match (source.tensor_of(one), source.tensor_of(other)) {
        (Some((_, one)), Some((_, other))) => {
            let read = |tensor: &Tensor| statelens_tensor::elements(&source.files, tensor, 0..1);
            one.dtype == other.dtype
                && read(one).ok().is_some_and(|one| read(other).ok() == Some(one))
        }
        (None, None) => match (source.value(one), source.value(other)) {
            (Value::Int(one), Value::Int(other)) => one == other,
            (Value::Float(one), Value::Float(other)) => one == other,
            (Value::Bool(one), Value::Bool(other)) => one == other,
            (Value::None, Value::None) => true,
            _ => false,
        },
        _ => false,
    }
}

fn list(source: &Checkpoint, id: ValueId) -> Vec<ValueId> {
    match source.value(id) {
        Value::List(list) => list.items.iter().map(|id| source.resolve(*id)).collect(),
        _ => Vec::new(),
    }
}

/// Converts a number or name in `params` to a key of `state`.
fn key_of(value: &Value) -> Result<DictKey> {
    match value {
        Value::Int(number) => Ok(DictKey::Int(number.clone())),
        Value::Str(name) => Ok(DictKey::Str(name.clone())),
        other => Err(Error::refused(format!("a parameter of the optimizer is a {}", other.kind()))),
    }
}

fn is(key: &DictKey, name: &str) -> bool {
    matches!(key, DictKey::Str(text) if text.as_bytes() == name.as_bytes())
}

fn missing(name: &str) -> Error {
    Error::refused(format!("the optimizer has no state for the parameter `{name}`"))
        .advice(advice!["Convert without ", Setting::WithOptimizer, "."])
}
