//! Which names a pickle may hold without harm, and which give away the machine.

use statelens_checkpoint::{DType, Global};

use crate::repr::is_class;

/// What is to be thought of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Danger {
    /// Known to be harmless.
    None,
    /// Not known.
    Unknown,
    /// Known to be dangerous, and why.
    Known(&'static str),
}

/// Judges a name. Danger wins: a name is only looked up among the harmless ones if no part of it
/// is dangerous.
pub(crate) fn verdict(global: &Global) -> Danger {
    let (module, name) = (&*global.module, &*global.name);
    if let Some(reason) = dangerous(module, name) {
        return Danger::Known(reason);
    }
    if is_harmless(module, name) { Danger::None } else { Danger::Unknown }
}

const RUNS: &str = "It runs a program or a command of the system.";
const CODE: &str = "It runs code that comes with the file.";
const REACH: &str = "It reaches any attribute of any object, and so any function.";
const FILES: &str = "It reads, writes or deletes files.";
const NETWORK: &str = "It talks to the network.";
const IMPORTS: &str = "It imports or runs any module.";
const NESTED: &str = "It unpickles something else, which can hold anything.";
const NATIVE: &str = "It calls native code or touches raw memory.";
const SYSTEM: &str = "It reaches into the interpreter or the system.";

/// Modules of which every name is dangerous, submodules included.
const MODULES: &[(&str, &str)] = &[
    ("os", RUNS),
    ("posix", RUNS),
    ("nt", RUNS),
    ("subprocess", RUNS),
    ("_posixsubprocess", RUNS),
    ("multiprocessing", RUNS),
    ("pty", RUNS),
    ("popen2", RUNS),
    ("platform", RUNS),
    ("asyncio", RUNS),
    ("concurrent", RUNS),
    ("distutils", RUNS),
    ("setuptools", RUNS),
    ("pip", RUNS),
    ("ensurepip", RUNS),
    ("venv", RUNS),
    ("sched", RUNS),
    ("webbrowser", RUNS),
    ("antigravity", RUNS),
    ("idlelib", RUNS),
    ("lib2to3", RUNS),
    ("turtledemo", RUNS),
    ("signal", RUNS),
    ("_thread", RUNS),
    ("threading", RUNS),
    ("code", CODE),
    ("codeop", CODE),
    ("timeit", CODE),
    ("trace", CODE),
    ("profile", CODE),
    ("cProfile", CODE),
    ("pdb", CODE),
    ("bdb", CODE),
    ("doctest", CODE),
    ("unittest", CODE),
    ("marshal", CODE),
    ("dis", CODE),
    ("ast", CODE),
    ("runpy", IMPORTS),
    ("importlib", IMPORTS),
    ("imp", IMPORTS),
    ("pkgutil", IMPORTS),
    ("pydoc", IMPORTS),
    ("zipimport", IMPORTS),
    ("modulefinder", IMPORTS),
    ("rlcompleter", REACH),
    ("inspect", REACH),
    ("gc", REACH),
    ("sys", SYSTEM),
    ("site", SYSTEM),
    ("atexit", SYSTEM),
    ("logging", SYSTEM),
    ("ctypes", NATIVE),
    ("_ctypes", NATIVE),
    ("cffi", NATIVE),
    ("mmap", NATIVE),
    ("shutil", FILES),
    ("tempfile", FILES),
    ("fileinput", FILES),
    ("glob", FILES),
    ("linecache", FILES),
    ("io", FILES),
    ("_io", FILES),
    ("codecs", FILES),
    ("gzip", FILES),
    ("bz2", FILES),
    ("lzma", FILES),
    ("zipfile", FILES),
    ("tarfile", FILES),
    ("sqlite3", FILES),
    ("dbm", FILES),
    ("filecmp", FILES),
    ("aifc", FILES),
    ("socket", NETWORK),
    ("_socket", NETWORK),
    ("ssl", NETWORK),
    ("socketserver", NETWORK),
    ("http", NETWORK),
    ("httplib", NETWORK),
    ("urllib", NETWORK),
    ("urllib2", NETWORK),
    ("requests", NETWORK),
    ("aiohttp", NETWORK),
    ("ftplib", NETWORK),
    ("smtplib", NETWORK),
    ("poplib", NETWORK),
    ("imaplib", NETWORK),
    ("telnetlib", NETWORK),
    ("xmlrpc", NETWORK),
    ("pickle", NESTED),
    ("_pickle", NESTED),
    ("pickletools", NESTED),
    ("cloudpickle", NESTED),
    ("joblib", NESTED),
    ("shelve", NESTED),
    ("jsonpickle", NESTED),
    ("yaml", NESTED),
    ("torch.hub", IMPORTS),
    ("torch.utils.cpp_extension", RUNS),
    ("torch.utils.model_zoo", NETWORK),
    ("torch.utils.bottleneck", RUNS),
    ("torch.utils.collect_env", RUNS),
    ("torch.multiprocessing", RUNS),
    ("torch.distributed.run", RUNS),
    ("torch.distributed.launch", RUNS),
    ("torch.distributed.elastic", RUNS),
    ("torch.distributed.rpc", RUNS),
    ("torch._inductor", CODE),
    ("torch._dynamo", CODE),
    ("torch.fx", CODE),
    ("torch.package", CODE),
    ("torch.jit", CODE),
    ("torch.serialization", NESTED),
    ("numpy.f2py", RUNS),
    ("numpy.distutils", RUNS),
    ("numpy.testing", CODE),
    ("numpy.lib.npyio", FILES),
    ("numpy.lib._npyio_impl", FILES),
    ("numpy.ctypeslib", NATIVE),
    ("pandas.io", FILES),
    ("pandas.eval", CODE),
    ("nturl2path", FILES),
];

