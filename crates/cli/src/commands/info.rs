//! `statelens info`.

use statelens::Error;
use statelens::parts::describe::grade_word;
use statelens::parts::describe::info::{DTypeCount, Info, StateCount, View};

use crate::args::{self, Inputs};
use crate::commands::toolbox::states;
use crate::commands::{model, several};
use crate::print::{CommandResult, Failure, Printer, TextTable, grouped};

pub(crate) fn run(args: &args::Info) -> CommandResult {
    let args::Info { inputs, .. } = args;
    let file = match inputs.files.as_slice() {
        [file] => file,
        _ if args.states => {
            let error = Error::refused("--states describes one checkpoint");
            return Err(error.advice("Name one FILE.").into());
        }
        _ if args.config.is_some() || args.model && !inputs.common.json => {
            let error = Error::refused("--model and --config describe one checkpoint");
            return Err(error
                .advice("Name one FILE, or use --json for the models of several.")
                .into());
        }
        _ => return table(inputs, args.model),
    };
    if args.states {
        return states::run(file, &inputs.common);
    }
    let opened = super::open_for_good(file, &inputs.common.with)?;
    let config = model::config_of(file, args.config.as_deref())?;
    let info = opened.info(config.as_ref(), args.model)?;
    let mut printer = Printer::new();
    if args.model && !inputs.common.json {
        model::print(&info.model, &mut printer)?;
        return printer.success();
    }
    if inputs.common.json {
        printer.line(&info.json())?;
    } else {
        let mut table = TextTable::new(&["", ""]);
        for (label, text) in info.lines(View::Command) {
            table.row(vec![label, text]);
        }
        table.print_body(&mut printer)?;
        counts(&info, &mut printer)?;
        if !info.findings.is_empty() {
            printer.line("")?;
            super::print_findings(&info.findings, &mut printer)?;
        }
    }
    printer.success()
}

/// Prints one row for each of several checkpoints.
fn table(args: &Inputs, requested: bool) -> CommandResult {
    let heads = ["grade", "format", ">tensors", ">parameters", ">bytes", "findings"];
    several::each(&args.files, &heads, args.common.json, |file| {
        let checkpoint = super::open(file, &args.common.with)?;
        let info = checkpoint.info(model::config_of(file, None)?.as_ref(), requested)?;
        let worst = info.findings.iter().map(|finding| finding.grade).max();
        let findings = match (worst, info.findings.len()) {
            (None, _) => String::new(),
            (Some(worst), 1) => grade_word(worst).to_owned(),
            (Some(worst), count) => format!("{}, {count} in all", grade_word(worst)),
        };
        let cells = vec![
            info.grade.word().to_owned(),
            info.format.name.text(),
            grouped(info.totals.all.tensors),
            grouped(info.parameters.model),
            grouped(info.totals.all.bytes),
            findings,
        ];
        Ok(several::FileRow { cells, report: info, answer: true, incomplete: false })
    })
}

fn counts(info: &Info, printer: &mut Printer) -> Result<(), Failure> {
    if !info.dtypes.is_empty() {
        printer.line("")?;
        let mut table = TextTable::new(&["dtype", ">tensors", ">elements", ">bytes"]);
        for DTypeCount { dtype, count } in &info.dtypes {
            table.row(vec![
                dtype.clone(),
                grouped(count.tensors),
                grouped(count.elements),
                grouped(count.bytes),
            ]);
        }
        table.print(printer)?;
    }
    if !info.states.is_empty() {
        printer.line("")?;
        let mut table = TextTable::new(&["state", ">leaves", ">tensors", ">elements", ">bytes"]);
        for StateCount { state, count } in info.states.iter().take(MAX_STATES) {
            table.row(vec![
                state.clone(),
                grouped(count.leaves),
                grouped(count.tensors.tensors),
                grouped(count.tensors.elements),
                grouped(count.tensors.bytes),
            ]);
        }
        table.print(printer)?;
        let more = info.states.len().saturating_sub(MAX_STATES);
        if more > 0 {
            printer.line(&format!("and {} more (--json lists them all)", grouped(more as u64)))?;
        }
    }
    Ok(())
}

/// The largest number of states that is listed. In a state dict without nesting every key is a
/// state.
const MAX_STATES: usize = 40;
