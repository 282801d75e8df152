//! `cargo xtask bench`: times and peak memory, as ratios to the real library and to `cp`.
//!
//! Every row is a whole process, started three times on inputs that the system has in memory; the
//! fastest run counts, with the highest peak memory of all three. Nothing here fails because
//! something is slow: machines differ, and the numbers are for people to read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use wait4::Wait4 as _;

use crate::{dist, project, python, shell};

const REPEAT: usize = 3;

/// Name and number of rows of the inputs: 37 tensors of rows x 1000 in float32 and in bfloat16.
const INPUTS: [(&str, u32); 2] = [("223 MB", 1_005), ("2 GB", 9_009)];

/// Measures everything and prints it.
pub(crate) fn run() -> Result<()> {
    shell::run(shell::command("cargo").args([
        "build",
        "--release",
        "--locked",
        "-p",
        "statelens",
    ]))?;
    let bench = Bench {
        statelens: project::target().join("release").join("statelens"),
        python: real_library(),
        script: project::root().join("benches").join("real.py"),
        folder: project::target().join("bench"),
    };
    fs::create_dir_all(&bench.folder)?;
    let mut table = Table::default();
    bench.listing(&mut table)?;
    bench.many_keys(&mut table)?;
    for (name, rows) in INPUTS {
        bench.conversions(name, rows, &mut table)?;
    }
    println!("\n{}\n", machine());
    table.print();
    page_weight()
}

/// The interpreter with cerebras-pytorch; without it there is nothing to compare with but `cp`.
fn real_library() -> Option<PathBuf> {
    match python::set_up(project::root()) {
        Ok(python) => Some(python.cerebras),
        Err(error) => {
            println!("The real library can't be installed here, so it is left out: {error}");
            None
        }
    }
}

struct Bench {
    statelens: PathBuf,
    python: Option<PathBuf>,
    script: PathBuf,
    folder: PathBuf,
}

impl Bench {
    fn ours(&self) -> Command {
        shell::command(&self.statelens)
    }

    fn theirs(&self, what: &str) -> Option<Command> {
        let mut command = shell::command(self.python.as_ref()?);
        command.arg(&self.script).arg(what);
        Some(command)
    }

    fn listing(&self, table: &mut Table) -> Result<()> {
        let file = project::root().join("tests/fixtures/cerebras/v2.10.0/gpt_small.mdl");
        let ours = measure(self.ours().arg("ls").arg(&file), None)?;
        let theirs = self.theirs("list");
        let theirs = theirs.map(|mut command| measure(command.arg(&file), None)).transpose()?;
        table.add(
            "list gpt_small.mdl",
            ours,
            theirs.map(|run| ("library", run)),
            "50 times faster",
        );
        Ok(())
    }

    fn many_keys(&self, table: &mut Table) -> Result<()> {
        let torch = project::root().join("tests/fixtures/torch/zip_many_20k.pt");
        let cerebras = self.folder.join("many.mdl");
        shell::run(self.ours().args(["convert", "--force"]).arg(&torch).arg(&cerebras))?;
        for (name, file) in [("open 20,000 keys, .pt", torch), ("open 20,000 keys, .mdl", cerebras)]
        {
            let ours = measure(self.ours().arg("info").arg(&file), None)?;
            table.add(name, ours, None, "under 0.3 s");
        }
        Ok(())
    }

    fn conversions(&self, name: &str, rows: u32, table: &mut Table) -> Result<()> {
        let stem = format!("rows-{rows}");
        let input = |kind: &str| self.folder.join(format!("{stem}{kind}"));
        let (torch, cerebras) = (input(".pt"), input(".mdl"));
        if let Some(mut inputs) = self.theirs("inputs")
            && !(torch.exists() && cerebras.exists())
        {
            shell::run(inputs.arg(&self.folder).arg(&stem).arg(rows.to_string()))?;
        }
        if !torch.exists() {
            println!("Without the real library there is no {name} input; left out");
            return Ok(());
        }
        // What the library wrote is in LZ4 chunks; this is the same without.
        let contiguous = input("-contiguous.mdl");
        if !contiguous.exists() {
            shell::run(self.ours().arg("convert").arg(&torch).arg(&contiguous))?;
        }
        let (to_torch, to_cerebras) = (input("-out.pt"), input("-out.mdl"));
        let convert = |source: &Path, target: &Path| {
            measure(self.ours().args(["convert", "--force"]).arg(source).arg(target), Some(target))
        };
        let library = |what: &str, source: &Path, target: &Path| {
            let command = self.theirs(what);
            command
                .map(|mut command| measure(command.arg(source).arg(target), Some(target)))
                .transpose()
                .map(|run| run.map(|run| ("library", run)))
        };
        let copy = |source: &Path, target: &Path| {
            measure(shell::command("cp").arg(source).arg(target), Some(target))
                .map(|run| Some(("cp", run)))
        };
        for (kind, source, target, other, wanted) in [
            (".mdl (LZ4) -> .pt", &cerebras, &to_torch, Some("to-torch"), "8 times faster"),
            (".pt -> .mdl", &torch, &to_cerebras, Some("to-cerebras"), "8 times faster"),
            (".mdl (contiguous) -> .pt", &contiguous, &to_torch, None, "within 1.5 of cp"),
            (".pt -> .mdl (contiguous)", &torch, &to_cerebras, None, "within 1.5 of cp"),
        ] {
            let ours = convert(source, target)?;
            let other = match other {
                Some(what) => library(what, source, target)?,
                None => copy(source, target)?,
            };
            table.add(&format!("{name}, {kind}"), ours, other, wanted);
        }
        for output in [to_torch, to_cerebras] {
            fs::remove_file(&output).with_context(|| format!("removing {}", output.display()))?;
        }
        Ok(())
    }
}

