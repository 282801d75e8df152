//! A file as a source: positioned reads, its state when it was opened, and errors of opening it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::SystemTime;

use statelens_checkpoint::{Error, ReadAt, Result, listed};

use super::{folder, path_text, prefix, within};
use crate::files::PathText as _;
use crate::listings::MAX_SIBLINGS;

/// A regular file, which is opened on the first read.
pub struct FileSource {
    pub(super) path: PathBuf,
    /// Its length in bytes, once it is needed.
    len: OnceLock<u64>,
    file: RwLock<Option<Arc<fs::File>>>,
    /// Its length and the time of its last change when it was first opened.
    state: OnceLock<FileState>,
}

/// Length and time of the last change.
type FileState = (u64, Option<SystemTime>);

impl FileSource {
    /// Takes the path of a regular file.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        Self::of(path, &fs::metadata(path).map_err(|error| open_error(&error, path))?)
    }

    /// Finds the file that a path means, as [`named`] does.
    pub(super) fn named(path: &Path) -> Result<Self> {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Self::new(&within(path)?),
            Ok(metadata) => Self::of(path, &metadata),
            Err(error) => match prefix(path) {
                Some(file) => Self::new(&file),
                None => Err(open_error(&error, path)),
            },
        }
    }

    /// Takes the path of a regular file. Fails for others before they are opened: opening a pipe
    /// would wait for a writer.
    fn of(path: &Path, metadata: &fs::Metadata) -> Result<Self> {
        if metadata.is_dir() {
            return Err(Error::unsupported("this is a folder, not a file")
                .in_file(path_text(path))
                .advice("Name the checkpoint in it."));
        }
        if !metadata.is_file() {
            return Err(Error::unsupported("not a regular file (pipe or device)")
                .in_file(path_text(path))
                .advice(
                    "Statelens needs to seek: save it to disk first, or pass it as standard input \
                     (`-`).",
                ));
        }
        Ok(Self { len: metadata.len().into(), ..Self::listed(path.to_owned()) })
    }

    /// Creates an entry for a regular file of a listing. Its length is requested when first needed.
    pub(super) fn listed(path: PathBuf) -> Self {
        Self { path, len: OnceLock::new(), file: RwLock::default(), state: OnceLock::new() }
    }

    /// Takes an open file without a name.
    pub fn unnamed(file: Arc<fs::File>, len: u64) -> Self {
        let file = RwLock::new(Some(file));
        Self { path: PathBuf::new(), len: len.into(), file, state: OnceLock::new() }
    }

    /// Fails if the file was overwritten since it was opened: the bytes read may be partly old and
    /// partly new. A file that was replaced or removed is still read as it was.
    pub fn unchanged(&self) -> Result<()> {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner).clone();
        let (Some(before), Some(now)) = (self.state.get(), file.and_then(|file| state(&file)))
        else {
            return Ok(());
        };
        match *before == now {
            true => Ok(()),
            false => Err(Error::io("the file was changed by another program while it was read")
                .coded("changed")
                .in_file(path_text(&self.path))
                .advice("Wait until that program has finished, and try again.")),
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the file is open, because it is the main file or the checkpoint refers to
    /// it.
    pub fn is_open(&self) -> bool {
        self.file.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Returns the open file; opens it if necessary.
    pub fn file(&self) -> Result<Arc<fs::File>> {
        if let Some(file) = &*self.file.read().unwrap_or_else(PoisonError::into_inner) {
            return Ok(file.clone());
        }
        let file = fs::File::open(&self.path).map_err(|error| open_error(&error, &self.path))?;
        if let Some(state) = state(&file) {
            self.state.get_or_init(|| state);
        }
        let mut held = self.file.write().unwrap_or_else(PoisonError::into_inner);
        Ok(held.get_or_insert_with(|| Arc::new(file)).clone())
    }
}

impl ReadAt for FileSource {
    fn len(&self) -> u64 {
        // A file that was deleted since it was listed is empty.
        *self.len.get_or_init(|| fs::metadata(&self.path).map_or(0, |about| about.len()))
    }

    fn version(&self) -> Option<String> {
        let about = fs::metadata(&self.path).ok()?;
        let modified = about.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(format!("{} bytes, changed {:?}", about.len(), modified))
    }

    fn release(&self) {
        if !self.path.as_os_str().is_empty() {
            self.file.write().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        read_exact_at(&*self.file()?, offset, buffer).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Error::io("the file became shorter while it was read").at(offset)
            }
            _ => Error::io(format!("reading failed: {error}")).caused_by_system(&error).at(offset),
        })
    }
}

