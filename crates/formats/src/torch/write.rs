//! Writing.

use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Error, Plan, Result};

/// How to write a PyTorch zip file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {}

/// Plans it.
pub fn plan(_source: Arc<Checkpoint>, _options: &Options) -> Result<Plan> {
    Err(Error::unsupported("this writer is not built yet"))
}
