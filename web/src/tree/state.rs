//! The tree next to the table: modules, not leaves.
//!
//! There may be a line for each of a hundred thousand keys, so a line holds numbers only; its texts
//! are made when it is visible.

use std::collections::HashSet;

use statelens_checkpoint::slices::{ITEMS, finish, pause};
use statelens_checkpoint::visible;
use statelens_describe::fold::{ChildRun, Sums, Trie, join};

use crate::rows::Row;
use crate::state::dtype::{DTypeFamily, row_family};
use crate::state::wrap::{CHARACTER, CharacterWidth, text_lines};

/// Limits of the default width of the tree, in pixels.
const WIDTHS: (f64, f64) = (256.0, 340.0);
/// Width in pixels of a number of repetitions without its digits.
const TIMES: f64 = 6.0 + CHARACTER;
/// Maximum number of lines that are measured.
const MEASURED_LINES: usize = 2000;

#[derive(Debug, Default)]
pub struct Tree {
    pub lines: Vec<TreeLine>,
    /// Maximum number of bytes of a line, which is the scale of the bars.
    pub largest: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TreeLine {
    /// Depth from 0.
    pub level: usize,
    /// The number of repetitions; 1 if it does not repeat.
    pub times: u64,
    /// Whether it is open; `None` if it can't be opened.
    pub open: Option<bool>,
    /// Sums over everything that it holds.
    pub sums: Sums,
    /// The family with most of the bytes.
    pub family: DTypeFamily,
    /// The first leaf.
    pub first: u32,
    /// Its position among its siblings, from 1, and their number.
    pub place: (usize, usize),
    /// The parent line.
    up: Option<usize>,
    /// The parent node, and the run of its children that the line represents.
    parent: usize,
    run: ChildRun,
    /// The node whose children are below; it identifies the line.
    at: usize,
    /// If the line ends in a fold: the run and its parent node.
    fold: Option<(usize, ChildRun)>,
}

impl Tree {
    /// Builds the tree of all keys. `toggled` holds the identities of lines whose state is
    /// inverted. By default, lines of the top level with tensors are open, and lines of the next
    /// three levels that hold more than an eighth of the bytes.
    pub fn new(trie: &Trie, families: &[DTypeFamily], toggled: &HashSet<usize>) -> Self {
        finish(Self::new_in_slices(trie, families, toggled))
    }

    /// Like [`Tree::new`], with pauses.
    pub async fn new_in_slices(
        trie: &Trie,
        families: &[DTypeFamily],
        toggled: &HashSet<usize>,
    ) -> Self {
        let total = trie.sums(0).bytes;
        let mut walk = TreeWalk { trie, families, toggled, total, lines: Vec::new() };
        let runs = trie.runs(0);
        let count = runs.len();
        walk.lines.reserve(count);
        for (at, run) in runs.into_iter().enumerate() {
            if at % ITEMS == ITEMS - 1 {
                pause().await;
            }
            walk.branch(0, &[0], run, None, 0, (at + 1, count));
        }
        let largest = walk.lines.iter().map(|line| line.sums.bytes).max().unwrap_or(0);
        Self { lines: walk.lines, largest }
    }

    /// Returns the label of a line: the segment, or several joined if each has only one child.
    pub fn name(&self, trie: &Trie, line: usize) -> String {
        self.labels(trie, line).0
    }

    /// Returns the width in pixels that shows the names in full, within limits.
    pub fn fitting_width(&self, trie: &Trie) -> f64 {
        let line = |(at, line): (usize, &TreeLine)| {
            let name = self.name(trie, at).chars().count() as f64 * CHARACTER;
            name + TreeWidths::WIDE.of(line)
        };
        let lines = self.lines.iter().take(MEASURED_LINES).enumerate();
        lines.map(line).fold(WIDTHS.0, f64::max).min(WIDTHS.1).ceil()
    }

    /// Returns how many lines of text a name has if the tree has this width in pixels.
    pub fn line_count(
        &self,
        trie: &Trie,
        line: usize,
        (width, widths): (f64, &TreeWidths),
        measure: CharacterWidth<'_>,
    ) -> usize {
        let branch = &self.lines[line];
        // Runs for each of many keys of a flat dict: most are one node, whose name fits.
        if branch.run.len == 1 && branch.fold.is_none() && trie.parent(branch.at) == branch.parent {
            let name = trie.name(branch.at);
            let is_plain = name.bytes().all(|byte| matches!(byte, b' '..=b'~'));
            if is_plain && name.len() as f64 * measure('0') <= width - widths.of(branch) {
                return 1;
            }
        }
        self.text_lines(trie, line, (width, widths), measure).len()
    }

