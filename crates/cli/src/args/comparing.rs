//! `statelens diff`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Common;
use super::values::ScaleArg;

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// One checkpoint
    #[arg(value_name = "LEFT")]
    pub(crate) left: PathBuf,

    /// The other one, to which errors are relative
    #[arg(value_name = "RIGHT")]
    pub(crate) right: PathBuf,

    /// How numbers are compared [default: equal; allclose with --rtol or --atol]
    #[arg(long, value_name = "OPERATION")]
    #[arg(visible_alias = "tensor_comparison_op")]
    pub(crate) op: Option<EqualityTest>,

    /// Relative tolerance of allclose [default: 1e-5]
    #[arg(long, value_name = "NUMBER", value_parser = tolerance)]
    pub(crate) rtol: Option<f64>,

    /// Absolute tolerance of allclose [default: 1e-8]
    #[arg(long, value_name = "NUMBER", value_parser = tolerance)]
    pub(crate) atol: Option<f64>,

    /// The order in which differences are listed
    #[arg(long, value_name = "ORDER", default_value = "key")]
    pub(crate) sort: DiffOrder,

    /// Prints nothing, and only sets the exit status
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,

    /// Treats two NaNs in the same place as different, as torch does
    #[arg(long)]
    pub(crate) nan_differs: bool,

    /// Compares the numbers of tensors of different dtypes
    #[arg(long)]
    pub(crate) ignore_dtype: bool,

    /// Compares numpy arrays with tensors
    #[arg(long)]
    pub(crate) ignore_type: bool,

    /// Also compares the classes of containers and tensors, how keys are nested, and which weights
    /// are tied
    #[arg(long)]
    pub(crate) structure: bool,

    /// Only keys that match, on both sides, as they are in the file: a glob, or /a regular
    /// expression/; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) select: Vec<String>,

    /// Leaves out the keys that match; may be repeated, and takes precedence over --select
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,

    /// Removes this prefix from every key of LEFT
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) strip_prefix: String,

    /// Replaces matches of the expression in the keys of LEFT, as `convert` does; may be repeated
    #[arg(long, value_name = "REGEX=>REPLACEMENT")]
    pub(crate) rename: Vec<String>,

    /// Gives the keys of LEFT new names from a list of old and new ones, as `convert` does
    #[arg(long, value_name = "FILE")]
    pub(crate) rename_map: Option<PathBuf>,

    /// Adds this prefix to every key of LEFT
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    /// Also prints norms, deviations and relative changes of the tensors of one role, layer by
    /// layer
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) by_layer: bool,

    /// Finds tensors that have another key on the other side, by equal bytes, then by shape and
    /// order, and prints old and new keys as `convert --rename-map` takes them; exit status 1 if
    /// it finds no such tensors
    #[arg(long, conflicts_with_all = ["quiet", "by_layer", "closer", "sort"])]
    pub(crate) renames: bool,

    /// Compares only this tensor, in detail: histograms of both sides and of RIGHT minus LEFT; may
    /// be repeated
    #[arg(long, value_name = "KEY", conflicts_with_all = ["quiet", "by_layer", "sort"])]
    pub(crate) closer: Vec<String>,

    #[command(flatten)]
    pub(crate) tensor_diff: TensorDiffArgs,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options for the output of `diff --closer`.
#[derive(Debug, Args)]
pub(crate) struct TensorDiffArgs {
    /// With --closer: how the bins of the histograms are spaced
    #[arg(long, value_name = "SCALE", default_value = "linear", requires = "closer")]
    pub(crate) scale: ScaleArg,

    /// With --closer: number of bins
    #[arg(long, value_name = "COUNT", default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=10_000), requires = "closer")]
    pub(crate) bins: u16,

    /// With one --closer: saves where they differ as a picture, |RIGHT - LEFT| in blocks: .png or .svg
    #[arg(long, value_name = "OUT", requires = "closer")]
    pub(crate) picture: Option<PathBuf>,

    /// Replaces the picture if it exists
    #[arg(long, requires = "picture")]
    pub(crate) force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EqualityTest {
    /// They must be equal
    Equal,
    /// They are within --rtol and --atol
    Allclose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffOrder {
    /// By the order of the keys in the files
    Key,
    /// Largest changes first: those that can't be measured, then by relative change
    Change,
}

/// Parses a bound for a difference.
fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(value),
        _ => Err("expected a number that is not negative".into()),
    }
}
