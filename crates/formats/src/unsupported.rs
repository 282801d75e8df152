//! Model files of formats that are known but not read: what they are, and what to do with them.

use statelens_checkpoint::Error;

use crate::{Probe, paths, pickle};

/// A format that is known but not read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    /// The description, which completes "this is".
    what: &'static str,
    /// Empty for a file that is not a model.
    advice: &'static str,
}

impl Foreign {
    /// Returns whether the file holds arrays: a model, or data that was exported with one.
    pub(crate) fn is_model(&self) -> bool {
        !self.advice.is_empty()
    }

    pub(crate) fn error(&self) -> Error {
        if !self.is_model() {
            return Error::unsupported(format!("this is {}, not a checkpoint", self.what))
                .advice("Open the file with the weights.");
        }
        Error::unsupported(format!("this is {}, which Statelens does not read", self.what))
            .advice(self.advice)
    }
}

const fn foreign(what: &'static str, advice: &'static str) -> Foreign {
    Foreign { what, advice }
}

const TORCH7: Foreign = foreign(
    "a Torch7 (Lua) file",
    "Read it in Python with `torchfile`, or with `torch.utils.serialization.load_lua` of PyTorch 0.4, and save it with `torch.save`.",
);
const GGML: Foreign = foreign(
    "a GGML or GGJT file, which llama.cpp wrote before GGUF",
    "Convert it with `convert_llama_ggml_to_gguf.py` of llama.cpp, or fetch the model as GGUF.",
);
const GRAPH: Foreign = foreign(
    "a frozen graph of TensorFlow (GraphDef)",
    "Its weights are constants in the graph: read them with `tf.compat.v1.GraphDef` and `tensor_util.MakeNdarray`, and save them with `numpy.savez`.",
);
const TFLITE: Foreign = foreign(
    "a TensorFlow Lite model",
    "Read its tensors with `tf.lite.Interpreter(path).get_tensor`, and save them with `numpy.savez`.",
);
const CAFFE: Foreign = foreign(
    "a Caffe model",
    "Read it with `caffe.Net` or `caffe_pb2.NetParameter`, and save the blobs with `numpy.savez`.",
);
const MATLAB: Foreign = foreign(
    "a MATLAB file of version 5",
    "Save it again with `save(..., '-v7.3')`, which is HDF5, or read it with `scipy.io.loadmat` and save it with `numpy.savez`.",
);
const MXNET: Foreign = foreign(
    "an MXNet file of parameters",
    "Read it with `mxnet.nd.load`, and save the arrays with `numpy.savez`.",
);
const DARKNET: Foreign = foreign(
    "a Darknet (YOLO) file of weights",
    "It holds numbers without names; their order is in the `.cfg` file. Convert both with a tool for that model.",
);
const TENSORRT: Foreign = foreign(
    "a TensorRT engine",
    "It is compiled for one kind of GPU. Open the model that it was built from.",
);
const EXECUTORCH: Foreign = foreign(
    "an ExecuTorch program",
    "It is compiled from a PyTorch model. Open the checkpoint of that model.",
);
const PARQUET: Foreign = foreign(
    "a Parquet file, a table of data",
    "Read it with `pandas.read_parquet` or `pyarrow.parquet`.",
);
const ZARR: Foreign = foreign(
    "a part of a Zarr store",
    "Read the folder with `zarr.open`, or with `orbax.checkpoint` if Orbax wrote it, and save the arrays with `numpy.savez`.",
);
const SEVEN_ZIP: Foreign = foreign("a 7z archive", "Unpack it with `7z x` and open its content.");
const RAR: Foreign = foreign("a RAR archive", "Unpack it with `unrar x` and open its content.");
const BASE64: Foreign = foreign(
    "a file in Base64, as mail and JSON carry files",
    "Decode it with `base64 -d FILE > OUT` and open the result.",
);
const FASTTEXT: Foreign = foreign(
    "a fastText model",
    "Read it with `fasttext.load_model`, and save its matrices with `numpy.savez`.",
);

