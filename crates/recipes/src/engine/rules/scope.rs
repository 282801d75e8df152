//! The scope of expressions in a recipe.

use std::collections::HashMap;

use statelens_checkpoint::Tensor;

use super::Configs;
use crate::config::Value;
use crate::engine::state::State;
use crate::language::{Captures, ConfigSide, KeyPattern, Scalar, Scope};

/// Returns the value at a path in a config.
pub(crate) fn lookup(configs: Configs<'_>, side: ConfigSide, path: &[String]) -> Scalar {
    let mut at = match side {
        ConfigSide::Left => configs.left,
        ConfigSide::Right => configs.right,
    };
    for step in path {
        let next = match at {
            Value::Map(map) => map.get(step),
            Value::List(list) => step.parse::<usize>().ok().and_then(|step| list.get(step)),
            _ => None,
        };
        match next {
            Some(next) => at = next,
            None => return Scalar::Null,
        }
    }
    match at {
        Value::Null => Scalar::Null,
        Value::Bool(truth) => Scalar::Bool(*truth),
        Value::Int(number) => Scalar::Int(*number),
        Value::Float(number) => Scalar::Float(*number),
        Value::Text(text) | Value::Date(text) => Scalar::Text(text.clone()),
        Value::BigInt(_) => at.as_f64().map_or(Scalar::Null, Scalar::Float),
        Value::List(list) => Scalar::Container { len: list.len() },
        Value::Map(map) => Scalar::Container { len: map.len() },
    }
}

/// The scope of a rule's expressions.
pub(super) struct RuleScope<'a> {
    pub(super) configs: Configs<'a>,
    pub(super) lets: &'a HashMap<String, std::result::Result<Scalar, String>>,
    pub(super) source: &'a State,
    pub(super) made: &'a State,
    pub(super) captures: &'a Captures,
    pub(super) prefix: &'a str,
}

impl RuleScope<'_> {
    fn filled(&self, key: &str) -> String {
        match KeyPattern::parse(key) {
            Ok(pattern) => pattern.fill(self.captures, &[]),
            Err(_) => key.to_owned(),
        }
    }

    fn tensor(&self, key: &str) -> Option<&Tensor> {
        let key = self.filled(key);
        self.source.tensor(&format!("{}{key}", self.prefix)).or_else(|| self.source.tensor(&key))
    }
}

impl Scope for RuleScope<'_> {
    fn config(&self, side: ConfigSide, path: &[String]) -> Scalar {
        lookup(self.configs, side, path)
    }

    fn named(&self, name: &str) -> Option<std::result::Result<Scalar, String>> {
        self.lets.get(name).cloned()
    }

    fn captured(&self, name: &str) -> Option<String> {
        self.captures.iter().find(|(own, _)| own == name).map(|(_, text)| text.clone())
    }

    fn has(&self, key: &str) -> bool {
        let key = self.filled(key);
        self.source.has(&format!("{}{key}", self.prefix)) || self.source.has(&key)
    }

    fn made(&self, key: &str) -> bool {
        self.made.has(&self.filled(key))
    }

    fn count(&self, key: &str) -> i64 {
        let Ok(pattern) = KeyPattern::parse(key) else { return 0 };
        let numbers = self.source.keys().filter_map(|key| {
            let found = pattern.matches(key)?;
            let (_, text) = found.captures.iter().find(|(name, _)| name == "n")?;
            text.parse::<u32>().ok()
        });
        numbers.max().map_or(0, |last| i64::from(last) + 1)
    }

    fn fact(&self, key: &str) -> Scalar {
        self.source.fact(&self.filled(key)).cloned().unwrap_or(Scalar::Null)
    }

    fn length(&self, key: &str, dim: usize) -> Option<i64> {
        self.tensor(key)?.shape.get(dim).and_then(|len| i64::try_from(*len).ok())
    }
}
