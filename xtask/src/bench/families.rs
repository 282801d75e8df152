//! Converts a model with llama's shape from Hugging Face to Cerebras and back, by its recipe.
//!
//! `STATELENS_BENCH_GB` is its size; by default it is 8 GB, or less if that would take more than a
//! quarter of the free disk space.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context, Result};

use super::{Bench, ResultTable, cp, measure};
use crate::shell;

const HIDDEN: u64 = 2048;
const FFN: u64 = 5632;
const KV: u64 = 512;
const VOCAB: u64 = 32000;
const HEADS: u64 = 16;

/// The default maximum size in GB.
const USUAL_GB: u64 = 8;
const STEPS_GB: u64 = 2;

impl Bench {
    /// Measures both directions against `cp`, LZ4 chunks against decoding them, and the original's
    /// steps.
    pub(super) fn families(&self, table: &mut ResultTable) -> Result<()> {
        let folder = self.folder.join("families");
        fs::create_dir_all(&folder)?;
        let size = size(&folder);
        let source = folder.join("model.safetensors");
        fs::write(folder.join("config.json"), config(layers(size)))?;
        toy(&source, layers(size))?;
        let (there, back) = (folder.join("there"), folder.join("back"));
        let mdl = there.join("model_to_cs-2.9.mdl");
        let yaml = there.join("config_to_cs-2.9.yaml");
        let weights = back.join("model_to_cs-2.9_to_hf/model-00001-of-00001.safetensors");
        let name = |what: &str| format!("{size} GB of llama, {what}");
        let to_cerebras = |source: &Path| {
            let mut ours = self.ours();
            ours.args(["convert-model", "--model", "llama", "--to", "cs-2.9", "--force", "-o"]);
            ours.arg(&there).arg(source);
            ours
        };
        let to_hf = |source: &Path| {
            let mut ours = self.ours();
            ours.args(["convert-model", "--model", "llama", "--src-fmt", "cs-2.9", "--to", "hf"]);
            ours.args(["--export-safetensors", "--hf-shard-size", "1TB", "--force", "--config"]);
            ours.arg(&yaml).arg("-o").arg(&back).arg(source);
            ours
        };
        shell::run(&mut to_cerebras(&source))?;
        let measured = measure(to_cerebras(&source), Some(cp(&source, &mdl)), Some(&mdl))?;
        table.add(&name("Hugging Face -> Cerebras"), "within 1.5 of cp", measured);
        let again = &mut to_cerebras(&source);
        shell::run(again)?;
        shell::run(&mut to_hf(&mdl))?;
        let measured = measure(to_hf(&mdl), Some(cp(&mdl, &weights)), Some(&weights))?;
        table.add(&name("Cerebras -> Hugging Face"), "within 1.5 of cp", measured);
        fs::remove_file(&weights).ok();

        if let Some(mut steps) = self.theirs("family-steps") {
            // The original holds the whole model in memory, so this size fits most machines. Both
            // write to the same path, which is removed before each run: replacing a file would wait
            // until it is on disk.
            let small = folder.join("pytorch_model.bin");
            let out = there.join("pytorch_model_to_cs-2.9.mdl");
            let part = folder.join("part.safetensors");
            toy(&part, layers(size.min(STEPS_GB)))?;
            shell::run(&mut self.convert(&[], &part, &small))?;
            fs::remove_file(&part)?;
            steps.arg(&small).arg(&out).arg(HEADS.to_string());
            let other = Some(("the original's steps in torch", steps));
            let measured = measure(to_cerebras(&small), other, Some(&out))?;
            let what = format!("{} GB of llama, .bin -> Cerebras", size.min(STEPS_GB));
            table.add(&what, "10 times faster", measured);
            for made in [small, out] {
                fs::remove_file(&made).ok();
            }
        }

        let chunks = folder.join("lz4.mdl");
        shell::run(&mut self.convert(&["--compress", "lz4"], &mdl, &chunks))?;
        fs::remove_file(&mdl)?;
        let decode = self.convert(&[], &chunks, &folder.join("decoded.mdl"));
        let from_chunks = folder.join("back/lz4_to_hf/model-00001-of-00001.safetensors");
        let other = Some(("decoding", decode));
        let measured = measure(to_hf(&chunks), other, Some(&from_chunks))?;
        table.add(&name("from LZ4 chunks"), "within 1.5 of decoding", measured);
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))
    }
}

