//! The command line, defined once: parsing, help, completions and the man page come from here.

mod summary;
mod toolbox;

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use statelens_checkpoint::Limits;
use statelens_formats::{Choice, Writing};

use crate::output::Sync;

pub(crate) use summary::{Keys, Summary, To};
pub(crate) use toolbox::{
    Check, ConvertDataloaderState, Dataloader, Diff, FixCheckpointSpec, Folder, Latest, Operation,
    Prune, Runs, Toolbox, Upgrade, Verify,
};

const EXAMPLES: &str = "\
Examples:
  statelens info checkpoint_1000.mdl         what it is, how large, what was noticed
  statelens ls model.pt 'model.*.weight'     every key that matches, with shape and bytes
  statelens show model.pt model.norm.weight  one value: type, place, first values
  statelens convert checkpoint.mdl model.pt  Cerebras to PyTorch, in bounded memory
  statelens diff checkpoint.mdl model.pt     what differs between two, in any formats
  statelens scan downloaded.bin              what a pickle would call, without calling it

Exit status: 0 fine; 1 the answer is no (scan found something, files
differ, it would not load); 2 it could not be done.";

/// Opens, explains and converts model checkpoints
///
/// Cerebras HDF5 (.mdl) and PyTorch (.pt, .pth, .bin, .ckpt); formats are found by content. Weights
/// are read only where that is asked for, and nothing in a checkpoint is ever run.
#[derive(Debug, Parser)]
#[command(name = "statelens", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// The most that is fetched from web servers, as in 20GB; without this, 1 GB
    #[arg(long, global = true, value_name = "SIZE", value_parser = statelens_convert::shard_size, hide_short_help = true)]
    pub(crate) max_fetch: Option<u64>,

    /// What may be spent on a checkpoint: so many times the usual, as in 10, or none at all to
    /// hold it back, for a file that you trust
    #[arg(long, global = true, value_name = "TIMES|none", value_parser = crate::limits::parse, hide_short_help = true)]
    pub(crate) limit: Option<Limits>,

    /// The most that is put on disk while tensors are put in order that lie crosswise in a file
    /// (transposed ones that are compressed, chunks of columns), as in 20GB; without this, 8 GB
    #[arg(long, global = true, value_name = "SIZE", value_parser = statelens_convert::shard_size, hide_short_help = true)]
    pub(crate) scratch: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What a checkpoint is: format, sizes, counts by dtype and by state, findings
    #[command(after_help = "\
Examples:
  statelens info checkpoint_1000.mdl
  statelens info --json model.pt | jq .bytes")]
    Info(Input),

    /// Lists the flattened state: key, kind, dtype, shape, bytes, value
    #[command(after_help = "\
A pattern is a glob over the whole key ('model.*.weight'; '*' also matches dots) or a regular
expression between slashes ('/layers\\.[0-3]\\./'), found anywhere in the key.

Examples:
  statelens ls model.pt
  statelens ls model.pt 'optimizer.*'
  statelens ls model.pt '/\\.(weight|bias)$/' --json")]
    Ls(Ls),

    /// Shows one value: type, where it lies, first values, what the file says about it
    #[command(after_help = "\
Examples:
  statelens show model.pt model.norm.weight
  statelens show model.pt model.norm.weight --values 64")]
    Show(Show),

    /// Prints every leaf with a hash of its values, to compare checkpoints across formats
    #[command(after_help = "\
Hashes are SHA-256 of the logical values (C order, little-endian), so that they are equal
whatever format, chunks or views hold them.

Examples:
  statelens manifest --json model.pt > model.json
  statelens manifest model.pt -o model.manifest   to `statelens verify` it later
  diff <(statelens manifest a.mdl) <(statelens manifest b.pt)")]
    Manifest(Manifest),

    /// Converts to another format, in bounded memory
    #[command(after_help = "\
The format is that of --to, or of OUT's extension: .mdl, .h5, .hdf5 are Cerebras; .pt, .pth,
.bin are PyTorch; .index and .ckpt are TensorFlow. OUT is written under a temporary name beside it and renamed when it is
complete: stopped or failed, nothing is left behind and an old OUT is untouched.

Examples:
  statelens convert checkpoint_1000.mdl model.pt
  statelens convert model.pt model.mdl --compress lz4
  statelens convert checkpoint.mdl weights.pt --select 'model.*' --cast bfloat16
  statelens convert a.pt b.pt --states model --cast '*.norm.*=float32' --cast bfloat16
  statelens convert a.pt b.pt --rename 'layers\\.(\\d+)=>h.$1' --strip-prefix model. --dry-run
  statelens convert model.pt model.safetensors --shard-size 5GB
  statelens convert model.pt model.mdl --dry-run")]
    Convert(Convert),

    /// Converts a TensorFlow checkpoint to a Cerebras one, its keys being the names of variables
    #[command(
        name = "tensorflow-to-h5",
        mut_arg("input", |arg| arg.value_name("SAVER_PATH").help("The checkpoint's prefix, or one of its files")),
        mut_arg("output", |arg| arg.value_name("H5_PATH")),
        mut_arg("to", |arg| arg.hide(true)),
        after_help = "\
The same as `statelens convert SAVER_PATH H5_PATH --to cerebras`.

