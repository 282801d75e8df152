//! What a job of conversion does: options as on the command line, as texts.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use statelens_checkpoint::{Error, Limits, Plan, Progress, Result};
pub use statelens_convert::EditTexts;
use statelens_convert::OutputOptions;

use super::reading::Reading;
use crate::Checkpoint;
use crate::conversion::ConvertBuilder;
use crate::files::FileSource;
use crate::files::PathText as _;
use crate::output::Sync;
use crate::write::{FileOptions, Replace, file_name};

/// A conversion of one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOptions {
    /// The path or address of the checkpoint to read.
    pub source: PathBuf,
    /// The path or address of the file to write; further files go into the same folder.
    pub destination: PathBuf,
    /// The format, and how it is divided into files.
    #[serde(flatten)]
    pub output: OutputOptions,
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

impl JobOptions {
    /// Returns the same conversion of an open checkpoint. `source` and `reading` have no effect on
    /// it.
    pub fn conversion<'a>(&self, checkpoint: &'a Checkpoint) -> ConvertBuilder<'a> {
        let mut of = ConvertBuilder::new(checkpoint, self.output.clone(), self.edits.edit());
        (of.lossy, of.replace) = (self.lossy, self.replace);
        of
    }

    /// Returns the options for writing its files.
    pub(crate) fn writing<'a>(
        &self,
        limits: &'a Limits,
        sources: &'a [Arc<FileSource>],
    ) -> FileOptions<'a> {
        let options = FileOptions::new(limits, sources);
        FileOptions { replace: Replace::of(self.replace), sync: Sync::Always, ..options }
    }

    /// Opens the source and plans the output; also returns the source's files on disk.
    pub(crate) fn plan(&self, progress: &mut dyn Progress) -> Result<(Plan, Vec<Arc<FileSource>>)> {
        if self.destination.to_str().is_none() {
            return Err(Error::refused("the name of the output is not UTF-8")
                .in_file(self.destination.to_text())
                .advice("A job keeps it as text. Choose another name."));
        }
        let opened = self.reading.opener()?.open(&self.source, progress)?;
        let plan = self.conversion(&opened).plan(&file_name(&self.destination)?)?;
        Ok((plan, opened.sources().to_vec()))
    }
}
