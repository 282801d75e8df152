//! Classifies the tensors of a model by name.
//!
//! Names are checked from the inside out: the innermost module with a known name decides, so that
//! `attention.output.dense` is attention and `layer.3.output.dense` is not.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::key::{Parsed, is_digits, is_lower};

/// A component of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelComponent {
    /// Embeddings of tokens, positions, patches, segment types.
    Embedding,
    /// Queries, keys, values, outputs.
    Attention,
    /// Feed-forward layers.
    #[serde(rename = "MLP")]
    Mlp,
    /// Experts selected by a router, and the router.
    Experts,
    /// State-space layers, used instead of attention.
    #[serde(rename = "state space")]
    StateSpace,
    /// Convolutions for images and sound.
    Convolution,
    /// Scales and shifts of norms.
    Norm,
    /// Output layers: logits, classes.
    Head,
    /// Low-rank adapters.
    Adapter,
    /// All other parameters.
    Other,
    /// Stored values that are not trained: running means, masks, frequencies. Not parameters.
    Buffers,
}

impl ModelComponent {
    /// All components, in the order in which they are shown.
    pub const ALL: [Self; 11] = [
        Self::Embedding,
        Self::Attention,
        Self::Mlp,
        Self::Experts,
        Self::StateSpace,
        Self::Convolution,
        Self::Norm,
        Self::Head,
        Self::Adapter,
        Self::Other,
        Self::Buffers,
    ];

    /// Returns its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Attention => "attention",
            Self::Mlp => "MLP",
            Self::Experts => "experts",
            Self::StateSpace => "state space",
            Self::Convolution => "convolution",
            Self::Norm => "norm",
            Self::Head => "head",
            Self::Adapter => "adapter",
            Self::Other => "other",
            Self::Buffers => "buffers",
        }
    }
}

/// The role of a tensor within its component, if its shape determines a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Tokens,
    Positions,
    Query,
    Key,
    Value,
    Down,
    Router,
    /// One of the experts that the router selects from.
    Expert,
    /// One value per head.
    PerHead,
    /// The norm of queries or keys.
    QueryNorm,
    Norm,
    Head,
    Any,
}

/// Returns the component and role of a tensor. `rank` is the number of dimensions; tensors that are
/// not `trained`, like integers, are not parameters.
pub(super) fn of(key: &Parsed, rank: usize, trained: bool) -> (ModelComponent, Role) {
    let leaf = &*key.leaf;
    if !trained || is_buffer(key, rank) {
        return (ModelComponent::Buffers, Role::Any);
    }
    if key.modules.iter().any(|part| part.starts_with("lora_")) {
        return (ModelComponent::Adapter, Role::Any);
    }
    let name = key.name();
    if rank <= 1 && is_norm(name, leaf) {
        let query = QUERY_NORMS.iter().any(|word| name.contains(word));
        return (ModelComponent::Norm, if query { Role::QueryNorm } else { Role::Norm });
    }
    if let Some(role) = embedding(key, rank) {
        return (ModelComponent::Embedding, role);
    }
    if is_head(key) {
        return (ModelComponent::Head, Role::Head);
    }
    if let Some(role) = expert(key, name, rank) {
        return (ModelComponent::Experts, role);
    }
    for (at, part) in key.modules.iter().enumerate().rev() {
        if let Some(found) = module(part, at, key) {
            return (found, role(found, key, name));
        }
    }
    if rank >= 4 || name.contains("conv") || leaf == "kernel" && rank == 4 {
        return (ModelComponent::Convolution, Role::Any);
    }
    (ModelComponent::Other, Role::Any)
}

const QUERY_NORMS: [&str; 8] =
    ["q_norm", "k_norm", "q_layernorm", "k_layernorm", "query_norm", "key_norm", "q_a_", "kv_a_"];

/// Names of tensors and modules that are not trained.
const BUFFERS: [&str; 15] = [
    "final_logits_bias",
    "running_mean",
    "running_var",
    "num_batches_tracked",
    "moving_mean",
    "moving_variance",
    "inv_freq",
    "position_ids",
    "masked_bias",
    "relative_position_index",
    "attn_mask",
    "_extra_state",
    "rope_freqs",
    "freqs_cis",
    "e_score_correction_bias",
];

