//! Describes whether a converted model would load.

use statelens_checkpoint::{Checkpoint, Result};
use statelens_recipes::config::Value;
use statelens_recipes::{Implementation, loads};

use super::recognition::name_of;
use crate::family::message::LoadCheck;
use crate::state::fmt::{exact, plural, shape};

/// Number of keys to name.
const MAX_NAMED: usize = 4;

/// Checks a converted model against its config.
pub(super) fn check(
    output: &Checkpoint,
    format: Implementation,
    config: Option<&Value>,
    unmatched: u64,
) -> Result<LoadCheck> {
    let Some(config) = config else {
        return Ok(LoadCheck {
            open: vec!["the output, because there is no config".to_owned()],
            ..LoadCheck::default()
        });
    };
    let found = loads::check(output, format, config)?;
    let mut result = LoadCheck { keys: (found.found, found.expected), ..LoadCheck::default() };
    let checked_any = found.layers.is_some() || found.shapes > 0;
    // Keys without a rule were dropped, so loading can't be confirmed.
    result.would = match found.would() {
        true => (checked_any && unmatched == 0).then_some(true),
        false => Some(false),
    };
    if unmatched > 0 {
        let what = plural(unmatched, "key");
        result.open.push(format!("{what} without a rule"));
    }
    let (missing, unexpected) = (&found.missing, &found.unexpected);
    if missing.1 > 0 {
        result.bad.push(format!("{}: {}", plural(missing.1, "missing key"), listed_keys(missing)));
    }
    if unexpected.1 > 0 {
        let what = plural(unexpected.1, "key");
        result
            .bad
            .push(format!("{what} that the config does not expect: {}", listed_keys(unexpected)));
    }
    for one in found.misfits.iter().take(MAX_NAMED) {
        let (is, expected) = (shape(&one.shape), shape(&one.expected));
        result.bad.push(format!("`{}` is {is}; the config expects {expected}", one.key));
    }
    if found.misfits.len() > MAX_NAMED {
        let more = found.misfits.len() - MAX_NAMED;
        result.bad.push(format!("{} with another shape", plural(more as u64, "more tensor")));
    }
    if let Some(layers) = found.layers.filter(|_| missing.1 + unexpected.1 == 0) {
        result.good.push(match layers {
            1 => "The only layer has all of its keys.".to_owned(),
            many => format!("All {} have the same keys.", plural(many, "layer")),
        });
    }
    let fit = found.shapes - found.misfits.len() as u64;
    if fit > 0 {
        let by: Vec<String> = found.by.iter().map(|name| format!("`{name}`")).collect();
        result.good.push(format!("{} fit the config: {}.", plural(fit, "shape"), by.join(", ")));
    }
    if found.layers.is_none() {
        result.open.push("the number of layers, which the config does not give".to_owned());
    }
    if found.other_shapes > 0 {
        let what = plural(found.other_shapes, "shape");
        result.open.push(format!("{what} that the config does not give"));
    }
    result.open.push(format!(
        "values, and tensors that {} creates while loading",
        if format.is_hf() { "Transformers".to_owned() } else { name_of(format) }
    ));
    Ok(result)
}

fn listed_keys((keys, count): &(Vec<String>, u64)) -> String {
    let shown: Vec<String> = keys.iter().take(MAX_NAMED).map(|key| format!("`{key}`")).collect();
    let more = count.saturating_sub(shown.len() as u64);
    match more {
        0 => shown.join(", "),
        more => format!("{} and {} more", shown.join(", "), exact(more)),
    }
}
