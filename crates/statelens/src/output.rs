//! Output files, which have temporary names in the folders of their targets until they are
//! complete.

mod addressed;
mod folders;
mod leftovers;
mod names;
mod replaced;
mod shards;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

pub use addressed::check_not_addressed;
pub use folders::Folders;
pub use names::{FolderLock, Sync, keep_all, sync_folder};
pub use shards::old_shards;
use statelens_checkpoint::{Error, Result, size_text};
use statelens_tensor::BUFFER;

use crate::files::PathText as _;
use crate::files::{FileSource, path_text};
use crate::remote;

/// A file that does not have its own name yet. If it is dropped before [`keep_all`], it is removed,
/// and any file with that name stays unchanged.
pub struct Output {
    /// The file under its temporary name; empty at first.
    pub file: Arc<fs::File>,
    temporary: PathBuf,
    target: PathBuf,
    replace: bool,
    /// Whether the temporary file stays when this is dropped.
    kept: bool,
}

/// Fails if `target` may not be written: it is an address, it exists and is not to be replaced, it
/// is one of the input files, it is not a regular file, or it is named after its content.
pub fn check_target(target: &Path, replace: bool, sources: &[Arc<FileSource>]) -> Result<()> {
    let name = || path_text(target);
    if remote::address(target).is_some() {
        return Err(Error::refused("this output can't be written to an address")
            .in_file(name())
            .advice("Write to a file."));
    }
    let metadata = match fs::metadata(target) {
        Ok(metadata) => metadata,
        // A dangling link: the file would appear somewhere else.
        Err(_) if fs::symlink_metadata(target).is_ok() => {
            return Err(Error::refused("this link points to a file that does not exist")
                .in_file(name())
                .advice("Remove the link, or name the file itself."));
        }
        Err(_) => return Ok(()),
    };
    if metadata.is_dir() {
        return Err(Error::refused("this is a folder")
            .in_file(name())
            .advice("Name the file to write in it."));
    }
    if !metadata.is_file() {
        return Err(Error::refused("this is not a regular file").in_file(name()));
    }
    if let Some(source) =
        sources.iter().find(|source| source.is_open() && same_file(target, source.path()))
    {
        return Err(Error::refused("the checkpoint is being read from this file")
            .in_file(source.path().to_text())
            .advice("Write to another name."));
    }
    if !replace {
        return Err(exists(target));
    }
    check_not_addressed(target)
}

/// Writes a file piece by piece, as `write` passes them on. It gets its name when `write` returns.
pub fn write_file<T>(
    target: &Path,
    replace: bool,
    sync: Sync,
    write: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<T>,
) -> Result<T> {
    let mut folders = Folders::make(target.parent())?;
    let output = Output::create(target, replace, 0)?;
    let mut file = io::BufWriter::with_capacity(BUFFER, &*output.file);
    let failed = |error: io::Error| write_error(&error, target);
    let done = write(&mut |bytes| file.write_all(bytes).map_err(failed))?;
    file.flush().map_err(failed)?;
    drop(file);
    keep_all(vec![output], sync)?;
    folders.keep();
    Ok(done)
}

/// Writes small files. All get their names when all are complete.
pub fn write_small<Bytes: AsRef<[u8]>>(
    files: &[(PathBuf, Bytes)],
    replace: bool,
    sync: Sync,
) -> Result<()> {
    // Created folders are removed after their files if anything fails, so they are declared first.
    let mut made = Vec::new();
    let mut outputs = Vec::new();
    for (path, bytes) in files {
        let bytes = bytes.as_ref();
        made.push(Folders::make(path.parent())?);
        let output = Output::create(path, replace, bytes.len() as u64)?;
        (&*output.file).write_all(bytes).map_err(|error| write_error(&error, path))?;
        outputs.push(output);
    }
    keep_all(outputs, sync)?;
    made.iter_mut().for_each(Folders::keep);
    Ok(())
}

fn write_error(error: &io::Error, target: &Path) -> Error {
    Error::io(format!("writing failed: {error}")).caused_by_system(error).in_file(path_text(target))
}

