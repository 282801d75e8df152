//! Python code that reads a tensor or value with the library that wrote it.
//! `tests/interop/snippets.py` runs the code for every kind of file and compares the results with
//! ours.

mod slicing;

use std::fmt::Write as _;

use statelens_checkpoint::{
    ByteOrder, Checkpoint, DType, DictKey, FileId, Key, KeyPart, Layout, Leaf, Tensor, Text,
    float_repr,
};
use statelens_tensor::Slice;

use slicing::PythonSlice;

/// Python code that reads a tensor or value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snippet {
    /// The library that the code uses: `torch`, `safetensors`, `numpy` …
    pub library: &'static str,
    /// The code. The last line binds `tensor` (or `value`).
    pub code: String,
}

/// Returns the code of a format for a leaf, the usual one first.
pub type SnippetsOf = fn(&PythonLeaf<'_>) -> Vec<Snippet>;

/// Returns ways to read a leaf in Python: those of the format, and those for any file.
pub(crate) fn snippets(
    checkpoint: &Checkpoint,
    leaf: &Leaf,
    slice: Option<&Slice>,
    place: &dyn Fn(FileId) -> String,
    of_format: Option<SnippetsOf>,
) -> Vec<Snippet> {
    let tensor = checkpoint.tensor_of(leaf.target).map(|(_, tensor)| tensor);
    if tensor.is_some_and(|tensor| matches!(tensor.layout, Layout::Missing(_))) {
        return Vec::new();
    }
    let Some(main) = checkpoint.files.main().ok() else { return Vec::new() };
    let own = tensor.and_then(file_of).unwrap_or(main);
    let path = |file: FileId| text(&place(file));
    let shape = tensor.map(|tensor| tensor.shape.as_slice()).unwrap_or_default();
    let slice = slice.map_or_else(|| Ok(PythonSlice::default()), |it| PythonSlice::new(it, shape));
    let Ok(slice) = slice else { return Vec::new() };
    let wanted = PythonLeaf { checkpoint, leaf, tensor, slice, path: path(own), main: path(main) };
    // The format's own library refuses some files, which NumPy can map.
    let is_refused = checkpoint.findings.iter().any(|finding| finding.refused);
    let of_format = of_format.filter(|_| !is_refused);
    let mut found = of_format.map_or_else(Vec::new, |snippets| snippets(&wanted));
    found.extend(wanted.mapped());
    found.extend(wanted.jax(&found));
    found
}

/// A leaf to read in Python, and the parts of code for it.
#[derive(Debug)]
pub struct PythonLeaf<'a> {
    /// The checkpoint with the leaf.
    pub checkpoint: &'a Checkpoint,
    /// The leaf.
    pub leaf: &'a Leaf,
    /// The tensor, if the leaf is one.
    pub tensor: Option<&'a Tensor>,
    slice: PythonSlice,
    /// The file with the tensor, as a Python literal.
    pub path: String,
    /// The file that was opened, as a Python literal.
    pub main: String,
}

