//! Memory needed to load and to train the model.

use serde::{Deserialize, Serialize};

use super::parts::{self, PartSum};

/// Estimated memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryEstimate {
    /// Loading the model as stored.
    pub stored: u64,
    /// Loading the model in bfloat16.
    pub bfloat16: u64,
    /// Loading the model in float32.
    pub float32: u64,
    /// Training the model, see [`MemoryEstimate::FORMULA`].
    pub training: u64,
}

impl MemoryEstimate {
    /// Describes how [`MemoryEstimate::training`] is computed.
    pub const FORMULA: &'static str = "16 bytes per parameter: weights, gradients and Adam\u{2019}s two moments in \
         float32, or bfloat16 weights and gradients with a float32 copy and moments; activations not counted";

    pub(super) fn of(parts: &[PartSum]) -> Option<Self> {
        let params = parts::params(parts);
        let stored = parts.iter().fold(0u64, |all, sum| all.saturating_add(sum.bytes));
        (params > 0).then(|| Self {
            stored,
            bfloat16: params.saturating_mul(2),
            float32: params.saturating_mul(4),
            training: params.saturating_mul(16),
        })
    }
}
