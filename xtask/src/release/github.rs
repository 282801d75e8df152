//! The release on GitHub, through its command `gh`, which its runners have.

use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};

use super::{VERSION, empty, files, list, name, notes};
use crate::{project, shell};

const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Creates a draft with all files of the release.
pub(super) fn draft(tag: &str, dry_run: bool) -> Result<()> {
    let files = list(&files())?;
    ensure!(!files.is_empty(), "target/release-files has no files");
    let notes_file = empty("notes")?.join("notes.md");
    fs::write(&notes_file, notes::section()?)?;
    let mut gh = shell::command("gh");
    gh.args(["release", "create", tag, "--draft", "--verify-tag", "--repo", REPOSITORY]);
    gh.args(["--title", &format!("Statelens {VERSION}"), "--notes-file"]).arg(notes_file);
    perform(gh.args(files), dry_run)
}

/// Downloads files of a release, and checks that the release's workflow built them.
pub(super) fn fetch(tag: &str, pattern: &str, unpack: bool, dry_run: bool) -> Result<()> {
    let folder = files();
    let mut gh = shell::command("gh");
    gh.args(["release", "download", tag, "--repo", REPOSITORY, "--pattern", pattern, "--dir"]);
    perform(gh.arg(&folder), dry_run)?;
    if dry_run {
        return Ok(());
    }
    let fetched = list(&folder)?;
    ensure!(!fetched.is_empty(), "the release {tag} has no file {pattern}");
    for file in fetched {
        let mut verify = shell::command("gh");
        verify.args(["attestation", "verify"]).arg(&file).args(["--repo", slug()]);
        let workflow = format!("{}/.github/workflows/release.yml", slug());
        shell::run(verify.args(["--signer-workflow", &workflow]))?;
        if unpack && name(&file).ends_with(".zip") {
            let archive = fs::File::open(&file)?;
            zip::ZipArchive::new(archive)?.extract(&folder)?;
        }
    }
    Ok(())
}

/// Returns the owner and the name of the repository.
fn slug() -> &'static str {
    REPOSITORY.trim_start_matches("https://github.com/")
}

/// Runs a command, or prints it.
pub(super) fn perform(command: &mut Command, dry_run: bool) -> Result<()> {
    match dry_run {
        true => {
            let line = shell::shown(command).replace(&project::root().display().to_string(), ".");
            println!("would run: {line}");
            Ok(())
        }
        false => shell::run(command),
    }
}
