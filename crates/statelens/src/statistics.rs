//! Statistics of the tensors of a checkpoint and of groups of them, and observations about them.
//!
//! [`MeasuredTensors`] takes the results of a first read of all tensors, and [`SecondPass`] reads some
//! of them again.

mod failing;
mod finite;
mod measure;
mod ranking;
mod second_pass;
mod singular;

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use statelens_checkpoint::numbers::pattern;
use statelens_checkpoint::{
    Checkpoint, Error, Leaf, Progress, Result, TensorId, Value, separator, try_alloc,
};
use statelens_values::weights::{Noticed, Survey, TensorOutcome};
use statelens_values::{Histogram, Json, Scale, Statistics, Summary, fields, statistics_fields};

use crate::parallel;

pub use failing::{FailOn, FailedTensors};
pub use finite::OtherNumbers;
pub use measure::{Measurements, Stages, measure};
pub use ranking::{RankedLines, Ranking};
pub use second_pass::{SecondPass, finding};
pub use singular::SingularReport;
pub use statelens_values::{Condition, StatisticsField};

/// Bytes of a tensor that are read as one part. The division into parts changes no result.
const PIECE: u64 = 32 << 20;

/// Runs a survey and passes on its results, in order.
pub type Drive<'a> =
    dyn FnMut(Survey, &mut dyn FnMut(TensorId, TensorOutcome) -> Result<()>) -> Result<()> + 'a;

/// Returns the first read: the tensors of these leaves, each once, in order.
pub fn first_read(checkpoint: &Arc<Checkpoint>, leaves: &[Leaf]) -> Survey {
    let tensors = leaves.iter().filter_map(|leaf| match checkpoint.value(leaf.target) {
        Value::Tensor(_) | Value::Array(_) => Some(checkpoint.tensor_of(leaf.target)?.0),
        _ => None,
    });
    Survey::divided(checkpoint.clone(), tensors, PIECE).hashing_repeated()
}

/// Runs a survey on `workers` threads, until `progress` cancels it.
pub fn drive(
    mut survey: Survey,
    workers: usize,
    progress: &mut dyn Progress,
    out: &mut dyn FnMut(TensorId, TensorOutcome) -> Result<()>,
) -> Result<()> {
    parallel::drive_watched(&mut survey, workers, progress, |found| {
        found.take().into_iter().try_for_each(|(id, outcome)| out(id, outcome))
    })
}

/// How tensors are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grouping {
    /// By the key up to its first number: `model.layers.3`.
    Layer,
    /// By the key without its numbers.
    Role,
    /// By dtype.
    Dtype,
    /// By the state that they belong to.
    State,
}

impl Grouping {
    /// Returns the grouping with a name: `layer`, `role`, `dtype` or `state`.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "layer" => Ok(Self::Layer),
            "role" => Ok(Self::Role),
            "dtype" => Ok(Self::Dtype),
            "state" => Ok(Self::State),
            _ => Err(Error::refused(format!("tensors can't be grouped by `{name}`"))
                .expected("layer, role, dtype or state")),
        }
    }
}

/// Options for statistics.
#[derive(Clone, Copy)]
pub struct StatisticsOptions<'a> {
    /// The number of bins of histograms.
    pub bins: usize,
    /// The scale of histograms.
    pub scale: Scale,
    /// The groups, in addition to that of all tensors.
    pub by: Option<Grouping>,
    /// Returns whether a tensor is part of its groups.
    pub keep: &'a dyn Fn(&Statistics) -> bool,
    /// Whether the figures of each row and column are written.
    pub rows: bool,
}

impl Default for StatisticsOptions<'_> {
    fn default() -> Self {
        Self { bins: 64, scale: Scale::Linear, by: None, keep: &|_| true, rows: false }
    }
}

/// The statistics of a tensor.
pub struct MeasuredTensor {
    /// The figures.
    pub of: Statistics,
    /// The histogram.
    pub histogram: Histogram,
}

/// Returns the statistics of a tensor as in JSON.
pub fn tensor_fields<'a, H: Serialize>(
    checkpoint: &'a Checkpoint,
    leaf: &'a Leaf,
    of: &Statistics,
    histogram: H,
) -> impl Serialize + use<'a, H> {
    let tensor = checkpoint.tensor_of(leaf.target).map(|(_, tensor)| tensor);
    let shape = tensor.map(|tensor| tensor.shape.as_slice());
    let kind = tensor.map(|tensor| fields! { dtype: tensor.dtype.name(), shape: &tensor.shape });
    fields! {
        key: &leaf.flat,
        #[serde(flatten)]
        kind: kind,
        #[serde(flatten)]
        statistics: statistics_fields(of, histogram, shape),
    }
}

