//! Checkpoint formats, one folder each, all with the same rooms: `detect` (a score from the
//! first bytes), `read` (files to a [`Checkpoint`]), `write` (a checkpoint to a [`Plan`]), tests.
//!
//! Nothing here reads weights: opening costs what the structure costs.

mod archive;
mod blocks;
pub mod cerebras;
pub mod checks;
mod damage;
pub mod dcp;
pub mod flax;
pub mod gguf;
pub mod hdf5;
mod json;
pub mod keras;
pub mod manifest;
pub mod numpy;
pub mod pickle;
mod probe;
pub mod safetensors;
mod scan;
pub mod sets;
mod shards;
mod stray;
mod table;
pub mod tensorflow;
pub mod torch;
mod unread;
mod views;

use std::sync::Arc;

pub use probe::{Probe, Score};
pub use scan::{scan, scan_file};
pub use shards::Shards;
use statelens_checkpoint::{
    Checkpoint, Error, FileSet, Finding, Grade, Limits, Plan, Progress, Result,
};
pub use statelens_pickle::ScanOptions;
pub use stray::{is_named_so, telling};
pub use table::{
    Asked, Choice, FORMATS, Format, Writing, markdown, writing, writing_for_name, writing_of,
    writings,
};

/// A format that can be read.
struct Reader {
    score: fn(&Probe<'_>) -> Score,
    read: fn(FileSet, &Limits, &mut dyn Progress) -> Result<Checkpoint>,
}

/// Every format that can be read; the best score wins, the first of equals.
const READERS: &[Reader] = &[
    Reader { score: cerebras::detect::score, read: cerebras::read::read },
    Reader { score: keras::detect::score, read: keras::read::read },
    Reader { score: hdf5::detect::score, read: hdf5::read::read },
    Reader { score: dcp::detect::score, read: dcp::read::read },
    Reader { score: tensorflow::detect::score, read: tensorflow::read::read },
    Reader { score: torch::detect::score, read: torch::read::read },
    Reader { score: numpy::detect::score, read: numpy::read::read },
    Reader { score: gguf::detect::score, read: gguf::read::read },
    Reader { score: safetensors::detect::score, read: safetensors::read::read },
    Reader { score: pickle::detect::score, read: pickle::read::read },
    Reader { score: flax::detect::score, read: flax::read::read },
];

/// Opens a checkpoint: finds its format by content and reads its structure, never its weights.
///
/// The first file of the set is the one that is opened; the others are there for links to them.
/// `limits` are fitted to its size, see [`Limits::fitted`], and hold for whoever reads the
/// tensors afterwards, too.
/// `progress` counts keys. Errors say what the file is if it is no checkpoint.
pub fn open(files: FileSet, limits: &Limits, progress: &mut dyn Progress) -> Result<Checkpoint> {
    let mut checkpoint = match sets::Sharded::of(&files, limits)? {
        Some(set) => set.open(&files, limits, progress),
        None => open_one(files, limits, progress),
    }?;
    checkpoint.files = checkpoint.files.within(limits);
    checkpoint.findings.extend(unfolds(&checkpoint, limits));
    checkpoint.findings.extend(stray::impostors(&checkpoint));
    checkpoint.findings.extend(damage::of_root(&checkpoint));
    Ok(checkpoint)
}

/// That a checkpoint is far more than its files, if it is.
fn unfolds(checkpoint: &Checkpoint, limits: &Limits) -> Option<Finding> {
    let unfolded = checkpoint.unfolded();
    if !unfolded.is_over(limits) {
        return None;
    }
    let times = limits.unfold;
    Some(
        Finding::new(Grade::Warning, format!("It unfolds to more than {times} times its size"))
            .detail(format!(
                "{} bytes of tensors and {} bytes of keys and texts come from {} bytes: constants, \
                 views of the same memory, or texts that are named again and again.",
                unfolded.tensor_bytes, unfolded.text_bytes, unfolded.stored_bytes
            ))
            .advice("What reads or writes all of it asks before it does so."),
    )
}

/// [`open`], for a file that is a checkpoint of its own even if it is a shard of a larger one.
pub(crate) fn open_one(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    let limits = &limits.fitted(files.len(files.main()?));
    let probe = Probe::new(&files)?;
    let best = READERS
        .iter()
        .map(|reader| ((reader.score)(&probe), reader))
        .rev()
        .max_by_key(|(score, _)| *score);
    match best {
        Some((score, reader)) if score > Score::NO => {
            let name = probe.name().to_owned();
            (reader.read)(files, limits, progress).map_err(|error| error.in_file(name))
        }
        _ => Err(stray::explain(&probe)),
    }
}

/// Whether some format claims the file that is opened, by content.
pub(crate) fn is_claimed(files: &FileSet) -> bool {
    Probe::new(files)
        .is_ok_and(|probe| READERS.iter().any(|reader| (reader.score)(&probe) > Score::NO))
}

/// How sure the best of all formats is that the file is its own.
pub(crate) fn best_score(probe: &Probe<'_>) -> Score {
    READERS.iter().map(|reader| (reader.score)(probe)).max().unwrap_or(Score::NO)
}

/// What to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A Cerebras checkpoint (`.mdl`).
    Cerebras(cerebras::write::Options),
    /// A TensorFlow bundle (`.index` and `.data-*`).
    TensorFlow(tensorflow::write::Options),
    /// A PyTorch zip file (`.pt`).
    Torch(torch::write::Options),
    /// safetensors (`.safetensors`).
    Safetensors(safetensors::write::Options),
    /// A NumPy archive (`.npz`).
    Numpy(numpy::write::Options),
}

