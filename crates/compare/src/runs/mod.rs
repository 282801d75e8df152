//! A run folder (`model_dir`): which of its files are checkpoints, which one the trainer would load
//! by itself, and which ones can be deleted. This uses names, sizes and the text of the index; it
//! does not open files. The results of opening them come in as [`OpenCheck`].
//!
//! The rules are those of the Cerebras trainer: the latest checkpoint is the one with the highest
//! step, then the newest timestamp in its name; one without a timestamp comes before those with
//! one. It ignores modification times; if they contradict the steps, a
//! new run may have been started in the folder (see [`RunContents::with_times`]). If there is an index (`checkpoints_index.yaml`), only the
//! checkpoints that it lists count.
//!
//! Checkpoints of other trainers, which may be folders, are recognised by name (`trainers.rs`).

mod index;
mod pattern;
mod soundness;
#[cfg(test)]
mod tests;
mod trainers;
mod value_cache;
mod values;

pub use index::{INDEX, parse_index};
pub use pattern::{CheckpointName, NamePattern};
pub use soundness::OpenCheck;
pub use trainers::{
    LATEST_FILES, MAX_LATEST, folder_marks, marked_folders, named_latest, weights_of,
};
pub use value_cache::{KEPT, KeptValues, MAX_KEPT, time_text};
pub use values::{
    FirstLines, GroupValues, Grouping, StepValues, TensorGroups, TimelineMeasure, first_lines,
    group_names, over_steps, values_json,
};

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use statelens_checkpoint::order;
use statelens_describe::FileGrade;
use statelens_formats::sets;
use statelens_values::report_json;

