//! A pull parser for JSON.

use memchr::memchr2;

use crate::{Error, Int, Interner, Result, Text};

use super::JsonNode;

/// The maximum number of digits of an integer; Python refuses more than 4,300.
const MAX_DIGITS: usize = 5_000;

/// Parses a JSON text from front to back without building a document.
pub struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    /// Whether numbers and strings follow RFC 8259, and strings are valid Unicode.
    strict: bool,
    /// Whether to accept `NaN`, `Infinity` and numbers beyond the range of floats.
    infinite: bool,
    /// Whether errors name the line and the column.
    lines: bool,
    /// The remaining nesting depth for containers opened by the pull methods.
    room: usize,
    /// A buffer for strings with escapes.
    unescaped: Vec<u8>,
    /// Interns repeated strings.
    pub(super) texts: Option<Interner>,
}

impl<'a> Parser<'a> {
    /// Returns a parser for the dialect of Python's `json` module.
    pub fn lenient(text: &'a [u8]) -> Self {
        Self {
            text,
            at: 0,
            strict: false,
            infinite: true,
            lines: false,
            room: usize::MAX,
            unescaped: Vec::new(),
            texts: None,
        }
    }

    /// Returns a parser for exactly RFC 8259, with a maximum nesting of `depth`.
    pub fn strict(text: &'a [u8], depth: usize) -> Self {
        Self { strict: true, infinite: false, room: depth, ..Self::lenient(text) }
    }

    /// Returns a parser for the dialect of Python's `json` module, without lone surrogates.
    pub(super) fn config(text: &'a [u8], depth: usize) -> Self {
        Self { strict: true, lines: true, room: depth, ..Self::lenient(text) }
    }
}

impl<'a> Parser<'a> {
    /// Reads a string without checking it, and returns it as it is written, with its quotes.
    pub fn raw_text(&mut self) -> Result<&'a [u8]> {
        self.space();
        let start = self.at;
        if !self.take(b'"') {
            return Err(self.bad(&format!("{} where a string belongs", self.next_kind())));
        }
        loop {
            let rest = &self.text[self.at..];
            let run = memchr2(b'"', b'\\', rest);
            let run = run.ok_or_else(|| self.bad("a string that does not end"))?;
            let is_end = rest[run] == b'"';
            // The byte after a backslash belongs to it.
            self.at = (self.at + run + if is_end { 1 } else { 2 }).min(self.text.len());
            if is_end {
                return Ok(&self.text[start..self.at]);
            }
        }
    }
}

