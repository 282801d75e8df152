//! Plain values as one text of `__metadata__`; [`super`] says how.

use std::sync::Arc;

use statelens_checkpoint::{DType, Dict, Error, List, Result, Set, Text, Tuple, Value};

use crate::json::{Document, Id, Node};

/// The entry of `__metadata__`.
pub(super) const KEY: &str = "statelens";

/// The version that is written, and the only one that is read.
const VERSION: i64 = 1;

/// The values in a text, by flat key.
pub(super) fn decode(text: &Text) -> Result<Vec<(Text, Value)>> {
    let json = Document::parse(text.as_bytes())?;
    match json.field(json.root(), "version") {
        Some(Node::Int(version)) if version.to_i64() == Some(VERSION) => {}
        _ => {
            return Err(Error::unsupported("they are of a version that is not known").expected("1"));
        }
    }
    let Some(Node::Object(entries)) = json.field(json.root(), "values") else {
        return Err(Error::damaged("there is no object `values`"));
    };
    let value = |(key, id): &(Text, Id)| {
        Ok((
            key.clone(),
            value(&json, *id).ok_or_else(|| {
                Error::damaged(format!("the value of {key} is none that is known"))
            })?,
        ))
    };
    entries.iter().map(value).collect()
}

fn value(json: &Document, id: Id) -> Option<Value> {
    Some(match json.node(id) {
        Node::Null => Value::None,
        Node::Bool(value) => Value::Bool(*value),
        Node::Int(value) => Value::Int(value.clone()),
        Node::Float(value) => Value::Float(*value),
        Node::Str(text) => Value::Str(text.clone()),
        Node::Array(_) => return None,
        Node::Object(entries) => {
            let [(kind, inner)] = &entries[..] else { return None };
            let text = json.node(*inner).text().and_then(Text::as_str);
            match kind.as_str()? {
                "bytes" => Value::Bytes { data: unhex(text?)?, mutable: false },
                "bytearray" => Value::Bytes { data: unhex(text?)?, mutable: true },
                "complex" => match json.items(*inner) {
                    [re, im] => Value::Complex(float(json.node(*re))?, float(json.node(*im))?),
                    _ => return None,
                },
                "dtype" => Value::DType { dtype: DType::from_torch_name(text?)?, numpy: false },
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

fn float(node: &Node) -> Option<f64> {
    match node {
        Node::Float(value) => Some(*value),
        Node::Int(value) => value.to_i64().map(|value| value as f64),
        _ => None,
    }
}

fn unhex(text: &str) -> Option<Arc<[u8]>> {
    let nibble = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(nibble(pair[0])? << 4 | nibble(*pair.get(1)?)?)).collect()
}