/// How long a process took and how much memory it had at most.
#[derive(Clone, Copy)]
struct Ran {
    wall: Duration,
    peak: u64,
}

/// Runs a command several times; `output` is removed before each run.
fn measure(command: &mut Command, output: Option<&Path>) -> Result<Ran> {
    println!("$ {}", shell::shown(command));
    let mut best: Option<Ran> = None;
    for _ in 0..REPEAT {
        if let Some(output) = output.filter(|output| output.exists()) {
            fs::remove_file(output)?;
        }
        // What earlier runs wrote must not be written to disk while this one is timed.
        shell::output(&mut shell::command("sync"));
        let start = Instant::now();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("could not start `{}`", shell::shown(command)))?;
        let usage = child.wait4()?;
        let wall = start.elapsed();
        if !usage.status.success() {
            bail!("`{}` failed ({})", shell::shown(command), usage.status);
        }
        let peak = usage.rusage.maxrss;
        best = Some(match best {
            None => Ran { wall, peak },
            Some(best) => Ran { wall: best.wall.min(wall), peak: best.peak.max(peak) },
        });
    }
    best.context("nothing was measured")
}

#[derive(Default)]
struct Table {
    rows: Vec<[String; 7]>,
}

impl Table {
    fn add(&mut self, what: &str, ours: Ran, other: Option<(&str, Ran)>, wanted: &str) {
        let time = |run: Ran| format!("{:.3} s", run.wall.as_secs_f64());
        let memory = |run: Ran| format!("{} MB", run.peak / 1_000_000);
        let (name, other_time, other_memory, ratio) = match other {
            None => (String::new(), String::new(), String::new(), String::new()),
            Some((name, run)) => {
                let (ours, theirs) = (ours.wall.as_secs_f64(), run.wall.as_secs_f64());
                let ratio = match name {
                    "cp" => format!("{:.2} of cp", ours / theirs),
                    _ => format!("{:.1} times faster", theirs / ours),
                };
                (name.to_owned(), time(run), memory(run), ratio)
            }
        };
        let other = format!("{name} {other_time}").trim().to_owned();
        let row = [
            what.to_owned(),
            time(ours),
            memory(ours),
            other,
            other_memory,
            ratio,
            wanted.to_owned(),
        ];
        self.rows.push(row);
    }

    fn print(&self) {
        let heads = ["what", "statelens", "peak", "other", "peak", "ratio", "target"];
        let heads = heads.map(str::to_owned);
        let mut widths = [0; 7];
        for row in std::iter::once(&heads).chain(&self.rows) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.len());
            }
        }
        for row in std::iter::once(&heads).chain(&self.rows) {
            let cells = row.iter().zip(widths);
            let cells: Vec<String> = cells.map(|(cell, width)| format!("{cell:width$}")).collect();
            println!("{}", cells.join("  ").trim_end());
        }
        println!("(target for the peak of statelens: under 64 MB whatever the size)");
    }
}

/// What this ran on.
fn machine() -> String {
    let line = |file: &str, name: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or("", |(_, value)| value).trim().to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "Machine: {}, {cores} cores, {} memory, {}; load {}",
        line("/proc/cpuinfo", "model name"),
        line("/proc/meminfo", "MemTotal"),
        std::env::consts::OS,
        load.split(' ').take(3).collect::<Vec<_>>().join(" ")
    )
}

/// What a browser downloads for the page, if the page is built.
fn page_weight() -> Result<()> {
    let site = project::site();
    if !site.join("index.html").exists() {
        println!("The page is not built (`cargo xtask build`), so it is not weighed");
        return Ok(());
    }
    let weight = dist::weight(&site, &dist::files_under(&site)?)?;
    println!("Page: Wasm, JavaScript and CSS after gzip {weight} bytes (target: under 900,000)");
    Ok(())
}
