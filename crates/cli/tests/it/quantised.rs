//! Quantised weights as numbers: `manifest --dequantize`, `convert --dequantize`, `stats`, `export`,
//! `diff`.

use std::fs;
use std::path::Path;

use crate::common::{Folder, fixture, run, text};
use serde_json::Value;

/// Copies a fixture, so that its files can be changed.
fn copied(folder: &Folder, name: &str) -> String {
    for entry in fs::read_dir(fixture(&format!("quantized/{name}"))).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.file(&path.file_name().unwrap().to_string_lossy())).unwrap();
    }
    text(&folder.file("model.safetensors"))
}

fn expected(path: &str) -> Vec<Value> {
    let text = fs::read(fixture(&format!("{path}.expected.json"))).unwrap();
    let all: Value = serde_json::from_slice(&text).unwrap();
    all["entries"].as_array().unwrap().clone()
}

/// Every leaf of every fixture has the hash that the library's values have.
#[test]
fn manifests_hash_the_numbers() {
    let mut compared = 0;
    for folder in ["quantized", "gguf_k"] {
        for entry in fs::read_dir(fixture(folder)).unwrap() {
            let entry = entry.unwrap().file_name();
            let name = format!("{folder}/{}", entry.to_string_lossy());
            if name.ends_with(".json") {
                continue;
            }
            let ran = run(["manifest", "--json", "--dequantize", &text(&fixture(&name))]);
            let manifest: Value = serde_json::from_str(&ran.out).unwrap();
            let found = manifest["entries"].as_array().unwrap();
            for entry in expected(&name) {
                let of = |found: &&Value| found["key"] == entry["key"];
                let found = found.iter().find(of).unwrap_or_else(|| panic!("{name}: {entry}"));
                assert_eq!(found["sha256"], entry["sha256"], "{name}: {entry}");
                assert_eq!(found["shape"], entry["shape"], "{name}: {entry}");
                compared += 1;
            }
            if folder == "quantized" {
                assert_eq!(found.len(), expected(&name).len(), "{name}");
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

/// The scales of inputs and outputs, as quanto writes them, are left out of the output and named.
#[test]
fn scales_of_inputs_are_left_out() {
    let folder = Folder::new();
    let file = folder.file("model.safetensors");
    let parts = ["l.weight._data", "l.weight._scale", "l.input_scale", "l.output_scale"];
    let header = r#"{"l.weight._data":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},"l.weight._scale":{"dtype":"F32","shape":[],"data_offsets":[4,8]},"l.input_scale":{"dtype":"F32","shape":[],"data_offsets":[8,12]},"l.output_scale":{"dtype":"F32","shape":[],"data_offsets":[12,16]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([1u8, 2, 3, 4]);
    bytes.extend([2f32, 1.0, 1.0].map(f32::to_le_bytes).concat());
    fs::write(&file, bytes).unwrap();
    let (source, dense) = (text(&file), text(&folder.file("dense.safetensors")));
    let ran = run(["convert", &source, &dense, "--dequantize", "float32", "--json"]);
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["dequantised"][0]["parts"], serde_json::json!(parts), "{json}");
    let listed = run(["ls", &dense]).ok();
    assert!(listed.contains("l.weight") && !listed.contains("scale"), "{listed}");
    // They are not parameters of the model either.
    let info = run(["info", &source]).ok();
    assert!(info.contains("parameters  4,"), "{info}");
}

#[test]
fn converts_to_dense_weights_and_config() {
    let folder = Folder::new();
    let source = copied(&folder, "gptq_4bit");
    let dense = text(&folder.file("dense/model.safetensors"));
    let ran = run(["convert", &source, &dense, "--dequantize", "bfloat16"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("dequantised 1 × GPTQ, 4 bits"), "{}", ran.err);
    let listed = run(["ls", &dense]).ok();
    assert!(listed.contains("l.weight") && listed.contains("bfloat16"), "{listed}");
    assert!(!listed.contains("qweight") && !listed.contains("scales"), "{listed}");
    let config: Value =
        serde_json::from_str(&fs::read_to_string(folder.file("dense/config.json")).unwrap())
            .unwrap();
    assert!(config.get("quantization_config").is_none(), "{config}");
    // The config is right for a second output, too, but not one with the settings.
    let second = text(&folder.file("dense/second.safetensors"));
    let ran = run(["convert", &source, &second, "--dequantize", "float32"]);
    assert!(!ran.err.contains("config.json"), "{}", ran.err);
    let beside = text(&folder.file("beside.safetensors"));
    let ran = run(["convert", &source, &beside, "--dequantize", "float32"]);
    assert!(ran.err.contains("still has the settings"), "{}", ran.err);
    // The numbers are those of the source.
    let ran =
        run(["diff", &source, &dense, "--op", "allclose", "--rtol", "0.004", "--ignore-dtype"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    // Without the option, all parts are kept.
    let kept = text(&folder.file("kept.safetensors"));
    run(["convert", &source, &kept]).ok();
    assert_eq!(run(["diff", &source, &kept]).code, Some(0));
    assert!(run(["ls", &kept]).ok().contains("l.qweight"));
    let plain = run(["convert", &dense, &text(&folder.file("x.pt")), "--dequantize"]).failed();
    assert!(plain.contains("no weight is quantised"), "{plain}");
}

/// Two quantisations are compared by the numbers of their weights, not scale by scale. Copies whose
/// config is missing are compared as they are stored.
#[test]
fn two_quantisations_are_compared_as_numbers() {
    let path = |name: &str| text(&fixture(&format!("quantized/{name}/model.safetensors")));
    let ran = run(["diff", "--json", &path("gptq_4bit"), &path("awq_gemm")]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.out.contains("l.weight"), "{}", ran.out);
    for part in ["l.scales", "l.qweight", "l.qzeros", "l.g_idx"] {
        assert!(!ran.out.contains(part), "{part}: {}", ran.out);
    }
    let folder = Folder::new();
    let alone = text(&folder.file("model.safetensors"));
    fs::copy(path("gptq_2bit_v2"), &alone).unwrap();
    let ran = run(["diff", &path("gptq_2bit_v2"), &alone]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
}

/// Removes a tensor from the header of a safetensors file; its bytes stay.
fn remove(path: &Path, key: &str) {
    let bytes = fs::read(path).unwrap();
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    assert!(header.as_object_mut().unwrap().remove(key).is_some());
    let header = header.to_string();
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(&bytes[8 + len..]);
    fs::write(path, out).unwrap();
}

#[test]
fn names_what_is_missing() {
    let folder = Folder::new();
    let source = copied(&folder, "awq_gemm");
    remove(Path::new(&source), "l.scales");
    let ran = run(["convert", &source, &text(&folder.file("x.pt")), "--dequantize"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.err.contains("`l.weight`") && ran.err.contains("`l.scales` is missing"),
        "{}",
        ran.err
    );
    assert!(!folder.file("x.pt").exists());
    let ran = run(["manifest", &source, "--dequantize"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.contains("`l.scales` is missing") && ran.out.contains("l.qweight"),
        "{}",
        ran.err
    );
}

/// Statistics are those of the numbers and of the scales; codes are read if a key names them.
#[test]
fn statistics_are_of_numbers() {
    let folder = Folder::new();
    let source = copied(&folder, "awq_gemm");
    let keys = |patterns: &[&str]| -> Vec<(String, String)> {
        let args = ["stats", "--json", &source];
        let json = run(args.iter().chain(patterns)).json();
        let tensors = json["tensors"].as_array().unwrap().iter();
        let name = |field: &Value| field.as_str().unwrap().to_owned();
        tensors.map(|tensor| (name(&tensor["key"]), name(&tensor["dtype"]))).collect()
    };
    let all = keys(&[]);
    assert!(all.contains(&("l.weight".into(), "float32".into())), "{all:?}");
    assert!(all.iter().any(|(key, _)| key == "l.scales"), "{all:?}");
    assert_eq!(keys(&["l.qweight"]), [("l.qweight".into(), "int32".into())]);
    let csv = text(&folder.file("row.csv"));
    let ran = run(["export", &source, "l.weight[0, :4]", &csv]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let first = fs::read_to_string(&csv).unwrap();
    let first: Vec<f32> =
        first.trim().split([',', '\n']).map(|text| text.parse().unwrap()).collect();
    assert_eq!(first, [0.343_505_86, 0.171_752_93, 0.286_254_88, -0.229_003_9]);
    // A scale that is NaN is found in the weight.
    let mut bytes = fs::read(&source).unwrap();
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    let at = 8 + len + header["l.scales"]["data_offsets"][0].as_u64().unwrap() as usize;
    bytes[at..at + 2].copy_from_slice(&0x7e00u16.to_le_bytes());
    fs::write(&source, bytes).unwrap();
    let ran = run(["stats", &source, "l.weight", "--fail-on", "nan"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
}

/// A model and its conversion by llama.cpp are compared by name, with rows in the same order.
#[test]
fn compares_a_model_with_its_gguf() {
    let sides =
        ["original.safetensors", "llama.gguf"].map(|name| text(&fixture("gguf_names").join(name)));
    let [original, gguf] = &sides;
    let diff = |atol: &str, more: &[&str]| {
        let mut args = vec!["diff", original, gguf, "--op", "allclose", "--ignore-dtype"];
        args.extend(["--rtol", "0", "--atol", atol]);
        args.extend(more);
        run(args)
    };
    let ran = diff("0.4", &[]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
    // Q8_0 is exact to two hundredths, Q4_0 is not.
    let ran = diff("0.02", &["--json"]);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let differing: Vec<&str> = report["differences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["key"].as_str().unwrap())
        .collect();
    assert_eq!(differing, ["model.layers.0.mlp.down_proj.weight"]);
    assert_eq!(report["keys"], 6);
}

/// Stored bytes are shown as another dtype; the file is unchanged.
#[test]
fn shows_bytes_as_other_dtypes() {
    let folder = Folder::new();
    let source = copied(&folder, "bnb_4bit");
    let values = |args: &[&str]| {
        let ran = run(["show", "--json", &source].iter().chain(args)).json();
        let values = ran["entries"][0]["values"].as_array().cloned().unwrap_or_default();
        (ran["entries"][0]["shape"].clone(), values)
    };
    let (shape, bytes) = values(&["m.nf4.weight", "--as", "int8", "--values", "2"]);
    assert_eq!((shape, bytes.len()), (serde_json::json!([256, 1]), 2));
    let args = ["m.nf4.weight", "--as", "uint4-high-first", "--shape", "8,64", "--values", "4"];
    let (shape, high) = values(&args);
    assert_eq!((shape, high.len()), (serde_json::json!([8, 64]), 4));
    let (_, low) = values(&["m.nf4.weight", "--as", "uint4", "--values", "4"]);
    assert_eq!((&high[0], &high[1]), (&low[1], &low[0]));
    let refused = run(["show", &source, "m.nf4.weight", "--as", "float32"]).failed();
    assert!(refused.contains("a dtype of the same width"), "{refused}");
}

/// Overwrites the first bytes of a tensor of a safetensors file.
fn overwrite(path: &Path, key: &str, new: &[u8]) {
    let mut bytes = fs::read(path).unwrap();
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    let at = 8 + len + header[key]["data_offsets"][0].as_u64().unwrap() as usize;
    bytes[at..at + new.len()].copy_from_slice(new);
    fs::write(path, bytes).unwrap();
}

/// Scales that are zero or NaN are found by `verify --finite` and by `stats --fail-on`.
#[test]
fn finds_faults_of_scales() {
    let folder = Folder::new();
    let source = copied(&folder, "gptq_4bit");
    let sound = run(["stats", &source, "--fail-on", "nan,inf,zero,scales"]);
    assert_eq!(sound.code, Some(0), "{}{}", sound.out, sound.err);
    assert_eq!(run(["verify", "--finite", &source]).code, Some(0));
    // A scale of zero: all numbers are finite.
    overwrite(Path::new(&source), "l.scales", &[0, 0]);
    assert_eq!(run(["stats", &source, "--fail-on", "nan,inf"]).code, Some(0));
    for what in ["zero", "scales"] {
        let ran = run(["stats", &source, "--fail-on", what]);
        assert_eq!(ran.code, Some(1), "{what}");
        assert!(ran.out.contains("1 is zero, though their codes are not"), "{}", ran.out);
    }
    let ran = run(["verify", "--finite", &source]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("l.weight"), "{}", ran.out);
    let parsed = |out: &str| -> Value { serde_json::from_str(out).unwrap() };
    let json = parsed(&run(["verify", "--finite", "--json", &source]).out);
    assert_eq!((&json["sound"], &json["scales"][0]["zero"]), (&false.into(), &1.into()), "{json}");
    assert_eq!(run(["verify", &source]).code, Some(0));
    overwrite(Path::new(&source), "l.scales", &[0, 0x7e]);
    let json = parsed(&run(["stats", "--json", &source, "--fail-on", "nan"]).out);
    assert_eq!(json["scales"][0]["nan"], 1, "{json}");

    // Two blocks of Q8_0. The scale of the second is zero; its codes are, or are not.
    let gguf = folder.file("zero.gguf");
    let blocks = |second: u8| {
        let name: &[u8] = b"w";
        let mut bytes = [&b"GGUF"[..], &3u32.to_le_bytes(), &1u64.to_le_bytes(), &[0; 8]].concat();
        bytes.extend([&(name.len() as u64).to_le_bytes(), name, &1u32.to_le_bytes()].concat());
        bytes.extend([&64u64.to_le_bytes()[..], &8u32.to_le_bytes(), &[0; 8]].concat());
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.extend([&[0x00, 0x3c][..], &[1; 32], &[0, 0], &[second; 32]].concat());
        fs::write(&gguf, bytes).unwrap();
    };
    blocks(0);
    assert_eq!(run(["verify", "--finite", &text(&gguf)]).code, Some(0));
    blocks(1);
    let gguf = text(&gguf);
    let ran = run(["verify", "--finite", &gguf]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.out.contains("1 is zero, though their codes are not"), "{}", ran.out);
    assert_eq!(run(["stats", &gguf, "--fail-on", "scales"]).code, Some(1));
    assert_eq!(run(["stats", &gguf, "--fail-on", "nan,inf,constant"]).code, Some(0));
}

/// The JSON of a conversion lists the dequantised weights.
#[test]
fn conversions_list_what_was_dequantised() {
    let folder = Folder::new();
    let source = copied(&folder, "gptq_4bit");
    let dense = text(&folder.file("dense/model.safetensors"));
    for more in [&["--dry-run"][..], &[]] {
        let words = ["convert", &source, &dense, "--dequantize", "float32", "--json"];
        let json: Value = serde_json::from_str(&run(words.iter().chain(more)).out).unwrap();
        let [weight] = &json["dequantised"].as_array().unwrap()[..] else { panic!("{json}") };
        assert_eq!(weight["key"], "l.weight");
        assert_eq!(weight["scheme"], "GPTQ, 4 bits");
        assert_eq!(weight["parts"][0], "l.qweight", "{weight}");
    }
    let kept = text(&folder.file("kept.safetensors"));
    let json = run(["convert", &source, &kept, "--json"]).json();
    assert!(json.get("dequantised").is_none(), "{json}");
}
