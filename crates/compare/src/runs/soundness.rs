//! Which checkpoints of a run are sound, that is complete.
//!
//! A checkpoint is sound if its structure can be read to the end, nothing in it is missing, damaged
//! or unfinished (the `__SUCCESS__` mark of Cerebras checkpoints is one sign), and it has every
//! state that any other intact checkpoint of the run has. It is not sound if loading it would do
//! harm, or if its values were read and some are NaN or infinite.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::json::{Document, Id, JsonNode};
use statelens_checkpoint::{
    Checkpoint, Error, ErrorKind, FileSet, Finding, Grade, Limits, Text, Unwatched, Value, grouped,
};
use statelens_describe::FileGrade;

use super::{FileEntry, RunContents, RunFile, file_name, is_checkpoint_folder, lowest_and_highest};

/// The result of opening a checkpoint of a run.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct OpenCheck {
    /// The reason why it can't be opened, its missing or damaged parts, or the harm that loading it
    /// would do; empty if it is sound.
    pub wrong: String,
    /// The grade by its structure; `None` if Statelens can't judge it, because a part of its format
    /// is not supported or a limit was reached.
    #[serde(default)]
    pub structure: Option<FileGrade>,
    /// Number of values that are NaN or infinite; `None` until its values were read.
    #[serde(default)]
    pub not_finite: Option<u64>,
    /// What the grade is because of; may be empty.
    #[serde(default)]
    pub reason: String,
    /// The names of its top-level states.
    pub states: Vec<String>,
    /// The names of the checkpoints that the trainer considered the best when it saved this one.
    pub best: Vec<String>,
    /// The metrics that Orbax saved with it.
    pub metrics: Vec<(String, f64)>,
}

/// The file that Orbax writes into the folder of a step.
const STEP_METADATA: &str = "_CHECKPOINT_METADATA";
/// Maximum size in bytes of a JSON file next to the weights that is read.
const MAX_JSON: u64 = 64 << 20;

impl OpenCheck {
    /// Opens the main file of `files` as a checkpoint of a run. A step of Orbax, which can't be
    /// read, is judged by its metadata and the names of its files.
    pub fn open(files: &FileSet, limits: &Limits) -> Self {
        let Ok(main) = files.main() else { return Self::failed("there is no file") };
        let main = files.name(main);
        if let Some(folder) = main.strip_suffix(STEP_METADATA) {
            return Self::of_step(files, folder);
        }
        let mut check =
            Self::of(statelens_formats::open(files.clone(), limits, &mut Unwatched).as_ref());
        let mut ends = main.match_indices('/').map(|(at, _)| at);
        let folder = ends.find(|at| is_checkpoint_folder(file_name(&main[..*at])));
        let state = folder.and_then(|at| json(files, &main[..=at], "trainer_state.json"));
        let best = state.as_ref().and_then(|it| it.field(it.root(), "best_model_checkpoint"));
        let best = best.and_then(JsonNode::text).map(Text::to_string);
        check.best.extend(best.map(|path| file_name(&path).to_owned()));
        check
    }

    /// Creates the result for a step of Orbax in this folder. Orbax writes the time of the commit
    /// once everything else is saved.
    fn of_step(files: &FileSet, folder: &str) -> Self {
        let Some(step) = json(files, folder, STEP_METADATA) else {
            return Self::failed("its metadata can't be read");
        };
        if !matches!(step.field(step.root(), "commit_timestamp_nsecs"), Some(JsonNode::Int(_))) {
            let structure = Some(FileGrade::Incomplete);
            return Self { structure, ..Self::failed("its save was not completed") };
        }
        let paths =
            files.names().filter_map(|(_, name)| name.strip_prefix(folder)?.split_once('/'));
        let saved: HashSet<&[u8]> = paths.map(|(item, _)| item.as_bytes()).collect();
        let items = step.get(step.root(), "item_handlers").map_or(&[][..], |of| step.entries(of));
        let lacks = items.iter().find(|(item, _)| !saved.contains(item.as_bytes()));
        let metrics = json(files, folder, "metrics/metrics");
        let metrics = match &metrics {
            Some(metrics) => Some((metrics, metrics.root())),
            None => step.get(step.root(), "metrics").map(|id| (&step, id)),
        };
        let metrics = metrics.into_iter().flat_map(|(json, of)| {
            let number =
                |(name, id): &(Text, Id)| Some((name.to_string(), number(json.node(*id))?));
            json.entries(of).iter().filter_map(number)
        });
        let grade = if lacks.is_some() { FileGrade::Incomplete } else { FileGrade::Whole };
        Self {
            structure: Some(grade),
            wrong: lacks
                .map_or_else(String::new, |(item, _)| format!("it lacks the item `{item}`")),
            metrics: metrics.collect(),
            ..Self::default()
        }
    }