const MOBILE: Foreign = foreign(
    "a TorchScript program for PyTorch mobile (a flatbuffer)",
    "Load it with `torch.jit.jit_module_from_flatbuffer` of PyTorch 2, and save its `state_dict()` with `torch.save`.",
);
const HDF4: Foreign = foreign(
    "an HDF4 file",
    "Convert it with `h4toh5`, or read it with `pyhdf` and save the arrays with `numpy.savez`.",
);
const MINDSPORE: Foreign = foreign(
    "a MindSpore checkpoint",
    "Read it with `mindspore.load_checkpoint`, and save the parameters with `numpy.savez`.",
);
const PADDLE: Foreign = foreign(
    "a Paddle file of parameters for inference",
    "Read it with `paddle.static.load_program_state`, and save the arrays with `numpy.savez`.",
);
const TEXT_MODE: Foreign = foreign(
    "a pickle whose line ends were changed from LF to CR LF, as git and FTP do in text mode",
    "Copy it again in binary mode; with git, mark such files as `binary` in `.gitattributes`.",
);
const TFJS: Foreign = foreign(
    "a part of a TensorFlow.js model",
    "Convert the folder with `tensorflowjs_converter` to a Keras model, or read its `weightsManifest`: the `.bin` files hold plain numbers.",
);
const COREML: Foreign = foreign(
    "a Core ML model",
    "Read its weights with `coremltools`, and save them with `numpy.savez`.",
);
const ARROW: Foreign = foreign(
    "an Arrow or Feather file, a table of data",
    "Read it with `pyarrow.ipc.open_file` or `pandas.read_feather`.",
);
const R_DATA: Foreign = foreign(
    "a file of R data",
    "Read it with `load` or `readRDS` in R, and save the arrays with `hdf5r`.",
);
const EVENTS: Foreign =
    foreign("a log of TensorBoard", "Open its folder with `tensorboard --logdir FOLDER`.");
const NIFTI: Foreign =
    foreign("a NIfTI image", "Read it with `nibabel`, and save the array with `numpy.save`.");
const PDF: Foreign = foreign("a PDF document", "");
const PNG: Foreign = foreign("a PNG picture", "");
const JPEG: Foreign = foreign("a JPEG picture", "");
const GIF: Foreign = foreign("a GIF picture", "");
const WEBP: Foreign = foreign("a WebP picture", "");
const SOUND: Foreign = foreign("a sound file", "");
const MOVIE: Foreign = foreign("a movie", "");
const SQLITE: Foreign = foreign("an SQLite database", "");
const PROGRAM: Foreign = foreign("a program or a library", "");
const CLASS: Foreign = foreign("compiled code of Python", "");
const MARKDOWN: Foreign = foreign("a Markdown text", "");
const SCRIPT: Foreign = foreign("a Python script", "");
const NOTEBOOK: Foreign = foreign("a Jupyter notebook", "");
const JSON: Foreign = foreign("a JSON file", "");
const YAML: Foreign = foreign("a YAML file", "");
const TABLE: Foreign = foreign("a table in a text file", "");
const TEXT: Foreign = foreign("a text file", "");