/// Single names that are dangerous in modules that are not.
const NAMES: &[(&str, &[&str], &str)] = &[
    ("builtins", &["eval", "exec", "execfile", "compile", "breakpoint", "help"], CODE),
    ("builtins", &["__import__", "reload", "__build_class__", "__loader__"], IMPORTS),
    ("builtins", &["getattr", "setattr", "delattr", "hasattr", "vars", "globals", "locals"], REACH),
    ("builtins", &["super", "property", "classmethod", "staticmethod", "dir"], REACH),
    ("builtins", &["map", "filter", "apply", "iter", "next", "zip", "enumerate"], CODE),
    ("builtins", &["open", "file", "input", "raw_input", "print"], FILES),
    ("builtins", &["memoryview", "id", "exit", "quit"], SYSTEM),
    (
        "operator",
        &["attrgetter", "methodcaller", "itemgetter", "call", "getitem", "setitem"],
        REACH,
    ),
    (
        "_operator",
        &["attrgetter", "methodcaller", "itemgetter", "call", "getitem", "setitem"],
        REACH,
    ),
    ("functools", &["reduce", "partialmethod", "singledispatch", "cached_property"], CODE),
    ("itertools", &["accumulate", "starmap", "takewhile", "dropwhile", "filterfalse"], CODE),
    ("types", &["CodeType", "FunctionType", "LambdaType", "MethodType", "ModuleType"], CODE),
    ("torch", &["load", "compile", "save", "from_file"], NESTED),
    ("torch.storage", &["_load_from_bytes"], NESTED),
    ("torch._ops", &["ops"], NATIVE),
    ("torch.ops", &["load_library"], NATIVE),
    ("torch.classes", &["load_library"], NATIVE),
    (
        "numpy",
        &["load", "loads", "fromfile", "memmap", "save", "savez", "loadtxt", "genfromtxt"],
        FILES,
    ),
    ("numpy.core.memmap", &["memmap"], FILES),
    ("numpy._core.memmap", &["memmap"], FILES),
    ("pandas", &["read_pickle", "eval", "read_csv"], FILES),
    ("copyreg", &["add_extension", "pickle", "constructor"], SYSTEM),
    ("collections", &["namedtuple"], CODE),
    ("uuid", &["_get_command_stdout", "_popen"], RUNS),
];

/// What `dill` writes for values; every other function of it makes code or imports modules.
const DILL: &[&str] =
    &["_load_type", "_get_attr", "_import_module", "_create_array", "_create_type"];

/// Modules that a longer path leads to: `torch.serialization.os` is `os`.
const ROOTS: &[&str] = &[
    "os",
    "posix",
    "nt",
    "sys",
    "subprocess",
    "builtins",
    "importlib",
    "socket",
    "shutil",
    "ctypes",
    "pickle",
    "runpy",
];

/// Attributes that lead from a harmless object to a dangerous one.
const STEPS: &[&str] = &[
    "system",
    "popen",
    "eval",
    "exec",
    "modules",
    "__import__",
    "__globals__",
    "__builtins__",
    "__subclasses__",
    "__class__",
    "__dict__",
    "__getattribute__",
    "__init__",
    "__reduce__",
    "__reduce_ex__",
    "__code__",
    "__mro__",
    "__base__",
    "__bases__",
    "__func__",
    "__self__",
    "__loader__",
    "__spec__",
];

