//! `statelens formats`.

use serde::Serialize;
use statelens::Format;
use statelens::parts::formats::FORMATS;
use statelens::parts::values::fields;

use crate::args::Formats;
use crate::print::{CommandResult, Printer, TextTable};

pub(crate) fn run(args: &Formats) -> CommandResult {
    let mut printer = Printer::new();
    if args.markdown {
        printer.line(statelens::parts::formats::markdown().trim_end())?;
    } else if args.json {
        let formats = FORMATS.iter().map(|format| FormatFields::from(*format));
        printer.report(&fields! { formats: formats.collect::<Vec<_>>() })?;
    } else {
        let mut table = TextTable::new(&["format", "files", "read", "written", "--to"]);
        for format in FORMATS {
            let files: Vec<String> =
                format.extensions.iter().map(|end| format!(".{end}")).collect();
            let (what, id) = match &format.writes {
                Some(writing) => (writing.what.replace('`', ""), writing.id),
                None => ("no".into(), ""),
            };
            table.row(vec![
                format.name.into(),
                files.join(" "),
                format.reads.replace('`', ""),
                what,
                id.into(),
            ]);
        }
        table.print(&mut printer)?;
        for format in FORMATS.iter().filter(|format| !format.notes.is_empty()) {
            printer.line(&format!("{}: {}", format.name, format.notes.replace('`', "")))?;
        }
    }
    printer.success()
}

/// A format in JSON.
#[derive(Serialize)]
struct FormatFields {
    ids: &'static [&'static str],
    name: &'static str,
    extensions: &'static [&'static str],
    reads: &'static str,
    writes: Option<WritingFields>,
    notes: &'static str,
}

#[derive(Serialize)]
struct WritingFields {
    id: &'static str,
    name: &'static str,
    extensions: &'static [&'static str],
    what: &'static str,
}

impl From<&'static Format> for FormatFields {
    fn from(format: &'static Format) -> Self {
        let Format { ids, name, extensions, reads, notes, .. } = *format;
        let writes = format.writes.as_ref().map(|writing| WritingFields {
            id: writing.id,
            name: writing.name,
            extensions: writing.extensions,
            what: writing.what,
        });
        Self { ids, name, extensions, reads, writes, notes }
    }
}
