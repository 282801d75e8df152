//! A minimal JSON writer. Unlike other writers it supports strings with lone surrogates.

use std::fmt::Write as _;

use statelens_checkpoint::{Finding, Grade, Text};

use crate::grade_word;
use crate::is_hidden;

/// Writes JSON values into a string, which can be taken in parts.
#[derive(Debug, Default)]
pub struct Json {
    out: String,
    /// Whether the next item of the innermost array or object needs a comma first.
    comma: bool,
}

impl Json {
    /// Returns a writer without output.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the output since the last call.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    /// Returns the output since the last [`Json::take`].
    pub fn as_str(&self) -> &str {
        &self.out
    }

    /// Writes an object; `fields` writes its fields.
    pub fn object(&mut self, fields: impl FnOnce(&mut Self)) {
        self.open('{');
        fields(self);
        self.close('}');
    }

    /// Writes an array; `items` writes its items.
    pub fn array(&mut self, items: impl FnOnce(&mut Self)) {
        self.open('[');
        items(self);
        self.close(']');
    }

    /// Writes the name of a field; the value must follow.
    pub fn name(&mut self, name: &str) -> &mut Self {
        self.separate();
        self.quoted([Ok(name)]);
        self.out.push(':');
        self.comma = false;
        self
    }

    /// Writes a string, which may contain lone surrogates.
    pub fn text(&mut self, text: &Text) {
        self.separate();
        self.quoted(text.pieces());
    }

    /// Writes a string.
    pub fn str(&mut self, text: &str) {
        self.separate();
        self.quoted([Ok(text)]);
    }

    /// Writes an unsigned integer.
    pub fn number(&mut self, number: u64) {
        self.separate();
        // Writing to a string does not fail.
        let _ = write!(self.out, "{number}");
    }

    /// Writes a number given as JSON text.
    pub(crate) fn literal(&mut self, digits: &str) {
        self.separate();
        self.out.push_str(digits);
    }

    /// Writes a number; writes a string, `inf`, `-inf` or `nan`, if it is not finite.
    pub fn float(&mut self, value: f64) {
        let text = statelens_checkpoint::float_repr(value);
        if value.is_finite() {
            self.separate();
            self.out.push_str(&text);
        } else {
            self.str(&text);
        }
    }

    /// Writes an array of unsigned integers.
    pub fn numbers(&mut self, numbers: &[u64]) {
        self.array(|json| numbers.iter().for_each(|number| json.number(*number)));
    }

    /// Writes `true` or `false`.
    pub fn bool(&mut self, value: bool) {
        self.separate();
        self.out.push_str(if value { "true" } else { "false" });
    }

    /// Writes `null`.
    pub fn null(&mut self) {
        self.separate();
        self.out.push_str("null");
    }

    /// Opens an array or object that will be closed later, possibly after a [`Json::take`].
    pub fn open(&mut self, bracket: char) {
        self.separate();
        self.out.push(bracket);
        self.comma = false;
    }

    /// Closes the innermost array or object.
    pub fn close(&mut self, bracket: char) {
        self.out.push(bracket);
        self.comma = true;
    }

    /// Writes a line break between two values.
    pub fn line(&mut self) {
        if std::mem::take(&mut self.comma) {
            self.out.push(',');
        }
        self.out.push('\n');
    }

    /// Writes a line break after the last item or at the end.
    pub fn newline(&mut self) {
        self.out.push('\n');
    }

    fn separate(&mut self) {
        if std::mem::replace(&mut self.comma, true) {
            self.out.push(',');
        }
    }

