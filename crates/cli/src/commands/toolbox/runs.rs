//! `statelens runs` and `statelens latest`.

use std::fs;
use std::io;
use std::path::Path;

use statelens_checkpoint::{Error, Result};
use statelens_inspect::runs::{Entry, INDEX, Kind, NamePattern, Run, parse_index, wrong};

use crate::args::{Folder, Latest, Runs};
use crate::print::{Failure, Outcome, Printer, Table, grouped, size_text};

/// The longest index that is read.
const LONGEST: u64 = 64 << 20;

/// Looks through a run folder: its regular files, and its index if there is one.
pub(super) fn read(args: &Folder) -> Result<Run> {
    let pattern = NamePattern::parse(&args.name)?;
    let folder = args.folder.as_path();
    let failed = |error: io::Error| super::folder_error(&error, folder);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A file that has just gone is not there.
        let Ok(metadata) = fs::metadata(entry.path()) else { continue };
        if metadata.is_file() {
            files.push((entry.file_name().to_string_lossy().into_owned(), metadata.len()));
        }
    }
    Ok(Run::new(files, index(folder)?, &pattern))
}

fn index(folder: &Path) -> Result<Option<Vec<String>>> {
    let path = folder.join(INDEX);
    let failed = |error: io::Error| {
        Error::io(format!("it can't be read: {error}")).in_file(path.display().to_string())
    };
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(data) if !data.is_file() || data.len() > LONGEST => {
            return Err(Error::refused("this is no list of checkpoints")
                .in_file(path.display().to_string()));
        }
        Ok(_) => {}
    }
    let text = fs::read_to_string(&path).map_err(failed)?;
    parse_index(&text).map(Some).map_err(|error| error.in_file(path.display().to_string()))
}

pub(crate) fn latest(args: &Latest) -> Outcome {
    let run = read(&args.folder)?;
    let Some(name) = &run.latest else {
        let what = match run.indexed {
            true => format!("no checkpoint that {INDEX} lists is there"),
            false => format!("no file is named like {}", args.folder.name),
        };
        crate::print::complain(&format!("{}: {what}.", args.folder.folder.display()));
        return Ok(false);
    };
    let mut printer = Printer::new();
    printer.line(&args.folder.folder.join(name).to_string_lossy())?;
    printer.finish()?;
    Ok(true)
}

pub(crate) fn run(args: &Runs) -> Outcome {
    let run = read(&args.folder)?;
    let looked: Vec<(&Entry, String)> = run
        .entries
        .iter()
        .map(|entry| {
            let wrong = match entry.holds_states() && !args.quick {
                true => {
                    let opened = super::open(&args.folder.folder.join(&entry.name), &[]);
                    wrong(opened.as_ref().map(|(checkpoint, _)| checkpoint))
                }
                false => String::new(),
            };
            (entry, wrong)
        })
        .collect();
    let mut printer = Printer::new();
    match args.json {
        true => printer.line(&run.json(looked.iter().map(|(_, wrong)| wrong.as_str())))?,
        false => show(&run, &looked, &mut printer)?,
    }
    printer.finish()?;
    Ok(true)
}

fn show(run: &Run, looked: &[(&Entry, String)], printer: &mut Printer) -> Result<(), Failure> {
    let mut table = Table::new(&["file", "what", ">step", ">bytes", ""]);
    for (entry, wrong) in looked {
        let step = match &entry.kind {
            Kind::Checkpoint(name) => name.step.to_string(),
            _ => String::new(),
        };
        let mut notes = Vec::new();
        if run.latest.as_ref() == Some(&entry.name) {
            notes.push("latest".to_owned());
        }
        if run.only_folder.contains(&entry.name) {
            notes.push("not in the index".to_owned());
        }
        if let Kind::Subset { states, of } = &entry.kind {
            notes.push(format!("{states} of {of}"));
        }
        if !wrong.is_empty() {
            notes.push(wrong.clone());
        }
        let name = entry.name.clone();
        let what = entry.kind.word().to_owned();
        table.row(vec![name, what, step, grouped(entry.bytes), notes.join("; ")]);
    }
    table.print(printer)?;
    for path in &run.only_index {
        printer.line(&format!(
            "in the index, and not in the folder: {}",
            statelens_inspect::visible(path)
        ))?;
    }
    let checkpoints = run.checkpoints().count() as u64;
    let bytes = run.checkpoints().map(|entry| entry.bytes).fold(0, u64::saturating_add);
    printer.line(&format!(
        "{} checkpoint{}, {}{}",
        grouped(checkpoints),
        if checkpoints == 1 { "" } else { "s" },
        size_text(bytes),
        if run.indexed { "" } else { "; there is no index" }
    ))
}
