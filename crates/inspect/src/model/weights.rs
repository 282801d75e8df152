//! The tensors of the model, taken from what else a checkpoint holds: keys taken apart, tied ones told,
//! packed ones as what they stand for.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::FileId;

use super::config::Config;
use super::key::Parsed;
use super::packed::{self, Quantised};
use super::roles::{self, ModelComponent, Role};
use crate::entry::LeafSummary;
use crate::summary::MODELS;
use crate::weights::is_moment;

/// A tensor of the model.
#[derive(Debug, Clone)]
pub(super) struct Weight {
    /// Its key, as the user knows it.
    pub(super) key: String,
    pub(super) parsed: Parsed,
    /// The shape of what it stands for.
    pub(super) shape: Vec<u64>,
    /// How many numbers it stands for; none of scales and of what is another key of the same.
    pub(super) params: u64,
    /// What it takes in the file; nothing for another key of the same.
    pub(super) bytes: u64,
    pub(super) component: ModelComponent,
    pub(super) role: Role,
    /// The key of which it is another one.
    pub(super) tied: Option<String>,
}

/// The tensors of the model.
#[derive(Debug, Default)]
pub(super) struct Weights {
    pub(super) all: Vec<Weight>,
    pub(super) quantised: Vec<Quantised>,
}

impl Weights {
    /// `state` is the state that is the model, where that is known; `places` tells of each entry
    /// where its bytes begin, where that is known: those of tied tensors begin at the same one.
    pub(super) fn new(
        entries: &[LeafSummary],
        places: &[Option<(FileId, u64)>],
        state: Option<&str>,
        config: Option<&Config>,
    ) -> Self {
        let own = Own::of(entries, state);
        let mut owners: HashMap<(FileId, u64, u64), &str> = HashMap::new();
        let mut all = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            let Some(key) = own.key(entry) else { continue };
            let shared = places.get(at).copied().flatten().and_then(|(file, offset)| {
                let owner = *owners.entry((file, offset, entry.bytes)).or_insert(&entry.key);
                (owner != entry.key).then(|| owner.to_owned())
            });
            let tied = entry.link.clone().or(shared);
            all.push(packed::StoredTensor { entry, parsed: Parsed::new(key), tied });
        }
        let (unpacked, quantised) = packed::unpack(all, config);
        let mut all: Vec<Weight> = unpacked.into_iter().map(weight).collect();
        of_batch_norms(&mut all);
        Self { all, quantised }
    }

    /// Those of a role.
    pub(super) fn of(&self, role: Role) -> impl Iterator<Item = &Weight> {
        self.all.iter().filter(move |weight| weight.role == role)
    }
}

fn weight(unpacked: packed::Unpacked<'_>) -> Weight {
    let packed::Unpacked { stored, shape, params, trained, helper } = unpacked;
    let packed::StoredTensor { entry, parsed, tied } = stored;
    let (part, role) = roles::of(&parsed, shape.len(), trained);
    // A scale is no matrix of its part.
    let role = if helper { Role::Any } else { role };
    let (params, bytes) = match tied {
        Some(_) => (0, 0),
        None => (params, entry.bytes),
    };
    Weight { key: entry.key.clone(), parsed, shape, params, bytes, component: part, role, tied }
}

/// What stands beside a running mean is of a norm, whatever it is called.
fn of_batch_norms(all: &mut [Weight]) {
    let is_mean = |weight: &&Weight| matches!(&*weight.parsed.leaf, "running_mean" | "moving_mean");
    let norms: HashSet<Vec<String>> =
        all.iter().filter(is_mean).map(|weight| weight.parsed.modules.clone()).collect();
    for weight in all.iter_mut().filter(|weight| weight.component != ModelComponent::Buffers) {
        if norms.contains(&weight.parsed.modules) {
            (weight.component, weight.role) = (ModelComponent::Norm, Role::Norm);
        }
    }
}

/// Which entries are the model's own.
struct Own<'a> {
    state: Option<&'a str>,
    /// What all of its keys begin with and says nothing.
    wrapper: String,
}

/// What wraps a model and is no part of it.
const WRAPPERS: [&str; 6] =
    ["module", "_orig_mod", "_forward_module", "model", "params", "base_model"];

impl<'a> Own<'a> {
    fn of(entries: &[LeafSummary], state: Option<&'a str>) -> Self {
        let mut own = Self { state, wrapper: String::new() };
        // Where only one of the states has tensors, what is in it is looked at by its own names.
        for _ in 0..WRAPPERS.len() {
            let mut keys = entries.iter().filter_map(|entry| own.key(entry));
            let Some(first) = keys.next().and_then(|key| key.split_once('.')) else { break };
            let first = first.0;
            let known = WRAPPERS.contains(&first) || MODELS.contains(&first);
            let in_it =
                |key: &str| key.strip_prefix(first).is_some_and(|rest| rest.starts_with('.'));
            if !known || !keys.all(in_it) {
                break;
            }
            own.wrapper = format!("{}{first}.", own.wrapper);
        }
        own
    }

    /// The key within the model, if the entry is a tensor of it.
    fn key<'k>(&self, entry: &'k LeafSummary) -> Option<&'k str> {
        if !entry.is_tensor() || is_of_training(&entry.key) {
            return None;
        }
        let key = match self.state {
            Some(state) => entry.key.strip_prefix(state)?.strip_prefix('.')?,
            None => &entry.key,
        };
        key.strip_prefix(&*self.wrapper)
    }
}

/// Whether a key is of an optimizer or of what else only training needs.
fn is_of_training(key: &str) -> bool {
    let first = key.split(['.', '/']).next().unwrap_or_default();
    let last = key.rsplit(['.', '/']).next().unwrap_or_default();
    let first = first.to_ascii_lowercase();
    first.starts_with("optim")
        || first.starts_with("__")
        || matches!(&*first, "metadata" | "ema" | "grad_scaler" | "lr_scheduler" | "rng_state")
        || is_moment(last) && key.contains("state")
}
