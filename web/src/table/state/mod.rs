//! The flattened state as the table shows it: state rows, folds, patterns, leaves.

pub mod fit;

use std::collections::HashSet;

use statelens_checkpoint::natural_order;
use statelens_checkpoint::order;
use statelens_describe::fold::{self, ChildRun, Sums, Trie, join};
use statelens_values::StatisticsField;

use crate::rows::{LeafKind, Row};
use crate::table::state::fit::FittingColumns;
use crate::values::state::Weights;

/// A column that rows can be sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Key,
    Kind,
    Shape,
    /// The number of values.
    Params,
    /// The size in bytes.
    Bytes,
    Value,
    /// A statistic of the values.
    Measure(StatisticsField),
}

/// The columns of the table with their heads.
pub const COLUMNS: [(Column, &str); 6] = [
    (Column::Key, "key"),
    (Column::Kind, "kind"),
    (Column::Shape, "shape"),
    (Column::Params, "params"),
    (Column::Bytes, "bytes"),
    (Column::Value, "value"),
];

/// The statistics columns shown by default, one bit each.
pub const DEFAULT_COLUMNS: u16 = 0b110_0111;

/// How the table is arranged.
#[derive(Debug, Clone, PartialEq)]
pub struct TableView {
    /// Whether repeated layers are folded.
    pub fold: bool,
    /// The column to sort by, and whether descending; `None` is file order.
    pub sort: Option<(Column, bool)>,
    /// Whether folds are sorted by the size of one member, rather than by their sums.
    pub by_member: bool,
    /// Folds that the user opened or closed, by [`Fold::name`].
    pub toggled: HashSet<String>,
    /// The statistics known so far.
    pub weights: Weights,
    /// The columns that are shown.
    pub columns: FittingColumns,
    /// The statistics columns that the user chose; `None` for those that fit.
    pub chosen: Option<u16>,
    /// The separator of key segments.
    pub dot: char,
    /// Whether more rows are still to come.
    pub so_far: bool,
}

impl Default for TableView {
    fn default() -> Self {
        Self {
            fold: false,
            sort: None,
            by_member: false,
            toggled: HashSet::new(),
            weights: Weights::default(),
            columns: FittingColumns::default(),
            chosen: None,
            dot: '.',
            so_far: false,
        }
    }
}

/// A run of equal subtrees.
#[derive(Debug)]
pub struct Fold {
    /// The whole key of the run, as in `model.layers.0–31`; it identifies the fold.
    pub name: String,
    /// The name of the parent: `layers`.
    pub container: String,
    /// The numbers of the members: `0–31`.
    pub label: String,
    /// The node of the first member, in the tree of the rows shown.
    pub member: usize,
    /// The number of members.
    pub times: u64,
    /// The keys within each member.
    pub patterns: Vec<FoldPattern>,
    /// Sums over all members.
    pub sums: Sums,
    /// Whether the members are leaves.
    pub leaves: bool,
    /// Whether its lines are shown.
    pub open: bool,
}

/// One key of a fold, in all its members.
#[derive(Debug)]
pub struct FoldPattern {
    /// The key within a member.
    pub label: String,
    /// The rows, member by member.
    pub rows: Vec<u32>,
    pub sums: Sums,
    /// Whether all rows have the same shape.
    pub one_shape: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableLine {
    /// A top-level key: index into [`Table::states`].
    State(usize),
    /// A leaf.
    Row(u32),
    /// A fold: index into [`Table::folds`].
    Fold(usize),
    /// A pattern of an open fold.
    Pattern(usize, usize),
    /// A member of an open fold whose members are leaves.
    Member(usize, u32),
}

/// The lines of the table, and the data that they refer to.
#[derive(Debug, Default)]
pub struct Table {
    pub items: Vec<TableLine>,
    /// Top-level keys with their sums.
    pub states: Vec<(String, Sums)>,
    pub folds: Vec<Fold>,
    /// The largest size of a line, for the share bars.
    pub largest: u64,
    /// The number of leaves shown, including folded ones.
    pub leaves: usize,
    /// The line of each row; `NO_LINE` for those that are not shown.
    place: Vec<u32>,
}

const NO_LINE: u32 = u32::MAX;

/// All rows sorted by a column. Rows that pass a filter are picked from it at each keystroke,
/// instead of being sorted again.
#[derive(Debug)]
pub struct SortedRows {
    by: (Column, bool),
    order: Vec<u32>,
}

impl SortedRows {
    /// Sorts all rows by a column, and whether descending.
    pub fn new(rows: &[Row], by: (Column, bool), weights: &Weights) -> Self {
        let items = (0..rows.len() as u32).map(TableLine::Row).collect();
        let mut table = Table { items, ..Table::default() };
        table.sort(rows, by, false, weights);
        let row = |line: &TableLine| match line {
            TableLine::Row(id) => Some(*id),
            _ => None,
        };
        Self { by, order: table.items.iter().filter_map(row).collect() }
    }