    /// Returns the lines of text of a name if the tree has this width in pixels. They end after
    /// separators if possible.
    pub fn text_lines(
        &self,
        trie: &Trie,
        line: usize,
        (width, widths): (f64, &TreeWidths),
        measure: CharacterWidth<'_>,
    ) -> Vec<String> {
        let name = visible(&self.name(trie, line));
        let name = if name.is_empty() { ROOT.to_owned() } else { name };
        let room = width - widths.of(&self.lines[line]);
        let mut lines: Vec<String> =
            text_lines(&name, &BREAKS, room, measure).into_iter().map(str::to_owned).collect();
        // The tooltip has the whole name.
        if lines.len() > MAX_LINES {
            lines.drain(1..lines.len() - 1);
            lines.insert(1, "\u{2026}".to_owned());
        }
        lines
    }

    /// Returns the path of a line, with `0–31` for a fold.
    pub fn path(&self, trie: &Trie, line: usize) -> String {
        let mut parts = vec![self.labels(trie, line).1];
        let mut up = self.lines[line].up;
        while let Some(at) = up {
            parts.push(self.labels(trie, at).1);
            up = self.lines[at].up;
        }
        parts.reverse();
        parts.into_iter().reduce(|path, part| join(&path, &part, trie.dot())).unwrap_or_default()
    }

    /// Returns the value if a line is a leaf.
    pub fn value<'a>(&self, trie: &Trie, rows: &'a [Row], line: usize) -> Option<&'a str> {
        let at = self.lines[line].at;
        let row = trie.rows(at).first().filter(|_| trie.is_leaf(at))?;
        Some(&rows[*row as usize].value)
    }

    /// Returns the identity of a line, which does not depend on which lines are open.
    pub fn identity(&self, line: usize) -> usize {
        self.lines[line].at
    }

    /// Returns the line with an identity, if it is shown.
    pub fn find(&self, identity: usize) -> Option<usize> {
        self.lines.iter().position(|line| line.at == identity)
    }

    /// Returns the parent line.
    pub fn up(&self, line: usize) -> Option<usize> {
        self.lines[line].up
    }

    /// Returns the deepest line whose subtree holds a leaf; folds hold the leaves of all their
    /// members.
    pub fn holding(&self, trie: &Trie, row: u32) -> Option<usize> {
        let way = trie.way_to(row);
        let (mut found, mut parent, mut level) = (None, 0, 0);
        for (at, line) in self.lines.iter().enumerate() {
            if line.level > level {
                continue;
            }
            if line.level < level {
                break;
            }
            let Some(&step) = way.get(trie.depth(parent) + 1) else { break };
            let mut members = line.run.start..line.run.start + line.run.len;
            // The lines below a fold are those of its first member; the other members have the same
            // names.
            let holds = if trie.parent(step) == parent {
                members.contains(&trie.place(step))
            } else {
                let name = |at: usize| trie.name(trie.children(parent)[at] as usize);
                line.parent == parent && members.any(|at| name(at) == trie.name(step))
            };
            if line.parent == parent && holds {
                (found, parent, level) = (Some(at), line.at, level + 1);
            }
        }
        found
    }

    /// Returns the label of a line, and its part of the path.
    fn labels(&self, trie: &Trie, line: usize) -> (String, String) {
        let branch = &self.lines[line];
        let mut name = trie.run_label(branch.parent, branch.run);
        let mut steps = Vec::new();
        let mut at = branch.fold.map_or(branch.at, |(above, _)| above);
        while trie.depth(at) > trie.depth(branch.parent) + 1 {
            steps.push(at);
            at = trie.parent(at);
        }
        for step in steps.into_iter().rev() {
            name = join(&name, trie.name(step), trie.dot());
        }
        let path = match branch.fold {
            Some((above, run)) => join(&name, &trie.run_label(above, run), trie.dot()),
            None => name.clone(),
        };
        (name, path)
    }
}

