//! The destination of new files, and the one that writes them to the disk.

use std::sync::Arc;
use std::{fs, io};

use statelens_checkpoint::{Error, FileSet, ReadAt, Result, Span, grouped, try_alloc};
use statelens_tensor::Receive;

use crate::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use crate::sync::{JoinHandle, Mutex, PoisonError};
use crate::threads::{no_thread, thread};

/// Bytes that [`Sink::copy`] reads at once, unless a sink does it in another way.
const COPIED: usize = 256 << 10;
/// Bytes that are written at once, beginning at a multiple of it: few enough that data just read is
/// still in the processor's cache, and enough that the system stores them as few large pages.
const PIECE: usize = 512 << 10;
/// Alignment of buffers: the system copies whole cache lines faster.
const ALIGNMENT: usize = 64;
/// Spans of at least this many bytes are read by the writer threads.
const LONG: usize = 16 << 10;
/// The largest number of pieces that wait to be written.
const WAITING: usize = 4;
/// Number of writer threads. One writes while the other reads the next piece. A third would be
/// idle, because the system lets only one thread at a time write to a file.
const WRITERS: usize = 2;

/// The destination of new files.
pub trait Sink {
    /// Starts this file of the plan; the previous one is complete.
    fn begin(&mut self, index: usize) -> Result<()>;

    /// Appends bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Appends a span of the source. If the operating system can copy from file to file, a sink
    /// does that; otherwise the bytes are read and written.
    fn copy(&mut self, files: &FileSet, span: Span) -> Result<()> {
        let mut buffer = vec![0; span.len.min(COPIED as u64) as usize];
        let (mut offset, end) = (span.offset, span.offset.saturating_add(span.len));
        while offset < end {
            let len = (end - offset).min(COPIED as u64) as usize;
            files.read(span.file, offset, &mut buffer[..len])?;
            self.write(&buffer[..len])?;
            offset += len as u64;
        }
        Ok(())
    }

    /// Replaces the first bytes of the file.
    fn patch_head(&mut self, head: &[u8]) -> Result<()>;
}

impl Receive for dyn Sink + '_ {
    fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        self.write(bytes)
    }
}

/// Writes to files, one after the other, on its own threads, while the caller reads, decodes and
/// checks the next bytes. The threads also read the spans that are copied unchanged. (Copying in
/// the kernel took longer: it copies page by page where a span and its copy are not aligned alike.)
pub struct FileSink {
    /// The files, and the position at which each is written.
    files: Vec<(Arc<fs::File>, u64)>,
    current: usize,
    /// Position in the current file up to which bytes are written or queued.
    end: u64,
    piece: WritePiece,
    threads: Option<WriterThreads>,
    emptied: Receiver<Buffer>,
    empty: Sender<Buffer>,
    /// Bytes of all files that were queued, for errors.
    written: u64,
}

/// The writer threads and their queue.
struct WriterThreads {
    jobs: SyncSender<WriteJob>,
    writers: Vec<JoinHandle<WriteResult>>,
}

type WriteResult = std::result::Result<(), Failure>;

/// The reason why a thread stopped early.
enum Failure {
    Reading(Error),
    Writing(io::Error),
}

/// A piece and its position in a file.
struct WriteJob {
    file: Arc<fs::File>,
    at: u64,
    piece: WritePiece,
}

/// At most [`PIECE`] bytes that are written at once.
#[derive(Default)]
struct WritePiece {
    len: usize,
    /// The bytes made by the caller, at their positions; `None` if all are copied.
    made: Option<Buffer>,
    /// The spans that are still to be read.
    copied: Vec<Copied>,
}

/// Bytes of a piece that are copied from another file.
struct Copied {
    /// Position in the piece and length, in bytes.
    from: usize,
    len: usize,
    source: Arc<dyn ReadAt>,
    name: String,
    offset: u64,
}

/// A buffer for [`PIECE`] bytes.
struct Buffer {
    bytes: Vec<u8>,
    /// Index of the first aligned byte.
    start: usize,
}

impl FileSink {
    /// Takes the files of the plan, by index; they must be empty and open for writing.
    pub fn new(files: Vec<Arc<fs::File>>) -> Self {
        Self::at(files.into_iter().map(|file| (file, 0)).collect())
    }

