//! Files in the cache of the Hugging Face Hub's client, which are named after their contents.

use std::sync::Arc;

use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use statelens_checkpoint::{Error, Progress, ReadAt as _, Result};
use statelens_compare::verify::{Problem, Trouble, VerificationReport};

use crate::files::FileSource;
use crate::remote::blob_hash;

/// Bytes that are hashed at a time.
const BUFFER: usize = 1 << 20;

/// The kinds of names in the report.
const KINDS: [&str; 2] = ["SHA-256 of whole files", "git hashes of whole files"];

/// Compares the files that the checkpoint was read from with their names in the cache, and adds the
/// result to the report: `sources` are all of its files, or `cached` those of a remote checkpoint that
/// were not fetched. Does nothing for files that are not in such a cache.
pub(crate) fn check(
    sources: &[Arc<FileSource>],
    cached: &[Arc<FileSource>],
    report: &mut VerificationReport,
    progress: &mut dyn Progress,
) -> Result<()> {
    let used = sources.iter().chain(cached).filter(|source| source.is_open());
    let used: Vec<&Arc<FileSource>> = used.collect();
    let named: Vec<(&Arc<FileSource>, String)> =
        used.iter().filter_map(|source| Some((*source, blob_hash(source.path())?))).collect();
    let total = named.iter().fold(0u64, |sum, (source, _)| sum.saturating_add(source.len()));
    let mut done = 0;
    let mut counts = [0, 0];
    for (source, name) in &named {
        let found = hash(source, name.len() == 64, &mut |bytes| {
            done += bytes;
            progress.report(done, total)
        })?;
        counts[usize::from(name.len() != 64)] += 1;
        if found == *name {
            continue;
        }
        report.result.problems.push(Problem {
            trouble: Trouble::Checksum,
            key: String::new(),
            file: crate::files::file_name(source.path()),
            offset: None,
            text: "the contents are not those that the file in the cache is named after".to_owned(),
            expected: name.clone(),
            found,
        });
    }
    for (kind, count) in KINDS.iter().zip(counts) {
        if count > 0 {
            report.result.checksums.push(((*kind).to_owned(), count));
        }
    }
    // The hashes cover every byte of these files, but not of those that were fetched.
    if cached.is_empty() && !named.is_empty() && named.len() == used.len() {
        report.result.unchecked_tensors = 0;
    }
    Ok(())
}

/// Returns the SHA-256 of a file, or the SHA-1 of it as a git object, in hexadecimal.
fn hash(
    source: &FileSource,
    is_sha256: bool,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<String> {
    let len = source.len();
    let (mut sha256, mut sha1) = (Sha256::new(), Sha1::new());
    sha1.update(format!("blob {len}\0"));
    let mut buffer = vec![0; BUFFER];
    let mut at = 0;
    while at < len {
        let piece = &mut buffer[..(len - at).min(BUFFER as u64) as usize];
        source
            .read_at(at, piece)
            .map_err(|error| error.in_file(source.path().display().to_string()))?;
        match is_sha256 {
            true => sha256.update(&*piece),
            false => sha1.update(&*piece),
        }
        at += piece.len() as u64;
        if !progress(piece.len() as u64) {
            return Err(Error::cancelled());
        }
    }
    let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(if is_sha256 { digits(&sha256.finalize()) } else { digits(&sha1.finalize()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_as_sha256_and_as_git_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hello");
        std::fs::write(&path, "hello\n").unwrap();
        let source = FileSource::new(&path).unwrap();
        // `sha256sum` and `git hash-object`.
        for (is_sha256, expected) in [
            (true, "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"),
            (false, "ce013625030ba8dba906f756967f9e9ca394464a"),
        ] {
            assert_eq!(hash(&source, is_sha256, &mut |_| true).unwrap(), expected);
        }
        assert!(hash(&source, true, &mut |_| false).is_err());
    }
}
