//! Statements that a table applies before and after its rules: `hf n_inner ??= 4 * n_embd`.

use statelens_checkpoint::{Error, Result};

use super::expression::{Expression, need, number, unfit};
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
    Assign(Assignment),
    /// `require KEY`, `require KEY >= NUMBER` or `require KEY in LIST`
    Require(String, Required),
    /// `do NAME`
    Do(Hook),
}

#[derive(Debug, Clone)]
struct Assignment {
    key: String,
    expression: Expression,
    mode: AssignMode,
}

#[derive(Debug, Clone, Copy)]
enum AssignMode {
    /// `KEY := EXPRESSION`
    Always,
    /// `KEY ?= EXPRESSION`
    IfMissing,
    /// `KEY ??= EXPRESSION`, if the key is missing or null.
    IfNull,
}

impl Statement {
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
        let assignment = || {
            Assignment::parse(rest, " ??= ", AssignMode::IfNull)
                .or_else(|| Assignment::parse(rest, " ?= ", AssignMode::IfMissing))
                .or_else(|| Assignment::parse(rest, " := ", AssignMode::Always))
        };
        let kind = if let Some(name) = rest.strip_prefix("do ") {
            StatementKind::Do(Hook::named(name).ok_or_else(bad)?)
        } else if let Some(what) = rest.strip_prefix("require ") {
            let (key, required) = if let Some((key, least)) = what.split_once(" >= ") {
                (key, Required::Least(least.parse().map_err(|_| bad())?))
            } else if let Some((key, list)) = what.split_once(" in ") {
                let list = yaml::parse(list)?.as_list().cloned().ok_or_else(bad)?;
                (key, Required::OneOf(list))
            } else {
                (what, Required::Set)
            };
            StatementKind::Require(key.to_owned(), required)
        } else {
            StatementKind::Assign(assignment().ok_or_else(bad)??)
        };
        Ok(Self { side, kind, when })
    }

    /// Runs before the rules, on the source config.
    pub(super) fn prepare(&self, work: &mut ConfigWork<'_>) -> Result<()> {
        if self.when.as_ref().is_some_and(|when| !when.holds(work.old)) {
            return Ok(());
        }
        match &self.kind {
            StatementKind::Do(hook) => return hook.run(work),
            StatementKind::Require(key, required) => return required.check(work.old, key),
            StatementKind::Assign(assignment) if assignment.applies(work.old) => {
                let value = assignment.expression.value(&[work.old])?;
                work.old.set(assignment.key.as_str(), value);
            }
            StatementKind::Assign(_) => {}
        }
        Ok(())
    }

    /// Runs after the rules, on the target config.
    pub(super) fn finish(&self, work: &mut ConfigWork<'_>) -> Result<()> {
        if self.when.as_ref().is_some_and(|when| !when.holds(work.new)) {
            return Ok(());
        }
        match &self.kind {
            StatementKind::Do(hook) => return hook.run(work),
            StatementKind::Require(key, _) => return need(work.new, key).map(|_| ()),
            StatementKind::Assign(assignment) if assignment.applies(work.new) => {
                let value = assignment.expression.value(&[work.new, work.old])?;
                work.new.set(assignment.key.as_str(), value);
            }
            StatementKind::Assign(_) => {}
        }
        Ok(())
    }
}

impl Assignment {
    /// Finds the sign in a line.
    fn parse(line: &str, sign: &str, mode: AssignMode) -> Option<Result<Self>> {
        let (key, expression) = line.split_once(sign)?;
        let expression = Expression::parse(expression);
        Some(expression.map(|expression| Self { key: key.to_owned(), expression, mode }))
    }

    /// Returns whether the key is to be set in this config.
    fn applies(&self, config: &Map) -> bool {
        match self.mode {
            AssignMode::Always => true,
            AssignMode::IfMissing => !config.contains(&self.key),
            AssignMode::IfNull => config.get(&self.key).is_none_or(Value::is_null),
        }
    }
}

impl Required {
    fn check(&self, config: &Map, key: &str) -> Result<()> {
        let value = config.get(key).unwrap_or(&Value::Null);
        match self {
            Self::Set | Self::OneOf(_) if value.is_null() => {
                Err(Error::refused(format!("{key} is not in the config"))
                    .advice("Add it: the other side needs its value."))
            }
            Self::OneOf(list) if !list.iter().any(|one| one.equals(value)) => {
                let known: Vec<String> = list.iter().map(Value::quoted).collect();
                Err(unfit(key, value, known.join(", ")))
            }
            Self::Least(least) if number(config, key)? < *least => {
                Err(unfit(key, value, format!("{least} or more")))
            }
            _ => Ok(()),
        }
    }
}
