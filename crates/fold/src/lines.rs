//! Folded leaves as lines: one for each leaf that does not fold, and one for each key of a fold.

use super::{Foldable, Trie, join};

/// One key in all members of a fold, or a leaf that does not fold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoldedKey {
    /// The key, with the numbers of its members: `layers.0–31.weight`.
    pub key: String,
    /// The leaves that it represents, in the order of the members' numbers.
    pub rows: Vec<u32>,
}

/// Returns all leaves as folded lines.
pub fn lines<L: Foldable>(leaves: &[L], dot: char) -> Vec<FoldedKey> {
    let trie = Trie::new(leaves, dot);
    let mut out = Vec::new();
    trie.lines(&[0], "", &mut out);
    out
}

impl Trie {
    /// Returns a line for each key below several equal nodes; the keys are relative to the nodes.
    pub fn patterns(&self, members: &[u32]) -> Vec<FoldedKey> {
        let mut out = Vec::new();
        self.lines(members, "", &mut out);
        out
    }

    /// Adds the lines of nodes with equal subtrees, using the names of the first one. The recursion
    /// is bounded by the depth limit of the tree.
    fn lines(&self, nodes: &[u32], key: &str, out: &mut Vec<FoldedKey>) {
        let Some(first) = nodes.first().map(|&node| node as usize) else { return };
        for at in 0..self.rows(first).len() {
            let row = |&node: &u32| self.rows(node as usize).get(at).copied();
            out.push(FoldedKey {
                key: key.to_owned(),
                rows: nodes.iter().filter_map(row).collect(),
            });
        }
        let children = self.children(first);
        for run in self.runs(first) {
            let places = run.start..run.start + run.len;
            let mut below = Vec::with_capacity(nodes.len() * run.len);
            for &node in nodes {
                for place in places.clone() {
                    let name = self.name(children[place] as usize);
                    below.extend(self.child(node as usize, name, place).map(|child| child as u32));
                }
            }
            let label = self.run_label(first, run);
            self.lines(&below, &join(key, &label, self.dot()), out);
        }
    }
}

/// Summarises several values: `0 … 290`, or the value that they all have.
pub fn values_text<L: Foldable>(leaves: &[L], rows: &[u32]) -> String {
    let of = |row: u32| leaves.get(row as usize);
    let (first, last) =
        (rows.first().and_then(|&row| of(row)), rows.last().and_then(|&row| of(row)));
    let (Some(first), Some(last)) = (first, last) else { return String::new() };
    let (first, last) = (first.properties(), last.properties());
    if first.is_tensor || first.kind == "object" {
        return String::new();
    }
    let same = |&row: &u32| of(row).is_some_and(|leaf| leaf.properties().value == first.value);
    if rows.iter().all(same) {
        first.value.to_owned()
    } else {
        format!("{} \u{2026} {}", first.value, last.value)
    }
}
