//! Quantised weights: how fast they are decoded, and their statistics, compared with gguf's own numpy
//! code, with candle, and with dense float16.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::values::{in_turns, pinned};
use super::{Bench, ResultTable, build, made, measure};
use crate::{project, shell};

/// The inputs that the code of gguf and candle decodes.
const BLOCKS: [&str; 3] = ["Q4_K", "Q6_K", "Q8_0"];

/// The inputs in safetensors.
const SETS: [&str; 2] = ["nf4", "awq"];

/// The size of the model in gigabytes, unless STATELENS_BENCH_GB is set.
const SIZE: &str = "4";

impl Bench {
    /// Measures on one core and on all of them, from files in the system's cache.
    pub(super) fn quantised(&self, table: &mut ResultTable) -> Result<()> {
        rates(table)?;
        let Some(python) = &self.python else { return Ok(()) };
        let script = |one, what: &str| {
            let mut command = pinned(&python.current, one);
            command.arg(project::root().join("benches/quantised.py")).arg(what);
            command
        };
        let path = |name: &str| self.folder.join(format!("quantised-{name}"));
        let dense = path("f16.safetensors");
        if !dense.exists() {
            shell::run(script(false, "inputs").arg(&self.folder))?;
        }
        let (model, dense_model) = (path("model.gguf"), path("model-f16.safetensors"));
        let size = std::env::var("STATELENS_BENCH_GB").unwrap_or_else(|_| SIZE.to_owned());
        made(&model, |path| shell::run(script(false, "model").arg(path).arg(&size)))?;
        made(&dense_model, |path| {
            shell::run(&mut self.convert(
                &["--to", "safetensors", "--dequantize", "float16"],
                &model,
                path,
            ))
        })?;
        let candle = candle();
        for one in [true, false] {
            let cores = if one { "one core" } else { "all cores" };
            let stats = |file: &Path| {
                let mut ours = pinned(&self.statelens, one);
                ours.args(["stats", "--json"]).arg(file);
                ours
            };
            let within = |table: &mut ResultTable, row: &str, file: &Path, dense: &Path| {
                let other = Some(("dense float16", stats(dense)));
                let result = measure(stats(file), other, None).context(row.to_owned())?;
                table.add(row, "within twice", result);
                anyhow::Ok(())
            };
            for name in BLOCKS {
                let file = path(&format!("{name}.gguf"));
                let row = format!("256 MB of float32 as {name}, {cores}");
                let mut theirs = script(one, "dequantize");
                theirs.arg(&file);
                table.add(&row, "faster", in_turns(stats(&file), ("gguf, decoding only", theirs))?);
                if let Some(program) = &candle {
                    let mut theirs = pinned(program, one);
                    theirs.arg(&file);
                    let other = ("candle, decoding only", theirs);
                    table.add(&row, "shown; there is no target", in_turns(stats(&file), other)?);
                }
                within(table, &row, &file, &dense)?;
            }
            for name in SETS {
                let row = format!("256 MB of float32 as {name}, {cores}");
                within(table, &row, &path(&format!("{name}.safetensors")), &dense)?;
            }
            within(table, &format!("a model in Q4_K_M, {cores}"), &model, &dense_model)?;
        }
        Ok(())
    }
}

/// Measures how fast each scheme is decoded by one core, by an example that discards the numbers.
fn rates(table: &mut ResultTable) -> Result<()> {
    let what = ["-p", "statelens-tensor", "--example", "dequantise"];
    let example = build(&what, "examples/dequantise")?;
    let printed = shell::output(&mut shell::command(example)).context("dequantise failed")?;
    for line in printed.lines() {
        if let Some((scheme, rate)) = line.split_once('\t') {
            table.rate(&format!("decode {scheme}"), &format!("{rate} GB/s"), "1 GB/s and core");
        }
    }
    Ok(())
}

/// Returns a program that decodes a file with candle; `None` if candle can't be built, which skips the
/// comparison.
fn candle() -> Option<PathBuf> {
    let target = project::target().join("candle");
    let mut cargo: Command = shell::command("cargo");
    cargo.args(["build", "--release", "--locked", "--manifest-path"]);
    cargo.arg(project::root().join("benches/candle/Cargo.toml")).arg("--target-dir").arg(&target);
    if let Err(error) = shell::run(&mut cargo) {
        println!("candle can't be built here, so it is left out: {error}");
        return None;
    }
    Some(target.join("release/candle-bench"))
}
