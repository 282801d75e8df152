//! The tensors of a GGUF file under the names and in the order that they have in Hugging Face's
//! models, so that both can be compared.
//!
//! Source: `gguf/tensor_mapping.py` of the package gguf 0.19, and `LlamaModel.permute` in
//! `convert_hf_to_gguf.py` of <https://github.com/ggml-org/llama.cpp>.

use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, Concat, DType, DictKey, Error, Layout, Part, Result, Strided, Tensor, Value,
    ValueId, contiguous_strides,
};

/// Names outside of the layers.
const TOP: [(&str, &str); 3] =
    [("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];

/// Names within a layer.
const LAYER: [(&str, &str); 14] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("ffn_gate_inp", "mlp.gate"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// Architectures whose rows of `attn_q` and `attn_k` llama.cpp reorders, for its rotary embedding.
const REORDERED: [&str; 2] = ["llama", "mistral"];

/// Returns the checkpoint with the names of Hugging Face; `None` if it does not have llama.cpp's.
pub fn with_original_names(source: &Checkpoint) -> Result<Option<Checkpoint>> {
    let Value::Dict(root) = source.value(source.root()) else { return Ok(None) };
    let name = |key: &DictKey| match key {
        DictKey::Str(name) => Some(name.to_lossy().into_owned()),
        _ => None,
    };
    if !root.entries.iter().any(|(key, _)| name(key).as_deref() == Some("token_embd.weight")) {
        return Ok(None);
    }
    let architecture = text(source, "metadata.general.architecture").unwrap_or_default();
    let number = |field: &str| {
        text(source, &format!("metadata.{architecture}.attention.{field}"))?.parse::<u64>().ok()
    };
    let heads = number("head_count");
    let of_keys = number("head_count_kv").or(heads);
    let reordered = REORDERED.contains(&&*architecture);
    let mut builder = source.edit();
    let mut entries = Vec::new();
    for (key, id) in &root.entries {
        let Some(own) = name(key) else { continue };
        if own == "metadata" {
            continue;
        }
        let renamed = original(&own);
        let heads = match own.split('.').nth(2) {
            Some("attn_q") => heads,
            Some("attn_k") => of_keys,
            _ => None,
        };
        if let (true, Some(heads), Some((tensor, stored))) =
            (reordered, heads, source.tensor_of(*id))
            && let Some(place) = builder.tensor_mut(tensor)
        {
            *place = in_order(stored, heads)?;
        }
        entries.push((DictKey::Str(renamed.unwrap_or(own).as_str().into()), *id));
    }
    if let Some(Value::Dict(dict)) = builder.value_mut(source.root()) {
        dict.entries = entries;
    }
    builder.rebuild(source).map(Some)
}

/// Returns Hugging Face's name of a tensor.
fn original(name: &str) -> Option<String> {
    let found = |names: &[(&str, &str)], own: &str| {
        names.iter().find(|(known, _)| *known == own).map(|(_, name)| (*name).to_owned())
    };
    let (own, end) = name.rsplit_once('.')?;
    match own.strip_prefix("blk.") {
        None => found(&TOP, own).map(|name| format!("{name}.{end}")),
        Some(own) => {
            let (layer, own) = own.split_once('.')?;
            found(&LAYER, own).map(|name| format!("model.layers.{layer}.{name}.{end}"))
        }
    }
}

/// Returns the text of a plain value.
fn text(source: &Checkpoint, key: &str) -> Option<String> {
    let leaf: ValueId = source.each_leaf().find(|leaf| leaf.flat == key)?.target;
    match source.value(leaf) {
        Value::Str(text) => Some(text.to_lossy().into_owned()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns a tensor with its rows in the order that they have outside of llama.cpp: those of a head
/// are stored as pairs of one of the first half and one of the second half.
fn in_order(tensor: &Tensor, heads: u64) -> Result<Tensor> {
    let large = || Error::damaged("a tensor too large to count");
    let each = match &tensor.stored {
        DType::Blocks(block) => block.elements,
        _ => 1,
    };
    let (rows, width) = match tensor.shape[..] {
        [rows] => (rows, 1),
        [rows, columns] => (rows, columns / each.max(1)),
        _ => return Ok(tensor.clone()),
    };
    let whole = heads.checked_mul(2).filter(|halves| *halves > 0 && rows.is_multiple_of(*halves));
    let Some(halves) = whole else { return Ok(tensor.clone()) };
    let half = rows / halves;
    let step = |count: u64| {
        count.checked_mul(width).and_then(|step| i64::try_from(step).ok()).ok_or_else(large)
    };
    let shape = vec![heads, 2, half, width];
    let len = tensor.numel().and_then(|numel| tensor.stored.bytes_of(numel)).ok_or_else(large)?;
    let view = Strided {
        storage: Arc::new(tensor.layout.clone()),
        storage_len: len,
        offset: 0,
        strides: vec![step(2 * half)?, step(1)?, step(2)?, 1],
    };
    // The rows of the view are those of a matrix.
    let part = Part { shape, layout: Layout::Strided(view) };
    let matrix: Vec<u64> = match tensor.shape.len() {
        1 => vec![rows],
        _ => vec![rows, width],
    };
    let layout = Layout::Strided(Strided {
        storage: Arc::new(Layout::Concat(Concat { axis: 0, parts: vec![part] })),
        storage_len: len,
        offset: 0,
        strides: contiguous_strides(&matrix).ok_or_else(large)?,
    });
    Ok(Tensor { layout, storage: None, ..tensor.clone() })
}
