//! Selects the tensors of the model from the leaves of a checkpoint, with parsed keys, ties, and
//! packed tensors in their unpacked shapes.

use std::borrow::Cow;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use statelens_checkpoint::FileId;
use statelens_values::weights::is_moment;

use super::config::Config;
use super::key::{Parsed, lower};
use super::leaf::ModelLeaf;
use super::packed::{self, Quantised, StoredTensor, Unpacked};
use super::roles::{self, ModelComponent, Role};
use crate::summary::MODELS;

/// A tensor of the model.
#[derive(Debug, Clone)]
pub(super) struct Weight<'a> {
    /// The full key.
    pub(super) key: &'a str,
    pub(super) parsed: Parsed<'a>,
    /// The unpacked shape.
    pub(super) shape: Cow<'a, [u64]>,
    /// Number of parameters; 0 for scales and for tied tensors.
    pub(super) params: u64,
    /// Number of bytes in the file; 0 for tied tensors.
    pub(super) bytes: u64,
    pub(super) component: ModelComponent,
    pub(super) role: Role,
    /// The key of the tensor that it is tied to.
    pub(super) tied: Option<&'a str>,
}

/// The tensors of the model.
#[derive(Debug, Default)]
pub(super) struct Weights<'a> {
    pub(super) all: Vec<Weight<'a>>,
    pub(super) quantised: Vec<Quantised>,
}

impl<'a> Weights<'a> {
    /// Selects the tensors. `state` is the state that is the model, if known.
    pub(super) fn new(
        leaves: &'a [ModelLeaf<'a>],
        state: Option<&'a str>,
        config: Option<&Config>,
    ) -> Self {
        let mut all: Vec<Weight<'a>> = Vec::new();
        let quantised = unpacked(leaves, state, config, |tensor| all.push(weight(tensor)));
        of_batch_norms(&mut all);
        Self { all, quantised }
    }

    /// Returns the weights with a role.
    pub(super) fn of(&self, role: Role) -> impl Iterator<Item = &Weight<'a>> {
        self.all.iter().filter(move |weight| weight.role == role)
    }
}

/// Selects the tensors, like [`Weights::new`], without their components and roles. Calls `each` with
/// one after the other, and returns the layouts of packed ones.
pub(super) fn unpacked<'a>(
    leaves: &'a [ModelLeaf<'a>],
    state: Option<&'a str>,
    config: Option<&Config>,
    each: impl FnMut(Unpacked<'a>),
) -> Vec<Quantised> {
    let (own, keys) = Own::of(leaves, state);
    // Mostly the tensors are in the order of their keys, and no two have the same place.
    let mut places = keys.iter().filter_map(|(leaf, _)| leaf.place);
    let mut last = places.next();
    let in_order = places.all(|place| last.replace(place) < Some(place));
    let apart = in_order || {
        let mut places = keys.iter().filter_map(|(leaf, _)| leaf.place);
        let mut seen = HashSet::with_capacity(keys.len());
        places.all(|place| seen.insert(place))
    };
    let mut owners: HashMap<(FileId, u64, u64), &str> = HashMap::new();
    let mut linked: HashMap<&str, &str> = HashMap::new();
    let mut all = Vec::with_capacity(keys.len());
    for (leaf, key) in keys {
        let shared = leaf.place.filter(|_| !apart).and_then(|(file, offset)| {
            let owner = *owners.entry((file, offset, leaf.bytes)).or_insert(&leaf.key);
            (owner != leaf.key).then_some(owner)
        });
        // A tensor that is a link out of the model, such as into an optimizer before it, is
        // counted at its first key in the model.
        let link = leaf.link().and_then(|target| match own.within(target) {
            Some(_) => Some(target),
            None => {
                let owner = *linked.entry(target).or_insert(&leaf.key);
                (owner != leaf.key).then_some(owner)
            }
        });
        all.push(StoredTensor { leaf, key, tied: link.or(shared) });
    }
    packed::unpack(all, config, each)
}

fn weight(unpacked: Unpacked<'_>) -> Weight<'_> {
    let parsed = unpacked.parsed();
    let Unpacked { leaf, tied, shape, params, trained, helper, .. } = unpacked;
    let (part, role) = roles::of(&parsed, shape.len(), trained);
    // A scale is not one of the component's matrices.
    let role = if helper { Role::Any } else { role };
    let (params, bytes) = match tied {
        Some(_) => (0, 0),
        None => (params, leaf.bytes),
    };
    Weight { key: &leaf.key, parsed, shape, params, bytes, component: part, role, tied }
}

/// Assigns everything next to a running mean to norms, whatever its name.
fn of_batch_norms(all: &mut [Weight]) {
    let is_mean = |weight: &&Weight| matches!(&*weight.parsed.leaf, "running_mean" | "moving_mean");
    let norms: HashSet<Vec<Cow<str>>> =
        all.iter().filter(is_mean).map(|weight| weight.parsed.modules.clone()).collect();
    for weight in all.iter_mut().filter(|weight| weight.component != ModelComponent::Buffers) {
        if norms.contains(&weight.parsed.modules) {
            (weight.component, weight.role) = (ModelComponent::Norm, Role::Norm);
        }
    }
}

/// Selects the leaves that belong to the model.
struct Own<'a> {
    state: Option<&'a str>,
    /// The prefixes of the keys in the state of an optimizer.
    optimizers: HashSet<String>,
    /// The common prefix of all its keys, which carries no information.
    wrapper: &'a str,
}