/// Tensors whose statistics are combined.
pub struct TensorGroup {
    /// Its name; `all` for all tensors.
    pub name: String,
    /// The number of tensors.
    pub tensors: u64,
    /// The combined statistics.
    pub summary: Summary,
}

impl TensorGroup {
    /// Returns the group as in JSON, with a histogram of `bins` bins.
    pub fn fields(&self, scale: Scale, bins: usize) -> impl Serialize {
        let (of, histogram) = (self.summary.statistics(), self.summary.histogram(scale, bins));
        fields! {
            group: &self.name,
            tensors: self.tensors,
            #[serde(flatten)]
            statistics: statistics_fields(&of, histogram, None),
        }
    }
}

/// Groups in the order of their first tensor; the first one has all tensors.
pub struct TensorGroups {
    /// The groups.
    pub all: Vec<TensorGroup>,
    named: HashMap<String, usize>,
}

impl TensorGroups {
    /// Creates the group of all tensors, without any.
    #[expect(clippy::new_without_default, reason = "it has a group from the start")]
    pub fn new() -> Self {
        let all = TensorGroup { name: "all".into(), tensors: 0, summary: Summary::new() };
        Self { all: vec![all], named: HashMap::new() }
    }

    /// Adds tensors to the group of all.
    pub fn add_to_all(&mut self, tensors: u64, summary: &Summary) {
        if let Some(group) = self.all.first_mut() {
            group.tensors += tensors;
            group.summary.merge(summary);
        }
    }

    /// Adds tensors to a group, which is created if necessary.
    pub fn add(&mut self, name: &str, tensors: u64, summary: &Summary) {
        let Self { all, named } = self;
        let at = *named.entry(name.to_owned()).or_insert_with(|| {
            all.push(TensorGroup { name: name.to_owned(), tensors: 0, summary: Summary::new() });
            all.len() - 1
        });
        if let Some(group) = all.get_mut(at) {
            group.tensors += tensors;
            group.summary.merge(summary);
        }
    }
}

/// Returns the name of the group of a tensor with this first leaf. `dot` separates the steps of
/// keys.
pub fn group_name(by: Grouping, checkpoint: &Checkpoint, leaf: &Leaf, dot: char) -> String {
    let key = leaf.flat.to_lossy();
    match by {
        Grouping::Layer => layer(&key, dot),
        Grouping::Role => pattern(&key, dot).0,
        Grouping::Dtype => {
            let tensor = checkpoint.tensor_of(leaf.target);
            tensor.map(|(_, tensor)| tensor.dtype.to_string()).unwrap_or_default()
        }
        Grouping::State => leaf.state(dot).into_owned(),
    }
}

/// The statistics of the tensors of a checkpoint.
pub struct MeasuredTensors<'a> {
    options: StatisticsOptions<'a>,
    checkpoint: &'a Checkpoint,
    dot: char,
    /// The first leaf of each tensor.
    firsts: HashMap<TensorId, &'a Leaf>,
    /// The tensors that were read.
    pub tensors: HashMap<TensorId, MeasuredTensor>,
    /// The groups of tensors that are kept.
    pub groups: TensorGroups,
    /// Hashes of tensors that begin like another.
    hashes: HashMap<TensorId, u128>,
    /// Keys of tensors that have no statistics, with the reason.
    pub without: Vec<(String, String)>,
    /// Keys of tensors that can't be read, with the reason.
    pub failed: Vec<(String, String)>,
}

impl<'a> MeasuredTensors<'a> {
    /// Creates the statistics of these leaves, without any.
    pub fn new(
        options: StatisticsOptions<'a>,
        checkpoint: &'a Checkpoint,
        leaves: &'a [Leaf],
    ) -> Self {
        let texts: Vec<_> = leaves.iter().map(|leaf| leaf.flat.to_lossy()).collect();
        let dot =
            separator(checkpoint.format.traits.slash_keys, &mut texts.iter().map(|text| &**text));
        let mut firsts = HashMap::new();
        for leaf in leaves {
            if let Some((id, _)) = checkpoint.tensor_of(leaf.target) {
                firsts.entry(id).or_insert(leaf);
            }
        }
        Self {
            options,
            checkpoint,
            dot,
            firsts,
            tensors: HashMap::new(),
            groups: TensorGroups::new(),
            hashes: HashMap::new(),
            without: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// Returns the statistics of each tensor.
    pub fn statistics(&self) -> HashMap<TensorId, &Statistics> {
        self.tensors.iter().map(|(id, tensor)| (*id, &tensor.of)).collect()
    }

    /// Returns the leaves that have statistics and are kept, in the order of the file.
    pub fn rows<'b>(&'b self, leaves: &'b [Leaf]) -> Vec<(&'b Leaf, &'b MeasuredTensor)> {
        let known = |leaf: &'b Leaf| {
            let (id, _) = self.checkpoint.tensor_of(leaf.target)?;
            let measured = self.tensors.get(&id)?;
            (self.options.keep)(&measured.of).then_some((leaf, measured))
        };
        leaves.iter().filter_map(known).collect()
    }

