//! Lists the checkpoints of a folder.

use std::path::{Path, PathBuf};

use statelens::parts::describe::FileGrade;
use statelens::parts::values::fields;
use statelens::{Error, files};

use crate::args::Ls;
use crate::commands::several;
use crate::print::{CommandResult, grouped};

/// Returns the checkpoints of a folder that `ls` can't open as one; `None` for anything else.
pub(super) fn checkpoints(args: &Ls) -> Option<Vec<PathBuf>> {
    let folder = args.input.file.as_path();
    if !folder.is_dir() || files::named(folder).is_ok() {
        return None;
    }
    let (_, found) = files::checkpoints(folder, |_| true).ok()?;
    let paths: Vec<PathBuf> = found.iter().map(|one| folder.join(&one.main)).collect();
    (paths.len() > 1).then_some(paths)
}

/// Prints each checkpoint with its grade.
pub(super) fn print(args: &Ls, paths: &[PathBuf]) -> CommandResult {
    let with = &args.input.common.with;
    let heads = ["grade", "format", ">tensors", ">bytes"];
    several::each(paths, &heads, args.input.common.json, |path: &Path| -> Result<_, Error> {
        let checkpoint = crate::commands::open(path, with)?;
        let info = checkpoint.info(None, false)?;
        let (grade, _) = FileGrade::of_findings(&info.findings);
        let cells = vec![
            grade.word().to_owned(),
            info.format.name.text(),
            grouped(info.totals.all.tensors),
            grouped(info.totals.all.bytes),
        ];
        let report = fields! {
            grade: grade.word(),
            format: info.format.name.text(),
            tensors: info.totals.all.tensors,
            bytes: info.totals.all.bytes,
        };
        Ok(several::FileRow { cells, report, answer: true, incomplete: false })
    })
}
