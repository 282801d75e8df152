//! `convert-model` between layouts other than those of Cerebras, with custom recipes, and with
//! optimizers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::common::{Folder, run, safetensors, text};

/// Returns float32 tensors whose numbers are all different.
fn model(tensors: &[(&str, &[u64])]) -> Vec<u8> {
    let mut next = 0;
    let data: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, shape)| {
            let from = next;
            next += shape.iter().product::<u64>();
            (from..next).flat_map(|number| (number as f32).to_le_bytes()).collect()
        })
        .collect();
    let all = tensors.iter().zip(&data);
    let all: Vec<(&str, &str, &[u64], &[u8])> =
        all.map(|((key, shape), data)| (*key, "F32", *shape, &data[..])).collect();
    safetensors(&all)
}

/// Returns the hash of each tensor.
fn hashes(path: &Path) -> BTreeMap<String, String> {
    let json = run(["manifest", "--json", &text(path)]).json();
    let entries = json["entries"].as_array().unwrap().iter();
    entries
        .map(|one| (one["key"].as_str().unwrap().to_owned(), one["sha256"].to_string()))
        .collect()
}

/// Returns the numbers of a matrix, row by row.
fn numbers(path: &Path, key: &str) -> Vec<f64> {
    let folder = Folder::new();
    let csv = folder.file("numbers.csv");
    run(["export", &text(path), key, &text(&csv)]).ok();
    let csv = fs::read_to_string(csv).unwrap();
    csv.split([',', '\n']).filter_map(|number| number.trim().parse().ok()).collect()
}

const LLAMA: &[(&str, &[u64])] = &[
    ("model.embed_tokens.weight", &[8, 8]),
    ("model.norm.weight", &[8]),
    ("lm_head.weight", &[8, 8]),
    ("model.layers.0.self_attn.q_proj.weight", &[8, 8]),
    ("model.layers.0.self_attn.k_proj.weight", &[4, 8]),
    ("model.layers.0.self_attn.v_proj.weight", &[4, 8]),
    ("model.layers.0.self_attn.o_proj.weight", &[8, 8]),
    ("model.layers.0.mlp.gate_proj.weight", &[12, 8]),
    ("model.layers.0.mlp.up_proj.weight", &[12, 8]),
    ("model.layers.0.mlp.down_proj.weight", &[8, 12]),
    ("model.layers.0.input_layernorm.weight", &[8]),
    ("model.layers.0.post_attention_layernorm.weight", &[8]),
];
const CONFIG: &[u8] =
    br#"{"model_type": "llama", "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 8}"#;

