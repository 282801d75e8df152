//! `cargo xtask bench`: times and peak memory, as ratios to the real library and to `cp`.
//!
//! The measurements of the page in a browser come last (`tests/page/measure.mjs`).
//!
//! Every other row is a whole process, started several times on inputs in the system's cache,
//! alternating with the program it is compared with, so that both run under the same conditions.
//! The fastest run counts, with the highest peak memory of all runs. Slowness never fails the task:
//! machines differ, and the numbers are for people to read.

mod families;
mod quantised;
mod ranks;
mod scan;
mod values;
mod views;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use wait4::Wait4 as _;

use crate::site::Goal;
use crate::{dist, page, project, python, shell, site};

const REPEAT: usize = 4;

/// Names and numbers of rows of the inputs: 37 tensors of rows x 1000, in float32 and in bfloat16.
const INPUTS: [(&str, u32); 2] = [("223 MB", 1_005), ("2 GB", 9_009)];

/// Rows of the input of 5 GB, which shows that memory does not grow with the file.
const LARGE_ROWS: u32 = 22_523;

/// Numbers of keys to open, list and convert.
const KEYS: [u64; 2] = [100_000, 700_000];

/// The viewer that the page is compared with, as a pip requirement.
const NETRON: &str = "netron==9.3.3";

/// The benchmarks that can be run separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Benchmark {
    /// Very many keys, and very many tensors.
    Keys,
    /// Conversions, compared with Cerebras's library and `cp`.
    Conversions,
    /// From format to format.
    Formats,
    Casts,
    /// Tensors that are stored transposed.
    Views,
    /// Model families; STATELENS_BENCH_GB is the size of the model.
    Families,
    /// Statistics of 2 GB, compared with numpy.
    Values,
    /// Quantised weights, compared with the code of gguf and candle and with dense ones;
    /// STATELENS_BENCH_GB is the size of the model.
    Quantised,
    /// The search for code in 1 GiB of weights.
    Scan,
    /// Checkpoints of many ranks, and half a million tensors in shards; STATELENS_BENCH_GB is the size
    /// of a rank.
    Ranks,
    /// 5 GB.
    Large,
    /// The page in a browser.
    Page,
}

/// Runs the given benchmarks, or all if none are given, and prints the results.
pub(crate) fn run(parts: &[Benchmark]) -> Result<()> {
    let bench = Bench {
        statelens: command()?,
        python: real_libraries(),
        script: project::root().join("benches").join("real.py"),
        folder: project::target().join("bench"),
    };
    fs::create_dir_all(&bench.folder)?;
    let mut table = ResultTable::default();
    let is_selected = |benchmark: Benchmark| parts.is_empty() || parts.contains(&benchmark);
    if is_selected(Benchmark::Keys) {
        bench.listing(&mut table)?;
        bench.many_keys(&mut table)?;
        bench.many_tensors(&mut table)?;
    }
    if is_selected(Benchmark::Conversions) {
        for (name, rows) in INPUTS {
            bench.conversions(name, rows, &mut table)?;
        }
    }
    if is_selected(Benchmark::Formats) {
        bench.formats(&mut table)?;
    }
    if is_selected(Benchmark::Casts) {
        bench.casts(&mut table)?;
    }
    if is_selected(Benchmark::Views) {
        bench.views(&mut table)?;
    }
    if is_selected(Benchmark::Families) {
        bench.families(&mut table)?;
    }
    if is_selected(Benchmark::Values) {
        bench.values(&mut table)?;
    }
    if is_selected(Benchmark::Quantised) {
        bench.quantised(&mut table)?;
    }
    if is_selected(Benchmark::Scan) {
        bench.scan(&mut table)?;
    }
    if is_selected(Benchmark::Ranks) {
        bench.ranks(&mut table)?;
    }
    if is_selected(Benchmark::Large) {
        bench.large(&mut table)?;
    }
    println!("\n{}\n", machine());
    table.print();
    if !is_selected(Benchmark::Page) {
        return Ok(());
    }
    println!("\nThe page in a browser:");
    page::measure(&bench.statelens, &bench.folder.join("page"))?;
    let mut files = values::values_files(&bench.folder);
    files.retain(|file| file.exists());
    let netron = bench.python.as_ref().and_then(|python| netron(&python.current));
    page::rates(&bench.statelens, netron.as_deref(), &files)?;
    page_weight()
}

