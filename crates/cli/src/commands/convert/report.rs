//! Reports of the planned and written files.

use statelens::parts::checkpoint::{Plan, Size, visible};
use statelens::parts::convert::{Share, shares};
use statelens::report::files_json;
use statelens::write::output_paths;
use statelens::{ConversionPlan, Result, Written};

use super::{ConvertJob, Destination, Forecast};
use crate::commands::edits;
use crate::commands::losses::{cast_text, losses_text};
use crate::print::{Failure, Printer, TextTable, grouped, size_text, warn};

/// The number of parts and bytes of the new file, by how they are made.
#[derive(Default)]
struct Shares {
    made: (u64, u64),
    copied: (u64, u64),
    gathered: (u64, u64),
    cast: (u64, u64),
    compressed: (u64, u64),
}

impl Shares {
    fn of(plan: &Plan) -> Result<Self> {
        let mut sums = Self::default();
        for found in shares(plan) {
            let (share, bytes, _) = found?;
            let sum = match share {
                Share::Made => &mut sums.made,
                Share::Copied => &mut sums.copied,
                Share::Gathered => &mut sums.gathered,
                Share::Cast => &mut sums.cast,
                Share::Compressed => &mut sums.compressed,
            };
            sum.0 += 1;
            sum.1 = sum.1.saturating_add(bytes);
        }
        Ok(sums)
    }

    fn rows(&self) -> [(&'static str, &'static str, (u64, u64)); 5] {
        [
            ("made", "headers, indexes and plain values", self.made),
            ("copied", "unchanged", self.copied),
            ("gathered", "assembled from chunks, views or constants", self.gathered),
            ("cast", "cast to another dtype", self.cast),
            ("compressed", "compressed; sizes are before compression", self.compressed),
        ]
    }
}

/// Prints a plan that was not run.
pub(super) fn show(
    job: &ConvertJob<'_>,
    forecast: &Forecast,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let ConversionPlan { plan, changes, format } = &forecast.planned;
    let (size, shares) = (plan.size()?, Shares::of(plan)?);
    let (exact, bytes) = (matches!(size, Size::Exact(_)), size.bytes());
    let paths = output_paths(plan, job.destination.path());
    if job.common.json {
        return printer.json(|json| {
            json.name("output").str(&job.destination.name());
            json.name("format").str(format);
            json.name("dry_run").bool(true);
            json.name("bytes").number(bytes);
            json.name("exact").bool(exact);
            files_json(json, &paths);
            json.name("segments").object(|json| {
                for (name, _, (count, bytes)) in shares.rows() {
                    json.name(name).object(|json| {
                        json.name("count").number(count);
                        json.name("bytes").number(bytes);
                    });
                }
            });
            forecast.json(json);
            edits::changes_json(json, changes);
        });
    }
    let at_most = if exact { "" } else { "at most " };
    let mut table = TextTable::new(&["", ""]);
    for (at, path) in paths.iter().enumerate() {
        let word = if at == 0 { "would write" } else { "" };
        table.row(vec![word.into(), path.display().to_string()]);
    }
    table.row(vec!["format".into(), format.into()]);
    table.row(vec![
        "size".into(),
        format!("{at_most}{} bytes ({})", grouped(bytes), size_text(bytes)),
    ]);
    for (name, what, (count, bytes)) in shares.rows() {
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
        visible(&first.display().to_string()),
        written.format,
        grouped(bytes),
        size_text((bytes as f64 / seconds.max(1e-3)) as u64)
    );
    if job.destination == Destination::Output {
        warn(&line);
        return Ok(());
    }
    printer.line(&line)?;
    losses_text(&written.losses, printer)?;
    cast_text(&written.report, &written.changed, printer)
}