impl Output {
    /// Creates the temporary file, if its disk has space for `bytes`.
    pub fn create(target: &Path, replace: bool, bytes: u64) -> Result<Self> {
        let output = Self::create_as(target, replace, bytes, &leftovers::temporary_name)?;
        leftovers::hold(&output.file);
        Ok(output)
    }

    /// Creates the temporary file under a name that `name` returns for the number of an attempt.
    pub(crate) fn create_as(
        target: &Path,
        replace: bool,
        bytes: u64,
        name: &dyn Fn(u32) -> String,
    ) -> Result<Self> {
        if replace {
            check_not_addressed(target)?;
        }
        // Resolves links, so that a link stays one and its target is replaced.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        let folder = match target.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        if target.file_name().is_none() {
            return Err(Error::refused("this path has no file name").in_file(path_text(&target)));
        }
        leftovers::remove(&folder);
        check_room(&folder, bytes)?;
        for attempt in 0..ATTEMPTS {
            let temporary = folder.join(name(attempt));
            match fs::OpenOptions::new().read(true).write(true).create_new(true).open(&temporary) {
                Ok(file) => {
                    if replace {
                        // Set before the first byte, so that only users who could read the
                        // old file can read it.
                        take_after(&file, &target);
                    }
                    let file = Arc::new(file);
                    return Ok(Self { file, temporary, target, replace, kept: false });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(create_error(&error, &folder, &target)),
            }
        }
        Err(Error::io("no free temporary name was found next to it").in_file(path_text(&target)))
    }

    /// Takes a complete temporary file that another process wrote. It is not removed if it doesn't
    /// get its name. Fails if that name leads to another folder than that of the temporary file.
    pub(crate) fn adopt(temporary: PathBuf, target: &Path, replace: bool) -> Result<Self> {
        check_not_addressed(target)?;
        let name = path_text(target);
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        let folder = |path: &Path| path.parent().and_then(|folder| fs::canonicalize(folder).ok());
        if folder(&target) != folder(&temporary) {
            return Err(Error::refused("this leads to another folder than when it was planned")
                .in_file(name)
                .advice("Remove the link, or plan the job again."));
        }
        let open = open_unlinked(&temporary);
        let file = open.map_err(|error| crate::files::open_error(&error, &temporary))?;
        Ok(Self { file: Arc::new(file), temporary, target, replace, kept: true })
    }

    /// Returns the path of the temporary file.
    pub(crate) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Leaves the file under its temporary name, for other processes; returns its path.
    pub(crate) fn leave(mut self) -> PathBuf {
        self.kept = true;
        self.temporary.clone()
    }

    /// Reserves disk space for `bytes` before the first is written. Then a disk that fills up can't
    /// make a long conversion fail at its end, and the system writes to reserved space twice as
    /// fast as it appends. Has no effect on a file system that can't reserve space.
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        reserve(&self.file, bytes).map_err(|error| {
            Error::io(format!("{} can't be reserved for the file: {error}", size_text(bytes)))
                .in_file(path_text(&self.target))
                .advice("Make room, or write to another disk.")
        })
    }
}

/// Opens a temporary file of another process, unless that path is now a link or not a regular file.
pub(crate) fn open_unlinked(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::other("it is a link, or not a regular file"));
    }
    let file = options.open(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        // Another name of the file would be written to as well.
        if file.metadata()?.nlink() > 1 {
            return Err(io::Error::other("the file has a second name"));
        }
    }
    Ok(file)
}

const ATTEMPTS: u32 = 100;

