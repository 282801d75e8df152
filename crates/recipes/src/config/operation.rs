//! Operations of rules that many tables share. What one family needs are statements in its table.

mod attention;
mod positions;
mod words;

use statelens_checkpoint::{Error, Result};

use crate::side::Side;
use crate::value::{Map, Value, unfit};
use words::Words;

/// The operation of a rule, which follows `by`.
#[derive(Debug, Clone)]
pub(super) enum ConfigOperation {
    /// `words A B, C D[, others kept]`: A on the left is B on the right.
    Words(Words),
    /// `rope_scaling TYPE…`: a section on the left is three keys on the right.
    RopeScaling(Vec<String>),
    /// `kv_heads`: the number of heads of keys and values, which may be equal to that of queries,
    /// is a number of groups on the right.
    KvHeads,
}

/// The value that an operation converts, and its configs.
pub(super) struct Site<'a> {
    pub(super) from: Side,
    pub(super) key: &'a str,
    pub(super) other: &'a str,
    pub(super) value: &'a Value,
    pub(super) old: &'a Map,
    pub(super) new: &'a mut Map,
}

impl ConfigOperation {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
        match name {
            "words" => Ok(Self::Words(Words::parse(rest)?)),
            "rope_scaling" => {
                Ok(Self::RopeScaling(rest.split_whitespace().map(str::to_owned).collect()))
            }
            "kv_heads" if rest.is_empty() => Ok(Self::KvHeads),
            _ => Err(Error::damaged(format!("\"{text}\" is not an operation"))
                .expected("words, rope_scaling or kv_heads")),
        }
    }

    pub(super) fn apply(&self, site: &mut Site<'_>) -> Result<()> {
        match self {
            Self::Words(words) => {
                let word = words.translate(site.key, site.from, site.value)?;
                site.set(word);
                Ok(())
            }
            Self::RopeScaling(types) => positions::rope_scaling(site, types),
            Self::KvHeads => attention::kv_heads(site),
        }
    }
}

impl Site<'_> {
    /// Sets the key on the other side.
    fn set(&mut self, value: impl Into<Value>) {
        self.new.set(self.other, value);
    }

    /// Returns the error for a value that can't be converted.
    fn unfit(&self, expected: impl Into<String>) -> Error {
        unfit(self.key, self.value, expected)
    }

    /// Returns the value as a dict.
    fn section(&self) -> Result<&Map> {
        self.value.as_map().ok_or_else(|| self.unfit("a section of keys"))
    }
}
