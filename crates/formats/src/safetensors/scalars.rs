//! Plain values as a text in `__metadata__`; see [`super`] for the format.

use std::sync::Arc;

use statelens_checkpoint::json::{self, Document, Id, JsonNode};
use statelens_checkpoint::{
    Checkpoint, DType, Dict, Error, List, Result, Set, Text, Tuple, Value, ValueId,
};

use crate::object_text::object_text;

/// The key in `__metadata__`.
pub(super) const KEY: &str = "statelens";

/// The version that is written, and the only one that is read.
const VERSION: i64 = 1;

/// Parses the values in a text, by flat key.
pub(super) fn decode(text: &Text) -> Result<Vec<(Text, Value)>> {
    let json = Document::parse(text.as_bytes())?;
    match json.field(json.root(), "version") {
        Some(JsonNode::Int(version)) if version.to_i64() == Some(VERSION) => {}
        _ => {
            return Err(Error::unsupported("their version is unknown").expected("1"));
        }
    }
    let Some(JsonNode::Object(entries)) = json.field(json.root(), "values") else {
        return Err(Error::damaged("there is no object `values`"));
    };
    let value = |(key, id): &(Text, Id)| {
        Ok((
            key.clone(),
            value(&json, *id)
                .ok_or_else(|| Error::damaged(format!("the value of {key} is not a known one")))?,
        ))
    };
    entries.iter().map(value).collect()
}

fn value(json: &Document, id: Id) -> Option<Value> {
    Some(match json.node(id) {
        JsonNode::Null => Value::None,
        JsonNode::Bool(value) => Value::Bool(*value),
        JsonNode::Int(value) => Value::Int(value.clone()),
        JsonNode::Float(value) => Value::Float(*value),
        JsonNode::Str(text) => Value::Str(text.clone()),
        JsonNode::Array(_) => return None,
        JsonNode::Object(entries) => {
            let [(kind, inner)] = &entries[..] else { return None };
            let text = json.node(*inner).text().and_then(Text::as_str);
            match kind.as_str()? {
                "bytes" => Value::Bytes { data: unhex(text?)?, mutable: false },
                "bytearray" => Value::Bytes { data: unhex(text?)?, mutable: true },
                "complex" => match json.items(*inner) {
                    [re, im] => Value::Complex(float(json.node(*re))?, float(json.node(*im))?),
                    _ => return None,
                },
                "dtype" => Value::DType { dtype: DType::from_torch_name(text?)?, numpy: None },
                "device" => Value::Device(text?.into()),
                "empty" => match text? {
                    "dict" => Value::Dict(Dict::default()),
                    "list" => Value::List(List::default()),
                    "tuple" => Value::Tuple(Tuple::default()),
                    "set" => Value::Set(Set::default()),
                    _ => return None,
                },
                _ => return None,
            }
        }
    })
}

fn float(node: &JsonNode) -> Option<f64> {
    match node {
        JsonNode::Float(value) => Some(*value),
        JsonNode::Int(value) => value.to_i64().map(|value| value as f64),
        _ => None,
    }
}

fn unhex(text: &str) -> Option<Arc<[u8]>> {
    let nibble = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(nibble(pair[0])? << 4 | nibble(*pair.get(1)?)?)).collect()
}

/// Returns the text for these values, or `None` if `values` is empty. The caller passes neither
/// tensors nor non-empty containers.
pub(super) fn encode(source: &Checkpoint, values: &[(Text, ValueId)]) -> Option<String> {
    if values.is_empty() {
        return None;
    }
    let mut out = format!("{{\"version\": {VERSION}, \"values\": {{");
    for (index, (name, id)) in values.iter().enumerate() {
        out.push_str(if index > 0 { ", " } else { "" });
        json::quote(name, &mut out);
        out.push_str(": ");
        put(source, source.value(*id), &mut out);
    }
    out.push_str("}}");
    Some(out)
}

fn put(source: &Checkpoint, value: &Value, out: &mut String) {
    match value {
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => out.push_str(&value.to_string()),
        Value::Float(value) => out.push_str(&json::float(*value)),
        Value::Complex(re, im) => {
            out.push_str(&format!("{{\"complex\": [{}, {}]}}", json::float(*re), json::float(*im)));
        }
        Value::Str(text) => json::quote(text, out),
        Value::Bytes { data, mutable } => {
            let kind = if *mutable { "bytearray" } else { "bytes" };
            let hex = statelens_checkpoint::hex(data);
            one(kind, &hex.into(), out);
        }
        Value::DType { dtype, numpy: None } => one("dtype", &dtype.name().into(), out),
        Value::DType { dtype, numpy: Some(_) } => json::quote(&dtype.name().into(), out),
        Value::Device(device) => one("device", device, out),
        Value::Dict(_) => one("empty", &"dict".into(), out),
        Value::List(_) => one("empty", &"list".into(), out),
        Value::Tuple(_) => one("empty", &"tuple".into(), out),
        Value::Set(_) => one("empty", &"set".into(), out),
        Value::Opaque(opaque) => json::quote(&object_text(source, opaque), out),
        Value::None | Value::Tensor(_) | Value::Array(_) | Value::Sparse(_) | Value::Link(_) => {
            out.push_str("null");
        }
    }
}

/// Writes an object with a single entry.
fn one(kind: &str, text: &Text, out: &mut String) {
    out.push_str(&format!("{{\"{kind}\": "));
    json::quote(text, out);
    out.push('}');
}
