//! The number of heads of keys and values.

use statelens_checkpoint::{Error, Result};

use super::Site;
use crate::config::section::need;
use crate::side::Side;
use crate::value::{Map, Value, unfit};

/// Converts the number of heads of keys and values, which may be equal to that of queries, to
/// groups.
pub(super) fn kv_heads(site: &mut Site<'_>) -> Result<()> {
    match site.from {
        Side::Left => kv_heads_to_groups(site),
        Side::Right => groups_to_kv_heads(site),
    }
}

fn kv_heads_to_groups(site: &mut Site<'_>) -> Result<()> {
    let heads = need(site.old, "num_attention_heads")?;
    if site.value.equals(heads) {
        site.new.set("attention_module", "aiayn_attention");
        return Ok(());
    }
    divides(site.key, site.value, heads)?;
    site.set(Map::from([("num_kv_groups", site.value.clone())]));
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
