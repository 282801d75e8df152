//! GGUF, the files of llama.cpp.
//!
//! Public specification: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. A header of
//! named metadata and tensor descriptions, followed by the aligned tensor data.
//!
//! | | read | written |
//! |---|---|---|
//! | versions 1 to 3, either byte order | yes | no |
//! | metadata of all types, nested arrays included | as the dict `metadata` | no |
//! | parts, `model-00001-of-00003.gguf` and on | joined, with the metadata of the first; `split.*` is compared with the set | no |
//! | plain types | yes | no |
//! | blocks `Q4_0`, `Q4_1`, `Q5_0`, `Q5_1`, `Q8_0` | yes, decoded where numbers are needed | no |
//! | all other blocks | name and size; raw bytes | no |
//!
//! Dimensions are listed slowest first, as in numpy and torch; the file has the reverse order. Not
//! written: no other tool could use the tensor names of another format.

mod cursor;
pub(crate) mod detect;
pub(crate) mod read;
mod rules;
mod split;
#[cfg(test)]
mod tests;
mod types;

use statelens_checkpoint::FormatTraits;

use crate::Format;
pub(crate) use split::{SplitPart, check_set};

pub(crate) static FORMAT: Format = Format {
    extensions: &["gguf"],
    reads: "versions 1 to 3, either byte order, sets of numbered files; values of all types but Q2_0: plain, `Q`, `K`, `IQ`, ternary, MXFP4, NVFP4",
    traits: FormatTraits {
        user_attributes: &["gguf"],
        description_key: Some("metadata"),
        ..FormatTraits::DEFAULT
    },
    shard_extensions: &["gguf"],
    weights_extensions: &["gguf"],
    score: detect::score,
    open: read::read,
    ..Format::named(&["gguf"], "GGUF")
};
