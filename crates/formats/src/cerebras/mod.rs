//! Cerebras checkpoints: state dicts in HDF5, as `cstorch.save` writes them (`.mdl`).
//!
//! There is no public specification; this follows what the released packages
//! (cerebras-pytorch 2.0 to 2.10) write and read. There are two families. Since release 2.5
//! (format 0.5) the shape of the state dict and what is known about each value are JSON in
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
pub mod detect;
pub mod fix;
pub mod read;
pub mod rewrite;
#[cfg(test)]
mod tests;
pub mod write;
