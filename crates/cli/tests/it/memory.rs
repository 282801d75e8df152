//! Whatever memory there is, a command does what it was asked or says that it can't. It is never
//! aborted, no thread of it panics, nothing that it has begun is left, and what it could not look at
//! does not pass for harmless.

use std::fs;

use crate::common::{Folder, Ran, run, safetensors, texts, within};

/// Mebibytes beyond what the command needs for its help: from nothing to more than the files here need.
const BEYOND: [u64; 4] = [0, 20, 60, 180];

/// The mebibytes that the command needs for its help, and one for its reserve: with a few bytes more than it
/// needs there is none. That depends on what was built into it.
fn needed() -> u64 {
    1 + (8..200).find(|megabytes| within(*megabytes, &["--help"]).code == Some(0)).unwrap()
}

/// How often what was asked for was done, and how often it was refused.
#[derive(Default)]
struct Tally {
    done: usize,
    refused: usize,
}

impl Tally {
    /// A run must have ended well, or said in good order that there is no memory.
    #[track_caller]
    fn take(&mut self, ran: &Ran, told: &str) {
        match ran.code {
            // 1 where two files differ.
            Some(0 | 1) => self.done += 1,
            Some(2) => {
                // Before an abort Rust says "memory allocation of 9 bytes failed".
                let said = ran.err.lines().all(|line| line.starts_with("statelens: "));
                let lacks = ran.err.contains("no memory") || ran.err.contains("no thread");
                assert!(said && lacks, "{told}: {}", ran.err);
                self.refused += 1;
            }
            code => panic!("{told}: {code:?}, {}", ran.err),
        }
    }
}

/// A checkpoint of 20,000 keys, two float32 each, in several formats.
fn formats(folder: &Folder) -> Vec<String> {
    let names: Vec<String> =
        (0..20_000).map(|at| format!("model.layers.{}.part{}", at / 10, at % 10)).collect();
    let tensors: Vec<_> =
        names.iter().map(|name| (&**name, "F32", &[2][..], &[1u8; 8][..])).collect();
    let source = folder.with("keys.safetensors", &safetensors(&tensors));
    let mut files = vec![source.to_str().unwrap().to_owned()];
    for name in ["keys.pt", "keys.npz", "keys.mdl", "keys.index"] {
        let file = folder.file(name).to_str().unwrap().to_owned();
        run(["convert", &files[0], &file]).ok();
        files.push(file);
    }
    files
}

#[test]
fn reading_ends_in_good_order() {
    let folder = Folder::new();
    let files = formats(&folder);
    let bomb = folder.file("texts.pt");
    texts(&bomb, 400_000);
    let bomb = bomb.to_str().unwrap();
    let (needed, mut tally) = (needed(), Tally::default());
    for megabytes in BEYOND.map(|beyond| needed + beyond) {
        for file in &files {
            for command in ["info", "ls", "verify", "manifest", "summary", "stats"] {
                let ran = within(megabytes, &[command, file]);
                tally.take(&ran, &format!("{command} {file}, {megabytes} MiB"));
            }
            let ran = within(megabytes, &["diff", file, &files[0]]);
            tally.take(&ran, &format!("diff {file}, {megabytes} MiB"));
        }
        for command in ["info", "ls"] {
            let ran = within(megabytes, &[command, bomb]);
            tally.take(&ran, &format!("{command} {bomb}, {megabytes} MiB"));
        }
    }
    assert!(tally.refused > 60 && tally.done > 40, "{} and {}", tally.refused, tally.done);
}

