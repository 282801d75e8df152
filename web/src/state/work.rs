//! An open checkpoint on the page: its rows, their arrangement, and the selection.
//!
//! Large parts are shared, so that a changed copy is cheap: the reducer makes one for each action.

mod arranging;
pub mod layers;
pub mod picking;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use statelens_checkpoint::slices::{finish, pause_after};
use statelens_checkpoint::{Grade, order, separator};
use statelens_describe::fold::{Sums, Trie, sums};
use statelens_values::weights::Noticed;

use crate::byte_map::state::{StateShare, TapeMark, TapeMarkKind, takes_room};
use crate::filter::state::Filter;
use crate::filter::state::search::{Search, SearchText};
use crate::multi_select::state::PickedRows;
use crate::open::message::OpenedCheckpoint;
use crate::pieces::message::StoragePlaces;
use crate::rows::Row;
use crate::state::dtype::DTypeFamily;
use crate::state::work::arranging::Arranging;
use crate::state::work::layers::layer_starts;
use crate::table::state::fit::{ColumnWidths, FittingColumns, KeyWidths};
use crate::table::state::{Column, Fold, SortedRows, Table, TableLine, TableView};
use crate::tree::state::Tree;
use crate::values::message::RowStatistics;
use crate::{byte_map, tree};

/// With more top-level keys, these are the keys of a flat dict rather than states.
const MAX_STATES: usize = 100;

/// Up to this many rows are rearranged while values are still being read.
const MAX_LIVE_ROWS: usize = 20_000;

#[derive(Debug, Clone, PartialEq)]
pub enum Selection {
    Row(u32),
    /// A fold, by [`Fold::name`].
    Fold(String),
}

/// Sums over the tensors of a dtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DtypeSums {
    pub tensors: u64,
    /// Their bytes; tied tensors count once.
    pub bytes: u64,
}

/// An open checkpoint, and how it is shown.
#[derive(Debug, Clone)]
pub struct OpenWork {
    /// The worker's reply, without its rows.
    pub opened: Rc<OpenedCheckpoint>,
    /// The leaves, in file order.
    pub rows: Rc<Vec<Row>>,
    pub sums: Sums,
    pub table: Rc<Table>,
    pub tree: Rc<Tree>,
    /// The files or ranks that hold it.
    pub places: Rc<StoragePlaces>,
    /// States and dtypes along the tape.
    pub parts: Rc<Vec<StateShare>>,
    /// The byte of the tape at which each row begins.
    pub starts: Rc<Vec<u64>>,
    /// The ranges of bytes of the tape whose data are missing.
    pub missing: Rc<Vec<(u64, u64)>>,
    /// Marks on the tape: tensors with values that are not finite.
    pub marks: Rc<Vec<TapeMark>>,
    /// The range of the tape that the table is limited to.
    pub range: Option<(u64, u64)>,
    /// The bytes of the tape at which layers begin.
    pub layers: Rc<Vec<u64>>,
    /// Top-level keys with their sums, in order; empty if there are too many to choose from, as in
    /// a flat dict.
    pub states: Rc<Vec<(String, Sums)>>,
    /// Dtypes by short word, the one with the most bytes first.
    pub dtypes: Rc<Vec<(String, DtypeSums)>>,
    pub widths: ColumnWidths,
    pub key_widths: KeyWidths,
    /// The width in pixels of a tree that shows its names in full, within limits.
    pub tree_width: f64,
    pub view: TableView,
    /// The text of the filter box.
    pub filter: String,
    /// The error of the filter, if it can't be parsed.
    pub filter_error: Option<String>,
    /// Whether any finding on opening is more severe than a note.
    pub opened_grave: bool,
    /// Findings about the values; `None` until they were read.
    pub noticed: Option<Rc<Vec<Noticed>>>,
    pub selection: Option<Selection>,
    /// The rows picked for a joint action.
    pub picked: PickedRows,
    /// Incremented when the selection is made outside the table, which then scrolls to it.
    pub scroll: u32,
    /// All keys as a tree; the filtered tree is a part of it.
    pub trie: Rc<Trie>,
    /// The chosen line of the tree, by [`Tree::identity`], and the selection that it made.
    line: Option<(usize, Selection)>,
    /// Lines of the tree whose state differs from the default, by [`Tree::identity`].
    tree_toggled: Rc<HashSet<usize>>,
    /// The family of each node of the tree.
    families: Rc<Vec<DTypeFamily>>,
    /// The keys, prepared for searching.
    keys: Rc<SearchText>,
    chosen: Rc<Vec<u32>>,
    /// All rows by the column that the table is sorted by.
    sorted: Option<Rc<SortedRows>>,
    /// The arrangement of the table that is being made; the last one is shown until it is complete.
    arranging: Option<Arranging>,
    /// A running search. The table shows the first matching rows, and stays unchanged until there
    /// are enough of them.
    search: Option<Search>,
    /// How often the words of the filter were loosened because nothing was found.
    looseness: u32,
    /// Target rows of links, by key, since every visible link is looked up.
    targets: Rc<HashMap<String, u32>>,
    /// The index of the fold member selected last, kept when moving between patterns.
    member: usize,
}

