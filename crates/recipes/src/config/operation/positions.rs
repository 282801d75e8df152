//! The scaling of rotary positions.

use statelens_checkpoint::{Error, Result};

use super::Site;
use crate::config::section::need;
use crate::side::Side;
use crate::value::{Map, Value};

/// A section on the left is three keys on the right.
pub(super) fn rope_scaling(site: &mut Site<'_>, types: &[String]) -> Result<()> {
    match site.from {
        Side::Left => rope_to_factor(site, types),
        Side::Right => factor_to_rope(site, types.iter().any(|name| name == "llama3")),
    }
}

fn rope_to_factor(site: &mut Site<'_>, types: &[String]) -> Result<()> {
    if site.value.is_null() {
        site.set(1.0);
        return Ok(());
    }
    let section = site.section()?.clone();
    let type_key = if section.contains("type") { "type" } else { "rope_type" };
    let name = need(&section, type_key)
        .map_err(|error| error.context(site.key))?
        .as_str()
        .map(str::to_lowercase)
        .filter(|name| types.contains(name));
    let Some(name) = name else {
        let found = section.get(type_key).map(Value::quoted).unwrap_or_default();
        return Err(Error::refused(format!("{} is of the type {found}", site.key))
            .expected(types.join(", ")));
    };
    let rest = |left_out: [&str; 2]| -> Map {
        let kept =
            section.iter().filter(|(key, _)| !left_out.iter().any(|out| key.as_str() == Some(out)));
        kept.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let arguments = match name.as_str() {
        "yarn" => {
            let key = "original_max_position_embeddings";
            Some([(key, need(&section, key)?.clone())].into_iter().collect())
        }
        "llama3" => {
            need(&section, "rope_type")?;
            Some(rest(["rope_type", "factor"]))
        }
        "longrope" => Some(rest(["type", "factor"])),
        _ => None,
    };
    site.set(need(&section, "factor").map_err(|error| error.context(site.key))?.clone());
    site.new.set("pos_scaling_type", name);
    if let Some(arguments) = arguments {
        site.new.set("pos_scaling_extra_args", arguments);
    }
    Ok(())
}

fn factor_to_rope(site: &mut Site<'_>, needs_type: bool) -> Result<()> {
    if site.value.equals(&Value::Float(1.0)) {
        site.set(Value::Null);
        return Ok(());
    }
    let name = match site.old.get("pos_scaling_type") {
        Some(name) => name.clone(),
        None if needs_type => {
            return Err(site.unfit("pos_scaling_type next to it, such as linear"));
        }
        None => Value::from("linear"),
    };
    let llama3 = needs_type && name.as_str() == Some("llama3");
    let mut section = Map::new();
    section.set(if llama3 { "rope_type" } else { "type" }, name);
    section.set("factor", site.value.clone());
    if let Some(arguments) = site.old.get("pos_scaling_extra_args").and_then(Value::as_map) {
        for (key, value) in arguments.iter() {
            section.set(key.clone(), value.clone());
        }
    }
    site.set(section);
    Ok(())
}
