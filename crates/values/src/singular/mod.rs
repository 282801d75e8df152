//! The singular values of a matrix that is read row by row, in one or several passes.
//!
//! If the smaller side of the matrix is short, all singular values are computed in one pass. This
//! uses reflections, like LAPACK, on the values themselves and not on their products, so that the
//! error of small singular values, too, is a few roundings of the largest. Of larger matrices, the
//! largest singular values are computed in a few passes, with error bounds. The cost of either is
//! known in advance ([`SingularPlan`]).

mod all;
mod columns;
mod largest;
mod machine;
mod plan;
mod spectrum;
#[cfg(test)]
mod tests;
mod text;

pub use largest::practise;
pub use machine::Singular;
pub use plan::{MAX_FOR_ALL, MAX_LARGEST, SingularPlan, USUALLY_ALL, USUALLY_LARGEST, Which};
pub use spectrum::{AtLeast, Spectrum};
pub use text::{plan_text, spectrum_chart, spectrum_csv, spectrum_facts};