Examples:
  statelens tensorflow-to-h5 model_dir/model.ckpt-1000 model.h5")]
    TensorflowToH5(Convert),

    /// Converts a Cerebras checkpoint to a TensorFlow one that a Saver restores by names
    #[command(
        name = "h5-to-tensorflow",
        mut_arg("input", |arg| arg.value_name("H5_PATH")),
        mut_arg("output", |arg| arg.value_name("SAVER_PATH").help("The checkpoint's prefix: what .index and .data-* are put behind")),
        mut_arg("to", |arg| arg.hide(true)),
        after_help = "\
The same as `statelens convert H5_PATH SAVER_PATH --to tensorflow`.

Examples:
  statelens h5-to-tensorflow model.h5 model_dir/model.ckpt-1000 --state-file")]
    H5ToTensorflow(Convert),

    /// Writes what is in a checkpoint as a file or a link to share, without its weights
    #[command(after_help = "\
Without --stats and --content, no weights are read. The same checkpoint gives the same bytes.

Examples:
  statelens summary model.pt --to md >> README.md
  statelens summary checkpoint_1000.mdl --stats -o summary.html
  statelens summary model.pt --link https://example.org/statelens/
  statelens summary model.pt --link https://example.org/statelens/ --keys coded")]
    Summary(Summary),

    #[command(flatten)]
    Toolbox(Toolbox),

    /// Serves the page to this machine's browser, with the checkpoints of a folder in it
    #[command(after_help = "\
The page is in this program and is served on 127.0.0.1 only. Its address holds a token, without
which nothing is answered; files of DIR are read where they lie, by ranges, and nothing outside DIR
is. Ctrl-C stops it. From another machine: ssh -L 8650:127.0.0.1:8650 HOST statelens serve --no-browser DIR

Examples:
  statelens serve
  statelens serve model_dir
  statelens serve --port 9000 --no-browser model_dir")]
    Serve(Serve),

    /// Opens a checkpoint in the page
    #[command(after_help = "\
The same as `statelens serve` with the folder of FILE, at FILE.

Examples:
  statelens open checkpoint_1000.mdl
  statelens open model_dir/model.safetensors.index.json")]
    Open(Open),

    /// Tells what files would run when they are loaded; exit status 1 unless nothing was found
    #[command(after_help = "\
Nothing is run. Every pickle in a file is looked at, wherever it is: in archives and compressed files,
in front of, behind and between other data, in attributes of HDF5 files, in arrays of objects; so are
Lambda layers of Keras, chat templates of GGUF files, and the code that archives bring along. Findings are
graded note, warning, damage, unknown code and danger. In folders every file is looked at, checkpoint
or not.

Exit status: 0 if everything was looked at and nothing is worse than a warning; 1 if code is unknown or
dangerous, if a pickle breaks off, or if something could not be looked into; 2 if a file could not be
read.

Examples:
  statelens scan downloaded.bin && python train.py
  statelens scan ~/models extra.ckpt
  statelens scan --json downloaded/ | jq -r 'select(.worst == \"danger\").file'
  statelens scan model.pkl --allow sklearn.linear_model._base.LinearRegression")]
    Scan(Scan),

    /// Lists the formats: what of each is read and written
    #[command(after_help = "\
Examples:
  statelens formats
  statelens formats --json | jq '.formats[].writes.id'")]
    Formats(Formats),

    /// Prints a completion script for a shell
    #[command(after_help = "\
Example:
  statelens completions bash > ~/.local/share/bash-completion/completions/statelens")]
    Completions {
        /// Which shell
        shell: Shell,
    },

    /// Prints the man page
    #[command(after_help = "\
Examples:
  statelens man | man -l -
  statelens man > ~/.local/share/man/man1/statelens.1")]
    Man,
}

/// The checkpoint to open.
#[derive(Debug, Args)]
pub(crate) struct Input {
    /// The checkpoint
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Scan {
    /// Files, and folders with all that is in them
    #[arg(value_name = "FILE", required = true)]
    pub(crate) paths: Vec<PathBuf>,

    /// A class or function that you know, as in --allow mymodel.Config, and that is no finding; may
    /// be repeated. What is known to be dangerous stays one
    #[arg(long, value_name = "NAME")]
    pub(crate) allow: Vec<String>,

    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// A further file that the checkpoint links to; those beside it are found without this
    #[arg(long, value_name = "FILE")]
    pub(crate) with: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The folder whose checkpoints can be opened; without it, only what is dropped on the page
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) at: ServeAt,
}

#[derive(Debug, Args)]
pub(crate) struct Open {
    /// The checkpoint, or a folder with one
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) at: ServeAt,
}

#[derive(Debug, Args)]
pub(crate) struct ServeAt {
    /// The first port to try; when it is taken, the next free one is used; 0 is any free one
    #[arg(long, value_name = "PORT", default_value_t = 8650)]
    pub(crate) port: u16,

