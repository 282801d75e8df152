//! Hashes of whole files, as the Hugging Face Hub lists them.

use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// The hash of a whole file.
pub(crate) enum ContentHash {
    /// SHA-256, as of files in LFS.
    Sha256(Sha256),
    /// SHA-1 of a git object.
    Git(Sha1),
}

impl ContentHash {
    /// Returns whether a text is a SHA-256, or the SHA-1 of a git object, in hexadecimal.
    pub(crate) fn is_known(hash: &str) -> bool {
        [40, 64].contains(&hash.len())
            && hash.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    }

    /// Creates a hash of the kind of `expected`, for a file of `len` bytes.
    pub(crate) fn like(expected: &str, len: u64) -> Self {
        match expected.len() {
            64 => Self::Sha256(Sha256::new()),
            _ => Self::Git(Sha1::new_with_prefix(format!("blob {len}\0"))),
        }
    }

    /// Adds bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hash) => hash.update(bytes),
            Self::Git(hash) => hash.update(bytes),
        }
    }

    /// Returns the hash in hexadecimal.
    pub(crate) fn hex(self) -> String {
        let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Self::Sha256(hash) => digits(&hash.finalize()),
            Self::Git(hash) => digits(&hash.finalize()),
        }
    }
}
