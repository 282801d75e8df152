//! The files of a checkpoint, for what reads past caches.

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

/// A file, as it is read from one end to the other.
#[derive(Clone)]
pub enum Bulk {
    /// A file of the disk.
    Disk(BlobSource),
    /// A remote one, by parts.
    Parts(Arc<remote::XhrFile>),
    /// One that was fetched as a whole.
    Whole,
}

impl Sources {
    /// Files of the disk.
    #[must_use]
    pub fn of_disk(files: Vec<File>) -> Self {
        let spent = Arc::<Spent>::default();
        let disk = |file| Bulk::Disk(BlobSource::new(file, &spent));
        Self { files: files.into_iter().map(disk).collect(), spent: spent.clone(), server: None }
    }

    /// Files of a server.
    #[must_use]
    pub fn of_server(server: Rc<RemoteServer>, files: Vec<Option<Arc<remote::XhrFile>>>) -> Self {
        let bulk = |file: Option<_>| file.map_or(Bulk::Whole, Bulk::Parts);
        let files = files.into_iter().map(bulk).collect();
        Self { files, spent: Arc::default(), server: Some(server) }
    }

    /// Files of the disk as a set.
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

    /// A file.
    #[must_use]
    pub fn bulk(&self, id: FileId) -> Option<&Bulk> {
        self.files.get(id.0 as usize)
    }

    /// A file of the disk.
    #[must_use]
    pub fn disk(&self, id: FileId) -> Option<&BlobSource> {
        match self.bulk(id)? {
            Bulk::Disk(file) => Some(file),
            _ => None,
        }
    }

    /// The server that they are at, if they are not on this computer.
    #[must_use]
    pub fn server(&self) -> Option<&Rc<RemoteServer>> {
        self.server.as_ref()
    }

    /// Bytes that were read and how many reads it took, of all of them.
    #[must_use]
    pub fn spent(&self) -> &Arc<Spent> {
        &self.spent
    }
}
