//! The files of a checkpoint.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::cache::{BLOCK, Cache, Structure};
use crate::memo::Memo;
use crate::{Error, Limits, OneThread, ReadAt, Result, Scratch, Workers, try_alloc};

/// One file of a [`FileSet`].
#[derive(Debug, Clone)]
pub struct File {
    /// Name to display, relative to the folder that was opened, with `/`.
    pub name: String,
    /// The bytes of the file, bypassing the cache.
    pub source: Arc<dyn ReadAt>,
    structure: Arc<Structure>,
}

/// Index of a file in a [`FileSet`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// A range of bytes in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

/// The files next to a checkpoint, most of which don't belong to it.
pub trait Siblings: fmt::Debug + Send + Sync {
    /// Returns their names, always in the same order. Lists the folder at the first call.
    fn names(&self) -> &[String];

    /// Returns the names with an extension, such as `json`, in any order. May name entries that are
    /// not files. A folder can be searched faster than it is listed.
    fn with_extension(&self, extension: &'static str) -> Arc<[String]> {
        let names = self.names().iter().filter(|name| has_extension(name, extension));
        names.cloned().collect()
    }

    /// Returns their sources, in the order of the names.
    fn sources(&self) -> Vec<Arc<dyn ReadAt>>;
}

/// The named sources of one checkpoint: one file, shards, or a folder.
#[derive(Debug, Clone, Default)]
pub struct FileSet {
    /// Shared, because a set is opened at one file after another.
    files: Arc<Vec<File>>,
    /// Further files, with the next ids. They are listed when a name is looked up that `files` lacks.
    siblings: Option<Arc<SiblingFiles>>,
    main: u32,
    /// The shared cache for the structure of all files.
    cache: Arc<Cache>,
    /// The most recent results computed from the structure.
    memo: Arc<Memo>,
    /// Names that were looked up and not found, where they are recorded.
    missed: Option<Arc<Mutex<BTreeSet<String>>>>,
    /// The order of the names in `files`.
    order: Arc<NameOrder>,
    /// Limits on reading the files.
    limits: Arc<Limits>,
    scratch: Option<Arc<dyn Scratch>>,
    workers: Option<Arc<dyn Workers>>,
}

/// The files of [`FileSet::with_siblings`].
#[derive(Debug)]
struct SiblingFiles {
    listing: Arc<dyn Siblings>,
    cache: Arc<Cache>,
    files: OnceLock<Vec<File>>,
    /// The order of their names.
    order: NameOrder,
}

/// The indices of names, sorted by name; made when a name is looked up among many.
#[derive(Debug, Default)]
struct NameOrder(OnceLock<Vec<u32>>);

impl NameOrder {
    /// Returns the index of the first of the names that is `name`.
    fn find<T>(&self, names: &[T], text: impl Fn(&T) -> &str, name: &str) -> Option<usize> {
        if names.len() <= FEW_NAMES {
            return names.iter().position(|one| text(one) == name);
        }
        let at = |index: &u32| names.get(*index as usize).map_or("", &text);
        let order = self.0.get_or_init(|| {
            let mut order: Vec<u32> = (0..names.len() as u32).collect();
            order.sort_by(|one, other| at(one).cmp(at(other)).then(one.cmp(other)));
            order
        });
        let found = *order.get(order.partition_point(|index| at(index) < name))?;
        (at(&found) == name).then_some(found as usize)
    }
}

/// Number of names among which one is looked up one by one.
const FEW_NAMES: usize = 16;

/// Maximum number of names that are recorded.
const MAX_MISSED: usize = 4_096;

/// Bytes of weights below which a read uses the cache. Copying this many takes about as long as one
/// call to the system.
const FEW: u64 = 4 << 10;

fn has_extension(name: &str, extension: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, end)| end == extension)
}

impl FileSet {
    /// Creates a set of one file.
    pub fn single(name: impl Into<String>, source: impl ReadAt + 'static) -> Self {
        let mut set = Self::default();
        set.push(name, Arc::new(source));
        set
    }

    /// Adds a file. The first file added counts as the opened one, unless [`FileSet::opened_at`]
    /// picks another.
    pub fn push(&mut self, name: impl Into<String>, source: Arc<dyn ReadAt>) -> FileId {
        let structure = Arc::new(Structure::new(&self.cache, source.clone(), false));
        self.push_file(File { name: name.into(), source, structure })
    }

    /// Like [`FileSet::push`], for a file on a server, where each read is a request. Weights are
    /// read from `streamed`, if given, which may fetch more than requested.
    pub fn push_remote(
        &mut self,
        name: impl Into<String>,
        source: Arc<dyn ReadAt>,
        streamed: Option<Arc<dyn ReadAt>>,
    ) -> FileId {
        let structure = Arc::new(Structure::new(&self.cache, source, true));
        let source = streamed.unwrap_or_else(|| structure.clone());
        self.push_file(File { name: name.into(), source, structure })
    }

