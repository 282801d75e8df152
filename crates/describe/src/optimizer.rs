//! Finds the parameter that an optimizer's `state.12` belongs to.
//!
//! torch saves an optimizer's state under the numbers of its parameters
//! (`torch.optim.Optimizer.state_dict`). `param_groups` lists these numbers in the order in which
//! the parameters were passed and, since torch 2.6, also has `param_names` if names were passed.
//! Without names, parameters are matched by order and shape.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use statelens_checkpoint::{Checkpoint, DType, Leaf, Value};
use statelens_values::weights;

use crate::shape_of;
use crate::summary::MODELS;

/// The parameter that an entry of an optimizer's state belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// Its flat key, or its name in the optimizer.
    pub key: String,
    /// The evidence, in a few words.
    pub basis: String,
}

/// The parameters that the optimizer entries of a checkpoint belong to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parameters {
    /// The parameter by the key of the entry: `optimizer.state.12`.
    by_entry: HashMap<String, Parameter>,
}

impl Parameters {
    /// Finds the parameters; does not read tensors. `leaves` are those of `checkpoint`.
    pub fn of(checkpoint: &Checkpoint, leaves: &[Leaf]) -> Self {
        let mut found = Self::default();
        for (prefix, optimizer) in optimizers(checkpoint, leaves) {
            let names =
                optimizer.named().or_else(|| optimizer.matched(checkpoint, leaves, &prefix));
            for (id, parameter) in names.into_iter().flatten() {
                found.by_entry.insert(format!("{prefix}state.{id}"), parameter);
            }
        }
        found
    }

    /// Returns the parameter of an entry, or of a value within one: `optimizer.state.12.exp_avg`.
    pub fn of_key(&self, flat: &str) -> Option<&Parameter> {
        let (prefix, id, _) = entry(flat)?;
        self.by_entry.get(&flat[..prefix.len() + "state.".len() + id.len()])
    }

    /// Counts the optimizer entries among these keys by how their parameter was identified (empty
    /// string: not identified).
    pub fn known<'a>(&self, keys: impl Iterator<Item = &'a str>) -> BTreeMap<&str, u64> {
        let entries: HashSet<&str> = keys
            .filter_map(|key| {
                let (prefix, id, _) = entry(key)?;
                Some(&key[..prefix.len() + "state.".len() + id.len()])
            })
            .collect();
        let mut known = BTreeMap::new();
        for entry in entries {
            let basis = self.by_entry.get(entry).map_or("", |parameter| &*parameter.basis);
            *known.entry(basis).or_default() += 1;
        }
        known
    }
}

/// The parameter numbers of an optimizer.
#[derive(Debug, Default)]
struct Optimizer {
    /// By group: the number at each index of its list.
    groups: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// By group: the name at each index of its list.
    names: BTreeMap<u64, BTreeMap<u64, String>>,
    /// The shape of the moments, by number.
    shapes: HashMap<u64, Vec<u64>>,
}

/// Splits a key like `prefix.state.12.exp_avg` into prefix, number and rest; the prefix is empty or
/// ends in a dot.
fn entry(flat: &str) -> Option<(&str, &str, &str)> {
    let at = match flat.starts_with("state.") {
        true => 0,
        false => flat.find(".state.")? + 1,
    };
    let rest = &flat[at + "state.".len()..];
    let (id, rest) = rest.split_once('.').unwrap_or((rest, ""));
    let number = !id.is_empty() && id.len() < 20 && id.bytes().all(|byte| byte.is_ascii_digit());
    number.then_some((&flat[..at], id, rest))
}

/// Parses a key like `prefix.param_groups.0.params.3` into prefix, group and index in `list`.
fn place<'a>(flat: &'a str, list: &str) -> Option<(&'a str, u64, u64)> {
    let at = match flat.starts_with("param_groups.") {
        true => 0,
        false => flat.find(".param_groups.")? + 1,
    };
    let rest = &flat[at + "param_groups.".len()..];
    let (group, rest) = rest.split_once('.')?;
    let index = rest.strip_prefix(list)?.strip_prefix('.')?;
    Some((&flat[..at], group.parse().ok()?, index.parse().ok()?))
}

