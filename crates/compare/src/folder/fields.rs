//! Other sizes that the config states against the shapes of tensors: latent attention, experts,
//! positions, state spaces, and the vision part.

use statelens_checkpoint::{grouped, shape_text};

use super::Findings;
use super::config::Config;
use super::document::JsonValue;
use super::layers::{FLOATS, Stacks, is_other_part};
use super::rules::{CONFIG_BIAS, CONFIG_SHAPE, CONFIG_TOKEN_ID, SHAPE_DIFFERS};
use super::sets::ShardSet;
use super::shard::TensorEntry;
use super::sizes::{embedding, is_end};

/// Names of a field, of which a config has one.
type Names = &'static [&'static str];

/// A dimension of tensors that is a product of fields of the config.
struct StatedSize {
    factors: &'static [Names],
    /// A part of the keys, and their end.
    within: &'static str,
    end: &'static str,
    /// The dimension, and the number of dimensions.
    at: usize,
    dims: usize,
}

const fn size(
    factors: &'static [Names],
    within: &'static str,
    end: &'static str,
    at: usize,
    dims: usize,
) -> StatedSize {
    StatedSize { factors, within, end, at, dims }
}

const EXPERTS: Names = &["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"];
const HEADS: Names = &["num_attention_heads"];
const MOE_SIZE: Names = &["moe_intermediate_size"];
const POSITIONS: Names = &["max_position_embeddings", "n_positions"];

/// Sizes of language models, by the names of Hugging Face.
const SIZES: [StatedSize; 22] = [
    size(&[&["kv_lora_rank"]], "", "kv_a_layernorm.weight", 0, 1),
    size(&[&["kv_lora_rank"]], "", "kv_b_proj.weight", 1, 2),
    size(&[&["q_lora_rank"]], "", "q_a_layernorm.weight", 0, 1),
    size(&[&["num_attention_heads"], &["v_head_dim"]], "", "self_attn.o_proj.weight", 1, 2),
    size(&[MOE_SIZE], ".experts.", "up_proj.weight", 0, 2),
    size(&[MOE_SIZE], ".experts.", "gate_proj.weight", 0, 2),
    size(&[MOE_SIZE], ".experts.", "down_proj.weight", 1, 2),
    size(&[&["n_shared_experts"], MOE_SIZE], "", "shared_experts.up_proj.weight", 0, 2),
    size(&[&["shared_expert_intermediate_size"]], "", "shared_expert.up_proj.weight", 0, 2),
    size(&[EXPERTS], "", "mlp.gate.weight", 0, 2),
    size(&[EXPERTS], "", "mlp.router.weight", 0, 2),
    size(&[EXPERTS], "", "block_sparse_moe.gate.weight", 0, 2),
    size(&[EXPERTS], "", "block_sparse_moe.router.weight", 0, 2),
    size(&[EXPERTS], "", "router.layer.weight", 0, 2),
    size(&[POSITIONS], "", "embeddings.position_embeddings.weight", 0, 2),
    size(&[POSITIONS], "", "wpe.weight", 0, 2),
    size(&[&["type_vocab_size"]], "", "token_type_embeddings.weight", 0, 2),
    size(&[&["state_size"]], "", "mixer.A_log", 1, 2),
    size(&[&["ffn_dim"]], "layers.", "fc1.weight", 0, 2),
    size(&[HEADS, &["dim_head"]], "self_attention.", "project_q.weight", 0, 2),
    size(&[&["segment_types"]], "", "segment_embedding.weight", 0, 2),
    size(&[HEADS, &["head_dim"]], "_module.layers.", "attn.o_proj.weight", 1, 2),
];

/// Ends of the keys of the convolution over patches of an image.
const PATCHES: [&str; 5] = [
    "patch_embedding.weight",
    "patch_embed.proj.weight",
    "patch_embeddings.projection.weight",
    "patch_embed.projection.weight",
    "patch_conv.weight",
];

/// Fields that say whether projections have a bias, and the ends of the keys of the weights.
const BIASES: [(&str, &str); 2] =
    [("attention_bias", "self_attn.q_proj"), ("mlp_bias", "mlp.up_proj")];

pub(super) fn check(
    set: &ShardSet,
    stacks: &Stacks<'_>,
    config: &Config,
    findings: &mut Findings<'_>,
) {
    for size in &SIZES {
        stated(set, size, config, findings);
    }
    biases(stacks, config, findings);
    padding(set, config, findings);
    let root = config.root();
    let section = root.get("vision_config").filter(|it| it.is_object());
    let is_vision_model = root.get("patch_size").is_some() && root.get("image_size").is_some();
    match section {
        Some(section) => vision(set, section, config, &is_vision_key, findings),
        None if is_vision_model => vision(set, root, config, &|_| true, findings),
        None => {}
    }
}

fn is_vision_key(key: &str) -> bool {
    is_other_part(key) || key.contains("vision") || key.contains("visual")
}

fn is_plain(entry: &TensorEntry) -> bool {
    FLOATS.contains(&entry.dtype.as_str()) || entry.dtype.starts_with("float8")
}

/// Adds a finding about the shape of a tensor.
fn add(
    fields: &str,
    stated: u64,
    (file, entry): (&str, &TensorEntry),
    config: &Config,
    findings: &mut Findings<'_>,
) {
    let is_known = |one: &super::RuleFinding| {
        one.key == entry.key && [CONFIG_SHAPE.id, SHAPE_DIFFERS.id].contains(&one.rule.as_str())
    };
    if !findings.list.iter().any(is_known) {
        let text = format!(
            "{fields} in {} is {}, and `{}` is {}",
            config.file(),
            grouped(stated),
            entry.key,
            shape_text(&entry.shape)
        );
        findings.add_key(&CONFIG_SHAPE, file, &entry.key, text);
    }
}

