//! The crates that a change touches.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};

use crate::{project, shell};

/// Returns the packages with files that differ from `main`, committed or not, sorted. Files outside
/// of crates count for none.
pub(crate) fn packages() -> Result<Vec<String>> {
    let git = |arguments: &[&str]| shell::output(shell::command("git").args(arguments));
    let base = ["origin/main", "main"].iter().find_map(|name| git(&["merge-base", "HEAD", name]));
    let base = base.unwrap_or_else(|| "HEAD".to_owned());
    let differing = git(&["diff", "--name-only", &base]).context("`git diff` failed")?;
    let new = git(&["ls-files", "--others", "--exclude-standard"]).unwrap_or_default();
    let folders: BTreeSet<&str> =
        differing.lines().chain(new.lines()).filter_map(folder_of).collect();
    let mut found = Vec::new();
    for folder in folders {
        let manifest = project::root().join(folder).join("Cargo.toml");
        // A removed crate has no manifest.
        let Ok(text) = fs::read_to_string(&manifest) else { continue };
        let name = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        found.push(name.with_context(|| format!("{folder}/Cargo.toml has no name"))?.to_owned());
    }
    Ok(found)
}

/// Returns the folder of the crate that a file belongs to.
fn folder_of(path: &str) -> Option<&str> {
    if let Some(rest) = path.strip_prefix("crates/") {
        return path.get(..path.len() - rest.len() + rest.find('/')?);
    }
    ["web/src/", "web/app/", "xtask/src/"].iter().find(|top| path.starts_with(**top)).map(|top| {
        match *top {
            "web/app/" => "web/app",
            top => top.trim_end_matches("/src/"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_the_crate_around_them() {
        for (path, folder) in [
            ("crates/cli/src/lib.rs", Some("crates/cli")),
            ("crates/cli/tests/it/main.rs", Some("crates/cli")),
            ("web/src/lib.rs", Some("web")),
            ("web/style/base.css", None),
            ("xtask/src/main.rs", Some("xtask")),
            ("README.md", None),
        ] {
            assert_eq!(folder_of(path), folder, "{path}");
        }
    }
}
