//! `convert-model` and `fold-lora`: names, recognition, reports.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Folder, fixture, run, text};

/// Returns the input folder of a family's first case whose source is Hugging Face.
fn from_hf(family: &str) -> PathBuf {
    let folder = fixture("recipes").join(family);
    let mut cases: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    let case = cases.into_iter().find(|case| {
        let facts = fs::read_to_string(case.join("case.json")).unwrap();
        case.to_string_lossy().contains(".hf-to-cs")
            && facts.contains("\"status\": \"ok\"")
            && case.join("in/model.safetensors.index.json").is_file()
    });
    case.unwrap().join("in")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn recognised_models_survive_a_round_trip() {
    for family in ["llama", "gpt2", "bert", "t5", "mixtral", "falcon", "gpt-neox", "roberta"] {
        let folder = Folder::new();
        let (input, out) = (from_hf(family), text(&folder.file("out")));
        let printed = run(["convert-model", &text(&input), "--to", "cs-2.9", "-o", &out]).ok();
        assert!(printed.contains(&format!("{family} from hf to cs-2.9")), "{printed}");
        let out = folder.file("out");
        assert_eq!(names(&out), ["config_to_cs-2.9.yaml", "model_to_cs-2.9.mdl"]);
        let there = out.join("model_to_cs-2.9.mdl");
        let printed =
            run(["convert-model", &text(&there), "--to", "hf", "--export-safetensors"]).ok();
        assert!(printed.contains(&format!("{family} from cs-2.")), "{printed}");
        let back = out.join("model_to_cs-2.9_to_hf");
        assert_eq!(
            names(&back),
            ["config.json", "model-00001-of-00001.safetensors", "model.safetensors.index.json"]
        );
        // Additions of the way back (buffers) do not count as differences.
        let index = text(&input.join("model.safetensors.index.json"));
        let index = fs::read_to_string(index).unwrap();
        let index: serde_json::Value = serde_json::from_str(&index).unwrap();
        let old = run(["manifest", "--json", &text(&input)]).json();
        let new = run(["manifest", "--json", &text(&back)]).json();
        let entries = |json: &serde_json::Value| json["entries"].as_array().unwrap().clone();
        let hash = |all: &[serde_json::Value], key: &str| {
            all.iter().find(|one| one["key"] == *key).map(|one| one["sha256"].clone())
        };
        let (old, new) = (entries(&old), entries(&new));
        let mut compared = 0;
        for key in index["weight_map"].as_object().unwrap().keys() {
            // RoBERTa's head has two biases, of which the decoder's is used.
            if let Some(found) = hash(&new, key).filter(|_| key != "lm_head.bias") {
                assert_eq!(hash(&old, key), Some(found), "{family}: {key}");
                compared += 1;
            }
        }
        assert!(compared * 10 >= old.len() * 7, "{family}: {compared} of {}", old.len());
    }
}

#[test]
fn refuses_keys_without_a_rule() {
    let folder = Folder::new();
    let case = fixture("recipes").join("gpt2/extra_key.hf-to-cs2.9/in");
    let out = folder.file("out");
    let args = ["convert-model", &text(&case), "--to", "cs-2.9", "-o", &text(&out)];
    let error = run(args).failed_after_losses();
    assert!(error.contains("no rule covers") && error.contains("--drop-unmatched-keys"), "{error}");
    assert!(error.contains("`transformer.unknown.weight` (the nearest rule is about "), "{error}");
    assert!(error.contains("no rule covers 1 key"), "{error}");
    assert!(!out.exists());
    let dropped = args.into_iter().chain(["--drop-unmatched-keys"]);
    let notes = "left out: `transformer.unknown.weight` (the nearest rule is about ";
    let printed = run(dropped.clone().chain(["--dry-run"])).ok();
    assert!(printed.contains(notes), "{printed}");
    let json = run(dropped.clone().chain(["--dry-run", "--json"])).json();
    assert_eq!(json["unmatched"][0], "transformer.unknown.weight");
    assert!(json["nearest"][0].as_str().unwrap().starts_with("transformer."), "{json}");
    let done = run(dropped);
    assert!(done.code == Some(0) && done.err.contains(notes), "{}", done.err);
    assert_eq!(names(&out), ["config_to_cs-2.9.yaml", "model_to_cs-2.9.mdl"]);
}

#[test]
fn convert_suggests_convert_model_for_renaming() {
    let folder = Folder::new();
    let input = text(&from_hf("llama"));
    let plain = text(&folder.file("plain.mdl"));
    let notes = |words: &[&str]| {
        let ran = run([&["convert"], words].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        ran.err
    };
    let printed = notes(&[&input, &plain]);
    assert!(printed.contains("keys stay Hugging Face's"), "{printed}");
    assert!(
        printed.contains(&format!("`statelens convert-model {input} --to cs-current`")),
        "{printed}"
    );
    assert_eq!(notes(&[&input, &text(&folder.file("renamed.mdl")), "--rename", "model=>m"]), "");
    assert_eq!(notes(&[&input, &text(&folder.file("same.pt"))]), "");
    let out = folder.file("out");
    run(["convert-model", &input, "--to", "cs-2.9", "-o", &text(&out)]).ok();
    let printed =
        notes(&[&text(&out.join("model_to_cs-2.9.mdl")), &text(&folder.file("a.safetensors"))]);
    assert!(printed.contains("keys stay Cerebras's") && printed.contains("--to hf"), "{printed}");
    let other = folder.with(
        "own.safetensors",
        &crate::common::safetensors(&[
            ("one.kernel", "F32", &[1], &[0; 4]),
            ("two.kernel", "F32", &[1], &[0; 4]),
            ("three.kernel", "F32", &[1], &[0; 4]),
            ("four.kernel", "F32", &[1], &[0; 4]),
        ]),
    );
    assert_eq!(notes(&[&text(&other), &text(&folder.file("own.mdl"))]), "");
}

#[test]
fn dry_run_lists_old_and_new_keys() {
    let folder = Folder::new();
    let (input, out) = (from_hf("gpt2"), text(&folder.file("out")));
    let args = ["convert-model", &text(&input), "--to", "cs-1.9", "-o", &out, "--dry-run"];
    let printed = run(args).ok();
    let line = "transformer.h.0.attn.c_attn.weight -> \
                transformer_decoder.layers.0.self_attn.proj_q_dense_layer.weight + ";
    assert!(printed.contains(line) && printed.contains("transpose split("), "{printed}");
    assert!(!folder.file("out").exists());
    let json = run(args.into_iter().chain(["--json"])).json();
    assert_eq!(json["model"], "gpt2");
    assert!(json["moves"].as_array().unwrap().len() > 10);
}

#[test]
fn user_recipe_is_applied_or_its_error_reported() {
    let folder = Folder::new();
    let recipe = "family mine\nbetween hf and cs-2.9\n\
                  {any}.c_attn.{wb} <-> {any}.joined.{wb} : transpose\n{any} <-> {any}\n";
    let path = text(&folder.with("mine.recipe", recipe.as_bytes()));
    let (input, out) = (text(&from_hf("gpt2")), text(&folder.file("out")));
    let args = ["convert-model", &input, "--to", "cs-2.9", "--recipe", &path, "-o", &out];
    run(args).ok();
    let written = text(&folder.file("out").join("model_to_cs-2.9.mdl"));
    let listed = run(["ls", &written]).ok();
    assert!(listed.contains("model.transformer.h.0.attn.joined.weight"), "{listed}");
    folder.with("mine.recipe", b"family mine\nbetween hf and cs-2.9\na <-> b : turn\n");
    let error = run(args).failed();
    assert!(error.contains("mine.recipe, line 3") && error.contains("`turn`"), "{error}");
}

#[test]
fn recognises_and_unwraps_wrapped_models() {
    let folder = Folder::new();
    let keys = ["wte.weight", "wpe.weight", "ln_f.weight", "h.0.ln_1._fsdp_wrapped_module.bias"];
    let named: Vec<String> =
        keys.iter().map(|key| format!("module._orig_mod.transformer.{key}")).collect();
    let tensors: Vec<(&str, &str, &[u64], &[u8])> =
        named.iter().map(|key| (&**key, "F32", &[1][..], &[0; 4][..])).collect();
    let path = text(&folder.with("model.safetensors", &crate::common::safetensors(&tensors)));
    let config = br#"{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 1,
        "n_embd": 1, "n_head": 1, "n_layer": 1, "n_positions": 1, "n_inner": 4,
        "activation_function": "gelu_new", "resid_pdrop": 0.1, "embd_pdrop": 0.1,
        "attn_pdrop": 0.1, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02}"#;
    folder.with("config.json", config);
    let args = ["convert-model", &path, "--to", "cs-2.9"];
    assert!(run(args).failed().contains("--unwrap"));
    let named = run(args.into_iter().chain(["--model", "gpt2"])).failed_after_losses();
    assert!(named.contains("no rule covers 4 keys") && named.contains("--unwrap"), "{named}");
    run(args.into_iter().chain(["--unwrap"])).ok();
    let listed = run(["ls", &text(&folder.file("model_to_cs-2.9.mdl"))]).ok();
    assert!(listed.contains("model.transformer_decoder.layers.0.norm1.bias"), "{listed}");
}

#[test]
fn converts_dataloader_state_files_of_1_9() {
    let folder = Folder::new();
    let (input, out) = (from_hf("gpt2"), folder.file("out"));
    run(["convert-model", &text(&input), "--to", "cs-1.9", "-o", &text(&out)]).ok();
    let iter = folder.file("iter");
    fs::create_dir(&iter).unwrap();
    fs::write(iter.join("data_iter_checkpoint_state_file_global"), "100\n").unwrap();
    for (worker, samples) in [(0, 400), (1, 410)] {
        let name = format!("data_iter_state_file_worker_{worker}_step_100.txt");
        fs::write(iter.join(name), format!("{samples}\n")).unwrap();
    }
    let config = out.join("config_to_cs-1.9.yaml");
    let plain = fs::read_to_string(&config).unwrap();
    let mdl = text(&out.join("model_to_cs-1.9.mdl"));
    let config = text(&config);
    let convert = |processor: &str| {
        let path = text(&iter);
        let more = format!(
            "cerebras:\n    save_iter_state_path: {path}\ntrain_input:\n    data_processor: {processor}\n"
        );
        fs::write(&config, format!("{plain}{more}")).unwrap();
        run([
            "convert-model",
            &mdl,
            "--model",
            "gpt2",
            "--src-fmt",
            "cs-1.9",
            "--to",
            "cs-2.0",
            "--config",
            &config,
            "-o",
            &text(&out),
            "--force",
        ])
    };
    let states = || run(["ls", &text(&out.join("model_to_cs-1.9_to_cs-2.0.mdl"))]).ok();
    convert("GptHDF5MapDataProcessor").ok();
    let listed = states();
    assert!(listed.contains("dataloader.samples_streamed") && listed.contains("810"), "{listed}");
    assert!(listed.contains("dataloader.seed"), "{listed}");
    convert("GptHDF5DataProcessor").ok();
    let listed = states();
    assert!(listed.contains("dataloader.all_worker_states.1.shard_index"), "{listed}");
    assert!(convert("BertHDF5DataProcessor").failed().contains("no dataloader that has one"));
}
