//! GGUF, the files of llama.cpp.
//!
//! Public specification: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. A header of
//! named metadata and tensor descriptions, then the tensors, each aligned.
//!
//! | | read | written |
//! |---|---|---|
//! | versions 1 to 3, either byte order | yes | no |
//! | metadata of all types, nested arrays included | as the dict `metadata` | no |
//! | parts, `model-00001-of-00003.gguf` and on | joined, with the metadata of the first | no |
//! | plain types | yes | no |
//! | blocks `Q4_0`, `Q4_1`, `Q5_0`, `Q5_1`, `Q8_0` | yes, and decoded where numbers are wanted | no |
//! | all other blocks | by name and size; their bytes as they are | no |
//!
//! Dimensions come slowest first, as numpy and torch have them; the file has them the other way
//! round. It is not written: no other tool would know what to do with the names of another
//! format's tensors.

mod cursor;
pub mod detect;
pub mod read;
mod rules;
#[cfg(test)]
mod tests;
mod types;

use crate::Format;

/// The format, as it is listed.
pub static FORMAT: Format = Format {
    extensions: &["gguf"],
    reads: "versions 1 to 3, either byte order, sets of numbered files; values of plain, Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 tensors",
    score: detect::score,
    open: read::read,
    ..Format::named(&["gguf"], "GGUF")
};