impl PartialEq for OpenWork {
    /// Compares by identity: two states of the page are equal if no part was replaced.
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.rows, &other.rows)
            && Rc::ptr_eq(&self.table, &other.table)
            && Rc::ptr_eq(&self.tree, &other.tree)
            && self.selection == other.selection
            && self.picked == other.picked
            && self.line == other.line
            && self.scroll == other.scroll
            && self.searching() == other.searching()
            && self.arranging() == other.arranging()
            && self.filter == other.filter
            && self.range == other.range
            && self.filter_error == other.filter_error
            && self.view == other.view
            && match (&self.noticed, &other.noticed) {
                (Some(one), Some(other)) => Rc::ptr_eq(one, other),
                (one, other) => one.is_none() && other.is_none(),
            }
    }
}

impl OpenWork {
    /// Arranges the rows of an opened checkpoint.
    pub fn new(opened: OpenedCheckpoint, rows: Vec<Row>) -> Self {
        finish(Self::new_in_slices(opened, rows))
    }

    /// Unpacks and arranges the rows of an opened checkpoint, with pauses; `None` if they were not
    /// packed by [`PackedRows::pack`](crate::rows::PackedRows::pack).
    pub async fn unpack(mut opened: OpenedCheckpoint) -> Option<Self> {
        let packed = std::mem::take(&mut opened.rows);
        let rows = packed.first(packed.count()).await?;
        Some(Self::new_in_slices(opened, rows).await)
    }

    async fn new_in_slices(mut opened: OpenedCheckpoint, rows: Vec<Row>) -> Self {
        let count = rows.len();
        let all: Vec<u32> = (0..count as u32).collect();
        let dot = separator(opened.slash_keys, &mut rows.iter().map(|row| &*row.key));
        let trie = Trie::new_in_slices(&rows, dot).await;
        let families = tree::state::families(&trie, &rows).await;
        let view = TableView { fold: true, dot, ..TableView::default() };
        let table = Table::new_in_slices(&rows, &trie, &all, &view, None).await;
        let toggled = HashSet::new();
        let tree = Tree::new_in_slices(&trie, &families, &toggled).await;
        let starts = byte_map::state::starts(&rows);
        let layers = layer_starts(&table, &trie, &starts);
        pause_after(count).await;
        let missing = byte_map::state::missing(&rows, &starts);
        let states = match trie.children(0) {
            many if many.len() > MAX_STATES => Vec::new(),
            few => {
                let state =
                    |&at: &u32| (trie.name(at as usize).to_owned(), *trie.sums(at as usize));
                few.iter().map(state).collect()
            }
        };
        pause_after(count).await;
        let (sums, dtypes) = (sums(&rows), dtypes(&rows));
        pause_after(count).await;
        let parts = byte_map::state::parts(&rows, dot).await;
        let widths = ColumnWidths::of(&rows);
        pause_after(count).await;
        let key_widths = KeyWidths::of(&rows, &table);
        pause_after(count).await;
        let keys = SearchText::new(&rows).await;
        let targets = targets(&rows);
        pause_after(count).await;
        Self {
            places: Rc::new(std::mem::take(&mut opened.places)),
            opened_grave: opened.findings.iter().any(|one| one.grade != Grade::Note),
            opened: Rc::new(opened),
            sums,
            parts: Rc::new(parts),
            starts: Rc::new(starts),
            missing: Rc::new(missing),
            marks: Rc::default(),
            range: None,
            layers: Rc::new(layers),
            states: Rc::new(states),
            dtypes: Rc::new(dtypes),
            widths,
            key_widths,
            tree_width: tree.fitting_width(&trie),
            table: Rc::new(table),
            tree: Rc::new(tree),
            view,
            filter: String::new(),
            filter_error: None,
            noticed: None,
            selection: None,
            picked: PickedRows::default(),
            scroll: 0,
            line: None,
            tree_toggled: Rc::new(toggled),
            trie: Rc::new(trie),
            families: Rc::new(families),
            keys: Rc::new(keys),
            chosen: Rc::new(all),
            sorted: None,
            arranging: None,
            search: None,
            looseness: 0,
            targets: Rc::new(targets),
            member: 0,
            rows: Rc::new(rows),
        }
    }

