#![allow(clippy::panic, reason = "a test fails by panicking")]
use statelens_checkpoint::FileId;

use super::*;
use crate::LeafKind;
use crate::entry::LeafSummary;

mod quantised;
mod sizes;

impl Model {
    fn of_entries(entries: &[LeafSummary], config: Option<&Config>) -> Self {
        Self::read(&leaves(entries), None, config)
    }
}

fn leaves(entries: &[LeafSummary]) -> Vec<ModelLeaf<'_>> {
    entries.iter().map(ModelLeaf::from).collect()
}

fn parameters_of(entries: &[LeafSummary], state: Option<&str>) -> u64 {
    count::parameters_among(&leaves(entries), state, None)
}

/// Returns a tensor of an outline.
fn tensor(key: &str, dtype: &str, shape: &[u64]) -> LeafSummary {
    let params = shape.iter().product();
    let size = match dtype {
        "float32" | "int32" | "uint32" => 4,
        "bfloat16" | "float16" => 2,
        _ => 1,
    };
    LeafSummary {
        key: key.into(),
        kind: LeafKind::Tensor,
        dtype: dtype.into(),
        shape: shape.to_vec(),
        params,
        bytes: params * size,
        ..LeafSummary::default()
    }
}

fn of(tensors: &[(&str, &[u64])], config: Option<&Config>) -> Model {
    let entries: Vec<LeafSummary> =
        tensors.iter().map(|(key, shape)| tensor(key, "bfloat16", shape)).collect();
    Model::of_entries(&entries, config)
}

/// Llama 2 7B, with the sizes and the number of parameters that Meta published: 6,738,415,616.
fn llama(layers: u64) -> Vec<LeafSummary> {
    let mut entries = vec![tensor("model.embed_tokens.weight", "bfloat16", &[32_000, 4096])];
    for layer in 0..layers {
        for (name, shape) in [
            ("self_attn.q_proj.weight", vec![4096, 4096]),
            ("self_attn.k_proj.weight", vec![4096, 4096]),
            ("self_attn.v_proj.weight", vec![4096, 4096]),
            ("self_attn.o_proj.weight", vec![4096, 4096]),
            ("mlp.gate_proj.weight", vec![11_008, 4096]),
            ("mlp.up_proj.weight", vec![11_008, 4096]),
            ("mlp.down_proj.weight", vec![4096, 11_008]),
            ("input_layernorm.weight", vec![4096]),
            ("post_attention_layernorm.weight", vec![4096]),
        ] {
            entries.push(tensor(&format!("model.layers.{layer}.{name}"), "bfloat16", &shape));
        }
    }
    entries.push(tensor("model.norm.weight", "bfloat16", &[4096]));
    entries.push(tensor("lm_head.weight", "bfloat16", &[32_000, 4096]));
    entries
}

#[test]
fn infers_llama_without_head_counts() {
    let model = Model::of_entries(&llama(32), None);
    let family = model.fact("family").unwrap();
    assert_eq!(family.text(), "Llama-like, decoder only");
    assert_eq!(family.source.word(), "inferred");
    for (name, number) in [
        ("layers", 32),
        ("hidden_size", 4096),
        ("intermediate_size", 11_008),
        ("vocabulary", 32_000),
        ("parameters", 6_738_415_616),
    ] {
        assert_eq!(model.number(name), Some(number), "{name}");
    }
    assert_eq!(model.fact("heads").unwrap().source.word(), "unknown");
    assert_eq!(model.number("heads_per_kv_head"), Some(1));
    assert_eq!(model.fact("tied_embeddings").unwrap().value, FactValue::Flag(false));
    let part = |part| model.parts.iter().find(|sum| sum.component == part).unwrap().params;
    assert_eq!(part(ModelComponent::Embedding), 32_000 * 4096);
    assert_eq!(part(ModelComponent::Head), 32_000 * 4096);
    assert_eq!(part(ModelComponent::Attention), 32 * 4 * 4096 * 4096);
    assert_eq!(part(ModelComponent::Mlp), 32 * 3 * 4096 * 11_008);
    assert_eq!(part(ModelComponent::Norm), 65 * 4096);
    let memory = model.memory.unwrap();
    assert_eq!(memory.stored, 2 * 6_738_415_616);
    assert_eq!(memory.float32, 4 * 6_738_415_616);
    assert_eq!(memory.training, 16 * 6_738_415_616);
}

