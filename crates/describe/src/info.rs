//! Everything that `info` says about a checkpoint, once: the command prints its lines, JSON and
//! Python serialise it. A new field is a field here, and a line in [`Info::lines`].

use serde::{Serialize, Serializer};
use statelens_checkpoint::{Checkpoint, Finding, Text, counted, grouped, size_text};
use statelens_values::{object, report_json};

use crate::FileGrade;
use crate::model::Model;
use crate::parameters::ParameterCount;
use crate::summary::CheckpointSummary;
use crate::totals::{Count, StateSummary};
use crate::{attribute_text, groups_with_attributes};

/// Keys above which the model is described only on request, because that needs a list of all keys.
pub const MAX_DESCRIBED: u64 = 10_000;

/// A description of a checkpoint. The fields are those of `info --json`, in their order.
#[derive(Debug, Clone, Serialize)]
pub struct Info {
    /// The format.
    pub format: FormatText,
    /// Whether it can be used, by its findings.
    pub grade: FileGrade,
    /// The files that the checkpoint was opened from or that have its tensors.
    pub files: Vec<FileSize>,
    /// Number of leaves, including links.
    pub leaves: u64,
    /// Number of leaves that are links to others.
    pub links: u64,
    /// Number of tensors whose bytes are not available.
    pub missing: u64,
    /// Counts of tensors and arrays. Tied tensors count once.
    #[serde(flatten)]
    pub all: Count,
    /// Number of parameters of the model.
    #[serde(rename = "model_parameters", serialize_with = "model_parameters")]
    pub parameters: ParameterCount,
    /// The sizes of the checkpoint if every link is a copy.
    pub unfolded: UnfoldedSizes,
    /// Counts by dtype, in order of first appearance.
    pub dtypes: Vec<DTypeCount>,
    /// Counts by state, in order of first appearance.
    pub states: Vec<StateCount>,
    /// Attributes of containers by key, such as those of HDF5 groups.
    #[serde(with = "object", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<(String, GroupAttributes)>,
    /// The findings of the reader, then those about the model.
    pub findings: Vec<Finding>,
    /// The model, empty if it was not described.
    #[serde(serialize_with = "model")]
    pub model: Model,
}

/// The format of a checkpoint.
#[derive(Debug, Clone, Serialize)]
pub struct FormatText {
    /// The format's short name: `cerebras-h5`.
    pub name: String,
    /// The name to display.
    pub title: String,
    /// The version; may be empty.
    pub version: String,
    /// The program that wrote it; may be empty.
    pub producer: String,
    /// Further facts, by name.
    #[serde(with = "object")]
    pub facts: Vec<(String, String)>,
}

/// A file and its size.
#[derive(Debug, Clone, Serialize)]
pub struct FileSize {
    /// The name of the file.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// Sizes of a checkpoint if every link is a copy.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct UnfoldedSizes {
    /// Bytes of the files.
    pub stored_bytes: u64,
    /// Bytes of all keys and texts.
    pub text_bytes: u64,
    /// Bytes of all tensors.
    pub tensor_bytes: u64,
}

/// Counts of the tensors with one dtype.
#[derive(Debug, Clone, Serialize)]
pub struct DTypeCount {
    /// The dtype.
    pub dtype: String,
    /// The counts.
    #[serde(flatten)]
    pub count: Count,
}

/// Counts of the leaves of one state.
#[derive(Debug, Clone, Serialize)]
pub struct StateCount {
    /// The name of the state.
    pub state: String,
    /// The counts.
    #[serde(flatten)]
    pub count: StateSummary,
}

impl DTypeCount {
    pub(crate) fn list(counts: Vec<(String, Count)>) -> Vec<Self> {
        counts.into_iter().map(|(dtype, count)| Self { dtype, count }).collect()
    }
}

impl StateCount {
    /// Names the counts of states.
    pub fn list(counts: Vec<(String, StateSummary)>) -> Vec<Self> {
        counts.into_iter().map(|(state, count)| Self { state, count }).collect()
    }
}

/// The attributes of a container by name.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct GroupAttributes(#[serde(with = "object")] Vec<(String, Text)>);

/// Files that are listed one by one.
const MAX_FILES: usize = 100;

impl Info {
    /// Describes a checkpoint, from its counts and the description of its
    /// model.
    pub fn new(
        checkpoint: &Checkpoint,
        summary: CheckpointSummary,
        parameters: ParameterCount,
        model: Model,
    ) -> Self {
        let (format, unfolded) = (&checkpoint.format, checkpoint.unfolded());
        let findings = [checkpoint.findings.clone(), model.findings()].concat();
        Self {
            grade: FileGrade::of_findings(&findings).0,
            format: FormatText {
                name: format.id.to_owned(),
                title: format.name.to_owned(),
                version: format.version.clone(),
                producer: format.producer.clone(),
                facts: format.facts.clone(),
            },
            files: summary
                .files
                .into_iter()
                .map(|(name, bytes)| FileSize { name, bytes })
                .collect(),
            leaves: summary.leaves,
            links: summary.links,
            missing: summary.missing,
            all: summary.all,
            parameters,
            unfolded: UnfoldedSizes {
                stored_bytes: unfolded.stored_bytes,
                text_bytes: unfolded.text_bytes,
                tensor_bytes: unfolded.tensor_bytes,
            },
            dtypes: DTypeCount::list(summary.by_dtype),
            states: StateCount::list(summary.by_state),
            groups: groups(checkpoint),
            findings,
            model,
        }
    }

