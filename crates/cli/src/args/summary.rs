//! `statelens summary`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Replacing, Spending};

/// What to write about a checkpoint.
#[derive(Debug, Args)]
#[command(mut_arg("force", |arg| arg.requires("output")))]
pub(crate) struct SummaryArgs {
    /// The checkpoint
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// The format to write; by default the one of OUT's extension, or txt
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Option<To>,

    /// Reads all values: statistics of each tensor, rounded in a link, and the fingerprint of the
    /// content
    #[arg(long)]
    pub(crate) stats: bool,

    /// Reads all values for the fingerprint of the content only
    #[arg(long, conflicts_with = "stats")]
    pub(crate) content: bool,

    /// The file to write; by default standard output
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) replacing: Replacing,

    /// Prints a link to a page of Statelens at BASE that holds the structure after its #
    #[arg(long, value_name = "BASE", conflicts_with_all = ["to", "content", "output"])]
    pub(crate) link: Option<String>,

    /// How keys appear in the link: as they are, each part as four letters, or not at all
    #[arg(long, value_name = "HOW", requires = "link", default_value = "plain")]
    pub(crate) keys: LinkKeys,

    /// Includes values that are not tensors in the link
    #[arg(long, requires = "link")]
    pub(crate) values: bool,

    /// Leaves findings out of the link
    #[arg(long, requires = "link")]
    pub(crate) no_findings: bool,

    /// Another file that the checkpoint refers to; files next to it are found automatically
    #[arg(long, value_name = "FILE")]
    pub(crate) with: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) spending: Spending,
}

/// A kind of summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum To {
    /// Markdown, for a model card or an issue
    Md,
    /// One page that opens from disk: tree, table, findings
    Html,
    /// JSON, as docs/summary.md describes it
    Json,
    /// Plain text
    Txt,
    /// A picture to paste: sizes, the bytes by dtype, deviation over depth, grade and findings
    Svg,
}

/// The form of keys in a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinkKeys {
    /// As they are
    Plain,
    /// Each part of a name as four letters, in order of appearance
    Coded,
    /// Not at all: keys are replaced by their positions
    Hidden,
}