fn dangerous(module: &str, name: &str) -> Option<&'static str> {
    if module == "torch.serialization" && name == "_get_layout" {
        return None;
    }
    if module == "torch.jit._pickle" || module.starts_with("torch.fx.immutable_collections") {
        return None;
    }
    let whole = MODULES.iter().find(|(bad, _)| {
        module.strip_prefix(bad).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    });
    if let Some((_, reason)) = whole {
        return Some(reason);
    }
    if matches!(module, "dill" | "dill._dill" | "dill.dill" | "dill.source" | "dill.session") {
        let values = module != "dill" && (DILL.contains(&name) || name == "_eval_repr");
        return if values { None } else { Some(CODE) };
    }
    let first = name.split('.').next().unwrap_or(name);
    let single = NAMES.iter().find(|(bad, names, _)| {
        *bad == module && names.iter().any(|bad| *bad == first || *bad == name)
    });
    if let Some((_, _, reason)) = single {
        return Some(reason);
    }
    // `torch` and `serialization.os.system`: a walk through attributes.
    let through_module = module.split('.').skip(1).any(|step| ROOTS.contains(&step));
    let through_name = name.contains('.')
        && name.split('.').any(|step| ROOTS.contains(&step) || STEPS.contains(&step));
    (through_module || through_name).then_some(REACH)
}

fn is_harmless(module: &str, name: &str) -> bool {
    if name.contains('.') && !matches!(name, "ZoneInfo._unpickle") {
        return false;
    }
    match module {
        "builtins" => {
            is_class(name)
                || matches!(name, "Ellipsis" | "NotImplemented" | "None" | "Exception")
                || name.ends_with("Error")
                || name.ends_with("Warning")
        }
        "collections" => matches!(
            name,
            "OrderedDict"
                | "defaultdict"
                | "Counter"
                | "deque"
                | "ChainMap"
                | "UserDict"
                | "UserList"
                | "UserString"
        ),
        "_codecs" => name == "encode",
        "copyreg" => matches!(name, "_reconstructor" | "__newobj__" | "__newobj_ex__"),
        "datetime" => {
            matches!(name, "datetime" | "date" | "time" | "timedelta" | "timezone")
        }
        "zoneinfo" => matches!(name, "ZoneInfo" | "ZoneInfo._unpickle"),
        "pathlib" | "pathlib._local" => name.ends_with("Path"),
        "decimal" => name == "Decimal",
        "fractions" => name == "Fraction",
        "uuid" => name == "UUID" || name == "SafeUUID",
        "argparse" => name == "Namespace",
        "types" => name == "SimpleNamespace",
        "functools" => name == "partial",
        "enum" => true,
        "dill._dill" | "dill.dill" => DILL.contains(&name) || name == "_eval_repr",
        "ml_dtypes" => true,
        "numpy" => {
            matches!(
                name,
                "dtype" | "ndarray" | "matrix" | "recarray" | "record" | "generic" | "number"
            ) || name.trim_end_matches('_').chars().all(|c| c.is_ascii_alphanumeric())
                && NUMPY_SCALARS.iter().any(|scalar| name.starts_with(scalar))
        }
        "numpy.core.multiarray" | "numpy._core.multiarray" => {
            matches!(name, "_reconstruct" | "scalar")
        }
        "numpy.core._multiarray_umath" | "numpy._core._multiarray_umath" => {
            matches!(name, "_reconstruct" | "scalar")
        }
        "numpy.core.numeric" | "numpy._core.numeric" => name == "_frombuffer",
        "numpy.rec" | "numpy.core.records" => matches!(name, "recarray" | "record"),
        "numpy.ma" | "numpy.ma.core" => matches!(name, "MaskedArray" | "_mareconstruct"),
        "numpy.random._pickle" => name.starts_with("__"),
        "numpy.random._pcg64"
        | "numpy.random._mt19937"
        | "numpy.random._philox"
        | "numpy.random._sfc64"
        | "numpy.random.bit_generator" => true,
        "torch" => is_torch_name(name),
        "torch.cuda" | "torch.sparse" | "torch.cuda.sparse" => {
            name.ends_with("Storage") || name.ends_with("Tensor")
        }
        "torch.storage" => name.ends_with("Storage"),
        "torch._utils" | "torch._tensor" | "torch.tensor" => name.starts_with("_rebuild_"),
        "torch.serialization" => name == "_get_layout",
        "torch.nn.parameter" => matches!(name, "Parameter" | "Buffer" | "UninitializedParameter"),
        "torch.jit._pickle" => name.starts_with("build_") || name == "restore_type_tag",
        // What a DTensor is made of: `torch.load(weights_only=True)` takes them, too.
        "torch.distributed.tensor" | "torch.distributed.tensor._dtensor_spec" => {
            matches!(name, "DTensor" | "DTensorSpec" | "TensorMeta" | "ShardOrderEntry")
        }
        "torch.distributed.tensor.placement_types" => {
            matches!(name, "Shard" | "Replicate" | "Partial" | "_StridedShard")
        }
        "torch.distributed.device_mesh" | "torch.distributed._mesh_layout" => {
            matches!(name, "DeviceMesh" | "_MeshLayout" | "_FlatLayout")
        }
        "torch.utils._pytree" => matches!(name, "TreeSpec" | "LeafSpec"),
        "torch.distributed.checkpoint.metadata" | "torch.distributed.checkpoint.filesystem" => {
            name.starts_with(char::is_uppercase)
                || name == "_MEM_FORMAT_ENCODING"
                || name == "_StorageInfo"
        }
        "omegaconf.dictconfig" => name == "DictConfig",
        "omegaconf.listconfig" => name == "ListConfig",
        "omegaconf.base" => matches!(name, "ContainerMetadata" | "Metadata"),
        "omegaconf.nodes" => name.ends_with("Node"),
        "pytorch_lightning.utilities.parsing" | "lightning.pytorch.utilities.parsing" => {
            name == "AttributeDict"
        }
        "lightning_fabric.utilities.data" | "lightning.fabric.utilities.data" => {
            name == "AttributeDict"
        }
        // Classes of a TorchScript archive: defined by the code beside the pickle, unknown to
        // Python's own loader.
        _ if module == "__torch__" || module.starts_with("__torch__.") => true,
        // Classes of layers, optimizers and schedules do nothing when they are named and given
        // their state.
        _ => {
            ["torch.nn.modules.", "torch.nn.quantized.", "torch.ao.nn.", "torch.optim."]
                .iter()
                .any(|prefix| module.starts_with(prefix))
                && name.starts_with(char::is_uppercase)
        }
    }
}

