//! Statistics of the values of large files, compared with numpy's own passes and a plain sum.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use wait4::Wait4 as _;

use super::{Bench, BenchResult, REPEAT, Ran, ResultTable, once};
use crate::{project, shell};

/// The inputs that numpy makes.
const NAMES: [(&str, &str); 2] = [("float32", "values-f32"), ("bfloat16", "values-bf16")];

/// Environment variables that make an old OpenBLAS work, but slow down a current one.
const SLOWING: [&str; 2] = ["OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"];

impl Bench {
    /// Measures on one core and on all of them, from files in the system's cache.
    pub(super) fn values(&self, table: &mut ResultTable) -> Result<()> {
        let Some(mut numpy) = self.numpy("inputs") else { return Ok(()) };
        let mut inputs = values_files(&self.folder);
        if !inputs.iter().all(|file| file.exists()) {
            shell::run(numpy.arg(&self.folder))?;
        }
        let chunks = self.folder.join("values-lz4.mdl");
        if !chunks.exists() {
            shell::run(&mut self.convert(&["--compress", "lz4"], &inputs[0], &chunks))?;
        }
        inputs.push(chunks);
        let names = NAMES.iter().map(|(name, _)| *name).chain(["float32 in LZ4 chunks"]);
        for (name, file) in names.zip(&inputs) {
            for (cores, what, wanted) in [
                (Some("one core"), "sum", "at least 60 % of its speed"),
                (Some("one core"), "mapped", "shown; there is no target"),
                (Some("one core"), "five", "faster"),
                (None, "five", "faster"),
            ] {
                // Chunks can't be mapped.
                if what == "mapped" && file.extension().is_some_and(|it| it == "mdl") {
                    continue;
                }
                let mut ours = pinned(&self.statelens, cores.is_some());
                ours.args(["stats", "--json"]).arg(file);
                let mut numpy = self.numpy(what).context("numpy was there")?;
                numpy.arg(file);
                let other = match what {
                    "sum" => "a sum",
                    "mapped" => "a sum, mapped",
                    _ => "five passes",
                };
                let row = format!("2 GB of {name}, {}", cores.unwrap_or("all cores"));
                table.add(&row, wanted, in_turns(ours, (other, numpy))?);
            }
        }
        Ok(())
    }

    fn numpy(&self, what: &str) -> Option<Command> {
        let mut command = pinned(&self.python.as_ref()?.current, what != "inputs");
        SLOWING.iter().for_each(|name| _ = command.env_remove(name));
        command.arg(project::root().join("benches/values.py")).arg(what);
        Some(command)
    }
}

/// The files of 2 GB, which the page's benchmark uses too.
pub(super) fn values_files(folder: &Path) -> Vec<PathBuf> {
    NAMES.iter().map(|(_, stem)| folder.join(format!("{stem}.safetensors"))).collect()
}

/// Returns a command, pinned to one core if requested and if this system supports it.
pub(super) fn pinned(program: &Path, one: bool) -> Command {
    if !(one && cfg!(target_os = "linux")) {
        return shell::command(program);
    }
    let mut command = shell::command("taskset");
    command.args(["-c", "0"]).arg(program);
    command
}

/// As [`super::measure`], for another program that prints its own duration in seconds.
pub(super) fn in_turns(
    mut ours: Command,
    (name, mut other): (&'static str, Command),
) -> Result<BenchResult> {
    println!("$ {}\n$ {}", shell::shown(&ours), shell::shown(&other));
    let (mut best, mut best_other) = (None, None);
    for _ in 0..REPEAT {
        best = Some(once(&mut ours, None)?.best(best));
        best_other = Some(run_timed(&mut other)?.best(best_other));
    }
    let ours = best.context("nothing was measured")?;
    Ok(BenchResult { ours, other: best_other.map(|ran| (name, ran)) })
}

/// Runs a program that prints its own duration in seconds.
fn run_timed(command: &mut Command) -> Result<Ran> {
    let what = shell::shown(command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| what.clone())?;
    let mut text = String::new();
    if let Some(out) = &mut child.stdout {
        std::io::Read::read_to_string(out, &mut text)?;
    }
    let usage = child.wait4()?;
    let seconds = text.trim().parse().with_context(|| format!("`{what}` printed {text:?}"))?;
    Ok(Ran { wall: Duration::from_secs_f64(seconds), peak: usage.rusage.maxrss })
}
