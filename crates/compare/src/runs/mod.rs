//! A run folder (`model_dir`): which of its files are checkpoints, which one the trainer would load
//! by itself, and which ones can be deleted. This uses names, sizes and the text of the index; it
//! does not open files. The results of opening them come in as [`OpenCheck`].
//!
//! The rules are those of the Cerebras trainer: the latest checkpoint is the one with the highest
//! step, then the newest timestamp in its name; one without a timestamp comes before those with
//! one. Modification times are ignored. If there is an index (`checkpoints_index.yaml`), only the
//! checkpoints that it lists count.
//!
//! Checkpoints of other trainers, which may be folders, are recognised by name (`trainers.rs`).

mod index;
mod kept;
mod pattern;
mod sound;
mod trainers;
mod values;

pub use index::{INDEX, parse_index};
pub use kept::{KEPT, KeptValues, MAX_KEPT, time_text};
pub use pattern::{CheckpointName, NamePattern};
pub use sound::OpenCheck;
pub use trainers::{LATEST_FILES, named_latest, weights_of};
pub use values::{
    FirstLines, GroupValues, Grouping, StepValues, TensorGroups, TimelineMeasure, first_lines,
    group_names, over_steps, values_json,
};

use statelens_checkpoint::order;
use statelens_values::Json;
use std::collections::HashSet;

/// A file in the run folder, or a subfolder that is a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Its name, without the folder.
    pub name: String,
    /// Its size; for a folder, the total size of its files.
    pub bytes: u64,
    /// Its kind, derived from its name.
    pub kind: RunFile,
    /// For a folder, the paths of its files relative to the run folder, and their sizes; empty for
    /// a file.
    pub members: Vec<(String, u64)>,
}

/// Returns whether a folder with this name is a checkpoint of a run.
pub fn is_checkpoint_folder(name: &str) -> bool {
    trainers::folder(name).is_some()
}

/// The kinds of files in a run folder, derived from their names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunFile {
    /// A checkpoint that counts for the trainer.
    Checkpoint(CheckpointName),
    /// Named like a checkpoint, but with an invalid timestamp; the trainer skips it.
    NoDate,
    /// Some states of a checkpoint, saved in addition to it (`model_checkpoint_500.mdl`).
    Subset {
        /// The states, joined by `_`.
        states: String,
        /// The name of the checkpoint that they belong to.
        of: String,
    },
    /// State that a run with automatic restart saves (`trainer_state_500.mdl`).
    TrainerState,
    /// A leftover of an interrupted save.
    Temporary,
    /// The list of checkpoints, or its lock.
    Index,
    /// Anything else.
    Other,
}

/// The contents of a run folder.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RunContents {
    /// The checkpoints, the oldest first; then everything else by name.
    #[serde(skip)]
    pub entries: Vec<FileEntry>,
    /// The name of the checkpoint that the trainer would load by itself.
    pub latest: Option<String>,
    /// The name of the checkpoint that a file such as `latest` names, if it is not in the folder.
    /// The trainer would then load nothing.
    pub absent_latest: Option<String>,
    /// Whether there is an index.
    pub indexed: bool,
    /// Paths in the index that are not in the folder, or whose names are not those of checkpoints.
    pub only_index: Vec<String>,
    /// Checkpoints that the index does not list; empty if there is no index.
    pub only_folder: Vec<String>,
}

