//! Writing.

use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Error, Plan, Result};

/// How to write a Cerebras checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Which format version.
    pub version: Version,
    /// What is done to the bytes of tensors.
    pub compression: Compression,
}

/// The two families of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// 0.4: releases 2.0 to 2.4.
    V04,
    /// 0.5: release 2.5 and later.
    #[default]
    V05,
}

/// What is done to the bytes of tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Contiguous, as they are.
    #[default]
    None,
    /// Chunks, filter 32004, as the Cerebras library writes them.
    Lz4,
    /// Chunks, deflate.
    Gzip,
}

/// Plans it.
pub fn plan(_source: Arc<Checkpoint>, _options: &Options) -> Result<Plan> {
    Err(Error::unsupported("this writer is not built yet"))
}
