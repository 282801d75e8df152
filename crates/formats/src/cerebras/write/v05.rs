//! Format 0.5, of releases 2.5 and later: plain values in JSON attributes of the root group,
//! tensors and pickled objects in datasets. In S3, the attributes are entries of `__METADATA__`, and
//! the datasets are objects.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use statelens_checkpoint::json::{self, Json};
use statelens_checkpoint::{
    Array, Checkpoint, DType, Error, Layout, Loss, PlannedFile, Result, Segment, Setting, Tensor,
    TensorClass, TensorId, Text, Value, ValueId, try_alloc,
};
use statelens_hdf5::write::{
    Attribute, AttributeValue, Content, Dataset, Datatype, FilePlan, Filter, PlannedSegments, Space,
};

use super::node::{FlatLeaf, FormatFamily};
use super::objects;
use super::outline;
use super::prefix::{ObjectPlan, number, sizes};
use super::report::{self, EXCLUDE, LossReport, OLDER};
use super::spec;
use crate::cerebras::rtfx;
use crate::source_damage;

/// The number of root attributes that do not belong to leaves: spec, version, success.
const OTHERS: u64 = 3;
/// The maximum number of attributes of the root group, limited by two levels of the B-tree of their
/// names.
const ROOM: u64 = 5_000_000;

pub(super) fn plan(
    source: &Checkpoint,
    filter: Option<Filter>,
) -> Result<(PlannedSegments, Vec<Loss>)> {
    let (container, losses) = written(source, Container::File(FilePlan::new()))?;
    match container {
        Container::File(file) => Ok((file.plan(filter)?, losses)),
        Container::Objects(_) => Err(Error::unsupported("objects are not one file")),
    }
}

/// Plans the objects of a checkpoint in S3. The last is `__METADATA__`.
pub(super) fn plan_objects(source: &Checkpoint) -> Result<(Vec<PlannedFile>, Vec<Loss>)> {
    match written(source, Container::Objects(ObjectPlan::default()))? {
        (Container::Objects(objects), losses) => Ok((objects.plan()?, losses)),
        (Container::File(_), _) => Err(Error::unsupported("a file has no objects")),
    }
}

/// Adds all values to a container.
fn written(source: &Checkpoint, container: Container) -> Result<(Container, Vec<Loss>)> {
    let mut report = LossReport::default();
    let outline = outline::outline(source, FormatFamily::V05, ROOM - OTHERS, &mut report)?;
    let mut writer = V05Writer { source, container, report, records: HashMap::new() };
    // The text of all keys grows in a vector that doubles its capacity.
    try_alloc::ahead(outline.nodes.len() as u64 * 256)?;
    writer.attribute("__spec__", AttributeValue::Text(spec::root(&outline.nodes)));
    writer.attribute("__version__", AttributeValue::F64(0.5));
    let mut names = HashSet::new();
    for leaf in &outline.leaves {
        if names.insert(&leaf.key) {
            writer.leaf(leaf, &outline.leaves);
        } else {
            writer.report.refuse(&leaf.key, report::SAME_NAME, EXCLUDE);
        }
    }
    if let Some(mark) = source_damage::mark(source) {
        writer.attribute(source_damage::MARK, AttributeValue::Text(mark));
    }
    writer.attribute("__SUCCESS__", AttributeValue::Bool(true));
    let losses = writer.report.finish("0.5")?;
    Ok((writer.container, losses))
}

/// What the values are written to.
enum Container {
    File(FilePlan),
    Objects(ObjectPlan),
}

struct V05Writer<'a> {
    source: &'a Checkpoint,
    container: Container,
    report: LossReport,
    /// Records of the tensors so far, by dtype and shape: a file has few of them.
    records: HashMap<DType, HashMap<Vec<u64>, TensorRecord>>,
}

