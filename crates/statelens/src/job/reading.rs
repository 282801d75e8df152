//! How a job opens checkpoints.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use statelens_checkpoint::{
    self as core, Advice, Error, Limits, Progress, Result, Setting, advice,
};
use statelens_convert::{CastRule, read_as_rule};
use statelens_describe::CheckpointSummary;
use statelens_remote::Meter;

use super::store::absolute;
use crate::remote::{CAP, RemoteOpener};
use crate::scratch::{Disk, MOST};
use crate::{Checkpoint, SourceOpener};

/// How a job opens checkpoints. Values are texts as on the command line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// Further files that the checkpoint refers to: paths or addresses.
    pub with: Vec<PathBuf>,
    /// Dtypes of arrays without one: `PATTERN=DTYPE`.
    pub read_as: Vec<String>,
    /// Whether tensors that hold all layers become one tensor for each layer.
    pub unstack: bool,
    /// A multiple of the default limits, or 0 for no limits.
    pub limit: Option<u64>,
    /// Bytes that each task may fetch from web servers.
    pub max_fetch: Option<u64>,
    /// Bytes on disk that may be used for reordering tensors.
    pub scratch: Option<u64>,
}

/// The state of a source file when a job was planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceIdentity {
    /// Its name, relative to the folder of the checkpoint.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// The time of its last change, or the tag that the server gives it.
    pub version: Option<String>,
}

impl Reading {
    /// Returns the limits for reading a checkpoint.
    pub fn limits(&self) -> Limits {
        match self.limit {
            None => Limits::default(),
            Some(0) => Limits::none(),
            Some(times) => Limits::times(times),
        }
    }

    /// Returns the same with paths that mean the same in any folder.
    pub(crate) fn absolute(self) -> Result<Self> {
        let with = self.with.iter().map(|path| absolute(path)).collect::<Result<_>>()?;
        Ok(Self { with, ..self })
    }

    /// Returns what opens checkpoints in this way.
    pub(crate) fn opener(&self) -> Result<JobOpener> {
        let meter = Meter::new(self.max_fetch.unwrap_or(CAP), fetch_more());
        let rules = self.read_as.iter().map(|text| read_as_rule(text));
        let remote = RemoteOpener {
            meter: Arc::new(meter),
            limits: self.limits(),
            scratch: Arc::new(Disk::new(self.scratch.unwrap_or(MOST))),
        };
        let rules = rules.collect::<Result<_>>()?;
        let sources = SourceOpener::new(&self.with, remote);
        Ok(JobOpener { rules, unstack: self.unstack, sources })
    }
}

/// Opens the checkpoints of a job, one after another, within one limit on fetching.
pub(crate) struct JobOpener {
    rules: Vec<CastRule>,
    unstack: bool,
    pub(crate) sources: SourceOpener,
}

impl JobOpener {
    /// Opens the checkpoint at a path or an address.
    pub(crate) fn open(&self, source: &Path, progress: &mut dyn Progress) -> Result<Checkpoint> {
        let checkpoint = self.sources.open(source, progress)?;
        checkpoint.inner().room(1_000)?;
        let checkpoint = checkpoint.read_as(&self.rules)?.unwrap_or(checkpoint);
        let unstacked = if self.unstack { checkpoint.unstacked()? } else { None };
        Ok(unstacked.unwrap_or(checkpoint))
    }
}

/// Returns advice for an exceeded limit on fetching.
fn fetch_more() -> Advice {
    advice!["Plan the job again with a larger ", Setting::MaxFetch, ", such as 20GB."]
}

/// Returns the current state of the files that a checkpoint is read from.
pub(crate) fn identities(checkpoint: &core::Checkpoint) -> Vec<SourceIdentity> {
    let used = CheckpointSummary::of(checkpoint).files;
    let files = checkpoint.files.iter().filter(|(_, file)| {
        used.iter().any(|(name, len)| *name == file.name && *len == file.source.len())
    });
    let identity = |file: &core::File| SourceIdentity {
        name: file.name.clone(),
        bytes: file.source.len(),
        version: file.source.version(),
    };
    files.map(|(_, file)| identity(file)).collect()
}

/// Fails if a source is not as it was when the job was planned.
pub(crate) fn check_unchanged(planned: &[SourceIdentity], now: &[SourceIdentity]) -> Result<()> {
    let changed = planned.iter().zip(now).find(|(planned, now)| planned != now);
    let name = match changed {
        Some((planned, _)) => &planned.name,
        None if planned.len() == now.len() => return Ok(()),
        None => match planned.get(now.len()).or_else(|| now.get(planned.len())) {
            Some(other) => &other.name,
            None => return Ok(()),
        },
    };
    Err(Error::refused("the source has changed since the job was planned")
        .in_file(name)
        .coded("source-changed")
        .advice("Abort the job, and plan it again."))
}
