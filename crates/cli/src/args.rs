//! The command line, defined once: parsing, help, completions and the man page come from here.

mod comparing;
mod convert;
mod convert_model;
mod job;
mod listing;
mod model;
mod spending;
mod summary;
mod toolbox;
mod values;

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::output::Sync;

pub(crate) use comparing::{Diff, DiffOrder, EqualityTest};
pub(crate) use convert::{Convert, Edits, Merge, Preview, Writes};
pub(crate) use job::{Job, JobConvert, JobMany, JobPlace, JobRun};
pub(crate) use listing::{Ls, Show, Sort};
pub(crate) use model::{ConvertConfig, ConvertModel, FoldLora, ListConverters, ModelCommand};
pub(crate) use spending::Spending;
pub(crate) use summary::{LinkKeys, SummaryArgs, To};
pub(crate) use toolbox::{
    Check, ConvertDataloaderState, Dataloader, FixCheckpointSpec, Latest, Prune, RunFolderArgs,
    Runs, Toolbox, Upgrade, Verify,
};
pub(crate) use values::{By, Export, ScaleArg, SingularArgs, SortBy, StatsArgs, ValuesCommand};

const EXAMPLES: &str = "\
Examples:
  statelens info checkpoint_1000.mdl         format, size, findings
  statelens ls model.pt 'model.*.weight'     every key that matches, with shape and bytes
  statelens show model.pt model.norm.weight  type, location, first values
  statelens convert checkpoint.mdl model.pt  Cerebras to PyTorch, in bounded memory
  statelens diff checkpoint.mdl model.pt     differences between two, in any formats
  statelens scan downloaded.bin              what a pickle would call, without calling it

Exit status: 0 success; 1 the answer is no (scan found something,
files differ, a check failed); 2 an error; 3 verify --finite or
stats --fail-on could not check everything, and found nothing wrong.";

