//! Format 0.4, of releases 2.0 to 2.4: each leaf is a dataset that names its codec.

use std::collections::HashSet;

use statelens_checkpoint::json::Json;
use statelens_checkpoint::{
    Array, Checkpoint, DType, Loss, Result, Tensor, TensorId, Text, Value, ValueId, try_alloc,
};
use statelens_hdf5::write::{
    Attribute, AttributeValue, Content, Dataset, DatasetId, Datatype, FilePlan, Filter,
    PlannedSegments, Space,
};

use super::node::FormatFamily;
use super::objects;
use super::outline;
use super::report::{self, EXCLUDE, LossReport};
use super::tree;
use super::v05::{dataset, dimensions, fill_value, fit, lose_class};
use crate::source_damage;

/// Leaves are datasets of one group here.
const MAX_LEAVES: u64 = 1_000_000;

/// How an entry identifies its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// By the name of its codec: 0.4.
    Typed,
    /// By an attribute for each kind except tensors: 0.1, whose files have no version.
    Untyped,
}

/// Plans a file of format 0.4 or 0.1.
pub(super) fn plan(
    source: &Checkpoint,
    filter: Option<Filter>,
    style: Style,
) -> Result<(PlannedSegments, Vec<Loss>)> {
    let mut report = LossReport::default();
    let outline = outline::outline(source, FormatFamily::V04, MAX_LEAVES, &mut report)?;
    let mut writer = V04Writer { source, file: FilePlan::new(), report, style };
    let mut names = HashSet::new();
    // The dataset of each leaf, for later leaves that are the same object.
    let mut written: Vec<Option<DatasetId>> = try_alloc::vec(outline.leaves.len() as u64)?;
    for leaf in &outline.leaves {
        let name = quote(&leaf.key);
        if leaf.key.as_str().is_none() {
            let why = "a name that holds half a surrogate pair, which the loader can't read";
            writer.report.refuse(&leaf.key, why, EXCLUDE);
            written.push(None);
            continue;
        }
        if !names.insert(name.clone()) {
            writer.report.refuse(&leaf.key, report::SAME_NAME, EXCLUDE);
            written.push(None);
            continue;
        }
        let first = leaf.first.and_then(|first| written.get(first).copied().flatten());
        let tied = matches!(source.value(leaf.id), Value::Tensor(_) | Value::Array(_));
        if leaf.first.is_some() && (tied || !is_interned(source.value(leaf.id))) {
            writer.report.lose(report::TIES_04, &leaf.key);
        }
        written.push(match first.filter(|_| tied) {
            Some(first) => writer.link(&leaf.key, &name, first),
            None => writer.leaf(&leaf.key, &name, leaf.id),
        });
    }
    let spec = AttributeValue::Text(tree::hex(&outline)?);
    writer.file.attributes = vec![Attribute::new("__spec__", spec)];
    if style == Style::Typed {
        let version = Attribute::new("__version__", AttributeValue::F64(0.4));
        writer.file.attributes.push(version);
    }
    if let Some(mark) = source_damage::mark(source) {
        let mark = Attribute::new(source_damage::MARK, AttributeValue::Text(mark));
        writer.file.attributes.push(mark);
    }
    let losses = writer.report.finish(if style == Style::Typed { "0.4" } else { "0.1" })?;
    Ok((writer.file.plan(filter)?, losses))
}

/// Returns whether Python may share equal values of this kind.
fn is_interned(value: &Value) -> bool {
    use Value::*;
    matches!(value, None | Bool(_) | Int(_) | Float(_) | Str(_) | Complex(..) | DType { .. })
}

struct V04Writer<'a> {
    source: &'a Checkpoint,
    file: FilePlan,
    report: LossReport,
    style: Style,
}

