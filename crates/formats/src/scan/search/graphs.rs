//! Graphs of TensorFlow and ONNX: operators that call Python or use files, and paths of external
//! data that lead out of the folder.
//!
//! The field numbers are those of `saved_model.proto`, `meta_graph.proto`, `graph.proto`,
//! `function.proto` and `attr_value.proto` of TensorFlow, and of `onnx/onnx.proto`.

use std::sync::Arc;

use statelens_checkpoint::{Finding, Grade, ReadAt, Result, has_word};

use super::super::section::some;
use super::{Blob, Search};
use crate::paths::is_outside;

/// The maximum nesting of messages. Protocol buffers allow 100 levels by default.
const MAX_DEPTH: usize = 1_000;
/// The maximum number of bytes read of a name or a path.
const MAX_TEXT: u64 = 4 << 10;
/// The maximum length of a graph in text format.
const MAX_TEXT_GRAPH: u64 = 32 << 20;
/// The maximum number of findings per graph.
const MAX_FINDINGS: usize = 50;
/// The cost of a field, of a name or a path that is judged, and of a byte of text format.
const FIELD: u64 = 40;
const NAME: u64 = 500;
const TEXT: u64 = 20;
/// The number of bytes that the walk reads at once.
const BUFFER: u64 = 16 << 10;

const ADVICE: &str = "Do not run the model unless you know where it comes from.";

/// Operators of TensorFlow that act outside the graph, by their effect. Operators that every
/// SavedModel has to restore its variables (`RestoreV2`, `SaveV2`, `MergeV2Checkpoints`) are not
/// among them.
const OPERATORS: [(&str, Grade, &str); 5] = [
    ("EagerPyFunc PyFunc PyFuncStateless", Grade::Danger, "calls a Python function"),
    (
        "DatasetToTFRecord ExperimentalDatasetToTFRecord SaveDataset SaveDatasetV2 WriteFile",
        Grade::Danger,
        "writes files",
    ),
    (
        "ImmutableConst MatchingFiles MatchingFilesDataset ReadFile WholeFileReader \
         WholeFileReaderV2",
        Grade::Danger,
        "reads any file",
    ),
    (
        "CreateSummaryDbWriter CreateSummaryFileWriter FileSystemSetConfiguration LoadDataset \
         SnapshotDataset SnapshotDatasetV2 SqlDataset",
        Grade::UnknownCode,
        "uses files that the graph names",
    ),
    (
        "BigQueryReader DataServiceDataset DataServiceDatasetV2 DataServiceDatasetV3 \
         DataServiceDatasetV4 RegisterDataset RegisterDatasetV2 Rpc RpcCall RpcClient RpcServer \
         TryRpc",
        Grade::UnknownCode,
        "connects to a server",
    ),
];

/// Operators of ONNX extensions that call Python.
const PYTHON: &str = "PyOp PythonOp PythonOpGrad";

/// A message whose fields the walk visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    SavedModel,
    MetaGraph,
    AssetFile,
    Graph,
    Library,
    Function,
    Node,
    Attribute,
    AttributeValue,
    AttributeList,
    OnnxModel,
    OnnxTraining,
    OnnxFunction,
    OnnxGraph,
    OnnxNode,
    OnnxAttribute,
    OnnxTensor,
    OnnxSparse,
    OnnxEntry,
}

/// A field that the walk reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Within(Message),
    Operator,
    OnnxOperator,
    /// A path relative to the folder of the model.
    Path,
    /// A text that may be the address of an output.
    Address,
}

