//! The values of a run's checkpoints over its steps: norms, deviations and counts of NaN and
//! infinite values, by group of tensors. Only a few numbers per group are kept of each checkpoint.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::ser::{SerializeStruct as _, Serializer};
use serde::{Deserialize, Serialize};
use statelens_checkpoint::{Checkpoint, Layout, Leaf, TensorId, counted, grouped, separator};
use statelens_values::picture::{Chart, Series};
use statelens_values::weights::{Survey, TensorOutcome, countable};
use statelens_values::{Json, Statistics};

use crate::diff::role_of;

/// How tensors are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Grouping {
    /// By top-level state: `model`, `optimizer`.
    #[default]
    State,
    /// By role, whatever the layer: `model.layers.*.mlp.up_proj.weight`.
    Role,
    /// Each tensor separately.
    Tensor,
}

impl Grouping {
    /// All groupings.
    pub const ALL: [Self; 3] = [Self::State, Self::Role, Self::Tensor];

    /// Returns a word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Role => "role",
            Self::Tensor => "tensor",
        }
    }
}

/// Maximum number of groups per checkpoint; the rest is one group.
const MAX_GROUPS: usize = 20_000;
/// The name of the group for the rest.
const REST: &str = "(more)";

/// Statistics of a group of tensors. Norm, mean and deviation are those of the finite values; `None`
/// without finite values.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GroupValues {
    /// The name of the group.
    #[serde(rename = "group")]
    pub name: String,
    /// Number of tensors read.
    pub tensors: u64,
    /// Number of further tensors, whose values are missing or can't be read.
    #[serde(default)]
    pub missing: u64,
    /// Number of all values.
    pub count: u64,
    /// Number of NaN values.
    pub nan: u64,
    /// Number of infinite values.
    pub infinite: u64,
    /// The Euclidean norm.
    #[serde(with = "statelens_values::json::float")]
    pub norm: Option<f64>,
    /// The mean.
    #[serde(with = "statelens_values::json::float")]
    pub mean: Option<f64>,
    /// The standard deviation.
    #[serde(with = "statelens_values::json::float")]
    pub std: Option<f64>,
}

impl GroupValues {
    /// Adds the statistics of a tensor. Exact except for rounding: the parallel variance algorithm
    /// of Chan, Golub and LeVeque.
    pub fn add(&mut self, of: &Statistics) {
        let finite = |count: u64, nan: u64, infinite: u64| (count - nan - infinite) as f64;
        let before = finite(self.count, self.nan, self.infinite);
        let now = of.finite() as f64;
        self.tensors += 1;
        self.count += of.count;
        self.nan += of.nan;
        self.infinite += of.pos_inf + of.neg_inf;
        let (Some(norm), Some(mean), Some(std)) = (of.l2, of.mean, of.std) else { return };
        self.norm = Some(self.norm.unwrap_or(0.0).hypot(norm));
        let (one, two) = (before / (before + now), now / (before + now));
        let apart = mean - self.mean.unwrap_or(0.0);
        // Combined with `hypot`, so that the squares don't overflow.
        let within = (self.std.unwrap_or(0.0) * one.sqrt()).hypot(std * two.sqrt());
        self.std = Some(within.hypot(apart * (one * two).sqrt()));
        self.mean = Some(self.mean.unwrap_or(0.0) + apart * two);
    }
}

/// The groups of a checkpoint while its tensors are read.
#[derive(Debug)]
pub struct TensorGroups {
    /// The group of each tensor.
    of: HashMap<TensorId, usize>,
    groups: Vec<GroupValues>,
    /// Number of tensors that could not be read; `why` is the reason for the first.
    unread: u64,
    why: String,
}

