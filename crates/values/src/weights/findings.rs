//! Findings about the values of a checkpoint, from the results of reading them.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{Checkpoint, DType, Leaf, TensorId, Value, separator, visible};

use super::notice::notice;
use super::noticed::{Noticed, Read};
use super::rows;
use super::survey::{countable, twins};
use statelens_stats::{MatrixLines, Statistics};

/// Results of reading the values of a checkpoint.
pub trait Seen {
    /// Returns the statistics of a tensor, if it was read.
    fn statistics(&self, tensor: TensorId) -> Option<&Statistics>;
    /// Returns the hash of a [`Survey`](super::Survey), if it was hashed.
    fn hash(&self, tensor: TensorId) -> Option<u128>;
    /// Returns another hash of its bytes, if there is one; of the same kind for all tensors.
    fn other_hash(&self, _tensor: TensorId) -> Option<u128> {
        None
    }
    /// Returns the statistics of its rows, if they were read.
    fn lines(&self, tensor: TensorId) -> Option<&MatrixLines>;
    /// Returns the key of the parameter that an optimizer entry belongs to, if the entry's key does
    /// not contain it.
    fn parameter(&self, key: &str) -> Option<&str>;
}

/// Returns the tensors of these leaves, each once, with the index of its leaf.
fn tensors(checkpoint: &Checkpoint, leaves: &[Leaf]) -> Vec<(TensorId, usize)> {
    let mut seen = vec![false; checkpoint.tensors().len()];
    let mut is_first = |id: TensorId| {
        seen.get_mut(id.0 as usize).is_some_and(|seen| !std::mem::replace(seen, true))
    };
    let tensor = |leaf: &Leaf| match checkpoint.value(leaf.target) {
        Value::Tensor(_) | Value::Array(_) => checkpoint.tensor_of(leaf.target),
        _ => None,
    };
    (0..)
        .zip(leaves)
        .filter_map(|(at, leaf)| Some((tensor(leaf)?.0, at)))
        .filter(|(id, _)| is_first(*id))
        .collect()
}

/// Returns the tensors that must be hashed before [`findings`] is called: those that may be equal
/// bit for bit and were not hashed.
pub fn to_hash(checkpoint: &Checkpoint, leaves: &[Leaf], seen: &impl Seen) -> Vec<TensorId> {
    let mut wanted = groups(checkpoint, &tensors(checkpoint, leaves), seen);
    wanted.retain(|group| hashes(group, seen).is_none());
    wanted.into_iter().flatten().filter(|id| seen.hash(*id).is_none()).collect()
}

/// Returns the hashes of these tensors, which are of one kind; `None` if there are not all.
fn hashes(group: &[TensorId], seen: &impl Seen) -> Option<Vec<u128>> {
    let own: Option<_> = group.iter().map(|id| seen.hash(*id)).collect();
    own.or_else(|| group.iter().map(|id| seen.other_hash(*id)).collect())
}

/// Returns the tensors that must be read by rows before [`findings`] is called: few, apart from
/// embeddings.
pub fn to_read_by_rows(
    checkpoint: &Checkpoint,
    leaves: &[Leaf],
    seen: &impl Seen,
) -> Vec<TensorId> {
    let wanted = |&(id, leaf): &(TensorId, usize)| {
        let (tensor, of) = (checkpoint.tensor(id).ok()?, seen.statistics(id)?);
        let key = leaves.get(leaf)?.flat.to_lossy();
        let floats = countable(tensor).is_some_and(|it| !it.dtype.is_int());
        let worth = floats && rows::worth_reading(&key, &tensor.shape, of);
        (worth && seen.lines(id).is_none()).then_some(id)
    };
    tensors(checkpoint, leaves).iter().filter_map(wanted).collect()
}

/// Returns the findings, the most severe first. Their tensors are identified by indices into
/// `leaves`.
pub fn findings(checkpoint: &Checkpoint, leaves: &[Leaf], seen: &impl Seen) -> Vec<Noticed> {
    let of = tensors(checkpoint, leaves);
    let keys: Vec<String> =
        of.iter().map(|(_, leaf)| visible(&leaves[*leaf].flat.to_lossy())).collect();
    let known: Vec<(usize, Read<'_>)> = of
        .iter()
        .zip(&keys)
        .filter_map(|(&(id, leaf), key)| {
            let (tensor, statistics) = (checkpoint.tensor(id).ok()?, seen.statistics(id)?);
            let floats = !tensor.dtype.is_int() && tensor.dtype != DType::Bool;
            let (shape, lines) = (tensor.shape.as_slice(), seen.lines(id));
            Some((
                leaf,
                Read { key, shape, floats, statistics, lines, parameter: seen.parameter(key) },
            ))
        })
        .collect();
    let groups = groups(checkpoint, &of, seen);
    let grouped: HashSet<TensorId> = groups.iter().flatten().copied().collect();
    let leaf_of: HashMap<TensorId, usize> =
        of.iter().copied().filter(|(id, _)| grouped.contains(id)).collect();
    let mut equal = Vec::new();
    for group in groups {
        let mut by_hash: HashMap<u128, Vec<usize>> = HashMap::new();
        for (id, hash) in group.iter().zip(hashes(&group, seen).unwrap_or_default()) {
            let leaf = leaf_of.get(id);
            // Leaves are in ascending order.
            let at = leaf.map(|leaf| known.binary_search_by_key(leaf, |(leaf, _)| *leaf));
            if let Some(Ok(at)) = at {
                by_hash.entry(hash).or_default().push(at);
            }
        }
        equal.extend(by_hash.into_values().filter(|group| group.len() > 1));
    }
    // Sorted, so that the result is deterministic.
    statelens_checkpoint::order::natural(&mut equal);
    let (at, read): (Vec<usize>, Vec<Read<'_>>) = known.into_iter().unzip();
    let dot = separator(checkpoint.format.traits.slash_keys, &mut keys.iter().map(String::as_str));
    let mut all = notice(&read, &equal, &scalars(checkpoint, leaves), dot);
    for noticed in &mut all {
        noticed.tensors.iter_mut().for_each(|tensor| *tensor = at[*tensor]);
        if let Some(element) = &mut noticed.element {
            element.tensor = at[element.tensor];
        }
    }
    all
}

fn groups(
    checkpoint: &Checkpoint,
    of: &[(TensorId, usize)],
    seen: &impl Seen,
) -> Vec<Vec<TensorId>> {
    twins(checkpoint, of.iter().filter_map(|(id, _)| Some((*id, seen.statistics(*id)?))))
}

/// Returns the numbers that are not tensors; links to them are left out.
fn scalars(checkpoint: &Checkpoint, leaves: &[Leaf]) -> Vec<(String, f64)> {
    let number = |leaf: &Leaf| match checkpoint.value(leaf.target) {
        _ if leaf.alias_of.is_some() => None,
        Value::Float(value) => Some(*value),
        Value::Int(value) => value.to_i64().map(|value| value as f64),
        _ => None,
    };
    let numbers =
        leaves.iter().filter_map(|leaf| Some((leaf.flat.to_lossy().into(), number(leaf)?)));
    numbers.collect()
}
