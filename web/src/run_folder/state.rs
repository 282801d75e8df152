//! A run folder on the page: finds it among the dropped files, and arranges its rows.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::order;
use statelens_compare::runs::{
    FileEntry, NamePattern, RunContents, RunFile, is_checkpoint_folder, marked_folders, parse_index,
};

use crate::open::message::FileName;

/// The files of a folder that holds the checkpoints of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder {
    /// Its name; empty for files that were chosen without their folder.
    pub name: String,
    /// Its files, as indices into the dropped files.
    pub members: Vec<usize>,
}

/// Finds the run folder among the dropped files: the one with the most checkpoints, the first of
/// equals. A single checkpoint counts as a run only together with another file that only runs have.
pub fn find(files: &[FileName]) -> Option<RunFolder> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut folders: Vec<RunFolder> = Vec::new();
    let marked = marked_folders(files.iter().map(|file| file.path.as_str()));
    for (at, file) in files.iter().enumerate() {
        let name = folder_of(&file.path, &marked);
        let place = *places.entry(name.to_owned()).or_insert_with(|| {
            folders.push(RunFolder { name: name.to_owned(), members: Vec::new() });
            folders.len() - 1
        });
        folders[place].members.push(at);
    }
    let mut best: Option<(usize, RunFolder)> = None;
    for folder in folders {
        let run = RunContents::new(names(files, &folder), None, &NamePattern::default());
        let checkpoints = run.checkpoints().count();
        let others = run
            .entries
            .iter()
            .any(|entry| !entry.is_checkpoint() && !matches!(entry.kind, RunFile::Other));
        let is_run = checkpoints > 1 || checkpoints == 1 && others;
        if is_run && best.as_ref().is_none_or(|(most, _)| checkpoints > *most) {
            best = Some((checkpoints, folder));
        }
    }
    best.map(|(_, folder)| folder)
}

/// Returns names without the folder, and sizes.
fn names(files: &[FileName], folder: &RunFolder) -> Vec<(String, u64)> {
    let of = |at: &usize| files.get(*at).map(|file| (folder.within(file).to_owned(), file.size));
    folder.members.iter().filter_map(of).collect()
}

impl RunFolder {
    /// Returns the path of a file, relative to the folder.
    fn within<'a>(&self, file: &'a FileName) -> &'a str {
        file.path.strip_prefix(&*self.name).unwrap_or(&file.path).trim_start_matches('/')
    }
}

/// Returns the run folder that a file would belong to: that of the first folder in its path that is
/// named like a checkpoint or is in `marked`, else its own.
fn folder_of<'a>(path: &'a str, marked: &HashSet<&str>) -> &'a str {
    let mut start = 0;
    for (end, _) in path.match_indices('/') {
        if is_checkpoint_folder(&path[start..end]) || marked.contains(&path[..end]) {
            return path[..start].trim_end_matches('/');
        }
        start = end + 1;
    }
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Returns the index of a file of the folder among the dropped files.
pub fn place_of(name: &str, files: &[FileName], folder: &RunFolder) -> Option<usize> {
    let is_it = |at: &&usize| files.get(**at).is_some_and(|file| folder.within(file) == name);
    folder.members.iter().find(is_it).copied()
}

/// A row of the table: an entry and its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunRow {
    /// Its index in [`RunContents::entries`].
    pub entry: usize,
    /// Its index in the dropped files.
    pub file: usize,
}

/// A run and its rows: the newest step first, entries without a step last.
#[derive(Debug, Clone, PartialEq)]
pub struct SortedRun {
    /// The run as the core describes it.
    pub run: RunContents,
    pub rows: Vec<RunRow>,
    /// The number of paths that the index lists.
    pub listed: usize,
    /// Why the index can't be parsed. Then it is unknown which checkpoint would be loaded.
    pub error: Option<String>,
}

/// Sorts a run folder; `index` is the text of its index, or why it can't be read, and `latest` the
/// entry that a file in it names.
pub fn sort(
    files: &[FileName],
    folder: &RunFolder,
    index: Option<Result<String, String>>,
    latest: Option<String>,
) -> SortedRun {
    let parsed = index.map(|text| {
        text.and_then(|text| parse_index(&text).map_err(|error| error.what().to_owned()))
    });
    let (paths, error) = match parsed {
        None => (None, None),
        Some(Ok(paths)) => (Some(paths), None),
        Some(Err(error)) => (None, Some(error)),
    };
    let listed = paths.as_ref().map_or(0, Vec::len);
    let run = RunContents::new(names(files, folder), paths, &NamePattern::default());
    let mut run = run.with_latest(latest);
    if error.is_some() {
        run.latest = None;
    }
    let mut places: HashMap<String, usize> = HashMap::new();
    for at in &folder.members {
        if let Some(file) = files.get(*at) {
            places.insert(folder.within(file).to_owned(), *at);
        }
    }
    let row = |(entry, of): (usize, &FileEntry)| {
        places.get(of.opened()?).map(|file| RunRow { entry, file: *file })
    };
    let mut rows: Vec<RunRow> = run.entries.iter().enumerate().filter_map(row).collect();
    // The core lists checkpoints in order and other files by name; within a step, show the newest
    // first.
    let place = |row: &RunRow| {
        let step = run.entries.get(row.entry).and_then(step);
        let whole = run.entries.get(row.entry).is_some_and(FileEntry::is_checkpoint);
        (std::cmp::Reverse(step), !whole, if whole { usize::MAX - row.entry } else { row.entry })
    };
    order::by(&mut rows, |one, two| place(one).cmp(&place(two)));
    SortedRun { run, rows, listed, error }
}

