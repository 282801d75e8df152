//! The quantised weights of an open checkpoint.

use std::collections::HashMap;

use statelens_quantised::QuantisedWeight;

/// The quantised weights of a checkpoint, by key.
#[derive(Debug, Default)]
pub(crate) struct QuantisedWeights {
    pub(crate) all: Vec<QuantisedWeight>,
    by_key: HashMap<String, usize>,
}

impl QuantisedWeights {
    pub(crate) fn new(all: Vec<QuantisedWeight>) -> Self {
        let by_key = all.iter().enumerate().map(|(at, weight)| (weight.key.clone(), at)).collect();
        Self { all, by_key }
    }

    /// Returns the number of weights whose numbers are known.
    pub(crate) fn count(&self) -> u64 {
        self.all.iter().filter(|weight| weight.refused.is_none() && !weight.are_indices).count()
            as u64
    }

    pub(crate) fn get(&self, key: &str) -> Option<&QuantisedWeight> {
        self.by_key.get(key).and_then(|at| self.all.get(*at))
    }

    /// Returns the keys of the tensors that a weight is stored as; the key itself if it is not
    /// quantised.
    pub(crate) fn stored_keys(&self, key: &str) -> Vec<String> {
        let weight = self.get(key).filter(|weight| weight.refused.is_none());
        weight.map_or_else(|| vec![key.to_owned()], |weight| weight.parts.clone())
    }
}
