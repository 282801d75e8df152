//! `statelens convert-model`.

use std::path::PathBuf;

use clap::Args;

use super::{Common, Preview, Replacing};

#[derive(Debug, Args)]
#[command(mut_arg("dry_run", |arg| {
    arg.help("Shows the old and new keys and what casts may lose, and writes nothing")
}))]
#[command(mut_arg("force", |arg| arg.help("Replaces files that exist")))]
pub(crate) struct ConvertModel {
    /// The checkpoint: a file, an index of shards, or a folder; for a model of several parts, a
    /// folder that has a folder for each
    #[arg(value_name = "CKPT")]
    pub(crate) checkpoint: PathBuf,

    /// The model, as `statelens list-converters` names it; by default it is recognised
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// The format of CKPT; cs-auto is the release that it names; by default the format is
    /// recognised
    #[arg(long, value_name = "FORMAT")]
    pub(crate) src_fmt: Option<String>,

    /// The format to write: hf, cs-2.9, cs-current, …
    #[arg(long, value_name = "FORMAT", alias = "to")]
    pub(crate) tgt_fmt: String,

    /// The config that belongs to CKPT, or a folder with one for each part; by default the one next
    /// to CKPT
    #[arg(long, value_name = "CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// The folder to write to, created if needed; by default that of CKPT
    #[arg(short = 'o', long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Splits Hugging Face's files at this size
    #[arg(long, value_name = "SIZE", default_value = "10GB")]
    pub(crate) hf_shard_size: String,

    /// Writes Hugging Face's files as safetensors rather than pickles
    #[arg(long)]
    pub(crate) export_safetensors: bool,

    /// Leaves out keys that no rule covers; otherwise they are listed and nothing is written
    #[arg(long)]
    pub(crate) drop_unmatched_keys: bool,

    /// Removes from keys what wrappers around the model have added: module., _orig_mod.
    /// (torch.compile), _fsdp_wrapped_module., _checkpoint_wrapped_module.
    #[arg(long)]
    pub(crate) unwrap: bool,

    /// Converts the optimizer's moments, too: the state `optimizer` of the checkpoint, or
    /// optimizer.pt next to Hugging Face's files. Rules that compute with a parameter are refused
    #[arg(long)]
    pub(crate) with_optimizer: bool,

    /// Folds LoRA into the weights first, as `statelens fold-lora` does: that of a Cerebras
    /// checkpoint, or the PEFT adapter in the folder of CKPT
    #[arg(long, conflicts_with = "with_optimizer")]
    pub(crate) fold_lora: bool,

    /// How many files to write, in a format with one for each rank of tensor parallelism (meta,
    /// megatron)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) ranks: u16,

    /// Uses a recipe of your own, as docs/recipes.md describes it
    #[arg(long, value_name = "FILE")]
    pub(crate) recipe: Option<PathBuf>,

    /// Converts floating-point tensors to this dtype, e.g. bfloat16, or those that match a pattern
    /// of new keys; may be repeated, the first pattern that matches wins
    #[arg(long, value_name = "[PATTERN=]DTYPE")]
    pub(crate) cast: Vec<String>,

    #[command(flatten)]
    pub(crate) preview: Preview,

    /// Continues even if something is lost; otherwise the losses are listed and nothing is written
    #[arg(long)]
    pub(crate) lossy: bool,

    /// Accepted for scripts of the original tool
    #[arg(long, hide = true)]
    pub(crate) no_progress_bar: bool,

    #[command(flatten)]
    pub(crate) replacing: Replacing,

    #[command(flatten)]
    pub(crate) common: Common,
}
