//! A torch checkpoint that was unpacked from its zip file: a folder with `data.pkl` and the other
//! records as files: `data/0`, `data/1`, … and `byteorder`.

use std::collections::HashMap;

use statelens_checkpoint::{ByteOrder, FileId, FileSet, Layout, Result, Span};
use statelens_pickle::{Storage, Storages};

use crate::paths::{base, folder};

/// The name of the pickle in such a folder.
pub(crate) const PICKLE: &str = "data.pkl";

/// The files of the storages.
pub(super) struct FolderStorages<'a> {
    files: &'a FileSet,
    found: HashMap<&'a str, FileId>,
    numbers: HashMap<String, u32>,
    order: ByteOrder,
    /// The folder, with a trailing slash.
    top: &'a str,
}

impl<'a> FolderStorages<'a> {
    /// Finds the storages next to the main file. Returns `None` if that is not the pickle of an
    /// unpacked checkpoint.
    pub(super) fn of(files: &'a FileSet) -> Result<Option<Self>> {
        let main = files.main()?;
        let name = files.name(main);
        if base(name) != PICKLE {
            return Ok(None);
        }
        let top = folder(name);
        let mut found = HashMap::new();
        let mut order = ByteOrder::Little;
        for (id, name) in files.names() {
            let Some(name) = name.strip_prefix(top) else { continue };
            if let Some(key) = name.strip_prefix("data/") {
                found.insert(key, id);
            }
            if name == "byteorder"
                && files.read_vec(id, 0, files.len(id).min(8))?.starts_with(b"big")
            {
                order = ByteOrder::Big;
            }
        }
        let storages = Self { files, found, numbers: HashMap::new(), order, top };
        Ok((!storages.found.is_empty()).then_some(storages))
    }
}

impl Storages for FolderStorages<'_> {
    fn storage(&mut self, key: &str, len: u64) -> Storage {
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(key.to_owned()).or_insert(next);
        match self.found.get(key) {
            Some(file) => {
                let len = self.files.len(*file);
                let layout = Layout::Span(Span { file: *file, offset: 0, len });
                Storage { number, layout, len }
            }
            None => {
                let name = format!("{}data/{key}", self.top);
                self.files.note_missed(&name);
                let layout = Layout::Missing(format!("the folder has no file {name:?}").into());
                Storage { number, layout, len }
            }
        }
    }

    fn byte_order(&self) -> ByteOrder {
        self.order
    }
}
