//! Conversion of checkpoints.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use statelens_checkpoint::{
    self as core, DType, Error, Limits, Loss, Plan, Progress, Result, Size, Unwatched,
};
use statelens_convert::{
    CastRule, Change, Changed, Edit, OutputOptions, Pattern, Rename, RunReport,
};
use statelens_formats::Shards;
use statelens_quantised::QuantisedWeight;
use statelens_values::report_json;

use crate::Checkpoint;
use crate::files::path_text;
use crate::output::Sync;
use crate::refusal::Refusal;
use crate::report::{CastEffects, ChangeFields, PlannedPaths, Shares, path_texts};
use crate::write::{
    FileOptions, Replace, WrittenFiles, file_name, output_paths, write_plan, write_stream,
};

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

/// Returns a conversion of the whole, unchanged checkpoint. The methods of [`ConvertBuilder`] add edits
/// and options, and [`ConvertBuilder::write`] runs it.
pub fn convert(checkpoint: &Checkpoint, target: Target) -> ConvertBuilder<'_> {
    let output = OutputOptions { to: target.id().to_owned(), ..OutputOptions::default() };
    ConvertBuilder::new(checkpoint, output, Ok(Edit::default()))
}

/// The description of a conversion. Values are read by [`ConvertBuilder::write`] only, which needs
/// little memory, however large the checkpoint is.
#[must_use = "nothing is written before `write`"]
pub struct ConvertBuilder<'a> {
    checkpoint: &'a Checkpoint,
    output: OutputOptions,
    /// An error here is returned by [`ConvertBuilder::plan`].
    edit: Result<Edit>,
    pub(crate) lossy: bool,
    pub(crate) replace: bool,
    sync: bool,
}

/// The result of a conversion.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Written {
    /// The requested path or address.
    pub output: PathBuf,
    /// Paths of the written files.
    pub files: Vec<PathBuf>,
    /// Paths of shards of the replaced checkpoint, which were removed.
    pub removed: Vec<PathBuf>,
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
    /// The weights that were dequantised before, see [`ConversionPlan::dequantised`].
    pub dequantised: Vec<QuantisedWeight>,
}

impl Written {
    /// Returns the report as JSON, as `statelens convert --json` prints it.
    pub fn json(&self) -> String {
        #[derive(Serialize)]
        struct Report<'a> {
            output: String,
            format: &'a str,
            dry_run: bool,
            bytes: u64,
            files: Vec<String>,
            removed: Vec<String>,
            cast: CastEffects,
            losses: &'a [Loss],
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            dequantised: &'a [QuantisedWeight],
        }
        report_json(&Report {
            output: path_text(&self.output),
            format: &self.format,
            dry_run: false,
            bytes: self.bytes,
            files: path_texts(&self.files),
            removed: path_texts(&self.removed),
            cast: CastEffects::new(&self.report, &self.changed),
            losses: &self.losses,
            dequantised: &self.dequantised,
        })
    }
}

/// A planned conversion.
#[derive(Debug, Clone)]
pub struct ConversionPlan {
    /// The files to write, with their losses.
    pub plan: Plan,
    /// The changes of keys.
    pub changes: Vec<Change>,
    /// The full name of the format: `Cerebras HDF5 0.5`.
    pub format: String,
    /// The weights that were dequantised in the source, for the report:
    /// [`Checkpoint::dequantised`] returns them.
    pub dequantised: Vec<QuantisedWeight>,
}