/// A name that has more lines than this is shortened in the middle.
const MAX_LINES: usize = 3;
/// The characters after which a name wraps.
const BREAKS: [char; 3] = ['.', '_', '-'];
/// The name of a leaf that is the root object.
const ROOT: &str = "(itself)";

/// Widths in pixels of the parts of a line other than its name, as in the style sheet.
#[derive(Debug)]
pub struct TreeWidths {
    /// Padding, gaps and the arrow.
    fixed: f64,
    /// Indentation of a level.
    level: f64,
    /// A number of bytes.
    bytes: f64,
    /// A value, or a number of values.
    value: f64,
}

impl TreeWidths {
    /// The widths on wide screens.
    pub const WIDE: Self = Self { fixed: 40.0, level: 8.0, bytes: 62.0, value: 96.0 };
    /// The widths on small screens.
    pub const SMALL: Self = Self { fixed: 62.0, level: 12.0, ..Self::WIDE };

    /// Returns the width of everything in a line but its name.
    fn of(&self, line: &TreeLine) -> f64 {
        let digits = line.times.checked_ilog10().map_or(1, |log| log + 1);
        let times = if line.times > 1 { TIMES + f64::from(digits) * CHARACTER } else { 0.0 };
        let number = if line.sums.bytes > 0 { self.bytes } else { self.value };
        self.fixed + line.level as f64 * self.level + times + number
    }
}

struct TreeWalk<'a> {
    trie: &'a Trie,
    families: &'a [DTypeFamily],
    toggled: &'a HashSet<usize>,
    total: u64,
    lines: Vec<TreeLine>,
}

impl TreeWalk<'_> {
    /// Adds the lines below a node. `alike` are the nodes that it represents, including itself:
    /// below a fold, the corresponding nodes of all members.
    fn below(&mut self, parent: usize, alike: &[usize], up: Option<usize>, level: usize) {
        let mut runs = self.trie.runs(parent);
        // Leaves are shown in the table; only at the top level are they shown here too.
        let child = |run: &ChildRun| self.trie.children(parent)[run.start] as usize;
        runs.retain(|run| !self.trie.is_value(child(run)));
        let count = runs.len();
        self.lines.reserve(count);
        for (at, run) in runs.into_iter().enumerate() {
            self.branch(parent, alike, run, up, level, (at + 1, count));
        }
    }

    fn branch(
        &mut self,
        parent: usize,
        alike: &[usize],
        run: ChildRun,
        up: Option<usize>,
        level: usize,
        place: (usize, usize),
    ) {
        let trie = self.trie;
        let first = trie.children(parent)[run.start] as usize;
        let mut alike = members(trie, parent, run, alike);
        let mut sums = Sums::default();
        alike.iter().for_each(|&member| sums.add(trie.sums(member)));
        let (mut at, mut times, mut fold) = (first, run.len as u64, None);
        // Top-level lines are states, which are not joined with their children.
        if level > 0 {
            fold = follow(trie, &mut at, &mut times, &mut alike);
        }
        let expandable = !trie.is_value(at)
            && trie.children(at).iter().any(|&below| !trie.is_value(below as usize));
        let by_default = level == 0 && sums.tensors > 0 || level < 4 && sums.bytes > self.total / 8;
        let open = expandable.then(|| by_default != self.toggled.contains(&at));
        self.lines.push(TreeLine {
            level,
            times,
            open,
            sums,
            family: self.families[at],
            first: trie.first(first),
            place,
            up,
            parent,
            run,
            at,
            fold,
        });
        if open == Some(true) {
            let line = self.lines.len() - 1;
            self.below(at, &alike, Some(line), level + 1);
        }
    }
}

/// Returns the children in a run, of all nodes that are alike.
fn members(trie: &Trie, parent: usize, run: ChildRun, alike: &[usize]) -> Vec<usize> {
    let places = run.start..run.start + run.len;
    let wanted = |at: usize| trie.children(parent)[at] as usize;
    let of = |&node: &usize| {
        let child = move |at: usize| match node == parent {
            true => Some(wanted(at)),
            false => trie.child(node, trie.name(wanted(at)), at),
        };
        places.clone().filter_map(child)
    };
    alike.iter().flat_map(of).collect()
}

