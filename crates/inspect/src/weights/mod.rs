//! What the values of a checkpoint are like: [`Survey`] reads its tensors, each once, and [`notice`]
//! tells what about them should be looked at.

mod moments;
mod notice;
mod survey;
#[cfg(test)]
mod tests;
mod trend;

pub(crate) use moments::is_moment;
pub use notice::{ElementRef, LOOKED_FOR, Noticed, Read, Series, notice};
pub use survey::{Found, Measured, Outcome, Survey, countable, twins};
