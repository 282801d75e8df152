//! `statelens stats`.

use std::cmp::Ordering;
use std::collections::HashMap;

use statelens_checkpoint::{Checkpoint, Leaf, Result, TensorId, known_key, room, separator};
use statelens_convert::Pattern;
use statelens_inspect::weights::{Noticed, TensorOutcome as Found};
use statelens_inspect::{
    Json, bars, fold, index, natural_order, number_text, shape_text, statistics_json, visible,
};
use statelens_stats::{Histogram, Statistics, Summary};

use super::again::{self, ReadTwice};
use super::measure;
use crate::args::{By, FailOn, StatisticsField, StatsArgs};
use crate::print::{CommandResult, Failure, Printer, TextTable, complain, counted, grouped};

/// Bins of the histograms in the table.
const SMALL: usize = 16;

pub(crate) fn run(args: &StatsArgs) -> CommandResult {
    let patterns = args.patterns.iter().map(|text| Pattern::parse(text));
    let patterns = patterns.collect::<Result<Vec<_>>>()?;
    let checkpoint = crate::commands::open_for_good(&args.input.file, &args.input.common.with)?;
    let wanted = |leaf: &Leaf| {
        let key = leaf.flat.to_lossy();
        let matches = |it: &Pattern| it.matches(&key) || it.matches(known_key(&key));
        patterns.is_empty() || patterns.iter().any(matches)
    };
    checkpoint.room(800)?;
    let leaves: Vec<Leaf> = checkpoint.leaves().into_iter().filter(wanted).collect();
    let mut all = All::new(args, checkpoint, &leaves);
    measure::each(&args.input.file, checkpoint, &leaves, |id, found| all.take(id, found))?;
    let answer = !all.tensors.values().any(|tensor| fails(&args.fail_on, &tensor.of));
    let statistics = all.tensors.iter().map(|(id, tensor)| (*id, &tensor.of)).collect();
    let known = ReadTwice::read(&args.input.file, checkpoint, &leaves, statistics, args.rows)?;
    let found = known.findings(checkpoint, &leaves);
    let rows = all.rows(&leaves);
    let mut printer = Printer::for_verdict();
    match args.input.common.json {
        true => all.json(&rows, &leaves, &known, &found, &mut printer)?,
        false => {
            all.text(&rows, &known, &mut printer)?;
            if !all.tensors.is_empty() {
                again::print(&found, &leaves, &mut printer)?;
            }
        }
    }
    printer.finish()?;
    for (key, why) in &all.failed {
        complain(&format!("`{key}` can't be read: {why}"));
    }
    match (answer, all.failed.is_empty()) {
        (false, _) => Ok(false),
        (true, false) => Err(Failure::Told),
        (true, true) => Ok(true),
    }
}

fn fails(on: &[FailOn], of: &Statistics) -> bool {
    on.iter().any(|what| match what {
        FailOn::Nan => of.nan > 0,
        FailOn::Inf => of.pos_inf + of.neg_inf > 0,
        FailOn::Zero => of.all_zero(),
        FailOn::Constant => of.all_equal(),
    })
}

/// The statistics of a tensor.
struct MeasuredTensor {
    of: Statistics,
    histogram: Histogram,
}

/// Tensors whose statistics are combined.
pub(crate) struct TensorGroup {
    pub(crate) name: String,
    pub(crate) tensors: u64,
    pub(crate) summary: Summary,
}

/// Groups in the order of their first tensor; the first one has all tensors.
pub(crate) struct TensorGroups {
    pub(crate) all: Vec<TensorGroup>,
    named: HashMap<String, usize>,
}

impl TensorGroups {
    pub(crate) fn new() -> Self {
        let all = TensorGroup { name: "all".into(), tensors: 0, summary: Summary::new() };
        Self { all: vec![all], named: HashMap::new() }
    }

    /// Adds tensors to the group of all.
    pub(crate) fn add_to_all(&mut self, tensors: u64, summary: &Summary) {
        if let Some(group) = self.all.first_mut() {
            group.tensors += tensors;
            group.summary.merge(summary);
        }
    }

