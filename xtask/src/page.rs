//! Building the page with Trunk, and testing it in a browser.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use statelens_serve::{ServedFolder, Server};

use crate::setup::{self, WasmEnv};
use crate::{project, shell, single, site};

/// What the site is made of; a change to any of it makes a new build.
const SOURCES: [&str; 9] = [
    "index.html",
    "Trunk.toml",
    "Cargo.toml",
    "Cargo.lock",
    "web",
    "crates",
    "xtask/src/pack.rs",
    "xtask/src/site.rs",
    "xtask/src/split",
];

/// If set, the page is compiled without optimisation and not packed: for trying a change, not for
/// measuring or shipping it.
const QUICK: &str = "STATELENS_QUICK_PAGE";

/// What cargo is told for a quick build; the profile itself is named in index.html.
const QUICKER: [(&str, &str); 4] = [
    ("CARGO_PROFILE_WASM_OPT_LEVEL", "1"),
    ("CARGO_PROFILE_WASM_LTO", "off"),
    ("CARGO_PROFILE_WASM_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_WASM_INCREMENTAL", "true"),
];

/// What cargo is told for any other: with vectors (SIMD), and names of functions say which types they were made
/// for, by which the Wasm is divided (xtask/src/split).
const RELEASE: (&str, &str) = (
    "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS",
    "-Ctarget-feature=+simd128 -Csymbol-mangling-version=v0",
);

/// As many test files run again where a test in them failed; where more did, the page is broken.
const AGAIN: usize = 3;

/// Builds the site into dist/, unless it is up to date.
pub(crate) fn build() -> Result<()> {
    let env = setup::page()?;
    let quick = env::var_os(QUICK).is_some();
    let index = project::site().join("index.html");
    let stamp = project::target().join("page.stamp");
    let sources = fingerprint(&env)?;
    let expected = |built: SystemTime| format!("{sources:x} {built:?} {quick}");
    if let Ok(built) = modified(&index)
        && fs::read_to_string(&stamp).is_ok_and(|text| text == expected(built))
        && whole().join("index.html").exists()
    {
        println!("The page in dist/ is up to date.");
        return Ok(());
    }
    println!("\n== Build the page ({}) into dist/", if quick { "quick" } else { "release" });
    // Trunk works offline: it would download tools that it does not find, and here they are all found.
    let target = setup::wasm::TARGET;
    shell::run(env.command("cargo").args(["fetch", "--locked", "--target", target]))?;
    let build = || {
        let mut trunk = trunk(&env);
        trunk.args(["build", "--offline", "--skip-version-check"]);
        trunk
    };
    if quick {
        shell::run(build().envs(QUICKER))?;
        site::finish(&project::site(), false, None)?;
    } else {
        // The names that wasm-opt writes are to be those of the second build, which is divided.
        shell::run(build().args(["--release", "--dist"]).arg(whole()))?;
        site::finish(&whole(), false, None)?;
        shell::run(build().arg("--release").env(RELEASE.0, RELEASE.1))?;
        site::finish(&project::site(), true, Some(&whole()))?;
    }
    fs::create_dir_all(project::target())?;
    fs::write(&stamp, expected(modified(&index)?)).context("writing target/page.stamp")
}

/// The site without vectors, whose Wasm is neither divided nor packed: what a browser without vectors takes, and what
/// the page in one file is made of. Of a quick build it is the site itself.
pub(crate) fn whole() -> PathBuf {
    if env::var_os(QUICK).is_some() { project::site() } else { project::target().join("plain") }
}

/// Builds the page and serves it until the program is stopped.
pub(crate) fn serve(port: u16) -> Result<()> {
    build()?;
    let server = start_server(port)?;
    println!("\nStatelens is at {}  (Ctrl-C stops it)", server.address());
    server.wait();
    Ok(())
}

/// Builds the page, and the command with the page in it.
pub(crate) fn build_all() -> Result<()> {
    build()?;
    shell::run(&mut command_with_page(&["--release", "-p", "statelens-cli"]))?;
    let command = project::target().join("release").join("statelens");
    println!("\nThe command: {}\nThe page:    {}", command.display(), project::site().display());
    Ok(())
}

/// Builds what the page's tests need and runs them.
pub(crate) fn test(filter: Option<&str>) -> Result<()> {
    build()?;
    test_built(filter)
}

