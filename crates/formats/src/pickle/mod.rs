//! A standalone pickle, as Python's `pickle.dump` writes it: protocols 0 to 5.
//!
//! Specified by CPython's `Lib/pickle.py` and `Lib/pickletools.py` and, for protocols 2, 3, 4 and
//! 5, by PEPs 307, 3154 and 574. Read only: checkpoints are better written in one of the checkpoint
//! formats.

pub(crate) mod detect;
mod folder;
pub(crate) mod read;
#[cfg(test)]
mod tests;

use statelens_checkpoint::{FormatTraits, PythonTypes};

use crate::{Format, RunNames};

pub(crate) static FORMAT: Format = Format {
    short: "Pickle",
    extensions: &["pkl"],
    reads: "protocols 0 to 5; objects stay inert",
    traits: FormatTraits { python_types: PythonTypes::All, ..FormatTraits::DEFAULT },
    run_names: RunNames::Steps(&["pkl"]),
    score: detect::score,
    open: read::read,
    searched: true,
    ..Format::named(&["pickle"], "Python pickle")
};
