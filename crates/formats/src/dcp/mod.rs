//! PyTorch's distributed checkpoints: a folder that the ranks of a job wrote together.
//!
//! `.metadata` is a pickle of `torch.distributed.checkpoint.metadata.Metadata`: the shape and dtype
//! of every tensor, the chunks that it was cut into, and for each chunk and each other value the
//! file, offset and length at which it lies. A `__RANK_N.distcp` is many small files of `torch.save`
//! one behind the other, a chunk or a value each. There is no specification but the sources:
//! `torch/distributed/checkpoint/metadata.py` and `filesystem.py` in
//! <https://github.com/pytorch/pytorch>.
//!
//! | | read | written |
//! |---|---|---|
//! | tensors in one piece or in chunks along any dimensions | yes | no |
//! | other values, nesting | yes | no |
//! | transforms of the stream (compression) | no | no |
//!
//! It is not written: whoever reads these folders reads what `torch.save` writes as well
//! (`torch.distributed.checkpoint.format_utils`).

pub mod detect;
mod grid;
mod metadata;
pub mod read;
#[cfg(test)]
mod tests;
mod tree;

use crate::Format;
use crate::checks::Checks;

/// The format, as it is listed.
pub static FORMAT: Format = Format {
    ids: &["torch-dcp"],
    name: "PyTorch distributed checkpoint",
    extensions: &["distcp"],
    reads: "folders of `.metadata` and `__*.distcp`; chunked tensors are put together",
    writes: None,
    notes: "",
    score: detect::score,
    open: read::read,
    searched: false,
    checks: Some(|_, files, limits| {
        let mut checks = Checks::default();
        for span in read::places(files, limits)? {
            checks.archive(files, span, false, limits)?;
        }
        Ok(Some(checks))
    }),
    left_out: None,
};
