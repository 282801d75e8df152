//! The module, or the run of equal modules, that a box represents.

use super::{EACH, TreemapItem};
use crate::fold::{ChildRun, Foldable, Sums, Trie, join};

/// A group of keys that is drawn as one box.
#[derive(Debug, Clone, Copy)]
pub struct TrieGroup<'a> {
    /// Its name; empty if it is the only group.
    pub name: &'a str,
    /// Its keys.
    pub trie: &'a Trie,
}

/// A module, a run of equal modules, or a range of small siblings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreemapBranch {
    /// The index of its group.
    group: usize,
    /// The node of the module, or the parent node of the run or range.
    node: usize,
    /// The path of the node, with a range like `0–31` for an enclosing run.
    path: String,
    extent: Extent,
    /// Number of repetitions of the enclosing runs.
    times: u64,
}

/// What a branch covers of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    Node,
    /// Children that fold.
    Run(ChildRun),
    /// The single children in a range, without those of `below` bytes or more.
    Range {
        start: usize,
        end: usize,
        below: u64,
    },
}

impl TreemapBranch {
    /// Returns whether one of its nodes is on the path `way` to a leaf.
    pub(super) fn holds(&self, trie: &Trie, way: &[usize]) -> bool {
        let on_way = |start: usize, end: usize| {
            let is_it = |node: &usize| {
                *node != 0
                    && trie.parent(*node) == self.node
                    && (start..end).contains(&trie.place(*node))
            };
            way.iter().copied().find(is_it)
        };
        match self.extent {
            Extent::Node => way.contains(&self.node),
            Extent::Run(run) => on_way(run.start, run.start + run.len).is_some(),
            Extent::Range { start, end, below } => {
                on_way(start, end).is_some_and(|child| trie.sums(child).bytes < below)
            }
        }
    }

    /// Returns its first child, or its node.
    fn first_node(&self, trie: &Trie) -> usize {
        match self.extent {
            Extent::Node => self.node,
            Extent::Run(ChildRun { start, .. }) | Extent::Range { start, .. } => {
                trie.children(self.node)[start] as usize
            }
        }
    }
}

