//! The commands for model families, which convert from one implementation of a model to another.

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(crate) use super::convert_model::ConvertModel;
use super::{Common, Replacing};

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Converts a model's checkpoint and config between Hugging Face and Cerebras's releases
    #[command(name = "convert-model", alias = "convert_model")]
    #[command(after_help = "\
Does what `cszoo checkpoint convert` of Cerebras's Model Zoo does, and converts by way of other
releases where there is no single step. Tensors are renamed, transposed, split and joined while
they are copied, in bounded memory, as docs/recipes.md describes. Every key is accounted for: if
no rule covers one, it is listed with the nearest rule, and nothing is written.

hf: a folder NAME_to_hf with shards, their index and config.json. Releases: NAME_to_FORMAT.mdl and
CONFIG_to_FORMAT.yaml. Without --model, --src-fmt and --config they are recognised from the keys,
from the metadata of the checkpoint, and from the config next to it.

--cast works as in `statelens convert`; its patterns match the new keys. A file in which numbers
overflow, or more than 1 % of a tensor's numbers become 0, is discarded unless --lossy is given.
If all weights are cast to one dtype, torch_dtype in the new config.json follows.

Examples:
  statelens convert-model model_dir --to cs-2.9 -o out
  statelens convert-model checkpoint_1000.mdl --to hf --export-safetensors
  statelens convert-model checkpoint.mdl --config params.yaml --model gpt2 --src-fmt cs-1.8 --tgt-fmt cs-2.9
  statelens convert-model checkpoint.mdl --to hf --dry-run
  statelens convert-model model_dir --to cs-2.9 --cast bfloat16 --dry-run --scan
  statelens convert-model checkpoint.mdl --to hf --cast '*norm*=float32' --cast bfloat16
  statelens convert-model mine.pt --recipe mine.recipe --src-fmt hf --tgt-fmt cs-2.9")]
    Checkpoint(Box<ConvertModel>),

    /// Folds LoRA into the weights: in a Cerebras checkpoint, or a PEFT adapter into its model
    #[command(alias = "fold_lora")]
    #[command(after_help = "\
Does what `fold_lora_checkpoint.py` of Cerebras's Model Zoo does: CKPT_folded.mdl holds the model
alone, CONFIG_folded.yaml the config without lora_params.

With an adapter it does what `merge_and_unload` of PEFT does: CKPT_folded is a folder with the whole
model as safetensors and its config.json.

Examples:
  statelens fold-lora checkpoint_1000.mdl --config params.yaml
  statelens fold-lora Llama-2-7b --adapter my-adapter -o out")]
    FoldLora(Box<FoldLora>),

    /// Converts a model's config between Hugging Face and Cerebras's releases
    #[command(alias = "convert_config")]
    #[command(after_help = "\
Does what `convert_checkpoint.py convert-config` of Cerebras's Model Zoo does, and converts by way
of other releases where there is no single step. Configs of Hugging Face are JSON, those of
Cerebras are YAML with sorted keys; comments are lost. For LLaVA, DPR and DRAGON, the side of
Hugging Face is a folder that has a folder with a config.json for each part. Settings that the
other side does not support are refused, by key.

A format is hf, or a release: cs-1.6 to cs-1.9 and cs-2.0 to cs-2.10, cs-current for the newest,
cs-2.1-dpo and later for DPO. Without --model and --src-fmt they are recognised from the config,
if it identifies them.

Exit status: 0 if the config was written, 1 if it can't be converted, 2 if a file could not be read
or written.

Examples:
  statelens convert-config config.json --model llama --src-fmt hf --tgt-fmt cs-2.9
  statelens convert-config config.json --to cs-current
  statelens convert-config params.yaml --model gpt2 --src-fmt cs-1.9 --tgt-fmt cs-2.9 -o new")]
    ConvertConfig(ConvertConfig),

    /// Lists the models whose checkpoints and configs can be converted, and between which formats
    #[command(alias = "list_converters")]
    #[command(after_help = "\
Each line works in both directions. Between formats of different lines the conversion takes
several steps, release by release.

Examples:
  statelens list-converters
  statelens list-converters llama
  statelens list-converters --json | jq -r '.models[].model'")]
    ListConverters(ListConverters),
}

#[derive(Debug, Args)]
#[command(mut_arg("force", |arg| arg.help("Replaces files that exist")))]
pub(crate) struct ConvertConfig {
    /// The config: config.json of Hugging Face, a .yaml of Cerebras, or a folder of parts
    #[arg(value_name = "CONFIG")]
    pub(crate) config: PathBuf,

    /// The model, as `statelens list-converters` names it
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// The format of CONFIG
    #[arg(long, value_name = "FORMAT")]
    pub(crate) src_fmt: Option<String>,

    /// The format to write
    #[arg(long, value_name = "FORMAT", alias = "to")]
    pub(crate) tgt_fmt: String,

    /// The folder to write to, created if needed; by default that of CONFIG
    #[arg(short = 'o', long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Lists the keys that have no place in the target
    #[arg(long)]
    pub(crate) debug: bool,

    #[command(flatten)]
    pub(crate) replacing: Replacing,

    /// Prints JSON, as docs/json.md describes it
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListConverters {
    /// Only this model
    #[arg(value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// Prints JSON, as docs/json.md describes it
    #[arg(long)]
    pub(crate) json: bool,

    /// Accepted for scripts of the original tool; lists here do not have notes
    #[arg(long, hide = true)]
    pub(crate) hide_notes: bool,
}

#[derive(Debug, Args)]
#[command(mut_arg("force", |arg| arg.help("Replaces files that exist")))]
pub(crate) struct FoldLora {
    /// The checkpoint: a Cerebras one with LoRA in it, or the model that a PEFT adapter was trained
    /// on
    #[arg(value_name = "CKPT")]
    pub(crate) checkpoint: PathBuf,

    /// The adapter: adapter_model.safetensors with adapter_config.json next to it, or their folder;
    /// by default the one in the folder of CKPT
    #[arg(long, value_name = "ADAPTER", conflicts_with = "config")]
    pub(crate) adapter: Option<PathBuf>,

    /// The config that the model was trained with; by default the one next to CKPT
    #[arg(long, short = 'p', value_name = "CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// The folder to write to, created if needed; by default that of CKPT
    #[arg(short = 'o', long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Splits the files of a model with an adapter at this size
    #[arg(long, value_name = "SIZE", default_value = "10GB")]
    pub(crate) hf_shard_size: String,

    #[command(flatten)]
    pub(crate) replacing: Replacing,

    #[command(flatten)]
    pub(crate) common: Common,
}
