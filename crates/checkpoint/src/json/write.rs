//! Writes JSON as Python's `json.dumps` does: ASCII only, `NaN` and `Infinity` unquoted.

use std::borrow::Cow;

use crate::{Text, float_repr};

/// A value to write.
#[derive(Debug)]
pub enum Json {
    /// `true` or `false`.
    Bool(bool),
    /// A number in JSON.
    Number(String),
    /// A string.
    Text(Text),
    /// An array.
    List(Vec<Json>),
    /// An object.
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    /// Returns a string.
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// Returns a number.
    pub fn float(value: f64) -> Self {
        Self::Number(float(value))
    }

    /// Writes the value as `indent=4` does, starting on a line that is `indent` levels deep.
    pub fn write(&self, out: &mut String, indent: usize) {
        match self {
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(number) => out.push_str(number),
            Self::Text(text) => quote(text, out),
            Self::List(items) if items.is_empty() => out.push_str("[]"),
            Self::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    separate(out, index > 0, indent + 1);
                    item.write(out, indent + 1);
                }
                separate(out, false, indent);
                out.push(']');
            }
            Self::Object(entries) => {
                out.push('{');
                for (index, (name, value)) in entries.iter().enumerate() {
                    separate(out, index > 0, indent + 1);
                    quote(&Text::from(*name), out);
                    out.push_str(": ");
                    value.write(out, indent + 1);
                }
                separate(out, false, indent);
                out.push('}');
            }
        }
    }
}

/// Writes a comma if requested, and a new line indented by `indent` levels.
pub fn separate(out: &mut String, comma: bool, indent: usize) {
    out.push_str(if comma { ",\n" } else { "\n" });
    for _ in 0..indent {
        out.push_str("    ");
    }
}

/// Formats a number in Python's JSON dialect.
pub fn float(value: f64) -> String {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity".into() } else { "-Infinity".into() }
    } else {
        float_repr(value)
    }
}

/// Writes a string with quotes.
pub fn quote(text: &Text, out: &mut String) {
    out.push('"');
    for piece in text.pieces() {
        match piece {
            Ok(text) => escape(text, out),
            Err(surrogate) => unit(surrogate, out),
        }
    }
    out.push('"');
}

/// Like [`quote`], for a string without surrogates.
pub fn quote_str(text: &str, out: &mut String) {
    out.push('"');
    escape(text, out);
    out.push('"');
}

/// Writes a string with quotes as serde_json does: UTF-8, escaping only where required.
pub fn quote_utf8(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' | '\0'..='\x1f' => escape(c.encode_utf8(&mut [0; 4]), out),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Returns the text as it is inside the quotes of [`quote_str`].
pub fn escaped(text: &str) -> Cow<'_, str> {
    if text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    escape(text, &mut out);
    Cow::Owned(out)
}

/// Returns whether a byte is written without an escape.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

fn escape(text: &str, out: &mut String) {
    let mut rest = text;
    // The first byte that is not plain begins a character. Searching bytes is faster than decoding.
    while let Some(at) = rest.bytes().position(|byte| !is_plain(byte)) {
        let (run, tail) = rest.split_at(at);
        out.push_str(run);
        let mut chars = tail.chars();
        match chars.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            Some('\u{8}') => out.push_str("\\b"),
            Some('\u{c}') => out.push_str("\\f"),
            Some(c) => c.encode_utf16(&mut [0; 2]).iter().for_each(|half| unit(*half, out)),
            None => {}
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
}

fn unit(unit: u16, out: &mut String) {
    out.push_str("\\u");
    for shift in [12, 8, 4, 0] {
        let digit = u32::from(unit >> shift & 0xf);
        out.push(char::from_digit(digit, 16).unwrap_or('0'));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of `json.dumps(value, indent=4)` of CPython 3.11.
    #[test]
    fn output_matches_python_json() {
        let text =
            Text::from_surrogatepass(b"a\"\\/\n\x00\x7f\xc3\xa9\xf0\x9f\x98\x80\xed\xa0\x80")
                .unwrap();
        let value = Json::Object(vec![
            ("t", Json::Text(text)),
            ("l", Json::List(vec![Json::float(f64::NAN), Json::float(-0.0)])),
            ("e", Json::List(Vec::new())),
            ("b", Json::Bool(true)),
        ]);
        let mut out = String::new();
        value.write(&mut out, 0);
        assert_eq!(
            out,
            "{\n    \"t\": \"a\\\"\\\\/\\n\\u0000\\u007f\\u00e9\\ud83d\\ude00\\ud800\",\n    \"l\": [\n        \
             NaN,\n        -0.0\n    ],\n    \"e\": [],\n    \"b\": true\n}"
        );
    }
}
