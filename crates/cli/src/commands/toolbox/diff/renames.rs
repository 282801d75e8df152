//! `statelens diff --renames`.

use std::sync::Arc;

use serde::Serialize;
use statelens::parallel;
use statelens_checkpoint::Checkpoint;
use statelens_compare::diff::{Basis, Comparison, DiffOptions, Renamed, Unpaired, rename_map};
use statelens_values::report_json;

use crate::args::Diff;
use crate::output::stop_signal;
use crate::print::{CommandResult, Printer, complain, counted};
use crate::progress::{Bar, Unit};
use crate::remote;

#[derive(Serialize)]
struct RenameReport<'a> {
    renames: &'a [Renamed],
    left_alone: u64,
    right_alone: u64,
}

pub(super) fn run(
    args: &Diff,
    left: &Arc<Checkpoint>,
    right: &Arc<Checkpoint>,
    options: DiffOptions,
) -> CommandResult {
    let comparison = Comparison::new(left.clone(), right.clone(), options);
    let mut unpaired = Unpaired::of(left, right, comparison.matches());
    drop(comparison);
    for (side, mut survey) in unpaired.surveys().into_iter().enumerate() {
        let file = if side == 0 { &args.left } else { &args.right };
        let mut bar = Bar::new("hashing", Unit::Bytes).stopped_by(stop_signal()?);
        parallel::drive(&mut survey, remote::workers(&[file]), &mut bar)?;
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
            complain(&format!("{}: {}", counted(count, "key"), basis.word()));
        }
    }
    for (side, count) in ["LEFT", "RIGHT"].into_iter().zip(alone) {
        if count > 0 {
            let key = counted(count, "tensor");
            complain(&format!("{key} of {side} alone: nothing on the other side fits"));
        }
    }
}
