//! Finds tensors that have different keys on the two sides, by equal bytes or by shape and order.
//!
//! Equal bytes are certain: dtype, shape and the SHA-256 of the logical bytes are the same. Only
//! tensors whose dtype and shape occur among the unpaired ones of both sides are hashed. The rest
//! is paired by order where both sides have the same number of tensors of a shape, first those
//! whose keys have the same ending; that is a guess.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use serde::Serialize;
use statelens_checkpoint::{Checkpoint, Tensor, TensorId, order};
use statelens_values::missing;
use statelens_values::weights::{Survey, TensorOutcome};

/// A key of the left side and its counterpart on the right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Renamed {
    /// The index of the leaf on the left.
    #[serde(skip)]
    pub left: usize,
    /// The index of the leaf on the right.
    #[serde(skip)]
    pub right: usize,
    /// The key on the left.
    #[serde(rename = "left")]
    pub from: String,
    /// The key on the right.
    #[serde(rename = "right")]
    pub to: String,
    /// The evidence for the pair.
    pub basis: Basis,
}

/// The evidence for a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Both have the same bytes, and no other tensor has them.
    Bytes,
    /// Both have the same bytes, but so have others; they are matched by order.
    BytesOfSeveral,
    /// Both have the same shape and come in the same order.
    Order,
}

impl Basis {
    /// Returns a short description.
    pub fn word(self) -> &'static str {
        match self {
            Self::Bytes => "same bytes",
            Self::BytesOfSeveral => "same bytes as others, too; matched by order",
            Self::Order => "same shape, in order: a guess",
        }
    }
}

/// The tensors of two checkpoints that do not have a counterpart.
#[derive(Debug, Clone)]
pub struct Unpaired {
    left: RenameSide,
    right: RenameSide,
}

#[derive(Debug, Clone)]
struct RenameSide {
    checkpoint: Arc<Checkpoint>,
    /// The keys, in the order of the leaves.
    keys: Vec<RenameKey>,
    hashes: HashMap<TensorId, u128>,
}

#[derive(Debug, Clone)]
struct RenameKey {
    leaf: usize,
    key: String,
    tensor: TensorId,
    dtype: String,
    shape: Vec<u64>,
}

impl Unpaired {
    /// Collects the unpaired tensors of a comparison. `matches` has the counterpart of each leaf on
    /// the left ([`Comparison::matches`](super::Comparison::matches)).
    pub fn of(left: &Arc<Checkpoint>, right: &Arc<Checkpoint>, matches: &[Option<usize>]) -> Self {
        let mut met = vec![false; right.leaves().len()];
        for found in matches.iter().flatten() {
            if let Some(met) = met.get_mut(*found) {
                *met = true;
            }
        }
        let alone = |leaf: usize| matches.get(leaf).is_none_or(Option::is_none);
        Self {
            left: RenameSide::of(left, alone),
            right: RenameSide::of(right, |leaf| met.get(leaf).is_some_and(|met| !met)),
        }
    }

    /// Returns whether there is nothing to pair.
    pub fn is_empty(&self) -> bool {
        self.left.keys.is_empty() || self.right.keys.is_empty()
    }

    /// Returns the tensors that must be hashed on the left and on the right, and their total bytes.
    pub fn hashed(&self) -> [(Vec<TensorId>, u64); 2] {
        let (left, right) = (self.left.kinds(), self.right.kinds());
        let of = |side: &RenameSide, other: &HashMap<(&str, &[u64]), usize>| {
            let mut bytes = 0u64;
            let (mut ids, mut seen) = (Vec::new(), HashSet::new());
            for key in &side.keys {
                if other.contains_key(&key.kind()) && seen.insert(key.tensor) {
                    let tensor = side.checkpoint.tensor(key.tensor).ok();
                    bytes = bytes.saturating_add(tensor.and_then(Tensor::nbytes).unwrap_or(0));
                    ids.push(key.tensor);
                }
            }
            (ids, bytes)
        };
        [of(&self.left, &right), of(&self.right, &left)]
    }