#[test]
fn llama_round_trips_through_meta_rank_files() {
    let folder = Folder::new();
    let source = folder.with("model.safetensors", &model(LLAMA));
    folder.with("config.json", CONFIG);
    for ranks in ["1", "2"] {
        let out = folder.file(&format!("out{ranks}"));
        run(["convert-model", &text(&source), "--to", "meta", "--ranks", ranks, "-o", &text(&out)])
            .ok();
        let there = out.join("model_to_meta");
        let files = fs::read_dir(&there).unwrap().count();
        assert_eq!(files.to_string(), ranks);
        let first = there.join("consolidated.00.pth");
        assert_eq!(hashes(&first).len(), LLAMA.len());
        // In each head of 4 rows, halves become pairs: rows 0, 2, 1, 3.
        let rows = numbers(&first, "layers.0.attention.wq.weight");
        let starts: Vec<f64> = rows.chunks(8).take(4).map(|row| row[0]).collect();
        let before = numbers(&source, "model.layers.0.self_attn.q_proj.weight");
        assert_eq!(starts, [0, 2, 1, 3].map(|row| before[row * 8]));
        fs::write(there.join("params.json"), br#"{"n_heads": 2, "n_kv_heads": 2}"#).unwrap();
        let printed = run([
            "convert-model",
            &text(&there),
            "--to",
            "hf",
            "--export-safetensors",
            "-o",
            &text(&out),
        ]);
        assert!(printed.ok().contains("llama-meta from meta to hf"));
        let back = out.join("model_to_meta_to_hf/model-00001-of-00001.safetensors");
        assert_eq!(hashes(&back), hashes(&source), "{ranks}");
    }
    // Part of a model must not pass for the whole.
    let there = folder.file("out2/model_to_meta");
    fs::remove_file(there.join("consolidated.01.pth")).unwrap();
    let args = ["convert-model", &text(&there), "--to", "hf", "-o", &text(&folder.file("part"))];
    let error = run(args).failed();
    assert!(error.contains("some of its files are missing"), "{error}");
    // With more ranks than heads of keys, ranks hold duplicates of heads, which can't be undone
    // here.
    let args = ["convert-model", &text(&source), "--to", "meta", "--ranks", "4"];
    let error = run(args).failed();
    assert!(error.contains("more ranks than heads of keys"), "{error}");
}

const OPENAI: &[(&str, &[u64])] = &[
    ("embedding.weight", &[8, 8]),
    ("block.0.attn.norm.scale", &[8]),
    ("block.0.attn.qkv.weight", &[16, 8]),
    ("block.0.attn.qkv.bias", &[16]),
    ("block.0.attn.sinks", &[4]),
    ("block.0.attn.out.weight", &[8, 8]),
    ("block.0.attn.out.bias", &[8]),
    ("block.0.mlp.norm.scale", &[8]),
    ("block.0.mlp.gate.weight", &[2, 8]),
    ("block.0.mlp.gate.bias", &[2]),
    ("block.0.mlp.mlp1_weight.blocks", &[2, 12, 1, 4]),
    ("block.0.mlp.mlp1_weight.scales", &[2, 12, 1]),
    ("block.0.mlp.mlp1_bias", &[2, 12]),
    ("block.0.mlp.mlp2_weight.blocks", &[2, 8, 1, 4]),
    ("block.0.mlp.mlp2_weight.scales", &[2, 8, 1]),
    ("block.0.mlp.mlp2_bias", &[2, 8]),
    ("norm.scale", &[8]),
    ("unembedding.weight", &[8, 8]),
];

#[test]
fn gpt_oss_round_trips_from_openai_to_hugging_face() {
    let folder = Folder::new();
    let source = folder.with("model.safetensors", &model(OPENAI));
    // OpenAI's config has no model_type: the model is recognised by its keys.
    let config = br#"{"num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 2}"#;
    folder.with("config.json", config);
    let out = text(&folder.file("out"));
    let flags = ["--export-safetensors", "-o", &out];
    let printed = run([&["convert-model", &text(&source), "--to", "hf"], &flags[..]].concat());
    assert!(printed.ok().contains("gpt-oss from openai to hf"));
    let there = Path::new(&out).join("model_to_hf");
    let file = there.join("model-00001-of-00001.safetensors");
    let rows = numbers(&source, "block.0.attn.qkv.weight");
    let at = |name| numbers(&file, &format!("model.layers.0.self_attn.{name}_proj.weight"));
    assert_eq!([at("q"), at("k"), at("v")], [&rows[..64], &rows[64..96], &rows[96..]]);
    fs::write(there.join("config.json"), config).unwrap();
    let again = folder.file("again");
    let to = ["--to", "openai", "--export-safetensors", "-o", &text(&again)];
    run([&["convert-model", &text(&there)], &to[..]].concat()).ok();
    let back = fs::read_dir(&again).unwrap().next().unwrap().unwrap().path();
    assert_eq!(hashes(&back), hashes(&source));

    let unpacked = [("model.layers.0.mlp.experts.down_proj", &[2, 6, 8][..])];
    let unpacked = folder.with("unpacked.safetensors", &model(&unpacked));
    let args = [
        "convert-model",
        &text(&unpacked),
        "--model",
        "gpt-oss",
        "--src-fmt",
        "hf",
        "--to",
        "openai",
    ];
    let error = run(args).failed();
    assert!(error.contains("MXFP4"), "{error}");
}

#[test]
fn recognises_the_layout_from_the_keys() {
    let folder = Folder::new();
    let tensors = [("model.layers.0.mlp.experts.gate_up_proj", &[2, 12, 8][..])];
    let source = folder.with("model.safetensors", &model(&tensors));
    folder.with("config.json", br#"{"model_type": "qwen3_moe", "num_experts": 2}"#);
    let printed = run(["convert-model", &text(&source), "--to", "hf", "--dry-run"]).ok();
    assert!(printed.contains("moe-experts from stacked to hf"), "{printed}");
    // Another model may have such a key, too.
    folder.with("config.json", br#"{"model_type": "llama", "num_experts": 2}"#);
    let error = run(["convert-model", &text(&source), "--to", "hf", "--dry-run"]).failed();
    assert!(error.contains("the model could not be recognised"), "{error}");
}

#[test]
fn stacks_and_unstacks_experts() {
    let folder = Folder::new();
    let mut tensors: Vec<(String, Vec<u64>)> =
        vec![("model.layers.0.block_sparse_moe.gate.weight".to_owned(), vec![2, 4])];
    for expert in 0..2 {
        for (part, shape) in [("w1", [3, 4]), ("w2", [4, 3]), ("w3", [3, 4])] {
            let key = format!("model.layers.0.block_sparse_moe.experts.{expert}.{part}.weight");
            tensors.push((key, shape.to_vec()));
        }
    }
    let all: Vec<(&str, &[u64])> =
        tensors.iter().map(|(key, shape)| (&**key, &shape[..])).collect();
    let source = folder.with("model.safetensors", &model(&all));
    folder.with("config.json", br#"{"model_type": "mixtral", "num_local_experts": 2}"#);
    run(["convert-model", &text(&source), "--to", "stacked", "--export-safetensors"]).ok();
    let there = folder.file("model_to_stacked/model-00001-of-00001.safetensors");
    let both = numbers(&there, "model.layers.0.mlp.experts.gate_up_proj[1]");
    let part = |part: &str| {
        numbers(&source, &format!("model.layers.0.block_sparse_moe.experts.1.{part}.weight"))
    };
    assert_eq!(both, [part("w1"), part("w3")].concat());
    fs::copy(folder.file("config.json"), there.with_file_name("config.json")).unwrap();
    let out = folder.file("out");
    let args = ["convert-model", &text(&there), "--to", "hf", "-o"];
    run(args.into_iter().chain([&*text(&out), "--export-safetensors"])).ok();
    let back = fs::read_dir(&out).unwrap().next().unwrap().unwrap().path();
    assert_eq!(hashes(&back), hashes(&source));
}

/// A model with experts both stacked and one by one is not converted, and the error says why.
#[test]
fn refuses_experts_that_are_stacked_and_apart() {
    let folder = Folder::new();
    let mut tensors = vec![
        ("model.layers.0.mlp.experts.gate_up_proj".to_owned(), vec![2, 12, 8]),
        ("model.layers.0.mlp.experts.down_proj".to_owned(), vec![2, 8, 6]),
    ];
    for expert in 0..2 {
        for (part, shape) in [("gate_proj", [6, 8]), ("up_proj", [6, 8]), ("down_proj", [8, 6])] {
            let key = format!("model.layers.0.mlp.experts.{expert}.{part}.weight");
            tensors.push((key, shape.to_vec()));
        }
    }
    let all: Vec<(&str, &[u64])> =
        tensors.iter().map(|(key, shape)| (&**key, &shape[..])).collect();
    let source = text(&folder.with("model.safetensors", &model(&all)));
    folder.with("config.json", br#"{"model_type": "qwen3_moe", "num_experts": 2}"#);
    for (target, words) in [
        ("stacked", "its keys are those of stacked already. If only some of them are"),
        ("hf", "_proj.weight`, too. The rule is in line"),
    ] {
        let error = run(["convert-model", &source, "--to", target, "--dry-run"]).failed();
        assert!(error.contains(words), "{error}");
    }
}

/// The recipe and the command in `docs/recipes.md`.
#[test]
fn documented_recipe_example_works() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes.md");
    let docs = fs::read_to_string(docs).unwrap();
    let mut blocks = docs.split("```\n").skip(1).step_by(2);
    let (recipe, command) = (blocks.next().unwrap(), blocks.next().unwrap());
    let folder = Folder::new();
    folder.with("mine.recipe", recipe.as_bytes());
    folder.with("config.json", br#"{"n_head": 2}"#);
    let source = folder.with(
        "mine.safetensors",
        &model(&[
            ("embed.weight", &[6, 4]),
            ("head_norm.weight", &[4]),
            ("layer_0.attention.key.weight", &[4, 4]),
            ("layer_0.attention.query.weight", &[4, 4]),
            ("layer_0.attention.value.weight", &[4, 4]),
            ("layer_0.norm.weight", &[4]),
            ("norm.weight", &[4]),
        ]),
    );
    let words: Vec<String> = command
        .split_whitespace()
        .skip(1)
        .map(|word| match folder.file(word).is_file() {
            true => text(&folder.file(word)),
            false => word.to_owned(),
        })
        .collect();
    let printed = run(words.iter().map(String::as_str)).ok();
    assert!(printed.contains("layer_0.attention.query.weight + "), "{printed}");
    assert!(words.last().is_some_and(|word| word == "--dry-run"));
    run(words[..words.len() - 1].iter().map(String::as_str).chain(["--export-safetensors"])).ok();
    let written = folder.file("mine_to_hf/model-00001-of-00001.safetensors");
    let keys: Vec<String> = hashes(&written).into_keys().collect();
    assert_eq!(
        keys,
        [
            "lm_head.weight",
            "transformer.h.0.attn.c_attn.weight",
            "transformer.h.0.ln_1.weight",
            "transformer.ln_f.weight",
            "transformer.wte.weight"
        ]
    );
    // Column 1 of the joined matrix is row 1 of the query's.
    let joined = numbers(&written, "transformer.h.0.attn.c_attn.weight");
    let query = numbers(&source, "layer_0.attention.query.weight");
    let column: Vec<f64> = joined.chunks(12).map(|row| row[1]).collect();
    assert_eq!(column, query[4..8]);
}

#[test]
fn lists_layouts_with_the_models() {
    let listed = run(["list-converters", "llama-meta"]).ok();
    assert!(listed.contains("hf") && listed.contains("meta"), "{listed}");
    let all = run(["list-converters", "--json"]).json();
    let models = all["models"].as_array().unwrap();
    let names: Vec<&str> = models.iter().map(|one| one["model"].as_str().unwrap()).collect();
    for name in ["llama", "qwen2", "mixtral-experts", "gpt2-megatron", "gpt-oss", "phi3-split"] {
        assert_eq!(names.iter().filter(|own| **own == name).count(), 1, "{name}");
    }
}
