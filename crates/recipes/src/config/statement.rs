//! Lines of a table that change a config or refuse it: `hf n_inner ??= 4 * n_embd`.

use statelens_checkpoint::{Error, Result};

use super::scope::{Stage, TableScope};
use super::section::put;
use crate::expression::{Expression, Scope};
use crate::language::line::split_word;
use crate::value::{List, Map, Value, unfit};

#[derive(Debug, Clone)]
pub(super) struct Statement {
    kind: StatementKind,
    condition: Option<Condition>,
}

#[derive(Debug, Clone)]
enum StatementKind {
    Assign(Assignment),
    Refuse(Refusal),
    /// `note "TEXT"`: a message for the user
    Note(Template),
    /// `require KEY` or `require KEY in LIST`
    Require(Vec<String>, Option<List>),
}

#[derive(Debug, Clone)]
struct Assignment {
    path: Vec<String>,
    value: Expression,
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

/// `refuse "TEXT" expected "TEXT" advice "TEXT"`
#[derive(Debug, Clone)]
struct Refusal {
    what: Template,
    expected: Option<Template>,
    advice: Option<Template>,
}

/// A text with expressions in braces.
#[derive(Debug, Clone)]
struct Template {
    /// Plain texts, each followed by a value.
    values: Vec<(String, Expression)>,
    end: String,
}

/// `when EXPRESSION` or `unless EXPRESSION`
#[derive(Debug, Clone)]
struct Condition {
    expression: Expression,
    wanted: bool,
}

/// The change that a statement makes.
#[derive(Debug)]
pub(super) enum Effect {
    Set(Vec<String>, Value),
    Note(String),
}

/// The parts of the target that statements change.
pub(super) struct Target<'a> {
    /// The config that the statement is about.
    pub(super) config: &'a mut Map,
    /// Other sections of the target.
    pub(super) sections: &'a mut Map,
    /// Messages for the user.
    pub(super) notes: &'a mut Vec<String>,
}

impl Statement {
    pub(super) fn parse(line: &str) -> Result<Self> {
        let bad = || {
            Error::damaged(format!("\"{line}\" is not a statement")).expected(
                "KEY := EXPRESSION, KEY ?= EXPRESSION, KEY ??= EXPRESSION, require KEY, \
                 refuse \"TEXT\" or note \"TEXT\"",
            )
        };
        let (rest, when) = split_word(line, "when");
        let (rest, unless) = split_word(rest, "unless");
        let condition = match (when, unless) {
            (None, None) => None,
            (Some(text), None) => Some((text, true)),
            (None, Some(text)) => Some((text, false)),
            (Some(_), Some(_)) => return Err(bad()),
        };
        let condition = condition.map(|(text, wanted)| {
            Ok(Condition { expression: Expression::of_table(text)?, wanted })
        });
        let kind = if let Some(texts) = rest.strip_prefix("refuse ") {
            StatementKind::Refuse(Refusal::parse(texts).ok_or_else(bad)??)
        } else if let Some(text) = rest.strip_prefix("note ") {
            let (text, rest) = quoted(text).ok_or_else(bad)?;
            if !rest.is_empty() {
                return Err(bad());
            }
            StatementKind::Note(Template::parse(text)?)
        } else if let Some(what) = rest.strip_prefix("require ") {
            let (key, list) = match what.split_once(" in ") {
                Some((key, list)) => {
                    let list = super::yaml::parse(list)?;
                    (key, Some(list.as_list().cloned().ok_or_else(bad)?))
                }
                None => (what, None),
            };
            StatementKind::Require(path(key).ok_or_else(bad)?, list)
        } else {
            StatementKind::Assign(Assignment::parse(rest).ok_or_else(bad)??)
        };
        Ok(Self { kind, condition: condition.transpose()? })
    }