#[test]
fn reports_contradictions_with_the_config() {
    let values = [
        ("model_type", "llama"),
        ("num_attention_heads", "32"),
        ("num_hidden_layers", "40"),
        ("max_position_embeddings", "4096"),
        ("tie_word_embeddings", "false"),
    ];
    let values = values.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let config = Config::new("config.json", values);
    let model = Model::of_entries(&llama(32), Some(&config));
    assert_eq!(
        model.fact("family").unwrap().source,
        FactSource::Config("config.json: model_type".into())
    );
    assert_eq!(model.number("heads"), Some(32));
    assert_eq!(model.fact("kv_heads").unwrap().source.word(), "inferred");
    assert_eq!(model.number("kv_heads"), Some(32));
    let layers = model.fact("layers").unwrap();
    assert_eq!(model.number("layers"), Some(40));
    assert_eq!(layers.doubt, "the file says 32: model.layers, 0 to 31");
    assert_eq!(layers.corrected(), Some(32), "the file is right");
    assert!(model.line().contains("32 layers"), "{}", model.line());
    let shown = layers.of_file();
    assert_eq!((shown.text().as_str(), shown.source.word()), ("32", "inferred"));
    assert_eq!(shown.basis(), "model.layers, 0 to 31; but config.json: num_hidden_layers says 40");
    let json = serde_json::to_value(model.report()).unwrap();
    let facts = json["facts"].as_array().unwrap();
    let layers = facts.iter().find(|fact| fact["name"] == "layers").unwrap();
    assert_eq!(layers["value"], 32);
    assert_eq!(model.fact("heads").unwrap().corrected(), None);
    assert_eq!(model.number("max_positions"), Some(4096));
}

#[test]
fn active_experts_require_a_config() {
    let mut tensors: Vec<(String, Vec<u64>)> =
        vec![("model.embed_tokens.weight".into(), vec![100, 8])];
    for layer in 0..2 {
        let base = format!("model.layers.{layer}");
        tensors.push((format!("{base}.input_layernorm.weight"), vec![8]));
        tensors.push((format!("{base}.self_attn.q_proj.weight"), vec![8, 8]));
        tensors.push((format!("{base}.block_sparse_moe.gate.weight"), vec![4, 8]));
        for expert in 0..4 {
            for (name, shape) in [("w1", [16, 8]), ("w2", [8, 16]), ("w3", [16, 8])] {
                let key = format!("{base}.block_sparse_moe.experts.{expert}.{name}.weight");
                tensors.push((key, shape.to_vec()));
            }
        }
    }
    let tensors: Vec<(&str, &[u64])> =
        tensors.iter().map(|(key, shape)| (key.as_str(), shape.as_slice())).collect();
    let model = of(&tensors, None);
    assert_eq!(model.number("experts"), Some(4));
    assert!(!model.fact("active_parameters").unwrap().is_known());
    let config = Config::new("config.json", [("num_experts_per_tok".to_owned(), "2".to_owned())]);
    let model = of(&tensors, Some(&config));
    let (router, expert, rest) = (2 * 4 * 8, 2 * 4 * 3 * 16 * 8, 100 * 8 + 2 * (8 + 64));
    assert_eq!(model.number("parameters"), Some(router + expert + rest));
    assert_eq!(model.number("active_parameters"), Some(router + expert / 2 + rest));
}

#[test]
fn infers_heads_from_unambiguous_shapes() {
    // Qwen3 normalises each head of 128.
    let model = of(
        &[
            ("model.layers.0.input_layernorm.weight", &[1024]),
            ("model.layers.0.mlp.gate_proj.weight", &[3072, 1024]),
            ("model.layers.0.self_attn.q_proj.weight", &[2048, 1024]),
            ("model.layers.0.self_attn.k_proj.weight", &[1024, 1024]),
            ("model.layers.0.self_attn.q_norm.weight", &[128]),
            ("model.layers.0.self_attn.k_norm.weight", &[128]),
        ],
        None,
    );
    assert_eq!((model.number("heads"), model.number("kv_heads")), (Some(16), Some(8)));
    assert_eq!(model.number("head_size"), Some(128));
    // JAX has a separate dimension for heads.
    let model = of(
        &[
            ("params.encoder.layers_0.pre_attention_layer_norm.scale", &[512]),
            ("params.encoder.layers_0.attention.query.kernel", &[512, 8, 64]),
            ("params.encoder.layers_0.attention.key.kernel", &[512, 2, 64]),
        ],
        None,
    );
    assert_eq!((model.number("heads"), model.number("kv_heads")), (Some(8), Some(2)));
}

