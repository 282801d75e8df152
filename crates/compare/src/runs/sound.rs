//! Which checkpoints of a run are sound, that is complete.
//!
//! A checkpoint is sound if its structure can be read to the end, nothing in it is missing, damaged
//! or unfinished (the `__SUCCESS__` mark of Cerebras checkpoints is one sign), and it has every
//! state that any other intact checkpoint of the run has.

use std::collections::HashSet;

use statelens_checkpoint::{Checkpoint, Error, Grade, Value};

use super::{FileEntry, RunContents, RunFile, file_name};

/// The result of opening a checkpoint of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct OpenCheck {
    /// The reason why it can't be opened, or its missing or damaged parts; empty if it is sound.
    pub wrong: String,
    /// The names of its top-level states.
    pub states: Vec<String>,
    /// The names of the files that Lightning holds to be the best.
    pub best: Vec<String>,
}

impl OpenCheck {
    /// Creates the result of opening a checkpoint.
    pub fn of(opened: Result<&Checkpoint, &Error>) -> Self {
        match opened {
            Err(error) => Self::failed(error.what()),
            Ok(checkpoint) => {
                let mut findings = checkpoint.findings.iter();
                let found = findings.find(|found| found.grade == Grade::Damage);
                let wrong = found.map(|found| found.title.clone()).unwrap_or_default();
                Self { wrong, states: states(checkpoint), best: best(checkpoint) }
            }
        }
    }

    /// Creates the result for a checkpoint that can't be opened.
    pub fn failed(why: impl Into<String>) -> Self {
        Self { wrong: why.into(), ..Self::default() }
    }
}

impl RunContents {
    /// Returns, for each of [`RunContents::entries`] that the trainer loads, why it is not sound;
    /// `None` if it is sound or never loaded. `checks` has the result of each entry; entries
    /// that were not opened (`None`) are not sound.
    pub fn unsound(&self, checks: &[Option<OpenCheck>]) -> Vec<Option<String>> {
        let of = |at: usize| checks.get(at).and_then(Option::as_ref);
        // Every state of an intact checkpoint, with the name of the newest one that has it.
        let mut known: HashSet<&str> = HashSet::new();
        let mut all: Vec<(&str, &str)> = Vec::new();
        for (at, entry) in self.entries.iter().enumerate().rev() {
            let Some(check) = of(at).filter(|check| check.wrong.is_empty()) else { continue };
            if entry.is_checkpoint() {
                let new = check.states.iter().filter(|state| known.insert(state));
                all.extend(new.map(|state| (state.as_str(), entry.name.as_str())));
            }
        }
        let why = |(at, entry): (usize, &FileEntry)| {
            if !entry.is_loadable() {
                return None;
            }
            match of(at) {
                None => Some("its structure was not read".to_owned()),
                Some(check) if !check.wrong.is_empty() => Some(check.wrong.clone()),
                Some(check) => {
                    let has: HashSet<&str> = check.states.iter().map(String::as_str).collect();
                    let (state, other) = all.iter().find(|(state, _)| !has.contains(state))?;
                    Some(format!("it lacks the state `{state}`, which {other} has"))
                }
            }
        };
        self.entries.iter().enumerate().map(why).collect()
    }

    /// Returns the newest sound checkpoint that the trainer would not skip; `unsound` is the result
    /// of [`RunContents::unsound`].
    pub fn latest_sound(&self, unsound: &[Option<String>]) -> Option<&FileEntry> {
        let sound = |(at, entry): &(usize, &FileEntry)| {
            entry.is_loadable()
                && !self.only_folder.contains(&entry.name)
                && matches!(unsound.get(*at), Some(None))
        };
        let entries = || self.entries.iter().enumerate().rev().filter(sound);
        let last = entries().find(|(_, entry)| entry.kind == RunFile::Last);
        last.or_else(|| entries().next()).map(|(_, entry)| entry)
    }
}

