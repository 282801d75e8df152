//! The values of tensors: statistics in one pass, findings about weights, singular values, pictures
//! of matrices, and values as text, JSON and CSV.
//!
//! Everything that reads values is a machine that is fed with bytes. Output goes into strings and
//! sinks, never to a terminal or a file.

mod condition;
mod csv;
mod dates;
mod element;
pub mod json;
pub mod picture;
pub mod reading;
pub mod singular;
mod statistician;
mod text;
pub mod weights;

pub use condition::{Comparison, Condition, StatisticsField};
pub use csv::Csv;
pub use element::{complex_text, element_text};
pub use json::{Json, findings_json, object, report_json, worst};
pub use reading::{Repetition, missing};
pub use statelens_stats::{
    Accumulator, ByteHash, EqualCounts, Histogram, MAX_LINES, MOST_TILES, Matrix, MatrixLine,
    MatrixLines, NAMED, Overview, PairSums, QUANTILES, Rows, Scale, Statistics, Summary, Tile,
    are_equal, has_statistics,
};
pub use statistician::{Statistician, SummaryStatistics};
pub use text::{bars, index, non_finite_counts, non_finite_text, number_text, statistics_fields};
