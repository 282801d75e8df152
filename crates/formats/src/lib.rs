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
pub mod sets;
mod shards;
mod stray;
mod table;
pub mod tensorflow;
pub mod torch;
mod unread;

use std::sync::Arc;

pub use probe::{Probe, Score};
pub use shards::Shards;
use statelens_checkpoint::{Checkpoint, Error, FileSet, Finding, Limits, Plan, Progress, Result};
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
/// `progress` counts keys. Errors say what the file is if it is no checkpoint.
pub fn open(files: FileSet, limits: &Limits, progress: &mut dyn Progress) -> Result<Checkpoint> {
    let mut checkpoint = match sets::Sharded::of(&files, limits)? {
        Some(set) => set.open(&files, limits, progress),
        None => open_one(files, limits, progress),
    }?;
    checkpoint.findings.extend(stray::impostors(&checkpoint));
    checkpoint.findings.extend(damage::of_root(&checkpoint));
    Ok(checkpoint)
}

/// [`open`], for a file that is a checkpoint of its own even if it is a shard of a larger one.
pub(crate) fn open_one(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
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

/// What a file would do to whoever loads it with Python: the findings of its pickle, even if the
/// pickle is broken further on (then that is one more finding). For a file of another format,
/// what opening it notices. Of a set of shards, each is looked at.
pub fn scan(files: FileSet, limits: &Limits, progress: &mut dyn Progress) -> Result<Vec<Finding>> {
    let Some(set) = sets::Sharded::of(&files, limits)? else {
        return scan_one(files, limits, progress);
    };
    let mut findings = set.findings();
    for (name, part) in set.parts(&files) {
        for finding in scan_one(part, limits, progress)? {
            let place = match finding.place.is_empty() {
                true => name.to_owned(),
                false => format!("{name}: {}", finding.place),
            };
            findings.push(finding.place(place));
        }
    }
    Ok(findings)
}

fn scan_one(files: FileSet, limits: &Limits, progress: &mut dyn Progress) -> Result<Vec<Finding>> {
    let probe = Probe::new(&files)?;
    let name = probe.name().to_owned();
    let found = if dcp::detect::score(&probe) > Score::NO {
        dcp::read::scan(&files, limits)
    } else if torch::detect::score(&probe) > Score::NO {
        torch::read::scan(&files, limits)
    } else if pickle::detect::score(&probe) > Score::NO {
        pickle::read::scan(&files, limits)
    } else {
        return Ok(open_one(files, limits, progress)?.findings);
    };
    found.map_err(|error| error.in_file(name))
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
            _ => {
                return Err(Error::refused("this format is not cut into several files")
                    .advice("Leave the shards out, or write safetensors or PyTorch."));
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