#[test]
fn stages_are_not_layers_and_buffers_not_parameters() {
    let model = of(
        &[
            ("conv1.weight", &[64, 3, 7, 7]),
            ("bn1.weight", &[64]),
            ("bn1.running_mean", &[64]),
            ("layer1.0.conv1.weight", &[64, 64, 1, 1]),
            ("layer1.0.downsample.1.weight", &[64]),
            ("layer1.0.downsample.1.running_mean", &[64]),
            ("layer4.0.conv1.weight", &[64, 64, 1, 1]),
            ("fc.weight", &[10, 64]),
        ],
        None,
    );
    assert_eq!(model.fact("family").unwrap().text(), "ResNet-like, convolutional");
    assert!(!model.fact("layers").unwrap().is_known());
    assert_eq!(model.number("parameters"), Some(64 * 3 * 49 + 64 + 2 * 4096 + 64 + 640));
    let unet = of(
        &[
            ("down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.weight", &[320, 320]),
            ("up_blocks.0.resnets.0.conv1.weight", &[320, 320, 3, 3]),
            ("mid_block.resnets.0.conv1.weight", &[320, 320, 3, 3]),
            ("time_embedding.linear_1.weight", &[1280, 320]),
        ],
        None,
    );
    assert_eq!(unet.fact("family").unwrap().text(), "UNet of a diffusion model");
    assert!(!unet.fact("layers").unwrap().is_known());
}

#[test]
fn shared_memory_counts_as_tied() {
    let entries = [
        tensor("transformer.wte.weight", "float32", &[10, 4]),
        tensor("lm_head.weight", "float32", &[10, 4]),
    ];
    let at = |offsets: [u64; 2]| {
        let mut leaves = leaves(&entries);
        for (leaf, offset) in leaves.iter_mut().zip(offsets) {
            leaf.place = Some((FileId(0), offset));
        }
        Model::read(&leaves, None, None)
    };
    let model = at([3, 3]);
    assert_eq!(model.fact("tied_embeddings").unwrap().value, FactValue::Flag(true));
    assert_eq!(model.number("parameters"), Some(40));
    for offsets in [[3, 4], [4, 3]] {
        assert_eq!(at(offsets).number("parameters"), Some(80));
    }
}

#[test]
fn links_to_an_optimizer_count_in_the_model() {
    let link = |key: &str, target: &str, shape: &[u64]| LeafSummary {
        link: Some(target.into()),
        ..tensor(key, "float32", shape)
    };
    let entries = [
        tensor("optimizer.params.0", "float32", &[3, 2]),
        link("model.embed.weight", "optimizer.params.0", &[3, 2]),
        link("model.head.weight", "optimizer.params.0", &[3, 2]),
        tensor("model.fc.weight", "float32", &[2, 2]),
        link("model.again.weight", "model.fc.weight", &[2, 2]),
    ];
    assert_eq!(parameters_of(&entries, Some("model")), 10);
}

#[test]
fn state_of_optimizers_is_not_counted() {
    for keys in [
        &["state.0.step", "state.0.exp_avg", "param_groups.0.lr", "state.0.sum"][..],
        &["state.a.bias.step", "state.a.bias.exp_avg_sq_row", "param_groups.0.lr"],
        &["state.a.bias.step", "state.a.bias.exp_avg", "state.a.bias.master_param"],
        &["0.bfloat16.param", "0.bfloat16.exp_avg", "0.bfloat16.exp_avg_sq"],
        &["state.optimizers.Adam.state.w.d", "state.optimizers.Adam.param_groups.0.lr"],
        &["optimizer_state_dict.fp32_flat_groups.0", "optimizer.vars.0"],
        &["opt_state.0.mu.w", "opt_state.0.count", "step"],
        &["model/w/.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE"],
        &["bert/dense/kernel/adam_m", "dense/kernel/Momentum", "beta1_power"],
        &["global_step", "model_ema.num_updates"],
    ] {
        let entries: Vec<_> = keys
            .iter()
            .map(|key| {
                let scalar = key.ends_with("step") || key.ends_with("num_updates");
                tensor(key, "float32", if scalar { &[] } else { &[3, 2] })
            })
            .collect();
        assert_eq!(parameters_of(&entries, None), 0, "{keys:?}");
    }
    // The names of modules of a model.
    let keys = ["state.0.weight", "momentum_encoder.w", "step.weight", "model.state.bias"];
    let entries = keys.map(|key| tensor(key, "float32", &[3, 2]));
    assert_eq!(parameters_of(&entries, None), 24);
}

#[test]
fn every_buffer_may_be_one() {
    let modules = [
        "h",
        "rotary_emb",
        "Rotary_Emb",
        "rope_freqs",
        "running_mean",
        "attn_mask",
        "step",
        "num_updates",
        "RUNNING_VAR",
        "bias",
    ];
    let names = ["weight", "bias", "inv_freq", "freqs_cis", "global_step", "Decay", "w:0", "", "x"];
    let mut buffers = 0;
    for module in modules {
        for outer in ["", "model.", "a.rope_freqs/", "Layers.0."] {
            for name in names {
                for (rank, dot) in [(0, "."), (1, "/"), (4, "."), (4, "/")] {
                    let key = format!("{outer}{module}{dot}{name}");
                    let is_buffer = roles::is_buffer(&key::Parsed::new(&key), rank);
                    assert!(!is_buffer || roles::may_be_buffer(&key, rank), "{key} {rank}");
                    buffers += u64::from(is_buffer);
                }
            }
        }
    }
    assert!(buffers > 500, "{buffers}");
    assert!(!roles::may_be_buffer("model.layers.0.self_attn.q_proj.weight", 2));
}

