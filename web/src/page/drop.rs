//! Files from a drop, a dialog, or the site itself.

use js_sys::{Array, Function, Promise};
use statelens_checkpoint::{order, visible};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    DataTransfer, DataTransferItem, File, FileList, FilePropertyBag, FileSystemDirectoryEntry,
    FileSystemDirectoryReader, FileSystemEntry, FileSystemFileEntry,
};
use yew::AttrValue;

use crate::messages::get;
use crate::open::message::{FileName, StoredMember};
use crate::page::embed::is_embedded;

/// A file with its path within the drop.
#[derive(Debug, Clone, PartialEq)]
pub struct DroppedFile {
    /// Name and size, as sent to the worker.
    pub name: FileName,
    /// The browser's file object; an empty one for a file that is read in another way.
    pub file: File,
    /// The address of a file that the command serves.
    pub address: Option<AttrValue>,
}

/// Returns what the worker reads the files by.
pub fn handles(files: &[DroppedFile]) -> Array {
    let handle = |dropped: &DroppedFile| match &dropped.address {
        Some(address) => JsValue::from(address.as_str()),
        None => dropped.file.clone().into(),
    };
    files.iter().map(handle).collect()
}

impl DroppedFile {
    /// Wraps a file, with its relative path if it was chosen with its folder.
    pub fn new(file: File) -> Self {
        let path = get(&file, "webkitRelativePath").as_string().filter(|path| !path.is_empty());
        Self {
            name: FileName { path: path.unwrap_or_else(|| file.name()), size: file.size() as u64 },
            file,
            address: None,
        }
    }

    /// Wraps a file that the command serves, with the time of its last change in milliseconds.
    pub fn served(name: FileName, address: AttrValue, modified: f64) -> Option<Self> {
        let options = FilePropertyBag::new();
        options.set_last_modified(modified);
        let nothing = Array::new();
        let file =
            File::new_with_str_sequence_and_options(&nothing, &visible(&name.path), &options)
                .ok()?;
        Some(Self { name, file, address: Some(address) })
    }
}

/// Returns a member of an archive as a file. Its bytes stay in the archive.
pub fn member(archive: &DroppedFile, member: &StoredMember) -> Option<DroppedFile> {
    if archive.address.is_some() {
        return None;
    }
    let (start, end) = (member.offset as f64, (member.offset + member.size) as f64);
    let bytes = archive.file.slice_with_f64_and_f64(start, end).ok()?;
    let base = member.name.rsplit('/').next().unwrap_or(&member.name);
    let file = File::new_with_blob_sequence(&Array::of1(&bytes), base).ok()?;
    let path = format!("{}/{}", archive.name.path, member.name);
    Some(DroppedFile { name: FileName { path, size: member.size }, file, address: None })
}

/// Returns the files chosen in a dialog.
pub fn from_list(list: &FileList) -> Vec<DroppedFile> {
    (0..list.length()).filter_map(|at| list.get(at)).map(DroppedFile::new).collect()
}

/// Returns the number of files and folders being dragged.
pub fn count(transfer: &DataTransfer) -> usize {
    let items = transfer.items();
    (0..items.length())
        .filter(|&at| items.get(at).is_some_and(|item| item.kind() == "file"))
        .count()
}

/// Returns whether the drag contains files, and not text of the page. An embedded page accepts
/// none.
pub fn has_files(transfer: &DataTransfer) -> bool {
    !is_embedded()
        && transfer.types().iter().any(|kind| kind.as_string().as_deref() == Some("Files"))
}

/// Returns the files of a drop, including those in folders, or the name of the first dropped folder
/// if there are no files. Entries must be taken while the event is handled, so this is not an async
/// function: the returned future reads the folders.
pub fn from_drop(
    transfer: &DataTransfer,
) -> impl Future<Output = Result<Vec<DroppedFile>, String>> + use<> {
    let items = transfer.items();
    let mut folders = Vec::new();
    let mut files = Vec::new();
    for at in 0..items.length() {
        let Some(item) = items.get(at).filter(|item| item.kind() == "file") else { continue };
        match item.webkit_get_as_entry().ok().flatten() {
            Some(entry) if entry.is_directory() => folders.push((entry, list_of(&item))),
            _ => files.extend(item.get_as_file().ok().flatten().map(DroppedFile::new)),
        }
    }
    async move {
        let name = folders.first().map(|(entry, _)| entry.name()).unwrap_or_default();
        let mut entries = Vec::new();
        for (entry, list) in folders {
            match children(&entry).await {
                Some(found) => entries.extend(found),
                None => files.extend(listed(list).await.unwrap_or_default()),
            }
        }
        while let Some(entry) = entries.pop() {
            match entry.is_directory() {
                true => entries.extend(children(&entry).await.unwrap_or_default()),
                false => files.extend(file_of(entry.unchecked_ref()).await),
            }
        }
        order::by(&mut files, |a, b| a.name.path.cmp(&b.name.path));
        if files.is_empty() { Err(name) } else { Ok(files) }
    }
}

