//! The scope of expressions in a table.

use statelens_checkpoint::Result;

use super::section::missing;
use crate::expression::Scope;
use crate::side::Side;
use crate::value::{Map, Value};

/// The configs that a line of a table reads.
pub(super) struct TableScope<'a> {
    pub(super) stage: Stage<'a>,
    /// The side of the source.
    pub(super) from: Side,
    /// The whole source config, which has more sections than the model's.
    pub(super) root: &'a Map,
    /// The model's section of the source, with defaults.
    pub(super) old: &'a Map,
    /// The model's section of the target.
    pub(super) new: &'a Map,
}

/// The place of a line in its table.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage<'a> {
    /// Before the rules. Names are keys of the source, which is changed.
    Prepare,
    /// In a rule. Names are keys of the source; `value` is the rule's own.
    Rule { key: &'a str, other: &'a str, value: &'a Value },
    /// After the rules. Names are keys of the target or else of the source.
    Finish,
}

impl<'a> TableScope<'a> {
    /// Returns the scope of a condition on one config.
    pub(super) fn of(config: &'a Map) -> Self {
        let stage = Stage::Prepare;
        Self { stage, from: Side::Left, root: config, old: config, new: config }
    }

    /// Returns the value at a path in the config that a statement changes.
    pub(super) fn target(&self, path: &[String]) -> Option<&Value> {
        let config = if matches!(self.stage, Stage::Prepare) { self.old } else { self.new };
        at(config, path)
    }
}

impl Scope for TableScope<'_> {
    fn config(&self, side: Side, path: &[String]) -> Option<&Value> {
        at(if side == self.from { self.old } else { self.new }, path)
    }

    fn key(&self, path: &[String]) -> Option<&Value> {
        match (self.stage, path) {
            (Stage::Rule { value, .. }, [name, rest @ ..]) if name == "value" => value.at(rest),
            (_, [name, rest @ ..]) if name == "root" => at(self.root, rest),
            (Stage::Finish, _) => at(self.new, path).or_else(|| at(self.old, path)),
            _ => at(self.old, path),
        }
    }

    fn label(&self, path: &[String]) -> String {
        match (self.stage, path) {
            (Stage::Rule { key, .. }, [name, rest @ ..]) if name == "value" => {
                let steps: Vec<&str> =
                    std::iter::once(key).chain(rest.iter().map(String::as_str)).collect();
                steps.join(".")
            }
            (_, [name, rest @ ..]) if name == "root" => rest.join("."),
            _ => path.join("."),
        }
    }

    fn missing(&self, label: &str) -> Result<()> {
        Err(missing(label))
    }

    fn has(&self, key: &str) -> bool {
        self.key(&key.split('.').map(str::to_owned).collect::<Vec<_>>()).is_some()
    }
}

fn at<'a>(config: &'a Map, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    config.get(first)?.at(rest)
}
