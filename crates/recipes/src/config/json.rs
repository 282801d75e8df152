//! JSON as Python's `json` reads and writes it.

use statelens_checkpoint::json::{self, Document, Id, JsonNode};
use statelens_checkpoint::{Error, Result};

use super::MAX_DEPTH;
use crate::value::{List, Map, MapKey, Value};

pub(super) fn parse(text: &str) -> Result<Value> {
    let document = Document::parse_config(text, MAX_DEPTH)?;
    value(&document, document.root())
}

/// Recurses; the depth of a document is bounded.
fn value(document: &Document, id: Id) -> Result<Value> {
    Ok(match document.node(id) {
        JsonNode::Null => Value::Null,
        JsonNode::Bool(truth) => Value::Bool(*truth),
        JsonNode::Int(number) => integer(&number.to_string())?,
        JsonNode::Float(number) => Value::Float(*number),
        JsonNode::Str(string) => Value::Text(string.to_lossy().into_owned()),
        JsonNode::Array(items) => {
            let mut list = List::default();
            for item in items {
                list.push(value(document, *item)?);
            }
            Value::List(list)
        }
        JsonNode::Object(entries) => {
            let mut map = Map::new();
            for (name, item) in entries {
                map.set(MapKey::Text(name.to_lossy().into_owned()), value(document, *item)?);
            }
            Value::Map(map)
        }
    })
}

pub(super) fn write(value: &Value) -> String {
    let mut text = String::new();
    put(&mut text, value, 0);
    text
}

/// Parses an integer of any size that Python accepts.
pub(super) fn integer(text: &str) -> Result<Value> {
    // Python's `int()` has this limit, because the time grows with the square of the length.
    const MAX_DIGITS: usize = 4300;
    if let Ok(number) = text.parse() {
        return Ok(Value::Int(number));
    }
    if text.len() > MAX_DIGITS {
        return Err(Error::limit(
            "an integer has more than 4300 digits, which Python refuses, too",
        ));
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    Ok(Value::BigInt(format!("{sign}{}", digits.trim_start_matches('0'))))
}

/// Recurses; the depth of parsed and converted values is bounded.
fn put(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(truth) => text.push_str(if *truth { "true" } else { "false" }),
        Value::Int(number) => text.push_str(&number.to_string()),
        Value::BigInt(digits) => text.push_str(digits),
        Value::Float(number) => text.push_str(&json::float(*number)),
        Value::Text(string) | Value::Date(string) => json::quote_str(string, text),
        Value::List(list) if list.is_empty() => text.push_str("[]"),
        Value::Map(map) if map.is_empty() => text.push_str("{}"),
        Value::List(list) => {
            text.push('[');
            for (index, item) in list.iter().enumerate() {
                json::separate(text, index > 0, depth + 1);
                put(text, item, depth + 1);
            }
            json::separate(text, false, depth);
            text.push(']');
        }
        Value::Map(map) => {
            text.push('{');
            for (index, (key, item)) in map.iter().enumerate() {
                json::separate(text, index > 0, depth + 1);
                put_key(text, key);
                text.push_str(": ");
                put(text, item, depth + 1);
            }
            json::separate(text, false, depth);
            text.push('}');
        }
    }
}

fn put_key(text: &mut String, key: &MapKey) {
    match key {
        MapKey::Text(key) => json::quote_str(key, text),
        MapKey::Other(value) => {
            text.push('"');
            put(text, value, 0);
            text.push('"');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_json_as_python_does() {
        let text = r#" {"a": [1, -2.5e3, NaN, -Infinity], "b": {}, "c": "\u00e9\ud83d\ude00\n", "a2": 123456789012345678901234567890, "b": null} "#;
        let value = parse(text).unwrap();
        let map = value.as_map().unwrap();
        assert_eq!(map.keys().collect::<Vec<_>>(), ["a", "b", "c", "a2"]);
        assert_eq!(map.get("b"), Some(&Value::Null));
        assert_eq!(map.get("c"), Some(&Value::from("é😀\n")));
        assert_eq!(map.get("a2"), Some(&Value::BigInt("123456789012345678901234567890".into())));
        let list = map.get("a").unwrap().as_list().unwrap();
        assert_eq!(list[1], Value::Float(-2500.0));
        assert!(matches!(list[2], Value::Float(number) if number.is_nan()));
    }

    #[test]
    fn writes_json_as_python_does() {
        let text = "{\n    \"eps\": 1e-05,\n    \"one\": 1.0,\n    \"list\": [\n        1,\n        \"\\u00e9\\ud83d\\ude00\"\n    ],\n    \"none\": [],\n    \"big\": -99999999999999999999,\n    \"inf\": Infinity\n}";
        assert_eq!(parse(text).unwrap().to_json(), text);
    }

    #[test]
    fn errors_have_line_and_column() {
        for (text, place) in [
            ("{\n \"a\": }", "line 2, column 7"),
            ("[1 2]", "line 1, column 4"),
            ("{'a': 1}", "line 1, column 2"),
            ("\"a\n\"", "line 1, column 3"),
            ("", "line 1, column 1"),
            ("1 1", "line 1, column 3"),
            ("[1,]", "line 1, column 4"),
            (r#""\ud800""#, "line 1, column 8"),
            ("01", "line 1, column 1"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(place), "{text:?}: {error}");
        }
    }

    #[test]
    fn refuses_deep_nesting_without_recursion() {
        let text = "[".repeat(1_000_000);
        assert!(parse(&text).unwrap_err().to_string().contains("nested too deep"));
        assert!(parse(&format!("{}{}", "[".repeat(100), "]".repeat(100))).is_ok());
    }
}
