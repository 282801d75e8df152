//! `statelens check` on folders with models, whole and with one defect each, and SARIF.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use statelens::parts::compare::folder::{RULES, rules_markdown};

use crate::common::{Folder, fixture, run, text};

fn folder(name: &str) -> PathBuf {
    fixture(&format!("folders/{name}"))
}

/// Copies a folder of fixtures, to change it.
fn copy(name: &str) -> Folder {
    let copy = Folder::new();
    for entry in fs::read_dir(folder(name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

fn check(path: &Path, more: &[&str]) -> (Option<i32>, Value) {
    let ran = run([&["check", &text(path), "--json"], more].concat());
    let json = serde_json::from_str(&ran.out);
    (ran.code, json.unwrap_or_else(|_| panic!("{}: {} {}", path.display(), ran.out, ran.err)))
}

/// Returns the rules of the findings with at least this level.
fn rules(report: &Value, levels: &[&str]) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    let findings = findings.filter(|one| levels.contains(&one["level"].as_str().unwrap()));
    findings.map(|one| one["rule"].as_str().unwrap().to_owned()).collect()
}

/// Copies a folder and those below.
fn copy_below(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copy = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy_below(&path, &copy),
            false => {
                fs::copy(&path, copy).unwrap();
            }
        }
    }
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
        let folder = made(tensors, &config);
        let (_, report) = check(folder.path(), &[]);
        let found = rules(&report, &["error", "warning"]);
        let expected: Vec<&str> = [rule].into_iter().filter(|rule| !rule.is_empty()).collect();
        assert_eq!(found, expected, "{what}: {report}");
        assert!(report["findings"].to_string().contains(named), "{what}: {report}");
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
    ] {
        let folder = made(tensors, &config);
        let (_, report) = check(folder.path(), &[]);
        let found = rules(&report, &["error", "warning"]);
        let expected: Vec<&str> = [rule].into_iter().filter(|rule| !rule.is_empty()).collect();
        assert_eq!(found, expected, "{what}: {report}");
        assert!(report["findings"].to_string().contains(named), "{what}: {report}");
    }
}

