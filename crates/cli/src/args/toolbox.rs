//! The commands for training: states, comparing, checking, repairing, run folders.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use statelens::Limits;
use statelens::parts::compare::runs::Grouping;

use super::comparing::Diff;
use super::{Common, Input, Inputs, Replacing};

#[derive(Debug, Subcommand)]
pub(crate) enum Toolbox {
    /// `info --states`
    #[command(hide = true)]
    States(Input),

    /// Compares two checkpoints of any formats; exit status 1 if they differ
    #[command(after_help = "\
Every leaf is compared by its key: kind, shape, dtype, then values. With --op equal, numbers must
be equal; with --op allclose, |left - right| <= atol + rtol * |right|. 0.0 and -0.0 are equal; a
NaN equals a NaN in the same place unless --nan-differs is given. NaN on one side only is reported
separately; errors and cosine are then undefined. Relative errors are relative to RIGHT. Different
dtypes are a difference, but the values are still compared: unchanged, and with the finer side
rounded to the coarser dtype (\"equal at bfloat16 precision\"). Files of one format also differ if
the types of their keys do (1 or '1'). With --structure, classes of containers (dict or
OrderedDict, list or tuple) and tensors, the nesting of keys ('a.b' or 'b' in 'a') and ties of
weights are compared as well; not every format can hold them.

Examples:
  statelens diff checkpoint.mdl converted.pt
  statelens diff a.mdl b.mdl --op allclose --rtol 1e-3 --ignore-dtype
  statelens diff a.mdl b.mdl --select 'model.*' --json
  statelens diff pytorch_model.bin checkpoint.mdl --prefix model. --select 'model.*'
  statelens diff a.mdl b.mdl --closer model.head.weight --picture where.png
  statelens diff a.mdl b.mdl --by-layer
  statelens diff model.pt renamed.pt --renames > names.txt")]
    Diff(Diff),

    /// Checks whether a folder with a model is whole and consistent, or with --against whether a
    /// checkpoint would load into another one; exit status 1 if not
    #[command(after_help = "\
Without --against, files, indexes, shards, layers, config.json and the tokenizer of a folder are
compared with each other, and those of its subfolders. For a file, those of its checkpoint. FOLDER may
be hf://owner/name, a prefix of an object store, or the URL of an index. No weight is read. Each rule has an
id, a level and a remedy: docs/rules.md lists them. An error means that a common loader refuses the
folder or loads other values, a warning that the folder contradicts itself.

With --against, REFERENCE is a checkpoint, a manifest (`statelens manifest --json`, `statelens ls --json`), or a
list with `key dtype shape` on each line. No weight is read. As with torch's load_state_dict,
missing and unexpected keys are errors unless --no-strict is given, different shapes always are,
and different dtypes are converted. In the checkpoint of a trainer, the state `model` is checked.

Examples:
  statelens check model_dir
  statelens check model_dir --level dtype-differs=off --level index-missing=warning
  statelens check model_dir --fix-index      writes a correct index; the shards stay unchanged
  statelens check model_dir --sarif > check.sarif
  statelens check hf://org/model             a repository on the Hugging Face Hub
  statelens check checkpoint_1000.mdl --against expected.mdl
  statelens check model.pt --against keys.txt --no-strict
  statelens check old.mdl --against new.mdl --release 2.10")]
    Check(Check),

    /// Reads everything once and checks whether it is sound; exit status 1 if not
    #[command(after_help = "\
Checks every checksum that the format has (CRC-32 of the members of a zip file, Fletcher-32 and
gzip's Adler-32 of HDF5 chunks, XXH64 of zstd chunks, CRC-32C of TensorFlow's blocks and tensors,
those of tar headers and of all structures of HDF5 since 1.8), and that no tensor runs past the
end of its file or overlaps another one. NaN and infinite values are counted; they are a warning,
or a fault if --finite is given, which also counts plain values (learning rates, losses) and the
items of arrays of objects. Blocks that are not decoded are checked by their scales. Safetensors,
GGUF and plain HDF5 have no checksums of values, so changed values can't be detected: compare them
with a manifest.

Exit status: 0 if it is sound; 1 if not; 2 if it could not be read; 3 if it is sound, but --finite
could not check some values, which are listed.

Examples:
  statelens verify checkpoint_1000.mdl
  statelens verify *.safetensors              one table of all
  statelens manifest model.pt -o model.manifest
  statelens verify downloaded/model.pt --manifest model.manifest")]
    Verify(Verify),

    /// Writes a Cerebras checkpoint in another format version, for newer or older releases
    #[command(after_help = "\
Format 0.5 is for releases 2.5 and later, 0.4 for 2.0 to 2.4 (later ones read it, too). By
default, OUT is NAME_0.5.mdl or NAME_0.4.mdl next to FILE.

Examples:
  statelens upgrade checkpoint_1.7.mdl
  statelens upgrade checkpoint_1000.mdl --to 0.4 -o for_2.4.mdl")]
    Upgrade(Upgrade),

    /// Repairs a Cerebras checkpoint of release 1.7 or older so that later ones load it
    #[command(alias = "fix_checkpoint_spec")]
    #[command(after_help = "\
Does what fix_checkpoint_spec.py of release 2.0.2 does: a class that no longer exists is removed
from the spec, weights with two names are restored under both, and the last epochs of
learning-rate schedulers are set. By default the file is NAME_fixed.mdl. As with the original
tool, it has no format version, which releases 2.5 and later require: --upgrade writes format 0.5.

Examples:
  statelens fix-checkpoint-spec checkpoint_1.7.mdl
  statelens fix-checkpoint-spec checkpoint_1.7.mdl --upgrade --fixed_checkpoint_path new.mdl
  statelens fix-checkpoint-spec checkpoint_1.7.mdl --fix_inplace")]
    FixCheckpointSpec(FixCheckpointSpec),

    /// Adds the dataloader state, which release 1.9 kept in separate files, to the checkpoint
    #[command(after_help = "\
Does what data_iter_state_conversion.py of release 2.0.2 does.

Examples:
  statelens convert-dataloader-state -c checkpoint_100.mdl -w iter_state -o new.mdl
  statelens convert-dataloader-state -c old.mdl -w iter_state -o new.mdl -d iterable")]
    ConvertDataloaderState(ConvertDataloaderState),

    /// Lists the checkpoints of a run folder as the trainer orders them, and its other files
    #[command(after_help = "\
Examples:
  statelens runs model_dir
  statelens runs model_dir --name 'ckpt_{step}.mdl' --json")]
    Runs(Runs),

    /// Prints the path of the checkpoint that the trainer would load automatically; exit status 1
    /// if it would load nothing
    #[command(after_help = "\
The checkpoint is opened, and a warning goes to standard error if it is not sound.

Examples:
  statelens latest model_dir
  statelens latest model_dir --sound
  statelens info \"$(statelens latest model_dir)\"")]
    Latest(Latest),

    /// Removes old checkpoints of a run folder; shows what it would do unless --apply is given
    #[command(after_help = "\
