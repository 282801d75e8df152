//! `statelens stats --histogram`.

use statelens::Error;
use statelens::PathText as _;
use statelens::parts::values::weights::TensorOutcome as Found;

use statelens::statistics::tensor_fields;

use super::measure;
use crate::args::{Input, ScaleArg};
use crate::commands::histogram::drawn;
use crate::print::{CommandResult, Printer};

pub(crate) fn run(input: &Input, key: &str, scale: ScaleArg, bins: u16) -> CommandResult {
    let (file, with) = (&input.file, &input.common.with);
    let opened = crate::commands::quantised::open_for_good(file, with, &[key])?;
    let checkpoint = opened.inner();
    let leaves = checkpoint.leaves();
    let file = input.file.to_text();
    let leaf = crate::commands::leaf(&leaves, key, &input.file)?;
    let mut found = None;
    measure::each(opened, std::slice::from_ref(leaf), |_, it| {
        found = Some(it);
        Ok(())
    })?;
    let refused = |why: &str| {
        Error::refused(format!("`{key}` has no histogram: {why}")).in_file(file.clone())
    };
    let summary = match found {
        Some(Found::Read(summary)) => summary,
        Some(Found::Without(why) | Found::Unread(why)) => return Err(refused(&why).into()),
        Some(Found::Hash(_) | Found::Lines(_)) | None => {
            return Err(refused("it is not a tensor").into());
        }
    };
    let histogram = summary.histogram(scale.into(), bins.into());
    let mut printer = Printer::new();
    if input.common.json {
        printer.report(&tensor_fields(checkpoint, leaf, &summary.statistics(), &histogram))?;
    } else {
        for line in drawn(&summary, &histogram.edges, &histogram.counts) {
            printer.line(&line)?;
        }
    }
    printer.success()
}
