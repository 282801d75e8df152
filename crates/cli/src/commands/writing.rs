//! Writes the output of commands to files, which appear when they are complete.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use statelens::Result;
use statelens::parts::checkpoint::Plan;
use statelens::parts::values::fields;
use statelens::write::{FileOptions, Replace, write_plan};

use super::losses::REFUSAL;
use crate::args::Replacing;
use crate::limits::limits;
use crate::print::warn;
use crate::progress::{Bar, Unit};
use crate::source::FileSource;

/// Returns the options for writing files. Without `lossy`, losses are refused.
pub(crate) fn file_options(
    replacing: Replacing,
    sources: &[Arc<FileSource>],
    lossy: bool,
) -> FileOptions<'_> {
    FileOptions {
        replace: Replace::of(replacing.force),
        sync: replacing.sync(),
        refusal: (!lossy).then_some(REFUSAL),
        warn,
        ..FileOptions::new(limits(), sources)
    }
}

/// Runs a plan of one file and returns its bytes.
pub(crate) fn write(plan: Plan, target: &Path, options: &FileOptions<'_>) -> Result<u64> {
    let mut bar = Bar::stoppable("writing", Unit::Bytes)?;
    Ok(write_plan(plan, target, options, &mut bar)?.report.bytes)
}

/// Returns the fields `output`, and `bytes` if a file was written.
pub(crate) fn output_fields(target: &Path, bytes: Option<u64>) -> impl Serialize {
    fields! {
        output: bytes.map(|_| target.to_string_lossy()),
        #[serde(flatten)]
        bytes: bytes.map(|bytes| fields! { bytes: bytes }),
    }
}