impl Parser<'_> {
    /// Opens an object; [`Parser::entry`] iterates over it.
    pub fn object(&mut self) -> Result<()> {
        self.open(b'{', "an object")
    }

    /// Opens an array; [`Parser::item`] iterates over it.
    pub fn array(&mut self) -> Result<()> {
        self.open(b'[', "an array")
    }

    /// Returns the name of the next entry of the open object, or `None` at its end. The caller must
    /// then read the value. `first` must be true before the first entry.
    pub fn entry(&mut self, first: &mut bool) -> Result<Option<Text>> {
        if !self.has_more(b'}', first)? {
            return Ok(None);
        }
        self.space();
        if !self.take(b'"') {
            return Err(self.bad("an entry without a name"));
        }
        let name = self.string()?;
        self.space();
        match self.take(b':') {
            true => Ok(Some(name)),
            false => Err(self.bad("a name without a value")),
        }
    }

    /// Skips the name of the next entry of the open object, and returns whether there is one. Like
    /// [`Parser::entry`], but does not check the text of the name.
    pub fn skip_name(&mut self, first: &mut bool) -> Result<bool> {
        if !self.has_more(b'}', first)? {
            return Ok(false);
        }
        self.raw_text()?;
        self.space();
        match self.take(b':') {
            true => Ok(true),
            false => Err(self.bad("a name without a value")),
        }
    }

    /// Returns whether the open array has another item, which the caller must then read. `first`
    /// must be true before the first item.
    pub fn item(&mut self, first: &mut bool) -> Result<bool> {
        self.has_more(b']', first)
    }

    /// Reads a string.
    pub fn text(&mut self) -> Result<Text> {
        self.space();
        match self.take(b'"') {
            true => self.string(),
            false => Err(self.bad(&format!("{} where a string belongs", self.next_kind()))),
        }
    }

    /// Reads a non-negative integer that fits 64 bits.
    pub fn natural(&mut self) -> Result<u64> {
        self.space();
        if let Some(number) = self.short_natural() {
            return Ok(number);
        }
        let kind = self.next_kind();
        let start = self.at;
        let found = match self.text.get(self.at) {
            Some(b'-' | b'0'..=b'9') => match self.number()? {
                // In strict mode, `-0` is a float.
                JsonNode::Int(int) if self.text.get(start) != Some(&b'-') => int.to_u64(),
                _ => None,
            },
            _ => None,
        };
        found.ok_or_else(|| {
            self.at = start;
            self.bad(&format!("{kind} where a number from 0 to 2^64 - 1 belongs"))
        })
    }

    /// Reads an integer of up to 19 digits, as most are, without building a node; `None` for
    /// anything else, which is not consumed.
    fn short_natural(&mut self) -> Option<u64> {
        let rest = self.text.get(self.at..)?;
        let digits = rest.iter().take(20).take_while(|byte| byte.is_ascii_digit()).count();
        let is_whole = !matches!(rest.get(digits), Some(b'.' | b'e' | b'E' | b'+' | b'-'));
        let is_short = matches!(digits, 1..=19) && (digits == 1 || rest[0] != b'0');
        if !is_whole || !is_short {
            return None;
        }
        self.at += digits;
        Some(rest[..digits].iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
    }

    /// Consumes a `null` if it is next, and returns whether it was.
    pub fn null(&mut self) -> bool {
        self.space();
        self.word("null")
    }

    /// Returns whether the next value is a string.
    pub fn at_text(&mut self) -> bool {
        self.space();
        self.text.get(self.at) == Some(&b'"')
    }

    /// Returns whether the next value is an object.
    pub fn at_object(&mut self) -> bool {
        self.space();
        self.text.get(self.at) == Some(&b'{')
    }

    /// Returns whether the next value is an array.
    pub fn at_array(&mut self) -> bool {
        self.space();
        self.text.get(self.at) == Some(&b'[')
    }

    /// Skips a value of any kind.
    pub fn skip(&mut self) -> Result<()> {
        // Containers opened here, innermost last: whether it is an object, and whether it is still
        // empty.
        let mut open: Vec<(bool, bool)> = Vec::new();
        loop {
            self.space();
            match self.text.get(self.at) {
                Some(b'{') => {
                    self.object()?;
                    open.push((true, true));
                }
                Some(b'[') => {
                    self.array()?;
                    open.push((false, true));
                }
                _ => drop(self.value()?),
            }
            loop {
                let Some((object, first)) = open.last_mut() else { return Ok(()) };
                let more = match object {
                    true => self.entry(first)?.is_some(),
                    false => self.item(first)?,
                };
                if more {
                    break;
                }
                open.pop();
            }
        }
    }

    /// Skips a value of any kind, and returns its text without whitespace between tokens.
    pub fn compact(&mut self) -> Result<String> {
        self.space();
        let start = self.at;
        self.skip()?;
        let (mut quoted, mut escaped) = (false, false);
        let mut kept = Vec::new();
        for byte in self.text.get(start..self.at).unwrap_or_default() {
            if quoted || !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                kept.push(*byte);
            }
            quoted ^= *byte == b'"' && !escaped;
            escaped = quoted && *byte == b'\\' && !escaped;
        }
        Ok(String::from_utf8_lossy(&kept).into_owned())
    }

    /// Fails if anything follows the document.
    pub fn end(&mut self) -> Result<()> {
        self.space();
        match self.at < self.text.len() {
            true => Err(self.bad("something after the end")),
            false => Ok(()),
        }
    }

    fn open(&mut self, bracket: u8, what: &str) -> Result<()> {
        self.space();
        if !self.take(bracket) {
            return Err(self.bad(&format!("{} where {what} belongs", self.next_kind())));
        }
        self.enter(0)?;
        self.room -= 1;
        Ok(())
    }

    /// Fails if a container inside `open` others is nested too deep.
    pub(super) fn enter(&self, open: usize) -> Result<()> {
        match open < self.room {
            true => Ok(()),
            false => Err(self.bad("values that are nested too deep")),
        }
    }

    /// Returns whether the open container has more items. Consumes its end if not.
    fn has_more(&mut self, end: u8, first: &mut bool) -> Result<bool> {
        self.space();
        if self.take(end) {
            self.room = self.room.saturating_add(1);
            return Ok(false);
        }
        match std::mem::replace(first, false) || self.take(b',') {
            true => Ok(true),
            false if self.at >= self.text.len() => Err(self.bad("its end missing")),
            false => Err(self.bad("no comma between two values")),
        }
    }

    /// Describes the next token, for messages.
    fn next_kind(&self) -> &'static str {
        match self.text.get(self.at) {
            None => "its end",
            Some(b'"') => "a string",
            Some(b'{') => "an object",
            Some(b'[') => "an array",
            Some(b't' | b'f') => "a bool",
            Some(b'n') => "null",
            Some(b'-' | b'0'..=b'9') => "a number",
            Some(_) => "something that is not a value",
        }
    }

    pub(super) fn bad(&self, what: &str) -> Error {
        let place = match self.lines {
            true => {
                let before = String::from_utf8_lossy(&self.text[..self.at.min(self.text.len())]);
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
                format!("line {line}, column {column}")
            }
            false => format!("character {} of it", self.at),
        };
        Error::damaged(format!("JSON with {what} (at {place})"))
    }

    pub(super) fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    pub(super) fn take(&mut self, byte: u8) -> bool {
        let there = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(there);
        there
    }

    fn word(&mut self, word: &str) -> bool {
        let there = self.text[self.at..].starts_with(word.as_bytes());
        if there {
            self.at += word.len();
        }
        there
    }

    /// Reads a value. Returns whether it is a container, which is then open.
    pub(super) fn value(&mut self) -> Result<(JsonNode, bool)> {
        self.space();
        let node = match self.text.get(self.at) {
            Some(b'"') => {
                self.at += 1;
                JsonNode::Str(self.string()?)
            }
            Some(b'[') => {
                self.at += 1;
                return Ok((JsonNode::Array(Vec::new()), true));
            }
            Some(b'{') => {
                self.at += 1;
                return Ok((JsonNode::Object(Vec::new()), true));
            }
            Some(b'0'..=b'9') => self.number()?,
            _ if self.word("null") => JsonNode::Null,
            _ if self.word("true") => JsonNode::Bool(true),
            _ if self.word("false") => JsonNode::Bool(false),
            _ if self.infinite && self.word("NaN") => JsonNode::Float(f64::NAN),
            _ if self.infinite && self.word("Infinity") => JsonNode::Float(f64::INFINITY),
            _ if self.infinite && self.word("-Infinity") => JsonNode::Float(f64::NEG_INFINITY),
            Some(b'-') => self.number()?,
            Some(_) => return Err(self.bad("something that is not a value")),
            None => return Err(self.bad("its end missing")),
        };
        Ok((node, false))
    }

    fn number(&mut self) -> Result<JsonNode> {
        let start = self.at;
        while let Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9') = self.text.get(self.at) {
            self.at += 1;
        }
        let bytes = &self.text[start..self.at];
        // Most numbers are whole and fit 63 bits.
        if let [b'0'] | [b'1'..=b'9', ..] = bytes
            && bytes.len() < 19
            && bytes.iter().all(u8::is_ascii_digit)
        {
            let int = bytes.iter().fold(0, |int, digit| int * 10 + i64::from(digit - b'0'));
            return Ok(JsonNode::Int(int.into()));
        }
        let number = str::from_utf8(bytes).map_err(|_| self.bad("an invalid number"))?;
        if self.strict && !is_rfc_number(number) {
            self.at = start;
            return Err(self.bad("an invalid number"));
        }
        let node = if number.contains(['.', 'e', 'E']) {
            let float = number.parse().ok();
            float.filter(|float: &f64| self.infinite || float.is_finite()).map(JsonNode::Float)
        } else if number.len() <= MAX_DIGITS {
            Int::parse(number).map(JsonNode::Int)
        } else {
            return Err(Error::limit(format!("an integer of {} digits", number.len())));
        };
        node.ok_or_else(|| self.bad("an invalid number"))
    }

    /// Reads the rest of a string, including the closing quote.
    pub(super) fn string(&mut self) -> Result<Text> {
        self.unescaped.clear();
        loop {
            let rest = &self.text[self.at..];
            let end = memchr2(b'"', b'\\', rest);
            let run = end.unwrap_or(rest.len());
            if self.strict && has_control(&rest[..run]) {
                self.at += rest.iter().position(|byte| *byte < b' ').unwrap_or(run);
                return Err(self.bad("a control character in a string"));
            }
            if end.is_none() {
                return Err(self.bad("a string that does not end"));
            }
            self.at += run + 1;
            if rest[run] == b'"' && self.unescaped.is_empty() {
                let text = match &mut self.texts {
                    Some(texts) => texts.text(&rest[..run]),
                    None => Text::from_surrogatepass(&rest[..run]),
                };
                return text.map_err(|_| self.bad("a string that is not UTF-8"));
            }
            self.unescaped.extend_from_slice(&rest[..run]);
            if rest[run] == b'"' {
                return Text::from_surrogatepass(&self.unescaped)
                    .map_err(|_| self.bad("a string that is not UTF-8"));
            }
            let escape = self.text.get(self.at).copied();
            self.at += 1;
            self.unescaped.push(match escape {
                Some(b'b') => 8,
                Some(b'f') => 12,
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(byte @ (b'"' | b'\\' | b'/')) => byte,
                Some(b'u') => {
                    let mut point = self.four()?;
                    // A surrogate pair is one character; any other surrogate remains alone.
                    if (0xd800..0xdc00).contains(&point) && self.text[self.at..].starts_with(b"\\u")
                    {
                        let back = self.at;
                        self.at += 2;
                        let low = self.four()?;
                        match low {
                            0xdc00..0xe000 => {
                                point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00)
                            }
                            _ => self.at = back,
                        }
                    }
                    if self.strict && (0xd800..0xe000).contains(&point) {
                        return Err(self.bad("half a character in a string"));
                    }
                    let text =
                        Text::from_code_points([point]).map_err(|_| self.bad("a bad escape"))?;
                    self.unescaped.extend_from_slice(text.as_bytes());
                    continue;
                }
                _ => return Err(self.bad("a bad escape")),
            });
        }
    }

    fn four(&mut self) -> Result<u32> {
        let digits = self.text.get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| str::from_utf8(digits).ok());
        let point = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        self.at += 4;
        point.ok_or_else(|| self.bad("a bad escape"))
    }
}

