//! Writes JSON: values that implement [`Serialize`], and longer output in parts. Strings may hold lone
//! surrogates.

use std::fmt::Write as _;
use std::io;

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter};
use statelens_checkpoint::{Finding, Grade, Text, float_repr, is_hidden};

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

    /// Writes an array of objects, one for each item; `fields` writes the fields of one.
    pub fn objects<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        fields: impl Fn(&mut Self, T),
    ) {
        self.array(|json| {
            items.into_iter().for_each(|item| json.object(|json| fields(json, item)))
        });
    }

    /// Writes the name of a field; the value must follow.
    pub fn name(&mut self, name: &str) -> &mut Self {
        self.str(name);
        self.out.push(':');
        self.comma = false;
        self
    }

    /// Writes a string, which may contain lone surrogates.
    pub fn text(&mut self, text: &Text) {
        self.separate();
        self.out.push('"');
        escape_text(&mut self.out, text);
        self.out.push('"');
    }

    /// Writes a string.
    pub fn str(&mut self, text: &str) {
        self.separate();
        self.out.push('"');
        text.chars().for_each(|c| escape(&mut self.out, c));
        self.out.push('"');
    }

    /// Writes a value.
    pub fn value(&mut self, value: &impl Serialize) {
        self.separate();
        self.out.push_str(&json_text(value));
    }

    /// Writes the fields of a struct into the innermost object.
    pub fn fields(&mut self, of: &impl Serialize) {
        let text = json_text(of);
        let fields = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        if let Some(fields) = fields.filter(|fields| !fields.is_empty()) {
            self.separate();
            self.out.push_str(fields);
        }
    }

    /// Writes an unsigned integer.
    pub fn number(&mut self, number: u64) {
        self.separate();
        // Writing to a string does not fail.
        let _ = write!(self.out, "{number}");
    }

    /// Writes a number given as JSON text.
    pub fn literal(&mut self, digits: &str) {
        self.separate();
        self.out.push_str(digits);
    }

    /// Writes a number, `null` for `None`; writes a string, `inf`, `-inf` or `nan`, if it is not
    /// finite.
    pub fn float(&mut self, value: impl Into<Option<f64>>) {
        let Some(value) = value.into() else { return self.null() };
        let text = float_repr(value);
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
}

/// Appends a character of a JSON string.
fn escape(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        // Hidden characters are escaped, although the grammar does not require it, so that they
        // do not reach a terminal. Parsers see no difference.
        c if is_hidden(c) => {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| escape_unit(out, *unit));
        }
        c => out.push(c),
    }
}

/// Appends the text of a JSON string.
fn escape_text(out: &mut String, text: &Text) {
    for piece in text.pieces() {
        match piece {
            Ok(text) => text.chars().for_each(|c| escape(out, c)),
            Err(surrogate) => escape_unit(out, surrogate),
        }
    }
}

fn escape_unit(out: &mut String, unit: u16) {
    // Writing to a string does not fail.
    let _ = write!(out, "\\u{unit:04x}");
}

/// Writes strings and numbers as [`Json`] does.
struct JsonFormatter;

impl Formatter for JsonFormatter {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(float_repr(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut out = String::with_capacity(fragment.len());
        fragment.chars().for_each(|c| escape(&mut out, c));
        writer.write_all(out.as_bytes())
    }

    fn write_char_escape<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        char_escape: CharEscape,
    ) -> io::Result<()> {
        let c = match char_escape {
            CharEscape::Quote => '"',
            CharEscape::ReverseSolidus => '\\',
            CharEscape::Solidus => '/',
            CharEscape::Backspace => '\u{8}',
            CharEscape::FormFeed => '\u{c}',
            CharEscape::LineFeed => '\n',
            CharEscape::CarriageReturn => '\r',
            CharEscape::Tab => '\t',
            CharEscape::AsciiControl(byte) => char::from(byte),
        };
        self.write_string_fragment(writer, c.encode_utf8(&mut [0; 4]))
    }

    /// Writes a [`Text`] that has lone surrogates.
    fn write_byte_array<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        bytes: &[u8],
    ) -> io::Result<()> {
        let mut out = "\"".to_owned();
        if let Ok(text) = Text::from_surrogatepass(bytes) {
            escape_text(&mut out, &text);
        }
        out.push('"');
        writer.write_all(out.as_bytes())
    }
}

/// Returns a value as JSON.
pub fn json_text(value: &impl Serialize) -> String {
    let mut out = Vec::new();
    // Writing to a vector does not fail, and no report has keys that are not strings.
    let _ = value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, JsonFormatter));
    String::from_utf8(out).unwrap_or_default()
}

