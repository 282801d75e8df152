//! Keys and sections of a config, and defaults.

use statelens_checkpoint::{Error, Result};

use crate::value::{Map, Value, unfit};

/// Returns the model's section of Cerebras's config, in either layout.
pub(super) fn model_section(root: &Map) -> Result<Map> {
    let missing = || {
        Error::refused("the config has no model section")
            .expected("model, or trainer.init.model, as Cerebras's configs have it")
    };
    let found = match root.get("trainer") {
        None => root.get("model"),
        Some(Value::List(_)) => {
            return Err(Error::refused("the config has several trainers")
                .advice("Convert each of them separately, in its own file."));
        }
        Some(trainer) => {
            let init = trainer.as_map().and_then(|trainer| trainer.get("init"));
            init.and_then(Value::as_map).and_then(|init| init.get("model"))
        }
    };
    found.and_then(Value::as_map).cloned().ok_or_else(missing)
}

/// Replaces the model's section, in the layout of the config.
pub(super) fn set_model_section(root: &mut Map, model: Map) {
    let trainer = root.get_mut("trainer").and_then(Value::as_map_mut);
    let init = trainer.and_then(|trainer| trainer.get_mut("init")).and_then(Value::as_map_mut);
    match init {
        Some(init) => init.set("model", model),
        None => root.set("model", model),
    }
}

/// Sets missing keys to their defaults, also in sections one level deep.
pub(super) fn fill(config: &mut Map, defaults: &Map) {
    for (key, default) in defaults.iter() {
        let Some(key) = key.as_str() else { continue };
        match (config.get_mut(key), default) {
            (None, _) => config.set(key, default.clone()),
            (Some(Value::Map(section)), Value::Map(defaults)) => {
                for (key, default) in defaults.iter() {
                    if let Some(key) = key.as_str() {
                        section.set_default(key, default.clone());
                    }
                }
            }
            _ => {}
        }
    }
}

/// Sets the value at a path, and creates its sections.
pub(super) fn put(map: &mut Map, path: &[String], value: Value) -> Result<()> {
    let Some((last, sections)) = path.split_last() else { return Ok(()) };
    let mut map = map;
    for section in sections {
        map.set_default(section, Map::new());
        let next = map.get_mut(section).and_then(Value::as_map_mut);
        map = next.ok_or_else(|| Error::refused(format!("{section} is a value and a section")))?;
    }
    map.set(last.as_str(), value);
    Ok(())
}

/// Returns the value of a key, or an error that names the key.
pub(super) fn need<'a>(config: &'a Map, key: &str) -> Result<&'a Value> {
    config.get(key).ok_or_else(|| missing(key))
}

pub(super) fn missing(key: &str) -> Error {
    Error::refused(format!("the config has no key {key}"))
        .advice("Add it: the conversion depends on its value.")
}

/// Returns the number of a key.
pub(super) fn number(config: &Map, key: &str) -> Result<f64> {
    let value = need(config, key)?;
    value.as_f64().ok_or_else(|| unfit(key, value, "a number"))
}