    /// Returns the machines that hash the tensors of the left and of the right side.
    pub fn surveys(&self) -> [Survey; 2] {
        let [left, right] = self.hashed();
        [
            Survey::hashing(self.left.checkpoint.clone(), left.0),
            Survey::hashing(self.right.checkpoint.clone(), right.0),
        ]
    }

    /// Adds the hashes that a machine found, for the right side or for the left one.
    pub fn learn(&mut self, right: bool, found: Vec<(TensorId, TensorOutcome)>) {
        let side = if right { &mut self.right } else { &mut self.left };
        side.hashes.extend(found.into_iter().filter_map(|(id, outcome)| match outcome {
            TensorOutcome::Hash(hash) => Some((id, hash)),
            _ => None,
        }));
    }

    /// Returns how many tensors of the left and of the right side are not in these pairs.
    pub fn alone(&self, pairs: &[Renamed]) -> [u64; 2] {
        let of = |side: &RenameSide| side.keys.len().saturating_sub(pairs.len()) as u64;
        [of(&self.left), of(&self.right)]
    }

    /// Returns the pairs, in the order of the left side.
    pub fn pairs(&self) -> Vec<Renamed> {
        let mut found = Pairing { of: self, met: Default::default(), pairs: Vec::new() };
        let mut by_bytes = [HashMap::new(), HashMap::new()];
        for (side, groups) in [&self.left, &self.right].into_iter().zip(&mut by_bytes) {
            for (at, key) in side.keys.iter().enumerate() {
                if let Some(hash) = side.hashes.get(&key.tensor) {
                    groups.entry((key.kind(), hash)).or_insert_with(Vec::new).push(at);
                }
            }
        }
        let [left, right] = by_bytes;
        let mut groups: Vec<(Vec<usize>, &Vec<usize>)> = Vec::new();
        for (look, left) in left {
            groups.extend(right.get(&look).map(|right| (left, right)));
        }
        order::by_key(&mut groups, |(left, _)| left.first().copied());
        for (left, right) in groups {
            match (left.as_slice(), right.as_slice()) {
                ([left], [right]) => found.pair(*left, *right, Basis::Bytes),
                // Copies are matched by the endings of their keys.
                (left, right) => found.in_order(left, right, Basis::BytesOfSeveral, false),
            }
        }
        let rest = |side: &RenameSide, right: bool| -> Vec<usize> {
            (0..side.keys.len()).filter(|at| !found.is_met(right, *at)).collect()
        };
        let (left, right) = (rest(&self.left, false), rest(&self.right, true));
        let shape = |side: &'_ RenameSide, at: usize| side.keys[at].shape.clone();
        let by_shape = |side: &RenameSide, of: Vec<usize>| {
            let mut groups: BTreeMap<Vec<u64>, Vec<usize>> = BTreeMap::new();
            of.into_iter().for_each(|at| groups.entry(shape(side, at)).or_default().push(at));
            groups
        };
        let mut right = by_shape(&self.right, right);
        for (shape, left) in by_shape(&self.left, left) {
            if let Some(right) = right.remove(&shape) {
                found.in_order(&left, &right, Basis::Order, true);
            }
        }
        let mut pairs = found.pairs;
        order::by_key(&mut pairs, |pair| pair.left);
        pairs
    }
}

/// Returns the pairs as a list of old and new keys in two columns, as `convert --rename-map`
/// accepts it. Pairs are grouped by evidence, which is stated in a comment.
pub fn rename_map(pairs: &[Renamed]) -> String {
    // If a key can't be written in columns, the list is JSON.
    let plain = |key: &str| {
        !key.is_empty()
            && key.trim() == key
            && !key.starts_with(['#', '{'])
            && !key.contains(['\t', '\n', '\r'])
    };
    if !pairs.iter().all(|pair| plain(&pair.from) && plain(&pair.to)) {
        let mut json = statelens_values::Json::new();
        json.object(|json| pairs.iter().for_each(|pair| json.name(&pair.from).str(&pair.to)));
        json.newline();
        return json.take();
    }
    let mut out = String::new();
    for basis in [Basis::Bytes, Basis::BytesOfSeveral, Basis::Order] {
        let mut of = pairs.iter().filter(|pair| pair.basis == basis).peekable();
        if of.peek().is_some() {
            out += &format!("# {}\n", basis.word());
        }
        of.for_each(|pair| out += &format!("{}\t{}\n", pair.from, pair.to));
    }
    out
}

