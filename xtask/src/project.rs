//! Locations in the repository.

use std::env;
use std::path::{Path, PathBuf};

/// The oldest Rust that builds the project, from `rust-version` in Cargo.toml.
pub(crate) const RUST_VERSION: &str = env!("CARGO_PKG_RUST_VERSION");

pub(crate) fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

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

pub(crate) fn site() -> PathBuf {
    root().join("dist")
}
