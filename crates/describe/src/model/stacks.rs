//! Finds layers: modules that are numbered consecutively.

use std::collections::{BTreeMap, BTreeSet};

use statelens_checkpoint::order;

use super::roles::ModelComponent;
use super::weights::Weights;

/// Modules that are numbered consecutively.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stack {
    /// The path before the number.
    pub(super) prefix: String,
    pub(super) numbers: BTreeSet<u64>,
    /// Number of parameters of all modules together.
    pub(super) params: u64,
    /// Whether these are layers, like those of a transformer, rather than stages that contain
    /// blocks.
    pub(super) layers: bool,
}

/// Names of the numbered blocks in a stage.
const NESTED: [&str; 9] = [
    "blocks",
    "transformer_blocks",
    "resnets",
    "attentions",
    "layers",
    "motion_modules",
    "downsamplers",
    "upsamplers",
    "downsample",
];

/// Returns all stacks, the largest first.
pub(super) fn find(weights: &Weights) -> Vec<Stack> {
    let mut found: BTreeMap<String, Stack> = BTreeMap::new();
    let mut inner = BTreeSet::new();
    for weight in &weights.all {
        let Some((prefix, number)) = weight.parsed.stack() else { continue };
        let within = weight.parsed.within();
        let nested = within
            .windows(2)
            .any(|two| NESTED.contains(&&*two[0]) && super::key::is_digits(&two[1]))
            || within.first().is_some_and(|first| super::key::is_digits(first));
        if nested {
            inner.insert(prefix.clone());
        }
        let stack = found.entry(prefix).or_insert_with_key(|prefix| Stack {
            prefix: prefix.clone(),
            numbers: BTreeSet::new(),
            params: 0,
            layers: false,
        });
        stack.numbers.insert(number);
        stack.params = stack.params.saturating_add(weight.params);
        let counts = [
            ModelComponent::Attention,
            ModelComponent::Mlp,
            ModelComponent::Experts,
            ModelComponent::StateSpace,
            ModelComponent::Adapter,
        ];
        stack.layers |= !within.is_empty() && counts.contains(&weight.component);
    }
    let mut stacks: Vec<Stack> = found.into_values().collect();
    for stack in &mut stacks {
        stack.layers &= !inner.contains(&stack.prefix);
    }
    order::by_key(&mut stacks, |stack| (!stack.layers, std::cmp::Reverse(stack.params)));
    stacks
}
