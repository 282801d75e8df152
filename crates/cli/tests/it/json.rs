//! The JSON of every command: one object with `"statelens": 1`, typed values, and one name per
//! thing, as documented in `docs/json.md`.

use std::fs;
use std::path::Path;

use crate::common::{Folder, fixture, run, text};
use serde_json::Value;

/// Collects the names of all fields.
fn names(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                into.push(name.clone());
                names(value, into);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| names(item, into)),
        _ => {}
    }
}

#[test]
fn every_json_field_is_documented() {
    let folder = Folder::new();
    let file = folder.file("checkpoint_1.mdl");
    fs::copy(fixture("cerebras/v2.10.0/gpt_small.mdl"), &file).unwrap();
    let old = text(&fixture("cerebras/compat/synthetic_1.7.mdl"));
    let (file, dir) = (text(&file), text(folder.path()));
    let out = |name: &str| text(&folder.file(name));
    let config = text(&fixture("recipes/llama/config_only.hf-to-cs2.9/in/config.json"));
    let documented = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let documented = fs::read_to_string(documented).unwrap();
    for args in [
        &["info", &file][..],
        &["info", &file, &old],
        &["ls", &file],
        &["show", &file, "model.model.wte.weight", "model.model.wpe.weight[0, :3]"],
        &["info", "--states", &file],
        &["diff", &file, &file],
        &["diff", &file, &old],
        &["check", &file, "--against", &old],
        &["check", &text(&fixture("folders/total_size_wrong"))],
        &["verify", &file],
        &["verify", &file, &old],
        &["runs", &dir],
        &["prune", &dir, "--keep", "1"],
        &["scan", &file],
        &["formats"],
        &["list-converters", "gpt2"],
        &["convert-config", &config, "--tgt-fmt", "cs-2.9", "-o", &dir],
        &["convert", &file, &out("a.pt")],
        &["convert", &file, &out("b.pt"), "--dry-run", "--strip-prefix", ""],
        &["merge", &file, &file, &out("c.pt"), "--lossy"],
        &["upgrade", &old, "-o", &out("d.mdl"), "--lossy"],
        &["fix-checkpoint-spec", &old, "--fixed_checkpoint_path", &out("e.mdl")],
    ] {
        let ran = run([args, &["--json"]].concat());
        let value: Value = serde_json::from_str(&ran.out)
            .unwrap_or_else(|_| panic!("{args:?}: {} {}", ran.out, ran.err));
        assert_eq!(value["statelens"], 1, "{args:?}: {value}");
        let mut found = Vec::new();
        names(&value, &mut found);
        for name in found {
            assert!(!["nbytes", "params", "model_params"].contains(&&*name), "{args:?}: {name}");
            // Names of facts and of attributes come from the file.
            let is_data = matches!(args[0], "info" | "verify")
                || args[0] == "show"
                    && value
                        .pointer("/entries/0/attributes")
                        .is_some_and(|attributes| attributes.get(&*name).is_some())
                || name.starts_with('_');
            assert!(is_data || documented.contains(&format!("`{name}`")), "{args:?}: {name}");
        }
    }
}

#[test]
fn scan_prints_one_json_line_per_file() {
    let lines = run([
        "scan",
        "--json",
        &text(&fixture("torch/zip_tied.pt")),
        &text(&fixture("attacks/os_system_reduce.pkl")),
    ]);
    for line in lines.out.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["statelens"], 1);
        assert!(value["path"].is_string() && value["findings"].is_array(), "{line}");
    }
    assert_eq!(lines.out.lines().count(), 2);
}

#[test]
fn json_values_have_native_types() {
    let listed = run(["ls", "--json", &text(&fixture("torch/zip_nested_python.pt"))]).json();
    let entries = listed["entries"].as_array().unwrap();
    let mut kinds = std::collections::BTreeSet::new();
    for entry in entries {
        let kind = entry["kind"].as_str().unwrap();
        kinds.insert(kind.to_owned());
        let value = &entry["value"];
        let fits = match kind {
            "int" => {
                value.is_i64()
                    || value.is_u64()
                    || value.as_str().is_some_and(|text| text.len() > 18)
            }
            "float" => value.is_f64() || matches!(value.as_str(), Some("inf" | "-inf" | "nan")),
            "bool" => value.is_boolean(),
            "str" => value.is_string(),
            "none" => value.is_null() && entry.as_object().unwrap().contains_key("value"),
            "complex" => value.as_array().is_some_and(|parts| parts.len() == 2),
            "dict" => value.is_object(),
            "list" | "tuple" => value.is_array(),
            "tensor" | "ndarray" => {
                value.is_null() && entry["bytes"].is_u64() && entry["elements"].is_u64()
            }
            _ => true,
        };
        assert!(fits, "{entry}");
    }
    for kind in ["int", "float", "bool", "str", "none"] {
        assert!(kinds.contains(kind), "{kinds:?}");
    }
    // Values are not given as Python text.
    let all = listed.to_string();
    for text in ["\"value\":\"True\"", "\"value\":\"None\"", "\"value\":\"False\"", "\"value\":\"'"]
    {
        assert!(!all.contains(text), "{text}");
    }
}

#[test]
fn check_accepts_the_output_of_ls() {
    let folder = Folder::new();
    let file = text(&fixture("cerebras/v2.10.0/gpt_small.mdl"));
    let listed = run(["ls", "--json", &file]).ok();
    let reference = text(&folder.with("listed.json", listed.as_bytes()));
    run(["check", &file, "--against", &reference]).ok();
}
