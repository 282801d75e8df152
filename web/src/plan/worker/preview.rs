//! Preview of old and new keys before anything is written, with repeated ones folded into one row.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use statelens_checkpoint::numbers;
use statelens_convert::Change;

use crate::convert::message::{KeyChange, Preview};

/// Maximum number of rows shown.
const PREVIEWED: usize = 200;

/// Returns the first changes as rows, and the number of changes.
pub(crate) fn preview(changes: Vec<Change>) -> Preview {
    let mut preview = Preview { total: changes.len() as u64, ..Preview::default() };
    let (mut changed, mut left_out) = (Vec::new(), Vec::new());
    for change in changes {
        let renamed = change.new.as_ref().is_some_and(|new| *new != change.old);
        let cast = change.new.is_some() && change.old_dtype != change.new_dtype;
        preview.changed += u64::from(renamed || cast);
        preview.renamed += u64::from(renamed);
        preview.cast += u64::from(cast);
        preview.left_out += u64::from(change.new.is_none());
        let rows = match &change.new {
            None => &mut left_out,
            Some(_) if renamed || cast => &mut changed,
            Some(_) => continue,
        };
        let dtype = change.new_dtype.filter(|_| cast).map(|dtype| dtype.name().to_owned());
        rows.push(KeyChange { old: change.old, new: change.new, dtype, times: 1 });
    }
    preview.rows = folded(changed);
    preview.rows.extend(folded(left_out));
    preview.rows.truncate(PREVIEWED);
    preview.shown = preview.rows.iter().map(|row| row.times).sum();
    preview
}

/// Folds changes whose old and new keys differ only in numbers into one, in the order of the first.
fn folded(changes: Vec<KeyChange>) -> Vec<KeyChange> {
    let alike =
        |of: &KeyChange| (pattern(&of.old), of.new.as_deref().map(pattern), of.dtype.clone());
    folded_rows(
        changes,
        alike,
        |change| &change.old,
        |group| {
            let first = group.first()?;
            let old = numbers::joined(group.iter().map(|change| change.old.as_str()), '.')?;
            let new = match &first.new {
                Some(_) => {
                    Some(numbers::joined(group.iter().filter_map(|of| of.new.as_deref()), '.')?)
                }
                None => None,
            };
            Some(KeyChange { old, new, dtype: first.dtype.clone(), times: group.len() as u64 })
        },
    )
}

/// Returns a key with its numbers replaced.
pub(crate) fn pattern(key: &str) -> String {
    numbers::pattern(key, '.').0
}

/// Replaces rows that are alike by one row, in the order of the first, if the numbers in their keys
/// are every combination of the numbers at each position: only then does
/// `layers.0–31.experts.0–7` identify the keys exactly.
pub(crate) fn folded_rows<T, A: Eq + Hash>(
    rows: Vec<T>,
    alike: impl Fn(&T) -> A,
    key: impl Fn(&T) -> &str,
    merged: impl Fn(&[T]) -> Option<T>,
) -> Vec<T> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    let mut known = HashMap::new();
    for row in rows {
        let at = *known.entry(alike(&row)).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    let one = |group: Vec<T>| {
        let mut places: Vec<HashSet<u64>> = Vec::new();
        for row in &group {
            let (_, numbers) = numbers::pattern(key(row), '.');
            places.resize_with(numbers.len(), HashSet::new);
            for (place, number) in places.iter_mut().zip(numbers) {
                place.insert(number);
            }
        }
        let combinations = places.iter().map(HashSet::len).product::<usize>();
        let row =
            if group.len() > 1 && combinations == group.len() { merged(&group) } else { None };
        row.map_or(group, |row| vec![row])
    };
    groups.into_iter().flat_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(old: String, new: Option<String>) -> Change {
        Change { old, new, old_dtype: None, new_dtype: None }
    }

    #[test]
    fn layers_fold_into_one_row_in_any_order() {
        let mut changes = vec![change("wte.weight".into(), Some("model.wte.weight".into()))];
        for layer in [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9] {
            for name in ["fc", "ln"] {
                let old = format!("h.{layer}.{name}.weight");
                changes.push(change(old.clone(), Some(format!("model.{old}"))));
            }
            changes.push(change(format!("h.{layer}.mask"), None));
        }
        let preview = preview(changes);
        let rows: Vec<_> = preview
            .rows
            .iter()
            .map(|row| (row.old.as_str(), row.new.as_deref(), row.times))
            .collect();
        assert_eq!(
            rows,
            [
                ("wte.weight", Some("model.wte.weight"), 1),
                ("h.0–11.fc.weight", Some("model.h.0–11.fc.weight"), 12),
                ("h.0–11.ln.weight", Some("model.h.0–11.ln.weight"), 12),
                ("h.0–11.mask", None, 12),
            ]
        );
        assert_eq!((preview.renamed, preview.left_out, preview.shown), (25, 12, 37));
    }

    #[test]
    fn incomplete_combinations_are_not_folded() {
        let keys = ["a.0.b.0", "a.0.b.1", "a.1.b.0"];
        let changes = keys.map(|key| change(key.into(), None)).to_vec();
        assert_eq!(preview(changes).rows.len(), 3);
    }
}
