//! Keys as a tree of segments, with sums, and the runs of equal subtrees that fold.
//!
//! Segments are what lies between dots, whether the state nests there or a name holds the dot:
//! a torch module's `blocks.0.ln_1.weight` is one name and five segments. In names of TensorFlow's
//! variables it is what lies between slashes.
//!
//! Keys are cut once. The tree of some of them, which a filter makes at each press of a key, takes
//! its segments from there: it looks nothing up by name, and makes a handful of lists however many
//! keys there are.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use crate::rows::{Kind, Row};
use crate::state::dtype::{Family, row_family};

/// A key deeper than this keeps its tail in one segment, so that walks may recurse.
const MAX_DEPTH: usize = 48;
/// What stands between a variable and its value in the names of a graph of objects.
const ATTRIBUTES: &str = ".ATTRIBUTES";
/// No node.
const NONE: u32 = u32::MAX;

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

    /// Adds other sums.
    pub fn add(&mut self, other: &Self) {
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

/// Some keys as a tree. Nodes are numbers, and the root's is 0; a child's is higher than its
/// parent's.
#[derive(Debug)]
pub struct Trie {
    segments: Rc<Segments>,
    nodes: Vec<Node>,
    /// The children of all nodes, each node's together, in order of first appearance.
    children: Vec<u32>,
    /// The leaves that end at nodes, each node's together: one, unless keys collide.
    rows: Vec<u32>,
}

/// A segment and what lies under it.
#[derive(Debug)]
struct Node {
    /// Among the segments of all keys.
    segment: u32,
    /// The node above; the root's is itself.
    parent: u32,
    /// Which of its parent's children it is.
    place: u32,
    depth: u32,
    children: (u32, u32),
    rows: (u32, u32),
    /// The first leaf at or below.
    first: u32,
    /// Sums of all leaves at or below.
    sums: Sums,
    signs: Signs,
}

/// What equal subtrees have in common.
#[derive(Debug, Clone, Copy, Default)]
struct Signs {
    /// Equal for equal keys, dtypes and shapes.
    strict: u64,
    /// Equal for equal keys and dtypes.
    loose: u64,
}

/// All keys, cut.
#[derive(Debug)]
struct Segments {
    dot: char,
    /// The segments one after the other.
    text: String,
    all: Vec<Segment>,
    /// The last segment of each row's key.
    of_row: Vec<u32>,
    /// What equal rows have in common.
    signs: Vec<Signs>,
}

#[derive(Debug)]
struct Segment {
    parent: u32,
    start: u32,
    end: u32,
    /// The number that it is.
    number: Option<u64>,
    hash: u64,
}

impl Segments {
    fn new(rows: &[Row], dot: char) -> Self {
        let mut out = Self {
            dot,
            text: String::new(),
            all: vec![Segment { parent: 0, start: 0, end: 0, number: None, hash: 0 }],
            of_row: Vec::with_capacity(rows.len()),
            signs: Vec::with_capacity(rows.len()),
        };
        let mut found = Found::new();
        // The segments of the key before: neighbours have most of theirs in common.
        let mut path: Vec<(&str, u32)> = Vec::new();
        for row in rows {
            let (mut at, mut depth) = (0, 0);
            for segment in row.key.splitn(MAX_DEPTH, dot) {
                let known = path.get(depth).filter(|(name, _)| *name == segment);
                at = match known {
                    Some(&(_, known)) => known,
                    None => {
                        path.truncate(depth);
                        let at = found.get(&mut out, at, segment);
                        path.push((segment, at));
                        at
                    }
                };
                depth += 1;
            }
            path.truncate(depth);
            out.of_row.push(at);
            let before = out.of_row.len().checked_sub(2).map(|at| (&rows[at], out.signs[at]));
            out.signs.push(match before {
                Some((before, signs)) if looks_like(before, row) => signs,
                _ => Signs::of(row),
            });
        }
        out
    }

    fn push(&mut self, parent: u32, name: &str) -> u32 {
        let start = self.text.len() as u32;
        self.text.push_str(name);
        let mut hash = 0;
        // Nothing is equal to the root: its children's names need not be compared.
        if parent != 0 {
            let mut hasher = DefaultHasher::new();
            hasher.write(name.as_bytes());
            hash = hasher.finish();
        }
        let (end, number) = (self.text.len() as u32, segment_number(name));
        self.all.push(Segment { parent, start, end, number, hash });
        (self.all.len() - 1) as u32
    }
}

/// Finds the segments below another while keys are cut. Most have a handful, which are gone
/// through; only those below others are looked up.
struct Found<'a> {
    /// Of each segment: its name, the newest below it, the one before it below the same, and how
    /// many are below it.
    all: Vec<(&'a str, u32, u32, u32)>,
    many: HashMap<(u32, &'a str), u32>,
}

/// So many names are compared one by one.
const FEW: u32 = 8;

impl<'a> Found<'a> {
    fn new() -> Self {
        Self { all: vec![("", NONE, NONE, 0)], many: HashMap::new() }
    }

    fn get(&mut self, segments: &mut Segments, parent: u32, name: &'a str) -> u32 {
        let (_, newest, _, count) = self.all[parent as usize];
        let known = if count > FEW {
            self.many.get(&(parent, name)).copied()
        } else {
            self.below(newest).find(|&(_, other)| other == name).map(|(at, _)| at)
        };
        if let Some(known) = known {
            return known;
        }
        let new = segments.push(parent, name);
        self.all.push((name, NONE, newest, 0));
        let above = &mut self.all[parent as usize];
        (above.1, above.3) = (new, count + 1);
        if count > FEW {
            self.many.insert((parent, name), new);
        } else if count == FEW {
            let all: Vec<_> = self.below(new).collect();
            self.many.extend(all.into_iter().map(|(at, name)| ((parent, name), at)));
        }
        new
    }

    /// The segments below another, from the newest.
    fn below(&self, newest: u32) -> impl Iterator<Item = (u32, &'a str)> {
        let next = |at: u32| self.all.get(at as usize).map(|one| (at, one.0, one.2));
        std::iter::successors(next(newest), move |one| next(one.2)).map(|one| (one.0, one.1))
    }
}

impl Signs {
    fn of(row: &Row) -> Self {
        let (mut strict, mut loose) = (DefaultHasher::new(), DefaultHasher::new());
        (row.kind, &row.dtype).hash(&mut loose);
        (row.kind, &row.dtype, &row.shape).hash(&mut strict);
        Self { strict: strict.finish(), loose: loose.finish() }
    }
}

fn looks_like(one: &Row, other: &Row) -> bool {
    one.kind == other.kind && one.shape == other.shape && one.dtype == other.dtype
}

impl Trie {
    /// Builds the tree of all rows.
    #[must_use]
    pub fn new(rows: &[Row], dot: char) -> Self {
        let all: Vec<u32> = (0..rows.len() as u32).collect();
        Self::made(Rc::new(Segments::new(rows, dot)), rows, &all)
    }

    /// Builds the tree of those of its rows whose numbers are given, in that order.
    #[must_use]
    pub fn of(&self, rows: &[Row], chosen: &[u32]) -> Self {
        Self::made(self.segments.clone(), rows, chosen)
    }

    fn made(segments: Rc<Segments>, rows: &[Row], chosen: &[u32]) -> Self {
        let mut nodes = vec![Node::new(0, 0, 0, 0)];
        // Which node a segment has become.
        let mut found = vec![NONE; segments.all.len()];
        found[0] = 0;
        let mut missing = Vec::new();
        for &id in chosen {
            let mut at = segments.of_row[id as usize];
            while found[at as usize] == NONE {
                missing.push(at);
                at = segments.all[at as usize].parent;
            }
            let mut parent = found[at as usize];
            while let Some(segment) = missing.pop() {
                let above = &mut nodes[parent as usize];
                let (place, depth) = (above.children.1, above.depth + 1);
                above.children.1 += 1;
                found[segment as usize] = nodes.len() as u32;
                let mut node = Node::new(segment, parent, id, depth);
                node.place = place;
                parent = nodes.len() as u32;
                nodes.push(node);
            }
            let node = &mut nodes[parent as usize];
            node.rows.1 += 1;
            node.sums.add_row(&rows[id as usize]);
        }
        let mut trie = Self {
            children: vec![0; nodes.len() - 1],
            rows: vec![0; chosen.len()],
            segments,
            nodes,
        };
        trie.hang_up(&found, chosen);
        trie.sum_up();
        trie
    }

    /// Lists what hangs at each node, now that it is known how much that is.
    fn hang_up(&mut self, found: &[u32], chosen: &[u32]) {
        let (mut children, mut rows) = (0, 0);
        for node in &mut self.nodes {
            node.children.0 = children;
            children += node.children.1;
            node.rows.0 = rows;
            rows += node.rows.1;
        }
        for at in 1..self.nodes.len() {
            let node = &self.nodes[at];
            let above = self.nodes[node.parent as usize].children.0;
            self.children[(above + node.place) as usize] = at as u32;
        }
        let mut free: Vec<u32> = self.nodes.iter().map(|node| node.rows.0).collect();
        for &id in chosen {
            let segment = self.segments.of_row[id as usize];
            let at = found[segment as usize] as usize;
            self.rows[free[at] as usize] = id;
            free[at] += 1;
        }
    }

    /// A child is always made after its parent, so that going backwards is going up.
    fn sum_up(&mut self) {
        for at in (1..self.nodes.len()).rev() {
            let signs = self.signs(at);
            let node = &mut self.nodes[at];
            node.signs = signs;
            let (sums, parent) = (node.sums, node.parent);
            self.nodes[parent as usize].sums.add(&sums);
        }
    }

    fn signs(&self, at: usize) -> Signs {
        let of_row = |id: &u32| self.segments.signs[*id as usize];
        if let ([], [only]) = (self.children(at), self.rows(at)) {
            return of_row(only);
        }
        let mut sum = Signs { strict: 0, loose: 0 };
        // All that comes together are hashes, so that no more is needed than to keep their order.
        let mix =
            |sum: u64, part: u64| (sum.rotate_left(23) ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut add = |name: u64, signs: Signs| {
            sum.strict = mix(mix(sum.strict, name), signs.strict);
            sum.loose = mix(mix(sum.loose, name), signs.loose);
        };
        for id in self.rows(at) {
            add(0, of_row(id));
        }
        for &child in self.children(at) {
            let node = &self.nodes[child as usize];
            add(self.segments.all[node.segment as usize].hash, node.signs);
        }
        sum
    }

    /// What stands between segments.
    #[must_use]
    pub fn dot(&self) -> char {
        self.segments.dot
    }

    /// The segment of a node.
    #[must_use]
    pub fn name(&self, at: usize) -> &str {
        let segment = self.segment(at);
        &self.segments.text[segment.start as usize..segment.end as usize]
    }

    /// The nodes below, in order of first appearance.
    #[must_use]
    pub fn children(&self, at: usize) -> &[u32] {
        let (start, len) = self.nodes[at].children;
        &self.children[start as usize..(start + len) as usize]
    }

    /// The leaves that end at a node: one, unless keys collide.
    #[must_use]
    pub fn rows(&self, at: usize) -> &[u32] {
        let (start, len) = self.nodes[at].rows;
        &self.rows[start as usize..(start + len) as usize]
    }

    /// The first leaf at or below a node.
    #[must_use]
    pub fn first(&self, at: usize) -> u32 {
        self.nodes[at].first
    }

    /// Sums of all leaves at or below a node.
    #[must_use]
    pub fn sums(&self, at: usize) -> &Sums {
        &self.nodes[at].sums
    }

    /// The node above; the root's is itself.
    #[must_use]
    pub fn parent(&self, at: usize) -> usize {
        self.nodes[at].parent as usize
    }

    /// How many steps a node is below the root.
    #[must_use]
    pub fn depth(&self, at: usize) -> usize {
        self.nodes[at].depth as usize
    }

    /// Which of its parent's children a node is.
    #[must_use]
    pub fn place(&self, at: usize) -> usize {
        self.nodes[at].place as usize
    }

    /// The nodes from the root to the leaf with a number; of the tree of all rows only.
    #[must_use]
    pub fn way_to(&self, row: u32) -> Vec<usize> {
        // There, each segment is the node of its own number: both are made in order of appearance.
        let mut at = self.segments.of_row.get(row as usize).map_or(0, |&at| at as usize);
        let mut way = vec![at];
        while at != 0 {
            at = self.nodes[at].parent as usize;
            way.push(at);
        }
        way.reverse();
        way
    }

    /// The family that holds most of the bytes of each node.
    #[must_use]
    pub fn families(&self, rows: &[Row]) -> Vec<Family> {
        let mut bytes = vec![[0u64; 8]; self.nodes.len()];
        for at in (0..self.nodes.len()).rev() {
            for row in self.rows(at).iter().map(|&id| &rows[id as usize]) {
                if row.link.is_none() && row.kind.has_shape() {
                    let sum = &mut bytes[at][row_family(row) as usize];
                    *sum = sum.saturating_add(row.bytes.max(1));
                }
            }
            let (parent, own) = (self.nodes[at].parent as usize, bytes[at]);
            if at > 0 {
                for (sum, part) in bytes[parent].iter_mut().zip(own) {
                    *sum = sum.saturating_add(part);
                }
            }
        }
        bytes.iter().map(dominant).collect()
    }

    /// True if nothing lies below a node.
    #[must_use]
    pub fn is_leaf(&self, at: usize) -> bool {
        self.nodes[at].children.1 == 0
    }

    /// True if a node is one value: a leaf, or a variable in a graph of objects, below which its
    /// one attribute stands.
    #[must_use]
    pub fn is_value(&self, at: usize) -> bool {
        match self.children(at) {
            [] => true,
            [only] => self.name(*only as usize) == ATTRIBUTES,
            _ => false,
        }
    }

    /// The path of a node.
    #[must_use]
    pub fn path(&self, mut at: usize) -> String {
        let mut names = Vec::new();
        while at != 0 {
            names.push(self.name(at));
            at = self.nodes[at].parent as usize;
        }
        names.reverse();
        let mut path = String::new();
        for (at, name) in names.into_iter().enumerate() {
            if at > 0 {
                path.push(self.dot());
            }
            path.push_str(name);
        }
        path
    }

    /// The children of a node as runs: neighbours with consecutive numbers for names and equal
    /// subtrees are one run; everything else is a run of one.
    #[must_use]
    pub fn runs(&self, at: usize) -> Vec<Run> {
        let children = self.children(at);
        let number = |index: usize| self.segment(children[index] as usize).number;
        let mut runs = Vec::with_capacity(if children.len() < 64 { children.len() } else { 0 });
        let mut start = 0;
        while start < children.len() {
            let mut end = start + 1;
            if let Some(first) = number(start) {
                while end < children.len() && number(end) == first.checked_add((end - start) as u64)
                {
                    end += 1;
                }
            }
            if end == start + 1 {
                runs.push(Run { start, len: 1, loose: false });
            } else {
                self.fold_numbers(children, start, end, &mut runs);
            }
            start = end;
        }
        runs
    }

    /// Splits consecutive numbers into runs of equal subtrees. Where shapes differ from one to
    /// the next (as in an optimizer's state), keys and dtypes decide instead.
    fn fold_numbers(&self, children: &[u32], start: usize, end: usize, runs: &mut Vec<Run>) {
        let signs = |index: usize| self.nodes[children[index] as usize].signs;
        let split = |sign: fn(Signs) -> u64| {
            let mut parts: Vec<(usize, usize)> = Vec::new();
            for at in start..end {
                match parts.last_mut() {
                    Some((first, len)) if sign(signs(*first)) == sign(signs(at)) => *len += 1,
                    _ => parts.push((at, 1)),
                }
            }
            parts
        };
        let strict = split(|signs| signs.strict);
        let loose = split(|signs| signs.loose);
        let use_loose = loose.len() < strict.len() && strict.len() > 1 + (end - start) / 8;
        for (first, len) in if use_loose { loose } else { strict } {
            // Three learning rates are read more easily than a fold of three.
            let least = if self.is_leaf(children[first] as usize) { 4 } else { 2 };
            if len >= least {
                let same = signs(first).strict;
                let loose = (first..first + len).any(|at| signs(at).strict != same);
                runs.push(Run { start: first, len, loose });
            } else {
                runs.extend((first..first + len).map(|start| Run { start, len: 1, loose: false }));
            }
        }
    }

    /// The label of a run: `0–31`, or the one child's name.
    #[must_use]
    pub fn run_label(&self, at: usize, run: Run) -> String {
        let name = |index: usize| self.name(self.children(at)[index] as usize);
        if run.len == 1 {
            return name(run.start).to_owned();
        }
        format!("{}\u{2013}{}", name(run.start), name(run.start + run.len - 1))
    }

    fn segment(&self, at: usize) -> &Segment {
        &self.segments.all[self.nodes[at].segment as usize]
    }
}

impl Node {
    fn new(segment: u32, parent: u32, first: u32, depth: u32) -> Self {
        Self {
            segment,
            parent,
            place: 0,
            depth,
            children: (0, 0),
            rows: (0, 0),
            first,
            sums: Sums::default(),
            signs: Signs::default(),
        }
    }
}

/// The number that a segment is, written as Python writes it.
fn segment_number(name: &str) -> Option<u64> {
    if name.len() > 1 && name.starts_with('0') || !name.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    name.parse().ok()
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
            let named = |child: &&u32| trie.name(**child as usize) == *name;
            at = *trie.children(at).iter().find(named).expect("a node") as usize;
        }
        trie.runs(at).into_iter().map(|run| (trie.run_label(at, run), run.len, run.loose)).collect()
    }

    fn named_so(trie: &Trie, name: &str) -> Option<usize> {
        (0..trie.nodes.len()).find(|&at| trie.name(at) == name)
    }

    #[test]
    fn the_tree_of_some_keys_is_as_if_there_were_no_others() {
        let rows = gpt(9);
        let trie = Trie::new(&rows, '.');
        let chosen: Vec<u32> =
            all(&rows).into_iter().filter(|&id| !rows[id as usize].key.contains("fc")).collect();
        let some: Vec<Row> = chosen.iter().map(|&id| rows[id as usize].clone()).collect();
        let (part, alone) = (trie.of(&rows, &chosen), Trie::new(&some, '.'));
        let told = |trie: &Trie, row: &dyn Fn(u32) -> String| -> Vec<_> {
            let nodes = 0..trie.nodes.len();
            nodes
                .map(|at| {
                    let rows: Vec<String> = trie.rows(at).iter().map(|&id| row(id)).collect();
                    (trie.path(at), trie.runs(at), rows, *trie.sums(at), row(trie.first(at)))
                })
                .collect()
        };
        assert_eq!(
            told(&part, &|id| rows[id as usize].key.clone()),
            told(&alone, &|id| some[id as usize].key.clone())
        );
        let way = trie.way_to(chosen[7]);
        assert_eq!(trie.path(*way.last().expect("a node")), rows[chosen[7] as usize].key);
    }

    #[test]
    fn equal_layers_fold() {
        let rows = gpt(32);
        let trie = Trie::new(&rows, '.');
        assert_eq!(
            labels(&trie, &["model", "model", "blocks"]),
            [("0\u{2013}31".into(), 32, false)]
        );
        assert_eq!(*trie.sums(0), sums(&rows));
        assert_eq!(trie.families(&rows)[trie.children(0)[0] as usize], Family::Bf16);
    }

    #[test]
    fn a_layer_that_differs_splits_the_run() {
        let mut rows = gpt(32);
        let odd =
            rows.iter_mut().find(|row| row.key == "model.model.blocks.7.fc.weight").expect("a row");
        odd.shape = vec![1, 2];
        let trie = Trie::new(&rows, '.');
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
        let trie = Trie::new(&rows, '.');
        assert_eq!(labels(&trie, &["optimizer", "state"]), [("0\u{2013}11".into(), 12, true)]);
    }

    #[test]
    fn short_lists_of_values_do_not_fold() {
        let rows: Vec<Row> = (0..3).map(|at| value(&format!("d.{at}"), "0.1")).collect();
        let trie = Trie::new(&rows, '.');
        assert_eq!(labels(&trie, &["d"]).len(), 3);
        let rows: Vec<Row> = (0..4).map(|at| value(&format!("d.{at}"), "0.1")).collect();
        let trie = Trie::new(&rows, '.');
        assert_eq!(labels(&trie, &["d"]), [("0\u{2013}3".into(), 4, false)]);
    }

    #[test]
    fn numbers_that_skip_or_have_zeros_in_front_do_not_fold() {
        let rows: Vec<Row> = ["0", "2", "4", "6", "00", "01", "02", "03"]
            .map(|at| tensor(&format!("h.{at}.w"), "float32", &[1]))
            .into();
        let trie = Trie::new(&rows, '.');
        assert!(labels(&trie, &["h"]).iter().all(|(_, len, _)| *len == 1));
    }

    #[test]
    fn colliding_keys_keep_both_rows() {
        let rows = vec![value("a.b", "1"), value("a.b", "2")];
        let trie = Trie::new(&rows, '.');
        assert_eq!(trie.rows(trie.nodes.len() - 1), [0, 1]);
    }

    #[test]
    fn deep_keys_end_in_one_segment() {
        let key = vec!["x"; 10_000].join(".");
        let rows = vec![value(&key, "1")];
        let trie = Trie::new(&rows, '.');
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
        let trie = Trie::new(&rows, '/');
        assert_eq!(labels(&trie, &["net"]), [("dense_1.5".to_owned(), 1, false)]);
        let kernel = named_so(&trie, "kernel").expect("a node");
        assert_eq!(trie.path(kernel), "net/dense_1.5/kernel");
        let rows = named(&["m/lst/0/.ATTRIBUTES/VARIABLE_VALUE", "m/w/.ATTRIBUTES/VARIABLE_VALUE"]);
        let trie = Trie::new(&rows, '/');
        let is_value = |name: &str| named_so(&trie, name).map(|at| trie.is_value(at));
        assert_eq!(["m", "lst", "0", "w"].map(is_value), [false, false, true, true].map(Some));
        // A state that was written to TensorFlow's format keeps its dots.
        assert_eq!(separator("tensorflow", &mut ["model.w", "model.b", "a/b"].into_iter()), '.');
    }
}
