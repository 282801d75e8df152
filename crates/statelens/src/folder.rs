//! Checks of folders with models.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use statelens_checkpoint::{Error, FileSet, Limits, Progress, Result};
pub use statelens_compare::folder::{FolderReport, Level, Rule, RuleFinding, RuleLevels};
use statelens_compare::folder::{check_folder, rebuild_indexes};

use crate::files;
use crate::files::PathText as _;
use crate::open::{Opener, SourceOpener};
use crate::remote::address;

/// The end of the name that an index has after it was replaced.
const REPLACED: &str = ".bak";

/// Files that a check reads in addition to those of the checkpoint. On web servers, they are
/// requested by their names.
const SIBLINGS: [&str; 7] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "adapter_config.json",
    "special_tokens_map.json",
];

/// Depth to which subfolders are checked.
const MAX_DEPTH: usize = 3;

/// Maximum number of files of a folder and its subfolders.
const MAX_FILES: usize = 1 << 16;

impl SourceOpener {
    /// Checks whether a folder with a model is whole and consistent, without reading weights: on
    /// disk, under a prefix of an object store, or in a repository on the Hugging Face Hub. Its
    /// subfolders are checked as well. For a file, checks its checkpoint.
    ///
    /// # Errors
    /// Fails if the folder can't be read. Damaged files are findings of the report.
    pub fn check(
        &self,
        source: &Path,
        levels: &RuleLevels,
        progress: &mut dyn Progress,
    ) -> Result<FolderReport> {
        let remote = self.remote();
        let (files, only) = match address(source) {
            Some(url) => remote.folder(url, &SIBLINGS, progress)?,
            None => files_at(source)?,
        };
        check_folder(&files, only.as_deref(), levels, &remote.limits, progress)
    }
}

/// Checks a folder as [`SourceOpener::check`] does, with the default limit on fetching.
///
/// # Errors
/// Fails if the path can't be read. Damaged files are findings of the report.
pub fn check(
    path: &Path,
    levels: &RuleLevels,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<FolderReport> {
    Opener::new().limits(limits.clone()).sources().check(path, levels, progress)
}

/// Writes a correct index for the shards in a folder, which stay unchanged. A previous index is
/// kept with `.bak` at the end of its name. Returns the paths of the indexes.
///
/// # Errors
/// Fails, and writes nothing, if a shard is missing or damaged, or if shards contradict each other.
pub fn fix_index(
    folder: &Path,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Err(Error::refused("an index is written for a folder")
            .in_file(folder.to_text())
            .advice("Name the folder with the shards."));
    }
    let files = files::glance(&files_in(folder, folder)?);
    let mut written = Vec::new();
    for index in rebuild_indexes(&files, limits, progress)? {
        let path = folder.join(&index.file);
        let failed = |error: std::io::Error| {
            Error::io(format!("it can't be written: {error}")).in_file(path.to_text())
        };
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        file.write_all(index.text.as_bytes()).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        if index.replaces {
            let kept = folder.join(index.file.clone() + REPLACED);
            if kept.exists() {
                return Err(Error::refused("the previous index can't be kept: this file exists")
                    .in_file(kept.to_text())
                    .advice("Move it away, and try again."));
            }
            fs::rename(&path, kept).map_err(failed)?;
        }
        readable_by_all(file.as_file()).map_err(failed)?;
        file.persist_noclobber(&path).map_err(|error| failed(error.error))?;
        written.push(path);
    }
    Ok(written)
}

/// Gives a temporary file, which only its owner may read, the usual permissions.
#[cfg(unix)]
fn readable_by_all(file: &fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn readable_by_all(_: &fs::File) -> std::io::Result<()> {
    Ok(())
}

/// Returns the files of the folder, or of the folder of a file, and the name of that file.
fn files_at(path: &Path) -> Result<(FileSet, Option<String>)> {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let is_folder = path.is_dir();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = if is_folder { path } else { parent.unwrap_or(Path::new(".")) };
    let failed = |error: std::io::Error| files::open_error(&error, path);
    if !is_folder {
        fs::metadata(path).map_err(failed)?;
    }
    let only = (!is_folder).then(|| name(path)).flatten();
    if only.is_some() {
        return Ok((files::glance(&files_in(folder, path)?), only));
    }
    let mut files = FileSet::default();
    let mut open = vec![(folder.to_owned(), String::new(), 0)];
    while let Some((folder, top, depth)) = open.pop() {
        for path in entries(&folder, path)? {
            let base = files::file_name(&path);
            if path.is_dir() && depth < MAX_DEPTH && !base.starts_with('.') {
                open.push((path, format!("{top}{base}/"), depth + 1));
            } else if path.is_file() && files.count() < MAX_FILES {
                files.push(format!("{top}{base}"), files::closed(&path));
            }
        }
    }
    Ok((files, None))
}

/// Returns the paths of the files in a folder, sorted. An error names `path`.
fn files_in(folder: &Path, path: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = entries(folder, path)?;
    paths.retain(|path| path.is_file());
    Ok(paths)
}

/// Returns the paths of the entries of a folder, sorted. An error names `path`.
fn entries(folder: &Path, path: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error: std::io::Error| files::open_error(&error, path);
    let entries = fs::read_dir(folder).map_err(failed)?;
    let paths = entries.map(|entry| Ok(entry.map_err(failed)?.path()));
    let mut paths = paths.collect::<Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}
