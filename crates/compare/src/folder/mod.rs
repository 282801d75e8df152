//! Checks whether a folder with a model is whole and consistent: files, indexes, shards, layers,
//! config and tokenizer. Reads structure only, never weights.
//!
//! Defects are reported by rules ([`RULES`]) with stable ids. An error means that a loader in
//! common use refuses the folder, loads random, wrong or missing values, or depends on the order of
//! reading; or that files are missing. A warning means that the model loads, but the folder
//! contradicts itself or holds something twice.

mod adapter;
mod config;
mod contents;
mod document;
mod experts;
mod fields;
mod files;
mod gguf;
mod heads;
mod index;
mod layers;
mod places;
mod quantised;
mod rebuild;
mod rules;
mod sets;
mod shard;
mod sizes;
mod tokenizer;
mod widths;

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};
use statelens_checkpoint::{Error, FileSet, Limits, Progress, Result};
use statelens_formats::sets::CheckpointFiles;
use statelens_values::report_json;

pub use rebuild::{RebuiltIndex, rebuild_indexes};
pub use rules::{RULES, Rule, rule, rules_markdown};

/// How much a finding matters.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Not reported.
    Off,
    /// Worth knowing.
    #[default]
    Note,
    /// The model loads, but the folder contradicts itself.
    Warning,
    /// The model does not load, or loads with other values.
    Error,
}

impl Level {
    /// All levels, the mildest first.
    pub const ALL: [Self; 4] = [Self::Off, Self::Note, Self::Warning, Self::Error];

    /// Returns the name of the level, as in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The levels of rules that differ from the defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleLevels(HashMap<&'static str, Level>);

impl RuleLevels {
    /// Parses `RULE=LEVEL`, and sets the level of the rule.
    ///
    /// # Errors
    /// Names the known rules or levels if one is unknown.
    pub fn set(&mut self, text: &str) -> Result<()> {
        let (name, level) = text.split_once('=').unwrap_or((text, ""));
        let Some(level) = Level::ALL.into_iter().find(|known| known.word() == level) else {
            return Err(Error::refused(format!("`{text}` gives no level to a rule"))
                .expected("RULE=off, RULE=note, RULE=warning or RULE=error"));
        };
        let Some(rule) = rule(name) else {
            return Err(Error::refused(format!("there is no rule `{name}`"))
                .advice("docs/rules.md lists the rules."));
        };
        self.0.insert(rule.id, level);
        Ok(())
    }

    fn of(&self, rule: &Rule) -> Level {
        self.0.get(rule.id).copied().unwrap_or(rule.level)
    }
}

/// What a rule found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleFinding {
    /// The id of the rule.
    pub rule: String,
    /// How much it matters.
    pub level: Level,
    /// The file; may be empty.
    pub file: String,
    /// The key of a tensor; may be empty.
    pub key: String,
    /// The fact, as a sentence without a full stop.
    pub text: String,
    /// What to do about it, in whole sentences.
    pub fix: String,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FolderReport {
    /// Whether there are no errors.
    pub whole: bool,
    /// Number of errors.
    pub errors: u64,
    /// Number of warnings.
    pub warnings: u64,
    /// Number of files with weights.
    pub weight_files: u64,
    /// Number of tensors in them.
    pub tensors: u64,
    /// The findings, the worst first.
    pub findings: Vec<RuleFinding>,
}

impl FolderReport {
    /// Sorts the findings by their level, and counts them.
    fn count(&mut self) {
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
        let count = |level| self.findings.iter().filter(|one| one.level == level).count() as u64;
        (self.errors, self.warnings) = (count(Level::Error), count(Level::Warning));
        self.whole = self.errors == 0;
    }

    /// Returns the report as JSON, as `docs/json.md` describes it.
    pub fn json(&self) -> String {
        report_json(self)
    }

    /// Returns the verdict in one line.
    pub fn verdict(&self) -> String {
        use statelens_checkpoint::counted;
        let found = match (self.errors, self.warnings) {
            (0, 0) => "no errors and no warnings".to_owned(),
            (errors, warnings) => {
                format!("{}, {}", counted(errors, "error"), counted(warnings, "warning"))
            }
        };
        let word = if self.whole { "whole" } else { "not whole" };
        let files = counted(self.weight_files, "file");
        format!("{word}: {found}; {} in {files} with weights", counted(self.tensors, "tensor"))
    }
}

/// Collects what the rules find.
struct Findings<'a> {
    levels: &'a RuleLevels,
    list: Vec<RuleFinding>,
}

