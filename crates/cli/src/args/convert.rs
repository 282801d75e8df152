//! `statelens convert` and `statelens merge`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use statelens::Writing;
use statelens::parts::convert::OutputOptions;
use statelens::parts::formats::Choice;

use super::{Common, Replacing};

#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// The checkpoint to read; `-` is standard input
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,

    /// The file to write, or a folder to put it in; `-` is standard output; with --states it may be
    /// left out, and is then STATES_IN next to IN
    #[arg(value_name = "OUT", required_unless_present_any = ["states", "output_option", "in_place"])]
    pub(crate) output: Option<PathBuf>,

    /// The same as OUT
    #[arg(
        short,
        long = "output",
        id = "output_option",
        value_name = "OUT",
        conflicts_with = "output"
    )]
    pub(crate) output_option: Option<PathBuf>,

    /// Replaces IN with the output, once that is complete and has been read back
    #[arg(long, conflicts_with_all = ["output", "output_option", "shard_size", "shard"])]
    pub(crate) in_place: bool,

    /// Writes quantised weights as tensors of numbers, without their scales; exact in float32
    #[arg(
        long,
        visible_alias = "dequantise",
        value_name = "DTYPE",
        num_args = 0..=1,
        default_missing_value = "float32",
        value_parser = ["bfloat16", "float16", "float32"],
        conflicts_with = "in_place"
    )]
    pub(crate) dequantize: Option<String>,

    #[command(flatten)]
    pub(crate) edits: Edits,

    #[command(flatten)]
    pub(crate) preview: Preview,

    #[command(flatten)]
    pub(crate) writes: Writes,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options that show what a conversion would do.
#[derive(Debug, Args)]
pub(crate) struct Preview {
    /// Shows what would be written, and writes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// With --dry-run: reads the tensors that would be cast, and reports how many values would
    /// change, overflow or become zero
    #[arg(long, requires = "dry_run")]
    pub(crate) scan: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// The checkpoints to read, then the file to write unless -o names it
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    pub(crate) files: Vec<PathBuf>,

    /// The file to write
    #[arg(short, long = "output", value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) writes: Writes,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options for the output.
#[derive(Debug, Default, Args)]
pub(crate) struct Writes {
    /// The format to write; by default the one of OUT's extension
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    pub(crate) to: Option<String>,

    /// Compresses tensors (Cerebras only)
    #[arg(long, value_name = "METHOD", value_parser = choices(|writing| writing.compressions))]
    pub(crate) compress: Option<String>,

    /// Which version of the Cerebras format: 0.4 is for releases 2.0 to 2.4
    #[arg(long, value_name = "VERSION", value_parser = choices(|writing| writing.versions))]
    pub(crate) format_version: Option<String>,

    /// Names tensors by object, with the graph that tf.train.Checkpoint restores from (TensorFlow
    /// only)
    #[arg(long)]
    pub(crate) object_graph: bool,

    /// Also writes the file `checkpoint`, which names the latest of its folder (TensorFlow only)
    #[arg(long)]
    pub(crate) state_file: bool,

    /// Splits the output into files of at most this many bytes of tensors, e.g. 5GB, with an index
    /// (safetensors, PyTorch, TensorFlow)
    #[arg(long, value_name = "SIZE", conflicts_with = "shard")]
    pub(crate) shard_size: Option<String>,

    /// Puts tensors whose new keys match into the file NAME next to OUT, with an index; may be
    /// repeated, the first match wins; the rest goes into OUT (safetensors, PyTorch, TensorFlow)
    #[arg(long, value_name = "PATTERN=NAME")]
    pub(crate) shard: Vec<String>,

    /// Continues even if something is lost; otherwise the losses are listed and nothing is written
    #[arg(long)]
    pub(crate) lossy: bool,

    #[command(flatten)]
    pub(crate) replacing: Replacing,
}

impl Writes {
    /// Returns the options for a format without any others.
    pub(crate) fn plain(to: &str, replacing: Replacing) -> Self {
        Self { to: Some(to.to_owned()), replacing, ..Self::default() }
    }

