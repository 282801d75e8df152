//! Files in the origin's private file system. Each tab has its own there, and removes only those of
//! tabs that are gone: what another tab has finished may not be saved yet.

use js_sys::{Array, Function, Promise};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{File, FileSystemDirectoryHandle, FileSystemFileHandle};

use crate::messages::{LOCK, get};
use crate::worker::scope;

/// The folder of the files.
const FOLDER: &str = "statelens";
/// Milliseconds after which a file is taken as left behind where nobody can tell whose it is.
const DAY: f64 = 86_400_000.0;

/// A new file of this tab.
///
/// # Errors
/// As the browser says it: some keep none in private windows.
pub async fn file() -> Result<FileSystemFileHandle, JsValue> {
    let options = web_sys::FileSystemGetFileOptions::new();
    options.set_create(true);
    let name = format!("{}.{}", scope().name(), js_sys::Math::random());
    let folder = folder().await?;
    JsFuture::from(folder.get_file_handle_with_options(&name, &options)).await?.dyn_into()
}

/// Removes a file of this tab.
pub async fn remove(name: &str) {
    if let Ok(folder) = folder().await {
        let _ = JsFuture::from(folder.remove_entry(name)).await;
    }
}

/// Removes those of these finished files that are in it.
pub async fn remove_all(files: &Array) {
    for file in files.iter().filter_map(|file| file.dyn_into::<File>().ok()) {
        remove(&file.name()).await;
    }
}

/// Removes what tabs left that are gone.
pub async fn clean() {
    let Ok(folder) = folder().await else { return };
    let living = living().await;
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
        if is_left(&name, &scope().name(), living.as_deref(), age) {
            // One that is open for writing can't be removed, and stays.
            let _ = JsFuture::from(folder.remove_entry(&name)).await;
        }
    }
}

/// Whether a file is of a tab that is gone: as its lock tells, or else as its age does.
fn is_left(name: &str, own: &str, living: Option<&[String]>, age: f64) -> bool {
    let tab = name.split('.').next().unwrap_or_default();
    match living.filter(|_| tab.starts_with(LOCK)) {
        _ if tab == own => false,
        Some(living) => !living.iter().any(|name| name == tab),
        None => age > DAY,
    }
}

/// The locks that tabs hold while they are there; `None` in a browser without locks.
async fn living() -> Option<Vec<String>> {
    let locks = get(&scope().navigator(), "locks");
    let query: Function = get(&locks, "query").dyn_into().ok()?;
    let asked: Promise = query.call0(&locks).ok()?.dyn_into().ok()?;
    let held: Array = get(&JsFuture::from(asked).await.ok()?, "held").dyn_into().ok()?;
    Some(held.iter().filter_map(|lock| get(&lock, "name").as_string()).collect())
}

/// When a file was last written to; now, if that can't be told.
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
    fn only_what_tabs_left_that_are_gone_is_removed() {
        let tab = |name: &str| format!("{LOCK}{name}");
        let (own, other) = (tab("1"), tab("2"));
        let living = [own.clone(), other.clone()];
        let file = |tab: &str| format!("{tab}.0.25");
        for (name, locks, age, left) in [
            (file(&own), Some(&living[..]), 9.0 * DAY, false),
            (file(&other), Some(&living[..]), 9.0 * DAY, false),
            (file(&tab("3")), Some(&living[..]), 0.0, true),
            // Without locks, and of versions that had none, by age.
            (file(&tab("3")), None, 0.5 * DAY, false),
            (file(&tab("3")), None, 2.0 * DAY, true),
            (file(&own), None, 2.0 * DAY, false),
            ("1763000000000-0.5".to_owned(), Some(&living[..]), 0.5 * DAY, false),
            ("1763000000000-0.5".to_owned(), Some(&living[..]), 2.0 * DAY, true),
        ] {
            assert_eq!(is_left(&name, &own, locks, age), left, "{name} {locks:?} {age}");
        }
    }
}
