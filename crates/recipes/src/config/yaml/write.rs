//! Writes YAML in the layout of PyYAML's `dump(value, indent=…)`: block style, keys sorted, lines
//! of texts folded after column 80, repeated objects as aliases.

use std::cmp::Ordering;
use std::collections::HashMap;

use statelens_checkpoint::order;

use super::resolve::{self, ScalarType};
use crate::value::{Map, MapKey, Value};

/// Formats one document; each level is indented by `step` spaces.
pub(in crate::config) fn write(value: &Value, step: usize) -> String {
    let mut writer = YamlWriter { anchors: anchors(value), step, ..YamlWriter::default() };
    writer.node(value, NodeRole::Root);
    if writer.open_ended && !matches!(value, Value::List(_) | Value::Map(_)) {
        writer.line_break();
        writer.text.push_str("...");
    }
    writer.line_break();
    writer.text
}

const WIDTH: usize = 80;
/// Keys of at least this length are written with a question mark.
const SIMPLE_KEY: usize = 128;

/// The role of a node in its parent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeRole {
    Root,
    Item,
    Value,
    SimpleKey,
    ComplexKey,
}

#[derive(Default)]
struct YamlWriter {
    text: String,
    column: usize,
    /// Whether the last character was a space or nothing was written on the line.
    whitespace: bool,
    /// Whether only indentation and dashes were written on the line.
    indention: bool,
    /// Whether the last scalar has no end mark of its own.
    open_ended: bool,
    indent: Option<usize>,
    /// Spaces per level.
    step: usize,
    /// Objects that occur more than once, with their number.
    anchors: HashMap<u32, Anchor>,
}

struct Anchor {
    number: usize,
    written: bool,
}

impl YamlWriter {
    /// Recurses; the depth of parsed and converted values is bounded.
    fn node(&mut self, value: &Value, role: NodeRole) {
        if let Some(anchor) = value.shared().and_then(|mark| self.anchors.get_mut(&mark)) {
            let name = format!("id{:03}", anchor.number);
            if anchor.written {
                return self.indicator(&format!("*{name}"), true, false, false);
            }
            anchor.written = true;
            self.indicator(&format!("&{name}"), true, false, false);
        }
        match value {
            Value::List(list) if list.is_empty() => self.flow("[", "]"),
            Value::Map(map) if map.is_empty() => self.flow("{", "}"),
            Value::List(list) => {
                let outer = self.indent;
                let indentless =
                    matches!(role, NodeRole::Value | NodeRole::SimpleKey | NodeRole::ComplexKey)
                        && !self.indention;
                if !indentless {
                    self.increase();
                }
                for item in list.iter() {
                    self.write_indent();
                    self.indicator("-", true, false, true);
                    self.node(item, NodeRole::Item);
                }
                self.indent = outer;
            }
            Value::Map(map) => {
                let outer = self.indent;
                self.increase();
                for (key, value) in sorted(map) {
                    self.write_indent();
                    self.entry(key, value);
                }
                self.indent = outer;
            }
            _ => {
                let outer = self.indent;
                self.indent = Some(self.indent.map_or(self.step, |indent| indent + self.step));
                self.scalar(value, role != NodeRole::SimpleKey);
                self.indent = outer;
            }
        }
    }

    fn entry(&mut self, key: &MapKey, value: &Value) {
        let key = match key {
            MapKey::Text(text) => Value::Text(text.clone()),
            MapKey::Other(value) => (**value).clone(),
        };
        if is_simple(&key) {
            self.node(&key, NodeRole::SimpleKey);
            self.indicator(":", false, false, false);
        } else {
            self.indicator("?", true, false, true);
            self.node(&key, NodeRole::ComplexKey);
            self.write_indent();
            self.indicator(":", true, false, true);
        }
        self.node(value, NodeRole::Value);
    }

    fn increase(&mut self) {
        self.indent = Some(self.indent.map_or(0, |indent| indent + self.step));
    }

    fn flow(&mut self, open: &str, close: &str) {
        self.indicator(open, true, true, false);
        self.indicator(close, false, false, false);
    }

    fn scalar(&mut self, value: &Value, split: bool) {
        let text = match value {
            Value::Text(text) => return self.string(text, split),
            Value::Null => "null".to_owned(),
            Value::Bool(truth) => truth.to_string(),
            Value::Int(number) => number.to_string(),
            Value::BigInt(digits) | Value::Date(digits) => digits.clone(),
            Value::Float(number) => float_text(*number),
            Value::List(_) | Value::Map(_) => return,
        };
        self.plain(&text, split);
    }

    fn string(&mut self, text: &str, split: bool) {
        let shape = ScalarAnalysis::of(text);
        let plain = shape.plain
            && (split || !shape.multiline)
            && resolve::scalar_type(text) == ScalarType::Text;
        if plain {
            self.plain(text, split);
        } else if shape.single && (split || !shape.multiline) {
            self.single_quoted(text, split);
        } else {
            self.double_quoted(text, split);
        }
    }

