//! One line of a table: a key of each side, and what happens to the value.

use statelens_checkpoint::{Error, Result};

use super::operation::ConfigOperation;
use super::scope::TableScope;
use super::statement::Statement;
use super::yaml;
use crate::expression::Expression;
use crate::side::Side;
use crate::value::{Map, Value};

#[derive(Debug, Clone)]
pub(super) struct ConfigRule {
    left: KeyMatch,
    right: KeyMatch,
    pub(super) action: Action,
}

#[derive(Debug, Clone)]
pub(super) enum Action {
    Copy,
    Drop,
    Must(Must),
    By(ConfigOperation),
    /// Statements for each source, left and right.
    Run([Vec<Statement>; 2]),
}

/// The required values on one side or both. If it names a side, the other side must not have the
/// key.
#[derive(Debug, Clone)]
pub(super) struct Must {
    pub(super) side: Option<Side>,
    pub(super) one_of: Vec<RequiredValue>,
    pub(super) when: Option<Expression>,
}

#[derive(Debug, Clone)]
pub(super) enum RequiredValue {
    Value(Value),
    Computed(Expression),
}

#[derive(Debug, Clone)]
enum KeyMatch {
    Never,
    Name(String),
    Prefix(String),
}

impl ConfigRule {
    /// Parses a line such as `n_embd = hidden_size` or `cs norm_type must be "layernorm"`.
    pub(super) fn parse(line: &str) -> Result<Self> {
        let bad = || {
            Error::damaged(format!("\"{line}\" is not a rule"))
                .expected("KEY, KEY = KEY, one of these and `dropped` or `by OPERATION`, or SIDE KEY must be VALUE")
        };
        if line == "* copied" {
            let any = || KeyMatch::Prefix(String::new());
            return Ok(Self { left: any(), right: any(), action: Action::Copy });
        }
        let (side, rest) = match line.split_once(' ') {
            Some((word, rest)) if Side::named(word).is_some() || word == "both" => {
                (Some(Side::named(word)), rest)
            }
            _ => (None, line),
        };
        if let Some((key, wanted)) = rest.split_once(" must be ") {
            let must = Must::parse(side.ok_or_else(bad)?, wanted)?;
            let name = || KeyMatch::parse(key);
            return Ok(Self { left: name()?, right: name()?, action: Action::Must(must) });
        }
        let (keys, action) = if let Some(keys) = rest.strip_suffix(" dropped") {
            (keys, Action::Drop)
        } else if let Some((keys, operation)) = rest.split_once(" by ") {
            (keys, Action::By(ConfigOperation::parse(operation)?))
        } else {
            (rest, Action::Copy)
        };
        let (left, right) = keys.split_once(" = ").unwrap_or((keys, keys));
        let (mut left, mut right) = (KeyMatch::parse(left)?, KeyMatch::parse(right)?);
        match side {
            None | Some(None) => {}
            Some(Some(Side::Left)) => right = KeyMatch::Never,
            Some(Some(Side::Right)) => left = KeyMatch::Never,
        }
        Ok(Self { left, right, action })
    }

    /// Parses a rule with statements for each source, such as `{hf: …, cs: …}` or `{both: …}`.
    pub(super) fn with_statements(keys: &str, sides: &Value) -> Result<Self> {
        let bad = || {
            Error::damaged(format!("the statements of \"{keys}\" are not known"))
                .expected("hf, cs, old, new or both, each with a statement or a list of them")
        };
        let mut run = [Vec::new(), Vec::new()];
        for (side, lines) in sides.as_map().ok_or_else(bad)?.iter() {
            let side = side.as_str().ok_or_else(bad)?;
            let lines = match lines {
                Value::List(list) => list.as_slice(),
                one => std::slice::from_ref(one),
            };
            let parse = |line: &Value| Statement::parse(line.as_str().ok_or_else(bad)?);
            let statements = lines.iter().map(parse).collect::<Result<Vec<_>>>()?;
            match (side, Side::named(side)) {
                ("both", _) => run = [statements.clone(), statements],
                (_, Some(side)) => run[side as usize] = statements,
                _ => return Err(bad()),
            }
        }
        Ok(Self { action: Action::Run(run), ..Self::parse(keys)? })
    }

    /// Returns the other side's key, if this rule matches the key.
    pub(super) fn matches(&self, from: Side, key: &str) -> Option<String> {
        let (here, there) = match from {
            Side::Left => (&self.left, &self.right),
            Side::Right => (&self.right, &self.left),
        };
        let hit = match here {
            KeyMatch::Never => false,
            KeyMatch::Name(name) => name == key,
            KeyMatch::Prefix(prefix) => key.starts_with(prefix.as_str()),
        };
        hit.then(|| match there {
            KeyMatch::Name(name) => name.clone(),
            KeyMatch::Never | KeyMatch::Prefix(_) => key.to_owned(),
        })
    }