/// Returns the command that is measured: that of STATELENS_BENCH_BINARY, or a new one.
fn command() -> Result<PathBuf> {
    match std::env::var_os("STATELENS_BENCH_BINARY") {
        Some(path) => {
            let path = PathBuf::from(path);
            if !path.is_file() {
                bail!("STATELENS_BENCH_BINARY: {} is not a file", path.display());
            }
            Ok(path)
        }
        None => build(&["-p", "statelens-cli"], "statelens"),
    }
}

/// Builds with optimisations, and returns the path of a program.
fn build(what: &[&str], program: &str) -> Result<PathBuf> {
    shell::run(shell::command("cargo").args(["build", "--release", "--locked"]).args(what))?;
    Ok(project::target().join("release").join(program))
}

/// Returns the command `cp`, with its name in the table.
fn cp(source: &Path, target: &Path) -> (&'static str, Command) {
    let mut copy = shell::command("cp");
    copy.arg(source).arg(target);
    ("cp", copy)
}

fn remove(file: &Path) -> Result<()> {
    fs::remove_file(file).with_context(|| format!("removing {}", file.display()))
}

/// Returns the interpreters with the real libraries; `None` if they can't be installed, which skips
/// comparisons.
fn real_libraries() -> Option<python::Python> {
    match python::set_up(project::root()) {
        Ok(python) => Some(python),
        Err(error) => {
            println!("The real libraries can't be installed here, so they are left out: {error}");
            None
        }
    }
}

/// Returns the folder of Netron's page; `None` if it can't be installed.
fn netron(python: &Path) -> Option<PathBuf> {
    let folder = project::target().join("netron");
    let page = folder.join("netron");
    if !page.join("index.html").exists() {
        let mut install = shell::command(python);
        install.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"]);
        if let Err(error) = shell::run(install.arg(&folder).arg(NETRON)) {
            println!("Netron can't be installed here, so it is left out: {error}");
            return None;
        }
    }
    Some(page)
}

struct Bench {
    statelens: PathBuf,
    python: Option<python::Python>,
    script: PathBuf,
    folder: PathBuf,
}

impl Bench {
    fn ours(&self) -> Command {
        shell::command(&self.statelens)
    }

    fn convert(&self, options: &[&str], source: &Path, target: &Path) -> Command {
        let mut ours = self.ours();
        ours.args(["convert", "--force"]).args(options).arg(source).arg(target);
        ours
    }

    /// Returns a command that only reads a file.
    fn reads(&self, command: &str, file: &Path) -> Command {
        let mut ours = self.ours();
        ours.arg(command).arg(file);
        ours
    }

    fn theirs(&self, what: &str) -> Option<Command> {
        let python = self.python.as_ref()?;
        let mut command = shell::command(match what {
            "safetensors-to-tensorflow" => &python.tensorflow,
            "inputs" | "list" | "to-torch" | "to-cerebras" | "family-steps" => &python.cerebras,
            _ => &python.current,
        });
        command.arg(&self.script).arg(what).env("TF_CPP_MIN_LOG_LEVEL", "3");
        Some(command)
    }

    /// Returns a conversion by the real library, with its name in the table.
    fn library(&self, what: &str, source: &Path, target: &Path) -> Option<(&'static str, Command)> {
        let mut command = self.theirs(what)?;
        command.arg(source).arg(target);
        Some(("library", command))
    }

    /// Converts 500 MiB from format to format, compared with the libraries and `cp`.
    fn formats(&self, table: &mut ResultTable) -> Result<()> {
        let path = |name: &str| self.folder.join(name);
        let (torch, safetensors, h5) =
            (path("plain.pt"), path("plain.safetensors"), path("plain.mdl"));
        let Some(mut inputs) = self.theirs("plain-inputs") else { return Ok(()) };
        if !(torch.exists() && safetensors.exists()) {
            shell::run(inputs.arg(&self.folder).arg("plain"))?;
        }
        shell::run(&mut self.convert(&[], &torch, &h5))?;
        for (what, source, target, theirs) in [
            (".pt -> .safetensors", &torch, "plain-out.safetensors", "torch-to-safetensors"),
            (".safetensors -> .pt", &safetensors, "plain-out.pt", "safetensors-to-torch"),
            (".h5 -> .safetensors", &h5, "plain-out.safetensors", "h5-to-safetensors"),
            (".safetensors -> TensorFlow", &safetensors, "plain-out", "safetensors-to-tensorflow"),
        ] {
            let target = path(target);
            // The prefix of a bundle is not a file; the weights are in the data file, which is
            // removed before each run.
            let bundle = theirs.ends_with("tensorflow");
            let written =
                if bundle { path("plain-out.data-00000-of-00001") } else { target.clone() };
            let options: &[&str] = if bundle { &["--to", "tensorflow"] } else { &[] };
            for (other, wanted) in [
                (self.library(theirs, source, &target), "6 times faster"),
                (Some(cp(source, &written)), "within 1.3 of cp"),
            ] {
                let ours = self.convert(options, source, &target);
                let name = format!("500 MiB, {what}");
                table.add(&name, wanted, measure(ours, other, Some(&written))?);
            }
            remove(&written)?;
        }
        Ok(())
    }

