//! A file as the place where a new file goes.

use std::fs;
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write as _};
use std::sync::Arc;

use statelens_checkpoint::{Error, FileSet, Result, Span};
use statelens_convert::Sink;

use crate::print::grouped;
use crate::source::FileSource;

/// Writes to a file; spans of the source are copied by the system where it can.
pub(crate) struct FileSink<'a> {
    out: BufWriter<&'a fs::File>,
    sources: &'a [Arc<FileSource>],
    written: u64,
}

impl<'a> FileSink<'a> {
    /// `file` is empty and open for writing; `sources` are the files of the plan's source, by
    /// number.
    pub(crate) fn new(file: &'a fs::File, sources: &'a [Arc<FileSource>]) -> Self {
        Self { out: BufWriter::with_capacity(BUFFER, file), sources, written: 0 }
    }

    /// Writes what is still held back; the number of bytes in the file.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.out.flush().map_err(|error| self.failed(&error))?;
        Ok(self.written)
    }

    fn failed(&self, error: &io::Error) -> Error {
        let place = format!("writing failed after {} bytes", grouped(self.written));
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

/// Small pieces (headers, padding) are gathered up to this; larger ones go straight to the file.
const BUFFER: usize = 256 << 10;

impl Sink for FileSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|error| self.failed(&error))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn copy(&mut self, files: &FileSet, span: Span) -> Result<()> {
        let Some(source) = self.sources.get(span.file.0 as usize) else {
            return Err(Error::io("a tensor lies in a file that was not given"));
        };
        if span.offset.checked_add(span.len).is_none_or(|end| end > files.len(span.file)) {
            return Err(Error::damaged("a tensor reaches past the end of its file")
                .at(span.offset)
                .in_file(files.name(span.file)));
        }
        self.out.flush().map_err(|error| self.failed(&error))?;
        let file = source.file()?;
        let mut from = &*file;
        from.seek(SeekFrom::Start(span.offset))
            .map_err(|error| Error::io(error.to_string()).in_file(files.name(span.file)))?;
        // From file to file without a detour: the standard library lets the kernel do it.
        let mut from = io::Read::take(from, span.len);
        let copied =
            io::copy(&mut from, self.out.get_mut()).map_err(|error| self.failed(&error))?;
        self.written += copied;
        match copied == span.len {
            true => Ok(()),
            false => Err(Error::io("the file became shorter while it was read")
                .at(span.offset)
                .in_file(files.name(span.file))),
        }
    }

    fn patch_head(&mut self, head: &[u8]) -> Result<()> {
        let patch = |out: &mut BufWriter<&fs::File>| {
            out.seek(SeekFrom::Start(0))?;
            out.write_all(head)?;
            out.seek(SeekFrom::End(0)).map(|_| ())
        };
        patch(&mut self.out).map_err(|error| self.failed(&error))
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
        fs::write(folder.join("in"), b"0123456789").unwrap();
        let opened = crate::source::open(&folder.join("in"), &[]).unwrap();
        let out = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(folder.join("out"))
            .unwrap();
        let mut sink = FileSink::new(&out, &opened.sources);
        let span = |offset, len| Span { file: FileId(0), offset, len };
        sink.write(b"..").unwrap();
        sink.copy(&opened.files, span(2, 3)).unwrap();
        sink.write(b"--").unwrap();
        sink.copy(&opened.files, span(9, 1)).unwrap();
        sink.patch_head(b"HD").unwrap();
        sink.write(b"end").unwrap();
        assert!(sink.copy(&opened.files, span(9, 2)).is_err());
        assert!(sink.copy(&FileSet::single("x", Memory::from(vec![0; 4])), span(0, 5)).is_err());
        assert_eq!(sink.finish().unwrap(), 11);
        assert_eq!(fs::read(folder.join("out")).unwrap(), b"HD234--9end");
        fs::remove_dir_all(&folder).unwrap();
    }
}
