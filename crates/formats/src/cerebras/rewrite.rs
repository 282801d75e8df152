//! Rewrites Cerebras checkpoints as Cerebras checkpoints: with another format version, repaired, or
//! with a dataloader state. Shared by the commands and the page.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Error, FindingKind, Grade, Plan, Result, Setting, advice};

use super::dataloader::{DataState, Loader};
pub use super::fix::check_format;
use super::fix::{Fixed, fix, is_legacy};
use super::write::{self, Version, WriteOptions};

/// Plans a file with format version `to`, 0.5 or 0.4. Returns `None` if the checkpoint already has
/// that version. Refuses damaged checkpoints unless `lossy`.
pub fn upgrade(
    source: &Arc<Checkpoint>,
    to: &str,
    name: &str,
    lossy: bool,
) -> Result<Option<Plan>> {
    check_format(source)?;
    if source.format.version == to {
        return Ok(None);
    }
    if !lossy {
        check_version(source)?;
        check_whole(source, false).map_err(|error| {
            error.advice(advice![
                "If the missing weights are in the file under another name, as in checkpoints of \
                 release 1.7, use ",
                Setting::FixSpec,
                ". To write the rest: ",
                Setting::UpgradeLossy,
                ".",
            ])
        })?;
    }
    planned(source.clone(), version(to)?, name).map(Some)
}

/// Repairs a checkpoint and plans its file, either in the same format version, as the original
/// script does, or upgraded to 0.5. There is no plan if nothing needs a repair and `upgrade` is
/// false.
pub fn repair(source: &Checkpoint, upgrade: bool, name: &str) -> Result<(Fixed, Option<Plan>)> {
    let fixed = fix(source)?;
    // Weights that are still missing here were found under their other names.
    check_whole(source, true)?;
    if fixed.repairs.is_empty() && !upgrade {
        return Ok((fixed, None));
    }
    let version = match (upgrade, source.format.version.as_str()) {
        (true, _) => Version::V05,
        (false, "0.1" | "0.2") => Version::V01,
        (false, _) => Version::V04,
    };
    let plan = planned(Arc::new(fixed.checkpoint.clone()), version, name)?;
    Ok((fixed, Some(plan)))
}

/// Plans a file of format `to` with the state `dataloader`. Also returns whether that replaces an
/// existing one.
pub fn with_dataloader(
    source: &Checkpoint,
    state: &DataState,
    loader: &Loader,
    to: &str,
    name: &str,
) -> Result<(Plan, bool)> {
    check_whole(source, false)?;
    let (checkpoint, replaced) = state.put_into(source, loader)?;
    Ok((planned(Arc::new(checkpoint), version(to)?, name)?, replaced))
}

/// Refuses format versions above 0.5: the file was read as 0.5, and anything new would be lost.
fn check_version(source: &Checkpoint) -> Result<()> {
    let version = &source.format.version;
    match version.parse::<f64>() {
        Ok(newer) if newer > 0.5 => Err(Error::refused(format!(
            "the format version {version} is newer than 0.5, and was read as 0.5"
        ))
        .advice(advice![
            "To write the parts that were understood: ",
            Setting::UpgradeLossy,
            "."
        ])),
        _ => Ok(()),
    }
}

/// Returns whether [`repair`] or [`upgrade`] may apply.
pub fn is_old(source: &Checkpoint) -> bool {
    source.format.id == "cerebras-h5" && is_legacy(source)
}

/// Returns `folder/stem` + `end` + `.suffix` for a file `folder/stem.suffix`.
pub fn with_suffix(path: &Path, end: &str) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push(end);
    if let Some(suffix) = path.extension() {
        name.push(".");
        name.push(suffix);
    }
    path.with_file_name(name)
}

/// Refuses a damaged checkpoint, since the rewritten file would look undamaged. With `but_missing`,
/// values that are missing from the file are accepted.
pub fn check_whole(checkpoint: &Checkpoint, but_missing: bool) -> Result<()> {
    let passed = |kind| but_missing && kind == FindingKind::MissingValues;
    let mut findings = checkpoint.findings.iter();
    let found = findings.find(|found| found.grade == Grade::Damage && !passed(found.kind));
    match found {
        None => Ok(()),
        Some(found) => {
            Err(Error::refused(format!("the checkpoint is incomplete: {}", found.title)))
        }
    }
}

fn version(id: &str) -> Result<Version> {
    match id {
        "0.5" => Ok(Version::V05),
        "0.4" => Ok(Version::V04),
        _ => Err(Error::refused(format!("format {id} can't be written")).expected("0.5 or 0.4")),
    }
}

fn planned(source: Arc<Checkpoint>, version: Version, name: &str) -> Result<Plan> {
    let options = WriteOptions { version, ..WriteOptions::default() };
    crate::plan_by(source, crate::writing("cerebras")?, |source| {
        write::plan(source, &options, name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_a_suffix_to_the_file_name() {
        for (path, expected) in [
            ("a/checkpoint_1.7.mdl", "a/checkpoint_1.7_fixed.mdl"),
            ("plain", "plain_fixed"),
            (".hidden", ".hidden_fixed"),
        ] {
            assert_eq!(with_suffix(Path::new(path), "_fixed"), Path::new(expected));
        }
    }

    #[test]
    fn writes_only_versions_0_4_and_0_5() {
        assert!(version("0.5").is_ok() && version("0.4").is_ok());
        assert!(version("0.3").unwrap_err().to_string().contains("0.5 or 0.4"));
    }
}