    /// Measures how fast floats are cast: the whole process, relative to the bytes read.
    fn casts(&self, table: &mut ResultTable) -> Result<()> {
        Self::cast_pairs(table)?;
        let wide = self.folder.join("plain.safetensors");
        let narrow = self.folder.join("plain-bf16.safetensors");
        if !wide.exists() {
            return Ok(());
        }
        for (name, source, target, dtype) in [
            ("500 MiB, float32 -> bfloat16", &wide, &narrow, "bfloat16"),
            (
                "250 MiB, bfloat16 -> float32",
                &narrow,
                &self.folder.join("plain-f32.safetensors"),
                "float32",
            ),
        ] {
            let ours = self.convert(&["--cast", dtype], source, target);
            let bytes = fs::metadata(source)?.len();
            let measured = measure(ours, None, Some(target))?;
            let rate = bytes as f64 / 1e9 / measured.ours.wall.as_secs_f64();
            let wanted = format!("1.5 GB/s of input; measured {rate:.2}");
            table.add(name, &wanted, measured);
        }
        Ok(())
    }

    /// Measures each pair of dtypes on one core, by an example that counts the effects as
    /// conversions do.
    fn cast_pairs(table: &mut ResultTable) -> Result<()> {
        let casts = build(&["-p", "statelens-tensor", "--example", "casts"], "examples/casts")?;
        let printed = shell::output(&mut shell::command(casts)).context("casts failed")?;
        for line in printed.lines() {
            if let [from, to, rate] = line.split(' ').collect::<Vec<_>>()[..] {
                let rate = format!("{rate} million/s");
                table.rate(&format!("{from} -> {to}"), &rate, "300 million values/s and core");
            }
        }
        Ok(())
    }

    /// Converts 5 GB of random numbers from one Cerebras format to the other, compares and verifies
    /// the results. The measure is peak memory. Needs 15 GB of disk, and frees it again.
    fn large(&self, table: &mut ResultTable) -> Result<()> {
        let path = |name: &str| self.folder.join(format!("large{name}"));
        let (torch, new, old, out) =
            (path(".pt"), path(".mdl"), path("-0.4.mdl"), path("-out.mdl"));
        let Some(mut inputs) = self.theirs("inputs") else { return Ok(()) };
        shell::run(inputs.arg(&self.folder).arg("large").arg(LARGE_ROWS.to_string()))?;
        fs::remove_file(&torch)?;
        let wanted = "under 64 MB of peak memory";
        let upgrade = |source: &Path, to: &str, target: &Path| {
            let mut ours = self.ours();
            ours.arg("upgrade").arg(source).args(["--to", to, "-o"]).arg(target);
            measure(ours, None, Some(target))
        };
        table.add("5 GB, format 0.5 (LZ4) -> 0.4", wanted, upgrade(&new, "0.4", &old)?);
        table.add("5 GB, format 0.4 -> 0.5", wanted, upgrade(&old, "0.5", &out)?);
        let mut diff = self.ours();
        diff.arg("diff").arg(&old).arg(&new);
        table.add("5 GB, diff with 5 GB (LZ4)", wanted, measure(diff, None, None)?);
        let verify = self.reads("verify", &new);
        table.add("5 GB, verify (LZ4)", wanted, measure(verify, None, None)?);
        [new, old, out].iter().try_for_each(|file| remove(file))
    }

    fn listing(&self, table: &mut ResultTable) -> Result<()> {
        let file = project::root().join("tests/fixtures/cerebras/v2.10.0/gpt_small.mdl");
        let theirs = self.theirs("list").map(|mut command| {
            command.arg(&file);
            ("library", command)
        });
        let measured = measure(self.reads("ls", &file), theirs, None)?;
        table.add("list gpt_small.mdl", "50 times faster", measured);
        Ok(())
    }

