//! TensorFlow's own checkpoints: the bundle of `tf.train.Checkpoint` and of the V2 Saver, and the
//! single file of the V1 Saver.
//!
//! A bundle consists of `PREFIX.index`, a table of names with dtype, shape and location, and
//! `PREFIX.data-?????-of-?????` with the data. A V1 file is a single table that also holds the
//! values. Both tables use LevelDB's format. The formats are defined by the sources of
//! <https://github.com/tensorflow/tensorflow>: `tensorflow/core/util/tensor_bundle`,
//! `tensorflow/core/util/tensor_slice_*`, and the `.proto` files of `tensorflow/core/protobuf` and
//! `tensorflow/core/framework`.
//!
//! | | read | written |
//! |---|---|---|
//! | bundle, any number of shards, big-endian, snappy | yes | little-endian, uncompressed |
//! | partitioned variables | joined when they are read | whole |
//! | strings | as bytes | yes |
//! | variants | name only | no |
//! | object graph | names of the objects next to the keys | edited with the keys, or made on request |
//! | `checkpoint` state file | opens the latest one it names | on request |
//! | SavedModel | its variables; graphs are not shown | no |
//! | V1 Saver, sharded or not | yes | no |
//!
//! The keys are those in the file, as `tf.train.load_checkpoint` lists them.

mod bundle;
pub(crate) mod checks;
pub(crate) mod detect;
mod dtype;
mod graph;
mod graph_edit;
mod leaves;
mod members;
mod proto;
pub(crate) mod read;
mod slices;
mod state;
mod strings;
mod table;
#[cfg(test)]
mod tests;
mod v1;
mod variants;
pub mod write;

use std::sync::Arc;

pub use graph_edit::{EditedGraph, edit_graph};

use statelens_checkpoint::{Checkpoint, FileId, FileSet, Finding, FormatTraits, Plan, Result};

pub(crate) use table::is_table;

use crate::{Format, PythonLeaf, Snippet, WriteTarget, Writing, paths};

/// The key under which the object graph is stored, and looked up by `tf.train.Checkpoint`.
const GRAPH_KEY: &str = "_CHECKPOINTABLE_OBJECT_GRAPH";

pub(crate) static FORMAT: Format = Format {
    extensions: &["index"],
    reads: "bundles of `.index` and `.data-*` (V2 Saver, `tf.train.Checkpoint`, SavedModel variables), V1 Saver files",
    writes: Some(Writing {
        label: "TensorFlow .index",
        about: "An index, and files of raw tensors. Restored by tf.compat.v1.train.Saver and \
                tf.train.Checkpoint.",
        what: "V2: bundles by name or with an object graph, in one or more data files",
        shards: true,
        graphs: true,
        has: write::has,
        ..Writing::named("tensorflow", "TensorFlow checkpoint", &["index", "ckpt"], plan)
    }),
    traits: FormatTraits {
        renames_keys: true,
        slash_keys: true,
        graph_key: Some(GRAPH_KEY),
        ..FormatTraits::DEFAULT
    },
    score: detect::score,
    open: read::read,
    snippets: Some(snippets),
    checks: Some(|_, files, limits| checks::checks(files, limits).map(Some)),
    left_out: Some(write::dtypes_left_out),
    ..Format::named(&["tensorflow", "tensorflow-v1"], "TensorFlow")
};

/// Returns the names of the files that a state file names if they are in its folder, each as the
/// prefix of a checkpoint. Empty if the file is not a state file.
pub(crate) fn kept(files: &FileSet, state: FileId) -> Vec<String> {
    let folder = paths::folder(files.name(state));
    let Ok(state) = state::StateFile::read(files, state) else { return Vec::new() };
    let all = state.all.iter().chain([&state.latest]);
    all.map(|prefix| format!("{folder}{}", paths::base(&prefix.replace('\\', "/")))).collect()
}

fn plan(source: Arc<Checkpoint>, target: &WriteTarget, name: &str) -> Result<Plan> {
    let options = write::WriteOptions {
        object_graph: target.requested.object_graph,
        state_file: target.requested.state_file,
        shards: target.shards.clone(),
    };
    write::plan(source, &options, name)
}

/// Returns the prefix of a bundle as a Python literal, from the literal of one of its files.
fn prefix(file: &str) -> Option<String> {
    let prefix = match file.strip_suffix(".index\"") {
        Some(prefix) => prefix,
        None => file.rsplit_once(".data-")?.0,
    };
    Some(format!("{prefix}\""))
}

fn snippets(leaf: &PythonLeaf<'_>) -> Vec<Snippet> {
    // Only the V2 reader of tensorflow takes a prefix.
    if leaf.checkpoint.format.id != "tensorflow" || leaf.tensor.is_none() {
        return Vec::new();
    }
    // Any file of a bundle can be opened; the library takes its prefix.
    let prefix = [&leaf.main, &leaf.path].into_iter().find_map(|path| prefix(path));
    let is_refused = |finding: &Finding| finding.title == leaves::NO_CHECKSUM;
    let refused = leaf.checkpoint.findings.iter().any(is_refused);
    let Some(prefix) = prefix.filter(|_| !refused) else { return Vec::new() };
    let (name, index) = (leaf.stored_name(), leaf.numpy_index());
    let code = format!(
        "import tensorflow as tf\n\ntensor = tf.train.load_checkpoint({prefix})\
         .get_tensor({name}){index}\n"
    );
    vec![Snippet { library: "tensorflow", code }]
}
