//! Reports of the planned and written files, and of losses.

use std::path::PathBuf;

use statelens::parts::checkpoint::{Checkpoint, Loss, Plan, Size, visible};
use statelens::parts::convert::{Change, RunReport, Share, shares};
use statelens::parts::values::Json;
use statelens::report::{cast_json, files_json, losses_json};
use statelens::{Error, Result};

use super::{ConvertJob, Destination};
use crate::commands::edits;
use crate::print::{Failure, Printer, TextTable, complain, grouped, keys_text, size_text};

/// Lists the losses on standard error, one per line, and returns the error that refuses them.
pub(crate) fn refuse_losses(losses: &[Loss]) -> Error {
    for loss in losses.iter().filter(|loss| !loss.harmless) {
        complain(&format!("would be lost: {}", loss_text(loss)));
    }
    Error::refused("something would be lost, so nothing was written")
        .advice(format!("Continue with --lossy, or leave these keys out{}.", excluding(losses)))
}

fn loss_text(loss: &Loss) -> String {
    let why = if loss.why.is_empty() { String::new() } else { format!(" {}", loss.why) };
    let keys = match loss.keys.is_empty() {
        true => String::new(),
        false => format!("{}: ", keys_text(&loss.keys)),
    };
    format!("{keys}{}.{why}", loss.what)
}

/// Returns the options that exclude the lost keys, if they are few.
fn excluding(losses: &[Loss]) -> String {
    let lost = losses.iter().filter(|loss| !loss.harmless);
    let keys: Vec<&String> = lost.flat_map(|loss| &loss.keys).collect();
    let plain = |key: &&String| is_literal(key);
    if keys.is_empty() || keys.len() > MAX_SUGGESTED || !keys.iter().all(plain) {
        return " with --exclude".to_owned();
    }
    keys.iter().map(|key| format!(" --exclude '{key}'")).collect::<String>().replacen(' ', ": ", 1)
}

/// The largest number of keys for which the options are written out.
const MAX_SUGGESTED: usize = 4;

/// Returns whether a key, as a pattern, matches only itself.
fn is_literal(key: &str) -> bool {
    let is_expression = key.starts_with('/') && key.ends_with('/');
    !is_expression && !key.contains(['\'', '*', '?', '[', '{'])
}

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
    format: &str,
    plan: &Plan,
    size: Size,
    changes: &[Change],
    scanned: Option<&RunReport>,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let shares = Shares::of(plan)?;
    if job.common.json {
        let mut json = Json::new();
        json.object(|json| {
            head(json, job, format);
            json.name("dry_run").bool(true);
            json.name("bytes").number(size.bytes());
            json.name("exact").bool(matches!(size, Size::Exact(_)));
            files_json(json, &job.paths(plan));
            json.name("segments").object(|json| {
                for (name, _, (count, bytes)) in shares.rows() {
                    json.name(name).object(|json| {
                        json.name("count").number(count);
                        json.name("bytes").number(bytes);
                    });
                }
            });
            if let Some(report) = scanned {
                cast_json(json, report, &report.worst(&plan.source));
            }
            losses_json(json, &plan.losses);
            edits::changes_json(json, changes);
        });
        return printer.line(json.as_str());
    }
    let at_most = if matches!(size, Size::Exact(_)) { "" } else { "at most " };
    let mut table = TextTable::new(&["", ""]);
    for (at, path) in job.paths(plan).iter().enumerate() {
        let word = if at == 0 { "would write" } else { "" };
        table.row(vec![word.into(), path.display().to_string()]);
    }
    table.row(vec!["format".into(), format.into()]);
    let bytes = size.bytes();
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
    losses_text(&plan.losses, printer)?;
    if let Some(report) = scanned {
        edits::cast_text(&plan.source, report, printer)?;
    }
    edits::changes_text(changes, printer)
}

pub(crate) fn losses_text(losses: &[Loss], printer: &mut Printer) -> Result<(), Failure> {
    for loss in losses {
        let word = if loss.harmless { "changed" } else { "lost" };
        printer.line(&format!("{word:11}  {}", visible(&loss_text(loss))))?;
    }
    Ok(())
}

fn head(json: &mut Json, job: &ConvertJob<'_>, format: &str) {
    json.name("statelens").number(1);
    json.name("output").str(&job.destination.name());
    json.name("format").str(format);
}

/// Reports the files that were written.
#[allow(clippy::too_many_arguments, reason = "everything that there is to say, said once")]
pub(super) fn done(
    job: &ConvertJob<'_>,
    format: &str,
    paths: &[PathBuf],
    source: &Checkpoint,
    losses: &[Loss],
    report: &RunReport,
    seconds: f64,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let bytes = report.bytes;
    if job.common.json && job.destination != Destination::Output {
        let mut json = Json::new();
        json.object(|json| {
            head(json, job, format);
            json.name("dry_run").bool(false);
            json.name("bytes").number(bytes);
            files_json(json, paths);
            cast_json(json, report, &report.worst(source));
            losses_json(json, losses);
        });
        return printer.line(json.as_str());
    }
    let several = match paths {
        [] | [_] => String::new(),
        all => format!(" and {} more", all.len() - 1),
    };
    let first = paths.first().cloned().unwrap_or_else(|| job.destination.name().into());
    job.print_line(
        printer,
        &format!(
            "wrote {}{several}: {}, {} bytes in {seconds:.1} s ({}/s)",
            visible(&first.display().to_string()),
            format,
            grouped(bytes),
            size_text((bytes as f64 / seconds.max(1e-3)) as u64)
        ),
    )?;
    if job.destination == Destination::Output {
        return Ok(());
    }
    losses_text(losses, printer)?;
    edits::cast_text(source, report, printer)
}
