//! The checkpoints of a job: files, folders, globs, lists and prefixes of object stores.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use statelens_checkpoint::{Error, Result};
use statelens_convert::Pattern;
use statelens_formats::is_named_as_weights;

use super::recipe::ManySource;
use super::store::absolute;
use crate::files::PathText as _;
use crate::files::{self, open_error};
use crate::remote::{self, listed};

/// Bytes of the longest list that is read.
const MAX_LIST: u64 = 1 << 30;

/// Characters that begin a pattern in a glob.
const WILDCARDS: [char; 4] = ['*', '?', '[', '{'];

/// Lists the checkpoints that `paths` and the file `list` name, in their order. With `all_files`,
/// lists all files of folders, checkpoint or not.
pub(crate) fn sources(
    paths: &[PathBuf],
    list: Option<&Path>,
    all_files: bool,
) -> Result<Vec<ManySource>> {
    let mut listing = SourceListing { all_files, known: HashSet::new(), found: Vec::new() };
    for path in paths {
        match path.to_str().and_then(|text| text.strip_prefix('@')) {
            Some(list) => listing.list(Path::new(list))?,
            None => listing.named(path)?,
        }
    }
    if let Some(list) = list {
        listing.list(list)?;
    }
    match listing.found.is_empty() {
        true => Err(Error::refused("there is no checkpoint at the given paths")),
        false => Ok(listing.found),
    }
}

struct SourceListing {
    all_files: bool,
    known: HashSet<PathBuf>,
    found: Vec<ManySource>,
}

impl SourceListing {
    fn list(&mut self, list: &Path) -> Result<()> {
        let failed = |error: std::io::Error| open_error(&error, list);
        let about = fs::metadata(list).map_err(failed)?;
        if !about.is_file() || about.len() > MAX_LIST {
            return Err(Error::refused("this is not a list").in_file(list.to_text()));
        }
        let text = fs::read_to_string(list).map_err(failed)?;
        let lines = text.lines().map(str::trim);
        lines.filter(|line| !line.is_empty()).try_for_each(|line| self.named(Path::new(line)))
    }

    fn named(&mut self, path: &Path) -> Result<()> {
        let text = path.to_string_lossy();
        if let Some(url) = remote::address(path) {
            let pinned = remote::pinned(url)?;
            let url = pinned.as_deref().unwrap_or(url);
            let start = url.find(WILDCARDS).unwrap_or(url.len());
            let folder = url[..start].rfind('/').map_or(url, |slash| &url[..=slash]);
            return match (url.ends_with('/'), start < url.len()) {
                (false, false) => self.add(url.into(), None, None),
                (_, glob) => {
                    let pattern = Pattern::parse(if glob { url } else { "*" })?;
                    for (address, bytes, version) in listed(folder)? {
                        if pattern.matches(&address) {
                            self.add(address.into(), Some(bytes), version)?;
                        }
                    }
                    Ok(())
                }
            };
        }
        if text.contains(WILDCARDS) && !path.exists() {
            return self.glob(&text);
        }
        if path.is_dir() {
            return self.folder(path);
        }
        self.file(path)
    }

    /// Adds the files that match a glob; `*` also matches `/`.
    fn glob(&mut self, glob: &str) -> Result<()> {
        let pattern = Pattern::parse(glob)?;
        let start = glob.find(WILDCARDS).unwrap_or(glob.len());
        let folder = glob[..start].rfind('/').map_or(".", |slash| &glob[..slash.max(1)]);
        for path in below(Path::new(folder))? {
            // As it would be written without the glob.
            let name = match glob.starts_with("./") || folder != "." {
                true => path.clone(),
                false => path.strip_prefix(".").unwrap_or(&path).to_owned(),
            };
            if pattern.matches(&name.to_string_lossy()) {
                self.file(&path)?;
            }
        }
        Ok(())
    }

    fn folder(&mut self, folder: &Path) -> Result<()> {
        if self.all_files {
            return below(folder)?.iter().try_for_each(|path| self.file(path));
        }
        let (files, found) = files::checkpoints(folder, |_| true)?;
        let members: HashSet<&str> =
            found.iter().flat_map(|one| &one.members).map(String::as_str).collect();
        let unread = files.iter().map(|(_, file)| file.name.as_str());
        let unread = unread.filter(|name| is_named_as_weights(name) && !members.contains(name));
        let mut names: Vec<&str> =
            found.iter().map(|one| one.main.as_str()).chain(unread).collect();
        names.sort_unstable();
        names.into_iter().try_for_each(|name| self.file(&folder.join(name)))
    }

    fn file(&mut self, path: &Path) -> Result<()> {
        let ManySource { path, bytes, version } = state(path)?;
        self.add(path, bytes, version)
    }

    fn add(&mut self, path: PathBuf, bytes: Option<u64>, version: Option<String>) -> Result<()> {
        if self.known.insert(path.clone()) {
            self.found.push(ManySource { path, bytes, version });
        }
        Ok(())
    }
}

/// Lists the files in a folder and its subfolders, sorted. Links to folders are not followed.
fn below(top: &Path) -> Result<Vec<PathBuf>> {
    let (mut open, mut files) = (vec![top.to_owned()], Vec::new());
    while let Some(folder) = open.pop() {
        let failed = |error: std::io::Error| open_error(&error, &folder);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            match entry.file_type().map_err(failed)?.is_dir() {
                true => open.push(path),
                false if path.is_file() => files.push(path),
                false => {}
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Returns a file on disk as it is now.
pub(crate) fn state(path: &Path) -> Result<ManySource> {
    let about = fs::metadata(path).ok().filter(fs::Metadata::is_file);
    let changed = about.as_ref().and_then(|about| about.modified().ok());
    let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok(ManySource {
        path: absolute(path)?,
        bytes: about.map(|about| about.len()),
        version: changed.map(|time| format!("{time:?}")),
    })
}