/// Magic bytes of these formats, with their offset.
const MAGICS: [(usize, &[u8], Foreign); 33] = [
    (0, b"lmgg", GGML),
    (0, b"fmgg", GGML),
    (0, b"tjgg", GGML),
    (0, b"algg", GGML),
    (4, b"TFL3", TFLITE),
    (4, b"ET12", EXECUTORCH),
    (0, b"MATLAB 5.0 MAT-file", MATLAB),
    (0, &[0x12, 1, 0, 0, 0, 0, 0, 0], MXNET),
    (0, b"ftrt", TENSORRT),
    (0, b"ptrt", TENSORRT),
    (0, b"PAR1", PARQUET),
    (0, b"Rar!\x1a\x07", RAR),
    (0, b"7z\xbc\xaf\x27\x1c", SEVEN_ZIP),
    (0, &[0xba, 0x16, 0x4f, 0x2f], FASTTEXT),
    // An object (4) or a table (3), its index, then the version of the object.
    (0, b"\x04\0\0\0\x01\0\0\0\x03\0\0\0V 1", TORCH7),
    (4, b"PTMF", MOBILE),
    (0, b"\x0e\x03\x13\x01", HDF4),
    (0, b"ARROW1\0\0", ARROW),
    (0, b"FEA1", ARROW),
    (0, b"RDX3\n", R_DATA),
    (0, b"RDX2\n", R_DATA),
    (344, b"n+1\0", NIFTI),
    (0, b"%PDF-", PDF),
    (0, b"\x89PNG\r\n\x1a\n", PNG),
    (0, &[0xff, 0xd8, 0xff], JPEG),
    (0, b"GIF8", GIF),
    (8, b"WEBPVP8", WEBP),
    (8, b"WAVEfmt ", SOUND),
    (0, b"fLaC", SOUND),
    (0, b"ID3", SOUND),
    (4, b"ftyp", MOVIE),
    (0, b"SQLite format 3\0", SQLITE),
    (0, b"\x7fELF", PROGRAM),
];

/// Recognises a file of a format that is known but not read.
pub(crate) fn find(probe: &Probe<'_>) -> Option<Foreign> {
    let head = probe.head();
    let magic = |(at, magic, _): &(usize, &[u8], Foreign)| {
        head.get(*at..).is_some_and(|rest| rest.starts_with(magic))
    };
    if let Some((.., foreign)) = MAGICS.into_iter().find(magic) {
        return Some(foreign);
    }
    let name = probe.name().to_ascii_lowercase();
    let base = paths::base(&name);
    let ends = |ends: &[&str]| {
        base.rsplit_once('.').is_some_and(|(_, extension)| ends.contains(&extension))
    };
    let holds = |word: &[u8]| head.windows(word.len()).any(|bytes| bytes == word);
    match () {
        () if ends(&["t7", "th"]) && (torch7(head) || head.starts_with(b"4\n1\n")) => Some(TORCH7),
        // A protocol buffer whose first field is a node, whose first field is its name.
        () if matches!(head, [0x0a, _, 0x0a, ..] | [0x0a, _, _, 0x0a, ..])
            && (ends(&["pb"]) || [&b"Placeholder"[..], b"Const"].into_iter().any(holds)) =>
        {
            Some(GRAPH)
        }
        () if head.first() == Some(&0x0a) && ends(&["caffemodel"]) => Some(CAFFE),
        // Major version 0, minor 1 to 5.
        () if ends(&["weights"]) && matches!(head, [0, 0, 0, 0, 1..=5, 0, 0, 0, ..]) => {
            Some(DARKNET)
        }
        () if is_mindspore(head) => Some(MINDSPORE),
        () if is_paddle(head) => Some(PADDLE),
        () if ends(&["mlmodel"]) && head.first() == Some(&8) => Some(COREML),
        () if base.contains("tfevents") => Some(EVENTS),
        () if ends(&["exe", "dll", "pyd"]) && head.starts_with(b"MZ") => Some(PROGRAM),
        () if ends(&["pyc"]) && head.get(2..4) == Some(b"\r\n") => Some(CLASS),
        () if is_shard_of_tfjs(base) || is_json(head) && holds(b"\"weightsManifest\"") => {
            Some(TFJS)
        }
        () if ["zarr.json", ".zgroup", ".zattrs", ".zmetadata", ".zarray"].contains(&base)
            && holds(b"zarr") =>
        {
            Some(ZARR)
        }
        () if is_base64(head) => Some(BASE64),
        () if pickle::detect::is_in_text_mode(head) => Some(TEXT_MODE),
        () if is_text(head) => Some(match () {
            () if ends(&["md", "markdown"]) => MARKDOWN,
            () if ends(&["py"]) => SCRIPT,
            () if ends(&["ipynb"]) => NOTEBOOK,
            () if ends(&["yaml", "yml"]) => YAML,
            () if ends(&["csv", "tsv"]) => TABLE,
            () if is_json(head) => JSON,
            () => TEXT,
        }),
        () => None,
    }
}

