//! The tasks of this repository, for people and CI: `cargo xtask serve`, `cargo xtask test`, and
//! others.
//!
//! Every task first sets up what it needs ([`setup`]), so that a fresh clone needs no instructions.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "talking to the terminal is its job")]

mod bench;
mod built;
mod changes;
mod cycles;
mod dist;
mod fuzz;
mod interop;
mod notebook;
mod page;
mod project;
mod python;
mod release;
mod setup;
mod shell;
mod single;
mod site;
mod styles;
mod test;
mod venv;
mod wheel;
mod workflows;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::interop::Share;
use crate::page::PageTests;
use crate::setup::Packages;
use crate::test::Tier;

/// The tasks of the Statelens repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build the page and serve it on this machine.
    Serve {
        /// The first port to try; when it is taken, the next free one is used.
        #[arg(long, default_value_t = 8080)]
        port: u16,
    },
    /// Build the command (target/release/statelens) with the page in it.
    Build,
    /// Check a change in less than two minutes: format, and clippy and the library tests of the
    /// crates that differ from `main`.
    Check,
    /// Run the tests before a pull request: format, clippy, cycles, unit and fixture tests, and the
    /// page's core tests in a browser. The last line counts the steps that passed and failed.
    Test {
        /// Everything: also clippy for wasm32, packages, documentation, the oldest Rust, all damaged
        /// and hostile variants, all page tests, interop with the real libraries, the Python
        /// package, object stores, fuzzing, and the small page.
        #[arg(long)]
        all: bool,
        /// What CI runs: also the Python package, more page tests, fuzzing, and a share of interop.
        #[arg(long, conflicts_with = "all")]
        ci: bool,
    },
    /// Run the page's tests in a headless browser.
    TestPage {
        /// Only test files whose name contains this, for example `smoke`.
        filter: Option<String>,
        /// Only the tests that `test` runs, whose names end in `(core)`.
        #[arg(long, conflicts_with = "filter")]
        core: bool,
        /// Only the smoke tests, on the small page and on the page that Trunk builds.
        #[arg(long, conflicts_with_all = ["filter", "core"])]
        other_builds: bool,
    },
    /// Take pictures of every screen, in both widths and colours, into target/pictures, and those
    /// of the documents into docs/images.
    Pictures,
    /// Measure how long the small page takes to start: first visit and later ones, from several
    /// hosts. Prints only; never fails because something is slow.
    Startup,
    /// Compare what we read and write with the real libraries (torch, cerebras-pytorch, h5py).
    Interop,
    /// Measure times and peak memory, against the real library and `cp`. Prints only; never fails
    /// because something is slow. STATELENS_BENCH_BINARY is a release build of the command to
    /// measure; without it, one is built.
    Bench {
        /// Only these parts.
        parts: Vec<bench::Benchmark>,
    },
    /// Make the small site for a static host, as a folder, as a zip and as one file:
    /// target/dist/statelens, .zip and .html; and the wheel of the Python package.
    Dist,
    /// Make the files of a release, and try them; `--dry-run` does all of it for this platform and
    /// publishes nothing.
    Release(release::Release),
    /// Lint the workflows of GitHub, and validate CITATION.cff.
    Workflows,
    /// Check licences and sources of dependencies.
    Deny {
        /// Also known vulnerabilities; downloads the database of RustSec.
        #[arg(long)]
        advisories: bool,
    },
    /// Make the wheel of the Python package for this platform: target/release-files. The page is in
    /// it if the small site has been built.
    Wheel {
        /// Build it as tests are compiled, and test it with the real libraries.
        #[arg(long)]
        test: bool,
    },
    /// Run each fuzz target for a short while over the fixtures.
    Fuzz {
        /// Seconds for each target.
        #[arg(long, default_value_t = 20)]
        seconds: u32,
        /// Only targets whose name contains this.
        filter: Option<String>,
    },
    /// Fail if two of the page's style sheets define one class.
    Styles,
    /// Compare CPython's unpicklers with `scan` on random pickles.
    FuzzPickles {
        /// Seconds for all versions of Python together.
        #[arg(long, default_value_t = 3600)]
        seconds: u32,
        /// Seed of the random pickles.
        #[arg(long, default_value_t = 1)]
        seed: u32,
    },
    /// Fail if modules use each other in a cycle, or print the dependencies between modules.
    Cycles {
        /// Print the dependencies.
        #[arg(long)]
        draw: bool,
    },
    /// Make target/fixtures, the folder of fixtures that tests read; or pack or unpack a part of
    /// tests/fixtures.
    Fixtures {
        /// Packs this folder into FOLDER.tar.xz, for example `tests/fixtures/recipes/llama`, and
        /// removes it.
        #[arg(long, value_name = "FOLDER", conflicts_with = "unpack")]
        pack: Option<PathBuf>,
        /// Unpacks FOLDER.tar.xz next to itself and removes it, to change its contents.
        #[arg(long, value_name = "FOLDER.tar.xz")]
        unpack: Option<PathBuf>,
    },
    /// Set up everything that the other tasks need, and nothing else.
    Setup,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Serve { port } => page::serve(port),
        Task::Build => page::build_all(),
        Task::Check => return test::check(),
        Task::Test { all: true, .. } => return test::run(Tier::All),
        Task::Test { ci: true, .. } => return test::run(Tier::Ci),
        Task::Test { .. } => return test::run(Tier::Core),
        Task::TestPage { other_builds: true, .. } => {
            setup::prepare(setup::OTHER_BUILDS).and_then(|()| page::smoke_tests_of_other_builds())
        }
        Task::TestPage { filter, core, .. } => setup::prepare(setup::PAGE_TESTS).and_then(|()| {
            let which = match filter.as_deref() {
                Some(name) => PageTests::Named(name),
                None if core => PageTests::Core,
                None => PageTests::All,
            };
            page::test(which, &[])
        }),
        Task::Pictures => page::pictures(),
        Task::Startup => page::startup(),
        Task::Interop => setup::prepare(setup::INTEROP)
            .and_then(|()| page::debug_command(test::OBJECT_STORES))
            .and_then(|command| test::interop(&command, Share::All)),
        Task::Bench { parts } => bench::run(&parts),
        Task::Dist => dist::run().and_then(|()| release::wheel()),
        Task::Release(release) => release::run(&release),
        Task::Workflows => workflows::check(),
        Task::Deny { advisories } => workflows::deny(advisories),
        Task::Wheel { test: true } => {
            setup::prepare(setup::INTEROP).and_then(|()| wheel::test(&[]))
        }
        Task::Wheel { test: false } => release::wheel(),
        Task::Fuzz { seconds, filter } => fuzz::run(seconds, filter.as_deref(), None),
        Task::FuzzPickles { seconds, seed } => test::fuzz_pickles(seconds, seed),
        Task::Cycles { draw: true } => cycles::draw(),
        Task::Cycles { draw: false } => cycles::check(),
        Task::Fixtures { pack, unpack } => fixtures(pack.as_deref(), unpack.as_deref()),
        Task::Styles => styles::check(),
        Task::Setup => setup::install(setup::ALL, Packages::Install),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn fixtures(pack: Option<&Path>, unpack: Option<&Path>) -> anyhow::Result<()> {
    match (pack, unpack) {
        (Some(folder), _) => statelens_fixtures::pack(folder)?,
        (_, Some(archive)) => {
            statelens_fixtures::unpack(archive, archive.parent().unwrap_or(Path::new(".")))?;
            fs::remove_file(archive)?;
        }
        _ => println!("{}", statelens_fixtures::make()?.display()),
    }
    Ok(())
}
