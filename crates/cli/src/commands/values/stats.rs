//! `statelens stats`.

use std::cmp::Ordering;

use statelens::parts::checkpoint::{Checkpoint, Leaf, natural_order, shape_text, visible};
use statelens::parts::convert::Pattern;
use statelens::parts::values::weights::{CHECKS, Noticed};
use statelens::parts::values::{Histogram, bars, index, number_text};
use statelens::statistics::{
    self, FailOn, MeasuredTensor, MeasuredTensors, Measurements, OtherNumbers, SecondPass, Stages,
    StatisticsOptions, finding,
};
use statelens::{Error, Progress, Result, Statistics};

use super::{hist, rows};
use crate::args::{SortBy, StatsArgs};
use crate::print::{CommandResult, Failure, Printer, TextTable, counted, grouped, warn};
use crate::progress::{Bar, Unit};

/// Bins of the histograms in the table.
const SMALL: usize = 16;

/// The bins of a histogram that is drawn.
const DRAWN_BINS: u16 = 24;
/// The bins of each histogram in the JSON.
const JSON_BINS: u16 = 64;

pub(crate) fn run(args: &StatsArgs) -> CommandResult {
    if args.histogram {
        let bins = args.bins.unwrap_or(DRAWN_BINS);
        return hist::run(&args.input, only_key(args)?, args.scale, bins);
    }
    if let Some(lines) = args.rank {
        return rows::run(&args.input, only_key(args)?, lines, args.top);
    }
    let patterns = Pattern::all(&args.patterns)?;
    let keys: Vec<&str> = args.patterns.iter().map(String::as_str).collect();
    let (file, with) = (&args.input.file, &args.input.common.with);
    let (stored, opened) = crate::commands::quantised::open_both(file, with, &keys)?;
    opened.check_size("reading all values")?;
    let options = StatisticsOptions {
        bins: if args.input.common.json { args.bins.unwrap_or(JSON_BINS).into() } else { SMALL },
        scale: args.scale.into(),
        by: args.by.map(Into::into),
        keep: &|of| args.tests.iter().all(|test| test.holds(of)),
        rows: args.rows,
    };
    let on: Vec<FailOn> = args.fail_on.iter().map(|what| (*what).into()).collect();
    let sides = (&stored, opened);
    statistics::measure(sides, &patterns, options, &on, &mut Bars(None), |found| {
        show(args, opened.inner(), &found)
    })
}

/// A bar for each stage.
struct Bars(Option<Bar>);

impl Stages for Bars {
    fn begin(&mut self, stage: &'static str) -> Result<&mut dyn Progress> {
        // The bar of the stage before ends first.
        self.0 = None;
        Ok(self.0.insert(Bar::stoppable(stage, Unit::Bytes)?))
    }
}

fn show(args: &StatsArgs, checkpoint: &Checkpoint, found: &Measurements<'_>) -> CommandResult {
    let Measurements { leaves, tensors: all, second, noticed, failed } = found;
    let mut rows = all.rows(leaves);
    sort(args, &mut rows);
    let mut printer = Printer::for_verdict();
    match args.input.common.json {
        true => found.json(&rows, &mut |piece| printer.text(piece))?,
        false => {
            text(args, checkpoint, all, &rows, second, &mut printer)?;
            if !all.tensors.is_empty() {
                print_findings(noticed, leaves, &mut printer)?;
            }
            if let Some(failed) = failed {
                print_others(&failed.others, &mut printer)?;
            }
        }
    }
    printer.finish()?;
    for (key, why) in &all.failed {
        warn(&format!("`{key}` can't be read: {why}"));
    }
    let is_bad = failed.as_ref().is_some_and(|failed| !failed.keys.is_empty());
    match (is_bad, all.failed.is_empty()) {
        (true, _) => Ok(false),
        (false, false) => Err(Failure::Reported),
        (false, true) if failed.as_ref().is_some_and(|it| !it.others.not_checked.is_empty()) => {
            Err(Failure::Incomplete)
        }
        (false, true) => Ok(true),
    }
}

/// Prints the numbers of tensors without statistics.
fn print_others(others: &OtherNumbers, printer: &mut Printer) -> Result<(), Failure> {
    for tensor in &others.not_finite {
        printer.line(&format!("{}: {}", visible(&tensor.key), tensor.text()))?;
    }
    for fault in &others.scales {
        let (key, scheme) = (visible(&fault.key), &fault.scheme);
        printer.line(&format!("{key}, {scheme}: {}", fault.text()))?;
    }
    if !others.not_checked.is_empty() {
        let count = counted(others.not_checked.len() as u64, "value");
        printer.line(&format!("not checked: {count}"))?;
    }
    for tensor in others.not_checked.iter().take(MAX_LISTED) {
        printer.line(&format!("  {}: {}", visible(&tensor.key), tensor.why))?;
    }
    Ok(())
}

