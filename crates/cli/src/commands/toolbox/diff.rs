//! `statelens diff`.

use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Result};
use statelens_convert::{Edit, Rename};
use statelens_inspect::compare::{Options, Report, Tolerance, compare};

use crate::args::{Diff, Operation};
use crate::limits;
use crate::output::stop_signal;
use crate::print::{Failure, Outcome, Printer, Table, grouped};
use crate::progress::{Bar, Unit};

pub(crate) fn run(args: &Diff) -> Outcome {
    let (left, _) = super::open(&args.left, &args.common.with)?;
    let (right, _) = super::open(&args.right, &args.common.with)?;
    for side in [&left, &right] {
        limits::check(side, "comparing all values")?;
    }
    let rename = Edit {
        strip_prefix: args.strip_prefix.clone(),
        rename: args.rename.iter().map(|text| Rename::parse(text)).collect::<Result<_>>()?,
        prefix: args.prefix.clone(),
        ..Edit::default()
    };
    let both = Edit {
        select: super::patterns(&args.select)?,
        exclude: super::patterns(&args.exclude)?,
        ..Edit::default()
    };
    let left = taken(taken(left, &rename)?, &both)?;
    let right = taken(right, &both)?;
    let tolerance = match args.op {
        Operation::Equal => None,
        Operation::Allclose => Some(Tolerance { relative: args.rtol, absolute: args.atol }),
    };
    let options = Options {
        tolerance,
        nan_differs: args.nan_differs,
        ignore_dtype: args.ignore_dtype,
        ignore_type: args.ignore_type,
        structure: args.structure,
    };
    let mut bar = Bar::new("comparing", Unit::Bytes).stopped_by(stop_signal()?);
    let report = compare(Arc::new(left), Arc::new(right), options, &mut bar)?;
    drop(bar);
    let mut printer = Printer::for_verdict();
    match args.common.json {
        true => printer.line(&report.json())?,
        false => show(&report, &mut printer)?,
    }
    printer.finish()?;
    Ok(report.matches())
}

fn taken(checkpoint: Checkpoint, edit: &Edit) -> Result<Checkpoint> {
    if edit.is_empty() { Ok(checkpoint) } else { edit.apply(&checkpoint) }
}

fn show(report: &Report, printer: &mut Printer) -> Result<(), Failure> {
    let mut table = Table::new(&["", ""]);
    for difference in &report.differences {
        table.row(vec![difference.key.to_lossy().into_owned(), difference.text()]);
    }
    table.print_body(printer)?;
    let close = match report.close {
        0 => String::new(),
        close => format!(", {} of them within the tolerance only", grouped(close)),
    };
    let tensors = format!(
        "{} keys on both sides, {} tensors read{close}",
        grouped(report.keys),
        grouped(report.tensors)
    );
    match report.differences.len() {
        0 => printer.line(&format!("the checkpoints match: {tensors}")),
        1 => printer.line(&format!("1 difference: {tensors}")),
        count => printer.line(&format!("{} differences: {tensors}", grouped(count as u64))),
    }
}