    /// Adds a file of another set, with its cache there.
    pub fn push_file(&mut self, file: File) -> FileId {
        self.order = Arc::default();
        let files = Arc::make_mut(&mut self.files);
        if let Some(siblings) = self.siblings.take() {
            files.extend_from_slice(siblings.files());
        }
        files.push(file);
        FileId(files.len() as u32 - 1)
    }

    /// Adds files that are listed and opened only if the checkpoint may refer to them.
    #[must_use]
    pub fn with_siblings(mut self, listing: Arc<dyn Siblings>) -> Self {
        let (cache, files) = (self.cache.clone(), OnceLock::new());
        let order = NameOrder::default();
        self.siblings = Some(Arc::new(SiblingFiles { listing, cache, files, order }));
        self
    }

    /// Returns whether both are clones of one set.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.files, &other.files)
    }

    /// Returns whether any of the files is on a server.
    pub fn is_remote(&self) -> bool {
        self.present().any(|file| file.structure.is_remote())
    }

    /// Iterates over all files, in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = (FileId, &File)> {
        let siblings = self.siblings.iter().flat_map(|siblings| siblings.files());
        let files = self.files.iter().chain(siblings);
        files.enumerate().map(|(index, file)| (FileId(index as u32), file))
    }

    /// Iterates over the names of all files. Does not need to know more about the siblings.
    pub fn names(&self) -> impl Iterator<Item = (FileId, &str)> {
        let siblings = self.siblings.iter().flat_map(|siblings| siblings.listing.names());
        let names = self.files.iter().map(|file| &file.name).chain(siblings);
        names.enumerate().map(|(index, name)| (FileId(index as u32), name.as_str()))
    }

    /// Returns whether there may be a file whose name has an extension, such as `json`, and
    /// matches.
    pub fn any_name(&self, extension: &'static str, matches: impl Fn(&str) -> bool) -> bool {
        let siblings = self.siblings.as_ref();
        let siblings = siblings.map(|siblings| siblings.listing.with_extension(extension));
        let mut added = self.files.iter().map(|file| &file.name);
        added.any(|name| has_extension(name, extension) && matches(name))
            || siblings.iter().flat_map(|names| names.iter()).any(|name| matches(name))
    }

    /// Returns the number of files.
    pub fn count(&self) -> usize {
        let siblings = self.siblings.as_ref().map_or(0, |siblings| siblings.listing.names().len());
        self.files.len() + siblings
    }

    /// Returns the file that was opened.
    pub fn main(&self) -> Result<FileId> {
        match self.files.is_empty() {
            true => Err(Error::io("no file was given")),
            false => Ok(FileId(self.main)),
        }
    }

    /// Returns the same files under the same ids, with `id` as the opened file. An id of another
    /// set changes nothing.
    pub fn opened_at(&self, id: FileId) -> Self {
        let main = if self.get(id).is_some() { id.0 } else { self.main };
        Self { main, ..self.clone() }
    }

    /// Returns the same files with limits for reading from them after they are opened.
    #[must_use]
    pub fn within(mut self, limits: &Limits) -> Self {
        self.limits = Arc::new(limits.clone());
        self.memo = Arc::default();
        self
    }

    /// Returns the limits on reading the files.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the same files with scratch space, for tensors that are stored in an order other
    /// than the one read.
    #[must_use]
    pub fn with_scratch(mut self, scratch: Arc<dyn Scratch>) -> Self {
        self.scratch = Some(scratch);
        self
    }

    /// Returns the same files with threads to open them side by side.
    #[must_use]
    pub fn with_workers(mut self, workers: Arc<dyn Workers>) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Returns the threads that open files: one, unless [`FileSet::with_workers`] set others. Files
    /// on servers are opened one after the other.
    pub fn workers(&self) -> &dyn Workers {
        match &self.workers {
            Some(workers) if !self.is_remote() => &**workers,
            _ => &OneThread,
        }
    }

    /// Returns the threads for requests to servers that do not depend on each other: one, unless
    /// [`FileSet::with_workers`] set others.
    pub fn requests(&self) -> &dyn Workers {
        self.workers.as_deref().unwrap_or(&OneThread)
    }

    /// Returns the scratch space outside memory, if there is any.
    pub fn scratch(&self) -> Option<&Arc<dyn Scratch>> {
        self.scratch.as_ref()
    }

    /// Returns the same files, recording from now on which other names are looked up. Where files
    /// can't be listed, reading the set is the only way to learn which ones belong to it.
    #[must_use]
    pub fn noting_missed(mut self) -> Self {
        self.missed = Some(Arc::default());
        self
    }

    /// Returns the names that [`FileSet::find`] did not find, sorted.
    pub fn missed(&self) -> Vec<String> {
        let missed = self.missed.as_ref().map(|missed| missed.lock());
        let missed = missed.map(|missed| missed.unwrap_or_else(PoisonError::into_inner).clone());
        missed.unwrap_or_default().into_iter().collect()
    }

    /// Returns the file with that exact name.
    pub fn find(&self, name: &str) -> Option<FileId> {
        let sibling = || {
            let siblings = self.siblings.as_ref()?;
            let at = siblings.order.find(siblings.listing.names(), String::as_str, name)?;
            Some(self.files.len() + at)
        };
        let found = self.order.find(&self.files, |file| &file.name, name).or_else(sibling);
        if found.is_none() {
            self.note_missed(name);
        }
        found.map(|index| FileId(index as u32))
    }

    /// Records that a file was looked up and is missing, where such names are recorded.
    pub fn note_missed(&self, name: &str) {
        let Some(missed) = &self.missed else { return };
        let mut missed = missed.lock().unwrap_or_else(PoisonError::into_inner);
        if missed.len() < MAX_MISSED {
            missed.insert(name.to_owned());
        }
    }

    /// Returns the file's name; empty for an id of another set.
    pub fn name(&self, id: FileId) -> &str {
        self.get(id).map_or("", |file| &file.name)
    }

    /// Returns the result that `make` computes for `key` from the structure of the files, or the
    /// cached result of a recent call. For results that many parts of one tensor share. Only the
    /// last two are kept.
    ///
    /// # Errors
    /// Returns the error of `make`.
    pub fn recent<K, V>(&self, key: K, make: impl FnOnce() -> Result<V>) -> Result<Arc<V>>
    where
        K: PartialEq + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        self.memo.recent(key, make)
    }

    /// Returns the file's bytes, bypassing the cache: for weights.
    pub fn source(&self, id: FileId) -> Result<&Arc<dyn ReadAt>> {
        self.file(id).map(|file| &file.source)
    }

    /// Returns the file's bytes through the cache of the set: for structure.
    pub fn structure(&self, id: FileId) -> Result<Arc<Structure>> {
        self.file(id).map(|file| file.structure.clone())
    }

    /// Clears the record of which files have been read.
    pub fn untouch(&self) {
        self.present().for_each(|file| file.structure.touch(false));
    }

    /// Returns the total length of all files that have been read from.
    pub fn touched_size(&self) -> u64 {
        let touched = self.present().filter(|file| file.structure.is_touched());
        touched.fold(0, |sum, file| sum.saturating_add(file.source.len()))
    }

    /// Returns the file's length in bytes; 0 for an id of another set.
    pub fn len(&self, id: FileId) -> u64 {
        self.get(id).map_or(0, |file| file.source.len())
    }

    /// Returns whether the set has no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Fills `buffer` with weights from `offset` of a file; an error if that is past its end. On
    /// disk, reads no other bytes, unless they are few: neighbours are likely to be read next.
    pub fn read_weights(&self, id: FileId, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let File { source, structure, .. } = self.file(id)?;
        let len = buffer.len() as u64;
        if len < FEW || structure.is_remote() || source.overhead() > 0 {
            return self.read(id, offset, buffer);
        }
        self.check(Span { file: id, offset, len })?;
        structure.touch(true);
        source.read_at(offset, buffer).map_err(|error| error.in_file(self.name(id)))
    }

    /// Fills `buffer` from `offset` of a file; an error if that is past its end. Short reads use
    /// the cache.
    pub fn read(&self, id: FileId, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let File { source, structure, .. } = self.file(id)?;
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > source.len()) {
            return Err(self.past_end(id, offset, buffer.len() as u64));
        }
        let read = if (buffer.len() as u64) < BLOCK {
            structure.read_at(offset, buffer)
        } else {
            structure.touch(true);
            source.read_at(offset, buffer)
        };
        read.map_err(|error| error.in_file(self.name(id)))
    }

    /// Fails unless the span is within its file.
    pub fn check(&self, span: Span) -> Result<()> {
        let end = span.offset.checked_add(span.len);
        match end.is_some_and(|end| end <= self.len(span.file)) {
            true => Ok(()),
            false => Err(self.past_end(span.file, span.offset, span.len)),
        }
    }

    /// Reads `len` bytes from `offset`. Checks the length of the file before allocating.
    pub fn read_vec(&self, id: FileId, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.check(Span { file: id, offset, len })?;
        let mut bytes = try_alloc::zeros(len)?;
        self.read(id, offset, &mut bytes)?;
        Ok(bytes)
    }

    fn file(&self, id: FileId) -> Result<&File> {
        let missing = || Error::io("a tensor is in a file that was not given");
        self.get(id).ok_or_else(missing)
    }

    fn get(&self, id: FileId) -> Option<&File> {
        let index = id.0 as usize;
        let sibling = || self.siblings.as_ref()?.files().get(index - self.files.len());
        self.files.get(index).or_else(sibling)
    }

    /// Iterates over the files that were added or opened.
    fn present(&self) -> impl Iterator<Item = &File> {
        let siblings = self.siblings.iter().filter_map(|siblings| siblings.files.get()).flatten();
        self.files.iter().chain(siblings)
    }

    fn past_end(&self, id: FileId, offset: u64, len: u64) -> Error {
        Error::damaged(format!(
            "{len} bytes should be there, but the file ends at byte {}",
            self.len(id)
        ))
        .at(offset)
        .in_file(self.name(id))
        .advice("The file may be cut short: compare its size with the original.")
    }
}

