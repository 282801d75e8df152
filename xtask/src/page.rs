//! Serving the page, and testing and measuring it in a browser.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use statelens_serve::{ServedFolder, Server};

use crate::site::Goal;
use crate::{project, setup, shell, single, site};

/// As many test files run again where a test in them failed; where more did, the page is broken.
const AGAIN: usize = 3;

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

/// Runs the smoke tests on the small site, and on the site that Trunk builds.
pub(crate) fn smoke_tests_of_other_builds() -> Result<()> {
    let (small, trunk) = (site::build(Goal::Small)?, site::build_with_trunk()?);
    let (browser, command) = (setup::page_tests()?, debug_command()?);
    statelens_fixtures::make().context("making target/fixtures")?;
    let files = test_files(Some("smoke"))?;
    for site in [small, trunk] {
        println!("\n== Smoke tests of {}", site.display());
        let server = start_server(&site, 0)?;
        let mut node = node(&server, &browser, &command);
        shell::run(node.args(["--test", "--test-reporter=spec"]).args(&files))?;
    }
    Ok(())
}

/// Builds the fast page if it is not up to date, and runs its tests.
pub(crate) fn test(filter: Option<&str>) -> Result<()> {
    let site = build()?;
    let browser = setup::page_tests()?;
    // Files that the page saves are compared with those that the command writes, and the command
    // serves the page itself.
    shell::run(&mut command_with_page(&site, &DEBUG_COMMAND))?;
    let command = project::target().join("debug").join("statelens");
    let files = test_files(filter)?;
    statelens_fixtures::make().context("making target/fixtures")?;
    let single = single::build(&site)?;
    let server = start_server(&site, 0)?;
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

/// Measures the fast page and the small one in a browser, with files of very many keys that the given command makes.
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

/// Measures how fast the fast page and the small one read the values of files, beside a bare stream and beside Netron,
/// whose page is in that folder.
pub(crate) fn rates(command: &Path, netron: Option<&Path>, files: &[PathBuf]) -> Result<()> {
    let browser = setup::page_tests()?;
    for goal in [Goal::Fast, Goal::Small] {
        println!("\n{goal:?} page:");
        let server = start_server(&site::build(goal)?, 0)?;
        let mut node = node(&server, &browser, command);
        node.arg(project::root().join("tests/page/rates.mjs"));
        node.arg(netron.unwrap_or(Path::new("")));
        shell::run(node.args(files))?;
    }
    Ok(())
}

/// Measures how long the small page takes to start, from hosts that compress and from hosts that don't.
pub(crate) fn startup() -> Result<()> {
    let site = site::build(Goal::Small)?;
    let mut node = shell::command("node");
    node.env("STATELENS_CHROMIUM", setup::page_tests()?);
    node.arg(project::root().join("tests/page/startup.mjs"));
    shell::run(node.arg(format!("small={}", site.display())))
}

/// Takes pictures: of every screen that axe looks at in the tests, and those of the documents.
pub(crate) fn pictures() -> Result<()> {
    let site = build()?;
    let browser = setup::page_tests()?;
    let command = debug_command()?;
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
fn command_with_page(site: &Path, what: &[&str]) -> Command {
    let mut cargo = shell::command("cargo");
    cargo.args(["build", "--locked"]).args(what);
    cargo.env("STATELENS_SITE", site);
    cargo
}

/// Serves a built site.
fn start_server(site: &Path, port: u16) -> Result<Server> {
    let folder =
        ServedFolder::new(site).with_context(|| format!("{} is not there", site.display()))?;
    Ok(Server::start(folder, port)?)
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