    /// Returns the change that it makes, or the error of a refusal.
    pub(super) fn effect(&self, scope: &TableScope<'_>) -> Result<Option<Effect>> {
        if let Some(condition) = &self.condition
            && condition.expression.is_true(scope)? != condition.wanted
        {
            return Ok(None);
        }
        Ok(match &self.kind {
            StatementKind::Assign(assignment) if assignment.applies(scope) => {
                let value = assignment.value.value(scope)?;
                value.can_nest(assignment.path.len())?;
                Some(Effect::Set(assignment.path.clone(), value))
            }
            StatementKind::Assign(_) => None,
            StatementKind::Refuse(refusal) => return Err(refusal.error(scope)?),
            StatementKind::Note(text) => Some(Effect::Note(text.fill(scope)?)),
            StatementKind::Require(path, list) => {
                require(scope, path, list.as_ref())?;
                None
            }
        })
    }
}

impl Effect {
    /// Makes the change. In a rule, `value` is the key `other`.
    pub(super) fn apply(self, stage: Stage<'_>, target: &mut Target<'_>) -> Result<()> {
        match self {
            Self::Note(text) => target.notes.push(text),
            Self::Set(path, value) => match (stage, path.as_slice()) {
                (Stage::Rule { other, .. }, [name]) if name == "value" => {
                    target.config.set(other, value);
                }
                (_, [root, rest @ ..]) if root == "root" => put(target.sections, rest, value)?,
                (_, path) => put(target.config, path, value)?,
            },
        }
        Ok(())
    }
}

impl Assignment {
    fn parse(line: &str) -> Option<Result<Self>> {
        let signs = [
            (" ??= ", AssignMode::IfNull),
            (" ?= ", AssignMode::IfMissing),
            (" := ", AssignMode::Always),
        ];
        let ((key, value), mode) =
            signs.into_iter().find_map(|(sign, mode)| Some((line.split_once(sign)?, mode)))?;
        let path = path(key)?;
        Some(Expression::of_table(value).map(|value| Self { path, value, mode }))
    }

    /// Returns whether the key is to be set.
    fn applies(&self, scope: &TableScope<'_>) -> bool {
        let current = scope.target(&self.path);
        match self.mode {
            AssignMode::Always => true,
            AssignMode::IfMissing => current.is_none(),
            AssignMode::IfNull => current.is_none_or(Value::is_null),
        }
    }
}

impl Refusal {
    fn parse(texts: &str) -> Option<Result<Self>> {
        let (what, mut rest) = quoted(texts)?;
        let mut further = |word: &str| {
            let Some(text) = rest.strip_prefix(word) else { return Some(None) };
            let (text, after) = quoted(text.trim_start())?;
            rest = after;
            Some(Some(text))
        };
        let (expected, advice) = (further("expected")?, further("advice")?);
        let template = |text: Option<&str>| text.map(Template::parse).transpose();
        let all = || {
            Ok(Self {
                what: Template::parse(what)?,
                expected: template(expected)?,
                advice: template(advice)?,
            })
        };
        rest.is_empty().then(all)
    }

    fn error(&self, scope: &TableScope<'_>) -> Result<Error> {
        let mut error = Error::refused(self.what.fill(scope)?);
        if let Some(text) = &self.expected {
            error = error.expected(text.fill(scope)?);
        }
        if let Some(text) = &self.advice {
            error = error.advice(text.fill(scope)?);
        }
        Ok(error)
    }
}

impl Template {
    fn parse(text: &str) -> Result<Self> {
        let mut values = Vec::new();
        let mut rest = text;
        while let Some((plain, after)) = rest.split_once('{') {
            let (value, after) = after.split_once('}').ok_or_else(|| {
                Error::damaged(format!("\"{text}\" has an expression without a closing brace"))
            })?;
            values.push((plain.to_owned(), Expression::of_table(value)?));
            rest = after;
        }
        Ok(Self { values, end: rest.to_owned() })
    }

