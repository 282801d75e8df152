//! Attention heads: the numbers of heads of queries, keys and values, and their sizes.

use statelens_checkpoint::{Error, Result};

use super::Site;
use crate::config::expression::{Operator, compute, need, number, unfit};
use crate::config::side::Side;
use crate::config::value::{Map, Value};

/// Converts the number of heads of keys and values, which may be equal to that of queries, to
/// groups.
pub(super) fn kv_heads(site: &mut Site<'_>) -> Result<()> {
    match site.from {
        Side::Left => kv_heads_to_groups(site),
        Side::Right => groups_to_kv_heads(site),
    }
}

/// Like [`kv_heads`], but always with groups.
pub(super) fn kv_groups(site: &mut Site<'_>) -> Result<()> {
    if site.from == Side::Left {
        site.set(groups(site.value.clone()));
    } else {
        let groups = need(site.section()?, "num_kv_groups")?.clone();
        site.set(groups);
    }
    Ok(())
}

/// Like [`kv_groups`], but in the older architecture there is one group or as many as heads.
pub(super) fn falcon_kv_groups(site: &mut Site<'_>) -> Result<()> {
    if site.from == Side::Right {
        return kv_groups(site);
    }
    let value = match (flag(site, "new_decoder_architecture")?, flag(site, "multi_query")?) {
        (true, _) => site.value.clone(),
        (false, true) => Value::Int(1),
        (false, false) => need(site.old, "num_attention_heads")?.clone(),
    };
    site.set(groups(value));
    Ok(())
}

/// The older architecture's flag for a single group.
pub(super) fn falcon_multi_query(site: &mut Site<'_>) -> Result<()> {
    if !flag(site, "new_decoder_architecture")? && flag(site, "multi_query")? {
        let old = site.new.get("extra_attention_params").and_then(Value::as_map);
        let mut section = old.cloned().unwrap_or_default();
        section.set("num_kv_groups", 1);
        site.new.set("extra_attention_params", section);
    }
    Ok(())
}

/// Checks that Cerebras supports the architecture.
pub(super) fn falcon_architecture(site: &mut Site<'_>) -> Result<()> {
    if flag(site, "new_decoder_architecture")? || flag(site, "parallel_attn")? {
        return Ok(());
    }
    Err(Error::refused("neither new_decoder_architecture nor parallel_attn is true")
        .expected("one of them: Cerebras has no other Falcon"))
}

/// The size per head becomes the size of all heads.
pub(super) fn per_head(site: &mut Site<'_>) -> Result<()> {
    if site.from == Side::Left {
        let heads = need(site.old, "num_attention_heads")?;
        site.set(compute(site.value, Operator::Times, heads)?);
        return Ok(());
    }
    let heads = need(site.old, "num_heads")?;
    if number(site.old, site.key)? % number(site.old, "num_heads")? != 0.0 {
        return Err(Error::refused(format!(
            "{} is {}, which {} heads don't divide",
            site.key,
            site.value.quoted(),
            heads.quoted()
        )));
    }
    site.set(compute(site.value, Operator::FloorOver, heads)?);
    Ok(())
}

fn groups(number: Value) -> Map {
    Map::from([("num_kv_groups", number)])
}

fn flag(site: &Site<'_>, key: &str) -> Result<bool> {
    Ok(need(site.old, key)?.is_true())
}

fn kv_heads_to_groups(site: &mut Site<'_>) -> Result<()> {
    let heads = need(site.old, "num_attention_heads")?;
    if site.value.equals(heads) {
        site.new.set("attention_module", "aiayn_attention");
        return Ok(());
    }
    divides(site.key, site.value, heads)?;
    site.set(groups(site.value.clone()));
    site.new.set("attention_module", "multiquery_attention");
    Ok(())
}

fn groups_to_kv_heads(site: &mut Site<'_>) -> Result<()> {
    let module =
        site.old.get("attention_module").and_then(Value::as_str).unwrap_or("aiayn_attention");
    let found = site.value.as_map().and_then(|section| section.get("num_kv_groups"));
    match (module, found) {
        ("aiayn_attention", Some(_)) => Err(Error::refused(
            "attention_module is aiayn_attention, and extra_attention_params has num_kv_groups",
        )
        .expected("one or the other: groups need multiquery_attention")),
        ("aiayn_attention", None) => {
            let heads = need(site.old, "num_heads")?.clone();
            site.set(heads);
            Ok(())
        }
        ("multiquery_attention", _) => {
            let groups = need(site.section()?, "num_kv_groups")?.clone();
            divides("num_kv_groups", &groups, need(site.old, "num_heads")?)?;
            site.set(groups);
            Ok(())
        }
        _ => {
            let expected = "aiayn_attention or multiquery_attention";
            Err(unfit("attention_module", &Value::from(module), expected))
        }
    }
}

fn divides(key: &str, groups: &Value, heads: &Value) -> Result<()> {
    let even = match (heads.as_int(), groups.as_int()) {
        (Some(heads), Some(groups)) => heads.checked_rem(groups) == Some(0),
        _ => false,
    };
    if even {
        return Ok(());
    }
    Err(Error::refused(format!(
        "{key} is {}, and there are {} heads",
        groups.quoted(),
        heads.quoted()
    ))
    .expected("a number that divides that of the heads"))
}

/// Converts StarCoder's keys: on the left, one for the scaling of attention and one for the number
/// of heads of keys and values.
pub(super) fn multi_query(site: &mut Site<'_>) -> Result<()> {
    if site.from == Side::Left {
        let one = flag(site, "multi_query")?;
        site.set(if site.value.is_true() { "scaled_dot_product" } else { "dot_product" });
        site.new
            .set("attention_module", if one { "multiquery_attention" } else { "aiayn_attention" });
        if one {
            site.new.set("extra_attention_params", groups(Value::Int(1)));
        }
        return Ok(());
    }
    let scaled = match site.value.as_str() {
        Some("scaled_dot_product") => true,
        Some("dot_product") => false,
        _ => return Err(site.unfit("scaled_dot_product or dot_product")),
    };
    site.set(scaled);
    let module = need(site.old, "attention_module")?;
    site.new.set("multi_query", module.as_str() == Some("multiquery_attention"));
    Ok(())
}
