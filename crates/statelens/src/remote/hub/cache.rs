//! The cache of the client `huggingface_hub`, which is only read.
//!
//! `models--OWNER--NAME` has `refs/REVISION`, a file with the id of a commit, and
//! `snapshots/COMMIT/PATH`, links to `blobs/HASH`. Version 2.4 also writes `trees/COMMIT.json`, the list
//! of all files of the commit.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use statelens_remote::hub::{HubFile, HubListing, HubLocation, is_commit};

/// Bytes of the longest list of files that is read.
const MAX_TREE: u64 = 64 << 20;

/// Entries of a snapshot above which it is not listed.
const MAX_FILES: usize = 1 << 16;

/// Depth to which a snapshot is listed.
const MAX_DEPTH: usize = 16;

/// The folder of a repository in the cache.
#[derive(Debug, Clone)]
pub(super) struct HubCache {
    folder: PathBuf,
    location: HubLocation,
}

#[derive(Deserialize)]
struct TreeFile {
    files: BTreeMap<String, TreeEntry>,
}

#[derive(Deserialize)]
struct TreeEntry {
    size: u64,
    blob_id: Option<String>,
    lfs_sha256: Option<String>,
    lfs_size: Option<u64>,
}

impl HubCache {
    pub(super) fn new(cache: &Path, location: &HubLocation) -> Self {
        let name = format!("{}--{}", location.kind.plural(), location.id.replace('/', "--"));
        Self { folder: cache.join(name), location: location.clone() }
    }

    /// Returns the commit of the revision, as the client saw it last.
    pub(super) fn commit(&self) -> Option<String> {
        let revision = self.location.revision();
        if is_commit(revision) {
            return self.snapshot(revision).map(|_| revision.to_owned());
        }
        let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        if !revision.split('/').all(is_plain) || revision.contains('\\') {
            return None;
        }
        let path = self.folder.join("refs").join(revision);
        let about =
            fs::metadata(&path).ok().filter(|about| about.is_file() && about.len() < 100)?;
        let text = fs::read_to_string(path).ok().filter(|_| about.len() > 0)?;
        Some(text.trim().to_owned()).filter(|text| is_commit(text))
    }

    /// Returns the folder with the files of a commit, if there is one.
    pub(super) fn snapshot(&self, commit: &str) -> Option<PathBuf> {
        Some(self.folder.join("snapshots").join(commit)).filter(|folder| folder.is_dir())
    }

    /// Returns the blob with the contents of a file, if there is one.
    pub(super) fn blob(&self, file: &HubFile) -> Option<PathBuf> {
        let hash = file.version()?;
        let is_hash = hash.len() >= 40 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let path = is_hash.then(|| self.folder.join("blobs").join(hash))?;
        let about = fs::metadata(&path).ok()?;
        (about.is_file() && about.len() == file.size).then_some(path)
    }

    /// Returns the list of all files of a commit, if the client saved it.
    pub(super) fn tree(&self, commit: &str) -> Option<HubListing> {
        let path = self.folder.join("trees").join(format!("{commit}.json"));
        fs::metadata(&path).ok().filter(|about| about.is_file() && about.len() <= MAX_TREE)?;
        let tree: TreeFile = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        let file = |(path, entry): (String, TreeEntry)| HubFile {
            path,
            size: entry.lfs_size.unwrap_or(entry.size),
            sha256: entry.lfs_sha256,
            blob: entry.blob_id,
        };
        Some(self.listing(commit, tree.files.into_iter().map(file).collect()))
    }

    /// Returns the list of the files of a commit that are in the cache.
    pub(super) fn files(&self, commit: &str) -> Option<HubListing> {
        let top = self.snapshot(commit)?;
        let mut open = vec![(top, String::new(), 0)];
        let mut files = Vec::new();
        while let Some((folder, name, depth)) = open.pop() {
            for entry in fs::read_dir(folder).ok()?.flatten() {
                let path = entry.path();
                let Some(base) = entry.file_name().to_str().map(str::to_owned) else { continue };
                let Ok(about) = fs::metadata(&path) else { continue };
                let name = if name.is_empty() { base } else { format!("{name}/{base}") };
                if about.is_dir() && depth < MAX_DEPTH {
                    open.push((path, name, depth + 1));
                } else if about.is_file() {
                    let hash = blob_hash(&path).unwrap_or_default();
                    let (sha256, blob) = match hash.len() {
                        64 => (Some(hash), None),
                        40 => (None, Some(hash)),
                        _ => (None, None),
                    };
                    files.push(HubFile { path: name, size: about.len(), sha256, blob });
                }
                if files.len() + open.len() > MAX_FILES {
                    return None;
                }
            }
        }
        Some(self.listing(commit, files))
    }