    fn fill(&self, scope: &TableScope<'_>) -> Result<String> {
        let mut text = String::new();
        for (plain, expression) in &self.values {
            text.push_str(plain);
            text.push_str(&expression.value(scope)?.quoted());
        }
        text.push_str(&self.end);
        Ok(text)
    }
}

/// Returns the path of a key such as `optimizer.decoder_kernel`.
fn path(key: &str) -> Option<Vec<String>> {
    let path: Vec<String> = key.trim().split('.').map(str::to_owned).collect();
    let plain = |step: &String| !step.is_empty() && !step.contains(char::is_whitespace);
    path.iter().all(plain).then_some(path)
}

/// Returns the text in quotes at the start, and what follows.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let (quoted, rest) = text.strip_prefix('"')?.split_once('"')?;
    Some((quoted, rest.trim()))
}

fn require(scope: &TableScope<'_>, path: &[String], list: Option<&List>) -> Result<()> {
    let name = path.join(".");
    let value = scope.key(path).filter(|value| !value.is_null()).ok_or_else(|| {
        Error::refused(format!("{name} is not in the config"))
            .advice("Add it: the other side needs its value.")
    })?;
    match list {
        Some(list) if !list.iter().any(|one| one.equals(value)) => {
            let known: Vec<String> = list.iter().map(Value::quoted).collect();
            Err(unfit(&name, value, known.join(", ")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Language, parse};
    use crate::side::Side;

    fn run(line: &str) -> Result<String> {
        let config = parse(
            r#"{"hidden": 16, "heads": 0, "act": "relu", "moe": {"k": 2}, "none": null}"#,
            Language::Json,
        )?;
        let old = config.as_map().cloned().unwrap_or_default();
        let mut new = Map::new();
        let (mut sections, mut notes) = (Map::new(), Vec::new());
        let value = Value::Int(3);
        let stage = Stage::Rule { key: "layers", other: "depth", value: &value };
        let scope = TableScope { stage, from: Side::Left, root: &old, old: &old, new: &new };
        if let Some(effect) = Statement::parse(line)?.effect(&scope)? {
            let (config, sections, notes) = (&mut new, &mut sections, &mut notes);
            effect.apply(stage, &mut Target { config, sections, notes })?;
        }
        new.set("root", sections);
        Ok(format!("{}{}", Value::Map(new).to_json().replace([' ', '\n'], ""), notes.join(" ")))
    }

    #[test]
    fn changes_the_target() {
        for (line, expected) in [
            ("value := value + 1", r#"{"depth":4,"root":{}}"#),
            ("a.b := moe.k", r#"{"a":{"b":2},"root":{}}"#),
            ("root.optimizer.rate := hf.hidden", r#"{"root":{"optimizer":{"rate":16}}}"#),
            ("width ?= hidden when act in [\"relu\"]", r#"{"width":16,"root":{}}"#),
            ("width := hidden unless act", r#"{"root":{}}"#),
            ("note \"{act} when {value}\" when none is null", r#"{"root":{}}relu when 3"#),
            ("refuse \"no\" when value is \"when\"", r#"{"root":{}}"#),
            ("require act in [relu, gelu]", r#"{"root":{}}"#),
        ] {
            assert_eq!(run(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn refuses_configs() {
        for (line, expected) in [
            ("value := value / heads", "heads is 0"),
            ("value := value.rope", "no key layers.rope"),
            ("value := float(hidden) / heads", "heads is 0"),
            ("value := sqrt(-1 * hidden)", "0 or more"),
            ("require none", "none is not in the config"),
            ("require act in [gelu]", "act is relu"),
            ("refuse \"{value} layers\" expected \"{moe.k}\" unless value < 2", "3 layers"),
            ("refuse \"a\" expected \"b\" advice \"Do c.\"", "expected b"),
        ] {
            let error = run(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn names_invalid_statements() {
        for line in ["", "a", "a b := 1", "refuse", "refuse a", "refuse \"a\" b", "do x", "a := "] {
            assert!(Statement::parse(line).is_err(), "{line}");
        }
    }
}
