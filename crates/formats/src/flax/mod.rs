//! Flax's msgpack files: what `flax.serialization.to_bytes` writes.
//!
//! Public specifications: <https://flax.readthedocs.io/en/latest/api_reference/flax.serialization.html>
//! and <https://github.com/msgpack/msgpack/blob/master/spec.md>. A map of maps; an array is the
//! extension 1 (shape, name of the dtype, bytes in C order), a complex number 2, a numpy scalar 3.
//! Lists and tuples are maps from `"0"` on. An array larger than 2^30 bytes is a map of its shape
//! and of flat pieces.
//!
//! | | read | written |
//! |---|---|---|
//! | state dicts of all types, arrays in pieces included | yes | no |
//! | all dtypes of numpy and of `ml_dtypes` ([`DType::from_ml_dtypes_name`](statelens_checkpoint::DType::from_ml_dtypes_name)); any other as bytes, with a finding | yes | no |
//!
//! Orbax, which Flax recommends since, is another format.

pub mod detect;
mod packed;
mod pieces;
pub mod read;
#[cfg(test)]
mod tests;

use crate::Format;

/// The format, as it is listed.
pub static FORMAT: Format = Format {
    extensions: &["msgpack", "flax"],
    reads: "state dicts with all dtypes of JAX, arrays in pieces put together",
    score: detect::score,
    open: read::read,
    ..Format::named(&["flax"], "Flax msgpack")
};
