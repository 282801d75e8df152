//! Compares what formats represent differently: the types of dict keys, and only on request the
//! classes of containers, and which tensors are tied.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{Checkpoint, Key, KeyPart, Leaf, Tensor, Text, Value, ValueId, order};
use statelens_describe::{class_text, type_name};

use super::{ComparisonReport, DifferenceKind, Side};

/// Compares both at their common keys. The differences come after those of leaves.
pub(super) fn structure(
    [(left, of_left), (right, of_right)]: [Side<'_>; 2],
    report: &mut ComparisonReport,
) {
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
    let common: HashSet<Text> = keys(of_left).intersection(&keys(of_right)).cloned().collect();
    let (left_ties, right_ties) = (ties(left, of_left, &common), ties(right, of_right, &common));
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

/// Compares the paths of matched leaves: the types of dict keys, torch's `requires_grad`, the
/// classes of arrays, and if `exact`, also their nesting and the classes of tensors. The differences
/// come after those of leaves.
pub(super) fn paths(
    [(left, of_left), (right, of_right)]: [Side<'_>; 2],
    matches: &[Option<usize>],
    exact: bool,
    report: &mut ComparisonReport,
) {
    let behind = of_left.len() + of_right.len();
    let mut known = HashSet::new();
    let mut differ = |key: Text, part: &str, left: String, right: String| {
        let what = DifferenceKind::Type { left, right };
        if known.insert((key.clone(), format!("{what:?}"))) {
            report.differ(behind, &key, part, what);
        }
    };
    for (l, found) in of_left.iter().zip(matches) {
        let Some(r) = found.and_then(|index| of_right.get(index)) else { continue };
        if left.format.id == right.format.id
            && let (Some((_, one)), Some((_, two))) = (left.tensor_of(l.id), right.tensor_of(r.id))
            && one.class == two.class
            && one.requires_grad != two.requires_grad
        {
            let text = |tensor: &Tensor| match tensor.requires_grad {
                true => "requires_grad".to_owned(),
                false => "no requires_grad".to_owned(),
            };
            differ(l.flat.clone(), "", text(one), text(two));
        }
        let (one, two) = (left.value(l.target), right.value(r.target));
        // A matrix multiplies where other arrays do not.
        let are_arrays = matches!((one, two), (Value::Array(_), Value::Array(_)));
        let has_classes = exact || are_arrays && left.format.id == right.format.id;
        if has_classes
            && one.kind() == two.kind()
            && let (Some(one), Some(two)) =
                (tensor_class(left, l.target), tensor_class(right, r.target))
            && one != two
        {
            differ(l.flat.clone(), "class", one, two);
        }
        let (one, two) = (&l.key.parts, &r.key.parts);
        if !exact && one == two {
            continue;
        }
        let is_key = |part: &KeyPart| part.dict_key().is_some();
        let nests = |(a, b): (&KeyPart, &KeyPart)| is_key(a) && is_key(b) && a.text() != b.text();
        if one.len() != two.len() || one.iter().zip(two).any(nests) {
            if exact {
                let text = |parts: &[KeyPart]| {
                    let parts: Vec<String> =
                        parts.iter().map(|part| part.text().to_string()).collect();
                    format!("at {}", parts.join(" / "))
                };
                differ(l.flat.clone(), "nesting", text(one), text(two));
            }
            continue;
        }
        for (at, (a, b)) in one.iter().zip(two).enumerate() {
            let (Some(a), Some(b)) = (a.dict_key(), b.dict_key()) else { continue };
            if a.kind() != b.kind() {
                let key = Key { parts: one[..=at].to_vec() }.flat();
                differ(key, "key", a.kind().to_owned(), b.kind().to_owned());
            }
        }
    }
}

/// Returns the class of a tensor or an array.
fn tensor_class(checkpoint: &Checkpoint, id: ValueId) -> Option<String> {
    let plain = match checkpoint.value(id) {
        Value::Array(array) if array.scalar => return Some("numpy scalar".to_owned()),
        Value::Tensor(_) => "torch.Tensor",
        Value::Array(_) => "numpy.ndarray",
        _ => return None,
    };
    Some(type_name(checkpoint, id).unwrap_or_else(|| plain.to_owned()))
}

/// Returns the classes of the containers that are not empty, by key.
fn classes(checkpoint: &Checkpoint) -> HashMap<Text, String> {
    let containers: HashSet<ValueId> = (0..)
        .zip(checkpoint.values())
        .filter(|(_, value)| value.is_container() && !value.children().is_empty())
        .map(|(index, _)| ValueId(index))
        .collect();
    let keys = checkpoint.flat_keys(&containers).into_iter();
    keys.map(|(id, key)| (key, class_text(checkpoint, id))).collect()
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
