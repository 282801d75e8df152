//! Room on disk for tensors that are put in order: files without a name, which the system frees when
//! the process ends, however it ends.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use statelens_checkpoint::{Area, Error, ReadAt as _, Result, Scratch};
use statelens_inspect::grouped;

use crate::files::FileSource;
use crate::sink::write_at;

/// What is taken at most, in bytes, unless somebody says otherwise.
pub const MOST: u64 = 8_000_000_000;

/// A file without a name, for what has to be on disk for a while.
pub fn unnamed() -> Result<fs::File> {
    let folder = folder();
    tempfile::tempfile_in(&folder).map_err(|error| {
        failed(&format!("a temporary file can't be made in {}", folder.display()), &error)
    })
}

/// The disk as scratch, up to a number of bytes.
#[derive(Debug)]
pub struct Disk {
    /// What is left of what may be taken.
    free: Arc<AtomicU64>,
    advice: fn(&str) -> String,
}

impl Disk {
    /// May take so many bytes at a time.
    pub fn new(most: u64) -> Self {
        let advice = |needed: &str| format!("Allow {needed} of it; TMPDIR says where it is.");
        Self { free: Arc::new(AtomicU64::new(most)), advice }
    }

    /// Where it may not take enough, says what to do: `advice` is given what is needed, as in
    /// `3GB`, and makes a sentence of it.
    #[must_use]
    pub fn advising(self, advice: fn(&str) -> String) -> Self {
        Self { advice, ..self }
    }
}

#[derive(Debug)]
struct OnDisk {
    source: FileSource,
    file: Arc<fs::File>,
    len: u64,
    free: Arc<AtomicU64>,
}

impl Scratch for Disk {
    fn area(&self, len: u64) -> Result<Arc<dyn Area>> {
        let take = |free: u64| free.checked_sub(len);
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_err(|free| {
            Error::limit(format!(
                "putting a tensor in order takes {} bytes of scratch space on disk, and {} are \
                 allowed",
                grouped(len),
                grouped(free)
            ))
            .coded("scratch")
            .advice((self.advice)(&round_up(len)))
        })?;
        let folder = folder();
        let made = tempfile::tempfile_in(&folder).map_err(|error| {
            self.free.fetch_add(len, Ordering::Relaxed);
            failed(&format!("scratch space can't be made in {}", folder.display()), &error)
        })?;
        let file = Arc::new(made);
        let source = FileSource::unnamed(file.clone(), len);
        Ok(Arc::new(OnDisk { source, file, len, free: self.free.clone() }))
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
        self.free.fetch_add(self.len, Ordering::Relaxed);
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

/// Whole gigabytes.
fn round_up(len: u64) -> String {
    format!("{}GB", len.div_ceil(1_000_000_000))
}

fn failed(what: &str, error: &io::Error) -> Error {
    Error::io(format!("{what}: {error}"))
        .advice("Make room, or name another folder in TMPDIR, and try again.")
}