/// Reports the first tensor that has another size than the config states.
fn stated(set: &ShardSet, size: &StatedSize, config: &Config, findings: &mut Findings<'_>) {
    let factors: Option<Vec<_>> = size.factors.iter().map(|names| config.number(names)).collect();
    let Some(factors) = factors.filter(|all| all.iter().all(|(_, number)| *number > 0)) else {
        return;
    };
    let stated = factors.iter().fold(1u64, |all, (_, number)| all.saturating_mul(*number));
    let differs = |entry: &TensorEntry| {
        entry.shape.len() == size.dims
            && entry.shape.get(size.at) != Some(&stated)
            && entry.key.contains(size.within)
            && is_end(&entry.key, size.end)
            && is_plain(entry)
            && !is_other_part(&entry.key)
    };
    let found = set.tensors().find(|(_, entry)| differs(entry));
    if let Some(found) = found {
        let names: Vec<String> = factors.iter().map(|(name, _)| format!("`{name}`")).collect();
        add(&names.join(" times "), stated, found, config, findings);
    }
}

/// Compares the fields of biases with the projections of the layers.
fn biases(stacks: &Stacks<'_>, config: &Config, findings: &mut Findings<'_>) {
    let Some(stack) = stacks.main() else { return };
    for (field, module) in BIASES {
        let Some(stated) = config.flag(field) else { continue };
        let (weight, bias) = (format!("{module}.weight"), format!("{module}.bias"));
        let layers = || stack.layers.values().filter(|layer| layer.contains_key(weight.as_str()));
        let with = layers().filter(|layer| layer.contains_key(bias.as_str())).count();
        let found = layers().find_map(|layer| layer.get(weight.as_str()));
        let Some((file, entry)) = found.filter(|_| (with > 0) != stated) else { continue };
        let has = if with > 0 { "has a bias" } else { "has no bias" };
        let text = format!(
            "`{field}` in {} is {stated}, and the module of `{}` {has}",
            config.file(),
            entry.key
        );
        findings.add_key(&CONFIG_BIAS, file, &entry.key, text);
    }
}

/// Reports a token for padding beyond the embedding. Others may be left from the defaults of the class.
fn padding(set: &ShardSet, config: &Config, findings: &mut Findings<'_>) {
    let (Some((_, entry)), Some((field, id))) = (embedding(set), config.number(&["pad_token_id"]))
    else {
        return;
    };
    if let Some(rows) = entry.shape.first().filter(|rows| id >= **rows) {
        let text = format!(
            "`{field}` in {} is {}, and `{}` has {} rows",
            config.file(),
            grouped(id),
            entry.key,
            grouped(*rows)
        );
        findings.add_key(&CONFIG_TOKEN_ID, config.file(), &entry.key, text);
    }
}

/// Returns the first of these fields that is a number, with its name.
fn number(section: JsonValue<'_>, names: Names) -> Option<(&'static str, u64)> {
    names.iter().find_map(|name| Some((*name, section.get(name)?.number()?)))
}

/// Compares the sizes of the vision part.
fn vision(
    set: &ShardSet,
    section: JsonValue<'_>,
    config: &Config,
    is_of_part: &dyn Fn(&str) -> bool,
    findings: &mut Findings<'_>,
) {
    let own = || set.tensors().filter(|(_, one)| is_of_part(&one.key) && is_plain(one));
    let patch = number(section, &["patch_size"]);
    let convolution = own()
        .find(|(_, one)| one.shape.len() >= 4 && PATCHES.iter().any(|end| is_end(&one.key, end)));
    let width = number(section, &["embed_dim", "hidden_size", "width"]);
    for (stated, at) in [(width, 0), (patch, usize::MAX)] {
        let (Some((field, stated)), Some(found)) = (stated, convolution) else { continue };
        let at = at.min(found.1.shape.len() - 1);
        if found.1.shape.get(at) != Some(&stated) {
            add(&vision_field(field), stated, found, config, findings);
        }
    }
    let inner = own().find(|(_, one)| is_end(&one.key, "mlp.fc1.weight"));
    // A ratio counts instead of the size, where there is one.
    let size = number(section, &["intermediate_size"]);
    let size = size.filter(|_| section.get("mlp_ratio").is_none());
    if let (Some((field, stated)), Some(found)) = (size, inner)
        && found.1.shape.first() != Some(&stated)
    {
        add(&vision_field(field), stated, found, config, findings);
    }
    let (Some((field, image)), Some((_, patch))) = (number(section, &["image_size"]), patch) else {
        return;
    };
    let is_table = |one: &TensorEntry| match one.shape.as_slice() {
        [_, _] => is_end(&one.key, "position_embedding.weight"),
        [1, _, _] => is_end(&one.key, "embeddings.position_embeddings"),
        _ => false,
    };
    let table = own().find(|(_, one)| is_table(one));
    if let (Some(found), Some(side)) = (table, image.checked_div(patch)) {
        let rows = found.1.shape.iter().rev().nth(1).copied().unwrap_or_default();
        let patches = side.saturating_mul(side);
        // Some models have one or two further positions, for tokens that sum up the image.
        if !(patches..=patches.saturating_add(2)).contains(&rows) {
            let what = format!("{}, for {} patches,", vision_field(field), grouped(patches));
            add(&what, image, found, config, findings);
        }
    }
}

fn vision_field(field: &str) -> String {
    format!("`{field}` of the vision part")
}
