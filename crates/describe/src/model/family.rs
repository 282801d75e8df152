//! Recognises families by names that only their keys have. Families with the same names, like Llama
//! and Mistral, can't be distinguished.

use std::collections::HashSet;

use super::key::{Parsed, base, is_digits};
use super::weights::Weights;

/// A family that is recognised by names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NamedFamily {
    pub(super) title: &'static str,
    /// The architecture, in words.
    pub(super) structure: &'static str,
    /// The names that it must have.
    pub(super) by: &'static [&'static str],
    /// Names that it must not have, because another family has them.
    without: &'static [&'static str],
}

const DECODER: &str = "decoder only";
const ENCODER: &str = "encoder only";
const BOTH: &str = "encoder and decoder";

const fn named(
    title: &'static str,
    structure: &'static str,
    by: &'static [&'static str],
    without: &'static [&'static str],
) -> NamedFamily {
    NamedFamily { title, structure, by, without }
}

/// The families, in order of precedence. A name is a run of complete modules of a key, without
/// numbers.
const FAMILIES: [NamedFamily; 54] = [
    named("LLaVA-like", "vision encoder and decoder", &["vision_tower", "mm_projector"], &[]),
    named(
        "LLaVA-like",
        "vision encoder and decoder",
        &["vision_tower", "multi_modal_projector"],
        &[],
    ),
    named("Mixtral-like", DECODER, &["block_sparse_moe.experts", "self_attn.q_proj"], &[]),
    named("DeepSeek V2 or V3", DECODER, &["self_attn.kv_a_proj_with_mqa"], &[]),
    named("gpt-oss", DECODER, &["self_attn.sinks", "mlp.router"], &[]),
    named("Llama 4", DECODER, &["feed_forward.experts", "feed_forward.router"], &[]),
    named("Qwen3 MoE-like", DECODER, &["mlp.experts", "self_attn.q_norm"], &[]),
    named("Qwen2 MoE-like", DECODER, &["mlp.experts", "mlp.shared_expert"], &[]),
    named("Mixtral-like", DECODER, &["mlp.experts", "self_attn.q_proj"], &[]),
    named("Gemma 3", DECODER, &["pre_feedforward_layernorm", "self_attn.q_norm"], &[]),
    named("Gemma 2", DECODER, &["pre_feedforward_layernorm"], &[]),
    named("OLMo 2-like", DECODER, &["post_feedforward_layernorm", "self_attn.q_norm"], &[]),
    named("Qwen3-like", DECODER, &["self_attn.q_norm", "mlp.gate_proj"], &[]),
    named("Phi-3-like", DECODER, &["self_attn.qkv_proj", "mlp.gate_up_proj"], &[]),
    named(
        "Qwen2-like",
        DECODER,
        &["self_attn.q_proj.bias", "mlp.gate_proj"],
        &["self_attn.o_proj.bias"],
    ),
    named("Llama-like", DECODER, &["self_attn.q_proj", "mlp.gate_proj"], &[]),
    named("Phi-like", DECODER, &["self_attn.q_proj", "self_attn.dense", "mlp.fc1"], &[]),
    named("StarCoder2-like", DECODER, &["self_attn.q_proj", "mlp.c_fc"], &[]),
    named("Nemotron-like", DECODER, &["self_attn.q_proj", "mlp.up_proj"], &[]),
    named("Whisper", BOTH, &["encoder.conv1", "decoder.layers.encoder_attn"], &[]),
    named("BART-like", BOTH, &["encoder.layers.self_attn", "decoder.layers.encoder_attn"], &[]),
    named("OPT", DECODER, &["decoder.layers.self_attn.q_proj", "decoder.embed_positions"], &[]),
    named("CLIP", "vision and text encoders", &["vision_model", "text_model.encoder"], &[]),
    named("CLIP\u{2019}s vision encoder-like", ENCODER, &["vision_model.encoder.layers"], &[]),
    named(
        "T5-like",
        BOTH,
        &["encoder.block.layer.selfattention", "decoder.block.layer.encdecattention"],
        &[],
    ),
    named("T5\u{2019}s encoder", ENCODER, &["encoder.block.layer.selfattention"], &[]),
    named("BLOOM", DECODER, &["self_attention.query_key_value", "word_embeddings_layernorm"], &[]),
    named("Falcon-like", DECODER, &["h.self_attention.query_key_value"], &[]),
    named(
        "GPT-NeoX or Pythia",
        DECODER,
        &["layers.attention.query_key_value", "mlp.dense_h_to_4h"],
        &[],
    ),
    named("Megatron GPT", DECODER, &["self_attention.linear_qkv", "mlp.linear_fc1"], &[]),
    named("Megatron GPT", DECODER, &["self_attention.query_key_value", "mlp.dense_h_to_4h"], &[]),
    named("MPT", DECODER, &["attn.wqkv", "ffn.up_proj"], &[]),
    named("CodeGen", DECODER, &["attn.qkv_proj", "mlp.fc_in"], &[]),
    named("GPT-J", DECODER, &["attn.q_proj", "mlp.fc_in"], &[]),
    named("SantaCoder", DECODER, &["attn.q_attn", "attn.kv_attn"], &[]),
    named("GPT-2-like", DECODER, &["attn.c_attn", "mlp.c_fc", "wpe"], &[]),
    named("GPT-2 or alike, without learned positions", DECODER, &["attn.c_attn", "mlp.c_fc"], &[]),
    named("DistilBERT", ENCODER, &["attention.q_lin", "ffn.lin1"], &[]),
    named("ViT", ENCODER, &["patch_embeddings", "encoder.layer.attention.attention.query"], &[]),
    named("BERT-like", ENCODER, &["layer.attention.self.query", "intermediate.dense"], &[]),
    named("ViT", ENCODER, &["patch_embed.proj", "blocks.attn.qkv"], &[]),
    named("Llama, as Meta names it", DECODER, &["attention.wq", "feed_forward.w1"], &[]),
    named("Mamba", DECODER, &["mixer.a_log"], &[]),
    named(
        "UNet of a diffusion model",
        "",
        &["down_blocks", "up_blocks", "mid_block", "time_embedding"],
        &[],
    ),
    named(
        "autoencoder of a diffusion model",
        "",
        &["encoder.down_blocks", "decoder.up_blocks"],
        &[],
    ),
    named("diffusion transformer", "", &["transformer_blocks.attn.to_q", "proj_out"], &[]),
    named(
        "Transformer of Cerebras\u{2019}s",
        BOTH,
        &["transformer_encoder.layers", "transformer_decoder.layers"],
        &[],
    ),
    named(
        "Llama-like",
        DECODER,
        &["transformer_decoder.layers", "linear_layer_for_glu"],
        &["position_embeddings"],
    ),
    named("GPT-like", DECODER, &["transformer_decoder.layers.self_attn"], &[]),
    named("BERT-like", ENCODER, &["transformer_encoder.layers.self_attn"], &[]),
    named("ViT", ENCODER, &["patch_embeddings", "layers.attention.q_proj"], &[]),
    named("ResNet-like", "convolutional", &["encoder.stages.layers.layer.convolution"], &[]),
    named("ResNet-like", "convolutional", &["layer1.conv1", "layer4.conv1", "conv1"], &[]),
    named("ConvNeXt-like", "convolutional", &["stages.blocks.conv_dw"], &[]),
];