impl SiblingFiles {
    fn files(&self) -> &[File] {
        self.files.get_or_init(|| {
            let named = self.listing.names().iter().cloned().zip(self.listing.sources());
            named
                .map(|(name, source)| {
                    let structure = Arc::new(Structure::new(&self.cache, source.clone(), false));
                    File { name, source, structure }
                })
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;
    use crate::Memory;

    #[derive(Debug, Default)]
    struct Folder {
        names: OnceLock<Vec<String>>,
        opened: AtomicU32,
    }

    impl Siblings for Folder {
        fn names(&self) -> &[String] {
            self.names.get_or_init(|| vec!["b".into(), "c".into()])
        }

        fn sources(&self) -> Vec<Arc<dyn ReadAt>> {
            self.opened.fetch_add(1, Relaxed);
            vec![Arc::new(Memory::from(vec![1])), Arc::new(Memory::from(vec![2, 3]))]
        }
    }

    #[test]
    fn siblings_are_listed_and_opened_when_needed() {
        let folder = Arc::new(Folder::default());
        let set = FileSet::single("a", Memory::from(vec![0])).with_siblings(folder.clone());
        let main = set.main().unwrap();
        assert_eq!((set.find("a"), set.name(main), set.len(main)), (Some(main), "a", 1));
        assert_eq!((set.touched_size(), set.is_remote()), (0, false));
        assert!(folder.names.get().is_none());
        let names =
            |set: &FileSet| set.names().map(|(_, name)| name.to_owned()).collect::<String>();
        assert_eq!((names(&set).as_str(), set.count(), set.find("d")), ("abc", 3, None));
        let other = set.find("c").unwrap();
        assert_eq!(folder.opened.load(Relaxed), 0);
        assert_eq!(set.read_vec(other, 0, 2).unwrap(), [2, 3]);
        assert_eq!((set.opened_at(other).main(), set.touched_size()), (Ok(other), 2));
        let mut more = set.clone();
        assert_eq!(more.push("d", Arc::new(Memory::from(vec![4]))), FileId(3));
        assert_eq!((names(&more).as_str(), more.find("c")), ("abcd", Some(other)));
        assert_eq!((folder.opened.load(Relaxed), set.name(FileId(9))), (1, ""));
        assert!(set.iter().map(|(id, _)| id.0).eq(0..3));
    }

    #[test]
    fn reads_past_the_end_report_the_offset() {
        let set = FileSet::single("x", Memory::from(vec![1, 2, 3]));
        let id = set.main().unwrap();
        assert_eq!(set.read_vec(id, 1, 2).unwrap(), [2, 3]);
        for (offset, len) in [(0, 4), (3, 1), (u64::MAX, 1), (0, u64::MAX)] {
            let error = set.read_vec(id, offset, len).unwrap_err();
            assert_eq!((error.offset(), error.file()), (Some(offset), Some("x")));
        }
    }

    #[test]
    fn records_missed_names_on_request() {
        let set = FileSet::single("x", Memory::from(vec![1]));
        assert_eq!((set.find("y"), set.missed().len()), (None, 0));
        let set = set.noting_missed();
        let other = set.opened_at(FileId(0));
        assert_eq!((other.find("y"), other.find("x")), (None, Some(FileId(0))));
        other.note_missed("a/z");
        assert_eq!(set.missed(), ["a/z", "y"]);
    }

    #[test]
    fn finds_the_first_of_many_names() {
        let mut files = FileSet::default();
        for at in 0..1_000 {
            files.push(format!("{}", at % 900), Arc::new(Memory::from(vec![0])));
        }
        for at in [0, 17, 899] {
            assert_eq!(files.find(&at.to_string()), Some(FileId(at)));
        }
        assert_eq!(files.find("900"), None);
        files.push("900", Arc::new(Memory::from(vec![0])));
        assert_eq!(files.find("900"), Some(FileId(1_000)));
        assert_eq!(files.find(""), None);
        let files = files.with_siblings(Arc::new(Folder::default()));
        assert_eq!(files.find("c"), Some(FileId(1_002)));
    }
}