    fn push(&mut self, text: &str) {
        self.column += text.chars().count();
        self.text.push_str(text);
    }

    fn indicator(&mut self, text: &str, spaced: bool, whitespace: bool, indention: bool) {
        if spaced && !self.whitespace && self.column > 0 {
            self.push(" ");
        }
        self.push(text);
        self.whitespace = whitespace;
        self.indention = self.indention && indention;
        self.open_ended = false;
    }

    fn line_break(&mut self) {
        self.text.push('\n');
        self.column = 0;
        self.whitespace = true;
        self.indention = true;
    }

    fn write_indent(&mut self) {
        let indent = self.indent.unwrap_or(0);
        let begun = !self.text.is_empty();
        let same_line =
            self.indention && (self.column < indent || (self.column == indent && self.whitespace));
        if begun && !same_line {
            self.line_break();
        }
        if !begun {
            self.whitespace = true;
            self.indention = true;
        }
        if self.column < indent {
            self.whitespace = true;
            self.text.extend(std::iter::repeat_n(' ', indent - self.column));
            self.column = indent;
        }
    }

    fn plain(&mut self, text: &str, split: bool) {
        self.open_ended = true;
        if text.is_empty() {
            return;
        }
        if !self.whitespace && self.column > 0 {
            self.push(" ");
        }
        self.whitespace = false;
        self.indention = false;
        self.folded(text, split, |writer, piece| writer.push(piece));
    }

    /// Writes words and runs of spaces. A single space after the maximum width becomes a line
    /// break, but not at the ends of the text, where quotes keep spaces.
    fn folded(&mut self, text: &str, split: bool, put: impl Fn(&mut Self, &str)) {
        let mut at = 0;
        for piece in runs(text) {
            let space = piece.starts_with(' ');
            let inside = at > 0 && at + piece.len() < text.len();
            if space && piece.len() == 1 && self.column > WIDTH && split && inside {
                self.write_indent();
                self.whitespace = false;
                self.indention = false;
            } else {
                put(self, piece);
            }
            at += piece.len();
        }
    }

    fn single_quoted(&mut self, text: &str, split: bool) {
        self.indicator("'", true, false, false);
        let mut at = 0;
        // Line breaks are doubled, because a single one would be read as a space.
        for piece in text.split_inclusive(is_break).flat_map(cut_break) {
            if piece.starts_with(is_break) {
                let first = at == 0 || !text[..at].ends_with(is_break);
                if first && piece == "\n" {
                    self.line_break();
                }
                self.text.push_str(piece);
                self.column = 0;
                self.whitespace = true;
                self.indention = true;
                if !text[at + piece.len()..].starts_with(is_break) {
                    self.write_indent();
                }
            } else {
                self.quoted_words(text, at, piece, split);
            }
            at += piece.len();
        }
        self.indicator("'", false, false, false);
    }

    fn quoted_words(&mut self, text: &str, start: usize, line: &str, split: bool) {
        let mut at = start;
        for piece in runs(line) {
            let inside = at > 0 && at + piece.len() < text.len();
            if piece == " " && self.column > WIDTH && split && inside {
                self.write_indent();
            } else {
                self.push(&piece.replace('\'', "''"));
            }
            at += piece.len();
        }
    }

    fn double_quoted(&mut self, text: &str, split: bool) {
        self.indicator("\"", true, false, false);
        let chars: Vec<char> = text.chars().collect();
        // PyYAML's own loop: `start` is the first character that is not written yet.
        let (mut start, mut end) = (0, 0);
        while end <= chars.len() {
            let c = chars.get(end).copied();
            if c.is_none_or(needs_escape) {
                if start < end {
                    let run: String = chars[start..end].iter().collect();
                    self.push(&run);
                    start = end;
                }
                if let Some(c) = c {
                    self.push(&escape(c));
                    start = end + 1;
                }
            }
            let inside = end > 0 && end + 1 < chars.len();
            if inside
                && (c == Some(' ') || start >= end)
                && (self.column + end).saturating_sub(start) > WIDTH
                && split
            {
                let run: String = chars.get(start..end).unwrap_or_default().iter().collect();
                self.push(&format!("{run}\\"));
                start = start.max(end);
                self.write_indent();
                self.whitespace = false;
                self.indention = false;
                if chars.get(start) == Some(&' ') {
                    self.push("\\");
                }
            }
            end += 1;
        }
        self.indicator("\"", false, false, false);
    }
}

/// Returns whether a key fits before its colon. PyYAML counts the tag, which it does not write.
fn is_simple(key: &Value) -> bool {
    let (length, fits) = match key {
        Value::Text(text) => (
            "!!str".len() + text.chars().count(),
            !text.is_empty() && !ScalarAnalysis::of(text).multiline,
        ),
        Value::BigInt(digits) => ("!!int".len() + digits.len(), true),
        _ => (0, true),
    };
    length < SIMPLE_KEY && fits
}

