//! The flattened state as the table shows it: state rows, folds, patterns, leaves.

pub mod fit;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use statelens_checkpoint::natural_order;
use statelens_checkpoint::order;
use statelens_checkpoint::slices::{ITEMS, finish, pause};
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

/// Number of lines between two pauses of passes that take little time for each.
const LINES: usize = 8 * ITEMS;

/// All rows sorted by a column. Rows that pass a filter are picked from it at each keystroke,
/// instead of being sorted again.
#[derive(Debug)]
pub struct SortedRows {
    by: (Column, bool),
    order: Vec<u32>,
}

impl SortedRows {
    /// Sorts all rows by a column, and whether descending; with pauses.
    pub async fn new(rows: &[Row], by: (Column, bool), weights: &Weights) -> Self {
        let items = (0..rows.len() as u32).map(TableLine::Row).collect();
        let mut table = Table { items, ..Table::default() };
        table.sort(rows, by, false, weights).await;
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
        finish(Self::new_in_slices(rows, whole, chosen, view, sorted))
    }

    /// Like [`Table::new`], with pauses.
    pub async fn new_in_slices(
        rows: &[Row],
        whole: &Trie,
        chosen: &[u32],
        view: &TableView,
        sorted: Option<&SortedRows>,
    ) -> Self {
        let mut table = Self { leaves: chosen.len(), ..Self::default() };
        let heads = has_heads(rows, chosen, view.dot).await;
        if view.fold {
            let part;
            let trie = if chosen.len() == rows.len() {
                whole
            } else {
                part = whole.of_in_slices(chosen).await;
                &part
            };
            let sorted = view.sort.is_some();
            TableBuilder { rows, trie, view, table: &mut table, sorted, heads }.top().await;
        } else if view.sort.is_some() {
            table.items = chosen.iter().map(|&id| TableLine::Row(id)).collect();
        } else {
            table.flat(rows, chosen, view.dot, heads).await;
        }
        if let Some((column, down)) = view.sort {
            match sorted.filter(|sorted| sorted.by == (column, down) && table.folds.is_empty()) {
                Some(sorted) => table.items = sorted.items(chosen),
                None => table.sort(rows, (column, down), view.by_member, &view.weights).await,
            }
        }
        table.find_places(rows).await;
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
    async fn flat(&mut self, rows: &[Row], chosen: &[u32], dot: char, heads: bool) {
        // A key without a dot is its own state, which gets no state row.
        let (mut state, mut shown) = (None, false);
        for (count, &id) in chosen.iter().enumerate() {
            if count % LINES == LINES - 1 {
                pause().await;
            }
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

    async fn sort(
        &mut self,
        rows: &[Row],
        (column, down): (Column, bool),
        by_member: bool,
        weights: &Weights,
    ) {
        let mut items = std::mem::take(&mut self.items);
        if let Column::Measure(measure) = column {
            let of = |item| weights.sum(self.all_rows_of(item)).measure(measure);
            let mut known: Vec<(Option<f64>, TableLine)> = Vec::with_capacity(items.len());
            for some in items.chunks(ITEMS) {
                known.extend(some.iter().map(|&item| (of(item), item)));
                pause().await;
            }
            // Rows that were not read come last in either direction.
            let compare =
                |(a, _): &(Option<f64>, TableLine), (b, _): &(Option<f64>, TableLine)| match (a, b)
                {
                    (Some(a), Some(b)) if down => b.total_cmp(a),
                    (Some(a), Some(b)) => a.total_cmp(b),
                    (a, b) => a.is_none().cmp(&b.is_none()),
                };
            order::by_in_slices(&mut known, compare).await;
            self.items = known.into_iter().map(|(_, item)| item).collect();
            return;
        }
        let compare = |&a: &TableLine, &b: &TableLine| {
            let order = self.compare(rows, column, by_member, (a, b));
            if down { order.reverse() } else { order }
        };
        order::by_in_slices(&mut items, compare).await;
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

    async fn find_places(&mut self, rows: &[Row]) {
        let mut place = vec![NO_LINE; rows.len()];
        for (at, &item) in (0u32..).zip(&self.items) {
            if at as usize % LINES == LINES - 1 {
                pause().await;
            }
            if !matches!(item, TableLine::State(_)) {
                self.largest = self.largest.max(self.item_sums(rows, item).bytes);
            }
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
async fn has_heads(rows: &[Row], chosen: &[u32], dot: char) -> bool {
    const MIN_STATES: usize = 20;
    let (mut states, mut single) = (0usize, 0usize);
    let (mut state, mut leaves) = (None, 0u64);
    for (count, &id) in chosen.iter().enumerate() {
        if count % LINES == LINES - 1 {
            pause().await;
        }
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
    async fn top(&mut self) {
        for (count, run) in self.trie.runs(0).into_iter().enumerate() {
            if count % ITEMS == ITEMS - 1 {
                pause().await;
            }
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
