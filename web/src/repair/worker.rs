//! Rewrites of a Cerebras checkpoint: upgraded, repaired, or with the state of its dataloader;
//! their changes and plans.

use statelens_checkpoint::{Checkpoint, Error, FileSet, Finding, Grade, Plan, Result};
use statelens_formats::cerebras::dataloader::{
    DataState, GLOBAL, Loader, MAX_STATE_BYTES, is_state_file,
};
use statelens_formats::cerebras::fix::{Fixed, fix};
use statelens_formats::cerebras::rewrite::{check_whole, is_old, repair, upgrade, with_dataloader};

use crate::convert::message::{ConvertOptions, Loss, LossId, PlanSummary};
use crate::repair::message::{Rewrite, RewriteOffer};
use crate::state::fmt::{exact, plural};
use crate::worker::command_line::command_line;
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;
use crate::{plan, text};

/// Returns the rewrites that can be offered, and adds findings for those that are advisable.
pub fn offers(checkpoint: &Checkpoint, findings: &mut Vec<Finding>) -> Vec<RewriteOffer> {
    let mut offers = Vec::new();
    let version = checkpoint.format.version.as_str();
    if is_old(checkpoint) {
        let spec = spec(checkpoint, findings, &mut offers);
        let at = findings.len() as u32;
        findings.push(old_format(version, spec));
        let upgrade = match check_whole(checkpoint, false) {
            Ok(()) => Some(offer(
                Rewrite::Upgrade { to: "0.5".into() },
                "Upgrade to 0.5",
                "Writes format 0.5, which releases 2.5 to 2.10 load. No value changes.",
            )),
            // The repair finds the missing keys under their other names.
            Err(_) if spec == Some(true) => Some(offer(
                Rewrite::Fix { upgrade: true },
                "Fix and upgrade to 0.5",
                "Repairs the spec and writes format 0.5, which releases 2.5 to 2.10 load.",
            )),
            Err(_) => None,
        };
        offers.extend(upgrade.map(|offer| RewriteOffer { finding: Some(at), ..offer }));
    } else if statelens_formats::cerebras::is_cerebras(checkpoint) {
        offers.push(offer(
            Rewrite::Upgrade { to: "0.4".into() },
            "Write 0.4 for older releases",
            "Releases 2.0 to 2.4 load format 0.4, but not 0.5. No value changes.",
        ));
    }
    if let Some((folder, state)) = data_state(&checkpoint.files) {
        data(checkpoint, &folder, state, findings, &mut offers);
    }
    offers
}

/// Plans the rewrite of [`ConvertOptions::rewrite`].
///
/// # Errors
/// The errors of the command: a checkpoint that is not whole, a key that is missing under each of
/// its names, a state file that can't be read.
pub fn plan(
    open: &OpenCheckpoint,
    rewrite: &Rewrite,
    options: &ConvertOptions,
    job: &Job,
) -> Result<(Plan, PlanSummary)> {
    let (source, name) = (&open.checkpoint, options.name.as_str());
    let before = source.format.version.as_str();
    let becomes = |to: &str| {
        format!(
            "format {before}, used by {}, becomes {to}, used by {}",
            releases(before),
            releases(to)
        )
    };
    let mut changes = Vec::new();
    let mut replaced = None;
    let plan = match rewrite {
        Rewrite::Upgrade { to } => {
            changes.push(becomes(to));
            upgrade(source, to, name, false)?
        }
        Rewrite::Fix { upgrade } => {
            let (fixed, plan) = repair(source, *upgrade, name)?;
            changes = repairs(&fixed);
            if *upgrade {
                changes.push(becomes("0.5"));
            }
            plan
        }
        Rewrite::Dataloader { iterable, seed, to } => {
            let (_, state) = data_state(&source.files).ok_or_else(|| {
                Error::io("the files with the state of the dataloader are no longer open")
            })?;
            let state = state?;
            let loader = loader(*iterable, seed)?;
            let (plan, replaces) = with_dataloader(source, &state, &loader, to, name)?;
            changes.push(data_state_text(&state));
            changes.push(match &loader {
                Loader::Map { seed } => format!(
                    "`dataloader.samples_streamed` is {}, `dataloader.seed` {seed}",
                    exact(state.samples())
                ),
                Loader::Iterable => {
                    let workers = plural(state.workers.len() as u64, "worker");
                    format!("`dataloader.all_worker_states` has the samples of {workers}")
                }
            });
            if before != to {
                changes.push(becomes(to));
            }
            replaced = replaces.then(|| Loss {
                id: LossId::ReplacedDataloader,
                title: "The existing state `dataloader` is replaced".into(),
                reason: "The new file has the state from these files instead.".into(),
            });
            Some(plan)
        }
    };
    let plan = plan
        .ok_or_else(|| Error::refused("there is nothing to repair: the checkpoint is correct"))?;
    let mut planned = plan::worker::summary::describe(open, &plan, options, job)?;
    planned.losses.extend(replaced);
    planned.changes = changes;
    planned.command = command(open, rewrite, name);
    Ok((plan, planned))
}

