//! Recognises files that are found where checkpoints are expected but are not checkpoints, and
//! explains what they are and what to do about them.

use statelens_checkpoint::{
    Checkpoint, Error, FileId, FileSet, Finding, FindingKind, Grade, Loss, LossCode, advice,
    capitalised, grouped,
};

use crate::{Probe, paths, tar, unsupported};

/// The kind of a file that no format claims. In a set of files, the smallest kind explains the
/// most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stray {
    /// A part of an Orbax checkpoint.
    Orbax,
    Onnx,
    /// A Git LFS pointer.
    Pointer,
    /// The target of a symbolic link, as text.
    Link,
    WebPage,
    /// An error response of an object store.
    ServerError,
    Empty,
    Zeros,
    /// A compressed file, which may hold anything.
    Compressed,
    /// A known format of models or arrays that Statelens does not read.
    Foreign,
    /// A document, a picture, a program.
    Document,
    Unknown,
}

/// Magic bytes of compressed files: gzip, xz, zstd, bzip2, LZ4.
const COMPRESSED: [&[u8]; 5] =
    [&[0x1f, 0x8b, 8], b"\xfd7zXZ\0", &[0x28, 0xb5, 0x2f, 0xfd], b"BZh", &[4, 0x22, 0x4d, 0x18]];

/// The first bytes of a Git LFS pointer.
const POINTER: &str = "version https://git-lfs";
/// The limit of Git LFS itself: it treats no longer file as a pointer.
const MAX_POINTER_LEN: u64 = 1024;
/// The maximum size in bytes of a server response that is not XML.
const MAX_RESPONSE_LEN: usize = 1024;
/// The first bytes of a file of OCDBT, TensorStore's key-value store: of manifests and tree nodes.
const OCDBT: &[u8] = &[0x0c, 0xdb];

/// The error code for a small text in place of a checkpoint: a Git LFS pointer, a web page, a
/// server's error response. The error quotes its first lines.
pub const STAND_IN: &str = "stand-in";

/// Returns the error for a file that no format claims. It says what the file is, if that is known.
pub(crate) fn explain(probe: &Probe<'_>) -> Error {
    let error = match kind(probe) {
        Stray::Empty => Error::damaged("the file is empty")
            .advice("The download or the copy did not finish: fetch it again."),
        Stray::Pointer => {
            let of = match pointed_size(probe.head()) {
                Some(size) => format!(" of {} bytes", grouped(size)),
                None => String::new(),
            };
            let name = paths::base(probe.name());
            Error::unsupported(format!(
                "this is a Git LFS pointer to a file{of}, not the checkpoint itself"
            ))
            .coded(STAND_IN)
            .advice(
                advice![
                    "Download the file itself from the repository's page, or fetch it in the clone \
                     that this one came from"
                ]
                .command(format!("git lfs pull --include {name}")),
            )
        }
        Stray::Link => Error::unsupported(format!(
            "this is a symbolic link that was copied as text; it points to {}",
            link_text(probe).unwrap_or_default()
        ))
        .coded(STAND_IN)
        .advice("Copy the file that it points to, or copy the folder with its links (`cp -a`)."),
        Stray::WebPage => Error::unsupported(
            "this is a web page that was saved under the name of a model",
        )
        .coded(STAND_IN)
        .advice(
            "Open it in a browser to see what the server said; you may need to log in, then \
                 download the file again.",
        ),
        Stray::ServerError => Error::unsupported(
            "this is a server's error message that was saved under the name of a model",
        )
        .coded(STAND_IN)
        .advice(
            "Open it in a text editor to see what the server said, then download the file again.",
        ),
        Stray::Orbax => Error::unsupported(
            "this is a part of an Orbax checkpoint, a folder of JAX arrays, which Statelens does \
             not read",
        )
        .advice(
            "Restore it with `orbax.checkpoint` and save it as msgpack with \
             `flax.serialization.to_bytes`, or as an .npz file with `numpy.savez`.",
        ),
        Stray::Onnx => Error::unsupported(
            "this is an ONNX model, a graph of computations, not a checkpoint",
        )
        .advice(
            "Statelens reads state dicts. Read the weights of the graph with `onnx.load` and \
             `onnx.numpy_helper.to_array`, and save them with `numpy.savez`.",
        ),
        Stray::Zeros => Error::damaged("the file starts with nothing but zeros")
            .advice("The download was interrupted or the disk lost it: fetch it again."),
        Stray::Compressed => match tar::in_gzip(probe.head()) {
            Some(first) => {
                let name = paths::base(probe.name());
                Error::unsupported(format!(
                    "this is a compressed tar archive, which begins with {first}"
                ))
                .advice(
                    advice!["Unpack it and open the checkpoint in it"]
                        .command(format!("tar -xzf {name}")),
                )
            }
            None => Error::unsupported("this is a compressed file").advice(
                "Unpack it with `gunzip`, `unzstd` or the tool for its extension, and open its \
                 content.",
            ),
        },
        Stray::Foreign | Stray::Document => match unsupported::find(probe) {
            Some(foreign) => foreign.error(),
            None => Error::unsupported("this is not a checkpoint"),
        },
        Stray::Unknown => Error::unsupported(
            "this is not a checkpoint in a format that Statelens knows",
        )
        .expected(format!("one of: {}", names()))
        .advice("If it was downloaded, compare its size with the original: it may be incomplete."),
    };
    error.in_file(probe.name())
}

