//! Reports of the planned and written files.

use statelens::parts::checkpoint::{Size, visible};
use statelens::report::{PartSum, PlannedPaths, Shares};
use statelens::{ConversionPlan, Result, Written, path_text};

use super::{ConvertJob, Destination, Forecast};
use crate::commands::edits;
use crate::commands::losses::{cast_text, losses_text};
use crate::print::{Failure, Printer, TextTable, grouped, size_text, warn};

/// Prints a plan that was not run.
pub(super) fn show(
    job: &ConvertJob<'_>,
    forecast: &Forecast,
    files: &PlannedPaths,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let ConversionPlan { plan, changes, format, .. } = &forecast.planned;
    let (size, shares) = (plan.size()?, Shares::of(plan)?);
    let (exact, bytes) = (matches!(size, Size::Exact(_)), size.bytes());
    let PlannedPaths { paths, removed } = files;
    if job.common.json {
        let (name, scanned) = (job.destination.name(), forecast.scanned());
        return printer.line(&forecast.planned.json(&name, files, scanned)?);
    }
    let at_most = if exact { "" } else { "at most " };
    let mut table = TextTable::new(&["", ""]);
    for (at, path) in paths.iter().enumerate() {
        let word = if at == 0 { "would write" } else { "" };
        table.row(vec![word.into(), path_text(path)]);
    }
    for (at, path) in removed.iter().enumerate() {
        let word = if at == 0 { "would remove" } else { "" };
        table.row(vec![word.into(), path_text(path)]);
    }
    table.row(["format", format]);
    table.row(vec![
        "size".into(),
        format!("{at_most}{} bytes ({})", grouped(bytes), size_text(bytes)),
    ]);
    for (name, what, PartSum { count, bytes }) in shares.rows() {
        if count > 0 {
            let noun = match (name, count) {
                ("made", _) => String::new(),
                (_, 1) => "1 tensor ".to_owned(),
                (_, count) => format!("{} tensors ", grouped(count)),
            };
            let text = format!("{} bytes: {noun}{what}", grouped(bytes));
            table.row(vec![name.into(), text]);
        }
    }
    table.print_body(printer)?;
    forecast.text(printer)?;
    edits::changes_text(changes, printer)
}

/// Reports the files that were written; on standard error if standard output is one of them.
pub(super) fn done(
    job: &ConvertJob<'_>,
    written: &Written,
    seconds: f64,
    printer: &mut Printer,
) -> Result<(), Failure> {
    if job.common.json && job.destination != Destination::Output {
        return printer.line(&written.json());
    }
    let several = match written.files.len() {
        0 | 1 => String::new(),
        files => format!(" and {} more", files - 1),
    };
    let (first, bytes) = (written.files.first().unwrap_or(&written.output), written.bytes);
    let line = format!(
        "wrote {}{several}: {}, {} bytes in {seconds:.1} s ({}/s)",
        visible(&path_text(first)),
        written.format,
        grouped(bytes),
        size_text((bytes as f64 / seconds.max(1e-3)) as u64)
    );
    if job.destination == Destination::Output {
        warn(&line);
        return Ok(());
    }
    printer.line(&line)?;
    for path in &written.removed {
        let path = visible(&path_text(path));
        printer.line(&format!("removed {path}, a shard of the replaced checkpoint"))?;
    }
    losses_text(&written.losses, printer)?;
    cast_text(&written.report, &written.changed, printer)
}
