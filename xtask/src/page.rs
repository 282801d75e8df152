//! Serves the page, and tests and measures it in a browser.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use statelens_serve::{ServedFolder, Server};

use crate::site::Goal;
use crate::{project, setup, shell, single, site};

/// The files of page tests that CI runs completely: features that no core test covers, and features
/// that lose data if they break.
const CI_FILES: [&str; 8] =
    ["axe", "compare", "convert", "desktop", "open", "session", "share", "verify"];

/// Marks the page tests that `cargo xtask test` runs, at the end of their names.
const CORE: &str = "(core)";

/// Builds the fast page into `dist/`, unless it is up to date.
pub(crate) fn build() -> Result<PathBuf> {
    println!("\n== Build the page");
    site::build(Goal::Fast)
}

/// Builds the page and serves it until the program is stopped.
pub(crate) fn serve(port: u16) -> Result<()> {
    let server = start_server(&build()?, port)?;
    println!("\nStatelens is at {}  (Ctrl-C stops it)", server.address());
    server.wait();
    Ok(())
}

/// Builds the small page, and the command with the page in it.
pub(crate) fn build_all() -> Result<()> {
    let site = site::build(Goal::Small)?;
    shell::run(&mut command_with_page(&site, &["--release", "-p", "statelens-cli"]))?;
    let command = project::target().join("release").join("statelens");
    println!("\nThe command: {}\nThe page:    {}", command.display(), site.display());
    Ok(())
}

/// Runs the smoke tests on the small site.
pub(crate) fn smoke_tests_of_small_page(features: Features) -> Result<()> {
    smoke_tests(&[site::build(Goal::Small)?], features)
}

/// Runs the smoke tests on the small site, and on the site that Trunk builds.
pub(crate) fn smoke_tests_of_other_builds() -> Result<()> {
    smoke_tests(&[site::build(Goal::Small)?, site::build_with_trunk()?], &[])
}