/// Returns the boxes of all groups; for a single unnamed group, its contents.
pub(super) fn roots(groups: &[TrieGroup<'_>]) -> Vec<TreemapItem> {
    if let [only] = groups
        && only.name.is_empty()
    {
        return below(groups, 0, 0, "", 1);
    }
    let each = groups.iter().enumerate();
    each.map(|(group, of)| TreemapItem {
        branch: TreemapBranch {
            group,
            node: 0,
            path: String::new(),
            extent: Extent::Node,
            times: 1,
        },
        name: of.name.to_owned(),
        sums: *of.trie.sums(0),
        times: 1,
    })
    .collect()
}

/// Returns the items shown when the branch is opened: the modules of a run, one by one.
pub(super) fn members(groups: &[TrieGroup<'_>], branch: &TreemapBranch) -> Vec<TreemapItem> {
    let TreemapBranch { group, node, ref path, extent, times } = *branch;
    let trie = groups[group].trie;
    match extent {
        Extent::Node => below(groups, group, node, path, times),
        Extent::Run(run) => {
            grouped(trie, branch, (run.start..run.start + run.len).collect(), u64::MAX)
        }
        Extent::Range { start, end, below } => {
            let small = (start..end).filter(|at| {
                let child = trie.children(node)[*at] as usize;
                trie.sums(child).bytes < below
            });
            grouped(trie, branch, small.collect(), below)
        }
    }
}

/// Returns the items inside a box; for a run, the contents of its modules together.
pub(super) fn children(groups: &[TrieGroup<'_>], branch: &TreemapBranch) -> Vec<TreemapItem> {
    let TreemapBranch { group, node, ref path, extent, times } = *branch;
    let trie = groups[group].trie;
    match extent {
        Extent::Run(run) if !run.loose && !trie.is_leaf(branch.first_node(trie)) => {
            let path = join(path, &trie.run_label(node, run), trie.dot());
            let times = times.saturating_mul(run.len as u64);
            below(groups, group, branch.first_node(trie), &path, times)
        }
        _ => members(groups, branch),
    }
}

/// Returns whether it has contents that can be shown.
pub(super) fn is_deep(groups: &[TrieGroup<'_>], branch: &TreemapBranch) -> bool {
    branch.extent != Extent::Node || !groups[branch.group].trie.is_leaf(branch.node)
}

/// Returns its key.
pub(super) fn path(groups: &[TrieGroup<'_>], branch: &TreemapBranch) -> String {
    let TrieGroup { name, trie } = groups[branch.group];
    let path = &branch.path;
    match branch.extent {
        Extent::Run(run) => join(path, &trie.run_label(branch.node, run), trie.dot()),
        Extent::Range { start, end, .. } => {
            join(path, &range_label(trie, branch.node, start, end), trie.dot())
        }
        Extent::Node if branch.node == 0 => name.to_owned(),
        Extent::Node => path.clone(),
    }
}

/// Returns the row of its first leaf.
pub(super) fn first(groups: &[TrieGroup<'_>], branch: &TreemapBranch) -> u32 {
    let trie = groups[branch.group].trie;
    trie.first(branch.first_node(trie))
}

/// Returns the dtype of most of its bytes, and whether there are others.
pub(super) fn dtype<L: Foldable>(
    groups: &[TrieGroup<'_>],
    rows: &[L],
    branch: &TreemapBranch,
) -> (String, bool) {
    let trie = groups[branch.group].trie;
    let mut open: Vec<u32> = match branch.extent {
        // Modules of a run only differ in shapes, so the first one is representative.
        Extent::Node | Extent::Run(_) => vec![branch.first_node(trie) as u32],
        Extent::Range { start, end, .. } => trie.children(branch.node)[start..end].to_vec(),
    };
    let mut found: Vec<(&str, u64)> = Vec::new();
    while let Some(node) = open.pop() {
        open.extend(trie.children(node as usize));
        let own = trie.rows(node as usize).iter().filter_map(|row| rows.get(*row as usize));
        let own = own.map(Foldable::properties);
        for row in own.filter(|row| row.link.is_none() && row.bytes > 0) {
            match found.iter_mut().find(|(dtype, _)| *dtype == row.dtype) {
                Some((_, bytes)) => *bytes = bytes.saturating_add(row.bytes),
                None => found.push((row.dtype, row.bytes)),
            }
        }
    }
    let most = found.iter().max_by_key(|(_, bytes)| *bytes);
    (most.map_or(String::new(), |(dtype, _)| (*dtype).to_owned()), found.len() > 1)
}

fn below(
    groups: &[TrieGroup<'_>],
    group: usize,
    node: usize,
    path: &str,
    times: u64,
) -> Vec<TreemapItem> {
    let trie = groups[group].trie;
    let whole = TreemapBranch { group, node, path: path.to_owned(), extent: Extent::Node, times };
    let mut single: Vec<usize> = Vec::new();
    let mut runs: Vec<TreemapItem> = Vec::new();
    for run in trie.runs(node) {
        if run.len == 1 {
            single.push(run.start);
            continue;
        }
        let mut sums = Sums::default();
        for child in &trie.children(node)[run.start..run.start + run.len] {
            sums.add(trie.sums(*child as usize));
        }
        runs.push(TreemapItem {
            branch: TreemapBranch { extent: Extent::Run(run), ..whole.clone() },
            name: trie.run_label(node, run),
            sums: multiplied(&sums, times),
            times: times.saturating_mul(run.len as u64),
        });
    }
    // Only adjacent children are combined, and a run may be between them.
    if runs.is_empty() {
        return grouped(trie, &whole, single, u64::MAX);
    }
    runs.extend(single.into_iter().map(|at| one(trie, &whole, at)));
    runs
}

/// Returns the items of the children at these positions. Combines small ones into ranges if there
/// are too many for one box: ranges of names with the same first word if these are few, else of 10, 100, … children.
fn grouped(
    trie: &Trie,
    parent: &TreemapBranch,
    mut places: Vec<usize>,
    below: u64,
) -> Vec<TreemapItem> {
    let child = |at: usize| trie.children(parent.node)[at] as usize;
    let bytes = |at: usize| trie.sums(child(at)).bytes;
    places.retain(|&at| bytes(at) > 0);
    let item = |at: usize| one(trie, parent, at);
    if places.len() <= EACH {
        return places.into_iter().map(item).collect();
    }
    let all = places.iter().fold(0_u64, |all, at| all.saturating_add(bytes(*at)));
    // At most half of the boxes are large.
    let below = below.min((all / (EACH as u64 / 2)).max(1).saturating_add(1));
    let (small, large): (Vec<usize>, Vec<usize>) =
        places.into_iter().partition(|&at| bytes(at) < below);
    let mut boxes: Vec<TreemapItem> = large.into_iter().map(item).collect();
    let names: Vec<&str> = small.iter().map(|&at| trie.name(child(at))).collect();
    let mut rest = small.as_slice();
    for len in range_lengths(&names) {
        let part = rest.split_off(..len).unwrap_or_default();
        let (Some(&start), Some(&last)) = (part.first(), part.last()) else { continue };
        let end = last + 1;
        if part.len() == 1 {
            boxes.push(item(start));
            continue;
        }
        let mut sums = Sums::default();
        part.iter().for_each(|&at| sums.add(&multiplied(trie.sums(child(at)), parent.times)));
        boxes.push(TreemapItem {
            branch: TreemapBranch { extent: Extent::Range { start, end, below }, ..parent.clone() },
            name: range_label(trie, parent.node, start, end),
            sums,
            times: parent.times,
        });
    }
    boxes
}

/// Returns the lengths of the ranges that names are divided into.
fn range_lengths<'a>(names: &[&'a str]) -> Vec<usize> {
    let common = names.iter().fold(names.first().copied().unwrap_or_default(), |common, name| {
        // Mostly so, and fast.
        if name.starts_with(common) {
            return common;
        }
        let same = common.chars().zip(name.chars()).take_while(|(one, other)| one == other);
        &common[..same.map(|(letter, _)| letter.len_utf8()).sum()]
    });
    let rest = |name: &'a str| &name[common.len()..];
    let word = |name: &'a str| {
        let end = rest(name).find(|letter: char| !letter.is_alphabetic()).map(|end| end + 1);
        // Bytes, since the letter after a word may take several.
        &rest(name).as_bytes()[..end.unwrap_or(rest(name).len())]
    };
    let same = |one: &&'a str, other: &&'a str| word(one) == word(other);
    let words = names.chunk_by(same).take(EACH / 2 + 1);
    let words: Vec<usize> = words.map(<[&str]>::len).collect();
    if (2..=EACH / 2).contains(&words.len()) {
        return words;
    }
    let mut len = 10;
    while names.len() > len * (EACH / 2) {
        len *= 10;
    }
    names.chunks(len).map(<[&str]>::len).collect()
}

/// Returns the label of a range of children: its first and last name.
fn range_label(trie: &Trie, node: usize, start: usize, end: usize) -> String {
    let name = |at: usize| trie.name(trie.children(node)[at] as usize);
    format!("{} \u{2026} {}", name(start), name(end - 1))
}

/// Returns the item of the child at that position; modules that contain only one other are merged
/// with it under a joint name.
fn one(trie: &Trie, parent: &TreemapBranch, at: usize) -> TreemapItem {
    let (times, mut node) = (parent.times, trie.children(parent.node)[at] as usize);
    let mut name = trie.name(node).to_owned();
    let sums = multiplied(trie.sums(node), times);
    let mut extent = Extent::Node;
    let mut all = times;
    let mut label = name.clone();
    while trie.rows(node).is_empty() {
        match trie.runs(node)[..] {
            [only] if only.len == 1 => {
                node = trie.children(node)[only.start] as usize;
                name = join(&name, trie.name(node), trie.dot());
                label.clone_from(&name);
            }
            [only] => {
                name = join(&name, &trie.run_label(node, only), trie.dot());
                all = times.saturating_mul(only.len as u64);
                extent = Extent::Run(only);
                break;
            }
            _ => break,
        }
    }
    let path = join(&parent.path, &label, trie.dot());
    let branch = TreemapBranch { group: parent.group, node, path, extent, times };
    TreemapItem { branch, name, sums, times: all }
}

fn multiplied(sums: &Sums, times: u64) -> Sums {
    Sums {
        tensors: sums.tensors.saturating_mul(times),
        values: sums.values.saturating_mul(times),
        params: sums.params.saturating_mul(times),
        bytes: sums.bytes.saturating_mul(times),
    }
}
