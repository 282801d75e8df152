//! `convert-model --cast`: its output, its reports and its refusals.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Folder, fixture, run, safetensors, text};

const KEY: &str = "model.transformer_decoder.layers.0.self_attn.proj_k_dense_layer.weight";

/// Returns a GPT-2 of width 2. Its projection of queries, keys and values is transposed and split
/// on the way; one number of the keys does not fit into float16.
fn gpt2(folder: &Folder) -> String {
    let rows: [[f32; 6]; 2] =
        [[1.0, 2.0, 3.0, 70000.0, 5.0, 6.0], [0.1, 8.0, 9.0, -10.0, 11.0, 12.0]];
    let attention: Vec<u8> = rows.iter().flatten().flat_map(|one| one.to_le_bytes()).collect();
    let named = [("transformer.wte.weight", [1u64, 2]), ("transformer.wpe.weight", [1, 2])];
    let mut tensors: Vec<(&str, &str, &[u64], &[u8])> =
        named.iter().map(|(key, shape)| (*key, "F32", &shape[..], &[0; 8][..])).collect();
    tensors.push(("transformer.h.0.attn.c_attn.weight", "F32", &[2, 6], &attention));
    let config = br#"{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 1,
        "n_embd": 2, "n_head": 1, "n_layer": 1, "n_positions": 1, "n_inner": 8,
        "activation_function": "gelu_new", "resid_pdrop": 0.1, "embd_pdrop": 0.1,
        "attn_pdrop": 0.1, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02}"#;
    folder.with("config.json", config);
    text(&folder.with("model.safetensors", &safetensors(&tensors)))
}

/// Returns the bytes of the only tensor of a checkpoint that matches.
fn bytes(folder: &Folder, checkpoint: &Path, pattern: &str) -> Vec<u8> {
    let alone = folder.file("alone.safetensors");
    run(["convert", &text(checkpoint), &text(&alone), "--select", pattern, "--force"]).ok();
    let file = fs::read(alone).unwrap();
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    file[8 + header..].to_vec()
}

#[test]
fn overflowing_casts_require_lossy() {
    let folder = Folder::new();
    let (source, out) = (gpt2(&folder), folder.file("out"));
    let out_text = text(&out);
    let args = ["convert-model", &source, "--to", "cs-2.9", "-o", &out_text];
    let cast = ["--cast", "*.proj_?_dense_layer.weight=float16"];
    let with = |more: &[&str]| run(args.iter().chain(&cast).chain(more).copied());
    let refused = with(&[]);
    assert_eq!(refused.code, Some(2), "{}", refused.out);
    let expected = format!("casting loses numbers: `{KEY}`: 1 of 4 numbers does not fit float16");
    assert!(refused.err.contains(&expected), "{}", refused.err);
    assert!(refused.err.contains("--lossy"), "{}", refused.err);
    assert!(!out.exists(), "{refused}", refused = refused.err);
    let printed = with(&["--lossy"]).ok();
    assert!(printed.contains("overflowed   1 number does not fit the dtype"), "{printed}");
    let written = out.join("model_to_cs-2.9.mdl");
    let halves =
        |bits: [u16; 4]| -> Vec<u8> { bits.iter().flat_map(|one| one.to_le_bytes()).collect() };
    // [[3, 70000], [9, -10]], transposed as it is stored.
    assert_eq!(bytes(&folder, &written, KEY), halves([0x4200, 0x4880, 0x7c00, 0xc900]));
    let queries = KEY.replace("proj_k", "proj_q");
    assert_eq!(bytes(&folder, &written, &queries), halves([0x3c00, 0x2e66, 0x4000, 0x4800]));
    // Tensors that match no pattern are not cast.
    assert_eq!(bytes(&folder, &written, "*.word_embeddings.weight").len(), 8);
}

