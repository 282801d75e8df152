//! Finds rules that match nothing.

use statelens_checkpoint::{Checkpoint, Result};

use super::Edit;
use crate::Pattern;

/// Rules of an edit that matched nothing, as they were written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unused {
    /// Patterns of [`Edit::exclude`].
    pub exclude: Vec<String>,
    /// Replacements of [`Edit::rename`].
    pub rename: Vec<String>,
}

pub(super) fn unused(edit: &Edit, source: &Checkpoint) -> Result<Unused> {
    let mut unused = Unused::default();
    if edit.exclude.is_empty() && edit.rename.is_empty() {
        return Ok(unused);
    }
    let keys = |checkpoint: &Checkpoint| -> Vec<String> {
        let leaves = checkpoint.leaves();
        leaves.iter().map(|leaf| leaf.flat.to_lossy().into_owned()).collect()
    };
    let all = keys(source);
    let matches = |pattern: &Pattern| all.iter().any(|key| pattern.selects(key));
    let without = edit.exclude.iter().filter(|pattern| !matches(pattern));
    unused.exclude = without.map(|pattern| pattern.as_str().to_owned()).collect();
    if edit.rename.is_empty() {
        return Ok(unused);
    }
    // Each replacement sees the keys after those before it.
    let before = Edit {
        rename: Vec::new(),
        prefix: String::new(),
        nest: false,
        casts: Vec::new(),
        ..edit.clone()
    };
    let mut left = if before.is_empty() { all } else { keys(&before.apply(source)?) };
    for rename in &edit.rename {
        let mut used = false;
        for key in &mut left {
            let places = rename.places(key);
            used |= !places.is_empty();
            for (range, new) in places.into_iter().rev() {
                key.replace_range(range, &new);
            }
        }
        if !used {
            unused.rename.push(rename.as_str().to_owned());
        }
    }
    Ok(unused)
}