/// The checkpoint that the main button of a run folder opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunPick {
    /// The row of the newest sound checkpoint; if none is sound, of the one that the trainer would
    /// load.
    pub row: usize,
    pub is_sound: bool,
    /// The row of the checkpoint that the trainer would load, if it is another one.
    pub loaded: Option<usize>,
}

impl SortedRun {
    /// Returns the checkpoint that the main button opens; `None` if no checkpoint is sound and none
    /// would be loaded. `unsound` comes from [`RunContents::unsound`].
    pub fn pick(&self, unsound: &[Option<String>]) -> Option<RunPick> {
        let loaded = self.loaded();
        let sound = self.run.latest_sound(unsound).and_then(|entry| self.row_of(&entry.name));
        let is_sound = sound.is_some();
        let row = sound.or(loaded)?;
        Some(RunPick { row, is_sound, loaded: loaded.filter(|loaded| *loaded != row) })
    }

    /// Returns the row of the checkpoint that the trainer would load.
    pub fn loaded(&self) -> Option<usize> {
        self.row_of(self.run.latest.as_ref()?)
    }

    fn row_of(&self, name: &str) -> Option<usize> {
        let is_it =
            |row: &RunRow| self.run.entries.get(row.entry).is_some_and(|entry| entry.name == name);
        self.rows.iter().position(is_it)
    }
}

/// Returns the step in an entry's name, whatever kind of file it is.
pub fn step(entry: &FileEntry) -> Option<u128> {
    if let RunFile::Checkpoint(name) = &entry.kind {
        return Some(name.step);
    }
    let after = ["checkpoint_", "trainer_state_"]
        .iter()
        .find_map(|word| entry.name.split_once(word).map(|(_, rest)| rest))?;
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    after.get(..digits)?.parse().ok()
}

/// Formats the timestamp in an entry's name: `2026-01-31 10:45:12`.
pub fn timestamp(entry: &FileEntry) -> Option<String> {
    let RunFile::Checkpoint(name) = &entry.kind else { return None };
    let text = name.timestamp.as_deref().filter(|text| text.len() == 15)?;
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    Some(format!(
        "{}-{}-{} {}:{}:{}",
        part(0, 4),
        part(4, 6),
        part(6, 8),
        part(9, 11),
        part(11, 13),
        part(13, 15)
    ))
}