/// A file in the run folder, or a subfolder that is a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Its name, without the folder.
    pub name: String,
    /// Its size; for a folder, the total size of its files.
    pub bytes: u64,
    /// Its kind, derived from its name.
    pub kind: RunFile,
    /// For a folder, the paths of its files relative to the run folder, and their sizes; the files
    /// of a checkpoint of TensorFlow; empty for another file.
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
    /// The last checkpoint under a fixed name (`last.ckpt`), which the trainer loads; also one of
    /// DeepSpeed under a name without a step.
    Last,
    /// The best checkpoint (`checkpoint_best.pt`).
    Best,
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
    /// Checkpoints that were written after the one with the highest step of their series, the newest
    /// first: a new run may have been started in the folder.
    pub newer_by_time: Vec<String>,
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
        let mut groups: HashMap<String, FileEntry> = HashMap::new();
        let mut entries: Vec<FileEntry> = Vec::new();
        let paths = || files.iter().map(|(path, _)| path.as_str());
        let marked = marked_folders(paths());
        let indices: HashSet<&str> =
            paths().filter_map(|path| path.strip_suffix(".index")).collect();
        let whole = match pattern.is_default() {
            true => trainers::tensorflow_v1(paths(), &indices),
            false => HashMap::new(),
        };
        for (path, bytes) in &files {
            let of_v1 = whole.get_key_value(trainers::prefix_v1(path));
            let grouped = match path.split_once('/') {
                Some((top, _)) if marked.contains(top) => {
                    Some((top.to_owned(), Some(trainers::marked(top))))
                }
                Some((top, _)) if is_unfinished_folder(top) => {
                    Some((top.to_owned(), Some(RunFile::Temporary)))
                }
                Some((top, _)) => {
                    Some((top.to_owned(), trainers::folder(top).map(RunFile::Checkpoint)))
                }
                None => trainers::of_tensorflow(path)
                    .filter(|(prefix, _)| pattern.is_default() && indices.contains(prefix))
                    .and_then(|(prefix, _)| Some((prefix, trainers::tensorflow(prefix)?)))
                    .map(|(prefix, name)| {
                        (format!("{prefix}.index"), Some(RunFile::Checkpoint(name)))
                    })
                    .or_else(|| {
                        let (prefix, main) = of_v1?;
                        let name = trainers::tensorflow(prefix)?;
                        Some(((*main).to_owned(), Some(RunFile::Checkpoint(name))))
                    }),
            };
            let Some((name, kind)) = grouped else {
                let (name, kind) = (path.clone(), kind(path, pattern));
                entries.push(FileEntry { name, bytes: *bytes, kind, members: Vec::new() });
                continue;
            };
            let Some(kind) = kind else { continue };
            let group = groups.entry(name).or_insert_with_key(|name| FileEntry {
                name: name.clone(),
                bytes: 0,
                kind,
                members: Vec::new(),
            });
            group.bytes = group.bytes.saturating_add(*bytes);
            group.members.push((path.clone(), *bytes));
        }
        entries.extend(groups.into_values());
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
            newer_by_time: Vec::new(),
        };
        let names: HashSet<String> = run.checkpoints().map(|entry| entry.name.clone()).collect();
        let mut listed = HashSet::new();
        for path in index.unwrap_or_default() {
            let name = file_name(&path);
            if names.contains(name) {
                listed.insert(name.to_owned());
            } else {
                run.only_index.push(path);
            }
        }
        let indexed = run.indexed;
        let counts = |entry: &&FileEntry| !indexed || listed.contains(&entry.name);
        // A version makes a name longer: `last-v1.ckpt`.
        let lasts = run.entries.iter().filter(|entry| !indexed && entry.kind == RunFile::Last);
        let last = lasts.max_by_key(|entry| (entry.name.len(), &entry.name));
        let latest = last.or_else(|| run.checkpoints().rfind(counts));
        let latest = latest.map(|entry| entry.name.clone());
        let unlisted = run.checkpoints().filter(|entry| !counts(entry));
        let only_folder = unlisted.map(|entry| entry.name.clone()).collect();
        (run.latest, run.only_folder) = (latest, only_folder);
        run
    }

    /// Sets the entry that the trainer loads, as named by [`named_latest`]. If that checkpoint does
    /// not exist, the trainer loads nothing.
    #[must_use]
    pub fn with_latest(mut self, name: Option<String>) -> Self {
        let Some(mut name) = name.filter(|_| !self.indexed) else { return self };
        // verl writes the same file as Megatron, and has other names of folders.
        let step = name.strip_prefix("iter_").and_then(|step| step.parse::<u64>().ok());
        let of_verl = step.map(|step| format!("global_step_{step}"));
        if let Some(other) = of_verl.filter(|other| self.entries.iter().any(|it| it.name == *other))
        {
            name = other;
        }
        let is_known = trainers::folder(&name).is_some()
            || name.ends_with(".index")
            || self.entries.iter().any(FileEntry::is_folder);
        // A checkpoint of TensorFlow's V1 Saver has no index.
        let whole = name.strip_suffix(".index");
        let is_named = |entry: &&mut FileEntry| {
            entry.name == name && !entry.members.is_empty()
                || !entry.is_folder()
                    && !entry.name.ends_with(".meta")
                    && whole == Some(trainers::prefix_v1(&entry.name))
        };
        match self.entries.iter_mut().find(is_named) {
            Some(entry) => {
                // It is loaded, whatever its name.
                if matches!(entry.kind, RunFile::Best | RunFile::Other) {
                    entry.kind = RunFile::Last;
                }
                self.latest = Some(entry.name.clone());
            }
            None if is_known => (self.latest, self.absent_latest) = (None, Some(name)),
            // The file is about something else.
            None => {}
        }
        self
    }

    /// Compares the order of the steps with that in which the files were written. `time` returns the
    /// modification time of a path relative to the folder, in seconds.
    #[must_use]
    pub fn with_times(mut self, time: impl Fn(&str) -> Option<u64>) -> Self {
        let written = |entry: &FileEntry| time(entry.opened()?);
        let mut last: HashMap<&str, u64> = HashMap::new();
        let mut newer: Vec<(u64, String)> = Vec::new();
        for entry in self.entries.iter().rev() {
            let (RunFile::Checkpoint(name), Some(at)) = (&entry.kind, written(entry)) else {
                continue;
            };
            let last = *last.entry(&name.series).or_insert(at);
            if at > last.saturating_add(MARGIN) {
                newer.push((at, entry.name.clone()));
            }
        }
        newer.sort_by(|one, other| other.cmp(one));
        self.newer_by_time = newer.into_iter().map(|(_, name)| name).collect();
        self
    }

    /// Returns the sentence about checkpoints that are newer than the one with the highest step;
    /// `None` if there are no newer ones.
    pub fn restarted(&self) -> Option<String> {
        let first = self.newer_by_time.first()?;
        let more = match self.newer_by_time.len() {
            1 => String::new(),
            more => format!(" and {} more were", more - 1),
        };
        let was = if more.is_empty() { " was" } else { "" };
        Some(format!(
            "{first}{more}{was} written after the checkpoint with the highest step: a new run may have \
             been started in this folder"
        ))
    }

    /// Returns the checkpoints that count for the trainer, the oldest first.
    pub fn checkpoints(&self) -> impl DoubleEndedIterator<Item = &FileEntry> {
        self.entries.iter().filter(|entry| entry.is_checkpoint())
    }

    /// Returns the checkpoints that can be deleted if the newest `keep` sound ones are kept.
    /// `unsound` is the result of [`RunContents::unsound`].
    ///
    /// Also kept are checkpoints whose step is a multiple of `every`, the one that would be loaded,
    /// the newest sound one of the trainer's, those in `best`, those with the lowest or the highest
    /// metric in their name, and everything newer than the oldest that is kept. Returns nothing if
    /// fewer than `keep` are sound. Never returns files that are not named as checkpoints.
    ///
    /// Each series ([`CheckpointName::series`]) is counted separately. Returns only its sound
    /// checkpoints, and none of them if two have the same number. Of those in `newer_by_time`, as
    /// many sound ones are kept as well.
    pub fn prunable(
        &self,
        keep: usize,
        every: Option<u64>,
        unsound: &[Option<String>],
        best: &[String],
    ) -> Vec<&FileEntry> {
        let extremes = self.extremes();
        let stays = |entry: &FileEntry| match &entry.kind {
            RunFile::Checkpoint(name) => {
                every.is_some_and(|every| every > 0 && name.step.is_multiple_of(every.into()))
            }
            _ => true,
        };
        let mut kept: HashMap<&str, usize> = HashMap::new();
        let mut seen = HashSet::new();
        let mut mixed = HashSet::new();
        let mut old = Vec::new();
        for (at, entry) in self.entries.iter().enumerate().rev() {
            let RunFile::Checkpoint(name) = &entry.kind else { continue };
            let series = name.series.as_str();
            let sound = matches!(unsound.get(at), Some(None));
            if !series.is_empty() && !seen.insert(name) {
                mixed.insert(series);
            }
            let kept = kept.entry(series).or_default();
            if *kept < keep.max(1) {
                *kept += usize::from(sound);
            } else if sound || series.is_empty() {
                old.push((series, entry));
            }
        }
        let is_sound = |name: &str| {
            let at = self.entries.iter().position(|entry| entry.name == name);
            at.is_some_and(|at| matches!(unsound.get(at), Some(None)))
        };
        let mut newest: HashSet<&str> = HashSet::new();
        let mut left = keep.max(1);
        for name in &self.newer_by_time {
            if left == 0 {
                break;
            }
            newest.insert(name);
            left -= usize::from(is_sound(name));
        }
        let sound = self.latest_sound(unsound).map(|entry| &entry.name);
        let prunable = old.into_iter().rev().filter(|(series, entry)| {
            !stays(entry)
                && !mixed.contains(series)
                && !newest.contains(entry.name.as_str())
                && !best.contains(&entry.name)
                && !extremes.contains(entry.name.as_str())
                && Some(&entry.name) != self.latest.as_ref()
                && Some(&entry.name) != sound
        });
        prunable.map(|(_, entry)| entry).collect()
    }

    /// Returns the names of the checkpoints with the lowest or the highest metric in their name.
    fn extremes(&self) -> HashSet<&str> {
        let mut by_metric: HashMap<(String, usize), Vec<(f64, &str)>> = HashMap::new();
        for entry in self.checkpoints() {
            let stem = entry.name.rsplit_once('.').map_or(&*entry.name, |(stem, _)| stem);
            for (at, metric) in trainers::metrics(stem).into_iter().enumerate() {
                let same = by_metric.entry((trainers::masked(stem), at)).or_default();
                same.push((metric, &entry.name));
            }
        }
        by_metric.values().flat_map(|of| lowest_and_highest(of)).collect()
    }

    /// Returns the contents as JSON. `checked` has the problem of each entry, or an empty string, and
    /// its grade, if it is known.
    pub fn json<'a>(
        &self,
        checked: impl IntoIterator<Item = (&'a str, Option<FileGrade>)>,
    ) -> String {
        #[derive(Serialize)]
        struct Report<'a> {
            #[serde(flatten)]
            contents: &'a RunContents,
            files: Vec<EntryFields<'a>>,
        }
        let entries = self.entries.iter().zip(checked);
        let files = entries.map(|(entry, (wrong, grade))| EntryFields::of(entry, wrong, grade));
        report_json(&Report { contents: self, files: files.collect() })
    }
}

