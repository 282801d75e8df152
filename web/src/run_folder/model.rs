//! The state of a run folder, and its transitions.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use statelens_compare::runs::{
    FileEntry, GroupValues, Grouping, KeptValues, OpenCheck, RunFile, StepValues, time_text,
};
use statelens_describe::FileGrade;

use crate::page::drop::DroppedFile;
use crate::run_folder::message::FileValues;
use crate::run_folder::state::{RunPick, RunRow, SortedRun, step};
use crate::state::task::Task;

#[derive(Debug, Clone)]
pub struct RunView {
    /// The name of the folder; empty if its files were chosen without the folder.
    pub folder: String,
    /// All files of the drop.
    pub files: Rc<Vec<DroppedFile>>,
    /// The run and its table rows.
    pub sorted: Rc<SortedRun>,
    /// The result of opening each entry; `None` until it is known.
    pub checks: Rc<Vec<Option<OpenCheck>>>,
    /// Per entry, why a pruning must not count the checkpoint as kept; see
    /// [`statelens_compare::runs::RunContents::unsound`].
    unsound: Rc<Vec<Option<String>>>,
    /// The grade of each entry, as far as it is known.
    grades: Rc<Vec<Option<FileGrade>>>,
    /// The names of the best checkpoints.
    pub best: Rc<Vec<String>>,
    /// Index of the selected row.
    pub at: usize,
    /// Whether the user selected that row.
    chosen: bool,
    /// Incremented when the selection changed outside the table, so that the table scrolls to it.
    pub scroll: u32,
    /// The row marked as the first side of a comparison.
    pub marked: Option<usize>,
    /// Number of newest checkpoints that a pruning keeps.
    pub keep: u64,
    /// A pruning also keeps checkpoints whose step is a multiple of this; 0 disables that.
    pub every: u64,
    /// Statistics of the checkpoints' values, as far as they have been read.
    pub values: RunFolderValues,
}

/// The problem with a file (empty if none was found), and its groups by state and by role.
type ReadValues = (String, [Vec<GroupValues>; 2]);

/// Statistics of the values of a run folder's checkpoints.
#[derive(Debug, Clone, Default)]
pub struct RunFolderValues {
    /// Statistics of the files read so far, by the file's index in the drop.
    pub read: Rc<HashMap<u32, ReadValues>>,
    /// The running read.
    pub task: Task<()>,
    /// Measured speed in bytes per millisecond.
    pub rate: Option<f64>,
    /// Statistics loaded from the file of kept values in the folder.
    kept: Rc<KeptValues>,
    /// The result of loading that file, if there is one.
    pub stored: Option<StoredValues>,
}

/// The result of loading the file of kept values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredValues {
    /// Number of checkpoints whose values came from it, and number that changed since it was
    /// written.
    Used(usize, usize),
    /// Why the file is not used.
    Unused(String),
}

/// The groupings that one read computes.
const GROUPINGS: [Grouping; 2] = [Grouping::State, Grouping::Role];

impl PartialEq for RunView {
    /// Compares by address: the value is shared in an `Rc` and copied on change.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl RunView {
    /// Creates the view, with the checkpoint selected that training would load. The selection moves
    /// once it is known which checkpoints are sound.
    pub fn new(folder: String, files: Vec<DroppedFile>, sorted: SortedRun) -> Self {
        let checks = vec![None; sorted.run.entries.len()];
        let unsound = sorted.run.unsound(&[]);
        let at = sorted.loaded().unwrap_or(0);
        Self {
            folder,
            files: Rc::new(files),
            sorted: Rc::new(sorted),
            checks: Rc::new(checks),
            unsound: Rc::new(unsound),
            grades: Rc::default(),
            best: Rc::default(),
            at,
            chosen: false,
            scroll: 1,
            marked: None,
            keep: 3,
            every: 0,
            values: RunFolderValues::default(),
        }
    }

    /// Keeps the values of a file.
    pub fn add_values(&mut self, of: FileValues) {
        let not_finite = not_finite(&of.groups[0]);
        Rc::make_mut(&mut self.values.read).insert(of.file, (of.problem, of.groups));
        self.set_not_finite(of.file, not_finite);
    }

    /// Stores how many values of a file are NaN or infinite.
    pub fn set_not_finite(&mut self, file: u32, count: u64) {
        let check = self.entry_of(file).and_then(|at| Rc::make_mut(&mut self.checks).get_mut(at));
        if let Some(Some(check)) = check {
            check.not_finite = Some(count);
            self.judge();
        }
    }

    /// Returns how many values of a file are NaN or infinite; `None` until they were read.
    pub fn not_finite(&self, file: u32) -> Option<u64> {
        self.checks.get(self.entry_of(file)?)?.as_ref()?.not_finite
    }

    /// Returns the names of the groups of a file, by role, that have values which are not finite.
    pub fn not_finite_groups(&self, file: u32) -> Vec<&str> {
        let groups = self.values.read.get(&file).map_or(&[][..], |(_, groups)| &groups[1]);
        let bad = groups.iter().filter(|group| group.nan > 0 || group.infinite > 0);
        bad.map(|group| group.name.as_str()).collect()
    }

