//! Files in the origin's private file system. Each tab has its own files, and removes only those of
//! closed tabs: a finished file of another tab may not have been saved yet.

use js_sys::{Array, Function, Promise};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{File, FileSystemDirectoryHandle, FileSystemFileHandle};

use crate::messages::{LOCK, get};
use crate::worker::port::scope;

/// The folder of the files.
const FOLDER: &str = "statelens";
/// Milliseconds after which a file counts as left behind if its tab can't be identified.
const DAY: f64 = 86_400_000.0;

/// Creates a file of this tab.
///
/// # Errors
/// Errors of the browser: some have no private file system in private windows.
pub async fn file() -> Result<FileSystemFileHandle, JsValue> {
    let options = web_sys::FileSystemGetFileOptions::new();
    options.set_create(true);
    let name = format!("{}.{}", scope().name(), js_sys::Math::random());
    let folder = folder().await?;
    JsFuture::from(folder.get_file_handle_with_options(&name, &options)).await?.dyn_into()
}

/// Returns how many more bytes the browser lets the page store; `None` if it doesn't say.
pub async fn free_space() -> Option<u64> {
    let storage = get(&scope().navigator(), "storage");
    let estimate: Function = get(&storage, "estimate").dyn_into().ok()?;
    let promise: Promise = estimate.call0(&storage).ok()?.dyn_into().ok()?;
    let found = JsFuture::from(promise).await.ok()?;
    let (quota, usage) = (get(&found, "quota").as_f64()?, get(&found, "usage").as_f64()?);
    Some((quota - usage).max(0.0) as u64)
}

/// Removes a file of this tab.
pub async fn remove(name: &str) {
    if let Ok(folder) = folder().await {
        let _ = JsFuture::from(folder.remove_entry(name)).await;
    }
}

/// Removes those of the finished files that are in the private file system.
pub async fn remove_all(files: &Array) {
    for file in files.iter().filter_map(|file| file.dyn_into::<File>().ok()) {
        remove(&file.name()).await;
    }
}

/// Removes the files that closed tabs have left behind.
pub async fn clean() {
    let Ok(folder) = folder().await else { return };
    let live_locks = live_locks().await;
    let names = folder.keys();
    let mut found = Vec::new();
    while let Ok(next) = names.next() {
        let Ok(item) = JsFuture::from(next).await else { break };
        if get(&item, "done").is_truthy() {
            break;
        }
        found.extend(get(&item, "value").as_string());
    }
    for name in found {
        let age = js_sys::Date::now() - changed(&folder, &name).await;
        if is_orphan(&name, &scope().name(), live_locks.as_deref(), age) {
            // A file that is open for writing can't be removed, and stays.
            let _ = JsFuture::from(folder.remove_entry(&name)).await;
        }
    }
}

/// Returns whether a file belongs to a closed tab, by the tab's lock or else by the file's age.
fn is_orphan(name: &str, own: &str, live_locks: Option<&[String]>, age: f64) -> bool {
    let tab = name.split('.').next().unwrap_or_default();
    match live_locks.filter(|_| tab.starts_with(LOCK)) {
        _ if tab == own => false,
        Some(live_locks) => !live_locks.iter().any(|name| name == tab),
        None => age > DAY,
    }
}

/// Returns the names of the locks that open tabs hold; `None` in a browser without locks.
async fn live_locks() -> Option<Vec<String>> {
    let locks = get(&scope().navigator(), "locks");
    let query: Function = get(&locks, "query").dyn_into().ok()?;
    let promise: Promise = query.call0(&locks).ok()?.dyn_into().ok()?;
    let locks_held: Array = get(&JsFuture::from(promise).await.ok()?, "held").dyn_into().ok()?;
    Some(locks_held.iter().filter_map(|lock| get(&lock, "name").as_string()).collect())
}

/// Returns when a file was last written to; the current time if that is unknown.
async fn changed(folder: &FileSystemDirectoryHandle, name: &str) -> f64 {
    let changed = async {
        let handle = JsFuture::from(folder.get_file_handle(name)).await.ok()?;
        let handle: FileSystemFileHandle = handle.dyn_into().ok()?;
        let file: File = JsFuture::from(handle.get_file()).await.ok()?.dyn_into().ok()?;
        Some(file.last_modified())
    };
    changed.await.unwrap_or_else(js_sys::Date::now)
}

async fn folder() -> Result<FileSystemDirectoryHandle, JsValue> {
    let root: FileSystemDirectoryHandle =
        JsFuture::from(scope().navigator().storage().get_directory()).await?.dyn_into()?;
    let options = web_sys::FileSystemGetDirectoryOptions::new();
    options.set_create(true);
    JsFuture::from(root.get_directory_handle_with_options(FOLDER, &options)).await?.dyn_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_only_files_of_closed_tabs() {
        let tab = |name: &str| format!("{LOCK}{name}");
        let (own, other) = (tab("1"), tab("2"));
        let live_locks = [own.clone(), other.clone()];
        let file = |tab: &str| format!("{tab}.0.25");
        for (name, locks, age, left) in [
            (file(&own), Some(&live_locks[..]), 9.0 * DAY, false),
            (file(&other), Some(&live_locks[..]), 9.0 * DAY, false),
            (file(&tab("3")), Some(&live_locks[..]), 0.0, true),
            // By age, without locks or for files of versions that did not use locks.
            (file(&tab("3")), None, 0.5 * DAY, false),
            (file(&tab("3")), None, 2.0 * DAY, true),
            (file(&own), None, 2.0 * DAY, false),
            ("1763000000000-0.5".to_owned(), Some(&live_locks[..]), 0.5 * DAY, false),
            ("1763000000000-0.5".to_owned(), Some(&live_locks[..]), 2.0 * DAY, true),
        ] {
            assert_eq!(is_orphan(&name, &own, locks, age), left, "{name} {locks:?} {age}");
        }
    }
}
