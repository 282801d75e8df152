//! `statelens info`.

use statelens::Error;
use statelens::parts::describe::model::parameters;
use statelens::parts::describe::{CheckpointSummary, ParameterCount, grade_word};
use statelens::parts::values::Json;

use crate::args::{Info, Inputs};
use crate::commands::toolbox::states;
use crate::commands::{model, several};
use crate::print::{CommandResult, Failure, Printer, TextTable, counted, grouped, size_text};

pub(crate) fn run(args: &Info) -> CommandResult {
    let Info { inputs, .. } = args;
    let file = match inputs.files.as_slice() {
        [file] => file,
        _ if args.states => {
            let error = Error::refused("--states describes one checkpoint");
            return Err(error.advice("Name one FILE.").into());
        }
        _ => return table(inputs),
    };
    if args.states {
        return states::run(file, &inputs.common);
    }
    let checkpoint = super::open_for_good(file, &inputs.common.with)?.inner();
    let model = model::of(checkpoint, file, args.config.as_deref(), args.model)?;
    let mut printer = Printer::new();
    if args.model && !inputs.common.json {
        model::print(&model, &mut printer)?;
        return printer.success();
    }
    let leaves = checkpoint.leaves();
    let summary = CheckpointSummary::new(checkpoint, &leaves);
    let parameters = parameters(checkpoint, &leaves, &summary);
    if inputs.common.json {
        printer.json(|json| {
            summary.write(checkpoint, &parameters, &model.findings(), json);
            json.name("model").object(|json| model.write(json));
        })?;
    } else {
        facts(&summary, &parameters, &model.line(), &mut printer)?;
        counts(&summary, &mut printer)?;
        let findings = [checkpoint.findings.clone(), model.findings()].concat();
        if !findings.is_empty() {
            printer.line("")?;
            super::print_findings(&findings, &mut printer)?;
        }
    }
    printer.success()
}

/// Prints one row for each of several checkpoints.
fn table(args: &Inputs) -> CommandResult {
    let heads = ["format", ">tensors", ">parameters", ">bytes", "findings"];
    several::each(&args.files, &heads, args.common.json, |file| {
        let (checkpoint, _) = super::open(file, &args.common.with)?.into_parts();
        let leaves = checkpoint.leaves();
        let summary = CheckpointSummary::new(&checkpoint, &leaves);
        let worst = checkpoint.findings.iter().map(|finding| finding.grade).max();
        let findings = match (worst, checkpoint.findings.len()) {
            (None, _) => String::new(),
            (Some(worst), 1) => grade_word(worst).to_owned(),
            (Some(worst), count) => format!("{}, {count} in all", grade_word(worst)),
        };
        let parameters = parameters(&checkpoint, &leaves, &summary);
        let cells = vec![
            format!("{} {}", summary.format.name, summary.format.version).trim_end().to_owned(),
            grouped(summary.all.tensors),
            grouped(parameters.model),
            grouped(summary.all.bytes),
            findings,
        ];
        let json =
            Box::new(move |json: &mut Json| summary.write(&checkpoint, &parameters, &[], json));
        Ok(several::FileRow { cells, json, answer: true })
    })
}

fn facts(
    summary: &CheckpointSummary,
    parameters: &ParameterCount,
    model: &str,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let mut table = TextTable::new(&["", ""]);
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
    row("model", model.to_owned());
    for (name, len) in &summary.files {
        row("file", format!("{name}, {}", exact(*len)));
    }
    let links = match summary.links {
        0 => String::new(),
        1 => ", 1 of them a link to another".to_owned(),
        links => format!(", {} of them links to others", grouped(links)),
    };
    row("leaves", format!("{}{links}", grouped(summary.leaves)));
    row("tensors", grouped(summary.all.tensors));
    row("parameters", parameters.text());
    row("bytes", exact(summary.all.bytes));
    if summary.missing > 0 {
        row("missing", format!("the bytes of {}", counted(summary.missing, "tensor")));
    }
    table.print_body(printer)
}

fn counts(summary: &CheckpointSummary, printer: &mut Printer) -> Result<(), Failure> {
    if !summary.by_dtype.is_empty() {
        printer.line("")?;
        let mut table = TextTable::new(&["dtype", ">tensors", ">elements", ">bytes"]);
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
        let mut table = TextTable::new(&["state", ">leaves", ">tensors", ">elements", ">bytes"]);
        for (name, state) in summary.by_state.iter().take(MAX_STATES) {
            table.row(vec![
                name.clone(),
                grouped(state.leaves),
                grouped(state.tensors.tensors),
                grouped(state.tensors.elements),
                grouped(state.tensors.bytes),
            ]);
        }
        table.print(printer)?;
        let more = summary.by_state.len().saturating_sub(MAX_STATES);
        if more > 0 {
            printer.line(&format!("and {} more (--json lists them all)", grouped(more as u64)))?;
        }
    }
    Ok(())
}

/// The largest number of states that is listed. In a state dict without nesting every key is a
/// state.
const MAX_STATES: usize = 40;

fn exact(bytes: u64) -> String {
    match bytes {
        0..1_000 => size_text(bytes),
        _ => format!("{} ({} bytes)", size_text(bytes), grouped(bytes)),
    }
}