    /// Opens a file with very many tensors in every readable format.
    fn many_tensors(&self, table: &mut ResultTable) -> Result<()> {
        let Some(python) = &self.python else { return Ok(()) };
        let script = project::root().join("benches").join("many.py");
        let folder = self.folder.join("many");
        for (interpreter, what) in [(&python.current, "torch"), (&python.tensorflow, "tensorflow")]
        {
            let mut inputs = shell::command(interpreter);
            inputs.arg(&script).arg(what).arg(&folder).env("TF_CPP_MIN_LOG_LEVEL", "3");
            shell::run(&mut inputs)?;
        }
        let mut names: Vec<String> = fs::read_dir(&folder)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            // A bundle is named by its prefix.
            .filter_map(|name| match name.split_once(".data-") {
                Some((prefix, _)) => Some(prefix.to_owned()),
                None => (!name.ends_with(".index")).then_some(name),
            })
            .collect();
        names.sort();
        for name in names {
            let ours = self.reads("info", &folder.join(&name));
            let count = if name == "zip64.pt" { "66,000" } else { "20,000" };
            let what = format!("open {count} tensors, {name}");
            table.add(&what, "under 0.3 s", measure(ours, None, None)?);
        }
        Ok(())
    }

    fn many_keys(&self, table: &mut ResultTable) -> Result<()> {
        let torch = statelens_fixtures::path("torch/zip_many_20k.pt");
        let cerebras = self.folder.join("many.mdl");
        shell::run(&mut self.convert(&[], &torch, &cerebras))?;
        for (name, file) in [("open 20,000 keys, .pt", torch), ("open 20,000 keys, .mdl", cerebras)]
        {
            table.add(name, "under 0.3 s", measure(self.reads("info", &file), None, None)?);
        }
        // A command that opens no file, whose memory is that of the process itself.
        let mut idle = self.ours();
        idle.arg("formats");
        let baseline = measure(idle, None, None)?.ours.peak;
        let mut few = HashMap::new();
        for count in KEYS {
            self.keys(count, baseline, &mut few, table)?;
        }
        Ok(())
    }

    /// Measures time and memory for many keys, which may grow only linearly with their number.
    /// `few` holds the times of the first number of keys, by operation.
    fn keys(
        &self,
        count: u64,
        baseline: u64,
        few: &mut HashMap<String, Duration>,
        table: &mut ResultTable,
    ) -> Result<()> {
        let source = self.folder.join(format!("keys-{count}.safetensors"));
        made(&source, |path| many_keys(path, count))?;
        let mut add = |what: String, result: BenchResult| {
            let Ran { wall, peak } = result.ours;
            let each = peak.saturating_sub(baseline) / count;
            let mut text = format!("under 600 bytes a key; measured {each}");
            let first = *few.entry(what.clone()).or_insert(wall);
            if count > KEYS[0] {
                let (more, times) = (count / KEYS[0], wall.as_secs_f64() / first.as_secs_f64());
                text += &format!(
                    "; {more} times the keys within 8 times the time; measured {times:.1}"
                );
            }
            table.add(&format!("{what}, {count} keys"), &text, result);
        };
        for kind in ["safetensors", "pt", "npz", "mdl"] {
            let file = source.with_extension(kind);
            if file != source {
                // The older version, which has a dataset for each leaf; the page's rows have the
                // newer one.
                let older: &[&str] = if kind == "mdl" { &["--format-version", "0.4"] } else { &[] };
                let ours = self.convert(older, &source, &file);
                add(format!(".safetensors -> .{kind}"), measure(ours, None, Some(&file))?);
            }
            for command in ["info", "ls"] {
                let ours = self.reads(command, &file);
                add(format!("{command} .{kind}"), measure(ours, None, None)?);
            }
            if file != source {
                remove(&file)?;
            }
        }
        Ok(())
    }

    fn conversions(&self, name: &str, rows: u32, table: &mut ResultTable) -> Result<()> {
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
        // The library's file has LZ4 chunks; this is the same without them.
        let contiguous = input("-contiguous.mdl");
        shell::run(&mut self.convert(&[], &torch, &contiguous))?;
        let (to_torch, to_cerebras) = (input("-out.pt"), input("-out.mdl"));
        for (kind, source, target, other, wanted) in [
            (".mdl (LZ4) -> .pt", &cerebras, &to_torch, "to-torch", "8 times faster"),
            (".pt -> .mdl", &torch, &to_cerebras, "to-cerebras", "8 times faster"),
            (".mdl (contiguous) -> .pt", &contiguous, &to_torch, "cp", "within 1.5 of cp"),
            (".pt -> .mdl (contiguous)", &torch, &to_cerebras, "cp", "within 1.5 of cp"),
        ] {
            let ours = self.convert(&[], source, target);
            let other = match other {
                "cp" => Some(cp(source, target)),
                what => self.library(what, source, target),
            };
            table.add(&format!("{name}, {kind}"), wanted, measure(ours, other, Some(target))?);
        }
        [to_torch, to_cerebras].iter().try_for_each(|output| remove(output))
    }
}

