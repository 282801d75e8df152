//! Writes a plan to a file that appears when it is complete.

use std::path::Path;
use std::sync::Arc;

use statelens::parts::checkpoint::Plan;
pub(crate) use statelens::write::Replace;
use statelens::write::{FileOptions, write_files};
use statelens::{Error, Result};

use crate::commands::convert::refuse_losses;
use crate::limits::limits;
use crate::output::{Sync, stop_signal};
use crate::progress::{Bar, Unit};
use crate::source::FileSource;

/// Returns what may be replaced, by `--force`.
pub(crate) fn forced(force: bool) -> Replace {
    if force { Replace::Any } else { Replace::Nothing }
}

/// Runs a plan of one file and returns its bytes. Refuses losses unless `lossy`.
pub(crate) fn write(
    plan: Plan,
    target: &Path,
    replace: Replace,
    sources: &[Arc<FileSource>],
    lossy: bool,
    sync: Sync,
) -> Result<u64> {
    if plan.loses() && !lossy {
        return Err(refuse_losses(&plan.losses));
    }
    let mut bar = Bar::new("writing", Unit::Bytes).stopped_by(stop_signal()?);
    let writing = FileOptions { replace, sync, limits: limits(), sources };
    write_files(&[target.to_owned()], plan, &writing, &|_| Ok(()), &mut bar)
        .map(|report| report.bytes)
        .map_err(|error| match error.file() {
            Some(_) => error,
            None => error.in_file(target.display().to_string()),
        })
}

/// Returns the name of a file.
pub(crate) fn file_name(path: &Path) -> Result<&str> {
    path.file_name().and_then(std::ffi::OsStr::to_str).ok_or_else(|| {
        Error::refused("this does not name a file").in_file(path.display().to_string())
    })
}