fn optimizers(checkpoint: &Checkpoint, leaves: &[Leaf]) -> BTreeMap<String, Optimizer> {
    let mut found: BTreeMap<String, Optimizer> = BTreeMap::new();
    for leaf in leaves {
        let flat = leaf.flat.to_lossy();
        if let Some((prefix, id, rest)) = entry(&flat) {
            let Some(shape) = shape_of(checkpoint, leaf.target) else { continue };
            if weights::is_moment(rest)
                && let Ok(id) = id.parse()
            {
                let optimizer = found.entry(prefix.to_owned()).or_default();
                optimizer.shapes.insert(id, shape.to_vec());
            }
        } else if let Some((prefix, group, index)) = place(&flat, "params") {
            if let Value::Int(id) = checkpoint.value(leaf.target)
                && let Some(id) = id.to_u64()
            {
                let optimizer = found.entry(prefix.to_owned()).or_default();
                optimizer.groups.entry(group).or_default().insert(index, id);
            }
        } else if let Some((prefix, group, index)) = place(&flat, "param_names")
            && let Value::Str(name) = checkpoint.value(leaf.target)
        {
            let optimizer = found.entry(prefix.to_owned()).or_default();
            let names = optimizer.names.entry(group).or_default();
            names.insert(index, name.to_lossy().into_owned());
        }
    }
    found.retain(|_, optimizer| !optimizer.groups.is_empty());
    found
}

impl Optimizer {
    /// Returns the parameters by the optimizer's own names, if every group has a name for each
    /// number.
    fn named(&self) -> Option<Vec<(u64, Parameter)>> {
        let mut found = Vec::new();
        for (group, ids) in &self.groups {
            let names = self.names.get(group)?;
            for (index, id) in ids {
                let key = names.get(index)?.clone();
                found.push((*id, Parameter { key, basis: "named in param_groups".into() }));
            }
        }
        Some(found)
    }

    /// Matches parameters by order and shape: the parameters of a group come in the order of the
    /// model's keys, and the moments of an entry have the parameter's shape. `None` if the match is
    /// ambiguous.
    fn matched(
        &self,
        checkpoint: &Checkpoint,
        leaves: &[Leaf],
        prefix: &str,
    ) -> Option<Vec<(u64, Parameter)>> {
        let model = model(checkpoint, leaves, prefix)?;
        let count: usize = self.groups.values().map(BTreeMap::len).sum();
        let mut found = Vec::new();
        for ids in self.groups.values() {
            let wanted: Vec<Option<&[u64]>> =
                ids.values().map(|id| self.shapes.get(id).map(Vec::as_slice)).collect();
            // If there are several groups, usually one has the matrices and one the vectors.
            let ranks = self.ranks(ids);
            let apart = self.groups.values().filter(|other| !self.ranks(other).is_disjoint(&ranks));
            if apart.count() > 1 {
                return None;
            }
            let candidates: Vec<&(String, Vec<u64>)> = match self.groups.len() {
                1 => model.iter().collect(),
                _ => model.iter().filter(|(_, shape)| ranks.contains(&shape.len())).collect(),
            };
            for (id, at) in ids.values().zip(only_way(&wanted, &candidates)?) {
                let basis = match model.len() - count {
                    0 => format!("matched by order; all {count} shapes agree"),
                    1 => "matched by order and shape; 1 key of the model has no entry".to_owned(),
                    more => format!(
                        "matched by order and shape; {more} keys of the model have no entry"
                    ),
                };
                found.push((*id, Parameter { key: candidates[at].0.clone(), basis }));
            }
        }
        Some(found)
    }

