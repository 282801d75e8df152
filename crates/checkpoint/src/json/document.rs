//! A JSON document as a table of nodes, parsed without recursion, so that deep nesting is harmless.

use std::fmt;

use crate::{Interner, Limits, Result, Text, float_repr, try_alloc};

use super::node::{Id, JsonNode};
use super::parser::Parser;

/// A parsed document.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    nodes: Vec<JsonNode>,
}

/// The maximum number of values in a document. The tree of a state dict has four per leaf. A text
/// consisting only of brackets would take seventy times its size in memory.
const MAX_NODES: u64 = 3_000_000;

impl Document {
    /// Parses a document.
    pub fn parse(text: &[u8]) -> Result<Self> {
        Self::read(Parser::lenient(text), text.len()).map(|(document, _)| document)
    }

    /// Parses the text of a config, with a maximum nesting of `depth`. Errors name the line and the
    /// column.
    pub fn parse_config(text: &str, depth: usize) -> Result<Self> {
        let parser = Parser::config(text.as_bytes(), depth);
        Self::read(parser, text.len()).map(|(document, _)| document)
    }

    /// Like [`Document::parse`], but shares strings among many similar texts, or within a long one.
    pub fn parse_sharing(text: &[u8], texts: &mut Interner) -> Result<Self> {
        let mut parser = Parser::lenient(text);
        parser.texts = Some(std::mem::take(texts));
        let (document, parser) = Self::read(parser, text.len())?;
        *texts = parser.texts.unwrap_or_default();
        Ok(document)
    }

    fn read(mut parser: Parser<'_>, len: usize) -> Result<(Self, Parser<'_>)> {
        // Enough for short texts; grows for long ones.
        let mut nodes = Vec::with_capacity((len / 16).min(32));
        // The open containers, innermost last, and the key of the next value.
        let mut open: Vec<Id> = Vec::new();
        let mut name = None;
        let mut alike = Alike::default();
        loop {
            let (node, opens) = parser.value()?;
            Limits::check("values in one JSON text", nodes.len() as u64 + 1, MAX_NODES)?;
            let id =
                Id(u32::try_from(nodes.len()).map_err(|_| parser.bad("more values than fit"))?);
            try_alloc::push(&mut nodes, node)?;
            if let Some(parent) = open.last() {
                match (nodes.get_mut(parent.0 as usize), name.take()) {
                    (Some(JsonNode::Array(items)), _) => items.push(id),
                    (Some(JsonNode::Object(entries)), Some(name)) => entries.push((name, id)),
                    _ => {}
                }
            }
            let mut fresh = opens;
            match opens {
                true => {
                    parser.enter(open.len())?;
                    open.push(id);
                }
                false => alike.share(&mut nodes, id, open.last()),
            }
            // Closes the containers that end here, and advances to the next value.
            loop {
                let Some(parent) = open.last() else {
                    parser.end()?;
                    return Ok((Self { nodes }, parser));
                };
                let object = matches!(nodes.get(parent.0 as usize), Some(JsonNode::Object(_)));
                parser.space();
                if parser.take(if object { b'}' } else { b']' }) {
                    if let Some(closed) = open.pop() {
                        alike.share(&mut nodes, closed, open.last());
                    }
                    fresh = false;
                    continue;
                }
                if !fresh && !parser.take(b',') {
                    return Err(parser.bad("no comma between two values"));
                }
                if object {
                    parser.space();
                    if !parser.take(b'"') {
                        return Err(parser.bad("an entry without a name"));
                    }
                    name = Some(parser.string()?);
                    parser.space();
                    if !parser.take(b':') {
                        return Err(parser.bad("a name without a value"));
                    }
                }
                break;
            }
        }
    }

    /// Returns the outermost value.
    pub fn root(&self) -> Id {
        Id(0)
    }

    /// Returns the value with this ID.
    pub fn node(&self, id: Id) -> &JsonNode {
        self.nodes.get(id.0 as usize).unwrap_or(&JsonNode::Null)
    }

    /// Returns the ID of the entry with this name.
    pub fn get(&self, object: Id, name: impl AsRef<[u8]>) -> Option<Id> {
        let name = name.as_ref();
        match self.node(object) {
            JsonNode::Object(entries) => {
                entries.iter().rev().find(|(key, _)| key.as_bytes() == name).map(|(_, id)| *id)
            }
            _ => None,
        }
    }

