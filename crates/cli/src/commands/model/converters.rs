//! `statelens list-converters`.

use serde::Serialize;
use statelens::parts::values::fields;
use statelens_recipes::config::{Families, FormatPair};
use statelens_recipes::language::RuleBlock;
use statelens_recipes::{Implementation, families as recipes};

use crate::args::ListConverters;
use crate::print::{CommandResult, Printer, TextTable, warn};

pub(crate) fn run(args: &ListConverters) -> CommandResult {
    let families = Families::known()?;
    // As in the original tool, case does not matter and `all` means all models.
    let only = args.model.as_ref().map(|name| name.to_lowercase()).filter(|name| name != "all");
    let mut models = Vec::new();
    for name in families.models() {
        let wanted = only.as_ref().is_none_or(|only| *only == name.to_lowercase());
        if wanted {
            models.push((name, families.pairs(name)?));
        }
    }
    // Models of other formats than Cerebras's have no config to convert.
    for name in recipes::names().filter(|name| !families.models().any(|model| model == *name)) {
        let wanted = only.as_ref().is_none_or(|only| *only == name.to_lowercase());
        let recipe = recipes::find(name)?;
        let named = |block: &&RuleBlock| block.left.iter().chain(&block.right).any(is_named);
        let pairs: Vec<FormatPair> = recipe
            .blocks
            .iter()
            .filter(named)
            .map(|block| FormatPair { left: block.left.clone(), right: block.right.clone() })
            .collect();
        if wanted && !pairs.is_empty() {
            models.push((name, pairs));
        }
    }
    if models.is_empty() {
        let layouts = recipes::names().filter(|name| !families.models().any(|own| own == *name));
        // A regular result, as in the original tool.
        let names: Vec<&str> = families.models().chain(layouts).collect();
        let only = only.unwrap_or_default();
        warn(&format!("there is no model \"{only}\"; expected {}.", names.join(", ")));
        return Ok(false);
    }
    let mut printer = Printer::new();
    if args.json {
        printer.report(&fields(&models))?;
    } else {
        let mut table = TextTable::new(&["model", "from or to", "to or from"]);
        for (name, pairs) in &models {
            for pair in pairs {
                table.row(vec![(*name).to_owned(), formats(&pair.left), formats(&pair.right)]);
            }
        }
        table.print(&mut printer)?;
    }
    printer.success()
}

/// Returns whether a format is neither Hugging Face's nor Cerebras's.
fn is_named(format: &Implementation) -> bool {
    !format.is_hf() && !format.is_cerebras()
}

/// Lists formats; consecutive releases are shortened to `cs-2.1 to cs-2.10`.
fn formats(formats: &[Implementation]) -> String {
    let place = |format: &Implementation| {
        Implementation::RELEASES.iter().position(|one| Some(*one) == format.version())
    };
    let places: Vec<_> = formats.iter().map(place).collect();
    let run =
        places.windows(2).all(|two| matches!(two, [Some(one), Some(next)] if one + 1 == *next));
    match formats {
        [first, .., last] if run && formats.len() > 2 => format!("{first} to {last}"),
        _ => formats.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// Returns the list as in JSON.
fn fields(models: &[(&str, Vec<FormatPair>)]) -> impl Serialize {
    let names =
        |formats: &[Implementation]| formats.iter().map(ToString::to_string).collect::<Vec<_>>();
    let pair = |pair: &FormatPair| fields! { left: names(&pair.left), right: names(&pair.right) };
    let model = |(model, pairs): &(&str, Vec<FormatPair>)| {
        let pairs: Vec<_> = pairs.iter().map(pair).collect();
        fields! { model: (*model).to_owned(), converters: pairs }
    };
    fields! { models: models.iter().map(model).collect::<Vec<_>>() }
}
