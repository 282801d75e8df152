//! What became of a plan; what casts did, for those who asked for them: by pairs of dtypes, and the tensors that came out
//! false.

use std::collections::HashMap;

use statelens_checkpoint::{Checkpoint, DType, TensorId, WrittenSegment, counted, grouped, order};
use statelens_tensor::CastReport;

/// What became of a plan.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunReport {
    /// Length of the new files together.
    pub bytes: u64,
    /// What each segment of each file turned out to be.
    pub outcomes: Vec<Vec<WrittenSegment>>,
    /// What casting did to all elements together.
    pub cast: CastReport,
    /// What it did to them by pairs of dtypes.
    pub pairs: Vec<CastPair>,
    /// What it did to each tensor that is not exactly what it was, in the order of writing.
    pub changed: Vec<(TensorId, CastReport)>,
}

/// What was cast from one dtype to another.
#[derive(Debug, Clone, PartialEq)]
pub struct CastPair {
    /// The dtype in the source.
    pub from: DType,
    /// The dtype in the new file.
    pub to: DType,
    /// How many tensors.
    pub tensors: u64,
    /// What it did to their elements.
    pub cast: CastReport,
}

/// A tensor that a cast changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// Its first key.
    pub key: String,
    /// The dtype that it has now.
    pub dtype: DType,
    /// What the cast did.
    pub cast: CastReport,
}

impl Changed {
    /// What is false about it; nothing if it is only rounded.
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
    /// What it did beyond rounding, in words.
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
    pub(crate) fn count_cast(&mut self, from: &DType, to: &DType, cast: CastReport) {
        if cast.elements == 0 {
            return;
        }
        self.cast.add(cast);
        match self.pairs.iter_mut().find(|pair| (&pair.from, &pair.to) == (from, to)) {
            Some(pair) => {
                pair.tensors += 1;
                pair.cast.add(cast);
            }
            None => {
                self.pairs.push(CastPair { from: from.clone(), to: to.clone(), tensors: 1, cast });
            }
        }
    }

    /// Whether a cast did more to some tensor than round it: then the files are not to be kept
    /// unless that was agreed to.
    pub fn is_false(&self) -> bool {
        self.changed.iter().any(|(_, cast)| cast.is_false())
    }

    /// What casts falsified, the worst first: a line each for `most` tensors, and how many more
    /// there are.
    pub fn falsified(&self, source: &Checkpoint, most: usize) -> (Vec<String>, Option<String>) {
        let worst = self.worst(source);
        let mut told = worst.iter().filter_map(|changed| Some((&changed.key, changed.what()?)));
        let lines = told.by_ref().take(most).map(|(key, what)| format!("`{key}`: {what}"));
        let lines = lines.collect();
        let more = told.count() as u64;
        (lines, (more > 0).then(|| counted(more, "more tensor")))
    }

    /// The tensors that casts changed, the worst first.
    pub fn worst(&self, source: &Checkpoint) -> Vec<Changed> {
        let mut names: HashMap<TensorId, String> = HashMap::new();
        // A storage that is written whole, for all of its views, has none of their names.
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
