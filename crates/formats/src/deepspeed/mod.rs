//! Checkpoints of DeepSpeed: a folder to which the ranks of a job write.
//!
//! With ZeRO, the float32 weights are only in the optimizer's states: each rank has a part of a flat
//! tensor, and the names and shapes are in the model's states. They are joined as
//! `zero_to_fp32.py` does, in its order of keys: buffers, frozen parameters, trained ones, shared
//! ones. Facts: `deepspeed/utils/zero_to_fp32.py`, `runtime/engine.py`, `checkpoint/constants.py`
//! and `checkpoint/ds_to_universal.py` of release 0.19 in <https://github.com/deepspeedai/DeepSpeed>.
//!
//! | | read |
//! |---|---|
//! | stage 0 | `module` as the model |
//! | stages 1 and 2 | the flat tensors of all ranks, group by group |
//! | stage 3 | each parameter from all ranks |
//! | universal checkpoints | the files of each parameter |
//! | experts | those of all ranks |
//! | further tensor-parallel ranks, pipeline layers, layers of `AutoEP` | named, not joined |
//!
//! The optimizer's moments under the names of their parameters, the 16-bit weights (`module`) and
//! the client's state are further states: they are listed, and written only if they are selected.

mod experts;
mod flat;
mod names;
mod read;
mod reading;
#[cfg(test)]
mod tests;
mod universal;
mod zero;

use statelens_checkpoint::{FormatTraits, PythonTypes};

use crate::archive::ZIP;
use crate::{Format, Score};

pub(crate) static FORMAT: Format = Format {
    extensions: &[],
    reads: "folders of ZeRO 0 to 3 and universal checkpoints, joined as `zero_to_fp32.py` does",
    traits: FormatTraits {
        python_types: PythonTypes::All,
        exact_read_back: true,
        further_states: true,
        joins_ranks: true,
        ..FormatTraits::DEFAULT
    },
    score: |probe| {
        let is_ours = names::StatesName::parse(probe.name()).is_some();
        match is_ours {
            true if probe.head().starts_with(ZIP) => Score::Member,
            // The reader reports its fault, and joins the other ranks.
            true => Score::Named,
            false => Score::No,
        }
    },
    open: read::read,
    ..Format::named(&["deepspeed"], "DeepSpeed")
};

/// Returns whether a file belongs to a checkpoint of DeepSpeed, by its name.
pub(crate) fn is_member(name: &str) -> bool {
    names::StatesName::parse(name).is_some() || names::is_layer(crate::paths::base(name))
}

/// Returns the names that the files of parameters in a universal checkpoint may have, below the
/// folder of its other files: `zero/PARAMETER/NAME`.
pub const UNIVERSAL: &str = "zero";
