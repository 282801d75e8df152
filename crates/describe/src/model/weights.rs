//! Selects the tensors of the model from the entries of a checkpoint, with parsed keys, ties, and
//! packed tensors in their unpacked shapes.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::FileId;
use statelens_values::weights::is_moment;

use super::config::Config;
use super::key::Parsed;
use super::packed::{self, Quantised};
use super::roles::{self, ModelComponent, Role};
use crate::entry::LeafSummary;
use crate::summary::MODELS;

/// A tensor of the model.
#[derive(Debug, Clone)]
pub(super) struct Weight {
    /// The full key.
    pub(super) key: String,
    pub(super) parsed: Parsed,
    /// The unpacked shape.
    pub(super) shape: Vec<u64>,
    /// Number of parameters; 0 for scales and for tied tensors.
    pub(super) params: u64,
    /// Number of bytes in the file; 0 for tied tensors.
    pub(super) bytes: u64,
    pub(super) component: ModelComponent,
    pub(super) role: Role,
    /// The key of the tensor that it is tied to.
    pub(super) tied: Option<String>,
}

/// The tensors of the model.
#[derive(Debug, Default)]
pub(super) struct Weights {
    pub(super) all: Vec<Weight>,
    pub(super) quantised: Vec<Quantised>,
}

impl Weights {
    /// Selects the tensors. `state` is the state that is the model, if known; `places` has the
    /// location of each entry's bytes, if known: that of tied tensors is the same.
    pub(super) fn new(
        entries: &[LeafSummary],
        places: &[Option<(FileId, u64)>],
        state: Option<&str>,
        config: Option<&Config>,
    ) -> Self {
        let own = Own::of(entries, state);
        let mut owners: HashMap<(FileId, u64, u64), &str> = HashMap::new();
        let mut linked: HashMap<&str, &str> = HashMap::new();
        let mut all = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            let Some(key) = own.key(entry) else { continue };
            let shared = places.get(at).copied().flatten().and_then(|(file, offset)| {
                let owner = *owners.entry((file, offset, entry.bytes)).or_insert(&entry.key);
                (owner != entry.key).then(|| owner.to_owned())
            });
            // A tensor that is a link out of the model, such as into an optimizer before it, is
            // counted at its first key in the model.
            let link = entry.link.as_deref().and_then(|target| match own.within(target) {
                Some(_) => Some(target.to_owned()),
                None => {
                    let owner = *linked.entry(target).or_insert(&entry.key);
                    (owner != entry.key).then(|| owner.to_owned())
                }
            });
            let tied = link.or(shared);
            all.push(packed::StoredTensor { entry, parsed: Parsed::new(key), tied });
        }
        let (unpacked, quantised) = packed::unpack(all, config);
        let mut all: Vec<Weight> = unpacked.into_iter().map(weight).collect();
        of_batch_norms(&mut all);
        Self { all, quantised }
    }

    /// Returns the weights with a role.
    pub(super) fn of(&self, role: Role) -> impl Iterator<Item = &Weight> {
        self.all.iter().filter(move |weight| weight.role == role)
    }
}

fn weight(unpacked: packed::Unpacked<'_>) -> Weight {
    let packed::Unpacked { stored, shape, params, trained, helper } = unpacked;
    let packed::StoredTensor { entry, parsed, tied } = stored;
    let (part, role) = roles::of(&parsed, shape.len(), trained);
    // A scale is not one of the component's matrices.
    let role = if helper { Role::Any } else { role };
    let (params, bytes) = match tied {
        Some(_) => (0, 0),
        None => (params, entry.bytes),
    };
    Weight { key: entry.key.clone(), parsed, shape, params, bytes, component: part, role, tied }
}

/// Assigns everything next to a running mean to norms, whatever its name.
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

/// Selects the entries that belong to the model.
struct Own<'a> {
    state: Option<&'a str>,
    /// The prefixes of the keys in the state of an optimizer.
    optimizers: HashSet<String>,
    /// The common prefix of all its keys, which carries no information.
    wrapper: String,
}

/// Names of wrappers around a model.
const WRAPPERS: [&str; 6] =
    ["module", "_orig_mod", "_forward_module", "model", "params", "base_model"];

impl<'a> Own<'a> {
    fn of(entries: &[LeafSummary], state: Option<&'a str>) -> Self {
        let mut own = Self { state, optimizers: optimizers(entries), wrapper: String::new() };
        // If only one state has tensors, names are relative to that state.
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

    /// Returns the key within the model, if the entry is one of its tensors.
    fn key<'k>(&self, entry: &'k LeafSummary) -> Option<&'k str> {
        entry.is_tensor().then(|| self.within(&entry.key)).flatten()
    }

    /// Returns a key without the prefixes of the model, if it lies in the model.
    fn within<'k>(&self, key: &'k str) -> Option<&'k str> {
        let mut prefixes = key.match_indices('.').map(|(at, _)| &key[..=at]);
        if is_of_training(key) || prefixes.any(|prefix| self.optimizers.contains(prefix)) {
            return None;
        }
        let key = match self.state {
            Some(state) => key.strip_prefix(state)?.strip_prefix('.')?,
            None => key,
        };
        key.strip_prefix(&*self.wrapper)
    }
}

/// Finds the states of optimizers by their structure: `state` next to `param_groups`, as torch saves
/// it, and dicts with moments, which also have steps and master copies.
fn optimizers(entries: &[LeafSummary]) -> HashSet<String> {
    let mut prefixes = HashSet::new();
    for entry in entries {
        let groups = match entry.key.starts_with("param_groups.") {
            true => Some(0),
            false => entry.key.find(".param_groups.").map(|at| at + 1),
        };
        if let Some(at) = groups {
            let prefix = &entry.key[..at];
            prefixes.extend([format!("{prefix}state."), format!("{prefix}param_groups.")]);
        }
        if let Some((owner, _)) = entry.key.rsplit_once('.').filter(|(_, last)| is_moment(last)) {
            prefixes.insert(format!("{owner}."));
        }
    }
    prefixes
}

/// Returns whether the name of a key says that it belongs to an optimizer or to other training state.
fn is_of_training(key: &str) -> bool {
    /// Names of the variables that the optimizers of TensorFlow 1 and BERT keep for each weight.
    const SLOTS: [&str; 12] = [
        "adam",
        "adam_1",
        "adam_m",
        "adam_v",
        "momentum",
        "rmsprop",
        "rmsprop_1",
        "adagrad",
        "ftrl",
        "ftrl_1",
        "beta1_power",
        "beta2_power",
    ];
    let lower = key.to_ascii_lowercase();
    let mut parts = lower.split(['.', '/']);
    let first = parts.clone().next().unwrap_or_default();
    let last = parts.clone().next_back().unwrap_or_default();
    parts.any(|part| part.starts_with("optim") || part == "opt_state")
        || first.starts_with("__")
        || matches!(first, "metadata" | "ema" | "grad_scaler" | "lr_scheduler" | "rng_state")
        || is_moment(last)
        || SLOTS.contains(&last)
}
