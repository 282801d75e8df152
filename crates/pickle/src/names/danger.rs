//! Names that are known to be dangerous, and the reasons. These lists only affect the wording: a
//! name in neither list is reported, too.

use statelens_checkpoint::has_word;

pub(crate) const RUNS: &str = "It runs a program or a command of the system.";
pub(crate) const CODE: &str = "It runs code that comes with the file.";
pub(crate) const REACH: &str = "It reaches any attribute of any object, and so any function.";
pub(crate) const FILES: &str = "It reads, writes or deletes files.";
pub(crate) const NETWORK: &str = "It talks to the network.";
pub(crate) const IMPORTS: &str = "It imports or runs any module.";
pub(crate) const NESTED: &str = "It unpickles something else, which can hold anything.";
pub(crate) const NATIVE: &str = "It calls native code or touches raw memory.";
/// The change affects the whole program.
pub(crate) const SHARED: &str = "State is set on a class or function rather than on an object.";
pub(crate) const SYSTEM: &str = "It reaches into the interpreter or the system.";

/// Returns why a name is dangerous, if it is known to be.
pub(super) fn reason(module: &str, name: &str) -> Option<&'static str> {
    let first = name.split('.').next().unwrap_or(name);
    let single = NAMES.iter().find(|(bad, names, _)| {
        *bad == module && (has_word(names, first) || has_word(names, name))
    });
    if INERT.iter().any(|(inert, names)| *inert == module && has_word(names, name)) {
        return None;
    }
    let whole = || {
        let within =
            |modules: &str| modules.split_ascii_whitespace().any(|bad| is_within(module, bad));
        MODULES.iter().find(|(_, modules)| within(modules)).map(|(reason, _)| *reason)
    };
    if let Some(reason) = single.map(|(_, _, reason)| *reason).or_else(whole) {
        return Some(reason);
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    if let Some((_, reason)) = ANYWHERE.iter().find(|(names, _)| has_word(names, last)) {
        return Some(reason);
    }
    // Attributes of every Python module: its builtins, its loader, its dict.
    if !module.starts_with("__torch__") && is_special(first) {
        return Some(REACH);
    }
    let through_module = module.split('.').skip(1).any(|step| has_word(ROOTS, step));
    // A path through attributes: `serialization.os.system`, `dict.get`.
    let leads_on = |step: &str| has_word(ROOTS, step) || has_word(STEPS, step) || is_special(step);
    let through_name = name.contains('.')
        && (DOTTED.split_ascii_whitespace().any(|bad| is_within(module, bad))
            || name.split('.').any(leads_on));
    (through_module || through_name).then_some(REACH)
}

