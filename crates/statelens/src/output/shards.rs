//! The shards of a set that is replaced.

use std::collections::HashSet;
use std::path::PathBuf;

use statelens_formats::sets::indexed;

use crate::files;

/// Returns the shards of existing indexes among `paths` that will not be written again: once the
/// indexes are replaced, nothing refers to them.
pub fn old_shards(paths: &[PathBuf]) -> Vec<PathBuf> {
    let new: HashSet<&PathBuf> = paths.iter().collect();
    let mut old = Vec::new();
    for path in paths.iter().filter(|path| path.is_file()) {
        // The shards of an index are searched only in its own folder.
        let Ok(opened) = files::open(path, &[]) else { continue };
        let main = path.file_name().unwrap_or_default().to_string_lossy();
        let shards = indexed(&opened.files, &main);
        let shards = shards.iter().map(|name| path.with_file_name(name));
        old.extend(shards.filter(|path| !new.contains(path) && path.is_file()));
    }
    old
}