/// Runs the page's tests against the site in dist/.
pub(crate) fn test_built(filter: Option<&str>) -> Result<()> {
    let browser = setup::page_tests()?;
    // Files that the page saves are compared with those that the command writes, and the command
    // serves the page itself.
    shell::run(&mut command_with_page(&DEBUG_COMMAND))?;
    let command = project::target().join("debug").join("statelens");
    let files = test_files(filter)?;
    statelens_fixtures::make().context("making target/fixtures")?;
    let single = single::build(&whole())?;
    let server = start_server(0)?;
    let run = |at_once: usize, files: &[PathBuf]| {
        let mut node = node(&server, &browser, &command);
        node.env("STATELENS_SINGLE", &single);
        tests_run(node, at_once, files)
    };
    let failed = run(2, &files)?;
    if failed.is_empty() {
        return Ok(());
    }
    let again: BTreeSet<PathBuf> = failed.iter().map(|(file, _)| file.clone()).collect();
    if again.len() > AGAIN {
        bail!("{} of the page's tests failed:\n{}", failed.len(), told(&failed));
    }
    // A computer that is busy with other things may be too slow for what a test waits for. What
    // fails on its own, too, is broken.
    println!(
        "\n== These failed, and their files run again, one test at a time:\n{}",
        told(&failed)
    );
    let failed = run(1, &Vec::from_iter(again))?;
    if !failed.is_empty() {
        bail!("tests of the page failed twice:\n{}", told(&failed));
    }
    println!("\nAll of them passed the second time.");
    Ok(())
}

/// Runs test files, so many at once, and gives those that failed: the file, and the name with the error.
fn tests_run(
    mut node: Command,
    at_once: usize,
    files: &[PathBuf],
) -> Result<Vec<(PathBuf, String)>> {
    let list = project::target().join("page-failures.txt");
    let reporter = project::root().join("tests/page/failures.mjs");
    fs::write(&list, "").context("writing target/page-failures.txt")?;
    node.arg("--test").arg(format!("--test-concurrency={at_once}"));
    node.args(["--test-reporter=spec", "--test-reporter-destination=stdout"]);
    node.arg("--test-reporter").arg(reporter).arg("--test-reporter-destination").arg(&list);
    let outcome = shell::run(node.args(files));
    let lines = fs::read_to_string(&list).context("reading target/page-failures.txt")?;
    let failed: Vec<(PathBuf, String)> = lines
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(file, error)| (PathBuf::from(file), error.to_owned()))
        .collect();
    match outcome {
        Err(error) if failed.is_empty() => Err(error),
        _ => Ok(failed),
    }
}

/// A line for each test that failed.
fn told(failed: &[(PathBuf, String)]) -> String {
    let lines = failed.iter().map(|(file, error)| {
        let file = file.file_name().unwrap_or_default().to_string_lossy();
        format!("    {file}: {error:.400}\n")
    });
    lines.collect()
}

/// Measures the page in a browser, with files of very many keys that the given command makes.
pub(crate) fn measure(command: &Path, folder: &Path) -> Result<()> {
    build()?;
    let browser = setup::page_tests()?;
    let server = start_server(0)?;
    let mut node = node(&server, &browser, command);
    shell::run(node.arg(project::root().join("tests/page/measure.mjs")).arg(folder))
}

/// Measures how fast the page goes through the values of files, beside a bare stream and beside Netron, whose
/// page is in that folder.
pub(crate) fn rates(command: &Path, netron: Option<&Path>, files: &[PathBuf]) -> Result<()> {
    let browser = setup::page_tests()?;
    let server = start_server(0)?;
    let mut node = node(&server, &browser, command);
    node.arg(project::root().join("tests/page/rates.mjs")).arg(netron.unwrap_or(Path::new("")));
    shell::run(node.args(files))
}

/// Measures how long the page takes to start, packed as it is shipped and as Trunk builds it, from hosts
/// that compress and from such that don't.
pub(crate) fn startup() -> Result<()> {
    build()?;
    let folder = |name: &str, path: &Path| format!("{name}={}", path.display());
    let mut node = shell::command("node");
    node.env("STATELENS_CHROMIUM", setup::page_tests()?);
    node.arg(project::root().join("tests/page/startup.mjs"));
    shell::run(node.args([folder("packed", &project::site()), folder("plain", &whole())]))
}