impl Message {
    /// Returns the meaning of a field with a length, if it matters here.
    fn field(self, number: u64) -> Option<Field> {
        use Field::{Address, OnnxOperator, Operator, Path, Within};
        Some(match (self, number) {
            (Self::SavedModel, 2) => Within(Self::MetaGraph),
            (Self::MetaGraph, 2) => Within(Self::Graph),
            (Self::MetaGraph, 6) => Within(Self::AssetFile),
            (Self::AssetFile, 2) => Path,
            (Self::Graph, 1) | (Self::Function, 3) => Within(Self::Node),
            (Self::Graph, 2) => Within(Self::Library),
            (Self::Library, 1) => Within(Self::Function),
            (Self::Node, 2) => Operator,
            (Self::Node, 5) => Within(Self::Attribute),
            (Self::Attribute, 2) => Within(Self::AttributeValue),
            (Self::AttributeValue, 1) => Within(Self::AttributeList),
            (Self::AttributeValue | Self::AttributeList, 2) => Address,
            (Self::OnnxModel, 7) | (Self::OnnxTraining, 1 | 2) => Within(Self::OnnxGraph),
            (Self::OnnxModel, 20) => Within(Self::OnnxTraining),
            (Self::OnnxModel, 25) => Within(Self::OnnxFunction),
            (Self::OnnxGraph, 1) | (Self::OnnxFunction, 7) => Within(Self::OnnxNode),
            (Self::OnnxGraph, 5) | (Self::OnnxSparse, 1 | 2) => Within(Self::OnnxTensor),
            (Self::OnnxGraph, 15) | (Self::OnnxAttribute, 22 | 23) => Within(Self::OnnxSparse),
            (Self::OnnxNode, 4) => OnnxOperator,
            (Self::OnnxNode, 5) | (Self::OnnxFunction, 11) => Within(Self::OnnxAttribute),
            (Self::OnnxAttribute, 5 | 10) => Within(Self::OnnxTensor),
            (Self::OnnxAttribute, 6 | 11) => Within(Self::OnnxGraph),
            (Self::OnnxTensor, 13) => Within(Self::OnnxEntry),
            (Self::OnnxEntry, 2) => Path,
            _ => return None,
        })
    }
}

/// Examines a run of bytes that begins with `head`, if its name or its first bytes are those of a
/// graph.
pub(super) fn examine(search: &mut Search<'_>, blob: &Blob, head: &[u8], name: &str) -> Result<()> {
    let ends = |extensions: &[&str]| extensions.iter().any(|end| name.ends_with(end));
    if ends(&[".pbtxt"]) {
        return text_graph(search, blob);
    }
    // `ir_version` of ONNX and `saved_model_schema_version` of TensorFlow, and the next field.
    let is_likely = matches!(head, [0x08, 1..=20, 0x12 | 0x3a | 0x42, ..]);
    let mut found = Vec::new();
    if ends(&[".pb", ".meta"]) || is_likely {
        for root in [Message::SavedModel, Message::MetaGraph, Message::Graph] {
            walk(search, blob, root, &mut found)?;
        }
    }
    if ends(&[".onnx"]) || is_likely {
        walk(search, blob, Message::OnnxModel, &mut found)?;
    }
    found.truncate(MAX_FINDINGS);
    search.report(blob, found);
    Ok(())
}

/// Walks through the messages of a protocol buffer in the order of the file.
fn walk(
    search: &mut Search<'_>,
    blob: &Blob,
    root: Message,
    found: &mut Vec<Finding>,
) -> Result<()> {
    let mut reader = Reader { source: blob.source.clone(), start: 0, bytes: Vec::new() };
    let mut open = vec![(root, blob.source.len())];
    let (mut at, mut reported) = (0, 0);
    while let Some(&(message, end)) = open.last()
        && found.len() < MAX_FINDINGS
    {
        if at >= end {
            open.pop();
            continue;
        }
        if !search.spend(FIELD) {
            break;
        }
        if at - reported >= 1 << 20 {
            reported = at;
            search.progress.check(0, 0)?;
        }
        // Parsers in C++ drop the higher bits of a tag.
        let Some(tag) = reader.varint(&mut at)?.map(|tag| tag & u64::from(u32::MAX)) else { break };
        let len = match tag & 7 {
            0 => {
                reader.varint(&mut at)?;
                continue;
            }
            1 => 8,
            2 => match reader.varint(&mut at)? {
                Some(len) => len,
                None => break,
            },
            // The fields of a group are read like those of the message around it.
            3 | 4 => continue,
            5 => 4,
            _ => break,
        };
        // No parser accepts a field that is longer than its message.
        let Some(next) = at.checked_add(len).filter(|next| *next <= end) else { break };
        let field = if tag & 7 == 2 { message.field(tag >> 3) } else { None };
        match field {
            Some(Field::Within(inner)) if open.len() < MAX_DEPTH => open.push((inner, next)),
            Some(Field::Within(_)) => {
                search.unseen(blob, "a graph", "Its messages are nested too deeply.");
                break;
            }
            Some(field) => {
                if !search.spend(NAME) {
                    break;
                }
                let text = some(&*blob.source, at, len.min(MAX_TEXT))?;
                let finding = judge(field, &String::from_utf8_lossy(&text));
                if let Some(finding) = finding
                    && !found.iter().any(|other: &Finding| other.title == finding.title)
                {
                    found.push(finding);
                }
                at = next;
            }
            None => at = next,
        }
    }
    Ok(())
}

