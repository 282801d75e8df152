//! `statelens convert`, and writing the output of other commands.

mod destination;
mod forecast;
mod names;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use statelens::parts::checkpoint::{Checkpoint, Plan};
use statelens::parts::convert::{Change, Edit, OutputOptions, RunReport};
use statelens::parts::formats::{Shards, writing_of};
use statelens::write::{Replace, write_files, write_stream};
use statelens::{Error, Result, Writing};

use crate::args::{Common, Convert, Edits, Writes};
use crate::commands::edits;
use crate::limits::limits;
use crate::output::stop_signal;
use crate::print::{CommandResult, Failure, Printer, complain};
use crate::progress::{Bar, Unit};
use crate::remote;
use crate::source::FileSource;

pub(crate) use destination::Destination;
pub(crate) use forecast::Forecast;
pub(crate) use report::{losses_text, refuse_losses};

pub(crate) fn run(args: &Convert) -> CommandResult {
    let edit = edits::edit(&args.edits)?;
    let output = args.output.clone().or_else(|| args.output_option.clone());
    // Fails before anything is read where the arguments suffice; `--in-place` needs the source's
    // format.
    let mut destination = None;
    if !args.in_place {
        destination = Some(Destination::of(&args.input, output, &args.edits, &args.writes)?);
    }
    let (checkpoint, sources) = super::open(&args.input, &args.common.with)?.into_parts();
    checkpoint.room(1_000)?;
    let (destination, writing) = match destination {
        Some(found) => found,
        None => Destination::in_place(&args.input, &checkpoint, &sources, &args.writes)?,
    };
    names::stay(&args.input, &checkpoint, &edit, writing.id);
    ConvertJob {
        destination,
        writing,
        edits: &args.edits,
        edit,
        writes: &args.writes,
        common: &args.common,
        dry_run: args.dry_run,
        cut: Shards::One,
        scan: args.scan,
    }
    .run(checkpoint, &sources)
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
    pub(crate) edits: &'a Edits,
    pub(crate) edit: Edit,
    pub(crate) writes: &'a Writes,
    pub(crate) common: &'a Common,
    pub(crate) dry_run: bool,
    /// How to split the output into shards, unless `writes` says so.
    pub(crate) cut: Shards,
    /// Whether a dry run reads the values that are cast.
    pub(crate) scan: bool,
}

impl ConvertJob<'_> {
    /// Plans the output; also returns the changes of keys and the name of the format.
    fn planned(&self, checkpoint: &Arc<Checkpoint>) -> Result<(Plan, Vec<Change>, String)> {
        edits::warn_of_unused(self.edits, &self.edit, checkpoint)?;
        let (output, name) = (self.output(checkpoint), self.destination.file_name()?);
        let (source, cut) = (checkpoint.clone(), self.cut.clone());
        let (plan, changes) = output.plan(source, &self.edit, cut, &name, limits())?;
        self.destination.check(&plan)?;
        Ok((plan, changes, output.format()?))
    }

    /// Plans the conversion and, unless this is a dry run, writes it.
    pub(crate) fn run(
        &self,
        checkpoint: impl Into<Arc<Checkpoint>>,
        sources: &[Arc<FileSource>],
    ) -> CommandResult {
        let checkpoint = checkpoint.into();
        let (plan, changes, format) = self.planned(&checkpoint)?;
        let size = plan.size()?;
        if self.dry_run {
            let mut printer = Printer::new();
            let scanned = match self.scan {
                true => Some(forecast::counted(&checkpoint, plan.clone())?),
                false => None,
            };
            report::show(self, &format, &plan, size, &changes, scanned.as_ref(), &mut printer)?;
            printer.finish()?;
            // A dry run fails where the real run would.
            if let Some(report) = scanned.filter(|_| !self.writes.lossy) {
                edits::refuse_false(&plan.source, &report)?;
            }
            return Ok(true);
        }
        if plan.loses() && !self.writes.lossy {
            return Err(refuse_losses(&plan.losses).into());
        }
        // The plan may hold an edited copy. Free the original so that a large checkpoint is not in
        // memory twice.
        drop((checkpoint, changes));
        remote::check_cap(&plan)?;
        let (losses, source, paths) = (plan.losses.clone(), plan.source.clone(), self.paths(&plan));
        let judge = |report: &RunReport| match self.writes.lossy {
            true => Ok(()),
            false => edits::refuse_false(&source, report),
        };
        let mut bar = Bar::new("writing", Unit::Bytes).stopped_by(stop_signal()?);
        let started = Instant::now();
        let written = match &self.destination {
            Destination::Output => {
                let (out, name) = (&mut std::io::stdout(), "standard output");
                write_stream(out, name, plan, limits(), &judge, &mut bar)
            }
            Destination::File(path) if remote::address(path).is_some() => {
                let force = self.writes.force;
                remote::write(&paths, plan, force, complain, limits(), &judge, &mut bar)
            }
            destination => {
                let writing = statelens::write::FileOptions {
                    replace: match destination {
                        Destination::InPlace(_) => Replace::Source,
                        _ if self.writes.force => Replace::Any,
                        _ => Replace::Nothing,
                    },
                    sync: self.writes.durable.sync(),
                    limits: limits(),
                    sources,
                };
                write_files(&paths, plan, &writing, &judge, &mut bar)
            }
        };
        let report = written.map_err(|error| self.named(error))?;
        drop(bar);
        let mut printer = Printer::new();
        let seconds = started.elapsed().as_secs_f64();
        report::done(self, &format, &paths, &source, &losses, &report, seconds, &mut printer)?;
        printer.finish()?;
        Ok(true)
    }

    /// Returns the paths of the plan's files, all in the folder of the destination.
    fn paths(&self, plan: &Plan) -> Vec<PathBuf> {
        let path = self.destination.path();
        plan.files.iter().map(|file| path.with_file_name(&file.name)).collect()
    }

    /// Prints a line about the output; on standard error if standard output is the destination.
    fn print_line(&self, printer: &mut Printer, line: &str) -> std::result::Result<(), Failure> {
        match self.destination {
            Destination::Output => {
                complain(line);
                Ok(())
            }
            _ => printer.line(line),
        }
    }

    /// Names the destination in an error, unless the error already names a file.
    fn named(&self, error: Error) -> Error {
        match error.file() {
            Some(_) => error,
            None => error.in_file(self.destination.name()),
        }
    }

    /// Returns the options of the output.
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
