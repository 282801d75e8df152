//! Statements that a table applies before and after its rules: `hf n_inner ??= 4 * n_embd`.

use statelens_checkpoint::{Error, Result};

use super::expression::{Expression, need, number};
use super::hooks::{ConfigWork, Hook};
use super::rule::When;
use super::side::Side;
use super::value::{List, Map, Value};
use super::yaml;

/// The condition on a required key.
#[derive(Debug, Clone)]
enum Required {
    Set,
    Least(f64),
    OneOf(List),
}

/// One line of `prepare` or `finish`.
#[derive(Debug, Clone)]
pub(super) struct Statement {
    /// The side that must be the source (`prepare`) or the target (`finish`).
    pub(super) side: Side,
    kind: StatementKind,
    when: Option<When>,
}

#[derive(Debug, Clone)]
enum StatementKind {
    /// `KEY := EXPRESSION`
    Set(String, Expression),
    /// `KEY ?= EXPRESSION`, if the key is missing.
    Default(String, Expression),
    /// `KEY ??= EXPRESSION`, if the key is missing or null.
    Fill(String, Expression),
    /// `require KEY`, `require KEY >= NUMBER` or `require KEY in LIST`
    Require(String, Required),
    /// `do NAME`
    Do(Hook),
}

impl Statement {
    /// Parses a line.
    pub(super) fn parse(line: &str) -> Result<Self> {
        let bad = || {
            Error::damaged(format!("\"{line}\" is not a statement"))
                .expected("SIDE and KEY := EXPRESSION, KEY ?= EXPRESSION, KEY ??= EXPRESSION, require KEY or do NAME")
        };
        let (side, rest) = line.split_once(' ').ok_or_else(bad)?;
        let side = Side::named(side).ok_or_else(bad)?;
        let (rest, when) = match rest.split_once(" when ") {
            Some((rest, when)) => (rest, Some(When::parse(when)?)),
            None => (rest, None),
        };
        let assignment = |sign: &str| -> Option<Result<(String, Expression)>> {
            let (key, expression) = rest.split_once(sign)?;
            Some(Expression::parse(expression).map(|expression| (key.to_owned(), expression)))
        };
        let what = if let Some(name) = rest.strip_prefix("do ") {
            StatementKind::Do(Hook::named(name).ok_or_else(bad)?)
        } else if let Some(key) = rest.strip_prefix("require ") {
            if let Some((key, least)) = key.split_once(" >= ") {
                StatementKind::Require(
                    key.to_owned(),
                    Required::Least(least.parse().map_err(|_| bad())?),
                )
            } else if let Some((key, list)) = key.split_once(" in ") {
                let list = yaml::parse(list)?.as_list().cloned().ok_or_else(bad)?;
                StatementKind::Require(key.to_owned(), Required::OneOf(list))
            } else {
                StatementKind::Require(key.to_owned(), Required::Set)
            }
        } else if let Some(parts) = assignment(" ??= ") {
            let (key, expression) = parts?;
            StatementKind::Fill(key, expression)
        } else if let Some(parts) = assignment(" ?= ") {
            let (key, expression) = parts?;
            StatementKind::Default(key, expression)
        } else if let Some(parts) = assignment(" := ") {
            let (key, expression) = parts?;
            StatementKind::Set(key, expression)
        } else {
            return Err(bad());
        };
        Ok(Self { side, kind: what, when })
    }

    /// Runs before the rules, on the source config.
    pub(super) fn prepare(&self, work: &mut ConfigWork<'_>) -> Result<()> {
        if self.when.as_ref().is_some_and(|when| !when.holds(work.old)) {
            return Ok(());
        }
        match &self.kind {
            StatementKind::Do(hook) => hook.run(work),
            StatementKind::Require(key, required) => required.check(work.old, key),
            StatementKind::Set(key, expression) => {
                let value = expression.value(&[work.old])?;
                work.old.set(key.as_str(), value);
                Ok(())
            }
            StatementKind::Default(key, expression) | StatementKind::Fill(key, expression) => {
                let fills = matches!(self.kind, StatementKind::Fill(..));
                let there = work.old.get(key).is_some_and(|value| !(fills && value.is_null()));
                if !there {
                    let value = expression.value(&[work.old])?;
                    work.old.set(key.as_str(), value);
                }
                Ok(())
            }
        }
    }

    /// Runs after the rules, on the target config.
    pub(super) fn finish(&self, work: &mut ConfigWork<'_>) -> Result<()> {
        if self.when.as_ref().is_some_and(|when| !when.holds(work.new)) {
            return Ok(());
        }
        match &self.kind {
            StatementKind::Do(hook) => hook.run(work),
            StatementKind::Require(key, _) => need(work.new, key).map(|_| ()),
            StatementKind::Set(key, expression) => {
                let value = expression.value(&[work.new, work.old])?;
                work.new.set(key.as_str(), value);
                Ok(())
            }
            StatementKind::Default(key, expression) | StatementKind::Fill(key, expression) => {
                let fills = matches!(self.kind, StatementKind::Fill(..));
                let there = work.new.get(key).is_some_and(|value| !(fills && value.is_null()));
                if !there {
                    let value = expression.value(&[work.new, work.old])?;
                    work.new.set(key.as_str(), value);
                }
                Ok(())
            }
        }
    }
}

impl Required {
    fn check(&self, config: &Map, key: &str) -> Result<()> {
        let value = config.get(key).unwrap_or(&Value::Null);
        let refusal = || Error::refused(format!("{key} is {}", value.quoted()));
        match self {
            Self::Set | Self::OneOf(_) if value.is_null() => {
                Err(Error::refused(format!("{key} is not in the config"))
                    .advice("Add it: the other side needs its value."))
            }
            Self::OneOf(list) if !list.iter().any(|one| one.equals(value)) => {
                let known: Vec<String> = list.iter().map(Value::quoted).collect();
                Err(refusal().expected(known.join(", ")))
            }
            Self::Least(least) if number(config, key)? < *least => {
                Err(refusal().expected(format!("{least} or more")))
            }
            _ => Ok(()),
        }
    }
}