fn smoke_tests(sites: &[PathBuf], features: Features) -> Result<()> {
    let (browser, command) = (setup::page_tests()?, debug_command(features)?);
    statelens_fixtures::make().context("making target/fixtures")?;
    let files = test_files(PageTests::Named("smoke"))?;
    for site in sites {
        println!("\n== Smoke tests of {}", site.display());
        let server = start_server(site, 0)?;
        let mut node = node(&server, &browser, &command);
        shell::run(node.args(["--test", "--test-reporter=spec"]).args(&files))?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
pub(crate) enum PageTests<'a> {
    /// Those whose names end in `(core)`: the main job of each screen.
    Core,
    /// Those of [`CI_FILES`], and the core tests of the other files.
    Ci,
    All,
    /// Those in files whose names contain this.
    Named(&'a str),
}

/// Builds the fast page if it is not up to date, and runs its tests.
pub(crate) fn test(which: PageTests<'_>, features: Features) -> Result<()> {
    let site = build()?;
    let browser = setup::page_tests()?;
    // Files that the page saves are compared with those of the command, which also serves the page
    // itself.
    let command = debug_command_with_page(features)?;
    let files = test_files(which)?;
    statelens_fixtures::make().context("making target/fixtures")?;
    let single = single::build(&site)?;
    let server = start_server(&site, 0)?;
    let list = project::target().join("page-failures.txt");
    fs::write(&list, "").context("writing target/page-failures.txt")?;
    let run = |files: &[PathBuf], core: bool| -> Result<()> {
        let mut node = node(&server, &browser, &command);
        node.env("STATELENS_SINGLE", &single).args(["--test", "--test-concurrency=2"]);
        if core {
            node.arg(format!("--test-name-pattern={}$", CORE.replace(['(', ')'], ".")));
        }
        node.args(["--test-reporter=spec", "--test-reporter-destination=stdout"]);
        node.arg("--test-reporter").arg(project::root().join("tests/page/failures.mjs"));
        node.arg("--test-reporter-destination").arg(&list);
        shell::run(node.args(files))
    };
    let mut failed = String::new();
    let mut outcome = Ok(());
    let (whole, core): (Vec<PathBuf>, Vec<PathBuf>) = match which {
        PageTests::Core => (Vec::new(), files),
        PageTests::Ci => files.into_iter().partition(|file| is_in_ci(file)),
        PageTests::All | PageTests::Named(_) => (files, Vec::new()),
    };
    for (files, core) in [(whole, false), (core, true)] {
        if !files.is_empty() {
            outcome = outcome.and(run(&files, core));
            failed += &fs::read_to_string(&list).context("reading target/page-failures.txt")?;
        }
    }
    match failed.lines().count() {
        0 => outcome,
        count => bail!("{count} of the page's tests failed:\n{}", listed(&failed)),
    }
}

/// Returns whether CI runs all tests of a file.
fn is_in_ci(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(".test.mjs").is_some_and(|name| CI_FILES.contains(&name))
}

/// Returns a line for each failed test: its file, its name and the error.
fn listed(failed: &str) -> String {
    let lines = failed.lines().filter_map(|line| line.split_once('\t'));
    lines
        .map(|(file, error)| {
            let file = Path::new(file).file_name().unwrap_or_default().to_string_lossy();
            format!("    {file}: {error:.400}\n")
        })
        .collect()
}

/// Measures the fast page and the small one in a browser, with files of very many keys that the
/// given command makes.
pub(crate) fn measure(command: &Path, folder: &Path) -> Result<()> {
    let browser = setup::page_tests()?;
    for goal in [Goal::Fast, Goal::Small] {
        println!("\n{goal:?} page:");
        let server = start_server(&site::build(goal)?, 0)?;
        let mut node = node(&server, &browser, command);
        shell::run(node.arg(project::root().join("tests/page/measure.mjs")).arg(folder))?;
    }
    Ok(())
}

/// Measures how fast the fast page and the small one read the values of files, compared with a bare
/// stream and with Netron, whose page is in that folder; and all passes over the bytes of a file.
pub(crate) fn rates(command: &Path, netron: Option<&Path>, files: &[PathBuf]) -> Result<()> {
    let browser = setup::page_tests()?;
    for goal in [Goal::Fast, Goal::Small] {
        println!("\n{goal:?} page:");
        let server = start_server(&site::build(goal)?, 0)?;
        let mut node = node(&server, &browser, command);
        node.arg(project::root().join("tests/page/rates.mjs"));
        node.arg(netron.unwrap_or(Path::new("")));
        shell::run(node.args(files))?;
        for file in files {
            let mut node = self::node(&server, &browser, command);
            node.arg(project::root().join("tests/page/passes.mjs"));
            shell::run(node.arg(file))?;
        }
    }
    Ok(())
}

/// Measures how long the small page takes to start, from hosts with and without compression.
pub(crate) fn startup() -> Result<()> {
    let site = site::build(Goal::Small)?;
    let mut node = shell::command("node");
    node.env("STATELENS_CHROMIUM", setup::page_tests()?);
    node.arg(project::root().join("tests/page/startup.mjs"));
    shell::run(node.arg(format!("small={}", site.display())))
}

/// Takes pictures of every screen that the tests check with axe, and those of the documents.
pub(crate) fn pictures() -> Result<()> {
    let site = build()?;
    let browser = setup::page_tests()?;
    let command = debug_command(&[])?;
    let server = start_server(&site, 0)?;
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
    shell::run(tests.env("STATELENS_PICTURES", &folder).args(test_files(PageTests::All)?))
}

/// Returns a Node command with the locations of the site, the browser and the command in its
/// environment.
fn node(server: &Server, browser: &Path, command: &Path) -> Command {
    let mut node = shell::command("node");
    node.env("STATELENS_URL", server.address());
    node.env("STATELENS_CHROMIUM", browser);
    node.env("STATELENS_COMMAND", command);
    node
}

/// Builds the command for debugging. The examples give crates the features that only tests request,
/// as in `cargo test`, so that the artifacts compiled for the tests are reused.
const DEBUG_COMMAND: &str = "
    --workspace --exclude statelens-app --exclude xtask-bindgen --bin statelens --example list
    --example scan_batch
";

/// The arguments of cargo that enable optional features.
pub(crate) type Features = &'static [&'static str];

/// Builds the command `statelens` for tests, and returns its path.
pub(crate) fn debug_command(features: Features) -> Result<PathBuf> {
    let mut cargo = shell::command("cargo");
    shell::run(
        cargo
            .args(["build", "--locked"])
            .args(DEBUG_COMMAND.split_ascii_whitespace())
            .args(features),
    )?;
    Ok(project::target().join("debug").join("statelens"))
}

/// Builds the command as [`debug_command`] does, in the same place, with the fast page in it if that
/// is built.
pub(crate) fn debug_command_with_page(features: Features) -> Result<PathBuf> {
    let site = project::site();
    if !site.is_dir() {
        return debug_command(features);
    }
    let what = DEBUG_COMMAND.split_ascii_whitespace().chain(features.iter().copied());
    shell::run(&mut command_with_page(&site, &what.collect::<Vec<_>>()))?;
    Ok(project::target().join("debug").join("statelens"))
}

/// Returns the cargo command that compiles the command with the built page inside, for
/// `statelens serve`.
fn command_with_page(site: &Path, what: &[&str]) -> Command {
    let mut cargo = shell::command("cargo");
    cargo.args(["build", "--locked"]).args(what);
    cargo.env("STATELENS_SITE", site);
    cargo
}

fn start_server(site: &Path, port: u16) -> Result<Server> {
    let folder =
        ServedFolder::new(site).with_context(|| format!("{} is not there", site.display()))?;
    Ok(Server::start(folder, port)?)
}

fn test_files(which: PageTests<'_>) -> Result<Vec<PathBuf>> {
    let folder = project::root().join("tests/page");
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).context("reading tests/page")? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let runs = match which {
            PageTests::Core => fs::read_to_string(&path).is_ok_and(|text| text.contains(CORE)),
            PageTests::Ci => {
                is_in_ci(&path) || fs::read_to_string(&path).is_ok_and(|text| text.contains(CORE))
            }
            PageTests::All => true,
            PageTests::Named(part) => name.contains(part),
        };
        if name.ends_with(".test.mjs") && runs {
            files.push(path);
        }
    }
    if files.is_empty() {
        bail!("no file in tests/page has such a name and ends in `.test.mjs`");
    }
    files.sort();
    Ok(files)
}
