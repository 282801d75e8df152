//! Writes a plan to a file that appears when it is complete.

use std::path::Path;

use statelens::Result;
use statelens::parts::checkpoint::Plan;
use statelens::write::{FileOptions, write_plan};

use crate::progress::{Bar, Unit};

/// Runs a plan of one file and returns its bytes.
pub(crate) fn write(plan: Plan, target: &Path, options: &FileOptions<'_>) -> Result<u64> {
    let mut bar = Bar::stoppable("writing", Unit::Bytes)?;
    Ok(write_plan(plan, target, options, &mut bar)?.bytes)
}