    /// Returns the column that the rows are sorted by, and whether descending.
    pub fn by(&self) -> (Column, bool) {
        self.by
    }

    fn items(&self, chosen: &[u32]) -> Vec<TableLine> {
        if chosen.len() == self.order.len() {
            return self.order.iter().map(|&id| TableLine::Row(id)).collect();
        }
        let mut shown = vec![false; self.order.len()];
        chosen.iter().for_each(|&id| shown[id as usize] = true);
        self.order.iter().filter(|&&id| shown[id as usize]).map(|&id| TableLine::Row(id)).collect()
    }
}

impl Table {
    /// Arranges the `chosen` rows; `whole` is the tree of all rows, and `sorted` all of them sorted
    /// by a column, if available.
    pub fn new(
        rows: &[Row],
        whole: &Trie,
        chosen: &[u32],
        view: &TableView,
        sorted: Option<&SortedRows>,
    ) -> Self {
        let mut table = Self { leaves: chosen.len(), ..Self::default() };
        let heads = has_heads(rows, chosen, view.dot);
        if view.fold {
            let part;
            let trie = if chosen.len() == rows.len() {
                whole
            } else {
                part = whole.of(chosen);
                &part
            };
            let sorted = view.sort.is_some();
            TableBuilder { rows, trie, view, table: &mut table, sorted, heads }.top();
        } else if view.sort.is_some() {
            table.items = chosen.iter().map(|&id| TableLine::Row(id)).collect();
        } else {
            table.flat(rows, chosen, view.dot, heads);
        }
        if let Some((column, down)) = view.sort {
            match sorted.filter(|sorted| sorted.by == (column, down) && table.folds.is_empty()) {
                Some(sorted) => table.items = sorted.items(chosen),
                None => table.sort(rows, (column, down), view.by_member, &view.weights),
            }
        }
        table.find_places(rows);
        table
    }

    /// Returns the line that shows a leaf: its own, its pattern's, or the closed fold that holds
    /// it.
    pub fn place(&self, row: u32) -> Option<usize> {
        let line = *self.place.get(row as usize)?;
        (line != NO_LINE).then_some(line as usize)
    }

    /// Returns the pattern that holds a leaf, and the leaf's index in it.
    pub fn pattern_of(&self, row: u32) -> Option<(&Fold, &FoldPattern, usize)> {
        self.folds.iter().find_map(|fold| {
            fold.patterns.iter().find_map(|pattern| {
                pattern.rows.iter().position(|&id| id == row).map(|at| (fold, pattern, at))
            })
        })
    }

    /// Returns the leaves that a line represents; empty for folds with several patterns.
    pub fn rows_of(&self, line: TableLine) -> &[u32] {
        match line {
            TableLine::Pattern(fold, pattern) => &self.folds[fold].patterns[pattern].rows,
            TableLine::Fold(fold) if self.folds[fold].patterns.len() == 1 => {
                &self.folds[fold].patterns[0].rows
            }
            _ => &[],
        }
    }

    /// Returns all leaves of a line, including those of all patterns of a fold.
    pub fn all_rows_of(&self, line: TableLine) -> impl Iterator<Item = u32> + '_ {
        let (one, patterns) = match line {
            TableLine::Row(id) | TableLine::Member(_, id) => (Some(id), &[][..]),
            TableLine::Fold(fold) => (None, &self.folds[fold].patterns[..]),
            TableLine::Pattern(fold, pattern) => {
                (None, std::slice::from_ref(&self.folds[fold].patterns[pattern]))
            }
            TableLine::State(_) => (None, &[][..]),
        };
        one.into_iter().chain(patterns.iter().flat_map(|pattern| pattern.rows.iter().copied()))
    }