/// The description of all tensors of one dtype and shape.
#[derive(Clone)]
struct TensorRecord {
    attributes: Arc<[Attribute]>,
    /// The object in the metadata, as JSON.
    about: Arc<str>,
}

/// The object of a value in the metadata.
enum Described {
    Object(Json),
    /// The same as JSON, indented by one level.
    Written(Arc<str>),
}

impl From<Json> for Described {
    fn from(object: Json) -> Self {
        Self::Object(object)
    }
}

impl V05Writer<'_> {
    /// Adds an attribute of the root, or an entry of the metadata.
    fn attribute(&mut self, name: &str, value: AttributeValue) {
        match &mut self.container {
            Container::File(file) => file.attributes.push(Attribute::new(name.to_owned(), value)),
            Container::Objects(objects) => objects.entries.push((name.to_owned(), value)),
        }
    }

    fn leaf(&mut self, leaf: &FlatLeaf, leaves: &[FlatLeaf]) {
        let (name, why) = match &self.container {
            Container::File(_) => (
                hdf5_name(&leaf.key),
                "a name that holds a NUL or half a surrogate pair, which HDF5 can't store",
            ),
            Container::Objects(_) => {
                (leaf.key.as_str(), "a name that holds half a surrogate pair, which S3 can't store")
            }
        };
        let Some(key) = name else {
            return self.report.refuse(&leaf.key, why, EXCLUDE);
        };
        let key = key.to_owned();
        let about = match leaf.first.and_then(|first| leaves.get(first)) {
            Some(first) => Some(
                none(
                    "LinkedObject",
                    vec![("key", Json::Text(first.key.clone())), ("__LINKED__", Json::Bool(true))],
                )
                .into(),
            ),
            None => self.value(&leaf.key, leaf.id, &key),
        };
        if let Some(about) = about {
            let value = AttributeValue::Text(metadata(&leaf.key, &about));
            self.attribute(&format!("{key}.__metadata__"), value);
        }
    }

    /// Returns the metadata of a value, and adds its dataset if it has one. Returns `None` if it is
    /// refused.
    fn value(&mut self, flat: &Text, id: ValueId, key: &str) -> Option<Described> {
        let scalar = |value| Some(none("ScalarSerializer", vec![("scalar_value", value)]).into());
        match self.source.value(id) {
            Value::None => Some(none("NoneSerializer", Vec::new()).into()),
            Value::Bool(value) => scalar(Json::Bool(*value)),
            Value::Int(value) if value.to_le_bytes().len() > MAX_INT_BYTES => self.report.refused(
                flat,
                "an integer of more digits than Python's JSON reads",
                EXCLUDE,
            ),
            Value::Int(value) => scalar(Json::Number(value.to_string())),
            Value::Float(value) => scalar(Json::float(*value)),
            Value::Str(text) => {
                let value = vec![("string_value", Json::Text(text.clone()))];
                Some(none("StringSerializer", value).into())
            }
            Value::Tensor(tensor) => self.tensor(flat, *tensor, key),
            Value::Array(Array { tensor, scalar: false }) => self.array(flat, *tensor, key),
            Value::Array(Array { tensor, scalar: true }) => {
                let found = self.source.tensor(*tensor).ok();
                let known = found.and_then(|found| Some((&found.dtype, objects::element(found)?)));
                let Some((dtype, bytes)) = known else {
                    self.report.lose(report::SCALAR, flat);
                    return self.array(flat, *tensor, key);
                };
                match (dtype, <[u8; 8]>::try_from(bytes)) {
                    (DType::F64, Ok(bytes)) => {
                        self.report.lose(report::FLOAT64, flat);
                        scalar(Json::float(f64::from_le_bytes(bytes)))
                    }
                    _ => self.object(flat, id, key).map(Into::into),
                }
            }
            Value::Sparse(_) => self.report.refused(
                flat,
                "a sparse tensor, which the format does not support",
                EXCLUDE,
            ),
            _ => self.object(flat, id, key).map(Into::into),
        }
    }

    fn tensor(&mut self, flat: &Text, id: TensorId, key: &str) -> Option<Described> {
        let tensor = fit(self.source, id, flat, &mut self.report)?;
        let Some(code) = rtfx::number(&tensor.dtype) else {
            let why = format!("a tensor of {}; the format has no such dtype", tensor.dtype);
            let older = Datatype::of(&tensor.dtype).is_some()
                && matches!(self.container, Container::File(_));
            return self.report.refused(
                flat,
                why,
                if older { OLDER } else { report::without(&tensor.dtype) },
            );
        };
        lose_class(&mut self.report, tensor, flat);
        if let Some(fill) = fill_value(tensor) {
            let dtype = Json::text(&torch_name(tensor));
            let about = vec![("shape", shape(tensor)), ("dtype", dtype), ("fill_value", fill)];
            return Some(none("DeferredFullTensor", about).into());
        }
        let Some(dims) = dimensions(tensor) else {
            return self.report.refused(flat, "a dimension of more than 63 bits", EXCLUDE);
        };
        let known = self.records.get(&tensor.dtype);
        let known = known.and_then(|shapes| shapes.get(&tensor.shape)).cloned();
        let attributes = match &known {
            Some(record) => record.attributes.clone(),
            None => tensor_attributes(tensor, code, dims),
        };
        let stored = self.elements(flat, key, id, attributes.clone())?;
        if let Some(record) = known {
            return Some(Described::Written(record.about));
        }
        let mut about = vec![
            ("__TORCH__", Json::Bool(true)),
            ("shapes", Json::List(vec![shape(tensor)])),
            ("dtypes", Json::List(vec![Json::text(&torch_name(tensor))])),
            ("rtfx_dtypes", Json::List(vec![Json::Number(code.to_string())])),
            ("__TYPE__", Json::text(TENSOR)),
        ];
        about.extend(stored);
        let mut text = String::new();
        Json::Object(about).write(&mut text, 1);
        let about: Arc<str> = text.into();
        let shapes = self.records.entry(tensor.dtype.clone()).or_default();
        shapes.insert(tensor.shape.clone(), TensorRecord { attributes, about: about.clone() });
        Some(Described::Written(about))
    }

    fn array(&mut self, flat: &Text, id: TensorId, key: &str) -> Option<Described> {
        const ARRAY: &str = "NumpyArraySerializer";
        let tensor = fit(self.source, id, flat, &mut self.report)?;
        if tensor.dtype == DType::BF16 {
            self.report.lose(report::BFLOAT16, flat);
            return self.tensor(flat, id, key);
        }
        if tensor.dtype.has_titles() {
            self.report.lose(report::TITLES, flat);
        }
        let attributes = [
            Attribute::new("__NUMPY__", AttributeValue::Bool(true)),
            Attribute::new("__TYPE__", AttributeValue::Text(ARRAY.into())),
            Attribute::new("compressed", AttributeValue::Bool(false)),
            Attribute::new("is_bfloat16", AttributeValue::Bool(false)),
        ];
        let stored = self.elements(flat, key, id, attributes.into())?;
        let mut about = vec![("is_bfloat16", Json::Bool(false)), ("__TYPE__", Json::text(ARRAY))];
        about.extend(stored);
        Some(Json::Object(about).into())
    }

    fn object(&mut self, flat: &Text, id: ValueId, key: &str) -> Option<Json> {
        const OBJECT: &str = "ObjectSerializer";
        let bytes = match objects::pickle(self.source, id) {
            Ok(bytes) => bytes,
            Err(why) => return self.report.refused(flat, why, EXCLUDE),
        };
        let about = vec![("__TYPE__", Json::text(OBJECT)), ("__BYTES__", Json::Bool(true))];
        let mut about: Vec<(&'static str, Json)> = about;
        let added = match &mut self.container {
            Container::File(file) => {
                let attributes = vec![
                    Attribute::new("__TYPE__", AttributeValue::Text(OBJECT.into())),
                    Attribute::new("compressed", AttributeValue::Bool(false)),
                    Attribute::new("__BYTES__", AttributeValue::Bytes(bytes.into())),
                ];
                let (datatype, space, content) = (Datatype::F32, Space::Null, Content::None);
                about.push(("compressed", Json::Bool(false)));
                let attributes = attributes.into();
                let dataset = Dataset { datatype, space, content, attributes };
                file.add(key, dataset).map(drop).map_err(|error| error.what().to_owned())
            }
            Container::Objects(objects) => {
                about.extend(sizes(bytes.len() as u64));
                objects.add(key, Segment::Bytes(bytes.into()))
            }
        };
        match added {
            Ok(()) => Some(Json::Object(about)),
            Err(why) => self.report.refused(flat, why, EXCLUDE),
        }
    }

    /// Adds the elements of a tensor or an array. Returns the fields of the metadata about them.
    fn elements(
        &mut self,
        flat: &Text,
        key: &str,
        id: TensorId,
        attributes: Arc<[Attribute]>,
    ) -> Option<Vec<(&'static str, Json)>> {
        let added = match &mut self.container {
            Container::File(file) => dataset(self.source, id, attributes).and_then(|dataset| {
                let added = file.add(key, dataset);
                added.map_err(|error| (error.what().to_owned(), EXCLUDE))?;
                Ok(vec![("__NUMPY__", Json::Bool(true)), ("compressed", Json::Bool(false))])
            }),
            Container::Objects(objects) => objects.elements(self.source, key, id),
        };
        match added {
            Ok(about) => Some(about),
            Err((why, setting)) => self.report.refused(flat, why, setting),
        }
    }
}

