//! The shards of a set that is replaced.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use statelens_formats::sets::numbered_shards;

use crate::files;

/// Returns the shards of the set that the files at `paths` replace and that will not be written
/// again: once its index, the last of `paths`, is replaced, nothing refers to them. Only regular
/// files next to the index that are numbered under its name are shards of it.
pub fn old_shards(paths: &[PathBuf]) -> Vec<PathBuf> {
    let Some((index, others)) =
        paths.split_last().filter(|(index, others)| !others.is_empty() && index.is_file())
    else {
        return Vec::new();
    };
    let Ok(opened) = files::open(index, &[]) else { return Vec::new() };
    let new: HashSet<&PathBuf> = others.iter().collect();
    let main = index.file_name().unwrap_or_default().to_string_lossy();
    let shards = numbered_shards(&opened.files, &main);
    let shards = shards.iter().map(|name| index.with_file_name(name));
    // A link is not a file that a set was written to.
    let is_file = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|about| about.is_file());
    shards.filter(|path| !new.contains(path) && is_file(path)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::files::PathText as _;

    fn names(folder: &Path, paths: &[PathBuf]) -> Vec<String> {
        let relative = |path: &PathBuf| path.strip_prefix(folder).unwrap().to_text();
        paths.iter().map(relative).collect()
    }

    /// An index can name any file, but only numbered shards of its own are removed.
    #[test]
    fn removes_only_numbered_shards_of_the_index() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let own = [
            "model-00001-of-00003.safetensors",
            "model-00002-of-00003.safetensors",
            "model-00003-of-00003.statelens-4711.safetensors",
        ];
        let others = [
            "optimizer.pt",
            "notes.txt",
            "model.safetensors",
            "config.json",
            "model-1-of-3.safetensors",
            "model_00001-of-00003.safetensors",
            "model-00001-of-00003.pt",
            "model-00002-of-00003.statelens-x.safetensors",
            "another-00001-of-00003.safetensors",
            "model.fp16-00001-of-00003.safetensors",
            "sub/model-00001-of-00003.safetensors",
            "../model-00001-of-00003.safetensors",
        ];
        fs::create_dir(folder.join("sub")).unwrap();
        let entry = |name: &&str| format!("\"{name}\": \"{name}\"");
        let map: Vec<String> = own.iter().chain(&others).map(entry).collect();
        let index = folder.join("model.safetensors.index.json");
        fs::write(&index, format!("{{\"weight_map\": {{{}}}}}", map.join(", "))).unwrap();
        for name in own.iter().chain(&others).filter(|name| !name.starts_with("..")) {
            fs::write(folder.join(name), b"mine").unwrap();
        }
        #[cfg(unix)]
        {
            let link = folder.join("model-00002-of-00003.safetensors");
            fs::remove_file(&link).unwrap();
            std::os::unix::fs::symlink(folder.join("optimizer.pt"), link).unwrap();
        }
        let removed = |new: &str| names(folder, &old_shards(&[folder.join(new), index.clone()]));
        let kept: &[&str] = if cfg!(unix) { &[own[0], own[2]] } else { &own };
        assert_eq!(removed("model-00001-of-00001.safetensors"), kept);
        // A shard that is written again stays.
        assert_eq!(removed(own[0]), &kept[1..]);
        // A file that is not an index does not replace a set.
        assert!(old_shards(&[index]).is_empty());
    }
}