    /// Returns which columns to show in a table of this width in pixels.
    pub fn fitting_columns(&self, room: f64, narrow: bool) -> FittingColumns {
        let folded = self.view.fold && !self.table.folds.is_empty();
        let keys = (&self.key_widths, folded);
        if !self.view.weights.any() {
            return self.widths.fitting_plain(keys, (room, narrow));
        }
        self.widths.fitting(self.view.chosen, keys, (room, narrow))
    }

    /// Returns whether the checkpoint is a single array that has no key.
    pub fn is_lone_array(&self) -> bool {
        matches!(&**self.rows, [row] if row.kind.has_shape() && row.key.is_empty())
    }

    /// Returns the selected leaf.
    pub fn row(&self) -> Option<u32> {
        match self.selection {
            Some(Selection::Row(row)) => Some(row),
            _ => None,
        }
    }

    /// Returns the selected fold.
    pub fn fold(&self) -> Option<&Fold> {
        match &self.selection {
            Some(Selection::Fold(name)) => self.table.folds.iter().find(|fold| fold.name == *name),
            _ => None,
        }
    }

    /// Returns the selected line of the table.
    pub fn cursor(&self) -> Option<usize> {
        match &self.selection {
            Some(Selection::Row(row)) => self.table.place(*row),
            Some(Selection::Fold(name)) => self.table.items.iter().position(
                |item| matches!(item, TableLine::Fold(fold) if self.table.folds[*fold].name == *name),
            ),
            None => None,
        }
    }

    /// Returns the chosen line of the tree, or else the deepest one that holds the selection.
    pub fn branch(&self) -> Option<usize> {
        if let Some((identity, selection)) = &self.line
            && self.selection.as_ref() == Some(selection)
            && let Some(line) = self.tree.find(*identity)
        {
            return Some(line);
        }
        let fold = match &self.selection {
            Some(Selection::Row(row)) => return self.tree.holding(&self.trie, *row),
            Some(Selection::Fold(_)) => self.fold()?,
            None => return None,
        };
        let mut line = self.tree.holding(&self.trie, *fold.patterns.first()?.rows.first()?)?;
        while self.tree.path(&self.trie, line) != fold.name {
            line = self.tree.up(line)?;
        }
        Some(line)
    }

    /// Limits the table to the tensors in a range of the tape; `None` shows all.
    pub fn set_range(&mut self, range: Option<(u64, u64)>) {
        self.range = range;
        let text = self.filter.clone();
        self.set_filter(&text);
    }

    /// Removes the rows that are not in the chosen range of the tape.
    fn limit(&self, rows: &mut Vec<u32>) {
        let Some((from, to)) = self.range else { return };
        rows.retain(|&at| {
            let (row, start) = (&self.rows[at as usize], self.starts[at as usize]);
            takes_room(row) && start < to && start.saturating_add(row.bytes) > from
        });
    }

