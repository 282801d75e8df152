//! The state of a run folder, and everything that changes it.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use statelens_inspect::runs::{
    self, FileEntry, GroupValues, Grouping, KeptValues, RunFile, StepValues, time_text,
};

use crate::page::drop::Dropped;
use crate::protocol::run::{OpenCheck, RunGroup, RunValues};
use crate::state::run::{RunPick, RunRow, Sorted, step};

/// A run folder.
#[derive(Debug, Clone)]
pub struct RunView {
    /// The name of the folder; empty for files that were chosen without it.
    pub folder: String,
    /// All that was dropped.
    pub files: Rc<Vec<Dropped>>,
    /// The run, and its rows.
    pub sorted: Rc<Sorted>,
    /// What came of opening each entry; `None` until it is known.
    pub looked: Rc<Vec<Option<OpenCheck>>>,
    /// Why each checkpoint does not count as kept; see [`runs::RunContents::unsound`].
    unsound: Rc<Vec<Option<String>>>,
    /// The row that is looked at.
    pub at: usize,
    /// Whether somebody chose that row.
    chosen: bool,
    /// Counts up when it was chosen elsewhere than in the table.
    pub scroll: u32,
    /// The row that the next one is compared with.
    pub marked: Option<usize>,
    /// How many of the newest a pruning keeps.
    pub keep: u64,
    /// The steps whose multiples it keeps, too; 0 for none.
    pub every: u64,
    /// The values of its checkpoints, as far as they were read.
    pub values: RunFolderValues,
}

/// What is wrong with a file, and by state and by role its groups.
type FileValues = (String, [Vec<GroupValues>; 2]);

/// The values of the checkpoints of a run folder.
#[derive(Debug, Clone, Default)]
pub struct RunFolderValues {
    /// Those of the files that were read, by their places in what was dropped.
    pub read: Rc<HashMap<u32, FileValues>>,
    /// Bytes that were read, all of them, and milliseconds.
    pub now: Option<(u64, u64, f64)>,
    /// Bytes that are read in a millisecond, once that was measured.
    pub rate: Option<f64>,
    /// Those that a file beside the checkpoints has.
    kept: Rc<KeptValues>,
    /// What came of that file, if there is one.
    pub beside: Option<Beside>,
}

/// What came of the file of values beside the checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beside {
    /// How many checkpoints have their values from it, and how many were changed since.
    Used(usize, usize),
    /// Why it is not used.
    Unused(String),
}

/// The groupings that are read at once.
const GROUPINGS: [Grouping; 2] = [Grouping::State, Grouping::Role];

impl PartialEq for RunView {
    /// It is shared, and copied when it is changed.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl RunView {
    /// A run folder, at the checkpoint that would be loaded until it is known which ones are sound.
    #[must_use]
    pub fn new(folder: String, files: Vec<Dropped>, sorted: Sorted) -> Self {
        let looked = vec![None; sorted.run.entries.len()];
        let unsound = sorted.run.unsound(&[]);
        let at = sorted.loaded().unwrap_or(0);
        Self {
            folder,
            files: Rc::new(files),
            sorted: Rc::new(sorted),
            looked: Rc::new(looked),
            unsound: Rc::new(unsound),
            at,
            chosen: false,
            scroll: 1,
            marked: None,
            keep: 3,
            every: 0,
            values: RunFolderValues::default(),
        }
    }

    /// Takes in what was read of values.
    pub fn hear_values(&mut self, told: RunValues) {
        let values = &mut self.values;
        match told {
            RunValues::Now(done, total, millis) => {
                values.now = Some((done, total, millis));
                if millis > 200.0 {
                    values.rate = Some(done as f64 / millis);
                }
            }
            RunValues::Read(file, wrong, groups) => {
                let groups = groups.map(|groups| groups.into_iter().map(group).collect());
                Rc::make_mut(&mut values.read).insert(file, (wrong, groups));
            }
            RunValues::Ended => values.now = None,
        }
    }

    /// The checkpoints that can be opened and whose values were not read: their files, and bytes.
    #[must_use]
    pub fn unread(&self) -> (Vec<u32>, u64) {
        let mut unread = (Vec::new(), 0u64);
        for row in self.sorted.rows.iter().rev() {
            let Some(entry) = self.sorted.run.entries.get(row.entry) else { continue };
            let looked = self.looked.get(row.entry).and_then(Option::as_ref);
            let opens = looked.is_some_and(|looked| !looked.states.is_empty());
            let file = row.file as u32;
            if entry.is_checkpoint() && opens && !self.values.read.contains_key(&file) {
                unread.0.push(file);
                unread.1 = unread.1.saturating_add(entry.bytes);
            }
        }
        unread
    }

