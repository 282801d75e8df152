//! `statelens stats` and the other commands that read values.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use statelens::parts::values::Scale;
use statelens::statistics::{Condition, FailOn, Grouping, RankedLines, StatisticsField};

use super::{Input, Replacing};

#[derive(Debug, Subcommand)]
pub(crate) enum ValuesCommand {
    /// Reads all values and summarises them: NaN, extremes, mean, deviation, histogram
    #[command(after_help = "\
Suspicious tensors come first: NaN, infinities, tensors that are all zero or all one number, then
the largest magnitudes. Mean, deviation, norms and quantiles are those of the finite values.
Complex numbers count by their modulus, quantised blocks by their dequantised numbers. Quantiles
and histograms are exact for numbers of up to 16 bits and for up to 65,536 values, otherwise
within 1/256; everything else is exact. --where takes a statistic, a comparison and a number. The
statistics are nan, inf, pos_inf, neg_inf, zeros, subnormal, count, min, max, mean, std, l1, l2,
abs_mean, abs_max, kurtosis, beyond_6_std. For counts, the number can be a percentage of all
values: 'zeros>50%'.

Findings follow the table: NaN, layers that are not like their siblings once the trend over depth
is removed, tensors that are equal bit for bit, dead rows, embedding rows that were never trained,
optimizer moments that don't fit, a loss scale at its floor. Candidates for equal tensors and dead
rows, and embeddings, are read a second time.

--histogram draws the values of one tensor. With --scale log, bins are log-spaced on both sides of
zero; numbers below a billionth of the largest share one bin around it. --rank lists the largest
and the smallest rows of a matrix by their norm, or its columns or kernels. In a tensor of more
than two dimensions, each index into all but the last one is a row; a kernel is the last two
dimensions together. Rows that are all zero were never trained, or pruned; rows that are equal to
an earlier one, bit for bit, are counted. The indices of a slice begin at 0.

--fail-on also counts NaN and infinity in tensors without statistics: records, sparse tensors, long
doubles, blocks that are not dequantised. What it can't decode is listed as not checked.

Exit status: 0; 1 if --fail-on finds something; 2 if a tensor could not be read; 3 if --fail-on
finds nothing, but some tensors were not checked.

Examples:
  statelens stats model.safetensors
  statelens stats checkpoint_1000.mdl 'model.*' --by layer
  statelens stats model.pt --where 'std<1e-6' --where 'nan=0' --sort std
  statelens stats model.pt --fail-on nan,inf && python train.py
  statelens stats model.pt model.embed.weight --rows
  statelens stats model.pt model.embed.weight --rank rows --top 20
  statelens stats checkpoint_1000.mdl model.head.weight --histogram --scale log
  statelens stats --json model.pt | jq '.tensors[] | select(.nan > 0) | .key'")]
    Stats(StatsArgs),

    /// `stats --histogram`
    #[command(hide = true)]
    Hist(Hist),

    /// Saves tensors, or slices of them, to a file: .npy, .npz, .safetensors, .csv, .raw; or a picture of
    /// one: .png, .svg
    #[command(after_help = "\
The extension of OUT selects the format. NumPy has no bfloat16 and no floats of 8 bits: --as
float32 holds all their numbers. A .raw file holds the numbers alone, little-endian, the last
dimension fastest; a .csv file has a line for each row of the last dimension. Quantised blocks
become float32.

A picture shows a matrix of any size, read once. It is divided into blocks. Each has the colour of
its value of largest magnitude: orange for positive, blue for negative, magenta if there is NaN or
an infinity. It has axes, a legend and a description in words.

Examples:
  statelens export model.safetensors model.norm.weight norm.npy
  statelens export checkpoint_1000.mdl 'model.head.weight[:100, ::2]' head.csv
  statelens export model.pt model.norm.weight 'model.embed.weight[:100]' some.safetensors
  statelens export model.pt model.embed.weight embed.npz --as float32
  statelens export model.pt model.embed.weight embed.png --width 1600 --height 900
  statelens export model.pt 'conv.weight[0, :, :]' kernel.svg --scale log")]
    Export(Export),

