//! `statelens convert`, and writing what other commands made.

mod destination;
mod forecast;
mod names;
mod report;
mod write;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use statelens::write::{Replace, write_files};
use statelens_checkpoint::{Checkpoint, Error, Plan, Result};
use statelens_convert::{Edit, RunReport, WriteTarget, plan, shards_wanted};
use statelens_formats::{RequestedOptions, Shards, Writing, writing_of};

use crate::args::{Common, Convert, Edits, Writes};
use crate::commands::edits;
use crate::limits::{self, limits};
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
    // Found out before anything is read, but where the source says it.
    let mut destination = None;
    if !args.in_place {
        destination = Some(Destination::of(&args.input, output, &args.edits, &args.writes)?);
    }
    let (checkpoint, sources) = super::open(&args.input, &args.common.with)?;
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

/// [`run`], to the format that the name of the command says.
pub(crate) fn run_to(mut args: Convert, to: &str) -> CommandResult {
    if args.writes.to.as_deref().is_some_and(|asked| asked != to) {
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
    /// Into which files it is cut, where `writes` doesn't say it.
    pub(crate) cut: Shards,
    /// A dry run reads what is cast.
    pub(crate) scan: bool,
}

impl ConvertJob<'_> {
    /// What is to be written of a checkpoint, and what its format is called.
    fn planned(&self, checkpoint: &Arc<Checkpoint>) -> Result<(Plan, String)> {
        let (target, format) = self.target(checkpoint)?;
        let target = target.sharded(self.shards(checkpoint)?).map_err(|error| self.named(error))?;
        // PyTorch's files hold a text once that is named again and again.
        if target.writing.id != "torch" {
            limits::check_texts(checkpoint, "writing the file")?;
        }
        edits::warn_of_unused(self.edits, &self.edit, checkpoint)?;
        let plan = plan(checkpoint.clone(), &self.edit, &target, &self.destination.file_name()?)?;
        self.destination.check(&plan)?;
        Ok((plan, format))
    }

    /// Plans it, and writes it unless that is not asked for.
    pub(crate) fn run(
        &self,
        checkpoint: impl Into<Arc<Checkpoint>>,
        sources: &[Arc<FileSource>],
    ) -> CommandResult {
        let checkpoint = checkpoint.into();
        let (plan, format) = self.planned(&checkpoint)?;
        let size = plan.size()?;
        if self.dry_run {
            let mut printer = Printer::new();
            let changes =
                if self.edit.is_empty() { Vec::new() } else { self.edit.preview(&checkpoint)? };
            let scanned = match self.scan {
                true => Some(forecast::counted(&checkpoint, plan.clone())?),
                false => None,
            };
            report::show(self, &format, &plan, size, &changes, scanned.as_ref(), &mut printer)?;
            printer.finish()?;
            // As it would end.
            if let Some(report) = scanned.filter(|_| !self.writes.lossy) {
                edits::refuse_false(&plan.source, &report)?;
            }
            return Ok(true);
        }
        if plan.loses() && !self.writes.lossy {
            return Err(refuse_losses(&plan.losses).into());
        }
        // What is written may be another one: that of a large file would be in memory twice.
        drop(checkpoint);
        remote::check_cap(&plan)?;
        let (losses, source, paths) = (plan.losses.clone(), plan.source.clone(), self.paths(&plan));
        let judge = |report: &RunReport| match self.writes.lossy {
            true => Ok(()),
            false => edits::refuse_false(&source, report),
        };
        let mut bar = Bar::new("writing", Unit::Bytes).stopped_by(stop_signal()?);
        let started = Instant::now();
        let written = match &self.destination {
            Destination::Output => write::to_standard_output(plan, &judge, &mut bar),
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

    /// Where the files of a plan go: beside each other.
    fn paths(&self, plan: &Plan) -> Vec<PathBuf> {
        let path = self.destination.path();
        plan.files.iter().map(|file| path.with_file_name(&file.name)).collect()
    }

    /// A line about what was written: where standard output is that, on standard error.
    fn say(&self, printer: &mut Printer, line: &str) -> std::result::Result<(), Failure> {
        match self.destination {
            Destination::Output => {
                complain(line);
                Ok(())
            }
            _ => printer.line(line),
        }
    }

    /// An error about the file to be written, unless it is about another one.
    fn named(&self, error: Error) -> Error {
        match error.file() {
            Some(_) => error,
            None => error.in_file(self.destination.name()),
        }
    }

    /// What to write, and what it is called.
    fn target(&self, source: &Checkpoint) -> Result<(WriteTarget, String)> {
        let writing = self.writing;
        let version = || {
            // A file that is replaced keeps its version, if that is asked for at all.
            let known = writing.versions.iter().any(|one| one.id == source.format.version);
            let same = writing_of(source.format.id).is_some_and(|own| own.id == writing.id);
            let keeps = matches!(self.destination, Destination::InPlace(_)) && known && same;
            keeps.then(|| source.format.version.clone())
        };
        let asked = RequestedOptions {
            version: self.writes.format_version.clone().or_else(version),
            compression: self.writes.compress.clone(),
            object_graph: self.writes.object_graph,
            state_file: self.writes.state_file,
        };
        Ok((writing.target(&asked)?, writing.full_name(&asked)))
    }

    /// What `--shard-size` or `--shard` ask for, of what the edit leaves of the checkpoint.
    fn shards(&self, source: &Arc<Checkpoint>) -> Result<Shards> {
        let edited = || match self.edit.is_empty() {
            true => Ok(source.clone()),
            false => self.edit.apply(source).map(Arc::new),
        };
        let Writes { shard_size, shard, .. } = self.writes;
        let shards = shards_wanted(shard_size.as_deref(), shard, edited)?;
        Ok(shards.unwrap_or_else(|| self.cut.clone()))
    }
}