/// Returns whether [`explain`] recognises the file.
pub(crate) fn is_explained(probe: &Probe<'_>) -> bool {
    kind(probe) != Stray::Unknown
}

/// Returns whether the file is a small text in place of another file, see [`STAND_IN`].
pub(crate) fn is_stand_in(probe: &Probe<'_>) -> bool {
    matches!(kind(probe), Stray::Pointer | Stray::Link | Stray::WebPage | Stray::ServerError)
}

/// Returns the file that best explains why there is no checkpoint among `files`. The error from
/// opening it serves as the error for the whole set.
pub fn explaining_file(files: &FileSet) -> Option<FileId> {
    let reported = files.iter().filter_map(|(id, file)| {
        let kind = kind(&Probe::new(&files.opened_at(id)).ok()?);
        let named = has_known_extension(&file.name);
        // Any folder may have empty files, web pages and pointers to pictures.
        let says = named || kind <= Stray::Pointer || kind == Stray::Foreign;
        (kind < Stray::Unknown && says).then_some((kind > Stray::Onnx && !named, kind, id))
    });
    reported.min_by_key(|(other, kind, _)| (*other, *kind)).map(|(_, _, id)| id)
}

/// Returns whether a name has an extension of a checkpoint format.
pub fn has_known_extension(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase());
    let mut known = crate::formats().flat_map(|format| format.extensions);
    extension.is_some_and(|extension| known.any(|end| *end == extension))
}

/// Returns whether a name has an extension that files other than weights rarely have.
pub fn is_named_as_weights(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, end)| end);
    let mut known = crate::formats().flat_map(|format| format.weights_extensions);
    extension.is_some_and(|extension| known.any(|end| *end == extension))
}

/// Finds the file with tensor data that has this name, unless a Git LFS pointer is in its place.
pub(crate) fn data_file(files: &FileSet, name: &str) -> Option<FileId> {
    files.find(name).filter(|id| !is_pointer(files, *id))
}

/// Returns whether a file is a Git LFS pointer. Does not read files that are too long for one.
pub(crate) fn is_pointer(files: &FileSet, id: FileId) -> bool {
    let len = files.len(id);
    len < MAX_POINTER_LEN
        && files.read_vec(id, 0, len).is_ok_and(|bytes| bytes.starts_with(POINTER.as_bytes()))
}