impl TensorGroups {
    /// Returns the groups of a checkpoint before anything is read.
    pub fn new(checkpoint: &Checkpoint, leaves: &[Leaf], by: Grouping) -> Self {
        let texts: Vec<_> = leaves.iter().map(|leaf| leaf.flat.to_lossy()).collect();
        let dot =
            separator(checkpoint.format.traits.slash_keys, &mut texts.iter().map(|text| &**text));
        let (mut of, mut groups) = (HashMap::new(), Vec::<GroupValues>::new());
        let mut known: HashMap<String, usize> = HashMap::new();
        let mut absent = HashSet::new();
        for (leaf, key) in leaves.iter().zip(&texts) {
            let Some((id, tensor)) = checkpoint.tensor_of(leaf.target) else { continue };
            let missing = matches!(tensor.layout, Layout::Missing(_));
            if of.contains_key(&id) || !missing && countable(tensor).is_none() {
                continue;
            }
            let mut name = match by {
                Grouping::State => leaf.state(dot).into_owned(),
                Grouping::Role => role_of(key).map_or_else(|| key.to_string(), |(name, _)| name),
                Grouping::Tensor => key.to_string(),
            };
            if groups.len() >= MAX_GROUPS && !known.contains_key(&name) {
                name = REST.to_owned();
            }
            let at = *known.entry(name.clone()).or_insert_with(|| {
                groups.push(GroupValues { name, ..GroupValues::default() });
                groups.len() - 1
            });
            if missing {
                groups[at].missing += u64::from(absent.insert(id));
                continue;
            }
            of.insert(id, at);
        }
        Self { of, groups, unread: 0, why: String::new() }
    }

    /// Returns the machine that reads the tensors, in parts of about `bytes` bytes.
    pub fn survey(&self, checkpoint: &Arc<Checkpoint>, leaves: &[Leaf], bytes: u64) -> Survey {
        let tensors = leaves.iter().filter_map(|leaf| checkpoint.tensor_of(leaf.target));
        let tensors: Vec<TensorId> =
            tensors.map(|(id, _)| id).filter(|id| self.of.contains_key(id)).collect();
        Survey::divided(checkpoint.clone(), tensors, bytes)
    }

    /// Adds the results of tensors.
    pub fn learn(&mut self, found: &[(TensorId, TensorOutcome)]) {
        for (id, outcome) in found {
            let group = self.of.get(id).and_then(|at| self.groups.get_mut(*at));
            match (outcome, group) {
                (TensorOutcome::Read(summary), Some(group)) => group.add(&summary.statistics()),
                (TensorOutcome::Unread(why), group) => {
                    if let Some(group) = group {
                        group.missing += 1;
                    }
                    self.unread += 1;
                    if self.why.is_empty() {
                        self.why.clone_from(why);
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the groups, and an error message if some tensors could not be read.
    pub fn finish(self) -> (Vec<GroupValues>, String) {
        let Self { groups, unread, why, .. } = self;
        let wrong = match unread {
            0 => String::new(),
            unread => format!("{} can\u{2019}t be read: {why}", counted(unread, "tensor")),
        };
        (groups, wrong)
    }
}

/// A checkpoint of a run, and its values if they have been read.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct StepValues {
    /// The name of its file.
    pub name: String,
    /// Its step.
    pub step: u64,
    /// The size of its file.
    pub bytes: u64,
    /// When its file was changed, if known; equal times give equal texts.
    pub modified: String,
    /// Why its values are missing or incomplete; empty if they are complete.
    #[serde(default)]
    pub wrong: String,
    /// Its groups; empty if it has not been read.
    pub groups: Vec<GroupValues>,
}

/// The quantity that is plotted over steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimelineMeasure {
    /// The norm.
    #[default]
    Norm,
    /// The standard deviation.
    Deviation,
}

impl StepValues {
    /// Returns whether its values are known to be incomplete.
    pub fn is_partial(&self) -> bool {
        let missing = self.groups.iter().any(|group| group.missing > 0);
        !self.groups.is_empty() && (missing || !self.wrong.is_empty())
    }

    /// Returns why its values are incomplete; empty if they are complete.
    pub fn partial_reason(&self) -> String {
        if !self.is_partial() {
            return String::new();
        }
        let sum = |of: fn(&GroupValues) -> u64| {
            self.groups.iter().fold(0u64, |all, group| all.saturating_add(of(group)))
        };
        let (read, missing) = (sum(|group| group.tensors), sum(|group| group.missing));
        match (missing, self.wrong.as_str()) {
            (0, wrong) => wrong.to_owned(),
            (missing, wrong) => {
                let all = counted(read.saturating_add(missing), "tensor");
                let read_text = format!("{} of {all} read", grouped(read));
                if wrong.is_empty() { read_text } else { format!("{read_text}; {wrong}") }
            }
        }
    }
}

impl TimelineMeasure {
    /// Returns a label for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Norm => "norm",
            Self::Deviation => "deviation \u{3c3}",
        }
    }

    /// Returns the value for a group; NaN if the group does not have one.
    pub fn of(self, group: &GroupValues) -> f64 {
        let value = match self {
            Self::Norm => group.norm,
            Self::Deviation => group.std,
        };
        value.unwrap_or(f64::NAN)
    }
}

/// Returns the names of all groups of these checkpoints, in order of first occurrence.
pub fn group_names(steps: &[StepValues]) -> Vec<String> {
    let mut seen = HashSet::new();
    let all = steps.iter().flat_map(|step| &step.groups).map(|group| group.name.as_str());
    all.filter(|name| seen.insert(*name)).map(str::to_owned).collect()
}

/// The groups that are drawn by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FirstLines {
    /// Their names.
    pub drawn: Vec<String>,
    /// The groups that are not drawn: single numbers like a loss scale, next to which the norms of
    /// weights would look flat; states of random generators; step counters.
    pub single: Vec<String>,
}

