//! Gives finished files their names: all of them, or none.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use statelens_checkpoint::{Error, Result};

use super::replaced::{self, RenamedSet};
use super::{Output, exists};
use crate::files::PathText as _;

/// When the bytes must be on the disk before the files get their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// If a file is replaced: the old one is removed only when the new one would survive a power
    /// failure. Other files are left to the system, as `cp` does.
    IfReplacing,
    /// Always.
    Always,
}

impl Sync {
    /// Returns `Always` if the caller wants to wait until the files are on the disk.
    pub fn of(wait: bool) -> Self {
        if wait { Self::Always } else { Self::IfReplacing }
    }
}

/// Gives all files their names, in order. If one of them can't get its name, none does, and the
/// files that had those names have them again.
///
/// The last file names the others, as an index of shards does. If any of the others replaces a file
/// that the old index names, the old set stays complete under second names until the new index is
/// in place (see [`RenamedSet`]). Where that is not possible, for example for an index that is not
/// JSON, the old index is removed first. At no time does an index name files of two sets. Hold
/// [`FolderLock`] if another process may write the same files.
pub fn keep_all(outputs: Vec<Output>, sync: Sync) -> Result<()> {
    keep_each(outputs, sync, &mut || {})
}

/// Names the files as [`keep_all`] does; `changed` is called after each change of a name.
fn keep_each(outputs: Vec<Output>, sync: Sync, changed: &mut dyn FnMut()) -> Result<()> {
    for output in outputs.iter().filter(|output| !output.replace) {
        if fs::symlink_metadata(&output.target).is_ok() {
            return Err(exists(&output.target));
        }
    }
    let is_there = |output: &Output| fs::symlink_metadata(&output.target).is_ok();
    let sync = sync == Sync::Always || outputs.iter().any(is_there);
    for output in &outputs {
        // Frees reserved space that was not needed. An error changes nothing in the file.
        let _ = output.file.metadata().and_then(|about| output.file.set_len(about.len()));
        if sync {
            output.file.sync_all().map_err(|error| not_on_disk(&output.target, &error))?;
        }
    }
    let mut folders: Vec<PathBuf> =
        outputs.iter().map(|output| folder_of(&output.target)).collect();
    folders.sort();
    folders.dedup();
    let settle = || match sync {
        true => folders.iter().try_for_each(|folder| {
            sync_folder(folder).map_err(|error| not_on_disk(folder, &error))
        }),
        false => Ok(()),
    };
    let mut named = GivenNames::default();
    if let Some((index, others)) = outputs.split_last()
        && is_there(index)
        && others.iter().any(is_there)
    {
        let targets: Vec<&Path> = others.iter().map(|output| &*output.target).collect();
        match RenamedSet::create(&index.target, &targets) {
            Ok(Some(set)) => {
                named.links = set.links;
                settle()?;
                named.redirect(index, &set.index, sync)?;
            }
            Ok(None) | Err(_) => named.take_away(index)?,
        }
        changed();
        settle()?;
    }
    let last = outputs.len().saturating_sub(1);
    for (number, output) in outputs.into_iter().enumerate() {
        if number == last && last > 0 {
            settle()?;
        }
        named.give(output, changed)?;
    }
    settle()?;
    named.settle(changed);
    Ok(())
}

/// A lock that keeps other holders from naming files in a folder until it is dropped.
pub struct FolderLock {
    _folder: Option<fs::File>,
}

impl FolderLock {
    /// Waits for the lock. On a system that can't lock folders, returns without it.
    pub fn wait(folder: &Path) -> Self {
        let folder = if folder == Path::new("") { Path::new(".") } else { folder };
        let file = fs::File::open(folder).ok();
        Self { _folder: file.filter(|file| file.lock().is_ok()) }
    }
}

/// Syncs the list of a folder's files to the disk.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    // Other systems can't open a folder as a file, and sync it by themselves.
    if cfg!(unix) { fs::File::open(folder)?.sync_all() } else { Ok(()) }
}

/// The names given so far, with the information to undo them.
#[derive(Default)]
struct GivenNames {
    given: Vec<Given>,
    /// Second names of the old shards, needed for as long as an index names them.
    links: Vec<PathBuf>,
    settled: bool,
}

struct Given {
    target: PathBuf,
    /// The path to which the file that had the name before was moved.
    old: Option<PathBuf>,
}

