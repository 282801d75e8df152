//! The archive of the command for one target.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use flate2::{Compression, GzBuilder, write::GzEncoder};
use zip::{CompressionMethod, DateTime, ZipWriter, write::SimpleFileOptions};

use super::{Build, VERSION, checksum, empty, files, licences, name, needs_musl, try_command};
use crate::setup::wasm;
use crate::{project, shell};

/// Scripts that complete the command in shells: the shell, and the usual name of its file.
const COMPLETIONS: [(&str, &str); 4] = [
    ("bash", "statelens.bash"),
    ("zsh", "_statelens"),
    ("fish", "statelens.fish"),
    ("powershell", "_statelens.ps1"),
];

/// Documents of the repository that an archive holds.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// A file of an archive.
struct Entry {
    name: String,
    bytes: Vec<u8>,
    executable: bool,
}

/// Builds the command and packs it; then unpacks it in an empty folder and runs it. Returns the path
/// of the archive.
pub(super) fn make(build: &Build) -> Result<PathBuf> {
    let target = build.prepared_target()?;
    needs_musl(&target)?;
    let command = compile(build, &target)?;
    let entries = entries(&command, &target)?;
    let top = format!("statelens-{VERSION}-{target}");
    fs::create_dir_all(files())?;
    let archive = match target.contains("windows") {
        true => pack_zip(&top, &entries, &files().join(format!("{top}.zip")))?,
        false => pack_tar(&top, &entries, &files().join(format!("{top}.tar.gz")))?,
    };
    checksum(&archive)?;
    println!("Archive: {} ({} bytes)", archive.display(), fs::metadata(&archive)?.len());
    try_archive(&archive, &top, build.site()?.is_some())?;
    Ok(archive)
}

fn compile(build: &Build, target: &str) -> Result<PathBuf> {
    let profile = build.profile.as_deref().unwrap_or(super::PROFILE);
    let mut cargo = shell::command("cargo");
    cargo.args(["build", "--locked", "--profile", profile, "-p", "statelens-cli"]);
    cargo.args(["--features", "statelens-cli/object-store"]);
    let mut folder = project::target();
    // Without the option, this machine's own target shares its artifacts with other tasks.
    if build.target.is_some() {
        cargo.args(["--target", target]);
        folder.push(target);
    }
    if let Some(site) = build.site()? {
        cargo.env("STATELENS_SITE", site);
    }
    shell::run(&mut cargo)?;
    folder.push(if profile == "dev" { "debug" } else { profile });
    Ok(folder.join(program(target)))
}

fn program(target: &str) -> &'static str {
    if target.contains("windows") { "statelens.exe" } else { "statelens" }
}

fn entries(command: &Path, target: &str) -> Result<Vec<Entry>> {
    let file =
        |name: &str, bytes: Vec<u8>| Entry { name: name.to_owned(), bytes, executable: false };
    let printed = |arguments: &[&str]| {
        let text = shell::output(shell::command(command).args(arguments));
        let text = text.with_context(|| format!("`statelens {}` failed", arguments.join(" ")))?;
        anyhow::Ok((text + "\n").into_bytes())
    };
    let bytes = fs::read(command).with_context(|| format!("reading {}", command.display()))?;
    let mut entries = vec![Entry { name: program(target).to_owned(), bytes, executable: true }];
    for document in DOCUMENTS {
        entries.push(file(document, fs::read(project::root().join(document))?));
    }
    let licences = licences::texts(&[("statelens-cli", target), ("statelens-app", wasm::TARGET)])?;
    entries.push(file("THIRD-PARTY-LICENSES.txt", licences.into_bytes()));
    entries.push(file("man/statelens.1", printed(&["man"])?));
    for (shell, name) in COMPLETIONS {
        entries.push(file(&format!("completions/{name}"), printed(&["completions", shell])?));
    }
    Ok(entries)
}

