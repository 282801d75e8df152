//! Files as the place where new files go.

use std::fs;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use statelens_checkpoint::{Error, FileSet, Result, Span};
use statelens_convert::Sink;

use crate::print::grouped;

/// Bytes that are written at once: few enough to be in the processor's cache still, and so many
/// that the two threads seldom wake each other.
const BUFFER: usize = 1 << 20;
/// Where buffers begin: the system copies faster to and from whole lines of the cache.
const ALIGNMENT: usize = 64;
/// Buffers that wait to be written at most.
const WAITING: usize = 3;

/// Writes to files, one after the other, on a thread of its own: while it writes, the next bytes
/// are read, decoded and checked. (Copying spans in the kernel took longer than this: it goes
/// page by page where a span and its copy are not aligned alike.)
pub(crate) struct FileSink {
    files: Vec<Arc<fs::File>>,
    current: usize,
    buffer: Buffer,
    jobs: Option<SyncSender<Job>>,
    emptied: Receiver<Buffer>,
    writer: Option<JoinHandle<io::Result<()>>>,
    /// Bytes that were handed over, for errors.
    written: u64,
}

/// [`BUFFER`] bytes and how many of them are filled.
struct Buffer {
    bytes: Vec<u8>,
    /// The first that is aligned.
    start: usize,
    filled: usize,
}

enum Job {
    /// Adds these bytes at the end of the file.
    Append(Arc<fs::File>, Buffer),
    /// Replaces the first bytes of the file.
    Head(Arc<fs::File>, Vec<u8>),
}

impl FileSink {
    /// The files are those of the plan, by index; they are empty and open for writing.
    pub(crate) fn new(files: Vec<Arc<fs::File>>) -> Self {
        let (jobs, waiting) = sync_channel(WAITING);
        let (back, emptied) = channel();
        let writer = std::thread::spawn(move || write_all(&waiting, &back));
        Self {
            files,
            current: 0,
            buffer: Buffer::new(),
            jobs: Some(jobs),
            emptied,
            writer: Some(writer),
            written: 0,
        }
    }

    /// Waits until everything is written.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.hand_over()?;
        self.end()
    }

    /// Hands the buffer to the writer and takes an empty one.
    fn hand_over(&mut self) -> Result<()> {
        if self.buffer.filled == 0 {
            return Ok(());
        }
        let empty = self.emptied.try_recv().unwrap_or_else(|_| Buffer::new());
        let full = std::mem::replace(&mut self.buffer, empty);
        self.written += full.filled as u64;
        let file = self.file()?;
        self.send(Job::Append(file, full))
    }

    fn file(&self) -> Result<Arc<fs::File>> {
        self.files.get(self.current).cloned().ok_or_else(|| {
            Error::io("a plan writes to a file that it does not name").advice("Please report it.")
        })
    }

    fn send(&mut self, job: Job) -> Result<()> {
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        // The writer hangs up only when it has failed.
        if sent { Ok(()) } else { self.end() }
    }

    /// Ends the writer; its error, if it had one.
    fn end(&mut self) -> Result<()> {
        self.jobs = None;
        let ended = self.writer.take().map(JoinHandle::join);
        match ended {
            Some(Ok(Ok(()))) | None => Ok(()),
            Some(Ok(Err(error))) => Err(self.failed(&error)),
            Some(Err(_)) => Err(Error::io("writing ended unexpectedly")),
        }
    }

    fn failed(&self, error: &io::Error) -> Error {
        let place = format!("writing failed within the first {} bytes", grouped(self.written));
        match error.kind() {
            io::ErrorKind::StorageFull => {
                Error::io(format!("{place}: the disk is full")).advice("Make room and try again.")
            }
            io::ErrorKind::QuotaExceeded => Error::io(format!("{place}: your quota is used up"))
                .advice("Make room and try again."),
            io::ErrorKind::FileTooLarge => {
                Error::io(format!("{place}: the system allows no larger file"))
            }
            _ => Error::io(format!("{place}: {error}")),
        }
    }
}

impl Buffer {
    fn new() -> Self {
        let bytes = vec![0; BUFFER + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { bytes, start, filled: 0 }
    }

    /// What is filled.
    fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.filled]
    }

    /// What is still free.
    fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start + self.filled..self.start + BUFFER]
    }
}

