//! `statelens convert-dataloader-state`.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use statelens::PathText as _;
use statelens::parts::checkpoint::visible;
use statelens::parts::formats::cerebras::dataloader::{
    DataState, Loader, MAX_STATE_BYTES, is_state_file,
};
use statelens::parts::formats::cerebras::rewrite::with_dataloader;
use statelens::parts::values::fields;
use statelens::write::file_name;
use statelens::{Error, Result};

use crate::args::{ConvertDataloaderState, Dataloader};
use crate::commands::losses::losses_text;
use crate::commands::writing::{file_options, output_fields, write};
use crate::print::{CommandResult, Printer, counted, grouped};

pub(crate) fn run(args: &ConvertDataloaderState) -> CommandResult {
    let state = read(&args.workers)?;
    let loader = match args.dataloader {
        Dataloader::Map => Loader::Map { seed: args.seed },
        Dataloader::Iterable => Loader::Iterable,
    };
    let (checkpoint, sources) = super::open(&args.file, &args.common.with)?.into_parts();
    let in_file = |error: Error| error.in_file(args.file.to_text());
    let name = &*file_name(&args.output)?;
    let (plan, replaced) =
        with_dataloader(&checkpoint, &state, &loader, &args.to, name).map_err(in_file)?;
    let losses = plan.losses.clone();
    let bytes = write(plan, &args.output, &file_options(args.replacing, &sources, false))?;
    let samples = state.samples();
    let mut printer = Printer::new();
    if args.common.json {
        printer.report(&fields! {
            #[serde(flatten)]
            output: output_fields(&args.output, Some(bytes)),
            step: state.step,
            workers: state.workers.len(),
            samples_streamed: samples,
            replaced: replaced,
        })?;
    } else {
        if replaced {
            printer.line("replaced  the existing state `dataloader`")?;
        }
        printer.line(&format!(
            "wrote     {}: step {}, {}, {} streamed, {} bytes",
            visible(&args.output.to_text()),
            grouped(state.step),
            counted(state.workers.len() as u64, "worker"),
            counted(samples, "sample"),
            grouped(bytes)
        ))?;
        losses_text(&losses, &mut printer)?;
    }
    printer.success()
}

/// Reads the state that release 1.9 left in a folder.
pub(in crate::commands) fn read(folder: &Path) -> Result<DataState> {
    DataState::read(&state_files(folder)?).map_err(|error| {
        match error.file().map(|name| folder.join(name)) {
            // The error names a file of the folder.
            Some(path) => Error::refused(error.what()).in_file(path.to_text()),
            None => error.in_file(folder.to_text()),
        }
    })
}

/// Returns the names and first bytes of the state files in a folder.
fn state_files(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let failed = |error: io::Error| super::folder_error(&error, folder);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Skips pipes: opening one would wait for a writer.
        if !is_state_file(&name) || !fs::metadata(entry.path()).is_ok_and(|data| data.is_file()) {
            continue;
        }
        let mut bytes = Vec::new();
        let read = fs::File::open(entry.path())
            .and_then(|file| file.take(MAX_STATE_BYTES).read_to_end(&mut bytes));
        read.map_err(|error| {
            Error::io(format!("it can't be read: {error}")).in_file(entry.path().to_text())
        })?;
        files.push((name, bytes));
    }
    files.sort();
    Ok(files)
}
