//! The licences of the crates that are compiled into a program, which its archive has to carry.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::shell;

/// Files whose names begin with one of these, in any case, are licences or notices.
const NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];

/// Returns the licences of all third-party crates that `packages` are compiled from, each for its
/// target. Crates with the same text share it.
pub(super) fn texts(packages: &[(&str, &str)]) -> Result<String> {
    let mut crates = BTreeMap::new();
    for (package, target) in packages {
        collect(package, target, &mut crates)?;
    }
    // Crates of one project often have the same text.
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, found) in crates {
        let text = match found.texts.is_empty() {
            // The package holds no text, so its licence is given by name.
            true => format!("{}, by {}\n{}\n", found.expression, found.authors, found.repository),
            false => found.texts.join("\n"),
        };
        by_text.entry(text).or_default().push(format!("{name} ({})", found.expression));
    }
    let mut all = String::from(
        "Statelens is licensed under MIT or Apache-2.0. It contains these crates, under their licences:\n",
    );
    for (text, names) in by_text {
        write!(all, "\n{}\n{}\n\n{}\n", "=".repeat(80), names.join("\n"), text.trim())?;
    }
    Ok(all)
}

struct Licensed {
    expression: String,
    authors: String,
    repository: String,
    texts: Vec<String>,
}

/// Adds the crates from registries that a package depends on, without those of tests and build
/// scripts.
fn collect(package: &str, target: &str, into: &mut BTreeMap<String, Licensed>) -> Result<()> {
    let mut cargo = shell::command("cargo");
    cargo.args(["metadata", "--locked", "--format-version=1", "--filter-platform", target]);
    cargo.args(["--features", "statelens-cli/object-store"]);
    let text = shell::output(&mut cargo).context("`cargo metadata` failed")?;
    let metadata: Value = serde_json::from_str(&text).context("reading `cargo metadata`")?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: HashMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|one| (text_of(&one["id"]), one)).collect();
    let nodes: HashMap<String, Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|one| (text_of(&one["id"]), one))
        .collect();
    let Some((root, _)) = packages.iter().find(|(_, one)| one["name"] == package) else {
        bail!("there is no package {package}");
    };
    let (mut seen, mut open) = (HashSet::new(), vec![root.clone()]);
    while let Some(id) = open.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        for dependency in nodes.get(&id).map(|node| list(&node["deps"])).unwrap_or_default() {
            if list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()) {
                open.push(text_of(&dependency["pkg"]));
            }
        }
        let Some(one) = packages.get(&id).filter(|one| !one["source"].is_null()) else { continue };
        let folder = PathBuf::from(text_of(&one["manifest_path"]));
        let found = Licensed {
            expression: text_of(&one["license"]),
            authors: list(&one["authors"]).iter().map(text_of).collect::<Vec<_>>().join(", "),
            repository: text_of(&one["repository"]),
            texts: licences_in(folder.parent().unwrap_or(&folder))?,
        };
        into.insert(format!("{} {}", text_of(&one["name"]), text_of(&one["version"])), found);
    }
    Ok(())
}

/// Reads the licences and notices in a folder, sorted by name.
fn licences_in(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for file in super::list(folder)? {
        let name = super::name(&file).to_lowercase();
        if NAMES.iter().any(|start| name.starts_with(start)) {
            let text = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
            texts.push(String::from_utf8_lossy(&text).trim().to_owned());
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_crates_and_not_those_of_tests() {
        let host = super::super::host().unwrap();
        let texts = texts(&[("statelens-cli", &host)]).unwrap();
        assert!(texts.contains("\nclap 4") && texts.contains("\nminiz_oxide "), "{texts:.2000}");
        assert!(!texts.contains("\npeak_alloc "), "a crate of the tests");
        assert!(!texts.contains("\nstatelens"), "a crate of this repository");
        assert!(texts.contains("Permission is hereby granted"));
    }
}
