//! The state of a comparison, and its transitions.

use std::collections::HashMap;
use std::rc::Rc;

use statelens_compare::check::parts_sides;
use statelens_compare::diff::{PairChange, role_of};

use crate::compare::message::tensor_diff::{Renames, TensorDiff};
use crate::compare::message::{
    CompareOptions, ComparedFile, ComparisonUpdate, NO_ROW, StateDictCheck, StructureDifference,
};
use crate::compare::state::{CompareLine, CompareOrder, CompareView, Pairs, RowPair, lines};
use crate::open::message::OpenedCheckpoint;
use crate::page::drop::DroppedFile;
use crate::protocol::error::ErrorText;
use crate::rows::Row;
use crate::state::task::Task;
use crate::state::work::OpenWork;

/// A comparison of the open checkpoint with a second one.
#[derive(Debug, Clone)]
pub struct ComparisonState {
    /// The files of the second checkpoint.
    pub files: Rc<Vec<DroppedFile>>,
    /// Index of the file that the user chose to open.
    pub main: Option<u32>,
    /// The two rows of the open checkpoint that are compared instead of two checkpoints.
    pub picked: Option<(u32, u32)>,
    /// The second checkpoint, once it is open.
    pub opened: Option<Rc<OpenedCheckpoint>>,
    /// Rows of the second checkpoint.
    pub rows: Rc<Vec<Row>>,
    /// Number of keys listed, if the second file is a list of expected keys and not a checkpoint.
    pub listed: Option<u64>,
    /// Why the second file can't be opened or compared.
    pub error: Option<Rc<ErrorText>>,
    pub options: Rc<CompareOptions>,
    /// Incremented with each change of the options.
    pub request: u32,
    /// The pairs of rows, with the differences found so far.
    pub pairs: Option<Rc<Pairs>>,
    /// A rename rule that would make more keys match, and how many.
    pub rename: Option<(String, u64)>,
    /// Whether to suggest that rule unprompted, because hardly any key is on both sides without it.
    pub different_keys: bool,
    /// Whether only one side is quantised, so that all its tensors differ.
    pub quantised: bool,
    /// The command line that does the same comparison.
    pub command: String,
    /// Reading values; idle if it was stopped.
    pub reading: Task<ComparisonUpdate>,
    /// The result of checking whether the first checkpoint would load into the second.
    pub checked: Option<Rc<StateDictCheck>>,
    /// Whether missing and unexpected keys make that check fail.
    pub strict: bool,
    /// The release that would load the checkpoint; empty for any.
    pub release: String,
    /// View options of the table.
    pub view: CompareView,
    pub lines: Rc<Vec<CompareLine>>,
    /// Error of the filter, if it can't be parsed.
    pub filter_error: Option<String>,
    /// Index of the selected line.
    pub at: usize,
    /// Index of the selected row among the rows folded into that line.
    pub member: usize,
    /// Incremented when the selection changed outside the table, so that the table scrolls to it.
    pub scroll: u32,
    /// True while the options are shown.
    pub matching: bool,
    /// The pair of rows compared in detail, and the progress or result of that.
    pub tensor_diff: Option<((u32, u32), Task<TensorDiff>)>,
    /// The compared pairs of tensors by role within their layer: layer number and norms.
    pub layers: Rc<HashMap<String, Vec<(u64, PairChange)>>>,
    /// Progress or result of the search for tensors that have another key on the other side.
    pub renaming: Task<Renames>,
}

impl PartialEq for ComparisonState {
    /// Compares by address: the value is shared in an `Rc` and copied on change.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl ComparisonState {
    /// Creates a comparison with the checkpoint in `files`.
    pub fn new(files: Vec<DroppedFile>, main: Option<u32>) -> Self {
        Self {
            files: Rc::new(files),
            main,
            picked: None,
            opened: None,
            rows: Rc::new(Vec::new()),
            listed: None,
            error: None,
            options: Rc::new(CompareOptions::default()),
            request: 0,
            pairs: None,
            rename: None,
            different_keys: false,
            quantised: false,
            command: String::new(),
            reading: Task::started(),
            checked: None,
            strict: true,
            release: String::new(),
            view: CompareView::default(),
            lines: Rc::new(Vec::new()),
            filter_error: None,
            at: 0,
            member: 0,
            scroll: 0,
            matching: false,
            tensor_diff: None,
            layers: Rc::default(),
            renaming: Task::Idle,
        }
    }

