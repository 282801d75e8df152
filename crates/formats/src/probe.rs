//! Telling formats apart by content.

use statelens_checkpoint::{FileSet, Result};

/// How sure a format is that a file is its own, the least sure first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Score {
    /// Not this format.
    No,
    /// Its name says so, and nothing in it: so that its reader says what is wrong with it.
    Named,
    /// It may be somewhere in it.
    Holds,
    /// It could be, if nobody else claims it.
    Maybe,
    /// The magic bytes say so.
    Magic,
    /// The magic bytes are those of a container, which this format is the first to think of.
    Container,
    /// So they are, and its first member or its name is one that only this format has.
    Member,
    /// So they are, and what is inside says what made it.
    Inside,
    /// It names the format itself.
    Exact,
}

/// The first file of a set, as far as formats look at it to tell themselves apart.
#[derive(Debug)]
pub struct Probe<'a> {
    files: &'a FileSet,
    head: Vec<u8>,
}

/// Enough for every magic number: tar's (at 257), and HDF5's behind a user block of up to 16 kB.
const HEAD: u64 = 16_384 + 8;

impl<'a> Probe<'a> {
    /// Reads the first bytes.
    pub fn new(files: &'a FileSet) -> Result<Self> {
        let main = files.main()?;
        let head = files.read_vec(main, 0, files.len(main).min(HEAD))?;
        Ok(Self { files, head })
    }

    /// The first bytes, a few kilobytes.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The whole set.
    pub fn files(&self) -> &FileSet {
        self.files
    }

    /// The name of the first file: for messages and ties, never the only reason.
    pub fn name(&self) -> &str {
        self.files.main().map_or("", |id| self.files.name(id))
    }

    /// Length of the first file in bytes.
    pub fn len(&self) -> u64 {
        self.files.main().map_or(0, |id| self.files.len(id))
    }

    /// Whether the first file is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
