//! The storages of a zip file: one record each.

use std::collections::HashMap;

use statelens_checkpoint::{ByteOrder, Layout};
use statelens_pickle::{Storage, Storages};

use crate::archive::Archive;

/// Finds storages among the records of an archive.
pub(super) struct Records<'a> {
    archive: &'a Archive,
    /// The folder of the storages: `data`.
    folder: &'a str,
    byte_order: ByteOrder,
    known: HashMap<String, Storage>,
    /// The number of the first storage.
    first: u32,
}

impl<'a> Records<'a> {
    pub(super) fn new(archive: &'a Archive, folder: &'a str, byte_order: ByteOrder) -> Self {
        Self { archive, folder, byte_order, known: HashMap::new(), first: 0 }
    }

    /// Gives the storages other numbers, so that they differ from those of another archive.
    pub(super) fn numbered_from(self, first: u32) -> Self {
        Self { first, ..self }
    }

    /// How many storages were asked for.
    pub(super) fn count(&self) -> u32 {
        self.known.len() as u32
    }

    fn find(&self, key: &str) -> Storage {
        let number = self.first.saturating_add(self.count());
        let name = format!("{}/{key}", self.folder);
        let missing = |reason: String| Layout::Missing(reason.into());
        match self.archive.find(&name) {
            Some(record) => {
                let layout = self.archive.layout(record);
                let layout = layout.unwrap_or_else(|error| missing(error.what().to_owned()));
                Storage { number, layout, len: record.len }
            }
            None => {
                let layout = missing(format!("the file has no record {name:?}"));
                Storage { number, layout, len: 0 }
            }
        }
    }
}

impl Storages for Records<'_> {
    fn storage(&mut self, key: &str, len: u64) -> Storage {
        if let Some(storage) = self.known.get(key) {
            return storage.clone();
        }
        let mut storage = self.find(key);
        if let Layout::Missing(_) = storage.layout {
            storage.len = len;
        }
        self.known.insert(key.to_owned(), storage.clone());
        storage
    }

    fn byte_order(&self) -> ByteOrder {
        self.byte_order
    }
}
