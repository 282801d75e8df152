//! Any HDF5 file, as the tree of groups, datasets and attributes that it is.
//!
//! The format: <https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html>. Files that
//! a format with more to say claims (Cerebras checkpoints) never come here.
//!
//! | in the file | here |
//! |---|---|
//! | group | dict, in the order of creation if the file keeps that, else sorted |
//! | dataset | array; strings of rank 0 and 1 are a string and a list of strings |
//! | dataset of sequences | list of arrays, if it is small |
//! | dataset without a dataspace | `None` |
//! | attributes | shown with the value they are on |
//! | text that is not UTF-8 | its bytes; in names and attributes lone surrogates, as h5py has them |
//! | second name of an object, soft link, link to a file of the same set | link, or the object itself |
//! | link that leads nowhere, committed datatype, what can't be read | an object that says so |
//! | texts, cells, logical and complex arrays of MATLAB 7.3 | texts, references with paths, bools, complex |
//!
//! Read-only: what is written as HDF5 is a Cerebras checkpoint.

pub mod detect;
mod matlab;
pub mod read;
#[cfg(test)]
mod tests;

use crate::Format;

/// The format, as it is listed.
pub static FORMAT: Format = Format {
    extensions: &["h5", "hdf5"],
    reads: "as a tree of groups, datasets, attributes",
    score: detect::score,
    open: read::read,
    ..Format::named(&["hdf5"], "any other HDF5")
};
