//! `statelens convert-model --dry-run`.

use statelens::parts::checkpoint::visible;
use statelens::parts::values::Json;
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
        printer.json(|json| fields(requested, done, &casts, json))?;
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

fn fields(
    requested: &RequestedConversion,
    done: &ModelConversion,
    casts: &[(String, Forecast)],
    json: &mut Json,
) {
    json.name("model").str(&requested.recipe.family);
    json.name("from").str(&requested.source.to_string());
    json.name("to").str(&requested.target.to_string());
    json.name("moves").objects(&done.moves, |json, one| {
        json.name("from").value(&one.from);
        json.name("to").value(&one.to);
        json.name("rule").str(&one.rule);
    });
    json.name("unmatched").array(|json| done.unmatched.iter().for_each(|one| json.str(&one.key)));
    json.name("nearest").array(|json| {
        done.unmatched.iter().for_each(|one| json.value(&one.nearest));
    });
    if !casts.is_empty() {
        json.name("casts").objects(casts, |json, (output, forecast)| {
            json.name("output").str(output);
            forecast.json(json);
        });
    }
}
