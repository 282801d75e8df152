//! The SHA-256 of the files of a repository, which the Hub lists. Bytes are hashed as they are verified,
//! so that each is fetched once if they are read in order; the rest is fetched at the end.

use statelens_checkpoint::{FileId, FileSet, Result, Span};
use statelens_compare::verify::{FileHash, VerificationReport};

use crate::worker::reading::Driver;
use crate::worker::sources::Sources;
use crate::worker::task::Task;

/// Maximum number of bytes between two reads, such as padding, that are read for the hash alone.
const MAX_GAP: u64 = 64 << 10;

/// A hash for each file for which one is listed.
pub(super) struct FileHashes(Vec<Option<FileHash>>);

impl FileHashes {
    pub(super) fn new(sources: &Sources) -> Self {
        Self(sources.listed_hashes().iter().cloned().map(|hash| hash.map(FileHash::new)).collect())
    }

    /// Hashes the first bytes of a span, which are verified next.
    pub(super) fn add(&mut self, files: &FileSet, span: Span, bytes: &[u8]) {
        let Some(Some(hash)) = self.0.get_mut(span.file.0 as usize) else { return };
        let at = hash.at();
        let gap = span.offset.saturating_sub(at);
        // A header is in the cache. If the gap can't be read now, the rest is read at the end.
        if (1..=MAX_GAP).contains(&gap)
            && let Ok(before) = files.read_vec(span.file, at, gap)
        {
            hash.add(at, &before);
        }
        hash.add(span.offset, bytes);
    }

    /// Fetches and hashes the rest of the files, and adds the result to the report. A file of which more
    /// would have to be fetched than the user agreed to is not compared.
    pub(super) async fn finish(
        self,
        driver: &mut Driver<'_>,
        files: &FileSet,
        task: &Task,
        report: &mut VerificationReport,
    ) -> Result<()> {
        let hashed = |at: usize| FileId(at as u32);
        let rest = |(at, hash): (usize, &Option<FileHash>)| {
            let len = files.len(hashed(at));
            hash.as_ref().map_or(0, |hash| len.saturating_sub(hash.at()))
        };
        let total: u64 = self.0.iter().enumerate().map(rest).sum();
        let (mut done, mut compared) = (0, Vec::new());
        // The Hub lists no SHA-256 of small texts.
        let is_text = |at: usize| files.name(hashed(at)).ends_with(".json");
        let all = || self.0.iter().enumerate();
        let mut is_complete = all().all(|(at, hash)| hash.is_some() || is_text(at));
        for (at, hash) in self.0.into_iter().enumerate() {
            let (file, Some(mut hash)) = (hashed(at), hash) else { continue };
            let len = files.len(file);
            while hash.at() < len {
                task.job.check()?;
                let span = Span { file, offset: hash.at(), len: len - hash.at() };
                let Ok(piece) = driver.piece(0, files, span).await else { break };
                hash.add(span.offset, &piece);
                done += piece.len() as u64;
                if driver.yield_if_due().await {
                    task.progress((done, total));
                }
            }
            match hash.at() == len {
                true => compared.push((files.name(file).to_owned(), hash)),
                false => is_complete = false,
            }
        }
        task.job.check()?;
        // The hashes cover every byte.
        if is_complete && !compared.is_empty() {
            report.result.unchecked_tensors = 0;
        }
        report.add_files(compared);
        Ok(())
    }
}