#[test]
fn family_is_recognised_by_consecutive_modules() {
    let family = |keys: &[&str]| {
        let tensors: Vec<(&str, &[u64])> = keys.iter().map(|key| (*key, &[4, 4][..])).collect();
        let model = of(&tensors, None);
        model.fact("family").filter(|family| family.is_known()).map(Fact::text)
    };
    let mamba = Some("Mamba, decoder only".to_owned());
    assert_eq!(family(&["backbone.layers.0.mixer.A_log"]), mamba);
    // Numbers are ignored.
    assert_eq!(family(&["backbone.layers.0.mixer.1.A_log"]), mamba);
    assert_eq!(family(&["backbone.layers.0.mixer.inner.A_log"]), None);
    assert_eq!(family(&["backbone.layers.0.A_log.mixer"]), None);
    assert_eq!(family(&["backbone.layers.0.mixer.x", "backbone.layers.0.inner.A_log"]), None);
}

#[test]
fn unrecognised_model_has_no_description() {
    let model = of(&[("a", &[2, 3])], None);
    assert!(!model.is_recognised());
    assert_eq!(model.line(), "");
    assert!(Model::of_entries(&[], None).memory.is_none());
    // Implausible sizes must not overflow.
    let mut lies = tensor("model.layers.0.mlp.down_proj.weight", "float32", &[]);
    (lies.shape, lies.params, lies.bytes) = (vec![u64::MAX, 2], u64::MAX, u64::MAX);
    let mut more = lies.clone();
    more.key = "model.layers.18446744073709551615.mlp.down_proj.weight".into();
    assert_eq!(Model::of_entries(&[lies, more], None).number("parameters"), Some(u64::MAX));
}

/// Models of many families as built by transformers (`tests/fixtures/models`): the number of
/// parameters must match its count, and values inferred from names and shapes must match the
/// config.
#[test]
fn descriptions_match_transformers() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/models/models.json");
    let models: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut wrong = String::new();
    let mut compared = 0;
    for one in models.as_array().unwrap() {
        let class = one["class"].as_str().unwrap();
        let tensors = one["tensors"].as_array().unwrap().iter().map(|one| {
            let shape: Vec<u64> =
                one[2].as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap()).collect();
            tensor(one[0].as_str().unwrap(), one[1].as_str().unwrap(), &shape)
        });
        let entries: Vec<LeafSummary> = tensors.collect();
        let model = Model::of_entries(&entries, None);
        let mut check = |what: &str, compared: Option<u64>, said: Option<u64>| {
            if compared != said {
                wrong += &format!("{class}: {what} is {said:?}, not {compared:?}\n");
            }
        };
        check("parameters", model.number("parameters"), one["params"].as_u64());
        let said = |keys: &[&str]| keys.iter().find_map(|key| one["config"][*key].as_u64());
        let convolutional = class.starts_with("ResNet");
        if !convolutional {
            let layers =
                ["num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"];
            check("layers", model.number("layers"), said(&layers));
            check(
                "hidden",
                model.number("hidden_size"),
                said(&["hidden_size", "n_embd", "d_model", "dim"]),
            );
        }
        for (fact, keys) in [
            (
                "heads",
                &["num_attention_heads", "n_head", "num_heads", "encoder_attention_heads"][..],
            ),
            ("kv_heads", &["num_key_value_heads"]),
            ("head_size", &["head_dim", "d_kv"]),
            ("experts", &["num_local_experts", "num_experts"]),
            ("vocabulary", &["vocab_size"]),
        ] {
            if let (Some(number), Some(_)) = (model.number(fact), said(keys)) {
                compared += 1;
                check(fact, Some(number), said(keys));
            }
        }
        let inner =
            said(&["intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim", "hidden_dim"]);
        if let (Some(number), Some(inner)) = (model.number("intermediate_size"), inner) {
            compared += 1;
            check("intermediate size", Some(number), Some(inner));
        }
        if !model.fact("family").unwrap().is_known() {
            wrong += &format!("{class}: no family\n");
        }
        // With the config there must be no contradictions.
        let values = one["config"].as_object().unwrap().iter().map(|(key, value)| {
            (key.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        });
        let config = Config::new("config.json", values);
        for fact in Model::of_entries(&entries, Some(&config)).facts {
            let apart = matches!(&*fact.name, "max_positions" | "vocabulary" | "tied_embeddings");
            if !fact.doubt.is_empty() && !apart {
                wrong += &format!("{class}: {} {}\n", fact.name, fact.doubt);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(compared > 60, "{compared}");
}
