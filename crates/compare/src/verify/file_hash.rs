//! The SHA-256 of a whole file, compared with the one that a server lists.

use sha2::{Digest as _, Sha256};
use statelens_checkpoint::hex;

use super::report::{Problem, Trouble, VerificationReport};

/// The name of the hashes in the report.
const KIND: &str = "SHA-256 of whole files";

/// The problem of a file whose SHA-256 differs from the one that the Hugging Face Hub lists.
pub const NOT_AS_LISTED: &str = "the contents are not those that the Hub lists for the file";

/// The hash of the first bytes of a file, and the listed one.
pub struct FileHash {
    expected: String,
    hasher: Sha256,
    at: u64,
}

impl FileHash {
    /// Begins a hash. `expected` is the listed SHA-256 in hexadecimal.
    pub fn new(expected: String) -> Self {
        Self { expected, hasher: Sha256::new(), at: 0 }
    }

    /// Returns the number of bytes hashed: the offset of those that are needed next.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Hashes bytes from an offset of the file. Those that were hashed before are skipped, and so are
    /// all if bytes before them are missing.
    pub fn add(&mut self, offset: u64, bytes: &[u8]) {
        let known = self.at.checked_sub(offset).and_then(|known| usize::try_from(known).ok());
        let new = known.and_then(|known| bytes.get(known..)).unwrap_or_default();
        self.hasher.update(new);
        self.at = self.at.saturating_add(new.len() as u64);
    }
}

impl VerificationReport {
    /// Adds the comparison of whole files, which have these names, with their listed hashes.
    pub fn add_files(&mut self, files: impl IntoIterator<Item = (String, FileHash)>) {
        let mut count = 0;
        for (file, FileHash { expected, hasher, .. }) in files {
            count += 1;
            let found = hex(&hasher.finalize());
            if found != expected {
                let (trouble, text) = (Trouble::Checksum, NOT_AS_LISTED.to_owned());
                let (key, offset) = (String::new(), None);
                let problem = Problem { trouble, key, file, offset, text, expected, found };
                self.result.problems.push(problem);
            }
        }
        if count > 0 {
            self.result.checksums.push((KIND.to_owned(), count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf hello | sha256sum`.
    const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    #[test]
    fn hashes_bytes_that_follow_each_other_once() {
        let mut hash = FileHash::new(HELLO.to_owned());
        hash.add(0, b"hel");
        // Again, beyond a gap, and with an overlap.
        hash.add(0, b"he");
        hash.add(4, b"o");
        assert_eq!(hash.at(), 3);
        hash.add(1, b"ello");
        assert_eq!(hash.at(), 5);
        let mut report = VerificationReport::default();
        report.add_files([]);
        assert_eq!(report, VerificationReport::default());
        report.add_files([("a".to_owned(), hash)]);
        assert_eq!(report.result.checksums, [(KIND.to_owned(), 1)]);
        assert_eq!(report.result.problems, []);
    }

    #[test]
    fn reports_files_that_differ() {
        let mut hash = FileHash::new(HELLO.to_owned());
        hash.add(0, b"hullo");
        let mut report = VerificationReport::default();
        report.add_files([("a".to_owned(), hash)]);
        let [problem] = report.result.problems.as_slice() else { panic!("one problem") };
        assert_eq!((problem.file.as_str(), problem.text.as_str()), ("a", NOT_AS_LISTED));
        assert_eq!(problem.expected, HELLO);
    }
}
