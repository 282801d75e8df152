//! Suggests keys that are similar to one that does not exist.

use statelens_checkpoint::{Leaf, order};

/// Maximum number of keys that are compared, because a comparison takes quadratic time in the
/// length of a key. In larger files, suggestions come from the first keys.
const MAX_COMPARED: usize = 100_000;

/// Returns at most `most` flat keys that a user who typed `wanted` may have meant, best first:
/// those that contain it, then those that are a few typing mistakes away.
pub fn near_keys<'a>(leaves: &'a [Leaf], wanted: &str, most: usize) -> Vec<&'a Leaf> {
    let wanted = wanted.to_lowercase();
    let allowed = (wanted.chars().count() / 3).clamp(1, 6);
    let mut near: Vec<(usize, &Leaf)> = leaves
        .iter()
        .take(MAX_COMPARED)
        .filter_map(|leaf| {
            let flat = leaf.flat.to_lossy().to_lowercase();
            if !wanted.is_empty() && flat.contains(&wanted) {
                // For keys that contain it, the shorter the better.
                return Some((flat.len() - wanted.len(), leaf));
            }
            distance(&flat, &wanted, allowed).map(|steps| (1_000 * steps, leaf))
        })
        .collect();
    order::by_key(&mut near, |(rank, _)| *rank);
    near.truncate(most);
    near.into_iter().map(|(_, leaf)| leaf).collect()
}

/// Returns the number of characters to add, remove or change to get from one text to the other;
/// `None` if it is more than `most`.
pub fn distance(from: &str, to: &str, most: usize) -> Option<usize> {
    let from: Vec<char> = from.chars().take(512).collect();
    let to: Vec<char> = to.chars().take(512).collect();
    if from.len().abs_diff(to.len()) > most {
        return None;
    }
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, a) in from.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (at, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().filter(|steps| *steps <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_edit_distance() {
        assert_eq!(distance("weight", "weight", 2), Some(0));
        assert_eq!(distance("wieght", "weight", 2), Some(2));
        assert_eq!(distance("weights", "weight", 2), Some(1));
        assert_eq!(distance("bias", "weight", 2), None);
    }
}
