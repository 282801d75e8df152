//! Weights that are stored as small codes with scales, as tensors of numbers.
//!
//! [`dequantise`] returns a checkpoint in which each such weight is one tensor, under the name that
//! it has in a model that is not quantised. Nothing is read but a few bytes of shapes and settings:
//! the numbers are computed as the tensor is read, from the codes and scales of the range that is
//! read ([`Layout::Dequantised`](statelens_checkpoint::Layout)).
//!
//! Sets of tensors are recognised by their names, dtypes and shapes. The `config.json` next to the
//! checkpoint gives the rest; [`QuantisedWeight::inferred`] lists facts that were inferred without it.

mod apply;
mod experts;
mod faults;
mod names;
mod reinterpret;
mod schemes;
mod set;
mod settings;

pub use apply::{Dequantisation, complete, dequantise, shown, with_indices};
pub use faults::{ScaleFault, scale_faults};
pub use names::with_original_names;
pub use reinterpret::reinterpreted;
pub use set::{QuantisedWeight, compared_by_numbers};
pub use settings::Settings;

#[cfg(test)]
mod tests;