/// Returns the groups that are drawn by default: the first `most`, without single numbers, states
/// of random generators and counters if there are other groups.
pub fn first_lines(steps: &[StepValues], most: usize) -> FirstLines {
    let is_single = |name: &String| {
        let groups = steps.iter().flat_map(|step| &step.groups);
        is_bookkeeping(name)
            || groups.filter(|group| group.name == *name).all(|group| group.count <= group.tensors)
    };
    let (single, mut drawn): (Vec<_>, Vec<_>) = group_names(steps).into_iter().partition(is_single);
    if drawn.is_empty() {
        return FirstLines { drawn: single.into_iter().take(most).collect(), single: Vec::new() };
    }
    drawn.truncate(most);
    FirstLines { drawn, single }
}

/// Returns whether a group is a trainer's bookkeeping: states of random generators, counters.
fn is_bookkeeping(name: &str) -> bool {
    const COUNTERS: [&str; 8] = [
        "step",
        "steps",
        "global_step",
        "epoch",
        "iteration",
        "num_batches_tracked",
        "seed",
        "best_model_score",
    ];
    let mut parts = name.split(['.', '/']).map(str::to_ascii_lowercase);
    let random = |part: &String| {
        matches!(part.as_str(), "rng" | "generator")
            || ["rng_state", "random_state", "generator_state"]
                .iter()
                .any(|word| part.contains(word))
    };
    let last = name.rsplit(['.', '/']).next().unwrap_or(name).to_ascii_lowercase();
    parts.any(|part| random(&part)) || COUNTERS.contains(&last.as_str())
}

/// Returns a chart of these groups over steps, with the counts of NaN and infinite values below.
/// Checkpoints without values are gaps; those with only some tensors read are partial.
pub fn over_steps(steps: &[StepValues], names: &[String], measure: TimelineMeasure) -> Chart {
    let of = |step: &StepValues, name: &str| -> f64 {
        let group = step.groups.iter().find(|group| group.name == name);
        group.map_or(f64::NAN, |group| measure.of(group))
    };
    let lines = names.iter().map(|name| Series {
        name: name.clone(),
        points: steps.iter().map(|step| (step.step as f64, of(step, name))).collect(),
    });
    let odd = |step: &StepValues| {
        step.groups.iter().fold(0u64, |all, group| all.saturating_add(group.nan + group.infinite))
    };
    let lines: Vec<Series> = lines.collect();
    let log = are_far_apart(&lines);
    let read = steps.iter().filter(|step| !step.groups.is_empty());
    let gaps = steps.iter().filter(|step| !step.wrong.is_empty() && !step.is_partial());
    let partial = steps.iter().filter(|step| step.is_partial());
    Chart {
        title: format!("{} over steps", measure.word()),
        across: "step".into(),
        up: format!("{}{}", measure.word(), if log { ", by magnitude" } else { "" }),
        log,
        lines,
        bars: Some((
            "NaN or infinite".into(),
            read.map(|step| (step.step as f64, odd(step))).collect(),
        )),
        gaps: gaps.map(|step| (step.step as f64, step.wrong.clone())).collect(),
        partial: partial.map(|step| (step.step as f64, step.partial_reason())).collect(),
        below: None,
    }
}

