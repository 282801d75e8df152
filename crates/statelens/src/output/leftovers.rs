//! Temporary files left over from killed processes.
//!
//! A temporary file is locked while its writer lives: the system releases the lock when the process
//! ends, however it ends. A file of this host that is not locked and was not written to for a while
//! is a left-over. On many shared file systems a host does not see the locks of another, so its
//! files are not touched.

use std::fs::{self, File};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// Age that an unlocked file must have. A file is unlocked between its creation and its lock and,
/// in other versions, between two writers; neither takes this long.
const AGE: Duration = Duration::from_secs(10 * 60);

/// Locks a temporary file until this process ends or closes it.
pub(super) fn hold(file: &File) {
    // On a file system without locks, its files never count as left-overs either.
    let _ = file.try_lock();
}

/// Removes the left-over temporary files of a folder. Errors are ignored: they must not prevent a
/// new file from being written.
pub(super) fn remove(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(is_of_this_host) && is_left_over(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Returns a name for a temporary file of this process: `.statelens-HOST-PID-NUMBER.part`.
pub(super) fn temporary_name(number: u32) -> String {
    format!(".statelens-{}-{}-{number}.part", host(), std::process::id())
}

/// Returns whether a name is one that [`temporary_name`] returns on this host.
fn is_of_this_host(name: &str) -> bool {
    // Several hosts may have no name of their own.
    if ["", "localhost"].contains(&host()) {
        return false;
    }
    let inner = name.strip_prefix(".statelens-").and_then(|rest| rest.strip_suffix(".part"));
    let inner = inner.and_then(|inner| inner.strip_prefix(host())?.strip_prefix('-'));
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    inner.and_then(|inner| inner.split_once('-')).is_some_and(|(pid, at)| number(pid) && number(at))
}

/// Returns the name of this host, with `_` for characters that a file name may not have.
fn host() -> &'static str {
    static HOST: OnceLock<String> = OnceLock::new();
    HOST.get_or_init(|| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
        host_name().chars().take(64).map(|c| if is_plain(c) { c } else { '_' }).collect()
    })
}

#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
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
    use std::collections::BTreeSet;
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
        let of_this_host = |rest: &str| format!(".statelens-{}-{rest}", host());
        drop(make(&of_this_host("1-0.part"), AGE * 2));
        drop(make(&of_this_host("2-0.part"), AGE / 2));
        drop(make(&of_this_host("x-0.part"), AGE * 2));
        // The lock of another host may not be visible here.
        let others = [".statelens-1-0.part", ".statelens-another-1-0.part", "statelens-1-0.part"];
        others.iter().for_each(|name| drop(make(name, AGE * 2)));
        let held = make(&of_this_host("3-0.part"), AGE * 2);
        hold(&held);
        remove(&folder);
        let names = || -> BTreeSet<String> {
            let entries = fs::read_dir(&folder).unwrap();
            entries.map(|one| one.unwrap().file_name().into_string().unwrap()).collect()
        };
        let own = ["2-0.part", "3-0.part", "x-0.part"].map(of_this_host);
        let mut left: BTreeSet<String> = own.into_iter().collect();
        left.extend(others.map(str::to_owned));
        assert_eq!(names(), left);
        drop(held);
        remove(&folder);
        left.remove(&of_this_host("3-0.part"));
        assert_eq!(names(), left);
        fs::remove_dir_all(folder).unwrap();
    }
}