    /// Adds leaves in file order, with a state row wherever the state changes if there are `heads`.
    fn flat(&mut self, rows: &[Row], chosen: &[u32], dot: char, heads: bool) {
        // A key without a dot is its own state, which gets no state row.
        let (mut state, mut shown) = (None, false);
        for &id in chosen {
            let row = &rows[id as usize];
            let (name, nested) = top(&row.key, dot);
            let nested = nested && heads;
            if state != Some(name) {
                (state, shown) = (Some(name), nested);
                if nested {
                    self.states.push((name.to_owned(), Sums::default()));
                    self.items.push(TableLine::State(self.states.len() - 1));
                }
            }
            if let Some((_, sums)) = self.states.last_mut().filter(|_| shown) {
                sums.add_row(row);
            }
            self.items.push(TableLine::Row(id));
        }
    }

    fn sort(
        &mut self,
        rows: &[Row],
        (column, down): (Column, bool),
        by_member: bool,
        weights: &Weights,
    ) {
        let mut items = std::mem::take(&mut self.items);
        if let Column::Measure(measure) = column {
            let of = |item| weights.sum(self.all_rows_of(item)).measure(measure);
            let mut known: Vec<(Option<f64>, TableLine)> =
                items.into_iter().map(|item| (of(item), item)).collect();
            // Rows that were not read come last in either direction.
            order::by(&mut known, |(a, _), (b, _)| match (a, b) {
                (Some(a), Some(b)) if down => b.total_cmp(a),
                (Some(a), Some(b)) => a.total_cmp(b),
                (a, b) => a.is_none().cmp(&b.is_none()),
            });
            self.items = known.into_iter().map(|(_, item)| item).collect();
            return;
        }
        order::by(&mut items, |&a, &b| {
            let order = self.compare(rows, column, by_member, (a, b));
            if down { order.reverse() } else { order }
        });
        self.items = items;
    }

    fn compare(
        &self,
        rows: &[Row],
        column: Column,
        by_member: bool,
        (a, b): (TableLine, TableLine),
    ) -> std::cmp::Ordering {
        let sums = |line| {
            let (sums, count) = (self.item_sums(rows, line), self.all_rows_of(line).count() as u64);
            let each = if by_member { count.max(1) } else { 1 };
            (sums.params / each, sums.bytes / each)
        };
        let row = |line: TableLine| self.first_row(line).map(|id| &rows[id as usize]);
        let (Some(x), Some(y)) = (row(a), row(b)) else { return std::cmp::Ordering::Equal };
        match column {
            Column::Key => natural_order(x.key.as_bytes(), y.key.as_bytes()),
            Column::Kind => (!x.kind.has_shape(), &x.dtype, x.kind_word()).cmp(&(
                !y.kind.has_shape(),
                &y.dtype,
                y.kind_word(),
            )),
            Column::Shape => (x.shape.len(), &x.shape).cmp(&(y.shape.len(), &y.shape)),
            Column::Params => sums(a).0.cmp(&sums(b).0),
            Column::Bytes => sums(a).1.cmp(&sums(b).1),
            // Handled before.
            Column::Measure(_) => std::cmp::Ordering::Equal,
            Column::Value => {
                let number = |row: &Row| row.value.parse::<f64>().ok();
                match (number(x), number(y)) {
                    (Some(x), Some(y)) => x.total_cmp(&y),
                    (Some(_), None) => std::cmp::Ordering::Less,
                    (None, Some(_)) => std::cmp::Ordering::Greater,
                    (None, None) => {
                        (x.value.is_empty(), &x.value).cmp(&(y.value.is_empty(), &y.value))
                    }
                }
            }
        }
    }

    /// Returns the first leaf of a line.
    pub fn first_row(&self, line: TableLine) -> Option<u32> {
        match line {
            TableLine::Row(id) | TableLine::Member(_, id) => Some(id),
            TableLine::Fold(fold) => {
                self.folds[fold].patterns.first().and_then(|pattern| pattern.rows.first()).copied()
            }
            TableLine::Pattern(fold, pattern) => {
                self.folds[fold].patterns[pattern].rows.first().copied()
            }
            TableLine::State(_) => None,
        }
    }

