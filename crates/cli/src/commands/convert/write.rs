//! Running a plan.

use std::fs;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use statelens_checkpoint::{Error, Plan, Progress, Result};
use statelens_convert::{Report, run_blocking};
use statelens_inspect::ReadBack;

use super::{Destination, Job};
use crate::limits::limits;
use crate::output::{Folders, Output, check_target, keep_all, old_shards, same_file};
use crate::scratch;
use crate::sink::FileSink;
use crate::source::{self, FileSource};

/// Writes files of the disk, which get their names when all are complete and `judge` has nothing
/// against what became of them.
pub(super) fn to_files(
    paths: &[PathBuf],
    plan: Plan,
    job: &Job<'_>,
    sources: &[Arc<FileSource>],
    judge: &dyn Fn(&Report) -> Result<()>,
    progress: &mut dyn Progress,
) -> Result<Report> {
    let size = plan.size()?.bytes();
    let in_place = matches!(job.destination, Destination::InPlace(_));
    let replace = job.writes.force || in_place;
    for path in paths.iter().filter(|_| !in_place) {
        // And again, for good, when the file gets its name.
        check_target(path, replace, sources)?;
    }
    let mut folders = Folders::make(paths.first().and_then(|path| path.parent()))?;
    let mut outputs = Vec::new();
    for path in paths {
        // The room for all of them is asked for with the first.
        let room = if outputs.is_empty() { size } else { 0 };
        outputs.push(Output::create(path, replace, room)?);
    }
    if let [only] = &outputs[..] {
        only.reserve(size)?;
    }
    let read_back = ReadBack::of(&plan);
    let mut sink = FileSink::new(outputs.iter().map(|output| output.file.clone()).collect());
    let report = run_blocking(plan, &mut sink, progress)?;
    judge(&report)?;
    sink.finish()?;
    let written = outputs.iter().map(|output| source::written(&output.file));
    read_back.check(written.collect::<Result<_>>()?, limits(), progress)?;
    let old = if in_place { Vec::new() } else { old_shards(paths) };
    keep_all(outputs, job.writes.durable.sync())?;
    folders.keep();
    // Only now that nothing names them any more. The checkpoint that was read may be among them.
    for shard in
        old.iter().filter(|old| !sources.iter().any(|source| same_file(old, source.path())))
    {
        fs::remove_file(shard).map_err(|error| {
            Error::io(format!("this shard of the replaced checkpoint can't be removed: {error}"))
                .in_file(shard.display().to_string())
                .advice("The new checkpoint is complete; nothing names this file any more.")
        })?;
    }
    Ok(report)
}

/// Writes to standard output what is complete and was read back: until then it is on disk, in a
/// file without a name.
pub(super) fn to_standard_output(
    plan: Plan,
    judge: &dyn Fn(&Report) -> Result<()>,
    progress: &mut dyn Progress,
) -> Result<Report> {
    let file = Arc::new(scratch::unnamed()?);
    let read_back = ReadBack::of(&plan);
    let mut sink = FileSink::new(vec![file.clone()]);
    let report = run_blocking(plan, &mut sink, progress)?;
    judge(&report)?;
    sink.finish()?;
    read_back.check(vec![source::written(&file)?], limits(), progress)?;
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::BrokenPipe => {
            Error::io("whoever reads standard output went away before its end")
        }
        _ => Error::io(format!("writing to standard output failed: {error}")),
    };
    let mut file = &*file;
    file.rewind().map_err(failed)?;
    let mut out = io::stdout().lock();
    let mut buffer = vec![0; 256 << 10];
    loop {
        let read = file.read(&mut buffer).map_err(failed)?;
        if read == 0 {
            break;
        }
        out.write_all(&buffer[..read]).map_err(failed)?;
    }
    out.flush().map_err(failed)?;
    Ok(report)
}