    /// Finds the singular values of a matrix, its rank and its condition
    #[command(after_help = "\
If the smaller side of the matrix is at most 1,024, all singular values are computed in one pass,
as exactly as LAPACK computes them; --all does that up to 4,096. For a larger matrix the 32
largest are computed (--top: up to 64) by multiplying a few fixed vectors by it in up to 8 passes,
each with an error bound. --dry-run estimates the cost without reading. A tensor of more than two
dimensions needs a slice after its key. Values that are NaN or infinite are refused, with their
place.

Rank counts the singular values above the largest times the larger side times 2^-52, as numpy
does; stable rank is the sum of all squares over the largest square; effective rank is the
exponential of the entropy.

Examples:
  statelens singular model.safetensors model.head.weight
  statelens singular model.pt model.embed.weight --top 16 --dry-run
  statelens singular model.pt 'conv.weight[0, :, :]' --all --json")]
    Singular(SingularArgs),

    /// `stats --rank`
    #[command(hide = true)]
    Rows(RowsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RowsArgs {
    #[command(flatten)]
    pub(crate) input: Input,

    /// The flattened key, as `ls` prints it, with an optional slice: 'model.w[:1000]'
    #[arg(value_name = "KEY")]
    pub(crate) key: String,

    /// Ranks columns instead
    #[arg(long, conflicts_with = "kernels")]
    pub(crate) columns: bool,

    /// Takes the last two dimensions together
    #[arg(long)]
    pub(crate) kernels: bool,

    /// How many of the largest and of the smallest to show
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) top: usize,
}

impl RowsArgs {
    pub(crate) fn lines(&self) -> RankedLines {
        match (self.columns, self.kernels) {
            (true, _) => RankedLines::Columns,
            (false, true) => RankedLines::Kernels,
            (false, false) => RankedLines::Rows,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct SingularArgs {
    #[command(flatten)]
    pub(crate) input: Input,

    /// The flattened key, as `ls` prints it, with an optional slice: 'model.w[0, :, :]'
    #[arg(value_name = "KEY")]
    pub(crate) key: String,

    /// All singular values, also of a matrix whose sides are both larger than 1,024
    #[arg(long, conflicts_with = "top")]
    pub(crate) all: bool,

    /// How many of the largest to compute
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) top: Option<u32>,

    /// Estimates the cost, and reads nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) input: Input,

    /// Only keys that one of these matches: a glob, or /a regular expression/
    #[arg(value_name = "PATTERN")]
    pub(crate) patterns: Vec<String>,

    /// Sorts by this, the largest first; by key as `ls --sort name` does
    #[arg(long, value_name = "BY", value_parser = sort_by())]
    pub(crate) sort: Option<SortBy>,

    /// Reverses the order
    #[arg(long)]
    pub(crate) reverse: bool,

    /// Only tensors for which this is true, e.g. 'nan>0' or 'zeros>50%'; may be repeated, and then
    /// all must hold
    #[arg(long = "where", value_name = "TEST")]
    pub(crate) tests: Vec<Condition>,

    /// Also reports on the rows and columns of each matrix: norms and |x| max, rows that are all
    /// zeros or copies; the JSON has each one
    #[arg(long)]
    pub(crate) rows: bool,

    /// Draws a histogram of the tensor with this key
    #[arg(long, conflicts_with_all = ["rank", "rows", "by", "sort", "tests", "fail_on"])]
    pub(crate) histogram: bool,

    /// Ranks the lines of the matrix with this key, or a slice of it, by their norm
    #[arg(long, value_name = "LINES", value_parser = ranked_lines(), conflicts_with_all = ["rows", "by", "sort", "tests", "fail_on"])]
    pub(crate) rank: Option<RankedLines>,

    /// With --rank: how many of the largest and of the smallest to show
    #[arg(long, value_name = "COUNT", default_value_t = 10, requires = "rank")]
    pub(crate) top: usize,

    /// Groups tensors
    #[arg(long, value_name = "GROUP")]
    pub(crate) by: Option<By>,

    /// Exit status 1 if any value is nan or inf, if a tensor is all zero or constant, or if scales of
    /// quantised weights have faults
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) fail_on: Vec<FailOnArg>,

    /// Number of bins of the histograms; by default 24 if drawn, 64 in the JSON
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) bins: Option<u16>,

    /// How the bins of the histograms are spaced
    #[arg(long, value_name = "SCALE", default_value = "linear")]
    pub(crate) scale: ScaleArg,
}

#[derive(Debug, Args)]
pub(crate) struct Hist {
    #[command(flatten)]
    pub(crate) input: Input,

