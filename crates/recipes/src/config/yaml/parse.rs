//! Builds values from the events of a YAML parser.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use statelens_checkpoint::{Error, Result};

use super::resolve::{self, ScalarType};
use crate::config::MAX_DEPTH;
use crate::value::MAX_NODES;
use crate::value::{List, Map, MapKey, Value};

/// Parses a text with a single document.
pub(in crate::config) fn parse(text: &str) -> Result<Value> {
    let mut builder = YamlBuilder::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| {
            let marker = error.marker();
            damaged(marker.line(), marker.col(), error.info())
        })?;
        builder.event(event).map_err(|error| {
            error.context(format!("line {}, column {}", span.start.line(), span.start.col() + 1))
        })?;
    }
    Ok(builder.document.unwrap_or(Value::Null))
}

#[derive(Default)]
struct YamlBuilder {
    open: Vec<OpenContainer>,
    anchored: HashMap<usize, Value>,
    document: Option<Value>,
    nodes: usize,
}

/// A list or dict that has begun, with its anchor (0: none).
struct OpenContainer {
    anchor: usize,
    content: NodeContent,
}

enum NodeContent {
    List(List),
    Map(MapEntries),
}

#[derive(Default)]
struct MapEntries {
    /// The dicts that `<<` merges; the dict's own keys override them.
    merged: Vec<Map>,
    own: Vec<(MapKey, Value)>,
    key: Option<PendingKey>,
}

enum PendingKey {
    Key(MapKey),
    Merge,
}

