//! Keys as a tree of segments, with sums, and the runs of equal subtrees that fold.
//!
//! Keys are split at dots, whether these are levels of the state or part of a name: a torch
//! module's `blocks.0.ln_1.weight` is one name and four segments. Names of TensorFlow variables are
//! split at slashes.
//!
//! Keys are split once. The filtered tree, which is built at each keystroke, reuses those segments:
//! it looks up nothing by name, and allocates only a few lists however many keys there are.

mod segments;

use std::cell::OnceCell;
use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};
use statelens_checkpoint::numbers::{Numbered, ranges};
use statelens_checkpoint::order;
use statelens_checkpoint::slices::{ITEMS, finish, pause};

use self::segments::{KeySegment, Segments, Signs, mixed};
use super::Foldable;

/// The segment between a variable and its value in the names of a TensorFlow object graph.
const ATTRIBUTES: &str = ".ATTRIBUTES";
/// The key under which an optimizer holds its state by the number of the parameter.
const STATE: &str = "state";
/// Minimum number of leaves, or of names that are more than a number, that fold.
const MIN_NAMES: usize = 4;
/// Stands for "no node".
const NONE: u32 = u32::MAX;

/// Sums over leaves. Links are not counted; their targets are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Tensors and arrays.
    pub tensors: u64,
    /// Plain values.
    pub values: u64,
    /// Elements of tensors.
    pub params: u64,
    /// Logical size of tensors in bytes.
    pub bytes: u64,
}

impl Sums {
    fn of(row: &impl Foldable) -> Self {
        let mut sums = Self::default();
        sums.add_row(row);
        sums
    }