impl GivenNames {
    /// Renames the file that an output is to replace.
    fn take_away(&mut self, output: &Output) -> Result<()> {
        let target = &output.target;
        if fs::symlink_metadata(target).is_ok_and(|about| about.is_dir()) {
            return Err(not_named(target, &io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let old = aside(&output.temporary, "8");
        fs::rename(target, &old).map_err(|error| not_named(target, &error))?;
        self.given.push(Given { target: target.clone(), old: Some(old) });
        Ok(())
    }

    /// Replaces the old index by one that names the second names of its shards.
    fn redirect(&mut self, output: &Output, index: &str, sync: bool) -> Result<()> {
        let target = &output.target;
        let failed = |error: io::Error| not_named(target, &error);
        let temporary = aside(&output.temporary, "7");
        let write = || {
            let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&temporary)?;
            file.set_permissions(fs::metadata(target)?.permissions())?;
            file.write_all(index.as_bytes())?;
            if sync { file.sync_all() } else { Ok(()) }
        };
        let old = write().and_then(|()| {
            let old = aside(&output.temporary, "8");
            fs::hard_link(target, &old)?;
            Ok(old)
        });
        let old = old.map_err(|error| {
            let _ = fs::remove_file(&temporary);
            failed(error)
        })?;
        self.given.push(Given { target: target.clone(), old: Some(old) });
        fs::rename(&temporary, target).map_err(failed)
    }

    fn give(&mut self, mut output: Output, changed: &mut dyn FnMut()) -> Result<()> {
        let target = output.target.clone();
        let failed = |error: io::Error| not_named(&target, &error);
        if !output.replace {
            // A rename would replace a file that has appeared meanwhile; a hard link does not.
            match fs::hard_link(&output.temporary, &target) {
                Ok(()) => {
                    // Otherwise, a file of another process would keep its temporary name.
                    output.kept = false;
                    self.given.push(Given { target, old: None });
                    changed();
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(exists(&target));
                }
                // On a file system without hard links, check and rename.
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
        // From here on the old file is restored if anything fails.
        self.given.push(Given { target: target.clone(), old });
        fs::rename(&output.temporary, &target).map_err(failed)?;
        output.kept = true;
        changed();
        Ok(())
    }

    /// Makes all names final and removes the files that had them before.
    fn settle(mut self, changed: &mut dyn FnMut()) {
        self.settled = true;
        for old in self.given.iter().filter_map(|given| given.old.as_ref()) {
            // If this fails, the file is removed later as a left-over.
            let _ = fs::remove_file(old);
            changed();
        }
        replaced::remove(&self.links);
    }
}

impl Drop for GivenNames {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        for given in self.given.iter().rev() {
            // If this fails, too, there is nothing left to try.
            let _ = match &given.old {
                // A rename leaves both names if they are links to one file.
                Some(old) => fs::rename(old, &given.target).map(|()| drop(fs::remove_file(old))),
                None => fs::remove_file(&given.target),
            };
        }
        replaced::remove(&self.links);
    }
}

/// Gives the file to be replaced a second name in the same folder; on a file system without hard
/// links, renames it.
fn set_aside(temporary: &Path, target: &Path) -> io::Result<PathBuf> {
    let old = aside(temporary, "9");
    match fs::hard_link(target, &old) {
        Ok(()) => Ok(old),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        Err(_) => fs::rename(target, &old).map(|()| old),
    }
}

/// Returns a name derived from that of a temporary file: `.statelens-HOST-PID-NUMBER.part` becomes
/// `.statelens-HOST-PID-NUMBER000009.part`. It is recognised as a left-over, and no temporary file has
/// it, because `NUMBER` is less than 100.
fn aside(temporary: &Path, digit: &str) -> PathBuf {
    let name = temporary.file_name().unwrap_or_default().to_string_lossy();
    temporary.with_file_name(name.replace(".part", &format!("00000{digit}.part")))
}

fn not_named(target: &Path, error: &io::Error) -> Error {
    Error::io(format!("the finished file can't be renamed into place: {error}"))
        .caused_by_system(error)
        .in_file(target.to_text())
        .advice("Nothing was replaced.")
}

fn folder_of(target: &Path) -> PathBuf {
    match target.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn not_on_disk(path: &Path, error: &io::Error) -> Error {
    Error::io(format!("it can't be flushed to the disk: {error}"))
        .in_file(path.to_text())
        .advice("Nothing was replaced.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_rename_rolls_back_all_names() {
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
        // The last one can't get its name, because a folder has it.
        fs::create_dir(&third).unwrap();
        fs::write(third.join("in it"), b"").unwrap();
        let error = keep_all(outputs, Sync::IfReplacing).unwrap_err();
        assert!(error.to_string().contains("renamed into place"), "{error}");
        assert_eq!(fs::read(&first).unwrap(), b"old");
        assert!(!second.exists());
        let count = fs::read_dir(&folder).unwrap().count();
        assert_eq!(count, 2, "a.bin and the folder c.bin");
        // Without the folder, all files get their names.
        fs::remove_dir_all(&third).unwrap();
        let outputs = vec![output(&first), output(&second), output(&third)];
        keep_all(outputs, Sync::Always).unwrap();
        for path in [&first, &second, &third] {
            assert_eq!(fs::read(path).unwrap(), b"new");
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        fs::remove_dir_all(folder).unwrap();
    }

    /// Checks the folder after each change of a name, as a kill would leave it.
    #[test]
    fn index_never_mixes_two_sets() {
        let folder = std::env::temp_dir().join(format!("statelens-sets-{}", std::process::id()));
        let counts = [(3, 3), (3, 2), (2, 3), (3, 5), (0, 3)];
        for (json, (old, new)) in
            [true, false].into_iter().flat_map(|json| counts.map(|it| (json, it)))
        {
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            let index = folder.join("index");
            let names = |count: usize| (1..=count).map(move |at| format!("{at}-of-{count}.bin"));
            let list = |count: usize| {
                let names: Vec<String> = names(count).collect();
                if json { serde_json::to_string(&names).unwrap() } else { names.join(" ") }
            };
            for name in names(old) {
                fs::write(folder.join(name), b"old").unwrap();
            }
            if old > 0 {
                fs::write(&index, list(old)).unwrap();
            }
            // Returns which set the index names, after checking that all of it is there.
            let set = || {
                let index = fs::read_to_string(&index).ok()?;
                let names: Vec<String> = match json {
                    true => serde_json::from_str(&index).unwrap(),
                    false => index.split(' ').map(str::to_owned).collect(),
                };
                let read = |name: &String| fs::read_to_string(folder.join(name)).unwrap();
                let mut shards: Vec<String> = names.iter().map(read).collect();
                shards.dedup();
                assert_eq!(shards.len(), 1, "{shards:?}");
                shards.pop()
            };
            let output = |name: &str, text: &str| {
                let output = Output::create(&folder.join(name), true, 0).unwrap();
                (&*output.file).write_all(text.as_bytes()).unwrap();
                output
            };
            let mut outputs: Vec<Output> = names(new).map(|name| output(&name, "new")).collect();
            outputs.push(output("index", &list(new)));
            let _lock = FolderLock::wait(&folder);
            let mut seen = vec![set()];
            keep_each(outputs, Sync::Always, &mut || {
                seen.push(set());
                // No other process can name files meanwhile.
                #[cfg(unix)]
                assert!(fs::File::open(&folder).unwrap().try_lock().is_err());
            })
            .unwrap();
            let before = (old > 0).then(|| "old".to_owned());
            assert_eq!(seen.first(), Some(&before), "{old} {new}");
            assert_eq!(seen.last(), Some(&Some("new".to_owned())), "{old} {new}");
            assert!(seen.len() > new, "{seen:?}");
            let gap = seen.iter().skip_while(|set| set.is_some()).any(Option::is_none);
            assert_eq!(gap, old == 0 || old == new && !json, "{json} {old} {new}: {seen:?}");
            let count = fs::read_dir(&folder).unwrap().count();
            let unchanged = if old == new { 0 } else { old };
            assert_eq!(count, unchanged + new + 1, "{json} {old} {new}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    /// Where a new file can't get its name, the old set and its index are as they were.
    #[test]
    fn restores_a_set_that_cannot_be_replaced() {
        let folder = std::env::temp_dir().join(format!("statelens-back-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let [first, second, index] = ["a.bin", "b.bin", "index"].map(|name| folder.join(name));
        let old = r#"{ "x": "a.bin", "y": "b.bin" }"#;
        for (path, text) in [(&first, "old"), (&second, "old"), (&index, old)] {
            fs::write(path, text).unwrap();
        }
        let outputs = [&first, &second, &index].map(|path| {
            let output = Output::create(path, true, 0).unwrap();
            (&*output.file).write_all(b"new").unwrap();
            output
        });
        // The second can't get its name: its temporary file is gone.
        fs::remove_file(&outputs[1].temporary).unwrap();
        keep_all(outputs.into(), Sync::Always).unwrap_err();
        assert_eq!(fs::read(&first).unwrap(), b"old");
        assert_eq!(fs::read_to_string(&index).unwrap(), old);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        fs::remove_dir_all(folder).unwrap();
    }
}
