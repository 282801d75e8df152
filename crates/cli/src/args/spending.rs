//! Limits on what a command may spend on a checkpoint.

use clap::Args;
use statelens::Limits;

use super::{Command, ModelCommand, Toolbox, ValuesCommand};

/// Limits for commands that open checkpoints; only their help lists these options.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Spending {
    /// Maximum size to fetch from web servers, e.g. 20GB; 1 GB by default
    #[arg(long, value_name = "SIZE", value_parser = statelens::parts::convert::shard_size, hide_short_help = true)]
    pub(crate) max_fetch: Option<u64>,

    /// Reads arrays that are stored without a dtype (void8, void16) as one, e.g. '*=bfloat16' or
    /// 'params*=float8_e4m3fn'; for arrays of ml_dtypes that NumPy saved
    #[arg(long, value_name = "[GLOB=]DTYPE", value_parser = statelens::parts::convert::read_as_rule, help_heading = "Reading", hide_short_help = true)]
    pub(crate) read_as: Vec<statelens::parts::convert::CastRule>,

    /// Shows one key for each layer where Megatron stored all layers in one tensor
    #[arg(long, help_heading = "Reading", hide_short_help = true)]
    pub(crate) unstack: bool,

    /// Raises the limits on memory and work: 10 allows ten times as much, none lifts them; for a
    /// file that you trust
    #[arg(long, value_name = "TIMES|none", value_parser = crate::limits::parse, hide_short_help = true)]
    pub(crate) limit: Option<Limits>,

    /// Maximum disk space for reordering tensors whose elements are stored in another order
    /// (compressed and transposed, chunks of columns), e.g. 20GB; 8 GB by default
    #[arg(long, value_name = "SIZE", value_parser = statelens::parts::convert::shard_size, hide_short_help = true)]
    pub(crate) scratch: Option<u64>,
}

impl Command {
    /// Returns the limits of this command, if it opens checkpoints.
    pub(crate) fn spending(&self) -> Option<&Spending> {
        let common = match self {
            Self::Info(args) => &args.inputs.common,
            Self::Ls(args) => &args.input.common,
            Self::Show(args) => &args.input.common,
            Self::Manifest(args) => &args.input.common,
            Self::Convert(args) | Self::TensorflowToH5(args) | Self::H5ToTensorflow(args) => {
                &args.common
            }
            Self::Merge(args) => &args.common,
            Self::Job(job) => return job.spending(),
            Self::Scan(args) => &args.common,
            Self::Summary(args) => return Some(&args.spending),
            Self::Values(ValuesCommand::Stats(args)) => &args.input.common,
            Self::Values(ValuesCommand::Hist(args)) => &args.input.common,
            Self::Values(ValuesCommand::Export(args)) => &args.input.common,
            Self::Values(ValuesCommand::Singular(args)) => &args.input.common,
            Self::Values(ValuesCommand::Rows(args)) => &args.input.common,
            Self::Toolbox(command) => match command {
                Toolbox::States(args) => &args.common,
                Toolbox::Diff(args) => &args.common,
                Toolbox::Check(args) => &args.inputs.common,
                Toolbox::Verify(args) => &args.inputs.common,
                Toolbox::Upgrade(args) => &args.input.common,
                Toolbox::FixCheckpointSpec(args) => &args.common,
                Toolbox::ConvertDataloaderState(args) => &args.common,
                Toolbox::Runs(_) | Toolbox::Latest(_) | Toolbox::Prune(_) => return None,
            },
            Self::Model(ModelCommand::Checkpoint(args)) => &args.common,
            Self::Model(ModelCommand::FoldLora(args)) => &args.common,
            Self::Model(ModelCommand::ConvertConfig(_) | ModelCommand::ListConverters(_))
            | Self::Serve(_)
            | Self::Open(_)
            | Self::Formats(_)
            | Self::Completions { .. }
            | Self::Man => return None,
        };
        Some(&common.spending)
    }

    /// Returns the limits for each file, if the user gave any.
    pub(crate) fn limit(&self) -> Option<&Limits> {
        match self {
            Self::Toolbox(Toolbox::Runs(args)) => args.folder.limit.as_ref(),
            Self::Toolbox(Toolbox::Latest(args)) => args.folder.limit.as_ref(),
            Self::Toolbox(Toolbox::Prune(args)) => args.folder.limit.as_ref(),
            _ => self.spending()?.limit.as_ref(),
        }
    }
}
