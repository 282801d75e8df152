//! Reports of conversions as JSON.

use std::path::PathBuf;

use statelens_checkpoint::{DType, Loss, Plan, Result};
use statelens_convert::{Change, Changed, RunReport, Share, shares};
use statelens_tensor::CastReport;
use statelens_values::Json;

/// Keys that a report lists with the effects of casts.
const NAMED: usize = 1000;

/// Writes the field `name`: the paths of files.
pub fn files_json(json: &mut Json, name: &str, paths: &[PathBuf]) {
    json.name(name).array(|json| {
        paths.iter().for_each(|path| json.str(&path.to_string_lossy()));
    });
}

/// Writes the field `losses`: the differences from the source.
pub fn losses_json(json: &mut Json, losses: &[Loss]) {
    json.name("losses").value(&losses);
}

/// Writes the field `cast`: what casting did to the numbers, in all and by tensor; `worst` is
/// [`RunReport::worst`].
pub fn cast_json(json: &mut Json, report: &RunReport, worst: &[Changed]) {
    json.name("cast").object(|json| {
        counts(json, &report.cast);
        json.name("pairs").objects(&report.pairs, |json, pair| {
            json.name("from").str(pair.from.name());
            json.name("to").str(pair.to.name());
            json.name("tensors").number(pair.tensors);
            counts(json, &pair.cast);
        });
        json.name("keys").objects(worst.iter().take(NAMED), |json, changed| {
            json.name("key").str(&changed.key);
            counts(json, &changed.cast);
        });
    });
}

fn counts(json: &mut Json, cast: &CastReport) {
    json.name("elements").number(cast.elements);
    json.name("changed").number(cast.changed);
    json.name("overflowed").number(cast.overflowed);
    json.name("nonzero").number(cast.nonzero);
    json.name("flushed").number(cast.flushed);
    json.name("largest_relative_error").float(cast.worst);
}

/// The number of parts and bytes of new files, by how they are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shares {
    made: (u64, u64),
    copied: (u64, u64),
    gathered: (u64, u64),
    cast: (u64, u64),
    compressed: (u64, u64),
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
            sum.0 += 1;
            sum.1 = sum.1.saturating_add(bytes);
        }
        Ok(sums)
    }

    /// Returns, for each way, its name, its output, and the number of parts and bytes.
    pub fn rows(&self) -> [(&'static str, &'static str, (u64, u64)); 5] {
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

/// Writes the field `keys`: the old and the new key and dtype of each leaf.
pub(crate) fn changes_json(json: &mut Json, changes: &[Change]) {
    let dtype = |json: &mut Json, dtype: &Option<DType>| match dtype {
        Some(dtype) => json.str(dtype.name()),
        None => json.null(),
    };
    json.name("keys").objects(changes, |json, change| {
        json.name("old").str(&change.old);
        json.name("new").value(&change.new);
        dtype(json.name("old_dtype"), &change.old_dtype);
        dtype(json.name("new_dtype"), &change.new_dtype);
    });
}
