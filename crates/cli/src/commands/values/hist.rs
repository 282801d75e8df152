//! `statelens hist`.

use statelens_checkpoint::Error;
use statelens_inspect::weights::Outcome as Found;
use statelens_inspect::{Json, number_text, statistics_json};
use statelens_stats::Summary;

use super::measure;
use crate::args::Hist;
use crate::print::{Outcome, Printer, grouped};

/// Characters that the longest bar has.
const WIDTH: u64 = 40;

pub(crate) fn run(args: &Hist) -> Outcome {
    let checkpoint = crate::commands::open_for_good(&args.input.file, &args.input.common.with)?;
    let leaves = checkpoint.leaves();
    let key = args.key.as_str();
    let file = args.input.file.display().to_string();
    let leaf = super::leaf(&leaves, key, &args.input.file)?;
    let mut found = None;
    measure::each(&args.input.file, checkpoint, std::slice::from_ref(leaf), |_, it| {
        found = Some(it);
        Ok(())
    })?;
    let refused = |why: &str| {
        Error::refused(format!("`{key}` has no histogram: {why}")).in_file(file.clone())
    };
    let summary = match found {
        Some(Found::Read(summary)) => summary,
        Some(Found::Without(why) | Found::Unread(why)) => return Err(refused(&why).into()),
        Some(Found::Hash(_)) | None => return Err(refused("it is not a tensor").into()),
    };
    let histogram = summary.histogram(args.scale.into(), args.bins.into());
    let mut printer = Printer::new();
    if args.input.common.json {
        let tensor = checkpoint.tensor_of(leaf.target).map(|(_, tensor)| tensor);
        let mut json = Json::new();
        json.object(|json| {
            json.name("statelens").number(1);
            json.name("key").text(&leaf.flat);
            if let Some(tensor) = tensor {
                json.name("dtype").str(tensor.dtype.name());
                json.name("shape").numbers(&tensor.shape);
            }
            let shape = tensor.map(|tensor| tensor.shape.as_slice());
            statistics_json(json, &summary.statistics(), &histogram, shape);
        });
        printer.line(json.as_str())?;
    } else {
        for line in drawn(&summary, &histogram.edges, &histogram.counts) {
            printer.line(&line)?;
        }
    }
    printer.finish()?;
    Ok(true)
}

fn drawn(summary: &Summary, edges: &[f64], counts: &[u64]) -> Vec<String> {
    let of = summary.statistics();
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let mut lines: Vec<String> = counts
        .iter()
        .zip(edges.windows(2))
        .map(|(count, edges)| {
            let [low, high] = [edges[0], edges[1]].map(number_text);
            // In eighths of a character.
            let eighths = (u128::from(*count) * u128::from(WIDTH) * 8).div_ceil(most.into()) as u64;
            let mut bar = "█".repeat((eighths / 8) as usize);
            bar.extend([' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'].get((eighths % 8) as usize));
            let line = format!("{low:>11} {high:>11}  {:>15}  {bar}", grouped(*count));
            line.trim_end().to_owned()
        })
        .collect();
    let mut rest = vec![format!("{} values", grouped(of.count))];
    for (name, count) in [
        ("NaN", of.nan),
        ("+inf", of.pos_inf),
        ("-inf", of.neg_inf),
        ("zero", of.zeros),
        ("beyond 6 std", of.beyond_6_std),
    ] {
        if count > 0 {
            rest.push(format!("{} {name}", grouped(count)));
        }
    }
    for (name, value) in [("mean", of.mean), ("std", of.std)] {
        rest.extend(value.map(|value| format!("{name} {}", number_text(value))));
    }
    lines.push(rest.join(", "));
    lines
}