    /// Takes the files of the plan, by index, and the position of the first byte in each.
    pub fn at(files: Vec<(Arc<fs::File>, u64)>) -> Self {
        let (empty, emptied) = channel();
        let end = files.first().map_or(0, |(_, start)| *start);
        Self {
            files,
            current: 0,
            end,
            piece: WritePiece::default(),
            threads: None,
            emptied,
            empty,
            written: 0,
        }
    }

    /// Waits until everything is written.
    pub fn finish(mut self) -> Result<()> {
        self.hand_over()?;
        self.wait()
    }

    /// Queues the piece and begins the next one.
    fn hand_over(&mut self) -> Result<()> {
        let piece = std::mem::take(&mut self.piece);
        if piece.len == 0 {
            return Ok(());
        }
        self.written += piece.len as u64;
        let job = WriteJob { file: self.file()?, at: self.end - piece.len as u64, piece };
        let threads = match &mut self.threads {
            Some(threads) => threads,
            none => none.insert(WriterThreads::new(&self.empty)?),
        };
        // The queue closes only after a writer has failed.
        match threads.jobs.send(job) {
            Ok(()) => Ok(()),
            Err(_) => {
                self.wait()?;
                Err(Error::io("writing ended unexpectedly"))
            }
        }
    }

    /// Counts added bytes, and queues the piece when it is full.
    fn added(&mut self, len: usize) -> Result<()> {
        self.piece.len += len;
        self.end += len as u64;
        if self.room() == PIECE { self.hand_over() } else { Ok(()) }
    }

    /// Returns how many bytes the piece can still take at the end of the file.
    fn room(&self) -> usize {
        PIECE - (self.end % PIECE as u64) as usize
    }

    /// Returns the buffer for the next `len` bytes of the piece.
    fn next(&mut self, len: usize) -> Result<&mut [u8]> {
        let buffer = match &mut self.piece.made {
            Some(buffer) => buffer,
            none => none.insert(self.emptied.try_recv().or_else(|_| Buffer::new())?),
        };
        Ok(buffer.part(self.piece.len, len))
    }

    fn file(&self) -> Result<Arc<fs::File>> {
        self.target(self.current).map(|(file, _)| file)
    }

    fn target(&self, index: usize) -> Result<(Arc<fs::File>, u64)> {
        self.files.get(index).cloned().ok_or_else(|| {
            Error::io("a plan writes to a file that it does not name").advice("Please report it.")
        })
    }

    /// Waits until the queue is written; returns the first error, if any.
    fn wait(&mut self) -> Result<()> {
        let Some(WriterThreads { jobs, writers }) = self.threads.take() else { return Ok(()) };
        drop(jobs);
        let mut outcome = Ok(());
        for writer in writers {
            let ended = match writer.join() {
                Ok(Ok(())) => Ok(()),
                Ok(Err(Failure::Reading(error))) => Err(error),
                Ok(Err(Failure::Writing(error))) => Err(self.failed(&error)),
                Err(_) => Err(Error::io("writing ended unexpectedly")),
            };
            outcome = outcome.and(ended);
        }
        outcome
    }

    fn failed(&self, error: &io::Error) -> Error {
        let place = format!("writing failed within the first {} bytes", grouped(self.written));
        let made = match error.kind() {
            io::ErrorKind::StorageFull => {
                Error::io(format!("{place}: the disk is full")).advice("Make room and try again.")
            }
            io::ErrorKind::QuotaExceeded => Error::io(format!("{place}: your quota is used up"))
                .advice("Make room and try again."),
            io::ErrorKind::FileTooLarge => {
                Error::io(format!("{place}: the system allows no larger file"))
            }
            _ => Error::io(format!("{place}: {error}")),
        };
        made.caused_by_system(error)
    }
}

impl WriterThreads {
    fn new(empty: &Sender<Buffer>) -> Result<Self> {
        let (jobs, waiting) = sync_channel(WAITING);
        let waiting = Arc::new(Mutex::new(Some(waiting)));
        let writer = |_| {
            let (waiting, empty, own) = (waiting.clone(), empty.clone(), Buffer::new()?);
            thread()?.spawn(move || write_all(&waiting, &empty, own)).map_err(no_thread)
        };
        // If one can't be started, the others end when the queue is dropped.
        let writers = (0..WRITERS).map(writer).collect::<Result<_>>()?;
        Ok(Self { jobs, writers })
    }
}

impl Buffer {
    fn new() -> Result<Self> {
        let bytes = try_alloc::zeros((PIECE + ALIGNMENT) as u64)?;
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Ok(Self { bytes, start })
    }

