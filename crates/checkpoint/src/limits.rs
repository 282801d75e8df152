//! Limits on what a reader spends on a file that might be hostile.

use crate::{Error, Result};

/// Limits on allocations and work, whatever the file claims.
///
/// They grow with the size of the file ([`Limits::fitted`]): a large honest one may hold millions
/// of values, a small one that names as many is an attack. Users who trust a file can raise them
/// ([`Limits::times`]) or turn them off ([`Limits::none`]).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Values in one checkpoint, containers and leaves.
    pub values: u64,
    /// Nesting of containers. Nothing recurses on it; it bounds the length of a key.
    pub depth: u64,
    /// Total steps in the keys of all leaves: without this limit, a deep tree with many leaves
    /// would take far more memory once flattened than in the file.
    pub key_steps: u64,
    /// Total bytes of all flat keys: a long name above many leaves is in each of their keys.
    pub key_bytes: u64,
    /// Bytes of one header, pickle, index or other structure that is read as a whole.
    pub structure: u64,
    /// Bytes of one string, byte string or number inside such a structure.
    pub string: u64,
    /// Dimensions of one tensor.
    pub rank: u64,
    /// Bytes of one decoded chunk.
    pub chunk: u64,
    /// Members of an archive, datasets of a file, shards of a set.
    pub members: u64,
    /// How many times its own size a checkpoint may expand to before the user must agree, see
    /// [`crate::Unfolded`].
    pub unfold: u64,
    /// Bytes that may be read repeatedly to reorder one tensor without a
    /// [`Scratch`](crate::Scratch).
    pub reread: u64,
    /// Multiple of the default limits; `None` if [`Limits::fitted`] must not change them.
    pub(crate) times: Option<u64>,
    /// File size that the limits were fitted to.
    pub(crate) fitted: Option<u64>,
}

/// How many times its own size a checkpoint may expand to.
const UNFOLD: u64 = 1_000;

/// A few minutes of reading.
const MAX_REREAD: u64 = 256 << 30;

/// The largest defaults: a page has 4 GB in all, a program all of the memory.
const MAX_VALUES: u64 = if cfg!(target_pointer_width = "32") { 8 << 20 } else { 24 << 20 };
const MAX_BYTES: u64 = if cfg!(target_pointer_width = "32") { 256 << 20 } else { 1 << 30 };

impl Default for Limits {
    /// Returns the limits for a file of medium size.
    fn default() -> Self {
        Self {
            values: 4_000_000,
            depth: 1_000,
            key_steps: 8_000_000,
            key_bytes: 128 << 20,
            structure: 128 << 20,
            string: 64 << 20,
            rank: 64,
            chunk: 64 << 20,
            members: 4_000_000,
            unfold: UNFOLD,
            reread: MAX_REREAD,
            times: Some(1),
            fitted: None,
        }
    }
}

impl Limits {
    /// Returns no limits: for a checkpoint that was opened within limits, or that the user trusts.
    pub fn none() -> Self {
        let most = u64::MAX;
        Self {
            values: most,
            depth: most,
            key_steps: most,
            key_bytes: most,
            structure: most,
            string: most,
            rank: most,
            chunk: most,
            members: most,
            unfold: most,
            reread: most,
            times: None,
            fitted: None,
        }
    }

    /// Returns the default limits multiplied by `times`.
    pub fn times(times: u64) -> Self {
        Self::fit(times.max(1), 0)
    }

    /// Returns how many times the default limits these are; `None` if some were set individually
    /// or are switched off.
    pub fn multiple(&self) -> Option<u64> {
        self.times
    }

    /// Returns the limits for a file of `size` bytes. A value takes at least a byte of a pickle,
    /// and the pickle may be compressed, as may structures read as a whole, keys and texts. Limits
    /// that were set individually are kept.
    pub fn fitted(&self, size: u64) -> Self {
        let Some(times) = self.times else { return self.clone() };
        let untouched = match self.fitted {
            None => *self == Self::default(),
            Some(before) => *self == Self::fit(times, before),
        };
        if untouched { Self::fit(times, size) } else { self.clone() }
    }

    fn fit(times: u64, size: u64) -> Self {
        let within = |floor: u64, per_byte: u64, most: u64| {
            let fitted = floor.saturating_add(size.saturating_mul(per_byte)).min(most.max(floor));
            fitted.saturating_mul(times)
        };
        let usual = Self::default();
        Self {
            values: within(500_000, 4, MAX_VALUES),
            depth: usual.depth.saturating_mul(times),
            key_steps: within(1_000_000, 16, 4 * MAX_VALUES),
            key_bytes: within(32 << 20, 16, MAX_BYTES),
            structure: within(128 << 20, 1, MAX_BYTES),
            string: within(usual.string, 1, MAX_BYTES),
            rank: usual.rank,
            chunk: usual.chunk.saturating_mul(times),
            members: within(500_000, 1, MAX_VALUES),
            unfold: usual.unfold.saturating_mul(times),
            reread: usual.reread.saturating_mul(times),
            times: Some(times),
            fitted: Some(size),
        }
    }

    /// Fails with a message that names the limit if `found` is over `allowed`.
    pub fn check(what: &str, found: u64, allowed: u64) -> Result<()> {
        if found <= allowed {
            return Ok(());
        }
        Err(Error::limit(format!("{what}: {found} is more than the limit of {allowed}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_grow_with_the_file_size() {
        let small = Limits::default().fitted(8_000);
        let large = Limits::default().fitted(200 << 20);
        assert!(small.values < 1_000_000, "{}", small.values);
        assert!(large.values > 20_000_000, "{}", large.values);
        assert!(small.fitted(200 << 20) == large);
        // In one real file the description of a state dict of 700,000 keys is a text of 106 MB.
        assert!(large.string >= 200 << 20 && small.string < 65 << 20);
        let raised = Limits::times(3).fitted(8_000);
        assert_eq!((raised.values, raised.unfold), (3 * small.values, 3_000));
        assert_eq!((small.multiple(), raised.multiple()), (Some(1), Some(3)));
        assert_eq!(Limits::none().fitted(1), Limits::none());
        let chosen = Limits { structure: 1 << 10, ..Limits::default() };
        assert_eq!(chosen.fitted(200 << 20), chosen);
    }
}
