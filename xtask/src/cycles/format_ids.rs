//! Decisions by the id of a format outside the formats: a registered format has another id, and the
//! author of a new format does not find them. Facts belong into `Format` and its `FormatTraits`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Comparisons of the field `format.id`. Ids of two checkpoints may be compared with each other.
const COMPARISONS: [&str; 5] = [
    "format.id == \"",
    "format.id != \"",
    "format.id.starts_with(",
    "contains(&checkpoint.format.id",
    "match checkpoint.format.id",
];

/// Crates whose texts name Python's modules.
const OF_PYTHON: [&str; 1] = ["pickle"];

/// Returns the ids of the formats in this source folder.
pub(super) fn all(folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for path in sources(folder)? {
        found.extend(listed_ids(&std::fs::read_to_string(path)?));
    }
    Ok(found.iter().map(|id| id.trim_matches('"').to_owned()).collect())
}

/// Returns the lines of the crates that decide by the id of a format. `crates` are the source
/// folders by name.
pub(super) fn found(crates: &[(String, PathBuf)]) -> Result<Vec<String>> {
    let formats = crates.iter().find(|(name, _)| name == "formats");
    let (_, folder) = formats.context("there is no crate `formats`")?;
    let mut ids = Vec::new();
    for path in sources(folder)? {
        ids.extend(own_ids(&std::fs::read_to_string(path)?));
    }
    let mut found = Vec::new();
    // The tasks name formats where they run the tests of one.
    let searched = crates.iter().filter(|(name, _)| name != "formats" && name != "xtask");
    for (name, folder) in searched {
        let literals = if OF_PYTHON.contains(&name.as_str()) { &[][..] } else { &ids };
        for path in sources(folder)? {
            let place = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
            let text = std::fs::read_to_string(&path)?;
            let lines = decisions(&text, literals);
            found.extend(lines.into_iter().map(|line| format!("{name}: {place}: {line}")));
        }
    }
    Ok(found)
}

/// Returns the ids of the formats in a source file, in quotes, without those that are also the id of
/// a writer: `--to` takes those.
fn own_ids(text: &str) -> Vec<String> {
    let written: Vec<String> = text
        .split("Writing::named(")
        .skip(1)
        .filter_map(|call| quoted(call.split(',').next()?).into_iter().next())
        .collect();
    listed_ids(text).into_iter().filter(|id| !written.contains(id)).collect()
}

/// Returns the ids in the records of a source file, in quotes. An id that is a constant is missing.
fn listed_ids(text: &str) -> Vec<String> {
    let lists = text.split("Format::named(&[").skip(1);
    lists.flat_map(|list| quoted(list.split(']').next().unwrap_or_default())).collect()
}

/// Returns the literals in a line of code, with their quotes.
fn quoted(text: &str) -> Vec<String> {
    text.split('"').skip(1).step_by(2).map(|id| format!("\"{id}\"")).collect()
}

/// Returns the lines of a file, before its tests, that contain an id or compare one.
fn decisions(text: &str, ids: &[String]) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = code.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let decides = |line: &&str| {
        COMPARISONS.iter().any(|text| line.contains(text)) || ids.iter().any(|id| line.contains(id))
    };
    lines.filter(decides).map(str::to_owned).collect()
}

/// Returns the files of a source folder, without those of tests.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut open, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "tests" {
                open.push(path);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_decisions_by_id_outside_tests() {
        let format = "..Writing::named(\"npz\", \"NumPy\", &[\"npz\"], plan)\n\
                      ..Format::named(&[\"npz\", \"npz-old\"], \"NumPy\")";
        let ids = own_ids(format);
        assert_eq!(ids, ["\"npz-old\""]);
        let code = "// \"npz-old\"\nlet a = id == \"npz-old\";\nlet b = c.format.id == \"npz\";\n\
                    let to = \"npz\";\n#[cfg(test)]\nmod tests {\nlet a = \"npz-old\";\n}\n";
        let lines = decisions(code, &ids);
        assert_eq!(lines, ["let a = id == \"npz-old\";", "let b = c.format.id == \"npz\";"]);
    }
}
