//! `statelens stats --rank`.

use statelens::Error;
use statelens::parts::checkpoint::{shape_text, visible};
use statelens::parts::tensor::{BUFFER, drain};
use statelens::parts::values::{
    Json, MAX_LINES, MatrixLine, MatrixLines, Rows, index, number_text,
};

use super::selected::SelectedTensor;
use crate::args::{Input, RankedLines};
use crate::limits::limits;
use crate::print::{CommandResult, Printer, counted, grouped};
use crate::progress::{Bar, Unit};

pub(crate) fn run(input: &Input, key: &str, of: RankedLines, top: usize) -> CommandResult {
    let opened = crate::commands::quantised::open(&input.file, &input.common.with, &[key])?;
    let checkpoint = opened.inner();
    let leaves = checkpoint.leaves();
    let named = |error: Error| error.in_file(input.file.display().to_string());
    let SelectedTensor { title, tensor, .. } =
        SelectedTensor::find(checkpoint, &leaves, key, &input.file)?;
    let shape = &tensor.shape;
    let (outer, inner) =
        shape.split_at(shape.len().saturating_sub(if of == RankedLines::Kernels { 2 } else { 1 }));
    let dtype = &tensor.dtype;
    let width = inner.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim));
    let rows = width.filter(|_| shape.len() >= 2 && !shape.contains(&0));
    let mut rows = rows.and_then(|width| Rows::new(dtype, width)).ok_or_else(|| {
        named(Error::refused(format!("`{title}`, {dtype} {}, has no rows", shape_text(shape))))
    })?;
    let bytes = tensor.nbytes().unwrap_or(u64::MAX);
    checkpoint.unfolded().writing(bytes).check("reading it", limits()).map_err(named)?;
    let mut bar = Bar::stoppable("reading", Unit::Bytes)?;
    drain(&checkpoint.files, &tensor, BUFFER, &mut bar, &mut |bytes| {
        rows.feed(bytes);
        Ok(())
    })?;
    opened.unchanged()?;
    let found = rows.finish();
    let columns = of == RankedLines::Columns;
    let (lines, what) = (if columns { &found.columns } else { &found.rows }, of.name());
    if lines.is_empty() {
        return Err(named(Error::unsupported(format!(
            "more than {} are not ranked",
            counted(MAX_LINES as u64, what)
        )))
        .into());
    }
    let ranked = MatrixLines::ranked(lines);
    let top = top.min(ranked.len());
    let smallest: Vec<usize> = ranked.iter().rev().take(top).copied().collect();
    let largest = &ranked[..top];
    let median = MatrixLines::median(lines, &ranked).unwrap_or(0.0);
    let index_of = |at: usize| match columns {
        true => vec![at as u64],
        false => index(outer, at as u64),
    };
    let mut printer = Printer::new();
    if input.common.json {
        let list = |json: &mut Json, which: &[usize]| {
            json.array(|json| {
                for at in which {
                    let MatrixLine { abs_max, norm, not_finite } = lines[*at];
                    json.object(|json| {
                        json.name("index").numbers(&index_of(*at));
                        json.name("norm").float(norm);
                        json.name("abs_max").float(abs_max);
                        json.name("not_finite").number(not_finite);
                    });
                }
            });
        };
        printer.json(|json| {
            json.name("key").str(&title);
            json.name("dtype").str(dtype.name());
            json.name("shape").numbers(shape);
            json.name("of").str(what);
            json.name("count").number(lines.len() as u64);
            json.name("median_norm").float(median);
            if !columns {
                json.name("zero").number(found.zero_rows);
                json.name("copied").number(found.copied_rows);
            }
            list(json.name("largest"), largest);
            list(json.name("smallest"), &smallest);
        })?;
    } else {
        let count = counted(lines.len() as u64, what);
        let shape = shape_text(shape);
        printer.line(&format!("{}  {dtype} {shape}: {count}", visible(&title)))?;
        if !columns {
            printer.line(&format!(
                "  {} all zero, {} equal to an earlier one",
                grouped(found.zero_rows),
                grouped(found.copied_rows)
            ))?;
        }
        printer.line(&format!("  median norm {}", number_text(median)))?;
        for (title, which) in [("largest norm", largest), ("smallest norm", &smallest)] {
            printer.line("")?;
            printer.line(&format!("  {title:16} {:>11}  {:>11}", "norm", "max |x|"))?;
            for at in which {
                let MatrixLine { abs_max, norm, not_finite } = lines[*at];
                let odd = match not_finite {
                    0 => String::new(),
                    odd => format!("  {} not finite", grouped(odd)),
                };
                let (norm, most) = (number_text(norm), number_text(abs_max));
                let index = shape_text(&index_of(*at));
                printer.line(&format!("  {index:16} {norm:>11}  {most:>11}{odd}"))?;
            }
        }
    }
    printer.success()
}
