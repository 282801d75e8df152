//! Temporary files left over from killed processes.
//!
//! A temporary file is locked while its writer lives: the system releases the lock when the process
//! ends, however it ends. A file that is not locked and was not written to for a while is a
//! left-over.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

/// Age that an unlocked file must have. A file is unlocked between its creation and its lock and,
/// in other versions, between two writers; neither takes this long.
const AGE: Duration = Duration::from_secs(10 * 60);

/// Locks a temporary file until this process ends or closes it.
pub(super) fn hold(file: &File) {
    // On a file system without locks, its files are never taken for left-overs either.
    let _ = file.try_lock();
}

/// Removes the left-over temporary files of a folder. Errors are ignored: they must not prevent a
/// new file from being written.
pub(super) fn remove(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(is_temporary) && is_left_over(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Returns whether a name has the form `.statelens-PID-NUMBER.part`.
fn is_temporary(name: &str) -> bool {
    let inner = name.strip_prefix(".statelens-").and_then(|rest| rest.strip_suffix(".part"));
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    inner.and_then(|inner| inner.split_once('-')).is_some_and(|(pid, at)| number(pid) && number(at))
}

fn is_left_over(path: &Path) -> bool {
    // Links are not followed.
    let Ok(about) = fs::symlink_metadata(path) else { return false };
    let old = about.modified().ok().and_then(|time| time.elapsed().ok());
    if !about.is_file() || old.is_none_or(|age| age < AGE) {
        return false;
    }
    fs::OpenOptions::new().write(true).open(path).is_ok_and(|file| file.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn removes_only_old_unlocked_leftovers() {
        let folder =
            std::env::temp_dir().join(format!("statelens-leftovers-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let make = |name: &str, age: Duration| {
            let file = File::create(folder.join(name)).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
            file
        };
        drop(make(".statelens-1-0.part", AGE * 2));
        drop(make(".statelens-2-0.part", AGE / 2));
        drop(make(".statelens-x-0.part", AGE * 2));
        drop(make("statelens-1-0.part", AGE * 2));
        let held = make(".statelens-3-0.part", AGE * 2);
        hold(&held);
        remove(&folder);
        let mut left: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|one| one.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(
            left,
            [
                ".statelens-2-0.part",
                ".statelens-3-0.part",
                ".statelens-x-0.part",
                "statelens-1-0.part"
            ]
        );
        drop(held);
        remove(&folder);
        assert!(!folder.join(".statelens-3-0.part").exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
