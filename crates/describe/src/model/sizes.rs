//! Sizes in a config that must be the size of a tensor, family by family.

use std::borrow::Cow;

use super::config::Config;
use super::facts::of_number;
use super::weights::Weights;
use super::{Fact, FactSource};

/// A field of a config, and the dimension of a weight that it must be equal to, by the end of the
/// weight's key. The fields are those of the `configuration_*.py` of transformers 5.
const SIZES: [(&str, &str, usize); 20] = [
    // T5
    ("relative_attention_num_buckets", "relative_attention_bias", 0),
    // BERT
    ("type_vocab_size", "token_type_embeddings", 0),
    // ViT, CLIP
    ("patch_size", "vit.embeddings.patch_embeddings.projection", 2),
    ("patch_size", "vision_model.embeddings.patch_embedding", 2),
    ("projection_dim", "text_projection", 0),
    // Whisper
    ("num_mel_bins", "encoder.conv1", 1),
    ("max_source_positions", "encoder.embed_positions", 0),
    ("max_target_positions", "decoder.embed_positions", 0),
    ("encoder_ffn_dim", "encoder.layers.0.fc1", 0),
    ("decoder_ffn_dim", "decoder.layers.0.fc1", 0),
    // Mamba, Jamba
    ("state_size", "mixer.a_log", 1),
    ("intermediate_size", "mixer.x_proj", 1),
    ("time_step_rank", "mixer.dt_proj", 1),
    ("mamba_d_state", "mamba.a_log", 1),
    ("mamba_dt_rank", "mamba.dt_proj", 1),
    // Mixtures of experts, DeepSeek
    ("moe_intermediate_size", "mlp.experts.0.down_proj", 1),
    ("shared_expert_intermediate_size", "mlp.shared_expert.down_proj", 1),
    ("q_lora_rank", "self_attn.q_a_proj", 0),
    ("kv_lora_rank", "self_attn.kv_b_proj", 1),
    // ALBERT, ELECTRA
    ("embedding_size", "embeddings.word_embeddings", 1),
];

/// Returns whether it is one of these fields.
pub(super) fn is_field(name: &str) -> bool {
    SIZES.iter().any(|(field, ..)| *field == name)
}

/// Returns a fact for each field that contradicts the shapes.
pub(super) fn contradictions(weights: &Weights, config: &Config) -> Vec<Fact> {
    let fact = |(field, end, dim): &(&'static str, &str, usize)| {
        let end: Vec<Cow<str>> = end.split('.').map(Cow::from).collect();
        let weight = weights.all.iter().find(|weight| {
            matches!(&*weight.parsed.leaf, "" | "weight") && weight.parsed.modules.ends_with(&end)
        })?;
        let read = config.number_of(weight.key, &[field])?;
        let inferred = (*weight.shape.get(*dim)?, format!("the shape of {}", weight.key));
        let fact = of_number(field, field, Some(read), Some(inferred), "");
        (fact.contradicts && matches!(fact.source, FactSource::Config(_))).then_some(fact)
    };
    SIZES.iter().filter_map(fact).collect()
}