    /// Returns the facts as labelled lines, without those that say nothing.
    pub fn lines(&self) -> Vec<(String, String)> {
        let format = &self.format;
        let mut lines = vec![
            ("format".to_owned(), self.format_text()),
            ("producer".to_owned(), format.producer.clone()),
        ];
        lines.extend(format.facts.iter().map(|(name, text)| (name.to_lowercase(), text.clone())));
        lines.push(("grade".to_owned(), self.grade.word().to_owned()));
        lines.push(("model".to_owned(), self.model.line()));
        let listed = if self.files.len() > MAX_FILES { 1 } else { self.files.len() };
        let (listed, more) = self.files.split_at(listed);
        let files = listed.iter().map(|file| format!("{}, {}", file.name, exact(file.bytes)));
        lines.extend(files.map(|text| ("file".to_owned(), text)));
        if !more.is_empty() {
            let bytes = more.iter().fold(0, |sum: u64, file| sum.saturating_add(file.bytes));
            let count = grouped(more.len() as u64);
            lines.push(("files".to_owned(), format!("{count} more, {}", exact(bytes))));
        }
        let links = match self.links {
            0 => String::new(),
            1 => ", 1 of them a link to another".to_owned(),
            links => format!(", {} of them links to others", grouped(links)),
        };
        let missing = match self.missing {
            0 => String::new(),
            count => format!("the bytes of {}", counted(count, "tensor")),
        };
        lines.extend([
            ("leaves".to_owned(), format!("{}{links}", grouped(self.leaves))),
            ("tensors".to_owned(), grouped(self.all.tensors)),
            ("parameters".to_owned(), self.parameters.text()),
            ("bytes".to_owned(), exact(self.all.bytes)),
            ("missing".to_owned(), missing),
        ]);
        lines.retain(|(_, text)| !text.is_empty());
        lines
    }

    /// Returns the format with its version: `Cerebras HDF5 0.5`.
    pub fn format_text(&self) -> String {
        format!("{} {}", self.format.title, self.format.version).trim_end().to_owned()
    }

    /// Returns the description as JSON.
    pub fn json(&self) -> String {
        report_json(self)
    }
}

/// Returns the attributes of containers by key; of two containers with one key, those of the first.
fn groups(checkpoint: &Checkpoint) -> Vec<(String, GroupAttributes)> {
    let mut groups: Vec<(String, GroupAttributes)> = Vec::new();
    let mut known = std::collections::HashSet::new();
    for (key, id) in groups_with_attributes(checkpoint) {
        let key = key.to_lossy().into_owned();
        if !known.insert(key.clone()) {
            continue;
        }
        let raw = checkpoint.raw_attributes(id).iter();
        let raw = raw.map(|(name, text)| (name.to_lossy().into_owned(), text.clone()));
        let named = checkpoint.named_attributes(checkpoint.resolve(id)).into_iter();
        let named = named.map(|(name, id)| {
            (name.to_lossy().into_owned(), Text::from(attribute_text(checkpoint, id).as_str()))
        });
        groups.push((key, GroupAttributes(raw.chain(named).collect())));
    }
    groups
}

fn model_parameters<S: Serializer>(count: &ParameterCount, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(count.model)
}

fn model<S: Serializer>(model: &Model, to: S) -> Result<S::Ok, S::Error> {
    model.report().serialize(to)
}

fn exact(bytes: u64) -> String {
    match bytes {
        0..1_000 => size_text(bytes),
        _ => format!("{} ({} bytes)", size_text(bytes), grouped(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statelens_checkpoint::{Builder, Dict, FileSet, FormatInfo, Int, Limits, Value};

    #[test]
    fn json_has_all_fields_in_their_order_and_lines_only_what_is_known() {
        let mut builder = Builder::new(&Limits::default());
        let step = builder.push(Value::Int(Int::from(3u64))).unwrap();
        let entries = vec![("step".into(), step)];
        let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap();
        let format = FormatInfo { id: "x", name: "X", ..FormatInfo::default() };
        let checkpoint = builder.finish(root, format, FileSet::default(), Vec::new()).unwrap();
        let summary = CheckpointSummary::of(&checkpoint);
        let info = Info::new(&checkpoint, summary, ParameterCount::default(), Model::default());
        let json: serde_json::Value = serde_json::from_str(&info.json()).unwrap();
        assert_eq!(
            (&json["leaves"], &json["elements"], &json["model_parameters"]),
            (&1.into(), &0.into(), &0.into())
        );
        let text = info.json();
        let at = |name: &str| text.find(&format!("\"{name}\":")).expect(name);
        let order = [
            "statelens",
            "format",
            "grade",
            "files",
            "leaves",
            "links",
            "missing",
            "tensors",
            "elements",
            "bytes",
            "model_parameters",
            "unfolded",
            "dtypes",
            "states",
            "findings",
            "model",
        ];
        assert!(order.is_sorted_by_key(|name| at(name)), "{text}");
        let labels: Vec<String> = info.lines().into_iter().map(|(label, _)| label).collect();
        assert_eq!(labels, ["format", "grade", "leaves", "tensors", "parameters", "bytes"]);
    }
}