/// Returns findings for files that the checkpoint misses, where a different file has that name.
pub(crate) fn impostors(checkpoint: &Checkpoint) -> Vec<Finding> {
    let files = &checkpoint.files;
    let mut found: Vec<Finding> = Vec::new();
    for name in checkpoint.findings.iter().flat_map(|finding| &finding.missing) {
        let Some(id) = files.find(name) else { continue };
        // The reader may have given the reason.
        let is_known =
            |finding: &Finding| finding.kind == FindingKind::WrongFile && finding.place == *name;
        if checkpoint.findings.iter().any(is_known) {
            continue;
        }
        let set = files.opened_at(id);
        let Ok(probe) = Probe::new(&set) else { continue };
        let error = explain(&probe);
        if found.len() == MAX_REPORTED {
            break;
        }
        found.push(
            Finding::new(Grade::Damage, format!("Not the expected file: {name}"))
                .kind(FindingKind::WrongFile)
                .detail(format!("{}.", capitalised(error.what())))
                .advice(error.next_step().cloned().unwrap_or_default()),
        );
    }
    found
}

/// Returns a loss that lists missing files whose content is unknown and therefore not written.
pub(crate) fn unlisted(source: &Checkpoint) -> Option<Loss> {
    let findings = source.findings_of(FindingKind::UnlistedFiles);
    let files: Vec<String> = findings.flat_map(|finding| finding.missing.clone()).collect();
    (!files.is_empty()).then(|| Loss {
        code: LossCode::MissingFiles,
        keys: files,
        what: "the content of these files is not text".into(),
        why: "They belong to this checkpoint and are missing.".into(),
        harmless: false,
    })
}

/// The maximum number of files with a finding of their own.
const MAX_REPORTED: usize = 5;

fn kind(probe: &Probe<'_>) -> Stray {
    let head = probe.head();
    let text = String::from_utf8_lossy(head);
    let text = text.trim_start_matches('\u{feff}').trim_start().to_ascii_lowercase();
    match () {
        () if probe.is_empty() => Stray::Empty,
        () if text.starts_with(POINTER) => Stray::Pointer,
        () if link_text(probe).is_some() => Stray::Link,
        () if text.starts_with("<!doctype html") || text.starts_with("<html") => Stray::WebPage,
        () if is_error_response(&text) => Stray::ServerError,
        () if is_orbax(probe) => Stray::Orbax,
        () if !probe.name().ends_with(".mlmodel") && is_onnx(probe) => Stray::Onnx,
        () if head.iter().all(|byte| *byte == 0) => Stray::Zeros,
        () if COMPRESSED.iter().any(|magic| head.starts_with(magic)) => Stray::Compressed,
        () => match unsupported::find(probe) {
            Some(foreign) if foreign.is_model() => Stray::Foreign,
            Some(_) => Stray::Document,
            None => Stray::Unknown,
        },
    }
}

/// Returns the path in a file that is a symbolic link saved as text, as git does on Windows: one
/// line that begins with `../`.
fn link_text<'p>(probe: &'p Probe<'_>) -> Option<&'p str> {
    let text = std::str::from_utf8(probe.head()).ok()?.trim_end();
    let is_path = text.starts_with("../") && !text.contains(|letter: char| letter.is_control());
    (is_path && probe.len() <= MAX_POINTER_LEN).then_some(text)
}

/// Returns whether a text is a server's error response: object stores send XML, others JSON or a
/// few words.
fn is_error_response(text: &str) -> bool {
    const WORDS: [&str; 7] = [
        "404: not found",
        "not found",
        "entry not found",
        "repository not found",
        "invalid username or password",
        "invalid credentials",
        "access to model",
    ];
    let short = text.len() < MAX_RESPONSE_LEN;
    text.starts_with("<?xml") && text.contains("<error>")
        || short && text.starts_with('{') && text.contains("\"error\"")
        || short && WORDS.iter().any(|words| text.starts_with(words))
}

/// Returns the size of the file that a Git LFS pointer refers to.
fn pointed_size(head: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(head).ok()?;
    text.lines().find_map(|line| line.strip_prefix("size ")?.trim().parse().ok())
}

