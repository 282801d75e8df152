//! The commands for those who train: states, comparing, checking, repairing, run folders.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{Common, Input};

#[derive(Debug, Subcommand)]
pub(crate) enum Toolbox {
    /// Lists the top-level states of a checkpoint, with their sizes
    #[command(after_help = "\
Examples:
  statelens states checkpoint_1000.mdl
  statelens states --json checkpoint_1000.mdl | jq -r '.states[].state'")]
    States(Input),

    /// Compares two checkpoints of any formats; exit status 1 if they differ
    #[command(after_help = "\
Every leaf is compared by its key: kind, shape, dtype, then values. With --op equal numbers have
to be equal, with --op allclose |left - right| <= atol + rtol * |right|. 0.0 and -0.0 are equal; a
NaN equals a NaN in the same place unless --nan-differs is given. Errors are those of the elements
that are finite on both sides; the relative error is that to RIGHT. The classes of containers and
which weights are tied are not compared.

Examples:
  statelens diff checkpoint.mdl converted.pt
  statelens diff a.mdl b.mdl --op allclose --rtol 1e-3 --ignore-dtype
  statelens diff a.mdl b.mdl --select 'model.*' --json")]
    Diff(Diff),
}

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// One checkpoint
    #[arg(value_name = "LEFT")]
    pub(crate) left: PathBuf,

    /// The other one, which errors are relative to
    #[arg(value_name = "RIGHT")]
    pub(crate) right: PathBuf,

    /// When numbers match
    #[arg(long, value_name = "OPERATION", default_value = "equal")]
    #[arg(visible_alias = "tensor_comparison_op")]
    pub(crate) op: Operation,

    /// Relative tolerance of allclose
    #[arg(long, value_name = "NUMBER", default_value_t = 1e-5, value_parser = tolerance)]
    pub(crate) rtol: f64,

    /// Absolute tolerance of allclose
    #[arg(long, value_name = "NUMBER", default_value_t = 1e-8, value_parser = tolerance)]
    pub(crate) atol: f64,

    /// Takes two NaNs in the same place as different, as torch does
    #[arg(long)]
    pub(crate) nan_differs: bool,

    /// Compares the numbers of tensors of different dtypes
    #[arg(long)]
    pub(crate) ignore_dtype: bool,

    /// Compares numpy arrays with tensors
    #[arg(long)]
    pub(crate) ignore_type: bool,

    /// Only keys that match, on both sides: a glob, or /a regular expression/; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) select: Vec<String>,

    /// Not the keys that match; may be repeated, and beats --select
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,

    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// They are equal
    Equal,
    /// They are within --rtol and --atol
    Allclose,
}

/// A bound for a difference.
fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(value),
        _ => Err("it has to be a number that is not negative".into()),
    }
}
