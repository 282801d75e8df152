//! A run folder (`model_dir`): which of its files are checkpoints, which one the trainer would
//! load by itself, what could be thrown away. From names, sizes and the text of the index; no
//! file is opened here. What opening them tells comes in as [`OpenCheck`].
//!
//! The rules are those of the Cerebras trainer: the latest checkpoint is the one with the highest
//! step, then the newest timestamp in its name; one without a timestamp comes before those with
//! one. Modification times are never looked at. Where there is an index
//! (`checkpoints_index.yaml`), only what it lists counts.
//!
//! Checkpoints of other trainers, which may be folders, are known by their names (`trainers.rs`).

mod index;
mod kept;
mod pattern;
mod sound;
mod trainers;
mod values;

pub use index::{INDEX, parse_index};
pub use kept::{KEPT, KeptValues, LONGEST_KEPT, time_text};
pub use pattern::{CheckpointName, NamePattern};
pub use sound::OpenCheck;
pub use trainers::{LATEST_FILES, named_latest};
pub use values::{
    FirstLines, GroupValues, Grouping, StepValues, TensorGroups, TimelineMeasure, first_lines,
    group_names, over_steps, values_json,
};

use statelens_checkpoint::order;
use std::collections::HashSet;

use crate::Json;

/// A file of the folder, or a folder in it that is a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Its name, without the folder.
    pub name: String,
    /// Its size; of a folder, that of its files.
    pub bytes: u64,
    /// What it is, by its name.
    pub kind: RunFile,
    /// Of a folder, the paths of its files from the run folder and their sizes; empty for a file.
    pub members: Vec<(String, u64)>,
}

/// Whether a folder of that name is a checkpoint of a run.
pub fn is_checkpoint_folder(name: &str) -> bool {
    trainers::folder(name).is_some()
}

/// What a file of a run folder is, by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunFile {
    /// A checkpoint that the trainer counts.
    Checkpoint(CheckpointName),
    /// Named as one, but for a timestamp that is no date: the trainer passes it over.
    NoDate,
    /// Some states of a checkpoint, saved besides it (`model_checkpoint_500.mdl`).
    Subset {
        /// The states, joined by `_`.
        states: String,
        /// The checkpoint that they are of.
        of: String,
    },
    /// What a run that restarts by itself keeps (`trainer_state_500.mdl`).
    TrainerState,
    /// What saving left behind when it was interrupted.
    Temporary,
    /// The list of checkpoints, or its lock.
    Index,
    /// Anything else.
    Other,
}

/// What is in a run folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunContents {
    /// The checkpoints, the oldest first; then everything else by name.
    pub entries: Vec<FileEntry>,
    /// The name of the checkpoint that the trainer would load by itself.
    pub latest: Option<String>,
    /// Whether there is an index.
    pub indexed: bool,
    /// Paths in the index that are not in the folder, or no checkpoints by their names.
    pub only_index: Vec<String>,
    /// Checkpoints that the index does not list; empty without one.
    pub only_folder: Vec<String>,
}

impl RunContents {
    /// Sorts the files of a folder. `files` are paths from it and sizes: names, and paths of files in folders that
    /// are checkpoints. `index`: the paths that the index lists, if there is one.
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

    /// Takes an entry for the one that the trainer loads, as [`named_latest`] says, if it is there.
    #[must_use]
    pub fn with_latest(mut self, name: Option<String>) -> Self {
        let there = name.filter(|name| self.checkpoints().any(|entry| entry.name == *name));
        if !self.indexed && there.is_some() {
            self.latest = there;
        }
        self
    }

    /// The checkpoints that the trainer counts, the oldest first.
    pub fn checkpoints(&self) -> impl DoubleEndedIterator<Item = &FileEntry> {
        self.entries.iter().filter(|entry| entry.is_checkpoint())
    }

    /// The checkpoints that may go if the newest `keep` that count stay ([`RunContents::unsound`] says of
    /// each entry why it does not count), those whose step is a multiple of `every` besides, and
    /// in any case the one that would be loaded and the newest one of the trainer's that counts. What is newer than the oldest that is kept stays,
    /// too, and nothing goes while fewer than `keep` count. Nothing that is not named as a
    /// checkpoint is ever among them.
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

    /// As JSON; `wrong` says for each entry what is wrong with it, empty for nothing.
    pub fn json<'a>(&self, wrong: impl IntoIterator<Item = &'a str>) -> String {
        let mut json = Json::new();
        json.object(|json| {
            json.name("statelens").number(1);
            json.name("latest");
            match &self.latest {
                Some(name) => json.str(name),
                None => json.null(),
            }
            json.name("indexed").bool(self.indexed);
            for (name, list) in
                [("only_index", &self.only_index), ("only_folder", &self.only_folder)]
            {
                json.name(name).array(|json| list.iter().for_each(|name| json.str(name)));
            }
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
    /// The path of the file to open, from the run folder; `None` for a folder without weights.
    pub fn opened(&self) -> Option<&str> {
        match self.members.is_empty() {
            true => Some(&self.name),
            false => trainers::main(&self.members),
        }
    }

    /// All files of it, as paths from the run folder, with their sizes.
    pub fn files(&self) -> Vec<(&str, u64)> {
        match self.members.is_empty() {
            true => vec![(&self.name, self.bytes)],
            false => self.members.iter().map(|(path, bytes)| (path.as_str(), *bytes)).collect(),
        }
    }

    /// Whether the trainer counts it as a checkpoint.
    pub fn is_checkpoint(&self) -> bool {
        matches!(self.kind, RunFile::Checkpoint(_))
    }

    /// Whether it is named as a checkpoint, or as some states of one: what can be opened.
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
                    // A step may be larger than what JSON's readers hold.
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
    /// A word for it.
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

/// `NAME.0123abcd.tmp`, as the Cerebras library names a file until it is complete, and whatever else
/// ends so; what this program does until then.
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
    fn files_are_told_apart_by_their_names() {
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
    fn only_what_the_index_lists_counts() {
        let index = ["/runs/a/checkpoint_20.mdl", "checkpoint_9.mdl", "/runs/a/checkpoint_100.mdl"];
        let run = run(&NAMES, Some(&index));
        assert_eq!(run.latest.as_deref(), Some("checkpoint_100.mdl"));
        assert_eq!(run.only_index, ["checkpoint_9.mdl"]);
        assert_eq!(run.only_folder.len(), 2);
    }

    #[test]
    fn pruning_takes_old_checkpoints_only() {
        let names = |entries: Vec<&FileEntry>| -> Vec<String> {
            entries.into_iter().map(|entry| entry.name.clone()).collect()
        };
        let all = run(&NAMES, None);
        let sound = vec![None; NAMES.len()];
        let gone = |keep, every| names(all.prunable(keep, every, &sound));
        assert_eq!(gone(2, None), ["checkpoint_20.mdl", "checkpoint_100.mdl"]);
        assert_eq!(gone(1, Some(100)), ["checkpoint_20.mdl"]);
        assert_eq!(gone(9, None), [""; 0]);
        // What would be loaded stays, and so does the newest even if none is to be kept.
        let listed = run(&NAMES, Some(&["checkpoint_20.mdl"]));
        assert_eq!(
            names(listed.prunable(0, None, &sound)),
            ["checkpoint_100.mdl", "checkpoint_100_20240131_235959.mdl"]
        );
    }
}
