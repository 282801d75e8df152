//! Model files of formats that are known but not read: what they are, and what to do with them.

use statelens_checkpoint::Error;

use crate::{Probe, paths};

/// A format that is known but not read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    /// The description, which completes "this is".
    what: &'static str,
    advice: &'static str,
}

impl Foreign {
    pub(crate) fn error(&self) -> Error {
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
    "Read the folder with `zarr.open`, and save the arrays with `numpy.savez`.",
);
const RAR: Foreign = foreign("a RAR archive", "Unpack it with `unrar x` and open its content.");
const BASE64: Foreign = foreign(
    "a file in Base64, as mail and JSON carry files",
    "Decode it with `base64 -d FILE > OUT` and open the result.",
);
const FASTTEXT: Foreign = foreign(
    "a fastText model",
    "Read it with `fasttext.load_model`, and save its matrices with `numpy.savez`.",
);

/// Magic bytes of these formats, with their offset.
const MAGICS: [(usize, &[u8], Foreign); 14] = [
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
    (0, &[0xba, 0x16, 0x4f, 0x2f], FASTTEXT),
    // An object (4) or a table (3), its index, then the version of the object.
    (0, b"\x04\0\0\0\x01\0\0\0\x03\0\0\0V 1", TORCH7),
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
        () if ["zarr.json", ".zgroup", ".zattrs", ".zmetadata", ".zarray"].contains(&base)
            && holds(b"zarr") =>
        {
            Some(ZARR)
        }
        () if is_base64(head) => Some(BASE64),
        () => None,
    }
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
