//! Words with the same meaning on both sides.

use statelens_checkpoint::{Error, Result};

use crate::config::yaml;
use crate::side::Side;
use crate::value::Value;

/// Pairs of words.
#[derive(Debug, Clone)]
pub(in crate::config) struct Words {
    pairs: Vec<(Value, Value)>,
    /// Whether other words stay unchanged.
    others: bool,
}

impl Words {
    /// Parses `A B, C D[, others kept]`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut words = Self { pairs: Vec::new(), others: false };
        for pair in text.split(", ") {
            if pair == "others kept" {
                words.others = true;
                continue;
            }
            let (left, right) = pair
                .split_once(' ')
                .ok_or_else(|| Error::damaged(format!("\"{pair}\" is not a pair of words")))?;
            words.pairs.push((yaml::parse(left)?, yaml::parse(right)?));
        }
        Ok(words)
    }

    pub(super) fn translate(&self, key: &str, from: Side, value: &Value) -> Result<Value> {
        let pairs = || {
            self.pairs.iter().map(|(left, right)| match from {
                Side::Left => (left, right),
                Side::Right => (right, left),
            })
        };
        let found = pairs().find(|(here, _)| here.equals(value)).or_else(|| {
            // Flags are compared by their truth value in Python.
            let flags =
                self.pairs.len() == 2 && pairs().all(|(here, _)| matches!(here, Value::Bool(_)));
            pairs().find(|(here, _)| flags && here.is_true() == value.is_true())
        });
        match found {
            Some((_, there)) => Ok(there.clone()),
            None if self.others => Ok(value.clone()),
            None => {
                let known: Vec<String> = pairs().map(|(here, _)| here.quoted()).collect();
                Err(Error::refused(format!(
                    "{key} is {}, which the other side doesn't have",
                    value.quoted()
                ))
                .expected(known.join(", ")))
            }
        }
    }
}