    fn listing(&self, commit: &str, mut files: Vec<HubFile>) -> HubListing {
        files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        HubListing { id: self.location.id.clone(), commit: commit.to_owned(), files }
    }
}

/// Returns the hash of the contents that the cache claims for a file, by the name of the blob: the
/// file itself in `blobs`, or the target of a link in `snapshots`. A SHA-256 has 64 digits, the
/// SHA-1 of a git object 40. `None` for files that are not in such a cache.
pub(crate) fn blob_hash(path: &Path) -> Option<String> {
    // Blobs may be links themselves, to files with other names, so only the first link counts.
    let target = match fs::read_link(path) {
        Ok(target) if !path.parent().is_some_and(|folder| folder.ends_with("blobs")) => {
            path.parent()?.join(target)
        }
        _ => path.to_owned(),
    };
    let folder = target.parent().filter(|folder| folder.ends_with("blobs"))?;
    let repository = folder.parent()?.file_name().map(|name| name.to_string_lossy().into_owned());
    let is_cache = ["models--", "datasets--", "spaces--"]
        .iter()
        .any(|kind| repository.as_ref().is_some_and(|name| name.starts_with(kind)));
    // Below `..` of a link, the name of the repository is that of a folder above it.
    let is_cache =
        is_cache || folder.parent().is_some_and(|repository| repository.join("snapshots").is_dir());
    let name = target.file_name()?.to_str()?;
    let is_hash = [40, 64].contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    (is_cache && is_hash).then(|| name.to_owned())
}

#[cfg(all(test, unix))]
mod tests {
    use statelens_remote::hub::Endpoint;

    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn reads_references_snapshots_and_trees() {
        let top = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = top.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let of = |text: &str| {
            let location = HubLocation::parse(text, &Endpoint::default()).unwrap().unwrap();
            HubCache::new(top.path(), &location)
        };
        let sha = "a".repeat(64);
        write("models--org--tiny/refs/main", COMMIT);
        write("models--org--tiny/refs/refs/pr/1", COMMIT);
        write("models--org--tiny/refs/bad", "not a commit");
        write(&format!("models--org--tiny/blobs/{sha}"), "weights");
        let snapshot = format!("models--org--tiny/snapshots/{COMMIT}");
        write(&format!("{snapshot}/sub/plain.txt"), "x");
        let link = top.path().join(&snapshot).join("sub/m.safetensors");
        std::os::unix::fs::symlink(format!("../../../blobs/{sha}"), &link).unwrap();
        let dangling = top.path().join(&snapshot).join("gone.safetensors");
        std::os::unix::fs::symlink("../../blobs/none", dangling).unwrap();
        for text in ["hf://org/tiny", "hf://org/tiny@refs/pr/1"] {
            assert_eq!(of(text).commit().as_deref(), Some(COMMIT), "{text}");
        }
        assert_eq!(of(&format!("hf://org/tiny@{COMMIT}")).commit().as_deref(), Some(COMMIT));
        for text in ["hf://org/tiny@bad", "hf://org/tiny@v1", "hf://datasets/org/tiny"] {
            assert_eq!(of(text).commit(), None, "{text}");
        }
        let cache = of("hf://org/tiny");
        let listing = cache.files(COMMIT).unwrap();
        let paths: Vec<&str> = listing.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["sub/m.safetensors", "sub/plain.txt"]);
        assert_eq!(listing.files[0].sha256.as_deref(), Some(&*sha));
        assert_eq!(cache.tree(COMMIT), None);
        let tree = r#"{"format_version": 1, "files": {"b": {"size": 3, "blob_id": "q"},
            "a": {"size": 1, "blob_id": "p", "lfs_sha256": "s", "lfs_size": 9}}}"#;
        write(&format!("models--org--tiny/trees/{COMMIT}.json"), tree);
        let tree = cache.tree(COMMIT).unwrap();
        assert_eq!((tree.files[0].size, tree.files[1].size), (9, 3));
        // A blob that is a link to storage shared between repositories.
        let blob = top.path().join(format!("models--org--tiny/blobs/{}", "b".repeat(40)));
        write("blobs/cc/shared", "y");
        std::os::unix::fs::symlink("../../blobs/cc/shared", &blob).unwrap();
        assert_eq!(blob_hash(&blob), Some("b".repeat(40)));
        assert_eq!(blob_hash(&link), Some(sha));
        assert_eq!(blob_hash(&top.path().join(&snapshot).join("sub/plain.txt")), None);
    }
}