    /// Returns the options of an output in this format.
    pub(crate) fn output(&self, writing: &Writing) -> OutputOptions {
        OutputOptions {
            to: writing.id.to_owned(),
            version: self.format_version.clone(),
            compression: self.compress.clone(),
            object_graph: self.object_graph,
            state_file: self.state_file,
            shard_size: self.shard_size.clone(),
            shards: self.shard.clone(),
        }
    }
}

/// Edits of the keys and values to write, applied in this order.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Edits, applied in this order")]
pub(crate) struct Edits {
    /// Writes a separate copy for each name of tied tensors
    #[arg(long)]
    pub(crate) untie: bool,

    /// Only these top-level states, e.g. model,optimizer; keys that start with __ stay
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) states: Vec<String>,

    /// Only keys that match: a glob, or /a regular expression/; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) select: Vec<String>,

    /// Leaves out the keys that match; may be repeated, and takes precedence over --select
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,

    /// Removes this prefix from every key, e.g. model.; keys that start with __ stay unchanged
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) strip_prefix: String,

    /// Replaces matches of a regular expression in keys; $1 or ${1} is its first group ($1_x is
    /// group 1 and _x; write ${1} where a digit follows), $$ a dollar sign; may be repeated
    #[arg(long, value_name = "REGEX=>REPLACEMENT")]
    pub(crate) rename: Vec<String>,

    /// Renames whole keys by a list, after --rename: an old and a new key on each line, or a JSON
    /// object
    #[arg(long, value_name = "FILE")]
    pub(crate) rename_map: Option<PathBuf>,

    /// Adds this prefix to every key, e.g. model.; keys that start with __ stay unchanged
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    /// Splits names at their dots into nested dicts
    #[arg(long)]
    pub(crate) nest: bool,

    /// Converts floating-point tensors to this dtype, e.g. bfloat16, or those that match a pattern
    /// of new keys; may be repeated, the first pattern that matches wins
    #[arg(long, value_name = "[PATTERN=]DTYPE")]
    pub(crate) cast: Vec<String>,
}

/// Returns the help text below the options of `convert`: the extensions of every format that is
/// written.
pub(super) fn about() -> String {
    let formats: Vec<String> = statelens::parts::formats::writings()
        .map(|writing| {
            let ends: Vec<String> =
                writing.extensions.iter().map(|end| format!(".{end}")).collect();
            format!("  --to {:<12} {:<22} {}", writing.id, writing.name, ends.join(" "))
        })
        .collect();
    format!(
        "\
--to or the extension of OUT selects the format:
{}
.ckpt may be PyTorch or TensorFlow: choose one with --to. Missing folders are created. OUT is
written under a temporary name next to it and renamed when it is complete: after an interrupt or a
failure, nothing is left behind and an old OUT is unchanged.

Examples:
  statelens convert checkpoint_1000.mdl model.pt
  statelens convert model.pt model.mdl --compress lz4
  statelens convert checkpoint.mdl weights.pt --select 'model.*' --cast bfloat16
  statelens convert a.pt b.pt --states model --cast '*.norm.*=float32' --cast bfloat16
  statelens convert a.pt b.pt --rename 'layers\\.(\\d+)=>h.$1' --strip-prefix model. --dry-run
  statelens convert a.pt -o out/ --to safetensors --rename-map names.txt
  statelens convert model.pt --in-place --cast bfloat16
  statelens convert gptq/model.safetensors dense/ --to safetensors --dequantize bfloat16
  statelens convert model-Q4_K_M.gguf model.safetensors --dequantize bfloat16
  statelens convert model.pt model.safetensors --shard-size 5GB
  curl -s ADDRESS | statelens convert - - --to safetensors > model.safetensors",
        formats.join("\n")
    )
}

/// Returns the formats that can be written.
fn formats() -> PossibleValuesParser {
    let name = |writing: &'static Writing| {
        PossibleValue::new(writing.id).aliases(writing.aliases()).help(writing.label)
    };
    let objects = statelens::parts::formats::object_writings();
    statelens::parts::formats::writings().chain(objects).map(name).collect::<Vec<_>>().into()
}

/// Returns the choices that any writable format offers.
fn choices(of: fn(&Writing) -> &'static [Choice]) -> PossibleValuesParser {
    let named = |choice: &&Choice| !choice.id.is_empty();
    statelens::parts::formats::writings()
        .flat_map(of)
        .filter(named)
        .map(|choice| PossibleValue::new(choice.id).help(choice.name))
        .collect::<Vec<_>>()
        .into()
}
