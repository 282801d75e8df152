//! `statelens check` compares the shapes of a model with its config, for models of many kinds.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::Folder;
use crate::folders::{assert_found, check, copy, rules, set};

/// Checks a folder with these tensors: only `rule` is broken, none if it is empty, and the findings
/// name `named`.
fn assert_breaks(
    what: &str,
    tensors: &[(String, Vec<u64>)],
    config: &Value,
    rule: &str,
    named: &str,
) {
    let folder = made(tensors, config);
    let (_, report) = check(folder.path(), &[]);
    let found = rules(&report, &["error", "warning"]);
    let expected: Vec<&str> = [rule].into_iter().filter(|rule| !rule.is_empty()).collect();
    assert_eq!(found, expected, "{what}: {report}");
    assert!(report["findings"].to_string().contains(named), "{what}: {report}");
}

/// Writes a folder with a model of bfloat16 zeros and its config.
fn made(tensors: &[(String, Vec<u64>)], config: &Value) -> Folder {
    let folder = Folder::new();
    let (mut header, mut len) = (serde_json::Map::new(), 0);
    for (key, shape) in tensors {
        let bytes = shape.iter().product::<u64>() * 2;
        let offsets = [len, len + bytes];
        len += bytes;
        let entry = serde_json::json!({"dtype": "BF16", "shape": shape, "data_offsets": offsets});
        header.insert(key.clone(), entry);
    }
    let mut header = Value::Object(header).to_string();
    header += &" ".repeat((8 - header.len() % 8) % 8);
    let size = (header.len() as u64).to_le_bytes();
    let file = [&size[..], header.as_bytes(), &vec![0; len as usize]].concat();
    fs::write(folder.path().join("model.safetensors"), file).unwrap();
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    folder
}

/// Returns tensors with the same names in each of three layers.
fn in_layers(path: &str, rests: &[(&str, &[u64])]) -> Vec<(String, Vec<u64>)> {
    let layer = |at: u64| {
        rests.iter().map(move |(rest, shape)| (format!("{path}.{at}.{rest}"), shape.to_vec()))
    };
    (0..3).flat_map(layer).collect()
}

/// Models of other kinds than a dense decoder: whole, and with one defect.
#[test]
fn finds_defects_in_models_of_other_kinds() {
    let vision: &[(&str, &[u64])] = &[
        ("attention.output.dense.weight", &[8, 8]),
        ("attention.output.dense.bias", &[8]),
        ("layernorm_before.weight", &[8]),
        ("layernorm_after.weight", &[8]),
    ];
    let experts: &[(&str, &[u64])] = &[
        ("input_layernorm.weight", &[8]),
        ("self_attn.o_proj.weight", &[8, 8]),
        ("block_sparse_moe.gate.weight", &[2, 8]),
        ("block_sparse_moe.experts.0.w2.weight", &[8, 12]),
        ("block_sparse_moe.experts.1.w2.weight", &[8, 12]),
    ];
    let decoder: &[(&str, &[u64])] = &[
        ("input_layernorm.weight", &[8]),
        ("self_attn.o_proj.weight", &[8, 8]),
        ("mlp.gate_proj.weight", &[12, 8]),
        ("mlp.up_proj.weight", &[12, 8]),
        ("mlp.down_proj.weight", &[8, 12]),
    ];
    let moe = |experts: u64, size: u64| {
        serde_json::json!({
            "num_hidden_layers": 3, "num_local_experts": experts, "intermediate_size": size,
        })
    };
    let with_vision = |layers: u64| {
        serde_json::json!({
            "text_config": {"num_hidden_layers": 3},
            "vision_config": {"num_hidden_layers": layers},
        })
    };
    let alternating = serde_json::json!({
        "num_hidden_layers": 3, "layer_types": ["sliding", "full", "sliding"],
    });
    let both =
        [in_layers("model.layers", decoder), in_layers("vision_tower.layers", vision)].concat();
    let vit = in_layers("vit.encoder.layer", vision);
    let moes = in_layers("model.layers", experts);
    let decoders = in_layers("model.layers", decoder);
    let without = |tensors: &[(String, Vec<u64>)], key: &str| {
        let mut kept = tensors.to_vec();
        kept.retain(|(known, _)| known != key);
        assert_eq!(kept.len() + 1, tensors.len());
        kept
    };
    let mut other_shape = decoders.clone();
    let odd = other_shape.iter_mut().find(|(key, _)| key == "model.layers.1.mlp.up_proj.weight");
    odd.unwrap().1 = vec![14, 8];
    let layers = |count: u64| serde_json::json!({"num_hidden_layers": count});
    let gate = without(&moes, "model.layers.1.block_sparse_moe.gate.weight");
    let expert = without(&moes, "model.layers.1.block_sparse_moe.experts.0.w2.weight");
    for (what, tensors, config, rule, named) in [
        ("vit", &vit, layers(3), "", ""),
        ("vit with fewer layers", &vit, layers(4), "config-layers", "vit.encoder.layer"),
        ("vision and text", &both, with_vision(3), "", ""),
        ("fewer vision layers", &both, with_vision(4), "config-layers", "vision_config.num"),
        ("experts", &moes, moe(2, 12), "", ""),
        ("no router", &gate, moe(2, 12), "layer-incomplete", "layers.1.block_sparse_moe.gate"),
        ("size of experts", &moes, moe(2, 16), "config-feed-forward", "w2.weight"),
        ("no expert 0", &expert, moe(2, 12), "expert-missing", "experts.0"),
        ("layers of two types", &decoders, alternating.clone(), "", ""),
        ("shape in two types", &other_shape, alternating, "shape-differs", "layers.1.mlp.up_proj"),
    ] {
        assert_breaks(what, tensors, &config, rule, named);
    }
}

