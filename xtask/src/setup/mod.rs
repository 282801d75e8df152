//! Brings what a task needs onto the machine: each step says what it does and why, does nothing
//! when it was done before, and fails with what to do.

pub(crate) mod apt;
pub(crate) mod browser;
pub(crate) mod tools;
pub(crate) mod wasm;

use std::path::PathBuf;

use anyhow::Result;

pub(crate) use wasm::wasm_env;

/// Announces a step that has to be done.
pub(crate) fn announce(what: &str, why: &str) {
    println!("\n== {what}\n   {why}");
}

/// What testing the page needs: a browser, and the library that drives it.
pub(crate) fn page_tests() -> Result<PathBuf> {
    tools::page_packages()?;
    browser::chromium()
}

/// Everything.
pub(crate) fn everything() -> Result<()> {
    wasm::clippy_env()?;
    page_tests()?;
    tools::install_for_tests()?;
    println!("Everything is set up.");
    Ok(())
}