/// Python refuses to parse integers of more than 4300 digits.
const MAX_INT_BYTES: usize = 1786;

const TENSOR: &str = "TorchTensorSerializer";

/// Returns the metadata of a value without a dataset.
fn none(kind: &'static str, mut about: Vec<(&'static str, Json)>) -> Json {
    about.push(("__TYPE__", Json::text(kind)));
    about.push(("__NONE__", Json::Bool(true)));
    Json::Object(about)
}

/// Returns the attribute text of a leaf: a spec of its own with one object.
fn metadata(key: &Text, about: &Described) -> String {
    let mut quoted = String::with_capacity(key.as_bytes().len() + 2);
    json::quote(key, &mut quoted);
    let mut out = String::with_capacity(1024);
    out.push_str("{\n    \"__spec__\": ");
    spec::single(&quoted, &mut out);
    out.push_str(",\n    \"__objects__\": [\n        ");
    out.push_str(&quoted);
    out.push_str("\n    ],\n    ");
    // Continues the name inside the quotes.
    quoted.pop();
    out.push_str(&quoted);
    out.push_str(".__metadata__\": ");
    match about {
        Described::Object(object) => object.write(&mut out, 1),
        Described::Written(text) => out.push_str(text),
    }
    out.push_str("\n}");
    out
}