    /// Adds tensors to a group, which is created if necessary.
    pub(crate) fn add(&mut self, name: &str, tensors: u64, summary: &Summary) {
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
pub(crate) fn group_name(by: By, checkpoint: &Checkpoint, leaf: &Leaf, dot: char) -> String {
    let key = leaf.flat.to_lossy();
    match by {
        By::Layer => layer(&key, dot),
        By::Role => fold::pattern(&key, dot).0,
        By::Dtype => {
            let tensor = checkpoint.tensor_of(leaf.target);
            tensor.map(|(_, tensor)| tensor.dtype.to_string()).unwrap_or_default()
        }
        By::State => leaf.state(dot),
    }
}

struct All<'a> {
    args: &'a StatsArgs,
    checkpoint: &'a Checkpoint,
    dot: char,
    /// The first leaf of each tensor.
    firsts: HashMap<TensorId, &'a Leaf>,
    tensors: HashMap<TensorId, MeasuredTensor>,
    groups: TensorGroups,
    without: Vec<(String, String)>,
    failed: Vec<(String, String)>,
}

impl<'a> All<'a> {
    fn new(args: &'a StatsArgs, checkpoint: &'a Checkpoint, leaves: &'a [Leaf]) -> Self {
        let texts: Vec<_> = leaves.iter().map(|leaf| leaf.flat.to_lossy()).collect();
        let dot = separator(checkpoint.format.id, &mut texts.iter().map(|text| &**text));
        let mut firsts = HashMap::new();
        for leaf in leaves {
            if let Some((id, _)) = checkpoint.tensor_of(leaf.target) {
                firsts.entry(id).or_insert(leaf);
            }
        }
        Self {
            args,
            checkpoint,
            dot,
            firsts,
            tensors: HashMap::new(),
            groups: TensorGroups::new(),
            without: Vec::new(),
            failed: Vec::new(),
        }
    }

    fn take(&mut self, id: TensorId, found: Found) -> Result<()> {
        let Some(leaf) = self.firsts.get(&id) else { return Ok(()) };
        let key = leaf.flat.to_lossy().into_owned();
        match found {
            Found::Without(why) => self.without.push((key, why)),
            Found::Unread(why) => self.failed.push((key, why)),
            Found::Hash(_) | Found::Lines(_) => {}
            Found::Read(summary) => {
                let bins = if self.args.input.common.json { self.args.bins.into() } else { SMALL };
                let of = summary.statistics();
                let histogram = summary.histogram(self.args.scale.into(), bins);
                if self.args.tests.iter().all(|test| test.is(&of)) {
                    self.add_to_groups(leaf, &summary);
                }
                room::insert(&mut self.tensors, id, MeasuredTensor { of, histogram })?;
            }
        }
        Ok(())
    }

    fn add_to_groups(&mut self, leaf: &Leaf, summary: &Summary) {
        self.groups.add_to_all(1, summary);
        if let Some(by) = self.args.by {
            self.groups.add(&group_name(by, self.checkpoint, leaf, self.dot), 1, summary);
        }
    }

    /// Returns the leaves to list with their statistics, sorted.
    fn rows<'b>(&'b self, leaves: &'b [Leaf]) -> Vec<(&'b Leaf, &'b MeasuredTensor)> {
        let known = |leaf: &'b Leaf| {
            let (id, _) = self.checkpoint.tensor_of(leaf.target)?;
            let measured = self.tensors.get(&id)?;
            let is = self.args.tests.iter().all(|test| test.is(&measured.of));
            is.then_some((leaf, measured))
        };
        let mut rows: Vec<_> = leaves.iter().filter_map(known).collect();
        match self.args.sort {
            Some(StatisticsField::Key) => rows.sort_by(|one, other| {
                natural_order(&one.0.flat.to_lossy(), &other.0.flat.to_lossy())
            }),
            Some(field) => {
                rows.sort_by(|one, other| descending(field.of(&one.1.of), field.of(&other.1.of)));
            }
            // JSON keeps the order of the file unless another is requested.
            None if self.args.input.common.json => {}
            None => rows.sort_by(|one, other| worse(&one.1.of, &other.1.of)),
        }
        if self.args.reverse {
            rows.reverse();
        }
        rows
    }

    fn json(
        &self,
        rows: &[(&Leaf, &MeasuredTensor)],
        leaves: &[Leaf],
        twice: &ReadTwice<'_>,
        found: &[Noticed],
        printer: &mut Printer,
    ) -> Result<(), Failure> {
        let mut json = Json::new();
        json.open('{');
        json.name("statelens").number(1);
        json.name("tensors").open('[');
        for (leaf, measured) in rows {
            json.line();
            json.object(|json| {
                json.name("key").text(&leaf.flat);
                let of = self.checkpoint.tensor_of(leaf.target);
                if let Some((_, tensor)) = of {
                    json.name("dtype").str(tensor.dtype.name());
                    json.name("shape").numbers(&tensor.shape);
                }
                let shape = of.map(|(_, tensor)| tensor.shape.as_slice());
                statistics_json(json, &measured.of, &measured.histogram, shape);
                if let Some((id, tensor)) = of {
                    twice.json(id, &tensor.shape, self.args.rows, json);
                }
                if let Some(target) = &leaf.alias_of {
                    json.name("alias_of").text(target);
                }
            });
            printer.text(&json.take())?;
        }
        json.newline();
        json.close(']');
        json.name("groups").open('[');
        for group in &self.groups.all {
            json.line();
            let of = group.summary.statistics();
            let histogram = group.summary.histogram(self.args.scale.into(), self.args.bins.into());
            json.object(|json| {
                json.name("group").str(&group.name);
                json.name("tensors").number(group.tensors);
                statistics_json(json, &of, &histogram, None);
            });
        }
        json.newline();
        json.close(']');
        again::json(found, leaves, &mut json);
        for (name, list) in [("without", &self.without), ("failed", &self.failed)] {
            json.name(name).array(|json| {
                for (key, why) in list {
                    json.object(|json| {
                        json.name("key").str(key);
                        json.name("why").str(why);
                    });
                }
            });
        }
        json.close('}');
        printer.line(&json.take())
    }

    fn text(
        &self,
        rows: &[(&Leaf, &MeasuredTensor)],
        known: &ReadTwice<'_>,
        printer: &mut Printer,
    ) -> Result<(), Failure> {
        const NUMBERS: [&str; 9] =
            [">NaN", ">inf", ">zeros", ">min", ">max", ">mean", ">std", ">|x| max", "histogram"];
        if self.args.by.is_some() {
            let mut table =
                TextTable::new(&[&["group", ">tensors", ">count"], &NUMBERS[..]].concat());
            for group in self.groups.all.iter().skip(1).chain(self.groups.all.first()) {
                let of = group.summary.statistics();
                let histogram = group.summary.histogram(self.args.scale.into(), SMALL);
                let head = [group.name.clone(), grouped(group.tensors), grouped(of.count)];
                table.row([head.to_vec(), cells(&of, &histogram)].concat());
            }
            return table.print(printer);
        }
        if rows.is_empty() {
            return printer.line("no tensor matches");
        }
        let mut table = TextTable::new(&[&["key", "dtype", "shape"], &NUMBERS[..]].concat());
        for (leaf, measured) in rows {
            let Some((_, tensor)) = self.checkpoint.tensor_of(leaf.target) else { continue };
            let key = leaf.flat.to_lossy().into_owned();
            let head = [key, tensor.dtype.to_string(), shape_text(&tensor.shape)];
            table.row([head.to_vec(), cells(&measured.of, &measured.histogram)].concat());
        }
        table.print(printer)?;
        for (leaf, measured) in rows {
            let Some((id, tensor)) = self.checkpoint.tensor_of(leaf.target) else { continue };
            if let Some(line) = known.line(id).filter(|_| self.args.rows) {
                printer.line(&format!("{}: {line}", visible(&leaf.flat.to_lossy())))?;
            }
            let of = &measured.of;
            for (what, count, first) in
                [("NaN", of.nan, of.first_nan), ("infinite", of.pos_inf + of.neg_inf, of.first_inf)]
            {
                if let Some(first) = first {
                    let at = shape_text(&index(&tensor.shape, first));
                    let key = visible(&leaf.flat.to_lossy());
                    printer
                        .line(&format!("{key}: {} {what}, the first at {at}", grouped(count)))?;
                }
            }
        }
        if !self.without.is_empty() {
            let count = counted(self.without.len() as u64, "tensor");
            printer.line(&format!("{count} without numbers: --json lists them"))?;
        }
        Ok(())
    }
}