/// Returns false for most keys for which [`is_buffer`] is false, without parsing them.
pub(super) fn may_be_buffer(key: &str, rank: usize) -> bool {
    let key = key.strip_suffix(":0").unwrap_or(key);
    let mut parts = key.rsplit(['.', '/']).filter(|part| !part.is_empty());
    let [last, module] = [parts.next(), parts.next()].map(Option::unwrap_or_default);
    rank == 0
        || rank == 4 && last == "bias"
        || BUFFERS.contains(&last)
        || BUFFERS.contains(&module)
        || key.contains("rotary_emb")
        || key.contains("rope_freqs")
        || !is_lower(key)
}

/// Returns whether a tensor with this name is not trained.
pub(super) fn is_buffer(key: &Parsed, rank: usize) -> bool {
    /// Names of single numbers that are counted or set, not trained.
    const COUNTERS: [&str; 8] = [
        "step",
        "steps",
        "global_step",
        "epoch",
        "iteration",
        "iterations",
        "num_updates",
        "decay",
    ];
    let last = key.modules.last().map_or("", |last| &**last);
    let counter = rank == 0 && key.leaf.is_empty() && COUNTERS.contains(&last);
    let mask = rank == 4 && key.leaf == "bias";
    mask || counter
        || BUFFERS.contains(&&*key.leaf)
        || BUFFERS.contains(&last)
        || key.modules.iter().any(|part| part == "rotary_emb" || part == "rope_freqs")
}

fn is_norm(name: &str, leaf: &str) -> bool {
    let numbered = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| {
            let rest = rest.trim_start_matches('_');
            rest.is_empty()
                || is_digits(rest)
                || matches!(rest, "f" | "attn" | "mlp" | "pre" | "post" | "final")
        })
    };
    name.contains("norm")
        || name.contains("layrnorm")
        || leaf == "gamma"
        || leaf.contains("layer_norm_")
        || name.contains("layer_norm_")
        || numbered("ln")
        || numbered("bn")
        || name.ends_with("_ln")
}

fn embedding(key: &Parsed, rank: usize) -> Option<Role> {
    const TOKENS: [&str; 16] = [
        "embed_tokens",
        "wte",
        "word_embeddings",
        "word_embedding",
        "tok_embeddings",
        "token_embd",
        "token_embedding",
        "token_embedder",
        "token_embeddings",
        "tokens_embed",
        "embed_in",
        "shared",
        "embedder",
        "emb",
        "embedding",
        "embeddings",
    ];
    let attention = |part: &Cow<str>| part.contains("attn") || part.contains("attention");
    if key.modules.iter().any(attention) || key.index.is_some() {
        return None;
    }
    let has = |words: &[&str]| {
        key.modules.iter().any(|part| words.iter().any(|word| part.contains(word)))
    };
    let exact = |words: &[&str]| key.modules.iter().any(|part| words.contains(&&**part));
    if has(&["position", "pos_embed"]) || exact(&["wpe"]) {
        return Some(Role::Positions);
    }
    if has(&["token_type", "patch", "cls_token", "mask_token", "class_embedding", "segment_emb"]) {
        return Some(Role::Any);
    }
    let last = key.modules.iter().rev().find(|part| !is_digits(part))?;
    let named = TOKENS.contains(&&**last);
    match (named && rank == 2, named || has(&["embed"])) {
        (true, _) => Some(Role::Tokens),
        (false, true) => Some(Role::Any),
        (false, false) => None,
    }
}

fn is_head(key: &Parsed) -> bool {
    const HEADS: [&str; 14] = [
        "lm_head",
        "embed_out",
        "output_layer",
        "classifier",
        "score",
        "cls",
        "qa_outputs",
        "predictions",
        "head",
        "heads",
        "fc",
        "logits_dense",
        "lm_head_gen",
        "proj_out",
    ];
    let before = key.before();
    let alone =
        |word: &str| key.index.is_none() && key.modules.len() == 1 && key.modules[0] == word;
    before.iter().any(|part| HEADS.contains(&&**part)) || alone("output")
}

