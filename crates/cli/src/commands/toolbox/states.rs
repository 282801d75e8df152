//! `statelens info --states`.

use std::path::Path;

use statelens::parts::describe::CheckpointSummary;
use statelens::parts::describe::info::StateCount;
use statelens::parts::values::fields;

use crate::args::Common;
use crate::print::{CommandResult, Printer, TextTable, grouped, size_text};

pub(crate) fn run(file: &Path, common: &Common) -> CommandResult {
    let checkpoint = crate::commands::open_for_good(file, &common.with)?.inner();
    let states = CheckpointSummary::of(checkpoint).totals.by_state;
    let mut printer = Printer::new();
    if common.json {
        printer.report(&fields! { states: StateCount::list(states) })?;
    } else if states.is_empty() {
        printer.line("there are no states")?;
    } else {
        let heads = ["state", ">leaves", ">tensors", ">elements", ">bytes", ""];
        let mut table = TextTable::new(&heads);
        for (name, state) in &states {
            let tensors = state.tensors;
            table.row(vec![
                name.clone(),
                grouped(state.leaves),
                grouped(tensors.tensors),
                grouped(tensors.elements),
                grouped(tensors.bytes),
                if tensors.bytes < 1_000 { String::new() } else { size_text(tensors.bytes) },
            ]);
        }
        table.print(&mut printer)?;
    }
    printer.success()
}
