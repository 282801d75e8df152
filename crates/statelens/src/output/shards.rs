//! The files of a set that is replaced.

use std::collections::HashSet;
use std::path::PathBuf;

use statelens_formats::sets::indexed;

use crate::files;

/// The files that the indexes among `paths` name, as they are on the disk now, and that are not to
/// be written anew: once the indexes are replaced, nothing names them any more.
pub fn old_shards(paths: &[PathBuf]) -> Vec<PathBuf> {
    let new: HashSet<&PathBuf> = paths.iter().collect();
    let mut old = Vec::new();
    for path in paths.iter().filter(|path| path.is_file()) {
        // The names in an index are looked for in its own folder, and nowhere else.
        let Ok(opened) = files::open(path, &[]) else { continue };
        let main = path.file_name().unwrap_or_default().to_string_lossy();
        let shards = indexed(&opened.files, &main);
        let shards = shards.iter().map(|name| path.with_file_name(name));
        old.extend(shards.filter(|path| !new.contains(path) && path.is_file()));
    }
    old
}