    fn ranks(&self, ids: &BTreeMap<u64, u64>) -> std::collections::BTreeSet<usize> {
        ids.values().filter_map(|id| self.shapes.get(id).map(Vec::len)).collect()
    }
}

/// Returns the keys and shapes of possible parameters of the model, in order; `None` if it is
/// unclear which state is the model.
fn model(
    checkpoint: &Checkpoint,
    leaves: &[Leaf],
    prefix: &str,
) -> Option<Vec<(String, Vec<u64>)>> {
    // Fails for the state dict of an optimizer alone.
    let own = prefix.split_once('.')?.0;
    let mut states: BTreeMap<Cow<'_, str>, Vec<(String, Vec<u64>)>> = BTreeMap::new();
    for leaf in leaves.iter().filter(|leaf| leaf.alias_of.is_none() && !leaf.outside_state) {
        let state = leaf.state('.');
        let Some((_, tensor)) = checkpoint.tensor_of(leaf.target) else { continue };
        if state != own && trained(&tensor.dtype) {
            let key = leaf.flat.to_lossy().into_owned();
            states.entry(state).or_default().push((key, tensor.shape.clone()));
        }
    }
    let named = MODELS.iter().find_map(|name| states.remove(*name));
    named.or_else(|| if states.len() == 1 { states.into_values().next() } else { None })
}

/// Returns whether tensors of this dtype can be parameters: integers do not have gradients.
fn trained(dtype: &DType) -> bool {
    dtype.is_float() || matches!(dtype, DType::C32 | DType::C64 | DType::C128)
}

/// Returns the index of the candidate for each wanted shape, if there is only one way to match them
/// in order. Unknown shapes match any candidate.
fn only_way(wanted: &[Option<&[u64]>], candidates: &[&(String, Vec<u64>)]) -> Option<Vec<usize>> {
    let fits =
        |shape: Option<&[u64]>, at: usize| shape.is_none_or(|shape| shape == candidates[at].1);
    let mut first = Vec::new();
    let mut at = 0;
    for shape in wanted {
        at += (at..candidates.len()).position(|at| fits(*shape, at))?;
        first.push(at);
        at += 1;
    }
    let mut end = candidates.len();
    for (shape, first) in wanted.iter().zip(&first).rev() {
        let last = (0..end).rev().find(|at| fits(*shape, *at))?;
        if last != *first {
            return None;
        }
        end = last;
    }
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place_of(wanted: &[&[u64]], model: &[&[u64]]) -> Option<Vec<usize>> {
        let wanted: Vec<Option<&[u64]>> = wanted.iter().map(|shape| Some(*shape)).collect();
        let model: Vec<(String, Vec<u64>)> =
            model.iter().map(|shape| (String::new(), shape.to_vec())).collect();
        only_way(&wanted, &model.iter().collect::<Vec<_>>())
    }

    #[test]
    fn matches_parameters_by_unambiguous_shapes() {
        assert_eq!(place_of(&[&[2, 3], &[3]], &[&[2, 3], &[3]]), Some(vec![0, 1]));
        // A buffer between them, and a tied head at the end.
        assert_eq!(place_of(&[&[2, 3], &[3]], &[&[2, 3], &[7], &[3], &[2, 3]]), Some(vec![0, 2]));
        // Ambiguous.
        assert_eq!(place_of(&[&[3]], &[&[3], &[3]]), None);
        assert_eq!(place_of(&[&[4]], &[&[3]]), None);
    }

    #[test]
    fn distinguishes_optimizer_entries_from_other_keys() {
        assert_eq!(entry("optimizer.state.12.exp_avg"), Some(("optimizer.", "12", "exp_avg")));
        assert_eq!(entry("state.0.step"), Some(("", "0", "step")));
        assert_eq!(entry("model.state.weight"), None);
        assert_eq!(entry("model.weight"), None);
        assert_eq!(place("o.param_groups.1.params.4", "params"), Some(("o.", 1, 4)));
        assert_eq!(place("o.param_groups.1.lr", "params"), None);
    }
}