/// Returns the names of the top-level states.
fn states(checkpoint: &Checkpoint) -> Vec<String> {
    match checkpoint.value(checkpoint.root()) {
        Value::Dict(dict) => dict.entries.iter().map(|(key, _)| key.to_string()).collect(),
        _ => Vec::new(),
    }
}

/// Returns the names of the files in `callbacks.*.best_model_path`.
fn best(checkpoint: &Checkpoint) -> Vec<String> {
    let entry = |id, wanted: &str| match checkpoint.value(checkpoint.resolve(id)) {
        Value::Dict(dict) => {
            let found = dict.entries.iter().find(|(key, _)| key.to_string() == wanted);
            found.map(|(_, id)| checkpoint.resolve(*id))
        }
        _ => None,
    };
    let callbacks = entry(checkpoint.root(), "callbacks").map(|id| checkpoint.value(id));
    let Some(Value::Dict(callbacks)) = callbacks else { return Vec::new() };
    let paths = callbacks.entries.iter().filter_map(|(_, id)| entry(*id, "best_model_path"));
    let names = paths.filter_map(|id| match checkpoint.value(id) {
        Value::Str(path) => Some(file_name(&path.to_lossy()).to_owned()),
        _ => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::NamePattern;

    fn run(names: &[&str]) -> RunContents {
        let files = names.iter().map(|name| ((*name).to_owned(), 10)).collect();
        RunContents::new(files, None, &NamePattern::default())
    }

    fn check(wrong: &str, states: &[&str]) -> Option<OpenCheck> {
        let states = states.iter().map(|state| (*state).to_owned()).collect();
        Some(OpenCheck { wrong: wrong.to_owned(), states, ..OpenCheck::default() })
    }

    #[test]
    fn sound_checkpoint_is_complete_with_all_states() {
        let run = run(&[
            "checkpoint_1.mdl",
            "checkpoint_2.mdl",
            "checkpoint_3.mdl",
            "checkpoint_4.mdl",
            "notes.txt",
        ]);
        let checks = [
            check("", &["model", "optimizer"]),
            check("", &["model"]),
            check("cut short", &["model", "optimizer", "dataloader"]),
            None,
            None,
        ];
        let unsound = run.unsound(&checks);
        assert_eq!(unsound[0], None);
        let lacks = "it lacks the state `optimizer`, which checkpoint_1.mdl has";
        assert_eq!(unsound[1].as_deref(), Some(lacks));
        assert_eq!(unsound[2].as_deref(), Some("cut short"));
        assert_eq!(unsound[3].as_deref(), Some("its structure was not read"));
        assert_eq!(unsound[4], None);
        assert_eq!(run.latest_sound(&unsound).unwrap().name, "checkpoint_1.mdl");
        assert_eq!(run.latest_sound(&[]), None);
    }

    #[test]
    fn prune_does_not_count_damaged_checkpoints() {
        let run = run(&[
            "checkpoint_1.mdl",
            "checkpoint_2.mdl",
            "checkpoint_3.mdl",
            "checkpoint_4.mdl",
            "checkpoint_5.mdl",
        ]);
        let bad = Some("cut short".to_owned());
        let names = |keep, unsound: &[Option<String>]| -> Vec<String> {
            run.prunable(keep, None, unsound, &[]).iter().map(|entry| entry.name.clone()).collect()
        };
        // The newest is cut short, so the newest sound one is kept in addition to it.
        let newest = [None, None, None, None, bad.clone()];
        assert_eq!(names(1, &newest), ["checkpoint_1.mdl", "checkpoint_2.mdl", "checkpoint_3.mdl"]);
        assert_eq!(names(3, &newest), ["checkpoint_1.mdl"]);
        // Damaged ones in between do not count, and those older than all that are kept can be
        // deleted.
        let between = [bad.clone(), None, None, bad.clone(), None];
        assert_eq!(names(2, &between), ["checkpoint_1.mdl", "checkpoint_2.mdl"]);
        // Nothing is deleted if too few are sound.
        let all = vec![bad; 5];
        assert_eq!(names(1, &all), [""; 0]);
        assert_eq!(names(4, &between), [""; 0]);
    }
}
