//! Who uses whom: a circle of modules is an error, and the whole can be drawn.
//!
//! A module is a file. It uses another where a path in its code leads there, through re-exports, too.
//! A parent that uses its children, and a child that uses its parent, are no circle: they are one
//! subject in several files.

mod graph;
mod paths;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::project;
use graph::Graph;

/// Circles that are known, by their crate and members: none is added to them. Each is a reason to
/// tidy up, and one that is gone is to be struck off.
const KNOWN: &[(&str, &[&str])] = &[
    // Types that hold each other: a tensor has a layout, and one may be computed of tensors.
    ("checkpoint", &["layout", "tensor"]),
    ("cli", &["args", "commands::serve"]),
    ("inspect", &["share::fingerprint", "share::outline"]),
    ("inspect", &["share::fold", "share::pack"]),
    // Layouts are nested, so that what reads one reads any other in it.
    (
        "tensor",
        &[
            "bands",
            "chunked",
            "computed",
            "concat",
            "crosswise",
            "runs",
            "spread",
            "staged",
            "stored",
            "strided",
            "sweep",
            "tiles",
            "view",
        ],
    ),
    (
        "web",
        &[
            "page::actor",
            "page::address",
            "page::compare::model",
            "page::convert",
            "page::edits",
            "page::error",
            "page::files",
            "page::model",
            "page::offers",
            "page::repair",
            "page::running",
            "page::sheet",
            "page::table",
            "page::verify",
        ],
    ),
    ("web", &["page::compare", "page::escape", "page::keys", "page::run"]),
    ("web", &["page::run::aside", "page::run::screen"]),
    (
        "web",
        &[
            "worker::compare",
            "worker::open",
            "worker::planning",
            "worker::reading",
            "worker::remote",
            "worker::repair",
            "worker::session",
            "worker::share",
            "worker::sources",
        ],
    ),
];

/// Fails if modules of a crate use each other in a circle.
pub(crate) fn check() -> Result<()> {
    let mut wrong = Vec::new();
    let mut known: BTreeSet<(String, Vec<String>)> = KNOWN
        .iter()
        .map(|(name, members)| {
            ((*name).to_owned(), members.iter().map(|member| (*member).to_owned()).collect())
        })
        .collect();
    for (name, source) in crates()? {
        for circle in Graph::read(&source)?.circles() {
            let line = format!("{name}: {}", circle.join(", "));
            if !known.remove(&(name.clone(), circle)) {
                wrong.push(line);
            }
        }
    }
    for (name, members) in known {
        wrong.push(format!("no circle any more, to be struck off: {name}: {}", members.join(", ")));
    }
    match wrong.is_empty() {
        true => {
            println!("no module uses another in a circle");
            Ok(())
        }
        false => bail!("modules use each other in a circle:\n  {}", wrong.join("\n  ")),
    }
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