impl FileEntry {
    /// Returns the path of the file to open, relative to the run folder; `None` for a folder
    /// without weights.
    pub fn opened(&self) -> Option<&str> {
        match self.is_folder() {
            false => Some(&self.name),
            true => trainers::main(&self.members),
        }
    }

    /// Returns whether it is a folder.
    pub fn is_folder(&self) -> bool {
        self.members.first().is_some_and(|(path, _)| path.contains('/'))
    }

    /// Returns the paths of all its files, relative to the run folder, and their sizes.
    pub fn files(&self) -> Vec<(&str, u64)> {
        match self.members.is_empty() {
            true => vec![(&self.name, self.bytes)],
            false => self.members.iter().map(|(path, bytes)| (path.as_str(), *bytes)).collect(),
        }
    }

    /// Returns whether the trainer may load it.
    pub fn is_loadable(&self) -> bool {
        self.is_checkpoint() || self.kind == RunFile::Last
    }

    /// Returns whether the trainer counts it as a checkpoint.
    pub fn is_checkpoint(&self) -> bool {
        matches!(self.kind, RunFile::Checkpoint(_))
    }

    /// Returns whether it is named as a checkpoint, or as some states of one, and so can be opened.
    pub fn holds_states(&self) -> bool {
        self.is_loadable() || matches!(self.kind, RunFile::Best | RunFile::Subset { .. })
    }
}

