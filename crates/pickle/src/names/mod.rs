//! Classifies the names in a pickle: known to be harmless, known to be dangerous, or unknown.
//! Unknown names are reported.

mod danger;
#[cfg(test)]
mod documented;
mod harmless;
mod pattern;

use statelens_checkpoint::Global;

pub(crate) use danger::{NATIVE, NESTED, SHARED};
pub(crate) use harmless::Allowed;
pub(crate) use pattern::{CallPattern, How, Kind, Kinds, Usage, Word};

/// The classification of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Known to be harmless in the usages that [`allowed`] returns.
    Harmless,
    /// Unknown.
    Unknown,
    /// Known to be dangerous, for this reason.
    Danger(&'static str),
}

/// Returns the usages that are allowed for a name, as Python 3 resolves it.
pub(crate) fn allowed(global: &Global) -> Option<&'static Allowed> {
    harmless::find(&global.module, &global.name)
}

/// Classifies a name as Python 3 resolves it. Only listed names are harmless; they must match
/// exactly.
pub(crate) fn verdict(global: &Global) -> Verdict {
    let (module, name) = (&*global.module, &*global.name);
    if harmless::find(module, name).is_some() {
        return Verdict::Harmless;
    }
    danger::reason(module, name).map_or(Verdict::Unknown, Verdict::Danger)
}

