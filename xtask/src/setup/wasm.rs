//! A Rust toolchain that compiles to wasm32.
//!
//! By default this is rustup's target. Where rustup is missing or can't download it, Debian's Rust
//! builds the standard library from its packaged source.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{announce, apt};
use crate::project::RUST_VERSION;
use crate::shell;

pub(crate) const TARGET: &str = "wasm32-unknown-unknown";

/// How long `rustup target add` may take before falling back to Debian's Rust.
const RUSTUP_LIMIT: Duration = Duration::from_secs(90);

/// Debian's packages; the compiler also needs a linker of the same LLVM.
const DEBIAN_RUST: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];

/// The package of its clippy, which only tests need.
const DEBIAN_CLIPPY: &str = "rust-web-clippy";

/// The environment in which `cargo` (and Trunk, which calls it) builds for wasm32.
#[derive(Default)]
pub(crate) struct WasmEnv {
    is_debian: bool,
    variables: Vec<(&'static str, OsString)>,
}

impl WasmEnv {
    /// Returns a command in this environment.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = shell::command(program);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Puts folders at the front of the search path, the first one first.
    pub(crate) fn prepend_to_path(&mut self, folders: Vec<PathBuf>) -> Result<()> {
        let own = self.variables.iter().find(|(name, _)| *name == "PATH");
        let old = own.map(|(_, value)| value.clone()).or_else(|| env::var_os("PATH"));
        let old = old.unwrap_or_default();
        let path = env::join_paths(folders.into_iter().chain(env::split_paths(&old)))
            .context("a folder of the tools has a name that PATH can't hold")?;
        self.variables.retain(|(name, _)| *name != "PATH");
        self.variables.push(("PATH", path));
        Ok(())
    }
}

/// Finds or installs a toolchain for wasm32.
pub(crate) fn wasm_env() -> Result<WasmEnv> {
    if has_target() {
        return Ok(WasmEnv::default());
    }
    if let Some(env) = debian_env() {
        return Ok(env);
    }
    let mut reason = "there is no rustup on this machine".to_owned();
    if shell::find("rustup").is_some() {
        announce(
            &format!("Add the {TARGET} target to this Rust"),
            "The page is Rust compiled to WebAssembly; rustup downloads the standard library for it (20 MB).",
        );
        let mut add = shell::command("rustup");
        match shell::run_for(add.args(["target", "add", TARGET]), RUSTUP_LIMIT) {
            Ok(()) if has_target() => return Ok(WasmEnv::default()),
            Ok(()) => reason = "rustup added it to another toolchain than `rustc` is".to_owned(),
            Err(error) => reason = error.to_string(),
        }
    }
    if !apt::present() {
        bail!(
            "no Rust for {TARGET}: {reason}; run `rustup target add {TARGET}`, then this task again"
        );
    }
    announce(
        "Install Debian's Rust for WebAssembly",
        &format!(
            "rustup can't do it here ({reason}); these packages hold a compiler and the source of its library."
        ),
    );
    apt::install(&DEBIAN_RUST)?;
    let linker = format!(
        "lld-{}",
        debian_llvm().context("Debian's rustc does not report its LLVM version")?
    );
    apt::install(&[&linker])?;
    debian_env().with_context(|| {
        format!("Debian's Rust for {TARGET} is not complete or older than {RUST_VERSION}; run `rustup target add {TARGET}`")
    })
}

/// Finds or installs a toolchain for wasm32 that has clippy.
pub(crate) fn clippy_env() -> Result<WasmEnv> {
    let env = wasm_env()?;
    let clippy = Path::new("/usr/bin/cargo-clippy");
    if env.is_debian && !clippy.is_file() {
        announce(
            "Install clippy for Debian's Rust",
            "The tests check the code of the page with it.",
        );
        apt::install(&[DEBIAN_CLIPPY])?;
    }
    Ok(env)
}

/// Returns whether there is a toolchain for wasm32.
pub(super) fn is_installed() -> bool {
    has_target() || debian_env().is_some()
}

/// Returns whether the default `rustc` has a compiled standard library for wasm32.
fn has_target() -> bool {
    let rustc = shell::output(shell::command("rustc").args(["--print", "sysroot"]));
    rustc.is_some_and(|sysroot| {
        let folder = Path::new(&sysroot).join("lib/rustlib").join(TARGET).join("lib");
        folder.read_dir().is_ok_and(|mut files| files.next().is_some())
    })
}

/// Returns the environment of Debian's Rust, if it is complete and new enough.
fn debian_env() -> Option<WasmEnv> {
    let version = shell::output(shell::command("/usr/bin/rustc").arg("--version"))?;
    let cargo = shell::output(shell::command("/usr/bin/cargo").arg("--version"))?;
    if !new_enough(&version)? || !new_enough(&cargo)? {
        return None;
    }
    let sysroot = shell::output(shell::command("/usr/bin/rustc").args(["--print", "sysroot"]))?;
    let source = Path::new(&sysroot).join("lib/rustlib/src/rust/library/std/Cargo.toml");
    let linker = PathBuf::from(format!("/usr/bin/wasm-ld-{}", debian_llvm()?));
    if !source.is_file() || !linker.is_file() {
        return None;
    }
    let mut env = WasmEnv {
        is_debian: true,
        variables: vec![
            // Building the standard library is an unstable feature of cargo; this allows it.
            ("RUSTC_BOOTSTRAP", "1".into()),
            ("CARGO_UNSTABLE_BUILD_STD", "std,panic_abort".into()),
            ("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker.into()),
        ],
    };
    env.prepend_to_path(vec!["/usr/bin".into()]).ok()?;
    Some(env)
}

/// Returns the major version of the LLVM in Debian's compiler.
fn debian_llvm() -> Option<String> {
    let version = shell::output(shell::command("/usr/bin/rustc").arg("-vV"))?;
    let line = version.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    line.split('.').next().map(str::to_owned)
}

/// Returns whether `rustc 1.96.0 (…)` is at least the version that the project requires.
fn new_enough(version: &str) -> Option<bool> {
    let number = |text: &str| -> Option<(u32, u32)> {
        let mut parts = text.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    Some(number(version.split_whitespace().nth(1)?)? >= number(RUST_VERSION)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_versions_as_numbers() {
        assert_eq!(new_enough("rustc 1.100.0 (abc 2030-01-01)"), Some(true));
        assert_eq!(new_enough(&format!("cargo {RUST_VERSION}.0")), Some(true));
        assert_eq!(new_enough("rustc 1.9.0 (abc 2016-01-01)"), Some(false));
        assert_eq!(new_enough("rustc"), None);
    }

    #[test]
    fn prepends_folders_to_the_path() {
        let mut env = WasmEnv { is_debian: false, variables: vec![("PATH", "/old".into())] };
        env.prepend_to_path(vec!["/a".into(), "/b".into()]).unwrap();
        assert_eq!(env.variables, vec![("PATH", OsString::from("/a:/b:/old"))]);
    }
}
