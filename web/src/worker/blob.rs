//! The user's files as sources of bytes.
//!
//! A JS handle can't leave its thread, and sources must be able to: so handles stay in a table
//! of this thread, and a source holds a number.

use std::cell::RefCell;
use std::collections::BTreeSet;

use js_sys::Uint8Array;
use statelens_checkpoint::{Error, FileId, FileSet, ReadAt, Result};
use web_sys::{Blob, File, FileReaderSync};

/// More than this is read in pieces: a browser makes garbage of each as large as it.
const PIECE: u64 = 4 << 20;

#[derive(Default)]
struct Table {
    files: Vec<File>,
    /// How many of them are of the open checkpoint; those behind are of the second one.
    own: usize,
    reader: Option<FileReaderSync>,
    read: u64,
    calls: u64,
    touched: BTreeSet<usize>,
}

thread_local! {
    static TABLE: RefCell<Table> = RefCell::default();
}

/// A file of the table.
#[derive(Debug, Clone, Copy)]
pub struct BlobSource {
    index: usize,
    len: u64,
}

/// Replaces the table; sources of the one before read nothing any more.
#[must_use]
pub fn sources(files: Vec<File>) -> Vec<BlobSource> {
    TABLE.with_borrow_mut(|table| {
        let sources = files
            .iter()
            .enumerate()
            .map(|(index, file)| BlobSource { index, len: file.size() as u64 })
            .collect();
        let own = files.len();
        *table = Table { files, own, reader: FileReaderSync::new().ok(), ..Table::default() };
        sources
    })
}

/// Puts the files of a second checkpoint behind those of the open one, in the place of those that
/// were there before; and where in the table they begin.
#[must_use]
pub fn beside(files: Vec<File>) -> (Vec<BlobSource>, usize) {
    TABLE.with_borrow_mut(|table| {
        let base = table.own;
        let source = |(index, file): (usize, &File)| BlobSource {
            index: base + index,
            len: file.size() as u64,
        };
        let sources = files.iter().enumerate().map(source).collect();
        table.files.truncate(base);
        table.files.extend(files);
        (table.read, table.calls) = (0, 0);
        table.touched.clear();
        // Beside a checkpoint that is no file, the table was empty.
        table.reader = table.reader.take().or_else(|| FileReaderSync::new().ok());
        (sources, base)
    })
}

/// Lets further files be read while `work` runs.
pub fn with_more<T>(files: Vec<File>, work: impl FnOnce(Vec<BlobSource>) -> T) -> T {
    let (before, spent) = TABLE.with_borrow_mut(|table| {
        let before = table.files.len();
        table.files.extend(files);
        // Beside a checkpoint that is no file, the table was empty.
        table.reader = table.reader.take().or_else(|| FileReaderSync::new().ok());
        (before, (table.read, table.calls))
    });
    let sources = TABLE.with_borrow(|table| {
        let more = table.files.iter().enumerate().skip(before);
        more.map(|(index, file)| BlobSource { index, len: file.size() as u64 }).collect()
    });
    let result = work(sources);
    TABLE.with_borrow_mut(|table| {
        table.files.truncate(before);
        table.touched.retain(|&index| index < before);
        (table.read, table.calls) = spent;
    });
    result
}

/// The place in the table of a file of a checkpoint whose files begin at `base`: they stand in
/// one order.
pub fn index(files: &FileSet, id: FileId, base: usize) -> Result<usize> {
    let index = base + id.0 as usize;
    TABLE
        .with_borrow(|table| (index < table.files.len()).then_some(index))
        .ok_or_else(|| Error::io("the file is not open any more").in_file(files.name(id)))
}

/// Empties the table.
pub fn forget() {
    TABLE.with_borrow_mut(|table| *table = Table::default());
}

/// Bytes and calls since the table was filled.
#[must_use]
pub fn spent() -> (u64, u64) {
    TABLE.with_borrow(|table| (table.read, table.calls))
}

/// The length of all files that were read from.
#[must_use]
pub fn touched_size() -> u64 {
    TABLE.with_borrow(|table| {
        let files = table.touched.iter().filter_map(|&index| table.files.get(index));
        files.map(|file| file.size() as u64).sum()
    })
}

/// A slice of a file, which moves no bytes.
pub fn slice(index: usize, offset: u64, len: u64) -> Result<Blob> {
    TABLE.with_borrow(|table| {
        let file =
            table.files.get(index).ok_or_else(|| Error::io("the file is not open any more"))?;
        file.slice_with_f64_and_f64(offset as f64, (offset + len) as f64)
            .map_err(|_| gone(&file.name()))
    })
}

impl ReadAt for BlobSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let mut at = offset;
        for piece in buffer.chunks_mut(PIECE as usize) {
            let blob = slice(self.index, at, piece.len() as u64)?;
            let bytes = TABLE.with_borrow_mut(|table| {
                table.read += piece.len() as u64;
                table.calls += 1;
                table.touched.insert(self.index);
                let name = table.files.get(self.index).map(File::name).unwrap_or_default();
                let reader = table
                    .reader
                    .as_ref()
                    .ok_or_else(|| Error::io("this browser reads no files in a worker"))?;
                reader.read_as_array_buffer(&blob).map_err(|_| gone(&name))
            })?;
            let bytes = Uint8Array::new(&bytes);
            if bytes.length() as usize != piece.len() {
                return Err(Error::io("the file is shorter than it was when it was opened").at(at));
            }
            bytes.copy_to(piece);
            at += piece.len() as u64;
        }
        Ok(())
    }
}

/// What a browser says when a file was changed, moved or removed after it was chosen.
#[must_use]
pub fn gone(name: &str) -> Error {
    Error::io("the file was changed, moved or removed since it was opened")
        .in_file(name)
        .advice("Open it again.")
}
