//! Runs a plan whose files become objects of a store.

use std::path::PathBuf;

use statelens_checkpoint::{Plan, Progress, Result};
use statelens_compare::ReadBack;
use statelens_convert::RunReport;

use super::{FileOptions, Finishing, Replace};
use crate::executor;
use crate::remote::uploads;

/// Writes the files to the addresses `paths`. They appear when all are complete; then they are read
/// back, and removed again if that fails.
pub(super) fn write_objects(
    paths: &[PathBuf],
    plan: Plan,
    options: &FileOptions<'_>,
    progress: &mut dyn Progress,
) -> Result<RunReport> {
    plan.bounded(options.limits)?;
    let (read_back, source) = (ReadBack::of(&plan), plan.source.clone());
    let replace = options.replace == Replace::Any;
    let mut sink = uploads::sink(&plan, paths, replace, options.warn)?;
    let report = executor::run(plan, &mut sink, progress)?;
    options.check_run(&source, &report)?;
    // An object appears only when it is complete, so it can't be read back before.
    let mut written = sink.finish()?;
    let mut progress = Finishing { of: progress, bytes: report.bytes };
    read_back.check(written.open()?, options.limits, &mut progress)?;
    written.keep();
    Ok(report)
}
