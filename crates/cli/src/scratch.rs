//! Room on disk for tensors that are put in order: files without a name, which the system frees when
//! the process ends, however it ends.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use statelens_checkpoint::{Area, Error, ReadAt as _, Result, Scratch};

use crate::print::grouped;
use crate::sink::write_at;
use crate::source::FileSource;

/// What is taken at most, unless the user says otherwise.
const MOST: u64 = 8_000_000_000;

/// What is left of what may be taken.
static FREE: AtomicU64 = AtomicU64::new(MOST);

/// Allows so many bytes, once, before anything is read.
pub(crate) fn allow(most: u64) {
    FREE.store(most, Ordering::Relaxed);
}

/// The disk as scratch.
pub(crate) fn on_disk() -> Arc<dyn Scratch> {
    Arc::new(Disk)
}

/// A file without a name, for what has to be on disk for a while.
pub(crate) fn unnamed() -> Result<fs::File> {
    let folder = folder();
    tempfile::tempfile_in(&folder).map_err(|error| {
        failed(&format!("a temporary file can't be made in {}", folder.display()), &error)
    })
}

#[derive(Debug)]
struct Disk;

#[derive(Debug)]
struct OnDisk {
    source: FileSource,
    file: Arc<fs::File>,
    len: u64,
}

impl Scratch for Disk {
    fn area(&self, len: u64) -> Result<Arc<dyn Area>> {
        let take = |free: u64| free.checked_sub(len);
        FREE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_err(|free| {
            Error::limit(format!(
                "putting a tensor in order takes {} bytes of scratch space on disk, and {} are \
                 allowed",
                grouped(len),
                grouped(free)
            ))
            .advice(format!(
                "Allow more with --scratch {}; TMPDIR says where it is.",
                round_up(len)
            ))
        })?;
        let folder = folder();
        let made = tempfile::tempfile_in(&folder).map_err(|error| {
            FREE.fetch_add(len, Ordering::Relaxed);
            failed(&format!("scratch space can't be made in {}", folder.display()), &error)
        })?;
        let file = Arc::new(made);
        Ok(Arc::new(OnDisk { source: FileSource::unnamed(file.clone(), len), file, len }))
    }
}

impl Area for OnDisk {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        write_at(&self.file, bytes, offset)
            .map_err(|error| failed("writing to scratch space failed", &error))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.source.read_at(offset, buffer)
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        FREE.fetch_add(self.len, Ordering::Relaxed);
    }
}

/// Where the user says, or where large files may be: /tmp is memory on many a system.
fn folder() -> PathBuf {
    let large = Path::new("/var/tmp");
    match env::var_os("TMPDIR") {
        None if cfg!(unix) && large.is_dir() => large.to_owned(),
        _ => env::temp_dir(),
    }
}

/// Whole gigabytes, as --scratch takes them.
fn round_up(len: u64) -> String {
    format!("{}GB", len.div_ceil(1_000_000_000))
}

fn failed(what: &str, error: &io::Error) -> Error {
    Error::io(format!("{what}: {error}"))
        .advice("Make room, or name another folder in TMPDIR, and try again.")
}