    fn part(&mut self, from: usize, len: usize) -> &mut [u8] {
        let from = self.start + from;
        &mut self.bytes[from..from + len]
    }
}

/// The queue of jobs, shared by the writers; `None` after one of them has failed.
type JobQueue = Mutex<Option<Receiver<WriteJob>>>;

/// Writes jobs until the queue ends. `own` is the buffer for pieces that consist of copied bytes
/// only, because the bytes that this thread read last are in its processor's cache.
fn write_all(waiting: &JobQueue, empty: &Sender<Buffer>, mut own: Buffer) -> WriteResult {
    let lock = || waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let _guard = CloseOnPanic(waiting);
    loop {
        let mut jobs = Some(lock());
        let job = jobs.as_ref().and_then(|jobs| jobs.as_ref()?.recv().ok());
        let Some(WriteJob { file, at, mut piece }) = job else { return Ok(()) };
        if !piece.copied.is_empty() {
            // Unlock the queue, so that the other thread reads its piece while this one writes.
            // Without copied bytes the lock is kept: the caller, who makes all bytes, needs a core
            // that the other thread would take up waiting for the file.
            jobs = None;
        }
        let buffer = piece.made.as_mut().unwrap_or(&mut own);
        let read = piece.copied.iter().try_for_each(|copied| {
            let read = copied.source.read_at(copied.offset, buffer.part(copied.from, copied.len));
            read.map_err(|error| Failure::Reading(error.in_file(&copied.name)))
        });
        let write = |()| write_at(&file, buffer.part(0, piece.len), at).map_err(Failure::Writing);
        let outcome = read.and_then(write);
        drop(jobs);
        if outcome.is_err() {
            // Closes the queue, so that the next send fails.
            *lock() = None;
            return outcome;
        }
        if let Some(buffer) = piece.made {
            // Fails when the sink is gone, after the last bytes.
            let _ = empty.send(buffer);
        }
    }
}

/// Closes the queue if the writer that holds it panics, because its piece is missing.
struct CloseOnPanic<'a>(&'a JobQueue);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