/// Takes pictures: of every screen that axe looks at in the tests, and those of the documents.
pub(crate) fn pictures() -> Result<()> {
    build()?;
    let browser = setup::page_tests()?;
    let command = debug_command()?;
    let server = start_server(0)?;
    statelens_fixtures::make().context("making target/fixtures")?;
    let folder = project::target().join("pictures");
    fs::create_dir_all(&folder).context("making target/pictures")?;
    let script = project::root().join("tests/page/pictures.mjs");
    shell::run(
        node(&server, &browser, &command).arg(script).arg(project::root().join("docs/images")),
    )?;
    let mut tests = node(&server, &browser, &command);
    tests.args([
        "--test",
        "--test-concurrency=1",
        "--test-reporter=spec",
        "--test-name-pattern=axe|every screen|what goes on|loading, findings",
    ]);
    shell::run(tests.env("STATELENS_PICTURES", &folder).args(test_files(None)?))
}

/// Node, told where the site, the browser and the command are.
fn node(server: &Server, browser: &Path, command: &Path) -> Command {
    let mut node = shell::command("node");
    node.env("STATELENS_URL", server.address());
    node.env("STATELENS_CHROMIUM", browser);
    node.env("STATELENS_COMMAND", command);
    node
}

/// The command compiled quickly rather than to be quick. With it comes an example: then crates have the features that
/// only tests ask of them, as they have in `cargo test`, and what was compiled for that serves here.
const DEBUG_COMMAND: [&str; 4] = ["--bin", "statelens", "--example", "list"];

/// The command `statelens` as tests use it.
pub(crate) fn debug_command() -> Result<PathBuf> {
    shell::run(shell::command("cargo").args(["build", "--locked"]).args(DEBUG_COMMAND))?;
    Ok(project::target().join("debug").join("statelens"))
}

/// Compiles the command with the built page inside, for `statelens serve`.
fn command_with_page(what: &[&str]) -> Command {
    let mut cargo = shell::command("cargo");
    cargo.args(["build", "--locked"]).args(what);
    cargo.env("STATELENS_SITE", project::site());
    cargo
}

/// Serves the built site.
fn start_server(port: u16) -> Result<Server> {
    let site = project::site();
    let folder =
        ServedFolder::new(&site).with_context(|| format!("{} is not there", site.display()))?;
    Ok(Server::start(folder, port)?)
}

/// Trunk, which is told where the tools are by the environment only.
fn trunk(env: &WasmEnv) -> Command {
    let mut trunk = env.command("trunk");
    trunk.env_remove("NO_COLOR");
    trunk
}

fn test_files(filter: Option<&str>) -> Result<Vec<PathBuf>> {
    let folder = project::root().join("tests/page");
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).context("reading tests/page")? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".test.mjs") && filter.is_none_or(|part| name.contains(part)) {
            files.push(path);
        }
    }
    if files.is_empty() {
        bail!(
            "no file in tests/page ends in `.test.mjs` and matches `{}`",
            filter.unwrap_or_default()
        );
    }
    files.sort();
    Ok(files)
}

/// A number that changes when a source of the site, or the toolchain, does.
fn fingerprint(env: &WasmEnv) -> Result<u64> {
    let mut files: Vec<PathBuf> = SOURCES.iter().map(|name| project::root().join(name)).collect();
    let mut hasher = DefaultHasher::new();
    env.identity().hash(&mut hasher);
    while let Some(path) = files.pop() {
        let about = fs::metadata(&path).with_context(|| format!("reading {}", path.display()))?;
        if about.is_dir() {
            let mut inside: Vec<PathBuf> = fs::read_dir(&path)?
                .map(|entry| entry.map(|e| e.path()))
                .collect::<Result<_, _>>()?;
            inside.sort();
            files.extend(inside);
        } else {
            (&path, about.len(), about.modified()?).hash(&mut hasher);
        }
    }
    Ok(hasher.finish())
}

fn modified(path: &Path) -> Result<SystemTime> {
    let about = fs::metadata(path).with_context(|| format!("{} was not built", path.display()))?;
    Ok(about.modified()?)
}
