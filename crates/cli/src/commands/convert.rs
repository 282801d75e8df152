//! `statelens convert`, and writing the output of other commands.

mod destination;
mod forecast;
mod names;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use statelens::parts::checkpoint::Checkpoint;
use statelens::parts::convert::{Edit, OutputOptions};
use statelens::parts::formats::{Shards, writing_of};
use statelens::parts::quantised::QuantisedWeight;
use statelens::report::PlannedPaths;
use statelens::write::{FileOptions, Replace, output_paths, replaced_shards};
use statelens::{ConversionPlan, Error, Result, Writing};

use crate::args::{Common, Convert, Writes};
use crate::commands::edits;
use crate::commands::writing::file_options;
use crate::limits::limits;
use crate::print::{CommandResult, Printer};
use crate::progress::{Bar, Unit};
use crate::remote;
use crate::source::FileSource;

pub(crate) use destination::Destination;
pub(crate) use forecast::Forecast;

pub(crate) fn run(args: &Convert) -> CommandResult {
    let edit = edits::edit(&args.edits)?;
    let output = args.output.clone().or_else(|| args.output_option.clone());
    // Fails before anything is read where the arguments suffice; `--in-place` needs the source's
    // format.
    let mut destination = None;
    if !args.in_place {
        destination = Some(Destination::of(&args.input, output, &args.edits, &args.writes)?);
    }
    let mut opened = super::open(&args.input, &args.common.with)?;
    let mut dequantised = Vec::new();
    if let Some(dtype) = &args.dequantize {
        (opened, dequantised) = super::quantised::dense(&opened, dtype)?;
    }
    let (checkpoint, sources) = opened.into_parts();
    checkpoint.room(1_000)?;
    let (destination, writing) = match destination {
        Some(found) => found,
        None => Destination::in_place(&args.input, &checkpoint, &sources, &args.writes)?,
    };
    names::stay(&args.input, &checkpoint, &edit, writing.id);
    edits::warn_of_unused(&args.edits, &edit, &checkpoint)?;
    let job = ConvertJob {
        edit,
        dequantised,
        ..ConvertJob::new(destination, writing, &args.writes, &args.common)
    };
    if args.preview.dry_run {
        return job.show(&checkpoint, &sources, args.preview.scan);
    }
    let written = job.run(checkpoint, &sources)?;
    if let (Some(_), Destination::File(output)) = (&args.dequantize, &job.destination) {
        super::quantised::write_config(&args.input, output)?;
    }
    Ok(written)
}

/// Runs [`run`] with the format that the command is named after.
pub(crate) fn run_to(mut args: Convert, to: &str) -> CommandResult {
    if args.writes.to.as_deref().is_some_and(|format| format != to) {
        let error = Error::refused(format!("this command writes {to} files"));
        return Err(error.advice("Use `statelens convert` for another format.").into());
    }
    args.writes.to = Some(to.to_owned());
    run(&args)
}

/// A checkpoint to be written.
pub(crate) struct ConvertJob<'a> {
    pub(crate) destination: Destination,
    pub(crate) writing: &'static Writing,
    pub(crate) edit: Edit,
    pub(crate) writes: &'a Writes,
    pub(crate) common: &'a Common,
    /// How to split the output into shards, unless `writes` says so.
    pub(crate) cut: Shards,
    /// The weights that were dequantised in the checkpoint.
    pub(crate) dequantised: Vec<QuantisedWeight>,
}

impl<'a> ConvertJob<'a> {
    /// Returns a job without edits, for one file unless `writes` splits it.
    pub(crate) fn new(
        destination: Destination,
        writing: &'static Writing,
        writes: &'a Writes,
        common: &'a Common,
    ) -> Self {
        Self {
            destination,
            writing,
            edit: Edit::default(),
            writes,
            common,
            cut: Shards::One,
            dequantised: Vec::new(),
        }
    }

    /// Returns a job that writes a file without edits, in the format that `writes` names.
    pub(crate) fn to_file(path: PathBuf, writes: &'a Writes, common: &'a Common) -> Result<Self> {
        let writing = statelens::parts::formats::writing(writes.to.as_deref().unwrap_or_default())?;
        Ok(Self::new(Destination::File(path), writing, writes, common))
    }

    fn plan(&self, checkpoint: &Arc<Checkpoint>) -> Result<ConversionPlan> {
        let (output, name) = (self.output(checkpoint), &*self.destination.file_name()?);
        let (source, cut) = (checkpoint.clone(), self.cut.clone());
        let mut planned = ConversionPlan::new(source, &self.edit, &output, cut, name, limits())?;
        planned.dequantised.clone_from(&self.dequantised);
        self.destination.check(&planned.plan)?;
        Ok(planned)
    }

    /// Prints what would be written; with `scan`, reads the values that are cast. Fails where
    /// writing would fail, except for losses of the plan.
    fn show(
        &self,
        checkpoint: &Arc<Checkpoint>,
        sources: &[Arc<FileSource>],
        scan: bool,
    ) -> CommandResult {
        let forecast = self.forecast(checkpoint, scan)?;
        let paths = output_paths(&forecast.planned.plan, self.destination.path());
        let removed = match self.destination {
            Destination::File(_) => replaced_shards(&paths, &self.file_options(sources)),
            Destination::InPlace(_) | Destination::Output => Vec::new(),
        };
        let mut printer = Printer::new();
        report::show(self, &forecast, &PlannedPaths { paths, removed }, &mut printer)?;
        printer.finish()?;
        if !self.writes.lossy {
            forecast.refuse()?;
        }
        Ok(true)
    }

    /// Writes the checkpoint.
    pub(crate) fn run(
        &self,
        checkpoint: impl Into<Arc<Checkpoint>>,
        sources: &[Arc<FileSource>],
    ) -> CommandResult {
        let checkpoint = checkpoint.into();
        let planned = self.plan(&checkpoint)?;
        let options = self.file_options(sources);
        // Before anything is fetched.
        options.check_losses(&planned.plan)?;
        // The plan may hold an edited copy. Free the original so that a large checkpoint is not in
        // memory twice.
        drop(checkpoint);
        remote::check_cap(&planned.plan)?;
        let mut bar = Bar::stoppable("writing", Unit::Bytes)?;
        let started = Instant::now();
        let written = match &self.destination {
            Destination::File(path) | Destination::InPlace(path) => {
                planned.write(path, &options, &mut bar)
            }
            Destination::Output => {
                let (out, name) = (&mut std::io::stdout(), self.destination.name());
                planned.write_stream(out, &name, &options, &mut bar)
            }
        }?;
        drop(bar);
        let mut printer = Printer::new();
        report::done(self, &written, started.elapsed().as_secs_f64(), &mut printer)?;
        printer.success()
    }

    fn file_options<'b>(&self, sources: &'b [Arc<FileSource>]) -> FileOptions<'b> {
        let mut options = file_options(self.writes.replacing, sources, self.writes.lossy);
        if matches!(self.destination, Destination::InPlace(_)) {
            options.replace = Replace::Source;
        }
        options
    }

    fn output(&self, source: &Checkpoint) -> OutputOptions {
        let writing = self.writing;
        let mut output = self.writes.output(writing);
        // In place, the file keeps its format version unless another is requested.
        let known = writing.versions.iter().any(|one| one.id == source.format.version);
        let same = writing_of(source.format.id).is_some_and(|own| own.id == writing.id);
        if matches!(self.destination, Destination::InPlace(_)) && known && same {
            output.version.get_or_insert_with(|| source.format.version.clone());
        }
        output
    }
}