/// Families whose sizes have names or orders of their own: whole, and with a number that differs.
#[test]
fn sizes_of_further_families_are_compared() {
    let linear = [
        in_layers("model.layers", &[("input_layernorm.weight", &[8]), ("mlp.x.weight", &[8, 8])]),
        vec![
            ("model.layers.0.self_attn.q_proj.weight".to_owned(), vec![8, 8]),
            ("model.layers.0.self_attn.k_proj.weight".to_owned(), vec![4, 8]),
            ("model.layers.0.self_attn.v_proj.weight".to_owned(), vec![4, 8]),
            ("model.layers.0.self_attn.o_proj.weight".to_owned(), vec![8, 8]),
            ("model.layers.1.self_attn.qkv_proj.weight".to_owned(), vec![24, 8]),
            ("model.layers.1.self_attn.out_proj.weight".to_owned(), vec![8, 8]),
            ("model.layers.2.self_attn.qkv_proj.weight".to_owned(), vec![24, 8]),
            ("model.layers.2.self_attn.out_proj.weight".to_owned(), vec![8, 8]),
        ],
    ]
    .concat();
    let minimax = |types: Value| {
        let mut config = serde_json::json!({
            "num_hidden_layers": 3, "hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
        });
        let name = if types[0].is_string() { "layer_types" } else { "attn_type_list" };
        config[name] = types;
        config
    };
    let named =
        minimax(serde_json::json!(["full_attention", "linear_attention", "linear_attention"]));
    let granite = in_layers(
        "model.layers",
        &[
            ("block_sparse_moe.input_linear.weight", &[4, 24, 8]),
            ("block_sparse_moe.output_linear.weight", &[4, 8, 12]),
            ("block_sparse_moe.router.layer.weight", &[4, 8]),
            ("input_layernorm.weight", &[8]),
        ],
    );
    let granitemoe = |experts: u64, size: u64| {
        serde_json::json!({
            "num_hidden_layers": 3, "hidden_size": 8, "num_local_experts": experts,
            "intermediate_size": size,
        })
    };
    let translator = [
        in_layers("model.decoder.layers", &[("fc1.weight", &[12, 8]), ("fc2.weight", &[8, 12])]),
        vec![
            ("model.encoder.embed_tokens.weight".to_owned(), vec![40, 8]),
            ("model.decoder.embed_tokens.weight".to_owned(), vec![50, 8]),
        ],
    ]
    .concat();
    let marian = |encoder: u64, decoder: u64| {
        serde_json::json!({
            "d_model": 8, "decoder_layers": 3, "vocab_size": encoder, "decoder_vocab_size": decoder,
        })
    };
    let exaone = in_layers(
        "transformer.h",
        &[
            ("mlp.c_fc_0.weight", &[12, 8]),
            ("mlp.c_fc_1.weight", &[12, 8]),
            ("mlp.c_proj.weight", &[8, 12]),
            ("ln_1.weight", &[8]),
        ],
    );
    let inner = |name: &str, size: u64| serde_json::json!({"num_hidden_layers": 3, name: size});
    let mut windows = in_layers(
        "vision_tower.layers",
        &[
            ("attn.rel_pos_h", &[7, 8]),
            ("attn.qkv.weight", &[24, 8]),
            ("norm.weight", &[8]),
            ("norm.bias", &[8]),
        ],
    );
    windows[0].1 = vec![27, 8];
    let ctrl = [
        in_layers(
            "transformer.h",
            &[
                ("ffn.0.weight", &[12, 8]),
                ("ffn.2.weight", &[8, 12]),
                ("layernorm1.weight", &[8]),
                ("multi_head_attention.Wq.weight", &[8, 8]),
            ],
        ),
        vec![("transformer.w.weight".to_owned(), vec![40, 8])],
    ]
    .concat();
    let of_ctrl = |vocabulary: u64, width: u64, size: u64| {
        serde_json::json!({
            "model_type": "ctrl", "n_layer": 3, "vocab_size": vocabulary, "n_embd": width, "dff": size,
            "tie_word_embeddings": true,
        })
    };
    // Its embedding has rows for prompts, which the head does not have.
    let cpmant = [
        in_layers(
            "cpmant.encoder.layers",
            &[
                ("ffn.ffn.w_in.w_0.weight", &[12, 8]),
                ("ffn.ffn.w_out.weight", &[8, 12]),
                ("self_att.self_attention.project_q.weight", &[6, 8]),
                ("self_att.self_attention.attention_out.weight", &[8, 6]),
            ],
        ),
        vec![
            ("cpmant.input_embedding.weight".to_owned(), vec![60, 8]),
            ("lm_head.weight".to_owned(), vec![40, 8]),
        ],
    ]
    .concat();
    let of_cpmant = |vocabulary: u64, heads: u64, size: u64| {
        serde_json::json!({
            "model_type": "cpmant", "num_hidden_layers": 3, "vocab_size": vocabulary,
            "hidden_size": 8, "num_attention_heads": heads, "dim_head": 2, "dim_ff": size,
            "prompt_types": 5, "prompt_length": 4, "tie_word_embeddings": true,
        })
    };
    let layer: &[(&str, &[u64])] = &[
        ("attn.gqkv_proj.weight", &[24, 8]),
        ("attn.o_proj.weight", &[8, 6]),
        ("mlp.gate_up_proj.weight", &[24, 8]),
        ("mlp.down_proj.weight", &[8, 12]),
    ];
    let hrm = [
        in_layers("model.H_module.layers", layer),
        in_layers("model.L_module.layers", layer),
        vec![("model.embed_tokens.weight".to_owned(), vec![40, 8])],
    ]
    .concat();
    let shallow: Vec<_> =
        hrm.iter().filter(|(key, _)| !key.contains("H_module.layers.2")).cloned().collect();
    let of_hrm = |heads: u64, size: u64| {
        serde_json::json!({
            "model_type": "hrm_text", "num_hidden_layers": 24, "num_layers_per_stack": 3,
            "hidden_size": 8, "num_attention_heads": heads, "head_dim": 2, "vocab_size": 40,
            "intermediate_size": size,
        })
    };
    for (what, tensors, config, rule, named) in [
        ("linear attention", &linear, named, "", ""),
        ("its numbers", &linear, minimax(serde_json::json!([1, 0, 0])), "", ""),
        ("granitemoe", &granite, granitemoe(4, 12), "", ""),
        ("more experts", &granite, granitemoe(8, 12), "config-shape", "num_local_experts"),
        ("larger experts", &granite, granitemoe(4, 16), "config-feed-forward", "intermediate_size"),
        ("two vocabularies", &translator, marian(40, 50), "", ""),
        ("encoder", &translator, marian(48, 50), "config-vocabulary", "encoder.embed_tokens"),
        ("decoder", &translator, marian(40, 58), "config-vocabulary", "decoder_vocab_size"),
        ("exaone", &exaone, inner("intermediate_size", 12), "", ""),
        (
            "size of exaone",
            &exaone,
            inner("intermediate_size", 16),
            "config-feed-forward",
            "c_fc_0",
        ),
        ("a multiple", &exaone, inner("intermediate_multiple_size", 4), "", ""),
        ("windows", &windows, serde_json::json!({}), "", ""),
        ("ctrl", &ctrl, of_ctrl(40, 8, 12), "", ""),
        ("vocabulary of ctrl", &ctrl, of_ctrl(48, 8, 12), "config-vocabulary", "w.weight"),
        ("width of ctrl", &ctrl, of_ctrl(40, 16, 12), "config-hidden-size", "n_embd"),
        ("size of ctrl", &ctrl, of_ctrl(40, 8, 16), "config-feed-forward", "dff"),
        ("cpmant", &cpmant, of_cpmant(40, 3, 12), "", ""),
        ("vocabulary", &cpmant, of_cpmant(48, 3, 12), "config-vocabulary", "20 for prompts"),
        ("its heads", &cpmant, of_cpmant(40, 4, 12), "config-shape", "dim_head"),
        ("its size", &cpmant, of_cpmant(40, 3, 16), "config-feed-forward", "dim_ff"),
        ("hrm", &hrm, of_hrm(3, 12), "", ""),
        ("heads of hrm", &hrm, of_hrm(4, 12), "config-shape", "num_attention_heads"),
        ("size of hrm", &hrm, of_hrm(3, 16), "config-feed-forward", "intermediate_size"),
        ("layers of hrm", &shallow, of_hrm(3, 12), "config-layers", "H_module.layers"),
    ] {
        assert_breaks(what, tensors, &config, rule, named);
    }
}

