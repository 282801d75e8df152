//! Files as sources: positioned reads of a real file, never a memory map (a file that another
//! program cuts short would else kill the process).

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use statelens_checkpoint::{Error, FileSet, ReadAt, Result, listed};
use statelens_formats::sets::{CheckpointFiles, ORBAX};

/// A folder with more entries than this is not looked through for files that are linked to.
const MOST_SIBLINGS: usize = 4_096;

/// Files that the folder of an unpacked checkpoint's storages may hold.
const MOST_STORAGES: usize = 1 << 16;

/// Folders in a folder that are looked into: a SavedModel has its variables in one.
const MOST_DEPTH: usize = 2;

/// A regular file, opened when it is first read.
pub struct FileSource {
    path: PathBuf,
    len: u64,
    file: RwLock<Option<Arc<fs::File>>>,
}

/// The files of a checkpoint, and the system's files behind them by number.
#[derive(Default)]
pub struct OpenedFiles {
    /// For readers.
    pub files: FileSet,
    /// For writers that copy spans without looking at them; indexed by `FileId`.
    pub sources: Vec<Arc<FileSource>>,
}

/// The file at `path` with those that it may link to: the ones in `with`, and the other files of
/// its folder, which are opened only if the checkpoint names them.
///
/// A folder is opened at the one checkpoint in it.
pub fn open(path: &Path, with: &[PathBuf]) -> Result<OpenedFiles> {
    let path = &named(path)?;
    let mut opened = OpenedFiles::default();
    let main = FileSource::new(path)?;
    main.file()?;
    opened.push(main);
    for path in with {
        let source = FileSource::new(path)?;
        source.file()?;
        opened.push(source);
    }
    for (path, name) in unpacked(path) {
        if let Ok(source) = FileSource::new(&path) {
            opened.push_named(name, source);
        }
    }
    let given: HashSet<String> = opened.files.iter().map(|(_, file)| file.name.clone()).collect();
    for path in siblings(path) {
        // A file that is no regular one, or that has just gone, is none that we were given.
        if let Ok(source) = FileSource::new(&path)
            && !given.contains(&file_name(&path))
        {
            opened.push(source);
        }
    }
    Ok(opened)
}

/// The file that a path means: itself, the one checkpoint in a folder, or the file to open of a
/// TensorFlow checkpoint that is named by its prefix. It is there, and a regular file.
pub fn named(path: &Path) -> Result<PathBuf> {
    let file = match path.is_dir() {
        true => within(path)?,
        false => prefix(path).unwrap_or_else(|| path.to_owned()),
    };
    FileSource::new(&file).map(|_| file)
}

/// The files in a folder by their paths from it, and the checkpoints among them. Files and folders
/// that `keep` is false for are not looked at.
pub fn checkpoints(
    folder: &Path,
    keep: impl Fn(&Path) -> bool,
) -> Result<(FileSet, Vec<CheckpointFiles>)> {
    let mut files = FileSet::default();
    let mut open = vec![(folder.to_owned(), String::new())];
    while let Some((path, top)) = open.pop() {
        let entries = fs::read_dir(&path).map_err(|error| open_error(&error, &path))?;
        for entry in entries.flatten() {
            let (path, base) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let name = format!("{top}{base}");
            if !keep(&path) {
                continue;
            }
            if path.is_dir() {
                let depth = name.matches('/').count();
                if depth < MOST_DEPTH && !base.starts_with('.') {
                    open.push((path, name + "/"));
                }
                continue;
            }
            if files.count() == MOST_SIBLINGS {
                return Err(Error::limit(format!(
                    "this folder holds more than {MOST_SIBLINGS} files"
                ))
                .in_file(folder.display().to_string())
                .advice("Name the checkpoint in it."));
            }
            let len = entry.metadata().map_or(0, |metadata| metadata.len());
            if path.is_file() {
                files.push(name, Arc::new(Glance { path, len }));
            }
        }
    }
    let found = statelens_formats::sets::sort(&files);
    Ok((files, found))
}

