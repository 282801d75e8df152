//! The indexes of chunks: trees that are walked here, and the blocks of arrays, which hdf5-reader
//! walks once their checksums are verified.

pub(crate) mod arrays;
pub(crate) mod tree;
