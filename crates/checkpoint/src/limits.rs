//! What a reader may spend on a file that might be hostile.

use crate::{Error, Result};

/// Bounds on what a reader allocates and how far it goes, whatever the file claims.
///
/// The defaults open every checkpoint that we know of and keep a hostile file well under
/// 256 MB of memory and two seconds.
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
}

impl Default for Limits {
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
        }
    }
}

impl Limits {
    /// No bounds: for a checkpoint that was opened within some.
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
        }
    }

    /// Fails with a sentence that names the limit if `found` is over `allowed`.
    pub fn check(what: &str, found: u64, allowed: u64) -> Result<()> {
        if found <= allowed {
            return Ok(());
        }
        Err(Error::limit(format!("{what}: {found} is more than the limit of {allowed}")))
    }
}