    /// Returns the grade of an entry; `None` if it is not known.
    pub fn grade(&self, entry: usize) -> Option<FileGrade> {
        self.grades.get(entry).copied().flatten()
    }

    /// Returns the index of the entry that a file is opened for.
    fn entry_of(&self, file: u32) -> Option<usize> {
        let row = self.sorted.rows.iter().find(|row| row.file == file as usize)?;
        Some(row.entry)
    }

    /// Judges the checkpoints again after something was read, and selects the one to open unless the
    /// user selected another.
    fn judge(&mut self) {
        self.unsound = Rc::new(self.sorted.run.unsound(&self.checks));
        self.grades = Rc::new(self.sorted.run.grades(&self.checks));
        self.best = Rc::new(self.sorted.run.best(&self.checks));
        if let Some(pick) = self.pick().filter(|_| !self.chosen) {
            self.at = pick.row;
            self.scroll += 1;
        }
    }

    /// Returns the file indices and the total bytes of the checkpoints that can be opened and whose
    /// values have not been read.
    pub fn unread(&self) -> (Vec<u32>, u64) {
        let mut unread = (Vec::new(), 0u64);
        for row in self.sorted.rows.iter().rev() {
            let Some(entry) = self.sorted.run.entries.get(row.entry) else { continue };
            let checks = self.checks.get(row.entry).and_then(Option::as_ref);
            let opens = checks.is_some_and(|checks| !checks.states.is_empty());
            let file = row.file as u32;
            if entry.is_checkpoint() && opens && !self.values.read.contains_key(&file) {
                unread.0.push(file);
                unread.1 = unread.1.saturating_add(entry.bytes);
            }
        }
        unread
    }

    /// Returns the checkpoints in order of steps with their file indices; without values.
    fn checkpoints(&self) -> Vec<(u32, StepValues)> {
        let mut found = Vec::new();
        for row in self.sorted.rows.iter().rev() {
            let Some(entry) = self.sorted.run.entries.get(row.entry) else { continue };
            let number = step(entry).and_then(|step| u64::try_from(step).ok());
            let Some(number) = number.filter(|_| entry.is_checkpoint()) else { continue };
            let step = StepValues {
                name: entry.name.clone(),
                step: number,
                bytes: entry.bytes,
                modified: self.files.get(row.file).map(modified).unwrap_or_default(),
                // Values that are not finite are values, too: they are no gap.
                wrong: self.opening_problem(row.entry).to_owned(),
                groups: Vec::new(),
            };
            found.push((row.file as u32, step));
        }
        found
    }

    /// Returns the values over steps, by state or by role. Checkpoints that can't be opened are
    /// gaps.
    pub fn steps(&self, by: Grouping) -> Vec<StepValues> {
        let with_values = |(file, mut step): (u32, StepValues)| {
            if let Some((problem, groups)) = self.values.read.get(&file) {
                step.groups.clone_from(&groups[usize::from(by == Grouping::Role)]);
                if step.wrong.is_empty() {
                    step.wrong.clone_from(problem);
                }
            }
            step
        };
        self.checkpoints().into_iter().map(with_values).collect()
    }

    /// Loads kept values from the text of their file, for the checkpoints that have not changed
    /// since it was written.
    pub fn load_values(&mut self, text: Result<String, String>) {
        let parsed = text.and_then(|text| {
            KeptValues::parse(text.as_bytes()).map_err(|error| error.what().to_owned())
        });
        let kept = match parsed {
            Ok(kept) => kept,
            Err(reason) => {
                self.values.stored = Some(StoredValues::Unused(reason));
                return;
            }
        };
        let (mut known, mut changed) = (0, 0);
        for (file, step) in self.checkpoints() {
            let groups = GROUPINGS.map(|by| kept.groups(by, &step).map(<[_]>::to_vec));
            if let [Some(states), Some(roles)] = groups {
                self.add_values(FileValues {
                    file,
                    problem: String::new(),
                    groups: [states, roles],
                });
                known += 1;
            } else if GROUPINGS.iter().any(|by| kept.is_changed(*by, &step)) {
                changed += 1;
            }
        }
        self.values.kept = Rc::new(kept);
        self.values.stored = Some(StoredValues::Used(known, changed));
    }

    /// Returns the JSON of the file of kept values: those loaded and those read.
    pub fn values_json(&self) -> String {
        let mut kept = self.values.kept.as_ref().clone();
        for by in GROUPINGS {
            self.steps(by).into_iter().for_each(|step| kept.keep(by, step));
        }
        kept.json()
    }

    /// Applies the result of opening a file.
    pub fn set_check(&mut self, file: u32, check: OpenCheck) {
        let entry = self.entry_of(file);
        if let Some(place) = entry.and_then(|at| Rc::make_mut(&mut self.checks).get_mut(at)) {
            let values = self.values.read.get(&file).map(|(_, groups)| not_finite(&groups[0]));
            *place = Some(OpenCheck { not_finite: values, ..check });
            self.judge();
        }
    }

