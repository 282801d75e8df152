//! `statelens diff --renames`.

use statelens::parts::compare::diff::{Basis, rename_map};
use statelens::sides::RenameReport;
use statelens::{Checkpoint, DiffOptions};

use crate::args::Diff;
use crate::print::{CommandResult, Printer, counted, warn};
use crate::progress::{Bar, Unit};

pub(super) fn run(
    args: &Diff,
    left: &Checkpoint,
    right: &Checkpoint,
    options: DiffOptions,
) -> CommandResult {
    let mut bar = Bar::stoppable("hashing", Unit::Bytes)?;
    let report = RenameReport::find(left, right, options, &mut bar)?;
    drop(bar);
    let mut printer = Printer::for_verdict();
    match args.common.json {
        true => printer.line(&report.json())?,
        false => printer.text(&rename_map(&report.renames))?,
    }
    printer.finish()?;
    if !args.common.json {
        report_basis(&report);
    }
    Ok(!report.renames.is_empty())
}

/// Reports how the pairs were found, on standard error: standard output has the list.
fn report_basis(report: &RenameReport) {
    for basis in [Basis::Bytes, Basis::BytesOfSeveral, Basis::Order] {
        let count = report.renames.iter().filter(|pair| pair.basis == basis).count() as u64;
        if count > 0 {
            warn(&format!("{}: {}", counted(count, "key"), basis.word()));
        }
    }
    for (side, count) in [("LEFT", report.left_alone), ("RIGHT", report.right_alone)] {
        if count > 0 {
            let key = counted(count, "tensor");
            warn(&format!("{key} of {side} alone: nothing on the other side fits"));
        }
    }
}
