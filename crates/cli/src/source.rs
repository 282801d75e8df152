//! Sources of checkpoints: files, folders, and standard input.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use statelens::files::{
    FileSource, Neighbours, OpenedFiles, checkpoints, glance, named, open_error,
};
use statelens::{Error, Result};

use crate::print::warn;
use crate::scratch;

/// Opens a checkpoint as [`statelens::files::open`] does; `-` is standard input.
pub(crate) fn open(path: &Path, with: &[PathBuf]) -> Result<OpenedFiles> {
    match path == Path::new("-") {
        true => standard_input(with),
        false => statelens::files::open(path, with),
    }
}

/// Opens standard input. It can be read only once and in order, so it is first copied to an unnamed
/// file.
pub(crate) fn standard_input(with: &[PathBuf]) -> Result<OpenedFiles> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Err(Error::refused("standard input can be read only once")
            .advice("Save it to a file, and name that."));
    }
    let mut input = std::io::stdin().lock();
    if std::io::stdin().is_terminal() {
        return Err(Error::refused("standard input is a terminal")
            .advice("Pipe a file into it: `statelens info - < FILE`."));
    }
    warn("reading standard input into a temporary file");
    let mut file = scratch::unnamed()?;
    std::io::copy(&mut input, &mut file)
        .map_err(|error| Error::io(format!("standard input can't be saved: {error}")))?;
    OpenedFiles::unnamed("standard input", file, with)
}
