//! PyTorch's distributed checkpoints: a folder written jointly by the ranks of a job.
//!
//! `.metadata` is a pickle of `torch.distributed.checkpoint.metadata.Metadata`. It has the shape,
//! dtype and chunks of every tensor, and file, offset and length of each chunk and each other
//! value. A file `__RANK_N.distcp` is a concatenation of many small files of `torch.save`, each
//! with one chunk or value. The only specification is the source:
//! `torch/distributed/checkpoint/metadata.py` and `filesystem.py` in
//! <https://github.com/pytorch/pytorch>.
//!
//! | | read | written |
//! |---|---|---|
//! | tensors in one piece or in chunks along any dimensions | yes | no |
//! | other values, nesting | yes | no |
//! | streams compressed by the extension `ZStandard` | yes | no |
//! | `__RANK.metadata` of ranks that did not coordinate | yes, all together | no |
//! | Megatron's `torch_dist`: stacked layers, flattened optimizer states, `common.pt` | yes | no |
//!
//! Not written: any program that reads these folders can also read the output of `torch.save`
//! (`torch.distributed.checkpoint.format_utils`).

mod chunk;
pub(crate) mod detect;
mod metadata;
pub(crate) mod read;
#[cfg(test)]
mod tests;
mod tree;
mod unfold;

use statelens_checkpoint::{FormatTraits, PythonTypes};

use crate::Format;
use crate::checks::Checks;

pub(crate) static FORMAT: Format = Format {
    short: "PyTorch DCP",
    extensions: &["distcp"],
    reads: "folders of `.metadata` and `__*.distcp`, also of Megatron; chunked tensors are assembled",
    traits: FormatTraits {
        python_types: PythonTypes::All,
        exact_read_back: true,
        further_states: true,
        joins_ranks: true,
        layer_stacks: &["decoder.layers.", "encoder.layers."],
        ..FormatTraits::DEFAULT
    },
    score: detect::score,
    open: read::read,
    checks: Some(|_, files, limits| {
        let mut checks = Checks::default();
        for span in read::places(files, limits)? {
            checks.archive(files, span, false, limits)?;
        }
        Ok(Some(checks))
    }),
    ..Format::named(&["torch-dcp"], "PyTorch distributed checkpoint")
};