    pub fn item_sums(&self, rows: &[Row], line: TableLine) -> Sums {
        match line {
            TableLine::State(at) => self.states[at].1,
            TableLine::Fold(fold) => self.folds[fold].sums,
            TableLine::Pattern(fold, pattern) => self.folds[fold].patterns[pattern].sums,
            TableLine::Row(id) | TableLine::Member(_, id) => {
                let row = &rows[id as usize];
                Sums { tensors: 1, values: 0, params: row.params, bytes: row.bytes }
            }
        }
    }

    fn find_places(&mut self, rows: &[Row]) {
        let mut place = vec![NO_LINE; rows.len()];
        for (at, &item) in (0u32..).zip(&self.items) {
            let mut put = |ids: &[u32]| ids.iter().for_each(|&id| place[id as usize] = at);
            match item {
                TableLine::Row(id) | TableLine::Member(_, id) => put(&[id]),
                TableLine::Pattern(fold, pattern) => put(&self.folds[fold].patterns[pattern].rows),
                TableLine::Fold(fold) if !self.folds[fold].open => {
                    self.folds[fold].patterns.iter().for_each(|pattern| put(&pattern.rows));
                }
                TableLine::Fold(_) | TableLine::State(_) => {}
            }
        }
        self.place = place;
        self.largest = self
            .items
            .iter()
            .filter(|item| !matches!(item, TableLine::State(_)))
            .map(|&item| self.item_sums(rows, item).bytes)
            .max()
            .unwrap_or(0);
    }
}

/// Returns the first segment, and whether there are more.
fn top(key: &str, dot: char) -> (&str, bool) {
    match key.split_once(dot) {
        Some((state, _)) => (state, true),
        None => (key, false),
    }
}

/// Returns whether states get rows of their own: not if most of many states hold a single leaf, whose
/// row would say the same.
fn has_heads(rows: &[Row], chosen: &[u32], dot: char) -> bool {
    const MIN_STATES: usize = 20;
    let (mut states, mut single) = (0usize, 0usize);
    let (mut state, mut leaves) = (None, 0u64);
    for &id in chosen {
        let (name, nested) = top(&rows[id as usize].key, dot);
        let next = nested.then_some(name);
        if next.is_none() || state != next {
            single += usize::from(leaves == 1);
            states += usize::from(nested);
            (state, leaves) = (next, 0);
        }
        leaves += u64::from(nested);
    }
    single += usize::from(leaves == 1);
    states < MIN_STATES || single * 2 <= states
}

struct TableBuilder<'a> {
    rows: &'a [Row],
    trie: &'a Trie,
    view: &'a TableView,
    table: &'a mut Table,
    sorted: bool,
    /// Whether states get rows of their own.
    heads: bool,
}