/// Returns steps for the axis: at most nine round numbers from 0 to the largest.
pub fn ticks(most: u128) -> Vec<u128> {
    let mut unit = 1u128;
    loop {
        for times in [1, 2, 5] {
            let step = unit.saturating_mul(times);
            if most / step <= 8 {
                return (0..=most / step).map(|at| at * step).collect();
            }
        }
        unit = unit.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> Vec<FileName> {
        names.iter().map(|path| FileName { path: (*path).to_owned(), size: 10 }).collect()
    }

    #[test]
    fn finds_run_folder_in_a_drop() {
        let found =
            |names: &[&str]| find(&files(names)).map(|folder| (folder.name, folder.members));
        let some = |name: &str, members: &[usize]| Some((name.to_owned(), members.to_vec()));
        assert_eq!(found(&["checkpoint_1.mdl"]), None);
        assert_eq!(found(&["a.mdl", "b.mdl"]), None);
        assert_eq!(found(&["r/checkpoint_1.mdl", "s/checkpoint_2.mdl"]), None);
        assert_eq!(found(&["checkpoint_1.mdl", "checkpoint_2.mdl"]), some("", &[0, 1]));
        assert_eq!(
            found(&["r/checkpoint_1.mdl", "r/checkpoints_index.yaml", "r/logs/x"]),
            some("r", &[0, 1])
        );
        assert_eq!(
            found(&["r/checkpoint_1.mdl", "r/old/checkpoint_1.mdl", "r/old/checkpoint_2.mdl"]),
            some("r/old", &[1, 2])
        );
        // Steps of Orbax, and a folder that only has a number for a name.
        assert_eq!(
            found(&["o/1/_CHECKPOINT_METADATA", "o/2/default/d/x", "o/2/_CHECKPOINT_METADATA"]),
            some("o", &[0, 1, 2])
        );
        assert_eq!(found(&["j/7/checkpoint_1.pt", "j/7/checkpoint_2.pt"]), some("j/7", &[0, 1]));
    }

    #[test]
    fn checkpoint_folders_are_rows_of_their_run() {
        let files = files(&[
            "out/checkpoint-500/model.safetensors",
            "out/checkpoint-500/optimizer.pt",
            "out/checkpoint-1000/optimizer.pt",
            "out/checkpoint-1000/model.safetensors",
            "out/runs/log",
        ]);
        let folder = find(&files).unwrap();
        assert_eq!((folder.name.as_str(), folder.members.len()), ("out", 4));
        let sorted = sort(&files, &folder, None, None);
        let rows: Vec<usize> = sorted.rows.iter().map(|row| row.file).collect();
        assert_eq!(rows, [3, 0]);
        assert_eq!(sorted.run.latest.as_deref(), Some("checkpoint-1000"));
        assert_eq!(sorted.loaded(), Some(0));
        let named = |name: &str| sort(&files, &folder, None, Some(name.to_owned()));
        assert_eq!(named("checkpoint-500").loaded(), Some(1));
        assert_eq!(named("checkpoint-700").run.absent_latest.as_deref(), Some("checkpoint-700"));
    }

    #[test]
    fn sorts_newest_first_and_follows_the_index() {
        let files = files(&[
            "r/notes.txt",
            "r/checkpoint_5.mdl",
            "r/checkpoint_10.mdl",
            "r/checkpoint_10_20240131_235959.mdl",
            "r/model_checkpoint_10.mdl",
            "r/checkpoint_20.mdl.0123abcd.tmp",
            "r/trainer_state_5.mdl",
        ]);
        let folder = find(&files).unwrap();
        let sorted = sort(&files, &folder, None, None);
        let names: Vec<&str> = sorted
            .rows
            .iter()
            .map(|row| {
                assert!(files[row.file].path.ends_with(&sorted.run.entries[row.entry].name));
                sorted.run.entries[row.entry].name.as_str()
            })
            .collect();
        assert_eq!(
            names,
            [
                "checkpoint_20.mdl.0123abcd.tmp",
                "checkpoint_10_20240131_235959.mdl",
                "checkpoint_10.mdl",
                "model_checkpoint_10.mdl",
                "checkpoint_5.mdl",
                "trainer_state_5.mdl",
                "notes.txt",
            ]
        );
        let newest = &sorted.run.entries[sorted.rows[1].entry];
        assert_eq!(timestamp(newest).as_deref(), Some("2024-01-31 23:59:59"));
        assert_eq!(sorted.run.latest.as_deref(), Some("checkpoint_10_20240131_235959.mdl"));
        let listed = sort(&files, &folder, Some(Ok("- r/checkpoint_5.mdl\n".into())), None);
        assert_eq!(listed.run.latest.as_deref(), Some("checkpoint_5.mdl"));
        assert_eq!(listed.run.only_folder.len(), 2);
        let broken = sort(&files, &folder, Some(Ok("a: b\n".into())), None);
        assert!(broken.error.is_some());
        assert_eq!(broken.run.latest, None);
    }

    #[test]
    fn picks_the_newest_sound_checkpoint() {
        let files = files(&["checkpoint_1.mdl", "checkpoint_2.mdl", "checkpoint_3.mdl"]);
        let folder = find(&files).unwrap();
        let sorted = sort(&files, &folder, None, None);
        let bad = || Some("cut short".to_owned());
        // Rows are the newest first, entries the oldest first.
        let newest = sorted.pick(&[None, None, None]);
        assert_eq!(newest, Some(RunPick { row: 0, is_sound: true, loaded: None }));
        let before = sorted.pick(&[None, None, bad()]);
        assert_eq!(before, Some(RunPick { row: 1, is_sound: true, loaded: Some(0) }));
        let none = sorted.pick(&[bad(), bad(), bad()]);
        assert_eq!(none, Some(RunPick { row: 0, is_sound: false, loaded: None }));
        // It is unknown which checkpoint would be loaded.
        let broken = sort(&files, &folder, Some(Ok("a: b\n".into())), None);
        let sound = broken.pick(&[None, None, bad()]);
        assert_eq!(sound, Some(RunPick { row: 1, is_sound: true, loaded: None }));
        assert_eq!(broken.pick(&[bad(), bad(), bad()]), None);
    }

    #[test]
    fn axis_has_few_round_steps() {
        assert_eq!(ticks(0), [0]);
        assert_eq!(ticks(5_500), [0, 1000, 2000, 3000, 4000, 5000]);
        assert_eq!(ticks(8), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(ticks(100), [0, 20, 40, 60, 80, 100]);
        assert!(ticks(u128::MAX).len() <= 9);
    }
}
