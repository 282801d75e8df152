//! The report of a run, with the effects of casts by pairs of dtypes and by tensor.

use std::collections::HashMap;

use statelens_checkpoint::{Checkpoint, DType, TensorId, WrittenSegment, counted, grouped, order};
use statelens_tensor::CastReport;

/// The result of running a plan.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunReport {
    /// Total length of the new files.
    pub bytes: u64,
    /// The outcome of each segment, by file.
    pub outcomes: Vec<Vec<WrittenSegment>>,
    /// Effects of casts on all elements.
    pub cast: CastReport,
    /// Effects of casts by pairs of dtypes.
    pub pairs: Vec<CastPair>,
    /// Effects on each tensor that a cast changed, in the order of writing.
    pub changed: Vec<(TensorId, CastReport)>,
}

/// The casts from one dtype to another.
#[derive(Debug, Clone, PartialEq)]
pub struct CastPair {
    /// The dtype in the source.
    pub from: DType,
    /// The dtype in the new file.
    pub to: DType,
    /// Number of tensors.
    pub tensors: u64,
    /// Effects on their elements.
    pub cast: CastReport,
}

/// A tensor that a cast changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// The tensor's first key.
    pub key: String,
    /// The new dtype.
    pub dtype: DType,
    /// Effects of the cast.
    pub cast: CastReport,
}

impl Changed {
    /// Returns a description of the damage; `None` if values were only rounded.
    pub fn what(&self) -> Option<String> {
        let CastReport { elements, overflowed, nonzero, flushed, .. } = self.cast;
        let overflow = (overflowed > 0).then(|| {
            let verb = if overflowed == 1 { "does" } else { "do" };
            format!(
                "{} of {} numbers {verb} not fit {}",
                grouped(overflowed),
                grouped(elements),
                self.dtype
            )
        });
        let flush = self.cast.is_flushed().then(|| {
            format!(
                "{} of {} numbers that are not 0 become 0 in {}",
                grouped(flushed),
                grouped(nonzero),
                self.dtype
            )
        });
        let parts: Vec<String> = overflow.into_iter().chain(flush).collect();
        (!parts.is_empty()).then(|| parts.join(", and "))
    }
}

impl CastPair {
    /// Returns the effects beyond exact conversion, in words.
    pub fn effects(&self) -> Vec<String> {
        let CastReport { worst, flushed, overflowed, .. } = self.cast;
        let mut effects = Vec::new();
        if worst > 0.0 {
            effects.push(format!("largest relative error {worst:.2e}"));
        }
        if flushed > 0 {
            effects.push(format!("{} became 0", grouped(flushed)));
        }
        if overflowed > 0 {
            effects.push(format!("{} did not fit", grouped(overflowed)));
        }
        effects
    }
}

impl RunReport {
    /// Counts the effects of a cast on `tensors` tensors.
    pub fn count_cast(&mut self, from: &DType, to: &DType, tensors: u64, cast: CastReport) {
        if cast.elements == 0 {
            return;
        }
        self.cast.add(cast);
        match self.pairs.iter_mut().find(|pair| (&pair.from, &pair.to) == (from, to)) {
            Some(pair) => {
                pair.tensors += tensors;
                pair.cast.add(cast);
            }
            None => {
                self.pairs.push(CastPair { from: from.clone(), to: to.clone(), tensors, cast });
            }
        }
    }

    /// Returns whether a cast did more than round the values of some tensor. If so, the files must
    /// not be kept without the user's consent.
    pub fn is_false(&self) -> bool {
        self.changed.iter().any(|(_, cast)| cast.is_false())
    }

    /// Returns the damage done by casts, worst first: a line for each of at most `most` tensors,
    /// and the number of further ones.
    pub fn falsified(&self, source: &Checkpoint, most: usize) -> (Vec<String>, Option<String>) {
        let worst = self.worst(source);
        let mut texts = worst.iter().filter_map(|changed| Some((&changed.key, changed.what()?)));
        let lines = texts.by_ref().take(most).map(|(key, what)| format!("`{key}`: {what}"));
        let lines = lines.collect();
        let more = texts.count() as u64;
        (lines, (more > 0).then(|| counted(more, "more tensor")))
    }

    /// Returns the tensors that casts changed, worst first.
    pub fn worst(&self, source: &Checkpoint) -> Vec<Changed> {
        let mut names: HashMap<TensorId, String> = HashMap::new();
        // A storage that is written whole, for all of its views, has no name of its own.
        let mut of_storages: HashMap<u32, String> = HashMap::new();
        if !self.changed.is_empty() {
            for leaf in source.leaves() {
                if let Some((id, tensor)) = source.tensor_of(leaf.target) {
                    let name = || leaf.flat.to_lossy().into_owned();
                    names.entry(id).or_insert_with(name);
                    if let Some(storage) = tensor.storage {
                        of_storages.entry(storage).or_insert_with(name);
                    }
                }
            }
        }
        let changed = |(id, cast): &(TensorId, CastReport)| {
            let tensor = source.tensor(*id).ok()?;
            let storage = || of_storages.get(&tensor.storage?).cloned();
            let key = names.get(id).cloned().or_else(storage).unwrap_or_default();
            Some(Changed { key, dtype: tensor.dtype.clone(), cast: *cast })
        };
        let mut worst: Vec<Changed> = self.changed.iter().filter_map(changed).collect();
        let share = |cast: &CastReport| cast.flushed as f64 / cast.nonzero.max(1) as f64;
        order::by(&mut worst, |one, other| {
            let (one, other) = (&one.cast, &other.cast);
            let overflowed = other.overflowed.cmp(&one.overflowed);
            let flushed = share(other).total_cmp(&share(one));
            overflowed.then(flushed).then(other.worst.total_cmp(&one.worst))
        });
        worst
    }
}
