//! A description of a checkpoint without its values. JSON and Python serialise it; the command,
//! summaries and the page show its lines. A new field is a field here, or in [`Totals`] if it is
//! counted, and a line in [`Info::lines`].

use serde::{Deserialize, Serialize, Serializer};
use statelens_checkpoint::{
    Checkpoint, Finding, FormatInfo, counted, grouped, size_short, size_text,
};
use statelens_values::{object, report_json};

use crate::FileGrade;
use crate::attributes::GroupAttributes;
use crate::model::Model;
use crate::parameters::{ParameterCount, short_count};
use crate::summary::CheckpointSummary;
use crate::totals::{Count, StateSummary, Totals};

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
    /// Counts of leaves and tensors. `dtypes` and `states` have those by dtype and by state.
    #[serde(flatten)]
    pub totals: Totals,
    /// Number of parameters of the model.
    #[serde(rename = "model_parameters", serialize_with = "model_parameters")]
    pub parameters: ParameterCount,
    /// The sizes of the checkpoint if every link is a copy; `None` in a summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfolded: Option<UnfoldedSizes>,
    /// Counts by dtype, in order of first appearance.
    pub dtypes: Vec<DTypeCount>,
    /// Counts by state, in order of first appearance.
    pub states: Vec<StateCount>,
    /// Attributes of containers by key, such as those of HDF5 groups.
    #[serde(skip_serializing_if = "GroupAttributes::is_empty")]
    pub groups: GroupAttributes,
    /// The findings of the reader, then those about the model.
    pub findings: Vec<Finding>,
    /// The model, empty if it was not described.
    #[serde(serialize_with = "model")]
    pub model: Model,
}

/// The format of a checkpoint, and facts about the file.
#[derive(Debug, Clone, Serialize)]
pub struct FormatText {
    /// The format, its version and the program that wrote it.
    #[serde(flatten)]
    pub name: FormatName,
    /// Further facts, by name.
    #[serde(with = "object")]
    pub facts: Vec<(String, String)>,
}

/// A format, its version and the program that wrote the file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FormatName {
    /// The format's short name: `cerebras-h5`.
    pub name: String,
    /// The name to display: `Cerebras HDF5`.
    pub title: String,
    /// The version; may be empty.
    pub version: String,
    /// The program that wrote it; may be empty.
    pub producer: String,
}

impl FormatName {
    /// Returns the format with its version: `Cerebras HDF5 0.5`.
    pub fn text(&self) -> String {
        format!("{} {}", self.title, self.version).trim().to_owned()
    }
}

impl From<&FormatInfo> for FormatName {
    fn from(format: &FormatInfo) -> Self {
        Self {
            name: format.id.to_owned(),
            title: format.name.to_owned(),
            version: format.version.clone(),
            producer: format.producer.clone(),
        }
    }
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
    fn list(counts: Vec<(String, Count)>) -> Vec<Self> {
        counts.into_iter().map(|(dtype, count)| Self { dtype, count }).collect()
    }
}

impl StateCount {
    /// Names the counts of states.
    pub fn list(counts: Vec<(String, StateSummary)>) -> Vec<Self> {
        counts.into_iter().map(|(state, count)| Self { state, count }).collect()
    }
}

/// Files that are listed one by one.
const MAX_FILES: usize = 100;

/// A place that shows lines of [`Info`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// `statelens info`.
    Command,
    /// Summaries as text, Markdown and a fragment of HTML.
    Summary,
    /// The HTML file of a summary.
    Html,
    /// The page's inspector.
    Page,
}

use View::{Command, Html, Page, Summary};

/// The views of a line that all of them show.
const EVERYWHERE: &[View] = &[Command, Summary, Html, Page];

impl Info {
    /// Describes a checkpoint, from its counts and the description of its
    /// model.
    pub fn new(
        checkpoint: &Checkpoint,
        summary: CheckpointSummary,
        parameters: ParameterCount,
        model: Model,
    ) -> Self {
        let unfolded = checkpoint.unfolded();
        let name = FormatName::from(&checkpoint.format);
        let format = FormatText { name, facts: checkpoint.format.facts.clone() };
        let findings = [checkpoint.findings.clone(), model.findings()].concat();
        let files = summary.files.into_iter().map(|(name, bytes)| FileSize { name, bytes });
        Self {
            files: files.collect(),
            unfolded: Some(UnfoldedSizes {
                stored_bytes: unfolded.stored_bytes,
                text_bytes: unfolded.text_bytes,
                tensor_bytes: unfolded.tensor_bytes,
            }),
            groups: GroupAttributes::of(checkpoint),
            model,
            ..Self::counted(format, summary.totals, parameters, findings)
        }
    }

