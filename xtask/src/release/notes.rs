//! The version and the notes of a release.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::VERSION;
use crate::project;

/// Fails if a file names another version than Cargo.toml. With a tag, the changelog must have the
/// date of the release.
pub(super) fn check(tag: Option<&str>) -> Result<()> {
    let read = |name: &str| {
        fs::read_to_string(project::root().join(name)).with_context(|| format!("reading {name}"))
    };
    agree(VERSION, &read("CITATION.cff")?, &read("CHANGELOG.md")?, tag)?;
    println!("Cargo.toml, CITATION.cff and CHANGELOG.md have version {VERSION}.");
    Ok(())
}

/// Returns the section of the changelog about this version.
pub(super) fn section() -> Result<String> {
    let changelog = fs::read_to_string(project::root().join("CHANGELOG.md"))?;
    let (_, text) = section_of(VERSION, &changelog)?;
    Ok(text)
}

fn agree(version: &str, citation: &str, changelog: &str, tag: Option<&str>) -> Result<()> {
    let cited = citation.lines().find_map(|line| line.strip_prefix("version: "));
    ensure!(
        cited == Some(version),
        "CITATION.cff has version {}, and Cargo.toml {version}",
        cited.unwrap_or("none")
    );
    let (heading, _) = section_of(version, changelog)?;
    let Some(tag) = tag else { return Ok(()) };
    ensure!(
        tag == format!("v{version}"),
        "the tag {tag} is not v{version}, the version in Cargo.toml"
    );
    let date = heading.trim_start_matches(" (").trim_end_matches(')');
    let is_date =
        date.len() == 10 && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    ensure!(is_date, "CHANGELOG.md has no date for {version}: write `## {version} (YYYY-MM-DD)`");
    Ok(())
}

/// Returns the rest of the heading of a version, and the text below it.
fn section_of(version: &str, changelog: &str) -> Result<(String, String)> {
    let start = format!("## {version}");
    let mut lines = changelog.lines();
    let heading = lines
        .find_map(|line| line.strip_prefix(&start).filter(|rest| !rest.starts_with(['.', '-'])))
        .with_context(|| format!("CHANGELOG.md has no section `{start}`"))?;
    let text: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
    Ok((heading.to_owned(), text.join("\n").trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CITATION: &str = "title: x\nversion: 0.2.0\n";
    const CHANGELOG: &str =
        "# Changelog\n\n## 0.2.0 (2026-12-01)\n\n### Page\n\n- New.\n\n## 0.1.0\n\nOld.\n";

    #[test]
    fn notes_are_the_section_of_the_version() {
        let (heading, text) = section_of("0.2.0", CHANGELOG).unwrap();
        assert_eq!((heading.as_str(), text.as_str()), (" (2026-12-01)", "### Page\n\n- New."));
        assert!(section_of("0.2", CHANGELOG).is_err());
    }

    #[test]
    fn versions_have_to_agree() {
        assert!(agree("0.2.0", CITATION, CHANGELOG, Some("v0.2.0")).is_ok());
        let error = |tag| agree("0.2.0", CITATION, CHANGELOG, Some(tag)).unwrap_err().to_string();
        assert!(error("0.2.0").contains("v0.2.0"));
        assert!(agree("0.3.0", CITATION, CHANGELOG, None).is_err());
        let undated = CHANGELOG.replace("2026-12-01", "unreleased");
        assert!(agree("0.2.0", CITATION, &undated, None).is_ok());
        let error = agree("0.2.0", CITATION, &undated, Some("v0.2.0")).unwrap_err().to_string();
        assert!(error.contains("has no date"), "{error}");
    }
}