impl V04Writer<'_> {
    fn link(&mut self, key: &Text, name: &str, to: DatasetId) -> Option<DatasetId> {
        match self.file.link(name, to) {
            Ok(()) => Some(to),
            Err(error) => self.report.refused(key, error.what().to_owned(), EXCLUDE),
        }
    }

    fn leaf(&mut self, key: &Text, name: &str, id: ValueId) -> Option<DatasetId> {
        let int64 = Datatype::Int { size: 8, signed: true };
        match self.source.value(id) {
            Value::None => self.empty(key, name, "NoneH5Type", Datatype::F32, Vec::new()),
            Value::Bool(value) => self.scalar(key, name, Datatype::Bool, vec![u8::from(*value)]),
            Value::Int(value) => match (value.to_i64(), value.to_u64()) {
                (Some(value), _) => self.scalar(key, name, int64, value.to_le_bytes().into()),
                (None, Some(value)) => {
                    let uint64 = Datatype::Int { size: 8, signed: false };
                    self.scalar(key, name, uint64, value.to_le_bytes().into())
                }
                _ => self.report.refused(key, "an integer of more than 64 bits", EXCLUDE),
            },
            Value::Float(value) => {
                self.scalar(key, name, Datatype::F64, value.to_le_bytes().into())
            }
            Value::Str(text) => match super::v05::hdf5_name(text) {
                Some(text) => {
                    let value = AttributeValue::Text(text.to_owned());
                    let attribute = match self.style {
                        Style::Typed => "string_value",
                        Style::Untyped => "string_val",
                    };
                    let about = vec![Attribute::new(attribute, value)];
                    self.empty(key, name, "StringH5Type", Datatype::F32, about)
                }
                None => {
                    let why = "a string that holds a NUL or half a surrogate pair";
                    self.report.refused(key, why, EXCLUDE)
                }
            },
            Value::Tensor(tensor) => self.tensor(key, name, *tensor),
            Value::Array(Array { tensor, scalar }) => {
                let is_bool = self.source.tensor(*tensor).is_ok_and(|t| t.dtype == DType::Bool);
                if *scalar && is_bool {
                    self.object(key, name, id)
                } else {
                    if self.style == Style::Untyped {
                        self.report.lose(report::ARRAY_01, key);
                    } else if *scalar {
                        self.report.lose(report::SCALAR_04, key);
                    }
                    if self.source.tensor(*tensor).is_ok_and(|found| found.dtype.has_titles()) {
                        self.report.lose(report::TITLES, key);
                    }
                    let bfloat16 =
                        self.source.tensor(*tensor).is_ok_and(|found| found.dtype == DType::BF16);
                    if bfloat16 {
                        self.report.lose(report::BFLOAT16, key);
                        return self.elements(key, name, "TorchTensorH5Type", *tensor);
                    }
                    self.elements(key, name, "NumpyArrayH5Type", *tensor)
                }
            }
            Value::Sparse(_) => self.report.refused(
                key,
                "a sparse tensor, which the format does not support",
                EXCLUDE,
            ),
            _ => self.object(key, name, id),
        }
    }

    fn tensor(&mut self, key: &Text, name: &str, id: TensorId) -> Option<DatasetId> {
        let tensor = match self.source.tensor(id) {
            Ok(tensor) => tensor,
            Err(error) => return self.report.refused(key, error.what().to_owned(), EXCLUDE),
        };
        lose_class(&mut self.report, tensor, key);
        let (Some(datatype), Some(dims)) = (Datatype::of(&tensor.dtype), dimensions(tensor)) else {
            let why = format!("a tensor of {}; the format has no such dtype", tensor.dtype);
            return self.report.refused(key, why, report::without(&tensor.dtype));
        };
        let Some(fill) = fill_value(tensor).filter(|_| self.style == Style::Typed) else {
            return self.elements(key, name, "TorchTensorH5Type", id);
        };
        let fill = match fill {
            Json::Bool(value) => AttributeValue::Bool(value),
            Json::Number(number) => match (number.parse::<i64>(), real_fill(tensor)) {
                (_, Some(value)) => AttributeValue::F64(value),
                (Ok(value), None) => AttributeValue::I64(value),
                // More than 63 bits.
                _ => return self.elements(key, name, "TorchTensorH5Type", id),
            },
            _ => return self.elements(key, name, "TorchTensorH5Type", id),
        };
        let shape = match dims.len() {
            0 => AttributeValue::NoF64(vec![0]),
            rank => AttributeValue::I64s(vec![rank as u64], dims),
        };
        let about = vec![
            Attribute::new("fill_value", fill),
            Attribute::new("is_bfloat16", AttributeValue::Bool(tensor.dtype == DType::BF16)),
            Attribute::new("shape", shape),
        ];
        self.empty(key, name, "DeferredFullTensor", datatype, about)
    }

    /// Writes the elements of a tensor or array.
    fn elements(&mut self, key: &Text, name: &str, kind: &str, id: TensorId) -> Option<DatasetId> {
        let tensor = fit(self.source, id, key, &mut self.report)?;
        let is_bfloat16 = tensor.dtype == DType::BF16;
        let mut attributes = self.kind(kind);
        attributes.push(Attribute::new("is_bfloat16", AttributeValue::Bool(is_bfloat16)));
        match dataset(self.source, id, attributes.into()) {
            Ok(dataset) => self.add(key, name, dataset),
            Err((why, setting)) => self.report.refused(key, why, setting),
        }
    }

    fn scalar(
        &mut self,
        key: &Text,
        name: &str,
        datatype: Datatype,
        bytes: Vec<u8>,
    ) -> Option<DatasetId> {
        let attributes = self.kind("ScalarH5Type");
        let (space, content) = (Space::Scalar, Content::Bytes(bytes));
        self.add(key, name, Dataset { datatype, space, content, attributes: attributes.into() })
    }

    /// Returns the attributes that identify the kind of an entry.
    fn kind(&self, kind: &str) -> Vec<Attribute> {
        let flag = |name| vec![Attribute::new(name, AttributeValue::Bool(true))];
        match (self.style, kind) {
            (Style::Typed, kind) => vec![codec(kind)],
            (Style::Untyped, "ScalarH5Type") => flag("is_scalar"),
            (Style::Untyped, "NoneH5Type") => flag("is_none"),
            (Style::Untyped, "StringH5Type") => flag("is_string"),
            (Style::Untyped, _) => Vec::new(),
        }
    }

    fn object(&mut self, key: &Text, name: &str, id: ValueId) -> Option<DatasetId> {
        if self.style == Style::Untyped {
            return self.report.refused(key, "an object, which format 0.1 can't hold", EXCLUDE);
        }
        match objects::pickle(self.source, id) {
            Ok(bytes) => {
                let hex = AttributeValue::Text(statelens_checkpoint::hex(&bytes));
                let about = vec![Attribute::new("object_value", hex)];
                self.empty(key, name, "ObjectH5Type", Datatype::F32, about)
            }
            Err(why) => self.report.refused(key, why, EXCLUDE),
        }
    }

    /// Writes a dataset without elements; its attributes hold the value.
    fn empty(
        &mut self,
        key: &Text,
        name: &str,
        kind: &str,
        datatype: Datatype,
        about: Vec<Attribute>,
    ) -> Option<DatasetId> {
        let mut attributes = self.kind(kind);
        attributes.extend(about);
        let (space, content) = (Space::Null, Content::None);
        self.add(key, name, Dataset { datatype, space, content, attributes: attributes.into() })
    }

    fn add(&mut self, key: &Text, name: &str, dataset: Dataset) -> Option<DatasetId> {
        match self.file.add(name, dataset) {
            Ok(id) => Some(id),
            Err(error) => self.report.refused(key, error.what().to_owned(), EXCLUDE),
        }
    }
}

/// Returns the fill value of a constant tensor of floats.
fn real_fill(tensor: &Tensor) -> Option<f64> {
    objects::real(&tensor.dtype, &objects::element(tensor)?)
}

fn codec(kind: &str) -> Attribute {
    Attribute::new("__H5_TYPE__", AttributeValue::Text(kind.into()))
}

/// Percent-encodes a key like Python's `urllib.parse.quote`, with only letters, digits and `_.-~`
/// safe.
fn quote(key: &Text) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-~".contains(&byte);
    statelens_checkpoint::percent_encode(key.as_bytes(), plain)
}