/// Offers the repairs that the spec needs. Returns whether it needs any, if known.
fn spec(
    checkpoint: &Checkpoint,
    findings: &mut Vec<Finding>,
    offers: &mut Vec<RewriteOffer>,
) -> Option<bool> {
    match fix(checkpoint) {
        Ok(fixed) if fixed.repairs.is_empty() => Some(false),
        Ok(fixed) => {
            offers.push(RewriteOffer {
                finding: Some(findings.len() as u32),
                lines: repairs(&fixed),
                ..offer(
                    Rewrite::Fix { upgrade: true },
                    "Fix the spec",
                    "Same as `fix_checkpoint_spec.py`. It can also upgrade in the same step.",
                )
            });
            let repairs = plural(fixed.repairs.len() as u64, "repair");
            findings.push(
                Finding::new(Grade::Warning, format!("The spec needs {repairs}"))
                    .detail("Releases 2.0 and later don't load it without the repair."),
            );
            Some(true)
        }
        Err(error) => {
            let error = text::error(&error);
            let advice: String = error.next.iter().map(|(text, _)| text.as_str()).collect();
            findings.push(
                Finding::new(Grade::Warning, "The spec can't be repaired")
                    .detail(error.title)
                    .advice(advice),
            );
            None
        }
    }
}

fn repairs(fixed: &Fixed) -> Vec<String> {
    let mut lines: Vec<String> = fixed.repairs.iter().map(|repair| repair.needed()).collect();
    if fixed.no_global_step {
        lines.push("the last epochs are unchanged: there is no global_step to set them to".into());
    }
    lines
}

fn old_format(version: &str, spec: Option<bool>) -> Finding {
    let untyped = matches!(version, "0.1" | "0.2");
    let later = if untyped {
        "Releases later than 2.5 don't load it."
    } else {
        "Later releases still load it."
    };
    let spec = match spec {
        Some(false) => " Its spec needs no repair.",
        _ => "",
    };
    let grade = if untyped { Grade::Warning } else { Grade::Note };
    Finding::new(grade, format!("Format {version}, used by {}", releases(version)))
        .detail(format!("{later}{spec}"))
}

/// Offers to add the dataloader's state from files that came with the checkpoint.
fn data(
    checkpoint: &Checkpoint,
    folder: &str,
    state: Result<DataState>,
    findings: &mut Vec<Finding>,
    offers: &mut Vec<RewriteOffer>,
) {
    let state = match state {
        Ok(state) => state,
        Err(error) => {
            let error = text::error(&error);
            findings.push(
                Finding::new(Grade::Warning, "The state of the dataloader can't be read")
                    .detail(format!("{} {}", error.title, error.text).trim())
                    .place(text::place(&error)),
            );
            return;
        }
    };
    let there = match checkpoint.leaves().iter().any(|leaf| {
        let key = leaf.flat.to_lossy();
        key == "dataloader" || key.starts_with("dataloader.")
    }) {
        true => " It would replace the state `dataloader` of the checkpoint.",
        false => "",
    };
    offers.push(RewriteOffer {
        finding: Some(findings.len() as u32),
        ..offer(
            Rewrite::Dataloader { iterable: false, seed: "0".into(), to: "0.4".into() },
            "Add the dataloader state",
            "Writes the state `dataloader`, as `data_iter_state_conversion.py` does.",
        )
    });
    findings.push(
        Finding::new(Grade::Note, "Dataloader state in the files of release 1.9")
            .detail(format!("{}.{there}", text::title(&data_state_text(&state))))
            .place(folder),
    );
}

/// Describes the dataloader's state in a line.
fn data_state_text(state: &DataState) -> String {
    format!(
        "{} at step {}, {} streamed in total",
        plural(state.workers.len() as u64, "worker"),
        exact(state.step),
        plural(state.samples(), "sample")
    )
}

