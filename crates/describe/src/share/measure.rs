//! Reads all values once, for the fingerprint of the content and for statistics.

use std::collections::HashMap;

use statelens_checkpoint::{Checkpoint, Finding, Grade, Leaf, Result, TensorId};
use statelens_tensor::InOrder;
use statelens_values::reading::{Hashed, Hashing, Readable, TakesHashes};
use statelens_values::{SummaryStatistics, non_finite_text};

use super::fingerprint::of_lines;
use super::{LeafSummary, Outline};
use crate::Hashes;

statelens_tensor::in_order! {
    /// Reads the values of a checkpoint: a machine that is fed its files.
    pub struct Measuring<'a>(Hashing<'a, LeafValues<'a>>);
}

/// The results of [`Measuring`]: hashes, and statistics of numeric tensors.
pub struct LeafValues<'a> {
    checkpoint: &'a Checkpoint,
    leaves: &'a [Leaf],
    hashes: HashMap<TensorId, String>,
    /// The statistics, if requested.
    statistics: Option<HashMap<TensorId, SummaryStatistics>>,
}

impl<'a> Measuring<'a> {
    /// Prepares reading a checkpoint with these leaves; with `statistics`, computes those, too.
    pub fn new(checkpoint: &'a Checkpoint, leaves: &'a [Leaf], statistics: bool) -> Self {
        let mut readable = Readable::of(checkpoint);
        let tensors = leaves.iter().filter_map(|leaf| checkpoint.tensor_of(leaf.target));
        tensors.for_each(|(id, _)| readable.add(id));
        let hashing = Hashing::new(readable, statistics);
        let (hashes, statistics) = (HashMap::new(), statistics.then(HashMap::new));
        Self(InOrder::of(hashing, LeafValues { checkpoint, leaves, hashes, statistics }))
    }

    /// Adds the results to the outline of this checkpoint.
    pub fn finish(self, outline: &mut Outline) -> Result<()> {
        let LeafValues { checkpoint, leaves, hashes, statistics } = self.0.into_parts().1;
        if let Some(found) = statistics {
            outline.take_statistics(checkpoint, leaves, |id| found.get(&id).copied());
        }
        outline.take_hashes(checkpoint, leaves, hashes);
        Ok(())
    }
}

impl TakesHashes for LeafValues<'_> {
    fn take(&mut self, _part: usize, id: TensorId, found: Result<Hashed>) -> Result<()> {
        let mut hashed = found?;
        if let (Some(all), Some(measure)) = (&mut self.statistics, hashed.measure.take()) {
            all.insert(id, measure.finish());
        }
        self.hashes.insert(id, hashed.hash());
        Ok(())
    }
}

impl Outline {
    /// Sets the fingerprint of the content from the SHA-256 of all tensors, in hexadecimal.
    pub fn take_hashes(
        &mut self,
        checkpoint: &Checkpoint,
        leaves: &[Leaf],
        hashes: HashMap<TensorId, String>,
    ) {
        let mut hashes = Hashes::new(checkpoint, hashes);
        let line = |leaf| hashes.columns(leaf).join("\t") + "\n";
        self.content = Some(of_lines(leaves.iter().map(line).collect()));
    }

    /// Adds statistics of tensors, and a finding if some values are not finite.
    pub fn take_statistics(
        &mut self,
        checkpoint: &Checkpoint,
        leaves: &[Leaf],
        of: impl Fn(TensorId) -> Option<SummaryStatistics>,
    ) {
        for (entry, leaf) in self.entries.iter_mut().zip(leaves) {
            let tensor = checkpoint.tensor_of(leaf.target);
            entry.statistics = tensor.and_then(|(id, _)| of(id));
        }
        self.findings.extend(not_finite(&self.entries));
    }
}

/// Returns the finding about values that are not finite; each tensor counts once.
fn not_finite(entries: &[LeafSummary]) -> Option<Finding> {
    let odd = |entry: &&LeafSummary| {
        let of = entry.statistics.as_ref().filter(|_| entry.link.is_none());
        of.is_some_and(|of| of.nan + of.infinite > 0)
    };
    let odd: Vec<&LeafSummary> = entries.iter().filter(odd).collect();
    let (nan, inf) =
        odd.iter().filter_map(|entry| entry.statistics).fold((0u64, 0u64), |(nan, inf), of| {
            (nan.saturating_add(of.nan), inf.saturating_add(of.infinite))
        });
    let title = non_finite_text(nan, inf, odd.len() as u64)?;
    let names: Vec<&str> = odd.iter().take(NAMED).map(|entry| entry.key.as_str()).collect();
    let more = if odd.len() > names.len() { " and others" } else { "" };
    Some(
        Finding::new(Grade::Warning, title)
            .detail(
                "Training or inference with values that are not finite produces more of them. \
                     They may have been saved like this.",
            )
            .place(format!("{}{more}", names.join(", "))),
    )
}

/// Maximum number of tensors that the finding names.
const NAMED: usize = 4;
