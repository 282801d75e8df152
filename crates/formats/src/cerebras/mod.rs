//! Cerebras checkpoints: state dicts in HDF5, as `cstorch.save` writes them (`.mdl`).
//!
//! There is no public specification; this follows what the released packages
//! (cerebras-pytorch 2.0 to 2.10) write and read. There are two families. Since release 2.5
//! (format 0.5) the shape of the state dict and the metadata of each value are JSON in
//! attributes of the root group. Before that (0.4 and older) the shape is a pickled `TreeSpec`
//! and each value is a dataset that names its own codec.
//!
//! | | 0.5 | 0.4, 0.3 | 0.2, 0.1 |
//! |---|---|---|---|
//! | releases | 2.5 to 2.10 | 2.0 to 2.4, 1.9 | 1.8, 1.7 |
//! | tensors, numpy arrays, numbers, strings, `None` | read, written | read, 0.4 written | read, 0.1 written by [`fix`] |
//! | pickled objects | read, never run; plain ones written | the same, 0.4 written | |
//! | repeated objects | links | hard links, links | |
//! | constants | read, written | read, written | read |
//! | tensors in other files | read if those files were given | the same | |
//! | tensors that a TorchScript graph computes | shown without data | the same | |
//!
//! Files of releases 1.7 and 1.8 open here, though the library itself no longer loads them.

pub mod dataloader;
pub(crate) mod detect;
pub mod fix;
pub(crate) mod metadata;
pub(crate) mod read;
pub mod rewrite;
mod rtfx;
pub mod s3;
#[cfg(test)]
mod tests;
pub mod write;

use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, FormatTraits, Plan, PythonTypes, Result};

use crate::format::choice;
use crate::{Format, PythonLeaf, Snippet, WriteTarget, Writing};

pub(crate) static FORMAT: Format = Format {
    short: "Cerebras",
    extensions: &["mdl", "h5", "hdf5"],
    reads: "0.1 to 0.5 (releases 1.7 to 2.10)",
    writes: Some(Writing {
        label: "Cerebras .mdl",
        about: "HDF5 with the nesting, types and links of the state. Read by cstorch.load and any HDF5 tool.",
        what: "0.5; 0.4 with `--format-version 0.4`",
        versions: &[
            choice("0.5", "0.5, releases 2.5 to 2.10"),
            choice("0.4", "0.4, releases 2.0 to 2.4"),
        ],
        compressions: &[choice("", "none"), choice("lz4", "LZ4"), choice("gzip", "gzip")],
        has: |_| false,
        ..Writing::named("cerebras", "Cerebras HDF5", &["mdl", "h5", "hdf5"], plan)
    }),
    traits: FormatTraits {
        python_types: PythonTypes::All,
        exact_read_back: true,
        ..FormatTraits::DEFAULT
    },
    weights_extensions: &["mdl"],
    score: detect::score,
    open: read::read,
    snippets: Some(snippets),
    ..Format::named(&["cerebras-h5"], "Cerebras HDF5")
};

/// Returns whether a checkpoint is in the Cerebras format.
pub fn is_cerebras(checkpoint: &Checkpoint) -> bool {
    FORMAT.ids.contains(&checkpoint.format.id)
}

fn plan(source: Arc<Checkpoint>, target: &WriteTarget, name: &str) -> Result<Plan> {
    let options = write::WriteOptions {
        version: match target.requested.version.as_deref() {
            Some("0.4") => write::Version::V04,
            _ => write::Version::V05,
        },
        compression: match target.requested.compression.as_deref() {
            Some("lz4") => write::Compression::Lz4,
            Some("gzip") => write::Compression::Gzip,
            _ => write::Compression::None,
        },
    };
    write::plan(source, &options, name)
}

fn snippets(leaf: &PythonLeaf<'_>) -> Vec<Snippet> {
    let (main, what, index) = (&leaf.main, leaf.variable(), leaf.torch_index());
    let cstorch = leaf.subscripts().map(|keys| Snippet {
        library: "cstorch",
        code: format!(
            "import cerebras.pytorch as cstorch\n\nstate = cstorch.load({main}, \
             map_location=\"cpu\")\n{what} = state{keys}{index}\n"
        ),
    });
    // A link leads to a file that may be of another format.
    let is_own = leaf.path == leaf.main;
    let h5py = (is_own && leaf.is_plain()).then(|| leaf.h5py(&leaf.stored_name(), None));
    cstorch.into_iter().chain(h5py).collect()
}
