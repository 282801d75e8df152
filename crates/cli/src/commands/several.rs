//! Runs one command on several files; a failure of one does not stop the others.

use std::path::{Path, PathBuf};

use serde::Serialize;
use statelens::parts::values::Json;
use statelens::{Error, path_text};

use crate::limits;
use crate::print::{CommandResult, Failure, Printer, TextTable, warn};

/// The result for one of several files.
pub(crate) struct FileRow<T> {
    /// The cells of its row, after the file's name.
    pub(crate) cells: Vec<String>,
    /// Has the fields of its JSON object.
    pub(crate) report: T,
    /// Whether the file passes.
    pub(crate) answer: bool,
    /// Whether a part of it could not be checked.
    pub(crate) incomplete: bool,
}

/// Calls `look` on each file and prints one table, or one JSON object with an array `checkpoints`.
/// Files that fail are reported on standard error, and in the JSON with `error`; the exit status is
/// then 2, unless another file does not pass. If a part of a file could not be checked, and nothing
/// else is wrong, it is 3.
pub(crate) fn each<T: Serialize>(
    files: &[PathBuf],
    heads: &[&str],
    json: bool,
    mut summarise: impl FnMut(&Path) -> Result<FileRow<T>, Error>,
) -> CommandResult {
    let mut table = TextTable::new(&[&["file"], heads].concat());
    let mut out = Json::new();
    let (mut answer, mut unread, mut incomplete) = (true, false, false);
    out.open('{');
    out.name("statelens").number(1);
    out.name("checkpoints").open('[');
    for file in files {
        let name = path_text(file);
        let (cells, report) = match summarise(file) {
            Ok(row) => {
                answer &= row.answer;
                incomplete |= row.incomplete;
                (row.cells, Ok(row.report))
            }
            // An interrupt is not an error of one file.
            Err(error) if crate::output::caught().is_some() => return Err(error.into()),
            Err(error) => {
                unread = true;
                let error = limits::advise(error).to_string();
                warn(&error);
                (vec!["could not be read".to_owned()], Err(error))
            }
        };
        if json {
            out.line();
            out.object(|json| {
                json.name("path").str(&name);
                match &report {
                    Ok(report) => json.fields(report),
                    Err(error) => json.name("error").str(error),
                }
            });
        } else {
            table.row([vec![name], cells].concat());
        }
    }
    out.newline();
    out.close(']');
    out.close('}');
    let mut printer = Printer::for_verdict();
    match json {
        true => printer.line(out.as_str())?,
        false => table.print(&mut printer)?,
    }
    printer.finish()?;
    match (answer, unread) {
        (false, _) => Ok(false),
        (true, true) => Err(Failure::Reported),
        (true, false) if incomplete => Err(Failure::Incomplete),
        (true, false) => Ok(true),
    }
}
