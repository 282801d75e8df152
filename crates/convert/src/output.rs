//! The output of a conversion, as the options of the command describe it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use statelens_checkpoint::{Checkpoint, Limits, Plan, Result, Unfolded};
use statelens_formats::{RequestedOptions, Shards};

use crate::shards::shards_wanted;
use crate::{Change, Edit, plan_edited};

/// The output of a conversion: its format and how it is divided into files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OutputOptions {
    /// The format to write: the id of a [`Writing`](statelens_formats::Writing).
    pub to: String,
    /// The version of the format.
    #[serde(default)]
    pub version: Option<String>,
    /// The compression.
    #[serde(default)]
    pub compression: Option<String>,
    /// Whether variables are named after objects (TensorFlow only).
    #[serde(default)]
    pub object_graph: bool,
    /// Whether a file names the latest checkpoint (TensorFlow only).
    #[serde(default)]
    pub state_file: bool,
    /// The largest size of a shard, such as `5GB`.
    #[serde(default)]
    pub shard_size: Option<String>,
    /// Rules `PATTERN=NAME` for shards.
    #[serde(default)]
    pub shards: Vec<String>,
}

impl OutputOptions {
    /// Returns the full name of the format: `Cerebras HDF5 0.5`.
    pub fn format(&self) -> Result<String> {
        Ok(statelens_formats::writing(&self.to)?.full_name(&self.requested()))
    }

    /// Plans the files that hold `source` as edited by `edit`; also returns the changes of keys.
    /// `name` is the requested file name, and `cut` the division into files if the options have
    /// none. Fails as [`plan`](crate::plan) does, and if the plan would hold far more text than the
    /// source, within `limits`.
    pub fn plan(
        &self,
        source: Arc<Checkpoint>,
        edit: &Edit,
        cut: Shards,
        name: &str,
        limits: &Limits,
    ) -> Result<(Plan, Vec<Change>)> {
        let target = statelens_formats::writing(&self.to)?.target(&self.requested())?;
        if !target.writing.stores_texts_once {
            let texts = Unfolded { tensor_bytes: 0, ..source.unfolded() };
            texts.check("writing the file", limits)?;
        }
        let (edited, changes) = edit.for_writing(source)?;
        let shards = shards_wanted(self.shard_size.as_deref(), &self.shards, &edited)?;
        let target = target.sharded(shards.unwrap_or(cut)).map_err(|error| error.in_file(name))?;
        Ok((plan_edited(edited, &changes, &target, name)?, changes))
    }

    fn requested(&self) -> RequestedOptions {
        RequestedOptions {
            version: self.version.clone(),
            compression: self.compression.clone(),
            object_graph: self.object_graph,
            state_file: self.state_file,
        }
    }
}
