//! `statelens summary`: reproducible output, fingerprints that can be computed independently, and
//! links with exactly the intended contents.

use crate::common::*;
use sha2::{Digest, Sha256};

const SMALL: &str = "cerebras/v2.10.0/gpt_small.mdl";

fn summary(args: &[&str], path: &str) -> String {
    let file = fixture(path);
    let mut all = vec!["summary", file.to_str().unwrap()];
    all.extend(args);
    run(all).ok()
}

fn sha256_of_sorted<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut lines: Vec<&str> = lines.collect();
    lines.sort_unstable();
    let mut hasher = Sha256::new();
    for line in lines {
        hasher.update(line);
        hasher.update("\n");
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn summaries_are_reproducible_and_contain_no_folder() {
    let folder = Folder::new();
    let bytes = std::fs::read(fixture(SMALL)).unwrap();
    let copy = folder.with("gpt_small.mdl", &bytes);
    for kind in ["md", "html", "json", "txt"] {
        let summarised = summary(&["--to", kind, "--stats"], SMALL);
        assert!(summarised.contains("gpt_small.mdl") && summarised.len() > 5_000, "{kind}");
        assert!(!summarised.contains("v2.10.0/"), "{kind}");
        let path = copy.to_str().unwrap();
        assert_eq!(run(["summary", path, "--to", kind, "--stats"]).ok(), summarised, "{kind}");
        let out = folder.file(&format!("out.{kind}"));
        run(["summary", path, "--stats", "-o", out.to_str().unwrap()]).ok();
        assert_eq!(std::fs::read_to_string(&out).unwrap(), summarised, "{kind}");
    }
    let out = folder.file("out.md");
    let again = run(["summary", copy.to_str().unwrap(), "-o", out.to_str().unwrap()]).failed();
    assert!(again.contains("--force"), "{again}");
    let other = folder.file("out.doc");
    let odd = run(["summary", copy.to_str().unwrap(), "-o", other.to_str().unwrap()]).failed();
    assert!(odd.contains("--to"), "{odd}");
}

/// Writes a safetensors file whose layers are sorted as text, as in most models.
fn lexicographic(folder: &Folder, layers: u64, odd: u64) -> std::path::PathBuf {
    let mut head = serde_json::Map::new();
    let mut keys: Vec<(String, u64)> = (0..layers)
        .flat_map(|layer| ["attn.q", "mlp.up"].map(|name| (layer, name)))
        .map(|(layer, name)| {
            let key = format!("model.layers.{layer}.{name}.weight");
            (key, if layer == odd && name == "mlp.up" { 3 } else { 2 })
        })
        .collect();
    keys.sort();
    let mut end = 0;
    for (key, len) in keys {
        let offsets = [end, end + len * 4];
        let about = serde_json::json!({"dtype": "F32", "shape": [len], "data_offsets": offsets});
        head.insert(key, about);
        end = offsets[1];
    }
    let head = serde_json::Value::from(head).to_string();
    let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
    bytes.extend(head.as_bytes());
    bytes.resize(bytes.len() + end as usize, 0);
    folder.with("model.safetensors", &bytes)
}

#[test]
fn repeated_layers_are_folded_in_any_order() {
    let folder = Folder::new();
    let file = lexicographic(&folder, 32, 99);
    let summarised = |kind: &str| run(["summary", file.to_str().unwrap(), "--to", kind]).ok();
    let text = summarised("txt");
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("model.layers")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("model.layers.0\u{2013}31.attn.q.weight"), "{text}");
    assert!(summarised("md").contains("`model.layers.0\u{2013}31.mlp.up.weight`"));
    let json: serde_json::Value = serde_json::from_str(&summarised("json")).unwrap();
    assert_eq!(json["keys"].as_array().unwrap().len(), 64);
    let folded = json["folded"].as_array().unwrap();
    assert_eq!(folded.len(), 2);
    assert_eq!(folded[1]["key"], "model.layers.0\u{2013}31.mlp.up.weight");
    let rest = (&folded[1]["times"], &folded[1]["shape"], &folded[1]["bytes"]);
    assert_eq!(rest, (&32.into(), &serde_json::json!([2]), &(32 * 8).into()));
    // A layer of another shape is listed separately.
    let file = lexicographic(&folder, 32, 3);
    let json = run(["summary", file.to_str().unwrap(), "--to", "json"]).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let keys: Vec<&str> = json["folded"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["key"].as_str().unwrap())
        .collect();
    assert_eq!(
        keys,
        [
            "model.layers.0\u{2013}2,4\u{2013}31.attn.q.weight",
            "model.layers.0\u{2013}2,4\u{2013}31.mlp.up.weight",
            "model.layers.3.attn.q.weight",
            "model.layers.3.mlp.up.weight",
        ]
    );
}