/// Returns whether it is the module or a submodule of it.
fn is_within(module: &str, outer: &str) -> bool {
    module.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn is_special(name: &str) -> bool {
    name.len() > 4 && name.starts_with("__") && name.ends_with("__")
}

/// Modules in which every name is dangerous, submodules included.
const MODULES: &[(&str, &str)] = &[
    (
        RUNS,
        "
        os posix nt subprocess _posixsubprocess multiprocessing pty popen2 platform asyncio
        concurrent distutils setuptools pkg_resources pip ensurepip venv sched webbrowser
        antigravity idlelib lib2to3 turtledemo signal _thread threading _osx_support _aix_support
        _pyrepl mailcap pipes pexpect ptyprocess paramiko psutil tkinter _tkinter turtle
        test.support numpy.f2py numpy.distutils mlflow.projects torch.utils.cpp_extension
        torch.utils.bottleneck torch.utils.collect_env torch.multiprocessing torch.distributed.run
        torch.distributed.launch torch.distributed.elastic torch.distributed.rpc torch._appdirs
        ",
    ),
    (
        CODE,
        "
        code codeop timeit trace profile cProfile pdb bdb doctest unittest marshal dis ast symtable
        cgitb IPython ipykernel jinja2 mako sympy numexpr _xxsubinterpreters _interpreters
        interpreters numpy.testing torch._inductor torch._dynamo torch.fx torch.package torch.jit
        torch.testing torch.onnx torch._higher_order_ops torch._guards torch.utils._config_module
        torch.utils.data.datapipes pandas.eval pandas.core.computation
        ",
    ),
    (
        IMPORTS,
        "
        runpy importlib _frozen_importlib _frozen_importlib_external _imp imp ihooks pkgutil pydoc
        pyclbr zipimport modulefinder torch.hub
        ",
    ),
    (REACH, "rlcompleter inspect gc operator _operator pydoc_data annotationlib"),
    (
        SYSTEM,
        "
        sys site atexit logging faulthandler tracemalloc resource fcntl termios tty winreg _winreg
        _winapi msvcrt readline sysconfig weakref _weakref contextlib
        ",
    ),
    (
        NATIVE,
        "
        ctypes _ctypes _ctypes_test _testcapi _testinternalcapi cffi _cffi_backend mmap
        numpy.ctypeslib torch._ops torch.ops torch.classes torch.library torch.utils.dlpack
        ",
    ),
    (
        FILES,
        "
        shutil tempfile fileinput glob linecache io _io _pyio codecs gzip bz2 _bz2 lzma _lzma
        zipfile zipapp tarfile sqlite3 _sqlite3 dbm _dbm _gdbm filecmp aifc wave sunau uu binhex
        netrc plistlib mailbox mimetypes tokenize py_compile compileall tabnanny nturl2path
        numpy.lib.npyio numpy.lib._npyio_impl numpy.lib.format numpy.lib._format_impl
        numpy.lib._datasource numpy.DataSource numpy.core.memmap numpy._core.memmap pandas.io
        torch.utils.tensorboard torch.profiler
        ",
    ),
    (
        NETWORK,
        "
        socket _socket ssl _ssl socketserver http urllib urllib3 requests aiohttp httpx ftplib
        smtplib smtpd poplib imaplib nntplib telnetlib xmlrpc wsgiref asyncore asynchat cgi fsspec
        smart_open boto3 botocore huggingface_hub torch.utils.model_zoo
        torch.distributed.distributed_c10d torch.distributed.rendezvous
        ",
    ),
    (
        NESTED,
        "
        pickle _pickle pickletools cloudpickle joblib shelve jsonpickle yaml torch.serialization
        torch._weights_only_unpickler fickling picklescan modelscan
        ",
    ),
    (CODE, "dill"),
];

/// Classes in these modules that only hold data, and whose names say nothing about what a pickle
/// does with them.
const INERT: &[(&str, &str)] = &[
    ("io", "BytesIO StringIO"),
    ("_io", "BytesIO StringIO"),
    ("_pyio", "BytesIO StringIO"),
    ("http", "HTTPStatus HTTPMethod"),
    ("http.cookies", "SimpleCookie Morsel"),
    ("signal", "Signals Handlers Sigmasks struct_siginfo"),
    ("socket", "AddressFamily SocketKind MsgFlag AddressInfo"),
    ("ssl", "TLSVersion VerifyMode VerifyFlags Options AlertDescription SSLErrorNumber"),
    ("inspect", "Parameter Signature _ParameterKind FrameInfo ArgSpec FullArgSpec Traceback"),
    ("platform", "uname_result"),
    ("os", "stat_result terminal_size times_result uname_result"),
    ("posix", "stat_result terminal_size times_result uname_result"),
    ("sys", "version_info float_info int_info hash_info flags"),
    (
        "urllib.parse",
        "ParseResult ParseResultBytes SplitResult SplitResultBytes DefragResult DefragResultBytes",
    ),
    ("resource", "struct_rusage"),
    ("weakref", "WeakValueDictionary WeakKeyDictionary WeakSet"),
    ("_weakrefset", "WeakSet"),
    ("threading", "local"),
    ("asyncio.exceptions", "CancelledError TimeoutError InvalidStateError"),
    ("concurrent.futures._base", "CancelledError TimeoutError"),
    ("urllib.error", "HTTPError URLError"),
    ("zipfile", "ZipInfo BadZipFile"),
    ("tarfile", "TarInfo TarError ReadError"),
    ("logging", "LogRecord"),
    ("subprocess", "CompletedProcess CalledProcessError TimeoutExpired"),
];

/// Dangerous names in modules that are otherwise not dangerous, and everything below these names.
const NAMES: &[(&str, &str, &str)] = &[
    ("imaplib", "IMAP4_stream", RUNS),
    ("builtins", "eval exec execfile compile breakpoint help", CODE),
    ("builtins", "__import__ reload __build_class__ __loader__", IMPORTS),
    ("builtins", "getattr setattr delattr hasattr vars globals locals", REACH),
    ("builtins", "super property classmethod staticmethod dir", REACH),
    ("builtins", "map filter apply iter next zip enumerate", CODE),
    ("builtins", "sorted min max sum any all reversed", CODE),
    ("builtins", "open file input raw_input print", FILES),
    ("builtins", "memoryview id exit quit copyright credits license", SYSTEM),
    (
        "functools",
        "
        reduce partialmethod singledispatch singledispatchmethod cached_property total_ordering
        wraps update_wrapper lru_cache cache
        ",
        CODE,
    ),
    ("itertools", "accumulate starmap takewhile dropwhile filterfalse groupby", CODE),
    (
        "types",
        "
        CodeType FunctionType LambdaType MethodType ModuleType new_class prepare_class resolve_bases
        coroutine
        ",
        CODE,
    ),
    (
        "typing",
        "
        get_type_hints ForwardRef _eval_type NamedTuple _make_nmtuple evaluate_forward_ref
        ",
        CODE,
    ),
    ("typing_extensions", "get_type_hints evaluate_forward_ref _eval_type", CODE),
    (
        "dataclasses",
        "
        _create_fn make_dataclass dataclass _process_class _FuncBuilder _set_new_attribute replace
        ",
        CODE,
    ),
    ("enum", "global_enum _simple_enum EnumType EnumMeta bltns sys", REACH),
    ("collections", "namedtuple _sys _itemgetter abc", CODE),
    ("random", "_os _urandom", SYSTEM),
    ("string", "Formatter Template", REACH),
    ("re", "Scanner sub subn", CODE),
    ("heapq", "merge nsmallest nlargest", CODE),
    ("gettext", "c2py find translation install GNUTranslations", CODE),
    ("argparse", "FileType ArgumentParser _os _sys", FILES),
    ("optparse", "os sys OptionParser", FILES),
    ("getpass", "getpass unix_getpass os", SYSTEM),
    ("uuid", "_get_command_stdout _popen getnode os sys", RUNS),
    ("copyreg", "add_extension remove_extension pickle constructor dispatch_table", SYSTEM),
    ("xml.sax", "parse parseString make_parser", FILES),
    ("xml.etree.ElementTree", "parse iterparse ElementTree", FILES),
    ("email.message", "os", SYSTEM),
    ("torch", "load compile jit_load", NESTED),
    ("torch", "save from_file", FILES),
    ("torch", "import_ir_module classes ops vmap func", CODE),
    ("torch.storage", "UntypedStorage.from_file _share_memory_lock", FILES),
    ("torch.distributed", "init_process_group TCPStore FileStore Store rpc", NETWORK),
    ("torch.cuda.memory", "_dump_snapshot _snapshot", FILES),
    ("torch.nn.modules.module", "_WrappedHook", CODE),
    ("torch.utils.checkpoint", "checkpoint checkpoint_sequential", CODE),
    ("torch.overrides", "handle_torch_function", CODE),
    (
        "numpy",
        "
        load loads fromfile memmap save savez savez_compressed savetxt loadtxt genfromtxt fromregex
        recfromtxt recfromcsv DataSource ndfromtxt mafromtxt asbytes
        ",
        FILES,
    ),
    (
        "numpy",
        "
        vectorize frompyfunc apply_along_axis apply_over_axes piecewise fromfunction fromiter
        deprecate source lookfor info safe_eval compat testing f2py ctypeslib
        ",
        CODE,
    ),
    ("numpy", "ndarray.tofile ndarray.dump ndarray.dumps recarray.tofile", FILES),
    ("numpy.rec", "fromfile", FILES),
    ("numpy.core.records", "fromfile", FILES),
    ("numpy._core.records", "fromfile", FILES),
    ("numpy.core.multiarray", "fromfile", FILES),
    ("numpy._core.multiarray", "fromfile", FILES),
    ("numpy.lib.utils", "safe_eval source lookfor", CODE),
    ("numpy.lib._function_base_impl", "vectorize", CODE),
    ("numpy.ma", "apply_along_axis apply_over_axes", CODE),
    ("numpy.ma.mrecords", "fromtextfile openfile", FILES),
    ("pandas", "read_pickle read_csv read_hdf read_json read_table HDFStore", FILES),
    ("pandas", "eval", CODE),
    ("keras.models", "load_model model_from_json model_from_config", CODE),
    ("keras.saving", "load_model deserialize_keras_object", CODE),
    ("tensorflow", "io saved_model py_function numpy_function load_op_library", NATIVE),
];

/// Names that are dangerous in any module, since many modules import them.
const ANYWHERE: &[(&str, &str)] = &[
    ("eval exec execfile runcode runsource run_code exec_module evalf", CODE),
    (
        "
        system popen Popen spawn spawnv spawnl execv execve execl check_output check_call getoutput
        getstatusoutput run_command exec_command
        ",
        RUNS,
    ),
    ("import_module import_string load_module run_module run_path", IMPORTS),
    ("attrgetter methodcaller getattr setattr", REACH),
];

/// Modules whose methods, named by a dotted path, are all dangerous.
const DOTTED: &str = "builtins pathlib typing types string";

/// Modules that are reached through longer paths: `torch.serialization.os` is `os`.
const ROOTS: &str = "
    os posix nt sys subprocess builtins importlib socket shutil ctypes pickle runpy
";

/// Attributes that lead from a harmless object to a dangerous one.
const STEPS: &str = "modules tofile dump from_file";
