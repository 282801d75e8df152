//! Giving finished files their names: all of them, or none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use statelens_checkpoint::{Error, Result};

use super::{Output, exists};

/// Whether the bytes must be on the disk before the files get their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// If a file is replaced: the old one goes only when the new one would outlive a power cut.
    /// Other files are left to the system, as `cp` leaves them.
    IfReplacing,
    /// In any case.
    Always,
}

/// Gives all files their names, in order. If one of them can't get its name, none does, and what
/// had those names has them again.
pub fn keep_all(outputs: Vec<Output>, sync: Sync) -> Result<()> {
    for output in outputs.iter().filter(|output| !output.replace) {
        if fs::symlink_metadata(&output.target).is_ok() {
            return Err(exists(&output.target));
        }
    }
    let replacing = outputs.iter().any(|output| fs::symlink_metadata(&output.target).is_ok());
    let sync = sync == Sync::Always || replacing;
    for output in &outputs {
        // Gives back what was reserved and is not needed; that this can fail changes nothing in
        // the file.
        let _ = output.file.metadata().and_then(|about| output.file.set_len(about.len()));
        if sync {
            output.file.sync_all().map_err(|error| not_on_disk(&output.target, &error))?;
        }
    }
    let mut folders: Vec<PathBuf> =
        outputs.iter().map(|output| folder_of(&output.target)).collect();
    folders.sort();
    folders.dedup();
    let mut named = GivenNames::default();
    for output in outputs {
        named.give(output)?;
    }
    if sync {
        for folder in folders {
            sync_folder(&folder).map_err(|error| not_on_disk(&folder, &error))?;
        }
    }
    named.settle();
    Ok(())
}

/// Has the system write what a folder lists to the disk.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    // Elsewhere a folder can't be opened as a file, and the system does it by itself.
    if cfg!(unix) { fs::File::open(folder)?.sync_all() } else { Ok(()) }
}

/// The names that were given so far, and how to take them back.
#[derive(Default)]
struct GivenNames {
    given: Vec<Given>,
    settled: bool,
}

struct Given {
    target: PathBuf,
    /// Where the file is that had the name before.
    old: Option<PathBuf>,
}

impl GivenNames {
    fn give(&mut self, mut output: Output) -> Result<()> {
        let target = output.target.clone();
        let failed = |error: io::Error| {
            Error::io(format!("the finished file can't be given its name: {error}"))
                .in_file(target.display().to_string())
                .advice("Nothing was replaced.")
        };
        if !output.replace {
            // A rename would replace a file that has appeared meanwhile; a hard link does not.
            match fs::hard_link(&output.temporary, &target) {
                // Dropping removes the other name.
                Ok(()) => {
                    self.given.push(Given { target, old: None });
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(exists(&target));
                }
                // A file system without hard links.
                Err(_) if fs::symlink_metadata(&target).is_ok() => return Err(exists(&target)),
                Err(_) => {}
            }
        }
        let old = match fs::symlink_metadata(&target) {
            Ok(about) if about.is_dir() => {
                return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
            }
            Ok(_) => Some(set_aside(&output.temporary, &target).map_err(failed)?),
            Err(_) => None,
        };
        // From here on the old file is put back if anything fails.
        self.given.push(Given { target: target.clone(), old });
        fs::rename(&output.temporary, &target).map_err(failed)?;
        output.kept = true;
        Ok(())
    }

    /// All names are given for good: what had them before goes.
    fn settle(mut self) {
        self.settled = true;
        for old in self.given.iter().filter_map(|given| given.old.as_ref()) {
            // If even that fails it is found as a left-over.
            let _ = fs::remove_file(old);
        }
    }
}

impl Drop for GivenNames {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        for given in self.given.iter().rev() {
            // If even that fails there is nothing left to try.
            let _ = match &given.old {
                Some(old) => fs::rename(old, &given.target),
                None => fs::remove_file(&given.target),
            };
        }
    }
}

/// Gives the file that is to be replaced a second name beside it, or where the file system has no
/// second names, another one.
fn set_aside(temporary: &Path, target: &Path) -> io::Result<PathBuf> {
    // `.statelens-PID-NUMBER.part` becomes `.statelens-PID-NUMBER9.part`: a name that is found as
    // a left-over, and that no temporary file of ours has, for there are far fewer.
    let name = temporary.file_name().unwrap_or_default().to_string_lossy();
    let old = temporary.with_file_name(name.replace(".part", "000009.part"));
    match fs::hard_link(target, &old) {
        Ok(()) => Ok(old),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        Err(_) => fs::rename(target, &old).map(|()| old),
    }
}

fn folder_of(target: &Path) -> PathBuf {
    match target.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn not_on_disk(path: &Path, error: &io::Error) -> Error {
    Error::io(format!("it can't be written to the disk for good: {error}"))
        .in_file(path.display().to_string())
        .advice("Nothing was replaced.")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn if_one_name_cannot_be_given_none_is() {
        let folder = std::env::temp_dir().join(format!("statelens-names-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let [first, second, third] = ["a.bin", "b.bin", "c.bin"].map(|name| folder.join(name));
        fs::write(&first, b"old").unwrap();
        let output = |path: &Path| {
            let output = Output::create(path, true, 0).unwrap();
            (&*output.file).write_all(b"new").unwrap();
            output
        };
        let outputs = vec![output(&first), output(&second), output(&third)];
        // The last one can't get its name: a folder has it.
        fs::create_dir(&third).unwrap();
        fs::write(third.join("in it"), b"").unwrap();
        let error = keep_all(outputs, Sync::IfReplacing).unwrap_err();
        assert!(error.to_string().contains("given its name"), "{error}");
        assert_eq!(fs::read(&first).unwrap(), b"old");
        assert!(!second.exists());
        let count = fs::read_dir(&folder).unwrap().count();
        assert_eq!(count, 2, "a.bin and the folder c.bin");
        // And without the folder, all of them do.
        fs::remove_dir_all(&third).unwrap();
        let outputs = vec![output(&first), output(&second), output(&third)];
        keep_all(outputs, Sync::Always).unwrap();
        for path in [&first, &second, &third] {
            assert_eq!(fs::read(path).unwrap(), b"new");
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        fs::remove_dir_all(folder).unwrap();
    }
}
