//! Numbers of heads in the config against the projections of attention.

use statelens_checkpoint::{grouped, shape_text};

use super::Findings;
use super::config::{Config, Field};
use super::layers::{FLOATS, Layer, Stacks};
use super::rules::CONFIG_HEADS;
use super::shard::TensorEntry;
use super::sizes::{HIDDEN, is_end};

const HEADS: [&str; 4] = ["num_attention_heads", "n_head", "num_heads", "n_heads"];
const KEY_HEADS: [&str; 4] = ["num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv"];

/// Fields of attention whose projections have other sizes: latent attention, and layers with heads of
/// two sizes.
const OTHER_ATTENTION: [&str; 6] = [
    "kv_lora_rank",
    "qk_nope_head_dim",
    "q_lora_rank",
    "global_head_dim",
    "attention_head_dim_list",
    "block_configs",
];

/// The number of linear attention in `attn_type_list` of MiniMax. Its projections have no heads of their
/// own for keys and values.
const LINEAR: &str = "0";

pub(super) fn check(stacks: &Stacks<'_>, config: &Config, findings: &mut Findings<'_>) {
    if config.has(&OTHER_ATTENTION) {
        return;
    }
    let (Some(stack), Some(heads)) = (stacks.main(), config.number(&HEADS)) else { return };
    let hidden = config.number(&HIDDEN);
    let named = config.number(&["head_dim", "attention_head_dim", "kv_channels", "dim_head"]);
    let head_dim = named.map(|(_, dim)| dim);
    if heads.1 == 0 {
        return;
    }
    if head_dim.is_none()
        && let Some((field, size)) = hidden
        && size % heads.1 != 0
    {
        let text = format!(
            "`{}` in {} is {}, which does not divide `{field}`, {}",
            heads.0,
            config.file(),
            heads.1,
            grouped(size)
        );
        findings.add(&CONFIG_HEADS, config.file(), text);
        return;
    }
    let Some(dim) =
        head_dim.or_else(|| hidden.map(|(_, size)| size / heads.1)).filter(|dim| *dim > 0)
    else {
        return;
    };
    let types = config.layer_types(stack.len());
    let is_linear = |at: u64| {
        let kind = usize::try_from(at).ok().and_then(|at| types.get(at));
        kind.is_some_and(|kind| kind.contains("linear") || kind == LINEAR)
    };
    let layers = stack.layers.iter().filter(|(at, _)| !is_linear(**at));
    let layers: Vec<&Layer<'_>> = layers.map(|(_, layer)| layer).collect();
    let keys = config.number(&KEY_HEADS);
    let query = |entry: &TensorEntry, rows: u64| {
        let expected = heads.1.saturating_mul(dim);
        // The projection of some models has a gate for each query.
        let is_gated = entry.shape.first() == expected.checked_mul(2).as_ref() && gates(config);
        rows != expected && !is_gated
    };
    let size = match named {
        Some((field, dim)) => (format!("`{field}` {dim}"), dim),
        None => (format!("heads of {dim}"), dim),
    };
    let stated = |(field, count): Field| format!("`{field}` in {} is {count}", config.file());
    if report(&layers, "q_proj.weight", &stated(heads), &size, &query, findings) {
        return;
    }
    if let Some(keys) = keys {
        let key = |_: &TensorEntry, rows: u64| rows != keys.1.saturating_mul(dim);
        let is_wrong = report(&layers, "k_proj.weight", &stated(keys), &size, &key, findings);
        let all = heads.1.saturating_add(keys.1.saturating_mul(2));
        let fused = |_: &TensorEntry, rows: u64| rows != all.saturating_mul(dim);
        if !is_wrong {
            let stated = format!("{}, `{}` is {}", stated(heads), keys.0, keys.1);
            report(&layers, "qkv_proj.weight", &stated, &size, &fused, findings);
        }
    }
}

/// Returns whether the projection of queries also has a gate for each.
fn gates(config: &Config) -> bool {
    let is_known = ["qwen3_next", "qwen3_5"].iter().any(|name| config.model_type().contains(name));
    is_known || config.flag("attn_output_gate") == Some(true)
}

/// Reports the first projection with a wrong number of rows, if most layers have one.
fn report(
    layers: &[&Layer<'_>],
    end: &str,
    stated: &str,
    (size, dim): &(String, u64),
    is_wrong: &dyn Fn(&TensorEntry, u64) -> bool,
    findings: &mut Findings<'_>,
) -> bool {
    let (mut all, mut wrong) = (0usize, Vec::new());
    for layer in layers {
        for (rest, (file, entry)) in layer.iter() {
            let is_plain =
                FLOATS.contains(&entry.dtype.as_str()) || entry.dtype.starts_with("float8");
            let is_attention = is_end(rest, &format!("self_attn.{end}"))
                || is_end(rest, &format!("attn.{end}"))
                || is_end(rest, &format!("attention.{end}"));
            let rows = entry.shape.first().filter(|_| entry.shape.len() == 2 && is_plain);
            if let Some(rows) = rows.filter(|_| is_attention) {
                all += 1;
                if is_wrong(entry, *rows) {
                    wrong.push((*file, *entry, *rows));
                }
            }
        }
    }
    let Some((file, entry, rows)) = wrong.first().filter(|_| wrong.len() * 2 > all) else {
        return false;
    };
    let fits = match rows % dim {
        0 => format!("{} heads", grouped(rows / dim)),
        _ => "no whole number of heads".to_owned(),
    };
    let text = format!(
        "{stated}, and `{}` is {}: with {size}, {} rows are {fits}",
        entry.key,
        shape_text(&entry.shape),
        grouped(*rows),
    );
    findings.add_key(&CONFIG_HEADS, file, &entry.key, text);
    true
}