    /// Creates a comparison of two rows of the open checkpoint.
    pub fn of_rows(work: &OpenWork, a: u32, b: u32) -> Self {
        let rows = work.rows.get(b as usize).cloned().into_iter().collect();
        Self {
            picked: Some((a, b)),
            opened: Some(work.opened.clone()),
            rows: Rc::new(rows),
            request: 1,
            ..Self::new(Vec::new(), None)
        }
    }

    /// Returns the name of the second checkpoint.
    pub fn name(&self) -> String {
        match &self.opened {
            Some(opened) => opened.name.clone(),
            None => {
                let file = self.files.get(self.main.unwrap_or(0) as usize);
                file.map(|file| file.name.path.clone()).unwrap_or_default()
            }
        }
    }

    /// Sets the second side, or why it can't be opened.
    pub fn set_opened(&mut self, opened: Result<ComparedFile, ErrorText>) {
        match opened {
            Ok(ComparedFile::Checkpoint(mut opened)) => {
                match std::mem::take(&mut opened.rows).unpack() {
                    Some(rows) => {
                        self.rows = Rc::new(rows);
                        self.main = Some(opened.main);
                        self.opened = Some(Rc::new(*opened));
                        self.request = 1;
                    }
                    None => self.error = Some(Rc::new(ErrorText::misfit())),
                }
            }
            Ok(ComparedFile::List(keys)) => self.listed = Some(keys),
            Err(error) => self.error = Some(Rc::new(error)),
        }
    }

    /// Applies results of the comparison; `rows` are those of the open checkpoint.
    pub fn add_results(&mut self, mut update: ComparisonUpdate, done: bool, rows: &Rc<Vec<Row>>) {
        // Results of an earlier comparison may arrive while the second checkpoint is being opened.
        if self.request == 0 {
            return;
        }
        match update.structure.take() {
            Some(Ok(structure)) => {
                let picked = self.picked.and_then(|(a, _)| rows.get(a as usize));
                let first = picked.map_or_else(|| rows.clone(), |row| Rc::new(vec![row.clone()]));
                self.set_structure(structure, &first);
            }
            Some(Err(error)) => {
                self.error = Some(Rc::new(error));
                self.pairs = None;
                self.rebuild_lines();
            }
            None => {}
        }
        if let Some(pairs) = &mut self.pairs {
            let layers = Rc::make_mut(&mut self.layers);
            for one in std::mem::take(&mut update.measured) {
                let Some(row) = pairs.a.get(one.leaf) else { continue };
                let Some((role, layer)) = role_of(&row.key) else { continue };
                let measured = PairChange { key: row.key.as_str().into(), ..one };
                layers.entry(role).or_default().push((layer, measured));
            }
            if !(update.settled.is_empty() && update.found.is_empty()) {
                Rc::make_mut(pairs).add_results(&update.settled, &update.found);
                self.rebuild_lines();
            }
        }
        if done {
            self.reading.set(update, true);
        }
    }

    fn set_structure(&mut self, structure: StructureDifference, first: &Rc<Vec<Row>>) {
        self.error = None;
        (self.layers, self.tensor_diff) = (Rc::default(), None);
        self.pairs = Some(Rc::new(Pairs::new(first.clone(), self.rows.clone(), &structure)));
        self.rename = structure.rename;
        self.quantised = structure.quantised;
        if self.quantised {
            // The worst layers first.
            (self.view.order, self.view.fold) = (CompareOrder::Relative, false);
        }
        let common = structure.pairs.iter().filter(|pair| **pair != NO_ROW).count() as u64;
        let fewer = first.len().min(self.rows.len()) as u64;
        self.different_keys =
            self.rename.as_ref().is_some_and(|(_, keys)| parts_sides(*keys, common, fewer));
        // The command compares whole checkpoints.
        self.command = if self.picked.is_some() { String::new() } else { structure.command };
        (self.at, self.member) = (0, 0);
        self.rebuild_lines();
    }