impl Drop for Output {
    fn drop(&mut self) {
        if !self.kept {
            // If this fails, too, there is nothing left to try; the name of the file shows what it
            // is.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(target_os = "linux")]
fn reserve(file: &fs::File, bytes: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    if bytes == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(_file: &fs::File, _bytes: u64) -> io::Result<()> {
    Ok(())
}

fn check_room(folder: &Path, bytes: u64) -> Result<()> {
    match free_bytes(folder) {
        Some(free) if free < bytes => Err(Error::io(format!(
            "the file may need {}, and its disk has {} left",
            size_text(bytes),
            size_text(free)
        ))
        .in_file(path_text(folder))
        .advice("Make room, or write to another disk.")),
        _ => Ok(()),
    }
}

#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    // A file system without blocks does not report its free space.
    let stat = rustix::fs::statvfs(folder).ok().filter(|stat| stat.f_blocks > 0)?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

#[cfg(not(unix))]
fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}

fn exists(target: &Path) -> Error {
    Error::refused("this file already exists")
        .in_file(path_text(target))
        .coded("exists")
        .advice("Name another one, or allow replacing it.")
}

fn create_error(error: &io::Error, folder: &Path, target: &Path) -> Error {
    let name = path_text(target);
    let made = match error.kind() {
        io::ErrorKind::NotFound => {
            Error::io(format!("there is no folder `{}`", folder.to_text())).in_file(name)
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Error::io(format!(
            "you don't have permission to write in the folder `{}`",
            folder.to_text()
        ))
        .in_file(name)
        .advice("Name a file in another folder."),
        _ => Error::io(format!("it can't be created: {error}")).in_file(name),
    };
    made.caused_by_system(error)
}

/// Gives a new file the permissions of the file that it replaces and, where the system allows it,
/// the owner and group.
#[cfg(unix)]
fn take_after(file: &fs::File, replaced: &Path) {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let Ok(old) = fs::metadata(replaced) else { return };
    // Only root may change the owner, but a user may set a group that they belong to. Changing the
    // owner clears mode bits, so it comes first.
    let owned = std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid()))
        .or_else(|_| std::os::unix::fs::fchown(file, None, Some(old.gid())));
    let mut mode = old.permissions().mode() & 0o7777;
    if owned.is_err() {
        // Another group must not get the permissions of the old one.
        mode &= !0o070;
    }
    // On failure the file keeps the permissions of a new one.
    let _ = file.set_permissions(fs::Permissions::from_mode(mode));
}

#[cfg(not(unix))]
fn take_after(file: &fs::File, replaced: &Path) {
    if let Ok(old) = fs::metadata(replaced) {
        // On failure the file keeps the permissions of a new one.
        let _ = file.set_permissions(old.permissions());
    }
}

/// Returns whether two paths lead to the same file.
pub fn same_file(a: &Path, b: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        if let (Ok(a), Ok(b)) = (fs::metadata(a), fs::metadata(b)) {
            return (a.dev(), a.ino()) == (b.dev(), b.ino());
        }
    }
    matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("statelens-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn keeps_a_file_that_appears_meanwhile() {
        let folder = folder("output-race");
        let target = folder.join("a.pt");
        let output = Output::create(&target, false, 0).unwrap();
        (&*output.file).write_all(b"new").unwrap();
        fs::write(&target, b"appeared").unwrap();
        let error = keep_all(vec![output], Sync::IfReplacing).unwrap_err();
        assert_eq!(error.code(), "exists", "{error}");
        assert_eq!(fs::read(&target).unwrap(), b"appeared");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        let output = Output::create(&target, true, 0).unwrap();
        (&*output.file).write_all(b"new").unwrap();
        keep_all(vec![output], Sync::IfReplacing).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn dropped_output_leaves_no_file() {
        let folder = folder("output-drop");
        drop(Output::create(&folder.join("a.pt"), false, 0).unwrap());
        if free_bytes(&folder).is_some() {
            let error = Output::create(&folder.join("a.pt"), false, u64::MAX).err().unwrap();
            assert!(error.to_string().contains("left"), "{error}");
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn unused_reserved_space_is_released() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = folder("reserved");
        let target = folder.join("a.pt");
        let output = Output::create(&target, false, 0).unwrap();
        output.reserve(8 << 20).unwrap();
        (&*output.file).write_all(b"weights").unwrap();
        keep_all(vec![output], Sync::IfReplacing).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"weights");
        assert!(fs::metadata(&target).unwrap().blocks() * 512 < 1 << 20);
        fs::remove_dir_all(folder).unwrap();
    }
}
