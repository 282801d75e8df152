//! NumPy's own files: an array (`.npy`), or a zip file of arrays (`.npz`).
//!
//! Public specification: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
//! A `.npy` file is a magic number, a version, the text of a Python dict that says what the
//! elements are, and the elements. A `.npz` file is a zip file in which the array `KEY` is the
//! member `KEY.npy`.
//!
//! | | read | written |
//! |---|---|---|
//! | `.npy` of versions 1 to 3, also as Python 2 wrote it | yes | no |
//! | numbers of either byte order, strings, dates, long doubles, records | yes | little-endian |
//! | Fortran order | as a view | made dense |
//! | arrays of objects | the pickle that they are, inert | no |
//! | `.npz`, stored and deflated members | yes | stored |
//! | members that are no arrays | as bytes, as numpy gives them | no |

pub mod detect;
mod header;
mod literal;
pub mod read;
#[cfg(test)]
mod tests;
pub mod write;
