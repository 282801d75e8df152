//! Brings what a task needs onto the machine: each step says what it does and why, does nothing
//! when it was done before, and fails with what to do.

pub(crate) mod apt;
pub(crate) mod browser;
pub(crate) mod tools;
pub(crate) mod wasm;

use std::path::PathBuf;

use anyhow::Result;

pub(crate) use wasm::{WasmEnv, wasm_env};

/// Announces a step that has to be done.
pub(crate) fn announce(what: &str, why: &str) {
    println!("\n== {what}\n   {why}");
}

/// What building the page needs.
pub(crate) fn page() -> Result<WasmEnv> {
    let mut env = wasm_env()?;
    let mut folders: Vec<PathBuf> = vec![tools::install_rust_tools()?];
    folders.extend(tools::wasm_opt()?);
    env.prepend_to_path(folders)?;
    Ok(env)
}

/// What testing the page needs: a browser, and the library that drives it.
pub(crate) fn page_tests() -> Result<PathBuf> {
    tools::page_packages()?;
    browser::chromium()
}

/// Everything.
pub(crate) fn everything() -> Result<()> {
    page()?;
    page_tests()?;
    tools::cargo_fuzz()?;
    println!("Everything is set up.");
    Ok(())
}
