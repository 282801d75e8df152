//! Where the bytes are: how the treemap is looked at.

use statelens_inspect::fold::Trie;
use statelens_inspect::treemap::{Treemap, TreemapBranch, TrieGroup, treemap};

use crate::rows::Row;

/// How the treemap is looked at.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TreemapView {
    /// By dtype rather than by tree.
    pub by_dtype: bool,
    /// What was gone into, and what each is called.
    pub way: Vec<(TreemapBranch, String)>,
}

/// The keys of each dtype as a tree of their own, those first that are first in the file.
#[derive(Debug)]
pub struct ByDtype {
    groups: Vec<(String, Trie)>,
}

/// Dtypes of which each is a group; what more there are, are one.
const MOST: usize = 24;

impl ByDtype {
    /// Sorts all keys.
    #[must_use]
    pub fn new(rows: &[Row], whole: &Trie) -> Self {
        let mut found: Vec<(&str, Vec<u32>)> = Vec::new();
        for (at, row) in rows.iter().enumerate().filter(|(_, row)| row.bytes > 0) {
            let known = found.iter().position(|(dtype, _)| *dtype == row.dtype);
            let place = known.unwrap_or_else(|| {
                if found.len() < MOST {
                    found.push((&row.dtype, Vec::new()));
                }
                found.len() - 1
            });
            found[place].1.push(at as u32);
        }
        let groups = found.into_iter().map(|(dtype, rows)| (dtype.to_owned(), whole.of(&rows)));
        Self { groups: groups.collect() }
    }
}

/// Lays it out.
#[must_use]
pub fn lay_out(
    view: &TreemapView,
    rows: &[Row],
    whole: &Trie,
    by_dtype: Option<&ByDtype>,
    size: (f64, f64),
) -> Treemap {
    let branch = view.way.last().map(|(branch, _)| *branch);
    let groups: Vec<TrieGroup<'_>> = match by_dtype {
        Some(all) => all.groups.iter().map(|(name, trie)| TrieGroup { name, trie }).collect(),
        None => vec![TrieGroup { name: "", trie: whole }],
    };
    treemap(&groups, rows, branch, size)
}
