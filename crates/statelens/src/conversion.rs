//! Conversion of checkpoints.

use std::path::{Path, PathBuf};

use statelens_checkpoint::{DType, Error, Loss, Plan, Progress, Result, Unwatched};
use statelens_convert::{CastRule, Changed, Edit, OutputOptions, Pattern, Rename, RunReport};
use statelens_formats::Shards;
use statelens_values::Json;

use crate::Checkpoint;
use crate::output::Sync;
use crate::report::{cast_json, files_json, losses_json};
use crate::write::{FileOptions, Replace, write_files};

/// The format to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// A Cerebras checkpoint (`.mdl`), which is HDF5.
    Cerebras,
    /// A TensorFlow bundle (`.index` and `.data-*`).
    TensorFlow,
    /// A PyTorch zip file (`.pt`), which `torch.load(weights_only=True)` accepts.
    Torch,
    /// safetensors.
    Safetensors,
    /// A NumPy archive (`.npz`).
    Numpy,
    /// A [registered](crate::register) format, by the id of its [`Writing`](crate::Writing).
    Registered(&'static str),
}

impl Target {
    /// Returns the name of the format for `--to` on the command line.
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

/// Returns a conversion of the whole, unchanged checkpoint. The methods of [`Conversion`] add edits
/// and options, and [`Conversion::write`] runs it.
pub fn convert(checkpoint: &Checkpoint, target: Target) -> Conversion<'_> {
    let output = OutputOptions { to: target.id().to_owned(), ..OutputOptions::default() };
    Conversion::new(checkpoint, output, Ok(Edit::default()))
}

/// The description of a conversion. Values are read by [`Conversion::write`] only, which needs
/// little memory, however large the checkpoint is.
#[must_use = "nothing is written before `write`"]
pub struct Conversion<'a> {
    checkpoint: &'a Checkpoint,
    output: OutputOptions,
    /// An error here is returned by [`Conversion::plan`].
    edit: Result<Edit>,
    pub(crate) lossy: bool,
    pub(crate) replace: bool,
    sync: bool,
}

/// The result of a conversion.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Written {
    /// Paths of the written files.
    pub files: Vec<PathBuf>,
    /// Total size in bytes.
    pub bytes: u64,
    /// Differences from the source.
    pub losses: Vec<Loss>,
    /// What casting did to the numbers, and the outcome for each tensor.
    pub report: RunReport,
    /// The tensors that casts changed, worst first.
    pub changed: Vec<Changed>,
    /// The full name of the format: `Cerebras HDF5 0.5`.
    pub format: String,
}

impl Written {
    /// Returns the report as JSON, as `statelens convert --json` prints it.
    pub fn json(&self) -> String {
        let mut json = Json::new();
        json.object(|json| {
            json.name("statelens").number(1);
            let first = self.files.first().map(|path| path.to_string_lossy());
            json.name("output").str(&first.unwrap_or_default());
            json.name("format").str(&self.format);
            json.name("dry_run").bool(false);
            json.name("bytes").number(self.bytes);
            files_json(json, &self.files);
            cast_json(json, &self.report, &self.changed);
            losses_json(json, &self.losses);
        });
        json.take()
    }
}

impl<'a> Conversion<'a> {
    pub(crate) fn new(
        checkpoint: &'a Checkpoint,
        output: OutputOptions,
        edit: Result<Edit>,
    ) -> Self {
        Self { checkpoint, output, edit, lossy: false, replace: false, sync: false }
    }

    /// Selects the leaves whose flat key matches `pattern`: a glob, or a regular expression between
    /// slashes. Each further pattern adds its matches.
    pub fn select(self, pattern: &str) -> Self {
        self.edited(|edit| Pattern::parse(pattern).map(|one| edit.select.push(one)))
    }

    /// Excludes the leaves whose flat key matches.
    pub fn exclude(self, pattern: &str) -> Self {
        self.edited(|edit| Pattern::parse(pattern).map(|one| edit.exclude.push(one)))
    }

    /// Selects the top-level state `name` (`model`, `optimizer`). Each further call adds a state.
    pub fn state(self, name: &str) -> Self {
        self.edited(|edit| {
            edit.states.push(name.to_owned());
            Ok(())
        })
    }

    /// Replaces each match of the regular expression `pattern` in keys; `$1` in `by` is a group of
    /// the match.
    pub fn rename(self, pattern: &str, by: &str) -> Self {
        self.edited(|edit| {
            Rename::parse(&format!("{pattern}=>{by}")).map(|one| edit.rename.push(one))
        })
    }

