//! What it takes to load the model, and to train it.

use super::parts::{self, PartSum};

/// Bytes of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// To load it as it is stored.
    pub stored: u64,
    /// To load it in bfloat16.
    pub bfloat16: u64,
    /// To load it in float32.
    pub float32: u64,
    /// To train it, see [`MemoryEstimate::FORMULA`].
    pub training: u64,
}

impl MemoryEstimate {
    /// How [`MemoryEstimate::training`] comes about.
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
