//! Statistics of tensors in one pass. Results merge, and are identical to the last bit however the
//! bytes are split and however many workers there are.
//!
//! Values of up to 16 bits are counted per bit pattern, wider ones in bins that are 1/128 of their
//! magnitude wide ([`Summary`]). Both kinds of counts add up across pieces, workers and machines.
//! Sums are exact, so means, deviations and norms are the nearest doubles. [`Accumulator`] takes
//! the logical bytes of a tensor in pieces of any size.
//!
//! ```
//! use statelens_checkpoint::DType;
//! use statelens_stats::Accumulator;
//!
//! let mut accumulator = Accumulator::new();
//! assert!(accumulator.begin(&DType::F32, 0));
//! for value in [1f32, 2.0, f32::NAN] {
//!     accumulator.feed(&value.to_le_bytes());
//! }
//! let found = accumulator.finish().statistics();
//! assert_eq!((found.count, found.nan, found.mean), (3, 1, Some(1.5)));
//! assert_eq!(found.first_nan, Some(2));
//! ```

mod accumulate;
mod begun;
mod bins;
mod block;
mod byte_hash;
mod differences;
mod distance;
mod encoded;
mod equal;
mod exact;
mod forecast;
pub mod kind;
mod norm;
mod overview;
mod rows;
mod short;
mod spread;
mod statistics;
mod summary;
mod tables;
#[cfg(test)]
mod tests;

pub use accumulate::{Accumulator, has_statistics};
pub use byte_hash::ByteHash;
pub use differences::Spread;
pub use distance::{Equality, Numbers, Tolerance};
pub use equal::{EqualCounts, PairSums, are_equal};
pub use overview::{MOST_TILES, Matrix, Overview, Tile};
pub use rows::{MAX_LINES, MatrixLine, MatrixLines, NAMED, Rows};
pub use statistics::{QUANTILES, Statistics};
pub use summary::{Histogram, Scale, Summary};