/// Files of a folder, none of which is kept open.
pub fn glance(paths: &[PathBuf]) -> FileSet {
    let mut files = FileSet::default();
    for path in paths {
        let len = fs::metadata(path).map_or(0, |metadata| metadata.len());
        files.push(file_name(path), Arc::new(Glance { path: path.clone(), len }));
    }
    files
}

/// A file that was just written, to be read again before it has its name.
pub fn written(file: &Arc<fs::File>) -> Result<Arc<dyn ReadAt>> {
    let metadata = file.metadata();
    let len = metadata
        .map_err(|error| Error::io(format!("what was written can't be read: {error}")))?
        .len();
    Ok(Arc::new(FileSource::unnamed(file.clone(), len)))
}

/// One file, without those beside it.
pub fn open_alone(path: &Path) -> Result<FileSet> {
    let mut opened = OpenedFiles::default();
    let source = FileSource::new(path)?;
    source.file()?;
    opened.push(source);
    Ok(opened.files)
}

/// The file to open of the one checkpoint in a folder; an error that lists them if there are
/// several.
fn within(folder: &Path) -> Result<PathBuf> {
    let (files, found) = match checkpoints(folder, |_| true) {
        Ok(found) => found,
        Err(error) => {
            // Orbax may write a file for each array. Opening one says what the folder is.
            let part = ORBAX.iter().map(|name| folder.join(name)).find(|part| part.is_file());
            return part.ok_or(error);
        }
    };
    let error = match found.as_slice() {
        [one] => return Ok(folder.join(&one.main)),
        [] => match statelens_formats::telling(&files) {
            // Opening it says why there is no checkpoint.
            Some(file) => return Ok(folder.join(files.name(file))),
            None => Error::unsupported("this folder holds no checkpoint that Statelens knows"),
        },
        several => {
            let names: Vec<&str> = several.iter().map(|one| one.main.as_str()).collect();
            Error::unsupported(format!(
                "this folder holds {} checkpoints: {}",
                several.len(),
                listed(&names, 8)
            ))
            .advice(match files.find("checkpoint") {
                // TensorFlow's note of which is the latest.
                Some(_) => "Name one of them, or the file `checkpoint`, which tells the latest.",
                None => "Name one of them.",
            })
        }
    };
    Err(error.in_file(folder.display().to_string()))
}

/// A file that is opened for each read and closed again: to look at the first bytes of many.
#[derive(Debug)]
struct Glance {
    path: PathBuf,
    len: u64,
}

/// The files of a folder that are opened as checkpoints one after the other. It is looked through
/// once.
pub struct Neighbours {
    files: Vec<(String, Arc<Glance>)>,
}

impl Neighbours {
    /// The files in `folder`, by name and length in bytes.
    pub fn new<'a>(folder: &Path, files: impl Iterator<Item = (&'a str, u64)>) -> Self {
        let files = files
            .map(|(name, len)| (name.to_owned(), Arc::new(Glance { path: folder.join(name), len })))
            .collect();
        Self { files }
    }

    /// All of them, to be opened at the one of that name.
    pub fn opened_at(&self, name: &str) -> FileSet {
        let mut set = FileSet::default();
        let mut main = None;
        for (other, glance) in &self.files {
            let id = set.push(other.clone(), glance.clone());
            if other == name {
                main = Some(id);
            }
        }
        main.map_or(set.clone(), |main| set.opened_at(main))
    }
}

impl ReadAt for Glance {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let file = fs::File::open(&self.path).map_err(|error| open_error(&error, &self.path))?;
        read_exact_at(&file, offset, buffer).map_err(|error| Error::io(error.to_string()))
    }
}

/// The file to open where `path` is no file, but what the names of a TensorFlow checkpoint's files
/// begin with: the index of a bundle, or the first shard of an older one.
fn prefix(path: &Path) -> Option<PathBuf> {
    if path.exists() {
        return None;
    }
    let name = path.file_name()?.to_str()?;
    let index = path.with_file_name(format!("{name}.index"));
    if index.exists() {
        return Some(index);
    }
    siblings(path).into_iter().find(|sibling| {
        let rest = sibling.file_name().and_then(|other| other.to_str()?.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with("-00000-of-"))
    })
}