impl Target {
    /// The same, cut into several files; an error if the format can't be.
    pub fn sharded(mut self, shards: Shards) -> Result<Self> {
        match &mut self {
            Self::Torch(options) => options.shards = shards,
            Self::Safetensors(options) => options.shards = shards,
            Self::TensorFlow(options) => options.shards = shards,
            _ if shards == Shards::One => {}
            other => {
                let name = match other {
                    Self::Cerebras(_) => "Cerebras",
                    _ => "NumPy",
                };
                return Err(Error::refused(format!("{name} files can't be sharded"))
                    .advice("Remove --shard-size or --shard, or write safetensors or PyTorch."));
            }
        }
        Ok(self)
    }
}

/// Plans the files of `target` that hold `source`. Nothing is read or written.
///
/// `name` is the file name that was asked for, without a folder; of a checkpoint of several
/// files, what their names are made from.
/// What the target can't hold is listed in [`Plan::losses`]; what can't be written at all is an
/// error that says how it could be.
pub fn plan(source: Arc<Checkpoint>, target: &Target, name: &str) -> Result<Plan> {
    let (source, expanded) = blocks::expand(source, |dtype| match target {
        Target::Safetensors(_) => safetensors::write::has(dtype),
        Target::TensorFlow(_) => tensorflow::write::has(dtype),
        _ => false,
    })?;
    let left_out = match target {
        Target::Safetensors(_) => None,
        _ => safetensors::write::metadata_left_out(&source),
    };
    let dtypes = match target {
        Target::TensorFlow(_) => None,
        _ => tensorflow::write::dtypes_left_out(&source),
    };
    let (damage, unlisted) = (damage::lost(&source), stray::unlisted(&source));
    let mut plan = match target {
        Target::Cerebras(options) => cerebras::write::plan(source, options, name),
        Target::TensorFlow(options) => tensorflow::write::plan(source, options, name),
        Target::Torch(options) => torch::write::plan(source, options, name),
        Target::Safetensors(options) => safetensors::write::plan(source, options, name),
        Target::Numpy(options) => numpy::write::plan(source, options, name),
    }?;
    plan.losses.splice(..0, expanded);
    plan.losses.extend(damage);
    plan.losses.extend(unlisted);
    plan.losses.extend(left_out);
    plan.losses.extend(dtypes);
    Ok(plan)
}
