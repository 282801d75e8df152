//! Bytes on their way to the tensors that they are of.

use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Result, TensorId};
use statelens_tensor::Receive;
use statelens_tensor::crc::Summing;

use super::JobTensor;
use super::tally::{NonFinite, Tally};

/// Takes the bytes of a job.
pub struct Passing {
    checkpoint: Arc<Checkpoint>,
    tensors: Vec<JobTensor>,
    summing: Option<Summing>,
    hashing: bool,
    /// Bytes that have passed.
    at: u64,
    /// The first tensor of the job that has not passed.
    inner: usize,
    tally: Option<Tally>,
    found: Vec<(TensorId, NonFinite, Option<String>)>,
}

/// What came of a job.
pub struct Passed {
    /// The sum of its bytes, if that was made; or why they can't be read.
    pub(super) outcome: Result<Option<u32>>,
    /// Its tensors that were read to their end, with their hashes if those are wanted.
    pub(super) tensors: Vec<(TensorId, NonFinite, Option<String>)>,
}

impl Passing {
    /// Takes the bytes of a job from `at` on.
    pub(super) fn new(
        checkpoint: Arc<Checkpoint>,
        tensors: Vec<JobTensor>,
        summing: Option<Summing>,
        hashing: bool,
        at: u64,
    ) -> Self {
        let (inner, tally, found) = (0, None, Vec::new());
        Self { checkpoint, tensors, summing, hashing, at, inner, tally, found }
    }

    pub(super) fn finish(mut self, read: Result<()>) -> Passed {
        // What has no bytes is not passed by any.
        let outcome = read.and_then(|()| self.receive(&[]));
        if let (Ok(()), Some(tally)) = (&outcome, self.tally.take())
            && let Some(inner) = self.tensors.get(self.inner)
        {
            // The rest of it is another piece.
            self.found.push((inner.tensor, tally.finish().0, None));
        }
        Passed { outcome: outcome.map(|()| self.summing.map(Summing::value)), tensors: self.found }
    }
}

impl Passed {
    /// Adds what came of the piece that follows.
    pub(super) fn merge(&mut self, next: Self) {
        match (&self.outcome, next.outcome) {
            (Ok(_), Err(error)) => *self = Self { outcome: Err(error), tensors: Vec::new() },
            (Ok(_), Ok(_)) => {
                for (id, found, _) in next.tensors {
                    match self.tensors.iter_mut().find(|(known, ..)| *known == id) {
                        Some((_, all, _)) => all.merge(found),
                        None => self.tensors.push((id, found, None)),
                    }
                }
            }
            (Err(_), _) => {}
        }
    }
}

impl Receive for Passing {
    fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(summing) = &mut self.summing {
            summing.update(bytes);
        }
        let here = self.at..self.at.saturating_add(bytes.len() as u64);
        self.at = here.end;
        while let Some(JobTensor { range, tensor: id }) = self.tensors.get(self.inner) {
            if range.start > here.end || (range.start == here.end && range.end > here.end) {
                return Ok(());
            }
            if self.tally.is_none() {
                let tensor = self.checkpoint.tensor(*id)?;
                let before = here.start.saturating_sub(range.start);
                self.tally = Some(Tally::new(tensor, self.hashing).behind(before));
            }
            let (from, to) = (range.start.max(here.start), range.end.min(here.end));
            if from < to
                && let Some(tally) = &mut self.tally
            {
                // Both lie within the bytes that are here.
                tally.update(&bytes[(from - here.start) as usize..(to - here.start) as usize]);
            }
            if range.end > here.end {
                return Ok(());
            }
            self.inner += 1;
            let Some(tally) = self.tally.take() else { continue };
            let (found, hash) = tally.finish();
            self.found.push((*id, found, hash));
        }
        Ok(())
    }
}