impl OpenedFiles {
    /// A file that is open and has no name of its own, with those in `with` that it may link to.
    pub fn unnamed(name: &str, file: fs::File, with: &[PathBuf]) -> Result<Self> {
        let len = file.metadata().map_err(|error| open_error(&error, Path::new(name)))?.len();
        let mut opened = Self::default();
        opened.push_named(name.to_owned(), FileSource::unnamed(Arc::new(file), len));
        for path in with {
            let source = FileSource::new(path)?;
            source.file()?;
            opened.push(source);
        }
        Ok(opened)
    }

    fn push(&mut self, source: FileSource) {
        self.push_named(file_name(&source.path), source);
    }

    fn push_named(&mut self, name: String, source: FileSource) {
        let source = Arc::new(source);
        self.files.push(name, source.clone());
        self.sources.push(source);
    }
}

impl FileSource {
    fn new(path: &Path) -> Result<Self> {
        // Looked at before it is opened: opening a pipe would wait for someone to write.
        let metadata = fs::metadata(path).map_err(|error| open_error(&error, path))?;
        if metadata.is_dir() {
            return Err(Error::unsupported("this is a folder, not a file")
                .in_file(path.display().to_string())
                .advice("Name the checkpoint in it."));
        }
        if !metadata.is_file() {
            return Err(Error::unsupported("not a regular file (pipe or device)")
                .in_file(path.display().to_string())
                .advice(
                    "Statelens needs to seek: save it to disk first, or give it as standard \
                     input, which is `-`.",
                ));
        }
        Ok(Self { path: path.to_owned(), len: metadata.len(), file: RwLock::default() })
    }

    /// An open file that has no name.
    pub fn unnamed(file: Arc<fs::File>, len: u64) -> Self {
        Self { path: PathBuf::new(), len, file: RwLock::new(Some(file)) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is read: it is the one that was asked for, or belongs to it.
    pub fn is_open(&self) -> bool {
        self.file.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The open file.
    pub fn file(&self) -> Result<Arc<fs::File>> {
        if let Some(file) = &*self.file.read().unwrap_or_else(PoisonError::into_inner) {
            return Ok(file.clone());
        }
        let file = fs::File::open(&self.path).map_err(|error| open_error(&error, &self.path))?;
        let mut held = self.file.write().unwrap_or_else(PoisonError::into_inner);
        Ok(held.get_or_insert_with(|| Arc::new(file)).clone())
    }
}

impl ReadAt for FileSource {
    fn len(&self) -> u64 {
        self.len
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
            _ => Error::io(format!("reading failed: {error}")).at(offset),
        })
    }
}

impl fmt::Debug for FileSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileSource({})", self.path.display())
    }
}

#[cfg(unix)]
fn read_exact_at(file: &fs::File, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &fs::File, mut offset: u64, mut buffer: &mut [u8]) -> std::io::Result<()> {
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

/// The other entries of the folder, in order of their names; none if there are too many.
fn siblings(path: &Path) -> Vec<PathBuf> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        if found.len() == MOST_SIBLINGS {
            return Vec::new();
        }
        if Some(entry.file_name().as_os_str()) != path.file_name() {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

/// The storages beside the pickle of an unpacked checkpoint of torch, with the names by which they
/// are found.
fn unpacked(path: &Path) -> Vec<(PathBuf, String)> {
    if path.file_name() != Some("data.pkl".as_ref()) {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(path.with_file_name("data")) else { return Vec::new() };
    let entries = entries.flatten().take(MOST_STORAGES);
    let mut found: Vec<(PathBuf, String)> =
        entries.map(|entry| (entry.path(), format!("data/{}", file_name(&entry.path())))).collect();
    found.sort();
    found
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// What is said of a file that can't be opened.
pub fn open_error(error: &std::io::Error, path: &Path) -> Error {
    use std::io::ErrorKind;
    let name = path.display().to_string();
    match error.kind() {
        ErrorKind::NotFound => Error::io("there is no such file").in_file(name),
        ErrorKind::PermissionDenied => Error::io("you may not read this file")
            .in_file(name)
            .advice("Ask its owner, or change its permissions."),
        _ => Error::io(format!("it can't be opened: {error}")).in_file(name),
    }
}