/// Descends from a node while it has only one child: such segments are shown in one line, and so is
/// `layers` with its run, which is returned.
fn follow(
    trie: &Trie,
    at: &mut usize,
    times: &mut u64,
    alike: &mut Vec<usize>,
) -> Option<(usize, ChildRun)> {
    loop {
        let runs = match trie.children(*at) {
            [] => return None,
            [_] => vec![ChildRun { start: 0, len: 1, loose: false }],
            _ => trie.runs(*at),
        };
        let [only] = runs.as_slice() else { return None };
        let next = trie.children(*at)[only.start] as usize;
        let folds = only.len > 1;
        if trie.is_value(next) || !trie.rows(*at).is_empty() || (folds && *times > 1) {
            return None;
        }
        *alike = members(trie, *at, *only, alike);
        let above = std::mem::replace(at, next);
        if folds {
            *times = only.len as u64;
            return Some((above, *only));
        }
    }
}

/// Returns the family with most of the bytes for each node; with pauses.
pub async fn families(trie: &Trie, rows: &[Row]) -> Vec<DTypeFamily> {
    let mut bytes = vec![[0u64; 8]; trie.count()];
    for at in (0..trie.count()).rev() {
        if at % ITEMS == 0 {
            pause().await;
        }
        for row in trie.rows(at).iter().map(|&id| &rows[id as usize]) {
            if row.link.is_none() && row.kind.has_shape() {
                let sum = &mut bytes[at][row_family(row) as usize];
                *sum = sum.saturating_add(row.bytes.max(1));
            }
        }
        let (parent, own) = (trie.parent(at), bytes[at]);
        if at > 0 {
            for (sum, part) in bytes[parent].iter_mut().zip(own) {
                *sum = sum.saturating_add(part);
            }
        }
    }
    bytes.iter().map(dominant).collect()
}