/// Returns the attributes of the dataset of a tensor; `code` is the number of its dtype.
fn tensor_attributes(tensor: &Tensor, code: i64, dims: Vec<i64>) -> Arc<[Attribute]> {
    let shapes = match dims.len() {
        0 => AttributeValue::NoF64(vec![1, 0]),
        rank => AttributeValue::I64s(vec![1, rank as u64], dims),
    };
    Arc::new([
        Attribute::new("__NUMPY__", AttributeValue::Bool(true)),
        Attribute::new("__TORCH__", AttributeValue::Bool(true)),
        Attribute::new("__TYPE__", AttributeValue::Text(TENSOR.into())),
        Attribute::new("compressed", AttributeValue::Bool(false)),
        Attribute::new("dtypes", AttributeValue::Texts(vec![torch_name(tensor)])),
        Attribute::new("rtfx_dtypes", AttributeValue::I64s(vec![1], vec![code])),
        Attribute::new("shapes", shapes),
    ])
}

fn torch_name(tensor: &Tensor) -> String {
    format!("torch.{}", tensor.dtype)
}

fn shape(tensor: &Tensor) -> Json {
    Json::List(tensor.shape.iter().map(|dim| number(*dim)).collect())
}

/// Returns the name if HDF5 can hold it.
pub(super) fn hdf5_name(key: &Text) -> Option<&str> {
    key.as_str().filter(|key| !key.contains('\0'))
}

