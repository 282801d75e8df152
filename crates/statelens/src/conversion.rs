//! Converting checkpoints.

use std::path::{Path, PathBuf};

use statelens_checkpoint::{DType, Error, Loss, Plan, Progress, Result, Unwatched};
use statelens_convert::{CastRule, Edit, Pattern, Rename, RunReport, plan, shard_size};
use statelens_formats::{RequestedOptions, Shards};

use crate::Checkpoint;
use crate::output::Sync;
use crate::write::{FileOptions, Replace, write_files};

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// A Cerebras checkpoint (`.mdl`), which is HDF5.
    Cerebras,
    /// A TensorFlow bundle (`.index` and `.data-*`).
    TensorFlow,
    /// A PyTorch zip file (`.pt`), which `torch.load(weights_only=True)` takes.
    Torch,
    /// safetensors.
    Safetensors,
    /// A NumPy archive (`.npz`).
    Numpy,
    /// A format that was [registered](crate::register), by the id of its [`Writing`](crate::Writing).
    Registered(&'static str),
}

impl Target {
    /// What the command's `--to` calls it.
    pub fn id(self) -> &'static str {
        match self {
            Self::Cerebras => "cerebras",
            Self::TensorFlow => "tensorflow",
            Self::Torch => "torch",
            Self::Safetensors => "safetensors",
            Self::Numpy => "npz",
            Self::Registered(id) => id,
        }
    }
}

/// Begins a conversion of a checkpoint, all of it as it is; see [`Conversion`] for what may be asked
/// for, and [`Conversion::write`] for doing it.
pub fn convert(checkpoint: &Checkpoint, target: Target) -> Conversion<'_> {
    Conversion {
        checkpoint,
        target,
        requested: RequestedOptions::default(),
        shards: None,
        edit: Ok(Edit::default()),
        lossy: false,
        replace: false,
        sync: false,
    }
}

/// A conversion that has not begun. Nothing is read before [`Conversion::write`], which takes the
/// same little memory whatever the checkpoint weighs.
#[must_use = "nothing is written before `write`"]
pub struct Conversion<'a> {
    checkpoint: &'a Checkpoint,
    target: Target,
    requested: RequestedOptions,
    shards: Option<String>,
    /// An error waits for [`Conversion::plan`].
    edit: Result<Edit>,
    lossy: bool,
    replace: bool,
    sync: bool,
}

/// What was written.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Written {
    /// The files, by the names that they have now.
    pub files: Vec<PathBuf>,
    /// Their bytes together.
    pub bytes: u64,
    /// What is not as it was in the source.
    pub losses: Vec<Loss>,
    /// What casting did to the numbers, and what else became of each tensor.
    pub report: RunReport,
}