impl RenameSide {
    fn of(checkpoint: &Arc<Checkpoint>, wanted: impl Fn(usize) -> bool) -> Self {
        let mut keys = Vec::new();
        for (leaf, of) in checkpoint.leaves().iter().enumerate() {
            let Some((tensor, data)) = checkpoint.tensor_of(of.target) else { continue };
            if wanted(leaf) && missing(data).is_none() {
                let key = of.flat.to_lossy().into_owned();
                let (dtype, shape) = (data.dtype.to_string(), data.shape.clone());
                keys.push(RenameKey { leaf, key, tensor, dtype, shape });
            }
        }
        Self { checkpoint: checkpoint.clone(), keys, hashes: HashMap::new() }
    }

    fn kinds(&self) -> HashMap<(&str, &[u64]), usize> {
        let mut kinds = HashMap::new();
        self.keys.iter().for_each(|key| *kinds.entry(key.kind()).or_default() += 1);
        kinds
    }
}

impl RenameKey {
    fn kind(&self) -> (&str, &[u64]) {
        (&self.dtype, &self.shape)
    }

    /// Returns the last `parts` parts of the key.
    fn end(&self, parts: usize) -> &str {
        let at = self.key.rmatch_indices('.').nth(parts.saturating_sub(1));
        match parts {
            0 => "",
            _ => at.map_or(&self.key, |(at, _)| &self.key[at + 1..]),
        }
    }
}

struct Pairing<'a> {
    of: &'a Unpaired,
    met: [HashSet<usize>; 2],
    pairs: Vec<Renamed>,
}

impl Pairing<'_> {
    fn is_met(&self, right: bool, at: usize) -> bool {
        self.met[usize::from(right)].contains(&at)
    }

    fn pair(&mut self, left: usize, right: usize, basis: Basis) {
        let (one, two) = (&self.of.left.keys[left], &self.of.right.keys[right]);
        self.met[0].insert(left);
        self.met[1].insert(right);
        self.pairs.push(Renamed {
            left: one.leaf,
            right: two.leaf,
            from: one.key.clone(),
            to: two.key.clone(),
            basis,
        });
    }

    /// Pairs keys with the same ending in order, if both sides have the same number of them; tries
    /// long endings first. If `all` is false, the rest is paired in order even if the numbers
    /// differ.
    fn in_order(&mut self, left: &[usize], right: &[usize], basis: Basis, all: bool) {
        for parts in [2, 1, 0] {
            let of = |side: &RenameSide, keys: &[usize], right: bool| {
                let left = keys.iter().copied().filter(|at| !self.is_met(right, *at));
                grouped_by(left, |at| side.keys[at].end(parts).to_owned())
            };
            let left = of(&self.of.left, left, false);
            let mut right: BTreeMap<String, Vec<usize>> =
                of(&self.of.right, right, true).into_iter().collect();
            for (end, left) in left {
                let Some(right) = right.remove(&end) else { continue };
                if left.len() == right.len() || parts == 0 && !all {
                    for (left, right) in left.into_iter().zip(right) {
                        self.pair(left, right, basis);
                    }
                }
            }
        }
    }
}

