//! NumPy's own files: an array (`.npy`), or a zip file of arrays (`.npz`).
//!
//! Public specification: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
//! A `.npy` file has a magic number, a version, a Python dict as text that describes the elements,
//! and the elements. A `.npz` file is a zip file in which the array `KEY` is the member `KEY.npy`.
//!
//! | | read | written |
//! |---|---|---|
//! | `.npy` of versions 1 to 3, also as Python 2 wrote it | yes | no |
//! | numbers of either byte order, strings, dates, long doubles, records | yes | little-endian |
//! | Fortran order | as a view | made dense |
//! | arrays of objects | as the pickle they are stored in, inert | no |
//! | `.npz`, stored and deflated members | yes | stored |
//! | members that are not arrays | as bytes, as in numpy | no |

pub(crate) mod detect;
mod header;
mod literal;
pub(crate) mod read;
#[cfg(test)]
mod tests;
pub mod write;

use statelens_checkpoint::{DType, FormatTraits, PythonTypes};

use crate::{Format, PythonLeaf, Snippet, Writing};

/// The format of single arrays.
pub static ARRAY: Format = Format {
    short: "NumPy",
    reads: "versions 1 to 3, all dtypes; arrays of objects stay inert",
    writes: Some(Writing {
        label: "NumPy .npy",
        about: "One array, for numpy.load. Select a single tensor of the checkpoint.",
        what: "one array",
        has: |_| false,
        ..Writing::named("npy", "NumPy array", &["npy"], |source, _, name| {
            write::plan(source, &write::WriteOptions { single: true }, name)
        })
    }),
    traits: FormatTraits { python_types: PythonTypes::All, ..FormatTraits::DEFAULT },
    score: detect::array,
    open: read::read,
    snippets: Some(array_snippets),
    ..Format::named(&["npy"], "NumPy array")
};

/// The format of archives.
pub static ARCHIVE: Format = Format {
    short: "NumPy",
    reads: "arrays of all dtypes, stored or deflated; other members as bytes",
    writes: Some(Writing {
        label: "NumPy .npz",
        about: "A zip of arrays under their full names. Read by numpy.load and everything that \
                builds on it.",
        what: "stored, as `numpy.load(allow_pickle=False)` accepts it",
        has: |_| false,
        ..Writing::named("npz", "NumPy archive", &["npz"], |source, _, name| {
            write::plan(source, &write::WriteOptions::default(), name)
        })
    }),
    traits: FormatTraits { python_types: PythonTypes::InsideEntries, ..FormatTraits::DEFAULT },
    weights_extensions: &["npz"],
    score: detect::archive,
    open: read::read,
    snippets: Some(archive_snippets),
    ..Format::named(&["npz"], "NumPy archive")
};

/// Returns whether the elements are Python objects, stored as a pickle after the header `text`.
/// Returns `None` if the header is not understood.
pub(crate) fn holds_objects(version: (u8, u8), text: &[u8]) -> Option<bool> {
    let header = header::Header::parse(version, text).ok()?;
    Some(header.element == header::ElementType::Objects)
}

fn array_snippets(leaf: &PythonLeaf<'_>) -> Vec<Snippet> {
    // The elements of an array of objects are in a pickle.
    if !leaf.leaf.key.parts.is_empty() {
        return Vec::new();
    }
    let (path, size, index) = (&leaf.path, header_size(leaf), leaf.numpy_index());
    numpy_snippet(leaf, format!("{path}, mmap_mode=\"r\"{size}){index}"))
}

fn archive_snippets(leaf: &PythonLeaf<'_>) -> Vec<Snippet> {
    // The elements of an array of objects are not members of the archive.
    if leaf.leaf.key.parts.len() != 1 {
        return Vec::new();
    }
    let (path, size, name) = (&leaf.path, header_size(leaf), leaf.stored_name());
    numpy_snippet(leaf, format!("{path}{size})[{name}]{}", leaf.numpy_index()))
}

fn numpy_snippet(leaf: &PythonLeaf<'_>, call: String) -> Vec<Snippet> {
    // These may be floats that extensions add to NumPy, and that NumPy alone can't read.
    if let Some(DType::Numpy(numpy)) = leaf.tensor.map(|tensor| &tensor.dtype)
        && ["V1", "V2"].contains(&numpy.code.as_str())
    {
        return Vec::new();
    }
    let code = format!("import numpy as np\n\ntensor = np.load({call}\n");
    leaf.tensor.map(|_| Snippet { library: "numpy", code }).into_iter().collect()
}

/// Fields of a record of which the header may be long.
const MANY_FIELDS: usize = 50;

/// Returns the argument of `np.load` that allows a long header: that of a record with many fields.
/// NumPy's limit is 10,000 bytes.
fn header_size(leaf: &PythonLeaf<'_>) -> &'static str {
    let fields = match leaf.tensor.map(|tensor| &tensor.dtype) {
        Some(DType::Numpy(numpy)) => numpy.fields.len(),
        _ => 0,
    };
    if fields > MANY_FIELDS { ", max_header_size=1 << 24" } else { "" }
}
