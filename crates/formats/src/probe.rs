//! Format detection by content.

use statelens_checkpoint::{FileSet, Result};

/// How confident a format is that a file is its own, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Score {
    No,
    /// Only the name matches. The reader will report the error in the content.
    Named,
    /// The file may contain this format somewhere inside.
    Holds,
    /// Possibly this format, if no other claims the file.
    Maybe,
    Magic,
    /// The magic bytes are those of a container, for which this format is the default.
    Container,
    /// Container, and the name of its first member or of the file is unique to this format.
    Member,
    /// Container, and its content names the producer.
    Inside,
    /// The content names the format itself.
    Exact,
}

/// The main file of a set, as seen by format detection.
#[derive(Debug)]
pub struct Probe<'a> {
    files: &'a FileSet,
    head: Vec<u8>,
}

/// Covers every magic number: that of tar (at 257), and that of HDF5 after a user block of up to 16
/// kB.
const HEAD: u64 = 16_384 + 8;

impl<'a> Probe<'a> {
    pub fn new(files: &'a FileSet) -> Result<Self> {
        let main = files.main()?;
        let head = files.read_vec(main, 0, files.len(main).min(HEAD))?;
        Ok(Self { files, head })
    }

    /// Returns the first bytes, a few kilobytes.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    pub fn files(&self) -> &FileSet {
        self.files
    }

    /// Returns the name of the main file. Use it for messages and to break ties, never as the only
    /// criterion.
    pub fn name(&self) -> &str {
        self.files.main().map_or("", |id| self.files.name(id))
    }

    /// Returns the length of the main file in bytes.
    pub fn len(&self) -> u64 {
        self.files.main().map_or(0, |id| self.files.len(id))
    }

    /// Returns whether the main file is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