/// Names of wrappers around a model.
const WRAPPERS: [&str; 6] =
    ["module", "_orig_mod", "_forward_module", "model", "params", "base_model"];

impl<'a> Own<'a> {
    /// Also returns the leaves that are tensors of the model, each with its key within it.
    fn of(
        leaves: &'a [ModelLeaf<'a>],
        state: Option<&'a str>,
    ) -> (Self, Vec<(&'a ModelLeaf<'a>, &'a str)>) {
        let mut own = Self { state, optimizers: optimizers(leaves), wrapper: "" };
        let tensors = leaves.iter().filter(|leaf| leaf.is_tensor);
        let mut keys: Vec<(&ModelLeaf<'_>, &str)> =
            tensors.filter_map(|leaf| Some((leaf, own.within(&leaf.key)?))).collect();
        let Some((_, whole)) = keys.first().copied() else { return (own, keys) };
        // If only one state has tensors, names are relative to that state.
        for _ in 0..WRAPPERS.len() {
            let rest = &whole[own.wrapper.len()..];
            let Some((first, _)) = rest.split_once('.') else { break };
            let known = WRAPPERS.contains(&first) || MODELS.contains(&first);
            let wrapper = &whole[..own.wrapper.len() + first.len() + 1];
            if !known || !keys.iter().all(|(_, key)| key.starts_with(wrapper)) {
                break;
            }
            own.wrapper = wrapper;
        }
        for (_, key) in &mut keys {
            *key = &key[own.wrapper.len()..];
        }
        (own, keys)
    }

    /// Returns a key without the prefixes of the model, if it belongs to the model.
    fn within<'k>(&self, key: &'k str) -> Option<&'k str> {
        let mut prefixes = key.match_indices('.').map(|(at, _)| &key[..=at]);
        let in_optimizer =
            !self.optimizers.is_empty() && prefixes.any(|prefix| self.optimizers.contains(prefix));
        if in_optimizer || is_of_training(key) {
            return None;
        }
        let key = match self.state {
            Some(state) => key.strip_prefix(state)?.strip_prefix('.')?,
            None => key,
        };
        key.strip_prefix(self.wrapper)
    }
}

/// Finds the states of optimizers by their structure: `state` next to `param_groups`, as torch saves
/// it, and dicts with moments, which also have steps and master copies.
fn optimizers(leaves: &[ModelLeaf<'_>]) -> HashSet<String> {
    let mut prefixes = HashSet::new();
    for leaf in leaves {
        let key = &*leaf.key;
        // `contains` is much faster than `find`.
        let groups = match key.contains("param_groups.") {
            true if key.starts_with("param_groups.") => Some(0),
            true => key.find(".param_groups.").map(|at| at + 1),
            false => None,
        };
        if let Some(at) = groups {
            let prefix = &key[..at];
            prefixes.extend([format!("{prefix}state."), format!("{prefix}param_groups.")]);
        }
        if let Some((owner, _)) = key.rsplit_once('.').filter(|(_, last)| is_moment(last)) {
            prefixes.insert(format!("{owner}."));
        }
    }
    prefixes
}

/// Returns whether the name of a key says that it belongs to an optimizer or to other training state.
fn is_of_training(key: &str) -> bool {
    /// First parts of keys.
    const STATES: [&str; 5] = ["metadata", "ema", "grad_scaler", "lr_scheduler", "rng_state"];
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
    let key = &*lower(key);
    // This runs for every key, and few have any of these texts: splitting all keys takes longer.
    let begins_with = |state: &&str| {
        key.strip_prefix(state).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '/']))
    };
    let last = key.bytes().rposition(|byte| matches!(byte, b'.' | b'/'));
    let last = last.map_or(key, |at| &key[at + 1..]);
    let of_optimizer = |part: &str| part.starts_with("optim") || part == "opt_state";
    key.starts_with("__")
        || STATES.iter().any(begins_with)
        || is_moment(last)
        || SLOTS.contains(&last)
        || key.contains("opt") && key.split(['.', '/']).any(of_optimizer)
}