impl Findings<'_> {
    /// Adds a finding about a file, unless its rule is off.
    fn add(&mut self, rule: &'static Rule, file: &str, text: String) {
        self.add_key(rule, file, "", text);
    }

    /// Adds a finding about a tensor.
    fn add_key(&mut self, rule: &'static Rule, file: &str, key: &str, text: String) {
        let level = self.levels.of(rule);
        if level != Level::Off {
            self.list.push(RuleFinding {
                rule: rule.id.to_owned(),
                level,
                file: file.to_owned(),
                key: key.to_owned(),
                text,
                fix: rule.fix.to_owned(),
            });
        }
    }

    /// Sets what to do about the last finding, if it is of that rule.
    fn fix_last(&mut self, rule: &'static Rule, fix: String) {
        if let Some(last) = self.list.last_mut().filter(|last| last.rule == rule.id) {
            last.fix = fix;
        }
    }
}

/// Checks the files of a folder, whose names are relative to it. With `only`, checks the checkpoint
/// of that file with its index, config and tokenizer. Otherwise, each subfolder
/// with weights of its own is checked in the same way.
///
/// # Errors
/// Fails if a file can't be read, or if a limit is reached. Damaged files are findings.
pub fn check_folder(
    files: &FileSet,
    only: Option<&str>,
    levels: &RuleLevels,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<FolderReport> {
    let ranks = statelens_formats::sets::of_ranks(files);
    let below = if only.is_none() { subfolders(files, &ranks) } else { BTreeMap::new() };
    let own = ranks.iter().filter(|set| !set.main.contains('/')).cloned().collect();
    let mut whole = check_files(files, only, own, levels, limits, progress)?;
    if !below.is_empty() {
        whole.findings.retain(|finding| finding.rule != rules::NO_WEIGHTS.id);
    }
    for (folder, mut members) in below {
        let relative = |name: &str| -> Option<String> {
            Some(name.strip_prefix(folder)?.strip_prefix('/')?.to_owned())
        };
        let mut own = Vec::new();
        for set in &ranks {
            let Some(main) = relative(&set.main).filter(|main| !main.contains('/')) else {
                continue;
            };
            members.extend(set.members.iter().map(String::as_str));
            let inside = set.members.iter().filter_map(|name| relative(name)).collect();
            own.push(CheckpointFiles { main, members: inside, name: set.name.clone() });
        }
        let mut inside = FileSet::default();
        for (_, file) in files.iter() {
            let name = file.name.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
            if let Some(name) = name.filter(|_| members.contains(file.name.as_str())) {
                let mut member = file.clone();
                member.name = name.to_owned();
                inside.push_file(member);
            }
        }
        let report = check_files(&inside, None, own, levels, limits, progress)?;
        whole.weight_files += report.weight_files;
        whole.tensors += report.tensors;
        whole.findings.extend(report.findings.into_iter().map(|finding| RuleFinding {
            file: format!("{folder}/{}", finding.file),
            text: format!("{folder}: {}", finding.text),
            ..finding
        }));
    }
    whole.count();
    Ok(whole)
}

/// Returns the subfolders that have weights which no index above them names, and the names of their
/// files, without those of folders below. Sets of ranks belong to the folder of their main file.
fn subfolders<'a>(
    files: &'a FileSet,
    ranks: &[CheckpointFiles],
) -> BTreeMap<&'a str, HashSet<&'a str>> {
    let mut found: BTreeMap<&str, HashSet<&str>> = BTreeMap::new();
    let mains: HashSet<&str> = ranks.iter().map(|set| set.main.as_str()).collect();
    let mut named: HashSet<String> =
        ranks.iter().flat_map(|set| &set.members).map(String::clone).collect();
    for (_, name) in files.names() {
        match name.rsplit_once('/') {
            Some((folder, _)) if !folder.split('/').any(|part| part.starts_with('.')) => {
                found.entry(folder).or_default().insert(name);
            }
            Some(_) => {}
            // A broken index is reported by the check of the folder.
            None if files::is_index(name) => {
                named.extend(index::Index::quietly(files, name).into_iter().flatten());
            }
            None => {}
        }
    }
    found.retain(|_, names| {
        names.iter().any(|name| {
            let base = name.rsplit('/').next().unwrap_or(name);
            mains.contains(*name)
                || !named.contains(*name) && (files::is_weights(base) || files::is_index(base))
        })
    });
    found
}

/// Checks the files of one folder. `ranks` are its sets of files with parts of tensors.
fn check_files(
    files: &FileSet,
    only: Option<&str>,
    ranks: Vec<CheckpointFiles>,
    levels: &RuleLevels,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<FolderReport> {
    let mut findings = Findings { levels, list: Vec::new() };
    let sets = sets::read(files, only, ranks, limits, progress, &mut findings)?;
    for set in &sets.list {
        places::check(set, &mut findings);
        gguf::check(set, &mut findings);
    }
    contents::check(files, &sets, limits, &mut findings)?;
    let mut report = FolderReport {
        weight_files: sets.weight_files,
        tensors: sets.tensors,
        findings: findings.list,
        ..FolderReport::default()
    };
    report.count();
    Ok(report)
}