    fn quoted<'a>(&mut self, pieces: impl IntoIterator<Item = Result<&'a str, u16>>) {
        self.out.push('"');
        for piece in pieces {
            match piece {
                Ok(text) => text.chars().for_each(|c| self.char(c)),
                Err(surrogate) => self.escape(u32::from(surrogate)),
            }
        }
        self.out.push('"');
    }

    fn char(&mut self, c: char) {
        match c {
            '"' => self.out.push_str("\\\""),
            '\\' => self.out.push_str("\\\\"),
            '\n' => self.out.push_str("\\n"),
            '\r' => self.out.push_str("\\r"),
            '\t' => self.out.push_str("\\t"),
            // Hidden characters are escaped, although the grammar does not require it, so that they
            // do not reach a terminal. Parsers see no difference.
            c if is_hidden(c) => {
                let mut units = [0; 2];
                c.encode_utf16(&mut units).iter().for_each(|unit| self.escape(u32::from(*unit)));
            }
            c => self.out.push(c),
        }
    }

    fn escape(&mut self, code: u32) {
        let _ = write!(self.out, "\\u{code:04x}");
    }
}

/// Writes a finding as an object: `grade`, `title`, `detail`, `place`, `advice`, and `call` if it
/// is about a call.
pub fn finding_json(json: &mut Json, finding: &Finding) {
    json.object(|json| {
        json.name("grade").str(grade_word(finding.grade));
        json.name("title").str(&finding.title);
        json.name("detail").str(&finding.detail);
        json.name("place").str(&finding.place);
        json.name("advice").str(&finding.advice);
        if !finding.missing.is_empty() {
            json.name("missing")
                .array(|json| finding.missing.iter().for_each(|name| json.str(name)));
        }
        if let Some(call) = &finding.call {
            json.name("call").object(|json| {
                json.name("module").str(&call.module);
                json.name("name").str(&call.name);
                json.name("arguments").str(&call.arguments);
            });
        }
    });
}

/// Returns the findings of a scan as JSON: `path`, if given, `worst` and `findings`.
pub fn findings_json(path: Option<&str>, findings: &[Finding]) -> String {
    let mut json = Json::new();
    json.object(|json| {
        json.name("statelens").number(1);
        if let Some(path) = path {
            json.name("path").str(path);
        }
        json.name("worst");
        match worst(findings) {
            Some(grade) => json.str(grade_word(grade)),
            None => json.null(),
        }
        json.name("findings")
            .array(|json| findings.iter().for_each(|finding| finding_json(json, finding)));
    });
    json.take()
}

/// Returns the grade of the worst finding.
pub fn worst(findings: &[Finding]) -> Option<Grade> {
    findings.iter().map(|finding| finding.grade).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_nesting_commas_and_escapes() {
        let mut json = Json::new();
        json.object(|json| {
            json.name("a\"\\").str("x\n\u{1b}\u{9b}é");
            json.name("n").numbers(&[1, u64::MAX]);
            json.name("e").array(|_| {});
            json.name("o").object(|json| json.name("t").bool(true));
            json.name("z").null();
        });
        let parsed: serde_json::Value = serde_json::from_str(json.as_str()).unwrap();
        assert_eq!(parsed["a\"\\"], "x\n\u{1b}\u{9b}é");
        assert_eq!(parsed["n"][1], u64::MAX);
        assert_eq!(parsed["e"], serde_json::json!([]));
        assert_eq!(parsed["o"]["t"], true);
        assert!(!json.as_str().contains(char::is_control));
    }

    #[test]
    fn escapes_invisible_characters() {
        let text = "a\u{202e}\u{61c}\u{2028}\u{feff}\u{ad}\u{2060}\u{e0041}b";
        let mut json = Json::new();
        json.str(text);
        assert!(json.as_str().is_ascii(), "{}", json.as_str());
        let parsed: String = serde_json::from_str(json.as_str()).unwrap();
        assert_eq!(parsed, text);
    }

    #[test]
    fn lone_surrogates_are_escaped() {
        let mut json = Json::new();
        json.text(&Text::from_code_points([0x61, 0xd83d, 0x62, 0xd83d, 0xde00]).unwrap());
        assert_eq!(json.as_str(), "\"a\\ud83db\\ud83d\\ude00\"");
    }
}
