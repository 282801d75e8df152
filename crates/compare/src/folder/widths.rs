//! The hidden size of layers against that of the embedding: shards of two models.

use std::collections::BTreeMap;

use statelens_checkpoint::{counted, grouped, shape_text};

use super::Findings;
use super::layers::Stacks;
use super::rules::SHAPE_DIFFERS;
use super::sets::ShardSet;
use super::shard::TensorEntry;
use super::sizes::embedding;

/// Ends of keys, and the dimension that is the hidden size.
const WIDTHS: [(&str, usize); 22] = [
    ("self_attn.q_proj.weight", 1),
    ("self_attn.k_proj.weight", 1),
    ("self_attn.v_proj.weight", 1),
    ("self_attn.qkv_proj.weight", 1),
    ("self_attn.o_proj.weight", 0),
    ("mlp.gate_proj.weight", 1),
    ("mlp.up_proj.weight", 1),
    ("mlp.gate_up_proj.weight", 1),
    ("mlp.down_proj.weight", 0),
    ("input_layernorm.weight", 0),
    ("post_attention_layernorm.weight", 0),
    ("ln_1.weight", 0),
    ("ln_2.weight", 0),
    ("attn_q.weight", 1),
    ("attn_k.weight", 1),
    ("attn_v.weight", 1),
    ("attn_output.weight", 0),
    ("ffn_gate.weight", 1),
    ("ffn_up.weight", 1),
    ("ffn_down.weight", 0),
    ("attn_norm.weight", 0),
    ("ffn_norm.weight", 0),
];

/// Reports files in which layers are not as wide as the embedding, if others are.
pub(super) fn check(set: &ShardSet, stacks: &Stacks<'_>, findings: &mut Findings<'_>) {
    let (Some((_, embedding)), Some(stack)) = (embedding(set), stacks.main()) else { return };
    let Some(width) = embedding.shape.get(1) else { return };
    // Several elements may be packed into an integer.
    let is_packed = |entry: &TensorEntry| {
        ["int", "uint", "float4"].iter().any(|start| entry.dtype.starts_with(start))
    };
    let mut fitting = 0;
    let mut others: BTreeMap<&str, Vec<(&TensorEntry, u64)>> = BTreeMap::new();
    for layer in stack.layers.values() {
        for (rest, (file, entry)) in layer {
            let Some((_, dim)) = WIDTHS.iter().find(|(end, _)| rest == end) else { continue };
            let Some(found) = entry.shape.get(*dim).filter(|_| !is_packed(entry)) else { continue };
            match found == width {
                true => fitting += 1,
                false => others.entry(file).or_default().push((entry, *found)),
            }
        }
    }
    // A model may project its embedding to another width; then no layer fits.
    let count: usize = others.values().map(Vec::len).sum();
    if fitting == 0 || count == 0 {
        return;
    }
    for (file, entries) in others {
        let known = |key: &str| {
            findings.list.iter().any(|one| one.rule == SHAPE_DIFFERS.id && one.key == key)
        };
        let Some((entry, found)) = entries.first().filter(|(entry, _)| !known(&entry.key)) else {
            continue;
        };
        let text = format!(
            "`{}` in {file} is {}: a hidden size of {}, and that of `{}` is {}; {} of {file} differ",
            entry.key,
            shape_text(&entry.shape),
            grouped(*found),
            embedding.key,
            grouped(*width),
            counted(entries.len() as u64, "tensor")
        );
        findings.add_key(&SHAPE_DIFFERS, file, &entry.key, text);
    }
}