#[test]
fn writing_ends_in_good_order_and_leaves_nothing() {
    let folder = Folder::new();
    let files = formats(&folder);
    let (needed, mut tally) = (needed(), Tally::default());
    let into = folder.file("into");
    fs::create_dir(&into).unwrap();
    for (source, target) in [(0, "pt"), (1, "npz"), (2, "safetensors"), (3, "index"), (4, "mdl")] {
        for megabytes in BEYOND.into_iter().chain([130, 220]).map(|beyond| needed + beyond) {
            let out = into.join(format!("out.{target}"));
            let ran = within(megabytes, &["convert", &files[source], out.to_str().unwrap()]);
            tally.take(&ran, &format!("to {target}, {megabytes} MiB"));
            let left: Vec<_> = fs::read_dir(&into).unwrap().map(|left| left.unwrap()).collect();
            assert_eq!(left.is_empty(), ran.code == Some(2), "{target}, {megabytes} MiB: {left:?}");
            for file in left {
                fs::remove_file(file.path()).unwrap();
            }
        }
    }
    assert!(tally.refused > 10 && tally.done > 5, "{} and {}", tally.refused, tally.done);
}

#[test]
fn a_scan_fails_or_says_what_it_says_with_enough() {
    let folder = Folder::new();
    let (needed, mut failed) = (needed(), 0);
    for file in &formats(&folder)[1..4] {
        let whole = run(["scan", file]).ok();
        for megabytes in (0..90).step_by(10).map(|beyond| needed + beyond) {
            let ran = within(megabytes, &["scan", file]);
            let fails = ran.code == Some(2) && ran.out.is_empty();
            assert!(fails || ran.out == whole, "{file}, {megabytes} MiB: {}", ran.out);
            failed += u32::from(fails);
        }
    }
    assert!(failed > 5, "{failed} of 27 had too little");
}

#[test]
fn a_model_is_converted_or_refused_and_never_taken_for_an_unknown_one() {
    const LAYERS: usize = 1_000;
    let folder = Folder::new();
    let parts: [(&str, &[u64]); 9] = [
        ("self_attn.q_proj", &[8, 8]),
        ("self_attn.k_proj", &[8, 8]),
        ("self_attn.v_proj", &[8, 8]),
        ("self_attn.o_proj", &[8, 8]),
        ("mlp.gate_proj", &[16, 8]),
        ("mlp.up_proj", &[16, 8]),
        ("mlp.down_proj", &[8, 16]),
        ("input_layernorm", &[8]),
        ("post_attention_layernorm", &[8]),
    ];
    let ends = ["embed_tokens.weight", "norm.weight"].map(|name| format!("model.{name}"));
    let mut named: Vec<(String, &[u64])> = vec![
        (ends[0].clone(), &[32, 8]),
        (ends[1].clone(), &[8]),
        ("lm_head.weight".to_owned(), &[32, 8]),
    ];
    for layer in 0..LAYERS {
        let of_layer = |(name, shape)| (format!("model.layers.{layer}.{name}.weight"), shape);
        named.extend(parts.into_iter().map(of_layer));
    }
    let bytes = [0u8; 4 * 32 * 8];
    let tensors: Vec<_> = named
        .iter()
        .map(|(name, shape)| {
            (&**name, "F32", *shape, &bytes[..4 * shape.iter().product::<u64>() as usize])
        })
        .collect();
    folder.with("model.safetensors", &safetensors(&tensors));
    let config = format!(
        r#"{{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8,
            "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2,
            "num_hidden_layers": {LAYERS}, "vocab_size": 32, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 64, "hidden_act": "silu", "tie_word_embeddings": false,
            "rope_theta": 10000.0}}"#
    );
    folder.with("config.json", config.as_bytes());
    let (model, into) = (folder.file("model.safetensors"), folder.file("into"));
    let (model, into) = (model.to_str().unwrap(), into.to_str().unwrap());
    let (needed, mut tally) = (needed(), Tally::default());
    for beyond in (0..60).step_by(6).chain([120, 240]) {
        let megabytes = needed + beyond;
        let ran = within(megabytes, &["convert-model", model, "--to", "cs-2.10", "-o", into]);
        tally.take(&ran, &format!("{megabytes} MiB"));
        let left = fs::read_dir(into).map_or(0, Iterator::count);
        assert_eq!(left == 0, ran.code == Some(2), "{megabytes} MiB: {left} files");
        if left > 0 {
            fs::remove_dir_all(into).unwrap();
        }
    }
    assert!(tally.refused > 4 && tally.done > 1, "{} and {}", tally.refused, tally.done);
}