    /// Returns the entry with this name.
    pub fn field(&self, object: Id, name: &str) -> Option<&JsonNode> {
        self.get(object, name).map(|id| self.node(id))
    }

    /// Returns the items of an array.
    pub fn items(&self, array: Id) -> &[Id] {
        match self.node(array) {
            JsonNode::Array(items) => items,
            _ => &[],
        }
    }

    /// Returns the entries of an object.
    pub fn entries(&self, object: Id) -> &[(Text, Id)] {
        match self.node(object) {
            JsonNode::Object(entries) => entries,
            _ => &[],
        }
    }

    /// Displays a value like Python's `str()`, with nested strings in quotes.
    pub fn python(&self, id: Id) -> Python<'_> {
        Python { document: self, id }
    }
}

/// Recent small values, for deduplication. All leaves in a tree of a hundred thousand are similar.
#[derive(Default)]
struct Alike {
    recent: [Option<Id>; 4],
    next: usize,
}

/// The maximum number of entries or items of a container that is compared.
const MAX_COMPARED: usize = 4;

impl Alike {
    /// Removes a value that was just completed if an equal one exists, and lets its parent refer to
    /// that.
    fn share(&mut self, nodes: &mut Vec<JsonNode>, id: Id, parent: Option<&Id>) {
        let Some(parent) = parent else { return };
        // Only the last node can be removed. Its children, if any, are shared themselves.
        let Some((node, before)) = nodes.split_last().filter(|_| id.0 as usize + 1 == nodes.len())
        else {
            return;
        };
        let small = match node {
            JsonNode::Null | JsonNode::Bool(_) => true,
            JsonNode::Array(items) => items.len() <= MAX_COMPARED,
            JsonNode::Object(entries) => entries.len() <= MAX_COMPARED,
            _ => false,
        };
        if !small {
            return;
        }
        let same = |other: &Id| before.get(other.0 as usize) == Some(node);
        let Some(known) = self.recent.iter().flatten().copied().find(same) else {
            self.recent[self.next] = Some(id);
            self.next = (self.next + 1) % self.recent.len();
            return;
        };
        nodes.pop();
        let place = match nodes.get_mut(parent.0 as usize) {
            Some(JsonNode::Array(items)) => items.last_mut(),
            Some(JsonNode::Object(entries)) => entries.last_mut().map(|(_, id)| id),
            _ => None,
        };
        if let Some(place) = place {
            *place = known;
        }
    }
}

/// A value that is displayed like Python's `str()`.
#[derive(Debug)]
pub struct Python<'a> {
    document: &'a Document,
    id: Id,
}

impl fmt::Display for Python<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// What remains to be printed, the next last.
        enum Unprinted<'a> {
            Value(Id),
            Text(&'static str),
            Name(&'a Text),
        }
        let mut unprinted = Vec::with_capacity(16);
        unprinted.push(Unprinted::Value(self.id));
        while let Some(next) = unprinted.pop() {
            match next {
                Unprinted::Text(text) => f.write_str(text)?,
                Unprinted::Name(text) => quote(text, f)?,
                Unprinted::Value(id) => match self.document.node(id) {
                    JsonNode::Null => f.write_str("None")?,
                    JsonNode::Bool(true) => f.write_str("True")?,
                    JsonNode::Bool(false) => f.write_str("False")?,
                    JsonNode::Int(int) => write!(f, "{int}")?,
                    JsonNode::Float(float) => f.write_str(&float_repr(*float))?,
                    JsonNode::Str(text) => quote(text, f)?,
                    JsonNode::Array(items) => {
                        unprinted.push(Unprinted::Text("]"));
                        for (index, item) in items.iter().enumerate().rev() {
                            unprinted.push(Unprinted::Value(*item));
                            unprinted.push(Unprinted::Text(if index > 0 { ", " } else { "[" }));
                        }
                        if items.is_empty() {
                            unprinted.push(Unprinted::Text("["));
                        }
                    }
                    JsonNode::Object(entries) => {
                        unprinted.push(Unprinted::Text("}"));
                        for (index, (name, value)) in entries.iter().enumerate().rev() {
                            unprinted.push(Unprinted::Value(*value));
                            unprinted.push(Unprinted::Text(": "));
                            unprinted.push(Unprinted::Name(name));
                            unprinted.push(Unprinted::Text(if index > 0 { ", " } else { "{" }));
                        }
                        if entries.is_empty() {
                            unprinted.push(Unprinted::Text("{"));
                        }
                    }
                },
            }
        }
        Ok(())
    }
}

