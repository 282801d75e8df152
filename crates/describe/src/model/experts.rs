//! Mixtures of experts: number of experts, and number of experts per token.

use std::collections::BTreeSet;

use super::config::Config;
use super::key::is_digits;
use super::roles::Role;
use super::stacks::Stack;
use super::weights::Weights;
use super::{FactSource, heads};

/// Returns the number of experts per layer, and the evidence for it.
pub(super) fn count(weights: &Weights, stacks: &[Stack]) -> Option<(u64, String)> {
    let mut numbers = BTreeSet::new();
    for weight in weights.of(Role::Expert) {
        let modules = &weight.parsed.modules;
        let numbered =
            modules.windows(2).find(|two| two[0].contains("expert") && is_digits(&two[1]));
        if let Some(number) = numbered.and_then(|two| two[1].parse::<u64>().ok()) {
            numbers.insert(number);
        }
    }
    let hidden = heads::hidden(weights, stacks).map(|(hidden, _)| hidden);
    // The router has a row for each expert.
    let router = weights.of(Role::Router).find(|weight| weight.shape.len() == 2);
    let of_router = router.and_then(|weight| {
        let experts =
            weight.shape.iter().find(|dim| Some(**dim) != hidden).or(weight.shape.first())?;
        Some((*experts, format!("the router: {}", weight.key)))
    });
    let fused = || {
        let weight = weights.of(Role::Expert).find(|weight| weight.shape.len() >= 3)?;
        Some((*weight.shape.first()?, format!("the shape of {}", weight.key)))
    };
    match numbers.len() as u64 {
        // A single number is part of a name: Cerebras stores its experts in `experts.fused_ffns.0`.
        count @ 2.. => Some((count, "the numbers of experts".to_owned())),
        _ => of_router.filter(|_| weights.of(Role::Expert).next().is_some()).or_else(fused),
    }
}

/// Returns the number of experts per token, which only a config has.
pub(super) fn per_token(config: Option<&Config>) -> Option<(u64, FactSource)> {
    config?.number(&[
        "num_experts_per_tok",
        "num_experts_per_token",
        "experts_per_token",
        "num_selected_experts",
        "moe_topk",
        "moe_top_k",
        "moe_k",
        "moe.top_k",
        "ffn_config.moe_top_k",
        "expert_used_count",
    ])
}