/// Packs a tar file. The output is reproducible: it contains no times and no owners.
fn pack_tar(top: &str, entries: &[Entry], path: &Path) -> Result<PathBuf> {
    let gzip: GzEncoder<File> =
        GzBuilder::new().mtime(0).write(File::create(path)?, Compression::best());
    let mut tar = tar::Builder::new(gzip);
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(entry.bytes.len() as u64);
        header.set_mode(if entry.executable { 0o755 } else { 0o644 });
        tar.append_data(&mut header, format!("{top}/{}", entry.name), entry.bytes.as_slice())?;
    }
    tar.into_inner()?.finish()?;
    Ok(path.to_owned())
}

fn pack_zip(top: &str, entries: &[Entry], path: &Path) -> Result<PathBuf> {
    let mut zip = ZipWriter::new(File::create(path)?);
    for entry in entries {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .last_modified_time(DateTime::default())
            .unix_permissions(if entry.executable { 0o755 } else { 0o644 });
        zip.start_file(format!("{top}/{}", entry.name), options)?;
        zip.write_all(&entry.bytes)?;
    }
    zip.finish()?;
    Ok(path.to_owned())
}

/// Unpacks an archive into an empty folder as a user would, and runs the command in it.
fn try_archive(archive: &Path, top: &str, with_page: bool) -> Result<()> {
    let folder = empty("archive")?;
    fs::copy(archive, folder.join(name(archive)))?;
    // On Windows, `tar` unpacks zip files, too.
    shell::run(shell::command("tar").current_dir(&folder).arg("-xf").arg(name(archive)))?;
    let unpacked = folder.join(top);
    let command = unpacked.join(if cfg!(windows) { "statelens.exe" } else { "statelens" });
    try_command(&command, &folder)?;
    let man = fs::read_to_string(unpacked.join("man/statelens.1"))?;
    ensure!(man.contains(".TH statelens 1"), "the man page does not begin as one");
    // The command has `serve` only if the page is in it.
    let help = shell::output(shell::command(&command).arg("--help")).unwrap_or_default();
    ensure!(!with_page || help.contains("  serve"), "the command is without the page");
    Ok(())
}

/// Unpacks the files of an archive whose paths end with one of `names` into `folder`.
pub(super) fn unpack(archive: &Path, names: &[&str], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(File::open(archive)?));
    let mut found = 0;
    for entry in tar.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let Some(name) = names.iter().find(|name| path.file_name() == Some(name.as_ref())) else {
            continue;
        };
        let mut file = File::create(folder.join(name))?;
        io::copy(&mut entry, &mut file)?;
        set_mode(&file, entry.header().mode()?)?;
        found += 1;
    }
    ensure!(found == names.len(), "{} lacks one of {}", name(archive), names.join(", "));
    Ok(())
}

#[cfg(unix)]
fn set_mode(file: &File, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(file.set_permissions(fs::Permissions::from_mode(mode))?)
}

#[cfg(not(unix))]
fn set_mode(_: &File, _: u32) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_reproducible_and_keep_permissions() {
        let folder = std::env::temp_dir().join(format!("statelens-pack-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let entry =
            |name: &str, executable| Entry { name: name.into(), bytes: vec![7; 9], executable };
        let entries = [entry("statelens", true), entry("man/statelens.1", false)];
        for pack in [pack_tar, pack_zip] {
            let one = fs::read(pack("top", &entries, &folder.join("one")).unwrap()).unwrap();
            let two = fs::read(pack("top", &entries, &folder.join("two")).unwrap()).unwrap();
            assert_eq!(one, two);
        }
        let tar = pack_tar("top", &entries, &folder.join("a.tar.gz")).unwrap();
        unpack(&tar, &["statelens"], &folder.join("out")).unwrap();
        assert_eq!(fs::read(folder.join("out/statelens")).unwrap(), [7; 9]);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(folder.join("out/statelens")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o755);
        }
        assert!(unpack(&tar, &["absent"], &folder.join("out")).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