    /// Changes the filter.
    pub fn set_filter(&mut self, text: &str) {
        text.clone_into(&mut self.filter);
        match Filter::parse(text) {
            Ok(filter) => {
                self.filter_error = None;
                self.looseness = 0;
                self.search = Some(Search::new(filter, &self.keys));
                self.continue_search();
            }
            // While a term is being typed, the rows stay unchanged; a search whose first rows are
            // shown is completed.
            Err(error) => {
                self.filter_error = Some(error);
                self.search = self.search.take().filter(Search::is_shown);
            }
        }
    }

    /// Continues what runs in slices: a search, and arranging the table.
    pub fn continue_slices(&mut self) {
        self.continue_search();
        self.continue_arranging();
    }

    fn continue_search(&mut self) {
        let Some(mut search) = self.search.take() else { return };
        if search.run_batch(&self.rows, &self.view.weights) {
            let mut found = search.found();
            let is_empty = found.is_empty();
            self.limit(&mut found);
            if is_empty
                && let Some(filter) = Filter::parse(&self.filter)
                    .ok()
                    .and_then(|filter| filter.loosened(self.looseness))
            {
                self.looseness += 1;
                self.search = Some(Search::new(filter, &self.keys));
                return self.continue_search();
            }
            // Another keystroke often changes nothing.
            if found != *self.chosen {
                self.chosen = Rc::new(found);
                self.rearrange();
            }
        } else {
            if let Some(mut first) = search.first() {
                self.limit(&mut first);
                self.chosen = Rc::new(first);
                self.rearrange();
            }
            self.search = Some(search);
        }
    }

    /// Returns whether no key has the words of the filter, so that keys are shown that have parts
    /// which begin like them.
    pub fn is_loosened(&self) -> bool {
        self.looseness > 1 && !self.chosen.is_empty() && !self.filter.is_empty()
    }

    /// Returns the number of rows tested by a running search.
    pub fn searching(&self) -> Option<usize> {
        self.search.as_ref().map(Search::tested)
    }

    /// Adds a term to the filter, or removes it; terms with the prefix `family` are replaced.
    pub fn toggle_term(&mut self, term: &str, family: &str) {
        let has = self.filter.split_whitespace().any(|word| word == term);
        let mut words: Vec<&str> =
            self.filter.split_whitespace().filter(|word| !word.starts_with(family)).collect();
        if !has && !term.is_empty() {
            words.push(term);
        }
        self.set_filter(&words.join(" "));
    }

    /// Folds repeated layers, or shows every leaf.
    pub fn toggle_folding(&mut self) {
        self.change_view(|view| view.fold = !view.fold);
        self.reveal();
    }

    /// Sorts folds by the size of one member, or by their sums.
    pub fn toggle_by_member(&mut self) {
        self.change_view(|view| view.by_member = !view.by_member);
    }

    /// Sorts by a column; repeated calls go from the first direction to the other, then to file
    /// order. Numbers are descending first.
    pub fn sort_by(&mut self, column: Column) {
        let first = matches!(column, Column::Params | Column::Bytes | Column::Measure(_));
        self.change_view(|view| {
            view.sort = match view.sort {
                Some((old, down)) if old == column && down == first => Some((column, !first)),
                Some((old, _)) if old == column => None,
                _ => Some((column, first)),
            };
        });
    }

    /// Stores statistics. A table that is sorted or filtered by them is rearranged at the `end`,
    /// and before that if it is small.
    pub fn add_values(&mut self, read: RowStatistics, end: bool) {
        let odd = read.iter().filter(|(_, of)| of.nan + of.infinite > 0).filter_map(|(row, _)| {
            let at = *row as usize;
            TapeMark::of(self.rows.get(at)?, *self.starts.get(at)?, TapeMarkKind::NotFinite)
        });
        let odd: Vec<TapeMark> = odd.filter(|mark| !self.marks.contains(mark)).collect();
        if !odd.is_empty() {
            Rc::make_mut(&mut self.marks).extend(odd);
        }
        self.view.weights.take(read);
        if !end && self.rows.len() > MAX_LIVE_ROWS {
            return;
        }
        if matches!(self.view.sort, Some((Column::Measure(_), _))) {
            self.sorted = None;
            self.rearrange();
        }
        if Filter::parse(&self.filter).is_ok_and(|filter| filter.is_of_values()) {
            let text = self.filter.clone();
            self.set_filter(&text);
        }
    }