const NUMPY_SCALARS: [&str; 10] = [
    "float",
    "int",
    "uint",
    "complex",
    "bool",
    "str",
    "bytes",
    "datetime64",
    "timedelta64",
    "void",
];

fn is_torch_name(name: &str) -> bool {
    DType::from_torch_name(name).is_some()
        || name.ends_with("Storage")
        || name.ends_with("Tensor")
        || name.starts_with("per_")
        || name.starts_with("sparse_")
        || matches!(
            name,
            "Size"
                | "device"
                | "dtype"
                | "layout"
                | "memory_format"
                | "strided"
                | "contiguous_format"
                | "channels_last"
                | "preserve_format"
                | "float"
                | "double"
                | "half"
                | "int"
                | "long"
                | "short"
                | "cfloat"
                | "cdouble"
                | "finfo"
                | "iinfo"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grade(module: &str, name: &str) -> u8 {
        match verdict(&Global::new(module, name)) {
            Danger::None => 0,
            Danger::Unknown => 1,
            Danger::Known(_) => 2,
        }
    }

    #[test]
    fn names_are_graded() {
        for (module, name, expected) in [
            ("collections", "OrderedDict", 0),
            ("torch._utils", "_rebuild_tensor_v2", 0),
            ("torch", "float8_e4m3fn", 0),
            ("torch.serialization", "_get_layout", 0),
            ("torch.nn.modules.linear", "Linear", 0),
            ("numpy", "float32", 0),
            ("torch.distributed.tensor", "DTensor", 0),
            ("numpy.rec", "recarray", 0),
            ("numpy.rec", "fromfile", 1),
            ("__main__", "Config", 1),
            ("mymodel.os_utils", "Config", 1),
            ("torch.nn.functional", "relu", 1),
            ("__main__", "Outer.Inner", 1),
            ("os", "system", 2),
            ("os.path", "join", 2),
            ("builtins", "eval", 2),
            ("torch", "load", 2),
            ("torch", "serialization.os.system", 2),
            ("torch.serialization", "os.system", 2),
            ("torch.serialization.os", "system", 2),
            ("collections", "OrderedDict.__init__.__globals__", 2),
            ("dill._dill", "_create_function", 2),
            ("dill", "loads", 2),
            ("numpy.testing._private.utils", "runstring", 2),
        ] {
            assert_eq!(grade(module, name), expected, "{module}.{name}");
        }
    }
}
