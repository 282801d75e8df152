//! The small objects of a job, each of which is written once.

use statelens_checkpoint::Result;

/// The place of a job: a folder, or a prefix of an object store. Names have `/` between folders.
pub(crate) trait JobStore: Send + Sync {
    /// Returns an object, or `None` if it does not exist.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// Writes an object unless there is one; returns whether it was written. It appears complete or
    /// not at all.
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool>;

    /// Writes an object, and replaces an existing one.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()>;

    /// Lists the names of the objects in a folder, without the folder.
    fn names(&self, folder: &str) -> Result<Vec<String>>;

    /// Removes all objects of the job.
    fn remove(&self) -> Result<()>;
}

/// Folders of a job.
pub(crate) const FOLDERS: [&str; 2] = ["results", "failed"];
