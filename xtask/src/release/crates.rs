//! The crates for crates.io.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

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
    described()?;
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

/// Fails if a crate lacks what crates.io shows or requires.
fn described() -> Result<()> {
    let mut cargo = shell::command("cargo");
    cargo.args(["metadata", "--locked", "--no-deps", "--format-version=1"]);
    let text = shell::output(&mut cargo).context("`cargo metadata` failed")?;
    let metadata: Value = serde_json::from_str(&text).context("reading `cargo metadata`")?;
    let missing = undescribed(&metadata);
    ensure!(missing.is_empty(), "missing in Cargo.toml: {}", missing.join(", "));
    Ok(())
}

/// Returns the fields that published crates lack, as `CRATE: FIELD`.
fn undescribed(metadata: &Value) -> Vec<String> {
    const FIELDS: [&str; 8] = [
        "description",
        "license",
        "repository",
        "homepage",
        "readme",
        "keywords",
        "categories",
        "authors",
    ];
    let is_empty = |value: &Value| match value {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => true,
    };
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let published = packages.filter(|package| {
        package["name"].as_str().is_some_and(|name| !UNPUBLISHED.contains(&name))
    });
    published
        .flat_map(|package| {
            let name = package["name"].as_str().unwrap_or_default();
            let lacks = FIELDS.into_iter().filter(|field| is_empty(&package[*field]));
            lacks.map(move |field| format!("{name}: {field}")).collect::<Vec<_>>()
        })
        .collect()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn published_crates_are_described() {
        described().unwrap();
        let bare =
            json!({"packages": [{"name": "statelens", "readme": "README.md"}, {"name": "xtask"}]});
        let missing = undescribed(&bare);
        assert_eq!(missing.len(), 7);
        assert!(missing.contains(&"statelens: keywords".to_owned()));
    }
}
