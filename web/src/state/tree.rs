//! The tree beside the table: modules, not leaves.

use std::collections::HashSet;

use crate::rows::Row;
use crate::state::dtype::Family;
use crate::state::trie::{Run, Sums, Trie};

/// A line of the tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Branch {
    /// The path, with `0–31` for a fold; it stands for the line's identity.
    pub path: String,
    /// What is shown: the segment, or several where there is no choice between.
    pub name: String,
    /// How often it repeats; 1 if it doesn't.
    pub times: u64,
    /// Depth from 0.
    pub level: usize,
    /// `Some(true)` if it is open, `None` if it can't be.
    pub open: Option<bool>,
    /// Sums of all that it holds.
    pub sums: Sums,
    /// The family that holds most of the bytes.
    pub family: Family,
    /// The first leaf.
    pub first: u32,
    /// The value, if this is a leaf at the top.
    pub value: Option<String>,
}

/// The lines of the tree. `toggled` holds the paths of lines that are not as they are by default:
/// open down to the second level, and where most of the bytes are.
#[must_use]
pub fn branches(rows: &[Row], trie: &Trie, toggled: &HashSet<String>) -> Vec<Branch> {
    let mut out = Vec::new();
    let mut walk = Walk { rows, trie, toggled, total: trie.nodes[0].sums.bytes, out: &mut out };
    walk.below(0, "", 0);
    out
}

struct Walk<'a> {
    rows: &'a [Row],
    trie: &'a Trie,
    toggled: &'a HashSet<String>,
    total: u64,
    out: &'a mut Vec<Branch>,
}

impl Walk<'_> {
    fn below(&mut self, at: usize, path: &str, level: usize) {
        for run in self.trie.runs(at) {
            let child = self.trie.nodes[at].children[run.start];
            let leaf = self.trie.is_value(child);
            // Leaves are the table's; only those at the top would be missed here.
            if leaf && level > 0 {
                continue;
            }
            self.branch(at, run, child, path, level);
        }
    }

    fn branch(&mut self, parent: usize, run: Run, child: usize, path: &str, level: usize) {
        let trie = self.trie;
        let mut sums = Sums::default();
        for &member in &trie.nodes[parent].children[run.start..run.start + run.len] {
            let part = trie.nodes[member].sums;
            sums.tensors += part.tensors;
            sums.values += part.values;
            sums.params = sums.params.saturating_add(part.params);
            sums.bytes = sums.bytes.saturating_add(part.bytes);
        }
        let mut name = trie.run_label(parent, run);
        let mut path = join(path, &name, trie.dot);
        let mut times = run.len as u64;
        let mut at = child;
        // A segment that leads to one other only is shown with it; so is `layers` with its run.
        // At the top level nothing is: there a line is a state.
        let mut done = level == 0;
        while !done {
            let runs = trie.runs(at);
            let [only] = runs.as_slice() else { break };
            let next = trie.nodes[at].children[only.start];
            let folds = only.len > 1;
            if trie.is_value(next) || !trie.nodes[at].rows.is_empty() || (folds && times > 1) {
                break;
            }
            let label = trie.run_label(at, *only);
            path = join(&path, &label, trie.dot);
            if folds {
                times = only.len as u64;
            } else {
                name = join(&name, &label, trie.dot);
            }
            at = next;
            done = folds;
        }
        let node = &trie.nodes[at];
        let expandable =
            !trie.is_value(at) && node.children.iter().any(|&below| !trie.is_value(below));
        let by_default = level == 0 && sums.tensors > 0 || level < 4 && sums.bytes > self.total / 8;
        let open = expandable.then(|| by_default != self.toggled.contains(&path));
        let value = node
            .rows
            .first()
            .filter(|_| node.is_leaf())
            .map(|&id| self.rows[id as usize].value.clone());
        self.out.push(Branch {
            path: path.clone(),
            name,
            times,
            level,
            open,
            sums,
            family: node.family,
            first: trie.nodes[child].first,
            value,
        });
        if open == Some(true) {
            self.below(at, &path, level + 1);
        }
    }
}

/// The last line whose subtree holds a key; folds hold the keys of all their members.
#[must_use]
pub fn holding(branches: &[Branch], key: &str, dot: char) -> Option<usize> {
    branches
        .iter()
        .enumerate()
        .filter(|(_, branch)| holds(&branch.path, key, dot))
        .max_by_key(|(_, b)| b.level)
        .map(|(at, _)| at)
}

fn holds(path: &str, key: &str, dot: char) -> bool {
    let mut key = key.split(dot);
    path.split(dot).all(|part| {
        let Some(segment) = key.next() else { return false };
        if part == segment {
            return true;
        }
        let Some((first, last)) = part.split_once('\u{2013}') else { return false };
        match (first.parse::<u64>(), last.parse::<u64>(), segment.parse::<u64>()) {
            (Ok(first), Ok(last), Ok(number)) => (first..=last).contains(&number),
            _ => false,
        }
    })
}

/// A path and what is below.
pub fn join(path: &str, name: &str, dot: char) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}{dot}{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::sample::{all, gpt};

    fn shown(branches: &[Branch]) -> Vec<String> {
        branches
            .iter()
            .map(|branch| {
                let mark = match branch.open {
                    Some(true) => "v ",
                    Some(false) => "> ",
                    None => "  ",
                };
                let times =
                    if branch.times > 1 { format!(" x{}", branch.times) } else { String::new() };
                format!("{}{mark}{}{times}", " ".repeat(branch.level), branch.name)
            })
            .collect()
    }

    #[test]
    fn modules_not_leaves() {
        let rows = gpt(32);
        let trie = Trie::new(&rows, &all(&rows), '.');
        let branches = branches(&rows, &trie, &HashSet::new());
        assert_eq!(
            shown(&branches),
            [
                "v model",
                " v model",
                "    wte",
                "  v blocks x32",
                "     ln",
                "     fc",
                "    lm_head",
                "v optimizer",
                "   state x98",
                " > param_groups.0",
                "  global_step",
            ]
        );
        assert_eq!(branches.last().and_then(|branch| branch.value.clone()), Some("5000".into()));
        let total: u64 = branches
            .iter()
            .filter(|branch| branch.level == 0)
            .map(|branch| branch.sums.bytes)
            .sum();
        assert_eq!(total, trie.nodes[0].sums.bytes);
    }

    #[test]
    fn a_key_is_found_in_its_fold() {
        let rows = gpt(32);
        let trie = Trie::new(&rows, &all(&rows), '.');
        let branches = branches(&rows, &trie, &HashSet::new());
        let at = holding(&branches, "model.model.blocks.2.fc.weight", '.').expect("a line");
        assert_eq!(branches[at].name, "fc");
        let at = holding(&branches, "optimizer.state.97.step", '.').expect("a line");
        assert_eq!(branches[at].name, "state");
        assert_eq!(holding(&branches, "nothing", '.'), None);
    }
}