impl RunContents {
    /// Classifies and sorts the files of a folder. `files` are paths relative to it, with sizes:
    /// its files, and the files in subfolders that are checkpoints. `index` has the paths that the
    /// index lists, if there is one.
    pub fn new(
        files: Vec<(String, u64)>,
        index: Option<Vec<String>>,
        pattern: &NamePattern,
    ) -> Self {
        let mut folders: Vec<FileEntry> = Vec::new();
        let mut entries: Vec<FileEntry> = Vec::new();
        for (path, bytes) in files {
            let Some((top, _)) = path.split_once('/') else {
                let kind = kind(&path, pattern);
                entries.push(FileEntry { name: path, bytes, kind, members: Vec::new() });
                continue;
            };
            let known = folders.iter().position(|folder| folder.name == top);
            let at = known.or_else(|| {
                let name = top.to_owned();
                let kind = RunFile::Checkpoint(trainers::folder(top)?);
                folders.push(FileEntry { name, bytes: 0, kind, members: Vec::new() });
                Some(folders.len() - 1)
            });
            if let Some(folder) = at.and_then(|at| folders.get_mut(at)) {
                folder.bytes = folder.bytes.saturating_add(bytes);
                folder.members.push((path, bytes));
            }
        }
        entries.extend(folders);
        order::by(&mut entries, |a, b| {
            (!a.is_checkpoint(), &a.kind, &a.name).cmp(&(!b.is_checkpoint(), &b.kind, &b.name))
        });
        let mut run = Self {
            entries,
            latest: None,
            absent_latest: None,
            indexed: index.is_some(),
            only_index: Vec::new(),
            only_folder: Vec::new(),
        };
        let names: HashSet<String> = run.checkpoints().map(|entry| entry.name.clone()).collect();
        let mut listed = HashSet::new();
        for path in index.unwrap_or_default() {
            let name = path.rsplit(['/', '\\']).next().unwrap_or(&path);
            if names.contains(name) {
                listed.insert(name.to_owned());
            } else {
                run.only_index.push(path);
            }
        }
        let indexed = run.indexed;
        let counts = |entry: &&FileEntry| !indexed || listed.contains(&entry.name);
        let latest = run.checkpoints().rfind(counts).map(|entry| entry.name.clone());
        let unlisted = run.checkpoints().filter(|entry| !counts(entry));
        let only_folder = unlisted.map(|entry| entry.name.clone()).collect();
        (run.latest, run.only_folder) = (latest, only_folder);
        run
    }

    /// Sets the entry that the trainer loads, as named by [`named_latest`]. If that entry does not
    /// exist, the trainer loads nothing.
    #[must_use]
    pub fn with_latest(mut self, name: Option<String>) -> Self {
        let Some(name) = name.filter(|_| !self.indexed) else { return self };
        let is_there = self.checkpoints().any(|entry| entry.name == name);
        match is_there {
            true => self.latest = Some(name),
            false => (self.latest, self.absent_latest) = (None, Some(name)),
        }
        self
    }

    /// Returns the checkpoints that count for the trainer, the oldest first.
    pub fn checkpoints(&self) -> impl DoubleEndedIterator<Item = &FileEntry> {
        self.entries.iter().filter(|entry| entry.is_checkpoint())
    }

    /// Returns the checkpoints that can be deleted if the newest `keep` sound ones are kept.
    /// `unsound` is the result of [`RunContents::unsound`].
    ///
    /// Also kept are checkpoints whose step is a multiple of `every`, the one that would be loaded,
    /// the newest sound one of the trainer's, and everything newer than the oldest that is kept.
    /// Returns nothing if fewer than `keep` are sound. Never returns files that are not named as
    /// checkpoints.
    pub fn prunable(
        &self,
        keep: usize,
        every: Option<u64>,
        unsound: &[Option<String>],
    ) -> Vec<&FileEntry> {
        let stays = |entry: &FileEntry| match &entry.kind {
            RunFile::Checkpoint(name) => {
                every.is_some_and(|every| every > 0 && name.step.is_multiple_of(every.into()))
            }
            _ => true,
        };
        let mut kept = 0;
        let mut old = Vec::new();
        for (at, entry) in self.entries.iter().enumerate().rev() {
            if !entry.is_checkpoint() {
                continue;
            }
            if kept >= keep.max(1) {
                old.push(entry);
            } else if matches!(unsound.get(at), Some(None)) {
                kept += 1;
            }
        }
        let sound = self.latest_sound(unsound).map(|entry| &entry.name);
        old.retain(|entry| {
            !stays(entry) && Some(&entry.name) != self.latest.as_ref() && Some(&entry.name) != sound
        });
        old.reverse();
        old
    }

