//! Parameters by component.

use serde::{Deserialize, Serialize};

use super::config::Config;
use super::experts;
use super::roles::{ModelComponent, Role};
use super::stacks::Stack;
use super::weights::Weights;

/// The totals of a component of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartSum {
    /// The component.
    #[serde(rename = "part")]
    pub component: ModelComponent,
    /// Number of tensors.
    pub tensors: u64,
    /// Number of parameters; for buffers, number of elements.
    #[serde(rename = "parameters")]
    pub params: u64,
    /// Number of parameters that are used for each token; `None` if not known.
    #[serde(rename = "active_parameters")]
    pub active: Option<u64>,
    /// Number of bytes in the file.
    pub bytes: u64,
}

/// Returns the totals of the components.
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
    let share = experts::per_token(config)
        .and_then(|(some, _)| Some((experts::count(weights, stacks)?.0, some)));
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

/// Returns the number of all parameters, without buffers.
pub(super) fn params(parts: &[PartSum]) -> u64 {
    let trained = parts.iter().filter(|sum| sum.component != ModelComponent::Buffers);
    trained.fold(0, |all, sum| all.saturating_add(sum.params))
}

/// Returns the number of parameters used for each token, if known.
pub(super) fn active(parts: &[PartSum]) -> Option<u64> {
    let trained = parts.iter().filter(|sum| sum.component != ModelComponent::Buffers);
    trained.map(|sum| sum.active).try_fold(0u64, |all, active| Some(all.saturating_add(active?)))
}
