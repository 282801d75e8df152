//! What a reader may spend on a file that might be hostile.

use crate::{Error, Result};

/// Bounds on what a reader allocates and how far it goes, whatever the file claims.
///
/// They follow the size of the file ([`Limits::fitted`]): a large honest one may hold millions of
/// values, a small one that names as many is an attack. Whoever trusts a file raises them
/// ([`Limits::times`]) or does without ([`Limits::none`]).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Values in one checkpoint, containers and leaves.
    pub values: u64,
    /// Nesting of containers. Nothing recurses on it; it bounds the length of a key.
    pub depth: u64,
    /// Steps in the keys of all leaves together: a deep tree with many leaves would else take
    /// far more memory once it is flattened than it takes in the file.
    pub key_steps: u64,
    /// Bytes of all flat keys together: a long name above many leaves is in each of their keys.
    pub key_bytes: u64,
    /// Bytes of one header, pickle, index or other structure that is read whole.
    pub structure: u64,
    /// Bytes of one string, byte string or number inside such a structure.
    pub string: u64,
    /// Dimensions of one tensor.
    pub rank: u64,
    /// Bytes of one decoded chunk.
    pub chunk: u64,
    /// Members of an archive, datasets of a file, shards of a set.
    pub members: u64,
    /// How many times its own size a checkpoint may unfold to before it is asked about, see
    /// [`crate::Unfolded`].
    pub unfold: u64,
    /// Bytes that are gone through, again and again, to put one tensor in order where there is no
    /// [`Scratch`](crate::Scratch) to do it in.
    pub again: u64,
    /// How many times the usual; `None` where the bounds stay as they are.
    pub(crate) times: Option<u64>,
    /// The size of the file that they were fitted to.
    pub(crate) fitted: Option<u64>,
}

/// How many times its own size a checkpoint may unfold to.
const UNFOLD: u64 = 1_000;

/// Some minutes of reading.
const AGAIN: u64 = 256 << 30;

/// The most that is spent by default: a page has 4 GB for everything, a program what there is.
const MOST_VALUES: u64 = if cfg!(target_pointer_width = "32") { 8 << 20 } else { 24 << 20 };
const MOST_BYTES: u64 = if cfg!(target_pointer_width = "32") { 256 << 20 } else { 1 << 30 };

impl Default for Limits {
    /// For a file of middling size.
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
            again: AGAIN,
            times: Some(1),
            fitted: None,
        }
    }
}

impl Limits {
    /// No bounds: for a checkpoint that was opened within some, or that the user trusts.
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
            again: most,
            times: None,
            fitted: None,
        }
    }

    /// The usual bounds, so many times.
    pub fn times(times: u64) -> Self {
        Self::fit(times.max(1), 0)
    }

    /// What a file of `size` bytes may have spent on it. A value takes a byte of a pickle at
    /// least, which may be compressed; what is read whole, keys and texts, may be as well. Bounds
    /// that somebody has set one by one stay as they are.
    #[must_use]
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
            values: within(500_000, 4, MOST_VALUES),
            depth: usual.depth.saturating_mul(times),
            key_steps: within(1_000_000, 16, 4 * MOST_VALUES),
            key_bytes: within(32 << 20, 16, MOST_BYTES),
            structure: within(128 << 20, 1, MOST_BYTES),
            string: within(usual.string, 1, MOST_BYTES),
            rank: usual.rank,
            chunk: usual.chunk.saturating_mul(times),
            members: within(500_000, 1, MOST_VALUES),
            unfold: usual.unfold.saturating_mul(times),
            again: usual.again.saturating_mul(times),
            times: Some(times),
            fitted: Some(size),
        }
    }

    /// Whether there are bounds that [`Limits::times`] would raise.
    pub fn can_be_raised(&self) -> bool {
        self.times.is_some()
    }

    /// How many times the usual they are, as [`Limits::times`] was told.
    pub fn raised(&self) -> u64 {
        self.times.unwrap_or(1)
    }

    /// Fails with a sentence that names the limit if `found` is over `allowed`.
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
    fn bounds_follow_the_size_of_the_file_and_can_be_raised() {
        let small = Limits::default().fitted(8_000);
        let large = Limits::default().fitted(200 << 20);
        assert!(small.values < 1_000_000, "{}", small.values);
        assert!(large.values > 20_000_000, "{}", large.values);
        assert!(small.fitted(200 << 20) == large);
        // The description of a state dict of 700,000 keys is one text of 106 MB.
        assert!(large.string >= 200 << 20 && small.string < 65 << 20);
        let raised = Limits::times(3).fitted(8_000);
        assert_eq!((raised.values, raised.unfold), (3 * small.values, 3_000));
        assert_eq!((small.raised(), raised.raised()), (1, 3));
        assert_eq!(Limits::none().fitted(1), Limits::none());
        let chosen = Limits { structure: 1 << 10, ..Limits::default() };
        assert_eq!(chosen.fitted(200 << 20), chosen);
    }
}
