//! Decompresses data, and examines the result.

use std::sync::Arc;

use statelens_checkpoint::{Finding, Grade, Memory, Result, capitalised};
use statelens_pickle::Pickle;

use super::super::section::some;
use super::{ATTEMPT, Blob, DEEPEST, READ, Search};
use crate::packed::{self, Packing, Unpacked};

/// The maximum number of bytes that a reader may have read ahead.
const AHEAD: u64 = 64 << 10;
/// The number of bytes that are examined at once in data that is too long to keep.
const PIECE: u64 = 8 << 20;
/// The number of bytes that are examined again with the next piece.
const OVERLAP: usize = 64 << 10;

/// The number of decompressed bytes that show that data is compressed.
const SAMPLE: u64 = 4 << 10;

impl Search<'_> {
    /// Returns whether the first bytes of a blob can be decompressed.
    pub(super) fn unpacks(&mut self, blob: &Blob, packing: Packing) -> Result<bool> {
        if !self.spend(ATTEMPT) {
            return Ok(false);
        }
        let sample = packed::unpack(&blob.source, packing, SAMPLE, blob.unpacked)?;
        if !self.spend(sample.streams * packing.stream_cost()) {
            return Ok(false);
        }
        Ok(sample.broken.is_none() && !sample.bytes.is_empty())
    }

    /// Schedules the files in memory that a pickle holds, such as the extra state of Transformer
    /// Engine, to be examined like a file.
    pub(super) fn files_in_memory(&mut self, of: &Blob, pickle: &Pickle) {
        for bytes in pickle.files_in_memory() {
            if of.unpacked >= DEEPEST {
                self.unseen(of, "an `io.BytesIO`", "It is in a pickle in too many others.");
                return;
            }
            if !self.spend(bytes.len() as u64 * READ + ATTEMPT) {
                return;
            }
            let name = of.within("io.BytesIO");
            let (space, source) = (self.space(), Arc::new(Memory::from(bytes.to_vec())));
            let unpacked = of.unpacked + 1;
            self.whole(Blob { name, source, space, base: 0, root: true, unpacked, cut: false });
        }
    }

    /// Decompresses a blob and schedules the result. `led` means that a loader would decompress it.
    pub(super) fn unpack(&mut self, blob: Blob, packing: Packing, led: bool) -> Result<()> {
        let whose = blob.describe();
        if let (Packing::Other(what), true) = (packing, led) {
            self.unseen(&blob, &whose, &format!("It is {what}, which Statelens does not unpack."));
            return Ok(());
        }
        if blob.unpacked >= DEEPEST {
            self.unseen(&blob, &whose, "It is packed in too many layers.");
            return Ok(());
        }
        let weight = packing.weight();
        let most = (self.limits.structure >> blob.unpacked).min(self.budget.left() / weight);
        let unpacked = packed::unpack(&blob.source, packing, most, blob.unpacked)?;
        let Unpacked { bytes, broken, more, used, streams, differs } = unpacked;
        // Up to an error, it is decompressed twice.
        let times = 1 + u64::from(broken.is_some());
        let streams = streams * packing.stream_cost();
        if !self.spend(times * (bytes.len() as u64 * weight + used * READ + streams)) {
            return Ok(());
        }
        if broken.is_none() {
            let end = blob.base + used.saturating_sub(AHEAD);
            self.spaces[blob.space].unpacked.insert(blob.base, end);
        }
        let is_finding = led && (packing.is_certain() || differs);
        if let Some(why) = broken
            && is_finding
        {
            let title = format!("{} can't be unpacked to its end", capitalised(&whose));
            self.findings.add(
                Finding::new(Grade::Damage, title)
                    .detail(format!(
                        "As {}: {why}. The part before that was examined.",
                        packing.name()
                    ))
                    .place(self.place(&blob, 0)),
            );
        }
        let space = self.space();
        let cut = more.is_some();
        let source = Arc::new(Memory::from(bytes));
        let unpacked = blob.unpacked + 1;
        let inner = Blob { source, space, base: 0, root: true, unpacked, cut, ..blob };
        if let Some(more) = more {
            self.rest(&inner, more, weight)?;
        }
        self.whole(inner);
        Ok(())
    }

    /// Examines data that is too long to keep in memory, in pieces. `weight` is the cost of a byte.
    fn rest(&mut self, blob: &Blob, mut more: Box<dyn std::io::Read>, weight: u64) -> Result<()> {
        let mut at = blob.source.len();
        let mut bytes = some(&*blob.source, at - at.min(OVERLAP as u64), OVERLAP as u64)?;
        loop {
            self.progress.check(0, 0)?;
            let kept = bytes.len();
            let piece = PIECE.min(self.budget.left() / weight);
            let done = packed::fill(&mut *more, &mut bytes, kept as u64 + piece);
            let read = (bytes.len() - kept) as u64;
            let may_continue = self.spend(read * weight);
            at += read;
            if let Some(error) = done.as_ref().err().and_then(packed::no_memory) {
                return Err(error.clone());
            }
            if piece == 0 || !may_continue {
                let why =
                    format!("It is far longer than the file: {at} bytes of it were unpacked.");
                self.unseen(blob, &format!("the rest of {}", blob.describe()), &why);
                return Ok(());
            }
            let space = self.space();
            let source = Arc::new(Memory::from(bytes));
            let piece = Blob { source: source.clone(), space, ..blob.clone() };
            let waiting = self.tasks.len();
            self.sweep(&piece)?;
            if self.tasks.len() > waiting {
                self.tasks.truncate(waiting);
                self.unseen(
                    blob,
                    "an archive",
                    "It is in data that is too long to be unpacked completely.",
                );
            }
            if let Err(error) = done {
                self.unseen(blob, &format!("the rest of {}", blob.describe()), &error.to_string());
                return Ok(());
            }
            if read == 0 {
                return Ok(());
            }
            bytes = source.0[source.0.len().saturating_sub(OVERLAP)..].to_vec();
        }
    }
}
