//! The files of a checkpoint, for reads that bypass caches.

use std::rc::Rc;
use std::sync::Arc;

use statelens_checkpoint::{FileId, FileSet, ReadAt};
use web_sys::{File, MessagePort};

use crate::open::message::FileName;
use crate::worker::blob::{BlobSource, ReadCounter};
use crate::worker::embedder::OfferedFile;
use crate::worker::remote::{self, RemoteServer};

/// The files of a checkpoint, by their numbers.
pub struct Sources {
    files: Vec<SourceFile>,
    read_counter: Arc<ReadCounter>,
    server: Option<Rc<RemoteServer>>,
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
        }
    }

    /// Wraps files that an embedding page offers, in the order of its list.
    pub(crate) fn from_embedder(port: MessagePort, names: &[FileName]) -> Self {
        let read_counter = Arc::<ReadCounter>::default();
        let files = OfferedFile::all(port, names, &read_counter);
        let files = files.into_iter().map(SourceFile::Offered).collect();
        Self { files, read_counter, server: None }
    }

    /// Wraps files of a server.
    pub fn from_server(server: Rc<RemoteServer>, files: Vec<Option<Arc<remote::XhrFile>>>) -> Self {
        let source_file = |file: Option<_>| file.map_or(SourceFile::Whole, SourceFile::Parts);
        let files = files.into_iter().map(source_file).collect();
        Self { files, read_counter: Arc::default(), server: Some(server) }
    }

    /// Returns the files on disk or of an embedding page as a set.
    pub fn set(&self, names: &[FileName]) -> FileSet {
        let mut set = FileSet::default();
        for (name, file) in names.iter().zip(&self.files) {
            let file: Arc<dyn ReadAt> = match file {
                SourceFile::Disk(file) => Arc::new(file.clone()),
                SourceFile::Offered(file) => Arc::new(file.clone()),
                SourceFile::Parts(_) | SourceFile::Whole => continue,
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
