//! Analyses the values of a checkpoint: [`Survey`] reads its tensors, each once, and [`notice`]
//! reports remarkable ones.

mod findings;
mod moments;
mod notice;
mod noticed;
mod rows;
mod survey;
#[cfg(test)]
mod tests;
mod trend;

pub use findings::{Seen, findings, to_hash, to_read_by_rows};
pub use moments::is_moment;
pub use notice::{CHECKS, notice};
pub use noticed::{ElementRef, LayerSeries, Noticed, Read};
#[cfg(test)]
use survey::twins;
pub use survey::{Measured, Survey, SurveyResults, Surveying, TensorOutcome, countable};
