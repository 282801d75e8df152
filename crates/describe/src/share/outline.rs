//! The outline: the input of every kind of summary, and the result of opening a link.

use std::collections::HashMap;

use statelens_checkpoint::{Checkpoint, Finding, Leaf, separator};

use crate::model::{Config, FactValue, Model, parameters, parameters_among};
use crate::parameters::ParameterCount;
use crate::summary::{model_among, slot};
use crate::{CheckpointSummary, Count, StateSummary};

use super::{Fingerprint, LeafSummary};

/// The contents of a checkpoint without the values of its tensors.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outline {
    /// The name of the file that was opened, without its folder.
    pub name: String,
    /// The format's short name: `cerebras-h5`.
    pub format_id: String,
    /// The format's display name: `Cerebras HDF5`.
    pub format: String,
    /// Whether the format may separate the segments of keys with slashes.
    pub slash_keys: bool,
    /// The format's version; may be empty.
    pub version: String,
    /// The program that wrote it; may be empty.
    pub producer: String,
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

/// Totals of a list of entries.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Totals {
    /// Number of leaves, including links.
    pub leaves: u64,
    /// Number of leaves that are links to others.
    pub links: u64,
    /// Counts of tensors and arrays, without links.
    pub all: Count,
    /// The counts by dtype, in order of first appearance.
    pub by_dtype: Vec<(String, Count)>,
    /// The counts by state: the part of the key before the first dot, or before the first slash in
    /// formats that separate names with slashes.
    pub by_state: Vec<(String, StateSummary)>,
}

impl Outline {
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
            format_id: checkpoint.format.id.to_owned(),
            format: checkpoint.format.name.to_owned(),
            slash_keys: checkpoint.format.traits.slash_keys,
            version: checkpoint.format.version.clone(),
            producer: checkpoint.format.producer.clone(),
            size: summary.files.iter().fold(0, |sum: u64, (_, len)| sum.saturating_add(*len)),
            entries: leaves.iter().map(|leaf| LeafSummary::new(checkpoint, leaf)).collect(),
            findings: findings.collect(),
            content: None,
            parameters: Some(parameters(checkpoint, leaves, &summary, config).model),
        }
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
        parameters_among(&self.entries, &[], state, None)
    }

    /// Describes the model.
    pub fn model(&self) -> Model {
        let totals = self.totals();
        let state = model_among(&totals.by_state, false).map(|(name, _)| name);
        let mut model = Model::read(&self.entries, &[], state, None);
        let fact = model.facts.iter_mut().find(|fact| fact.name == "parameters");
        if let (Some(fact), Some(count)) = (fact, self.parameters) {
            fact.value = FactValue::Number(count);
        }
        model
    }

    /// Counts leaves and tensors.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals { leaves: self.entries.len() as u64, ..Totals::default() };
        let (mut states, mut dtypes) = (HashMap::new(), HashMap::new());
        let dot = self.separator();
        for entry in &self.entries {
            let name = entry.key.split(dot).next().unwrap_or_default();
            let state = slot(&mut totals.by_state, &mut states, name);
            state.leaves += 1;
            if entry.link.is_some() {
                totals.links += 1;
            } else if entry.is_tensor() {
                add(&mut state.tensors, entry);
                add(&mut totals.all, entry);
                add(slot(&mut totals.by_dtype, &mut dtypes, &entry.dtype), entry);
            }
        }
        totals
    }

    /// Returns the separator between segments of keys.
    pub(super) fn separator(&self) -> char {
        separator(self.slash_keys, &mut self.entries.iter().map(|entry| &*entry.key))
    }

    /// Returns the format with its version: `Cerebras HDF5 0.5`.
    pub fn format_text(&self) -> String {
        format!("{} {}", self.format, self.version).trim().to_owned()
    }
}

fn add(count: &mut Count, entry: &LeafSummary) {
    count.tensors += 1;
    count.elements = count.elements.saturating_add(entry.params);
    count.bytes = count.bytes.saturating_add(entry.bytes);
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
