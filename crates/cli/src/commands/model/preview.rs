//! `statelens convert-model --dry-run`.

use serde::Serialize;
use statelens::parts::checkpoint::visible;
use statelens::parts::values::fields;
use statelens_recipes::conversion::ModelConversion;
use statelens_recipes::engine::Move;

use super::parts::CheckpointOutputs;
use super::requested::RequestedConversion;
use crate::args::ConvertModel;
use crate::commands::convert::Forecast;
use crate::print::{CommandResult, Printer};

/// Prints the old and new keys, and what casts would lose.
pub(super) fn show(
    args: &ConvertModel,
    requested: &RequestedConversion,
    done: &ModelConversion,
    parts: &CheckpointOutputs<'_>,
) -> CommandResult {
    let casts = parts.forecasts()?;
    let mut printer = Printer::new();
    if args.common.json {
        printer.report(&fields(requested, done, &casts))?;
    } else {
        moves(requested, done, &mut printer)?;
        casts.iter().try_for_each(|(_, forecast)| forecast.text(&mut printer))?;
    }
    printer.finish()?;
    if !args.lossy {
        casts.iter().try_for_each(|(_, forecast)| forecast.refuse())?;
    }
    Ok(true)
}

fn moves(
    requested: &RequestedConversion,
    done: &ModelConversion,
    printer: &mut Printer,
) -> Result<(), crate::print::Failure> {
    printer.line(&format!(
        "{} from {} to {}",
        requested.recipe.family, requested.source, requested.target
    ))?;
    for Move { from, to, rule, .. } in &done.moves {
        let side = |keys: &[String]| match keys {
            [] => "-".to_owned(),
            keys => keys.join(" + "),
        };
        let operations = rule.split_once(" : ").map_or("", |(_, operations)| operations);
        let line = format!("{} -> {}  {operations}", side(from), side(to));
        printer.line(visible(line.trim_end()).as_ref())?;
    }
    for one in &done.unmatched {
        printer.line(&format!("left out: {}", visible(&one.to_string())))?;
    }
    Ok(())
}

/// Returns the conversion as in JSON.
fn fields(
    requested: &RequestedConversion,
    done: &ModelConversion,
    casts: &[(String, Forecast)],
) -> impl Serialize {
    let step = |one: &Move| {
        fields! { from: one.from.clone(), to: one.to.clone(), rule: one.rule.clone() }
    };
    let cast = |(output, forecast)| {
        fields! {
            output: output,
            #[serde(flatten)]
            forecast: Forecast::fields(forecast),
        }
    };
    let casts: Vec<_> = casts.iter().map(|(output, forecast)| cast((output, forecast))).collect();
    let unmatched = done.unmatched.iter();
    fields! {
        model: &requested.recipe.family,
        from: requested.source.to_string(),
        to: requested.target.to_string(),
        moves: done.moves.iter().map(step).collect::<Vec<_>>(),
        unmatched: unmatched.clone().map(|one| &one.key).collect::<Vec<_>>(),
        nearest: unmatched.map(|one| &one.nearest).collect::<Vec<_>>(),
        #[serde(flatten)]
        casts: (!casts.is_empty()).then_some(fields! { casts: casts }),
    }
}
