//! `statelens info`.

use statelens_inspect::Summary;

use crate::args::Input;
use crate::print::{Failure, Outcome, Printer, Table, grouped, size_text};

pub(crate) fn run(args: &Input) -> Outcome {
    let checkpoint = super::open_for_good(&args.file, &args.common.with)?;
    let summary = Summary::of(checkpoint);
    let mut printer = Printer::new();
    if args.common.json {
        printer.line(&summary.json(checkpoint))?;
    } else {
        facts(&summary, &mut printer)?;
        counts(&summary, &mut printer)?;
        if !checkpoint.findings.is_empty() {
            printer.line("")?;
            super::print_findings(&checkpoint.findings, &mut printer)?;
        }
    }
    printer.finish()?;
    Ok(true)
}

fn facts(summary: &Summary, printer: &mut Printer) -> Result<(), Failure> {
    let mut table = Table::new(&["", ""]);
    let format = &summary.format;
    let mut row = |name: &str, text: String| {
        if !text.is_empty() {
            table.row(vec![name.into(), text]);
        }
    };
    row("format", format!("{} {}", format.name, format.version).trim_end().to_owned());
    row("producer", format.producer.clone());
    for (name, text) in &format.facts {
        row(&name.to_lowercase(), text.clone());
    }
    for (name, len) in &summary.files {
        row("file", format!("{name}, {}", exact(*len)));
    }
    let links = match summary.links {
        0 => String::new(),
        links => format!(", {} of them links to others", grouped(links)),
    };
    row("leaves", format!("{}{links}", grouped(summary.leaves)));
    row("tensors", grouped(summary.all.tensors));
    row("parameters", grouped(summary.all.elements));
    row("bytes", exact(summary.all.bytes));
    if summary.missing > 0 {
        row("missing", format!("the bytes of {} tensors", grouped(summary.missing)));
    }
    table.print_body(printer)
}

fn counts(summary: &Summary, printer: &mut Printer) -> Result<(), Failure> {
    if !summary.by_dtype.is_empty() {
        printer.line("")?;
        let mut table = Table::new(&["dtype", ">tensors", ">parameters", ">bytes"]);
        for (name, count) in &summary.by_dtype {
            table.row(vec![
                name.clone(),
                grouped(count.tensors),
                grouped(count.elements),
                grouped(count.bytes),
            ]);
        }
        table.print(printer)?;
    }
    if !summary.by_state.is_empty() {
        printer.line("")?;
        let mut table = Table::new(&["state", ">leaves", ">tensors", ">parameters", ">bytes"]);
        for (name, state) in summary.by_state.iter().take(MOST_STATES) {
            table.row(vec![
                name.clone(),
                grouped(state.leaves),
                grouped(state.tensors.tensors),
                grouped(state.tensors.elements),
                grouped(state.tensors.bytes),
            ]);
        }
        table.print(printer)?;
        let more = summary.by_state.len().saturating_sub(MOST_STATES);
        if more > 0 {
            printer.line(&format!("and {} more (--json lists them all)", grouped(more as u64)))?;
        }
    }
    Ok(())
}

/// A state dict without nesting has a state per key.
const MOST_STATES: usize = 40;

fn exact(bytes: u64) -> String {
    match bytes {
        0..1_000 => size_text(bytes),
        _ => format!("{} ({} bytes)", size_text(bytes), grouped(bytes)),
    }
}