#[test]
fn every_size_in_the_config_is_compared() {
    let two = serde_json::json!(["full_attention", "full_attention"]);
    let (number, yes) = (Value::from, Value::from(true));
    let deepseek = "deepseek_with_next_token_layer";
    for (base, path, value, rule, words) in [
        (deepseek, &["kv_lora_rank"][..], number(5), "config-shape", &["kv_lora_rank", "is 5"][..]),
        (deepseek, &["q_lora_rank"], number(5), "config-shape", &["q_lora_rank"]),
        (deepseek, &["v_head_dim"], number(9), "config-shape", &["v_head_dim"]),
        (deepseek, &["n_shared_experts"], number(3), "config-shape", &["n_shared_experts"]),
        (deepseek, &["num_nextn_predict_layers"], number(2), "config-next-token", &["is 2"]),
        (
            deepseek,
            &["first_k_dense_replace"],
            number(2),
            "config-experts",
            &["first_k_dense_replace"],
        ),
        (
            "qwen3_moe_two_shards",
            &["moe_intermediate_size"],
            number(16),
            "config-shape",
            &["experts"],
        ),
        (
            "llava_two_shards",
            &["vision_config", "num_hidden_layers"],
            number(7),
            "config-layers",
            &["is 7"],
        ),
        (
            "llava_two_shards",
            &["vision_config", "hidden_size"],
            number(40),
            "config-shape",
            &["is 40"],
        ),
        (
            "llava_two_shards",
            &["vision_config", "intermediate_size"],
            number(80),
            "config-shape",
            &["is 80"],
        ),
        (
            "llava_two_shards",
            &["vision_config", "patch_size"],
            number(3),
            "config-shape",
            &["patch_size"],
        ),
        (
            "llava_two_shards",
            &["vision_config", "image_size"],
            number(96),
            "config-shape",
            &["image_size"],
        ),
        ("llama_three_shards", &["layer_types"], two, "config-layers", &["layer_types", "2 types"]),
        (
            "llama_three_shards",
            &["attention_bias"],
            yes.clone(),
            "config-bias",
            &["attention_bias"],
        ),
        ("llama_three_shards", &["mlp_bias"], yes, "config-bias", &["mlp_bias"]),
        ("llama_three_shards", &["pad_token_id"], number(999), "config-token-id", &["999", "52"]),
        ("llama_three_shards", &["head_dim"], number(8), "config-heads", &["head_dim"]),
        (
            "llama_three_shards",
            &["num_attention_heads"],
            "4".into(),
            "config-broken",
            &["num_attention_heads"],
        ),
    ] {
        let copy = copy(base);
        set(&copy.file("config.json"), path, value);
        assert_found(&copy, rule, words);
    }
}

