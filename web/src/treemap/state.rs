//! The treemap, which shows where the bytes are.

use statelens_describe::fold::Trie;
use statelens_describe::treemap::{Treemap, TreemapBranch, TrieGroup, treemap};

use crate::rows::Row;

/// How the treemap is shown.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TreemapView {
    /// Grouped by dtype rather than by tree.
    pub by_dtype: bool,
    /// The branches that the user zoomed into, with their labels.
    pub path: Vec<(TreemapBranch, String)>,
}

/// The keys of each dtype as a tree of their own, in the order of their first key in the file.
#[derive(Debug)]
pub struct ByDtype {
    groups: Vec<(String, Trie)>,
}

/// Maximum number of groups; all further dtypes share the last one.
const MAX_GROUPS: usize = 24;

impl ByDtype {
    /// Groups all keys.
    pub fn new(rows: &[Row], whole: &Trie) -> Self {
        let mut found: Vec<(&str, Vec<u32>)> = Vec::new();
        for (at, row) in rows.iter().enumerate().filter(|(_, row)| row.bytes > 0) {
            let known = found.iter().position(|(dtype, _)| *dtype == row.dtype);
            let place = known.unwrap_or_else(|| {
                if found.len() < MAX_GROUPS {
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

pub fn lay_out(
    view: &TreemapView,
    rows: &[Row],
    whole: &Trie,
    by_dtype: Option<&ByDtype>,
    size: (f64, f64),
) -> Treemap {
    let branch = view.path.last().map(|(branch, _)| branch);
    let groups: Vec<TrieGroup<'_>> = match by_dtype {
        Some(all) => all.groups.iter().map(|(name, trie)| TrieGroup { name, trie }).collect(),
        None => vec![TrieGroup { name: "", trie: whole }],
    };
    treemap(&groups, rows, branch, size)
}