    /// Returns the number of values that are NaN or infinite, of the tensors that were read.
    pub fn not_finite(&self) -> u64 {
        self.view.weights.not_finite()
    }

    /// Stores the findings about values.
    pub fn set_value_findings(&mut self, noticed: Vec<Noticed>) {
        let odd = noticed.iter().filter(|noticed| noticed.series.is_some());
        self.view
            .weights
            .mark(odd.flat_map(|noticed| noticed.tensors.iter().map(|row| *row as u32)));
        self.noticed = Some(Rc::new(noticed));
    }

    /// Opens or closes a fold.
    pub fn toggle_fold(&mut self, name: &str) {
        self.change_view(|view| {
            if !view.toggled.remove(name) {
                view.toggled.insert(name.to_owned());
            }
        });
    }

    /// Opens or closes a line of the tree, by [`Tree::identity`].
    pub fn toggle_branch(&mut self, identity: usize) {
        let toggled = Rc::make_mut(&mut self.tree_toggled);
        if !toggled.remove(&identity) {
            toggled.insert(identity);
        }
        self.tree = Rc::new(Tree::new(&self.trie, &self.families, toggled));
    }

    pub fn select_line(&mut self, line: usize) {
        let Some(&item) = self.table.items.get(line) else { return };
        let selection = match item {
            TableLine::State(_) => return,
            TableLine::Row(row) | TableLine::Member(_, row) => Selection::Row(row),
            TableLine::Fold(fold) => Selection::Fold(self.table.folds[fold].name.clone()),
            TableLine::Pattern(..) => {
                let rows = self.table.rows_of(item);
                match rows.get(self.member).or(rows.first()) {
                    Some(&row) => Selection::Row(row),
                    None => return,
                }
            }
        };
        self.select(selection);
    }

    /// Selects a leaf from outside the table, which scrolls to it. A filter that hides the leaf is
    /// cleared.
    pub fn select_row(&mut self, row: u32) {
        if self.table.place(row).is_none() && (!self.filter.is_empty() || self.range.is_some()) {
            self.range = None;
            self.set_filter("");
        }
        self.select(Selection::Row(row));
        self.reveal();
    }

    /// Selects a fold from outside the table, if there is one of that name; the table scrolls to
    /// it.
    pub fn select_fold(&mut self, name: &str) {
        if self.table.folds.iter().any(|fold| fold.name == name) {
            self.selection = Some(Selection::Fold(name.to_owned()));
            self.scroll += 1;
        }
    }

    fn select(&mut self, selection: Selection) {
        if let Selection::Row(row) = selection {
            let rows = self.table.clone();
            if let Some((_, _, at)) = rows.pattern_of(row) {
                self.member = at;
            }
        }
        self.selection = Some(selection);
    }

    /// Selects the first leaf under a line of the tree.
    pub fn select_branch(&mut self, at: usize) {
        let Some(branch) = self.tree.lines.get(at) else { return };
        let (first, folds, identity) = (branch.first, branch.times > 1, self.tree.identity(at));
        self.select_row(first);
        if folds {
            let path = self.tree.path(&self.trie, at);
            if self.table.folds.iter().any(|fold| fold.name == path) {
                self.selection = Some(Selection::Fold(path));
            }
        }
        self.line = self.selection.clone().map(|selection| (identity, selection));
    }

    /// Moves the selection by lines, skipping state rows.
    pub fn step(&mut self, by: isize) {
        let items = &self.table.items;
        if items.is_empty() {
            return;
        }
        let last = items.len() as isize - 1;
        let start = self.cursor().map_or(if by > 0 { -1 } else { 0 }, |at| at as isize);
        let mut at = (start + by).clamp(0, last);
        let mut way = if by < 0 { -1 } else { 1 };
        // Below a state row there is always a leaf, so reversing at the top terminates.
        while matches!(items[at as usize], TableLine::State(_)) {
            if at + way < 0 {
                way = 1;
            }
            at = (at + way).min(last);
        }
        self.select_line(at as usize);
        self.scroll += 1;
    }