/// Returns a function that lists a folder whose entries can't be read through the entry API
/// (web/files.js).
fn list_of(item: &DataTransferItem) -> Option<Function> {
    let folder = get(&get(&js_sys::global(), "files"), "folder").dyn_into::<Function>().ok()?;
    folder.call1(&JsValue::UNDEFINED, item).ok()?.dyn_into().ok()
}

async fn listed(list: Option<Function>) -> Option<Vec<DroppedFile>> {
    let promise: Promise = list?.call0(&JsValue::UNDEFINED).ok()?.dyn_into().ok()?;
    let found: Array = JsFuture::from(promise).await.ok()?.dyn_into().ok()?;
    let dropped = |pair: JsValue| {
        let pair: Array = pair.dyn_into().ok()?;
        let file: File = pair.get(1).dyn_into().ok()?;
        let name = FileName { path: pair.get(0).as_string()?, size: file.size() as u64 };
        Some(DroppedFile { name, file, address: None })
    };
    Some(found.iter().filter_map(dropped).collect())
}

/// Returns all entries of a folder; `None` if it can't be read. A reader returns them in batches,
/// the last of which is empty. The casts are unchecked since not all browsers expose these classes
/// as globals.
async fn children(folder: &FileSystemEntry) -> Option<Vec<FileSystemEntry>> {
    let reader = folder.unchecked_ref::<FileSystemDirectoryEntry>().create_reader();
    let mut out = Vec::new();
    loop {
        let batch = batch(&reader).await?;
        if batch.length() == 0 {
            return Some(out);
        }
        out.extend(batch.iter().map(JsCast::unchecked_into));
    }
}

async fn batch(reader: &FileSystemDirectoryReader) -> Option<Array> {
    let promise = Promise::new(&mut |resolve: Function, reject: Function| {
        let _ = reader.read_entries_with_callback_and_callback(&resolve, &reject);
    });
    JsFuture::from(promise).await.ok()?.dyn_into().ok()
}

async fn file_of(entry: &FileSystemFileEntry) -> Option<DroppedFile> {
    let promise = Promise::new(&mut |resolve: Function, reject: Function| {
        entry.file_with_callback_and_callback(&resolve, &reject);
    });
    let file: File = JsFuture::from(promise).await.ok()?.dyn_into().ok()?;
    let path = entry.full_path().trim_start_matches('/').to_owned();
    let name = FileName { path, size: file.size() as u64 };
    Some(DroppedFile { name, file, address: None })
}

/// Loads a bundled example.
pub async fn example(name: &str) -> Option<DroppedFile> {
    let blob = asset(&format!("examples/{name}")).await?;
    let file = File::new_with_blob_sequence(&Array::of1(&blob), name).ok()?;
    Some(DroppedFile::new(file))
}

/// Loads a file of the site as text.
pub async fn asset_text(path: &str) -> Option<String> {
    JsFuture::from(asset(path).await?.text()).await.ok()?.as_string()
}

/// Loads a file of the site, or from the page itself if everything is embedded in one file.
async fn asset(path: &str) -> Option<web_sys::Blob> {
    let window = web_sys::window()?;
    match get(&window, "embedded").dyn_into::<Function>() {
        Ok(embedded) => {
            let promise: Promise =
                embedded.call1(&JsValue::UNDEFINED, &path.into()).ok()?.dyn_into().ok()?;
            JsFuture::from(promise).await.ok()?.dyn_into().ok()
        }
        Err(_) => {
            let response = window.fetch_with_str(&format!("./{path}"));
            let answer: web_sys::Response = JsFuture::from(response).await.ok()?.dyn_into().ok()?;
            if !answer.ok() {
                return None;
            }
            JsFuture::from(answer.blob().ok()?).await.ok()?.dyn_into().ok()
        }
    }
}

/// Saves a blob under a name, as a download.
pub fn save(blob: &web_sys::Blob, name: &str) {
    let Some(document) = web_sys::window().and_then(|window| window.document()) else { return };
    // Without a type, the browser guesses one and appends an extension to a name without one.
    let size = blob.size();
    let typed = blob
        .slice_with_f64_and_f64_and_content_type(0.0, size, "application/octet-stream")
        .unwrap_or_else(|_| blob.clone());
    let Ok(url) = web_sys::Url::create_object_url_with_blob(&typed) else { return };
    if let Some(anchor) = document
        .create_element("a")
        .ok()
        .and_then(|node| node.dyn_into::<web_sys::HtmlAnchorElement>().ok())
    {
        anchor.set_href(&url);
        anchor.set_download(name);
        anchor.click();
    }
    // A started download keeps the blob alive; it starts in much less than a minute.
    gloo_timers::callback::Timeout::new(60_000, move || {
        let _ = web_sys::Url::revoke_object_url(&url);
    })
    .forget();
}

/// Saves text under a name, as a download.
pub fn save_text(text: &str, name: &str) {
    let parts = Array::of1(&text.into());
    if let Ok(blob) = web_sys::Blob::new_with_str_sequence(&parts) {
        save(&blob, name);
    }
}
