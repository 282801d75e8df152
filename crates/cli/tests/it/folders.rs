//! `statelens check` on folders with models, whole and with one defect each.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use statelens::parts::compare::folder::{RULES, rules_markdown};

use crate::common::{Folder, fixture, run, text};

pub(crate) fn folder(name: &str) -> PathBuf {
    fixture(&format!("folders/{name}"))
}

/// Copies a folder of fixtures, to change it.
pub(crate) fn copy(name: &str) -> Folder {
    let copy = Folder::new();
    for entry in fs::read_dir(folder(name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

pub(crate) fn check(path: &Path, more: &[&str]) -> (Option<i32>, Value) {
    let ran = run([&["check", &text(path), "--json"], more].concat());
    let json = serde_json::from_str(&ran.out);
    (ran.code, json.unwrap_or_else(|_| panic!("{}: {} {}", path.display(), ran.out, ran.err)))
}

/// Returns the rules of the findings with at least this level.
pub(crate) fn rules(report: &Value, levels: &[&str]) -> Vec<String> {
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

/// Changes a field of a JSON file, which may be in a section of it.
pub(crate) fn set(file: &Path, path: &[&str], value: Value) {
    let mut json: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let mut field = &mut json;
    for name in path {
        field = &mut field[*name];
    }
    *field = value;
    fs::write(file, json.to_string()).unwrap();
}

/// Fails unless a rule reports a finding that has all of these words.
pub(crate) fn assert_found(folder: &Folder, rule: &str, words: &[&str]) {
    let (_, report) = check(folder.path(), &[]);
    let found = report["findings"].as_array().unwrap().iter();
    let found: Vec<String> =
        found.filter(|one| one["rule"] == rule).map(ToString::to_string).collect();
    let has_all = |text: &String| words.iter().all(|word| text.contains(word));
    assert!(found.iter().any(has_all), "{rule} {words:?}: {report}");
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
    // The reason is reported, with both files.
    let (code, report) = check(&fixture("sharded/broken_verl_mixed_runs"), &[]);
    assert_eq!(code, Some(1), "{report}");
    for part in ["rank_0.pt", "rank_1.pt", "[11, 6]", "[11, 8]", "The other tensors are whole"] {
        assert!(report["findings"].to_string().contains(part), "{part}: {report}");
    }
    // The config next to them is compared with the joined tensors.
    let copy = Folder::new();
    copy_below(&fixture("sharded/hf_w2_shards"), copy.path());
    fs::write(copy.path().join("config.json"), r#"{"vocab_size": 123456}"#).unwrap();
    let (_, report) = check(copy.path(), &[]);
    assert!(!rules(&report, &["error"]).contains(&"index-missing".to_owned()), "{report}");
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

/// The page about the rules is generated from them.
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
