//! `statelens stats --rank`.

use statelens::Error;
use statelens::PathText as _;
use statelens::parts::checkpoint::{shape_text, visible};
use statelens::parts::values::number_text;
use statelens::statistics::{RankedLines, Ranking};

use super::selected::SelectedTensor;
use crate::args::Input;
use crate::limits::limits;
use crate::print::{CommandResult, Printer, counted, grouped};
use crate::progress::{Bar, Unit};

pub(crate) fn run(input: &Input, key: &str, of: RankedLines, top: usize) -> CommandResult {
    let opened = crate::commands::quantised::open(&input.file, &input.common.with, &[key])?;
    let checkpoint = opened.inner();
    let leaves = checkpoint.leaves();
    let named = |error: Error| error.in_file(input.file.to_text());
    let SelectedTensor { title, tensor, .. } =
        SelectedTensor::find(checkpoint, &leaves, key, &input.file)?;
    let bytes = tensor.nbytes().unwrap_or(u64::MAX);
    checkpoint.unfolded().writing(bytes).check("reading it", limits()).map_err(named)?;
    let mut bar = Bar::stoppable("reading", Unit::Bytes)?;
    let ranking = Ranking::read(&checkpoint.files, &tensor, &title, of, &mut bar).map_err(named)?;
    opened.unchanged()?;
    drop(bar);
    let mut printer = Printer::new();
    if input.common.json {
        printer.line(&ranking.json(&title, top))?;
        return printer.success();
    }
    let (dtype, shape) = (&tensor.dtype, shape_text(&tensor.shape));
    let count = counted(ranking.count(), of.name());
    printer.line(&format!("{}  {dtype} {shape}: {count}", visible(&title)))?;
    if let Some((zero, copied)) = ranking.zero_and_copied() {
        printer.line(&format!(
            "  {} all zero, {} equal to an earlier one",
            grouped(zero),
            grouped(copied)
        ))?;
    }
    printer.line(&format!("  median norm {}", number_text(ranking.median())))?;
    let lists = [("largest norm", ranking.largest(top)), ("smallest norm", ranking.smallest(top))];
    for (title, lines) in lists {
        printer.line("")?;
        printer.line(&format!("  {title:16} {:>11}  {:>11}", "norm", "max |x|"))?;
        for (index, line) in lines {
            let odd = match line.not_finite {
                0 => String::new(),
                odd => format!("  {} not finite", grouped(odd)),
            };
            let (norm, most) = (number_text(line.norm), number_text(line.abs_max));
            let index = shape_text(&index);
            printer.line(&format!("  {index:16} {norm:>11}  {most:>11}{odd}"))?;
        }
    }
    printer.success()
}
