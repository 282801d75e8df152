//! Checkpoints of which every rank of a job wrote its part with `torch.save`: FSDP2, and FSDP1 with
//! sharded state dicts.
//!
//! The values are `DTensor` or `ShardedTensor`: each has the shape of the whole tensor, the rank's
//! own part, and what part that is. verl and its forks name the files
//! `model_world_size_8_rank_3.pt`, with `optim_…` and `extra_state_…` next to them
//! (`verl/utils/checkpoint/fsdp_checkpoint_manager.py` in <https://github.com/volcengine/verl>);
//! other names count if they differ only in a number after `rank`, or in a last number from 0 on.
//! Tensors that are not distributed are whole in every file.
//!
//! The optimizer and the extra state are further states: they are listed, and written only if they
//! are selected. The extra state differs in each rank, so each rank's is shown.

mod detect;
pub(crate) mod names;
mod placement;
mod read;
#[cfg(test)]
mod tests;

use statelens_checkpoint::{FormatTraits, PythonTypes};

use crate::Format;

pub(crate) static FORMAT: Format = Format {
    extensions: &[],
    reads: "files of all ranks with `DTensor` or `ShardedTensor` (`model_world_size_8_rank_*.pt`), joined",
    traits: FormatTraits {
        python_types: PythonTypes::All,
        exact_read_back: true,
        further_states: true,
        joins_ranks: true,
        ..FormatTraits::DEFAULT
    },
    score: detect::score,
    open: read::read,
    ..Format::named(&["torch-fsdp"], "PyTorch FSDP ranks")
};
