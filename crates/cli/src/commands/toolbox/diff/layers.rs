//! `statelens diff --by-layer`.

use statelens::parts::checkpoint::{counted, visible};
use statelens::parts::compare::diff::{PairChange, Role, roles};
use statelens::parts::values::{Json, number_text};

use crate::print::{Failure, Printer, TextTable};

fn by_role(measured: &[PairChange]) -> Vec<(Role, Vec<(u64, &PairChange)>)> {
    let all = roles(measured.iter().map(|of| of.key.to_lossy().into_owned()));
    let with_layers = |role: Role| {
        let layers = role.members.iter().filter_map(|(at, of)| Some((*at, measured.get(*of)?)));
        let layers = layers.collect();
        (role, layers)
    };
    all.into_iter().map(with_layers).collect()
}

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

/// Writes the field `roles`.
pub(super) fn json(measured: &[PairChange], json: &mut Json) {
    json.name("roles").objects(by_role(measured), |json, (role, layers)| {
        json.name("role").str(&role.name);
        json.name("layers").objects(layers, |json, (at, of)| {
            json.name("layer").number(at);
            json.name("key").text(&of.key);
            for (name, value) in [
                ("left_norm", of.norms.0),
                ("right_norm", of.norms.1),
                ("left_std", of.deviations.0),
                ("right_std", of.deviations.1),
            ] {
                json.name(name).float(value);
            }
            json.name("change").float(of.change);
        });
    });
}
