//! Keys as a tree of segments, with sums, and the runs of equal subtrees that fold.
//!
//! Segments are what lies between dots, whether the state nests there or a name holds the dot:
//! a torch module's `blocks.0.ln_1.weight` is one name and five segments. In names of TensorFlow's
//! variables it is what lies between slashes.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::rows::{Kind, Row};
use crate::state::dtype::{Family, row_family};

/// A key deeper than this keeps its tail in one segment, so that walks may recurse.
const MAX_DEPTH: usize = 48;
/// What stands between a variable and its value in the names of a graph of objects.
const ATTRIBUTES: &str = ".ATTRIBUTES";

/// Sums over leaves. Links are not counted: what they point to is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Tensors and arrays.
    pub tensors: u64,
    /// Plain values.
    pub values: u64,
    /// Values in tensors.
    pub params: u64,
    /// Logical bytes of tensors.
    pub bytes: u64,
}

impl Sums {
    /// Adds a leaf.
    pub fn add_row(&mut self, row: &Row) {
        if !row.kind.has_shape() {
            self.values += 1;
            return;
        }
        self.tensors += 1;
        if row.link.is_none() {
            self.params = self.params.saturating_add(row.params);
            self.bytes = self.bytes.saturating_add(row.bytes);
        }
    }

    fn add(&mut self, other: &Self) {
        self.tensors += other.tensors;
        self.values += other.values;
        self.params = self.params.saturating_add(other.params);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Sums over all rows.
#[must_use]
pub fn sums(rows: &[Row]) -> Sums {
    let mut sums = Sums::default();
    rows.iter().for_each(|row| sums.add_row(row));
    sums
}

/// A segment and what lies under it.
#[derive(Debug)]
pub struct Node {
    /// The segment.
    pub name: String,
    /// The node above; the root's is itself.
    pub parent: usize,
    /// Nodes below, in order of first appearance.
    pub children: Vec<usize>,
    /// Leaves that end here: one, unless keys collide.
    pub rows: Vec<u32>,
    /// The first leaf at or below.
    pub first: u32,
    /// Sums of all leaves at or below.
    pub sums: Sums,
    /// The family that holds most of the bytes.
    pub family: Family,
    /// Equal for equal keys, dtypes and shapes.
    strict: u64,
    /// Equal for equal keys and dtypes.
    loose: u64,
}

impl Node {
    /// True if nothing lies below.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }
}

/// Neighbouring children of a node: one, or several that fold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Index of the first child.
    pub start: usize,
    /// How many children.
    pub len: usize,
    /// True if the children's shapes differ.
    pub loose: bool,
}

/// All keys as a tree.
#[derive(Debug)]
pub struct Trie {
    /// The root is the first.
    pub nodes: Vec<Node>,
    /// What stands between segments.
    pub dot: char,
}

impl Trie {
    /// Builds the tree of the rows whose numbers are given, in that order.
    #[must_use]
    pub fn new(rows: &[Row], chosen: &[u32], dot: char) -> Self {
        let mut trie = Self { nodes: vec![node("", 0, 0)], dot };
        let mut found: HashMap<(usize, &str), usize> = HashMap::new();
        let mut by_family: Vec<[u64; 8]> = vec![[0; 8]];
        for &id in chosen {
            let row = &rows[id as usize];
            let mut at = 0;
            for segment in row.key.splitn(MAX_DEPTH, dot) {
                at = *found.entry((at, segment)).or_insert_with(|| {
                    let new = trie.nodes.len();
                    trie.nodes.push(node(segment, at, id));
                    trie.nodes[at].children.push(new);
                    by_family.push([0; 8]);
                    new
                });
            }
            trie.nodes[at].rows.push(id);
            trie.nodes[at].sums.add_row(row);
            if row.link.is_none() && row.kind.has_shape() {
                by_family[at][row_family(row) as usize] += row.bytes.max(1);
            }
        }
        trie.sum_up(rows, &mut by_family);
        trie
    }