    /// Prints the address and starts no browser
    #[arg(long)]
    pub(crate) no_browser: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) input: Input,

    /// Only keys that match: a glob, or /a regular expression/
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) input: Input,

    /// The flattened key, as `ls` prints it
    #[arg(value_name = "KEY")]
    pub(crate) key: String,

    /// How many of a tensor's first values to show
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    pub(crate) values: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Manifest {
    #[command(flatten)]
    pub(crate) input: Input,

    /// Writes it to a file, which appears when it is complete; in JSON if that ends in .json
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,

    /// Replaces OUT if it exists
    #[arg(long, requires = "output")]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) durable: Durable,
}

/// How sure it is that what was written stays.
#[derive(Debug, Args)]
pub(crate) struct Durable {
    /// Waits until the output is on the disk, as is always done before a file is replaced
    #[arg(long = "sync")]
    sync: bool,
}

impl Durable {
    pub(crate) fn sync(&self) -> Sync {
        if self.sync { Sync::Always } else { Sync::IfReplacing }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// The checkpoint to read
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,

    /// The file to write; with --states it may be left out, and is STATES_IN beside IN
    #[arg(value_name = "OUT", required_unless_present = "states")]
    pub(crate) output: Option<PathBuf>,

    /// The format to write; else that of OUT's extension
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    pub(crate) to: Option<String>,

    #[command(flatten)]
    pub(crate) edits: Edits,

    /// Compresses tensors (Cerebras only)
    #[arg(long, value_name = "METHOD", value_parser = choices(|writing| writing.compressions))]
    pub(crate) compress: Option<String>,

    /// Which version of the Cerebras format: 0.4 is for releases 2.0 to 2.4
    #[arg(long, value_name = "VERSION", value_parser = choices(|writing| writing.versions))]
    pub(crate) format_version: Option<String>,

    /// Names tensors after objects, with the graph that tf.train.Checkpoint restores by
    /// (TensorFlow only)
    #[arg(long)]
    pub(crate) object_graph: bool,

    /// Also writes the file `checkpoint`, which names the latest of its folder (TensorFlow only)
    #[arg(long)]
    pub(crate) state_file: bool,

    /// Cuts the output into files of at most so many bytes of tensors, e.g. 5GB, with an index
    /// (safetensors, PyTorch, TensorFlow)
    #[arg(long, value_name = "SIZE", conflicts_with = "shard")]
    pub(crate) shard_size: Option<String>,

    /// Puts tensors whose new keys match into the file NAME beside OUT, with an index; may be
    /// repeated, the first match wins; what none matches goes into OUT (safetensors, PyTorch,
    /// TensorFlow)
    #[arg(long, value_name = "PATTERN=NAME")]
    pub(crate) shard: Vec<String>,

    /// Goes on although something is lost; without this the losses are listed and nothing is
    /// written
    #[arg(long)]
    pub(crate) lossy: bool,

    /// Replaces OUT if it exists
    #[arg(long)]
    pub(crate) force: bool,

    /// Shows what would be written, and writes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) durable: Durable,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// What is taken, under which keys, and as what; applied in this order.
#[derive(Debug, Args)]
#[command(next_help_heading = "Edits, applied in this order")]
pub(crate) struct Edits {
    /// Writes a copy of its own for each name of tied tensors
    #[arg(long)]
    pub(crate) untie: bool,

    /// Only these top-level states, e.g. model,optimizer; keys that start with __ stay
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) states: Vec<String>,

    /// Only keys that match: a glob, or /a regular expression/; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) select: Vec<String>,

    /// Not the keys that match; may be repeated, and beats --select
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,

    /// Takes this off the start of every key
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) strip_prefix: String,

    /// Replaces what a regular expression finds in keys; $1 is its first group; may be repeated
    #[arg(long, value_name = "REGEX=>REPLACEMENT")]
    pub(crate) rename: Vec<String>,

    /// Puts this before every key
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    /// Splits names at their dots: each becomes a dict in a dict
    #[arg(long)]
    pub(crate) nest: bool,

    /// Converts floating-point tensors to this dtype, e.g. bfloat16, or those that match a pattern
    /// of new keys; may be repeated, the first match wins
    #[arg(long, value_name = "[PATTERN=]DTYPE")]
    pub(crate) cast: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Formats {
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Prints the table in Markdown, as the README has it
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
}

/// The formats that can be written.
fn formats() -> PossibleValuesParser {
    let name = |writing: &'static Writing| PossibleValue::new(writing.id).help(writing.label);
    statelens_formats::writings().map(name).collect::<Vec<_>>().into()
}

/// What some format that can be written lets choose.
fn choices(of: fn(&Writing) -> &'static [Choice]) -> PossibleValuesParser {
    let named = |choice: &&Choice| !choice.id.is_empty();
    statelens_formats::writings()
        .flat_map(of)
        .filter(named)
        .map(|choice| PossibleValue::new(choice.id).help(choice.name))
        .collect::<Vec<_>>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