    /// Takes the result of reading a tensor.
    pub fn take(&mut self, id: TensorId, found: TensorOutcome) -> Result<()> {
        let Some(leaf) = self.firsts.get(&id) else { return Ok(()) };
        let key = leaf.flat.to_lossy().into_owned();
        match found {
            TensorOutcome::Without(why) => self.without.push((key, why)),
            TensorOutcome::Unread(why) => self.failed.push((key, why)),
            TensorOutcome::Hash(hash) => drop(try_alloc::insert(&mut self.hashes, id, hash)?),
            TensorOutcome::Lines(_) => {}
            TensorOutcome::Read(summary) => {
                let of = summary.statistics();
                let histogram = summary.histogram(self.options.scale, self.options.bins);
                if (self.options.keep)(&of) {
                    self.add_to_groups(leaf, &summary);
                }
                try_alloc::insert(&mut self.tensors, id, MeasuredTensor { of, histogram })?;
            }
        }
        Ok(())
    }

    fn add_to_groups(&mut self, leaf: &Leaf, summary: &Summary) {
        self.groups.add_to_all(1, summary);
        if let Some(by) = self.options.by {
            self.groups.add(&group_name(by, self.checkpoint, leaf, self.dot), 1, summary);
        }
    }

    /// Writes JSON in pieces: the tensors in `rows`, the groups, the observations about
    /// `leaves`, the tensors without statistics, and their numbers if they were read.
    fn json<E>(
        &self,
        rows: &[(&Leaf, &MeasuredTensor)],
        leaves: &[Leaf],
        second: &SecondPass<'_>,
        found: &[Noticed],
        failed: Option<&FailedTensors>,
        out: &mut dyn FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut json = Json::new();
        json.open('{');
        json.name("statelens").number(1);
        json.name("tensors").open('[');
        for (leaf, measured) in rows {
            json.line();
            let of = self.checkpoint.tensor_of(leaf.target);
            let lines = of.map(|(id, tensor)| second.fields(id, &tensor.shape, self.options.rows));
            json.value(&fields! {
                #[serde(flatten)]
                tensor: tensor_fields(self.checkpoint, leaf, &measured.of, &measured.histogram),
                #[serde(flatten)]
                lines: lines,
                #[serde(flatten)]
                link: leaf.alias_of.as_ref().map(|key| fields! { alias_of: key }),
            });
            out(&json.take())?;
        }
        json.newline();
        json.close(']');
        json.name("groups").open('[');
        for group in &self.groups.all {
            json.line();
            json.value(&group.fields(self.options.scale, self.options.bins));
        }
        json.newline();
        json.close(']');
        second_pass::write(found, leaves, &mut json);
        for (name, list) in [("without", &self.without), ("failed", &self.failed)] {
            let list = list.iter().map(|(key, why)| fields! { key: key, why: why });
            json.name(name).value(&list.collect::<Vec<_>>());
        }
        if let Some(failed) = failed {
            json.fields(failed);
        }
        json.close('}');
        json.newline();
        out(&json.take())
    }
}

/// Returns the key up to its first number; for a key without a number, all but its last name.
fn layer(key: &str, dot: char) -> String {
    let parts: Vec<&str> = key.split(dot).collect();
    let number = |part: &&str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
    let end = match parts.iter().position(number) {
        Some(at) => at + 1,
        None => parts.len().saturating_sub(1).max(1),
    };
    parts[..end].join(&dot.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_is_the_key_up_to_its_number() {
        for (key, wanted) in [
            ("model.layers.3.mlp.weight", "model.layers.3"),
            ("model.norm.weight", "model.norm"),
            ("weight", "weight"),
            ("optimizer.state.12.exp_avg", "optimizer.state.12"),
        ] {
            assert_eq!(layer(key, '.'), wanted);
        }
    }
}
