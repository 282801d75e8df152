//! Reading all values once: the fingerprint of the content, and statistics.

use std::collections::{HashMap, HashSet};

use sha2::{Digest, Sha256};
use statelens_checkpoint::{
    Checkpoint, Finding, Grade, Leaf, Progress, Result, TensorId, Unwatched,
};
use statelens_tensor::{BUDGET, BUFFER, Gather, Need};

use crate::manifest::{Known, Repetition, hex, missing};
use crate::{Statistician, Statistics, verify};

use super::fingerprint::of_lines;
use super::{Entry, Outline};

/// Reads the values of a checkpoint: asks for spans of its files, and is fed them.
pub struct Measuring<'a> {
    checkpoint: &'a Checkpoint,
    leaves: &'a [Leaf],
    /// Tensors that are to be read, the next one last.
    waiting: Vec<TensorId>,
    current: Option<Current>,
    hashes: HashMap<TensorId, String>,
    /// Of those that have some, if they are wanted.
    statistics: Option<HashMap<TensorId, Statistics>>,
    done: u64,
    total: u64,
}

/// The tensor that is being read.
struct Current {
    id: TensorId,
    gather: Gather,
    hasher: Sha256,
    measure: Option<Statistician>,
}

impl<'a> Measuring<'a> {
    /// Of a checkpoint with these leaves; with `statistics` also those.
    pub fn new(checkpoint: &'a Checkpoint, leaves: &'a [Leaf], statistics: bool) -> Self {
        let mut repetition = Repetition::new(checkpoint);
        let (mut seen, mut waiting, mut total) = (HashSet::new(), Vec::new(), 0u64);
        for (id, tensor) in leaves.iter().filter_map(|leaf| checkpoint.tensor_of(leaf.target)) {
            if seen.insert(id) && missing(tensor).is_none() && repetition.allows(tensor) {
                waiting.push(id);
                total = total.saturating_add(tensor.nbytes().unwrap_or(u64::MAX));
            }
        }
        waiting.reverse();
        Self {
            checkpoint,
            leaves,
            waiting,
            current: None,
            hashes: HashMap::new(),
            statistics: statistics.then(HashMap::new),
            done: 0,
            total,
        }
    }

    /// What it needs next.
    pub fn need(&self) -> Need {
        match &self.current {
            Some(current) => match current.gather.need() {
                Need::Done => Need::Step,
                need => need,
            },
            None if self.waiting.is_empty() => Need::Done,
            None => Need::Step,
        }
    }

    /// Takes the first bytes of the span that was asked for, as many as there are.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.current {
            Some(Current { gather, hasher, measure, .. }) => {
                let done = &mut self.done;
                gather.feed(bytes, &mut |bytes| take(bytes, hasher, measure, done))
            }
            None => Ok(()),
        }
    }

    /// Goes on without bytes.
    pub fn step(&mut self) -> Result<()> {
        let Some(mut current) = self.current.take() else { return self.begin() };
        if current.gather.need() == Need::Step {
            let Current { gather, hasher, measure, .. } = &mut current;
            let done = &mut self.done;
            gather.step(&self.checkpoint.files, &mut |bytes| take(bytes, hasher, measure, done))?;
            self.current = Some(current);
            return Ok(());
        }
        self.hashes.insert(current.id, hex(&current.hasher.finalize()));
        if let (Some(all), Some(measure)) = (&mut self.statistics, current.measure) {
            all.insert(current.id, measure.finish());
        }
        Ok(())
    }

    /// Logical bytes that were read, and all of them.
    pub fn progress(&self) -> (u64, u64) {
        (self.done, self.total)
    }

    /// Puts what was found into the outline of this checkpoint.
    pub fn finish(self, outline: &mut Outline) -> Result<()> {
        if let Some(found) = &self.statistics {
            for (entry, leaf) in outline.entries.iter_mut().zip(self.leaves) {
                let tensor = self.checkpoint.tensor_of(leaf.target);
                entry.statistics = tensor.and_then(|(id, _)| found.get(&id).copied());
            }
            outline.findings.extend(not_finite(&outline.entries));
        }
        let mut unwatched = Unwatched;
        let mut known = Known::new(self.checkpoint, self.hashes, &mut unwatched);
        let line = |leaf| Ok(known.columns(leaf)?.join("\t") + "\n");
        outline.content = Some(of_lines(self.leaves.iter().map(line).collect::<Result<_>>()?));
        Ok(())
    }

    fn begin(&mut self) -> Result<()> {
        let Some(id) = self.waiting.pop() else { return Ok(()) };
        let tensor = self.checkpoint.tensor(id)?;
        let numel = tensor.numel().unwrap_or(u64::MAX);
        self.current = Some(Current {
            id,
            gather: Gather::new(&self.checkpoint.files, tensor, 0..numel, BUDGET)?,
            hasher: Sha256::new(),
            measure: self.statistics.as_ref().and_then(|_| Statistician::new(&tensor.dtype)),
        });
        Ok(())
    }
}

/// The finding that values are no finite numbers; each tensor counts once.
fn not_finite(entries: &[Entry]) -> Option<Finding> {
    let odd = |entry: &&Entry| {
        let of = entry.statistics.as_ref().filter(|_| entry.link.is_none());
        of.is_some_and(|of| of.nan + of.infinite > 0)
    };
    let odd: Vec<&Entry> = entries.iter().filter(odd).collect();
    let (nan, inf) =
        odd.iter().filter_map(|entry| entry.statistics).fold((0u64, 0u64), |(nan, inf), of| {
            (nan.saturating_add(of.nan), inf.saturating_add(of.infinite))
        });
    let title = verify::not_finite(nan, inf, odd.len() as u64)?;
    let names: Vec<&str> = odd.iter().take(NAMED).map(|entry| entry.key.as_str()).collect();
    let more = if odd.len() > names.len() { " and others" } else { "" };
    Some(
        Finding::new(Grade::Warning, title)
            .detail("Training or inference with values that are not finite numbers gives more of them. That they are what was saved can't be told from here.")
            .place(format!("{}{more}", names.join(", "))),
    )
}

/// Tensors that a finding names.
const NAMED: usize = 4;

fn take(
    bytes: &[u8],
    hasher: &mut Sha256,
    measure: &mut Option<Statistician>,
    done: &mut u64,
) -> Result<()> {
    hasher.update(bytes);
    if let Some(measure) = measure {
        measure.feed(bytes);
    }
    *done += bytes.len() as u64;
    Ok(())
}

impl Outline {
    /// Reads all tensors, once: the fingerprint of keys, dtypes, shapes and values, and with
    /// `statistics` also those. The outline is that of this checkpoint and these leaves.
    pub fn read_values(
        &mut self,
        checkpoint: &Checkpoint,
        leaves: &[Leaf],
        statistics: bool,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let mut measuring = Measuring::new(checkpoint, leaves, statistics);
        let mut buffer = vec![0; BUFFER];
        loop {
            match measuring.need() {
                Need::Done => return measuring.finish(self),
                Need::Step => measuring.step()?,
                Need::Feed(span) => {
                    let len = span.len.min(BUFFER as u64) as usize;
                    checkpoint.files.read(span.file, span.offset, &mut buffer[..len])?;
                    measuring.feed(&buffer[..len])?;
                }
            }
            let (done, total) = measuring.progress();
            progress.check(done, total)?;
        }
    }
}
