//! The tests of the project, step by step.

mod slowest;

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};

use crate::interop::Share;
use crate::page::{Features, PageTests};
use crate::{
    changes, cycles, dist, fuzz, interop as real_libraries, page, project, release, setup, shell,
    styles, wheel, workflows,
};

/// Seconds that each fuzz target runs here.
const FUZZ_SECONDS: u32 = 5;

/// The same mutations each time: a change must not fail because of an older fault.
/// `cargo xtask fuzz` makes new ones.
const FUZZ_SEED: u32 = 1;

/// The tests of everything that runs on this machine.
const TESTS: [&str; 7] =
    ["test", "--locked", "--workspace", "--exclude", "statelens-app", "--exclude", "xtask-bindgen"];

/// The crates that are published, and so have to be compiled without their default features.
const WITH_FEATURES: [&str; 3] = ["statelens", "statelens-cli", "statelens-recipes"];

/// The optional feature that all steps of [`Tier::All`] compile, so that they share their artifacts:
/// the command reads from object stores, which the tests imitate.
pub(crate) const OBJECT_STORES: Features = &["--features", "statelens-cli/object-store"];

/// The same feature of the Python package.
const OBJECT_STORE_WHEEL: Features = &["--features", "object-store"];

/// Makes tests try all of their thousands of damaged or hostile variants.
const DEEP: &str = "STATELENS_DEEP";

/// The extent of a test run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tier {
    /// For contributors before a pull request.
    Core,
    /// For CI on two cores within an hour: a share of every area.
    Ci,
    /// Everything, before a release.
    All,
}

/// Installs missing tools, runs all steps even if one fails, and prints a summary.
pub(crate) fn run(tier: Tier) -> ExitCode {
    let mut report = TestReport::default();
    let all = tier == Tier::All;
    report.step("set up", || {
        setup::prepare(if tier == Tier::Core { setup::PAGE_TESTS } else { setup::ALL })
    });
    if report.failed() > 0 {
        return report.sum_up();
    }
    report.step("format", || {
        cargo(&["fmt", "--all", "--check"])?;
        cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"])
    });
    report.step("lock file of the fuzz targets", fuzz::fetch);
    report.step("clippy", || clippy(all));
    report.step("cycles of modules", cycles::check);
    report.step("style sheets of the page", styles::check);
    if all {
        report.step("clippy for wasm32", clippy_wasm);
        report.step("packages", packages);
        report.step("workflows and metadata", workflows::check);
        report.step("documentation", documentation);
        report.step("without default features", without_default_features);
        report.step("minimum Rust version", minimum_version);
    }
    match tier {
        Tier::Core => {
            report.step("unit and fixture tests", || tests(false));
            report.step("build of the page", || page::build().map(drop));
            report.step("page in a browser, core", || page::test(PageTests::Core, &[]));
        }
        Tier::Ci => {
            report.step("unit and fixture tests", || tests(false));
            report.step("build of the page", || page::build().map(drop));
            report.step("build of the command", || page::debug_command_with_page(&[]).map(drop));
            report.concurrently(
                |report| report.step("page in a browser", || page::test(PageTests::Ci, &[])),
                |report| {
                    report.step("interop with the real libraries, a share", || {
                        let command = page::debug_command_with_page(&[])?;
                        interop(&command, Share::Ci)
                    });
                },
            );
            report.concurrently(
                |report| report.step("Python package", || wheel::test(&[])),
                |report| {
                    report.step("fuzz", || fuzz::run(FUZZ_SECONDS, None, Some(FUZZ_SEED)));
                },
            );
        }
        Tier::All => {
            // Linking a page keeps one core busy, and so do the longest tests.
            report.concurrently(
                |report| {
                    report.step("build of the page", || page::build().map(drop));
                    report.step("fuzz", || fuzz::run(FUZZ_SECONDS, None, Some(FUZZ_SEED)));
                    report.step("budget", dist::budget);
                    report.step("smoke tests of the small page", || {
                        page::smoke_tests_of_small_page(OBJECT_STORES)
                    });
                },
                |report| report.step("unit and fixture tests", || tests(true)),
            );
            // Both groups run the command, so neither may build it again.
            report.step("build of the command", || {
                page::debug_command_with_page(OBJECT_STORES).map(drop)
            });
            report.concurrently(
                |report| {
                    report.step("page in a browser", || page::test(PageTests::All, OBJECT_STORES));
                },
                |report| {
                    report.step("interop with the real libraries", || {
                        interop(&page::debug_command_with_page(OBJECT_STORES)?, Share::All)
                    });
                    report.step("Python package", || wheel::test(OBJECT_STORE_WHEEL));
                },
            );
        }
    }
    report.sum_up()
}