    /// Returns the contents as JSON. `wrong` has the problem of each entry, or an empty string.
    pub fn json<'a>(&self, wrong: impl IntoIterator<Item = &'a str>) -> String {
        let mut json = Json::new();
        json.object(|json| {
            json.name("statelens").number(1);
            json.fields(self);
            json.name("files").array(|json| {
                for (entry, wrong) in self.entries.iter().zip(wrong) {
                    entry.json(wrong, json);
                }
            });
        });
        json.take()
    }
}

impl FileEntry {
    /// Returns the path of the file to open, relative to the run folder; `None` for a folder
    /// without weights.
    pub fn opened(&self) -> Option<&str> {
        match self.members.is_empty() {
            true => Some(&self.name),
            false => trainers::main(&self.members),
        }
    }

    /// Returns the paths of all its files, relative to the run folder, and their sizes.
    pub fn files(&self) -> Vec<(&str, u64)> {
        match self.members.is_empty() {
            true => vec![(&self.name, self.bytes)],
            false => self.members.iter().map(|(path, bytes)| (path.as_str(), *bytes)).collect(),
        }
    }

    /// Returns whether the trainer counts it as a checkpoint.
    pub fn is_checkpoint(&self) -> bool {
        matches!(self.kind, RunFile::Checkpoint(_))
    }

    /// Returns whether it is named as a checkpoint, or as some states of one, and so can be opened.
    pub fn holds_states(&self) -> bool {
        matches!(self.kind, RunFile::Checkpoint(_) | RunFile::Subset { .. })
    }

    fn json(&self, wrong: &str, json: &mut Json) {
        json.object(|json| {
            json.name("name").str(&self.name);
            json.name("what").str(self.kind.word());
            json.name("bytes").number(self.bytes);
            if let RunFile::Checkpoint(name) = &self.kind {
                match name.step.to_string().parse::<u64>() {
                    Ok(step) => json.name("step").number(step),
                    // The step may exceed the numbers that JSON parsers can hold.
                    Err(_) => json.name("step").str(&name.step.to_string()),
                }
                if let Some(timestamp) = &name.timestamp {
                    json.name("timestamp").str(timestamp);
                }
            }
            if !wrong.is_empty() {
                json.name("wrong").str(wrong);
            }
        });
    }
}

impl RunFile {
    /// Returns a word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Checkpoint(_) => "checkpoint",
            Self::NoDate => "no date",
            Self::Subset { .. } => "subset",
            Self::TrainerState => "trainer state",
            Self::Temporary => "temporary",
            Self::Index => "index",
            Self::Other => "other",
        }
    }
}

fn kind(name: &str, pattern: &NamePattern) -> RunFile {
    match pattern.find(name) {
        Some(Ok(name)) => return RunFile::Checkpoint(name),
        Some(Err(_)) => return RunFile::NoDate,
        None => {}
    }
    if let Some(name) = trainers::file(name).filter(|_| pattern.is_default()) {
        return RunFile::Checkpoint(name);
    }
    if name == INDEX || name.strip_suffix(".lock") == Some(INDEX) {
        return RunFile::Index;
    }
    if is_temporary(name) {
        return RunFile::Temporary;
    }
    let numbered = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    let step = name.strip_prefix("trainer_state_").and_then(|rest| rest.strip_suffix(".mdl"));
    if step.is_some_and(numbered) {
        return RunFile::TrainerState;
    }
    let subset = name.match_indices('_').find_map(|(at, _)| {
        let of = &name[at + 1..];
        let states = &name[..at];
        matches!(pattern.find(of), Some(Ok(_))).then(|| (states.to_owned(), of.to_owned()))
    });
    match subset {
        Some((states, of)) if !states.is_empty() => RunFile::Subset { states, of },
        _ => RunFile::Other,
    }
}