#[test]
fn dry_run_reports_losses_of_casts() {
    let folder = Folder::new();
    let (source, out) = (gpt2(&folder), text(&folder.file("out")));
    let args = ["convert-model", &source, "--to", "cs-2.9", "-o", &out, "--dry-run"];
    let with = |more: &[&str]| run(args.iter().chain(more).copied());
    let printed = with(&["--cast", "float16"]).ok();
    assert!(printed.contains("float32 becomes float16: "), "{printed}");
    assert!(!printed.contains("overflowed"), "nothing was read: {printed}");
    let scanned = with(&["--cast", "float16", "--scan"]);
    assert_eq!(scanned.code, Some(2), "as it would end: {}", scanned.out);
    assert!(scanned.out.contains("c_attn.weight -> "), "{}", scanned.out);
    let expected = format!("overflowed   1 number does not fit the dtype, in `{KEY}`");
    assert!(scanned.out.contains(&expected), "{}", scanned.out);
    let fits = with(&["--cast", "*proj_q*=float16", "--scan"]).ok();
    assert!(fits.contains("cast         4 numbers, 1 of them rounded"), "{fits}");
    let json = with(&["--cast", "float16", "--scan", "--json", "--lossy"]).json();
    let part = &json["casts"][0];
    assert_eq!(part["cast"]["overflowed"], 1);
    assert_eq!(part["cast"]["keys"][0]["key"], KEY);
    assert!(part["losses"][0]["what"].as_str().unwrap().contains("becomes float16"), "{json}");
    assert!(!folder.file("out").exists());
}

#[test]
fn cast_patterns_match_the_new_keys() {
    let folder = Folder::new();
    let (source, out) = (gpt2(&folder), text(&folder.file("out")));
    let cast = ["--cast", "transformer.h.*=float16"];
    let args = ["convert-model", &source, "--to", "cs-2.9", "-o", &out];
    let error = run(args.into_iter().chain(cast)).failed();
    assert!(error.contains("no floating-point tensor has a key that matches"), "{error}");
    assert!(!folder.file("out").exists());
    run(["convert-model", &source, "--to", "cs-2.9", "--cast", "nothing"]).failed();
}

#[test]
fn refused_second_file_leaves_no_first_file() {
    let folder = Folder::new();
    let (there, back) = (folder.file("there"), folder.file("back"));
    let source = text(&fixture("trainer/gpt2"));
    run(["convert-model", &source, "--to", "cs-2.9", "--with-optimizer", "-o", &text(&there)]).ok();
    let model = fs::read_dir(&there).unwrap().map(|entry| entry.unwrap().path());
    let model = model.filter(|path| path.extension().is_some_and(|end| end == "mdl"));
    let model = text(&model.last().unwrap());
    let back_text = text(&back);
    let args = ["convert-model", &model, "--to", "hf", "--with-optimizer", "-o", &back_text];
    // The pattern matches keys of optimizer.pt only, and squares of gradients become 0 in 8 bits.
    let cast = ["--cast", "*.exp_avg_sq=float8_e4m3fn"];
    let refused = run(args.iter().chain(&cast).copied());
    assert_eq!(refused.code, Some(2), "{}", refused.out);
    assert!(refused.err.contains("become 0 in float8_e4m3fn"), "{}", refused.err);
    assert!(!back.exists(), "{:?}", fs::read_dir(&back).map(Iterator::count));
    run(args.iter().chain(&cast).copied().chain(["--lossy"])).ok();
    let names: Vec<PathBuf> = fs::read_dir(&back).unwrap().map(|one| one.unwrap().path()).collect();
    let optimizer = run(["ls", &text(&names[0].join("optimizer.pt"))]).ok();
    assert!(optimizer.contains("float8_e4m3fn") && optimizer.contains("float32"), "{optimizer}");
}

#[test]
fn config_states_the_dtype_if_all_weights_share_it() {
    let folder = Folder::new();
    let (source, there) = (fixture("recipes/santacoder/mqa.hf-to-cs2.9/in"), folder.file("there"));
    let args = ["convert-model", &text(&source), "--model", "santacoder", "--to", "cs-2.9"];
    run(args.into_iter().chain(["-o", &text(&there)])).ok();
    let model = text(&there.join("model_to_cs-2.9.mdl"));
    for (cast, dtype, noted) in [
        ("bfloat16", "bfloat16", false),
        ("**=float16", "float16", false),
        ("*.bias=float16", "float32", true),
    ] {
        let out = folder.file(dtype);
        let args = ["convert-model", &model, "--model", "santacoder", "--to", "hf"];
        let to = ["--cast", cast, "-o", &text(&out)];
        let ran = run(args.into_iter().chain(to));
        assert_eq!(ran.code, Some(0), "{cast}: {}", ran.err);
        let config = fs::read_to_string(out.join("model_to_cs-2.9_to_hf/config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        assert_eq!(config["torch_dtype"], dtype, "{cast}");
        assert_eq!(ran.err.contains("`torch_dtype` stays float32"), noted, "{cast}: {}", ran.err);
    }
}