/// Returns a tensor or array, unless neither family can hold it, whatever its dtype.
pub(super) fn fit<'a>(
    source: &'a Checkpoint,
    id: TensorId,
    key: &Text,
    report: &mut LossReport,
) -> Option<&'a Tensor> {
    let why = match source.tensor(id) {
        Err(error) => error.what().to_owned(),
        Ok(tensor) => match &tensor.layout {
            Layout::Missing(why) => format!("there is no data to write: {why}"),
            _ if tensor.quantizer.is_some() => {
                "a quantised tensor, which the format does not support".to_owned()
            }
            _ => return Some(tensor),
        },
    };
    report.refused(key, why, EXCLUDE)
}

/// Adds losses for properties of a tensor that the format does not store.
pub(super) fn lose_class(report: &mut LossReport, tensor: &Tensor, key: &Text) {
    match tensor.class {
        TensorClass::Tensor if tensor.requires_grad => report.lose(report::GRADIENT, key),
        TensorClass::Tensor => {}
        TensorClass::Parameter => report.lose(report::PARAMETER, key),
        TensorClass::Other(_) => report.lose(report::SUBCLASS, key),
    }
}

/// Returns the dataset for a tensor's elements. Fails if HDF5 has no such type, with the reason and
/// the setting that avoids it.
pub(super) fn dataset(
    source: &Checkpoint,
    id: TensorId,
    attributes: Arc<[Attribute]>,
) -> Result<Dataset, (String, Setting)> {
    let tensor = source.tensor(id).map_err(|error| (error.what().to_owned(), EXCLUDE))?;
    let datatype = Datatype::of(&tensor.dtype).ok_or_else(|| {
        let why = format!("an array of {}, which h5py does not write", tensor.dtype);
        (why, report::without(&tensor.dtype))
    })?;
    let space = match tensor.shape.as_slice() {
        [] => Space::Scalar,
        shape => Space::Simple(shape.to_vec()),
    };
    Ok(Dataset { datatype, space, content: Content::Tensor(id), attributes })
}

pub(super) fn dimensions(tensor: &Tensor) -> Option<Vec<i64>> {
    tensor.shape.iter().map(|dim| i64::try_from(*dim).ok()).collect()
}

/// Returns the fill value of a constant tensor, if the value reproduces the same bytes.
pub(super) fn fill_value(tensor: &Tensor) -> Option<Json> {
    if !matches!(tensor.layout, Layout::Fill(_)) || tensor.dtype != tensor.stored {
        return None;
    }
    let element = objects::element(tensor)?;
    let integer = |bytes: &[u8], signed: bool| {
        let mut wide = bytes.to_vec();
        let sign = signed && bytes.last().is_some_and(|last| *last >= 0x80);
        wide.push(if sign { 0xff } else { 0 });
        Json::Number(statelens_checkpoint::Int::from_le_bytes(&wide).to_string())
    };
    Some(match &tensor.dtype {
        DType::Bool => Json::Bool(*element.first()? != 0),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => integer(&element, false),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => integer(&element, true),
        dtype => {
            let value = objects::real(dtype, &element)?;
            // Python has only one NaN; other bit patterns would be lost.
            if value.is_nan() {
                return None;
            }
            Json::float(value)
        }
    })
}
