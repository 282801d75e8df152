//! Compares what formats represent differently, and only on request: the classes of containers, and
//! which tensors are tied.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{Checkpoint, Leaf, Text, ValueId, order};
use statelens_describe::type_name;

use super::{ComparisonReport, DifferenceKind};

/// Compares both at their common keys. The differences come after those of leaves.
pub(super) fn structure(left: &Checkpoint, right: &Checkpoint, report: &mut ComparisonReport) {
    let (of_left, of_right) = (left.leaves(), right.leaves());
    let behind = of_left.len() + of_right.len();
    let right_classes = classes(right);
    let mut left_classes: Vec<(Text, String)> = classes(left).into_iter().collect();
    order::by(&mut left_classes, |(one, _), (other, _)| one.cmp(other));
    for (key, left) in left_classes {
        match right_classes.get(&key) {
            Some(right) if *right != left => {
                let what = DifferenceKind::Type { left, right: right.clone() };
                report.differ(behind, &key, "container", what);
            }
            _ => {}
        }
    }
    let keys = |leaves: &[Leaf]| -> HashSet<Text> {
        leaves.iter().map(|leaf| leaf.flat.clone()).collect()
    };
    let common: HashSet<Text> = keys(&of_left).intersection(&keys(&of_right)).cloned().collect();
    let (left_ties, right_ties) = (ties(left, &of_left, &common), ties(right, &of_right, &common));
    let all: HashSet<&Text> = left_ties.keys().chain(right_ties.keys()).collect();
    let mut all: Vec<&Text> = all.into_iter().collect();
    all.sort_unstable_by_key(|key| key.as_bytes());
    let text = |tie: Option<&Text>| match tie {
        Some(key) => format!("tied to `{}`", key.to_lossy()),
        None => "not tied".to_owned(),
    };
    for key in all {
        let (left, right) = (left_ties.get(key), right_ties.get(key));
        if left != right {
            let what = DifferenceKind::Value { left: text(left), right: text(right) };
            report.differ(behind, key, "tie", what);
        }
    }
}

/// Returns the classes of the containers that are not empty, by key.
fn classes(checkpoint: &Checkpoint) -> HashMap<Text, String> {
    let containers: HashSet<ValueId> = (0..)
        .zip(checkpoint.values())
        .filter(|(_, value)| value.is_container() && !value.children().is_empty())
        .map(|(index, _)| ValueId(index))
        .collect();
    let class = |id: ValueId| {
        type_name(checkpoint, id).unwrap_or_else(|| checkpoint.value(id).kind().to_owned())
    };
    checkpoint.flat_keys(&containers).into_iter().map(|(id, key)| (key, class(id))).collect()
}

/// Returns, for each tied tensor, the first key of its group in sorted order. It does not matter
/// which of them the file stores as a link. (The Cerebras format links equal plain values.)
fn ties(checkpoint: &Checkpoint, leaves: &[Leaf], common: &HashSet<Text>) -> HashMap<Text, Text> {
    let mut groups: HashMap<ValueId, Vec<&Text>> = HashMap::new();
    let tensor = |leaf: &&Leaf| checkpoint.tensor_of(leaf.target).is_some();
    for leaf in leaves.iter().filter(|leaf| common.contains(&leaf.flat)).filter(tensor) {
        groups.entry(leaf.target).or_default().push(&leaf.flat);
    }
    let mut ties = HashMap::new();
    for group in groups.into_values().filter(|group| group.len() > 1) {
        let Some(first) = group.iter().min_by_key(|key| key.as_bytes()).copied() else { continue };
        for key in group.iter().filter(|key| **key != first) {
            ties.insert((*key).clone(), first.clone());
        }
    }
    ties
}