fn expert(key: &Parsed, name: &str, rank: usize) -> Option<Role> {
    let router = matches!(name, "router" | "ffn_gate_inp") || name == "gate" && key.index.is_some();
    if router && rank <= 2 {
        return Some(Role::Router);
    }
    let part = key.modules.iter().find(|part| part.contains("expert") || is_stacked(part))?;
    // The router of gpt-oss is next to its experts; shared experts are not selected by it.
    let shared = part.contains("shared") || part.contains("shexp");
    Some(if shared { Role::Any } else { Role::Expert })
}

/// Returns whether it is GGUF's name for experts that are stored in one tensor.
fn is_stacked(part: &str) -> bool {
    part.starts_with("ffn_") && (part.ends_with("_exps") || part.ends_with("_shexp"))
}

/// Returns the component for a module name.
fn module(part: &str, at: usize, key: &Parsed) -> Option<ModelComponent> {
    const ATTENTION: [&str; 15] = [
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "qkv",
        "qkv_proj",
        "query",
        "key",
        "value",
        "query_key_value",
        "linear_qkv",
        "wq",
        "wk",
        "wv",
        "wqkv",
    ];
    const MLP: [&str; 20] = [
        "up_proj",
        "down_proj",
        "gate_proj",
        "gate_up_proj",
        "fc1",
        "fc2",
        "fc_in",
        "fc_out",
        "c_fc",
        "w1",
        "w2",
        "w3",
        "wi",
        "wi_0",
        "wi_1",
        "dense_h_to_4h",
        "dense_4h_to_h",
        "intermediate",
        "ff",
        "densereludense",
    ];
    const STATES: [&str; 8] =
        ["mixer", "a_log", "x_proj", "dt_proj", "dt_bias", "time_mix", "mamba", "ssm"];
    if ATTENTION.contains(&part)
        || part.contains("attn")
        || part.contains("attention") && part != "attentions"
    {
        return Some(ModelComponent::Attention);
    }
    if MLP.contains(&part)
        || ["mlp", "ffn", "feed_forward", "feedforward"].iter().any(|word| part.contains(word))
    {
        return Some(ModelComponent::Mlp);
    }
    // The second half of BERT's feed-forward layer is directly in the layer.
    if part == "output" && key.index.is_some_and(|(index, _)| index + 1 == at) {
        return Some(ModelComponent::Mlp);
    }
    (STATES.contains(&part) || part.starts_with("ssm_")).then_some(ModelComponent::StateSpace)
}

