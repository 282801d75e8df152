//! The tensors of a module that make up a quantised weight.

use std::collections::HashMap;

use serde::Serialize;
use statelens_checkpoint::{Dequantised, Error, FileSet, Result, Tensor, Text, ValueId};

use crate::settings::Settings;

/// A weight that is stored as codes and scales.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QuantisedWeight {
    /// The flat key of the weight.
    pub key: String,
    /// The scheme for display: `GPTQ, 4 bits`, `Q4_K`.
    pub scheme: String,
    /// The flat keys of the tensors that it is stored as, the codes first.
    pub parts: Vec<String>,
    /// Settings inferred from shapes, because the config lacks them.
    pub inferred: Vec<String>,
    /// Whether its values are indices into a codebook, because its numbers are not known.
    #[serde(skip)]
    pub are_indices: bool,
    /// Why its values are not known.
    #[serde(skip)]
    pub refused: Option<Error>,
}

/// Returns whether two checkpoints are compared by the numbers of their weights: if either has weights
/// that are stored as several tensors, which only have a meaning together. Not if one scheme's settings
/// are known on one side only, since equal parts would then have other numbers.
pub fn compared_by_numbers(one: &[QuantisedWeight], other: &[QuantisedWeight]) -> bool {
    let is_set = |weight: &&QuantisedWeight| {
        weight.parts.len() > 1 && weight.refused.is_none() && !weight.are_indices
    };
    let by_key: HashMap<&str, &QuantisedWeight> =
        other.iter().map(|weight| (weight.key.as_str(), weight)).collect();
    let unclear = |weight: &QuantisedWeight| {
        by_key
            .get(weight.key.as_str())
            .is_some_and(|other| weight.parts == other.parts && weight.inferred != other.inferred)
    };
    one.iter().chain(other).any(|weight| is_set(&weight)) && !one.iter().any(unclear)
}

/// A tensor of a dict, with its name there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SetPart<'a> {
    pub(crate) name: &'a str,
    pub(crate) id: ValueId,
    pub(crate) tensor: &'a Tensor,
}

/// The tensors of a module, by the last step of their names, in lower case.
pub(crate) struct Set<'a> {
    pub(crate) files: &'a FileSet,
    pub(crate) settings: &'a Settings,
    /// The attributes of the root: the metadata of a safetensors file.
    pub(crate) attributes: &'a [(Text, Text)],
    /// The name of the module, empty for the dict itself.
    pub(crate) module: &'a str,
    pub(crate) parts: HashMap<String, SetPart<'a>>,
}

/// A weight that is stored as several tensors.
pub(crate) struct Found<'a> {
    /// The name of the weight in the dict.
    pub(crate) name: String,
    /// The scheme for display: `GPTQ, 4 bits`.
    pub(crate) scheme: String,
    pub(crate) codes: SetPart<'a>,
    /// The other tensors that belong to it.
    pub(crate) helpers: Vec<SetPart<'a>>,
    pub(crate) made: Result<Made>,
}

/// A weight whose parts fit together.
pub(crate) struct Made {
    pub(crate) of: Dequantised,
    pub(crate) shape: Vec<u64>,
    /// Settings inferred from shapes, because the config lacks them.
    pub(crate) inferred: Vec<String>,
}

/// Largest stored text or shape that is read when weights are recognised, in bytes.
const MAX_SMALL: u64 = 64 << 10;

impl<'a> Set<'a> {
    pub(crate) fn get(&self, name: &str) -> Option<SetPart<'a>> {
        self.parts.get(name).copied()
    }

    /// Returns a part, or the error that it is missing.
    pub(crate) fn need(&self, name: &str) -> Result<&'a Tensor> {
        self.get(name).map(|part| part.tensor).ok_or_else(|| {
            let key = self.key(name);
            Error::damaged(format!("`{key}` is missing"))
                .advice("Without it, the values of the codes are not known.")
        })
    }

    /// Returns the name in the dict of a part of the module.
    pub(crate) fn key(&self, name: &str) -> String {
        match self.module {
            "" => name.to_owned(),
            module => format!("{module}.{name}"),
        }
    }

    /// Returns the parts with these names.
    pub(crate) fn helpers(&self, names: &[&str]) -> Vec<SetPart<'a>> {
        names.iter().filter_map(|name| self.get(name)).collect()
    }

    /// Reads all elements of a small tensor.
    pub(crate) fn read(&self, tensor: &Tensor) -> Result<Vec<u8>> {
        let numel = tensor.numel().unwrap_or(u64::MAX);
        match tensor.nbytes() {
            Some(bytes) if bytes <= MAX_SMALL => {
                statelens_tensor::elements(self.files, tensor, 0..numel)
            }
            _ => Err(Error::damaged("a description of a quantised weight is too large")),
        }
    }
}

/// Fails because a shape contradicts another one.
pub(crate) fn contradicts(what: &str, shape: &[u64], expected: impl Into<String>) -> Error {
    Error::damaged(format!("{what} of shape {shape:?}")).expected(expected.into())
}

/// Returns the quotient if the division is exact.
pub(crate) fn quotient(all: u64, each: u64) -> Option<u64> {
    (each > 0 && all.is_multiple_of(each)).then(|| all / each)
}
