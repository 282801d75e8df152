//! Parameters by part.

use super::config::Config;
use super::experts;
use super::roles::{ModelComponent, Role};
use super::stacks::Stack;
use super::weights::Weights;

/// A part of the model, and what it comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartSum {
    /// Which.
    pub component: ModelComponent,
    /// Its tensors.
    pub tensors: u64,
    /// Its parameters; of buffers, their numbers.
    pub params: u64,
    /// Of these, how many take part in each token; nothing where that is not known.
    pub active: Option<u64>,
    /// Bytes in the file.
    pub bytes: u64,
}

/// One for each part.
pub(super) fn sums(weights: &Weights, stacks: &[Stack], config: Option<&Config>) -> Vec<PartSum> {
    let mut sums: Vec<PartSum> = ModelComponent::ALL
        .iter()
        .map(|part| PartSum { component: *part, tensors: 0, params: 0, active: Some(0), bytes: 0 })
        .collect();
    let mut chosen = 0u64;
    for weight in &weights.all {
        let Some(sum) = sums.iter_mut().find(|sum| sum.component == weight.component) else {
            continue;
        };
        sum.tensors += u64::from(weight.tied.is_none());
        sum.params = sum.params.saturating_add(weight.params);
        sum.bytes = sum.bytes.saturating_add(weight.bytes);
        if weight.role == Role::Expert {
            chosen = chosen.saturating_add(weight.params);
        }
    }
    let share = experts::count(weights, stacks)
        .zip(experts::per_token(config))
        .map(|((all, _), (some, _))| (all, some));
    for sum in &mut sums {
        sum.active = match (sum.component, share) {
            (ModelComponent::Experts, _) if chosen == 0 => Some(sum.params),
            (ModelComponent::Experts, Some((all, some))) if some <= all && all > 0 => {
                let active = u128::from(chosen) * u128::from(some) / u128::from(all);
                let active = u64::try_from(active).unwrap_or(u64::MAX);
                Some((sum.params - chosen).saturating_add(active))
            }
            (ModelComponent::Experts, _) => None,
            _ => Some(sum.params),
        };
    }
    sums
}

/// All parameters; buffers are none.
pub(super) fn params(parts: &[PartSum]) -> u64 {
    let trained = parts.iter().filter(|sum| sum.component != ModelComponent::Buffers);
    trained.fold(0, |all, sum| all.saturating_add(sum.params))
}

/// Those that take part in each token, if that is known.
pub(super) fn active(parts: &[PartSum]) -> Option<u64> {
    let trained = parts.iter().filter(|sum| sum.component != ModelComponent::Buffers);
    trained.map(|sum| sum.active).try_fold(0u64, |all, active| Some(all.saturating_add(active?)))
}