fn role(component: ModelComponent, key: &Parsed, name: &str) -> Role {
    match component {
        ModelComponent::Attention => match name {
            "q_proj" | "query" | "wq" | "attn_q" | "q" | "to_q" | "q_attn" | "q_lin"
            | "proj_q_dense_layer" => Role::Query,
            "k_proj" | "key" | "wk" | "attn_k" | "k" | "to_k" | "k_lin" | "proj_k_dense_layer" => {
                Role::Key
            }
            "v_proj" | "value" | "wv" | "attn_v" | "v" | "to_v" | "v_lin"
            | "proj_v_dense_layer" => Role::Value,
            "relative_attention_bias" | "sinks" | "attn_sinks" => Role::PerHead,
            _ => Role::Any,
        },
        ModelComponent::Mlp => match name {
            "down_proj" | "c_proj" | "dense_4h_to_h" | "fc2" | "fc_out" | "w2" | "wo"
            | "ffn_down" | "linear_fc2" | "output" | "lin2" => Role::Down,
            // Cerebras numbers the two matrices.
            "ffn" if key.modules.windows(2).any(|two| two == ["ffn", "1"]) => Role::Down,
            _ => Role::Any,
        },
        _ => Role::Any,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component_and_role(key: &str, rank: usize) -> (ModelComponent, Role) {
        of(&Parsed::new(key), rank, true)
    }

    #[test]
    fn derives_component_and_role_from_names() {
        use ModelComponent::*;
        for (key, rank, part, role) in [
            ("model.embed_tokens.weight", 2, Embedding, Role::Tokens),
            ("transformer.wpe.weight", 2, Embedding, Role::Positions),
            ("model.layers.3.self_attn.q_proj.weight", 2, Attention, Role::Query),
            ("model.layers.3.self_attn.q_norm.weight", 1, Norm, Role::QueryNorm),
            ("model.layers.3.mlp.down_proj.weight", 2, Mlp, Role::Down),
            ("model.layers.3.mlp.gate.weight", 2, Experts, Role::Router),
            ("model.layers.3.mlp.experts.7.up_proj.weight", 2, Experts, Role::Expert),
            ("model.layers.3.mlp.shared_experts.up_proj.weight", 2, Experts, Role::Any),
            ("bert.encoder.layer.0.attention.output.dense.weight", 2, Attention, Role::Any),
            ("bert.encoder.layer.0.attention.output.LayerNorm.weight", 1, Norm, Role::Norm),
            ("bert.encoder.layer.0.output.dense.weight", 2, Mlp, Role::Down),
            ("bert/encoder/layer_0/intermediate/dense/kernel:0", 2, Mlp, Role::Any),
            ("cls.predictions.decoder.weight", 2, Head, Role::Head),
            ("h.0.attn.c_attn.weight", 2, Attention, Role::Any),
            ("h.0.attn.bias", 4, Buffers, Role::Any),
            ("h.0.ln_1.weight", 1, Norm, Role::Norm),
            ("h.0.mlp.c_proj.weight", 2, Mlp, Role::Down),
            ("layers.0.attention.wo.weight", 2, Attention, Role::Any),
            ("layers.0.feed_forward.w2.weight", 2, Mlp, Role::Down),
            ("tok_embeddings.weight", 2, Embedding, Role::Tokens),
            ("output.weight", 2, Head, Role::Head),
            ("blk.0.ffn_down.weight", 2, Mlp, Role::Down),
            ("blk.0.ffn_down_exps.weight", 3, Experts, Role::Expert),
            ("blk.0.attn_norm.weight", 1, Norm, Role::Norm),
            ("token_embd.weight", 2, Embedding, Role::Tokens),
            (
                "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                2,
                Attention,
                Role::PerHead,
            ),
            ("decoder.block.0.layer.2.DenseReluDense.wo.weight", 2, Mlp, Role::Down),
            ("model.embedding_layer.word_embeddings.weight", 2, Embedding, Role::Tokens),
            (
                "model.embedding_layer.position_embeddings.embed.weight",
                2,
                Embedding,
                Role::Positions,
            ),
            (
                "transformer_decoder.layers.0.self_attn.proj_k_dense_layer.weight",
                2,
                Attention,
                Role::Key,
            ),
            ("transformer_decoder.layers.0.ffn.ffn.1.linear_layer.weight", 2, Mlp, Role::Down),
            ("transformer_decoder.layers.0.ffn.ffn.0.linear_layer.weight", 2, Mlp, Role::Any),
            ("transformer_decoder.layers.0.norm1.weight", 1, Norm, Role::Norm),
            ("decoder.layers.0.self_attention.linear_qkv.layer_norm_weight", 1, Norm, Role::Norm),
            ("decoder.layers.0.mlp.linear_fc2.weight", 2, Mlp, Role::Down),
            ("layer1.0.conv1.weight", 4, Convolution, Role::Any),
            ("layer1.0.bn1.running_mean", 1, Buffers, Role::Any),
            ("fc.weight", 2, Head, Role::Head),
            ("backbone.layers.0.mixer.A_log", 2, StateSpace, Role::Any),
            ("down_blocks.0.attentions.0.transformer_blocks.0.ff.net.2.weight", 2, Mlp, Role::Any),
            ("down_blocks.0.resnets.0.conv1.weight", 4, Convolution, Role::Any),
            (
                "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
                2,
                Adapter,
                Role::Any,
            ),
            ("vit.embeddings.cls_token", 3, Embedding, Role::Any),
            ("logit_scale", 0, Other, Role::Any),
            ("model_ema.decay", 0, Buffers, Role::Any),
        ] {
            assert_eq!(component_and_role(key, rank), (part, role), "{key}");
        }
    }
}
