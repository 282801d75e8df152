//! A summary as JSON; its schema is in `docs/summary.md`.

use serde::Serialize;
use statelens_checkpoint::Finding;
use statelens_values::{Json, SummaryStatistics};

use super::{Fingerprint, FoldedLine, LeafSummary, Outline, lines, structure_fingerprint};
use crate::info::{DTypeCount, FormatName, StateCount};
use crate::totals::Totals;
use crate::{FileGrade, Info, LeafKind};

/// The version of the schema, incremented when a field is removed or changes its meaning.
const VERSION: u64 = 1;

/// The fields before the lists of keys.
#[derive(Serialize)]
struct Head<'a> {
    statelens_summary: u64,
    name: &'a str,
    format: &'a FormatName,
    size: u64,
    fingerprints: Fingerprints<'a>,
    totals: TotalFields<'a>,
    dtypes: &'a [DTypeCount],
    states: &'a [StateCount],
    grade: FileGrade,
    findings: &'a [Finding],
}

#[derive(Serialize)]
struct Fingerprints<'a> {
    structure: Fingerprint,
    content: &'a Option<Fingerprint>,
}

#[derive(Serialize)]
struct TotalFields<'a> {
    #[serde(flatten)]
    totals: &'a Totals,
    model_parameters: u64,
}

/// A line of `keys`.
#[derive(Serialize)]
struct KeyLine<'a> {
    key: &'a str,
    kind: LeafKind,
    #[serde(flatten)]
    tensor: Option<TensorFields<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    value: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    statistics: Option<&'a SummaryStatistics>,
}

#[derive(Serialize)]
struct TensorFields<'a> {
    dtype: &'a str,
    shape: &'a [u64],
    elements: u64,
    bytes: u64,
}

/// A line of `folded`: the keys of repeated layers once.
#[derive(Serialize)]
struct FoldedKeyLine<'a> {
    key: &'a str,
    times: u64,
    kind: LeafKind,
    #[serde(flatten)]
    tensors: Option<FoldedTensors<'a>>,
}

#[derive(Serialize)]
struct FoldedTensors<'a> {
    dtype: &'a str,
    shape: Option<&'a [u64]>,
    bytes: u64,
}

/// Returns the summary as JSON, with one key per line.
pub fn write_json(outline: &Outline) -> String {
    let mut json = Json::new();
    json.open('{');
    json.fields(&Head::of(outline, &outline.info()));
    list(&mut json, "keys", outline.entries.iter().map(KeyLine::of));
    list(&mut json, "folded", lines(outline).iter().map(FoldedKeyLine::of));
    json.close('}');
    json.newline();
    json.take()
}

/// Writes a list with one item per line.
fn list(json: &mut Json, name: &str, items: impl Iterator<Item = impl Serialize>) {
    json.name(name).open('[');
    for item in items {
        json.line();
        json.value(&item);
    }
    json.newline();
    json.close(']');
}

impl<'a> Head<'a> {
    fn of(outline: &'a Outline, info: &'a Info) -> Self {
        Self {
            statelens_summary: VERSION,
            name: &outline.name,
            format: &outline.format,
            size: outline.size,
            fingerprints: Fingerprints {
                structure: structure_fingerprint(&outline.entries),
                content: &outline.content,
            },
            totals: TotalFields { totals: &info.totals, model_parameters: info.parameters.model },
            dtypes: &info.dtypes,
            states: &info.states,
            grade: info.grade,
            findings: &outline.findings,
        }
    }
}

impl<'a> KeyLine<'a> {
    fn of(entry: &'a LeafSummary) -> Self {
        Self {
            key: &entry.key,
            kind: entry.kind,
            tensor: entry.is_tensor().then(|| TensorFields {
                dtype: &entry.dtype,
                shape: &entry.shape,
                elements: entry.params,
                bytes: entry.bytes,
            }),
            value: &entry.value,
            link: entry.link.as_deref(),
            statistics: entry.statistics.as_ref(),
        }
    }
}

impl<'a> FoldedKeyLine<'a> {
    fn of(line: &'a FoldedLine) -> Self {
        let entry = &line.entry;
        Self {
            key: &entry.key,
            times: line.times,
            kind: entry.kind,
            tensors: entry.is_tensor().then(|| FoldedTensors {
                dtype: &entry.dtype,
                shape: line.one_shape.then_some(&*entry.shape),
                bytes: line.bytes,
            }),
        }
    }
}
