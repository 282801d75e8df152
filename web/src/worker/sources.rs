//! The files of a checkpoint, for reads that bypass caches.

use std::rc::Rc;
use std::sync::Arc;

use js_sys::Array;
use statelens_checkpoint::{FileId, FileSet, ReadAt};
use statelens_remote::Address;
use wasm_bindgen::prelude::*;
use web_sys::{File, MessagePort};

use crate::messages::get;
use crate::open::message::FileName;
use crate::protocol::FILES;
use crate::worker::blob::{BlobSource, ReadCounter};
use crate::worker::embedder::OfferedFile;
use crate::worker::job::Job;
use crate::worker::remote::{self, RemoteServer};

/// The files of a checkpoint, by their numbers.
pub struct Sources {
    files: Vec<SourceFile>,
    read_counter: Arc<ReadCounter>,
    server: Option<Rc<RemoteServer>>,
    /// The SHA-256 that the server lists for each file, in hexadecimal; empty if it lists none.
    listed_hashes: Vec<Option<String>>,
}

/// A file, for sequential reading.
#[derive(Clone)]
pub enum SourceFile {
    Disk(BlobSource),
    /// A file of the embedding page.
    Offered(OfferedFile),
    /// A remote file, read by parts.
    Parts(Arc<remote::XhrFile>),
    /// A remote file that was fetched as a whole.
    Whole,
}

impl Sources {
    /// Wraps files on disk.
    pub fn from_disk(files: Vec<File>) -> Self {
        let read_counter = Arc::<ReadCounter>::default();
        let disk = |file| SourceFile::Disk(BlobSource::new(file, &read_counter));
        Self {
            files: files.into_iter().map(disk).collect(),
            read_counter: read_counter.clone(),
            server: None,
            listed_hashes: Vec::new(),
        }
    }

    /// Wraps the files that were sent with a message: those on disk, and the addresses of those that
    /// the command serves.
    pub(crate) fn sent(data: &JsValue, names: &[FileName], job: &Job) -> Self {
        let read_counter = Arc::<ReadCounter>::default();
        // A message without files has no list of them.
        let handles: Array = get(data, FILES).dyn_into().unwrap_or_default();
        let source = |(handle, name): (JsValue, &FileName)| match handle.dyn_into::<File>() {
            Ok(file) => SourceFile::Disk(BlobSource::new(file, &read_counter)),
            Err(address) => match Address::exact(&address.as_string().unwrap_or_default()) {
                Ok(address) => {
                    SourceFile::Parts(remote::listed_file(address, name.size, None, false, job))
                }
                Err(_) => SourceFile::Whole,
            },
        };
        let files = handles.iter().zip(names).map(source).collect();
        Self { files, read_counter: read_counter.clone(), server: None, listed_hashes: Vec::new() }
    }

    /// Wraps files that an embedding page offers, in the order of its list.
    pub(crate) fn from_embedder(port: MessagePort, names: &[FileName]) -> Self {
        let read_counter = Arc::<ReadCounter>::default();
        let files = OfferedFile::all(port, names, &read_counter);
        let files = files.into_iter().map(SourceFile::Offered).collect();
        Self { files, read_counter, server: None, listed_hashes: Vec::new() }
    }

    /// Wraps files of a server.
    pub fn from_server(server: Rc<RemoteServer>, files: Vec<Option<Arc<remote::XhrFile>>>) -> Self {
        let source_file = |file: Option<_>| file.map_or(SourceFile::Whole, SourceFile::Parts);
        let files = files.into_iter().map(source_file).collect();
        let (read_counter, listed_hashes) = (Arc::default(), Vec::new());
        Self { files, read_counter, server: Some(server), listed_hashes }
    }

    /// Sets the SHA-256 that the server lists for each file.
    pub(crate) fn with_listed_hashes(self, listed_hashes: Vec<Option<String>>) -> Self {
        Self { listed_hashes, ..self }
    }

    /// Returns the SHA-256 that the server lists for each file; empty if it lists none.
    pub(crate) fn listed_hashes(&self) -> &[Option<String>] {
        &self.listed_hashes
    }

    /// Returns the files that were sent, or that an embedding page offers, as a set.
    pub fn set(&self, names: &[FileName]) -> FileSet {
        let mut set = FileSet::default();
        for (name, file) in names.iter().zip(&self.files) {
            let file: Arc<dyn ReadAt> = match file {
                SourceFile::Disk(file) => Arc::new(file.clone()),
                SourceFile::Offered(file) => Arc::new(file.clone()),
                SourceFile::Parts(file) => {
                    set.push_remote(name.path.clone(), file.clone(), None);
                    continue;
                }
                SourceFile::Whole => continue,
            };
            set.push(name.path.clone(), file);
        }
        set
    }

    /// Returns whether all files are on disk, so that a synchronous read takes no time.
    pub(crate) fn is_local(&self) -> bool {
        self.files.iter().all(|file| matches!(file, SourceFile::Disk(_)))
    }

    pub fn source_file(&self, id: FileId) -> Option<&SourceFile> {
        self.files.get(id.0 as usize)
    }

    pub fn disk(&self, id: FileId) -> Option<&BlobSource> {
        match self.source_file(id)? {
            SourceFile::Disk(file) => Some(file),
            _ => None,
        }
    }

    /// Returns the names and sizes of the files on disk.
    pub(crate) fn disk_files(&self) -> Vec<(String, u64)> {
        let names = self.files.iter().filter_map(|file| match file {
            SourceFile::Disk(disk) => Some((disk.file().name(), disk.file().size() as u64)),
            _ => None,
        });
        names.collect()
    }

    /// Returns the server of remote files.
    pub fn server(&self) -> Option<&Rc<RemoteServer>> {
        self.server.as_ref()
    }

    /// Returns the bytes read and the number of reads, of all files together.
    pub fn read_counter(&self) -> &Arc<ReadCounter> {
        &self.read_counter
    }
}
