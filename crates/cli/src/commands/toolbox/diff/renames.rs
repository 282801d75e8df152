//! `statelens diff --renames`.

use serde::Serialize;
use statelens::parts::compare::diff::{Basis, Comparison, Renamed, Unpaired, rename_map};
use statelens::parts::values::report_json;
use statelens::{Checkpoint, DiffOptions, parallel};

use crate::args::Diff;
use crate::print::{CommandResult, Printer, counted, warn};
use crate::progress::{Bar, Unit};

#[derive(Serialize)]
struct RenameReport<'a> {
    renames: &'a [Renamed],
    left_alone: u64,
    right_alone: u64,
}

pub(super) fn run(
    args: &Diff,
    left: &Checkpoint,
    right: &Checkpoint,
    options: DiffOptions,
) -> CommandResult {
    let comparison = Comparison::new(left.inner().clone(), right.inner().clone(), options);
    let mut unpaired = Unpaired::of(left.inner(), right.inner(), comparison.matches());
    drop(comparison);
    for (side, mut survey) in unpaired.surveys().into_iter().enumerate() {
        let of = if side == 0 { left } else { right };
        let mut bar = Bar::stoppable("hashing", Unit::Bytes)?;
        parallel::drive(&mut survey, of.workers(), &mut bar)?;
        unpaired.learn(side == 1, survey.take());
    }
    let pairs = unpaired.pairs();
    let alone = unpaired.alone(&pairs);
    let mut printer = Printer::for_verdict();
    match args.common.json {
        true => {
            let [left_alone, right_alone] = alone;
            let report = RenameReport { renames: &pairs, left_alone, right_alone };
            printer.line(&report_json(&report))?;
        }
        false => printer.text(&rename_map(&pairs))?,
    }
    printer.finish()?;
    if !args.common.json {
        report_basis(&pairs, alone);
    }
    Ok(!pairs.is_empty())
}

/// Reports how the pairs were found, on standard error: standard output has the list.
fn report_basis(pairs: &[Renamed], alone: [u64; 2]) {
    for basis in [Basis::Bytes, Basis::BytesOfSeveral, Basis::Order] {
        let count = pairs.iter().filter(|pair| pair.basis == basis).count() as u64;
        if count > 0 {
            warn(&format!("{}: {}", counted(count, "key"), basis.word()));
        }
    }
    for (side, count) in ["LEFT", "RIGHT"].into_iter().zip(alone) {
        if count > 0 {
            let key = counted(count, "tensor");
            warn(&format!("{key} of {side} alone: nothing on the other side fits"));
        }
    }
}
