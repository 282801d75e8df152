//! Opens the fixtures as the command and the page do.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use statelens::parts::checkpoint::{Checkpoint, FileSet, Unwatched};
use statelens::{Limits, Memory, Progress, Result};

/// Returns the folder of all fixtures.
pub(crate) fn fixtures() -> PathBuf {
    statelens_fixtures::root().to_owned()
}

/// Returns all files below a folder of the fixtures, sorted, without expectations, indexes and
/// explanations.
pub(crate) fn files(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![fixtures().join(folder)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let about = [".json", ".tsv", ".md"];
            if path.is_dir() {
                open.push(path);
            } else if !about.iter().any(|end| name(&path).ends_with(end)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns the path of a fixture relative to `tests/fixtures`, with `/`.
pub(crate) fn name(path: &Path) -> String {
    let path = path.strip_prefix(fixtures()).unwrap_or(path);
    path.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// Opens bytes as the file `name`, with other files that it may refer to, or opens `main` among them.
pub(crate) fn open(
    name: &str,
    bytes: Vec<u8>,
    others: &[PathBuf],
    main: Option<&str>,
) -> Result<Checkpoint> {
    let mut files = FileSet::single(name, Memory::from(bytes));
    for path in others {
        let name = path.file_name().unwrap().to_string_lossy();
        files.push(name, Arc::new(Memory::from(fs::read(path).unwrap())));
    }
    if let Some(main) = main.and_then(|main| files.find(main)) {
        files = files.opened_at(main);
    }
    statelens::parts::formats::open(files, &Limits::default(), &mut Unwatched)
}

/// Returns the manifest as JSON text. Reads all data unless `progress` cancels it.
pub(crate) fn manifest(checkpoint: &Checkpoint, progress: &mut dyn Progress) -> Result<String> {
    let mut text = String::new();
    let leaves = checkpoint.leaves();
    statelens::parts::describe::write_manifest(checkpoint, &leaves, progress, &mut |part| {
        text.push_str(part);
        Ok(())
    })?;
    Ok(text)
}
