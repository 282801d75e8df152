//! The outline: the input of every kind of summary, and the result of opening a link.

use statelens_checkpoint::{Checkpoint, Finding, Leaf, separator};

use crate::info::{FileSize, FormatName, FormatText, View};
use crate::model::{Config, FactValue, Model, ModelLeaf, parameters, parameters_among};
use crate::parameters::ParameterCount;
use crate::summary::model_among;
use crate::totals::{Counter, Totals};
use crate::{CheckpointSummary, FileGrade, Info};

use super::{Fingerprint, LeafSummary, structure_fingerprint};

/// The contents of a checkpoint without the values of its tensors.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outline {
    /// The name of the file that was opened, without its folder.
    pub name: String,
    /// The format, its version and the program that wrote it.
    pub format: FormatName,
    /// Whether the format may separate the segments of keys with slashes.
    pub slash_keys: bool,
    /// The total length of the files.
    pub size: u64,
    /// The leaves, in file order.
    pub entries: Vec<LeafSummary>,
    /// The findings of the reader.
    pub findings: Vec<Finding>,
    /// The fingerprint of the content, if the content was read.
    pub content: Option<Fingerprint>,
    /// [`ParameterCount::model`], if it was counted with information that the entries do not have.
    pub parameters: Option<u64>,
}

impl Outline {
    /// Returns the grade by the findings, and by the statistics if they are known.
    pub fn grade(&self) -> FileGrade {
        let statistics = self.entries.iter().filter_map(|entry| entry.statistics.as_ref());
        let not_finite = statistics
            .fold(0u64, |count, of| count.saturating_add(of.nan).saturating_add(of.infinite));
        FileGrade::of_findings(&self.findings).0.with_values(not_finite)
    }

    /// Creates the outline of an open checkpoint with these leaves; does not read tensors. Folders
    /// are removed from its name and from file names in findings. `config` is that of the model, if
    /// it is known: the width of packed weights may only be there.
    pub fn new(checkpoint: &Checkpoint, leaves: &[Leaf], config: Option<&Config>) -> Self {
        let summary = CheckpointSummary::new(checkpoint, leaves);
        let main = checkpoint.files.main().map_or("", |main| checkpoint.files.name(main));
        let folders: Vec<&str> = checkpoint
            .files
            .iter()
            .filter_map(|(_, file)| file.name.rfind(['/', '\\']).map(|at| &file.name[..=at]))
            .collect();
        let findings = checkpoint.findings.iter().map(|finding| homeless(finding, &folders));
        Self {
            name: base_name(main).to_owned(),
            format: (&checkpoint.format).into(),
            slash_keys: checkpoint.format.traits.slash_keys,
            size: summary.files.iter().fold(0, |sum: u64, (_, len)| sum.saturating_add(*len)),
            entries: leaves.iter().map(|leaf| LeafSummary::new(checkpoint, leaf)).collect(),
            findings: findings.collect(),
            content: None,
            parameters: Some(parameters(checkpoint, leaves, &summary, config).model),
        }
    }

    /// Describes the checkpoint, without its model.
    pub fn info(&self) -> Info {
        let format = FormatText { name: self.format.clone(), facts: Vec::new() };
        let findings = self.findings.clone();
        Info {
            grade: self.grade(),
            files: vec![FileSize { name: self.name.clone(), bytes: self.size }],
            ..Info::counted(format, self.totals(), self.parameters(), findings)
        }
    }

    /// Returns the labelled facts of a view, with the fingerprints.
    pub(super) fn facts(&self, info: &Info, view: View) -> Vec<(String, String)> {
        let structure = structure_fingerprint(&self.entries).short;
        let content = self.content.as_ref().map(|print| print.short.clone());
        let prints = [("structure", Some(structure)), ("content", content)];
        let prints =
            prints.into_iter().filter_map(|(of, text)| Some((format!("{of} fingerprint"), text?)));
        info.lines(view).into_iter().chain(prints).collect()
    }

    /// Returns the parameter counts.
    pub fn parameters(&self) -> ParameterCount {
        let totals = self.totals();
        let state = model_among(&totals.by_state, false).map(|(name, _)| name.to_owned());
        let model = self.parameters.unwrap_or_else(|| self.parameters_of_leaves());
        ParameterCount { model, all: totals.all.elements, state }
    }

    /// Returns the number of parameters of the model, counted from the leaves alone.
    pub(super) fn parameters_of_leaves(&self) -> u64 {
        let totals = self.totals();
        let state = model_among(&totals.by_state, false).map(|(name, _)| name);
        parameters_among(&self.model_leaves(), state, None)
    }

    /// Describes the model.
    pub fn model(&self) -> Model {
        let totals = self.totals();
        let state = model_among(&totals.by_state, false).map(|(name, _)| name);
        let mut model = Model::read(&self.model_leaves(), state, None);
        let fact = model.facts.iter_mut().find(|fact| fact.name == "parameters");
        if let (Some(fact), Some(count)) = (fact, self.parameters) {
            fact.value = FactValue::Number(count);
        }
        model
    }

    fn model_leaves(&self) -> Vec<ModelLeaf<'_>> {
        self.entries.iter().map(ModelLeaf::from).collect()
    }

    /// Counts leaves and tensors.
    pub fn totals(&self) -> Totals {
        let mut counter = Counter::default();
        let dot = self.separator();
        for entry in &self.entries {
            let state = entry.key.split(dot).next().unwrap_or_default();
            counter.add_leaf(state, entry.link.is_some());
            if entry.link.is_none() && entry.is_tensor() {
                counter.add_tensor(state, &entry.dtype, entry.params, entry.bytes);
            }
        }
        counter.finish()
    }

    /// Returns the separator between segments of keys.
    pub(super) fn separator(&self) -> char {
        separator(self.slash_keys, &mut self.entries.iter().map(|entry| &*entry.key))
    }
}

/// Returns the name of a file without its folders.
pub(super) fn base_name(name: &str) -> &str {
    let name = name.trim_end_matches(['/', '\\']);
    name.rsplit(['/', '\\']).next().unwrap_or(name)
}

/// Removes the folders of files from a finding.
fn homeless(finding: &Finding, folders: &[&str]) -> Finding {
    let mut finding = finding.clone();
    let mut advice = finding.advice.to_string();
    for folder in folders {
        for text in [&mut finding.title, &mut finding.detail, &mut finding.place, &mut advice] {
            if text.contains(folder) {
                *text = text.replace(folder, "");
            }
        }
        for name in &mut finding.missing {
            *name = name.replace(folder, "");
        }
    }
    finding.advice = advice.into();
    finding
}
