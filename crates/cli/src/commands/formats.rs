//! `statelens formats`.

use statelens::Format;
use statelens::parts::formats::FORMATS;
use statelens::parts::values::Json;

use crate::args::Formats;
use crate::print::{CommandResult, Printer, TextTable};

pub(crate) fn run(args: &Formats) -> CommandResult {
    let mut printer = Printer::new();
    if args.markdown {
        printer.line(statelens::parts::formats::markdown().trim_end())?;
    } else if args.json {
        printer.json(|json| {
            json.name("formats").array(|json| FORMATS.iter().for_each(|row| object(json, row)));
        })?;
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

fn object(json: &mut Json, format: &Format) {
    json.object(|json| {
        json.name("ids").value(&format.ids);
        json.name("name").str(format.name);
        json.name("extensions").value(&format.extensions);
        json.name("reads").str(format.reads);
        match &format.writes {
            Some(writing) => json.name("writes").object(|json| {
                json.name("id").str(writing.id);
                json.name("name").str(writing.name);
                json.name("extensions").value(&writing.extensions);
                json.name("what").str(writing.what);
            }),
            None => json.name("writes").null(),
        }
        json.name("notes").str(format.notes);
    });
}