Only files that are named like checkpoints are ever removed: no subsets, no trainer states,
nothing else. A checkpoint counts as kept only if it is sound: it can be opened, nothing in it is
missing, damaged or unfinished, and it has every state that the others have. If the folder has values
that `runs --values --keep` or the page saved, those with NaN or infinite values are not sound either.
The others are listed. The checkpoint that the trainer would load is always kept, and so are the best one, as far
as names or the trainer say which it is, and targets of links. Checkpoints with epochs in their names
are counted apart from those with steps. With --apply, files are moved to the folder statelens-trash
in DIR; with --delete as well, they are deleted permanently.

Examples:
  statelens prune model_dir --keep 3
  statelens prune model_dir --keep 3 --every 1000 --apply")]
    Prune(Prune),
}

#[derive(Debug, Args)]
#[command(mut_arg("files", |arg| arg.value_name("FOLDER").help("Folders with models, or checkpoints; with --against, one checkpoint")))]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) inputs: Inputs,

    /// The keys that it should have: a checkpoint, a manifest, or a list of keys
    #[arg(long, value_name = "REFERENCE", conflicts_with_all = ["fix_index", "level", "sarif"])]
    pub(crate) against: Option<PathBuf>,

    /// Sets the level of a rule: off, note, warning or error; may be repeated
    #[arg(long, value_name = "RULE=LEVEL")]
    pub(crate) level: Vec<String>,

    /// Writes a correct index for the shards of FOLDER, which stay unchanged; the previous index is
    /// kept as NAME.bak
    #[arg(long, conflicts_with = "sarif")]
    pub(crate) fix_index: bool,

    /// Prints SARIF 2.1.0, for code scanning
    #[arg(long, conflicts_with = "json")]
    pub(crate) sarif: bool,

    /// Ignores missing and unexpected keys
    #[arg(long, requires = "against")]
    pub(crate) no_strict: bool,

    /// The state to check, on either side that has it
    #[arg(
        long,
        value_name = "NAME",
        default_value = "model",
        conflicts_with = "all",
        requires = "against"
    )]
    pub(crate) state: String,

    /// Checks all states
    #[arg(long, requires = "against")]
    pub(crate) all: bool,

    /// Also checks the format, and the version in `__metadata__`, as this release of the Cerebras
    /// library does, e.g. 2.10
    #[arg(long, value_name = "RELEASE", requires = "against")]
    pub(crate) release: Option<String>,

    /// Only warns of another release, as the trainer does with strict_version off
    #[arg(long, requires = "release")]
    pub(crate) no_strict_version: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(crate) inputs: Inputs,

    /// The expected content: a file that `statelens manifest` wrote, with or without --json
    #[arg(long, value_name = "MANIFEST")]
    pub(crate) manifest: Option<PathBuf>,

    /// Counts NaN and infinite values as faults
    #[arg(long)]
    pub(crate) finite: bool,

    /// Prints SARIF 2.1.0, for code scanning
    #[arg(long, conflicts_with = "json")]
    pub(crate) sarif: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Upgrade {
    #[command(flatten)]
    pub(crate) input: Input,

    /// The file to write; by default NAME_VERSION.mdl next to FILE
    #[arg(value_name = "OUT", conflicts_with = "output")]
    pub(crate) out: Option<PathBuf>,

    /// The format version to write
    #[arg(long, value_name = "VERSION", default_value = "0.5", value_parser = ["0.5", "0.4"])]
    pub(crate) to: String,

    /// The same as OUT
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,

    /// Continues even if something is lost
    #[arg(long)]
    pub(crate) lossy: bool,

    #[command(flatten)]
    pub(crate) replacing: Replacing,
}