    /// Adds a leaf.
    pub fn add_row(&mut self, row: &impl Foldable) {
        let row = row.properties();
        if !row.is_tensor {
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

/// Returns the sums over rows.
pub fn sums<'a, L: Foldable + 'a>(rows: impl IntoIterator<Item = &'a L>) -> Sums {
    let mut sums = Sums::default();
    rows.into_iter().for_each(|row| sums.add_row(row));
    sums
}

/// Adjacent children of a node: a single one, or several that fold, ordered by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildRun {
    /// Index of the first child.
    pub start: usize,
    /// The number of children.
    pub len: usize,
    /// Whether the children's shapes differ.
    pub loose: bool,
}

/// A tree of keys. Nodes are numbers; the root is 0, and a child's number is higher than its
/// parent's.
#[derive(Debug)]
pub struct Trie {
    segments: Rc<Segments>,
    /// The nodes, and one more that marks the end of the last node's children and rows.
    nodes: Vec<TrieNode>,
    /// The signature of each node; nodes with equal signatures may fold.
    signs: Vec<Signs>,
    /// The children of all nodes, grouped by node: in order of first appearance, except that those
    /// that fold follow the first of them, by number.
    children: Vec<u32>,
    /// The leaves that end at nodes, grouped by node: one per node, unless keys collide.
    rows: Vec<u32>,
    /// Sums of all leaves at or below each node, computed on first use.
    sums: OnceCell<Vec<Sums>>,
}

/// A segment of the tree.
#[derive(Debug)]
struct TrieNode {
    /// Index into the segments of all keys.
    segment: u32,
    /// The parent; the root is its own parent.
    parent: u32,
    /// Its position among its parent's children.
    place: u32,
    /// The start of its children; they end where those of the next node start.
    children: u32,
    /// The start of its rows, likewise.
    rows: u32,
    /// The first leaf at or below.
    first: u32,
}

impl Trie {
    /// Builds the tree of all rows.
    pub fn new<L: Foldable>(rows: &[L], dot: char) -> Self {
        finish(Self::new_in_slices(rows, dot))
    }

    /// Like [`Trie::new`], with pauses.
    pub async fn new_in_slices<L: Foldable>(rows: &[L], dot: char) -> Self {
        let all: Vec<u32> = (0..rows.len() as u32).collect();
        Self::made(Rc::new(Segments::new(rows, dot).await), &all).await
    }

    /// Builds the tree of the `chosen` rows of this one, in that order.
    pub fn of(&self, chosen: &[u32]) -> Self {
        finish(self.of_in_slices(chosen))
    }

    /// Like [`Trie::of`], with pauses.
    pub async fn of_in_slices(&self, chosen: &[u32]) -> Self {
        Self::made(self.segments.clone(), chosen).await
    }

    async fn made(segments: Rc<Segments>, chosen: &[u32]) -> Self {
        // Most keys share all but their last segments with others.
        let mut nodes = Vec::with_capacity(segments.all.len().min(4 * chosen.len()) + 2);
        nodes.push(TrieNode::new(0, 0, 0));
        // The node made for each segment.
        let mut found = vec![NONE; segments.all.len()];
        found[0] = 0;
        let mut missing = Vec::new();
        for (count, &id) in chosen.iter().enumerate() {
            if count % ITEMS == ITEMS - 1 {
                pause().await;
            }
            let mut at = segments.of_row[id as usize];
            while found[at as usize] == NONE {
                missing.push(at);
                at = segments.all[at as usize].parent;
            }
            let mut parent = found[at as usize];
            while let Some(segment) = missing.pop() {
                let above = &mut nodes[parent as usize];
                let mut node = TrieNode::new(segment, parent, id);
                node.place = above.children;
                above.children += 1;
                parent = nodes.len() as u32;
                found[segment as usize] = parent;
                nodes.push(node);
            }
            nodes[parent as usize].rows += 1;
        }
        let mut trie = Self {
            signs: vec![Signs::default(); nodes.len()],
            children: vec![0; nodes.len() - 1],
            rows: vec![0; chosen.len()],
            sums: OnceCell::new(),
            segments,
            nodes,
        };
        trie.hang_up(&found, chosen);
        for at in (1..trie.count()).rev() {
            if at % ITEMS == 0 {
                pause().await;
            }
            trie.signs[at] = trie.signs_of(at);
        }
        for at in 0..trie.count() {
            if at % ITEMS == 0 {
                pause().await;
            }
            trie.bring_together(at);
        }
        trie
    }

    /// Fills the lists of children and rows. Each node's counts are known by now; its lists are
    /// filled from their end to their start.
    fn hang_up(&mut self, found: &[u32], chosen: &[u32]) {
        self.nodes.push(TrieNode::new(0, 0, 0));
        let (mut children, mut rows) = (0, 0);
        for node in &mut self.nodes {
            children += node.children;
            rows += node.rows;
            (node.children, node.rows) = (children, rows);
        }
        for at in (1..self.count()).rev() {
            let above = self.parent(at);
            let free = &mut self.nodes[above].children;
            *free -= 1;
            self.children[*free as usize] = at as u32;
        }
        for &id in chosen.iter().rev() {
            let segment = self.segments.of_row[id as usize];
            let free = &mut self.nodes[found[segment as usize] as usize].rows;
            *free -= 1;
            self.rows[*free as usize] = id;
        }
    }

    /// Computes the sums of all nodes. A child comes after its parent, so iterating backwards goes
    /// up the tree.
    fn summed(&self) -> Vec<Sums> {
        let mut sums = vec![Sums::default(); self.count()];
        for at in (0..self.count()).rev() {
            self.rows(at).iter().for_each(|&id| sums[at].add(&self.segments.sums[id as usize]));
            if at > 0 {
                let own = sums[at];
                sums[self.parent(at)].add(&own);
            }
        }
        sums
    }

    fn signs_of(&self, at: usize) -> Signs {
        let of_row = |id: &u32| self.segments.signs[*id as usize];
        if let ([], [only]) = (self.children(at), self.rows(at)) {
            return of_row(only);
        }
        let mut sum = Signs::default();
        self.rows(at).iter().for_each(|id| sum.add(0, of_row(id)));
        for &child in self.children(at) {
            sum.add(self.segment(child as usize).hash, self.signs[child as usize]);
        }
        Signs { strict: mixed(1, sum.strict), loose: mixed(1, sum.loose) }
    }

    /// Moves children of a node that fold next to each other, by number.
    fn bring_together(&mut self, at: usize) {
        let start = self.nodes[at].children;
        let few = self.children(at).len() < 2;
        if few || self.children(at).iter().all(|&child| self.class(at, child).is_none()) {
            return;
        }
        if let Some(order) = self.folding_order(at) {
            for (place, &child) in (0..).zip(&order) {
                self.nodes[child as usize].place = place;
                self.children[(start + place) as usize] = child;
            }
        }
    }

    /// Returns the children of a node with those that fold next to each other; `None` if they
    /// already are.
    fn folding_order(&self, at: usize) -> Option<Vec<u32>> {
        let children = self.children(at);
        let number = |child: u32| self.segment(child as usize).number;
        // The group of each child, and the members of each group.
        let mut known: HashMap<(u64, u64), usize> = HashMap::new();
        let mut groups: Vec<Vec<u32>> = Vec::new();
        let mut before: Option<((u64, u64), usize)> = None;
        let mut ordered = true;
        for &child in children {
            let Some(class) = self.class(at, child) else {
                groups.push(vec![child]);
                continue;
            };
            let group = match before {
                Some((same, group)) if same == class => group,
                _ => *known.entry(class).or_insert_with(|| {
                    groups.push(Vec::new());
                    groups.len() - 1
                }),
            };
            before = Some((class, group));
            let last = groups[group].last().copied();
            ordered &= last.is_none_or(|last| number(last) < number(child))
                && (last.is_none() || group + 1 == groups.len());
            groups[group].push(child);
        }
        if ordered {
            return None;
        }
        for group in groups.iter_mut().filter(|group| group.len() > 1) {
            order::by_key(group, |&child| number(child));
        }
        Some(self.placed(groups, children.len()))
    }

    /// Places each group at the position of its first member; groups that are too small to fold are
    /// split up.
    fn placed(&self, groups: Vec<Vec<u32>>, count: usize) -> Vec<u32> {
        let mut at_place: Vec<Vec<u32>> = vec![Vec::new(); count];
        for group in groups {
            if group.len() >= self.least(group[0]) {
                let first = group.iter().map(|&child| self.place(child as usize)).min();
                at_place[first.unwrap_or(0)] = group;
            } else {
                for child in group {
                    at_place[self.place(child as usize)].push(child);
                }
            }
        }
        at_place.into_iter().flatten().collect()
    }

    /// Returns a value that is equal for children that may fold; `None` for a child that can't.
    fn class(&self, at: usize, child: u32) -> Option<(u64, u64)> {
        let segment = self.segment(child as usize);
        segment.number?;
        if segment.pattern != 0 && self.is_leaf(child as usize) {
            return None;
        }
        let signs = self.signs[child as usize];
        let sign = if self.name(at) == STATE { signs.loose } else { signs.strict };
        Some((segment.pattern, sign))
    }

    /// Returns the minimum number of nodes like this one that fold.
    pub fn least(&self, child: u32) -> usize {
        let is_plain = self.segment(child as usize).pattern == 0;
        if is_plain && !self.is_leaf(child as usize) { 2 } else { MIN_NAMES }
    }

    /// Returns the separator of segments.
    pub fn dot(&self) -> char {
        self.segments.dot
    }

    /// Returns the segment of a node.
    pub fn name(&self, at: usize) -> &str {
        let segment = self.segment(at);
        &self.segments.text[segment.start as usize..segment.end as usize]
    }

    /// Returns the children of a node, in order of first appearance.
    pub fn children(&self, at: usize) -> &[u32] {
        &self.children[self.nodes[at].children as usize..self.nodes[at + 1].children as usize]
    }

    /// Returns the leaves that end at a node: one, unless keys collide.
    pub fn rows(&self, at: usize) -> &[u32] {
        &self.rows[self.nodes[at].rows as usize..self.nodes[at + 1].rows as usize]
    }

    /// Returns the first leaf at or below a node.
    pub fn first(&self, at: usize) -> u32 {
        self.nodes[at].first
    }

    /// Returns the sums of all leaves at or below a node.
    pub fn sums(&self, at: usize) -> &Sums {
        &self.sums.get_or_init(|| self.summed())[at]
    }

    /// Returns the parent; the root is its own parent.
    pub fn parent(&self, at: usize) -> usize {
        self.nodes[at].parent as usize
    }

    /// Returns the depth of a node; 0 for the root.
    pub fn depth(&self, mut at: usize) -> usize {
        let mut depth = 0;
        while at != 0 {
            at = self.parent(at);
            depth += 1;
        }
        depth
    }

    /// Returns the position of a node among its parent's children.
    pub fn place(&self, at: usize) -> usize {
        self.nodes[at].place as usize
    }

    /// Returns the nodes from the root to a leaf. Works only in the tree of all rows.
    pub fn way_to(&self, row: u32) -> Vec<usize> {
        // In the tree of all rows, a segment's node has the same number as the segment: both are
        // created in order of appearance.
        let mut at = self.segments.of_row.get(row as usize).map_or(0, |&at| at as usize);
        let mut way = vec![at];
        while at != 0 {
            at = self.nodes[at].parent as usize;
            way.push(at);
        }
        way.reverse();
        way
    }

    /// Returns the number of nodes, including the root.
    pub fn count(&self) -> usize {
        self.nodes.len() - 1
    }

    /// Returns the child with a name. Position `like` is tried first: in equal subtrees it usually
    /// matches.
    pub fn child(&self, at: usize, name: &str, like: usize) -> Option<usize> {
        let children = self.children(at);
        let is_it = |child: &&u32| self.name(**child as usize) == name;
        let found = children.get(like).filter(is_it).or_else(|| children.iter().find(is_it));
        found.map(|&child| child as usize)
    }

    /// Returns true if a node has no children.
    pub fn is_leaf(&self, at: usize) -> bool {
        self.children(at).is_empty()
    }

    /// Returns true if a node is a single value: a leaf, or a variable of a TensorFlow object
    /// graph, which has only its attribute below it.
    pub fn is_value(&self, at: usize) -> bool {
        match self.children(at) {
            [] => true,
            [only] => self.name(*only as usize) == ATTRIBUTES,
            _ => false,
        }
    }

    /// Returns the path of a node.
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

    /// Returns the children of a node as runs: those that fold form one, and every other child is a
    /// run of one.
    pub fn runs(&self, at: usize) -> Vec<ChildRun> {
        let children = self.children(at);
        let mut runs = Vec::with_capacity(if children.len() < 64 { children.len() } else { 0 });
        let mut start = 0;
        while start < children.len() {
            let class = self.class(at, children[start]);
            let same = |child: &&u32| class.is_some() && self.class(at, **child) == class;
            let len = 1 + children[start + 1..].iter().take_while(same).count();
            if len > 1 && len >= self.least(children[start]) {
                let sign = |child: u32| self.signs[child as usize].strict;
                let members = &children[start..start + len];
                let loose = members.iter().any(|&child| sign(child) != sign(members[0]));
                runs.push(ChildRun { start, len, loose });
            } else {
                runs.extend((start..start + len).map(|start| ChildRun {
                    start,
                    len: 1,
                    loose: false,
                }));
            }
            start += len;
        }
        runs
    }

    /// Returns the label of a run: `0–31`, or the name of its only child.
    pub fn run_label(&self, at: usize, run: ChildRun) -> String {
        let members = &self.children(at)[run.start..run.start + run.len];
        self.label(members)
    }

    /// Returns the joint label of nodes whose names differ only in their number.
    pub fn label(&self, members: &[u32]) -> String {
        let Some(&first) = members.first() else { return String::new() };
        let name = self.name(first as usize);
        let (1.., Some(found)) = (members.len() - 1, Numbered::of(name)) else {
            return name.to_owned();
        };
        let numbered =
            members.iter().filter_map(|&member| Numbered::of(self.name(member as usize)));
        let label = ranges(numbered.map(|found| (found.number, found.digits)));
        format!("{}{label}{}", found.before, found.after)
    }

    /// Returns the number in a node's name.
    pub fn number(&self, at: usize) -> Option<u64> {
        self.segment(at).number
    }

    /// Returns the children of a node whose names differ from that of `one` only in a number,
    /// ordered by number, whatever is below them; empty if `one` has no number.
    pub fn numbered_like(&self, above: usize, one: usize) -> Vec<u32> {
        let (own, leaf) = (self.segment(one), self.is_leaf(one));
        if own.number.is_none() || own.pattern != 0 && leaf {
            return Vec::new();
        }
        let is_like = |child: &u32| {
            let other = self.segment(*child as usize);
            other.number.is_some()
                && other.pattern == own.pattern
                && self.is_leaf(*child as usize) == leaf
        };
        let mut like: Vec<u32> = self.children(above).iter().copied().filter(is_like).collect();
        order::by_key(&mut like, |&child| self.number(child as usize));
        like
    }

    fn segment(&self, at: usize) -> &KeySegment {
        &self.segments.all[self.nodes[at].segment as usize]
    }
}

impl TrieNode {
    /// Creates a node without children. While a tree is being built, `children` and `rows` are
    /// counts.
    fn new(segment: u32, parent: u32, first: u32) -> Self {
        Self { segment, parent, place: 0, children: 0, rows: 0, first }
    }
}

/// Joins a path and a name.
pub fn join(path: &str, name: &str, dot: char) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}{dot}{name}") }
}