    /// Returns the indices of the files that can be opened and have not been opened yet.
    pub fn unchecked(&self) -> Vec<u32> {
        let open = |row: &&RunRow| {
            let entry = self.sorted.run.entries.get(row.entry);
            entry.is_some_and(FileEntry::holds_states)
                && self.checks.get(row.entry).is_some_and(Option::is_none)
        };
        self.sorted.rows.iter().filter(open).map(|row| row.file as u32).collect()
    }

    /// Returns the selected row.
    pub fn row(&self) -> Option<RunRow> {
        self.sorted.rows.get(self.at).copied()
    }

    /// Returns the entry of the selected row.
    pub fn entry(&self) -> Option<&FileEntry> {
        self.sorted.run.entries.get(self.row()?.entry)
    }

    /// Returns whether the selected entry can be opened: anything but indexes, temporary files and
    /// files that are not part of a run.
    pub fn can_open(&self) -> bool {
        self.entry().is_some_and(|entry| {
            !matches!(entry.kind, RunFile::Index | RunFile::Temporary | RunFile::Other)
        })
    }

    /// Selects a row.
    pub fn select(&mut self, at: usize) {
        self.at = at.min(self.sorted.rows.len().saturating_sub(1));
        self.chosen = true;
    }

    /// Moves the selection by a number of rows.
    pub fn step(&mut self, by: isize) {
        self.select(self.at.saturating_add_signed(by));
        self.scroll += 1;
    }

    /// Returns the problem with an entry; empty if no problem is known.
    pub fn problem(&self, entry: usize) -> &str {
        let unsound = self.unsound.get(entry).and_then(Option::as_deref);
        let is_checked = self.checks.get(entry).is_some_and(Option::is_some);
        unsound.filter(|_| is_checked).unwrap_or_else(|| self.opening_problem(entry))
    }

    /// Returns why an entry can't be opened; empty if it can, or was not tried.
    fn opening_problem(&self, entry: usize) -> &str {
        self.checks.get(entry).and_then(Option::as_ref).map_or("", |checks| &checks.wrong)
    }

    /// Returns what the main button opens; `None` until all files have been checked.
    pub fn pick(&self) -> Option<RunPick> {
        if self.unchecked().is_empty() { self.sorted.pick(&self.unsound) } else { None }
    }

    /// Returns the defect of a row's checkpoint, in words that follow its name.
    pub fn defect(&self, row: usize) -> String {
        let entry = self.sorted.rows.get(row).map_or(usize::MAX, |row| row.entry);
        match self.grade(entry) {
            Some(FileGrade::NotFinite) => "has values that are not finite".to_owned(),
            Some(FileGrade::Incomplete) if !self.is_damaged(row) => "lacks a state".to_owned(),
            Some(grade) if !grade.is_good() => format!("is {}", grade.word()),
            _ if self.is_damaged(row) => "can\u{2019}t be read".to_owned(),
            _ => "lacks a state".to_owned(),
        }
    }

    /// Returns whether a row's file is damaged, incomplete or unfinished, rather than only lacking
    /// a state that the others have.
    pub fn is_damaged(&self, row: usize) -> bool {
        let entry = self.sorted.rows.get(row).map(|row| row.entry);
        let checks = entry.and_then(|entry| self.checks.get(entry)).and_then(Option::as_ref);
        checks.is_some_and(|checks| !checks.wrong.is_empty())
    }

    /// Returns the entries that a pruning would delete.
    pub fn prunable(&self) -> Vec<&FileEntry> {
        let keep = usize::try_from(self.keep).unwrap_or(usize::MAX);
        let every = (self.every > 0).then_some(self.every);
        self.sorted.run.prunable(keep, every, &self.unsound, &self.best)
    }

    /// Returns the label of a row: its step, or its name.
    pub fn label_of(&self, row: usize) -> String {
        let entry =
            self.sorted.rows.get(row).and_then(|row| self.sorted.run.entries.get(row.entry));
        match entry {
            Some(entry) => match step(entry).and_then(|step| u64::try_from(step).ok()) {
                Some(step) => crate::state::fmt::exact(step),
                None => entry.name.clone(),
            },
            None => String::new(),
        }
    }

    /// Returns the run as `statelens runs --json` prints it; `None` until all files have been
    /// checked.
    pub fn json(&self) -> Option<String> {
        if !self.unchecked().is_empty() {
            return None;
        }
        let problem = (0..self.checks.len()).map(|entry| (self.problem(entry), self.grade(entry)));
        Some(self.sorted.run.json(problem) + "\n")
    }
}

/// Returns the number of values in groups that are NaN or infinite.
fn not_finite(groups: &[GroupValues]) -> u64 {
    groups.iter().fold(0, |sum, group| sum.saturating_add(group.nan).saturating_add(group.infinite))
}

/// Returns the modification time of a file; empty if the browser does not report it.
fn modified(of: &DroppedFile) -> String {
    let millis = of.file.last_modified();
    if millis > 0.0 {
        time_text(Duration::from_millis(millis as u64), false)
    } else {
        String::new()
    }
}