/// A file in JSON.
#[derive(Serialize)]
struct EntryFields<'a> {
    name: &'a str,
    what: &'static str,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<StepField>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grade: Option<&'static str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    wrong: &'a str,
}

/// A step; as text if it exceeds the numbers that JSON parsers can hold.
#[derive(Serialize)]
#[serde(untagged)]
enum StepField {
    Number(u64),
    Text(String),
}

impl<'a> EntryFields<'a> {
    fn of(entry: &'a FileEntry, wrong: &'a str, grade: Option<FileGrade>) -> Self {
        let name = match &entry.kind {
            RunFile::Checkpoint(name) => Some(name),
            _ => None,
        };
        let step = |name: &CheckpointName| match u64::try_from(name.step) {
            Ok(step) => StepField::Number(step),
            Err(_) => StepField::Text(name.step.to_string()),
        };
        Self {
            name: &entry.name,
            what: entry.kind.word(),
            bytes: entry.bytes,
            step: name.map(step),
            timestamp: name.and_then(|name| name.timestamp.as_deref()),
            grade: grade.map(|grade| grade.word()),
            wrong,
        }
    }
}

impl RunFile {
    /// Returns a word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Checkpoint(_) => "checkpoint",
            Self::Last => "last",
            Self::Best => "best",
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
    if let Some(kind) = trainers::file(name).filter(|_| pattern.is_default()) {
        return kind;
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

/// Returns the names with the lowest and the highest value.
fn lowest_and_highest<'a>(of: &[(f64, &'a str)]) -> impl Iterator<Item = &'a str> + use<'a> {
    let lowest = of.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let highest = of.iter().max_by(|a, b| a.0.total_cmp(&b.0));
    [lowest, highest].map(|one| one.map(|(_, name)| *name)).into_iter().flatten()
}

/// Returns the name of the file in a path of any system.
pub fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Seconds by which a checkpoint must be newer than one with a higher step to contradict its order:
/// files of several checkpoints may be written or copied at the same time.
const MARGIN: u64 = 60;

/// Returns whether the name is that of an incomplete file: `NAME.0123abcd.tmp`, as the Cerebras
/// library writes it, and any other of these endings, one of which this program uses.
fn is_temporary(name: &str) -> bool {
    [".tmp", ".part", ".partial", ".incomplete"].iter().any(|end| name.ends_with(end))
        || sets::is_unfinished(name)
}

/// Returns whether a folder with this name is left over from an interrupted save of a checkpoint:
/// `tmp-checkpoint-300` of Hugging Face's Trainer, `500.orbax-checkpoint-tmp-17` of Orbax, and
/// names with similar words.
pub fn is_unfinished_folder(name: &str) -> bool {
    const STARTS: [&str; 5] = ["tmp-", "tmp_", "tmp.", "temp-", "temp_"];
    const ENDS: [&str; 9] = [
        "-tmp",
        "_tmp",
        ".tmp",
        ".temp",
        "_temp",
        ".part",
        ".partial",
        ".incomplete",
        "-incomplete",
    ];
    if let Some((step, _)) = name.split_once(".orbax-checkpoint-tmp") {
        return !step.is_empty();
    }
    let hidden = name.strip_prefix('.').unwrap_or(name);
    let started = STARTS.iter().find_map(|start| hidden.strip_prefix(start));
    let ended = ENDS.iter().find_map(|end| hidden.strip_suffix(end));
    started.or(ended).is_some_and(is_checkpoint_folder)
}
