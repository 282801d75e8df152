use statelens_checkpoint::{
    Builder, Checkpoint, Error, FileSet, Finding, FormatInfo, Grade, Limits, Progress, Result,
};
use statelens_pickle::{Broken, NoStorages, ScanOptions};

use super::folder::FolderStorages;

pub(crate) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    progress.check(0, 0)?;
    let bytes = bytes(&files, limits)?;
    let pickle = statelens_pickle::read(&bytes, 0, limits).map_err(describe)?;
    progress.check(0, 0)?;
    let (mut findings, _) =
        statelens_pickle::scan_pickles(&bytes, 0, limits, &ScanOptions::default());
    let rest = bytes.len() as u64 - pickle.end();
    if rest > 0 {
        findings.push(
            Finding::new(
                Grade::Note,
                match rest {
                    1 => "1 byte follows the pickle".to_owned(),
                    rest => format!("{rest} bytes follow the pickle"),
                },
            )
            .detail("Python's `pickle.load` ignores them; they are not shown.")
            .place(format!("byte {}", pickle.end())),
        );
    }
    let mut builder = Builder::new(limits);
    let unpacked = FolderStorages::of(&files)?;
    let name = if unpacked.is_some() { "PyTorch, unpacked" } else { "Python pickle" };
    let lowered = match unpacked {
        Some(mut storages) => pickle.lower(&mut builder, &mut storages)?,
        None => pickle.lower(&mut builder, &mut NoStorages::default())?,
    };
    findings.extend(lowered.findings);
    let format = FormatInfo {
        id: "pickle",
        name,
        version: pickle.protocol().to_string(),
        ..FormatInfo::default()
    };
    builder.finish(lowered.root, format, files, findings)
}

/// Returns findings about what a truncated or invalid pickle would do before it fails.
pub(crate) fn scan_broken(broken: Broken, options: &ScanOptions) -> Vec<Finding> {
    broken.scan(options)
}

/// Returns the error of the pickle, extended by the danger found before that point.
pub(crate) fn describe(broken: Broken) -> Error {
    let worst = broken
        .scan(&ScanOptions::default())
        .into_iter()
        .find(|finding| finding.grade == Grade::Danger);
    match worst {
        Some(worst) => {
            let error = broken.error;
            error.advice(format!("Beware of the part before that: {}.", worst.title))
        }
        None => broken.error,
    }
}

fn bytes(files: &FileSet, limits: &Limits) -> Result<Vec<u8>> {
    let main = files.main()?;
    let len = files.len(main);
    Limits::check("bytes of a pickle", len, limits.structure)?;
    files.read_vec(main, 0, len)
}
