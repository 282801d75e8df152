//! Files from a drop, a dialog, or the site itself.

use js_sys::{Array, Function, Promise};
use statelens_checkpoint::order;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    DataTransfer, DataTransferItem, File, FileList, FileSystemDirectoryEntry,
    FileSystemDirectoryReader, FileSystemEntry, FileSystemFileEntry,
};

use crate::messages::get;
use crate::protocol::opened::FileName;

/// A file with the path that it had in what was dropped.
#[derive(Debug, Clone, PartialEq)]
pub struct Dropped {
    /// Name and size as the worker is told.
    pub name: FileName,
    /// The browser's handle.
    pub file: File,
}

impl Dropped {
    /// A file by itself, or one chosen with its folder.
    pub fn new(file: File) -> Self {
        let path = get(&file, "webkitRelativePath").as_string().filter(|path| !path.is_empty());
        Self {
            name: FileName { path: path.unwrap_or_else(|| file.name()), size: file.size() as u64 },
            file,
        }
    }
}

/// The files of a dialog.
pub fn from_list(list: &FileList) -> Vec<Dropped> {
    (0..list.length()).filter_map(|at| list.get(at)).map(Dropped::new).collect()
}

/// How many things are being dragged.
pub fn count(transfer: &DataTransfer) -> usize {
    let items = transfer.items();
    (0..items.length())
        .filter(|&at| items.get(at).is_some_and(|item| item.kind() == "file"))
        .count()
}

/// True if what is dragged are files, not text of the page.
pub fn has_files(transfer: &DataTransfer) -> bool {
    transfer.types().iter().any(|kind| kind.as_string().as_deref() == Some("Files"))
}

/// The files of a drop, those in folders too, or the name of what was dropped if there are none. Entries
/// must be taken while the event is handled, so this is no async function: what it returns reads the
/// folders.
pub fn from_drop(
    transfer: &DataTransfer,
) -> impl Future<Output = Result<Vec<Dropped>, String>> + use<> {
    let items = transfer.items();
    let mut folders = Vec::new();
    let mut files = Vec::new();
    for at in 0..items.length() {
        let Some(item) = items.get(at).filter(|item| item.kind() == "file") else { continue };
        match item.webkit_get_as_entry().ok().flatten() {
            Some(entry) if entry.is_directory() => folders.push((entry, list_of(&item))),
            _ => files.extend(item.get_as_file().ok().flatten().map(Dropped::new)),
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

/// What lists a folder where its entries can't be read (web/files.js).
fn list_of(item: &DataTransferItem) -> Option<Function> {
    let folder = get(&get(&js_sys::global(), "files"), "folder").dyn_into::<Function>().ok()?;
    folder.call1(&JsValue::UNDEFINED, item).ok()?.dyn_into().ok()
}

async fn listed(list: Option<Function>) -> Option<Vec<Dropped>> {
    let promise: Promise = list?.call0(&JsValue::UNDEFINED).ok()?.dyn_into().ok()?;
    let found: Array = JsFuture::from(promise).await.ok()?.dyn_into().ok()?;
    let dropped = |pair: JsValue| {
        let pair: Array = pair.dyn_into().ok()?;
        let file: File = pair.get(1).dyn_into().ok()?;
        let name = FileName { path: pair.get(0).as_string()?, size: file.size() as u64 };
        Some(Dropped { name, file })
    };
    Some(found.iter().filter_map(dropped).collect())
}

/// All entries of a folder; nothing if it can't be read. A reader gives them in batches, the last of
/// which is empty. Browsers tell folders from files, but have no classes of that name for all to see.
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

async fn file_of(entry: &FileSystemFileEntry) -> Option<Dropped> {
    let promise = Promise::new(&mut |resolve: Function, reject: Function| {
        entry.file_with_callback_and_callback(&resolve, &reject);
    });
    let file: File = JsFuture::from(promise).await.ok()?.dyn_into().ok()?;
    let path = entry.full_path().trim_start_matches('/').to_owned();
    Some(Dropped { name: FileName { path, size: file.size() as u64 }, file })
}

/// A bundled example.
pub async fn example(name: &str) -> Option<Dropped> {
    let blob = asset(&format!("examples/{name}")).await?;
    let file = File::new_with_blob_sequence(&Array::of1(&blob), name).ok()?;
    Some(Dropped::new(file))
}

/// The text of a file of the site.
pub async fn asset_text(path: &str) -> Option<String> {
    JsFuture::from(asset(path).await?.text()).await.ok()?.as_string()
}

/// One of the site's own files, or of the page itself if it is all in one file.
async fn asset(path: &str) -> Option<web_sys::Blob> {
    let window = web_sys::window()?;
    match get(&window, "embedded").dyn_into::<Function>() {
        Ok(embedded) => {
            let promise: Promise =
                embedded.call1(&JsValue::UNDEFINED, &path.into()).ok()?.dyn_into().ok()?;
            JsFuture::from(promise).await.ok()?.dyn_into().ok()
        }
        Err(_) => {
            let asked = window.fetch_with_str(&format!("./{path}"));
            let answer: web_sys::Response = JsFuture::from(asked).await.ok()?.dyn_into().ok()?;
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
    // Without a type, the browser guesses one and puts an extension behind a name that has none.
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
    // The download holds on to the blob once it has begun; a minute is far more than that takes.
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
