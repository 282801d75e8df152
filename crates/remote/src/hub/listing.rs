//! The files of a repository at a commit.

use serde::Deserialize;
use statelens_checkpoint::{Error, Result};

use super::is_commit;
use super::location::is_safe_path;

/// The files of a repository at a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubListing {
    /// The id, which may be another than the requested one if the repository was renamed.
    pub id: String,
    /// The id of the commit, 40 digits.
    pub commit: String,
    /// The files, sorted by path.
    pub files: Vec<HubFile>,
}

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubFile {
    /// The path from the root of the repository.
    pub path: String,
    /// Its length in bytes.
    pub size: u64,
    /// The SHA-256 of its contents, for files in LFS.
    pub sha256: Option<String>,
    /// The SHA-1 of the git object: of the pointer, for files in LFS.
    pub blob: Option<String>,
}

#[derive(Deserialize)]
struct RepositoryInfo {
    id: Option<String>,
    sha: Option<String>,
    siblings: Option<Vec<FileInfo>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileInfo {
    #[serde(rename = "rfilename")]
    path: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<LfsInfo>,
}

#[derive(Deserialize)]
struct LfsInfo {
    sha256: String,
    size: Option<u64>,
}

impl HubListing {
    /// Parses the answer of [`Endpoint::info`](super::Endpoint::info). Files whose names lead out of
    /// the repository are left out.
    pub fn parse(json: &[u8]) -> Result<Self> {
        let bad = |what: &str| {
            Error::unsupported(format!("the server does not answer as the Hub does: {what}"))
                .advice("Check the address of the Hub, `HF_ENDPOINT`.")
        };
        let info: RepositoryInfo =
            serde_json::from_slice(json).map_err(|_| bad("its description is not JSON"))?;
        let commit = info.sha.filter(|sha| is_commit(sha)).ok_or_else(|| bad("no commit"))?;
        let siblings = info.siblings.ok_or_else(|| bad("no list of files"))?;
        let mut files = Vec::with_capacity(siblings.len());
        for file in siblings.into_iter().filter(|file| is_safe_path(&file.path)) {
            let size = file.lfs.as_ref().and_then(|lfs| lfs.size).or(file.size);
            files.push(HubFile {
                size: size.ok_or_else(|| bad("no sizes of files"))?,
                path: file.path,
                sha256: file.lfs.map(|lfs| lfs.sha256),
                blob: file.blob_id,
            });
        }
        files.sort_unstable_by(|one: &HubFile, other| one.path.cmp(&other.path));
        Ok(Self { id: info.id.unwrap_or_default(), commit, files })
    }

    /// Returns the file with this path.
    pub fn file(&self, path: &str) -> Option<&HubFile> {
        let at = self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()?;
        self.files.get(at)
    }

    /// Returns the files below a folder, with their names relative to it.
    pub fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, &'a HubFile)> {
        self.files.iter().filter_map(move |file| match folder {
            "" => Some((file.path.as_str(), file)),
            folder => Some((file.path.strip_prefix(folder)?.strip_prefix('/')?, file)),
        })
    }
}

impl HubFile {
    /// Returns the checksum that identifies its contents.
    pub fn version(&self) -> Option<String> {
        self.sha256.clone().or_else(|| self.blob.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_files_with_their_sizes_and_checksums() {
        let sha = "0123456789abcdef0123456789abcdef01234567";
        let json = format!(
            r#"{{"id": "a/b", "sha": "{sha}", "gated": false, "siblings": [
                {{"rfilename": "x/m.safetensors", "size": 9, "blobId": "p", "lfs": {{"sha256": "s", "size": 9, "pointerSize": 1}}}},
                {{"rfilename": "config.json", "size": 2, "blobId": "q"}},
                {{"rfilename": "../evil", "size": 2}}, {{"rfilename": "/etc/passwd", "size": 2}}]}}"#
        );
        let found = HubListing::parse(json.as_bytes()).unwrap();
        assert_eq!((found.id.as_str(), found.commit.as_str(), found.files.len()), ("a/b", sha, 2));
        assert_eq!(found.file("config.json").unwrap().version().as_deref(), Some("q"));
        let below: Vec<_> = found.below("x").map(|(name, file)| (name, file.version())).collect();
        assert_eq!(below, [("m.safetensors", Some("s".to_owned()))]);
        assert_eq!(found.below("").count(), 2);
        for json in ["", "{}", "[]", r#"{"sha": "main", "siblings": []}"#] {
            assert!(HubListing::parse(json.as_bytes()).is_err(), "{json}");
        }
    }
}