/// Writes the shards of a folder again, and its index, with the tensors that `keep` accepts.
fn keep(folder: &Path, keep: impl Fn(&str) -> bool) {
    let index = folder.join("model.safetensors.index.json");
    let map: Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
    let map = map["weight_map"].as_object().unwrap();
    let files: std::collections::BTreeSet<&str> =
        map.values().map(|file| file.as_str().unwrap()).collect();
    for file in files {
        let path = folder.join(file);
        let bytes = fs::read(&path).unwrap();
        let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
        let (mut new, mut data) = (serde_json::Map::new(), Vec::new());
        for (key, entry) in header.as_object().unwrap() {
            if key == "__metadata__" {
                new.insert(key.clone(), entry.clone());
            } else if keep(key) {
                let at = |end: usize| entry["data_offsets"][end].as_u64().unwrap() as usize;
                let start = data.len();
                data.extend_from_slice(&bytes[8 + len..][at(0)..at(1)]);
                let mut entry = entry.clone();
                entry["data_offsets"] = serde_json::json!([start, data.len()]);
                new.insert(key.clone(), entry);
            }
        }
        let mut text = Value::Object(new).to_string();
        text.push_str(&" ".repeat(text.len().next_multiple_of(8) - text.len()));
        let mut out = (text.len() as u64).to_le_bytes().to_vec();
        out.extend(text.bytes());
        out.extend(data);
        fs::write(path, out).unwrap();
    }
    let kept: serde_json::Map<String, Value> = map
        .iter()
        .filter(|(key, _)| keep(key))
        .map(|(key, file)| (key.clone(), file.clone()))
        .collect();
    fs::write(index, serde_json::json!({"metadata": {}, "weight_map": kept}).to_string()).unwrap();
}

