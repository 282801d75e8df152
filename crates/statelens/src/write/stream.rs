//! Runs a plan whose output goes to a stream, such as standard output.

use std::io::{self, Read as _, Seek as _, Write};
use std::sync::Arc;

use statelens_checkpoint::{Error, Plan, Progress, Result};
use statelens_compare::ReadBack;
use statelens_convert::RunReport;

use super::{FileOptions, Finishing};
use crate::sink::FileSink;
use crate::{executor, files, scratch};

/// Writes the output to an unnamed file on disk, reads it back, and only then copies it to the
/// stream, which errors call `name`.
pub fn write_stream(
    plan: Plan,
    out: &mut dyn Write,
    name: &str,
    options: &FileOptions<'_>,
    progress: &mut dyn Progress,
) -> Result<RunReport> {
    options.check_losses(&plan)?;
    stream(plan, out, name, options, progress).map_err(|error| error.in_file(name))
}

fn stream(
    plan: Plan,
    out: &mut dyn Write,
    name: &str,
    options: &FileOptions<'_>,
    progress: &mut dyn Progress,
) -> Result<RunReport> {
    plan.bounded(options.limits)?;
    let file = Arc::new(scratch::unnamed()?);
    let (read_back, source) = (ReadBack::of(&plan), plan.source.clone());
    let mut sink = FileSink::new(vec![file.clone()]);
    let report = executor::run(plan, &mut sink, progress)?;
    options.check_run(&source, &report)?;
    sink.finish()?;
    let mut progress = Finishing { of: progress, bytes: report.bytes };
    read_back.check(vec![files::written(&file)?], options.limits, &mut progress)?;
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::BrokenPipe => {
            Error::io(format!("{name} was closed before everything was written"))
        }
        _ => Error::io(format!("writing to {name} failed: {error}")),
    };
    let mut file = &*file;
    file.rewind().map_err(failed)?;
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

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{Limits, Segment, Unwatched};

    use super::*;

    #[test]
    fn stream_stays_empty_if_verification_fails() {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures");
        let source = format!("{fixtures}/torch/zip_module_state_dict.pt");
        let checkpoint = crate::open(source).unwrap();
        let conversion = crate::convert(&checkpoint, crate::Target::Safetensors);
        let plan = conversion.plan("out.safetensors").unwrap();
        let limits = Limits::default();
        let write = |out: &mut Vec<u8>, plan| {
            let options = FileOptions::new(&limits, &[]);
            write_stream(plan, out, "the output", &options, &mut Unwatched)
        };
        let mut printed = Vec::new();
        let mut wrong = plan.clone();
        wrong.files[0].segments = vec![Segment::Bytes((*b"weights and nothing else").into())];
        let error = write(&mut printed, wrong).unwrap_err();
        assert!(error.to_string().contains("can't be opened again"), "{error}");
        assert!(printed.is_empty());
        let report = write(&mut printed, plan).unwrap();
        assert_eq!(printed.len() as u64, report.bytes);
    }
}
