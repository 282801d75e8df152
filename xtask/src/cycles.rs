//! Dependencies between modules: cycles are an error, and the whole graph can be printed.
//!
//! A module is a file. It uses another module if a path in its code leads there, including through
//! re-exports. A parent and a child that use each other do not count as a cycle: they are one
//! subject in several files. Sibling modules are compared including everything below them: two
//! folders that use each other form a cycle, even if none of their files is part of one. In the page,
//! a feature's files are compared with those of their layer.
//!
//! The same check fails if code outside the formats decides by the id of a format ([`format_ids`]).

mod format_ids;
mod graph;
mod paths;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::project;
use graph::Graph;

/// The crate whose features are folders with a file per layer.
const PAGE: &str = "web";

/// Fails if modules of a crate use each other in a cycle.
pub(crate) fn check() -> Result<()> {
    let mut found = Vec::new();
    for (name, source) in crates()? {
        let circles = Graph::read(&source, name == PAGE)?.circles();
        found.extend(circles.iter().map(|circle| format!("{name}: {}", circle.join(", "))));
    }
    if !found.is_empty() {
        bail!("modules use each other in a circle:\n  {}", found.join("\n  "));
    }
    println!("no module uses another in a circle");
    let decisions = format_ids::found(&crates()?)?;
    if !decisions.is_empty() {
        bail!("ids of formats belong into crates/formats:\n  {}", decisions.join("\n  "));
    }
    println!("no crate decides by the id of a format");
    Ok(())
}

/// Prints the crates with their top-level modules and the dependencies between these, for
/// ARCHITECTURE.md.
pub(crate) fn draw() -> Result<()> {
    for (name, source) in crates()? {
        println!("{name}");
        for (module, used) in Graph::read(&source, name == PAGE)?.top() {
            let used: Vec<&str> = used.iter().map(String::as_str).collect();
            let arrow =
                if used.is_empty() { String::new() } else { format!(" → {}", used.join(", ")) };
            println!("    {module}{arrow}");
        }
    }
    Ok(())
}

/// Returns the ids of all formats.
pub(crate) fn format_ids() -> Result<Vec<String>> {
    format_ids::all(&project::root().join("crates/formats/src"))
}

/// Returns all crates of the workspace by name, with their source folders.
fn crates() -> Result<Vec<(String, PathBuf)>> {
    let root = project::root();
    let mut found = vec![(PAGE.to_owned(), root.join("web/src"))];
    for entry in std::fs::read_dir(root.join("crates"))? {
        let entry = entry?;
        found.push((entry.file_name().to_string_lossy().into_owned(), entry.path().join("src")));
    }
    found.push(("xtask".to_owned(), root.join("xtask/src")));
    found.sort();
    Ok(found)
}