#[derive(Debug, Args)]
#[command(mut_arg("force", |arg| arg.help("Replaces PATH if it exists")))]
pub(crate) struct FixCheckpointSpec {
    /// The checkpoint to repair
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) file: PathBuf,

    /// The file to write
    #[arg(long = "fixed_checkpoint_path", visible_alias = "fixed-checkpoint-path")]
    #[arg(value_name = "PATH", conflicts_with = "inplace")]
    pub(crate) output: Option<PathBuf>,

    /// Replaces CHECKPOINT once the repaired file is complete; asks first
    #[arg(long = "fix_inplace", visible_alias = "fix-inplace")]
    pub(crate) inplace: bool,

    /// Replaces it without asking
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// Writes format 0.5, which releases 2.5 and later load
    #[arg(long)]
    pub(crate) upgrade: bool,

    #[command(flatten)]
    pub(crate) replacing: Replacing,

    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertDataloaderState {
    /// The checkpoint of release 1.9
    #[arg(short = 'c', long = "old_checkpoint", visible_alias = "old-checkpoint")]
    #[arg(value_name = "OLD")]
    pub(crate) file: PathBuf,

    /// The folder with the state files
    #[arg(short, long = "worker_data_iter_files_dir")]
    #[arg(visible_alias = "worker-data-iter-files-dir", value_name = "DIR")]
    pub(crate) workers: PathBuf,

    /// The checkpoint to write
    #[arg(short, long = "output_file", visible_alias = "output-file", value_name = "OUT")]
    pub(crate) output: PathBuf,

    /// The kind of the dataloader
    #[arg(short, long = "dataloader_type", visible_alias = "dataloader-type")]
    #[arg(value_name = "KIND", default_value = "map")]
    pub(crate) dataloader: Dataloader,

    /// The seed of the order of samples, for a map
    #[arg(short, long = "shuffle_seed", visible_alias = "shuffle-seed", default_value_t = 0)]
    #[arg(value_name = "SEED", allow_negative_numbers = true)]
    pub(crate) seed: i64,

    /// The format version to write: 0.4 is read by releases 2.0 and later, 0.5 by 2.5 and later
    #[arg(long, value_name = "VERSION", default_value = "0.4", value_parser = ["0.4", "0.5"])]
    pub(crate) to: String,

    #[command(flatten)]
    pub(crate) replacing: Replacing,

    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dataloader {
    /// Picks samples by their number
    Map,
    /// Streams shards
    Iterable,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RunFolderArgs {
    /// The run folder (model_dir)
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,

    /// How checkpoints are named
    #[arg(long, value_name = "PATTERN", default_value = "checkpoint_{step}.mdl")]
    pub(crate) name: String,

    /// Raises the limits on memory and work for each checkpoint: 10 allows ten times as much, none
    /// lifts them; for files that you trust
    #[arg(long, value_name = "TIMES|none", value_parser = crate::limits::parse, hide_short_help = true)]
    pub(crate) limit: Option<Limits>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Runs {
    #[command(flatten)]
    pub(crate) folder: RunFolderArgs,

    /// Uses names and sizes only; by default, each checkpoint is opened to check whether it is
    /// complete
    #[arg(long)]
    pub(crate) quick: bool,

    /// Reads all values of each checkpoint, and prints norms, deviations and counts of NaN and
    /// infinite values over the steps
    #[arg(long, conflicts_with = "quick")]
    pub(crate) values: bool,

    /// With --values: how tensors are grouped
    #[arg(long, value_name = "GROUP", default_value = "state", requires = "values")]
    pub(crate) by: TimelineBy,

    /// With --values: only groups that match: a glob, or /a regular expression/; may be repeated
    #[arg(long, value_name = "PATTERN", requires = "values")]
    pub(crate) group: Vec<String>,

    /// With --values: saves the statistics in this file, or in statelens-values.json in FOLDER, and
    /// later reads only checkpoints that are new or have changed. The file in FOLDER is also used
    /// without this option
    #[arg(long, value_name = "FILE", num_args = 0..=1, requires = "values")]
    pub(crate) keep: Option<Option<PathBuf>>,

    /// With --values: saves the lines of the norms over the steps as a picture: .svg
    #[arg(long, value_name = "OUT", requires = "values")]
    pub(crate) picture: Option<PathBuf>,

    /// Replaces the picture if it exists
    #[arg(long, requires = "picture")]
    pub(crate) force: bool,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How the tensors of a checkpoint are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimelineBy {
    /// Tensors of one top-level state: model, optimizer
    State,
    /// Tensors whose keys differ only in the number of their layer
    Role,
    /// Each tensor separately
    Tensor,
}

impl From<TimelineBy> for Grouping {
    fn from(by: TimelineBy) -> Self {
        match by {
            TimelineBy::State => Self::State,
            TimelineBy::Role => Self::Role,
            TimelineBy::Tensor => Self::Tensor,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Latest {
    #[command(flatten)]
    pub(crate) folder: RunFolderArgs,

    /// Prints the newest sound checkpoint instead: complete, finished, with every state that the
    /// others have, and without NaN if its values are kept in the folder
    #[arg(long)]
    pub(crate) sound: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Prune {
    #[command(flatten)]
    pub(crate) folder: RunFolderArgs,

    /// How many of the newest sound checkpoints to keep
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: u32,

    /// Also keeps those whose step is a multiple of this
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) every: Option<u64>,

    /// Removes them, instead of showing what would be removed
    #[arg(long)]
    pub(crate) apply: bool,

    /// Deletes permanently instead of moving to the trash folder
    #[arg(long, requires = "apply")]
    pub(crate) delete: bool,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}
