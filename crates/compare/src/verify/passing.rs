//! Distributes the bytes of a job to its tensors.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use statelens_checkpoint::{Checkpoint, DType, Result, TensorId};
use statelens_tensor::Receive;
use statelens_tensor::crc::Summing;
use statelens_values::{Accumulator, ByteHash, Summary};

use super::JobTensor;
use super::tally::{NonFinite, Tally};

/// Receives the bytes of a job.
pub struct Passing {
    checkpoint: Arc<Checkpoint>,
    tensors: Vec<JobTensor>,
    summing: Option<Summing>,
    /// Hashes the bytes, to compare them with those of another copy.
    copy: Option<ByteHash>,
    hashing: bool,
    /// Number of bytes received.
    at: u64,
    /// The index of the first tensor of the job that is not complete.
    inner: usize,
    tally: Option<Tally>,
    /// Computes the statistics of one tensor after the other, if they are requested.
    accumulator: Option<Accumulator>,
    /// Whether the current tensor has numbers that the accumulator can count.
    counts: bool,
    /// Whether its statistics count the values that are not finite, so that the tally need not.
    tallied_by_statistics: bool,
    found: Vec<PassedTensor>,
}

/// The results of a tensor, or of a piece of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PassedTensor {
    pub(super) tensor: TensorId,
    /// The counts of NaN and infinite values.
    pub(super) not_finite: NonFinite,
    /// The hash, if requested.
    pub(super) hash: Option<String>,
    /// The statistics, if requested and if the values are numbers.
    pub(super) summary: Option<Box<Summary>>,
}

/// The result of a job.
#[derive(Debug, Serialize, Deserialize)]
pub struct Passed {
    /// The checksum of its bytes, if computed; or the reason why they can't be read.
    #[serde(with = "sum")]
    pub(super) outcome: Result<Option<u32>>,
    /// The hash of its bytes, if they are those of a copy.
    pub(super) copy: Option<u128>,
    /// The tensors that were read completely.
    pub(super) tensors: Vec<PassedTensor>,
}

/// The checksum alone: the result of bytes that can't be read is not sent to other processes.
mod sum {
    use serde::ser::Error as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use statelens_checkpoint::Result;

    type Outcome = Result<Option<u32>>;

    pub(super) fn serialize<S: Serializer>(
        outcome: &Outcome,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        outcome.as_ref().map_err(S::Error::custom)?.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<Outcome, D::Error> {
        Option::deserialize(deserializer).map(Ok)
    }
}

impl Passing {
    /// Creates a receiver for the bytes of a job from offset `at` on.
    pub(super) fn new(
        checkpoint: Arc<Checkpoint>,
        tensors: Vec<JobTensor>,
        summing: Option<Summing>,
        hashing: bool,
        at: u64,
    ) -> Self {
        let (inner, tally, found) = (0, None, Vec::new());
        Self {
            checkpoint,
            tensors,
            summing,
            copy: None,
            hashing,
            at,
            inner,
            tally,
            accumulator: None,
            counts: false,
            tallied_by_statistics: false,
            found,
        }
    }

    /// Also hashes the bytes, which are those of a copy.
    pub(super) fn of_copy(mut self) -> Self {
        self.copy = Some(ByteHash::default());
        self
    }

    /// Also computes statistics of the tensors.
    pub(super) fn counting(mut self, accumulator: Option<Accumulator>) -> Self {
        self.accumulator = accumulator;
        self
    }

    /// Returns the accumulator, so that the next job can use it.
    pub(super) fn take_accumulator(&mut self) -> Option<Accumulator> {
        self.accumulator.take()
    }

    /// Returns the statistics of the tensor that was just completed.
    fn summary(&mut self) -> Option<Box<Summary>> {
        let counted = std::mem::take(&mut self.counts);
        let accumulator = self.accumulator.as_mut().filter(|_| counted)?;
        Some(Box::new(accumulator.finish()))
    }

    /// Returns the numbers of the current tensor that are not finite: those of the tally, unless
    /// the statistics have them.
    fn not_finite(&self, tallied: NonFinite, summary: Option<&Summary>) -> NonFinite {
        match summary.filter(|_| self.tallied_by_statistics) {
            Some(summary) => {
                let (nan, inf, first) = summary.not_finite();
                NonFinite { nan, inf, first, lost: 0 }
            }
            None => tallied,
        }
    }

    pub(super) fn finish(&mut self, read: Result<()>) -> Passed {
        // Completes tensors without bytes, which do not receive any.
        let outcome = read.and_then(|()| self.receive(&[]));
        if let (Ok(()), Some(tally)) = (&outcome, self.tally.take())
            && let Some(tensor) = self.tensors.get(self.inner).map(|inner| inner.tensor)
        {
            // The rest of the tensor is in another piece.
            let (not_finite, _) = tally.finish();
            let summary = self.summary();
            let not_finite = self.not_finite(not_finite, summary.as_deref());
            self.found.push(PassedTensor { tensor, not_finite, hash: None, summary });
        }
        let outcome = outcome.map(|()| self.summing.take().map(Summing::value));
        let copy = self.copy.take().map(|mut hash| hash.finish());
        Passed { outcome, copy, tensors: std::mem::take(&mut self.found) }
    }
}

impl Passed {
    /// Adds the result of the next piece.
    pub(super) fn merge(&mut self, next: Self) {
        match (&self.outcome, next.outcome) {
            (Ok(_), Err(error)) => {
                *self = Self { outcome: Err(error), copy: None, tensors: Vec::new() };
            }
            (Ok(_), Ok(_)) => {
                for piece in next.tensors {
                    match self.tensors.iter_mut().find(|known| known.tensor == piece.tensor) {
                        Some(all) => {
                            all.not_finite.merge(piece.not_finite);
                            if let (Some(all), Some(piece)) = (&mut all.summary, &piece.summary) {
                                all.merge(piece);
                            }
                        }
                        None => self.tensors.push(PassedTensor { hash: None, ..piece }),
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
        if let Some(copy) = &mut self.copy {
            copy.feed(bytes);
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
                if let Some(accumulator) = &mut self.accumulator {
                    let first = before / tensor.dtype.itemsize().max(1);
                    self.counts = accumulator.begin(&tensor.dtype, first);
                }
                self.tallied_by_statistics = self.counts && is_plain_float(&tensor.dtype);
                let tally = Tally::new(tensor, self.hashing).behind(before);
                self.tally = Some(match self.tallied_by_statistics {
                    true => tally.without_counting(),
                    false => tally,
                });
            }
            let (from, to) = (range.start.max(here.start), range.end.min(here.end));
            if from < to
                && let Some(tally) = &mut self.tally
            {
                // Both offsets are within `bytes`.
                let piece = &bytes[(from - here.start) as usize..(to - here.start) as usize];
                tally.update(piece);
                if let Some(accumulator) = self.accumulator.as_mut().filter(|_| self.counts) {
                    accumulator.feed(piece);
                }
            }
            if range.end > here.end {
                return Ok(());
            }
            self.inner += 1;
            let Some(tally) = self.tally.take() else { continue };
            let (tensor, (not_finite, hash)) = (*id, tally.finish());
            let summary = self.summary();
            let not_finite = self.not_finite(not_finite, summary.as_deref());
            self.found.push(PassedTensor { tensor, not_finite, hash, summary });
        }
        Ok(())
    }
}

/// Returns whether an element is one float, which statistics and tally classify in the same way.
fn is_plain_float(dtype: &DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
}