/// Opens, explains and converts model checkpoints
///
/// Reads Cerebras HDF5 (.mdl) and Cerebras S3, PyTorch (.pt, .pth, .bin, .ckpt), safetensors, TensorFlow, NumPy
/// array (.npy), NumPy archive (.npz), Keras, GGUF, Flax msgpack, Python pickle (.pkl) and any other
/// HDF5, and folders of many ranks: PyTorch distributed checkpoint, PyTorch FSDP ranks, DeepSpeed
/// and safetensors of ranks; `statelens formats` says which of them it writes.
/// Formats are recognised by content. Weights are read only on request, and nothing in a checkpoint
/// is ever run.
#[derive(Debug, Parser)]
#[command(name = "statelens", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Returns the command line of a build with or without the page.
pub(crate) fn command(has_page: bool) -> clap::Command {
    let command = Cli::command();
    if !has_page {
        let note = |command: clap::Command| {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            command.about(format!("{about} (not in this build, which has no page)"))
        };
        return command.mut_subcommand("serve", note).mut_subcommand("open", note);
    }
    command
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Describes a checkpoint: format, sizes, counts by dtype and by state, findings
    #[command(after_help = "\
Examples:
  statelens info checkpoint_1000.mdl
  statelens info *.safetensors               one table of all
  statelens info --model model_dir           the model, and how it was recognised
  statelens info --states checkpoint_1000.mdl
  statelens info --json model.pt | jq .bytes
  statelens info hf://owner/name@revision    a repository on the Hugging Face Hub, or its page's URL

--model reports what names, shapes and a config reveal about the model: family, layers, sizes,
parameters by component, quantised layouts, memory, each with its source. `read` means that the
config or the file says it, `inferred` that it follows from names or shapes. A config.json,
params.yaml or params.json next to FILE is read; --config names another.")]
    Info(Info),

    /// Lists the flattened state: key, kind, dtype, shape, bytes, value
    #[command(after_help = "\
A pattern is a glob over the whole key ('model.*.weight'; '*' also matches dots, '?' is one
character, '[0-3]' one of these, '[!0-3]' any other, '{k,v}' either) or a regular expression between
slashes ('/layers\\.[0-3]\\./'), found anywhere in the key.

Examples:
  statelens ls model.pt
  statelens ls model.pt 'optimizer.*'
  statelens ls model.pt --tensors --sort bytes | head
  statelens ls model.pt '*attn*' --min-bytes 1MB --sort bytes
  statelens ls model.pt --tree
  statelens ls model.pt '/\\.(weight|bias)$/' --json")]
    Ls(Ls),

    /// Shows values: type, where they are stored, first numbers or a slice of them
    #[command(after_help = "\
A slice is written as in Python: numbers and start:stop:step for each dimension, negative ones from
the end, ... for all dimensions that are left out.

Examples:
  statelens show model.pt model.norm.weight
  statelens show model.pt 'model.head.weight[120, 570:580]' 'model.norm.weight[-3:]'
  statelens show model.pt model.norm.weight --values 64
  statelens show model.pt 'model.norm.weight[:8]' --code")]
    Show(Show),

    /// Prints every leaf with a hash of its values, to compare checkpoints across formats
    #[command(after_help = "\
Hashes are SHA-256 of the logical values (C order, little-endian). They do not depend on the
format, on chunks or on views. With --json, a manifest also has types: of keys, of tensors in
Python, the names in an enumeration. Attributes of HDF5, the metadata of safetensors and model
configurations are not part of it. `statelens diff` compares those. The exit status is 1 if a value
can't be read or the file is damaged.

Examples:
  statelens manifest --json model.pt > model.json
  statelens manifest model.pt -o model.manifest   save now, check later with `statelens verify`
  diff <(statelens manifest a.mdl) <(statelens manifest b.pt)")]
    Manifest(Manifest),

    /// Converts to another format, in bounded memory
    #[command(after_help = convert::about())]
    Convert(Convert),

    /// Merges several checkpoints into one
    #[command(after_help = "\
Dicts are merged key by key. A key that two of them have is an error, unless it is the same plain
value in both (tensors are not compared); with --lossy the last one is kept. Formats may differ;
--to or the extension of OUT selects that of OUT.

Examples:
  statelens merge model.safetensors adapter.safetensors merged.safetensors
  statelens merge a.pt b.pt c.mdl -o all.pt --lossy")]
    Merge(Merge),

    /// Divides a conversion, or a command for many checkpoints, into tasks for many machines
    #[command(subcommand)]
    Job(Job),

    /// Converts a TensorFlow checkpoint to a Cerebras one, with the names of variables as keys
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
        mut_arg("output", |arg| arg.value_name("SAVER_PATH").help("The checkpoint's prefix, to which .index and .data-* are added")),
        mut_arg("to", |arg| arg.hide(true)),
        after_help = "\
The same as `statelens convert H5_PATH SAVER_PATH --to tensorflow`.

Examples:
  statelens h5-to-tensorflow model.h5 model_dir/model.ckpt-1000 --state-file")]
    H5ToTensorflow(Convert),

    /// Writes a summary of a checkpoint as a file or a link to share, without its weights
    #[command(after_help = "\
Without --stats and --content, no weights are read. The same checkpoint gives the same bytes.

Examples:
  statelens summary model.pt --to md >> README.md
  statelens summary checkpoint_1000.mdl --stats -o summary.html
  statelens summary model.pt --link https://example.org/statelens/
  statelens summary model.pt --link https://example.org/statelens/ --keys coded")]
    Summary(SummaryArgs),

    #[command(flatten)]
    Values(ValuesCommand),

    #[command(flatten)]
    Toolbox(Toolbox),

    #[command(flatten)]
    Model(ModelCommand),

    /// Serves the page to a browser on this machine, with the checkpoints of a folder
    #[command(after_help = "\
The page is part of this program. It is served on 127.0.0.1 only, and requires the token in the
address that it prints. Files of DIR are read in place, by ranges; nothing outside DIR is served.
Ctrl-C stops it. From another machine:
ssh -L 8650:127.0.0.1:8650 HOST statelens serve --no-browser DIR

Examples:
  statelens serve
  statelens serve model_dir
  statelens serve --port 9000 --no-browser model_dir")]
    Serve(Serve),

    /// Opens a checkpoint in the page
    #[command(after_help = "\
Serves the folder of FILE, as `statelens serve` does, and opens FILE.

Examples:
  statelens open checkpoint_1000.mdl
  statelens open model_dir/model.safetensors.index.json")]
    Open(OpenArgs),

    /// Reports what files would run when they are loaded; exit status 1 if something is found
    #[command(after_help = "\
Nothing is run. Every pickle in a file is examined, wherever it is: in archives and compressed
files, before, after and between other data, in attributes of HDF5 files, in arrays of objects. So
are Lambda layers of Keras, chat templates of GGUF files, and code in archives. Findings are
graded note, warning, damage, unknown code and danger. In folders every file is examined,
checkpoint or not.

Exit status: 0 if everything was examined and nothing is worse than a warning; 1 if code is
unknown or dangerous, if a pickle breaks off, or if something could not be examined; 2 if a file
could not be read.

Examples:
  statelens scan downloaded.bin && python train.py
  statelens scan ~/models extra.ckpt
  statelens scan --sarif downloaded/ > scan.sarif
  statelens scan --json downloaded/ | jq -r 'select(.worst == \"danger\").path'
  statelens scan model.pkl --allow sklearn.linear_model._base.LinearRegression")]
    Scan(Scan),

    /// Lists the formats that are read and written
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
    /// The checkpoint; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// The checkpoints to open.
#[derive(Debug, Args)]
pub(crate) struct Inputs {
    /// Checkpoints; several are shown in one table. `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Info {
    /// Describes the model, as far as names, shapes and its config allow
    #[arg(long)]
    pub(crate) model: bool,

    /// Lists the top-level states, with their sizes
    #[arg(long, conflicts_with_all = ["model", "config"])]
    pub(crate) states: bool,

    /// The config of the model; by default the one next to FILE
    #[arg(long, value_name = "CONFIG")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) inputs: Inputs,
}

#[derive(Debug, Args)]
pub(crate) struct Scan {
    /// Files, and folders with everything in them
    #[arg(value_name = "FILE", required = true)]
    pub(crate) paths: Vec<PathBuf>,

    /// A class or function that you trust, e.g. --allow mymodel.Config, and that is not reported;
    /// may be repeated. Names that are known to be dangerous are reported anyway
    #[arg(long, value_name = "NAME")]
    pub(crate) allow: Vec<String>,

    /// Prints SARIF 2.1.0, for code scanning
    #[arg(long, conflicts_with = "json")]
    pub(crate) sarif: bool,

    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Prints JSON, as docs/json.md describes it
    #[arg(long)]
    pub(crate) json: bool,

    /// Another file that the checkpoint refers to; files next to it are found automatically
    #[arg(long, value_name = "FILE")]
    pub(crate) with: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) spending: Spending,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The folder whose checkpoints can be opened; without it, only files dropped on the page
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) at: ServeAt,
}

#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
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

    /// Prints the address without starting a browser
    #[arg(long)]
    pub(crate) no_browser: bool,
}

#[derive(Debug, Args)]
#[command(mut_arg("force", |arg| arg.requires("output")))]
pub(crate) struct Manifest {
    #[command(flatten)]
    pub(crate) input: Input,

    /// Writes to a file, which appears when it is complete; as JSON if its name ends in .json
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,

    /// Hashes quantised weights as tensors of float32, under the names of the weights; exit status 1
    /// if the values of some are not known
    #[arg(long, visible_alias = "dequantise")]
    pub(crate) dequantize: bool,

    #[command(flatten)]
    pub(crate) replacing: Replacing,
}

/// Whether output files replace others, and when they must be on the disk.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Replacing {
    /// Replaces OUT if it exists
    #[arg(long)]
    pub(crate) force: bool,

    /// Waits until the output is on the disk, as is always done before a file is replaced
    #[arg(long)]
    sync: bool,
}

impl Replacing {
    /// Returns when output files must be on the disk.
    pub(crate) fn sync(self) -> Sync {
        Sync::of(self.sync)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        command(true).debug_assert();
    }
}
