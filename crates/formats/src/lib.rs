//! Checkpoint formats, one folder each. Each folder has `detect` (a score from the first bytes),
//! `read` (files to a [`Checkpoint`]), `write` (a checkpoint to a [`Plan`]) and tests.
//!
//! Nothing here reads weights: opening a checkpoint reads only its structure.
//!
//! **Detection.** Every format scores the first bytes (`Probe` → `Score`); the highest score wins,
//! and the order of `FORMATS` breaks ties. A file name counts only if no content matches. Sets of
//! files are found by name or through their index; a missing file gives `Layout::Missing` and a
//! finding. Shards that are complete checkpoints are opened one by one and joined in
//! `formats/src/sets/`; output shards are assigned in `formats/src/shards.rs`.
//!
//! **`scan`** tries every reader on a file, not just the best one, because the loader decides how
//! it reads a file (`formats/src/scan`). A `Search` queues blobs: the file, archive members,
//! decompressed data. Each is tried as every container and pickle from its start and its end;
//! afterwards all bytes are searched for more starts. Anything that a limit excludes is a finding.
//! `docs/scan.md` describes what it reports.
//!
//! **PyTorch output** is a protocol 2 pickle that `torch.load(weights_only=True)` accepts. Several
//! views of one storage share a record, so they share memory after loading; a single view is
//! written densely. CRC-32s follow the data, as torch writes them.
//!
//! **Libraries.** `hdf5-reader` reads HDF5 messages, chunk indexes and some filters. Our own code
//! reads object headers, attributes, old layouts and large heaps: one bad object must not hide its
//! group, 60,000 datasets must not stay in memory, and datasets over 4 GiB must open on wasm32.
//! `docs/upstream` has patches for that crate. `zip` reads archive directories; we write archives
//! ourselves, because a plan only points to the data.

#![allow(missing_docs, reason = "a part of `statelens`: its names are not a public interface")]

mod advice;
mod archive;
pub mod archives;
mod attributes;
mod blocks;
mod budget;
pub mod cerebras;
pub mod checks;
mod checksums;
#[cfg(test)]
mod counted;
mod crc;
#[cfg(test)]
mod damaged_copies;
pub mod dcp;
pub mod deepspeed;
pub mod flax;
mod format;
pub mod fsdp;
pub mod gguf;
pub mod hdf5;
mod joined;
pub mod keras;
pub mod manifest;
mod missing_dtypes;
mod not_a_checkpoint;
pub mod numpy;
mod object_text;
mod one_rank;
mod packed;
mod paths;
pub mod pickle;
mod probe;
pub mod safetensors;
mod scan;
mod section;
pub mod sets;
mod shards;
mod snippet;
mod source_damage;
mod tar;
mod template;
pub mod tensorflow;
pub mod torch;
mod unreadable_parts;
mod unsupported;
mod views;

use std::sync::Arc;

pub use checksums::checks;
#[cfg(not(target_arch = "wasm32"))]
pub use format::register;
pub use format::{
    Choice, FindChecks, Format, RequestedOptions, RunNames, WriteTarget, Writing, format_of,
    formats, markdown, object_writings, short_list, writing, writing_for_name, writing_of,
    writings,
};
pub use missing_dtypes::{is_untyped, untyped, update_untyped};
pub use not_a_checkpoint::{STAND_IN, explaining_file, has_known_extension, is_named_as_weights};
pub use probe::{Probe, Score};
pub use scan::{scan, scan_file, scan_on, scan_set};
pub use shards::Shards;
pub use snippet::{PythonLeaf, Snippet, SnippetsOf, indexed};
use statelens_checkpoint::{
    Checkpoint, FileId, FileSet, Finding, Grade, Leaf, Limits, Loss, Plan, Progress, Result,
};
pub use statelens_pickle::ScanOptions;
use statelens_tensor::Slice;

/// The built-in formats, in display order. Where scores are equal, the first one opens the file.
pub static FORMATS: &[&Format] = &[
    &cerebras::FORMAT,
    &cerebras::s3::FORMAT,
    &torch::FORMAT,
    &safetensors::FORMAT,
    &dcp::FORMAT,
    &fsdp::FORMAT,
    &deepspeed::FORMAT,
    &safetensors::pieces::FORMAT,
    &tensorflow::FORMAT,
    &numpy::ARRAY,
    &numpy::ARCHIVE,
    &keras::FORMAT,
    &gguf::FORMAT,
    &hdf5::FORMAT,
    &pickle::FORMAT,
    &flax::FORMAT,
];

/// Opens a checkpoint: detects the format by content and reads the structure, but no weights.
///
/// Opens the first file of the set; the other files are available for references to them. `limits`
/// are fitted to its size (see [`Limits::fitted`]) and also hold for later reads of the tensors.
/// `progress` counts keys. If the file is not a checkpoint, the error says what it is.
pub fn open(files: FileSet, limits: &Limits, progress: &mut dyn Progress) -> Result<Checkpoint> {
    let set = match is_of_others(&files)? {
        true => None,
        false => sets::Sharded::of(&files, limits)?,
    };
    let mut checkpoint = match set {
        Some(set) => set.open(&files, limits, progress),
        None => open_one(files, limits, progress).map(|mut alone| {
            alone.findings.extend(gguf::SplitPart::of(&alone).and_then(|part| part.alone()));
            alone
        }),
    }?;
    checkpoint.files = checkpoint.files.within(limits);
    checkpoint.findings.extend(unfolds(&checkpoint, limits));
    checkpoint.findings.extend(untyped(&checkpoint));
    checkpoint.findings.extend(one_rank::finding(&checkpoint));
    checkpoint.findings.extend(not_a_checkpoint::impostors(&checkpoint));
    checkpoint.findings.extend(source_damage::of_root(&checkpoint));
    Ok(checkpoint)
}

