//! The table of harmless names. It contains only exact names, no wildcards and no prefixes; a name
//! that is not in it is reported.
//!
//! A row allows the usages that torch (0.4 to 2.15), NumPy (1.6 to 2), Python 2, Lightning, the Trainer of
//! Hugging Face, DeepSpeed, Cerebras and Python itself write. In these usages, a name neither runs
//! code from the file, nor imports, reads or writes anything, nor touches memory outside of its
//! object, nor changes an object that other code shares. See [`super::pattern`] for the notation.

use std::sync::LazyLock;

use foldhash::{HashMap, HashMapExt};

use super::danger::{CODE, IMPORTS, NATIVE, NESTED, REACH};
use super::pattern::{self, Usage};

/// The usages that are allowed for a name of the table.
#[derive(Debug)]
pub(crate) struct Allowed {
    /// Empty if the row violates the notation, so that nothing is allowed.
    pub(crate) usages: Vec<Usage>,
    /// Why any other usage is dangerous; `None` if it is merely unknown.
    pub(crate) danger: Option<&'static str>,
}

impl Allowed {
    /// Returns whether the name itself may be a value.
    pub(crate) fn bare(&self) -> bool {
        self.usages.iter().any(|usage| matches!(usage, Usage::Bare))
    }
}

/// Finds the usages that are allowed for a name.
pub(super) fn find(module: &str, name: &str) -> Option<&'static Allowed> {
    let index = *TABLE.index.get(&(module, name))?;
    TABLE.allowed.get(index)
}

struct Table {
    allowed: Vec<Allowed>,
    /// Index of the row, by module and name.
    index: HashMap<(&'static str, &'static str), usize>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table { allowed: Vec::new(), index: HashMap::new() };
    for row in ROWS {
        for module in row.modules.split_ascii_whitespace() {
            for name in row.names.split_ascii_whitespace() {
                table.index.insert((module, name), table.allowed.len());
            }
        }
        let usages = pattern::parse(row.usages).unwrap_or_default();
        table.allowed.push(Allowed { usages, danger: row.danger });
    }
    table
});

/// Names that may be used in the same ways, each in each of the modules. White space separates
/// them.
pub(super) struct Row {
    pub(super) modules: &'static str,
    pub(super) names: &'static str,
    /// Usages in the notation of [`super::pattern`].
    pub(super) usages: &'static str,
    /// Why these usages are harmless.
    #[cfg(test)]
    pub(super) why: &'static str,
    danger: Option<&'static str>,
}

/// Storages that `torch` and `torch.cuda` have.
const STORAGES: &str = "
    BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage ComplexFloatStorage
    DoubleStorage FloatStorage HalfStorage IntStorage LongStorage ShortStorage
";

const TENSORS: &str = "
    BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor
    LongTensor ShortTensor
";

/// `torch.sparse` and `torch.cuda.sparse` don't have a type for bools.
const SPARSE: &str = "
    BFloat16Tensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor
    ShortTensor
";

/// Modules with the functions that make arrays, in various releases of NumPy.
const MULTIARRAY: &str = "
    numpy.core.multiarray numpy._core.multiarray numpy.core._multiarray_umath
    numpy._core._multiarray_umath
";

/// Members of the enumerations in `signal`, which Python pickles by name from 3.11 on.
const SIGNALS: &str = "
    SIGABRT SIGALRM SIGBUS SIGCHLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGKILL SIGPIPE SIGQUIT
    SIGSEGV SIGSTOP SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGUSR1 SIGUSR2 SIG_BLOCK SIG_DFL SIG_IGN
    SIG_SETMASK SIG_UNBLOCK
";

macro_rules! rows {
    ($($modules:expr, $names:expr, $usages:literal, $why:literal $(, $danger:expr)?;)*) => {
        &[$(Row {
            modules: $modules,
            names: $names,
            usages: $usages,
            #[cfg(test)]
            why: $why,
            danger: rows!(@danger $($danger)?),
        }),*]
    };
    (@danger) => { None };
    (@danger $danger:expr) => { Some($danger) };
}

