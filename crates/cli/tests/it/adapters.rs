//! Folding LoRA: adapters saved by PEFT, and those in Cerebras checkpoints.

use std::fs;
use std::path::Path;

use crate::common::{Folder, fixture, run, text};

/// Copies the model and its adapter into one folder.
fn together(folder: &Folder) -> std::path::PathBuf {
    let all = folder.file("all");
    fs::create_dir(&all).unwrap();
    for part in ["model", "adapter"] {
        for entry in fs::read_dir(fixture("peft/llama_bf16").join(part)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), all.join(entry.file_name())).unwrap();
        }
    }
    all
}

#[test]
fn merges_adapters_as_peft_does() {
    let folder = Folder::new();
    let case = fixture("peft/llama_bf16");
    let out = text(&folder.file("out"));
    let (model, adapter) = (text(&case.join("model")), text(&case.join("adapter")));
    run(["fold-lora", &model, "--adapter", &adapter, "-o", &out]).ok();
    let written = folder.file("out/model_folded");
    let entries = |path: &Path| {
        let json = run(["manifest", "--json", &text(path)]).json();
        let mut entries: Vec<String> =
            json["entries"].as_array().unwrap().iter().map(|one| one.to_string()).collect();
        entries.sort();
        entries
    };
    let merged = entries(&case.join("merged/model.safetensors"));
    assert_eq!(entries(&written.join("model.safetensors")), merged);
    assert_ne!(entries(&case.join("model/model.safetensors")), merged);
    assert_eq!(
        fs::read(written.join("config.json")).unwrap(),
        fs::read(case.join("model/config.json")).unwrap()
    );
    // An adapter in the model's folder is found without being named.
    let all = together(&folder);
    run(["fold-lora", &text(&all)]).ok();
    assert_eq!(entries(&all.join("model_folded/model.safetensors")), merged);
}

#[test]
fn reports_mismatched_adapters_and_writes_nothing() {
    let folder = Folder::new();
    let all = together(&folder);
    let config = all.join("adapter_config.json");
    let own = fs::read_to_string(&config).unwrap();
    let fails = |config_text: &str| {
        fs::write(&config, config_text).unwrap();
        let printed = run(["fold-lora", &text(&all)]).failed();
        assert!(!all.join("model_folded").exists(), "{printed}");
        printed
    };
    let printed = fails(&own.replace("\"r\": 4", "\"r\": 8"));
    assert!(printed.contains("has 4 rows") && printed.contains("says rank 8"), "{printed}");
    assert!(printed.contains("adapter_config.json that was saved with these weights"), "{printed}");
    let printed = fails(&own.replace("\"use_dora\": false", "\"use_dora\": true"));
    assert!(
        printed.contains("an adapter with use_dora") && printed.contains("merge_and_unload"),
        "{printed}"
    );
    fs::remove_file(&config).unwrap();
    let printed = run(["fold-lora", &text(&all)]).failed();
    assert!(printed.contains("no adapter_config.json next to the adapter"), "{printed}");
    // The adapter of another model.
    let other = fixture("trainer/gpt2");
    let adapter = fixture("peft/llama_bf16/adapter");
    let printed = run([
        "fold-lora",
        &text(&other),
        "--adapter",
        &text(&adapter),
        "-o",
        &text(&folder.file("o")),
    ]);
    let printed = printed.failed();
    assert!(
        printed.contains("layers.0.mlp.down_proj.weight`, and the model has no such key"),
        "{printed}"
    );
    assert!(printed.contains("the model that it was trained on, tiny-llama"), "{printed}");
}

/// Returns the entry of each tensor, with its key and hash.
fn hashes(path: &Path) -> Vec<String> {
    let json = run(["manifest", "--json", &text(path)]).json();
    json["entries"].as_array().unwrap().iter().map(|one| one.to_string()).collect()
}

#[test]
fn merges_adapters_while_converting() {
    let folder = Folder::new();
    let (all, out) = (text(&together(&folder)), folder.file("out"));
    let to = ["--to", "cs-2.9", "-o", &text(&out)];
    run([&["convert-model", &all, "--fold-lora"], &to[..]].concat()).ok();
    let merged = text(&fixture("peft/llama_bf16/merged/model.safetensors"));
    let config = format!("{all}/config.json");
    let apart = folder.file("apart");
    let to = ["--to", "cs-2.9", "--config", &config, "-o", &text(&apart)];
    run([&["convert-model", &merged], &to[..]].concat()).ok();
    let sorted = |folder: &Path| {
        let mut hashes = hashes(&folder.join("model_to_cs-2.9.mdl"));
        hashes.sort();
        hashes
    };
    assert_eq!(sorted(&out), sorted(&apart));
    let model = text(&fixture("peft/llama_bf16/model"));
    let printed = run([&["convert-model", &model, "--fold-lora"], &to[..]].concat()).failed();
    assert!(printed.contains("no adapter next to it"), "{printed}");
}

#[test]
fn merges_cerebras_lora_when_converting_to_hugging_face() {
    let folder = Folder::new();
    let case = fixture("recipes/lora/list_groups");
    let config = folder.with("params.yaml", &fs::read(case.join("in/params.yaml")).unwrap());
    let checkpoint = fs::read(case.join("in/checkpoint.mdl")).unwrap();
    let source = text(&folder.with("checkpoint.mdl", &checkpoint));
    let to = ["--model", "gpt2", "--src-fmt", "cs-2.9", "--to", "hf", "--export-safetensors"];
    let printed = run([&["convert-model", &source], &to[..]].concat()).failed_after_losses();
    assert!(printed.contains("lora_A") && printed.contains("--fold-lora"), "{printed}");
    for args in [
        [&["convert-model", &source, "--fold-lora"], &to[..]].concat(),
        vec!["fold-lora", &source, "--config", &text(&config)],
    ] {
        let folded = run(args);
        assert_eq!(folded.code, Some(0), "{}", folded.err);
        assert!(folded.err.contains("`optimizer` is left out"), "{}", folded.err);
    }
    let folded = text(&folder.file("checkpoint_folded.mdl"));
    let its = text(&folder.file("params_folded.yaml"));
    run([&["convert-model", &folded, "--config", &its], &to[..]].concat()).ok();
    let written = |name: &str| folder.file(name).join("model-00001-of-00001.safetensors");
    assert_eq!(hashes(&written("checkpoint_to_hf")), hashes(&written("checkpoint_folded_to_hf")));
}