fn write_all(jobs: &Receiver<Job>, back: &Sender<Buffer>) -> io::Result<()> {
    for job in jobs {
        match job {
            Job::Append(file, mut buffer) => {
                (&*file).write_all(buffer.filled())?;
                buffer.filled = 0;
                // Nobody takes it any more once the last bytes are there.
                let _ = back.send(buffer);
            }
            Job::Head(file, head) => {
                let mut file = &*file;
                file.seek(SeekFrom::Start(0))?;
                file.write_all(&head)?;
                file.seek(SeekFrom::End(0))?;
            }
        }
    }
    Ok(())
}

impl Drop for FileSink {
    /// Given up: nothing may be written any more once this is gone.
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl Sink for FileSink {
    fn begin(&mut self, index: usize) -> Result<()> {
        self.hand_over()?;
        self.current = index;
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = self.buffer.room();
            let len = room.len().min(bytes.len());
            room[..len].copy_from_slice(&bytes[..len]);
            self.buffer.filled += len;
            bytes = &bytes[len..];
            if self.buffer.filled == BUFFER {
                self.hand_over()?;
            }
        }
        Ok(())
    }

    fn copy(&mut self, files: &FileSet, span: Span) -> Result<()> {
        let (mut offset, mut left) = (span.offset, span.len);
        while left > 0 {
            let room = self.buffer.room();
            let len = left.min(room.len() as u64) as usize;
            files.read(span.file, offset, &mut room[..len])?;
            self.buffer.filled += len;
            offset += len as u64;
            left -= len as u64;
            if self.buffer.filled == BUFFER {
                self.hand_over()?;
            }
        }
        Ok(())
    }

    fn patch_head(&mut self, head: &[u8]) -> Result<()> {
        self.hand_over()?;
        let file = self.file()?;
        self.send(Job::Head(file, head.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statelens_checkpoint::{FileId, Memory};

    #[test]
    fn writes_copies_and_heads_come_in_order() {
        let folder = std::env::temp_dir().join(format!("statelens-sink-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let open = |name: &str| Arc::new(fs::File::create_new(folder.join(name)).unwrap());
        let source: Vec<u8> = (0..3 * BUFFER + 77).map(|at| (at % 251) as u8).collect();
        let files = FileSet::single("in", Memory::from(source.clone()));
        let mut sink = FileSink::new(vec![open("a"), open("b")]);
        let span = |offset, len| Span { file: FileId(0), offset, len };
        sink.begin(0).unwrap();
        sink.write(b"..").unwrap();
        sink.copy(&files, span(2, 3)).unwrap();
        sink.write(&source).unwrap();
        sink.copy(&files, span(5, 3 * BUFFER as u64)).unwrap();
        sink.patch_head(b"HD").unwrap();
        sink.write(b"end").unwrap();
        sink.begin(1).unwrap();
        sink.write(b"second").unwrap();
        assert!(sink.copy(&files, span(9, 1 << 40)).is_err());
        drop(sink);
        let mut expected = b"HD".to_vec();
        expected.extend_from_slice(&source[2..5]);
        expected.extend_from_slice(&source);
        expected.extend_from_slice(&source[5..5 + 3 * BUFFER]);
        expected.extend_from_slice(b"end");
        assert!(fs::read(folder.join("a")).unwrap() == expected);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_writer_that_fails_is_heard() {
        // Open for reading only: every write fails.
        let path = std::env::temp_dir().join(format!("statelens-full-{}", std::process::id()));
        fs::write(&path, b"").unwrap();
        let mut sink = FileSink::new(vec![Arc::new(fs::File::open(&path).unwrap())]);
        let bytes = vec![0; BUFFER];
        let failed = (0..100).find_map(|_| sink.write(&bytes).err());
        assert!(failed.unwrap().to_string().contains("writing failed"));
        let mut sink = FileSink::new(vec![Arc::new(fs::File::open(&path).unwrap())]);
        sink.write(b"little").unwrap();
        assert!(sink.finish().is_err());
        fs::remove_file(&path).unwrap();
    }
}
