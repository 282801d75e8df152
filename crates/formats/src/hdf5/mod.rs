//! Any HDF5 file, as its tree of groups, datasets and attributes.
//!
//! The format: <https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html>. Files that a
//! more specific format claims (such as Cerebras checkpoints) are not read here.
//!
//! | in the file | here |
//! |---|---|
//! | group | dict, in the order of creation if the file keeps that, else sorted |
//! | dataset | array; strings become a string, or lists of strings if they are few |
//! | dataset of sequences | lists of arrays, if they are few |
//! | many strings or sequences; references, records with strings | a text, at least of the first elements |
//! | dataset without a dataspace | `None` |
//! | attributes | shown with their value |
//! | text that is not UTF-8 | bytes; in names and attributes lone surrogates, as in h5py |
//! | second name of an object, soft link, link to a file of the same set | link, or the object itself |
//! | dangling link, committed datatype, unreadable object | a placeholder object with the reason |
//! | texts, cells, logical and complex arrays of MATLAB 7.3 | texts, references with paths, bools, complex |
//!
//! Read only. The only HDF5 files that Statelens writes are Cerebras checkpoints.

pub(crate) mod detect;
mod digests;
mod losses;
mod matlab;
pub(crate) mod read;
#[cfg(test)]
mod tests;

use statelens_checkpoint::{DType, FormatTraits, KeyPart};

use crate::{Format, PythonLeaf, Snippet};

pub(crate) static FORMAT: Format = Format {
    short: "HDF5",
    extensions: &["h5", "hdf5"],
    reads: "as a tree of groups, datasets, attributes",
    traits: FormatTraits { user_attributes: &["hdf5"], ..FormatTraits::DEFAULT },
    shard_extensions: &["h5"],
    score: detect::score,
    open: read::read,
    snippets: Some(snippets),
    left_out: Some(losses::attributes_left_out),
    ..Format::named(&["hdf5"], "any other HDF5")
};

fn snippets(leaf: &PythonLeaf<'_>) -> Vec<Snippet> {
    // h5py converts floats that NumPy does not have to other dtypes.
    let readable = leaf.tensor.is_some_and(|tensor| has_h5py(&tensor.dtype));
    if !readable || !leaf.has_numpy_dtype() {
        return Vec::new();
    }
    let parts = leaf.leaf.key.parts.as_slice();
    // An element of variable length.
    let (parts, element) = match parts {
        [parts @ .., KeyPart::Index(element)] => (parts, Some(*element)),
        parts => (parts, None),
    };
    if parts.iter().any(|part| matches!(part, KeyPart::Index(_))) {
        return Vec::new();
    }
    let names: Vec<_> = parts.iter().map(|part| part.text().to_lossy().into_owned()).collect();
    vec![leaf.h5py(&PythonLeaf::literal(&names.join("/")), element)]
}

/// Returns whether h5py has a dtype. Numbers that NumPy does not have, such as integers of three
/// bytes, are read as raw bytes here.
fn has_h5py(dtype: &DType) -> bool {
    let DType::Numpy(numpy) = dtype else { return true };
    match numpy.fields.as_slice() {
        [] => !numpy.name.starts_with("void"),
        fields => fields.iter().all(|field| has_h5py(&field.dtype)),
    }
}