/// Writes Python's `repr` of a string, for the characters used in keys.
fn quote(text: &Text, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let text = text.to_lossy();
    let quote = if text.contains('\'') && !text.contains('"') { "\"" } else { "'" };
    f.write_str(quote)?;
    let mut rest = &*text;
    while let Some(at) = rest.find(['\\', '\n', '\r', '\t', '\'', '"']) {
        let (plain, special) = rest.split_at(at);
        let (special, after) = special.split_at(1);
        f.write_str(plain)?;
        match special {
            "\n" => f.write_str("\\n")?,
            "\r" => f.write_str("\\r")?,
            "\t" => f.write_str("\\t")?,
            "\\" => f.write_str("\\\\")?,
            other if other == quote => write!(f, "\\{other}")?,
            other => f.write_str(other)?,
        }
        rest = after;
    }
    f.write_str(rest)?;
    f.write_str(quote)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Document {
        Document::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn repeated_small_values_are_stored_once() {
        let leaf = r#"{"type": null, "context": null, "children_spec": []}"#;
        let text = format!("[{}]", [leaf; 1000].join(", "));
        let document = parse(&text);
        assert!(document.nodes.len() < 10, "{}", document.nodes.len());
        let leaves = document.items(document.root());
        assert_eq!(leaves.len(), 1000);
        let printed = "{'type': None, 'context': None, 'children_spec': []}";
        assert!(leaves.iter().all(|leaf| document.python(*leaf).to_string() == printed));
        // Values that only look similar must stay distinct, wherever they occur.
        let text = r#"[[], {}, [[]], [{}], {"a": []}, {"a": {}}, {"b": []}, [[], []], [null, true], [true, null],
            [null, false], [], {}, [[]], {"a": []}, [[[]]], [1], [1], "a", {"a": []}]"#;
        let printed = "[[], {}, [[]], [{}], {'a': []}, {'a': {}}, {'b': []}, [[], []], [None, True], [True, None], \
            [None, False], [], {}, [[]], {'a': []}, [[[]]], [1], [1], 'a', {'a': []}]";
        let document = parse(text);
        assert_eq!(document.python(document.root()).to_string(), printed);
    }

    #[test]
    fn reads_python_extensions_of_json() {
        let document = parse(
            r#"{"a": [NaN, Infinity, -Infinity, -0.0, 5e-324, 123456789012345678901234567890, null, true],
                "s": "\u00e9\ud83d\ude00\ud800x\u0000", "e": {}, "l": []}"#,
        );
        let root = document.root();
        let items = document.items(document.get(root, "a").unwrap());
        assert!(matches!(document.node(items[0]), JsonNode::Float(float) if float.is_nan()));
        assert_eq!(document.node(items[1]), &JsonNode::Float(f64::INFINITY));
        assert!(
            matches!(document.node(items[3]), JsonNode::Float(float) if float.is_sign_negative())
        );
        assert_eq!(document.node(items[4]), &JsonNode::Float(5e-324));
        assert_eq!(document.python(items[5]).to_string(), "123456789012345678901234567890");
        let text = document.field(root, "s").unwrap().text().unwrap();
        assert_eq!(text, &Text::from_code_points([0xe9, 0x1f600, 0xd800, 0x78, 0]).unwrap());
        assert_eq!(document.python(document.get(root, "e").unwrap()).to_string(), "{}");
    }

    #[test]
    fn prints_lists_as_python_does() {
        let document = parse(r#"["a", "it's", [1, null, true], {"k": 1.5}, []]"#);
        assert_eq!(
            document.python(document.root()).to_string(),
            r#"['a', "it's", [1, None, True], {'k': 1.5}, []]"#
        );
    }

    #[test]
    fn refuses_json_truncated_anywhere() {
        let whole = r#"{"a": [1, "x\u00e9", {"b": null}], "c": -1.5e3}"#;
        for cut in 0..whole.len() {
            assert!(Document::parse(&whole.as_bytes()[..cut]).is_err(), "{}", &whole[..cut]);
        }
        for bad in [
            "",
            "1 2",
            "[1,]",
            "{\"a\" 1}",
            "[1 2]",
            "{1: 2}",
            "-",
            "\"\\x\"",
            "nul",
            "[,1]",
            "{,}",
        ] {
            assert!(Document::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn parses_deep_nesting_without_recursion() {
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        let document = parse(&deep);
        assert_eq!(document.python(document.root()).to_string().len(), 400_000);
    }
}
