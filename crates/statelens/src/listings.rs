//! The names of the files in folders.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Entries of a folder above which it is not searched for linked files.
pub const MAX_SIBLINGS: usize = 4_096;

/// Folders whose listings are kept.
const MAX_LISTINGS: usize = 16;

/// Age of a change after which the next change has another modification time: file systems store it
/// in steps of up to 2 s.
const SETTLED: Duration = Duration::from_secs(3);

/// Searches of folders that did not change since. Shared by the process, because Python opens files
/// one by one.
static SEARCHES: Mutex<VecDeque<Search>> = Mutex::new(VecDeque::new());

/// The names of the files in folders. Each folder is listed once, however many of its files are
/// opened.
#[derive(Debug, Default, Clone)]
pub struct Listings(Arc<Mutex<HashMap<PathBuf, Arc<[OsString]>>>>);

/// The names with one extension in a folder.
struct Search {
    folder: PathBuf,
    extension: &'static str,
    modified: SystemTime,
    names: Arc<[String]>,
}

impl Listings {
    /// Returns the names of the files in a folder, sorted; an empty list if there are too many.
    pub fn of(&self, folder: &Path) -> Arc<[OsString]> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(files) = known.get(folder) {
            return files.clone();
        }
        if known.len() == MAX_LISTINGS {
            known.clear();
        }
        let files: Arc<[OsString]> = files_in(folder).into();
        known.insert(folder.to_owned(), files.clone());
        files
    }
}

/// Returns the names of the entries of a folder that have an extension, such as `json`, in any
/// order. Does not read the folder again until its modification time changes.
pub fn with_extension(folder: &Path, extension: &'static str) -> Arc<[String]> {
    // A relative path means another folder after a change of the working directory.
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let modified = fs::metadata(&folder).and_then(|metadata| metadata.modified()).ok();
    let is_this = |search: &Search| search.folder == folder && search.extension == extension;
    let mut searches = SEARCHES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(index) = searches.iter().position(is_this) {
        if Some(searches[index].modified) == modified {
            return searches[index].names.clone();
        }
        searches.remove(index);
    }
    let names: Arc<[String]> = search(&folder, extension).into();
    if let Some(modified) = modified
        && modified.elapsed().is_ok_and(|age| age > SETTLED)
    {
        if searches.len() == MAX_LISTINGS {
            searches.pop_front();
        }
        searches.push_back(Search { folder, extension, modified, names: names.clone() });
    }
    names
}

fn search(folder: &Path, extension: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    // Folders with more entries are not listed either.
    let names = entries.flatten().take(MAX_SIBLINGS + 1).map(|entry| entry.file_name());
    let names =
        names.filter(|name| Path::new(name).extension().is_some_and(|end| end == extension));
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

/// Returns the names of the regular files in a folder, sorted; an empty list if the folder has too
/// many entries. The system says what an entry is, except for links.
pub fn files_in(folder: &Path) -> Vec<OsString> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for (count, entry) in entries.flatten().enumerate() {
        if count > MAX_SIBLINGS {
            return Vec::new();
        }
        let is_file = match entry.file_type() {
            Ok(kind) if kind.is_symlink() => entry.path().is_file(),
            Ok(kind) => kind.is_file(),
            Err(_) => false,
        };
        if is_file {
            found.push(entry.file_name());
        }
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn searches_a_folder_again_when_its_modification_time_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let touch = |name: &str| fs::write(path.join(name), name).unwrap();
        let set_modified = |seconds| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            fs::File::open(path).unwrap().set_modified(time).unwrap();
        };
        let found = || {
            let mut names = with_extension(path, "json").to_vec();
            names.sort_unstable();
            names.concat()
        };
        touch("a.json");
        touch("b.pt");
        // A folder that changed a moment ago can change again within the same tick of its clock.
        assert_eq!(found(), "a.json");
        touch("c.json");
        assert_eq!(found(), "a.jsonc.json");
        set_modified(1_000);
        assert_eq!(found(), "a.jsonc.json");
        touch("d.json");
        set_modified(1_000);
        assert_eq!(found(), "a.jsonc.json", "the folder was read again");
        set_modified(1_001);
        assert_eq!(found(), "a.jsonc.jsond.json");
        assert_eq!(with_extension(path, "pt").concat(), "b.pt");
        assert!(with_extension(&path.join("missing"), "json").is_empty());
    }

    #[test]
    fn follows_links_to_files_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("folder")).unwrap();
        fs::write(path("folder/file"), b"1").unwrap();
        #[cfg(unix)]
        for (target, name) in [("folder", "x"), ("folder/file", "y"), ("nothing", "z")] {
            std::os::unix::fs::symlink(path(target), path(name)).unwrap();
        }
        let expected: &[&str] = if cfg!(unix) { &["y"] } else { &[] };
        assert_eq!(files_in(folder.path()), expected);
    }
}