/// Returns whether a name is known to run code, or to lead to names that do.
pub fn is_dangerous(module: &str, name: &str) -> bool {
    danger::reason(module, name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grade(module: &str, name: &str) -> u8 {
        match verdict(&Global::new(module, name)) {
            Verdict::Harmless => 0,
            Verdict::Unknown => 1,
            Verdict::Danger(_) => 2,
        }
    }

    #[test]
    fn grades_names() {
        for (module, name, expected) in [
            ("collections", "OrderedDict", 0),
            ("torch._utils", "_rebuild_tensor_v2", 0),
            ("torch", "float8_e4m3fn", 0),
            ("torch.serialization", "_get_layout", 0),
            ("numpy", "float32", 0),
            ("torch.distributed.tensor", "DTensor", 0),
            ("numpy.rec", "recarray", 0),
            ("ml_dtypes", "bfloat16", 0),
            // A whole module of layers runs code of a third party.
            ("torch.nn.modules.linear", "Linear", 1),
            ("numpy.rec", "array", 1),
            ("__main__", "Config", 1),
            ("mymodel.os_utils", "Config", 1),
            ("torch.nn.functional", "relu", 1),
            ("__main__", "Outer.Inner", 1),
            ("__torch__", "Holder", 1),
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

    #[test]
    fn module_or_spelling_never_makes_a_name_harmless() {
        for (module, name) in [
            ("enum", "global_enum"),
            ("enum", "eval"),
            ("enum", "Enum"),
            ("ml_dtypes", "eval"),
            ("ml_dtypes", "finfo"),
            ("numpy", "float_power"),
            ("numpy", "intersect1d"),
            ("numpy", "bool_evil"),
            ("numpy", "str_x"),
            ("numpy.random._pickle", "__builtins__"),
            ("numpy.random._pickle", "__loader__"),
            ("numpy.random._pcg64", "__builtins__"),
            ("numpy.random.bit_generator", "randbits"),
            ("builtins", "EvilError"),
            ("builtins", "classmethodWarning"),
            ("pathlib", "EvilPath"),
            ("torch", "EvilStorage"),
            ("torch", "sparse_evil"),
            ("torch", "per_evil"),
            ("torch.cuda", "EvilTensor"),
            ("torch.storage", "EvilStorage"),
            ("torch._utils", "_rebuild_evil"),
            ("torch.jit._pickle", "build_evil"),
            ("torch.optim.evil", "Evil"),
            ("torch.nn.modules.evil", "Evil"),
            ("torch.distributed.checkpoint.metadata", "Evil"),
            ("__torch__.evil", "Evil"),
            ("omegaconf.nodes", "EvilNode"),
            ("collections", "OrderedDict.fromkeys"),
            ("collections", "OrderedDict "),
            ("collections", "ordereddict"),
            ("collections.", "OrderedDict"),
            ("collections", ""),
            ("", "OrderedDict"),
        ] {
            assert_ne!(grade(module, name), 0, "{module}.{name}");
        }
    }

    /// Functions of Python and numpy that run commands, run code, write files or give access to
    /// arbitrary objects: each of them has been verified to do so.
    #[test]
    fn known_gadgets_are_dangerous() {
        for (module, name) in [
            ("_osx_support", "_read_output"),
            ("_aix_support", "_read_cmd_output"),
            ("_pyrepl.pager", "pipe_pager"),
            ("dataclasses", "_create_fn"),
            ("dataclasses", "make_dataclass"),
            ("enum", "global_enum"),
            ("enum", "eval"),
            ("random", "__builtins__"),
            ("builtins", "dict.get"),
            ("builtins", "str.format"),
            ("typing", "get_type_hints"),
            ("typing", "_eval_type"),
            ("typing", "ForwardRef._evaluate"),
            ("pathlib", "Path.write_text"),
            ("pathlib", "PosixPath.unlink"),
            ("logging.config", "dictConfig"),
            ("logging", "FileHandler"),
            ("cProfile", "run"),
            ("ctypes", "CDLL"),
            ("webbrowser", "open"),
            ("zipfile", "ZipFile"),
            ("tarfile", "open"),
            ("tempfile", "mktemp"),
            ("distutils.spawn", "spawn"),
            ("distutils.file_util", "write_file"),
            ("numpy", "savetxt"),
            ("numpy", "save"),
            ("numpy", "fromregex"),
            ("numpy", "DataSource"),
            ("numpy.lib.format", "open_memmap"),
            ("numpy.lib._datasource", "open"),
            ("numpy", "vectorize"),
            ("numpy", "apply_along_axis"),
            ("numpy", "ndarray.tofile"),
            ("numpy.f2py", "compile"),
            ("numpy.f2py.crackfortran", "getlincoef"),
            ("functools", "reduce"),
            ("functools", "singledispatch"),
            ("operator", "attrgetter"),
            ("weakref", "finalize"),
            ("gettext", "c2py"),
            ("mailcap", "findmatch"),
            ("argparse", "FileType"),
            ("py_compile", "compile"),
            ("_testcapi", "run_in_subinterp"),
            ("_xxsubinterpreters", "run_string"),
            ("cgitb", "lookup"),
            ("test.support.script_helper", "assert_python_ok"),
            ("string", "Formatter.vformat"),
            ("types", "FunctionType"),
            ("copyreg", "add_extension"),
            ("xmlrpc.client", "ServerProxy"),
            ("torch._inductor.codecache", "compile_file"),
            ("torch.fx.experimental.symbolic_shapes", "ShapeEnv.evaluate_guards_expression"),
            ("torch._dynamo.guards", "GuardBuilder.get"),
            ("torch.jit.unsupported_tensor_ops", "execWrapper"),
            ("torch.utils._config_module", "ConfigModule.load_config"),
            ("torch.utils.data.datapipes.utils.decoder", "basichandlers"),
            ("torch.storage", "UntypedStorage.from_file"),
            ("torch.distributed", "init_process_group"),
            ("anything.at.all", "eval"),
            ("anything.at.all", "os.system"),
            ("anything.at.all", "Popen"),
            ("dill._dill", "_create_code"),
            ("joblib", "load"),
            ("pandas", "read_pickle"),
            ("IPython", "embed"),
            ("sympy", "sympify"),
        ] {
            assert_eq!(grade(module, name), 2, "{module}.{name}");
        }
    }

    /// Names that `torch.load(weights_only=True)` accepts; `tests/interop/allowlist.py` writes the
    /// lists.
    const ALLOWLISTS: [&str; 2] = [
        include_str!("../../../../tests/fixtures/weights_only_2.4.txt"),
        include_str!("../../../../tests/fixtures/weights_only_2.15.txt"),
    ];

    /// Modules of torch for which the table has names that the lists don't, and why.
    const BEYOND_TORCH: &[(&str, &str)] = &[
        ("torch", "constants: other names of dtypes, layouts and memory formats"),
        ("torch.nn.parameter", "`Buffer`, whose objects are tensors"),
        ("torch.storage", "`_load_from_bytes`: a stream, which is examined"),
        ("torch._tensor", "`_rebuild_from_type`, as torch 1.10 calls it"),
        ("torch.tensor", "`_rebuild_from_type_v2`, as torch 1 calls it"),
        ("torch.distributed._shard.sharded_tensor.metadata", "as torch 2.3 calls them"),
        ("torch.distributed._shard.metadata", "parts of a `ShardedTensor`"),
        ("torch.distributed._shard.sharded_tensor.api", "parts of a `ShardedTensor`"),
        ("torch.distributed._shard.sharded_tensor.shard", "parts of a `ShardedTensor`"),
        (
            "torch.distributed._shard.sharding_spec.chunk_sharding_spec",
            "parts of a `ShardedTensor`",
        ),
        ("torch.distributed.remote_device", "parts of a `ShardedTensor`"),
        ("torch.distributed.checkpoint.planner", "the index of a distributed checkpoint"),
        ("torch.jit._pickle", "lists in TorchScript"),
        ("torch.distributed._tensor.api", "as torch 2.4 calls `DTensor`"),
        ("torch.distributed._tensor.placement_types", "as torch 2.4 calls them"),
        ("torch.distributed.checkpoint.metadata", "the index of a distributed checkpoint"),
        ("torch.distributed.checkpoint.filesystem", "the index of a distributed checkpoint"),
        ("torch.distributed._mesh_layout", "torch accepts it once it imports the module"),
        ("torch.distributed.device_mesh", "torch accepts it once it imports the module"),
        ("torch.distributed.tensor", "torch accepts it once it imports the module"),
        ("torch.distributed.tensor._dtensor_spec", "torch accepts it once it imports the module"),
        ("torch.distributed.tensor.placement_types", "torch accepts it once it imports the module"),
        ("torch.utils._pytree", "checkpoints of Cerebras"),
    ];

    #[test]
    fn table_covers_the_weights_only_allowlist() {
        let mut accepted = std::collections::HashSet::new();
        for line in ALLOWLISTS.iter().flat_map(|list| list.lines()) {
            let (module, name) = line.rsplit_once('.').unwrap();
            assert_eq!(grade(module, name), 0, "{line}");
            accepted.insert(line);
        }
        assert!(accepted.len() > 140, "{}", accepted.len());
        let mut beyond = std::collections::BTreeSet::new();
        for row in harmless::ROWS {
            let modules = row.modules.split_ascii_whitespace();
            for module in modules.filter(|module| module.starts_with("torch")) {
                let other = |name: &str| !accepted.contains(&*format!("{module}.{name}"));
                if row.names.split_ascii_whitespace().any(other) {
                    beyond.insert(module);
                }
            }
        }
        let explained = BEYOND_TORCH.iter().map(|(module, _)| *module).collect();
        assert_eq!(beyond, explained);
    }

    /// Rows of the table whose names are not judged by their own grade, and the test that covers
    /// them.
    const ELSEWHERE: &[(&str, &str)] = &[
        ("`__builtin__.reduce`", "as Python 3 calls them: below"),
        ("`str(b'os', 'ascii')`", "no name: `attacks2/computed_names.pkl` in the command's tests"),
        ("a name of a class", "no name: module_or_spelling_never_makes_a_name_harmless"),
        ("a class or function that nobody knows", "no name: `attacks` in the command's tests"),
        ("extension codes", "opcodes: the machine's tests"),
    ];

    /// Converts the notation of the documentation to module and name: `idlelib.*` is any name in
    /// it, `…` represents steps in between, and a single word is a module or a builtin.
    fn spelled(span: &str) -> (String, String) {
        let span = span.replace('…', ".anything.").replace(".*", ".anything");
        let module = |module: &str| (module.to_owned(), "anything".to_owned());
        let Some((outer, last)) = span.rsplit_once('.') else {
            return match &*span {
                "eval" | "exec" | "__import__" => ("anything.at.all".to_owned(), span),
                _ => module(&span),
            };
        };
        // Anything below a builtin is not a module, whatever its spelling.
        if let Some(name) = span.strip_prefix("builtins.") {
            return ("builtins".to_owned(), name.to_owned());
        }
        // These are modules.
        if ["torch.utils.bottleneck", "test.support.script_helper"].contains(&&*span) {
            return module(&span);
        }
        // A method belongs to its class.
        let class = |step: &str| step.trim_start_matches('_').starts_with(char::is_uppercase);
        match outer.rsplit_once('.') {
            Some((outer, step)) if class(step) => (outer.to_owned(), format!("{step}.{last}")),
            _ => (outer.to_owned(), last.to_owned()),
        }
    }

    /// Returns the names in code spans.
    fn spans(cell: &str) -> Vec<&str> {
        cell.split('`').skip(1).step_by(2).collect()
    }

    #[test]
    fn documented_table_matches_the_grades() {
        let text = include_str!("../../../../docs/scan.md");
        let table = text.split("### Names").nth(1).unwrap().split("###").next().unwrap();
        let (mut rows, mut held, mut wrong) = (0, 0, Vec::new());
        for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let [trick, _, _, said] = cells[..] else { panic!("{row}") };
            rows += 1;
            if ELSEWHERE.iter().any(|(start, _)| trick.starts_with(start)) {
                continue;
            }
            assert!(said.starts_with("danger"), "{row}: held by no test");
            let alone = spans(said);
            assert!(!spans(trick).is_empty(), "{row}");
            for span in spans(trick) {
                let (module, name) = spelled(span);
                let expected = if alone.contains(&span) { 1 } else { 2 };
                held += 1;
                if grade(&module, &name) != expected {
                    wrong.push(format!("{span} as {name} of {module}"));
                }
            }
        }
        assert_eq!(wrong, Vec::<String>::new());
        assert!(rows > 20 && held > 80, "{rows} {held}");
        for (start, _) in ELSEWHERE {
            assert!(table.contains(&format!("\n| {start}")), "{start}: no such row");
        }
    }

    #[test]
    fn python_2_names_are_mapped_to_python_3() {
        for (pickle, expected) in [
            (&b"\x80\x02c__builtin__\nreduce\n."[..], "functools.reduce"),
            (b"\x80\x02ccommands\ngetoutput\n.", "subprocess.getoutput"),
            (b"\x80\x02ccopy_reg\nadd_extension\n.", "copyreg.add_extension"),
        ] {
            let pickle = crate::read(pickle, 0, &statelens_checkpoint::Limits::default()).unwrap();
            let findings = pickle.scan(&crate::ScanOptions::default());
            let worst = findings.first().unwrap();
            assert_eq!(worst.grade, statelens_checkpoint::Grade::Danger, "{worst:?}");
            let call = worst.call.as_ref().unwrap();
            assert_eq!(format!("{}.{}", call.module, call.name), expected);
        }
    }
}
