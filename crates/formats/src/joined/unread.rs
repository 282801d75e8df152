//! Files of a checkpoint in pieces that are there and can't be read. They count as missing.

use std::collections::BTreeMap;

use statelens_checkpoint::{Error, ErrorKind, FileId, FileSet, Finding, FindingKind, Result};

use crate::archive::ZIP;
use crate::{Probe, not_a_checkpoint, unreadable_parts};

/// The files that can't be read, with the reasons.
#[derive(Debug, Default)]
pub(crate) struct UnreadFiles(BTreeMap<FileId, Error>);

impl UnreadFiles {
    /// Adds a file that can't be read, with the error.
    pub(crate) fn add(&mut self, id: FileId, error: Error) {
        self.0.entry(id).or_insert(error);
    }

    pub(crate) fn has(&self, id: FileId) -> bool {
        self.0.contains_key(&id)
    }

    /// Returns the reason of the first file, for a checkpoint of which no file can be read.
    pub(crate) fn first(&self) -> Option<&Error> {
        self.0.values().next()
    }

    /// Returns a finding for each file.
    pub(crate) fn findings(&self, files: &FileSet) -> impl Iterator<Item = Finding> {
        self.0.iter().take(MAX_FINDINGS).map(|(id, error)| {
            let name = files.name(*id);
            let finding = unreadable_parts::finding(format!("{name} can't be read"), error);
            // The title and the place already have the name.
            let detail = finding.detail.trim_start_matches(&format!("{name}: ")).to_owned();
            finding.detail(detail).kind(FindingKind::WrongFile).place(name)
        })
    }
}

/// The maximum number of files with a finding of their own.
const MAX_FINDINGS: usize = 20;

/// Separates an error about the content of a file, which concerns only that file, from one that ends
/// the opening: a limit, a failed read, a cancelled job.
pub(crate) fn of_content<T>(
    files: &FileSet,
    id: FileId,
    result: Result<T>,
) -> Result<Result<T, Error>> {
    match result {
        Ok(read) => Ok(Ok(read)),
        Err(error) if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Unsupported) => {
            Ok(Err(explained(files, id).unwrap_or_else(|| error.in_file(files.name(id)))))
        }
        Err(error) => Err(error),
    }
}

/// Recognises a file that is not an archive: an empty one, a web page, a pointer.
fn explained(files: &FileSet, id: FileId) -> Option<Error> {
    let set = files.opened_at(id);
    let probe = Probe::new(&set).ok().filter(|probe| !probe.head().starts_with(ZIP))?;
    not_a_checkpoint::is_explained(&probe).then(|| not_a_checkpoint::explain(&probe))
}