    /// Removes a prefix from every key.
    pub fn strip_prefix(self, prefix: &str) -> Self {
        self.edited(|edit| {
            edit.strip_prefix = prefix.to_owned();
            Ok(())
        })
    }

    /// Adds a prefix to every key.
    pub fn prefix(self, prefix: &str) -> Self {
        self.edited(|edit| {
            edit.prefix = prefix.to_owned();
            Ok(())
        })
    }

    /// Casts the floating-point tensors whose key matches. The first matching pattern decides.
    pub fn cast(self, pattern: &str, dtype: DType) -> Self {
        self.edited(|edit| {
            let pattern = Some(Pattern::parse(pattern)?);
            edit.casts.push(CastRule { pattern, dtype });
            Ok(())
        })
    }

    /// Writes a separate copy for each key of a tied tensor.
    pub fn untie(self) -> Self {
        self.edited(|edit| {
            edit.untie = true;
            Ok(())
        })
    }

    /// Sets the version of the format: `0.5` or `0.4` for Cerebras.
    pub fn version(mut self, version: &str) -> Self {
        self.output.version = Some(version.to_owned());
        self
    }

    /// Sets the compression, if the format has one: `lz4` or `gzip`.
    pub fn compression(mut self, compression: &str) -> Self {
        self.output.compression = Some(compression.to_owned());
        self
    }

    /// Splits the output into shards of at most `size`, such as `10GB`, with an index.
    pub fn shard_size(mut self, size: &str) -> Self {
        self.output.shard_size = Some(size.to_owned());
        self
    }

    /// Accepts losses, which [`Written`] then reports.
    pub fn lossy(mut self) -> Self {
        self.lossy = true;
        self
    }

    /// Allows replacing an existing file, once the new one is complete.
    pub fn replace(mut self) -> Self {
        self.replace = true;
        self
    }

    /// Waits until the files are on the disk, so that they survive a power failure.
    pub fn sync(mut self) -> Self {
        self.sync = true;
        self
    }

    /// Returns the plan of the files to write, which are named after `name`, with their losses.
    pub fn plan(&self, name: &str) -> Result<Plan> {
        let edit = self.edit.as_ref().map_err(Error::clone)?;
        let source = self.checkpoint.inner();
        let limits = source.files.limits();
        Ok(self.output.plan(source.clone(), edit, Shards::One, name, limits)?.0)
    }

    /// Writes the files. They get their names when all are complete and were opened again with the
    /// planned keys, dtypes, shapes and plain values; on an error, nothing remains. Their bytes are
    /// not read again: [`Checkpoint::verify`] and [`diff`](crate::diff) do that.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<Written> {
        self.write_with(path, &mut Unwatched)
    }

    /// Writes as [`Conversion::write`] does; `progress` counts bytes and can cancel.
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
            return Err(named(losses_refused(&plan.losses)));
        }
        // The limits with which the checkpoint was opened apply to the output, too.
        let limits = self.checkpoint.inner().files.limits();
        let files: Vec<PathBuf> =
            plan.files.iter().map(|file| path.with_file_name(&file.name)).collect();
        let (losses, source) = (plan.losses.clone(), plan.source.clone());
        let judge = |report: &RunReport| if self.lossy { Ok(()) } else { judge_casts(report) };
        let writing = FileOptions {
            replace: if self.replace { Replace::Any } else { Replace::Nothing },
            sync: if self.sync { Sync::Always } else { Sync::IfReplacing },
            limits,
            sources: self.checkpoint.sources(),
        };
        let report = write_files(&files, plan, &writing, &judge, progress).map_err(named)?;
        let format = self.output.format()?;
        let (bytes, changed) = (report.bytes, report.worst(&source));
        Ok(Written { files, bytes, losses, report, changed, format })
    }

    fn edited(mut self, change: impl FnOnce(&mut Edit) -> Result<()>) -> Self {
        self.edit = self.edit.and_then(|mut edit| change(&mut edit).map(|()| edit));
        self
    }
}

/// Fails if casts lost numbers: values became infinite or zero.
pub fn judge_casts(report: &RunReport) -> Result<()> {
    match report.is_false() {
        true => Err(Error::refused("casting loses numbers, so nothing was kept")
            .coded("lossy")
            .advice("Use a dtype with a larger range, or accept losses with `lossy`.")),
        false => Ok(()),
    }
}

/// Returns the error that refuses and lists losses.
pub fn losses_refused(losses: &[Loss]) -> Error {
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
        .advice("Leave these keys out, or accept losses with `lossy`.")
}
