//! Reports of conversions, as JSON prints them.

use std::path::PathBuf;

use serde::Serialize;
use statelens_checkpoint::{DType, Plan, Result};
use statelens_convert::{CastPair, Change, Changed, RunReport, Share, shares};
use statelens_tensor::CastReport;
use statelens_values::json::float;

use crate::files::path_text;

/// Keys that a report lists with the effects of casts.
const NAMED: usize = 1000;

/// Returns the field `files` or `removed`: the paths of files.
pub(crate) fn path_texts(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path_text(path)).collect()
}

/// The field `cast`: what casting did to the numbers, in all and by tensor.
#[derive(Debug, Clone, Serialize)]
pub struct CastEffects {
    #[serde(flatten)]
    all: CastCounts,
    pairs: Vec<PairEffects>,
    keys: Vec<KeyEffects>,
}

#[derive(Debug, Clone, Serialize)]
struct PairEffects {
    from: String,
    to: String,
    tensors: u64,
    #[serde(flatten)]
    counts: CastCounts,
}

#[derive(Debug, Clone, Serialize)]
struct KeyEffects {
    key: String,
    #[serde(flatten)]
    counts: CastCounts,
}

#[derive(Debug, Clone, Serialize)]
struct CastCounts {
    elements: u64,
    changed: u64,
    overflowed: u64,
    nonzero: u64,
    flushed: u64,
    #[serde(with = "float")]
    largest_relative_error: Option<f64>,
}

impl CastEffects {
    /// Collects the effects of casts; `worst` is [`RunReport::worst`].
    pub fn new(report: &RunReport, worst: &[Changed]) -> Self {
        let pair = |pair: &CastPair| PairEffects {
            from: pair.from.name().to_owned(),
            to: pair.to.name().to_owned(),
            tensors: pair.tensors,
            counts: pair.cast.into(),
        };
        let key = |changed: &Changed| KeyEffects {
            key: changed.key.clone(),
            counts: changed.cast.into(),
        };
        Self {
            all: report.cast.into(),
            pairs: report.pairs.iter().map(pair).collect(),
            keys: worst.iter().take(NAMED).map(key).collect(),
        }
    }
}

impl From<CastReport> for CastCounts {
    fn from(cast: CastReport) -> Self {
        Self {
            elements: cast.elements,
            changed: cast.changed,
            overflowed: cast.overflowed,
            nonzero: cast.nonzero,
            flushed: cast.flushed,
            largest_relative_error: Some(cast.worst),
        }
    }
}

/// The number of parts and bytes of new files, by how they are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Shares {
    made: PartSum,
    copied: PartSum,
    gathered: PartSum,
    cast: PartSum,
    compressed: PartSum,
}

/// The number of parts of new files, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PartSum {
    /// Number of parts.
    pub count: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Shares {
    /// Counts the parts of a plan.
    pub fn of(plan: &Plan) -> Result<Self> {
        let mut sums = Self::default();
        for found in shares(plan) {
            let (share, bytes, _) = found?;
            let sum = match share {
                Share::Made => &mut sums.made,
                Share::Copied => &mut sums.copied,
                Share::Gathered => &mut sums.gathered,
                Share::Cast => &mut sums.cast,
                Share::Compressed => &mut sums.compressed,
            };
            sum.count += 1;
            sum.bytes = sum.bytes.saturating_add(bytes);
        }
        Ok(sums)
    }

    /// Returns, for each way, its name, its output, and the parts.
    pub fn rows(&self) -> [(&'static str, &'static str, PartSum); 5] {
        [
            ("made", "headers, indexes and plain values", self.made),
            ("copied", "unchanged", self.copied),
            ("gathered", "assembled from chunks, views or constants", self.gathered),
            ("cast", "cast to another dtype", self.cast),
            ("compressed", "compressed; sizes are before compression", self.compressed),
        ]
    }
}

/// The files that a conversion would write and remove.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlannedPaths {
    /// The files to write.
    pub paths: Vec<PathBuf>,
    /// Shards of the checkpoint that is replaced.
    pub removed: Vec<PathBuf>,
}

/// An item of the field `keys`: the old and the new key and dtype of a leaf.
#[derive(Debug, Serialize)]
pub(crate) struct ChangeFields<'a> {
    old: &'a str,
    new: &'a Option<String>,
    old_dtype: Option<&'a str>,
    new_dtype: Option<&'a str>,
}

impl<'a> From<&'a Change> for ChangeFields<'a> {
    fn from(change: &'a Change) -> Self {
        Self {
            old: &change.old,
            new: &change.new,
            old_dtype: change.old_dtype.as_ref().map(DType::name),
            new_dtype: change.new_dtype.as_ref().map(DType::name),
        }
    }
}
