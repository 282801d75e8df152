//! A Rust toolchain that compiles to wasm32: rustup's target.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use super::announce;
use crate::shell;

pub(crate) const TARGET: &str = "wasm32-unknown-unknown";

/// How long `rustup target add` may take.
pub(crate) const RUSTUP_LIMIT: Duration = Duration::from_secs(180);

/// Installs the target if it is missing. Without rustup, the error names what to install.
pub(crate) fn target() -> Result<()> {
    if is_installed() {
        return Ok(());
    }
    let line = format!("rustup target add {TARGET}");
    if shell::find("rustup").is_none() {
        bail!(
            "this Rust has no library for {TARGET}; install Rust with rustup, run `{line}`, then this task again"
        );
    }
    announce(
        &format!("Add the {TARGET} target to this Rust"),
        "The page is Rust compiled to WebAssembly; rustup downloads the standard library for it (20 MB).",
    );
    shell::run_for(shell::command("rustup").args(["target", "add", TARGET]), RUSTUP_LIMIT)?;
    match is_installed() {
        true => Ok(()),
        false => bail!(
            "rustup added {TARGET} to another toolchain than `rustc` is; use rustup's `rustc`, then run this task again"
        ),
    }
}

/// Returns whether the default `rustc` has a compiled standard library for wasm32.
pub(super) fn is_installed() -> bool {
    let rustc = shell::output(shell::command("rustc").args(["--print", "sysroot"]));
    rustc.is_some_and(|sysroot| {
        let folder = Path::new(&sysroot).join("lib/rustlib").join(TARGET).join("lib");
        folder.read_dir().is_ok_and(|mut files| files.next().is_some())
    })
}