    /// Creates the result of opening a checkpoint.
    pub fn of(opened: Result<&Checkpoint, &Error>) -> Self {
        match opened {
            Err(error) => {
                let unknown = matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Limit);
                let structure = (!unknown).then_some(FileGrade::Damaged);
                Self { structure, ..Self::failed(error.what()) }
            }
            Ok(checkpoint) => {
                let (grade, worst) = FileGrade::of_findings(&checkpoint.findings);
                // Trainers save objects of their own: unknown code does not make a checkpoint unsound.
                let unsound =
                    |found: &&Finding| matches!(found.grade, Grade::Damage | Grade::Danger);
                let found =
                    worst.filter(unsound).or_else(|| checkpoint.findings.iter().find(unsound));
                let wrong = found.map(|found| found.title.clone()).unwrap_or_default();
                let (states, best) = (states(checkpoint), best(checkpoint));
                let reason = worst.map(|found| found.title.clone()).unwrap_or_default();
                let structure = Some(grade);
                Self { wrong, structure, reason, states, best, ..Self::default() }
            }
        }
    }

    /// Creates the result for a checkpoint that can't be opened.
    pub fn failed(why: impl Into<String>) -> Self {
        let why = why.into();
        let structure = Some(FileGrade::Damaged);
        Self { wrong: why.clone(), reason: why, structure, ..Self::default() }
    }

    /// Returns the grade by all that was read; `None` if Statelens can't judge it.
    pub fn grade(&self) -> Option<FileGrade> {
        Some(self.structure?.with_values(self.not_finite.unwrap_or(0)))
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
                Some(OpenCheck { not_finite: Some(count @ 1..), .. }) => Some(match count {
                    1 => "1 value is NaN or infinite".to_owned(),
                    count => format!("{} values are NaN or infinite", grouped(*count)),
                }),
                Some(check) => {
                    let has: HashSet<&str> = check.states.iter().map(String::as_str).collect();
                    let (state, other) = all.iter().find(|(state, _)| !has.contains(state))?;
                    Some(format!("it lacks the state `{state}`, which {other} has"))
                }
            }
        };
        self.entries.iter().enumerate().map(why).collect()
    }

    /// Returns the grades of [`RunContents::entries`]; `None` for those that were not opened or can't
    /// be judged. A checkpoint that is not sound only because it lacks a state is incomplete.
    pub fn grades(&self, checks: &[Option<OpenCheck>]) -> Vec<Option<FileGrade>> {
        let unsound = self.unsound(checks);
        let of = |at: usize| {
            let grade = checks.get(at)?.as_ref()?.grade()?;
            let lacks = matches!(unsound.get(at), Some(Some(_)));
            Some(if lacks { grade.max(FileGrade::Incomplete) } else { grade })
        };
        (0..self.entries.len()).map(of).collect()
    }

    /// Returns the names of the best checkpoints: those that the newest checkpoint of each series
    /// names, and those with the lowest and the highest value of a metric.
    pub fn best(&self, checks: &[Option<OpenCheck>]) -> Vec<String> {
        let (mut best, mut seen) = (Vec::new(), HashSet::new());
        let mut by_metric: HashMap<&str, Vec<(f64, &str)>> = HashMap::new();
        for (entry, check) in self.entries.iter().zip(checks).rev() {
            let Some(check) = check else { continue };
            let series = match &entry.kind {
                RunFile::Checkpoint(name) => Some(&name.series),
                _ => None,
            };
            if !check.best.is_empty() && seen.insert(series) {
                best.extend(check.best.iter().cloned());
            }
            for (name, value) in &check.metrics {
                by_metric.entry(name).or_default().push((*value, &entry.name));
            }
        }
        best.extend(by_metric.values().flat_map(|of| lowest_and_highest(of)).map(str::to_owned));
        best
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

/// Reads a JSON file in a folder; `None` if it is not there, too long or not valid.
fn json(files: &FileSet, folder: &str, name: &str) -> Option<Document> {
    let file = files.find(&format!("{folder}{name}"))?;
    let len = Some(files.len(file)).filter(|len| *len <= MAX_JSON)?;
    Document::parse(&files.read_vec(file, 0, len).ok()?).ok()
}

/// Returns a finite number.
fn number(node: &JsonNode) -> Option<f64> {
    match node {
        JsonNode::Int(int) => Some(int.to_i64()? as f64),
        JsonNode::Float(number) => Some(*number).filter(|number| number.is_finite()),
        _ => None,
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
    use statelens_checkpoint::{Builder, FormatInfo, Memory};
    use std::sync::Arc;

    fn memory(text: &str) -> Memory {
        Memory::from(text.as_bytes().to_vec())
    }

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
    fn checkpoints_that_would_do_harm_or_have_nan_are_not_sound() {
        let run = run(&["checkpoint_1.mdl", "checkpoint_2.mdl", "checkpoint_3.mdl"]);
        let opened = |grade| {
            let mut builder = Builder::new(&Limits::default());
            let root = builder.push(Value::None).unwrap();
            let format = FormatInfo { id: "x", name: "X", ..FormatInfo::default() };
            let files = FileSet::single("x", memory(""));
            let findings = vec![Finding::new(grade, "Loading would call eval")];
            let checkpoint = builder.finish(root, format, files, findings).unwrap();
            Some(OpenCheck::of(Ok(&checkpoint)))
        };
        let mut checks = [opened(Grade::UnknownCode), opened(Grade::Note), opened(Grade::Danger)];
        let unsound = run.unsound(&checks);
        assert_eq!(unsound[2].as_deref(), Some("Loading would call eval"));
        assert_eq!(run.latest_sound(&unsound).unwrap().name, "checkpoint_2.mdl");
        checks[1].as_mut().unwrap().not_finite = Some(2);
        let unsound = run.unsound(&checks);
        assert_eq!(unsound[1].as_deref(), Some("2 values are NaN or infinite"));
        assert_eq!(run.latest_sound(&unsound).unwrap().name, "checkpoint_1.mdl");
        let words = |checks: &[Option<OpenCheck>]| -> Vec<&str> {
            run.grades(checks).iter().map(|it| it.map_or("", FileGrade::word)).collect()
        };
        assert_eq!(words(&checks), ["unknown code", "not finite", "dangerous"]);
        assert_eq!(words(&[None, check("", &["model"]), None]), [""; 3], "not judged");
    }

    #[test]
    fn judges_steps_of_orbax_by_their_metadata() {
        let step = |metadata: &str, loss: &str| {
            let mut files = FileSet::single("r/7/_CHECKPOINT_METADATA", memory(metadata));
            for name in ["r/7/default/d/x", "r/8/other/x"] {
                files.push(name, Arc::new(memory("")));
            }
            files.push("r/7/metrics/metrics", Arc::new(memory(loss)));
            OpenCheck::open(&files, &Limits::default())
        };
        let metadata = |items: &str, commit: &str| {
            format!(r#"{{"item_handlers": {items}, "commit_timestamp_nsecs": {commit}}}"#)
        };
        let sound = step(
            &metadata(r#"{"default": "a.B"}"#, "5"),
            r#"{"loss": 0.5, "nan": NaN, "at": "x"}"#,
        );
        assert_eq!((sound.wrong.as_str(), &sound.metrics[..]), ("", &[("loss".into(), 0.5)][..]));
        for (metadata, wrong) in [
            (metadata(r#"{"default": "a.B", "other": "a.B"}"#, "5"), "it lacks the item `other`"),
            (metadata("{}", "null"), "its save was not completed"),
            ("{".into(), "its metadata can't be read"),
        ] {
            assert_eq!(step(&metadata, "").wrong, wrong);
        }
    }

    #[test]
    fn best_is_what_the_newest_checkpoint_names() {
        let names: Vec<String> = (1..=4).map(|step| format!("checkpoint_{step}.pt")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let best = |of: usize| vec![names[of].to_owned()];
        let checks = [0, 1, 1].map(|of| Some(OpenCheck { best: best(of), ..OpenCheck::default() }));
        assert_eq!(run(&names).best(&[&checks[..], &[None]].concat()), best(1));
        let metrics = [0.5, 0.25, 0.75, 0.5].map(|loss| {
            Some(OpenCheck { metrics: vec![("loss".into(), loss)], ..OpenCheck::default() })
        });
        assert_eq!(run(&names).best(&metrics), [names[1], names[2]]);
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
