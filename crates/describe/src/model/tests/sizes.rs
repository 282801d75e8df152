//! Sizes in the config against the shapes of tensors.

use super::*;

/// Returns what contradicts the fields of a config.
fn contradictions(tensors: &[(&str, &[u64])], values: &[(&str, &str)]) -> String {
    let values = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let found = of(tensors, Some(&Config::new("config.json", values))).findings();
    found.into_iter().map(|finding| finding.detail).collect()
}

/// Returns the tensors of two layers, with `#` for the number.
fn layered(tensors: &[(&str, &[u64])]) -> Vec<(String, Vec<u64>)> {
    let layer = |at: u32| {
        tensors.iter().map(move |(key, shape)| (key.replace('#', &at.to_string()), shape.to_vec()))
    };
    layer(0).chain(layer(1)).collect()
}

#[test]
fn sizes_must_match_the_config() {
    let found = |tensors: &[(&str, &[u64])], values: &[(&str, &str)]| {
        let tensors = layered(tensors);
        let tensors: Vec<(&str, &[u64])> =
            tensors.iter().map(|(key, shape)| (key.as_str(), shape.as_slice())).collect();
        contradictions(&tensors, values)
    };
    // Mistral Nemo: the heads together are narrower than the hidden size.
    let nemo: &[(&str, &[u64])] = &[
        ("model.layers.#.input_layernorm.weight", &[80]),
        ("model.layers.#.self_attn.q_proj.weight", &[64, 80]),
        ("model.layers.#.self_attn.k_proj.weight", &[16, 80]),
        ("model.layers.#.self_attn.o_proj.weight", &[80, 64]),
    ];
    let heads = ("num_attention_heads", "8");
    let keys = ("num_key_value_heads", "2");
    assert_eq!(found(nemo, &[heads, keys, ("head_dim", "8"), ("hidden_size", "80")]), "");
    let wrong = found(nemo, &[heads, keys, ("head_dim", "16")]);
    assert!(wrong.contains("head size: 16") && wrong.contains("says 8"), "{wrong}");
    assert!(found(nemo, &[("num_attention_heads", "6")]).contains("heads: 6"));
    // Qwen3-Next: queries and their gates.
    let gated: &[(&str, &[u64])] = &[
        ("model.layers.#.input_layernorm.weight", &[80]),
        ("model.layers.#.self_attn.q_proj.weight", &[128, 80]),
        ("model.layers.#.self_attn.q_norm.weight", &[8]),
        ("model.layers.#.self_attn.k_proj.weight", &[16, 80]),
        ("model.layers.#.self_attn.o_proj.weight", &[80, 64]),
    ];
    assert_eq!(found(gated, &[heads, keys, ("head_dim", "8")]), "");
    // T5 with a smaller decoder.
    let t5: &[(&str, &[u64])] = &[
        ("encoder.block.#.layer.0.SelfAttention.q.weight", &[32, 16]),
        ("encoder.block.#.layer.0.SelfAttention.k.weight", &[32, 16]),
        ("encoder.block.#.layer.1.DenseReluDense.wi.weight", &[64, 16]),
        ("encoder.block.#.layer.1.DenseReluDense.wo.weight", &[16, 64]),
        ("encoder.block.#.layer.1.layer_norm.weight", &[16]),
        ("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", &[32, 4]),
        ("decoder.block.0.layer.0.SelfAttention.q.weight", &[32, 16]),
        ("decoder.block.0.layer.2.layer_norm.weight", &[16]),
    ];
    let sound = [
        ("d_model", "16"),
        ("d_kv", "8"),
        ("d_ff", "64"),
        ("num_heads", "4"),
        ("num_layers", "2"),
        ("num_decoder_layers", "1"),
        ("relative_attention_num_buckets", "32"),
    ];
    assert_eq!(found(t5, &sound), "");
    for (at, (field, _)) in sound.iter().enumerate() {
        let mut wrong = sound;
        wrong[at].1 = "3";
        assert!(found(t5, &wrong).contains(&format!("config.json: {field}")), "{field}");
    }
    // CLIP: the larger encoder is the one of images.
    let clip: &[(&str, &[u64])] = &[
        ("vision_model.encoder.layers.#.layer_norm1.weight", &[48]),
        ("vision_model.encoder.layers.#.self_attn.q_proj.weight", &[48, 48]),
        ("vision_model.encoder.layers.#.mlp.fc2.weight", &[48, 192]),
        ("vision_model.embeddings.patch_embedding.weight", &[48, 3, 14, 14]),
        ("text_model.encoder.layers.0.layer_norm1.weight", &[16]),
        ("text_model.encoder.layers.0.mlp.fc2.weight", &[16, 64]),
        ("text_projection.weight", &[24, 16]),
    ];
    let sound = [
        ("projection_dim", "24"),
        ("text_config.hidden_size", "16"),
        ("text_config.intermediate_size", "64"),
        ("text_config.num_hidden_layers", "1"),
        ("vision_config.hidden_size", "48"),
        ("vision_config.intermediate_size", "192"),
        ("vision_config.num_hidden_layers", "2"),
        ("vision_config.patch_size", "14"),
    ];
    assert_eq!(found(clip, &sound), "");
    let mut wrong = sound;
    wrong[3].1 = "4";
    assert!(found(clip, &wrong).contains("4 in config.json: text_config.num_hidden_layers"));
    wrong = sound;
    wrong[7].1 = "16";
    assert!(found(clip, &wrong).contains("patch_size: 16"));
    // LLaVA's config relies on defaults for the language model.
    assert_eq!(found(nemo, &[("vision_config.hidden_size", "1024")]), "");
    let mamba: &[(&str, &[u64])] = &[
        ("backbone.layers.#.mixer.A_log", &[32, 4]),
        ("backbone.layers.#.mixer.conv1d.weight", &[32, 1, 4]),
        ("backbone.layers.#.mixer.dt_proj.weight", &[32, 2]),
    ];
    assert_eq!(found(mamba, &[("state_size", "4"), ("time_step_rank", "auto")]), "");
    assert!(found(mamba, &[("state_size", "16")]).contains("state_size: 16"));
    let experts: &[(&str, &[u64])] = &[
        ("model.layers.#.mlp.gate.weight", &[2, 8]),
        ("model.layers.#.mlp.experts.0.down_proj.weight", &[8, 6]),
        ("model.layers.#.mlp.experts.1.down_proj.weight", &[8, 6]),
        ("model.layers.#.mlp.shared_expert.down_proj.weight", &[8, 12]),
    ];
    let sound = [
        ("num_experts", "2"),
        ("num_experts_per_tok", "2"),
        ("moe_intermediate_size", "6"),
        ("shared_expert_intermediate_size", "12"),
    ];
    assert_eq!(found(experts, &sound), "");
    for (at, (field, _)) in sound.iter().enumerate() {
        let mut wrong = sound;
        wrong[at].1 = "3";
        assert!(found(experts, &wrong).contains(&format!("3 in config.json: {field}")), "{field}");
    }
}