/// Returns whether the file is part of an Orbax checkpoint, which is a folder with JSON metadata
/// and arrays as OCDBT (`manifest.ocdbt`, `d/…`). Without the metadata, arrays as zarr are any zarr
/// store.
fn is_orbax(probe: &Probe<'_>) -> bool {
    let json = probe.head().trim_ascii_start().starts_with(b"{");
    match paths::base(probe.name()) {
        "_CHECKPOINT_METADATA" | "_METADATA" => json,
        _ => probe.head().starts_with(OCDBT),
    }
}

/// Returns whether the file is a protocol buffer that begins with `ir_version`, a small number,
/// followed by the producer (text), the opset or the graph. Exporters write the fields in this
/// order.
fn is_onnx(probe: &Probe<'_>) -> bool {
    match *probe.head() {
        [0x08, 1..=20, 0x12, len, ref rest @ ..] => {
            let producer = rest.get(..usize::from(len));
            producer.is_some_and(|text| text.iter().all(|byte| (0x20..0x7f).contains(byte)))
        }
        [0x08, 1..=20, 0x3a | 0x42, ..] => probe.name().to_ascii_lowercase().ends_with(".onnx"),
        _ => false,
    }
}

/// Returns the names of all formats that Statelens reads.
fn names() -> String {
    let names: Vec<&str> = crate::formats().map(|format| format.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use statelens_checkpoint::{FileSet, Finding, Limits, Memory, Unwatched};

    /// Files that are not checkpoints: name, first bytes, and a word that the message must contain.
    #[test]
    fn describes_files_that_are_not_checkpoints() {
        let onnx = b"\x08\x08\x12\x07pytorch\x1a\x052.6.0\x3a\x9c\x01\x0a\x10";
        let cases: [(&str, &[u8], &str); 50] = [
            ("model.pt.gz", b"\x1f\x8b\x08\x00", "compressed"),
            ("model.bin", b"", "empty"),
            ("model.bin", &[0; 5000], "zeros"),
            (
                "model.safetensors",
                b"version https://git-lfs.github.com/spec/v1\noid sha256:",
                "git lfs pull",
            ),
            ("model.safetensors", b"../../blobs/b51496fb5cf3", "symbolic link"),
            ("model.pt", b"\n<!DOCTYPE html><html>", "web page"),
            (
                "model.pt",
                b"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>",
                "error message",
            ),
            ("model.pt", b"\xef\xbb\xbf<html><head>", "web page"),
            ("model.pt", b"Entry not found", "error message"),
            ("model.gguf", b"404: Not Found", "error message"),
            ("model.safetensors", b"{\"error\":\"Repository not found\"}", "error message"),
            ("ckpt/_METADATA", b"{\"tree_metadata\": {}}", "Orbax"),
            ("ckpt/_CHECKPOINT_METADATA", b"{\"item_handlers\": {}}", "Orbax"),
            ("ckpt/params.kernel/.zarray", b"{\"chunks\":[2],\"zarr_format\":2}", "Zarr"),
            ("ckpt/manifest.ocdbt", b"\x0c\xdb\x3a\x2a\0\0", "Orbax"),
            ("model.onnx", onnx, "ONNX"),
            ("lua.t7", b"\x04\0\0\0\x01\0\0\0\x03\0\0\0V 1\x11\0\0\0torch.FloatTensor", "Torch7"),
            ("table.t7", b"\x03\0\0\0\x01\0\0\0\x02\0\0\0", "Torch7"),
            ("old.bin", b"tjgg\x03\0\0\0\x00\x7d\0\0", "GGJT"),
            ("old.bin", b"lmgg\0\0\0\0", "GGML"),
            ("graph.pb", b"\x0a\x1a\x0a\x01x\x12\x0bPlaceholder", "frozen graph"),
            ("m.tflite", b"\x1c\0\0\0TFL3", "TensorFlow Lite"),
            ("c.caffemodel", b"\x0a\x09GoogleNet", "Caffe"),
            ("m.mat", b"MATLAB 5.0 MAT-file, Platform: GLNXA64", "MATLAB"),
            ("m.params", b"\x12\x01\0\0\0\0\0\0\0\0", "MXNet"),
            ("yolo.weights", b"\0\0\0\0\x02\0\0\0\0\0\0\0", "Darknet"),
            ("m.engine", b"ftrt\0\0\0\0", "TensorRT"),
            ("m.pte", b"\x1c\0\0\0ET12", "ExecuTorch"),
            ("m.parquet", b"PAR1\x15\x04", "Parquet"),
            ("s/zarr.json", b"{\"zarr_format\":3}", "Zarr"),
            ("m.rar", b"Rar!\x1a\x07\x01\0", "RAR"),
            ("m.7z", b"7z\xbc\xaf\x27\x1c\0\x04", "7z x"),
            ("m.safetensors.lz4", b"\x04\x22\x4d\x18\x64\x40", "compressed"),
            ("m.mlmodel", b"\x08\x05\x12\x10", "Core ML"),
            ("m.pt", b"UEsDBAAACAgAAAAAAAAAAAAAAAAAAAAAAAAOABQAbW9kZWwvZGF0YS5wa2xG", "Base64"),
            ("flat.ptl", b"4\0\0\0PTMF\0\0", "PyTorch mobile"),
            ("a.hdf", b"\x0e\x03\x13\x01\0\0", "HDF4"),
            (
                "net.ckpt",
                b"\x0a\x34\x0a\x0cconv1.weight\x12\x24\x08\x02\x08\x03\x12\x07Float32\x1a\x18\0\0",
                "MindSpore",
            ),
            (
                "m.pdiparams",
                b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x06\0\0\0\x08\x05\x10\x02\x10\x03",
                "Paddle",
            ),
            ("a.pkl", b"(dp0\r\nS'a'\r\np1\r\nI1\r\ns.", "CR LF"),
            ("model.json", b"{\"format\": \"x\", \"weightsManifest\": []}", "TensorFlow.js"),
            ("group1-shard1of2.bin", b"\x01\x02\x83", "TensorFlow.js"),
            ("model.bin", b"%PDF-1.4\n%\xe2\xe3", "PDF"),
            ("model.pt", b"\x89PNG\r\n\x1a\n\0", "PNG"),
            ("model.pt", b"\xff\xd8\xff\xe0\0", "JPEG"),
            ("readme.md", b"# A model\n", "Markdown"),
            ("train.py", b"import torch\n", "Python script"),
            ("config.json", b"{\"a\": 1}", "JSON"),
            ("model.pt", b"nothing that anybody knows: \xc3\xa9\xc3", "text file"),
            ("model.xyz", b"\x01nothing that anybody knows\xff", "GGUF"),
        ];
        for (name, bytes, word) in cases {
            let files = FileSet::single(name, Memory::from(bytes.to_vec()));
            let error = crate::open(files, &Limits::default(), &mut Unwatched).unwrap_err();
            assert!(error.to_string().contains(word), "{name}: {error}");
            assert!(error.next_step().is_some(), "{name}: {error}");
            let guesses = error.to_string().contains("it may be incomplete");
            assert_eq!(guesses, name == "model.xyz", "{name}: {error}");
        }
    }

    const LFS: &[u8] = b"version https://git-lfs.github.com/spec/v1\noid sha256:61c9\nsize 4096\n";

    type NamedFiles<'a> = &'a [(&'a str, &'a [u8])];

    fn files(named: NamedFiles<'_>) -> FileSet {
        let mut files = FileSet::default();
        for (name, bytes) in named {
            files.push(*name, Arc::new(Memory::from(bytes.to_vec())));
        }
        files
    }

    #[test]
    fn finds_the_file_that_explains_a_failure() {
        let cases: [(NamedFiles<'_>, Option<&str>); 6] = [
            (
                &[("m/config.json", b"{}"), ("m/model.safetensors", LFS)],
                Some("m/model.safetensors"),
            ),
            (&[("m/logo.png", LFS), ("m/model.gguf", LFS)], Some("m/model.gguf")),
            (&[("m/__init__.py", b""), ("m/model.pt", b"<html>")], Some("m/model.pt")),
            (&[("m/a.onnx", b"\x08\x08\x12\x01x"), ("m/b.bin", LFS)], Some("m/a.onnx")),
            (&[("m/__init__.py", b""), ("m/index.html", b"<html>")], None),
            (&[("m/readme.md", b"# A model")], None),
        ];
        for (named, expected) in cases {
            let files = files(named);
            assert_eq!(super::explaining_file(&files).map(|id| files.name(id)), expected);
        }
    }

    /// Returns title, detail and advice of each finding, for a set with one missing file.
    fn reported(files: FileSet) -> Vec<String> {
        let opened = crate::open(files, &Limits::default(), &mut Unwatched).unwrap();
        let missing = opened.findings.iter().flat_map(|finding| &finding.missing);
        assert_eq!(missing.count(), 1, "{:?}", opened.findings);
        let text =
            |finding: &Finding| format!("{}: {} {}", finding.title, finding.detail, finding.advice);
        opened.findings.iter().map(text).collect()
    }

    #[test]
    fn names_the_git_lfs_pointer_in_a_set() {
        let fixtures = statelens_fixtures::root();
        let sets = [
            (
                "hf_sharded_safetensors",
                "model.safetensors.index.json",
                "model-00002-of-00003.safetensors",
            ),
            (
                "hf_sharded_safetensors",
                "model-00001-of-00003.safetensors",
                "model-00003-of-00003.safetensors",
            ),
            ("tf/saver_v2_sharded", "sh.index", "sh.data-00002-of-00003"),
            ("dcp_ranks", ".metadata", "__3_0.distcp"),
            ("keras", "k3_sharded.weights.json", "k3_sharded_00001.weights.h5"),
        ];
        for (folder, main, pointer) in sets {
            let mut files = FileSet::default();
            for entry in std::fs::read_dir(fixtures.join(folder)).unwrap() {
                let (name, path) = (entry.as_ref().unwrap().file_name(), entry.unwrap().path());
                let bytes = match name.to_str() {
                    Some(name) if name == pointer => LFS.to_vec(),
                    _ => std::fs::read(path).unwrap(),
                };
                files.push(name.to_str().unwrap(), Arc::new(Memory::from(bytes)));
            }
            let main = files.find(main).unwrap();
            let reported = reported(files.opened_at(main));
            let is_explained =
                |text: &&String| text.contains(pointer) && text.contains("git lfs pull");
            assert_eq!(reported.iter().filter(is_explained).count(), 1, "{reported:?}");
        }
    }

    #[test]
    fn distinguishes_damaged_tensorflow_indexes() {
        let data = ("m.data-00000-of-00001", &b"0123"[..]);
        for (index, main, word) in [
            (&b"\0\x01\x02nothing"[..], "m.index", "cut short"),
            (b"\0\x01\x02nothing", data.0, "cut short"),
            (LFS, "m.index", "git lfs pull"),
            (LFS, data.0, "git lfs pull --include m.index"),
            (b"", "m.index", "empty"),
        ] {
            let files = files(&[("m.index", index), data]);
            let main = files.find(main).unwrap();
            let error = crate::open(files.opened_at(main), &Limits::default(), &mut Unwatched);
            let error = error.unwrap_err();
            assert_eq!(error.file(), Some("m.index"));
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn set_of_only_pointers_is_an_error() {
        let index = br#"{"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}"#;
        let (one, two) = ("d/m-1.safetensors", "d/m-2.safetensors");
        let files = files(&[("d/m.safetensors.index.json", index), (one, LFS), (two, LFS)]);
        let error = crate::open(files, &Limits::default(), &mut Unwatched).unwrap_err();
        assert_eq!(error.file(), Some(one));
        assert!(error.to_string().contains("4,096 bytes"), "{error}");
    }
}
