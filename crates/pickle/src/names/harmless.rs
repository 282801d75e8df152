//! The names that are known to be harmless, letter by letter. There is no wildcard among them, and
//! no rule by which a name would be harmless for how it looks.
//!
//! A name is harmless if calling it with whatever else is on the list, setting its state, adding
//! items to it and dropping it neither runs code that the file brings, nor imports, reads or writes
//! anything, nor reaches an attribute whose name the file chose. For some that holds only in the way
//! that honest files use them: [`Use`] says which way.

/// How a name may be used without harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// In any way.
    Any,
    /// To make an object without calling its constructor (`NEWOBJ`), whose state is then set.
    Made,
    /// What it gives is there already, or what it was given: nothing may be set on that.
    AsItIs {
        /// Whether it may be handed around.
        bare: bool,
    },
    /// As `encode(text, 'latin1')` and its like: other codecs are modules that Python would import.
    /// Whether the function itself may be handed around, too.
    Codec {
        /// Whether it may be.
        bare: bool,
    },
    /// `type(None)` and its like; called otherwise, it makes classes.
    Type,
    /// As the element of a `numpy.dtype`, never called: made of a text, one of ml_dtypes crashes.
    Element,
    /// A dtype whose description holds together: one that does not makes numpy touch foreign memory.
    DType,
    /// A scalar of numpy from bytes: from an array, numpy takes its bytes for pointers.
    Scalar,
    /// A stream of torch, as harmless as what is in it.
    Stream,
    /// `dill._load_type('int')`, for types that are mere data.
    DillType,
    /// `dill._eval_repr('Ellipsis')`: anything else is code.
    DillRepr,
    /// `dill._get_attr(_import_module('numpy'), 'dtype')`, for names on this list.
    DillAttribute,
    /// The module in that.
    DillImport,
}

/// How the name may be used, if it is on the list.
pub(super) fn find(module: &str, name: &str) -> Option<Use> {
    let group = |group: &&HarmlessNames| group.module == module && group.names.contains(&name);
    GROUPS.iter().find(group).map(|group| group.allowed)
}

struct HarmlessNames {
    module: &'static str,
    names: &'static [&'static str],
    allowed: Use,
    /// Why it is harmless; for whoever reads or extends the list.
    #[cfg(test)]
    why: &'static str,
}