/// Makes a value that is serialized as an object with these fields, in their order. Fields may have
/// `#[serde(flatten)]`.
#[macro_export]
macro_rules! fields {
    ($($(#[$attribute:meta])* $name:ident: $value:expr),* $(,)?) => {{
        #[allow(non_camel_case_types, reason = "each field has its own type")]
        let fields = {
            #[derive(::serde::Serialize)]
            struct Fields<$($name),*> {
                $($(#[$attribute])* $name: $name,)*
            }
            Fields { $($name: $value),* }
        };
        fields
    }};
}

/// Returns a report as JSON: the version of the schema, and the fields of the report.
pub fn report_json(report: &impl Serialize) -> String {
    let mut json = Json::new();
    json.object(|json| {
        json.name("statelens").number(1);
        json.fields(report);
    });
    json.take()
}

/// Serializes a list of names and values as an object, in its order (`#[serde(with = …)]`).
pub mod object {
    use std::fmt;
    use std::marker::PhantomData;

    use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
    use serde::ser::{Serialize, Serializer};

    /// Writes the object.
    pub fn serialize<T: Serialize, S: Serializer>(
        fields: &[(String, T)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(fields.iter().map(|(name, value)| (name, value)))
    }

    /// Reads the object.
    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(String, T)>, D::Error> {
        struct FieldsVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for FieldsVisitor<T> {
            type Value = Vec<(String, T)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                std::iter::from_fn(|| map.next_entry().transpose()).collect()
            }
        }
        deserializer.deserialize_map(FieldsVisitor(PhantomData))
    }
}

/// Serializes a number that may be unknown or not finite as [`Json::float`] writes it
/// (`#[serde(with = …)]`).
pub mod float {
    use std::fmt;

    use serde::de::{Deserializer, Error, Unexpected, Visitor};
    use serde::ser::Serializer;
    use statelens_checkpoint::float_repr;

    /// Writes a number, `null`, or a string if it is not finite.
    pub fn serialize<S: Serializer>(value: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            None => to.serialize_none(),
            Some(value) if value.is_finite() => to.serialize_f64(*value),
            Some(value) => to.serialize_str(&float_repr(*value)),
        }
    }

    /// Reads the output of [`serialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
        struct FloatVisitor;
        impl Visitor<'_> for FloatVisitor {
            type Value = Option<f64>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
                Ok(Some(value))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
                Ok(Some(value as f64))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
                Ok(Some(value as f64))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                let invalid = |_| E::invalid_value(Unexpected::Str(text), &self);
                text.parse().map(Some).map_err(invalid)
            }

            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(None)
            }
        }
        from.deserialize_any(FloatVisitor)
    }
}

/// Names and values, serialized as an object in their order.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub struct Object<T: Serialize>(#[serde(with = "object")] pub Vec<(String, T)>);

/// A number that may be unknown or not finite, serialized as in [`float`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Float(#[serde(with = "float")] pub Option<f64>);

impl From<f64> for Float {
    fn from(value: f64) -> Self {
        Self(Some(value))
    }
}

/// Serializes a field that may be absent, and whose value is a number as in [`float`]
/// (`#[serde(default, skip_serializing_if = "Option::is_none", with = …)]`).
pub mod optional_float {
    use serde::{Deserializer, Serializer};

    /// Writes the value.
    pub fn serialize<S: Serializer>(value: &Option<Option<f64>>, to: S) -> Result<S::Ok, S::Error> {
        super::float::serialize(&value.flatten(), to)
    }

    /// Reads the output of [`serialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Option<f64>>, D::Error> {
        super::float::deserialize(from).map(Some)
    }
}

/// Returns the findings of a scan as JSON: `path`, if given, `worst` and `findings`.
pub fn findings_json(path: Option<&str>, findings: &[Finding]) -> String {
    #[derive(Serialize)]
    struct ScanReport<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        path: Option<&'a str>,
        worst: Option<Grade>,
        findings: &'a [Finding],
    }
    report_json(&ScanReport { path, worst: worst(findings), findings })
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
        let text = Text::from_code_points([0x61, 0xd83d, 0x62, 0xd83d, 0xde00, 0xdc80]).unwrap();
        let mut json = Json::new();
        json.text(&text);
        assert_eq!(json.as_str(), "\"a\\ud83db\\ud83d\\ude00\\udc80\"");
        assert_eq!(json_text(&text), json.as_str());
    }

    #[test]
    fn floats_are_read_to_the_last_bit() {
        #[derive(Serialize, serde::Deserialize)]
        struct Number(#[serde(with = "float")] Option<f64>);
        let mut bits = 1u64;
        let next = || {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            f64::from_bits(bits)
        };
        let special = [0.0, -0.0, 1.0, -7.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324];
        for value in special.into_iter().chain(std::iter::repeat_with(next).take(2_000)) {
            let mut json = Json::new();
            json.float(value);
            assert_eq!(json_text(&Number(Some(value))), json.as_str());
            let read: Number = serde_json::from_str(json.as_str()).unwrap();
            let read = read.0.unwrap();
            assert!(
                read.to_bits() == value.to_bits() || read.is_nan() && value.is_nan(),
                "{value}"
            );
        }
        let read = |text| serde_json::from_str::<Number>(text).map(|number| number.0).ok();
        assert_eq!((read("null"), read("12"), read("\"x\"")), (Some(None), Some(Some(12.0)), None));
    }

    #[test]
    fn serialized_values_look_as_written_ones() {
        let control: String = (0..0x20u8).map(char::from).collect();
        for text in [control.as_str(), "\"\\/\u{7f}\u{9b}\u{e9}\u{202e}\u{e0041}b"] {
            let mut json = Json::new();
            json.str(text);
            assert_eq!(json_text(&text), json.as_str());
        }
        for value in [0.0, -0.0, 1.0, 0.1, 1e-5, 1e16, 1e-7, 1.5e300, 123456789.0] {
            let mut json = Json::new();
            json.float(value);
            assert_eq!(json_text(&value), json.as_str());
        }
        #[derive(Serialize)]
        struct Nothing {}
        let mut json = Json::new();
        json.object(|json| {
            json.fields(&Nothing {});
            json.name("a").value(&[1, 2]);
            json.fields(&Nothing {});
            json.fields(&Finding::new(Grade::UnknownCode, "t"));
        });
        assert_eq!(
            json.as_str(),
            r#"{"a":[1,2],"grade":"unknown code","title":"t","detail":"","place":"","advice":""}"#
        );
    }
}