/// Queries, keys and values in one matrix, as the families store them.
#[test]
fn rows_of_fused_attention_must_match_the_config() {
    let found = |name: &str, shape: &[u64], values: &[(&str, &str)]| {
        let (norm, name) = (format!("h.#.{}", "input_layernorm.weight"), format!("h.#.{name}"));
        let tensors = layered(&[(&norm, &[64]), (&name, shape)]);
        let tensors: Vec<(&str, &[u64])> =
            tensors.iter().map(|(key, shape)| (key.as_str(), shape.as_slice())).collect();
        contradictions(&tensors, values)
    };
    let (heads, keys) = (("num_attention_heads", "4"), ("num_key_value_heads", "2"));
    let falcon = ("num_kv_heads", "2");
    let bigcode = ("multi_query", "true");
    let glm =
        [("multi_query_attention", "true"), ("multi_query_group_num", "2"), ("kv_channels", "16")];
    type Case<'a> = (&'a str, &'a [u64], &'a [(&'a str, &'a str)]);
    let sound: [Case<'_>; 14] = [
        ("attn.c_attn.weight", &[64, 192], &[("n_head", "4")]),
        ("attn.c_attn.weight", &[96, 64], &[("n_head", "4"), bigcode]),
        ("attn.c_attn.weight", &[96, 64], &[("n_head", "4")]),
        ("crossattention.c_attn.weight", &[64, 128], &[("n_head", "4")]),
        ("self_attention.query_key_value.weight", &[192, 64], &[("n_head", "4")]),
        (
            "self_attention.query_key_value.weight",
            &[96, 64],
            &[heads, bigcode, ("num_kv_heads", "4")],
        ),
        (
            "self_attention.query_key_value.weight",
            &[192, 64],
            &[heads, ("multi_query", "false"), falcon],
        ),
        (
            "self_attention.query_key_value.weight",
            &[128, 64],
            &[heads, ("new_decoder_architecture", "true"), falcon],
        ),
        ("self_attention.query_key_value.weight", &[128, 64], &[&[heads], &glm[..]].concat()),
        ("self_attn.qkv_proj.weight", &[128, 64], &[heads, keys]),
        ("self_attn.qkv_proj.weight", &[256, 64], &[heads, keys, ("head_dim", "32")]),
        ("self_attn.qkv_proj.qweight", &[8, 192], &[heads, keys]),
        ("attn.Wqkv.weight", &[192, 64], &[("n_heads", "4")]),
        (
            "norm_attn_norm.attn.Wqkv.weight",
            &[128, 64],
            &[("n_heads", "4"), ("attn_config.kv_n_heads", "2")],
        ),
    ];
    for (name, shape, values) in sound {
        assert_eq!(found(name, shape, values), "", "{name} {shape:?}");
    }
    let wrong: [(Case<'_>, &str); 5] = [
        (("attn.c_attn.weight", &[64, 192], &[("n_head", "4"), keys]), "value heads: 2"),
        (("self_attn.qkv_proj.weight", &[192, 64], &[heads, keys]), "192 rows"),
        (("self_attn.qkv_proj.weight", &[128, 64], &[heads, keys, ("head_dim", "32")]), "128 rows"),
        (
            (
                "self_attention.query_key_value.weight",
                &[160, 64],
                &[heads, ("new_decoder_architecture", "true"), falcon],
            ),
            "160 rows",
        ),
        (
            ("attn.Wqkv.weight", &[192, 64], &[("n_heads", "4"), ("attn_config.kv_n_heads", "2")]),
            "heads: 4",
        ),
    ];
    for ((name, shape, values), said) in wrong {
        let text = found(name, shape, values);
        assert!(text.contains(said), "{name} {shape:?}: {text}");
    }
}

#[test]
fn learned_positions_must_match_the_config() {
    let findings = |key: &str, positions: &str| {
        let values = [("model_type", "gpt2"), ("n_positions", positions)];
        let values = values.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let config = Config::new("config.json", values);
        of(&[("wte.weight", &[16, 8]), (key, &[10, 8])], Some(&config)).findings()
    };
    let found = findings("wpe.weight", "1024");
    assert!(found[0].detail.contains("1,024") && found[0].detail.contains("10"), "{found:?}");
    assert_eq!(findings("wpe.weight", "10"), []);
    // OPT has two more rows, and vision encoders have positions of their own.
    assert_eq!(findings("decoder.embed_positions.weight", "8"), []);
    assert_eq!(findings("vision_model.embeddings.position_embedding.weight", "1024"), []);
}