/// Returns the entries sorted as Python sorts keys. Keys that it can't compare keep their order.
fn sorted(map: &Map) -> Vec<(&MapKey, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    let texts = entries.iter().all(|(key, _)| key.as_str().is_some());
    let number = |key: &MapKey| match key {
        MapKey::Other(value) => value.as_f64(),
        MapKey::Text(_) => None,
    };
    if texts {
        order::by(&mut entries, |(left, _), (right, _)| left.as_str().cmp(&right.as_str()));
    } else if entries.iter().all(|(key, _)| number(key).is_some()) {
        order::by(&mut entries, |(left, _), (right, _)| {
            number(left).partial_cmp(&number(right)).unwrap_or(Ordering::Equal)
        });
    }
    entries
}

/// Returns the objects to write as anchor and alias, numbered in the order in which PyYAML meets
/// them a second time.
fn anchors(value: &Value) -> HashMap<u32, Anchor> {
    let mut seen: HashMap<u32, (&Value, bool)> = HashMap::new();
    let mut numbers = HashMap::new();
    let mut todo = vec![value];
    while let Some(value) = todo.pop() {
        if let Some(mark) = value.shared() {
            match seen.get_mut(&mark) {
                None => {
                    seen.insert(mark, (value, true));
                }
                Some((first, same)) => {
                    // Occurrences that were changed separately are written in full.
                    *same = *same && *first == value;
                    let number = numbers.len() + 1;
                    numbers.entry(mark).or_insert(Anchor { number, written: false });
                    if *same {
                        continue;
                    }
                }
            }
        }
        match value {
            Value::List(list) => todo.extend(list.iter().rev()),
            Value::Map(map) => todo.extend(sorted(map).into_iter().rev().map(|(_, value)| value)),
            _ => {}
        }
    }
    numbers.retain(|mark, _| seen.get(mark).is_some_and(|(_, same)| *same));
    numbers
}

/// The styles that the characters of a text allow, according to PyYAML's analysis.
struct ScalarAnalysis {
    plain: bool,
    single: bool,
    multiline: bool,
}

impl ScalarAnalysis {
    fn of(text: &str) -> Self {
        if text.is_empty() {
            return Self { plain: false, single: true, multiline: false };
        }
        let chars: Vec<char> = text.chars().collect();
        let blank = |index: usize| chars.get(index).is_none_or(|c| is_blank(*c));
        let mut plain = !text.starts_with("---") && !text.starts_with("...");
        let mut single = true;
        let mut multiline = false;
        for (index, &c) in chars.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|index| chars.get(index)).copied();
            let indicator = match c {
                '#' => before.is_none_or(is_blank),
                ':' => blank(index + 1),
                '?' | '-' if index == 0 => blank(1),
                ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
                | '@' | '`' => index == 0,
                _ => false,
            };
            let ends = index == 0 || index + 1 == chars.len();
            let broken = is_break(c);
            multiline |= broken;
            plain &= !(indicator || broken || (ends && c == ' '));
            if c != '\n' && !(' '..='~').contains(&c) {
                (plain, single) = (false, false);
            }
            let after_space = broken && before == Some(' ');
            let after_break = c == ' ' && before.is_some_and(is_break);
            single &= !after_space && !after_break;
        }
        Self { plain: plain && single, single, multiline }
    }
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_blank(c: char) -> bool {
    is_break(c) || matches!(c, '\0' | ' ' | '\t' | '\r')
}

fn needs_escape(c: char) -> bool {
    c == '"' || c == '\\' || !(' '..='~').contains(&c)
}

fn escape(c: char) -> String {
    let short = match c {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' | '\\' => c,
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ => {
            let code = u32::from(c);
            return match code {
                0..=0xff => format!("\\x{code:02X}"),
                0x100..=0xffff => format!("\\u{code:04X}"),
                _ => format!("\\U{code:08X}"),
            };
        }
    };
    format!("\\{short}")
}

/// Splits a text into words and runs of spaces.
fn runs(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = rest.find(|c: char| (c == ' ') != (first == ' ')).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        rest = after;
        Some(run)
    })
}

/// Splits a line into its content and its line break.
fn cut_break(line: &str) -> impl Iterator<Item = &str> {
    let content = line.trim_end_matches(is_break);
    let (content, end) = line.split_at(content.len());
    [content, end].into_iter().filter(|piece| !piece.is_empty())
}

fn float_text(number: f64) -> String {
    let text = statelens_checkpoint::float_repr(number);
    match text.as_str() {
        "nan" => ".nan".to_owned(),
        "inf" => ".inf".to_owned(),
        "-inf" => "-.inf".to_owned(),
        // YAML reads it as a number only with a decimal point.
        _ if !text.contains('.') => text.replacen('e', ".0e", 1),
        _ => text,
    }
}