impl fmt::Debug for FileSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileSource({})", self.path.to_text())
    }
}

fn state(file: &fs::File) -> Option<FileState> {
    let about = file.metadata().ok()?;
    Some((about.len(), about.modified().ok()))
}

/// Fills `buffer` from a position of a file.
#[cfg(unix)]
pub(crate) fn read_exact_at(
    file: &fs::File,
    offset: u64,
    buffer: &mut [u8],
) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

/// Fills `buffer` from a position of a file.
#[cfg(windows)]
pub(crate) fn read_exact_at(
    file: &fs::File,
    mut offset: u64,
    mut buffer: &mut [u8],
) -> std::io::Result<()> {
    while !buffer.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, buffer, offset) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                buffer = &mut buffer[read..];
                offset += read as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(super) const DANGLING: &str = "Fetch the file again: in the cache of Hugging Face, the download did not \
                        finish, or the blob was deleted.";

/// Returns the error of opening a checkpoint, with the links next to it whose files do not exist.
pub(super) fn with_dangling(error: Error, path: &Path) -> Error {
    let Ok(entries) = fs::read_dir(folder(path)) else { return error };
    let is_dangling = |entry: &fs::DirEntry| {
        entry.file_type().is_ok_and(|kind| kind.is_symlink()) && !entry.path().exists()
    };
    let entries = entries.flatten().take(MAX_SIBLINGS).filter(is_dangling);
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| error.what().contains(name)).collect();
    names.sort();
    match names.as_slice() {
        [] => error,
        [one] => {
            error.context(format!("{one} is a link to a file that does not exist")).advice(DANGLING)
        }
        several => {
            let what = format!("{} are links to files that do not exist", listed(several, 5));
            error.context(what).advice(DANGLING)
        }
    }
}

/// Returns whether a path can be the id of a repository on the Hub, `owner/name`.
fn is_repository(path: &Path) -> bool {
    let is_name = |part: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !part.is_empty() && !part.starts_with('.') && part.chars().all(is_plain)
    };
    let halves = path.to_str().and_then(|path| path.split_once('/'));
    halves.is_some_and(|(owner, name)| {
        is_name(owner)
            && is_name(name)
            && !Path::new(owner).exists()
            && !name.contains(".index.")
            && !statelens_formats::has_known_extension(name)
    })
}

/// Returns the error for a file that can't be opened.
pub fn open_error(error: &std::io::Error, path: &Path) -> Error {
    use std::io::ErrorKind;
    let name = path_text(path);
    let made = match error.kind() {
        ErrorKind::NotFound => match fs::read_link(path) {
            Ok(target) => {
                Error::io(format!("this is a link to {}, which does not exist", target.to_text()))
                    .coded("not-found")
                    .in_file(name)
                    .advice(DANGLING)
            }
            Err(_) => {
                let missing = Error::io("the file does not exist").coded("not-found");
                match is_repository(path) {
                    true => missing
                        .advice(format!("For a repository on the Hub, write hf://{name}."))
                        .in_file(name),
                    false => missing.in_file(name),
                }
            }
        },
        ErrorKind::PermissionDenied => Error::io("you don't have permission to read this file")
            .in_file(name)
            .advice("Ask its owner, or change its permissions."),
        _ => Error::io(format!("it can't be opened: {error}")).in_file(name),
    };
    made.caused_by_system(error)
}
