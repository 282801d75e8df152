//! Temporary space on disk for reordering tensors: unnamed files, which the system frees when the
//! process ends, however it ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, io};

use statelens_checkpoint::{Area, Error, ReadAt as _, Result, Scratch, grouped};

use crate::files::FileSource;
use crate::files::PathText as _;
use crate::sink::write_at;

/// Default limit in bytes.
pub const MOST: u64 = 8_000_000_000;

/// Creates an unnamed temporary file.
pub fn unnamed() -> Result<fs::File> {
    let folder = folder();
    tempfile::tempfile_in(&folder).map_err(|error| {
        failed(&format!("a temporary file can't be created in {}", folder.to_text()), &error)
    })
}

/// Temporary space on disk, up to a number of bytes.
#[derive(Debug)]
pub struct Disk {
    /// Bytes that may still be taken.
    free: Arc<AtomicU64>,
    advice: fn(&str) -> String,
}

impl Disk {
    /// Allows `most` bytes in use at a time.
    pub fn new(most: u64) -> Self {
        let advice = |needed: &str| format!("Allow {needed} of it; TMPDIR sets its folder.");
        Self { free: Arc::new(AtomicU64::new(most)), advice }
    }

    /// Sets the advice of the error when the limit is too low: `advice` gets the space needed, such
    /// as `3GB`, and returns a sentence.
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
                "reordering a tensor takes {} bytes of scratch space on disk, and {} are allowed",
                grouped(len),
                grouped(free)
            ))
            .coded("scratch")
            .advice((self.advice)(&round_up(len)))
        })?;
        let folder = folder();
        let made = tempfile::tempfile_in(&folder).map_err(|error| {
            self.free.fetch_add(len, Ordering::Relaxed);
            failed(&format!("scratch space can't be created in {}", folder.to_text()), &error)
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

/// Returns the folder for temporary files: `TMPDIR`, or else one for large files, because /tmp is
/// in memory on many systems.
fn folder() -> PathBuf {
    let large = Path::new("/var/tmp");
    match env::var_os("TMPDIR") {
        None if cfg!(unix) && large.is_dir() => large.to_owned(),
        _ => env::temp_dir(),
    }
}

/// Rounds up to whole gigabytes.
fn round_up(len: u64) -> String {
    format!("{}GB", len.div_ceil(1_000_000_000))
}

fn failed(what: &str, error: &io::Error) -> Error {
    Error::io(format!("{what}: {error}"))
        .advice("Make room, or name another folder in TMPDIR, and try again.")
}
