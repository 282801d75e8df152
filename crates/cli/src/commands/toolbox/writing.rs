//! Writing a plan to a file that appears when it is complete.

use std::path::Path;
use std::sync::Arc;

use statelens_checkpoint::{Error, Plan, Result};
use statelens_convert::run_blocking;
use statelens_inspect::ReadBack;

use crate::commands::convert::refuse_losses;
use crate::limits::limits;
use crate::output::{Folders, Output, Sync, check_target, keep_all, stop_signal};
use crate::progress::{Bar, Unit};
use crate::sink::FileSink;
use crate::source::{self, FileSource};

/// What may stand under the name of the file to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Replace {
    /// Nothing.
    Nothing,
    /// Another file, which is replaced once the new one is complete.
    Any,
    /// The checkpoint that is read, which is replaced once the new file is complete.
    Source,
}

impl Replace {
    /// What `--force` asks for.
    pub(super) fn forced(force: bool) -> Self {
        if force { Self::Any } else { Self::Nothing }
    }
}

/// Runs a plan of one file; returns its bytes. Where something would be lost it is refused,
/// unless that was agreed to.
pub(super) fn write(
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
    if replace != Replace::Source {
        check_target(target, replace == Replace::Any, sources)?;
    }
    let replace = replace != Replace::Nothing;
    let mut folders = Folders::make(target.parent())?;
    let mut bar = Bar::new("writing", Unit::Bytes).stopped_by(stop_signal()?);
    let size = plan.size()?.bytes();
    let output = Output::create(target, replace, size)?;
    output.reserve(size)?;
    let named = |error: Error| match error.file() {
        Some(_) => error,
        None => error.in_file(target.display().to_string()),
    };
    let read_back = ReadBack::of(&plan);
    let mut sink = FileSink::new(vec![output.file.clone()]);
    let report = run_blocking(plan, &mut sink, &mut bar).map_err(named)?;
    sink.finish().map_err(named)?;
    let written = vec![source::written(&output.file)?];
    read_back.check(written, limits(), &mut bar).map_err(named)?;
    keep_all(vec![output], sync)?;
    folders.keep();
    Ok(report.bytes)
}

/// The name of a file, as plans want it.
pub(super) fn file_name(path: &Path) -> Result<&str> {
    path.file_name().and_then(std::ffi::OsStr::to_str).ok_or_else(|| {
        Error::refused("this does not name a file").in_file(path.display().to_string())
    })
}
