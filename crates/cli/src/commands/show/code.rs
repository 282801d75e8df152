//! `statelens show --code`.

use std::path::PathBuf;

use statelens::parts::checkpoint::{Checkpoint, FileId, Leaf};
use statelens::parts::formats::snippets;
use statelens::{Error, Result};

use crate::args::Show;

use super::slice::ShownSlice;

/// Returns Python code that reads a leaf, or a slice of it, with the given library or the usual
/// one. `path` returns the path of a file on disk.
pub(super) fn of(
    checkpoint: &Checkpoint,
    leaf: &Leaf,
    slice: Option<&ShownSlice>,
    library: Option<&str>,
    args: &Show,
    path: &dyn Fn(FileId) -> Option<PathBuf>,
) -> Result<String> {
    let given = &args.input.file;
    let folder = match given.is_dir() {
        true => Some(given.as_path()),
        false => given.parent(),
    };
    let place = |file: FileId| {
        // A file in another folder has its name only.
        if let Some(path) = path(file) {
            return path.display().to_string();
        }
        let name = checkpoint.files.name(file);
        match folder {
            // No Python library reads a set of files from an address, so addresses stay as they are.
            Some(folder) if !name.contains("://") => folder.join(name).display().to_string(),
            _ => name.to_owned(),
        }
    };
    let found = snippets(checkpoint, leaf, slice.map(|slice| &slice.slice), &place);
    let chosen = match library {
        Some(library) => found.iter().find(|snippet| snippet.library == library),
        None => found.first(),
    };
    if let Some(snippet) = chosen {
        return Ok(snippet.code.clone());
    }
    let key = leaf.flat.to_lossy();
    let libraries: Vec<&str> = found.iter().map(|snippet| snippet.library).collect();
    let error = match library {
        Some(library) if !found.is_empty() => {
            Error::refused(format!("no code with `{library}` reads `{key}`"))
        }
        _ => Error::refused(format!("no known library reads `{key}` alone")),
    };
    Err(match libraries.as_slice() {
        [] => error.advice("`statelens export` saves it as .npy or .safetensors."),
        some => error.expected(some.join(" or ")),
    })
}
