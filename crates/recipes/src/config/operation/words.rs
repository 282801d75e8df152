//! Words with the same meaning on both sides.

use statelens_checkpoint::{Error, Result};

use super::Site;
use crate::config::side::Side;
use crate::config::value::Value;
use crate::config::yaml;

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

/// Converts `gated-silu` on the left to `swiglu` on the right, for encoder and decoder. Activations
/// without a gate are the same on both sides.
pub(super) fn t5_activation(site: &mut Site<'_>) -> Result<()> {
    const GATED: [(&str, &str); 3] = [("silu", "swiglu"), ("relu", "reglu"), ("gelu", "geglu")];
    let text = site.value.as_str().unwrap_or_default();
    let unknown = || {
        Error::refused(format!(
            "{} is {}, which the other side doesn't have",
            site.key,
            site.value.quoted()
        ))
        .expected("relu, gelu or another plain one, or silu, relu or gelu gated")
    };
    if site.value.as_str().is_none() {
        return Err(unknown());
    }
    let word = match site.from {
        Side::Left => match text.strip_prefix("gated-") {
            None => text.to_owned(),
            Some(plain) => {
                let found = GATED.iter().find(|(left, _)| *left == plain).ok_or_else(unknown)?;
                found.1.to_owned()
            }
        },
        Side::Right => {
            let plain = text.strip_prefix("gated-").unwrap_or(text);
            if plain.ends_with("glu") {
                let found = GATED.iter().find(|(_, right)| *right == plain).ok_or_else(unknown)?;
                format!("gated-{}", found.0)
            } else {
                plain.to_owned()
            }
        }
    };
    if site.from == Side::Left {
        site.new.set("decoder_nonlinearity", word.as_str());
    }
    site.set(word);
    Ok(())
}
