//! JSON as Python's `json` reads and writes it.

use statelens_checkpoint::{Error, Result};

use super::MAX_DEPTH;
use super::value::{List, Map, MapKey, Value};

/// Parses one JSON value.
pub(super) fn parse(text: &str) -> Result<Value> {
    let mut parser = Parser { text, at: 0 };
    let value = parser.document()?;
    parser.space();
    match parser.peek() {
        None => Ok(value),
        Some(_) => Err(parser.error("there is more text after the end of the config")),
    }
}

/// Formats a value as `json.dumps(value, indent=4)` does.
pub(super) fn write(value: &Value) -> String {
    let mut text = String::new();
    put(&mut text, value, 0);
    text
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

/// A list or dict that has begun; for a dict, with the key of the next value.
enum OpenContainer {
    List(List),
    Map(Map, MapKey),
}

impl Parser<'_> {
    fn document(&mut self) -> Result<Value> {
        let mut open: Vec<OpenContainer> = Vec::new();
        loop {
            self.space();
            let mut value = match self.peek() {
                Some('[') => {
                    self.at += 1;
                    self.space();
                    if !self.eat(']') {
                        self.push(&mut open, OpenContainer::List(List::default()))?;
                        continue;
                    }
                    Value::List(List::default())
                }
                Some('{') => {
                    self.at += 1;
                    self.space();
                    if !self.eat('}') {
                        let key = self.key()?;
                        self.push(&mut open, OpenContainer::Map(Map::new(), key))?;
                        continue;
                    }
                    Value::Map(Map::new())
                }
                _ => self.scalar()?,
            };
            // The end of a value may be followed by the ends of the lists and dicts around it.
            loop {
                self.space();
                match open.pop() {
                    None => return Ok(value),
                    Some(OpenContainer::List(mut list)) => {
                        list.push(value);
                        if self.eat(',') {
                            open.push(OpenContainer::List(list));
                            break;
                        }
                        self.expect(']', "a comma or ] after an item of a list")?;
                        value = Value::List(list);
                    }
                    Some(OpenContainer::Map(mut map, key)) => {
                        map.set(key, value);
                        if self.eat(',') {
                            self.space();
                            let key = self.key()?;
                            open.push(OpenContainer::Map(map, key));
                            break;
                        }
                        self.expect('}', "a comma or } after a value")?;
                        value = Value::Map(map);
                    }
                }
            }
        }
    }

    fn push(&self, open: &mut Vec<OpenContainer>, new: OpenContainer) -> Result<()> {
        if open.len() >= MAX_DEPTH {
            return Err(
                Error::limit("the config is nested deeper than 100 levels").at(self.at as u64)
            );
        }
        open.push(new);
        Ok(())
    }

    fn key(&mut self) -> Result<MapKey> {
        if self.peek() != Some('"') {
            return Err(self.error("a key has to be in double quotes"));
        }
        let key = self.text()?;
        self.space();
        self.expect(':', "a colon after a key")?;
        Ok(MapKey::Text(key))
    }

    fn scalar(&mut self) -> Result<Value> {
        const WORDS: [(&str, Value); 6] = [
            ("null", Value::Null),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("NaN", Value::Float(f64::NAN)),
            ("Infinity", Value::Float(f64::INFINITY)),
            ("-Infinity", Value::Float(f64::NEG_INFINITY)),
        ];
        if self.peek() == Some('"') {
            return Ok(Value::Text(self.text()?));
        }
        let rest = &self.text[self.at..];
        for (word, value) in WORDS {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        self.number()
    }

    fn number(&mut self) -> Result<Value> {
        let start = self.at;
        self.eat('-');
        if !self.eat('0') && self.digits() == 0 {
            self.at = start;
            return Err(self.error("this is not a value"));
        }
        let mut whole = true;
        let point = self.at;
        if self.eat('.') {
            if self.digits() > 0 {
                whole = false;
            } else {
                self.at = point;
            }
        }
        let exponent = self.at;
        if self.eat('e') || self.eat('E') {
            let _signed = self.eat('+') || self.eat('-');
            if self.digits() > 0 {
                whole = false;
            } else {
                self.at = exponent;
            }
        }
        let text = &self.text[start..self.at];
        if whole { integer(text) } else { Ok(Value::Float(text.parse().unwrap_or(f64::NAN))) }
    }

    fn digits(&mut self) -> usize {
        let rest = &self.text.as_bytes()[self.at..];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        count
    }

    /// Parses a string, including its quotes.
    fn text(&mut self) -> Result<String> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            let end = rest.find(['"', '\\']).ok_or_else(|| self.error("a string does not end"))?;
            if let Some(control) = rest[..end].find(|c: char| c < ' ') {
                self.at += control;
                return Err(self.error("a string contains a line break or control character"));
            }
            text.push_str(&rest[..end]);
            self.at += end + 1;
            if rest.as_bytes()[end] == b'"' {
                return Ok(text);
            }
            text.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Result<char> {
        let Some(escape) = self.peek() else { return Err(self.error("a string does not end")) };
        self.at += escape.len_utf8();
        Ok(match escape {
            '"' | '\\' | '/' => escape,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let first = self.hex()?;
                let mut code = first;
                if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    let second = self.hex()?;
                    if (0xdc00..0xe000).contains(&second) {
                        code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                    }
                }
                char::from_u32(code)
                    .ok_or_else(|| self.error("a string contains half a character"))?
            }
            _ => return Err(self.error("this escape is unknown")),
        })
    }

    fn hex(&mut self) -> Result<u32> {
        let digits = self.text.get(self.at..self.at + 4);
        let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = digits.and_then(|text| u32::from_str_radix(text, 16).ok());
        let code = code.ok_or_else(|| self.error("four hexadecimal digits were expected"))?;
        self.at += 4;
        Ok(code)
    }

    fn space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += if found { wanted.len_utf8() } else { 0 };
        found
    }

    fn expect(&mut self, wanted: char, what: &str) -> Result<()> {
        if self.eat(wanted) { Ok(()) } else { Err(self.error(&format!("{what} was expected"))) }
    }

    fn error(&self, what: &str) -> Error {
        let before = &self.text[..self.at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Error::damaged(format!("line {line}, column {column} is not JSON: {what}"))
    }
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
        Value::Float(number) => text.push_str(&number_text(*number)),
        Value::Text(string) | Value::Date(string) => put_text(text, string),
        Value::List(list) if list.is_empty() => text.push_str("[]"),
        Value::Map(map) if map.is_empty() => text.push_str("{}"),
        Value::List(list) => {
            for (index, item) in list.iter().enumerate() {
                text.push(if index == 0 { '[' } else { ',' });
                line(text, depth + 1);
                put(text, item, depth + 1);
            }
            line(text, depth);
            text.push(']');
        }
        Value::Map(map) => {
            for (index, (key, item)) in map.iter().enumerate() {
                text.push(if index == 0 { '{' } else { ',' });
                line(text, depth + 1);
                put_key(text, key);
                text.push_str(": ");
                put(text, item, depth + 1);
            }
            line(text, depth);
            text.push('}');
        }
    }
}

fn line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("    ", depth));
}

fn number_text(number: f64) -> String {
    match statelens_checkpoint::float_repr(number).as_str() {
        "nan" => "NaN".to_owned(),
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        plain => plain.to_owned(),
    }
}

fn put_key(text: &mut String, key: &MapKey) {
    match key {
        MapKey::Text(key) => put_text(text, key),
        MapKey::Other(value) => {
            text.push('"');
            put(text, value, 0);
            text.push('"');
        }
    }
}

fn put_text(text: &mut String, string: &str) {
    text.push('"');
    for c in string.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            ' '..='~' => text.push(c),
            _ => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    text.push('"');
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
            ("01", "line 1, column 2"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(place), "{text:?}: {error}");
        }
    }

    #[test]
    fn refuses_deep_nesting_without_recursion() {
        let text = "[".repeat(1_000_000);
        assert!(parse(&text).unwrap_err().to_string().contains("deeper"));
        assert!(parse(&format!("{}{}", "[".repeat(100), "]".repeat(100))).is_ok());
    }
}