/// Returns whether the name is that of an incomplete file: `NAME.0123abcd.tmp`, as the Cerebras
/// library writes it, and any other `.tmp`; or the name that this program uses.
fn is_temporary(name: &str) -> bool {
    name.ends_with(".tmp") || name.starts_with(".statelens-") && name.ends_with(".part")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(names: &[&str], index: Option<&[&str]>) -> RunContents {
        let files = names.iter().map(|name| ((*name).to_owned(), 10)).collect();
        let index = index.map(|paths| paths.iter().map(|path| (*path).to_owned()).collect());
        RunContents::new(files, index, &NamePattern::default())
    }

    const NAMES: [&str; 13] = [
        "checkpoint_20.mdl",
        "checkpoint_100.mdl",
        "checkpoint_100_20240131_235959.mdl",
        "checkpoint_100_20240201_000000.mdl",
        "checkpoint_100_20240231_000000.mdl",
        "model_checkpoint_500.mdl",
        "checkpoint_200.mdl.0a1b2c3d.tmp",
        "checkpoint_300.mdl.tmp",
        "trainer_state_100.mdl",
        "checkpoints_index.yaml",
        "checkpoints_index.yaml.lock",
        "checkpoint_100_1700000000.5.mdl",
        "notes.txt",
    ];

    #[test]
    fn classifies_files_by_name() {
        let run = run(&NAMES, None);
        let words: Vec<(&str, &str)> =
            run.entries.iter().map(|entry| (entry.name.as_str(), entry.kind.word())).collect();
        assert_eq!(
            words,
            [
                ("checkpoint_20.mdl", "checkpoint"),
                ("checkpoint_100.mdl", "checkpoint"),
                ("checkpoint_100_20240131_235959.mdl", "checkpoint"),
                ("checkpoint_100_20240201_000000.mdl", "checkpoint"),
                ("checkpoint_100_20240231_000000.mdl", "no date"),
                ("model_checkpoint_500.mdl", "subset"),
                ("trainer_state_100.mdl", "trainer state"),
                ("checkpoint_200.mdl.0a1b2c3d.tmp", "temporary"),
                ("checkpoint_300.mdl.tmp", "temporary"),
                ("checkpoints_index.yaml", "index"),
                ("checkpoints_index.yaml.lock", "index"),
                ("checkpoint_100_1700000000.5.mdl", "other"),
                ("notes.txt", "other"),
            ]
        );
        assert_eq!(run.latest.as_deref(), Some("checkpoint_100_20240201_000000.mdl"));
        let subset = RunFile::Subset { states: "model".into(), of: "checkpoint_500.mdl".into() };
        assert_eq!(run.entries[5].kind, subset);
    }

    #[test]
    fn index_limits_the_checkpoints() {
        let index = ["/runs/a/checkpoint_20.mdl", "checkpoint_9.mdl", "/runs/a/checkpoint_100.mdl"];
        let run = run(&NAMES, Some(&index));
        assert_eq!(run.latest.as_deref(), Some("checkpoint_100.mdl"));
        assert_eq!(run.only_index, ["checkpoint_9.mdl"]);
        assert_eq!(run.only_folder.len(), 2);
    }

    #[test]
    fn prune_selects_only_old_checkpoints() {
        let names = |entries: Vec<&FileEntry>| -> Vec<String> {
            entries.into_iter().map(|entry| entry.name.clone()).collect()
        };
        let all = run(&NAMES, None);
        let sound = vec![None; NAMES.len()];
        let gone = |keep, every| names(all.prunable(keep, every, &sound));
        assert_eq!(gone(2, None), ["checkpoint_20.mdl", "checkpoint_100.mdl"]);
        assert_eq!(gone(1, Some(100)), ["checkpoint_20.mdl"]);
        assert_eq!(gone(9, None), [""; 0]);
        // The checkpoint that would be loaded stays, and so does the newest one even if `keep` is
        // 0.
        let listed = run(&NAMES, Some(&["checkpoint_20.mdl"]));
        assert_eq!(
            names(listed.prunable(0, None, &sound)),
            ["checkpoint_100.mdl", "checkpoint_100_20240131_235959.mdl"]
        );
    }
}