/// Groups items by key, in order of first occurrence.
fn grouped_by<K: Eq + Hash + Clone>(
    of: impl Iterator<Item = usize>,
    key: impl Fn(usize) -> K,
) -> Vec<(K, Vec<usize>)> {
    let mut groups: Vec<(K, Vec<usize>)> = Vec::new();
    let mut known: HashMap<K, usize> = HashMap::new();
    for at in of {
        let name = key(at);
        let group = *known.entry(name.clone()).or_insert_with(|| {
            groups.push((name, Vec::new()));
            groups.len() - 1
        });
        groups[group].1.push(at);
    }
    groups
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::Unwatched;
    use statelens_tensor::{Buffer, drive};

    use super::super::tests::{checkpoint, f32s};
    use super::super::{Comparison, DiffOptions};
    use super::*;

    fn unpaired(left: &[(&str, &[f32])], right: &[(&str, &[f32])]) -> Unpaired {
        let of = |side: &[(&str, &[f32])]| {
            checkpoint(side.iter().map(|(key, values)| (*key, f32s(values))).collect())
        };
        let (left, right) = (of(left), of(right));
        let comparison = Comparison::new(left.clone(), right.clone(), DiffOptions::default());
        Unpaired::of(&left, &right, comparison.matches())
    }

    fn found(left: &[(&str, &[f32])], right: &[(&str, &[f32])]) -> Vec<(String, String, Basis)> {
        let mut all = unpaired(left, right);
        for (side, mut survey) in all.surveys().into_iter().enumerate() {
            drive(&mut survey, &mut Buffer::new(7), &mut Unwatched).unwrap();
            all.learn(side == 1, survey.take());
        }
        all.pairs().into_iter().map(|pair| (pair.from, pair.to, pair.basis)).collect()
    }

    fn pair(from: &str, to: &str, basis: Basis) -> (String, String, Basis) {
        (from.into(), to.into(), basis)
    }

    #[test]
    fn matches_equal_bytes_in_any_order() {
        let left = [("a.0", &[1.0, 2.0][..]), ("a.1", &[3.0, 4.0]), ("both", &[9.0])];
        let right = [("b.1", &[3.0, 4.0][..]), ("both", &[9.0]), ("b.0", &[1.0, 2.0])];
        assert_eq!(
            found(&left, &right),
            [pair("a.0", "b.0", Basis::Bytes), pair("a.1", "b.1", Basis::Bytes)]
        );
    }

    #[test]
    fn matches_equal_copies_by_order_and_suffix() {
        // Two norms of ones, which their bytes do not distinguish.
        let left = [("x.norm", &[1.0, 1.0][..]), ("x.last", &[1.0, 1.0])];
        let right = [("y.last", &[1.0, 1.0][..]), ("y.norm", &[1.0, 1.0])];
        assert_eq!(
            found(&left, &right),
            [
                pair("x.norm", "y.norm", Basis::BytesOfSeveral),
                pair("x.last", "y.last", Basis::BytesOfSeveral)
            ]
        );
    }

    #[test]
    fn matches_the_rest_by_shape_and_order() {
        let left = [("a.q", &[1.0, 2.0][..]), ("a.k", &[3.0, 4.0]), ("a.b", &[5.0])];
        let right = [("c.q", &[1.5, 2.5][..]), ("c.k", &[3.5, 4.5]), ("c.x", &[5.0])];
        assert_eq!(
            found(&left, &right),
            [
                pair("a.q", "c.q", Basis::Order),
                pair("a.k", "c.k", Basis::Order),
                pair("a.b", "c.x", Basis::Bytes)
            ]
        );
        // Two on one side, one on the other: ambiguous.
        let fewer = [("c.z", &[1.5, 2.5][..])];
        assert!(found(&left[..2], &fewer).is_empty());
    }

    #[test]
    fn hashes_only_tensors_of_equal_size() {
        let all = unpaired(
            &[("a", &[1.0, 2.0]), ("b", &[1.0, 2.0, 3.0])],
            &[("c", &[1.0, 2.0]), ("d", &[1.0])],
        );
        let [left, right] = all.hashed();
        assert_eq!((left.0.len(), left.1, right.0.len(), right.1), (1, 8, 1, 8));
        assert!(!all.is_empty());
        assert!(unpaired(&[("a", &[1.0])], &[("a", &[1.0])]).is_empty());
    }

    #[test]
    fn writes_a_rename_map_for_convert() {
        let of = |from: &str, to: &str, basis| Renamed {
            left: 0,
            right: 0,
            from: from.into(),
            to: to.into(),
            basis,
        };
        let pairs = [of("a", "b", Basis::Order), of("c d", "e", Basis::Bytes)];
        assert_eq!(
            rename_map(&pairs),
            "# same bytes\nc d\te\n# same shape, in order: a guess\na\tb\n"
        );
        assert_eq!(rename_map(&[of("a\tb", "c", Basis::Bytes)]), "{\"a\\tb\":\"c\"}\n");
    }
}
