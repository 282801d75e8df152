//! Reads YAML. Loaders use PyYAML, whose YAML 1.1 differs from that of the parser in few places;
//! texts with these are refused.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};

use super::rules::Rules;

/// The maximum nesting. PyYAML itself stops below 500.
const MAX_DEPTH: usize = 500;
/// The maximum length in bytes of a text that aliases repeat.
const MAX_REPEATED: usize = 256;

/// The tags of YAML 1.1 that every loader resolves to plain data.
const TAGS: &str = "binary bool float int map merge null omap pairs seq set str timestamp value";

/// Judges the entries of a YAML text. Fails with the reason if it can't be read.
pub(super) fn read(text: &str, rules: &mut Rules<'_>) -> Result<(), String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // PyYAML ends lines at the first three, and refuses the others within a text.
    if text.contains(['\u{85}', '\u{2028}', '\u{2029}', '\u{feff}', '\0']) {
        return Err("It has characters that end a line for some parsers only.".to_owned());
    }
    let mut walk = Walk { rules, open: Vec::new(), anchored: HashMap::new() };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event()
        && !walk.rules.is_full()
    {
        let (event, span) = event.map_err(|error| {
            format!("Line {} is not YAML: {}.", error.marker().line(), error.info())
        })?;
        walk.event(event).map_err(|what| format!("Line {}: {what}.", span.start.line()))?;
    }
    Ok(())
}

struct Walk<'r, 'n> {
    rules: &'r mut Rules<'n>,
    /// The open containers: for a mapping, whether a key is next.
    open: Vec<Option<bool>>,
    /// The texts with anchors; `None` if it is a container or too long.
    anchored: HashMap<usize, Option<String>>,
}

impl Walk<'_, '_> {
    fn event(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            // The parser treats the end of the document as a part of it; PyYAML does not.
            Event::Scalar(_, ScalarStyle::Literal | ScalarStyle::Folded, ..)
                if self.open.is_empty() =>
            {
                Err("a document that is a block of text".to_owned())
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = match tag.as_deref() {
                    Some(tag) => self.tag(tag),
                    None => style != ScalarStyle::Plain,
                };
                if anchor > 0 {
                    let short = (text.len() <= MAX_REPEATED).then(|| text.to_string());
                    self.anchored.insert(anchor, short);
                }
                self.scalar(&text, is_text)
            }
            Event::Alias(anchor) => match self.anchored.get(&anchor).cloned().flatten() {
                Some(text) => self.scalar(&text, true),
                None if self.is_key() => Err("a key that is an alias".to_owned()),
                None => {
                    self.rules.alias();
                    self.value();
                    Ok(())
                }
            },
            Event::SequenceStart(anchor, tag) => self.begin(None, anchor, tag.as_deref()),
            Event::MappingStart(anchor, tag) => self.begin(Some(true), anchor, tag.as_deref()),
            Event::SequenceEnd | Event::MappingEnd => {
                self.open.pop();
                self.rules.end();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn is_key(&self) -> bool {
        self.open.last() == Some(&Some(true))
    }

    /// Notes that a key or a value is complete.
    fn value(&mut self) {
        if let Some(Some(is_key)) = self.open.last_mut() {
            *is_key = !*is_key;
        }
    }

    fn scalar(&mut self, text: &str, is_text: bool) -> Result<(), String> {
        match (self.is_key(), is_text) {
            (true, _) => self.rules.key(text),
            (false, true) => self.rules.text(text),
            (false, false) => self.rules.plain(text),
        }
        self.value();
        Ok(())
    }

    fn begin(
        &mut self,
        kind: Option<bool>,
        anchor: usize,
        tag: Option<&Tag>,
    ) -> Result<(), String> {
        if self.is_key() {
            return Err("a key that is not a text".to_owned());
        }
        if self.open.len() >= MAX_DEPTH {
            return Err("values that are nested too deeply".to_owned());
        }
        if let Some(tag) = tag {
            self.tag(tag);
        }
        if anchor > 0 {
            self.anchored.insert(anchor, None);
        }
        self.value();
        self.open.push(kind);
        self.rules.begin(kind.is_some());
        Ok(())
    }

    /// Judges a tag. Returns whether it makes a text.
    fn tag(&mut self, tag: &Tag) -> bool {
        let whole = format!("{}{}", tag.handle, tag.suffix);
        let known = whole.strip_prefix("tag:yaml.org,2002:");
        if !known.is_some_and(|known| statelens_checkpoint::has_word(TAGS, known)) && whole != "!" {
            self.rules.tag(&whole);
        }
        known.is_none_or(|known| known == "str")
    }
}