/// Returns whether some lines are so far above others that those would appear as zero, like weights
/// next to a loss scale.
fn are_far_apart(lines: &[Series]) -> bool {
    let most = |line: &Series| line.points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    let tops = || lines.iter().map(most).filter(|top| *top > 0.0 && top.is_finite());
    tops().fold(0.0, f64::max) > 100.0 * tops().fold(f64::INFINITY, f64::min)
}

/// Writes the values of a run as JSON; figures without a value are `null`.
pub fn values_json(json: &mut Json, by: Grouping, steps: &[StepValues]) {
    json.object(|json| {
        json.name("statelens").number(1);
        groups_json(json, by, steps);
    });
    json.newline();
}

/// Writes the fields of an object with the values of checkpoints.
pub(super) fn groups_json<'a>(
    json: &mut Json,
    by: Grouping,
    steps: impl IntoIterator<Item = &'a StepValues>,
) {
    json.name("by").str(by.word());
    json.name("checkpoints").array(|json| {
        for step in steps {
            json.line();
            json.value(step);
        }
    });
}

impl Serialize for StepValues {
    /// Leaves out `wrong` and `partial` if the values are complete.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_struct("StepValues", 7)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("step", &self.step)?;
        fields.serialize_field("bytes", &self.bytes)?;
        fields.serialize_field("modified", &self.modified)?;
        if !self.wrong.is_empty() {
            fields.serialize_field("wrong", &self.wrong)?;
        }
        if self.is_partial() {
            fields.serialize_field("partial", &true)?;
        }
        fields.serialize_field("groups", &self.groups)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::DType;
    use statelens_values::Accumulator;

    use super::*;

    fn statistics(values: &[f64]) -> Statistics {
        let mut accumulator = Accumulator::new();
        accumulator.begin(&DType::F64, 0);
        values.iter().for_each(|value| accumulator.feed(&value.to_le_bytes()));
        accumulator.finish().statistics()
    }

    #[test]
    fn group_statistics_equal_those_of_all_values() {
        let parts: [&[f64]; 4] = [&[1.0, 2.0, f64::NAN], &[], &[1e3], &[-4.0, f64::INFINITY, 0.5]];
        let mut group = GroupValues::default();
        parts.iter().for_each(|part| group.add(&statistics(part)));
        let all = statistics(&parts.concat());
        assert_eq!((group.tensors, group.count, group.nan, group.infinite), (4, 7, 1, 1));
        for (found, wanted) in [
            (group.norm.unwrap(), all.l2.unwrap()),
            (group.mean.unwrap(), all.mean.unwrap()),
            (group.std.unwrap(), all.std.unwrap()),
        ] {
            assert!((found / wanted - 1.0).abs() < 1e-14, "{found} {wanted}");
        }
        // Deviations of 1 around 1e15, which sums of squares can't resolve.
        let mut far = GroupValues::default();
        far.add(&statistics(&[1e15 - 1.0]));
        far.add(&statistics(&[1e15 + 1.0]));
        assert_eq!((far.mean, far.std), (Some(1e15), Some(1.0)));
    }

    fn step(step: u64, norm: f64, nan: u64) -> StepValues {
        let group = GroupValues {
            name: "model".into(),
            tensors: 1,
            count: 10,
            nan,
            norm: (nan < 10).then_some(norm),
            ..GroupValues::default()
        };
        let name = format!("checkpoint_{step}.mdl");
        StepValues { name, step, groups: vec![group], ..StepValues::default() }
    }

    #[test]
    fn draws_steps_with_bars_and_gaps() {
        let mut steps = [step(10, 1.0, 0), step(20, 2.0, 3), step(30, 3.0, 0)];
        steps[2].groups.clear();
        steps[2].wrong = "cut short".into();
        let names = group_names(&steps);
        assert_eq!(names, ["model"]);
        let chart = over_steps(&steps, &names, TimelineMeasure::Norm);
        assert_eq!(chart.csv(), "step,model,NaN or infinite\n10,1.0,0\n20,2.0,3\n30,,\n");
        assert_eq!(chart.gaps, [(30.0, "cut short".to_owned())]);
        assert!(!chart.log);
        // A loss scale as second line would make the norm appear as zero.
        let mut scaled = steps.clone();
        let scale = GroupValues {
            name: "grad_scaler".into(),
            norm: Some(65_536.0),
            count: 1,
            ..GroupValues::default()
        };
        scaled[1].groups.push(scale);
        let scaled = over_steps(&scaled, &group_names(&scaled), TimelineMeasure::Norm);
        assert_eq!((scaled.log, scaled.up.as_str()), (true, "norm, by magnitude"));
        // All values are NaN: there is no norm.
        let none = over_steps(&[step(10, 0.0, 10)], &names, TimelineMeasure::Norm);
        assert!(none.lines[0].points[0].1.is_nan());
    }

