//! Installs what a task needs before the task begins.

pub(crate) mod apt;
pub(crate) mod browser;
pub(crate) mod tools;
pub(crate) mod wasm;

use std::path::PathBuf;
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Error, Result, bail};

use crate::{project, python, shell};

/// An external requirement of a task.
pub(crate) struct Need {
    /// What it is, what needs it, its size, and how long installing takes.
    about: &'static str,
    packages: &'static [&'static str],
    is_missing: fn() -> bool,
    /// Installs everything that is not a package; if something is still missing, the error explains
    /// what to do.
    install: fn() -> Result<()>,
}

/// The requirements for building and testing the page.
pub(crate) const PAGE_TESTS: &[Need] = &[WASM, NODE, CHROMIUM];

/// The requirements for testing the small page and the page built by Trunk.
pub(crate) const OTHER_BUILDS: &[Need] = &[WASM, NODE, CHROMIUM, TRUNK];

pub(crate) const INTEROP: &[Need] = &[H5DUMP, PYTHON];

/// The requirements of all tests but those of Trunk's build.
pub(crate) const ALL: &[Need] = &[WASM, NODE, CHROMIUM, CXX, H5DUMP, PYTHON, CARGO_FUZZ];

const WASM: Need = Need {
    about: "Rust for WebAssembly, which the page is compiled with: 20 MB from rustup, seconds",
    packages: &[],
    is_missing: || !wasm::is_installed(),
    install: wasm::target,
};

const NODE: Need = Need {
    about: "playwright-core and axe-core from npm, which drive the page's tests: 15 MB, seconds",
    packages: &[],
    is_missing: tools::page_packages_missing,
    install: tools::page_packages,
};

const CHROMIUM: Need = Need {
    about: "Chromium's headless shell, which the page's tests run in: 64 MB to download, 230 MB on disk, a minute",
    packages: &["chromium-headless-shell"],
    is_missing: browser::is_missing,
    install: || browser::chromium().map(drop),
};

const CXX: Need = Need {
    about: "a C++ compiler for libFuzzer: 60 MB to download, a minute",
    packages: &["g++"],
    is_missing: || shell::find("c++").is_none(),
    install: tools::needs_cxx,
};

const H5DUMP: Need = Need {
    about: "h5dump, which interop reads HDF5 files with: 5 MB, seconds",
    packages: &["hdf5-tools"],
    is_missing: || shell::find("h5dump").is_none(),
    install: || match shell::find("h5dump") {
        Some(_) => Ok(()),
        None => bail!("h5dump is missing; install the tools of HDF5, then run this task again"),
    },
};

const PYTHON: Need = Need {
    about: "torch, cerebras-pytorch, tensorflow and jax for interop: 2.8 GB to download, 7.5 GB on disk, 2 minutes",
    packages: &[],
    is_missing: || !python::is_set_up(project::root()),
    install: || python::set_up(project::root()).map(drop).map_err(Error::msg),
};

const CARGO_FUZZ: Need = Need {
    about: "cargo-fuzz, which builds and runs the fuzz targets: a minute to compile",
    packages: &[],
    is_missing: || tools::is_missing("cargo-fuzz"),
    install: || tools::cargo_fuzz().map(drop),
};

const TRUNK: Need = Need {
    about: "Trunk, wasm-bindgen and wasm-opt: 110 MB to download, 3 minutes to compile",
    packages: &[],
    is_missing: || tools::is_missing("trunk"),
    install: || tools::trunk().map(drop),
};

/// Who may install packages of the system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packages {
    /// `cargo xtask setup`, which was called for that.
    Install,
    /// All other tasks: they print the command and stop, unless they run in CI.
    Ask,
}

/// Lists missing requirements and installs them: packages first, then the rest concurrently, because
/// some are downloaded and others compiled. If the task may not install packages, or has not the
/// right to, it fails with the command to type.
pub(crate) fn prepare(needs: &[Need]) -> Result<()> {
    let in_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    install(needs, if in_ci { Packages::Install } else { Packages::Ask })
}

/// As [`prepare`], and installs packages only if `packages` allows it.
pub(crate) fn install(needs: &[Need], packages: Packages) -> Result<()> {
    let allowed = packages;
    let missing: Vec<&Need> = needs.iter().filter(|need| (need.is_missing)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("\n== Set up what is missing on this machine");
    missing.iter().for_each(|need| println!("   - {}", need.about));
    let packages: Vec<&str> =
        missing.iter().flat_map(|need| need.packages.iter().copied()).collect();
    if !packages.is_empty() && apt::present() {
        if allowed == Packages::Ask {
            bail!(
                "packages are missing; run `cargo xtask setup`, or `sudo {}`, then this task again",
                apt::line(&packages)
            );
        }
        apt::install(&packages)?;
    }
    thread::scope(|scope| {
        let started: Vec<_> = missing.iter().map(|need| scope.spawn(need.install)).collect();
        let results: Vec<_> = started.into_iter().map(ScopedJoinHandle::join).collect();
        results.into_iter().try_for_each(|result| match result {
            Ok(result) => result,
            Err(_) => bail!("installing panicked"),
        })
    })
}

/// Announces a step that has to be done.
pub(crate) fn announce(what: &str, why: &str) {
    println!("\n== {what}\n   {why}");
}

/// Returns the browser for the page's tests, after installing the library that drives it.
pub(crate) fn page_tests() -> Result<PathBuf> {
    prepare(PAGE_TESTS)?;
    browser::chromium()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installs_only_missing_needs_and_stops_on_failure() {
        const THERE: Need = Need {
            about: "there",
            packages: &[],
            is_missing: || false,
            install: || bail!("it was installed again"),
        };
        const REFUSED: Need = Need {
            about: "missing",
            packages: &[],
            is_missing: || true,
            install: || bail!("type this line"),
        };
        assert!(prepare(&[THERE]).is_ok());
        let error = prepare(&[THERE, REFUSED]).unwrap_err();
        assert_eq!(error.to_string(), "type this line");
    }

    #[test]
    fn packages_are_installed_by_setup_only() {
        const PACKAGE: Need = Need {
            about: "a package",
            packages: &["statelens-test-that-is-not-a-package"],
            is_missing: || true,
            install: || bail!("it was installed"),
        };
        let error = install(&[PACKAGE], Packages::Ask).unwrap_err().to_string();
        let wanted = match apt::present() {
            true => "install --no-install-recommends statelens-test-that-is-not-a-package",
            false => "it was installed",
        };
        assert!(error.contains(wanted), "{error}");
    }
}