impl Conversion<'_> {
    /// Takes only the leaves whose flat key matches: a glob, or an expression between slashes.
    /// Further patterns take more.
    pub fn select(self, pattern: &str) -> Self {
        self.edited(|edit| Pattern::parse(pattern).map(|one| edit.select.push(one)))
    }

    /// Leaves out those that match.
    pub fn exclude(self, pattern: &str) -> Self {
        self.edited(|edit| Pattern::parse(pattern).map(|one| edit.exclude.push(one)))
    }

    /// Takes only this top-level state (`model`, `optimizer`), and others that are named so.
    pub fn state(self, name: &str) -> Self {
        self.edited(|edit| {
            edit.states.push(name.to_owned());
            Ok(())
        })
    }

    /// Replaces in keys whatever the regular expression `pattern` finds; `$1` in `by` is what a group
    /// of it matched.
    pub fn rename(self, pattern: &str, by: &str) -> Self {
        self.edited(|edit| {
            Rename::parse(&format!("{pattern}=>{by}")).map(|one| edit.rename.push(one))
        })
    }

    /// Takes a prefix off every key.
    pub fn strip_prefix(self, prefix: &str) -> Self {
        self.edited(|edit| {
            edit.strip_prefix = prefix.to_owned();
            Ok(())
        })
    }

    /// Puts a prefix before every key.
    pub fn prefix(self, prefix: &str) -> Self {
        self.edited(|edit| {
            edit.prefix = prefix.to_owned();
            Ok(())
        })
    }

    /// Casts the floating tensors whose key matches; of several, the first pattern decides.
    pub fn cast(self, pattern: &str, dtype: DType) -> Self {
        self.edited(|edit| {
            let pattern = Some(Pattern::parse(pattern)?);
            edit.casts.push(CastRule { pattern, dtype });
            Ok(())
        })
    }

    /// Gives each name of a tensor that has several a copy of its own.
    pub fn untie(self) -> Self {
        self.edited(|edit| {
            edit.untie = true;
            Ok(())
        })
    }

    /// The version of the format: `0.5` or `0.4` of Cerebras.
    pub fn version(mut self, version: &str) -> Self {
        self.requested.version = Some(version.to_owned());
        self
    }

    /// How the file is compressed, where the format can be: `lz4` or `gzip`.
    pub fn compression(mut self, compression: &str) -> Self {
        self.requested.compression = Some(compression.to_owned());
        self
    }

    /// Cuts it into several files with an index, each up to a size as `10GB`.
    pub fn shard_size(mut self, size: &str) -> Self {
        self.shards = Some(size.to_owned());
        self
    }

    /// Goes on where something would be lost or falsified, which [`Written`] tells then.
    pub fn lossy(mut self) -> Self {
        self.lossy = true;
        self
    }

    /// Replaces a file of that name, once the new one is complete.
    pub fn replace(mut self) -> Self {
        self.replace = true;
        self
    }

    /// Waits until the files are on the disk, so that they outlive a power cut.
    pub fn sync(mut self) -> Self {
        self.sync = true;
        self
    }

    /// What would be written, to files that are named after `name`, and what would be lost.
    pub fn plan(&self, name: &str) -> Result<Plan> {
        let writing = statelens_formats::writing(self.target.id())?;
        let shards = match &self.shards {
            Some(size) => Shards::BySize(shard_size(size)?),
            None => Shards::One,
        };
        let target = writing.target(&self.requested)?.sharded(shards)?;
        let edit = self.edit.as_ref().map_err(Error::clone)?;
        plan(self.checkpoint.inner().clone(), edit, &target, name)
    }

    /// Writes it. The files get their names when all are complete and were opened again, with the keys, dtypes, shapes
    /// and plain values that were to be written; whatever fails before leaves nothing. Their bytes are not read again:
    /// [`Checkpoint::verify`] and [`diff`](crate::diff) do that.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<Written> {
        self.write_with(path, &mut Unwatched)
    }

    /// As [`Conversion::write`]; tells how far it is in bytes, and stops where `progress` says so.
    pub fn write_with(
        &self,
        path: impl AsRef<Path>,
        progress: &mut dyn Progress,
    ) -> Result<Written> {
        let path = path.as_ref();
        let named = |error: Error| match error.file() {
            Some(_) => error,
            None => error.in_file(path.display().to_string()),
        };
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| named(Error::refused("this does not name a file")))?;
        let plan = self.plan(name).map_err(named)?;
        if plan.loses() && !self.lossy {
            return Err(named(refused(&plan.losses)));
        }
        // What the checkpoint was opened within holds for what is made of it.
        let limits = self.checkpoint.inner().files.limits();
        let files: Vec<PathBuf> =
            plan.files.iter().map(|file| path.with_file_name(&file.name)).collect();
        let losses = plan.losses.clone();
        let judge = |report: &RunReport| match report.is_false() && !self.lossy {
            true => Err(Error::refused("casting falsifies numbers, so nothing was kept")
                .coded("lossy")
                .advice("Take a dtype with a larger range, or agree with `Conversion::lossy`.")),
            false => Ok(()),
        };
        let writing = FileOptions {
            replace: if self.replace { Replace::Any } else { Replace::Nothing },
            sync: if self.sync { Sync::Always } else { Sync::IfReplacing },
            limits,
            sources: self.checkpoint.sources(),
        };
        let report = write_files(&files, plan, &writing, &judge, progress).map_err(named)?;
        Ok(Written { files, bytes: report.bytes, losses, report })
    }

    fn edited(mut self, change: impl FnOnce(&mut Edit) -> Result<()>) -> Self {
        self.edit = self.edit.and_then(|mut edit| change(&mut edit).map(|()| edit));
        self
    }
}

/// That something would be lost, and what.
fn refused(losses: &[Loss]) -> Error {
    let mut what = String::new();
    for loss in losses.iter().filter(|loss| !loss.harmless) {
        let keys = match loss.keys.as_slice() {
            [] => String::new(),
            [key] => format!(" (`{key}`)"),
            [key, more @ ..] => format!(" (`{key}` and {} more)", more.len()),
        };
        what.push_str(if what.is_empty() { "" } else { "; " });
        what.push_str(&format!("{}{keys}", loss.what));
    }
    Error::refused(format!("something would be lost, so nothing was written: {what}"))
        .coded("lossy")
        .advice("Leave these keys out, or agree with `Conversion::lossy`.")
}