fn is_json(head: &[u8]) -> bool {
    head.trim_ascii_start().first() == Some(&b'{')
}

/// Returns whether these are the first bytes of a text. The last letter may be cut.
fn is_text(head: &[u8]) -> bool {
    let is_letter = |byte: &u8| *byte >= b' ' && *byte != 0x7f || b"\n\r\t\x0c".contains(byte);
    let is_utf8 =
        std::str::from_utf8(head).map_or_else(|error| error.error_len().is_none(), |_| true);
    !head.is_empty() && is_utf8 && head.iter().all(is_letter)
}

/// Returns whether this is a protocol buffer of MindSpore (`checkpoint.proto`): an entry of a name,
/// and of a tensor whose type is a text.
fn is_mindspore(head: &[u8]) -> bool {
    const TYPES: [&[u8]; 6] = [b"Float", b"BFloat", b"Int", b"UInt", b"Bool", b"str"];
    // Skips the length of a field: a number of at most five bytes.
    let value = |bytes: &[u8], field: u8| {
        let rest = bytes.strip_prefix(&[field])?;
        let end = rest.iter().take(5).position(|byte| *byte < 0x80)?;
        let len =
            rest[..=end].iter().rev().fold(0usize, |len, byte| len << 7 | usize::from(byte & 0x7f));
        Some((rest[end + 1..].to_vec(), len))
    };
    let found = || {
        let (entry, _) = value(head, 0x0a)?;
        let (name, len) = value(&entry, 0x0a)?;
        let (name, rest) = name.split_at_checked(len)?;
        let (tensor, _) = value(rest, 0x12)?;
        let named = TYPES.iter().any(|name| {
            let typed = |bytes: &[u8]| {
                matches!(bytes, [0x12, len, rest @ ..] if *len < 16 && rest.starts_with(name))
            };
            (0..tensor.len().min(64)).any(|at| typed(&tensor[at..]))
        });
        Some(named && name.iter().all(|byte| (0x20..0x7f).contains(byte)))
    };
    found().unwrap_or(false)
}

/// Returns whether this is a tensor as Paddle serialises it (`lod_tensor.cc`): version 0, no levels,
/// version 0, the length of a description, and the description: its dtype and dimensions.
fn is_paddle(head: &[u8]) -> bool {
    matches!(
        head.split_first_chunk::<16>(),
        Some((zeros, [2..=200, 0, 0, 0, 0x08, 0..=40, 0x10, ..])) if *zeros == [0; 16]
    )
}

/// Returns whether a file is named like one with weights of TensorFlow.js: `group1-shard1of4.bin`.
fn is_shard_of_tfjs(base: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let rest = base.strip_prefix("group").and_then(|rest| rest.split_once("-shard"));
    let numbers = rest.and_then(|(group, rest)| Some((group, rest.split_once("of")?)));
    numbers.is_some_and(|(group, (at, of))| {
        number(group) && number(at) && number(of.strip_suffix(".bin").unwrap_or(of))
    })
}

/// Returns whether this is a table or an object of Torch7: its type, its index, then the version of
/// an object.
fn torch7(head: &[u8]) -> bool {
    matches!(head, [3 | 4, 0, 0, 0, 1, 0, 0, 0, ..])
}

/// Returns whether this is the Base64 encoding, with or without line breaks, of the first bytes of
/// a checkpoint.
fn is_base64(head: &[u8]) -> bool {
    const STARTS: [&[u8]; 6] = [b"UEsDB", b"gAJ", b"gAR", b"R0dVR", b"iUhER", b"k05VTVBZ"];
    let letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=\r\n".contains(byte);
    head.len() >= 32
        && STARTS.iter().any(|start| head.starts_with(start))
        && head.iter().all(letter)
}
