//! Folds LoRA during a conversion from one format to another.

use std::path::Path;
use std::sync::Arc;

use statelens::PathText as _;
use statelens::parts::checkpoint::Checkpoint;
use statelens::{Error, Result};
use statelens_recipes::config::Value;
use statelens_recipes::{lora, recognise};

use super::adapter;
use crate::print::warn;
use crate::source::FileSource;

/// The model to convert after folding.
pub(super) struct FoldedModel {
    pub(super) checkpoint: Checkpoint,
    /// The files that are read instead, if the adapter is in a file of its own.
    pub(super) sources: Option<Vec<Arc<FileSource>>>,
    /// The config without LoRA, if the config described it.
    pub(super) config: Option<Value>,
}

/// Folds the LoRA of a Cerebras checkpoint, or the adapter in the folder of any other checkpoint.
pub(super) fn fold(path: &Path, read: &Checkpoint, config: Option<&Value>) -> Result<FoldedModel> {
    if recognise::is_cerebras(read) {
        let config = config.ok_or_else(|| no_config(path))?;
        let folded = lora::fold(read, config)?;
        folded.notes.iter().for_each(|note| warn(note));
        let config = Some(folded.config);
        return Ok(FoldedModel { checkpoint: folded.checkpoint, sources: None, config });
    }
    let adapter = adapter::sibling_adapter(path).ok_or_else(|| {
        Error::refused("there is no adapter next to it")
            .in_file(path.to_text())
            .advice("Fold one from elsewhere first: `statelens fold-lora MODEL --adapter ADAPTER`.")
    })?;
    let (folded, sources) = adapter::folded(path, &adapter)?;
    Ok(FoldedModel { checkpoint: folded.checkpoint, sources: Some(sources), config: None })
}

/// Returns the error for a checkpoint with LoRA but without a config.
pub(super) fn no_config(checkpoint: &Path) -> Error {
    Error::refused("LoRA's scale is in the config, but the folder has no config")
        .in_file(checkpoint.to_text())
        .advice("Name it with --config.")
}
