//! The recipe of a job: what it does, to which files, in how many tasks.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use statelens_checkpoint::{Error, Result};

use super::options::JobOptions;
use super::reading::{Reading, SourceIdentity};
use crate::files::PathText as _;
use crate::statistics::Grouping;
use statelens_checkpoint::hex;

/// The recipe of a job, which is the object `job.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recipe {
    /// Version of this structure: 1.
    pub statelens: u64,
    /// Version of the program that planned the job. Tasks must be run by the same.
    pub version: String,
    /// A name for the job's temporary files.
    pub id: String,
    /// Number of tasks.
    pub tasks: u64,
    /// Bytes of memory that a task takes at most.
    pub memory: u64,
    /// The work.
    #[serde(flatten)]
    pub work: JobWork,
    /// SHA-256 of all other fields: workers write only to the paths that were planned.
    #[serde(default)]
    pub checksum: String,
}

/// The work of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "job", rename_all = "lowercase")]
pub enum JobWork {
    /// One checkpoint is converted.
    Convert(Box<ConvertRecipe>),
    /// One command is run on each of many checkpoints.
    Many(Box<ManyRecipe>),
}

/// The recipe of a conversion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConvertRecipe {
    /// The options.
    pub options: JobOptions,
    /// The source files.
    pub sources: Vec<SourceIdentity>,
    /// SHA-256 of the plan and its division.
    pub digest: String,
    /// Number of tasks that were requested; planning again with it divides alike.
    pub parts: u64,
    /// The files to write.
    pub outputs: Vec<JobOutput>,
    /// Folders that were created for them, outermost first.
    pub folders: Vec<PathBuf>,
}

/// A file that a job writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobOutput {
    /// Its final path or address.
    pub path: PathBuf,
    /// Its path until the job is committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary: Option<PathBuf>,
    /// The id of its multipart upload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<String>,
    /// Size in bytes, or the largest size if it depends on the data.
    pub bytes: u64,
    /// Whether one task writes the whole file.
    pub undivided: bool,
}

/// The recipe of one command for many checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ManyRecipe {
    /// The command, with its options.
    #[serde(flatten)]
    pub command: ManyCommand,
    /// The checkpoints, in order. Tasks take consecutive ones.
    pub checkpoints: Vec<ManySource>,
    /// How the checkpoints are opened.
    pub reading: Reading,
}

/// A command that a job runs on each of many checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", content = "options", rename_all = "lowercase")]
pub enum ManyCommand {
    /// Reads everything and checks every checksum.
    Verify {
        /// Whether NaN and infinite values are faults.
        finite: bool,
    },
    /// Scans each file for code that loading it would run.
    Scan {
        /// Names of classes and functions that are not reported.
        allow: Vec<String>,
    },
    /// Computes statistics of each checkpoint and of all together.
    Stats {
        /// The groups of tensors, in addition to that of all.
        by: Option<Grouping>,
    },
    /// Hashes all values.
    Manifest {},
}

/// One of many checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManySource {
    /// Its path or address.
    pub path: PathBuf,
    /// Its length in bytes, if known.
    pub bytes: Option<u64>,
    /// The time of its last change, or the tag that the server gives it.
    pub version: Option<String>,
}

/// The version of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

impl ManyCommand {
    /// Returns its name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Verify { .. } => "verify",
            Self::Scan { .. } => "scan",
            Self::Stats { .. } => "stats",
            Self::Manifest {} => "manifest",
        }
    }
}

impl Recipe {
    /// Returns the recipe as JSON.
    pub fn json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| Error::unsupported(format!("it can't be written as JSON: {error}")))
    }

    /// Returns the recipe with its checksum.
    pub(crate) fn summed(self) -> Result<Self> {
        let value = serde_json::to_value(&self)
            .map_err(|error| Error::unsupported(format!("it can't be written as JSON: {error}")))?;
        Ok(Self { checksum: checksum(value), ..self })
    }

    /// Parses a recipe. Fails if another version of the program planned the job, or if the recipe
    /// has changed since then.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let not = |why: &str| Error::refused(format!("this is not the recipe of a job: {why}"));
        let value: Value =
            serde_json::from_slice(bytes).map_err(|error| not(&error.to_string()))?;
        let version = value.get("version").and_then(Value::as_str).unwrap_or_default();
        if version != VERSION {
            return Err(Error::refused(format!(
                "the job was planned by version {version}, and this is version {VERSION}"
            ))
            .coded("version-differs")
            .advice("Run all tasks with the version that planned them."));
        }
        let recipe: Self =
            serde_json::from_value(value.clone()).map_err(|error| not(&error.to_string()))?;
        let JobWork::Convert(convert) = &recipe.work else { return recipe.checked(value) };
        let start = temporary_start(&recipe.id);
        let is_own = |path: &Path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(&start) && name.ends_with(".part"))
        };
        let mut temporary = convert.outputs.iter().filter_map(|output| output.temporary.as_ref());
        match temporary.find(|path| !is_own(path)) {
            Some(path) => {
                Err(not("it names a temporary file that is not of this job")
                    .in_file(path.to_text()))
            }
            None => recipe.checked(value),
        }
    }

    fn checked(self, value: Value) -> Result<Self> {
        match checksum(value) == self.checksum {
            true => Ok(self),
            false => Err(Error::refused("the recipe of the job has changed since it was planned")
                .coded("recipe-changed")
                .advice("Remove the folder of the job, and plan it again.")),
        }
    }
}

/// Returns the beginning of the names of a job's temporary files.
pub(super) fn temporary_start(id: &str) -> String {
    format!(".statelens-job-{id}-")
}

/// Returns the SHA-256 of a recipe without its checksum.
fn checksum(mut recipe: Value) -> String {
    if let Value::Object(fields) = &mut recipe {
        fields.remove("checksum");
        fields.sort_keys();
    }
    hex(&Sha256::digest(recipe.to_string().as_bytes()))
}