#[cfg(unix)]
pub(crate) fn write_at(file: &fs::File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(windows)]
pub(crate) fn write_at(file: &fs::File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, bytes, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                at += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Drop for FileSink {
    /// Waits for the writers: nothing may be written after the sink is dropped.
    fn drop(&mut self) {
        let _ = self.wait();
    }
}

impl Sink for FileSink {
    fn begin(&mut self, index: usize) -> Result<()> {
        self.hand_over()?;
        self.current = index;
        (_, self.end) = self.target(index)?;
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(self.room().min(bytes.len()));
            self.next(now.len())?.copy_from_slice(now);
            self.added(now.len())?;
            bytes = later;
        }
        Ok(())
    }

    fn copy(&mut self, files: &FileSet, span: Span) -> Result<()> {
        files.check(span)?;
        let source = files.source(span.file)?;
        let (mut offset, mut left) = (span.offset, span.len);
        while left > 0 {
            let len = self.room().min(usize::try_from(left).unwrap_or(PIECE));
            // The caller's thread can be stopped while it waits for a server; the writers can't.
            if len < LONG || files.is_remote() {
                files.read(span.file, offset, self.next(len)?)?;
            } else {
                let (source, name) = (source.clone(), files.name(span.file).to_owned());
                self.piece.copied.push(Copied { from: self.piece.len, len, source, name, offset });
            }
            self.added(len)?;
            offset += len as u64;
            left -= len as u64;
        }
        Ok(())
    }

    fn patch_head(&mut self, head: &[u8]) -> Result<()> {
        self.hand_over()?;
        // The bytes at the head may still be queued.
        self.wait()?;
        let (file, start) = self.target(self.current)?;
        write_at(&file, head, start).map_err(|error| self.failed(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statelens_checkpoint::{FileId, Memory};

    #[test]
    fn writes_copies_and_headers_in_order() {
        let folder = std::env::temp_dir().join(format!("statelens-sink-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let open = |name: &str| Arc::new(fs::File::create_new(folder.join(name)).unwrap());
        let source: Vec<u8> = (0..3 * PIECE + 77).map(|at| (at % 251) as u8).collect();
        let files = FileSet::single("in", Memory::from(source.clone()));
        let mut sink = FileSink::new(vec![open("a"), open("b")]);
        let span = |offset, len| Span { file: FileId(0), offset, len };
        sink.begin(0).unwrap();
        sink.write(b"..").unwrap();
        sink.copy(&files, span(2, 3)).unwrap();
        sink.write(&source).unwrap();
        sink.copy(&files, span(5, 3 * PIECE as u64)).unwrap();
        sink.patch_head(b"HD").unwrap();
        sink.write(b"end").unwrap();
        sink.begin(1).unwrap();
        sink.write(b"second").unwrap();
        assert!(sink.copy(&files, span(9, 1 << 40)).is_err());
        drop(sink);
        let mut expected = b"HD".to_vec();
        expected.extend_from_slice(&source[2..5]);
        expected.extend_from_slice(&source);
        expected.extend_from_slice(&source[5..5 + 3 * PIECE]);
        expected.extend_from_slice(b"end");
        assert!(fs::read(folder.join("a")).unwrap() == expected);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn writes_many_pieces_at_their_offsets() {
        let path = std::env::temp_dir().join(format!("statelens-pieces-{}", std::process::id()));
        let source: Vec<u8> = (0..9 * PIECE as u32 + 5).flat_map(u32::to_le_bytes).collect();
        let files = FileSet::single("in", Memory::from(source.clone()));
        let mut sink = FileSink::new(vec![Arc::new(fs::File::create_new(&path).unwrap())]);
        let mut expected = Vec::new();
        sink.begin(0).unwrap();
        for (offset, len) in [(7, 100), (100, 5 * PIECE), (3, PIECE), (PIECE, 30 * PIECE + 1)] {
            sink.copy(&files, Span { file: FileId(0), offset: offset as u64, len: len as u64 })
                .unwrap();
            sink.write(&source[..PIECE / 3]).unwrap();
            expected.extend_from_slice(&source[offset..offset + len]);
            expected.extend_from_slice(&source[..PIECE / 3]);
        }
        sink.patch_head(&[9; 50]).unwrap();
        expected[..50].fill(9);
        sink.finish().unwrap();
        assert!(fs::read(&path).unwrap() == expected);
        fs::remove_file(&path).unwrap();
    }

    /// A disk with a bad sector.
    #[derive(Debug)]
    struct Failing(Memory);

    impl ReadAt for Failing {
        fn len(&self) -> u64 {
            self.0.len()
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            match offset < 5 * PIECE as u64 {
                true => self.0.read_at(offset, buffer),
                false => Err(Error::io("reading failed")),
            }
        }
    }

    #[test]
    fn reports_failed_reads_of_a_copy() {
        let path = std::env::temp_dir().join(format!("statelens-unread-{}", std::process::id()));
        let files = FileSet::single("in.pt", Failing(Memory::from(vec![1; 9 * PIECE])));
        let mut sink = FileSink::new(vec![Arc::new(fs::File::create_new(&path).unwrap())]);
        let span = Span { file: FileId(0), offset: 0, len: 9 * PIECE as u64 };
        let outcome = sink.copy(&files, span).and_then(|()| sink.finish());
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("reading failed") && error.contains("in.pt"), "{error}");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_panic_of_a_writer_is_an_error() {
        #[derive(Debug)]
        struct Panicking;
        impl ReadAt for Panicking {
            fn len(&self) -> u64 {
                1 << 40
            }
            fn read_at(&self, _: u64, _: &mut [u8]) -> Result<()> {
                panic!("reading is broken")
            }
        }
        let path = std::env::temp_dir().join(format!("statelens-panic-{}", std::process::id()));
        let files = FileSet::single("in.pt", Panicking);
        let mut sink = FileSink::new(vec![Arc::new(fs::File::create_new(&path).unwrap())]);
        let span = Span { file: FileId(0), offset: 0, len: 1 << 40 };
        let error = sink.copy(&files, span).unwrap_err();
        assert!(error.to_string().contains("writing ended unexpectedly"), "{error}");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn reports_failed_writes() {
        // Open for reading only: every write fails.
        let path = std::env::temp_dir().join(format!("statelens-full-{}", std::process::id()));
        fs::write(&path, b"").unwrap();
        let mut sink = FileSink::new(vec![Arc::new(fs::File::open(&path).unwrap())]);
        let bytes = vec![0; PIECE];
        let failed = (0..100).find_map(|_| sink.write(&bytes).err());
        assert!(failed.unwrap().to_string().contains("writing failed"));
        let mut sink = FileSink::new(vec![Arc::new(fs::File::open(&path).unwrap())]);
        sink.write(b"little").unwrap();
        assert!(sink.finish().is_err());
        fs::remove_file(&path).unwrap();
    }
}