macro_rules! groups {
    ($($module:literal, $allowed:expr, $why:literal: $names:expr;)*) => {
        &[$(HarmlessNames { module: $module, names: &$names, allowed: $allowed, #[cfg(test)] why: $why }),*]
    };
}

/// Classes of storages that `torch` and `torch.cuda` have.
const STORAGES: [&str; 12] = [
    "BFloat16Storage",
    "BoolStorage",
    "ByteStorage",
    "CharStorage",
    "ComplexDoubleStorage",
    "ComplexFloatStorage",
    "DoubleStorage",
    "FloatStorage",
    "HalfStorage",
    "IntStorage",
    "LongStorage",
    "ShortStorage",
];

const TENSORS: [&str; 10] = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
];

/// `torch.sparse` and `torch.cuda.sparse` have none of bools.
const SPARSE: [&str; 9] = [
    "BFloat16Tensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
];

const RECONSTRUCT: [&str; 1] = ["_reconstruct"];
const SCALAR: [&str; 1] = ["scalar"];
const RECORDS: [&str; 2] = ["recarray", "record"];
const ATTRIBUTE_DICT: [&str; 1] = ["AttributeDict"];
const PATHS: [&str; 6] =
    ["Path", "PurePath", "PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"];

const GROUPS: &[HarmlessNames] = groups! {
    // Python's own data.
    "builtins", Use::Any, "plain data: they hold what they are given": [
        "int", "float", "complex", "bool", "list", "tuple", "dict", "set", "frozenset", "object",
        "range", "slice", "Ellipsis", "NotImplemented", "None",
    ];
    "builtins", Use::Codec { bare: true }, "text and bytes; a codec of its own would be imported": [
        "str", "bytes", "bytearray",
    ];
    "builtins", Use::Type, "the types of None, Ellipsis and NotImplemented": ["type"];
    "builtins", Use::Any, "an exception that is made and not raised is data": [
        "ArithmeticError", "AssertionError", "AttributeError", "BaseException", "BlockingIOError",
        "BrokenPipeError", "BufferError", "BytesWarning", "ChildProcessError",
        "ConnectionAbortedError", "ConnectionError", "ConnectionRefusedError",
        "ConnectionResetError", "DeprecationWarning", "EOFError", "EncodingWarning",
        "EnvironmentError", "Exception", "FileExistsError", "FileNotFoundError",
        "FloatingPointError", "FutureWarning", "GeneratorExit", "IOError", "ImportError",
        "ImportWarning", "IndentationError", "IndexError", "InterruptedError",
        "IsADirectoryError", "KeyError", "KeyboardInterrupt", "LookupError", "MemoryError",
        "ModuleNotFoundError", "NameError", "NotADirectoryError", "NotImplementedError",
        "OSError", "OverflowError", "PendingDeprecationWarning", "PermissionError",
        "ProcessLookupError", "RecursionError", "ReferenceError", "ResourceWarning",
        "RuntimeError", "RuntimeWarning", "StopAsyncIteration", "StopIteration", "SyntaxError",
        "SyntaxWarning", "SystemError", "SystemExit", "TabError", "TimeoutError", "TypeError",
        "UnboundLocalError", "UnicodeDecodeError", "UnicodeEncodeError", "UnicodeError",
        "UnicodeTranslateError", "UnicodeWarning", "UserWarning", "ValueError", "Warning",
        "ZeroDivisionError",
    ];
    "collections", Use::Any, "containers; a default factory is another name, judged by itself": [
        "OrderedDict", "defaultdict", "Counter", "deque", "ChainMap", "UserDict", "UserList",
        "UserString",
    ];
    "_codecs", Use::Codec { bare: false }, "how protocols 0 to 2 spell bytes": ["encode"];
    "copyreg", Use::Any, "makes an object of a class that is named beside it, which is judged": [
        "_reconstructor", "__newobj__", "__newobj_ex__",
    ];
    "datetime", Use::Any, "numbers": ["datetime", "date", "time", "timedelta", "timezone"];
    "pathlib", Use::Any, "a path is text until somebody opens it": PATHS;
    "pathlib._local", Use::Any, "as Python 3.13 calls it": PATHS;
    "decimal", Use::Any, "a number": ["Decimal"];
    "fractions", Use::Any, "a number": ["Fraction"];
    "uuid", Use::Any, "a number": ["UUID"];
    "uuid", Use::AsItIs { bare: true }, "an enumeration": ["SafeUUID"];
    "argparse", Use::Any, "attributes and nothing else": ["Namespace"];
    "types", Use::Any, "attributes and nothing else": ["SimpleNamespace"];

    // numpy.
    "numpy", Use::Any, "elements and arrays of them": [
        "ndarray", "generic", "number", "integer", "floating", "bool", "bool_", "int8", "int16",
        "int32", "int64", "uint8", "uint16", "uint32", "uint64", "intc", "uintc", "longlong",
        "ulonglong", "int_", "uint", "float16", "float32", "float64", "float128", "longdouble",
        "complex64", "complex128", "complex256", "clongdouble", "str_", "bytes_", "datetime64",
        "timedelta64", "recarray", "record",
    ];
    "numpy", Use::DType, "the type of elements": ["dtype"];
    "numpy.core.multiarray", Use::Any, "makes an empty array, whose state is then set": RECONSTRUCT;
    "numpy._core.multiarray", Use::Any, "the same since numpy 2": RECONSTRUCT;
    "numpy.core._multiarray_umath", Use::Any, "the same": RECONSTRUCT;
    "numpy._core._multiarray_umath", Use::Any, "the same": RECONSTRUCT;
    "numpy.core.multiarray", Use::Scalar, "makes one element": SCALAR;
    "numpy._core.multiarray", Use::Scalar, "the same since numpy 2": SCALAR;
    "numpy.core._multiarray_umath", Use::Scalar, "the same": SCALAR;
    "numpy._core._multiarray_umath", Use::Scalar, "the same": SCALAR;
    "numpy.core.numeric", Use::Any, "makes an array of bytes, checked by numpy": ["_frombuffer"];
    "numpy._core.numeric", Use::Any, "the same since numpy 2": ["_frombuffer"];
    "numpy.rec", Use::Any, "an array whose elements have names": RECORDS;
    "numpy.core.records", Use::Any, "the same before numpy 2": RECORDS;
    "numpy.ma", Use::Any, "an array with a mask": ["MaskedArray"];
    "numpy.ma.core", Use::Any, "an array with a mask": ["MaskedArray", "_mareconstruct"];
    "numpy.random._pickle", Use::Any, "make a generator of random numbers by name": [
        "__bit_generator_ctor", "__generator_ctor", "__randomstate_ctor",
    ];
    "numpy.random._pcg64", Use::Any, "a generator of random numbers": ["PCG64", "PCG64DXSM"];
    "numpy.random._mt19937", Use::Any, "a generator of random numbers": ["MT19937"];
    "numpy.random._philox", Use::Any, "a generator of random numbers": ["Philox"];
    "numpy.random._sfc64", Use::Any, "a generator of random numbers": ["SFC64"];
    "numpy.random.bit_generator", Use::Any, "what a generator was seeded with": [
        "SeedSequence", "__pyx_unpickle_SeedSequence",
    ];
    "ml_dtypes", Use::Element, "types of elements": [
        "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn",
        "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn",
        "float6_e3m2fn", "float4_e2m1fn", "int2", "int4", "uint2", "uint4",
    ];

    // torch: what its own weights-only loader takes.
    "torch", Use::Any, "torch's weights-only loader takes them": STORAGES;
    "torch", Use::Any, "torch's weights-only loader takes them": TENSORS;
    "torch", Use::Any, "torch's weights-only loader takes them": [
        "QInt32Storage", "QInt8Storage", "QUInt2x4Storage", "QUInt4x2Storage", "QUInt8Storage",
        "Size", "Tensor", "device",
        "bcomplex32", "bfloat16", "bits16", "bits1x8", "bits2x4", "bits4x2", "bits8", "bool",
        "complex128", "complex32", "complex64", "float16", "float32", "float4_e2m1fn_x2", "float64",
        "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
        "int1", "int16", "int2", "int3", "int32", "int4", "int5", "int6", "int64", "int7", "int8",
        "qint32", "qint8", "quint2x4", "quint4x2", "quint8",
        "uint1", "uint16", "uint2", "uint3", "uint32", "uint4", "uint5", "uint6", "uint64", "uint7",
        "uint8",
        "per_channel_affine", "per_channel_affine_float_qparams", "per_channel_symmetric",
        "per_tensor_affine", "per_tensor_symmetric",
    ];
    "torch", Use::Any, "constants: other names of dtypes, layouts and memory formats": [
        "float", "double", "half", "int", "long", "short", "cfloat", "cdouble", "chalf", "strided",
        "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged",
        "contiguous_format", "channels_last", "channels_last_3d", "preserve_format",
    ];
    "torch.cuda", Use::Any, "torch's weights-only loader takes them": STORAGES;
    "torch.cuda", Use::Any, "torch's weights-only loader takes them": TENSORS;
    "torch.sparse", Use::Any, "torch's weights-only loader takes them": SPARSE;
    "torch.cuda.sparse", Use::Any, "torch's weights-only loader takes them": SPARSE;
    "torch.storage", Use::Any, "torch's weights-only loader takes them": [
        "TypedStorage", "UntypedStorage",
    ];
    "torch.storage", Use::Stream, "a storage inside a plain pickle": ["_load_from_bytes"];
    "torch._utils", Use::Any, "torch's weights-only loader takes them": [
        "_rebuild_device_tensor_from_cpu_tensor", "_rebuild_device_tensor_from_numpy",
        "_rebuild_meta_tensor_no_storage", "_rebuild_parameter", "_rebuild_parameter_with_state",
        "_rebuild_qtensor", "_rebuild_sparse_tensor", "_rebuild_tensor", "_rebuild_tensor_v2",
        "_rebuild_tensor_v3", "_rebuild_wrapper_subclass",
    ];
    "torch._tensor", Use::Any, "torch's weights-only loader takes it": ["_rebuild_from_type_v2"];
    "torch.tensor", Use::Any, "the same, as older releases call it": ["_rebuild_from_type_v2"];
    "torch.serialization", Use::AsItIs { bare: true }, "torch's weights-only loader takes it": ["_get_layout"];
    "torch.nn.parameter", Use::Any, "a tensor": ["Parameter", "Buffer"];
    "torch.jit._pickle", Use::AsItIs { bare: false }, "lists in TorchScript: each returns what it is given": [
        "build_intlist", "build_tensorlist", "build_doublelist", "build_boollist",
        "build_tensor_from_id", "restore_type_tag",
    ];

    // Tensors that are spread over devices: torch's weights-only loader takes them, too.
    "torch.distributed.tensor", Use::Any, "a tensor that is a part of a larger one": ["DTensor"];
    "torch.distributed.tensor._dtensor_spec", Use::Made, "which part it is": [
        "DTensorSpec", "TensorMeta", "ShardOrderEntry",
    ];
    "torch.distributed.tensor.placement_types", Use::Any, "which part it is, in numbers": [
        "Shard", "Replicate", "Partial", "_StridedShard",
    ];
    "torch.distributed.device_mesh", Use::Made, "which devices; its constructor would connect": [
        "DeviceMesh",
    ];
    "torch.distributed._mesh_layout", Use::Made, "numbers": ["_MeshLayout", "_FlatLayout"];

    "cerebras_pytorch.utils.tensor_scalar_dict", Use::Any, "a dict; newer loaders take it for one": [
        "TensorScalarDict",
    ];
    "torch.utils._pytree", Use::Any, "how dicts and lists are nested, in a Cerebras checkpoint": [
        "TreeSpec", "LeafSpec",
    ];

    // The index of a distributed checkpoint: records of names, sizes and places.
    "torch.distributed.checkpoint.metadata", Use::Any, "records of names, sizes and places": [
        "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta",
        "TensorProperties", "TensorStorageMetadata",
    ];
    "torch.distributed.checkpoint.metadata", Use::AsItIs { bare: true }, "an enumeration": [
        "_MEM_FORMAT_ENCODING",
    ];
    "torch.distributed.checkpoint.filesystem", Use::Any, "a file's name, an offset, a length": [
        "_StorageInfo",
    ];

    // What trainers save beside the weights.
    "pytorch_lightning.utilities.parsing", Use::Any, "a dict with attributes": ATTRIBUTE_DICT;
    "lightning.pytorch.utilities.parsing", Use::Any, "a dict with attributes": ATTRIBUTE_DICT;
    "lightning_fabric.utilities.data", Use::Any, "a dict with attributes": ATTRIBUTE_DICT;
    "lightning.fabric.utilities.data", Use::Any, "a dict with attributes": ATTRIBUTE_DICT;
    "deepspeed.runtime.fp16.loss_scaler", Use::Made, "a few numbers": [
        "LossScaler", "DynamicLossScaler",
    ];
    "deepspeed.runtime.zero.config", Use::AsItIs { bare: true }, "an enumeration": ["ZeroStageEnum"];
    "deepspeed.utils.tensor_fragment", Use::Any, "two numbers": ["fragment_address"];
    "transformers.training_args", Use::Made, "settings of a run; its constructor would set it up": [
        "TrainingArguments",
    ];
    "transformers.training_args", Use::AsItIs { bare: true }, "an enumeration": ["OptimizerNames"];
    "transformers.trainer_utils", Use::AsItIs { bare: true }, "enumerations": [
        "HubStrategy", "IntervalStrategy", "SaveStrategy", "SchedulerType",
    ];
    "transformers.trainer_pt_utils", Use::Made, "settings": ["AcceleratorConfig"];
    "accelerate.state", Use::Made, "settings; its constructor would connect": ["PartialState"];
    "accelerate.utils.dataclasses", Use::AsItIs { bare: true }, "an enumeration": ["DistributedType"];

    // dill, as the Cerebras writer uses it for values.
    "dill._dill", Use::DillType, "a type of Python by name": ["_load_type"];
    "dill.dill", Use::DillType, "the same in older releases": ["_load_type"];
    "dill._dill", Use::DillRepr, "Ellipsis and NotImplemented": ["_eval_repr"];
    "dill.dill", Use::DillRepr, "the same in older releases": ["_eval_repr"];
    "dill._dill", Use::DillAttribute, "a name in a module": ["_get_attr"];
    "dill.dill", Use::DillAttribute, "the same in older releases": ["_get_attr"];
    "dill._dill", Use::DillImport, "the module": ["_import_module"];
    "dill.dill", Use::DillImport, "the same in older releases": ["_import_module"];
    "dill._dill", Use::Any, "calls what is named beside it, which is judged": ["_create_array"];
    "dill.dill", Use::Any, "the same in older releases": ["_create_array"];
    "joblib.numpy_pickle", Use::Made, "stands for an array whose bytes follow": ["NumpyArrayWrapper"];
};

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_name_is_exact_and_has_its_reason() {
        let mut seen = HashSet::new();
        for group in GROUPS {
            assert!(!group.why.is_empty(), "{}", group.module);
            for name in group.names {
                assert!(seen.insert((group.module, name)), "{}.{name} twice", group.module);
                let plain = |text: &str| {
                    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                };
                assert!(plain(name), "{name}");
                assert!(group.module.split('.').all(plain), "{}", group.module);
            }
        }
    }
}