impl PythonLeaf<'_> {
    /// Returns a text as a Python literal.
    pub fn literal(name: &str) -> String {
        text(name)
    }

    /// Returns the variable that the last line binds: `tensor` or `value`.
    pub fn variable(&self) -> &'static str {
        if self.tensor.is_some() { "tensor" } else { "value" }
    }

    /// Returns the flat key as a Python literal.
    pub fn name(&self) -> String {
        text(&self.leaf.flat.to_lossy())
    }

    /// Returns the first of the names of a tied tensor as a Python literal.
    pub fn first_name(&self) -> String {
        if self.leaf.id == self.leaf.target {
            return self.name();
        }
        let leaves = self.checkpoint.leaves();
        let first = leaves.iter().find(|leaf| leaf.target == self.leaf.target);
        text(&first.unwrap_or(self.leaf).flat.to_lossy())
    }

    /// Returns the name in the file as a Python literal.
    pub fn stored_name(&self) -> String {
        let stored = self.checkpoint.stored_key(self.leaf.id).unwrap_or(&self.leaf.flat);
        text(&stored.to_lossy())
    }

    /// Returns the path as index expressions; see [`indexed`].
    pub fn subscripts(&self) -> Option<String> {
        indexed(&self.leaf.key)
    }

    /// Returns the index for NumPy; empty for the whole tensor.
    pub fn numpy_index(&self) -> &str {
        &self.slice.index
    }

    /// Returns the index for PyTorch, applied to the whole tensor or to the part that was read.
    pub fn torch_index(&self) -> String {
        format!("{}{}", self.slice.forwards, self.slice.then_torch())
    }

    /// Returns whether a dataset holds the numbers unchanged.
    pub fn is_plain(&self) -> bool {
        self.tensor.is_some_and(|tensor| {
            matches!(tensor.layout, Layout::Span(_)) && tensor.dtype != DType::BF16
        })
    }

    /// Returns whether NumPy has the dtype of the tensor without the help of another library.
    pub fn has_numpy_dtype(&self) -> bool {
        self.tensor.is_some_and(|tensor| own_of_numpy(&tensor.dtype))
    }

    /// Returns whether a tensor is read by decompressing a stream.
    pub fn storage_is_packed(&self, tensor: &Tensor) -> bool {
        let mut layout = &tensor.layout;
        while let Layout::Strided(strided) = layout {
            layout = &strided.storage;
        }
        matches!(layout, Layout::Packed(_))
    }

    /// Returns code that reads a dataset, given as a Python literal, or one of its elements.
    pub fn h5py(&self, dataset: &str, element: Option<u64>) -> Snippet {
        // The library follows links to other files.
        let (main, then) = (&self.main, self.slice.then_numpy());
        // Datasets are read by indexing; an empty tuple reads everything.
        let index = match (element, self.slice.index.is_empty()) {
            (Some(element), _) => format!("[{element}]{}", self.slice.forwards),
            (None, true) => "[()]".to_owned(),
            (None, false) => self.slice.forwards.clone(),
        };
        let filters = match self.tensor.map(|tensor| &tensor.layout) {
            Some(Layout::Chunked(chunked)) => chunked.chunks.describe(),
            _ => String::new(),
        };
        let needs_plugin = PLUGINS.iter().any(|filter| filters.contains(filter));
        let import = if needs_plugin { "import hdf5plugin  # filters\n" } else { "" };
        let open = match self.path == self.main {
            true => format!("    tensor = file[{dataset}]"),
            // The library looks for raw data in other files in the working folder.
            false => format!(
                "    access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)\n    \
                 access.set_efile_prefix(b\"${{ORIGIN}}\")\n    \
                 tensor = h5py.Dataset(h5py.h5d.open(file.id, {dataset}.encode(), access))"
            ),
        };
        let code = format!(
            "import h5py\n{import}\nwith h5py.File({main}, \"r\") as file:\n{open}{index}{then}\n"
        );
        Snippet { library: "h5py", code }
    }

    /// Returns code that maps the tensor with NumPy, if it is contiguous, in C order and not
    /// compressed.
    fn mapped(&self) -> Option<Snippet> {
        let tensor = self.tensor?;
        let Layout::Span(span) = &tensor.layout else { return None };
        let (dtype, import) = numpy(&tensor.dtype)?;
        let swapped = tensor.byte_order == ByteOrder::Big && tensor.dtype.itemsize() > 1;
        if tensor.stored != tensor.dtype || swapped || tensor.conjugate || tensor.negate {
            return None;
        }
        if tensor.numel()? == 0 {
            return None;
        }
        let shape: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
        let shape = format!("({}{})", shape.join(", "), if shape.len() == 1 { "," } else { "" });
        let (path, index) = (&self.path, &self.slice.index);
        Some(Snippet {
            library: "numpy.memmap",
            code: format!(
                "import numpy as np\n{import}\ntensor = np.memmap({path}, dtype={dtype}, mode=\"r\", \
                 offset={}, shape={shape}){index}\n",
                span.offset
            ),
        })
    }

    /// Returns code that converts the array that NumPy reads to JAX.
    fn jax(&self, found: &[Snippet]) -> Option<Snippet> {
        let tensor = self.tensor?;
        numpy(&tensor.dtype)?;
        let by = |library: &str| found.iter().find(|snippet| snippet.library == library);
        let read = by("numpy.memmap").or_else(|| by("numpy")).or_else(|| by("h5py"))?;
        if tensor.byte_order == ByteOrder::Big && tensor.dtype.itemsize() > 1 {
            return None;
        }
        // Without this setting, JAX narrows 64-bit numbers to 32 bits.
        let wide = matches!(tensor.dtype, DType::F64 | DType::I64 | DType::U64 | DType::C128);
        let (import, set) = match wide {
            true => ("import jax\n", "jax.config.update(\"jax_enable_x64\", True)\n"),
            false => ("", ""),
        };
        let code = format!(
            "{import}import jax.numpy as jnp\n{}{set}tensor = jnp.asarray(tensor)\n",
            read.code
        );
        Some(Snippet { library: "jax", code })
    }
}

/// The filters of HDF5 that h5py reads with the package hdf5plugin.
const PLUGINS: [&str; 5] = ["lz4", "bitshuffle", "zstd", "blosc", "bzip2"];

/// Returns the file with a tensor's bytes, if they are in a single file.
fn file_of(tensor: &Tensor) -> Option<FileId> {
    let mut layout = &tensor.layout;
    loop {
        return match layout {
            Layout::Span(span) => Some(span.file),
            Layout::Packed(packed) => Some(packed.span.file),
            Layout::Strided(strided) => {
                layout = &strided.storage;
                continue;
            }
            _ => None,
        };
    }
}

/// Returns whether NumPy has a dtype without the help of another library.
fn own_of_numpy(dtype: &DType) -> bool {
    numpy(dtype).is_some_and(|(_, import)| import.is_empty()) || matches!(dtype, DType::Numpy(_))
}