    /// Selects the first or the last line.
    pub fn step_to_end(&mut self, last: bool) {
        let mut lines = self.table.items.iter().enumerate();
        let is_state = |(_, item): &(usize, &TableLine)| !matches!(item, TableLine::State(_));
        let line = if last { lines.rfind(is_state) } else { lines.find(is_state) };
        if let Some((at, _)) = line {
            self.select_line(at);
            self.scroll += 1;
        }
    }

    /// Opens the selected fold, or closes the one that holds the selection.
    pub fn unfold(&mut self, open: bool) {
        let Some(cursor) = self.cursor() else { return };
        match self.table.items[cursor] {
            TableLine::Fold(fold) if self.table.folds[fold].open != open => {
                let name = self.table.folds[fold].name.clone();
                self.toggle_fold(&name);
            }
            TableLine::Pattern(fold, _) | TableLine::Member(fold, _) if !open => {
                let name = self.table.folds[fold].name.clone();
                self.selection = Some(Selection::Fold(name));
                self.scroll += 1;
            }
            _ => {}
        }
    }

    /// Returns the row with a key, such as the target of a link.
    pub fn find(&self, key: &str) -> Option<u32> {
        let known = self.targets.get(key).copied();
        known.or_else(|| self.rows.iter().position(|row| row.key == key).map(|at| at as u32))
    }
}

fn targets(rows: &[Row]) -> HashMap<String, u32> {
    let wanted: HashSet<&str> = rows.iter().filter_map(|row| row.link.as_deref()).collect();
    let mut found = HashMap::new();
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| wanted.contains(row.key.as_str())) {
        found.entry(row.key.clone()).or_insert(at as u32);
    }
    found
}

