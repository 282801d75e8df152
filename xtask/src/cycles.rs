//! Who uses whom: a circle of modules is an error, and the whole can be drawn.
//!
//! A module is a file. It uses another where a path in its code leads there, through re-exports, too.
//! A parent that uses its children, and a child that uses its parent, are no circle: they are one
//! subject in several files. Modules of one parent stand beside each other, each with all that is below
//! it: two folders that use each other are a circle even if no file of them is in one.

mod graph;
mod paths;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::project;
use graph::Graph;

/// Fails if modules of a crate use each other in a circle.
pub(crate) fn check() -> Result<()> {
    let mut found = Vec::new();
    for (name, source) in crates()? {
        let circles = Graph::read(&source)?.circles();
        found.extend(circles.iter().map(|circle| format!("{name}: {}", circle.join(", "))));
    }
    if !found.is_empty() {
        bail!("modules use each other in a circle:\n  {}", found.join("\n  "));
    }
    println!("no module uses another in a circle");
    Ok(())
}

/// Prints the crates with their top modules, and who uses whom, for ARCHITECTURE.md.
pub(crate) fn draw() -> Result<()> {
    for (name, source) in crates()? {
        println!("{name}");
        for (module, used) in Graph::read(&source)?.top() {
            let used: Vec<&str> = used.iter().map(String::as_str).collect();
            let arrow =
                if used.is_empty() { String::new() } else { format!(" → {}", used.join(", ")) };
            println!("    {module}{arrow}");
        }
    }
    Ok(())
}

/// All crates of the workspace by name, with their sources.
fn crates() -> Result<Vec<(String, PathBuf)>> {
    let root = project::root();
    let mut found = vec![("web".to_owned(), root.join("web/src"))];
    for entry in std::fs::read_dir(root.join("crates"))? {
        let entry = entry?;
        found.push((entry.file_name().to_string_lossy().into_owned(), entry.path().join("src")));
    }
    found.push(("xtask".to_owned(), root.join("xtask/src")));
    found.sort();
    Ok(found)
}