/// Files of ranks are checked as one checkpoint: each alone is never a model.
#[test]
fn checks_files_of_ranks_together() {
    for (name, lost) in [
        ("sharded/verl_w2", "model_world_size_2_rank_1.pt"),
        ("sharded/dcp_w2_mix", "__1_0.distcp"),
        ("sharded/mcore_tp2", "__1_0.distcp"),
        (
            "deepspeed/z2_bf16_w3_groups",
            "global_step2/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
        ),
    ] {
        let copy = Folder::new();
        copy_below(&fixture(name), copy.path());
        let (code, report) = check(copy.path(), &[]);
        assert_eq!(code, Some(0), "{name}: {report}");
        assert_eq!(rules(&report, &["error", "warning"]), Vec::<String>::new(), "{name}");
        fs::remove_file(copy.path().join(lost)).unwrap();
        let (code, report) = check(copy.path(), &[]);
        assert_eq!(code, Some(1), "{name}: {report}");
        let lost = lost.rsplit('/').next().unwrap();
        assert!(report["findings"].to_string().contains(lost), "{name}: {report}");
    }
    // The config next to them is compared with the joined tensors.
    let copy = Folder::new();
    copy_below(&fixture("sharded/hf_w2_shards"), copy.path());
    fs::write(copy.path().join("config.json"), r#"{"vocab_size": 123456}"#).unwrap();
    let (_, report) = check(copy.path(), &[]);
    assert!(!rules(&report, &["error"]).contains(&"index-missing".to_owned()), "{report}");
}

/// Every defect is named, with the level that real loaders justify, and whole folders have none.
#[test]
fn finds_each_defect_and_nothing_in_whole_folders() {
    let expected = fs::read_to_string(folder("expect.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let mut failures = Vec::new();
    for (name, expect) in expected.as_object().unwrap() {
        let (code, report) = check(&folder(name), &[]);
        let level = expect["level"].as_str().unwrap();
        let (errors, warnings) = (rules(&report, &["error"]), rules(&report, &["warning"]));
        let is_right = match level {
            "error" => !errors.is_empty(),
            "warning" => errors.is_empty() && !warnings.is_empty(),
            _ => errors.is_empty() && warnings.is_empty(),
        };
        if !is_right || code.map(i64::from) != expect["exit"].as_i64() {
            failures.push(format!("{name}: {level}, but {report}"));
        }
        let told = report["findings"].to_string().to_lowercase().replace(',', "");
        for words in expect["must_name"].as_array().unwrap() {
            let words = words.as_str().unwrap().to_lowercase();
            if !words.split('|').any(|word| told.contains(word)) {
                failures.push(format!("{name}: does not name {words}"));
            }
        }
        for rule in errors.iter().chain(&warnings) {
            assert!(RULES.iter().any(|known| known.id == rule), "{rule}");
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn levels_of_rules_can_be_set() {
    let (code, report) = check(&folder("config_dtype"), &["--level", "config-dtype=error"]);
    assert_eq!((code, rules(&report, &["error"])), (Some(1), vec!["config-dtype".to_owned()]));
    let (code, report) = check(&folder("missing_shard"), &["--level", "shard-missing=off"]);
    assert_eq!((code, rules(&report, &["error"]).len()), (Some(0), 0));
    for wrong in ["config-dtype", "config-dtype=bad", "no-such-rule=off"] {
        let ran = run(["check", &text(&folder("llama_single")), "--level", wrong]);
        assert_eq!(ran.code, Some(2), "{wrong}: {}", ran.err);
    }
}

#[test]
fn writes_a_right_index_and_keeps_the_old_one() {
    for name in ["tensor_in_wrong_shard", "index_broken", "total_size_wrong", "tensor_not_in_index"]
    {
        let copy = copy(name);
        let index = copy.file("model.safetensors.index.json");
        let old = fs::read(&index).unwrap();
        let ran = run(["check", &text(copy.path()), "--fix-index"]);
        assert_eq!(ran.code, Some(0), "{name}: {} {}", ran.out, ran.err);
        assert_eq!(fs::read(copy.file("model.safetensors.index.json.bak")).unwrap(), old);
        let (code, report) = check(copy.path(), &[]);
        assert_eq!((code, &report["warnings"]), (Some(0), &0.into()), "{name}: {report}");
        let whole = fs::read(folder("llama_three_shards").join("model.safetensors.index.json"));
        let whole: Value = serde_json::from_slice(&whole.unwrap()).unwrap();
        let new: Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
        assert_eq!(
            new["weight_map"].as_object().map(|map| map.len()),
            whole["weight_map"].as_object().map(|map| map.len())
        );
        assert_eq!(new["metadata"]["total_size"], whole["metadata"]["total_size"], "{name}");
    }
}

#[test]
fn no_index_is_written_for_shards_that_are_not_whole() {
    for name in ["missing_shard", "shard_cut", "tensor_twice_unlike", "shard_empty"] {
        let copy = copy(name);
        let index = copy.file("model.safetensors.index.json");
        let old = fs::read(&index).unwrap();
        let ran = run(["check", &text(copy.path()), "--fix-index"]);
        assert_eq!(ran.code, Some(2), "{name}: {}", ran.out);
        assert_eq!(fs::read(&index).unwrap(), old, "{name}");
        assert!(!copy.file("model.safetensors.index.json.bak").exists());
    }
}

/// A named file selects its checkpoint: other files of the folder are not judged.
#[test]
fn a_file_is_checked_with_its_set() {
    let copy = copy("llama_three_shards");
    fs::write(copy.file("other.safetensors"), "").unwrap();
    assert_eq!(check(copy.path(), &[]).0, Some(1));
    let (code, report) = check(&copy.file("model-00002-of-00003.safetensors"), &[]);
    assert_eq!((code, &report["weight_files"]), (Some(0), &3.into()), "{report}");
}

#[test]
fn several_folders_are_one_table() {
    let (whole, broken) = (text(&folder("llama_single")), text(&folder("shard_empty")));
    let ran = run(["check", &whole, &broken]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("not whole") && ran.out.contains("file-empty"), "{}", ran.out);
}

/// Checks the structure that the schema of SARIF 2.1.0 requires, and what code scanning needs.
fn sarif(args: &[&str], code: i32) -> Vec<Value> {
    let ran = run(args);
    assert_eq!(ran.code, Some(code), "{args:?}: {} {}", ran.out, ran.err);
    let log: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}", ran.out));
    assert_eq!(log["version"], "2.1.0");
    assert!(log["$schema"].as_str().unwrap().ends_with("sarif-schema-2.1.0.json"));
    let run = &log["runs"][0];
    assert_eq!(run["automationDetails"]["id"], format!("statelens-{}/", args[0]));
    let driver = &run["tool"]["driver"];
    assert_eq!(driver["name"], "Statelens");
    let rules = driver["rules"].as_array().unwrap();
    for rule in rules {
        assert!(rule["id"].is_string() && rule["shortDescription"]["text"].is_string(), "{rule}");
        assert!(rule["helpUri"].as_str().unwrap().starts_with("https://"), "{rule}");
        let level = rule["defaultConfiguration"]["level"].as_str().unwrap();
        assert!(["none", "note", "warning", "error"].contains(&level), "{rule}");
    }
    let results = run["results"].as_array().unwrap().clone();
    for result in &results {
        let level = result["level"].as_str().unwrap();
        assert!(["note", "warning", "error"].contains(&level), "{result}");
        assert!(!result["message"]["text"].as_str().unwrap().is_empty(), "{result}");
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        let place = &result["locations"][0]["physicalLocation"];
        let uri = place["artifactLocation"]["uri"].as_str().unwrap();
        assert!(!uri.is_empty() && !uri.contains(' ') && !uri.contains('\\'), "{uri}");
        assert_eq!(place["region"]["startLine"], 1);
        let print = result["partialFingerprints"]["statelens/v1"].as_str().unwrap();
        assert_eq!(print.len(), 64);
    }
    results
}

#[test]
fn sarif_of_check_scan_and_verify() {
    let cut = text(&folder("shard_cut"));
    let results = sarif(&["check", &cut, "--sarif"], 1);
    assert_eq!(results[0]["ruleId"], "file-cut");
    let key = &results[0]["locations"][0]["logicalLocations"][0]["fullyQualifiedName"];
    assert_eq!(key, "model.layers.2.mlp.down_proj.weight");
    let place = &results[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
    assert!(place.as_str().unwrap().ends_with("/model-00002-of-00003.safetensors"), "{place}");
    assert!(sarif(&["check", &text(&folder("llama_single")), "--sarif"], 0).is_empty());

    let evil = text(&fixture("attacks4/bytesio_evil.pt"));
    let results = sarif(&["scan", &evil, "--sarif"], 1);
    assert!(
        results
            .iter()
            .any(|one| one["ruleId"] == "scan-danger" || one["ruleId"] == "scan-unknown-code")
    );
    assert!(results[0]["message"]["text"].as_str().unwrap().len() > 20);

    let shard = text(&folder("shard_cut").join("model-00002-of-00003.safetensors"));
    let results = sarif(&["verify", &shard, "--sarif"], 1);
    assert!(results.iter().any(|one| one["ruleId"] == "verify-finding"), "{results:?}");

    // A file that can't be read is a result, and does not hide those of the others.
    let missing = text(&folder("llama_single").join("no such file.pt"));
    let results = sarif(&["verify", "--sarif", &missing, &shard], 1);
    assert_eq!(results[0]["ruleId"], "not-read");
    assert!(results.len() > 1, "{results:?}");
    let whole = text(&folder("llama_single").join("model.safetensors"));
    assert_eq!(sarif(&["verify", "--sarif", &missing, &whole], 2).len(), 1);
}

/// Returns a GGUF file with these metadata, after the architecture `llama`, and tensors of float32. An
/// entry is a number, or the number of tokens.
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

#[test]
fn subfolders_are_checked_like_folders() {
    let whole = folder("llama_single");
    let top = Folder::new();
    fs::create_dir_all(top.path().join("unet/.hidden")).unwrap();
    for entry in fs::read_dir(&whole).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), top.path().join("unet").join(entry.file_name())).unwrap();
    }
    fs::write(top.path().join("unet/.hidden/x.safetensors"), b"").unwrap();
    let (code, report) = check(top.path(), &[]);
    assert_eq!((code, &report["whole"]), (Some(0), &Value::from(true)), "{report}");
    fs::write(top.path().join("unet/model.safetensors"), b"").unwrap();
    let (code, report) = check(top.path(), &[]);
    assert_eq!(code, Some(1));
    assert_eq!(report["findings"][0]["file"], "unet/model.safetensors");
    // Shards in subfolders belong to the index above them.
    let (code, report) = check(&fixture("reports4/st_index_paths/layers"), &[]);
    assert_eq!((code, &report["weight_files"]), (Some(0), &Value::from(3)), "{report}");
}

/// The page about the rules is made from them.
#[test]
fn rules_are_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules.md");
    let page = fs::read_to_string(&path).unwrap();
    let (start, rest) = page.split_once("updates it -->\n").unwrap();
    let (_, end) = rest.split_once("<!-- /rules -->").unwrap();
    let made = format!("{start}updates it -->\n{}<!-- /rules -->{end}", rules_markdown());
    if std::env::var_os("STATELENS_WRITE_DOCS").is_some() {
        return fs::write(&path, &made).unwrap();
    }
    assert!(page == made, "run this test with STATELENS_WRITE_DOCS=1");
}

/// Changes a field of a JSON file, which may be in a section of it.
fn set(file: &Path, path: &[&str], value: Value) {
    let mut json: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let mut field = &mut json;
    for name in path {
        field = &mut field[*name];
    }
    *field = value;
    fs::write(file, json.to_string()).unwrap();
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

/// Fails unless a rule reports a finding that has all of these words.
fn assert_found(folder: &Folder, rule: &str, words: &[&str]) {
    let (_, report) = check(folder.path(), &[]);
    let found = report["findings"].as_array().unwrap().iter();
    let found: Vec<String> =
        found.filter(|one| one["rule"] == rule).map(ToString::to_string).collect();
    let has_all = |text: &String| words.iter().all(|word| text.contains(word));
    assert!(found.iter().any(has_all), "{rule} {words:?}: {report}");
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

#[test]
fn files_around_the_weights_are_checked() {
    let folder = copy("llama_single");
    fs::write(folder.file("added_tokens.json"), r#"{"<y>": 888}"#).unwrap();
    fs::remove_file(folder.file("tokenizer.json")).unwrap();
    assert_found(&folder, "tokenizer-larger", &["added_tokens.json", "888"]);
    let config = r#"{"added_tokens_decoder": {"777": {"content": "<y>"}}}"#;
    fs::write(folder.file("tokenizer_config.json"), config).unwrap();
    assert_found(&folder, "tokenizer-larger", &["tokenizer_config.json", "777"]);
    fs::write(folder.file("tokenizer.json"), r#"{"model": {"vocab": {"a""#).unwrap();
    assert_found(&folder, "tokenizer-broken", &["tokenizer.json"]);

    let folder = copy("llama_three_shards");
    let shard = folder.file("model-00001-of-00003.safetensors");
    fs::copy(&shard, folder.file("model-00001-of-00003 (1).safetensors")).unwrap();
    assert_found(&folder, "file-copy", &["(1).safetensors"]);

    let folder = copy("lora_adapter");
    set(&folder.file("adapter_config.json"), &["target_modules"], serde_json::json!(["other"]));
    assert_found(&folder, "adapter-config", &["target_modules"]);
    fs::remove_file(folder.file("adapter_config.json")).unwrap();
    assert_found(&folder, "adapter-config", &["adapter_config.json"]);

    let folder = copy("gguf_three_parts");
    let part = fs::read_dir(folder.path()).unwrap().map(|one| one.unwrap().path());
    let part = part.into_iter().find(|path| text(path).contains("00002-of")).unwrap();
    let bytes = fs::read(&part).unwrap();
    fs::write(&part, &bytes[..bytes.len() - 100]).unwrap();
    assert_found(&folder, "file-damaged", &["00002-of-00003.gguf"]);
}
