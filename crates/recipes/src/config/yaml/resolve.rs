//! The meaning of plain scalars in YAML 1.1, according to PyYAML's resolver and constructor
//! (version 6).

use std::sync::LazyLock;

use regex_lite::Regex;
use statelens_checkpoint::{Error, Result};

use crate::config::json::integer;
use crate::value::Value;

/// The types of plain scalars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarType {
    Null,
    Bool,
    Int,
    Float,
    Date,
    /// `<<`: merges the keys of another dict.
    Merge,
    /// `=`, which PyYAML resolves and then can't construct.
    Equals,
    Text,
}

/// Returns the type of a scalar without quotes and tag.
pub(super) fn scalar_type(text: &str) -> ScalarType {
    let Some(first) = text.chars().next() else { return ScalarType::Null };
    match first {
        'y' | 'Y' | 'n' | 'N' | 't' | 'T' | 'f' | 'F' | 'o' | 'O' => {
            if truth(text).is_some() {
                ScalarType::Bool
            } else if matches!(text, "null" | "Null" | "NULL") {
                ScalarType::Null
            } else {
                ScalarType::Text
            }
        }
        '-' | '+' | '0'..='9' | '.' => {
            if FLOAT.is_match(text) {
                ScalarType::Float
            } else if INT.is_match(text) {
                ScalarType::Int
            } else if first.is_ascii_digit() && DATE.is_match(text) {
                ScalarType::Date
            } else {
                ScalarType::Text
            }
        }
        '~' if text == "~" => ScalarType::Null,
        '<' if text == "<<" => ScalarType::Merge,
        '=' if text == "=" => ScalarType::Equals,
        _ => ScalarType::Text,
    }
}

/// Returns the value of a scalar of a given type; an error if it doesn't match the type.
pub(super) fn value(text: &str, scalar_type: ScalarType) -> Result<Value> {
    let bad =
        |what: &str| Error::damaged(format!("\"{}\" is not {what}", Value::from(text).quoted()));
    Ok(match scalar_type {
        ScalarType::Null => Value::Null,
        ScalarType::Bool => Value::Bool(truth(text).ok_or_else(|| bad("true or false"))?),
        ScalarType::Int => int(text)?.ok_or_else(|| bad("an integer"))?,
        ScalarType::Float => Value::Float(float(text).ok_or_else(|| bad("a number"))?),
        ScalarType::Date => Value::Date(text.to_owned()),
        ScalarType::Text | ScalarType::Merge => Value::from(text),
        ScalarType::Equals => {
            return Err(Error::damaged("a plain = has no meaning as a value")
                .advice("Put it in quotes if the text is meant."));
        }
    })
}

#[allow(clippy::unwrap_used, reason = "the patterns are constants, and a test matches each")]
fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap()
}

static FLOAT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?",
        r"|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?",
        r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*",
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
    ))
});

static INT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"^(?:[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+",
        r"|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+)$",
    ))
});

static DATE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"^(?:[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]",
        r"|[0-9][0-9][0-9][0-9]-[0-9][0-9]?-[0-9][0-9]?(?:[Tt]|[ \t]+)[0-9][0-9]?:[0-9][0-9]:[0-9][0-9]",
        r"(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9][0-9]?(?::[0-9][0-9])?))?)$",
    ))
});

fn truth(text: &str) -> Option<bool> {
    match text {
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Some(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

fn int(text: &str) -> Result<Option<Value>> {
    let text = text.replace('_', "");
    let (negative, digits) = signed(&text);
    let radix = match digits.as_bytes() {
        [b'0', b'b', ..] => Some((2, &digits[2..])),
        [b'0', b'x', ..] => Some((16, &digits[2..])),
        [b'0', _, ..] => Some((8, digits)),
        _ => None,
    };
    if let Some((radix, digits)) = radix {
        // In these bases, numbers of more than 64 bits are not supported: no real config has them.
        let number = i64::from_str_radix(digits, radix).ok();
        return Ok(number.map(|number| Value::Int(if negative { -number } else { number })));
    }
    if digits.contains(':') {
        let parts = digits.split(':').map(|part| part.parse::<i64>().ok());
        let number = parts.reduce(|sum, part| sum?.checked_mul(60)?.checked_add(part?)).flatten();
        return Ok(number.map(|number| Value::Int(if negative { -number } else { number })));
    }
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    let sign = if negative { "-" } else { "" };
    integer(&format!("{sign}{digits}")).map(Some)
}

fn float(text: &str) -> Option<f64> {
    let text = text.replace('_', "").to_lowercase();
    let (negative, digits) = signed(&text);
    let sign = if negative { -1.0 } else { 1.0 };
    match digits {
        ".inf" => return Some(sign * f64::INFINITY),
        ".nan" => return Some(f64::NAN),
        _ => {}
    }
    if digits.contains(':') {
        let parts = digits.split(':').map(|part| part.parse::<f64>().ok());
        return parts.reduce(|sum, part| Some(sum? * 60.0 + part?)).flatten().map(|sum| sign * sum);
    }
    let starts = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    starts.then(|| digits.parse::<f64>().ok()).flatten().map(|number| sign * number)
}

fn signed(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolves_scalars_as_pyyaml_does() {
        let int = Value::Int;
        let float = Value::Float;
        for (text, expected) in [
            ("1e-5", Value::from("1e-5")),
            ("1e5", Value::from("1e5")),
            ("1.0e-05", float(1e-5)),
            ("1.e-5", float(1e-5)),
            ("1.5e5", Value::from("1.5e5")),
            (".5", float(0.5)),
            ("+.5", Value::from("+.5")),
            ("-1_000.5", float(-1000.5)),
            ("190:20:30.15", float(685230.15)),
            (".inf", float(f64::INFINITY)),
            ("-.INF", float(f64::NEG_INFINITY)),
            ("1_000", int(1000)),
            ("010", int(8)),
            ("0o10", Value::from("0o10")),
            ("0x1F", int(31)),
            ("-0b11", int(-3)),
            ("1:30", int(90)),
            ("08", Value::from("08")),
            ("yes", Value::Bool(true)),
            ("Off", Value::Bool(false)),
            ("y", Value::from("y")),
            ("~", Value::Null),
            ("NULL", Value::Null),
            ("", Value::Null),
            ("2024-05-01", Value::Date("2024-05-01".into())),
            ("2024-5-1", Value::from("2024-5-1")),
            ("-", Value::from("-")),
            ("None", Value::from("None")),
        ] {
            assert_eq!(value(text, scalar_type(text)).unwrap(), expected, "{text}");
        }
        assert_eq!(scalar_type("<<"), ScalarType::Merge);
        assert!(value("=", scalar_type("=")).is_err());
    }
}