impl TableBuilder<'_> {
    fn top(&mut self) {
        for run in self.trie.runs(0) {
            if run.len > 1 {
                self.fold(0, run);
                continue;
            }
            let child = self.trie.children(0)[run.start] as usize;
            if self.trie.is_leaf(child) || self.sorted || !self.heads {
                self.node(child);
                continue;
            }
            let (state, folds) = (self.table.items.len(), self.table.folds.len());
            self.table.items.push(TableLine::State(self.table.states.len()));
            self.node(child);
            let sums = self.sums(state, folds);
            self.table.states.push((self.trie.name(child).to_owned(), sums));
        }
    }

    /// Returns the sums of the unfolded leaves from a line on, and of the folds from one on.
    fn sums(&self, line: usize, fold: usize) -> Sums {
        let mut sums = Sums::default();
        for item in &self.table.items[line..] {
            if let TableLine::Row(id) = item {
                sums.add_row(&self.rows[*id as usize]);
            }
        }
        self.table.folds[fold..].iter().for_each(|fold| sums.add(&fold.sums));
        sums
    }

    /// Adds lines for a node and everything below it; the recursion is bounded by the depth limit
    /// of the tree.
    fn node(&mut self, at: usize) {
        self.table.items.extend(self.trie.rows(at).iter().map(|&id| TableLine::Row(id)));
        // Most nodes have at most one child, so there is nothing to fold.
        if let [] | [_] = self.trie.children(at) {
            self.trie.children(at).iter().for_each(|&child| self.node(child as usize));
            return;
        }
        for run in self.trie.runs(at) {
            if run.len > 1 {
                self.fold(at, run);
            } else {
                self.node(self.trie.children(at)[run.start] as usize);
            }
        }
    }

    fn fold(&mut self, at: usize, run: ChildRun) {
        let path = self.trie.path(at);
        let members = &self.trie.children(at)[run.start..run.start + run.len];
        let label = self.trie.run_label(at, run);
        let patterns: Vec<FoldPattern> =
            self.trie.patterns(members).into_iter().map(|line| self.pattern(line)).collect();
        let mut sums = Sums::default();
        patterns.iter().for_each(|pattern| sums.add(&pattern.sums));
        let name = join(&path, &label, self.trie.dot());
        let leaves = self.trie.is_leaf(members[0] as usize);
        // Layers are open by default, lists of values closed; the user's toggles invert that.
        let open = leaves == self.view.toggled.contains(&name);
        let fold = self.table.folds.len();
        let kids = patterns.len();
        let member_rows: Vec<u32> = if leaves {
            patterns.iter().flat_map(|pattern| pattern.rows.iter().copied()).collect()
        } else {
            Vec::new()
        };
        self.table.folds.push(Fold {
            container: path.rsplit(self.trie.dot()).next().unwrap_or_default().to_owned(),
            name,
            label,
            member: members[0] as usize,
            times: run.len as u64,
            patterns,
            sums,
            leaves,
            open,
        });
        if self.sorted && !leaves {
            self.table.items.extend((0..kids).map(|pattern| TableLine::Pattern(fold, pattern)));
            return;
        }
        self.table.items.push(TableLine::Fold(fold));
        if open && leaves {
            self.table.items.extend(member_rows.into_iter().map(|id| TableLine::Member(fold, id)));
        } else if open {
            self.table.items.extend((0..kids).map(|pattern| TableLine::Pattern(fold, pattern)));
        }
    }

    fn pattern(&self, line: fold::FoldedKey) -> FoldPattern {
        let row = |id: u32| &self.rows[id as usize];
        let mut sums = Sums::default();
        line.rows.iter().for_each(|&id| sums.add_row(row(id)));
        let one_shape = line.rows.windows(2).all(|pair| row(pair[0]).shape == row(pair[1]).shape);
        FoldPattern { label: line.key, rows: line.rows, sums, one_shape }
    }
}