impl YamlBuilder {
    fn event(&mut self, event: Event<'_>) -> Result<()> {
        match event {
            Event::DocumentStart(_) if self.document.is_some() => {
                Err(Error::damaged("a second document begins").expected("one config in the file"))
            }
            Event::Scalar(text, style, anchor, tag) => {
                let merge = style == ScalarStyle::Plain
                    && tag.is_none()
                    && resolve::scalar_type(&text) == ScalarType::Merge
                    && self.expects_key();
                if merge {
                    return self.merge();
                }
                let value = scalar(&text, style, tag.as_deref())?;
                self.done(value, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                collection_tag(tag.as_deref(), "seq")?;
                self.begin(anchor, NodeContent::List(List::default()))
            }
            Event::MappingStart(anchor, tag) => {
                collection_tag(tag.as_deref(), "map")?;
                self.begin(anchor, NodeContent::Map(MapEntries::default()))
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => {
                let value = self.anchored.get(&anchor).ok_or_else(|| {
                    Error::damaged("an alias is inside the value that it names")
                        .expected("a config without cycles")
                })?;
                let (value, nodes) = (value.clone(), value.nodes());
                self.count(nodes)?;
                self.done(value, 0)
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    fn count(&mut self, nodes: usize) -> Result<()> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            return Err(Error::limit("the config expands to more than 500,000 values")
                .advice("Its aliases (*name) expand to more than any config needs."));
        }
        Ok(())
    }

    fn expects_key(&self) -> bool {
        matches!(
            self.open.last(),
            Some(OpenContainer { content: NodeContent::Map(MapEntries { key: None, .. }), .. })
        )
    }

    fn merge(&mut self) -> Result<()> {
        if let Some(OpenContainer { content: NodeContent::Map(entries), .. }) = self.open.last_mut()
        {
            entries.key = Some(PendingKey::Merge);
        }
        Ok(())
    }

    fn begin(&mut self, anchor: usize, content: NodeContent) -> Result<()> {
        if self.open.len() >= MAX_DEPTH {
            return Err(Error::limit("the config is nested deeper than 100 levels"));
        }
        self.open.push(OpenContainer { anchor, content });
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let Some(OpenContainer { anchor, content }) = self.open.pop() else {
            return Err(Error::damaged("something ends that did not begin"));
        };
        let value = match content {
            NodeContent::List(list) => Value::List(list),
            NodeContent::Map(entries) => Value::Map(entries.map()),
        };
        self.done(value, anchor)
    }

    /// Adds a complete value to the innermost open list or dict.
    fn done(&mut self, mut value: Value, anchor: usize) -> Result<()> {
        self.count(1)?;
        if anchor > 0 {
            value.share(u32::try_from(anchor).unwrap_or(u32::MAX));
            self.count(value.nodes())?;
            self.anchored.insert(anchor, value.clone());
        }
        match self.open.last_mut() {
            None => self.document = Some(value),
            Some(OpenContainer { content: NodeContent::List(list), .. }) => list.push(value),
            Some(OpenContainer { content: NodeContent::Map(entries), .. }) => {
                match entries.key.take() {
                    Some(PendingKey::Key(key)) => entries.own.push((key, value)),
                    Some(PendingKey::Merge) => entries.merge(value)?,
                    None => {
                        let key = MapKey::of(value).ok_or_else(|| {
                            Error::unsupported("a list or a section can't be a key")
                                .expected("a text")
                        })?;
                        entries.key = Some(PendingKey::Key(key));
                    }
                }
            }
        }
        Ok(())
    }
}

impl MapEntries {
    fn merge(&mut self, value: Value) -> Result<()> {
        let bad = || Error::damaged("<< does not name a section, nor a list of sections");
        match value {
            Value::Map(map) => self.merged.push(map),
            Value::List(list) => {
                // The first of a list wins, so it is added last.
                for item in list.iter().rev() {
                    self.merged.push(item.as_map().ok_or_else(bad)?.clone());
                }
            }
            _ => return Err(bad()),
        }
        Ok(())
    }

    fn map(self) -> Map {
        let merged = self.merged.into_iter().flatten();
        let mut map = Map::new();
        for (key, value) in merged.chain(self.own) {
            map.set(key, value);
        }
        map
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value> {
    let plain = style == ScalarStyle::Plain;
    let Some(tag) = tag else {
        let scalar_type = if plain { resolve::scalar_type(text) } else { ScalarType::Text };
        return resolve::value(text, scalar_type);
    };
    let scalar_type = match core(tag) {
        Some("str") => ScalarType::Text,
        Some("int") => ScalarType::Int,
        Some("float") => ScalarType::Float,
        Some("bool") => ScalarType::Bool,
        Some("null") => ScalarType::Null,
        _ if tag.handle.is_empty() && tag.suffix == "!" => ScalarType::Text,
        _ => return Err(foreign(tag)),
    };
    resolve::value(text, scalar_type)
}

fn collection_tag(tag: Option<&Tag>, own: &str) -> Result<()> {
    match tag {
        Some(tag) if core(tag) != Some(own) => Err(foreign(tag)),
        _ => Ok(()),
    }
}

fn core(tag: &Tag) -> Option<&str> {
    if tag.is_yaml_core_schema() { Some(&tag.suffix) } else { None }
}

fn foreign(tag: &Tag) -> Error {
    let name = Value::from(format!("{}{}", tag.handle, tag.suffix)).quoted();
    Error::refused(format!("the tag {name} requests something that is not plain data"))
        .advice("Remove the tag; a config never runs code.")
}

fn damaged(line: usize, column: usize, what: &str) -> Error {
    Error::damaged(format!("line {line}, column {} is not YAML: {what}", column + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_anchors_merges_and_repeated_keys() {
        let text =
            "base: &b {x: 1, y: 2}\na:\n  <<: *b\n  y: 3\nb: [*b, *b]\na2: 1\na2: 2\n'<<': text\n";
        let value = parse(text).unwrap();
        let map = value.as_map().unwrap();
        assert_eq!(map.keys().collect::<Vec<_>>(), ["base", "a", "b", "a2", "<<"]);
        assert_eq!(map.get("a").unwrap().to_json(), "{\n    \"x\": 1,\n    \"y\": 3\n}");
        assert_eq!(map.get("a2"), Some(&Value::Int(2)));
        assert_eq!(map.get("b").unwrap().as_list().unwrap()[1], *map.get("base").unwrap());
    }

    #[test]
    fn reads_tags_of_plain_data() {
        let value = parse("[!!str 5, !!int '5', !!float 1e-5, ! 7, !!map {}, !!null '']").unwrap();
        let expected = [
            Value::from("5"),
            Value::Int(5),
            Value::Float(1e-5),
            Value::from("7"),
            Map::new().into(),
            Value::Null,
        ];
        assert_eq!(value.as_list().unwrap().to_vec(), expected);
    }

    #[test]
    fn refuses_invalid_configs_with_the_line() {
        for (text, said) in [
            ("a: 1\nb: [1", "line 3, column 1 is not YAML"),
            ("a: 1\n---\nb: 2\n", "second document"),
            ("a: !!python/object/apply:os.system [ls]", "plain data"),
            ("? [1]\n: 2", "can't be a key"),
            ("a: *b", "line 1"),
            ("&a [*a]", "inside the value that it names"),
            ("a: 1\n<<: 3", "line 2, column 5: <<"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }

    #[test]
    fn hostile_yaml_is_refused_quickly() {
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..20 {
            let above = level - 1;
            let items = vec![format!("*a{above}"); 10].join(", ");
            laughs.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        assert!(parse(&laughs).unwrap_err().to_string().contains("500,000"));
        let long = format!("a: &a {}\nb: [{}]", "x".repeat(1 << 20), vec!["*a"; 1000].join(","));
        assert!(parse(&long).unwrap_err().to_string().contains("500,000"));
        for deep in ["[".repeat(100_000), "{a: ".repeat(100_000), "- ".repeat(100_000)] {
            assert!(parse(&deep).is_err());
        }
        let keys: String = (0..100_000).map(|key| format!("k{key}: 1\n")).collect();
        assert_eq!(parse(&keys).unwrap().as_map().unwrap().len(), 100_000);
    }
}