    /// A child is always made after its parent, so that going backwards is going up.
    fn sum_up(&mut self, rows: &[Row], by_family: &mut [[u64; 8]]) {
        for at in (0..self.nodes.len()).rev() {
            let node = &self.nodes[at];
            let (mut strict, mut loose) = (DefaultHasher::new(), DefaultHasher::new());
            for &id in &node.rows {
                let row = &rows[id as usize];
                (row.kind, &row.dtype).hash(&mut loose);
                (row.kind, &row.dtype, &row.shape).hash(&mut strict);
            }
            for &child in &node.children {
                let child = &self.nodes[child];
                (&child.name, child.loose).hash(&mut loose);
                (&child.name, child.strict).hash(&mut strict);
            }
            let (sums, parent) = (node.sums, node.parent);
            let families = by_family[at];
            let node = &mut self.nodes[at];
            (node.strict, node.loose) = (strict.finish(), loose.finish());
            node.family = dominant(&families);
            if at > 0 {
                self.nodes[parent].sums.add(&sums);
                for (sum, part) in by_family[parent].iter_mut().zip(families) {
                    *sum = sum.saturating_add(part);
                }
            }
        }
    }

    /// True if a node is one value: a leaf, or a variable in a graph of objects, below which its
    /// one attribute stands.
    #[must_use]
    pub fn is_value(&self, at: usize) -> bool {
        let children = &self.nodes[at].children;
        children.is_empty()
            || matches!(children.as_slice(), [only] if self.nodes[*only].name == ATTRIBUTES)
    }

    /// The path of a node.
    #[must_use]
    pub fn path(&self, mut at: usize) -> String {
        let mut names = Vec::new();
        while at != 0 {
            names.push(self.nodes[at].name.as_str());
            at = self.nodes[at].parent;
        }
        names.reverse();
        let mut path = String::new();
        for (at, name) in names.into_iter().enumerate() {
            if at > 0 {
                path.push(self.dot);
            }
            path.push_str(name);
        }
        path
    }

    /// The children of a node as runs: neighbours with consecutive numbers for names and equal
    /// subtrees are one run; everything else is a run of one.
    #[must_use]
    pub fn runs(&self, at: usize) -> Vec<Run> {
        let children = &self.nodes[at].children;
        let number = |index: usize| segment_number(&self.nodes[children[index]].name);
        let mut runs = Vec::new();
        let mut start = 0;
        while start < children.len() {
            let Some(first) = number(start) else {
                runs.push(Run { start, len: 1, loose: false });
                start += 1;
                continue;
            };
            let mut end = start + 1;
            while end < children.len() && number(end) == first.checked_add((end - start) as u64) {
                end += 1;
            }
            self.fold_numbers(children, start, end, &mut runs);
            start = end;
        }
        runs
    }

    /// Splits consecutive numbers into runs of equal subtrees. Where shapes differ from one to
    /// the next (as in an optimizer's state), keys and dtypes decide instead.
    fn fold_numbers(&self, children: &[usize], start: usize, end: usize, runs: &mut Vec<Run>) {
        let split = |signature: fn(&Node) -> u64| {
            let mut parts: Vec<(usize, usize)> = Vec::new();
            for at in start..end {
                let of = |index: usize| signature(&self.nodes[children[index]]);
                match parts.last_mut() {
                    Some((first, len)) if of(*first) == of(at) => *len += 1,
                    _ => parts.push((at, 1)),
                }
            }
            parts
        };
        let strict = split(|node| node.strict);
        let loose = split(|node| node.loose);
        let use_loose = loose.len() < strict.len() && strict.len() > 1 + (end - start) / 8;
        for (first, len) in if use_loose { loose } else { strict } {
            // Three learning rates are read more easily than a fold of three.
            let least = if self.nodes[children[first]].is_leaf() { 4 } else { 2 };
            if len >= least {
                let same = self.nodes[children[first]].strict;
                let loose = children[first..first + len]
                    .iter()
                    .any(|&child| self.nodes[child].strict != same);
                runs.push(Run { start: first, len, loose });
            } else {
                runs.extend((first..first + len).map(|start| Run { start, len: 1, loose: false }));
            }
        }
    }

