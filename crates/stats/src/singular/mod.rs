//! The singular values of a matrix that is read row by row, as often as it takes.
//!
//! Of a matrix whose smaller side is not long all are found, in one pass: by reflections, as LAPACK does,
//! on the values themselves and not on their products, so that small ones are as far off as large ones,
//! by a few roundings of the largest. Of a larger one the largest are found in a few passes and told
//! with how far off they may be. What either takes is known before ([`SingularPlan`]).

mod all;
mod columns;
mod largest;
mod machine;
mod plan;
mod spectrum;
#[cfg(test)]
mod tests;

pub use largest::practise;
pub use machine::Singular;
pub use plan::{MOST_ALL, MOST_LARGEST, SingularPlan, USUALLY_ALL, USUALLY_LARGEST, Which};
pub use spectrum::{AtLeast, Spectrum};
