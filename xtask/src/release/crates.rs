//! The crates for crates.io.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::{VERSION, empty, list, name, try_command};
use crate::{project, shell};

/// Workspace members that are not published.
pub(crate) const UNPUBLISHED: [&str; 7] = [
    "interleavings",
    "statelens-web",
    "statelens-app",
    "statelens-fixtures",
    "pystatelens",
    "xtask",
    "xtask-bindgen",
];

/// Packages all crates, and installs the command from the packages alone into an empty folder.
pub(super) fn check(profile: &str) -> Result<()> {
    package()?;
    let folder = empty("crates")?;
    let mut patches = Vec::new();
    for package in list(&project::target().join("package"))? {
        let file = name(&package);
        let Some(krate) = file.strip_suffix(&format!("-{VERSION}.crate")) else { continue };
        shell::run(shell::command("tar").current_dir(&folder).arg("-xf").arg(&package))?;
        let unpacked = folder.join(format!("{krate}-{VERSION}"));
        patches.push((krate.to_owned(), unpacked.display().to_string().replace('\\', "/")));
    }
    ensure!(!patches.is_empty(), "cargo made no packages");
    let command = folder.join(format!("statelens-cli-{VERSION}"));
    let root = empty("crates-root")?;
    let mut cargo = shell::command("cargo");
    cargo.current_dir(&folder).args(["install", "--path"]).arg(&command);
    cargo.args(["--profile", profile, "--no-track", "--root"]).arg(&root);
    // Crates of others are compiled already.
    cargo.arg("--target-dir").arg(project::target());
    for (krate, path) in &patches {
        cargo.arg("--config").arg(format!("patch.crates-io.{krate}.path=\"{path}\""));
    }
    pin(&command)?;
    shell::run(&mut cargo)?;
    let program = if cfg!(windows) { "bin/statelens.exe" } else { "bin/statelens" };
    try_command(&root.join(program), &root)
}

/// Publishes all crates. Cargo does so in the order of their dependencies, and waits for each.
pub(super) fn publish() -> Result<()> {
    ensure!(
        std::env::var_os("CARGO_REGISTRY_TOKEN").is_some_and(|token| !token.is_empty()),
        "CARGO_REGISTRY_TOKEN is missing: the workflow gets one from crates.io (trusted publishing)"
    );
    cargo(&["publish", "--locked", "--workspace", "--no-verify"])
}

/// Makes the packages in target/package.
fn package() -> Result<()> {
    let folder = project::target().join("package");
    if folder.exists() {
        fs::remove_dir_all(&folder).context("removing the previous packages")?;
    }
    cargo(&["package", "--locked", "--workspace", "--no-verify", "--allow-dirty", "--quiet"])
}

fn cargo(arguments: &[&str]) -> Result<()> {
    let except = UNPUBLISHED.map(|name| ["--exclude", name]);
    shell::run(shell::command("cargo").args(arguments).args(except.as_flattened()))
}

/// Copies the lock file of the workspace, so that the versions are those that were tested.
fn pin(command: &Path) -> Result<()> {
    fs::copy(project::root().join("Cargo.lock"), command.join("Cargo.lock"))?;
    Ok(())
}