impl ConversionPlan {
    /// Returns the report of a conversion that was planned only, as
    /// `statelens convert --dry-run --json` prints it. `scanned` counts what casts would do, if the
    /// values were read.
    pub fn json(
        &self,
        output: &str,
        files: &PlannedPaths,
        scanned: Option<&RunReport>,
    ) -> Result<String> {
        let Self { plan, changes, format, dequantised } = self;
        #[derive(Serialize)]
        struct Report<'a> {
            output: &'a str,
            format: &'a str,
            dry_run: bool,
            bytes: u64,
            exact: bool,
            files: Vec<String>,
            removed: Vec<String>,
            segments: Shares,
            #[serde(skip_serializing_if = "Option::is_none")]
            cast: Option<CastEffects>,
            losses: &'a [Loss],
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            dequantised: &'a [QuantisedWeight],
            keys: Vec<ChangeFields<'a>>,
        }
        let size = plan.size()?;
        Ok(report_json(&Report {
            output,
            format,
            dry_run: true,
            bytes: size.bytes(),
            exact: matches!(size, Size::Exact(_)),
            files: path_texts(&files.paths),
            removed: path_texts(&files.removed),
            segments: Shares::of(plan)?,
            cast: scanned.map(|report| CastEffects::new(report, &report.worst(&plan.source))),
            losses: &plan.losses,
            dequantised,
            keys: changes.iter().map(ChangeFields::from).collect(),
        }))
    }

    /// Plans the files for `source` as edited by `edit`, named after `name`, as
    /// [`OutputOptions::plan`] does.
    pub fn new(
        source: Arc<core::Checkpoint>,
        edit: &Edit,
        output: &OutputOptions,
        cut: Shards,
        name: &str,
        limits: &Limits,
    ) -> Result<Self> {
        let (plan, changes) = output.plan(source, edit, cut, name, limits)?;
        Ok(Self { plan, changes, format: output.format()?, dequantised: Vec::new() })
    }

    /// Writes the files as [`write_plan`] does.
    pub fn write(
        self,
        path: &Path,
        options: &FileOptions<'_>,
        progress: &mut dyn Progress,
    ) -> Result<Written> {
        self.written(path, |plan| write_plan(plan, path, options, progress))
    }

    /// Writes the file to a stream as [`write_stream`] does.
    pub fn write_stream(
        self,
        out: &mut dyn Write,
        name: &str,
        options: &FileOptions<'_>,
        progress: &mut dyn Progress,
    ) -> Result<Written> {
        self.written(Path::new(name), |plan| {
            write_stream(plan, out, name, options, progress).map(WrittenFiles::from)
        })
    }

    /// Calls `write` with the plan; returns the result for `output`.
    fn written(
        self,
        output: &Path,
        write: impl FnOnce(Plan) -> Result<WrittenFiles>,
    ) -> Result<Written> {
        let Self { plan, changes, format, dequantised } = self;
        // A large checkpoint has many changes, and they are not needed from here on.
        drop(changes);
        let (output, files) = (output.to_owned(), output_paths(&plan, output));
        let (losses, source) = (plan.losses.clone(), plan.source.clone());
        let WrittenFiles { report, removed } = write(plan)?;
        let (bytes, changed) = (report.bytes, report.worst(&source));
        Ok(Written { output, files, removed, bytes, losses, report, changed, format, dequantised })
    }
}

impl<'a> ConvertBuilder<'a> {
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
        Ok(self.planned(name)?.plan)
    }

    /// Plans the files to write, which are named after `name`; reads no values.
    pub fn planned(&self, name: &str) -> Result<ConversionPlan> {
        let edit = self.edit.as_ref().map_err(Error::clone)?;
        let source = self.checkpoint.inner();
        let limits = source.files.limits();
        ConversionPlan::new(source.clone(), edit, &self.output, Shards::One, name, limits)
    }

    /// Writes the files. They get their names when all are complete and were opened again with the
    /// planned keys, dtypes, shapes and plain values; on an error, nothing remains. Their bytes are
    /// not read again: [`Checkpoint::verify`] and [`diff`](crate::diff) do that.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<Written> {
        self.write_with(path, &mut Unwatched)
    }

    /// Writes as [`ConvertBuilder::write`] does; `progress` counts bytes and can cancel.
    pub fn write_with(
        &self,
        path: impl AsRef<Path>,
        progress: &mut dyn Progress,
    ) -> Result<Written> {
        let path = path.as_ref();
        let _call = self.checkpoint.call();
        // The limits with which the checkpoint was opened apply to the output, too.
        let limits = self.checkpoint.inner().files.limits();
        let options = FileOptions {
            replace: Replace::of(self.replace),
            sync: Sync::of(self.sync),
            refusal: (!self.lossy).then(Refusal::default),
            ..FileOptions::new(limits, self.checkpoint.sources())
        };
        let planned = file_name(path).and_then(|name| self.planned(&name));
        let written = planned.and_then(|planned| planned.write(path, &options, progress));
        written.map_err(|error| error.in_file(path_text(path)))
    }

    fn edited(mut self, change: impl FnOnce(&mut Edit) -> Result<()>) -> Self {
        self.edit = self.edit.and_then(|mut edit| change(&mut edit).map(|()| edit));
        self
    }
}
