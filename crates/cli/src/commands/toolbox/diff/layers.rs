//! `statelens diff --by-layer`.

use statelens::parts::checkpoint::{counted, visible};
use statelens::parts::compare::diff::PairChange;
use statelens::parts::values::number_text;
use statelens::sides::by_role;

use crate::print::{Failure, Printer, TextTable};

/// Prints a table for each role, with a line for each layer.
pub(super) fn show(measured: &[PairChange], printer: &mut Printer) -> Result<(), Failure> {
    for (role, layers) in by_role(measured) {
        printer.line("")?;
        let count = counted(layers.len() as u64, "layer");
        printer.line(&format!("{}, {count}", visible(&role.name)))?;
        let heads =
            [">layer", ">norm left", ">norm right", ">std left", ">std right", ">relative change"];
        let mut table = TextTable::new(&heads);
        for (at, of) in layers {
            let mut row = vec![at.to_string()];
            let numbers = [of.norms.0, of.norms.1, of.deviations.0, of.deviations.1];
            row.extend(numbers.map(number_text));
            row.push(of.change.map(number_text).unwrap_or_default());
            table.row(row);
        }
        table.print(printer)?;
    }
    Ok(())
}
