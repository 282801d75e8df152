//! `statelens ls` and `statelens show`.

use clap::{Args, ValueEnum};

use super::Input;

#[derive(Debug, Args)]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) input: Input,

    /// Only keys that one of these matches: a glob, or /a regular expression/
    #[arg(value_name = "PATTERN")]
    pub(crate) patterns: Vec<String>,

    /// Only tensors and arrays
    #[arg(long)]
    pub(crate) tensors: bool,

    /// Only tensors of this dtype, e.g. bfloat16; may be repeated
    #[arg(long, value_name = "DTYPE")]
    pub(crate) dtype: Vec<String>,

    /// Only tensors of at least this many bytes, e.g. 1MB
    #[arg(long, value_name = "SIZE", value_parser = statelens::parts::convert::size)]
    pub(crate) min_bytes: Option<u64>,

    /// Sorts by bytes or elements, the largest first, or by name or dtype
    #[arg(long, value_name = "BY")]
    pub(crate) sort: Option<Sort>,

    /// Reverses the order
    #[arg(long)]
    pub(crate) reverse: bool,

    /// Shows the pieces of each tensor below it: place, shape, bytes, rank, file and offset
    #[arg(long, conflicts_with = "tree")]
    pub(crate) pieces: bool,

    /// Shows a tree, in which layers that differ only in their number appear once
    #[arg(long, conflicts_with_all = ["json", "sort", "reverse"])]
    pub(crate) tree: bool,
}

/// The property that a list is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Bytes, largest first
    Bytes,
    /// Elements of the tensor, largest first
    Elements,
    /// The key, numbers in it as numbers
    Name,
    /// The name of the dtype
    Dtype,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) input: Input,

    /// Flattened keys, as `ls` prints them, with an optional slice: 'model.w[0:2, :4]'
    #[arg(value_name = "KEY", required = true)]
    pub(crate) keys: Vec<String>,

    /// How many of a tensor's values to show, or all [default: 16, for a slice 1,000]
    #[arg(long, value_name = "COUNT|all", value_parser = count)]
    pub(crate) values: Option<u64>,

    /// Prints Python code that reads it instead: with the usual library for this format, or with
    /// =LIBRARY, e.g. --code=numpy
    #[arg(long, value_name = "LIBRARY", num_args = 0..=1, require_equals = true)]
    pub(crate) code: Option<Option<String>>,

    /// Shows the stored bytes as another dtype of the same width, or as integers of four bits: int4,
    /// uint4, or with the first one in the high half of a byte, int4-high-first, uint4-high-first
    #[arg(long = "as", value_name = "DTYPE", conflicts_with = "code")]
    pub(crate) shown_as: Option<String>,

    /// With --as: the shape to show, e.g. 64,128
    #[arg(long, value_name = "DIMENSIONS", value_delimiter = ',', requires = "shown_as")]
    pub(crate) shape: Option<Vec<u64>>,
}

/// Parses a number or `all`.
fn count(text: &str) -> Result<u64, String> {
    match text {
        "all" => Ok(u64::MAX),
        number => number.parse().map_err(|_| "expected a number, or all".to_owned()),
    }
}
