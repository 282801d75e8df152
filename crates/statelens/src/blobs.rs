//! Files of the Hugging Face Hub, compared with the hashes that the Hub lists: those in the cache of its
//! client, which are named after their contents, and those that are fetched.

use std::sync::Arc;

use statelens_checkpoint::{Error, Progress, ReadAt as _, Result};
use statelens_compare::verify::{NOT_AS_LISTED, Problem, Trouble, VerificationReport};

use crate::content_hash::ContentHash;
use crate::files::FileSource;
use crate::files::PathText as _;
use crate::remote::{Hashing, blob_hash};

/// Bytes that are hashed at a time.
const BUFFER: usize = 1 << 20;

/// The kinds of hashes in the report.
const KINDS: [&str; 2] = ["SHA-256 of whole files", "git hashes of whole files"];

/// Compares the files that the checkpoint was read from with their hashes, and adds the result to the
/// report: `sources` are its files on disk, of which those in a cache have hashes, and `hub` those of
/// a repository that is not in the cache, or only in part.
pub(crate) fn check(
    sources: &[Arc<FileSource>],
    hub: Option<&Hashing<'_>>,
    report: &mut VerificationReport,
    progress: &mut dyn Progress,
) -> Result<()> {
    let hub = hub.map(|hashing| hashing.0);
    let cached = hub.map_or(&[][..], |hub| &hub.cached);
    let used = sources.iter().chain(cached).filter(|source| source.is_open());
    let used: Vec<&Arc<FileSource>> = used.collect();
    let named: Vec<(&Arc<FileSource>, String)> =
        used.iter().filter_map(|source| Some((*source, blob_hash(source.path())?))).collect();
    let fetched = hub.map_or(&[][..], |hub| &hub.fetched).iter().filter(|file| file.is_read());
    // Files without a hash are not compared.
    let (fetched, others): (Vec<_>, Vec<_>) = fetched.partition(|file| file.expected().is_some());
    let lens = named.iter().map(|(source, _)| source.len());
    let total = lens.chain(fetched.iter().map(|file| file.left())).fold(0, u64::saturating_add);
    let mut done = 0;
    let mut advance = |bytes| {
        done += bytes;
        progress.report(done, total)
    };
    let mut counts = [0, 0];
    let mut compare = |file: String, text: &str, expected: &str, found: String| {
        counts[usize::from(expected.len() != 64)] += 1;
        if found != expected {
            let (text, expected) = (text.to_owned(), expected.to_owned());
            let (trouble, key) = (Trouble::Checksum, String::new());
            let problem = Problem { trouble, key, file, offset: None, text, expected, found };
            report.result.problems.push(problem);
        }
    };
    for (source, name) in &named {
        let found = hash(source, name, &mut advance)?;
        let text = "the contents are not those that the file in the cache is named after";
        compare(crate::files::file_name(source.path()), text, name, found);
    }
    for file in &fetched {
        let found = file.finish(&mut advance).map_err(|error| error.in_file(file.name()))?;
        if let Some((expected, found)) = file.expected().zip(found) {
            compare(file.name().to_owned(), NOT_AS_LISTED, expected, found);
        }
    }
    for (kind, count) in KINDS.iter().zip(counts) {
        if count > 0 {
            report.result.checksums.push(((*kind).to_owned(), count));
        }
    }
    // The hashes cover every byte of these files.
    let is_complete = others.is_empty() && hub.is_none_or(|hub| !hub.has_others);
    if is_complete && named.len() == used.len() && named.len() + fetched.len() > 0 {
        report.result.unchecked_tensors = 0;
    }
    Ok(())
}

/// Returns the hash of a file, of the kind of `expected`, in hexadecimal.
fn hash(
    source: &FileSource,
    expected: &str,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<String> {
    let len = source.len();
    let mut hash = ContentHash::like(expected, len);
    let mut buffer = vec![0; BUFFER];
    let mut at = 0;
    while at < len {
        let piece = &mut buffer[..(len - at).min(BUFFER as u64) as usize];
        source.read_at(at, piece).map_err(|error| error.in_file(source.path().to_text()))?;
        hash.update(piece);
        at += piece.len() as u64;
        if !progress(piece.len() as u64) {
            return Err(Error::cancelled());
        }
    }
    Ok(hash.hex())
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
        for expected in [
            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
            "ce013625030ba8dba906f756967f9e9ca394464a",
        ] {
            assert_eq!(hash(&source, expected, &mut |_| true).unwrap(), expected);
        }
        assert!(hash(&source, "", &mut |_| false).is_err());
    }
}