/// Returns the kind of several rows if they all have the same.
pub fn common_kind(rows: &[Row], ids: &[u32]) -> Option<LeafKind> {
    let first = rows[*ids.first()? as usize].kind;
    ids.iter().all(|&id| rows[id as usize].kind == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use statelens_describe::fold::values_text;

    use super::*;

    use crate::state::sample::{all, gpt, tensor, value};

    fn folded() -> TableView {
        TableView { fold: true, ..TableView::default() }
    }

    fn table(rows: &[Row], view: &TableView) -> Table {
        Table::new(rows, &Trie::new(rows, view.dot), &all(rows), view, None)
    }

    fn lines(rows: &[Row], view: &TableView) -> Vec<String> {
        let table = table(rows, view);
        table
            .items
            .iter()
            .map(|&item| match item {
                TableLine::State(at) => format!("# {}", table.states[at].0),
                TableLine::Row(id) => rows[id as usize].key.clone(),
                TableLine::Fold(at) => {
                    format!("{} x{}", table.folds[at].name, table.folds[at].times)
                }
                TableLine::Pattern(at, kid) => format!("  {}", table.folds[at].patterns[kid].label),
                TableLine::Member(_, id) => format!("  {}", rows[id as usize].key),
            })
            .collect()
    }

    #[test]
    fn state_sums_cover_all_leaves() {
        let rows = gpt(4);
        // Folds of layers and of items, leaves outside folds, and the same with a filter.
        let some: Vec<u32> = all(&rows).into_iter().filter(|id| id % 3 != 1).collect();
        for chosen in [all(&rows), some] {
            let whole = Trie::new(&rows, '.');
            let table = Table::new(&rows, &whole, &chosen, &folded(), None);
            assert!(!table.folds.is_empty() && table.states.len() > 1);
            for (state, sums) in &table.states {
                let mut of_state = Sums::default();
                let below = |id: &&u32| rows[**id as usize].key.starts_with(&format!("{state}."));
                chosen.iter().filter(below).for_each(|&id| of_state.add_row(&rows[id as usize]));
                assert_eq!(*sums, of_state, "{state}");
            }
        }
    }

    #[test]
    fn seed_has_five_rows() {
        let rows: Vec<Row> =
            ["a.b", "a.c", "d.0", "d.1", "d.2"].map(|key| value(key, "0.1")).into();
        assert_eq!(lines(&rows, &folded()), ["# a", "a.b", "a.c", "# d", "d.0", "d.1", "d.2"]);
        assert_eq!(lines(&rows, &TableView::default()), lines(&rows, &folded()));
    }

    #[test]
    fn a_training_state_folds() {
        let rows = gpt(4);
        assert_eq!(
            lines(&rows, &folded()),
            [
                "# model",
                "model.model.wte.weight",
                "model.model.blocks.0\u{2013}3 x4",
                "  ln.weight",
                "  fc.weight",
                "  fc.bias",
                "model.model.lm_head.weight",
                "# optimizer",
                "optimizer.state.0\u{2013}13 x14",
                "  step",
                "  exp_avg",
                "optimizer.param_groups.0.lr",
                "optimizer.param_groups.0.params.0\u{2013}13 x14",
                "global_step",
            ]
        );
        let table = table(&rows, &folded());
        let kid = &table.folds[0].patterns[1];
        assert_eq!((kid.sums.params, kid.one_shape), (4 * 256 * 64, true));
        assert!(!table.folds[1].patterns[1].one_shape);
        assert_eq!(values_text(&rows, &table.folds[2].patterns[0].rows), "0 \u{2026} 13");
    }

    #[test]
    fn folds_layers_once_in_any_order() {
        use crate::state::sample::lexicographic;
        let mut rows = lexicographic(32);
        let patterns = ["  attn.q.weight", "  mlp.up.weight", "  norm.weight"];
        let shown = lines(&rows, &folded());
        assert_eq!(shown[..3], ["# model", "model.embed.weight", "model.layers.0\u{2013}31 x32"]);
        assert_eq!(shown[3..], patterns);
        let odd = rows.iter_mut().find(|row| row.key == "model.layers.3.mlp.up.weight");
        odd.expect("a row").shape = vec![2, 2];
        let shown = lines(&rows, &folded());
        assert_eq!(shown[2], "model.layers.0\u{2013}2,4\u{2013}31 x31");
        let own = ["attn.q", "mlp.up", "norm"].map(|name| format!("model.layers.3.{name}.weight"));
        assert_eq!(shown[6..], own);
    }

    #[test]
    fn toggling_inverts_folds() {
        let rows = gpt(4);
        let mut view = folded();
        view.toggled.insert("model.model.blocks.0\u{2013}3".into());
        view.toggled.insert("optimizer.param_groups.0.params.0\u{2013}13".into());
        let lines = lines(&rows, &view);
        assert!(!lines.contains(&"  ln.weight".to_owned()));
        assert!(lines.contains(&"  optimizer.param_groups.0.params.13".to_owned()));
    }

    #[test]
    fn every_leaf_has_a_line() {
        let rows = gpt(4);
        let mut shut = folded();
        shut.toggled.insert("model.model.blocks.0\u{2013}3".into());
        for view in [
            TableView::default(),
            folded(),
            shut,
            TableView { sort: Some((Column::Bytes, true)), ..folded() },
        ] {
            let table = table(&rows, &view);
            for id in all(&rows) {
                let at = table.place(id).expect("a place");
                let item = table.items[at];
                assert!(
                    matches!(item, TableLine::Row(row) | TableLine::Member(_, row) if row == id)
                        || matches!(item, TableLine::Fold(_))
                        || table.rows_of(item).contains(&id)
                );
            }
        }
    }

    #[test]
    fn states_of_one_leaf_have_no_rows_of_their_own() {
        let heads = |rows: &[Row], fold: bool| {
            let view = TableView { fold, ..TableView::default() };
            let lines = table(rows, &view).items;
            lines.iter().filter(|line| matches!(line, TableLine::State(_))).count()
        };
        let flat: Vec<Row> = (0..100)
            .map(|at| tensor(&format!("x{at:06}_{at}.weight"), "float32", &[at + 1]))
            .collect();
        assert_eq!(heads(&flat, false), 0);
        let few: Vec<Row> = flat[..5].to_vec();
        assert_eq!(heads(&few, false), 5, "few states are shown");
        let pairs: Vec<Row> =
            (0..60).map(|at| tensor(&format!("x{}.{at}", at / 2), "float32", &[at + 1])).collect();
        assert_eq!(heads(&pairs, false), 30);
    }

    #[test]
    fn sorts_by_each_column() {
        let rows = gpt(12);
        let view = TableView { sort: Some((Column::Bytes, true)), ..folded() };
        let table = table(&rows, &view);
        let sizes: Vec<u64> =
            table.items.iter().map(|&item| table.item_sums(&rows, item).bytes).collect();
        assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
        assert!(table.items.iter().all(|item| !matches!(item, TableLine::State(_))));
        let view = TableView { sort: Some((Column::Key, false)), ..TableView::default() };
        let keys = lines(&rows, &view);
        let at = |key: &str| keys.iter().position(|line| line == key).expect("a line");
        assert!(at("optimizer.state.9.step") < at("optimizer.state.10.step"));
    }

    #[test]
    fn filtered_rows_keep_the_sort_order() {
        let rows: Vec<Row> = (0..200)
            .map(|at| tensor(&format!("w_{}.{}", at % 13, at * 7 % 50), "float32", &[at % 5 + 1]))
            .collect();
        let chosen: Vec<u32> = all(&rows).into_iter().filter(|id| id % 3 != 1).collect();
        let trie = Trie::new(&rows, '.');
        for by in [(Column::Key, false), (Column::Bytes, true), (Column::Shape, true)] {
            let view = TableView { sort: Some(by), ..TableView::default() };
            let sorted = SortedRows::new(&rows, by, &view.weights);
            let with = Table::new(&rows, &trie, &chosen, &view, Some(&sorted));
            let without = Table::new(&rows, &trie, &chosen, &view, None);
            assert_eq!(with.items, without.items, "{by:?}");
            assert_eq!(with.items.len(), chosen.len());
        }
    }

    #[test]
    fn unread_rows_sort_last() {
        use statelens_values::SummaryStatistics;
        let rows = gpt(3);
        let mut view = folded();
        let of = |row: u32| {
            let std = Some(f64::from(row % 7));
            (row, SummaryStatistics { std, ..SummaryStatistics::default() })
        };
        view.weights.take((0..8).map(of).collect());
        for down in [true, false] {
            view.sort = Some((Column::Measure(StatisticsField::Std), down));
            let table = table(&rows, &view);
            let known: Vec<Option<f64>> = table
                .items
                .iter()
                .map(|&item| view.weights.sum(table.all_rows_of(item)).std)
                .collect();
            let read = known.iter().flatten().count();
            assert!(read > 2 && known[..read].iter().all(Option::is_some), "{known:?}");
            assert!(
                known[..read].is_sorted_by(|a, b| if down { a >= b } else { a <= b }),
                "{known:?}"
            );
        }
    }

    #[test]
    fn nested_runs_are_one_pattern() {
        let rows: Vec<Row> = (0..3)
            .flat_map(|layer| {
                (0..8).map(move |expert| {
                    tensor(&format!("m.layers.{layer}.experts.{expert}.up"), "bfloat16", &[2, 2])
                })
            })
            .collect();
        let table = table(&rows, &folded());
        assert_eq!(table.folds.len(), 1);
        assert_eq!(table.folds[0].patterns.len(), 1);
        assert_eq!(table.folds[0].patterns[0].label, "experts.0\u{2013}7.up");
        assert_eq!(table.folds[0].patterns[0].rows, all(&rows));
    }
}