#[test]
fn parts_of_models_that_are_missing_everywhere_are_found() {
    for (base, without, rule, words) in [
        ("llama_three_shards", "embed_tokens", "part-missing", &["model.embed_tokens.weight"][..]),
        ("llama_three_shards", "model.norm.", "part-missing", &["model.norm.weight"]),
        ("llama_three_shards", "self_attn.o_proj", "layer-incomplete", &["o_proj"]),
        (
            "llava_two_shards",
            "multi_modal_projector",
            "config-part-missing",
            &["multi_modal_projector"],
        ),
    ] {
        let copy = copy(base);
        keep(copy.path(), |key| !key.contains(without));
        assert_found(&copy, rule, words);
    }
}

/// Returns a GGUF file with these metadata, after the architecture `llama`, and tensors of float32.
/// An entry is a number, or the number of tokens.
fn gguf(metadata: &[(&str, u32)], tokens: u64, tensors: &[(&str, &[u64])]) -> Vec<u8> {
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    };
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend((tensors.len() as u64).to_le_bytes());
    file.extend((metadata.len() as u64 + 2).to_le_bytes());
    text(&mut file, "general.architecture");
    file.extend(8u32.to_le_bytes());
    text(&mut file, "llama");
    text(&mut file, "tokenizer.ggml.tokens");
    file.extend([9u32.to_le_bytes(), 8u32.to_le_bytes()].concat());
    file.extend(tokens.to_le_bytes());
    (0..tokens).for_each(|at| text(&mut file, &at.to_string()));
    for (name, value) in metadata {
        text(&mut file, name);
        file.extend([4u32.to_le_bytes(), value.to_le_bytes()].concat());
    }
    let mut data = 0;
    for (name, shape) in tensors {
        text(&mut file, name);
        file.extend((shape.len() as u32).to_le_bytes());
        // The fastest dimension comes first.
        shape.iter().rev().for_each(|size| file.extend(size.to_le_bytes()));
        file.extend(0u32.to_le_bytes());
        file.extend(u64::to_le_bytes(data));
        data += (shape.iter().product::<u64>() * 4).next_multiple_of(32);
    }
    file.resize(file.len().next_multiple_of(32) + data as usize, 0);
    file
}

#[test]
fn metadata_of_gguf_must_fit_the_tensors() {
    let whole = [
        ("llama.block_count", 2),
        ("llama.embedding_length", 4),
        ("llama.feed_forward_length", 6),
        ("tokenizer.ggml.eos_token_id", 2),
    ];
    let tensors: [(&str, &[u64]); 3] = [
        ("token_embd.weight", &[3, 4]),
        ("blk.0.ffn_down.weight", &[4, 6]),
        ("blk.1.ffn_down.weight", &[4, 6]),
    ];
    let found = |metadata: &[(&str, u32)], tokens: u64| {
        let folder = Folder::new();
        let path = folder.with("model.gguf", &gguf(metadata, tokens, &tensors));
        let (_, report) = check(&path, &[]);
        rules(&report, &["error"]).join(" ")
    };
    assert_eq!(found(&whole, 3), "");
    assert_eq!(found(&whole, 4), "gguf-tokenizer");
    assert_eq!(found(&whole, 2), "gguf-tokenizer gguf-tokenizer");
    for (at, value) in [(0, 1), (0, 3), (1, 5), (2, 5)] {
        let mut wrong = whole;
        wrong[at].1 = value;
        assert_eq!(found(&wrong, 3), "gguf-metadata", "{}", whole[at].0);
    }
    let mut wrong = whole;
    wrong[3].1 = 3;
    assert_eq!(found(&wrong, 3), "gguf-tokenizer");
}
