//! What a job of conversion does: options as on the command line, as texts.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use statelens_checkpoint::{Checkpoint, Error, Plan, Progress, Result, Unfolded};
use statelens_convert::{CastRule, Edit, Pattern, Rename, plan, shards_wanted};
use statelens_formats::{RequestedOptions, Shards};

use super::reading::Reading;
use crate::files::FileSource;

/// Edits of the keys and values to write, as texts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EditTexts {
    /// Whether each name of a tied tensor gets a copy.
    pub untie: bool,
    /// Top-level states to keep.
    pub states: Vec<String>,
    /// Patterns of keys to keep.
    pub select: Vec<String>,
    /// Patterns of keys to leave out.
    pub exclude: Vec<String>,
    /// A prefix to remove.
    pub strip_prefix: String,
    /// Replacements `REGEX=>REPLACEMENT`.
    pub rename: Vec<String>,
    /// The content of a list of old and new names.
    pub rename_list: Option<String>,
    /// A prefix to add.
    pub prefix: String,
    /// Whether names are split into nested dicts.
    pub nest: bool,
    /// Casts `[PATTERN=]DTYPE`.
    pub cast: Vec<String>,
}

/// A conversion of one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvertOptions {
    /// The path or address of the checkpoint to read.
    pub source: PathBuf,
    /// The path or address of the file to write; further files go into the same folder.
    pub destination: PathBuf,
    /// The format to write: the id of a [`Writing`](crate::Writing).
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
    /// Edits of keys and values.
    #[serde(default)]
    pub edits: EditTexts,
    /// Whether losses are accepted.
    #[serde(default)]
    pub lossy: bool,
    /// Whether existing files may be replaced.
    #[serde(default)]
    pub replace: bool,
    /// How the checkpoint is opened.
    #[serde(default)]
    pub reading: Reading,
}

impl EditTexts {
    /// Parses the texts.
    pub fn edit(&self) -> Result<Edit> {
        let mut rename = Rename::all(&self.rename)?;
        if let Some(list) = &self.rename_list {
            rename.push(Rename::list(list)?);
        }
        Ok(Edit {
            untie: self.untie,
            states: self.states.clone(),
            select: Pattern::all(&self.select)?,
            exclude: Pattern::all(&self.exclude)?,
            strip_prefix: self.strip_prefix.clone(),
            rename,
            prefix: self.prefix.clone(),
            nest: self.nest,
            casts: CastRule::all(&self.cast)?,
        })
    }
}

impl ConvertOptions {
    /// Opens the source and plans the output; also returns the source's files on disk.
    pub(crate) fn plan(&self, progress: &mut dyn Progress) -> Result<(Plan, Vec<Arc<FileSource>>)> {
        let opened = self.reading.opener()?.open(&self.source, progress)?;
        let checkpoint = opened.inner().clone();
        let name = self.destination.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| {
            Error::refused("this does not name a file")
                .in_file(self.destination.display().to_string())
        })?;
        let edit = self.edits.edit()?;
        let writing = statelens_formats::writing(&self.to)?;
        let requested = RequestedOptions {
            version: self.version.clone(),
            compression: self.compression.clone(),
            object_graph: self.object_graph,
            state_file: self.state_file,
        };
        let edited = || -> Result<Arc<Checkpoint>> {
            match edit.is_empty() {
                true => Ok(checkpoint.clone()),
                false => edit.apply(&checkpoint).map(Arc::new),
            }
        };
        let shards = shards_wanted(self.shard_size.as_deref(), &self.shards, edited)?;
        let target = writing.target(&requested)?.sharded(shards.unwrap_or(Shards::One))?;
        if writing.id != "torch" {
            // The torch format stores repeated text once; the others write it out each time.
            let texts = Unfolded { tensor_bytes: 0, ..checkpoint.unfolded() };
            texts.check("writing the file", checkpoint.files.limits())?;
        }
        let plan = plan(checkpoint, &edit, &target, name)?;
        Ok((plan, opened.sources().to_vec()))
    }
}