    /// The label of a run: `0–31`, or the one child's name.
    #[must_use]
    pub fn run_label(&self, at: usize, run: Run) -> String {
        let children = &self.nodes[at].children;
        let first = &self.nodes[children[run.start]].name;
        if run.len == 1 {
            return first.clone();
        }
        format!("{first}\u{2013}{}", self.nodes[children[run.start + run.len - 1]].name)
    }
}

/// The number that a segment is, written as Python writes it.
fn segment_number(name: &str) -> Option<u64> {
    if name.len() > 1 && name.starts_with('0') || !name.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    name.parse().ok()
}

fn node(name: &str, parent: usize, first: u32) -> Node {
    Node {
        name: name.to_owned(),
        parent,
        children: Vec::new(),
        rows: Vec::new(),
        first,
        sums: Sums::default(),
        family: Family::Value,
        strict: 0,
        loose: 0,
    }
}

fn dominant(bytes: &[u64; 8]) -> Family {
    const FAMILIES: [Family; 8] = [
        Family::Bf16,
        Family::F16,
        Family::F32,
        Family::F64,
        Family::Int,
        Family::Bool,
        Family::Fp8,
        Family::Value,
    ];
    FAMILIES
        .into_iter()
        .filter(|&family| bytes[family as usize] > 0)
        .max_by_key(|&family| bytes[family as usize])
        .unwrap_or(Family::Value)
}

/// The words of a list of kinds: `int` if they all are, else nothing.
#[must_use]
pub fn common_kind(rows: &[Row], ids: &[u32]) -> Option<Kind> {
    let first = rows[*ids.first()? as usize].kind;
    ids.iter().all(|&id| rows[id as usize].kind == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use statelens_checkpoint::separator;

    use crate::state::sample::{all, gpt, tensor, value};

    fn labels(trie: &Trie, path: &[&str]) -> Vec<(String, usize, bool)> {
        let mut at = 0;
        for name in path {
            at = *trie.nodes[at]
                .children
                .iter()
                .find(|&&child| trie.nodes[child].name == *name)
                .expect("a node");
        }
        trie.runs(at).into_iter().map(|run| (trie.run_label(at, run), run.len, run.loose)).collect()
    }

    #[test]
    fn equal_layers_fold() {
        let rows = gpt(32);
        let trie = Trie::new(&rows, &all(&rows), '.');
        assert_eq!(
            labels(&trie, &["model", "model", "blocks"]),
            [("0\u{2013}31".into(), 32, false)]
        );
        assert_eq!(trie.nodes[0].sums, sums(&rows));
        assert_eq!(trie.nodes[trie.nodes[0].children[0]].family, Family::Bf16);
    }

    #[test]
    fn a_layer_that_differs_splits_the_run() {
        let mut rows = gpt(32);
        let odd =
            rows.iter_mut().find(|row| row.key == "model.model.blocks.7.fc.weight").expect("a row");
        odd.shape = vec![1, 2];
        let trie = Trie::new(&rows, &all(&rows), '.');
        assert_eq!(
            labels(&trie, &["model", "model", "blocks"]),
            [
                ("0\u{2013}6".into(), 7, false),
                ("7".into(), 1, false),
                ("8\u{2013}31".into(), 24, false)
            ]
        );
    }

    #[test]
    fn optimizer_state_folds_by_keys_alone() {
        let rows: Vec<Row> = (0..12)
            .flat_map(|at| {
                ["step", "exp_avg"].map(|name| {
                    tensor(&format!("optimizer.state.{at}.{name}"), "float32", &[at % 5 + 1])
                })
            })
            .collect();
        let trie = Trie::new(&rows, &all(&rows), '.');
        assert_eq!(labels(&trie, &["optimizer", "state"]), [("0\u{2013}11".into(), 12, true)]);
    }

    #[test]
    fn short_lists_of_values_do_not_fold() {
        let rows: Vec<Row> = (0..3).map(|at| value(&format!("d.{at}"), "0.1")).collect();
        let trie = Trie::new(&rows, &all(&rows), '.');
        assert_eq!(labels(&trie, &["d"]).len(), 3);
        let rows: Vec<Row> = (0..4).map(|at| value(&format!("d.{at}"), "0.1")).collect();
        let trie = Trie::new(&rows, &all(&rows), '.');
        assert_eq!(labels(&trie, &["d"]), [("0\u{2013}3".into(), 4, false)]);
    }

    #[test]
    fn numbers_that_skip_or_have_zeros_in_front_do_not_fold() {
        let rows: Vec<Row> = ["0", "2", "4", "6", "00", "01", "02", "03"]
            .map(|at| tensor(&format!("h.{at}.w"), "float32", &[1]))
            .into();
        let trie = Trie::new(&rows, &all(&rows), '.');
        assert!(labels(&trie, &["h"]).iter().all(|(_, len, _)| *len == 1));
    }

    #[test]
    fn colliding_keys_keep_both_rows() {
        let rows = vec![value("a.b", "1"), value("a.b", "2")];
        let trie = Trie::new(&rows, &all(&rows), '.');
        let leaf = trie.nodes.last().expect("a node");
        assert_eq!(leaf.rows, [0, 1]);
    }

    #[test]
    fn deep_keys_end_in_one_segment() {
        let key = vec!["x"; 10_000].join(".");
        let rows = vec![value(&key, "1")];
        let trie = Trie::new(&rows, &all(&rows), '.');
        assert_eq!(trie.nodes.len(), MAX_DEPTH + 1);
        assert_eq!(trie.path(trie.nodes.len() - 1), key);
    }

    #[test]
    fn links_are_not_counted_twice() {
        let mut tied = tensor("model.lm_head.weight", "float32", &[10, 10]);
        tied.link = Some("model.wte.weight".into());
        let rows = vec![tensor("model.wte.weight", "float32", &[10, 10]), tied];
        assert_eq!(sums(&rows), Sums { tensors: 2, values: 0, params: 100, bytes: 400 });
    }

    #[test]
    fn names_of_variables_are_split_at_slashes() {
        let named = |names: &[&str]| -> Vec<Row> {
            names.iter().map(|name| tensor(name, "float32", &[2])).collect()
        };
        let rows = named(&["net/dense_1.5/kernel", "net/dense_1.5/bias", "step"]);
        assert_eq!(separator("tensorflow", &mut rows.iter().map(|row| &*row.key)), '/');
        assert_eq!(separator("safetensors", &mut rows.iter().map(|row| &*row.key)), '.');
        let trie = Trie::new(&rows, &all(&rows), '/');
        assert_eq!(labels(&trie, &["net"]), [("dense_1.5".to_owned(), 1, false)]);
        let kernel = trie.nodes.iter().position(|node| node.name == "kernel").unwrap();
        assert_eq!(trie.path(kernel), "net/dense_1.5/kernel");
        let rows = named(&["m/lst/0/.ATTRIBUTES/VARIABLE_VALUE", "m/w/.ATTRIBUTES/VARIABLE_VALUE"]);
        let trie = Trie::new(&rows, &all(&rows), '/');
        let is_value = |name: &str| {
            trie.nodes.iter().position(|node| node.name == name).map(|at| trie.is_value(at))
        };
        assert_eq!(["m", "lst", "0", "w"].map(is_value), [false, false, true, true].map(Some));
        // A state that was written to TensorFlow's format keeps its dots.
        assert_eq!(separator("tensorflow", &mut ["model.w", "model.b", "a/b"].into_iter()), '.');
    }
}
