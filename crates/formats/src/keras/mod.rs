//! Weights and models of Keras 2 and 3.
//!
//! Public description: <https://keras.io/guides/serialization_and_saving/>. The layout of the files
//! follows `keras/src/saving` and `keras/src/legacy/saving` of
//! <https://github.com/keras-team/keras>.
//!
//! | | read | written |
//! |---|---|---|
//! | Keras 2 `.h5`, whole models and weights, split name lists included | yes | no |
//! | Keras 3 `.weights.h5`, and sharded with `.weights.json` | yes | no |
//! | `.keras` (a zip file with `model.weights.h5` or `.npz`) | yes | no |
//!
//! The tree is that of the HDF5 groups, in model order as far as the file has it, without groups
//! that hold no weights. Information about the model (configuration, training) is shown with the
//! root. HDF5 is read by [`statelens_hdf5`], as for other formats.

pub(crate) mod code;
mod config;
pub(crate) mod detect;
mod grow;
mod lists;
mod order;
pub(crate) mod read;
#[cfg(test)]
mod tests;

use statelens_checkpoint::FormatTraits;

use crate::{Format, RunNames};

pub(crate) static FORMAT: Format = Format {
    extensions: &["keras", "weights.h5", "weights.json"],
    reads: "`.keras`, Keras 2 `.h5`, Keras 3 `.weights.h5`, in shards too; layers in the model's order",
    traits: FormatTraits { user_attributes: &["keras", "keras-weights"], ..FormatTraits::DEFAULT },
    weights_extensions: &["keras"],
    run_names: RunNames::Epochs(&["weights.h5", "keras", "hdf5", "h5"]),
    score: detect::score,
    open: read::read,
    ..Format::named(&["keras", "keras-h5", "keras-weights"], "Keras")
};