    /// Describes a checkpoint of which only this is known.
    pub fn counted(
        format: FormatText,
        mut totals: Totals,
        parameters: ParameterCount,
        findings: Vec<Finding>,
    ) -> Self {
        Self {
            format,
            grade: FileGrade::of_findings(&findings).0,
            files: Vec::new(),
            dtypes: DTypeCount::list(std::mem::take(&mut totals.by_dtype)),
            states: StateCount::list(std::mem::take(&mut totals.by_state)),
            totals,
            parameters,
            unfolded: None,
            groups: GroupAttributes::default(),
            findings,
            model: Model::default(),
        }
    }

    /// Returns the facts as labelled lines, without those that are not known.
    pub fn lines(&self, view: View) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        let mut line = |views: &[View], label: &str, text: String| {
            if views.contains(&view) && !text.is_empty() {
                lines.push((label.to_owned(), text));
            }
        };
        let Self { format: FormatText { name: format, facts }, totals, parameters, .. } = self;
        line(EVERYWHERE, "format", format.text());
        line(&[Command, Summary, Html], "producer", format.producer.clone());
        line(&[Page], "written by", format.producer.clone());
        facts.iter().for_each(|(name, text)| line(&[Command], &name.to_lowercase(), text.clone()));
        line(&[Command, Summary, Html], "grade", self.grade.word().to_owned());
        line(&[Command], "model", self.model.line());
        let listed = if self.files.len() > MAX_FILES { 1 } else { self.files.len() };
        let (listed, more) = self.files.split_at(listed);
        for file in listed {
            line(&[Command], "file", format!("{}, {}", file.name, exact(file.bytes)));
        }
        if !more.is_empty() {
            let count = grouped(more.len() as u64);
            line(&[Command], "files", format!("{count} more, {}", exact(sum(more))));
        }
        let links = match totals.links {
            0 => String::new(),
            1 => ", 1 of them a link to another".to_owned(),
            links => format!(", {} of them links to others", grouped(links)),
        };
        line(&[Command], "leaves", format!("{}{links}", grouped(totals.leaves)));
        line(&[Command], "tensors", grouped(totals.all.tensors));
        line(&[Command, Summary], "parameters", parameters.text());
        line(&[Page], "params", grouped(parameters.model));
        line(&[Html], "params", short_count(parameters.model));
        if parameters.model != parameters.all {
            line(&[Page], "elements in all", grouped(parameters.all));
            line(&[Html], "elements in all", short_count(parameters.all));
        }
        let (tensors, bytes) = (grouped(totals.all.tensors), size_short(totals.all.bytes));
        line(&[Summary], "tensors", format!("{tensors}, {bytes}"));
        line(&[Html], "tensors", tensors);
        line(&[Html], "bytes", bytes);
        line(&[Command], "bytes", exact(totals.all.bytes));
        line(&[Summary, Html], "keys", grouped(totals.leaves));
        line(&[Summary, Html], "files", size_short(sum(&self.files)));
        if let Some(count) = totals.missing.filter(|count| *count > 0) {
            line(&[Command], "missing", format!("the bytes of {}", counted(count, "tensor")));
        }
        lines
    }

    /// Returns the description as JSON.
    pub fn json(&self) -> String {
        report_json(self)
    }
}

fn model_parameters<S: Serializer>(count: &ParameterCount, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(count.model)
}

fn model<S: Serializer>(model: &Model, to: S) -> Result<S::Ok, S::Error> {
    model.report().serialize(to)
}

fn sum(files: &[FileSize]) -> u64 {
    files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
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
        let labels = |view| {
            let labels = info.lines(view).into_iter().map(|(label, _)| label);
            labels.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(labels(Command), "format, grade, leaves, tensors, parameters, bytes");
        assert_eq!(labels(Summary), "format, grade, parameters, tensors, keys, files");
        assert_eq!(labels(Html), "format, grade, params, tensors, bytes, keys, files");
        assert_eq!(labels(Page), "format, params");
    }
}