fn judge(field: Field, text: &str) -> Option<Finding> {
    match field {
        Field::Within(_) => None,
        Field::Operator => {
            let (_, grade, what) = OPERATORS.iter().find(|(names, ..)| has_word(names, text))?;
            Some(operator(*grade, text, what))
        }
        Field::OnnxOperator => has_word(PYTHON, text)
            .then(|| operator(Grade::UnknownCode, text, "calls a Python function")),
        Field::Path => is_outside(text).then(|| outside(text)),
        // `output_stream` of `PrintV2`, and `debug_urls` of the operators of the debugger.
        Field::Address => {
            ["file://", "grpc://"].iter().any(|scheme| text.starts_with(scheme)).then(|| {
                let title = format!("The graph has an operator with the address {text:?}");
                Finding::new(Grade::UnknownCode, title)
                    .detail("TensorFlow writes to this file or server when the graph runs.")
                    .advice(ADVICE)
            })
        }
    }
}

/// Returns the finding for a path of a model that leads out of its folder.
pub(super) fn outside(path: &str) -> Finding {
    let title = format!("The model refers to the file {path:?}, outside of its folder");
    Finding::new(Grade::UnknownCode, title)
        .detail("A program that loads the model may read this file as weights.")
        .advice(ADVICE)
}

fn operator(grade: Grade, name: &str, what: &str) -> Finding {
    Finding::new(grade, format!("The graph has the operator `{name}`, which {what}"))
        .detail(
            "It runs when the model is called, and it may run when the model is loaded, with all \
             rights of the program.",
        )
        .advice(ADVICE)
}

/// Examines a graph in text format, in which operators are quoted names.
fn text_graph(search: &mut Search<'_>, blob: &Blob) -> Result<()> {
    if blob.source.len() > MAX_TEXT_GRAPH {
        search.unseen(blob, "a graph", "It is in text format and longer than 32 MiB.");
        return Ok(());
    }
    if !search.spend(blob.source.len() * TEXT) {
        return Ok(());
    }
    let text = some(&*blob.source, 0, MAX_TEXT_GRAPH)?;
    let mut found: Vec<Finding> = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let names_operators = line.contains("op");
        for name in line.split(['"', '\'']).skip(1).step_by(2) {
            if !search.spend(NAME) {
                return Ok(());
            }
            let finding = match names_operators && name.contains('\\') && name.len() < 100 {
                true => Some(
                    Finding::new(Grade::UnknownCode, "The graph has names written as escapes")
                        .detail("One of them may be an operator that uses files.")
                        .advice(ADVICE),
                ),
                false => judge(Field::Operator, name),
            };
            if let Some(finding) = finding
                && found.len() < MAX_FINDINGS
                && !found.iter().any(|other| other.title == finding.title)
            {
                found.push(finding);
            }
        }
    }
    search.report(blob, found);
    Ok(())
}

/// A source that is read from start to end in pieces, with gaps.
struct Reader {
    source: Arc<dyn ReadAt>,
    /// The offset of `bytes` in the source.
    start: u64,
    bytes: Vec<u8>,
}

impl Reader {
    /// Returns the byte at an offset, or `None` at the end.
    fn byte(&mut self, at: u64) -> Result<Option<u8>> {
        let within = at.checked_sub(self.start).and_then(|index| usize::try_from(index).ok());
        if let Some(byte) = within.and_then(|index| self.bytes.get(index)) {
            return Ok(Some(*byte));
        }
        self.bytes = some(&*self.source, at, BUFFER)?;
        self.start = at;
        Ok(self.bytes.first().copied())
    }

    /// Reads a number of up to ten bytes and advances `at` past it. Returns `None` if there is not
    /// one.
    fn varint(&mut self, at: &mut u64) -> Result<Option<u64>> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let Some(byte) = self.byte(*at)? else { return Ok(None) };
            *at += 1;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or_default();
            if byte < 0x80 {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}
