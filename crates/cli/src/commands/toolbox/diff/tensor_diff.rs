//! `statelens diff --closer`.

use std::sync::Arc;

use statelens::parts::checkpoint::{Checkpoint, Leaf, shape_text, visible};
use statelens::parts::compare::diff::{TensorComparison, TensorDifference};
use statelens::parts::values::picture::{ColourScaling, Picture, Show};
use statelens::parts::values::{Json, Scale, bars, index, number_text, statistics_json};
use statelens::{Error, Result, Summary, parallel};

use crate::args::{Diff, ScaleArg};
use crate::commands::{histogram, leaf, pictures};
use crate::output::{Sync, check_target};
use crate::print::{CommandResult, Failure, Printer, TextTable, grouped};
use crate::progress::{Bar, Unit};

/// The largest number of blocks of the map, across and down.
const BLOCKS: (u32, u32) = (256, 160);
/// Width and height of the picture of the map, in pixels.
const DOTS: (u32, u32) = (1024, 640);
/// Bins of a one-line histogram.
const SMALL: usize = 48;

pub(super) fn run(
    args: &Diff,
    left: &statelens::Checkpoint,
    right: &statelens::Checkpoint,
) -> CommandResult {
    let target = args.tensor_diff.picture.as_deref();
    if let Some(target) = target {
        pictures::is_svg(target)?;
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
        match args.common.json {
            true => write_json(args, key, &types, &found, &mut json),
            false => {
                if number > 0 {
                    printer.line("")?;
                }
                printer.line(&format!("{}  {}", visible(key), types.join(" / ")))?;
                show(args, &found, &mut printer)?;
            }
        }
        if let Some(target) = target {
            save(args, key, &found, target)?;
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
    let mut machine =
        TensorComparison::new((left.0.clone(), left.1), (right.0.clone(), right.1), BLOCKS)?;
    let mut bar = Bar::stoppable("reading", Unit::Bytes)?;
    parallel::drive(&mut machine, workers, &mut bar)?;
    Ok(machine.into_found())
}

/// Returns the type and shape, such as `float32 [2, 3]`.
fn type_text(of: &Checkpoint, leaf: &Leaf) -> String {
    let tensor = of.tensor_of(leaf.target).map(|(_, tensor)| tensor);
    tensor.map_or_else(String::new, |it| format!("{} {}", it.dtype, shape_text(&it.shape)))
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

fn write_json(
    args: &Diff,
    key: &str,
    types: &[String; 2],
    found: &TensorDifference,
    json: &mut Json,
) {
    let (scale, bins): (Scale, usize) =
        (args.tensor_diff.scale.into(), args.tensor_diff.bins.into());
    let sides =
        [("left", &found.left), ("right", &found.right), ("difference", &found.differences)];
    json.line();
    json.object(|json| {
        json.name("key").str(key);
        json.name("left_type").str(&types[0]);
        json.name("right_type").str(&types[1]);
        json.name("differing").number(found.differing());
        json.name("nan_on_both_sides").number(found.nan[0]);
        json.name("nan_left_only").number(found.nan[1]);
        json.name("nan_right_only").number(found.nan[2]);
        for (name, of) in sides {
            json.name(name).object(|json| {
                let histogram = of.histogram(scale, bins);
                statistics_json(json, &of.statistics(), &histogram, Some(&found.shape));
            });
        }
        json.name("distributions").value(&found.outlines(scale, bins));
        if let Some(map) = found.drawn() {
            json.name("map").object(|json| {
                json.name("rows").number(map.matrix.0);
                json.name("columns").number(map.matrix.1);
                json.name("block").numbers(&[map.block.0, map.block.1]);
                json.name("size").numbers(&[map.size.0 as u64, map.size.1 as u64]);
                json.name("largest").array(|json| {
                    for value in &map.largest {
                        json.float((!value.is_nan()).then(|| value.abs()));
                    }
                });
            });
        }
    });
}

/// Draws the blocks of |RIGHT - LEFT|.
fn save(args: &Diff, key: &str, found: &TensorDifference, target: &std::path::Path) -> Result<()> {
    let map =
        found.drawn().ok_or_else(|| Error::refused("a tensor without values has no picture"))?;
    let title = format!("|RIGHT - LEFT| of {}", visible(key));
    let picture = Picture {
        map: &map,
        title: &title,
        axes: if found.shape.len() < 2 { ("-", "elements") } else { ("rows", "columns") },
        show: Show::Magnitude,
        scaling: match args.tensor_diff.scale {
            ScaleArg::Linear => ColourScaling::Linear,
            ScaleArg::Log => ColourScaling::Log,
        },
    };
    pictures::save(&picture, DOTS, target, args.tensor_diff.force, Sync::IfReplacing).map(|_| ())
}