/// Returns whether there is a control character. Has no early exit, so that it is vectorised.
fn has_control(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |found, byte| found | (*byte < b' '))
}

/// Returns whether a number follows RFC 8259: no leading zeros, and digits on both sides of the
/// point.
fn is_rfc_number(number: &str) -> bool {
    let number = number.strip_prefix('-').unwrap_or(number);
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (number, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|text| digits(text.strip_prefix(['+', '-']).unwrap_or(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(text: &str) -> bool {
        let mut parser = Parser::strict(text.as_bytes(), 5);
        parser.skip().and_then(|()| parser.end()).is_ok()
    }

    #[test]
    fn strict_parser_follows_the_rfc() {
        for good in [
            r#" {"a": [1, -0.5e+3, true, null, "\ud83d\ude00\u00e9"], "a": {}} "#,
            "[[[[[]]]]]",
            "0",
            "-0",
            "1E9",
        ] {
            assert!(accepts(good), "{good}");
        }
        for bad in [
            "",
            "[1,]",
            "{,}",
            "[1 2]",
            "01",
            "1.",
            ".5",
            "1e",
            "+1",
            "NaN",
            "-Infinity",
            "1e999",
            "\"\n\"",
            "\"\\ud800\"",
            "\"\\udc00x\"",
            "[[[[[[]]]]]]",
            "1 2",
            "{\"a\"}",
            "[",
            "{\"a\":",
        ] {
            assert!(!accepts(bad), "{bad}");
        }
    }

    #[test]
    fn control_characters_are_found_before_a_missing_end() {
        for (text, problem) in [
            ("\"a\nb", "a control character in a string (at character 2 of it)"),
            ("\"a\nb\"", "a control character in a string (at character 2 of it)"),
            ("\"a\\n\u{1}", "a control character in a string (at character 4 of it)"),
            ("\"a\\nb", "a string that does not end (at character 4 of it)"),
        ] {
            let error = Parser::strict(text.as_bytes(), 1).text().unwrap_err().to_string();
            assert!(error.contains(problem), "{text:?}: {error}");
        }
        assert_eq!(Parser::lenient(b"\"a\nb\"").text().unwrap(), *"a\nb");
    }

    #[test]
    fn raw_strings_end_where_parsed_ones_do() {
        for text in [r#"  "" 1"#, r#""a\"b\\" 1"#, r#""\\\"" 1"#, r#""\u00e9" 1"#] {
            let mut parser = Parser::lenient(text.as_bytes());
            let raw = parser.raw_text().unwrap();
            assert_eq!(raw, text.trim_start().trim_end_matches(" 1").as_bytes());
            assert_eq!(parser.natural().unwrap(), 1);
        }
        for bad in ["", "1", "\"", "\"a", "\"a\\", "\"a\\\""] {
            assert!(Parser::lenient(bad.as_bytes()).raw_text().is_err(), "{bad}");
        }
        let (mut parser, mut first) = (Parser::lenient(br#"{"a": 1, "b\"": 2}"#), true);
        parser.object().unwrap();
        let mut numbers = Vec::new();
        while parser.skip_name(&mut first).unwrap() {
            numbers.push(parser.natural().unwrap());
        }
        assert_eq!(numbers, [1, 2]);
        assert!(Parser::lenient(br#""a" 1"#).skip_name(&mut true).is_err());
    }

    #[test]
    fn natural_numbers_must_fit_u64() {
        let natural = |text: &str| Parser::strict(text.as_bytes(), 1).natural().ok();
        assert_eq!(natural(" 18446744073709551615"), Some(u64::MAX));
        assert_eq!(natural("9999999999999999999"), Some(9_999_999_999_999_999_999));
        assert_eq!(natural("1234567890123456789]"), Some(1_234_567_890_123_456_789));
        assert_eq!(natural("0,"), Some(0));
        for bad in [
            "18446744073709551616",
            "99999999999999999999",
            "01",
            "00",
            "-1",
            "-0",
            "1.0",
            "1e2",
            "1E2",
            "\"1\"",
            "null",
            "",
        ] {
            assert_eq!(natural(bad), None, "{bad}");
        }
    }
}
