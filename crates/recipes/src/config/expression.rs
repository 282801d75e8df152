//! Numbers that a table computes from a config: `hidden_size // num_heads`, `4 * n_embd`.

use statelens_checkpoint::{Error, Result};

use super::value::{Map, Value};

/// Keys and constants, combined from left to right.
#[derive(Debug, Clone)]
pub(super) struct Expression {
    first: Term,
    rest: Vec<(Operator, Term)>,
}

#[derive(Debug, Clone)]
enum Term {
    Key(String),
    Constant(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Times,
    Over,
    FloorOver,
    Plus,
    Minus,
}

impl Expression {
    /// Parses an expression. Words that are neither numbers nor quoted are keys.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut words = text.split_whitespace();
        let bad = || Error::damaged(format!("\"{text}\" is not an expression"));
        let first = Term::parse(words.next().ok_or_else(bad)?)?;
        let mut rest = Vec::new();
        while let Some(word) = words.next() {
            let operator = match word {
                "*" => Operator::Times,
                "//" => Operator::FloorOver,
                _ => return Err(bad()),
            };
            rest.push((operator, Term::parse(words.next().ok_or_else(bad)?)?));
        }
        Ok(Self { first, rest })
    }

    /// Returns its value. Keys are looked up in `configs` in turn.
    pub(super) fn value(&self, configs: &[&Map]) -> Result<Value> {
        let mut value = self.first.value(configs)?;
        for (operator, term) in &self.rest {
            value = compute(&value, *operator, &term.value(configs)?)?;
        }
        Ok(value)
    }
}

impl Term {
    fn parse(word: &str) -> Result<Self> {
        let key = word.starts_with(|c: char| c.is_ascii_alphabetic())
            && !matches!(word, "true" | "false" | "null");
        if key {
            return Ok(Self::Key(word.to_owned()));
        }
        Ok(Self::Constant(super::yaml::parse(word)?))
    }

    fn value(&self, configs: &[&Map]) -> Result<Value> {
        match self {
            Self::Constant(value) => Ok(value.clone()),
            Self::Key(key) => {
                let found = configs.iter().find_map(|config| config.get(key));
                found.cloned().ok_or_else(|| missing(key))
            }
        }
    }
}

/// Returns the value of a key, or an error that names the key.
pub(super) fn need<'a>(config: &'a Map, key: &str) -> Result<&'a Value> {
    config.get(key).ok_or_else(|| missing(key))
}

fn missing(key: &str) -> Error {
    Error::refused(format!("the config has no key {key}"))
        .advice("Add it: the conversion depends on its value.")
}

/// Returns the number of a key.
pub(super) fn number(config: &Map, key: &str) -> Result<f64> {
    let value = need(config, key)?;
    value.as_f64().ok_or_else(|| unfit(key, value, "a number"))
}

/// Returns the error for a value that can't be converted. `what` is its key.
pub(super) fn unfit(what: &str, value: &Value, expected: impl Into<String>) -> Error {
    Error::refused(format!("{what} is {}", value.quoted())).expected(expected)
}

/// Computes as Python does: integers stay integers except in true division.
pub(super) fn compute(left: &Value, operator: Operator, right: &Value) -> Result<Value> {
    if let (Some(left), Some(right)) = (left.as_int(), right.as_int()) {
        let whole = match operator {
            Operator::Times => left.checked_mul(right),
            Operator::Plus => left.checked_add(right),
            Operator::Minus => left.checked_sub(right),
            Operator::FloorOver if right != 0 => floor_over(left, right),
            Operator::FloorOver | Operator::Over => None,
        };
        if let Some(whole) = whole {
            return Ok(Value::Int(whole));
        }
        if operator != Operator::Over && right != 0 {
            return Err(Error::refused("a number in the config is too large"));
        }
    }
    let number = |value: &Value| {
        value.as_f64().ok_or_else(|| unfit("a value of the config", value, "a number"))
    };
    let (left, right) = (number(left)?, number(right)?);
    let divides = matches!(operator, Operator::Over | Operator::FloorOver);
    if divides && right == 0.0 {
        return Err(Error::refused("a number in the config is 0").expected("a number other than 0"));
    }
    Ok(Value::Float(match operator {
        Operator::Times => left * right,
        Operator::Plus => left + right,
        Operator::Minus => left - right,
        Operator::Over => left / right,
        Operator::FloorOver => (left / right).floor(),
    }))
}

fn floor_over(left: i64, right: i64) -> Option<i64> {
    let quotient = left.checked_div(right)?;
    let inexact = left.checked_rem(right)? != 0;
    Some(if inexact && (left < 0) != (right < 0) { quotient - 1 } else { quotient })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<Value> {
        let mut config = Map::new();
        config.set("hidden", 10);
        config.set("heads", 4);
        config.set("none", 0);
        config.set("share", 0.25);
        Expression::parse(text)?.value(&[&config])
    }

    #[test]
    fn evaluates_as_python_does() {
        assert_eq!(value("hidden // heads").unwrap(), Value::Int(2));
        assert_eq!(value("-7 // 2").unwrap(), Value::Int(-4));
        assert_eq!(value("hidden // heads * share").unwrap(), Value::Float(0.5));
        assert_eq!(value("\"gelu\"").unwrap(), Value::from("gelu"));
    }

    #[test]
    fn reports_invalid_computations() {
        assert!(value("hidden // none").unwrap_err().to_string().contains("other than 0"));
        assert!(value("width * 2").unwrap_err().to_string().contains("width"));
        assert!(value("9223372036854775807 * 2").unwrap_err().to_string().contains("too large"));
        assert!(value("hidden + 2").is_err());
    }
}