fn dtypes(rows: &[Row]) -> Vec<(String, DtypeSums)> {
    let mut out: Vec<(String, DtypeSums)> = Vec::new();
    for run in rows.chunk_by(|one, other| one.kind == other.kind && one.dtype == other.dtype) {
        if !run[0].kind.has_shape() {
            continue;
        }
        let word = crate::state::dtype::word(&run[0]);
        let at = out.iter().position(|entry| entry.0 == word).unwrap_or_else(|| {
            out.push((word, DtypeSums::default()));
            out.len() - 1
        });
        let sums = &mut out[at].1;
        sums.tensors += run.len() as u64;
        let bytes = run.iter().filter(|row| row.link.is_none()).map(|row| row.bytes);
        sums.bytes = bytes.fold(sums.bytes, u64::saturating_add);
    }
    order::by_key(&mut out, |entry| std::cmp::Reverse((entry.1.bytes, entry.1.tensors)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::sample::{gpt, work as of};

    fn work(layers: u64) -> OpenWork {
        of(gpt(layers))
    }

    fn key(work: &OpenWork) -> &str {
        work.row().map_or("", |row| &work.rows[row as usize].key)
    }

    #[test]
    fn step_skips_states_and_enters_folds() {
        let mut work = work(4);
        work.step(1);
        assert_eq!(key(&work), "model.model.wte.weight");
        work.step(1);
        assert_eq!(work.fold().map(|fold| fold.times), Some(4));
        work.step(1);
        assert_eq!(key(&work), "model.model.blocks.0.ln.weight");
        work.step_layer(1);
        work.step_layer(1);
        assert_eq!(key(&work), "model.model.blocks.2.ln.weight");
        work.step(1);
        assert_eq!(key(&work), "model.model.blocks.2.fc.weight");
        work.step_layer(9);
        assert_eq!(key(&work), "model.model.blocks.3.fc.weight");
        work.step_to_end(true);
        assert_eq!(key(&work), "global_step");
        work.step(-100);
        assert_eq!(key(&work), "model.model.wte.weight");
    }

    #[test]
    fn closing_a_fold_keeps_the_selection() {
        let mut work = work(4);
        work.select_row(2);
        work.unfold(false);
        assert_eq!(work.fold().map(|fold| fold.open), Some(true));
        work.unfold(false);
        assert_eq!(work.fold().map(|fold| fold.open), Some(false));
        work.unfold(true);
        assert_eq!(work.fold().map(|fold| fold.open), Some(true));
        let branch = work.branch().expect("a branch");
        assert_eq!(work.tree.name(&work.trie, branch), "blocks");
    }

    #[test]
    fn selecting_a_hidden_row_clears_the_filter() {
        let mut work = work(4);
        work.set_filter("fc kind:tensor");
        assert_eq!(work.table.leaves, 8);
        work.set_filter("kind:banana");
        assert!(work.filter_error.is_some());
        assert_eq!(work.table.leaves, 8);
        work.select_row(0);
        assert_eq!((work.filter.as_str(), work.table.leaves), ("", work.rows.len()));
        work.toggle_term("dtype:bf16", "dtype:");
        work.toggle_term("dtype:f32", "dtype:");
        assert_eq!(work.filter, "dtype:f32");
        work.toggle_term("dtype:f32", "dtype:");
        assert_eq!(work.filter, "");
    }

    #[test]
    fn tree_line_stays_chosen_until_the_selection_changes() {
        // Enough layers that they are open by default.
        let mut work = work(32);
        for line in [0, 1, 3, 0, work.tree.lines.len() - 1] {
            work.select_branch(line);
            assert_eq!(work.branch(), Some(line));
        }
        work.select_branch(1);
        work.toggle_branch(work.tree.identity(1));
        assert_eq!((work.branch(), work.tree.lines[1].open), (Some(1), Some(false)));
        work.toggle_branch(work.tree.identity(1));
        work.step(1);
        work.step(1);
        let branch = work.branch().expect("a branch");
        assert_eq!(work.tree.name(&work.trie, branch), "ln");
        // A closed line holds the selection.
        work.toggle_branch(work.tree.identity(3));
        let branch = work.branch().expect("a branch");
        assert_eq!(work.tree.name(&work.trie, branch), "blocks");
    }

    #[test]
    fn sorting_hides_no_column() {
        let mut work = work(4);
        for room in (300..1500).step_by(10).map(f64::from) {
            work.change_view(|view| view.sort = None);
            let before = work.fitting_columns(room, false);
            work.change_view(|view| view.sort = Some((Column::Params, true)));
            assert_eq!(work.fitting_columns(room, false), before, "{room}");
        }
    }

    #[test]
    fn repeated_sorting_returns_to_file_order() {
        let mut work = work(4);
        let sorts: Vec<_> = (0..3)
            .map(|_| {
                work.sort_by(Column::Bytes);
                work.view.sort
            })
            .collect();
        assert_eq!(sorts, [Some((Column::Bytes, true)), Some((Column::Bytes, false)), None]);
    }

    #[test]
    fn regular_expressions_are_matched_in_batches() {
        let mut work = work(2800);
        assert!(work.rows.len() > 20_000);
        work.toggle_folding();
        work.set_filter("fc");
        assert_eq!((work.table.leaves, work.searching()), (5600, None));
        work.set_filter("/fc[.]w/");
        let begun = work.searching().expect("a search");
        assert!((200..2800).contains(&work.table.leaves), "the first of them are shown");
        work.continue_slices();
        assert!(work.searching().is_some_and(|tested| tested > begun));
        while work.searching().is_some() {
            work.continue_slices();
        }
        assert_eq!(work.table.leaves, 2800);
        work.set_filter("/fc[.]b/");
        work.set_filter("ln");
        assert_eq!((work.table.leaves, work.searching()), (2800, None));
        work.set_filter("/nothing[.]like/");
        work.set_filter("/(/");
        assert_eq!((work.table.leaves, work.searching()), (2800, None), "what was found stays");
        // If many rows match, the first are shown before all were tested, and never pass for all of
        // them.
        work.set_filter("/[.]/");
        let all = work.rows.iter().filter(|row| row.key.contains('.')).count();
        assert!((200..all).contains(&work.table.leaves), "{}", work.table.leaves);
        work.set_filter("/(/");
        while work.searching().is_some() {
            work.continue_slices();
        }
        assert_eq!(work.table.leaves, all);
    }
}