/// Checks a change in less than two minutes, if the crates were compiled before: format, clippy and
/// the library tests of the crates with changes.
pub(crate) fn check() -> ExitCode {
    let mut report = TestReport::default();
    report.step("format", || cargo(&["fmt", "--all", "--check"]));
    match changes::packages() {
        Ok(changed) if changed.is_empty() => println!("no crate differs from main"),
        Ok(changed) => {
            let packages: Vec<&str> =
                changed.iter().flat_map(|name| ["-p", name.as_str()]).collect();
            let clippy = ["clippy", "--locked", "--all-targets"];
            let clippy = [&clippy[..], &packages, &["--", "-D", "warnings"]].concat();
            report.step("clippy of the changed crates", || cargo(&clippy));
            let tests = [&["test", "--locked", "--lib", "--bins"], &packages[..]].concat();
            report.step("library tests of the changed crates", || cargo(&tests));
        }
        Err(error) => report.step("changed crates", || Err(error)),
    }
    report.step("cycles of modules", cycles::check);
    report.sum_up()
}

/// Compares the command with the real libraries.
pub(crate) fn interop(command: &Path, share: Share) -> Result<()> {
    real_libraries::run(project::root(), command, share).map_err(Error::msg)
}

/// Lints everything that runs on this machine.
fn clippy(all: bool) -> Result<()> {
    let mut args = vec!["clippy", "--locked", "--all-targets"];
    if all {
        args.extend(OBJECT_STORES);
    }
    args.extend(["--", "-D", "warnings"]);
    cargo(&args)
}

/// Checks the contents and metadata of packages. Another step checks that they compile.
fn packages() -> Result<()> {
    let args = ["package", "--locked", "--workspace", "--no-verify", "--allow-dirty", "--quiet"];
    let except = release::UNPUBLISHED.map(|name| ["--exclude", name]);
    cargo(&[&args[..], except.as_flattened()].concat())
}

/// Runs the unit and fixture tests of everything that runs on this machine, and of the logic of the
/// page (filter, byte map, texts).
fn tests(deep: bool) -> Result<()> {
    let cargo = |args: &[&str]| {
        let mut cargo = shell::command("cargo");
        cargo.args(TESTS).arg("--no-fail-fast").args(args);
        if deep {
            cargo.env(DEEP, "1").args(OBJECT_STORES);
        }
        cargo
    };
    // Tests run the examples, which the targets of the second command leave out.
    shell::run(&mut cargo(&["--no-run"]))?;
    let tests = slowest::run(&mut cargo(&["--lib", "--bins", "--tests"]));
    // Tests in the documentation don't have the option for times.
    let documented = shell::run(&mut cargo(&["--doc"]));
    tests.and(documented)
}

/// Compiles the documentation: a link to something that is gone is an error.
fn documentation() -> Result<()> {
    let mut cargo = shell::command("cargo");
    cargo.env("RUSTDOCFLAGS", "-D warnings");
    cargo.args(["doc", "--locked", "--workspace", "--no-deps", "--document-private-items"]);
    shell::run(cargo.args(["--exclude", "statelens-app", "--exclude", "xtask-bindgen"]))
}

fn without_default_features() -> Result<()> {
    WITH_FEATURES.iter().try_for_each(|package| {
        cargo(&["check", "--locked", "--no-default-features", "-p", package])
    })
}

