//! Runs a plan whose output goes to standard output.

use std::io::{self, Read as _, Seek as _, Write};
use std::sync::Arc;

use statelens::dividing;
use statelens::sink::FileSink;
use statelens_checkpoint::{Error, Plan, Progress, Result};
use statelens_compare::ReadBack;
use statelens_convert::RunReport;

use crate::limits::limits;
use crate::{scratch, source};

/// Writes the output to an unnamed file on disk, reads it back, and only then copies it to standard
/// output.
pub(super) fn to_standard_output(
    plan: Plan,
    judge: &dyn Fn(&RunReport) -> Result<()>,
    progress: &mut dyn Progress,
) -> Result<RunReport> {
    to(&mut io::stdout(), plan, judge, progress)
}

fn to(
    out: &mut dyn Write,
    plan: Plan,
    judge: &dyn Fn(&RunReport) -> Result<()>,
    progress: &mut dyn Progress,
) -> Result<RunReport> {
    plan.bounded(limits())?;
    let file = Arc::new(scratch::unnamed()?);
    let read_back = ReadBack::of(&plan);
    let mut sink = FileSink::new(vec![file.clone()]);
    let report = dividing::run(plan, &mut sink, progress)?;
    judge(&report)?;
    sink.finish()?;
    read_back.check(vec![source::written(&file)?], limits(), progress)?;
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::BrokenPipe => Error::io(
            "standard output was closed before everything was \
                                                written",
        ),
        _ => Error::io(format!("writing to standard output failed: {error}")),
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
    use statelens_checkpoint::{Segment, Unwatched};

    use super::*;

    #[test]
    fn stdout_stays_empty_if_verification_fails() {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures");
        let source = format!("{fixtures}/torch/zip_module_state_dict.pt");
        let checkpoint = statelens::open(source).unwrap();
        let conversion = statelens::convert(&checkpoint, statelens::Target::Safetensors);
        let plan = conversion.plan("out.safetensors").unwrap();
        let mut printed = Vec::new();
        let mut wrong = plan.clone();
        wrong.files[0].segments = vec![Segment::Bytes((*b"weights and nothing else").into())];
        let error = to(&mut printed, wrong, &|_| Ok(()), &mut Unwatched).unwrap_err();
        assert!(error.to_string().contains("can't be opened again"), "{error}");
        assert!(printed.is_empty());
        let report = to(&mut printed, plan, &|_| Ok(()), &mut Unwatched).unwrap();
        assert_eq!(printed.len() as u64, report.bytes);
    }
}