#[test]
fn json_matches_its_documentation() {
    let summarised = summary(&["--to", "json", "--stats"], SMALL);
    let json: serde_json::Value = serde_json::from_str(&summarised).unwrap();
    let info = run(["info", "--json", fixture(SMALL).to_str().unwrap()]).json();
    assert_eq!(json["statelens_summary"], 1);
    for (of_summary, of_info) in [
        (&json["totals"]["leaves"], "leaves"),
        (&json["totals"]["links"], "links"),
        (&json["totals"]["tensors"], "tensors"),
        (&json["totals"]["elements"], "elements"),
        (&json["totals"]["bytes"], "bytes"),
        (&json["findings"], "findings"),
    ] {
        assert_eq!(*of_summary, info[of_info], "{of_info}");
    }
    let keys = json["keys"].as_array().unwrap();
    let find = |key: &str| keys.iter().find(|entry| entry["key"] == key).unwrap();
    let weight = find("model.model.ln_f.weight");
    assert_eq!((&weight["dtype"], &weight["elements"]), (&"float32".into(), &32.into()));
    // As numpy computes from the values that torch reads.
    let of = &weight["statistics"];
    assert_eq!((&of["count"], &of["nan"], &of["zeros"]), (&32.into(), &0.into(), &0.into()));
    let documented = include_str!("../../../../docs/summary.md");
    for field in json.as_object().unwrap().keys().chain(of.as_object().unwrap().keys()) {
        assert!(documented.contains(&format!("`{field}`")), "{field} is not documented");
    }
}

#[test]
fn fingerprints_match_the_manifest_and_survive_conversion() {
    let folder = Folder::new();
    let converted = folder.file("converted.pt");
    let source = fixture(SMALL);
    run(["convert", source.to_str().unwrap(), converted.to_str().unwrap(), "--lossy"]);
    let prints = |path: &std::path::Path| {
        let path = path.to_str().unwrap();
        let json = run(["summary", path, "--to", "json", "--content"]).json();
        let manifest = run(["manifest", path]).ok();
        let content = sha256_of_sorted(manifest.lines());
        let structure =
            sha256_of_sorted(manifest.lines().map(|line| line.split_once('\t').unwrap().1));
        let prints = json["fingerprints"].clone();
        assert_eq!(prints["content"]["sha256"], content);
        assert_eq!(prints["structure"]["sha256"], structure);
        prints
    };
    assert_eq!(prints(&source), prints(&converted));
    let other = prints(&fixture("cerebras/v2.10.0/gpt_small_bf16.mdl"));
    assert_ne!(prints(&source)["structure"]["short"], other["structure"]["short"]);
}

#[test]
fn link_contains_values_only_on_request() {
    let link = |args: &[&str]| {
        let summarised = summary(&[&["--link", "https://example.org/x/"], args].concat(), SMALL);
        summarised.trim_end().strip_prefix("https://example.org/x/").unwrap().to_owned()
    };
    let plain = link(&[]);
    assert!(plain.starts_with("#s=1.") && plain.len() < 2_000, "{}", plain.len());
    let open = |link: &str| statelens::parts::describe::share::open_link(link).unwrap();
    let opened = open(&plain);
    assert_eq!((opened.name.as_str(), opened.entries.len()), ("gpt_small.mdl", 167));
    assert!(opened.entries.iter().all(|entry| entry.value.is_empty()));
    assert!(open(&link(&["--values"])).entries.iter().any(|entry| !entry.value.is_empty()));
    let evil = "attacks/builtins_eval.pt";
    let summarised = summary(&["--link", "x"], evil);
    assert!(!open(summarised.trim().trim_start_matches('x')).findings.is_empty());
    let summarised = summary(&["--link", "x", "--no-findings"], evil);
    assert!(open(summarised.trim().trim_start_matches('x')).findings.is_empty());
    let coded = open(&link(&["--keys", "coded"]));
    assert!(coded.entries.iter().all(|entry| !entry.key.contains("weight")));
    let file = fixture(SMALL);
    let twice = run(["summary", file.to_str().unwrap(), "--link", "https://x/#a"]).failed();
    assert!(twice.contains('#'), "{twice}");
}

#[test]
fn many_keys_fit_a_400_kb_page_but_not_a_link() {
    // Names that do not fold: each layer has its own.
    let mut header = String::from("{");
    for at in 0..20_000u64 {
        let odd = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let comma = if at > 0 { "," } else { "" };
        header.push_str(&format!(
            "{comma}\"model.layers.{}.block_{odd:x}.weight\":{{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[{at},{}]}}",
            at % 80,
            at + 1
        ));
    }
    header.push('}');
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([1; 20_000]);
    let folder = Folder::new();
    let file = folder.with("many.safetensors", &bytes);
    let page = run(["summary", file.to_str().unwrap(), "--to", "html"]).ok();
    assert!(page.len() < 400_000, "{} bytes", page.len());
    let link = run(["summary", file.to_str().unwrap(), "--link", "x"]).failed();
    assert!(link.contains("the limit is 16000") && link.contains(".html"), "{link}");
}

#[test]
fn summary_counts_states_as_info_does() {
    for path in [SMALL, "tf/saver_v2_sharded/sh.index", "tf/tf2_slots/slots.index"] {
        let summarised = summary(&["--to", "json"], path);
        let json: serde_json::Value = serde_json::from_str(&summarised).unwrap();
        let info = run(["info", "--json", fixture(path).to_str().unwrap()]).json();
        // The summary is a format of its own, which saved pages use.
        let counts = |state: &serde_json::Value, params: &str| {
            ["state", "leaves", "tensors", params, "bytes"].map(|name| state[name].clone())
        };
        let of = |value: &serde_json::Value, params: &str| -> Vec<_> {
            let states = value["states"].as_array().unwrap();
            states.iter().map(|state| counts(state, params)).collect()
        };
        assert_eq!(of(&json, "elements"), of(&info, "elements"), "{path}");
        let text = summary(&["--to", "md"], path);
        for state in info["states"].as_array().unwrap() {
            let name = state["state"].as_str().unwrap();
            assert!(text.contains(&format!("`{name}`")), "{path}: {name}\n{text}");
        }
    }
}