/// Reads the dataloader's state from its files, and returns it with their folder; `None` if
/// none of them is open.
fn data_state(files: &FileSet) -> Option<(String, Result<DataState>)> {
    let parts = |name: &str| match name.rsplit_once('/') {
        Some((folder, base)) => (folder.to_owned(), base.to_owned()),
        None => (String::new(), name.to_owned()),
    };
    let all = || files.iter().map(|(id, file)| (id, parts(&file.name)));
    let is_global = |base: &str| base == GLOBAL;
    let mut known = all().filter(|(_, (_, base))| is_state_file(base));
    let folder = match all().find(|(_, (_, base))| is_global(base)) {
        Some((_, (folder, _))) => folder,
        None => known.next()?.1.0,
    };
    let read = || {
        let mut state = Vec::new();
        for (id, (of, base)) in all() {
            if of == folder && is_state_file(&base) {
                state.push((base, files.read_vec(id, 0, files.len(id).min(MAX_STATE_BYTES))?));
            }
        }
        DataState::read(&state)
    };
    let state = read().map_err(|error| match error.file().filter(|_| !folder.is_empty()) {
        // The error names a file in the folder.
        Some(base) => {
            let named = Error::new(error.kind(), error.what()).in_file(format!("{folder}/{base}"));
            match error.expectation() {
                Some(expected) => named.expected(expected),
                None => named,
            }
        }
        None => error,
    });
    Some((folder, state))
}

fn loader(iterable: bool, seed: &str) -> Result<Loader> {
    if iterable {
        return Ok(Loader::Iterable);
    }
    let seed = seed.trim().parse().map_err(|_| {
        Error::refused(format!("`{seed}` is not a seed")).expected("a whole number of 64 bits")
    })?;
    Ok(Loader::Map { seed })
}

/// Returns the releases that write a format version.
fn releases(version: &str) -> &'static str {
    match version {
        "0.1" => "release 1.7 and older",
        "0.2" => "release 1.8",
        "0.3" => "release 1.9",
        "0.4" => "releases 2.0 to 2.4",
        "0.5" => "releases 2.5 to 2.10",
        _ => "an unknown release",
    }
}

/// Returns the equivalent command.
fn command(open: &OpenCheckpoint, rewrite: &Rewrite, name: &str) -> String {
    let source = open.source_name();
    let words = match rewrite {
        Rewrite::Upgrade { to } => vec!["upgrade", &source, "--to", to, "-o", name],
        Rewrite::Fix { upgrade } => {
            let mut words = vec!["fix-checkpoint-spec", &source, "--fixed_checkpoint_path", name];
            words.extend(upgrade.then_some("--upgrade"));
            words
        }
        Rewrite::Dataloader { iterable, seed, to } => {
            let folder = data_state(&open.checkpoint.files).map(|(folder, _)| folder);
            let folder = folder.filter(|folder| !folder.is_empty()).unwrap_or(".".into());
            let kind = if *iterable { "iterable" } else { "map" };
            let mut words = vec!["convert-dataloader-state", "-c", &source, "-w", &folder];
            words.extend(["-o", name, "-d", kind, "--to", to]);
            if !iterable {
                words.extend(["-s", seed.trim()]);
            }
            return command_line(&words);
        }
    };
    command_line(&words)
}

fn offer(rewrite: Rewrite, label: &str, text: &str) -> RewriteOffer {
    RewriteOffer {
        rewrite,
        label: label.into(),
        text: text.into(),
        lines: Vec::new(),
        finding: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statelens_checkpoint::Memory;
    use std::sync::Arc;

    fn set(files: &[(&str, &str)]) -> FileSet {
        let mut set = FileSet::default();
        for (name, text) in files {
            set.push(*name, Arc::new(Memory::from(text.as_bytes().to_vec())));
        }
        set
    }

    #[test]
    fn dataloader_state_files_are_named_with_their_folder() {
        let global = format!("run/iter/{GLOBAL}");
        let worker = "run/iter/data_iter_state_file_worker_0_step_100.txt";
        let files =
            [("run/a.mdl", ""), (global.as_str(), "100\n"), (worker, "7"), ("b/x.txt", "no")];
        let (folder, state) = data_state(&set(&files)).unwrap();
        assert_eq!(folder, "run/iter");
        assert_eq!(state.unwrap(), DataState { step: 100, workers: vec![(0, 7)] });
        let files = [(global.as_str(), "100"), (worker, "seven")];
        let error = data_state(&set(&files)).unwrap().1.unwrap_err();
        assert_eq!(error.file(), Some(worker));
        assert!(data_state(&set(&[("a.mdl", ""), ("a.txt", "")])).is_none());
    }

    #[test]
    fn rejects_seeds_that_are_not_numbers() {
        assert_eq!(loader(false, " -3 ").unwrap(), Loader::Map { seed: -3 });
        assert_eq!(loader(true, "").unwrap(), Loader::Iterable);
        assert!(loader(false, "x").unwrap_err().to_string().contains("`x`"));
    }
}
