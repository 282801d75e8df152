//! The storages of a zip file, with one record each.

use std::collections::HashMap;

use statelens_checkpoint::{ByteOrder, Layout, Result, try_alloc};
use statelens_pickle::{Storage, Storages};

use crate::archive::Archive;

/// Finds storages among the records of an archive.
pub(super) struct Records<'a> {
    archive: &'a Archive,
    /// The folder of the storages, such as `data`.
    folder: &'a str,
    byte_order: ByteOrder,
    /// For each record, the number of its storage if that was already requested. The layout is not
    /// cached, since looking it up again takes less memory.
    found: Vec<u32>,
    /// Storages without a record, by key.
    lost: HashMap<String, Storage>,
    /// Number of the next storage, and of the first.
    next: u32,
    first: u32,
}

/// Marks a storage that was not requested yet.
const NOT_YET: u32 = u32::MAX;

impl<'a> Records<'a> {
    pub(super) fn new(
        archive: &'a Archive,
        folder: &'a str,
        byte_order: ByteOrder,
    ) -> Result<Self> {
        let found = try_alloc::filled(NOT_YET, archive.len())?;
        Ok(Self { archive, folder, byte_order, found, lost: HashMap::new(), next: 0, first: 0 })
    }

    /// Numbers the storages from `first`, so that they differ from those of another archive.
    pub(super) fn numbered_from(self, first: u32) -> Self {
        Self { first, next: first, ..self }
    }

    pub(super) fn count(&self) -> u32 {
        self.next - self.first
    }

    fn number(&mut self) -> u32 {
        let number = self.next;
        self.next = number.saturating_add(1);
        number
    }
}

impl Storages for Records<'_> {
    fn storage(&mut self, key: &str, len: u64) -> Storage {
        let missing = |reason: String| Layout::Missing(reason.into());
        let Some(index) = self.archive.index(&[self.folder, "/", key]) else {
            if let Some(storage) = self.lost.get(key) {
                return storage.clone();
            }
            let name = format!("{}/{key}", self.folder);
            let layout = missing(format!("the file has no record {name:?}"));
            let storage = Storage { number: self.number(), layout, len };
            self.lost.insert(key.to_owned(), storage.clone());
            return storage;
        };
        let record = &self.archive.records()[index];
        let (layout, len) = match self.archive.layout(record) {
            Ok(layout) => (layout, record.len),
            Err(error) => (missing(error.what().to_owned()), len),
        };
        let number = match self.found[index] {
            NOT_YET => self.number(),
            number => number,
        };
        self.found[index] = number;
        Storage { number, layout, len }
    }

    fn byte_order(&self) -> ByteOrder {
        self.byte_order
    }
}