/// Returns the numbers of a row.
fn cells(of: &Statistics, histogram: &Histogram) -> Vec<String> {
    let float = |value: Option<f64>| value.map_or("–".into(), number_text);
    let count = |count: u64| if count == 0 { "–".into() } else { grouped(count) };
    vec![
        count(of.nan),
        count(of.pos_inf + of.neg_inf),
        part(of.zeros, of.count),
        float(of.min),
        float(of.max),
        float(of.mean),
        float(of.std),
        float(of.abs_max.map(|(value, _)| value)),
        bars(&histogram.counts),
    ]
}

/// Returns a share in per cent: `0.04 %`, `31 %`; a dash for zero.
fn part(count: u64, of: u64) -> String {
    let percent = count as f64 / of.max(1) as f64 * 100.0;
    match percent {
        0.0 => "–".into(),
        ..1.0 => format!("{} %", number_text((percent * 100.0).ceil() / 100.0)),
        99.0..100.0 => format!("{:.1} %", (percent * 10.0).floor() / 10.0),
        _ => format!("{percent:.0} %"),
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

/// Sorts in descending order; missing values come last.
fn descending(one: Option<f64>, other: Option<f64>) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) => other.total_cmp(&one),
        (one, other) => other.is_some().cmp(&one.is_some()),
    }
}

/// Sorts the tensors that need attention to the top: NaN, infinities, tensors of a single value,
/// large numbers.
fn worse(one: &Statistics, other: &Statistics) -> Ordering {
    let rank = |of: &Statistics| {
        (
            of.nan,
            of.pos_inf + of.neg_inf,
            of.count > 1 && of.all_zero(),
            of.count > 1 && of.all_equal(),
        )
    };
    let most = |of: &Statistics| of.abs_max.map(|(value, _)| value);
    rank(other).cmp(&rank(one)).then_with(|| descending(most(one), most(other)))
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

    #[test]
    fn percentages_never_round_to_0_or_100() {
        assert_eq!(part(0, 5), "–");
        assert_eq!(part(1, 1_000_000), "0.01 %");
        assert_eq!(part(999_999, 1_000_000), "99.9 %");
        assert_eq!((part(1, 3), part(3, 3)), ("33 %".into(), "100 %".into()));
    }
}
