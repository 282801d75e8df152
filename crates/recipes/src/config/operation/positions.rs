//! Positions: their number, and the scaling of rotary and ALiBi ones.

use statelens_checkpoint::{Error, Result};

use super::Site;
use crate::config::expression::{Operator, compute, need, number};
use crate::config::side::Side;
use crate::config::value::{Map, Value};

/// A section on the left is three keys on the right.
pub(super) fn rope_scaling(site: &mut Site<'_>, types: &[String]) -> Result<()> {
    match site.from {
        Side::Left => rope_to_factor(site, types),
        Side::Right => factor_to_rope(site, types.iter().any(|name| name == "llama3")),
    }
}

pub(super) fn without_padding(site: &mut Site<'_>, learned: bool) -> Result<()> {
    let (kind, operator) = match site.from {
        Side::Left => ("absolute", Operator::Minus),
        Side::Right => ("learned", Operator::Plus),
    };
    let found = site.old.get("position_embedding_type").and_then(Value::as_str);
    if learned && found != Some(kind) {
        site.copy();
        return Ok(());
    }
    let padding = need(site.old, "pad_token_id")?;
    let number = compute(site.value, operator, padding)?;
    site.set(compute(&number, operator, &Value::Int(1))?);
    Ok(())
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

/// A section on the left is a factor on the right.
pub(super) fn alibi_scaling(site: &mut Site<'_>) -> Result<()> {
    if site.from == Side::Right {
        let same = site.value.equals(&Value::Float(1.0));
        let section = Map::from([("type", Value::from("linear")), ("factor", site.value.clone())]);
        site.set(if same { Value::Null } else { section.into() });
        return Ok(());
    }
    if site.value.is_null() {
        site.set(1.0);
        return Ok(());
    }
    let section = site.section()?;
    if let Some(length) = section.get("train_seq_len").filter(|length| !length.is_null()) {
        return Err(Error::refused(format!("{} has train_seq_len {}", site.key, length.quoted()))
            .expected("a fixed linear factor: Cerebras doesn't scale by the length of the input"));
    }
    let factor = need(section, "factor").map_err(|error| error.context(site.key))?.clone();
    site.set(factor);
    Ok(())
}

/// A share of each head becomes a number of dimensions.
pub(super) fn rotary_share(site: &mut Site<'_>) -> Result<()> {
    let forward = site.from == Side::Left;
    let heads = if forward { "num_attention_heads" } else { "num_heads" };
    let size =
        compute(need(site.old, "hidden_size")?, Operator::FloorOver, need(site.old, heads)?)?;
    if forward {
        let share = number(site.old, site.key)?;
        let size = size.as_f64().unwrap_or(0.0);
        site.set(Value::Int((size * share) as i64));
    } else {
        site.set(compute(site.value, Operator::Over, &size)?);
    }
    Ok(())
}

/// Rotary or learned positions.
pub(super) fn esm(site: &mut Site<'_>) -> Result<()> {
    let masked = "mask_padding_in_positional_embed";
    match (site.from, site.value.as_str()) {
        (_, Some("rotary")) => site.set("rotary"),
        (Side::Left, Some("absolute")) => {
            site.set("learned");
            site.new.set(masked, true);
        }
        (Side::Right, Some("learned")) => {
            if !site.old.get(masked).is_some_and(|value| value.equals(&Value::Bool(true))) {
                return Err(Error::refused(format!(
                    "positions are learned, and {masked} is not true"
                ))
                .expected("true, as Hugging Face's ESM-2 masks them"));
            }
            site.set("absolute");
        }
        (from, _) => {
            let known = if from == Side::Left { "rotary or absolute" } else { "rotary or learned" };
            return Err(site.unfit(known));
        }
    }
    Ok(())
}
