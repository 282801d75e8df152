//! The place of a job: a few small objects, each of which is written once.

use std::fs;
use std::io::Write as _;
use std::path::{self, Path, PathBuf};

use statelens_checkpoint::{Error, Result};

use crate::files::PathText as _;
use crate::files::open_error;
use crate::job_store::{FOLDERS, JobStore};
use crate::output::sync_folder;

/// Returns the place of a job.
pub(crate) fn at(place: &Path) -> Result<Box<dyn JobStore>> {
    match crate::remote::address(place) {
        Some(url) => crate::remote::job_store(url),
        None => Ok(Box::new(Folder(place.to_owned()))),
    }
}

/// Returns a path that means the same in any folder.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    if let Some(url) = crate::remote::address(path) {
        // The steps of a job read one commit.
        return Ok(crate::remote::pinned(url)?.map_or_else(|| path.to_owned(), PathBuf::from));
    }
    let failed = |error: &dyn std::fmt::Display| {
        Error::io(format!("its folder is not known: {error}")).in_file(path.to_text())
    };
    let path = path::absolute(path).map_err(|error| failed(&error))?;
    match path.to_str() {
        Some(_) => Ok(path),
        None => Err(Error::refused("a job can't name this path, because it is not Unicode")
            .in_file(path.to_text())),
    }
}

/// A folder.
struct Folder(PathBuf);

impl Folder {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a complete temporary file next to the object.
    fn temporary(&self, path: &Path, bytes: &[u8]) -> Result<tempfile::NamedTempFile> {
        let folder = path.parent().unwrap_or(&self.0);
        let failed = |error: std::io::Error| {
            Error::io(format!("it can't be written: {error}")).in_file(path.to_text())
        };
        fs::create_dir_all(folder).map_err(failed)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".new-");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            // Less what the user masks.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        let mut file = builder.tempfile_in(folder).map_err(failed)?;
        file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
        Ok(file)
    }
}

impl JobStore for Folder {
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(open_error(&error, &path)),
        }
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let path = self.path(name);
        match self.temporary(&path, bytes)?.persist_noclobber(&path) {
            Ok(_) => {
                // An error leaves the file to the system.
                let _ = path.parent().map(sync_folder);
                Ok(true)
            }
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => {
                Err(Error::io(format!("it can't be written: {}", error.error))
                    .in_file(path.to_text()))
            }
        }
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path(name);
        self.temporary(&path, bytes)?.persist(&path).map(drop).map_err(|error| {
            Error::io(format!("it can't be written: {}", error.error)).in_file(path.to_text())
        })
    }

    fn names(&self, folder: &str) -> Result<Vec<String>> {
        let path = self.path(folder);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(open_error(&error, &path)),
        };
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names: std::io::Result<Vec<String>> = names.collect();
        names.map_err(|error| open_error(&error, &path))
    }

    fn remove(&self) -> Result<()> {
        // Only what a job writes: the user may have named a folder with other files.
        for folder in FOLDERS {
            for name in self.names(folder)?.iter().filter(|name| is_of_a_job(name)) {
                self.remove_file(&format!("{folder}/{name}"))?;
            }
            let _ = fs::remove_dir(self.path(folder));
        }
        // The recipe is last, so that an interrupted removal can be repeated.
        for name in self.names("")?.iter().filter(|name| name.starts_with(".new-")) {
            self.remove_file(name)?;
        }
        self.remove_file("committed.json")?;
        self.remove_file("job.json")?;
        // A folder with other files stays.
        let _ = fs::remove_dir(&self.0);
        Ok(())
    }
}

/// Returns whether a job gives this name to a file in its subfolders: `00017.json`, or a temporary
/// name.
fn is_of_a_job(name: &str) -> bool {
    let number = name.strip_suffix(".json").unwrap_or_default();
    let is_number = number.len() >= 5 && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number || name.starts_with(".new-")
}

impl Folder {
    fn remove_file(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(format!("it can't be removed: {error}")).in_file(path.to_text()))
            }
            _ => Ok(()),
        }
    }
}