/// Tensors that were not checked and are listed.
const MAX_LISTED: usize = 20;

/// Returns the only key that was given.
fn only_key(args: &StatsArgs) -> Result<&str> {
    match args.patterns.as_slice() {
        [key] => Ok(key),
        _ => Err(Error::refused("this needs one key")
            .advice("Name the tensor after the file, as `statelens ls` prints it.")),
    }
}

/// Sorts the leaves as requested; by default the tensors that need attention come first, except in
/// JSON.
fn sort(args: &StatsArgs, rows: &mut [(&Leaf, &MeasuredTensor)]) {
    match args.sort {
        Some(SortBy::Key) => {
            rows.sort_by(|one, other| natural_order(one.0.flat.as_bytes(), other.0.flat.as_bytes()))
        }
        Some(SortBy::Statistic(field)) => {
            rows.sort_by(|one, other| descending(field.of(&one.1.of), field.of(&other.1.of)));
        }
        // JSON keeps the order of the file unless another is requested.
        None if args.input.common.json => {}
        None => rows.sort_by(|one, other| worse(&one.1.of, &other.1.of)),
    }
    if args.reverse {
        rows.reverse();
    }
}

/// Prints findings as paragraphs; without findings, lists the checks.
fn print_findings(
    found: &[Noticed],
    leaves: &[Leaf],
    printer: &mut Printer,
) -> Result<(), Failure> {
    printer.line("")?;
    if found.is_empty() {
        return printer.line(&format!("nothing found; looked for {}", CHECKS.join(", ")));
    }
    let of = |noticed: &Noticed| finding(noticed, leaves);
    crate::commands::print_findings(&found.iter().map(of).collect::<Vec<_>>(), printer)
}

fn text(
    args: &StatsArgs,
    checkpoint: &Checkpoint,
    all: &MeasuredTensors<'_>,
    rows: &[(&Leaf, &MeasuredTensor)],
    known: &SecondPass<'_>,
    printer: &mut Printer,
) -> Result<(), Failure> {
    const NUMBERS: [&str; 9] =
        [">NaN", ">inf", ">zeros", ">min", ">max", ">mean", ">std", ">|x| max", "histogram"];
    if args.by.is_some() {
        let mut table = TextTable::new(&[&["group", ">tensors", ">count"], &NUMBERS[..]].concat());
        for group in all.groups.all.iter().skip(1).chain(all.groups.all.first()) {
            let of = group.summary.statistics();
            let histogram = group.summary.histogram(args.scale.into(), SMALL);
            let head = [group.name.clone(), grouped(group.tensors), grouped(of.count)];
            table.row([head.to_vec(), cells(&of, &histogram)].concat());
        }
        return table.print(printer);
    }
    if rows.is_empty() {
        return printer.line("no tensor of numbers matches");
    }
    let mut table = TextTable::new(&[&["key", "dtype", "shape"], &NUMBERS[..]].concat());
    for (leaf, measured) in rows {
        let Some((_, tensor)) = checkpoint.tensor_of(leaf.target) else { continue };
        let key = leaf.flat.to_lossy().into_owned();
        let head = [key, tensor.dtype.to_string(), shape_text(&tensor.shape)];
        table.row([head.to_vec(), cells(&measured.of, &measured.histogram)].concat());
    }
    table.print(printer)?;
    for (leaf, measured) in rows {
        let Some((id, tensor)) = checkpoint.tensor_of(leaf.target) else { continue };
        if let Some(line) = known.line(id).filter(|_| args.rows) {
            printer.line(&format!("{}: {line}", visible(&leaf.flat.to_lossy())))?;
        }
        let of = &measured.of;
        for (what, count, first) in
            [("NaN", of.nan, of.first_nan), ("infinite", of.pos_inf + of.neg_inf, of.first_inf)]
        {
            if let Some(first) = first {
                let at = shape_text(&index(&tensor.shape, first));
                let key = visible(&leaf.flat.to_lossy());
                printer.line(&format!("{key}: {} {what}, the first at {at}", grouped(count)))?;
            }
        }
    }
    if !all.without.is_empty() {
        let count = counted(all.without.len() as u64, "tensor");
        printer.line(&format!("{count} without numbers: --json lists them"))?;
    }
    Ok(())
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
    fn parts_are_never_rounded_to_none_or_all() {
        assert_eq!(part(0, 5), "–");
        assert_eq!(part(1, 1_000_000), "0.01 %");
        assert_eq!(part(999_999, 1_000_000), "99.9 %");
        assert_eq!((part(1, 3), part(3, 3)), ("33 %".into(), "100 %".into()));
    }
}
