//! Finds the files in a folder, for a scan.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use statelens::PathText as _;
use statelens::parts::checkpoint::FileSet;
use statelens::{Error, Result};

use crate::print::Failure;
use crate::source;

/// Called with the path of each file, and a set of the files of its folder in which it is the
/// opened one.
type EachFile<'a> = dyn FnMut(&Path, Result<FileSet>) -> Result<(), Failure> + 'a;

/// Visits a folder and its subfolders in order of their names. Links are followed, but each folder
/// is visited once. Pipes and devices are skipped: no loader reads checkpoints from them.
pub(super) fn walk(folder: &Path, each: &mut EachFile<'_>) -> Result<(), Failure> {
    let mut open = vec![folder.to_owned()];
    let mut seen = HashSet::new();
    while let Some(folder) = open.pop() {
        if let Ok(real) = fs::canonicalize(&folder)
            && !seen.insert(real)
        {
            continue;
        }
        let entries = match entries(&folder) {
            Ok(entries) => entries,
            Err(error) => {
                each(&folder, Err(error))?;
                continue;
            }
        };
        let (folders, others): (Vec<PathBuf>, Vec<PathBuf>) =
            entries.into_iter().partition(|path| path.is_dir());
        let (files, missing): (Vec<PathBuf>, Vec<PathBuf>) =
            others.into_iter().partition(|path| fs::metadata(path).is_ok());
        for path in missing {
            let error = Error::io("this link points to a file that does not exist");
            each(&path, Err(error.in_file(path.to_text())))?;
        }
        let files: Vec<PathBuf> = files.into_iter().filter(|path| path.is_file()).collect();
        let set = source::glance(&files);
        let ids: Vec<_> = set.iter().map(|(id, _)| id).collect();
        for (path, id) in files.iter().zip(ids) {
            // Check that the file can be read before it is scanned.
            let readable = fs::File::open(path).map(drop);
            let files = readable.map(|()| set.opened_at(id));
            each(path, files.map_err(|error| source::open_error(&error, path)))?;
        }
        open.extend(folders.into_iter().rev());
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error: std::io::Error| source::open_error(&error, folder);
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()).map_err(failed))
        .collect::<Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}