fn dominant(bytes: &[u64; 8]) -> DTypeFamily {
    const FAMILIES: [DTypeFamily; 8] = [
        DTypeFamily::Bf16,
        DTypeFamily::F16,
        DTypeFamily::F32,
        DTypeFamily::F64,
        DTypeFamily::Int,
        DTypeFamily::Bool,
        DTypeFamily::Fp8,
        DTypeFamily::Value,
    ];
    FAMILIES
        .into_iter()
        .filter(|&family| bytes[family as usize] > 0)
        .max_by_key(|&family| bytes[family as usize])
        .unwrap_or(DTypeFamily::Value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::sample::{gpt, lexicographic, tensor, value};

    fn made(rows: &[Row], toggled: &[usize]) -> (Trie, Tree) {
        let trie = Trie::new(rows, '.');
        let toggled = toggled.iter().copied().collect();
        let tree = Tree::new(&trie, &finish(families(&trie, rows)), &toggled);
        (trie, tree)
    }

    fn shown(trie: &Trie, tree: &Tree) -> Vec<String> {
        let line = |(at, branch): (usize, &TreeLine)| {
            let mark = match branch.open {
                Some(true) => "v ",
                Some(false) => "> ",
                None => "  ",
            };
            let times =
                if branch.times > 1 { format!(" x{}", branch.times) } else { String::new() };
            format!("{}{mark}{}{times}", " ".repeat(branch.level), tree.name(trie, at))
        };
        tree.lines.iter().enumerate().map(line).collect()
    }

    #[test]
    fn shows_names_in_full_within_limits() {
        let of = |rows: Vec<Row>| {
            let trie = Trie::new(&rows, '.');
            let families = finish(families(&trie, &rows));
            Tree::new(&trie, &families, &HashSet::new()).fitting_width(&trie)
        };
        assert_eq!(of(vec![tensor("a.b", "float32", &[2])]), WIDTHS.0);
        let layer = |at: u64| {
            let key = format!("model.layers.{at}.post_attention_layernorm.weight");
            tensor(&key, "float32", &[64])
        };
        let name = "post_attention_layernorm".len() as f64 * CHARACTER;
        assert!(of((0..12).map(layer).collect()) >= name + TreeWidths::WIDE.fixed);
        assert_eq!(of(vec![tensor(&"long".repeat(100), "float32", &[2])]), WIDTHS.1);
    }

    #[test]
    fn tree_lists_modules_not_leaves() {
        let rows = gpt(32);
        let (trie, tree) = made(&rows, &[]);
        assert_eq!(
            shown(&trie, &tree),
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
        assert_eq!(tree.value(&trie, &rows, tree.lines.len() - 1), Some("5000"));
        let top = tree.lines.iter().filter(|line| line.level == 0);
        assert_eq!(top.map(|line| line.sums.bytes).sum::<u64>(), trie.sums(0).bytes);
        assert_eq!(tree.largest, tree.lines[7].sums.bytes);
        let places: Vec<_> = tree.lines.iter().map(|line| line.place).collect();
        assert_eq!(places[..7], [(1, 3), (1, 1), (1, 3), (2, 3), (1, 2), (2, 2), (3, 3)]);
        assert_eq!(places[7..], [(2, 3), (1, 2), (2, 2), (3, 3)]);
    }

    #[test]
    fn lines_below_a_fold_sum_all_members() {
        let rows = gpt(32);
        let (_, tree) = made(&rows, &[]);
        let bytes: Vec<u64> = tree.lines[3..6].iter().map(|line| line.sums.bytes).collect();
        assert_eq!(bytes[0], bytes[1] + bytes[2]);
        assert_eq!(bytes[1], 32 * 64 * 2);
        // Experts in layers: a fold in a fold.
        let expert = |at: u64| format!("m.layers.{}.experts.{}.w.weight", at / 8, at % 8);
        let mut rows: Vec<Row> = (0..32).map(|at| tensor(&expert(at), "float32", &[10])).collect();
        for layer in 0..4 {
            rows.push(tensor(&format!("m.layers.{layer}.norm.weight"), "float32", &[3]));
        }
        let (trie_of_experts, tree) = made(&rows, &[]);
        let line = |name: &str| {
            let named = |at: &usize| tree.name(&trie_of_experts, *at).starts_with(name);
            &tree.lines[(0..tree.lines.len()).find(named).unwrap()]
        };
        assert_eq!(line("experts").sums.bytes, 32 * 40);
        assert_eq!(line("norm").sums.bytes, 4 * 12);
    }

    #[test]
    fn toggling_inverts_lines() {
        let rows = gpt(32);
        let (_, plain) = made(&rows, &[]);
        let (trie, toggled) = made(&rows, &[plain.identity(3), plain.identity(9)]);
        let lines = shown(&trie, &toggled);
        assert!(lines.contains(&"  > blocks x32".to_owned()), "{lines:?}");
        assert!(lines.contains(&" v param_groups.0".to_owned()), "{lines:?}");
    }

    #[test]
    fn finds_a_key_in_its_fold() {
        let rows = gpt(32);
        let (trie, tree) = made(&rows, &[]);
        let at = |key: &str| rows.iter().position(|row| row.key == key).expect("a row") as u32;
        let line = |key: &str| tree.holding(&trie, at(key)).expect("a line");
        let fc = line("model.model.blocks.2.fc.weight");
        assert_eq!(tree.name(&trie, fc), "fc");
        assert_eq!(tree.path(&trie, fc), "model.model.blocks.0\u{2013}31.fc");
        assert_eq!(tree.up(fc), Some(3));
        let state = line("optimizer.state.97.step");
        assert_eq!(tree.name(&trie, state), "state");
        assert_eq!(tree.path(&trie, state), "optimizer.state.0\u{2013}97");
        assert_eq!(tree.path(&trie, line("global_step")), "global_step");
    }

    #[test]
    fn layers_are_one_line_in_any_order() {
        let rows = lexicographic(32);
        let (trie, tree) = made(&rows, &[]);
        assert_eq!(
            shown(&trie, &tree),
            ["v model", "   embed", " v layers x32", "    attn.q", "    mlp.up", "    norm"]
        );
        let row = rows.iter().position(|row| row.key == "model.layers.17.mlp.up.weight");
        let line = tree.holding(&trie, row.expect("a row") as u32).expect("a line");
        assert_eq!(tree.path(&trie, line), "model.layers.0\u{2013}31.mlp.up");
    }

    #[test]
    fn flat_keys_are_lines_at_the_top() {
        let rows: Vec<Row> =
            (0..1000).map(|at| tensor(&format!("arr_{at}"), "float32", &[at % 7 + 1])).collect();
        let (trie, tree) = made(&rows, &[]);
        assert_eq!(tree.lines.len(), 1000);
        assert_eq!(tree.holding(&trie, 700), Some(700));
        assert_eq!(tree.lines[700].place, (701, 1000));
        let (trie, tree) = made(&[value("", "1"), value("a", "2")], &[]);
        assert_eq!(shown(&trie, &tree), ["  ", "  a"]);
    }
}