/// Returns NumPy's name of a dtype, and the import that it requires.
fn numpy(dtype: &DType) -> Option<(&'static str, &'static str)> {
    const OWN: &str = "import ml_dtypes\n";
    Some(match dtype {
        DType::Bool => ("\"?\"", ""),
        DType::U8 => ("\"u1\"", ""),
        DType::U16 => ("\"<u2\"", ""),
        DType::U32 => ("\"<u4\"", ""),
        DType::U64 => ("\"<u8\"", ""),
        DType::I8 => ("\"i1\"", ""),
        DType::I16 => ("\"<i2\"", ""),
        DType::I32 => ("\"<i4\"", ""),
        DType::I64 => ("\"<i8\"", ""),
        DType::F16 => ("\"<f2\"", ""),
        DType::F32 => ("\"<f4\"", ""),
        DType::F64 => ("\"<f8\"", ""),
        DType::C64 => ("\"<c8\"", ""),
        DType::C128 => ("\"<c16\"", ""),
        DType::BF16 => ("ml_dtypes.bfloat16", OWN),
        DType::F8E4M3FN => ("ml_dtypes.float8_e4m3fn", OWN),
        DType::F8E5M2 => ("ml_dtypes.float8_e5m2", OWN),
        _ => return None,
    })
}

/// Returns the path of a leaf as Python index expressions: `["model"]["h.0.weight"][3]`. Returns
/// `None` if it leads into an object that was not built, or through a key without a literal.
pub fn indexed(key: &Key) -> Option<String> {
    let mut out = String::new();
    for part in &key.parts {
        let index = match part {
            KeyPart::Index(index) => index.to_string(),
            KeyPart::Field(key) | KeyPart::Quoted { key, .. } => literal(key, 0)?,
            KeyPart::Attribute(_) => return None,
        };
        let _ = write!(out, "[{index}]");
    }
    Some(out)
}

/// Maximum nesting of tuples in keys; deeper ones do not occur in practice.
const DEEPEST: usize = 8;

fn literal(key: &DictKey, depth: usize) -> Option<String> {
    Some(match key {
        DictKey::Str(name) => code_text(name),
        DictKey::Int(int) => int.to_string(),
        DictKey::Bool(true) => "True".into(),
        DictKey::Bool(false) => "False".into(),
        DictKey::Float(float) if float.is_finite() => float_repr(*float),
        DictKey::None => "None".into(),
        DictKey::Bytes(bytes) => {
            let escaped = bytes.escape_ascii().to_string();
            format!("b\"{escaped}\"")
        }
        DictKey::Tuple(keys) if depth < DEEPEST => {
            let keys: Option<Vec<String>> =
                keys.iter().map(|key| literal(key, depth + 1)).collect();
            let keys = keys?;
            format!("({}{})", keys.join(", "), if keys.len() == 1 { "," } else { "" })
        }
        _ => return None,
    })
}

/// Returns a string as a Python literal.
fn text(text: &str) -> String {
    let mut out = String::from("\"");
    text.chars().for_each(|c| escaped(c, &mut out));
    out.push('"');
    out
}

/// Returns a string that may contain lone surrogates as a Python literal.
fn code_text(name: &Text) -> String {
    let mut out = String::from("\"");
    for piece in name.pieces() {
        match piece {
            Ok(text) => text.chars().for_each(|c| escaped(c, &mut out)),
            Err(surrogate) => {
                let _ = write!(out, "\\u{surrogate:04x}");
            }
        }
    }
    out.push('"');
    out
}

/// Escapes characters that are invisible or change how text is displayed; letters of any script are
/// kept.
fn escaped(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if statelens_checkpoint::is_hidden(c) || c.is_control() => {
            let number = u32::from(c);
            let _ = match number {
                ..=0xffff => write!(out, "\\u{number:04x}"),
                _ => write!(out, "\\U{number:08x}"),
            };
        }
        c => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_keys_as_python_subscripts() {
        let key = |parts: Vec<KeyPart>| indexed(&Key { parts });
        let field = |key: DictKey| KeyPart::Field(key);
        assert_eq!(
            key(vec![field("a \"b\"\\\u{202e}".into()), KeyPart::Index(3)]).unwrap(),
            "[\"a \\\"b\\\"\\\\\\u202e\"][3]"
        );
        let pair = DictKey::Tuple(vec![DictKey::Bool(true), DictKey::Float(1.5)]);
        assert_eq!(key(vec![field(pair)]).unwrap(), "[(True, 1.5)]");
        assert_eq!(key(vec![field(DictKey::Tuple(vec![DictKey::None]))]).unwrap(), "[(None,)]");
        assert_eq!(key(vec![field(DictKey::Bytes([0, b'"'].into()))]).unwrap(), "[b\"\\x00\\\"\"]");
        assert_eq!(key(vec![KeyPart::Attribute("state".into())]), None);
        assert_eq!(key(vec![field(DictKey::Other("object()".into()))]), None);
    }
}