// Modules, names, usages, why they are harmless, and why any other usage is dangerous.
pub(super) const ROWS: &[Row] = rows! {
    // Python's own data.
    "builtins", "int float bool", "bare", "plain types";
    "builtins", "list", "call(list?) items any; bare", "holds the items of the list";
    "builtins", "tuple", "call(list|(any*)?); bare", "holds the items of the list";
    "builtins", "dict", "call(dict?) entries any; bare", "holds the entries of the dict";
    "builtins", "complex", "call(float, float); bare", "a number";
    "builtins", "set frozenset", "call([any]); bare", "hold the items of the list";
    "builtins", "bytes bytearray", "call(); call(bytes); call(str, codec); bare",
        "the bytes in the file, or a text in a codec that Python has without importing it";
    "builtins", "str", "bare", "a plain type; a call could build the text of a name";
    "builtins", "object", "new(); bare", "an object without attributes";
    "builtins", "range", "call(int, int, int); bare", "three numbers";
    "builtins", "slice", "call(any, any, any); bare", "holds three values";
    "builtins", "Ellipsis NotImplemented None", "bare", "constants";
    "builtins", "iter",
        "call(list|(any*)|str|bytes|builtins.range()) state nat", "goes over values of the pickle",
        CODE;
    "builtins", "reversed", "call(list|(any*)) state int", "the same", CODE;
    "builtins", "enumerate", "call(builtins.iter(), nat)", "the same", CODE;
    "builtins", "zip", "call(builtins.iter()*)", "the same", CODE;
    "builtins", "NoneType EllipsisType NotImplementedType", "bare",
        "types of constants, as dill names them";
    "types", "NoneType EllipsisType NotImplementedType", "bare", "types of constants";
    "typing", "Any", "bare", "a mark for any type";
    "builtins", "type", "gives(none|<builtins.Ellipsis>|<builtins.NotImplemented>)",
        "the type of a constant; called otherwise, it looks up or creates classes";
    "builtins", "
        ArithmeticError AssertionError AttributeError BaseException BlockingIOError BrokenPipeError
        BufferError BytesWarning ChildProcessError ConnectionAbortedError ConnectionError
        ConnectionRefusedError ConnectionResetError DeprecationWarning EOFError EncodingWarning
        EnvironmentError Exception FileExistsError FileNotFoundError FloatingPointError
        FutureWarning GeneratorExit IOError ImportError ImportWarning IndentationError IndexError
        InterruptedError IsADirectoryError KeyError KeyboardInterrupt LookupError MemoryError
        ModuleNotFoundError NameError NotADirectoryError NotImplementedError OSError OverflowError
        PendingDeprecationWarning PermissionError ProcessLookupError RecursionError ReferenceError
        ResourceWarning RuntimeError RuntimeWarning StopAsyncIteration StopIteration SyntaxError
        SyntaxWarning SystemError SystemExit TabError TimeoutError TypeError UnboundLocalError
        UnicodeDecodeError UnicodeEncodeError UnicodeError UnicodeTranslateError UnicodeWarning
        UserWarning ValueError Warning ZeroDivisionError
    ", "call(any*); call(any*) state attributes; bare",
        "an exception that is created and not raised is data";
    "collections", "OrderedDict",
        "call() entries any; call() state {_metadata: any} entries any; call(list) state \
         {_metadata: any}; bare",
        "a dict, with the versions that torch keeps of a state dict";
    "collections", "defaultdict", "call(factory?) entries any; bare",
        "a dict; missing keys get a plain type";
    "collections", "Counter", "call(dict?) entries any; bare", "a dict";
    "collections", "deque", "call(list|(any*)?, int|none?) items any; bare", "a list with two ends";
    "collections", "ChainMap UserDict UserList",
        "new() state {maps: [any], data: dict|list}; call() state {maps: [any], data: dict|list}; \
         bare",
        "hold dicts and lists";
    "collections", "UserString", "new(str?) state {data: str}; bare", "a text";
    "_codecs", "encode", "call(str, codec)",
        "how protocols 0 to 2 write bytes; another codec would be imported";
    "copyreg", "_reconstructor",
        "call(any, <builtins.object>, none); call(any, <builtins.dict>, dict); call(any, \
         <builtins.list>, list)",
        "how protocols 0 and 1 create objects: the class is judged as if created by `new()`, \
         with the state that is set";
    "copyreg", "__newobj__", "call(any, any*)",
        "the class is judged as if created by `new` with the other arguments";
    "copyreg", "__newobj_ex__", "call(any, (any*), dict)",
        "the class is judged as if created by `new`; keyword arguments are never allowed";
    "datetime", "datetime", "call(bytes, datetime.timezone()?); bare",
        "ten bytes, which Python checks";
    "datetime", "date", "call(bytes); bare", "four bytes, which Python checks";
    "datetime", "time", "call(bytes, datetime.timezone()?); bare", "six bytes, which Python checks";
    "datetime", "timedelta", "call(int, int, int); bare", "numbers";
    "datetime", "timezone", "call(datetime.timedelta(), str?); bare", "an offset and a name";
    "pathlib pathlib._local", "Path PurePath PosixPath PurePosixPath WindowsPath PureWindowsPath",
        "call(str*); bare", "a path is text until it is opened";
    "decimal", "Decimal", "call(str); bare", "a number";
    "fractions", "Fraction", "call(int, int); call(str); bare", "a number";
    "uuid", "UUID", "new() state {int: int, is_safe: int|none|uuid.SafeUUID()}; bare",
        "a number";
    "uuid", "SafeUUID", "gives(int|none); bare", "a member of an enumeration";
    "argparse", "Namespace", "new(); new() state attributes; bare",
        "attributes, except those with a meaning to NumPy or Python";
    "types", "SimpleNamespace", "call(); call() state attributes; bare",
        "attributes, except those with a meaning to NumPy or Python";

    "_io", "BytesIO", "new() state (bytes, nat, none)",
        "bytes in memory, which are examined like a file";
    "_io", "StringIO", "new() state (str, none|str, nat, none)", "a text in memory";
    "http", "HTTPStatus", "gives(int); bare", "a member of an enumeration";
    "http", "HTTPMethod", "gives(str); bare", "a member of an enumeration";
    "signal", "Signals Handlers Sigmasks", "gives(int); bare", "a member of an enumeration";
    "signal", SIGNALS, "bare", "members of enumerations";

    // NumPy.
    "numpy", "
        generic number integer floating bool bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64
        intc uintc longlong ulonglong int_ uint float16 float32 float64 float128 longdouble
        complex64 complex128 complex256 clongdouble str_ bytes_ datetime64 timedelta64 record
        string_ unicode_ object_ void signedinteger unsignedinteger inexact complexfloating
        flexible character
    ", "bare",
        "types of elements; called with an object, one reads the address that the object gives";
    "numpy", "ndarray recarray matrix", "bare",
        "types of arrays; called with a buffer, one reads its bytes as pointers";
    "numpy.rec numpy.core.records", "recarray record", "bare", "types of arrays and elements";
    "numpy.ma numpy.ma.core", "MaskedArray", "bare", "a type of arrays";
    "numpy", "dtype",
        "call(element, false, true) state dtype-state; call(element, bool?, bool?); bare",
        "the type of elements; a copy of it (`false, true`) may be described more closely", NATIVE;
    "numpy._core._internal numpy.core._internal", "_convert_to_stringdtype_kwargs",
        "call(bool, any?)",
        "the type of texts of any length; the second argument marks missing texts";
    MULTIARRAY, "_reconstruct",
        "call(array-class, (zero), 'b'); call(array-class, (zero), 'b') state (int, sizes, \
         dtype, bool, bytes|[any])",
        "an empty array and its content: NumPy checks the number of bytes, and takes objects \
         from a list only";
    MULTIARRAY, "scalar", "call(dtype, bytes?)",
        "one element; from an array, NumPy reads its bytes as pointers", NATIVE;
    "numpy.core.numeric numpy._core.numeric", "_frombuffer",
        "call(bytes, dtype, sizes, 'C'|'F'); call(bytes, dtype, sizes, 'K', none|ints)",
        "an array of the bytes; NumPy checks their number and takes no objects from them";
    "numpy.ma.core", "_mareconstruct",
        "call(<numpy.ma.MaskedArray>|<numpy.ma.core.MaskedArray>, <numpy.ndarray>, (zero), \
         'b'); call(<numpy.ma.MaskedArray>|<numpy.ma.core.MaskedArray>, <numpy.ndarray>, (zero), \
         'b') state (int, sizes, dtype, bool, bytes|[any], bytes, \
         none|int|float|str|bytes|array|scalar)",
        "an array with a mask, and the content of both";
    "numpy.random._pickle", "__bit_generator_ctor",
        "call(generator-name|generator-class); call(generator-name|generator-class) state \
         generator-state|(generator-state, \
         none|numpy.random.bit_generator.__pyx_unpickle_SeedSequence())",
        "a generator of random numbers; its position must be inside its numbers";
    "numpy.random._pickle", "__generator_ctor __randomstate_ctor",
        "call(numpy.random._pickle.__bit_generator_ctor()|generator-name, \
         <numpy.random._pickle.__bit_generator_ctor>?); \
         call(numpy.random._pickle.__bit_generator_ctor()|generator-name, \
         <numpy.random._pickle.__bit_generator_ctor>?) state generator-state",
        "the same, with distributions";
    "numpy.random", "__RandomState_ctor",
        "call() state ('MT19937', array|list|(int*), position, int?, float?)",
        "the same, as NumPy wrote it up to 1.16";
    "numpy.random._pcg64", "PCG64 PCG64DXSM", "bare", "a type of generators";
    "numpy.random._mt19937", "MT19937", "bare", "a type of generators";
    "numpy.random._philox", "Philox", "bare", "a type of generators";
    "numpy.random._sfc64", "SFC64", "bare", "a type of generators";
    "numpy.random.bit_generator", "SeedSequence", "bare", "a type";
    "numpy.random.bit_generator", "__pyx_unpickle_SeedSequence",
        "call(<numpy.random.bit_generator.SeedSequence>, int, none); \
         call(<numpy.random.bit_generator.SeedSequence>, int, none) state (int|none|list|(int*), \
         int, array, int, (int*))",
        "the seed of a generator";
    "ml_dtypes", "
        bfloat16 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz
        float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float6_e2m3fn float6_e3m2fn float4_e2m1fn
        bcomplex32 complex32 int1 int2 int4 uint1 uint2 uint4
    ", "inner", "types of elements, for `numpy.dtype` only: some crash if called with a text";

    // torch: names that its own weights-only loader accepts, and constants.
    "torch torch.cuda", STORAGES, "bare", "types of storages, named by persistent ids";
    "torch torch.cuda", TENSORS, "bare",
        "types of tensors; called with `cdata`, one uses a number as an address";
    "torch.sparse torch.cuda.sparse", SPARSE, "bare", "types of tensors";
    "torch", "QInt32Storage QInt8Storage QUInt2x4Storage QUInt4x2Storage QUInt8Storage", "bare",
        "types of storages";
    "torch.storage", "TypedStorage UntypedStorage", "bare",
        "types of storages; called with `allocator`, one calls a number as code";
    "torch", "Tensor", "bare",
        "the type of tensors; called with `cdata`, it uses a number as an address";
    "torch.nn.parameter", "Parameter Buffer", "call(tensor, bool?); new(tensor, bool?); bare",
        "a tensor";
    "torch", "Size", "call(sizes); new(sizes); bare", "a shape";
    "torch", "device", "call(str, nat?); bare", "a name and a number";
    "torch", "
        bcomplex32 bfloat16 bits16 bits1x8 bits2x4 bits4x2 bits8 bool complex128 complex32 complex64
        float16 float32 float4_e2m1fn_x2 float64 float8_e4m3fn float8_e4m3fnuz float8_e5m2
        float8_e5m2fnuz float8_e8m0fnu int1 int16 int2 int3 int32 int4 int5 int6 int64 int7 int8
        qint32 qint8 quint2x4 quint4x2 quint8 uint1 uint16 uint2 uint3 uint32 uint4 uint5 uint6
        uint64 uint7 uint8 per_channel_affine per_channel_affine_float_qparams per_channel_symmetric
        per_tensor_affine per_tensor_symmetric
    ", "bare", "types of elements and of quantizers";
    "torch", "
        float double half int long short cfloat cdouble chalf strided sparse_coo sparse_csr
        sparse_csc sparse_bsr sparse_bsc jagged contiguous_format channels_last channels_last_3d
        preserve_format
    ", "bare", "constants: other names of types, layouts and memory formats";
    "torch.serialization", "_get_layout", "gives(str); bare", "a layout by its name";
    "torch.storage", "_load_from_bytes", "call(bytes)",
        "a storage inside a plain pickle: a stream of torch, which is examined", NESTED;
    "torch._utils", "_rebuild_tensor", "call(storage, nat, sizes, sizes)",
        "a view of a storage, which must be inside it (and a storage must not be longer than \
         its bytes)";
    "torch._utils", "_rebuild_tensor_v2",
        "call(storage, nat, sizes, sizes, bool, hooks, math-bits?)", "the same";
    "torch._utils", "_rebuild_tensor_v3",
        "call(storage, nat, sizes, sizes, bool, hooks, any, math-bits?)",
        "the same, with the type of its elements";
    "torch._utils", "_rebuild_qtensor",
        "call(storage, nat, sizes, sizes, (<torch.per_tensor_affine>, float, \
         int)|(<torch.per_channel_affine>|<torch.per_channel_affine_float_qparams>, \
         tensor|[float], tensor|[float], nat), bool, hooks)",
        "the same, with scales";
    "torch._utils", "_rebuild_sparse_tensor",
        "call(layout, (tensor, tensor, size, bool|none?)|(tensor, tensor, tensor, size))",
        "indices and values; the indices must be inside the shape";
    "torch._utils", "_rebuild_nested_tensor", "call(tensor, tensor, tensor, tensor)",
        "tensors of several shapes; they must be inside their buffer";
    "torch._utils", "_rebuild_meta_tensor_no_storage", "call(any, sizes, sizes, bool)",
        "a shape without data";
    "torch._utils", "_rebuild_parameter", "call(tensor, bool, hooks)", "a tensor";
    "torch._utils", "_rebuild_parameter_with_state", "call(tensor, bool, hooks, tensor-state)",
        "a tensor with attributes";
    "torch._utils", "_rebuild_device_tensor_from_numpy", "call(array, any, device, bool)",
        "a copy of an array";
    "torch._utils", "_rebuild_device_tensor_from_cpu_tensor", "call(tensor, any, device, bool)",
        "a copy of a tensor";
    "torch._utils", "_rebuild_wrapper_subclass",
        "call(wrapper, any, size, ints, nat, layout, device, bool)",
        "a tensor without data of its own";
    "torch._tensor torch.tensor", "_rebuild_from_type_v2",
        "call(rebuilder, tensor-class, arguments, tensor-state)",
        "a tensor with attributes: the function is judged as if called";
    "torch._tensor torch.tensor", "_rebuild_from_type",
        "call(rebuilder, tensor-class, arguments, attributes)", "the same, as torch 1 calls it";
    "torch.jit._pickle", "build_intlist build_tensorlist build_doublelist build_boollist",
        "gives(list)", "lists in TorchScript: each returns its argument";
    "torch.jit._pickle", "build_tensor_from_id", "gives(int)",
        "a tensor that is kept outside the pickle";
    "torch.jit._pickle", "restore_type_tag", "gives(any, str)", "returns its first argument";

    // Distributed tensors.
    "torch.distributed.tensor", "DTensor", "bare",
        "the type of a tensor that is a part of a larger one";
    "torch.distributed._tensor.api", "DTensor", "bare", "the same in torch 2.4";
    "torch.distributed.tensor._dtensor_spec torch.distributed._tensor.placement_types",
        "DTensorSpec",
        "new() state {mesh: torch.distributed.device_mesh.DeviceMesh(), placements: (any*), \
         tensor_meta: none|torch.distributed.tensor._dtensor_spec.TensorMeta()\
         |torch.distributed._tensor.placement_types.TensorMeta(), shard_order: none|(any*), \
         use_strided_shard_as_shard_order: bool, _hash: int|none}",
        "the part of the tensor";
    "torch.distributed.tensor._dtensor_spec torch.distributed._tensor.placement_types",
        "TensorMeta", "new(size, ints, any)", "shape, strides and type";
    "torch.distributed.tensor._dtensor_spec", "ShardOrderEntry", "new(int, (int*))", "numbers";
    "torch.distributed.tensor.placement_types torch.distributed._tensor.placement_types",
        "Shard Replicate Partial _StridedShard",
        "new(); new() state {dim: int, split_factor: int, reduce_op: str}",
        "the part of the tensor, in numbers";
    "torch.distributed.device_mesh", "DeviceMesh", "new() state attributes",
        "which devices; its constructor would connect";
    "torch.distributed._mesh_layout", "_MeshLayout _FlatLayout",
        "new() state {axes: (any*), shape: int|(any*), stride: int|(any*)}", "numbers";

    "torch.distributed._shard.sharded_tensor.api", "ShardedTensor", "bare",
        "the type of a tensor that is a part of a larger one, up to torch 2.4";
    "torch.distributed._shard.sharded_tensor.api", "ShardedTensor.ProcessGroupState",
        "new() state {local_rank: int, global_rank: int, local_world_size: int, \
         global_world_size: int}",
        "numbers";
    "builtins", "getattr",
        "inside(<torch.distributed._shard.sharded_tensor.api.ShardedTensor>, \
         'ProcessGroupState')",
        "the class above, as protocol 2 spells it; dangerous with other arguments", REACH;
    "torch.distributed._shard.sharded_tensor.shard", "Shard",
        "new() state (none, {tensor: any, metadata: any})", "a part and its place";
    "torch.distributed._shard.metadata", "ShardMetadata",
        "new() state (none, {shard_offsets: [int], shard_sizes: [int], placement: any})",
        "numbers";
    "torch.distributed._shard.sharded_tensor.metadata", "ShardedTensorMetadata",
        "new() state {shards_metadata: list, size: size, tensor_properties: any}",
        "shape, type and places of the parts";
    "torch.distributed._shard.sharding_spec.chunk_sharding_spec", "ChunkShardingSpec",
        "new() state {dim: int|str, placements: list}", "how the tensor is cut";
    "torch.distributed.remote_device", "_remote_device", "new() state attributes",
        "the name of a device";

    // The index of a distributed checkpoint.
    "torch.distributed.checkpoint.metadata", "Metadata",
        "new() state {state_dict_metadata: dict, planner_data: any, storage_data: any, \
         storage_meta: any, version: str|none, mcore_data: dict, all_local_plans: list}",
        "names, sizes and places";
    "torch.distributed.checkpoint.metadata", "BytesStorageMetadata", "new(); new() state {}",
        "nothing";
    "torch.distributed.checkpoint.metadata", "ChunkStorageMetadata",
        "new() state {offsets: size, sizes: size}", "numbers";
    "torch.distributed.checkpoint.metadata", "TensorStorageMetadata",
        "new() state {properties: torch.distributed.checkpoint.metadata.TensorProperties()\
         |torch.distributed._shard.sharded_tensor.metadata.TensorProperties(), size: size, \
         chunks: list}",
        "type, shape and chunks";
    "torch.distributed.checkpoint.metadata", "TensorProperties",
        "new() state (any, layout, bool, \
         torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING(), bool, none|sizes?)",
        "type, layout and flags";
    "torch.distributed._shard.sharded_tensor.metadata", "TensorProperties",
        "new() state (any, layout, bool, \
         torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING(), bool)",
        "the same, up to torch 2.3";
    "torch.distributed._shard.sharded_tensor.metadata", "MEM_FORMAT_ENCODING", "gives(int); bare",
        "a member of an enumeration";
    "torch.distributed.checkpoint.metadata", "MetadataIndex",
        "new() state {fqn: str, offset: none|size, index: none|int}", "a name and a place";
    "torch.distributed.checkpoint.metadata", "StorageMeta",
        "new() state {checkpoint_id: any, save_id: str|none, load_id: str|none, modules: [str]}",
        "names";
    "torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING", "gives(int); bare",
        "a member of an enumeration";
    "torch.distributed.checkpoint.filesystem", "_StorageInfo",
        "new() state {relative_path: str, offset: int, length: int, transform_descriptors: \
         none|[str]|(str*)}",
        "the name of a file, an offset, a length";

    "torch.distributed.checkpoint.planner", "SavePlan",
        "new() state {items: list, storage_data: any, planner_data: any, usable: bool}",
        "what a rank wrote";
    "megatron.core.dist_checkpointing.strategies.torch", "MCoreSavePlan",
        "new() state attributes", "the same, by Megatron";
    "torch.distributed.checkpoint.planner", "WriteItem",
        "new() state {index: any, type: any, bytes_io_data: any, tensor_data: any}",
        "a piece that a rank wrote";
    "torch.distributed.checkpoint.planner", "TensorWriteData",
        "new() state {chunk: any, properties: any, size: size}", "type, shape and place of it";
    "torch.distributed.checkpoint.planner", "BytesIOWriteData", "new() state {nbytes: int}",
        "a number";
    "torch.distributed.checkpoint.planner", "WriteItemType", "gives(int); bare",
        "a member of an enumeration";
    "torch.distributed.checkpoint.filesystem", "_StoragePrefix", "new() state {prefix: str}",
        "the beginning of a name";

    // Objects that trainers save along with the weights.
    "
        pytorch_lightning.utilities.parsing lightning.pytorch.utilities.parsing
        lightning_fabric.utilities.data lightning.fabric.utilities.data
    ", "AttributeDict", "new() entries any", "a dict";
    "deepspeed.runtime.fp16.loss_scaler", "LossScaler DynamicLossScaler", "new() state attributes",
        "a few numbers";
    "deepspeed.runtime.zero.config", "ZeroStageEnum", "gives(int); bare",
        "a member of an enumeration";
    "deepspeed.utils.tensor_fragment", "fragment_address",
        "new() state {numel: int, start: int}; new(int, int)", "two numbers";
    "transformers.training_args", "TrainingArguments", "new() state attributes",
        "settings of a run; the constructor would set it up";
    "transformers.training_args", "OptimizerNames", "gives(str); bare",
        "a member of an enumeration";
    "transformers.trainer_utils", "
        EvaluationStrategy FSDPOption HubStrategy IntervalStrategy SaveStrategy SchedulerType
        ShardedDDPOption
    ",
        "gives(str); bare", "members of enumerations";
    "transformers.trainer_pt_utils", "AcceleratorConfig", "new() state attributes", "settings";
    "accelerate.state", "PartialState", "new() state attributes",
        "settings; the constructor would connect";
    "accelerate.utils.dataclasses", "DistributedType", "gives(str); bare",
        "a member of an enumeration";
    "cerebras_pytorch.utils.tensor_scalar_dict", "TensorScalarDict", "new() entries any; bare",
        "a dict";
    "torch.utils._pytree", "TreeSpec LeafSpec", "new(); new() state attributes",
        "how dicts and lists are nested, in a checkpoint of Cerebras";
    "joblib.numpy_pickle", "NumpyArrayWrapper",
        "new() state {subclass: array-class, shape: sizes, order: 'C'|'F', dtype: dtype, \
         allow_mmap: bool, numpy_array_alignment_bytes: nat|none}",
        "describes an array whose bytes follow";

    // dill, as Cerebras uses it for values.
    "dill._dill dill.dill", "_load_type", "gives(builtin-name)",
        "a type of Python by its name", REACH;
    "dill._dill dill.dill", "_eval_repr", "gives(constant)",
        "a constant; any other text is code", CODE;
    "dill._dill dill.dill", "_get_attr",
        "gives(dill._dill._import_module()|dill.dill._import_module(), member-name)",
        "a name of this table by its module", REACH;
    "dill._dill dill.dill", "_import_module", "inside(str)", "the module in `_get_attr`", IMPORTS;
    "dill._dill dill.dill", "_create_array", "call(reconstruct, arguments, any, none?)",
        "an array: `_reconstruct` is judged as if called, with the state";
};

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn harmless_names_are_exact_with_usages_and_a_reason() {
        let plain = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let mut seen = HashSet::new();
        for row in ROWS {
            assert!(!row.why.is_empty(), "{:?}", row.names);
            assert!(pattern::parse(row.usages).is_some(), "{:?}: {}", row.names, row.usages);
            for module in row.modules.split_ascii_whitespace() {
                assert!(module.split('.').all(plain), "{module}");
                for name in row.names.split_ascii_whitespace() {
                    // A class may be inside another one.
                    assert!(name.split('.').all(plain), "{name}");
                    assert!(seen.insert((module, name)), "{module}.{name} twice");
                }
            }
        }
        assert_eq!(seen.len(), TABLE.index.len());
    }
}