/// Returns whether the file belongs to a registered format. Such a format resolves related files
/// itself.
fn is_of_others(files: &FileSet) -> Result<bool> {
    if formats().nth(FORMATS.len()).is_none() {
        return Ok(false);
    }
    let best = best(&Probe::new(files)?);
    Ok(best.is_some_and(|(_, best)| !FORMATS.iter().any(|ours| std::ptr::eq(*ours, best))))
}

/// Returns a warning if a checkpoint is far larger than its files.
fn unfolds(checkpoint: &Checkpoint, limits: &Limits) -> Option<Finding> {
    let unfolded = checkpoint.unfolded();
    if !unfolded.is_over(limits) {
        return None;
    }
    let times = limits.unfold;
    Some(
        Finding::new(Grade::Warning, format!("It expands to more than {times} times its size"))
            .detail(format!(
                "{} bytes of tensors and {} bytes of keys and texts come from {} bytes: constants, \
                 views of the same memory, or repeated texts.",
                unfolded.tensor_bytes, unfolded.text_bytes, unfolded.stored_bytes
            ))
            .advice("Operations that read or write all of it ask first."),
    )
}

/// Like [`open`], but opens a shard of a larger checkpoint as a checkpoint of its own.
pub(crate) fn open_one(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    let limits = &limits.fitted(files.len(files.main()?));
    let probe = Probe::new(&files)?;
    match best(&probe) {
        Some((_, format)) => {
            let name = probe.name().to_owned();
            let opened = (format.open)(files.clone(), limits, progress);
            let mut opened = opened.map_err(|error| match error.code() == archive::ARCHIVE {
                true => archives::described(&files, limits, error.in_file(name)),
                false => error.in_file(name),
            })?;
            opened.format.traits = format_of(opened.format.id).unwrap_or(format).traits;
            Ok(opened)
        }
        None => match archives::packed_tar(&files, progress)? {
            Some(error) => Err(error),
            None => Err(not_a_checkpoint::explain(&probe)),
        },
    }
}

/// Returns the format of the main file, by content.
pub fn detect(files: &FileSet) -> Result<Option<&'static Format>> {
    Ok(best(&Probe::new(files)?).map(|(_, format)| format))
}

/// Returns whether any format claims the main file, by content.
pub(crate) fn is_claimed(files: &FileSet) -> bool {
    Probe::new(files).is_ok_and(|probe| best(&probe).is_some())
}

/// Returns the format with the highest score for the file, and that score.
pub(crate) fn best(probe: &Probe<'_>) -> Option<(Score, &'static Format)> {
    let scores = formats().map(|format| ((format.score)(probe), format));
    // `max_by_key` returns the last of equal maxima.
    let best = scores.rev().max_by_key(|(score, _)| *score);
    best.filter(|(score, _)| *score > Score::No)
}

/// Returns ways to read a leaf in Python, the usual one first; none if that would require running
/// code that a pickle names, or if the slice is invalid. `place` converts the name of a file to the
/// path to open.
pub fn snippets(
    checkpoint: &Checkpoint,
    leaf: &Leaf,
    slice: Option<&Slice>,
    place: &dyn Fn(FileId) -> String,
) -> Vec<Snippet> {
    let of_format = format_of(checkpoint.format.id).and_then(|format| format.snippets);
    snippet::snippets(checkpoint, leaf, slice, place, of_format)
}

/// Returns the writer for an address in an object store whose last part has no extension.
pub fn writing_for_address(address: &str) -> Option<&'static Writing> {
    let (_, key) = cerebras::s3::split(address)?;
    let has_extension = paths::base(key).contains('.');
    object_writings().next().filter(|_| !has_extension)
}

/// Plans the files of `target` that hold `source`. Reads and writes no files.
///
/// `name` is the requested file name, without a folder. If the checkpoint is written as several
/// files, their names are derived from it. [`Plan::losses`] lists what the target can't hold. If
/// something can't be written at all, the error says how it could be.
pub fn plan(source: Arc<Checkpoint>, target: &WriteTarget, name: &str) -> Result<Plan> {
    let writing = target.writing;
    plan_by(source, writing, |source| (writing.plan)(source, target, name))
}

/// Like [`plan`], but with the function `plan`, which knows how that format is written.
pub(crate) fn plan_by(
    source: Arc<Checkpoint>,
    writing: &Writing,
    plan: impl FnOnce(Arc<Checkpoint>) -> Result<Plan>,
) -> Result<Plan> {
    let (source, expanded) = blocks::expand(source, writing.has)?;
    let own = |format: &Format| format.writes.as_ref().is_some_and(|own| own.id == writing.id);
    let others = formats().filter(|format| !own(format));
    let left_out: Vec<Loss> = others
        .filter_map(|format| format.left_out.and_then(|left_out| left_out(&source)))
        .collect();
    let (damage, unlisted) = (source_damage::lost(&source), not_a_checkpoint::unlisted(&source));
    let mut plan = plan(source)?;
    plan.losses.splice(..0, expanded);
    plan.losses.extend(damage);
    plan.losses.extend(unlisted);
    plan.losses.extend(left_out);
    Ok(plan)
}
