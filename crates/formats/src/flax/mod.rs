//! Flax's MessagePack files, the output of `flax.serialization.to_bytes`.
//!
//! Public specifications:
//! <https://flax.readthedocs.io/en/latest/api_reference/flax.serialization.html> and
//! <https://github.com/msgpack/msgpack/blob/master/spec.md>. State dicts are nested maps. Extension
//! 1 is an array (shape, name of the dtype, bytes in C order), 2 a complex number, 3 a numpy
//! scalar. Lists and tuples are maps with the keys `"0"`, `"1"` etc. An array larger than 2^30
//! bytes is a map of its shape and of flat chunks.
//!
//! | | read | written |
//! |---|---|---|
//! | state dicts of all types, chunked arrays included | yes | no |
//! | all dtypes of numpy and of `ml_dtypes` ([`DType::from_ml_dtypes_name`](statelens_checkpoint::DType::from_ml_dtypes_name)); any other as bytes, with a finding | yes | no |
//!
//! Orbax, which Flax has recommended since, is another format.

pub(crate) mod detect;
mod packed;
mod pieces;
pub(crate) mod read;
#[cfg(test)]
mod tests;

use statelens_checkpoint::{FormatTraits, PythonTypes};

use crate::Format;

pub(crate) static FORMAT: Format = Format {
    short: "Flax",
    extensions: &["msgpack", "flax"],
    reads: "state dicts with all dtypes of JAX; chunked arrays are assembled",
    traits: FormatTraits { python_types: PythonTypes::All, ..FormatTraits::DEFAULT },
    score: detect::score,
    open: read::read,
    ..Format::named(&["flax"], "Flax msgpack")
};
