//! The module, or the run of equal modules, that a box represents.

use super::TreemapItem;
use crate::fold::{ChildRun, Foldable, Sums, Trie, join};

/// A group of keys that is drawn as one box.
#[derive(Debug, Clone, Copy)]
pub struct TrieGroup<'a> {
    /// Its name; empty if it is the only group.
    pub name: &'a str,
    /// Its keys.
    pub trie: &'a Trie,
}

/// A module, or a run of equal modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreemapBranch {
    /// The index of its group.
    group: usize,
    /// The node of the module, or the parent node of the run.
    node: usize,
    /// The children that form the run; `None` for the node itself.
    run: Option<ChildRun>,
    /// Number of repetitions of the enclosing runs.
    times: u64,
}

impl TreemapBranch {
    /// Returns whether one of its nodes is on the path `way` to a leaf.
    pub(super) fn holds(&self, trie: &Trie, way: &[usize]) -> bool {
        match self.run {
            None => way.contains(&self.node),
            Some(run) => {
                let all = &trie.children(self.node)[run.start..run.start + run.len];
                way.iter().any(|node| all.iter().any(|child| *child as usize == *node))
            }
        }
    }
}

/// Returns the boxes of all groups; for a single unnamed group, its contents.
pub(super) fn roots(groups: &[TrieGroup<'_>]) -> Vec<TreemapItem> {
    if let [only] = groups
        && only.name.is_empty()
    {
        return below(groups, 0, 0, 1);
    }
    let each = groups.iter().enumerate();
    each.map(|(group, of)| TreemapItem {
        branch: TreemapBranch { group, node: 0, run: None, times: 1 },
        name: of.name.to_owned(),
        sums: *of.trie.sums(0),
        times: 1,
    })
    .collect()
}

/// Returns the items shown when the branch is opened: the modules of a run, one by one.
pub(super) fn members(groups: &[TrieGroup<'_>], branch: TreemapBranch) -> Vec<TreemapItem> {
    let (TreemapBranch { group, node, .. }, trie) = (branch, groups[branch.group].trie);
    match branch.run {
        None => below(groups, group, node, branch.times),
        Some(run) => {
            let all = &trie.children(node)[run.start..run.start + run.len];
            all.iter().map(|child| one(trie, group, *child as usize, branch.times)).collect()
        }
    }
}

/// Returns the items inside a box; for a run, the contents of its modules together.
pub(super) fn children(groups: &[TrieGroup<'_>], branch: TreemapBranch) -> Vec<TreemapItem> {
    let trie = groups[branch.group].trie;
    match branch.run {
        None => below(groups, branch.group, branch.node, branch.times),
        Some(run) if run.loose => Vec::new(),
        Some(run) => {
            let first = trie.children(branch.node)[run.start] as usize;
            below(groups, branch.group, first, branch.times.saturating_mul(run.len as u64))
        }
    }
}

/// Returns whether it has contents that can be shown.
pub(super) fn is_deep(groups: &[TrieGroup<'_>], branch: TreemapBranch) -> bool {
    branch.run.is_some() || !groups[branch.group].trie.is_leaf(branch.node)
}

/// Returns its key.
pub(super) fn path(groups: &[TrieGroup<'_>], branch: TreemapBranch) -> String {
    let TrieGroup { name, trie } = groups[branch.group];
    let path = trie.path(branch.node);
    match branch.run {
        Some(run) => join(&path, &trie.run_label(branch.node, run), trie.dot()),
        None if branch.node == 0 => name.to_owned(),
        None => path,
    }
}

/// Returns the row of its first leaf.
pub(super) fn first(groups: &[TrieGroup<'_>], branch: TreemapBranch) -> u32 {
    let trie = groups[branch.group].trie;
    match branch.run {
        Some(run) => trie.first(trie.children(branch.node)[run.start] as usize),
        None => trie.first(branch.node),
    }
}

/// Returns the dtype of most of its bytes, and whether there are others.
pub(super) fn dtype<L: Foldable>(
    groups: &[TrieGroup<'_>],
    rows: &[L],
    branch: TreemapBranch,
) -> (String, bool) {
    let trie = groups[branch.group].trie;
    let mut open: Vec<u32> = match branch.run {
        None => vec![branch.node as u32],
        // Modules of a run only differ in shapes, so the first one is representative.
        Some(run) => vec![trie.children(branch.node)[run.start]],
    };
    let mut found: Vec<(&str, u64)> = Vec::new();
    while let Some(node) = open.pop() {
        open.extend(trie.children(node as usize));
        let own = trie.rows(node as usize).iter().filter_map(|row| rows.get(*row as usize));
        for row in own.filter(|row| row.link().is_none() && row.bytes() > 0) {
            match found.iter_mut().find(|(dtype, _)| *dtype == row.dtype()) {
                Some((_, bytes)) => *bytes = bytes.saturating_add(row.bytes()),
                None => found.push((row.dtype(), row.bytes())),
            }
        }
    }
    let most = found.iter().max_by_key(|(_, bytes)| *bytes);
    (most.map_or(String::new(), |(dtype, _)| (*dtype).to_owned()), found.len() > 1)
}

fn below(groups: &[TrieGroup<'_>], group: usize, node: usize, times: u64) -> Vec<TreemapItem> {
    let trie = groups[group].trie;
    let children = trie.children(node);
    let mut pieces: Vec<TreemapItem> = Vec::new();
    for run in trie.runs(node) {
        if run.len == 1 {
            pieces.push(one(trie, group, children[run.start] as usize, times));
            continue;
        }
        let mut sums = Sums::default();
        for child in &children[run.start..run.start + run.len] {
            sums.add(trie.sums(*child as usize));
        }
        pieces.push(TreemapItem {
            branch: TreemapBranch { group, node, run: Some(run), times },
            name: trie.run_label(node, run),
            sums: multiplied(&sums, times),
            times: times.saturating_mul(run.len as u64),
        });
    }
    pieces
}

/// Returns the item of a module; modules that contain only one other are merged with it under a
/// joint name.
fn one(trie: &Trie, group: usize, mut node: usize, times: u64) -> TreemapItem {
    let mut name = trie.name(node).to_owned();
    let sums = multiplied(trie.sums(node), times);
    let mut run = None;
    let mut all = times;
    while trie.rows(node).is_empty() {
        match trie.runs(node)[..] {
            [only] if only.len == 1 => {
                node = trie.children(node)[only.start] as usize;
                name = join(&name, trie.name(node), trie.dot());
            }
            [only] => {
                name = join(&name, &trie.run_label(node, only), trie.dot());
                all = times.saturating_mul(only.len as u64);
                run = Some(only);
                break;
            }
            _ => break,
        }
    }
    TreemapItem { branch: TreemapBranch { group, node, run, times }, name, sums, times: all }
}

fn multiplied(sums: &Sums, times: u64) -> Sums {
    Sums {
        tensors: sums.tensors.saturating_mul(times),
        values: sums.values.saturating_mul(times),
        params: sums.params.saturating_mul(times),
        bytes: sums.bytes.saturating_mul(times),
    }
}