    /// Changes the options, and restarts the comparison if they differ.
    pub fn change_options(&mut self, change: impl FnOnce(&mut CompareOptions)) {
        let before = self.options.clone();
        change(Rc::make_mut(&mut self.options));
        if *before != *self.options {
            self.restart();
        }
    }

    pub fn restart(&mut self) {
        self.request += 1;
        self.error = None;
        self.reading = Task::started();
    }

    /// Changes the view options of the table, and selects its first line.
    pub fn show(&mut self, change: impl FnOnce(&mut CompareView)) {
        change(&mut self.view);
        (self.at, self.member) = (0, 0);
        self.scroll += 1;
        self.rebuild_lines();
    }

    /// Rebuilds the lines. Keeps the selected pair selected if it is still listed.
    fn rebuild_lines(&mut self) {
        let selected = self.pair_at();
        let (lines, error) = match &self.pairs {
            Some(pairs) => lines(pairs, &self.view),
            None => (Vec::new(), None),
        };
        if let Some(selected) = selected {
            let mut places = lines.iter().enumerate().filter(|(_, line)| !line.rest);
            let place = places.find_map(|(at, line)| {
                Some((at, line.pairs.iter().position(|pair| *pair == selected)?))
            });
            if let Some(place) = place {
                (self.at, self.member) = place;
            }
        }
        self.at = self.at.min(lines.len().saturating_sub(1));
        self.lines = Rc::new(lines);
        self.filter_error = error;
        self.member = self.member.min(self.members().saturating_sub(1));
    }

    fn pair_at(&self) -> Option<u32> {
        self.lines.get(self.at).filter(|line| !line.rest)?.pairs.get(self.member).copied()
    }

    /// Returns the selected line.
    pub fn line(&self) -> Option<&CompareLine> {
        self.lines.get(self.at)
    }

    /// Returns the selected pair.
    pub fn pair(&self) -> Option<RowPair> {
        self.pairs.as_ref()?.pairs.get(self.pair_at()? as usize).copied()
    }

    /// Returns the number of rows folded into the selected line.
    pub fn members(&self) -> usize {
        self.line().map_or(0, |line| if line.rest { 0 } else { line.pairs.len() })
    }

    /// Selects a line.
    pub fn select(&mut self, line: usize) {
        self.at = line.min(self.lines.len().saturating_sub(1));
        self.member = 0;
    }

    /// Selects the line that shows a row of the first checkpoint.
    pub fn select_row(&mut self, row: u32) {
        let Some(pairs) = &self.pairs else { return };
        let of_row = |pair: &u32| pairs.pairs.get(*pair as usize).is_some_and(|it| it.a == row);
        let mut places = self.lines.iter().enumerate().filter(|(_, line)| !line.rest);
        let place = places.find_map(|(at, line)| Some((at, line.pairs.iter().position(&of_row)?)));
        if let Some(place) = place {
            (self.at, self.member) = place;
            self.scroll += 1;
        }
    }

    /// Moves the selection by a number of lines.
    pub fn step(&mut self, by: isize) {
        self.select(self.at.saturating_add_signed(by));
        self.scroll += 1;
    }

    /// Moves the selection by a number of rows within the line.
    pub fn step_member(&mut self, by: isize) {
        let last = self.members().saturating_sub(1);
        self.member = self.member.saturating_add_signed(by).min(last);
    }

    /// Returns whether the comparison is running.
    pub fn is_reading(&self) -> bool {
        self.error.is_none() && self.reading.is_running()
    }
}
