//! The scope of expressions in a recipe.

use std::collections::HashMap;

use statelens_checkpoint::{Error, Result, Tensor};

use super::Configs;
use crate::engine::state::State;
use crate::language::{Captures, KeyPattern, Scope, Side};
use crate::value::Value;

/// Returns the value at a path in a config.
pub(crate) fn lookup<'a>(configs: Configs<'a>, side: Side, path: &[String]) -> Option<&'a Value> {
    match side {
        Side::Left => configs.left.at(path),
        Side::Right => configs.right.at(path),
    }
}

/// The scope of a rule's expressions.
pub(super) struct RuleScope<'a> {
    pub(super) configs: Configs<'a>,
    pub(super) lets: &'a HashMap<String, Result<Value>>,
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
    fn config(&self, side: Side, path: &[String]) -> Option<&Value> {
        lookup(self.configs, side, path)
    }

    fn named(&self, name: &str) -> Option<Result<&Value>> {
        self.lets.get(name).map(|value| value.as_ref().map_err(Error::clone))
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

    fn fact(&self, key: &str) -> Option<&Value> {
        self.source.fact(&self.filled(key))
    }

    fn length(&self, key: &str, dim: usize) -> Option<i64> {
        self.tensor(key)?.shape.get(dim).and_then(|len| i64::try_from(*len).ok())
    }
}