/// Makes an input unless it exists. It is renamed when complete, so that an interrupted run does
/// not leave a partial file under its name.
fn made(path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let part = path.with_added_extension("part");
    make(&part)?;
    fs::rename(&part, path).with_context(|| format!("renaming {}", part.display()))
}

/// Writes a safetensors file of `count` tensors of eight bytes.
///
/// It is written in pieces to keep this process small: the peak memory reported for a child process
/// includes that of its parent when it was started.
fn many_keys(path: &Path, count: u64) -> Result<()> {
    let entry = |index: u64| {
        let (layer, part, from) = (index / 10, index % 10, index * 8);
        let mark = if index == 0 { '{' } else { ',' };
        format!(
            "{mark}\"model.layers.{layer}.part{part}\":\
             {{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[{from},{}]}}",
            from + 8
        )
    };
    let header = (0..count).map(|index| entry(index).len() as u64).sum::<u64>() + 1;
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    out.write_all(&header.to_le_bytes())?;
    for index in 0..count {
        out.write_all(entry(index).as_bytes())?;
    }
    out.write_all(b"}")?;
    for _ in 0..count {
        out.write_all(&[1; 8])?;
    }
    Ok(out.flush()?)
}

/// The duration and peak memory of a process.
#[derive(Clone, Copy)]
struct Ran {
    wall: Duration,
    peak: u64,
}

impl Ran {
    fn best(self, other: Option<Self>) -> Self {
        match other {
            None => self,
            Some(other) => {
                Self { wall: self.wall.min(other.wall), peak: self.peak.max(other.peak) }
            }
        }
    }
}

/// The measurements of our command, and of the one it is compared with.
struct BenchResult {
    ours: Ran,
    other: Option<(&'static str, Ran)>,
}

/// Runs both commands alternately; `output` is the file that they write, which is removed before
/// each run.
fn measure(
    mut ours: Command,
    other: Option<(&'static str, Command)>,
    output: Option<&Path>,
) -> Result<BenchResult> {
    println!("$ {}", shell::shown(&ours));
    let (name, mut other) = other.map_or(("", None), |(name, command)| (name, Some(command)));
    if let Some(other) = &other {
        println!("$ {}", shell::shown(other));
    }
    let (mut best, mut best_other) = (None, None);
    for _ in 0..REPEAT {
        best = Some(once(&mut ours, output)?.best(best));
        if let Some(other) = &mut other {
            best_other = Some(once(other, output)?.best(best_other));
        }
    }
    let ours = best.context("nothing was measured")?;
    Ok(BenchResult { ours, other: best_other.map(|ran| (name, ran)) })
}

fn once(command: &mut Command, output: Option<&Path>) -> Result<Ran> {
    if let Some(output) = output.filter(|output| output.exists()) {
        fs::remove_file(output)?;
    }
    // Output of earlier runs must not be written back to disk while this one is timed.
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
    Ok(Ran { wall, peak: usage.rusage.maxrss })
}

#[derive(Default)]
struct ResultTable {
    rows: Vec<[String; 7]>,
}

impl ResultTable {
    fn add(&mut self, what: &str, wanted: &str, result: BenchResult) {
        let BenchResult { ours, other } = result;
        let time = |run: Ran| format!("{:.3} s", run.wall.as_secs_f64());
        let memory = |run: Ran| format!("{} MB", run.peak / 1_000_000);
        let (name, other_time, other_memory, ratio) = match other {
            None => (String::new(), String::new(), String::new(), String::new()),
            Some((name, run)) => {
                let (ours, theirs) = (ours.wall.as_secs_f64(), run.wall.as_secs_f64());
                let ratio = match name {
                    "cp" | "decoding" => format!("{:.2} of {name}", ours / theirs),
                    "a sum" | "a sum, mapped" => {
                        format!("{:.0} % of its speed", 100.0 * theirs / ours)
                    }
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
        // Print at once too, since a later row may fail.
        println!("{}", row.join("  "));
        self.rows.push(row);
    }

    /// Adds a row that only has a rate, with its unit.
    fn rate(&mut self, what: &str, rate: &str, wanted: &str) {
        let mut row = [const { String::new() }; 7];
        (row[0], row[5], row[6]) = (what.into(), rate.into(), wanted.into());
        println!("{}", row.join("  "));
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

/// Prints the size of what a browser downloads for the small page.
fn page_weight() -> Result<()> {
    dist::weigh(&site::build(Goal::Small)?).map(drop)
}
