//! The indexes of chunks. Trees are read here; arrays are read by hdf5-reader once their checksums
//! have been verified here.

pub(crate) mod arrays;
pub(crate) mod tree;