    #[test]
    fn draws_partial_checkpoints_as_separate_points() {
        let mut steps = [step(10, 5.0, 0), step(20, 0.5, 0), step(30, 5.5, 0)];
        steps[1].wrong = "the file is cut short".into();
        steps[1].groups[0].missing = 104;
        steps[1].groups[0].tensors = 13;
        assert!(steps[1].is_partial() && !steps[0].is_partial());
        let chart = over_steps(&steps, &group_names(&steps), TimelineMeasure::Norm);
        assert!(chart.gaps.is_empty());
        let why = "13 of 117 tensors read; the file is cut short";
        assert_eq!(chart.partial, [(20.0, why.to_owned())]);
        assert_eq!(
            chart.csv(),
            format!(
                "step,model,NaN or infinite,incomplete\n10,5.0,0,\n20,0.5,0,{why}\n30,5.5,0,\n"
            )
        );
        let svg = chart.svg(900, 420);
        assert_eq!(svg.matches(" partial\"").count(), 1);
        // No line leads to the partial point.
        let line = svg.lines().rfind(|line| line.starts_with("<path class=\"l0\"")).unwrap();
        assert_eq!((line.matches('M').count(), line.matches('L').count()), (2, 0), "{line}");
        assert!(chart.text().contains("least 5 at 10"), "{}", chart.text());
    }

    #[test]
    fn hides_random_states_and_counters_by_default() {
        let mut steps = [step(10, 1.0, 0), step(20, 2.0, 0)];
        let names = ["rng_state", "random.torch_rng_state", "optimizer.state.0.step", "epoch"];
        for step in &mut steps {
            for name in names {
                let name = name.to_owned();
                step.groups.push(GroupValues {
                    name,
                    tensors: 1,
                    count: 5056,
                    ..GroupValues::default()
                });
            }
        }
        assert_eq!(first_lines(&steps, 6).drawn, ["model"]);
    }

    #[test]
    fn hides_a_loss_scale_by_default() {
        let mut steps = [step(10, 1.0, 0), step(20, 2.0, 0)];
        let scale = |count| {
            let (name, norm) = ("grad_scaler".to_owned(), Some(65_536.0));
            GroupValues { name, tensors: 2, count, norm, ..GroupValues::default() }
        };
        steps.iter_mut().for_each(|step| step.groups.insert(0, scale(2)));
        let text = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (drawn, single) = (text(&["model"]), text(&["grad_scaler"]));
        assert_eq!(first_lines(&steps, 6), FirstLines { drawn, single });
        // It is drawn if there is nothing else, or if it is more than a single number.
        steps.iter_mut().for_each(|step| step.groups.truncate(1));
        let drawn = text(&["grad_scaler"]);
        assert_eq!(first_lines(&steps, 6), FirstLines { drawn, single: Vec::new() });
        steps[1].groups = vec![scale(3), step(20, 2.0, 0).groups.remove(0)];
        let drawn = text(&["grad_scaler", "model"]);
        assert_eq!(first_lines(&steps, 6), FirstLines { drawn, single: Vec::new() });
        assert_eq!(first_lines(&steps, 1).drawn, ["grad_scaler"]);
    }

    #[test]
    fn writes_valid_json() {
        let mut json = Json::new();
        let mut steps = [step(10, 1.5, 0), step(20, 0.0, 10)];
        steps[1].wrong = "1 tensor can't be read".into();
        values_json(&mut json, Grouping::State, &steps);
        let read: serde_json::Value = serde_json::from_str(json.as_str()).unwrap();
        assert_eq!(read["by"], "state");
        assert_eq!(read["checkpoints"][0]["groups"][0]["norm"], 1.5);
        assert!(read["checkpoints"][1]["groups"][0]["norm"].is_null());
        assert_eq!(read["checkpoints"][1]["wrong"], "1 tensor can't be read");
    }
}
