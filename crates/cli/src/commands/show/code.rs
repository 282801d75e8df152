//! `statelens show --code`.

use std::path::Path;
use std::sync::Arc;

use statelens::PathText as _;
use statelens::files::FileSource;
use statelens::parts::checkpoint::{Checkpoint, FileId, Leaf};
use statelens::parts::formats::snippets;
use statelens::{Error, Result, Slice};

/// Returns Python code that reads a leaf, or a slice of it, with the given library or the usual
/// one. The files of the checkpoint are on disk next to it; `given` is the path or address by which
/// it was opened.
pub fn snippet(
    (checkpoint, sources): (&Checkpoint, &[Arc<FileSource>]),
    leaf: &Leaf,
    slice: Option<&Slice>,
    library: Option<&str>,
    given: &Path,
) -> Result<String> {
    let path = |file: FileId| {
        let source = sources.get(file.0 as usize)?;
        Some(source.path()).filter(|path| !path.as_os_str().is_empty())
    };
    let folder = match given.is_dir() {
        true => Some(given),
        false => given.parent(),
    };
    let place = |file: FileId| {
        // A file in another folder has its name only.
        if let Some(path) = path(file) {
            return path.to_text();
        }
        let name = checkpoint.files.name(file);
        match folder {
            // No Python library reads a set of files from an address, so addresses stay unchanged.
            Some(folder) if !name.contains("://") => folder.join(name).to_text(),
            _ => name.to_owned(),
        }
    };
    let found = snippets(checkpoint, leaf, slice, &place);
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
