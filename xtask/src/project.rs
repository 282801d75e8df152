//! Locations in the repository, and the versions it pins.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The oldest Rust that builds the project, from `rust-version` in Cargo.toml.
pub(crate) const RUST_VERSION: &str = env!("CARGO_PKG_RUST_VERSION");

/// Returns the top folder of the repository.
pub(crate) fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

/// Returns cargo's target folder.
pub(crate) fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// Returns the folder of the pinned tools. It is in the repository, so that they touch nothing else
/// on the machine and `rm -r target` removes them.
pub(crate) fn tools() -> PathBuf {
    root().join("target").join("tools")
}

/// Returns the folder of the built site.
pub(crate) fn site() -> PathBuf {
    root().join("dist")
}

/// Returns the version of a package in Cargo.lock.
pub(crate) fn locked_version(package: &str) -> Result<String> {
    let path = root().join("Cargo.lock");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    version_in_lock(&text, package).with_context(|| {
        format!("Cargo.lock has no package `{package}`; does the page still use it?")
    })
}

fn version_in_lock(text: &str, package: &str) -> Option<String> {
    let name = format!("name = \"{package}\"");
    let mut lines = text.lines().skip_while(|line| *line != name);
    let version = lines.nth(1)?.strip_prefix("version = \"")?;
    Some(version.strip_suffix('"')?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_exactly_the_named_package() {
        let lock = "[[package]]\nname = \"wasm-bindgen-shared\"\nversion = \"9.9.9\"\n\n\
                    [[package]]\nname = \"wasm-bindgen\"\nversion = \"0.2.130\"\n";
        assert_eq!(version_in_lock(lock, "wasm-bindgen").as_deref(), Some("0.2.130"));
        assert_eq!(version_in_lock(lock, "bindgen"), None);
    }

    #[test]
    fn the_repository_locks_wasm_bindgen() {
        assert!(locked_version("wasm-bindgen").unwrap().starts_with("0.2."));
    }
}
