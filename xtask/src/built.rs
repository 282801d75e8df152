//! Files of a built site, and hashes and encodings of their bytes.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};

/// Returns the file `STEM-HASH…END` of a built site.
pub(crate) fn built(site: &Path, stem: &str, end: &str) -> Result<PathBuf> {
    let found: Vec<PathBuf> = files_under(site)?
        .into_iter()
        .filter(|file| {
            let name = file.to_string_lossy();
            name.strip_prefix(stem).is_some_and(|rest| rest.starts_with('-') && rest.ends_with(end))
        })
        .collect();
    match found.as_slice() {
        [one] => Ok(site.join(one)),
        found => bail!("the built site has {} files {stem}-….{end}", found.len()),
    }
}

/// Returns the hash of a file in the format of subresource integrity.
pub(crate) fn integrity(bytes: &[u8]) -> String {
    format!("sha256-{}", base64(&Sha256::digest(bytes)))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Compresses as a host does. The output is reproducible: it contains no timestamp.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(bytes)?;
    Ok(gzip.finish()?)
}

/// Lists all files in a folder, as paths relative to it, sorted.
pub(crate) fn files_under(top: &Path) -> Result<Vec<PathBuf>> {
    let (mut folders, mut files) = (vec![top.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in
            fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?
        {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path().strip_prefix(top)?.to_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}
