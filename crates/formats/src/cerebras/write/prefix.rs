//! The objects of a checkpoint in S3, and `__METADATA__`, which describes them.

use std::collections::HashMap;

use statelens_checkpoint::json::{self, Document, Id, Json, JsonNode};
use statelens_checkpoint::{
    Checkpoint, Checksum, DType, Data, Error, Plan, PlannedFile, Result, Segment, Setting,
    TensorId, Text,
};
use statelens_hdf5::write::AttributeValue;

use super::report::{EXCLUDE, without};
use crate::cerebras::metadata::{Entries, NAME, SUFFIX};

/// Entries that Python's pickler writes at once.
const BATCH: usize = 1_000;
/// The maximum bytes of a key in S3, with the prefix.
pub const MAX_KEY: usize = 1_024;

/// The objects of a checkpoint, and the entries of its metadata.
#[derive(Default)]
pub(super) struct ObjectPlan {
    pub(super) entries: Vec<(String, AttributeValue)>,
    files: Vec<PlannedFile>,
}

pub(super) fn number(value: u64) -> Json {
    Json::Number(value.to_string())
}

/// Returns the fields of the metadata about the bytes of a body that is not compressed.
pub(super) fn sizes(len: u64) -> [(&'static str, Json); 3] {
    [
        ("compressed", Json::Bool(false)),
        ("data_sizes", Json::List(vec![number(len)])),
        ("boundaries", Json::List(vec![number(len)])),
    ]
}

impl ObjectPlan {
    /// Adds an object; fails with the reason if it can't have that name.
    pub(super) fn add(&mut self, name: &str, body: Segment) -> Result<(), String> {
        if name == NAME {
            return Err(format!("an object can't have the name {NAME}"));
        }
        if name.len() > MAX_KEY {
            return Err(format!("a name of more than {MAX_KEY} bytes, the limit of S3"));
        }
        let (name, segments) = (name.to_owned(), vec![body]);
        self.files.push(PlannedFile { name, segments, head_last: false });
        Ok(())
    }

    /// Adds the object of a tensor. Returns the fields of the metadata about its elements.
    pub(super) fn elements(
        &mut self,
        source: &Checkpoint,
        name: &str,
        id: TensorId,
    ) -> Result<Vec<(&'static str, Json)>, (String, Setting)> {
        let other = |why: String| (why, EXCLUDE);
        let tensor = source.tensor(id).map_err(|error| other(error.what().to_owned()))?;
        let dtype = numpy_name(&tensor.dtype).ok_or_else(|| {
            let why = format!("an array of {}, which can't be loaded from S3", tensor.dtype);
            (why, without(&tensor.dtype))
        })?;
        let len = tensor.nbytes().ok_or_else(|| other("more bytes than fit 64 bits".to_owned()))?;
        let body = match len {
            0 => Segment::Bytes([].into()),
            _ => Segment::Data(Data::plain(id, Checksum::None)),
        };
        self.add(name, body).map_err(other)?;
        let shape = Json::List(tensor.shape.iter().map(|dim| number(*dim)).collect());
        let numpy = Json::Object(vec![("shape", shape), ("dtype", Json::text(&dtype))]);
        let mut about = vec![("__NUMPY__", numpy)];
        about.extend(sizes(len));
        Ok(about)
    }

    /// Returns the objects, with the metadata last.
    pub(super) fn plan(mut self) -> Result<Vec<PlannedFile>> {
        let metadata = pickled(&self.entries)?;
        let segments = vec![Segment::Bytes(metadata.into())];
        self.files.push(PlannedFile { name: NAME.to_owned(), segments, head_last: false });
        Ok(self.files)
    }
}

/// Returns NumPy's text of a dtype (`str(dtype)`) in a body; `None` if the library can't load it.
fn numpy_name(dtype: &DType) -> Option<String> {
    if *dtype == DType::BF16 {
        return Some("int16".to_owned());
    }
    let code = dtype.numpy_code()?;
    let is_text = code.starts_with(['S', 'U']);
    match dtype {
        DType::Numpy(_) if !is_text || dtype.itemsize() == 0 => None,
        DType::Numpy(_) => Some(format!("{}{code}", if code.starts_with('U') { '<' } else { '|' })),
        dtype => Some(dtype.name().to_owned()),
    }
}

/// Pickles the entries as `dill.dumps` does, in protocol 4, with no other opcodes. Frames and memo are
/// optional and left out.
fn pickled(entries: &[(String, AttributeValue)]) -> Result<Vec<u8>> {
    let mut out = vec![0x80, 4, b'}'];
    let text = |out: &mut Vec<u8>, text: &[u8]| {
        let len = u32::try_from(text.len())
            .map_err(|_| Error::limit("a text of the metadata has more than 4 GB"))?;
        out.push(b'X');
        out.extend(len.to_le_bytes());
        out.extend(text);
        Ok::<(), Error>(())
    };
    for batch in entries.chunks(BATCH) {
        out.push(b'(');
        for (name, value) in batch {
            text(&mut out, name.as_bytes())?;
            match value {
                AttributeValue::F64(number) => {
                    out.push(b'G');
                    out.extend(number.to_be_bytes());
                }
                AttributeValue::Bool(true) => out.push(0x88),
                AttributeValue::Text(value) => text(&mut out, value.as_bytes())?,
                _ => return Err(Error::unsupported("an entry of the metadata is not a text")),
            }
        }
        out.push(b'u');
    }
    out.push(b'.');
    Ok(out)
}

/// Returns whether the files of a plan are objects of one checkpoint, below one prefix.
pub fn is_prefix(plan: &Plan) -> bool {
    plan.files.last().is_some_and(|file| file.name == NAME)
}

/// Returns the content of `__METADATA__`, which is the last file of a plan.
pub fn metadata(plan: &Plan) -> Result<Vec<u8>> {
    match plan.files.last().map(|file| file.segments.as_slice()) {
        Some([Segment::Bytes(bytes)]) => Ok(bytes.to_vec()),
        _ => Err(Error::unsupported("this plan has no `__METADATA__`")),
    }
}

/// Returns the first form of `__METADATA__`, which is there until all objects are: that of a
/// checkpoint that was not written to its end.
pub fn first_metadata(metadata: &[u8]) -> Result<Vec<u8>> {
    let entries = Entries::parse(metadata)?;
    let spec = entries.text(b"__spec__")?.map(|spec| spec.to_lossy().into_owned());
    pickled(&[
        ("__spec__".to_owned(), AttributeValue::Text(spec.unwrap_or_default())),
        ("__version__".to_owned(), AttributeValue::F64(0.5)),
    ])
}

/// Returns the header of each object by its name: its description on one line.
pub fn headers(metadata: &[u8]) -> Result<HashMap<String, String>> {
    let mut headers = HashMap::new();
    Entries::parse(metadata)?.each_text(|name, text| {
        let Some(key) = name.strip_suffix(SUFFIX.as_bytes()) else { return Ok(()) };
        let document = Document::parse(text.as_bytes())?;
        if let Some(id) = document.get(document.root(), name)
            && document.get(id, "__NONE__").is_none()
        {
            let mut header = String::new();
            line(&document, id, &mut header);
            headers.insert(Text::decode(key).to_lossy().into_owned(), header);
        }
        Ok(())
    })?;
    Ok(headers)
}

/// Writes a value of JSON as `json.dumps` does without an indent. The metadata of an object nests
/// three levels.
fn line(document: &Document, id: Id, out: &mut String) {
    match document.node(id) {
        JsonNode::Str(text) => json::quote(text, out),
        JsonNode::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        JsonNode::Int(int) => out.push_str(&int.to_string()),
        JsonNode::Float(value) => out.push_str(&json::float(*value)),
        JsonNode::Null => out.push_str("null"),
        JsonNode::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                line(document, *item, out);
            }
            out.push(']');
        }
        JsonNode::Object(entries) => {
            out.push('{');
            for (at, (name, item)) in entries.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                json::quote(name, out);
                out.push_str(": ");
                line(document, *item, out);
            }
            out.push('}');
        }
    }
}