    /// Returns whether the rule requires exactly this value.
    pub(super) fn requires(&self, value: &Value) -> bool {
        let Action::Must(must) = &self.action else { return false };
        must.one_of
            .iter()
            .any(|wanted| matches!(wanted, RequiredValue::Value(wanted) if wanted.equals(value)))
    }
}

impl Must {
    fn parse(side: Option<Side>, text: &str) -> Result<Self> {
        let (text, when) = match text.split_once(" when ") {
            Some((text, when)) => (text, Some(Expression::of_table(when)?)),
            None => (text, None),
        };
        let one_of = if let Some(list) = text.strip_prefix("one of ") {
            let list = yaml::parse(list)?;
            let list = list.as_list().ok_or_else(|| Error::damaged("`one of` needs a list"))?;
            list.iter().cloned().map(RequiredValue::Value).collect()
        } else {
            let (text, null) = match text.strip_suffix(" or null") {
                Some(text) => (text, true),
                None => (text, false),
            };
            let computed = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
            let wanted = match computed {
                Some(text) => RequiredValue::Computed(Expression::of_table(text)?),
                None => RequiredValue::Value(yaml::parse(text)?),
            };
            let null = null.then_some(RequiredValue::Value(Value::Null));
            std::iter::once(wanted).chain(null).collect()
        };
        Ok(Self { side, one_of, when })
    }

    /// Checks the value of a key on the source side.
    pub(super) fn check(&self, from: Side, config: &Map, key: &str, value: &Value) -> Result<()> {
        if self.side.is_some_and(|side| side != from) {
            return Err(Error::refused(format!(
                "the config has the key {key}, which belongs to the other side"
            ))
            .advice("Remove it, or check which format the config is in."));
        }
        let scope = &TableScope::of(config);
        if let Some(when) = &self.when
            && !when.is_true(scope)?
        {
            return Ok(());
        }
        let mut wanted = Vec::new();
        for one in &self.one_of {
            let (expected, name) = match one {
                RequiredValue::Value(value) => (value.clone(), value.quoted()),
                RequiredValue::Computed(expression) => {
                    let value = expression.value(scope)?;
                    let name = format!("{expression} ({})", value.quoted());
                    (value, name)
                }
            };
            if value.equals(&expected) {
                return Ok(());
            }
            wanted.push(name);
        }
        Err(Error::refused(format!("{key} is {}, which can't be converted", value.quoted()))
            .expected(wanted.join(" or ")))
    }
}

impl KeyMatch {
    fn parse(text: &str) -> Result<Self> {
        if text.is_empty() || text.contains(' ') {
            return Err(Error::damaged(format!("\"{text}\" is not a key")));
        }
        Ok(match text.strip_suffix('*') {
            Some(prefix) => Self::Prefix(prefix.to_owned()),
            None => Self::Name(text.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_keys_of_either_side() {
        let rule = ConfigRule::parse("n_embd = hidden_size").unwrap();
        assert_eq!(rule.matches(Side::Left, "n_embd").as_deref(), Some("hidden_size"));
        assert_eq!(rule.matches(Side::Right, "hidden_size").as_deref(), Some("n_embd"));
        assert_eq!(rule.matches(Side::Right, "n_embd"), None);
        let rule = ConfigRule::parse("cs pos_scaling_type dropped").unwrap();
        assert_eq!(rule.matches(Side::Left, "pos_scaling_type"), None);
        assert!(rule.matches(Side::Right, "pos_scaling_type").is_some());
        let rule = ConfigRule::parse("* copied").unwrap();
        assert_eq!(rule.matches(Side::Left, "any").as_deref(), Some("any"));
    }

    #[test]
    fn checks_required_values() {
        let mut config = Map::new();
        config.set("hidden_size", 8);
        config.set("num_heads", 4);
        let check = |line: &str, from, value: Value| {
            let rule = ConfigRule::parse(line).unwrap();
            let Action::Must(must) = rule.action else { panic!("{line}") };
            must.check(from, &config, "key", &value)
        };
        let line = "cs key must be (hidden_size // num_heads)";
        assert!(check(line, Side::Right, Value::Int(2)).is_ok());
        let error = check(line, Side::Right, Value::Int(3)).unwrap_err().to_string();
        assert!(
            error.contains("key is 3") && error.contains("hidden_size // num_heads (2)"),
            "{error}"
        );
        assert!(check(line, Side::Left, Value::Int(2)).is_err());
        let line = "both key must be one of [null, 0.0]";
        assert!(check(line, Side::Left, Value::Int(0)).is_ok());
        assert!(check(line, Side::Left, Value::Float(0.5)).is_err());
        let line = "cs key must be 1 when other is \"x\"";
        assert!(check(line, Side::Right, Value::Int(5)).is_ok());
    }

    #[test]
    fn names_invalid_rules() {
        for line in ["", "a b", "key must be 1", "a = b = c d", "a by nothing", "a by words"] {
            let error = ConfigRule::parse(line).unwrap_err().to_string();
            assert!(error.contains('"'), "{line}: {error}");
        }
    }
}