    /// The checkpoints by steps, and the places of their files; without values.
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
                wrong: self.wrong(row.entry).to_owned(),
                groups: Vec::new(),
            };
            found.push((row.file as u32, step));
        }
        found
    }

    /// The values over steps, by state or by role; those that can't be opened are gaps.
    #[must_use]
    pub fn steps(&self, by: Grouping) -> Vec<StepValues> {
        let with_values = |(file, mut step): (u32, StepValues)| {
            if let Some((wrong, groups)) = self.values.read.get(&file) {
                step.groups.clone_from(&groups[usize::from(by == Grouping::Role)]);
                if step.wrong.is_empty() {
                    step.wrong.clone_from(wrong);
                }
            }
            step
        };
        self.checkpoints().into_iter().map(with_values).collect()
    }

    /// Takes values from the text of a file beside the checkpoints, of those that are still what they
    /// were.
    pub fn take_kept(&mut self, text: Result<String, String>) {
        let parsed = text.and_then(|text| {
            KeptValues::parse(text.as_bytes()).map_err(|error| error.what().to_owned())
        });
        let kept = match parsed {
            Ok(kept) => kept,
            Err(why) => {
                self.values.beside = Some(Beside::Unused(why));
                return;
            }
        };
        let (mut known, mut changed) = (0, 0);
        for (file, step) in self.checkpoints() {
            let groups = GROUPINGS.map(|by| kept.groups(by, &step).map(<[_]>::to_vec));
            if let [Some(states), Some(roles)] = groups {
                let values = (String::new(), [states, roles]);
                Rc::make_mut(&mut self.values.read).insert(file, values);
                known += 1;
            } else if GROUPINGS.iter().any(|by| kept.is_changed(*by, &step)) {
                changed += 1;
            }
        }
        self.values.kept = Rc::new(kept);
        self.values.beside = Some(Beside::Used(known, changed));
    }

    /// A file that has the values that were read, to be put beside the checkpoints.
    #[must_use]
    pub fn kept_json(&self) -> String {
        let mut kept = self.values.kept.as_ref().clone();
        for by in GROUPINGS {
            self.steps(by).into_iter().for_each(|step| kept.keep(by, step));
        }
        kept.json()
    }

    /// Takes in what came of opening a file.
    pub fn hear(&mut self, check: OpenCheck) {
        let row = self.sorted.rows.iter().find(|row| row.file == check.file as usize);
        if let Some(place) = row.and_then(|row| Rc::make_mut(&mut self.looked).get_mut(row.entry)) {
            *place = Some(check);
            let told = |looked: &OpenCheck| runs::OpenCheck {
                wrong: looked.wrong.clone(),
                states: looked.states.clone(),
            };
            let looked: Vec<_> = self.looked.iter().map(|one| one.as_ref().map(told)).collect();
            self.unsound = Rc::new(self.sorted.run.unsound(&looked));
            if let Some(pick) = self.pick().filter(|_| !self.chosen) {
                self.at = pick.row;
                self.scroll += 1;
            }
        }
    }

    /// The files that can be opened and were not yet.
    #[must_use]
    pub fn unlooked(&self) -> Vec<u32> {
        let open = |row: &&RunRow| {
            let entry = self.sorted.run.entries.get(row.entry);
            entry.is_some_and(FileEntry::holds_states)
                && self.looked.get(row.entry).is_some_and(Option::is_none)
        };
        self.sorted.rows.iter().filter(open).map(|row| row.file as u32).collect()
    }

    /// The row that is looked at.
    #[must_use]
    pub fn row(&self) -> Option<RunRow> {
        self.sorted.rows.get(self.at).copied()
    }

    /// The entry that is looked at.
    #[must_use]
    pub fn entry(&self) -> Option<&FileEntry> {
        self.sorted.run.entries.get(self.row()?.entry)
    }

    /// Whether what is looked at can be opened: anything but lists, leftovers and what is not of
    /// a run.
    #[must_use]
    pub fn can_open(&self) -> bool {
        self.entry().is_some_and(|entry| {
            !matches!(entry.kind, RunFile::Index | RunFile::Temporary | RunFile::Other)
        })
    }

    /// Looks at a row.
    pub fn look_at(&mut self, at: usize) {
        self.at = at.min(self.sorted.rows.len().saturating_sub(1));
        self.chosen = true;
    }

    /// Looks at another row.
    pub fn step(&mut self, by: isize) {
        self.look_at(self.at.saturating_add_signed(by));
        self.scroll += 1;
    }

    /// What is wrong with an entry; empty for nothing, or nothing known.
    #[must_use]
    pub fn wrong(&self, entry: usize) -> &str {
        let Some(looked) = self.looked.get(entry).and_then(Option::as_ref) else { return "" };
        let unsound = self.unsound.get(entry).and_then(Option::as_deref);
        unsound.unwrap_or(&looked.wrong)
    }

    /// What the main button opens; `None` until all are looked into.
    #[must_use]
    pub fn pick(&self) -> Option<RunPick> {
        if self.unlooked().is_empty() { self.sorted.pick(&self.unsound) } else { None }
    }

    /// Whether a row has something missing, damaged or unfinished, rather than only a state less than
    /// the others.
    #[must_use]
    pub fn is_damaged(&self, row: usize) -> bool {
        let entry = self.sorted.rows.get(row).map(|row| row.entry);
        let looked = entry.and_then(|entry| self.looked.get(entry)).and_then(Option::as_ref);
        looked.is_some_and(|looked| !looked.wrong.is_empty())
    }

    /// The names of those that a pruning would take.
    #[must_use]
    pub fn prunable(&self) -> Vec<&FileEntry> {
        let keep = usize::try_from(self.keep).unwrap_or(usize::MAX);
        self.sorted.run.prunable(keep, (self.every > 0).then_some(self.every), &self.unsound)
    }

    /// What a row is called: its step, or its name.
    #[must_use]
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

    /// As `statelens runs --json` prints it; `None` until all is looked at.
    #[must_use]
    pub fn json(&self) -> Option<String> {
        if !self.unlooked().is_empty() {
            return None;
        }
        let wrong = (0..self.looked.len()).map(|entry| self.wrong(entry));
        Some(self.sorted.run.json(wrong) + "\n")
    }
}

fn group((name, counts, [norm, mean, std]): RunGroup) -> GroupValues {
    let [tensors, missing, count, nan, infinite] = counts;
    GroupValues { name, tensors, missing, count, nan, infinite, norm, mean, std }
}

/// When a file was changed; empty where the browser does not say so.
fn modified(of: &Dropped) -> String {
    let millis = of.file.last_modified();
    if millis > 0.0 {
        time_text(Duration::from_millis(millis as u64), false)
    } else {
        String::new()
    }
}