    /// The flattened key, as `ls` prints it
    #[arg(value_name = "KEY")]
    pub(crate) key: String,

    /// How the bins are spaced
    #[arg(long, value_name = "SCALE", default_value = "linear")]
    pub(crate) scale: ScaleArg,

    /// Number of bins
    #[arg(long, value_name = "COUNT", default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) bins: u16,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) input: Input,

    /// The flattened key, as `ls` prints it, with an optional slice: 'model.w[0:2, :4]'; several go
    /// into one .npz or .safetensors
    #[arg(value_name = "KEY", required = true, num_args = 1..)]
    pub(crate) keys: Vec<String>,

    /// The file to write
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,

    /// The dtype to write it in, e.g. float32
    #[arg(long = "as", visible_alias = "cast", value_name = "DTYPE")]
    pub(crate) dtype: Option<String>,

    /// For a picture: the maximum width of the map in pixels, without axes; a block takes at least
    /// one, in SVG four
    #[arg(long, value_name = "DOTS", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) width: u32,

    /// For a picture: the maximum height of the map
    #[arg(long, value_name = "DOTS", default_value_t = 640, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) height: u32,

    /// For a picture: how numbers map to colours
    #[arg(long, value_name = "SCALE", default_value = "linear")]
    pub(crate) scale: ScaleArg,

    #[command(flatten)]
    pub(crate) replacing: Replacing,
}

/// The spacing of bins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScaleArg {
    /// Bins of equal width
    Linear,
    /// Log-spaced on both sides of zero
    Log,
}

impl From<ScaleArg> for Scale {
    fn from(scale: ScaleArg) -> Self {
        match scale {
            ScaleArg::Linear => Self::Linear,
            ScaleArg::Log => Self::Log,
        }
    }
}

/// How tensors are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Tensors whose keys are the same up to the first number: model.layers.3
    Layer,
    /// Tensors whose keys differ only in numbers: model.layers.*.mlp.weight
    Role,
    /// Tensors of one dtype
    Dtype,
    /// Tensors of one top-level state: model, optimizer
    State,
}

impl From<By> for Grouping {
    fn from(by: By) -> Self {
        match by {
            By::Layer => Self::Layer,
            By::Role => Self::Role,
            By::Dtype => Self::Dtype,
            By::State => Self::State,
        }
    }
}

/// The values that make a command fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOnArg {
    /// Any value that is NaN
    Nan,
    /// Any value that is infinite
    Inf,
    /// A tensor whose values are all zero, or a group of quantised codes whose scale is zero
    Zero,
    /// A tensor whose values are all the same, zero included
    Constant,
    /// A quantised weight whose scales are NaN, infinite or zero, whose parts contradict each other,
    /// or whose codes are out of range
    Scales,
}

impl From<FailOnArg> for FailOn {
    fn from(what: FailOnArg) -> Self {
        match what {
            FailOnArg::Nan => Self::Nan,
            FailOnArg::Inf => Self::Inf,
            FailOnArg::Zero => Self::Zero,
            FailOnArg::Constant => Self::Constant,
            FailOnArg::Scales => Self::Scales,
        }
    }
}

/// What tensors are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SortBy {
    Key,
    Statistic(StatisticsField),
}

/// Returns the parser of `--sort`.
fn sort_by() -> impl TypedValueParser<Value = SortBy> {
    let named = |(name, _): &(&'static str, StatisticsField)| match *name {
        "abs_max" => PossibleValue::new("abs_max").alias("absmax"),
        name => PossibleValue::new(name),
    };
    let names = StatisticsField::ALL.iter().map(named);
    let names: Vec<PossibleValue> = [PossibleValue::new("key")].into_iter().chain(names).collect();
    PossibleValuesParser::new(names)
        .map(|name| StatisticsField::named(&name).map_or(SortBy::Key, SortBy::Statistic))
}

/// Returns the parser of the lines of a matrix.
fn ranked_lines() -> impl TypedValueParser<Value = RankedLines> {
    PossibleValuesParser::new([
        PossibleValue::new("rows").help("Each index into all dimensions but the last"),
        PossibleValue::new("columns").help("Each index into the last dimension"),
        PossibleValue::new("kernels").help("Each index into all dimensions but the last two"),
    ])
    .try_map(|name| RankedLines::named(&name))
}
