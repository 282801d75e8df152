//! Short runs of the fuzz targets, so that they keep compiling and fixed bugs stay fixed.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::cycles::format_ids;
use crate::{built, project, setup, shell};

/// Limits per input: more than any reader's own limits, with room for the fuzzer itself and, since
/// the timeout is in wall-clock time, for the page being built concurrently. Messages about inputs
/// without problems are turned off.
const OPTIONS: [&str; 5] = [
    "-timeout=60",
    "-rss_limit_mb=1024",
    "-max_len=1048576",
    "-verbosity=0",
    "-print_final_stats=1",
];

/// Downloads the dependencies. Fails if the lock file is outdated, which cargo-fuzz would silently
/// update.
pub(crate) fn fetch() -> Result<()> {
    let manifest = project::root().join("fuzz/Cargo.toml");
    let mut fetch = shell::command("cargo");
    shell::run(fetch.args(["fetch", "--quiet", "--locked", "--manifest-path"]).arg(manifest))
}

/// Runs each target that has seeds for some seconds. Mutations are random unless there is a seed for
/// them.
pub(crate) fn run(seconds: u32, filter: Option<&str>, seed: Option<u32>) -> Result<()> {
    let cargo_fuzz = setup::tools::cargo_fuzz()?;
    statelens_fixtures::make()?;
    fetch()?;
    for target in targets(filter)? {
        println!("\n== Fuzz {target} for {seconds} s");
        let corpus = project::root().join("fuzz/corpus").join(&target);
        let artifacts = project::root().join("fuzz/artifacts").join(&target);
        for folder in [&corpus, &artifacts] {
            fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        let mut fuzz = shell::command(&cargo_fuzz);
        // Coverage instrumentation is a nightly option; this allows it on the toolchain in use. The
        // address sanitizer is off: there is no unsafe code to check, and it halves the speed.
        fuzz.env("RUSTC_BOOTSTRAP", "1").args(["fuzz", "run", "--sanitizer", "none", "--fuzz-dir"]);
        fuzz.arg(project::root().join("fuzz")).arg("targets").env("STATELENS_FUZZ_TARGET", &target);
        let seeds = seed_list(&target)?;
        fuzz.arg(corpus).arg("--").arg(format!("-seed_inputs=@{}", seeds.display()));
        fuzz.arg(format!("-artifact_prefix={}/", artifacts.display()));
        fuzz.args(OPTIONS).arg(format!("-max_total_time={seconds}"));
        fuzz.args(seed.map(|seed| format!("-seed={seed}")));
        shell::run(&mut fuzz)?;
    }
    Ok(())
}

/// Returns the names of the targets: those of the lists of seeds, and the formats with fixtures in a
/// folder of their id.
fn targets(filter: Option<&str>) -> Result<Vec<String>> {
    let matches = |name: &String| filter.is_none_or(|part| name.contains(part));
    let ids = format_ids()?.into_iter().filter(|id| format_seeds(id).is_dir());
    let mut names: Vec<String> = ids.filter(matches).collect();
    for entry in fs::read_dir(project::root().join("fuzz/seeds")).context("reading fuzz/seeds")? {
        let path = entry?.path();
        if path.extension().is_some_and(|kind| kind == "txt") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if matches(&name) && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    if names.is_empty() {
        bail!("no fuzz target matches `{}`", filter.unwrap_or_default());
    }
    names.sort();
    Ok(names)
}

/// Returns the folder with the fixtures of a format that are named after its id.
fn format_seeds(id: &str) -> PathBuf {
    project::root().join("target/fixtures").join(id)
}

/// Writes the list of seed files of a target in libFuzzer's format.
///
/// `fuzz/seeds/TARGET.txt` lists folders, one per line, each followed by the extensions of the
/// files to take, if not all. Without it, the target is a format, and the seeds are its fixtures.
fn seed_list(target: &str) -> Result<PathBuf> {
    let path = project::root().join("fuzz/seeds").join(format!("{target}.txt"));
    let text = match path.exists() {
        true => fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?,
        false => format_seeds(target).display().to_string(),
    };
    let mut seeds = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let folder = project::root().join(words.next().unwrap_or_default());
        let extensions: Vec<&str> = words.collect();
        let files = built::files_under(&folder)
            .with_context(|| format!("{} names {line}", path.display()))?;
        for file in files {
            let extension = file.extension().unwrap_or_default().to_string_lossy();
            if extensions.is_empty() || extensions.contains(&&*extension) {
                seeds.push(folder.join(file).display().to_string());
            }
        }
    }
    if seeds.is_empty() {
        bail!("{} names no files", path.display());
    }
    let list = project::target().join(format!("fuzz-{target}.txt"));
    fs::write(&list, seeds.join(",")).context("writing the list of seeds")?;
    Ok(list)
}
