//! The files of a checkpoint, for reads that bypass caches.

use std::rc::Rc;
use std::sync::Arc;

use statelens_checkpoint::{FileId, FileSet};
use web_sys::File;

use crate::protocol::opened::FileName;
use crate::worker::blob::{BlobSource, Spent};
use crate::worker::remote::{self, RemoteServer};

/// The files of a checkpoint, by their numbers.
pub struct Sources {
    files: Vec<Bulk>,
    spent: Arc<Spent>,
    server: Option<Rc<RemoteServer>>,
}

/// A file, for sequential reading.
#[derive(Clone)]
pub enum Bulk {
    /// A file on disk.
    Disk(BlobSource),
    /// A remote file, read by parts.
    Parts(Arc<remote::XhrFile>),
    /// A remote file that was fetched as a whole.
    Whole,
}

impl Sources {
    /// Wraps files on disk.
    #[must_use]
    pub fn of_disk(files: Vec<File>) -> Self {
        let spent = Arc::<Spent>::default();
        let disk = |file| Bulk::Disk(BlobSource::new(file, &spent));
        Self { files: files.into_iter().map(disk).collect(), spent: spent.clone(), server: None }
    }

    /// Wraps files of a server.
    #[must_use]
    pub fn of_server(server: Rc<RemoteServer>, files: Vec<Option<Arc<remote::XhrFile>>>) -> Self {
        let bulk = |file: Option<_>| file.map_or(Bulk::Whole, Bulk::Parts);
        let files = files.into_iter().map(bulk).collect();
        Self { files, spent: Arc::default(), server: Some(server) }
    }

    /// Returns the files on disk as a set.
    #[must_use]
    pub fn set(&self, names: &[FileName]) -> FileSet {
        let mut set = FileSet::default();
        for (name, file) in names.iter().zip(&self.files) {
            if let Bulk::Disk(file) = file {
                set.push(name.path.clone(), Arc::new(file.clone()));
            }
        }
        set
    }

    #[must_use]
    pub fn bulk(&self, id: FileId) -> Option<&Bulk> {
        self.files.get(id.0 as usize)
    }

    /// Returns a file on disk.
    #[must_use]
    pub fn disk(&self, id: FileId) -> Option<&BlobSource> {
        match self.bulk(id)? {
            Bulk::Disk(file) => Some(file),
            _ => None,
        }
    }

    /// Returns the server of remote files.
    #[must_use]
    pub fn server(&self) -> Option<&Rc<RemoteServer>> {
        self.server.as_ref()
    }

    /// Returns the bytes read and the number of reads, of all files together.
    #[must_use]
    pub fn spent(&self) -> &Arc<Spent> {
        &self.spent
    }
}