/// Returns the size in GB: the requested one, or as much as there is room for.
fn size(folder: &Path) -> u64 {
    let requested = std::env::var("STATELENS_BENCH_GB").ok().and_then(|text| text.parse().ok());
    requested.unwrap_or_else(|| {
        let free =
            shell::output(shell::command("df").args(["-Pk"]).arg(folder)).unwrap_or_default();
        let free = free.lines().nth(1).and_then(|line| line.split_whitespace().nth(3));
        let free: u64 = free.and_then(|free| free.parse().ok()).unwrap_or(0);
        USUAL_GB.min(free * 1024 / 1_000_000_000 / 4).max(1)
    })
}

/// Returns how many layers make a model of this many GB.
fn layers(gigabytes: u64) -> u64 {
    let layer = 2 * (2 * HIDDEN * HIDDEN + 2 * KV * HIDDEN + 3 * FFN * HIDDEN);
    (gigabytes * 1_000_000_000).saturating_sub(4 * VOCAB * HIDDEN) / layer
}

fn config(layers: u64) -> String {
    format!(
        r#"{{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": {HIDDEN},
"intermediate_size": {FFN}, "num_attention_heads": {HEADS}, "num_hidden_layers": {layers},
"num_key_value_heads": {}, "vocab_size": {VOCAB}, "hidden_act": "silu", "rms_norm_eps": 1e-5,
"max_position_embeddings": 4096, "rope_theta": 10000.0, "tie_word_embeddings": false}}"#,
        KV / (HIDDEN / HEADS)
    )
}

/// Writes a model of bfloat16 numbers that resemble weights.
fn toy(path: &Path, layers: u64) -> Result<()> {
    let mut tensors = vec![("model.embed_tokens.weight".to_owned(), vec![VOCAB, HIDDEN])];
    for layer in 0..layers {
        for (name, shape) in [
            ("self_attn.q_proj", vec![HIDDEN, HIDDEN]),
            ("self_attn.k_proj", vec![KV, HIDDEN]),
            ("self_attn.v_proj", vec![KV, HIDDEN]),
            ("self_attn.o_proj", vec![HIDDEN, HIDDEN]),
            ("mlp.gate_proj", vec![FFN, HIDDEN]),
            ("mlp.up_proj", vec![FFN, HIDDEN]),
            ("mlp.down_proj", vec![HIDDEN, FFN]),
            ("input_layernorm", vec![HIDDEN]),
            ("post_attention_layernorm", vec![HIDDEN]),
        ] {
            tensors.push((format!("model.layers.{layer}.{name}.weight"), shape));
        }
    }
    tensors.push(("model.norm.weight".to_owned(), vec![HIDDEN]));
    tensors.push(("lm_head.weight".to_owned(), vec![VOCAB, HIDDEN]));
    let mut end = 0;
    let entries: Vec<String> = tensors
        .iter()
        .map(|(key, shape)| {
            let from = end;
            end += 2 * shape.iter().product::<u64>();
            format!(
                "\"{key}\":{{\"dtype\":\"BF16\",\"shape\":{shape:?},\"data_offsets\":[{from},{end}]}}"
            )
        })
        .collect();
    let header = format!("{{{}}}", entries.join(","));
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    let mut state = 1u64;
    let mut block = vec![0u8; 1 << 22];
    for pair in block.chunks_exact_mut(2) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = ((state >> 40) as f32 / (1 << 24) as f32 - 0.5) * 0.04;
        pair.copy_from_slice(&value.to_le_bytes()[2..]);
    }
    let mut left = end;
    while left > 0 {
        let now = left.min(block.len() as u64);
        out.write_all(&block[..now as usize])?;
        left -= now;
    }
    Ok(out.flush()?)
}
