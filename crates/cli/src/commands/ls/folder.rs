//! Lists the checkpoints of a folder.

use std::path::{Path, PathBuf};

use statelens::parts::describe::FileGrade;
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
        let format = info.format_text();
        let cells = vec![
            grade.word().to_owned(),
            format.clone(),
            grouped(info.all.tensors),
            grouped(info.all.bytes),
        ];
        let json = Box::new(move |json: &mut statelens::parts::values::Json| {
            json.name("grade").str(grade.word());
            json.name("format").str(&format);
            json.name("tensors").number(info.all.tensors);
            json.name("bytes").number(info.all.bytes);
        });
        Ok(several::FileRow { cells, json, answer: true, incomplete: false })
    })
}
