//! Lists the files of a built site, with their hashes, in its service worker.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::built::{files_under, hex, integrity};

/// The service worker in the site.
const WORKER: &str = "sw.js";

/// Fills in the two constants of `sw.js`: the hash of each file of the site, and a version that
/// changes with any of them.
pub(super) fn list(site: &Path) -> Result<()> {
    let mut files = String::new();
    let mut all = Sha256::new();
    for file in files_under(site)? {
        let name: Vec<_> = file.iter().map(|part| part.to_string_lossy()).collect();
        let name = name.join("/");
        if name == WORKER {
            continue;
        }
        let bytes = fs::read(site.join(&file)).with_context(|| format!("reading {name}"))?;
        let line = format!("  {name:?}: \"{}\",\n", integrity(&bytes));
        all.update(&line);
        files.push_str(&line);
    }
    let path = site.join(WORKER);
    let script = fs::read_to_string(&path).with_context(|| format!("reading {WORKER}"))?;
    let version = hex(&all.finalize()[..8]);
    fs::write(&path, filled(&script, &files, &version)?)
        .with_context(|| format!("writing {WORKER}"))
}

/// Returns the script with its two constants filled in, even if they were filled in before.
fn filled(script: &str, files: &str, version: &str) -> Result<String> {
    let mut out = String::new();
    let (mut skipping, mut found) = (false, 0);
    for line in script.lines() {
        if line.starts_with("const FILES = {") {
            out.push_str(&format!("const FILES = {{\n{files}}};\n"));
            skipping = !line.ends_with("};");
            found += 1;
        } else if line.starts_with("const VERSION = ") {
            out.push_str(&format!("const VERSION = \"{version}\";\n"));
            found += 1;
        } else if skipping {
            skipping = line != "};";
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    ensure!(found == 2, "web/sw.js lacks its lines `const FILES` and `const VERSION`");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_worker_can_be_filled_repeatedly() {
        let script = include_str!("../../../web/sw.js");
        let once = filled(script, "  \"a\": \"sha256-x\",\n", "v1").unwrap();
        assert!(
            once.contains("const FILES = {\n  \"a\": \"sha256-x\",\n};\nconst VERSION = \"v1\";\n")
        );
        let twice = filled(&once, "  \"b\": \"sha256-y\",\n", "v2").unwrap();
        assert_eq!(twice, filled(script, "  \"b\": \"sha256-y\",\n", "v2").unwrap());
        assert!(filled("", "", "").is_err());
    }

    #[test]
    fn version_changes_with_any_file() {
        let site = std::env::temp_dir().join(format!("statelens-finish-{}", std::process::id()));
        fs::create_dir_all(site.join("examples")).unwrap();
        fs::write(site.join("index.html"), "page").unwrap();
        fs::write(site.join("examples/a.pt"), "weights").unwrap();
        fs::write(site.join(WORKER), include_str!("../../../web/sw.js")).unwrap();
        let made = || {
            list(&site).unwrap();
            fs::read_to_string(site.join(WORKER)).unwrap()
        };
        let first = made();
        assert!(first.contains(&format!("  \"examples/a.pt\": \"{}\",\n", integrity(b"weights"))));
        assert!(!first.contains("\"sw.js\""));
        assert_eq!(made(), first);
        let version = |script: &str| {
            script.lines().find(|line| line.starts_with("const VERSION")).unwrap().to_owned()
        };
        fs::write(site.join("examples/a.pt"), "other").unwrap();
        assert_ne!(version(&made()), version(&first));
        fs::remove_dir_all(site).unwrap();
    }
}
