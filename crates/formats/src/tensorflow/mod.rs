//! TensorFlow's own checkpoints: the bundle of `tf.train.Checkpoint` and of the V2 Saver, and the
//! single file of the V1 Saver.
//!
//! A bundle is `PREFIX.index`, a table of names with dtype, shape and place, and
//! `PREFIX.data-?????-of-?????`, the bytes. A V1 file is one table that holds the values, too. Both
//! tables are LevelDB's. The formats are in the sources of
//! <https://github.com/tensorflow/tensorflow>: `tensorflow/core/util/tensor_bundle`,
//! `tensorflow/core/util/tensor_slice_*`, and the `.proto` files of `tensorflow/core/protobuf` and
//! `tensorflow/core/framework`.
//!
//! | | read | written |
//! |---|---|---|
//! | bundle, any number of shards, big-endian, snappy | yes | little-endian, uncompressed |
//! | partitioned variables | put together when they are read | whole |
//! | strings | as bytes | yes |
//! | variants | only named | no |
//! | object graph | names of the objects beside the keys | on request |
//! | `checkpoint` state file | opens the latest one it names | on request |
//! | SavedModel | its variables; graphs are not shown | no |
//! | V1 Saver, sharded or not | yes | no |
//!
//! The keys are those of the file, which is what `tf.train.load_checkpoint` calls them.

mod bundle;
pub(crate) mod checks;
mod crc;
pub mod detect;
mod dtype;
mod graph;
mod leaves;
mod members;
mod proto;
pub mod read;
mod slices;
mod state;
mod strings;
mod table;
#[cfg(test)]
mod tests;
mod v1;
pub mod write;

pub(crate) use crc::mask;