/// Compiles everything with the oldest Rust that the project supports, unless the other steps use
/// that one.
fn minimum_version() -> Result<()> {
    let version = project::RUST_VERSION;
    let used = shell::output(shell::command("rustc").arg("--version")).unwrap_or_default();
    if used.starts_with(&format!("rustc {version}.")) {
        println!("the other steps use Rust {version}");
        return Ok(());
    }
    let toolchain = format!("{version}.0");
    let mut rustup = shell::command("rustup");
    shell::run(rustup.args(["toolchain", "install", &toolchain, "--profile", "minimal"]))?;
    let mut cargo = shell::command("rustup");
    cargo.args(["run", &toolchain, "cargo", "check", "--locked", "--workspace", "--target-dir"]);
    cargo.arg(project::target().join("minimum-rust"));
    shell::run(cargo.args(["--exclude", "statelens-app", "--exclude", "xtask-bindgen"]))
}

/// Compares the unpicklers of CPython with `scan` on random pickles.
pub(crate) fn fuzz_pickles(seconds: u32, seed: u32) -> Result<()> {
    page::debug_command(&[])?;
    real_libraries::fuzz_pickles(project::root(), seconds, seed).map_err(Error::msg)
}

fn cargo(arguments: &[&str]) -> Result<()> {
    shell::run(shell::command("cargo").args(arguments))
}

/// Lints the page and all of the core; only the command and the tasks are never compiled for
/// wasm32.
fn clippy_wasm() -> Result<()> {
    setup::wasm::target()?;
    let mut cargo = shell::command("cargo");
    cargo.args(["clippy", "--locked", "--profile", "tools", "--workspace"]);
    for name in ["statelens", "statelens-cli", "statelens-serve", "pystatelens", "xtask"] {
        cargo.args(["--exclude", name]);
    }
    shell::run(cargo.args(["--target", setup::wasm::TARGET, "--", "-D", "warnings"]))
}

/// The name of a step, its duration, and the error if it failed.
type Ended = (&'static str, Duration, Option<String>);

#[derive(Default)]
struct TestReport {
    steps: Vec<Ended>,
}

impl TestReport {
    fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) {
        self.steps.push(ended(name, work));
    }

    /// Runs two groups of steps concurrently; their output is interleaved.
    fn concurrently(&mut self, one: impl FnOnce(&mut Self), other: impl FnOnce(&mut Self) + Send) {
        let others = thread::scope(|scope| {
            let others = scope.spawn(|| {
                let mut report = Self::default();
                other(&mut report);
                report
            });
            one(self);
            others.join()
        });
        let panicked = ("concurrent steps", Duration::ZERO, Some("they panicked".to_owned()));
        self.steps.extend(others.map_or_else(|_| vec![panicked], |report| report.steps));
    }

    fn failed(&self) -> usize {
        self.steps.iter().filter(|(_, _, failure)| failure.is_some()).count()
    }

    /// Prints a line for each step and the counts; the exit code is success if all steps passed.
    fn sum_up(&self) -> ExitCode {
        println!("\n==== summary");
        for (name, time, failure) in &self.steps {
            let word = if failure.is_some() { "FAILED" } else { "passed" };
            println!("{word}  {:>6.1} s  {name}", time.as_secs_f64());
            if let Some(failure) = failure {
                println!("        {failure}");
            }
        }
        let failed = self.failed();
        if failed > 0 {
            // A full disk makes unrelated steps fail.
            let disk = shell::output(shell::command("df").args(["-h", "."])).unwrap_or_default();
            println!("{disk}");
        }
        println!("{} passed, {failed} failed", self.steps.len() - failed);
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn ended(name: &'static str, work: impl FnOnce() -> Result<()>) -> Ended {
    println!("\n==== {name}");
    let start = Instant::now();
    let failure = work().err().map(|error| format!("{error:#}"));
    if let Some(failure) = &failure {
        eprintln!("failed: {name}: {failure}");
    }
    let time = start.elapsed();
    println!("==== {name}: {:.1} s", time.as_secs_f64());
    (name, time, failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_step_is_counted_and_others_run() {
        let mut report = TestReport::default();
        report.step("one", || anyhow::bail!("no"));
        report.concurrently(
            |report| report.step("two", || Ok(())),
            |report| report.step("three", || anyhow::bail!("not this either")),
        );
        assert_eq!(report.steps.len(), 3);
        let failures: Vec<_> =
            report.steps.iter().map(|(_, _, failure)| failure.as_deref()).collect();
        assert_eq!(failures, [Some("no"), None, Some("not this either")]);
        assert_eq!(format!("{:?}", report.sum_up()), format!("{:?}", ExitCode::FAILURE));
    }
}
