//! Telling formats apart by content.

use statelens_checkpoint::{Error, FileSet, Result};

/// How sure a format is that a file is its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score(pub u8);

impl Score {
    /// Not this format.
    pub const NO: Self = Self(0);
    /// Could be, if nobody else claims it.
    pub const MAYBE: Self = Self(50);
    /// The magic bytes say so.
    pub const YES: Self = Self(100);
    /// The magic bytes say so, and so does what is inside.
    pub const EXACT: Self = Self(200);
}

/// The first file of a set, as far as formats look at it to tell themselves apart.
#[derive(Debug)]
pub struct Probe<'a> {
    files: &'a FileSet,
    head: Vec<u8>,
}

/// Enough for every magic number, tar's (at 257) and HDF5's first user-block offsets included.
const HEAD: u64 = 4096;

impl<'a> Probe<'a> {
    /// Reads the first bytes.
    pub fn new(files: &'a FileSet) -> Result<Self> {
        let main = files.main()?;
        let head = files.read_vec(main, 0, files.len(main).min(HEAD))?;
        Ok(Self { files, head })
    }

    /// The first bytes, up to 4096.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The whole set.
    pub fn files(&self) -> &FileSet {
        self.files
    }

    /// The name of the first file: for messages and ties, never the only reason.
    pub fn name(&self) -> &str {
        self.files.main().map_or("", |id| self.files.name(id))
    }

    /// Length of the first file in bytes.
    pub fn len(&self) -> u64 {
        self.files.main().map_or(0, |id| self.files.len(id))
    }

    /// Whether the first file is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The error for a file that no format claims: says what it is, if that can be told.
    pub(crate) fn explain(&self) -> Error {
        let text = String::from_utf8_lossy(&self.head).trim_start().to_ascii_lowercase();
        let error = if self.is_empty() {
            Error::damaged("the file is empty")
                .advice("The download or the copy did not finish: fetch it again.")
        } else if text.starts_with("version https://git-lfs") {
            Error::unsupported("this is a Git LFS pointer, a note of where the checkpoint is, not the checkpoint")
                .advice("Fetch the file itself with `git lfs pull`, or download it from the repository's page.")
        } else if text.starts_with("<!doctype html") || text.starts_with("<html") {
            Error::unsupported("this is a web page that was saved under the name of a model")
                .advice("Open it in a browser to see what the server said; you may need to log in, then download the file again.")
        } else if text.starts_with("<?xml") && text.contains("<error>") {
            Error::unsupported("this is a server's error message that was saved under the name of a model")
                .advice("Open it in a text editor to see what the server said, then download the file again.")
        } else if self.is_orbax() {
            Error::unsupported("this is a part of an Orbax checkpoint, a folder of JAX arrays, which Statelens does not read")
                .advice("Restore it with `orbax.checkpoint` and save it as msgpack with `flax.serialization.to_bytes`, or as an .npz file with `numpy.savez`.")
        } else if self.is_onnx() {
            Error::unsupported("this is an ONNX model, a graph of computations, not a checkpoint")
                .advice("Statelens reads state dicts. The weights of the graph can be had with `onnx.load` and `onnx.numpy_helper.to_array`, and saved with `numpy.savez`.")
        } else if self.head.iter().all(|byte| *byte == 0) {
            Error::damaged("the file starts with nothing but zeros")
                .advice("The download was interrupted or the disk lost it: fetch it again.")
        } else {
            Error::unsupported("this is no checkpoint format that Statelens knows")
                .expected(format!("one of: {}", names()))
                .advice("If it was downloaded, compare its size with the original: only a part of it may be there.")
        };
        error.in_file(self.name())
    }

    /// Orbax writes a folder: JSON about it, and arrays as OCDBT (`manifest.ocdbt`, `d/…`) or as
    /// zarr (`.zarray`).
    fn is_orbax(&self) -> bool {
        let name = crate::sets::base(self.name());
        let json = self.head.trim_ascii_start().starts_with(b"{");
        let holds = |word: &[u8]| self.head.windows(word.len()).any(|bytes| bytes == word);
        match name {
            "_CHECKPOINT_METADATA" | "_METADATA" => json,
            ".zarray" => json && holds(b"zarr_format"),
            _ => self.head.starts_with(OCDBT),
        }
    }

    /// A protocol buffer that begins with `ir_version`, a small number, and then the producer (a
    /// text), the opset or the graph, as exporters write it.
    fn is_onnx(&self) -> bool {
        match *self.head {
            [0x08, 1..=20, 0x12, len, ref rest @ ..] => {
                let producer = rest.get(..usize::from(len));
                producer.is_some_and(|text| text.iter().all(|byte| (0x20..0x7f).contains(byte)))
            }
            [0x08, 1..=20, 0x3a | 0x42, ..] => self.name().to_ascii_lowercase().ends_with(".onnx"),
            _ => false,
        }
    }
}

/// What a file of OCDBT, TensorStore's key-value store, begins with: manifest and tree nodes.
const OCDBT: &[u8] = &[0x0c, 0xdb];

/// The formats that are read, by name.
fn names() -> String {
    let names: Vec<&str> = crate::FORMATS.iter().map(|format| format.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{FileSet, Limits, Memory, Unwatched};

    /// Files that are no checkpoints, by name and first bytes, and a word of what is said of them.
    #[test]
    fn what_is_no_checkpoint_is_told_and_what_to_do() {
        let onnx = b"\x08\x08\x12\x07pytorch\x1a\x052.6.0\x3a\x9c\x01\x0a\x10";
        let cases: [(&str, &[u8], &str); 11] = [
            ("model.bin", b"", "empty"),
            ("model.bin", &[0; 5000], "zeros"),
            (
                "model.safetensors",
                b"version https://git-lfs.github.com/spec/v1\noid sha256:",
                "git lfs pull",
            ),
            ("model.pt", b"\n<!DOCTYPE html><html>", "web page"),
            (
                "model.pt",
                b"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>",
                "error message",
            ),
            ("ckpt/_METADATA", b"{\"tree_metadata\": {}}", "Orbax"),
            ("ckpt/_CHECKPOINT_METADATA", b"{\"item_handlers\": {}}", "Orbax"),
            ("ckpt/params.kernel/.zarray", b"{\"chunks\":[2],\"zarr_format\":2}", "Orbax"),
            ("ckpt/manifest.ocdbt", b"\x0c\xdb\x3a\x2a\0\0", "Orbax"),
            ("model.onnx", onnx, "ONNX"),
            ("model.xyz", b"nothing that anybody knows", "GGUF"),
        ];
        for (name, bytes, word) in cases {
            let files = FileSet::single(name, Memory::from(bytes.to_vec()));
            let error = crate::open(files, &Limits::default(), &mut Unwatched).unwrap_err();
            assert!(error.to_string().contains(word), "{name}: {error}");
            assert!(error.next_step().is_some(), "{name}: {error}");
        }
    }
}
