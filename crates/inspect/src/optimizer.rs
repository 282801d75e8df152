//! Which parameter an optimizer's `state.12` belongs to.
//!
//! torch saves an optimizer's state under the numbers of its parameters (`torch.optim.Optimizer.state_dict`):
//! `param_groups` lists these numbers in the order in which the parameters were given, and since torch 2.6
//! `param_names` beside them where names were given. Without names, order and shapes tell.

use std::collections::BTreeMap;
use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{Checkpoint, DType, Leaf, Value};

use crate::summary::MODELS;
use crate::{shape_of, weights};

/// The parameter that an entry of an optimizer's state belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Its flat key, or the name that the optimizer has for it.
    pub key: String,
    /// How that is known, in a few words.
    pub basis: String,
}

/// What the numbers of the optimizers in a checkpoint stand for.
#[derive(Debug, Clone, Default)]
pub struct Parameters {
    /// By what stands before the name of the moment: `optimizer.state.12`.
    by_entry: HashMap<String, Parameter>,
}

impl Parameters {
    /// Finds out; reads no tensor. `leaves` are those of `checkpoint`.
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

    /// The parameter of an entry, or of what is in one: `optimizer.state.12.exp_avg`.
    pub fn of_key(&self, flat: &str) -> Option<&Parameter> {
        let (prefix, id, _) = entry(flat)?;
        self.by_entry.get(&flat[..prefix.len() + "state.".len() + id.len()])
    }

    /// How the parameters of so many of the entries among these keys are known: by what is told of it,
    /// which is empty for those whose parameter is not known.
    pub(crate) fn known<'a>(&self, keys: impl Iterator<Item = &'a str>) -> BTreeMap<&str, u64> {
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

/// An optimizer's numbers.
#[derive(Debug, Default)]
struct Optimizer {
    /// Of each group: by place in its list, the number.
    groups: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// Of each group: by place in its list, the name.
    names: BTreeMap<u64, BTreeMap<u64, String>>,
    /// By number, the shape of the moments.
    shapes: HashMap<u64, Vec<u64>>,
}

/// `prefix`, number and rest of a key as `prefix` `state.12` `.exp_avg`; the prefix is empty or ends in a dot.
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

/// Place in `group` and `list` of a key as `prefix` `param_groups.0.params.3`.
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
    /// What its own lists of names say, if every group has one for each number.
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

    /// What order and shapes tell: the parameters of a group come in the order of the model's
    /// keys, and an entry's moments have its shape. Nothing where more than one answer fits.
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
            // Of several groups, one mostly has the matrices and one the vectors.
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

/// Keys and shapes of what may be parameters of the model beside the optimizer, in its order; `None` if there
/// is no telling which state is the model.
fn model(
    checkpoint: &Checkpoint,
    leaves: &[Leaf],
    prefix: &str,
) -> Option<Vec<(String, Vec<u64>)>> {
    // A state dict of an optimizer alone.
    let own = prefix.split_once('.')?.0;
    let mut states: BTreeMap<String, Vec<(String, Vec<u64>)>> = BTreeMap::new();
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

/// Parameters have gradients, which integers lack.
fn trained(dtype: &DType) -> bool {
    dtype.is_float() || matches!(dtype, DType::C32 | DType::C64 | DType::C128)
}

/// For each wanted shape the place of the candidate that it is, if order leaves one way only.
/// Shapes that are not known fit any.
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
    fn shapes_in_order_name_what_they_leave_no_doubt_of() {
        assert_eq!(place_of(&[&[2, 3], &[3]], &[&[2, 3], &[3]]), Some(vec![0, 1]));
        // A buffer between them, and a tied head behind.
        assert_eq!(place_of(&[&[2, 3], &[3]], &[&[2, 3], &[7], &[3], &[2, 3]]), Some(vec![0, 2]));
        // Which of the two it is, nobody knows.
        assert_eq!(place_of(&[&[3]], &[&[3], &[3]]), None);
        assert_eq!(place_of(&[&[4]], &[&[3]]), None);
    }

    #[test]
    fn entries_are_told_from_other_keys() {
        assert_eq!(entry("optimizer.state.12.exp_avg"), Some(("optimizer.", "12", "exp_avg")));
        assert_eq!(entry("state.0.step"), Some(("", "0", "step")));
        assert_eq!(entry("model.state.weight"), None);
        assert_eq!(entry("model.weight"), None);
        assert_eq!(place("o.param_groups.1.params.4", "params"), Some(("o.", 1, 4)));
        assert_eq!(place("o.param_groups.1.lr", "params"), None);
    }
}
