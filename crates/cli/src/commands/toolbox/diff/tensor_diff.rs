//! `statelens diff --closer`.

use std::sync::Arc;

use statelens::parts::checkpoint::{Checkpoint, Leaf, shape_text, visible};
use statelens::parts::compare::diff::{
    TENSOR_DIFF_BLOCKS, TensorComparison, TensorDifference, type_text,
};
use statelens::parts::values::{Json, Scale, bars, index, number_text};
use statelens::{Error, Result, Summary, parallel};

use crate::args::{Diff, ScaleArg};
use crate::commands::{histogram, leaf, pictures};
use crate::output::{Sync, check_target};
use crate::print::{CommandResult, Failure, Printer, TextTable, grouped};
use crate::progress::{Bar, Unit};

/// Bins of a one-line histogram.
const SMALL: usize = 48;

pub(super) fn run(
    args: &Diff,
    left: &statelens::Checkpoint,
    right: &statelens::Checkpoint,
) -> CommandResult {
    let target = args.tensor_diff.picture.as_deref();
    if let Some(target) = target {
        pictures::picture_is_svg(target)?;
        if args.closer.len() > 1 {
            return Err(Error::refused("a picture needs exactly one --closer").into());
        }
        for side in [left, right] {
            check_target(target, args.tensor_diff.force, side.sources())?;
        }
    }
    let workers = left.workers().min(right.workers());
    let (left, right) = (left.inner(), right.inner());
    let (of_left, of_right) = (left.leaves(), right.leaves());
    let mut equal = true;
    let mut printer = Printer::for_verdict();
    let mut json = Json::new();
    json.open('{');
    json.name("statelens").number(1);
    json.name("tensors").open('[');
    for (number, key) in args.closer.iter().enumerate() {
        let one = leaf(&of_left, key, &args.left)?;
        let two = leaf(&of_right, key, &args.right)?;
        let found = read((left, one), (right, two), workers)
            .map_err(|error| error.context(format!("`{}`", visible(key))))?;
        equal &= found.differing() == 0;
        let types = [(left, one), (right, two)].map(|(of, leaf)| type_text(of, leaf));
        let (scale, bins) = (args.tensor_diff.scale.into(), args.tensor_diff.bins.into());
        match args.common.json {
            true => {
                json.line();
                json.value(&found.fields(key, &types, scale, bins));
            }
            false => {
                if number > 0 {
                    printer.line("")?;
                }
                printer.line(&format!("{}  {}", visible(key), types.join(" / ")))?;
                show(args, &found, &mut printer)?;
            }
        }
        if let Some(target) = target {
            let (scale, force) = (args.tensor_diff.scale.into(), args.tensor_diff.force);
            pictures::save_difference(key, &found, scale, target, force, Sync::IfReplacing)?;
        }
    }
    if args.common.json {
        json.close(']');
        json.name("matches").bool(equal);
        json.close('}');
        printer.line(json.as_str())?;
    }
    printer.finish()?;
    Ok(equal)
}

fn read(
    left: (&Arc<Checkpoint>, &Leaf),
    right: (&Arc<Checkpoint>, &Leaf),
    workers: usize,
) -> Result<TensorDifference> {
    let mut machine = TensorComparison::new(
        (left.0.clone(), left.1),
        (right.0.clone(), right.1),
        TENSOR_DIFF_BLOCKS,
    )?;
    let mut bar = Bar::stoppable("reading", Unit::Bytes)?;
    parallel::drive(&mut machine, workers, &mut bar)?;
    Ok(machine.into_found())
}

fn show(args: &Diff, found: &TensorDifference, printer: &mut Printer) -> Result<(), Failure> {
    let sides = [&found.left, &found.right, &found.differences].map(Summary::statistics);
    let mut table = TextTable::new(&["", ">LEFT", ">RIGHT", ">RIGHT - LEFT"]);
    let mut row = |name: &str, value: &dyn Fn(&statelens::Statistics) -> String| {
        table.row([vec![name.to_owned()], sides.iter().map(value).collect()].concat());
    };
    let float = |value: Option<f64>| value.map(number_text).unwrap_or_default();
    row("mean", &|of| float(of.mean));
    row("std", &|of| float(of.std));
    row("min", &|of| float(of.min));
    row("max", &|of| float(of.max));
    row("norm", &|of| float(of.l2));
    row("NaN", &|of| grouped(of.nan));
    row("infinite", &|of| grouped(of.pos_inf + of.neg_inf));
    table.print(printer)?;
    let [_, _, differences] = &sides;
    let count = differences.count;
    printer.line(&format!("{} of {} differ", grouped(found.differing()), grouped(count)))?;
    if let Some((most, at)) = differences.abs_max.filter(|(most, _)| *most > 0.0) {
        let place = shape_text(&index(&found.shape, at));
        printer.line(&format!("the largest |RIGHT - LEFT| is {} at {place}", number_text(most)))?;
    }
    if found.nan.iter().any(|count| *count > 0) {
        let [both, left, right] = found.nan.map(grouped);
        let text = format!("NaN on both sides {both}, in LEFT only {left}, in RIGHT only {right}");
        printer.line(&text)?;
    }
    let outlines = found.outlines(args.tensor_diff.scale.into(), SMALL);
    if let (Some(first), Some(last)) = (outlines.edges.first(), outlines.edges.last()) {
        printer.line("")?;
        for (side, counts) in [("LEFT ", &outlines.left), ("RIGHT", &outlines.right)] {
            printer.line(&format!("{side}  |{}|", bars(counts)))?;
        }
        let scale = if args.tensor_diff.scale == ScaleArg::Log { ", by magnitude" } else { "" };
        let range = format!("from {} to {}{scale}", number_text(*first), number_text(*last));
        printer.line(&format!("        {range}"))?;
    }
    printer.line("")?;
    printer.line("RIGHT - LEFT")?;
    let scale: Scale = args.tensor_diff.scale.into();
    let histogram = found.differences.histogram(scale, args.tensor_diff.bins.into());
    for line in histogram::drawn(&found.differences, &histogram.edges, &histogram.counts) {
        printer.line(&line)?;
    }
    Ok(())
}