/// Returns the family that matches the names.
pub(super) fn by_names(weights: &Weights) -> Option<&'static NamedFamily> {
    let names = TensorNames::of(weights);
    let has = |name: &&str| names.have(name);
    FAMILIES.iter().find(|family| family.by.iter().all(&has) && !family.without.iter().any(&has))
}

/// The names of all tensors, without numbers.
struct TensorNames<'a> {
    modules: HashSet<&'a str>,
    keys: HashSet<Vec<&'a str>>,
}

impl<'a> TensorNames<'a> {
    fn of(weights: &'a Weights<'_>) -> Self {
        let keys: HashSet<Vec<&str>> =
            weights.all.iter().map(|weight| parts(&weight.parsed)).collect();
        Self { modules: keys.iter().flatten().copied().collect(), keys }
    }

    /// Returns whether a name occurs in one of the keys. The set of modules is checked first,
    /// because that rules out most names without a search of all keys.
    fn have(&self, name: &str) -> bool {
        let parts: Vec<&str> = name.split('.').collect();
        parts.iter().all(|part| self.modules.contains(part))
            && self.keys.iter().any(|key| key.windows(parts.len()).any(|run| run == parts))
    }
}

/// Returns the modules and the leaf, without numbers.
fn parts<'a>(key: &'a Parsed) -> Vec<&'a str> {
    let modules = key.modules.iter().filter(|part| !is_digits(part)).map(|part| base(part));
    modules.chain([&*key.leaf]).collect()
}
