//! Compares real files with what the real library read from them.

mod expected;

use crate::damaged_copies::survive;
use statelens_fixtures::busy;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value as Json;
use statelens_checkpoint::{
    Checkpoint, DType, DictClass, DictKey, ErrorKind, FileSet, Finding, Global, Grade, Layout,
    Leaf, Limits, ListClass, Memory, ReadAt, Result, Segment, Tensor, TupleClass, Unwatched, Value,
    has_word,
};

pub(crate) use expected::{compare, dense, differences, differences_of, expected_in};

/// Opens a fixture by its path below `tests/fixtures`.
pub(crate) fn open(name: &str) -> Result<Checkpoint> {
    let bytes = std::fs::read(fixtures().join(name)).unwrap();
    crate::open(FileSet::single(name, Memory::from(bytes)), &Limits::default(), &mut Unwatched)
}

/// Returns the folder of the fixtures.
pub(crate) fn fixtures() -> PathBuf {
    statelens_fixtures::root().to_owned()
}

/// Keys that are not compared, with the reason.
const EXCEPT: &[(&str, &[&str])] = &[
    // The expectation has no content: a module, or a class that was not available.
    ("torch/legacy_full_module.pt", &[""]),
    ("torch/zip_full_torchnn_module.pt", &[""]),
    ("torch/lightning_like.ckpt", &["hyper_parameters"]),
    // A tuple that contains itself: here the link is to the tuple, in the expectation to the list
    // in it.
    ("torch/zip_cyclic.pt", &["t"]),
    // The expectation has the repr of the whole object. Here these are containers, or classes whose
    // repr needs their own code.
    (
        "torch/zip_python_objects.pt",
        &["dd", "ddint", "ctr", "dq", "nt", "enum", "ie", "dc", "slots", "func", "ns", "simplens"],
    ),
    // Its repr is a memory address.
    ("torch/zip_rng_states.pt", &["npgen"]),
    // The expectation was written by hand, without the class.
    ("torch_crafted/rebuild_parameter_cuda.pt", &["w"]),
];

/// A file that torch refuses because it is truncated.
const CUT: &str = "torch_crafted/truncated.pt";

/// Files that are not checkpoints, with a word of the error.
const REFUSED: &[(&str, &str)] =
    &[("torch_crafted/lfs_pointer.bin", "Git LFS"), ("torch_crafted/zero_bytes.pt", "empty")];

#[test]
fn files_without_a_version_are_refused_by_torch() {
    let mut bytes = std::fs::read(fixtures().join("torch/zip_bare_str.pt")).unwrap();
    let names: Vec<usize> =
        (8..bytes.len()).filter(|at| bytes[..*at].ends_with(b"/version")).collect();
    names.iter().for_each(|at| bytes[at - 1] = b'x');
    let files = FileSet::single("x.pt", Memory::from(bytes));
    let checkpoint = crate::open(files, &Limits::default(), &mut Unwatched).unwrap();
    let refused: Vec<&str> = checkpoint
        .findings
        .iter()
        .filter(|finding| finding.refused)
        .map(|finding| &*finding.title)
        .collect();
    assert_eq!(refused, ["The file has no version record"]);
}

#[test]
fn values_match_torch() {
    let mut failures = Vec::new();
    let mut compared = 0;
    for name in ["torch", "torch_crafted"].into_iter().flat_map(expected_in) {
        if REFUSED.iter().any(|(refused, _)| *refused == name) || name == CUT {
            continue;
        }
        let except = EXCEPT.iter().find(|(file, _)| *file == name).map_or(&[][..], |row| row.1);
        for difference in differences(&name, except) {
            failures.push(format!("{name}: {difference}"));
        }
        compared += 1;
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(compared > 60);
}

#[test]
fn describes_tar_archives_that_are_not_checkpoints() {
    let mut tar = vec![0; 1024];
    tar[257..262].copy_from_slice(b"ustar");
    tar[124..135].copy_from_slice(b"00000000000");
    tar[..8].copy_from_slice(b"other.pt");
    let files = FileSet::single("a.tar", Memory::from(tar.clone()));
    let error = crate::open(files.clone(), &Limits::default(), &mut Unwatched).unwrap_err();
    assert!(error.to_string().contains("Unpack it"), "{error}");
    let found =
        crate::scan(files, &Limits::default(), &crate::ScanOptions::default(), &mut Unwatched);
    assert!(found.unwrap()[0].title.starts_with("Not a checkpoint"));
    tar[..8].copy_from_slice(b"sys_info");
    let files = FileSet::single("old.pth", Memory::from(tar));
    let error = crate::open(files, &Limits::default(), &mut Unwatched).unwrap_err();
    assert!(error.to_string().contains("PyTorch 0.1"), "{error}");
}

#[test]
fn tar_storages_are_shared_as_recorded() {
    let checkpoint = open("torch_crafted/tar_0_1.pth").unwrap();
    let leaves = checkpoint.leaves();
    let storage = |key: &str| {
        let leaf = leaves.iter().find(|leaf| leaf.flat == key).unwrap();
        checkpoint.tensor_of(leaf.id).unwrap().1.storage
    };
    assert_eq!(storage("a"), storage("t"));
    assert_eq!(storage("a"), storage("view"));
    assert_ne!(storage("a"), storage("zero"));
    assert_eq!(checkpoint.findings, []);
}

#[test]
fn describes_files_that_torch_refuses() {
    let cut = open(CUT).unwrap();
    assert!(cut.findings.iter().any(|finding| finding.title == "The file is cut short"));
    for (name, word) in REFUSED {
        let error = open(name).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

/// Files in `attacks` that the pickle machine must report as dangerous.
const DANGEROUS: &str = "
    attr_traversal_proto4 build_setstate builtins_eval builtins_exec_proto0 hidden_after_tensors
    inst_opcode nested_getattr newobj_ex_subprocess numpy_loadtxt_like obj_opcode os_system_reduce
    pip_main pop_hidden posix_system runpy stack_global_memo_obfuscated timeit_gadget
    torch_load_nested
";

/// Files with tensors that are missing.
const BAD_TENSORS: &str = "
    t_float_numel t_key_traversal t_missing_record t_negative_offset t_negative_size t_numel_lie
    t_offset_oob t_rank_10k t_rank_mismatch t_size_oob t_size_overflow
";

#[test]
fn attacks_are_inert_in_bounded_time() {
    let mut seen = 0;
    for entry in std::fs::read_dir(fixtures().join("attacks")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some((stem, "pkl" | "pt")) = name.rsplit_once('.') else { continue };
        seen += 1;
        let name = format!("attacks/{name}");
        let start = busy();
        let opened = open(&name);
        let took = busy() - start;
        assert!(took.as_secs() < 10, "{name} takes {took:?} of processor time");
        match &opened {
            Ok(checkpoint) => {
                for leaf in checkpoint.leaves() {
                    let value = checkpoint.value(leaf.target);
                    assert!(!matches!(value, Value::Link(_)), "{name}: {value:?}");
                }
            }
            Err(error) => {
                let kinds = [ErrorKind::Damaged, ErrorKind::Unsupported, ErrorKind::Limit];
                assert!(kinds.contains(&error.kind()), "{name}: {error}");
            }
        }
        if has_word(DANGEROUS, stem) {
            assert_eq!(worst(&scan(&name)), Some(Grade::Danger), "{name}");
            let findings = opened.unwrap_or_else(|error| panic!("{name}: {error}")).findings;
            let call = findings[0].call.as_ref().unwrap_or_else(|| panic!("{name}"));
            assert_eq!(findings[0].grade, Grade::Danger, "{name}: {call:?}");
        } else if has_word(BAD_TENSORS, stem) {
            let findings = opened.unwrap_or_else(|error| panic!("{name}: {error}")).findings;
            // None of these usages is written by torch either: a number that is a float, a view
            // outside its storage.
            assert!(worst(&findings) >= Some(Grade::Damage), "{name}");
            let rebuilds = |finding: &Finding| match &finding.call {
                Some(call) => call.name.starts_with("_rebuild_"),
                None => true,
            };
            assert!(findings.iter().all(rebuilds), "{name}: {findings:?}");
        } else if let Ok(checkpoint) = opened {
            // torch writes no negative strides, so they are an unusual usage as well.
            let warned = match stem {
                "t_negative_stride" => Some(Grade::UnknownCode),
                "t_expand_bomb" => Some(Grade::Warning),
                _ => worst(&checkpoint.findings),
            };
            assert_eq!(worst(&checkpoint.findings), warned, "{name}");
            // A wrong checksum is not a danger of the pickle.
            let calls = checkpoint.findings.iter().filter(|finding| finding.call.is_some());
            let danger = calls.map(|finding| finding.grade).max() == Some(Grade::Danger);
            assert_eq!(danger, stem == "zip_two_eocd", "{name}: {:?}", checkpoint.findings);
        }
    }
    assert_eq!(seen, 136);
    assert!(!Path::new("statelens-canary-PWNED").exists());
}

fn scan(name: &str) -> Vec<Finding> {
    let bytes = std::fs::read(fixtures().join(name)).unwrap();
    let files = FileSet::single(name, Memory::from(bytes));
    crate::scan(files, &Limits::default(), &crate::ScanOptions::default(), &mut Unwatched).unwrap()
}

fn worst(findings: &[Finding]) -> Option<Grade> {
    findings.iter().map(|finding| finding.grade).max()
}

/// Uses each hostile pickle as the object of a tar archive with valid tensors. Dangers must be
/// reported here as well.
#[test]
fn attacks_in_tar_archives_are_inert() {
    let sound = std::fs::read(fixtures().join("torch_crafted/tar_0_1.pth")).unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(fixtures().join("attacks")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let Some(stem) = name.strip_suffix(".pkl") else { continue };
        seen += 1;
        let tar = with_pickle(&sound, &std::fs::read(entry.path()).unwrap());
        let files = FileSet::single(name.as_str(), Memory::from(tar));
        if let Ok(checkpoint) = crate::open(files.clone(), &Limits::default(), &mut Unwatched) {
            checkpoint.leaves();
            assert_eq!(checkpoint.format.id, "torch-tar");
        }
        let scanned =
            crate::scan(files, &Limits::default(), &crate::ScanOptions::default(), &mut Unwatched);
        if has_word(DANGEROUS, stem) {
            assert_eq!(worst(&scanned.unwrap()), Some(Grade::Danger), "{name}");
        }
    }
    assert!(seen > 50, "{seen}");
    assert!(!Path::new("statelens-canary-PWNED").exists());
}

/// Returns a tar archive with the member `pickle` replaced.
fn with_pickle(tar: &[u8], pickle: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while tar[at] != 0 {
        let mut header = tar[at..at + 512].to_vec();
        let size = std::str::from_utf8(&header[124..135]).unwrap();
        let size = usize::from_str_radix(size, 8).unwrap();
        let mut data = tar[at + 512..at + 512 + size].to_vec();
        at = (at + 512 + size).next_multiple_of(512);
        if header.starts_with(b"pickle\0") {
            data = pickle.to_vec();
            header[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
        }
        out.extend(header);
        out.extend(data);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

/// A pickle that calls something dangerous and is then truncated is dangerous, not just damaged.
#[test]
fn truncated_pickle_is_still_scanned() {
    let bytes = std::fs::read(fixtures().join("attacks/os_system_reduce.pkl")).unwrap();
    let cut = FileSet::single("cut.pkl", Memory::from(bytes[..bytes.len() - 1].to_vec()));
    let error =
        crate::open(cut.clone(), &Limits::default(), &mut Unwatched).unwrap_err().to_string();
    assert!(error.contains("os.system"), "{error}");
    let findings =
        crate::scan(cut, &Limits::default(), &crate::ScanOptions::default(), &mut Unwatched)
            .unwrap();
    assert_eq!(findings.len(), 2);
    assert_eq!(worst(&findings), Some(Grade::Danger));
    assert_eq!(findings[0].call.as_ref().map(|call| call.name.as_str()), Some("system"));
}

/// Real checkpoints must not cause false alarms.
#[test]
fn files_written_by_torch_are_not_dangerous() {
    for name in
        ["torch", "torch_crafted", "torchscript", "pickle"].into_iter().flat_map(expected_in)
    {
        if REFUSED.iter().any(|(refused, _)| *refused == name) {
            continue;
        }
        let danger: Vec<_> =
            scan(&name).into_iter().filter(|finding| finding.grade == Grade::Danger).collect();
        assert!(danger.is_empty(), "{name}: {danger:?}");
    }
}

/// Checks that there are all tensors of the module, then the constants of its code, and no others.
/// The expectations do not have the flags of parameters, so these are not compared.
#[test]
fn torchscript_tensors_match_torch() {
    let json = std::fs::read(fixtures().join("torchscript/constants.json")).unwrap();
    let constants: Json = serde_json::from_slice(&json).unwrap();
    let mut compared = 0;
    for name in expected_in("torchscript") {
        let json = std::fs::read(fixtures().join(format!("{name}.expected.json"))).unwrap();
        let json: Json = serde_json::from_slice(&json).unwrap();
        let checkpoint = open(&name).unwrap();
        assert_eq!(checkpoint.format.name, "TorchScript");
        // Its classes come with their code, which torch runs: that must be reported, and nothing
        // else.
        for finding in &checkpoint.findings {
            let call = finding.call.as_ref();
            let script = call.is_some_and(|call| call.module.starts_with("__torch__"));
            assert!(script && finding.grade == Grade::UnknownCode, "{name}: {finding:?}");
        }
        let leaves = checkpoint.leaves();
        let tensors = leaves.iter().filter(|leaf| checkpoint.tensor_of(leaf.id).is_some());
        // The list of an LSTM's weights, each of which also has a name of its own. It is an
        // attribute, so it is in the file but not in the state dict.
        let (lists, tensors): (Vec<&Leaf>, Vec<&Leaf>) =
            tensors.partition(|leaf| leaf.flat.to_string().contains("._flat_weights."));
        assert_eq!(
            lists.len(),
            if name.contains("attrs") || name.contains("lite") { 4 } else { 0 }
        );
        let storage = |leaf: &Leaf| checkpoint.tensor_of(leaf.id).unwrap().1.storage;
        for leaf in lists {
            assert!(tensors.iter().any(|named| storage(named) == storage(leaf)), "{}", leaf.flat);
        }
        let file = name.strip_prefix("torchscript/").unwrap();
        let entries = json["entries"].as_array().unwrap().iter();
        let expected: Vec<&Json> =
            entries.chain(constants["files"][file].as_array().unwrap()).collect();
        let keys = |leaves: &[&Leaf]| {
            leaves.iter().map(|leaf| leaf.flat.to_string()).collect::<BTreeSet<_>>()
        };
        let names = expected.iter().map(|entry| entry["key"].as_str().unwrap().to_owned());
        assert_eq!(keys(&tensors), names.collect(), "{name}");
        assert_eq!(tensors.len(), expected.len(), "{name}");
        for entry in expected {
            let key = entry["key"].as_str().unwrap();
            let leaf = tensors.iter().find(|leaf| leaf.flat == key).unwrap();
            let (_, tensor) = checkpoint.tensor_of(leaf.target).unwrap();
            assert_eq!(dense(&checkpoint, tensor, entry), Ok(()), "{name}: {key}");
            compared += 1;
        }
    }
    assert_eq!(compared, 29);
}

#[test]
fn names_extra_files_of_a_module() {
    let facts = |name: &str| {
        let facts = open(name).unwrap().format.facts;
        facts.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
    };
    let extra = facts("torchscript/jit_extra_files.pt");
    assert!(extra.contains(&"Extra file: extra.json, 7 bytes".to_owned()), "{extra:?}");
    let lite = facts("torchscript/lite.ptl");
    assert!(lite.iter().any(|fact| fact.starts_with("Bytecode")), "{lite:?}");
    let export = facts("torch_export/export.pt2");
    assert!(export.contains(&"Extra file: note.txt, 5 bytes".to_owned()), "{export:?}");
}

/// Both kinds of archive: 2.4 wrote files of `torch.save` into it, 2.15 raw bytes.
#[test]
fn exports_match_torch() {
    let names = expected_in("torch_export");
    assert_eq!(names.len(), 2);
    for name in names {
        assert_eq!(differences(&name, &[]), Vec::<String>::new(), "{name}");
        let checkpoint = open(&name).unwrap();
        assert_eq!(checkpoint.findings, [], "{name}");
        assert_eq!(checkpoint.format.id, "torch-export");
        assert_eq!(scan(&name), [], "{name}");
    }
    let checkpoint = open("torch_export/export.pt2").unwrap();
    let leaves = checkpoint.leaves();
    let storage = |key: &str| {
        let leaf = leaves.iter().find(|leaf| leaf.flat == key).unwrap();
        checkpoint.tensor_of(leaf.id).unwrap().1.storage
    };
    assert_eq!(storage("tied"), storage("lin.weight"));
    assert_ne!(storage("tied"), storage("lin.bias"));
}

#[test]
fn python_objects_become_containers_or_inert_values() {
    let checkpoint = open("torch/zip_python_objects.pt").unwrap();
    let leaves = checkpoint.leaves();
    let leaf = |key: &str| leaves.iter().find(|leaf| leaf.flat == key).unwrap();
    let Value::Dict(root) = checkpoint.value(checkpoint.root()) else { panic!() };
    let at = |key: &str| {
        let entry = root.entries.iter().find(|(name, _)| *name == DictKey::from(key)).unwrap();
        checkpoint.value(entry.1)
    };
    let dict_class = |key: &str| match at(key) {
        Value::Dict(dict) => dict.class.clone(),
        value => panic!("{value:?}"),
    };
    let builtin = |name: &str| Some(Global::new("builtins", name).into());
    assert_eq!(dict_class("dd"), DictClass::Default(builtin("list")));
    assert_eq!(dict_class("ddint"), DictClass::Default(builtin("int")));
    assert_eq!(dict_class("ctr"), DictClass::Counter);
    assert_eq!(dict_class("od"), DictClass::Ordered);
    assert!(matches!(at("dq"), Value::List(list) if list.class == ListClass::Deque(Some(5))));
    let named = TupleClass::Named(Global::new("__main__", "Pt").into());
    assert!(matches!(at("nt"), Value::Tuple(tuple) if tuple.class == named));
    for key in ["enum", "ie", "func"] {
        let Value::Opaque(opaque) = checkpoint.value(leaf(key).id) else { panic!("{key}") };
        assert_eq!(opaque.repr, None, "{key}");
    }
    // Objects are dicts of their attributes, including those in slots.
    for key in ["dc", "slots"] {
        assert!(matches!(dict_class(key), DictClass::Object(_)), "{key}");
        let Value::Opaque(class) = checkpoint.value(leaf(&format!("{key}.__class__")).id) else {
            panic!("{key}")
        };
        assert_eq!(class.form, statelens_checkpoint::Form::Reference);
    }
    assert!(checkpoint.tensor_of(leaf("dc.t").id).is_some());
    assert!(leaves.iter().any(|leaf| leaf.flat.to_lossy().starts_with("slots.")));
}

#[test]
fn tied_tensors_share_a_storage() {
    let checkpoint = open("torch/zip_tied.pt").unwrap();
    let leaves = checkpoint.leaves();
    let tensors: Vec<_> =
        leaves.iter().filter_map(|leaf| checkpoint.tensor_of(leaf.id).map(|(_, t)| t)).collect();
    assert!(tensors.len() > 1);
    let shared = tensors.iter().filter(|tensor| tensor.storage == tensors[0].storage).count();
    assert!(shared > 1 || leaves.iter().any(|leaf| leaf.alias_of.is_some()));
    assert!(tensors.iter().all(|tensor| tensor.storage.is_some()));
}

/// torch 2.8 wrote the file; the numbers are what it dequantises, divided by the scales.
#[test]
fn packed_quantised_numbers_have_a_byte_each() {
    let checkpoint = open("reports4/pt_quint4/tensors.pt").unwrap();
    assert!(checkpoint.findings.is_empty(), "{:?}", checkpoint.findings);
    let leaves = checkpoint.leaves();
    let leaf = leaves.iter().find(|leaf| leaf.flat == "q4").unwrap();
    let (_, tensor) = checkpoint.tensor_of(leaf.id).unwrap();
    assert_eq!((&tensor.dtype, &tensor.shape[..]), (&DType::QUInt4x2, &[3, 4][..]));
    let bytes = statelens_tensor::elements(&checkpoint.files, tensor, 0..12).unwrap();
    assert_eq!(bytes, [10, 0, 0, 15, 0, 1, 0, 5, 8, 0, 0, 8]);
    let scanned = crate::scan(
        checkpoint.files.clone(),
        &Limits::default(),
        &Default::default(),
        &mut Unwatched,
    );
    assert!(scanned.unwrap().iter().all(|finding| finding.grade <= Grade::Warning));
    // A file of torch holds them as quint8 of the same values.
    let target = crate::writing("torch").unwrap().target(&Default::default()).unwrap();
    let plan = crate::plan(Arc::new(checkpoint), &target, "x.pt").unwrap();
    let what: Vec<&str> = plan.losses.iter().map(|loss| &*loss.what).collect();
    assert_eq!(what, ["quantised numbers of two or four bits become quint8"]);
    assert!(plan.source.tensors().iter().all(|tensor| tensor.dtype != DType::QUInt4x2));
}

/// TorchScript of torch 1.0 keeps its tensors in records without a pickle.
#[test]
fn names_torchscript_of_torch_1_0() {
    let error = open("reports4/foreign4/v1.pt").unwrap_err().to_string();
    assert!(error.contains("TorchScript archive of torch 1.0"), "{error}");
    assert!(!error.contains("unpack"), "{error}");
}

#[test]
fn quantised_storage_without_scale_is_written_as_integers() {
    let limits = Limits::default();
    let mut builder = statelens_checkpoint::Builder::new(&limits);
    // The storage of a quantised tensor, saved on its own.
    let bytes = Layout::Inline([1, 2].into());
    let tensor = builder.push_tensor(Tensor::new(DType::QInt8, vec![2], bytes)).unwrap();
    let root = builder.push(Value::Tensor(tensor)).unwrap();
    let format = statelens_checkpoint::FormatInfo::default();
    let source = builder.finish(root, format, FileSet::default(), Vec::new()).unwrap();
    let target = crate::writing("torch").unwrap().target(&Default::default()).unwrap();
    let plan = crate::plan(Arc::new(source), &target, "x.pt").unwrap();
    assert_eq!(plan.losses.len(), 1);
    assert_eq!(plan.losses[0].what, "quantised numbers without a scale become plain integers");
    let names = |class: &[u8]| {
        plan.segments().any(|segment| match segment {
            Segment::Bytes(bytes) => bytes.windows(class.len()).any(|part| part == class),
            _ => false,
        })
    };
    assert_eq!((names(b"CharStorage"), names(b"QInt8Storage")), (true, false));
}

#[test]
fn damaged_copies_of_every_kind_of_file_never_panic() {
    let files = [
        "torch/zip_tied.pt",
        "torch/zip_nested_python.pt",
        "torch/zip_numpy.pt",
        "torch/legacy_tied.pt",
        "torch_crafted/deflated.pt",
        "torch_crafted/allops_proto01.pkl",
        "pickle/numpy_proto5.pkl",
        "torch_crafted/tar_0_1.pth",
        "torch_export/export.pt2",
        "torch_export/export_2_4.pt2",
        "torchscript/jit_frozen.pt",
    ];
    for name in files {
        let whole = std::fs::read(fixtures().join(name)).unwrap();
        survive(name, &whole, statelens_fixtures::times(40, 400), |copy| opens(name, copy));
    }
}

fn opens(name: &str, bytes: Vec<u8>) -> bool {
    let files = FileSet::single(name, Memory::from(bytes));
    let limits = Limits::default();
    let _ = crate::scan(files.clone(), &limits, &crate::ScanOptions::default(), &mut Unwatched);
    crate::open(files, &limits, &mut Unwatched).map(|open| open.leaves()).is_ok()
}

/// Local headers are read through a cache, so many small records take few reads.
#[test]
fn many_records_need_few_reads() {
    let bytes = std::fs::read(fixtures().join("torch/zip_many_20k.pt")).unwrap();
    let len = bytes.len();
    let counted = Arc::new(ReadCounter { bytes: Memory::from(bytes), reads: AtomicUsize::new(0) });
    let mut files = FileSet::default();
    files.push("many.pt", counted.clone());
    let checkpoint = crate::open(files, &Limits::default(), &mut Unwatched).unwrap();
    assert_eq!(checkpoint.leaves().len(), 20_000);
    let reads = counted.reads.load(Ordering::Relaxed);
    assert!(reads < len / (64 << 10) + 50, "{reads} reads of {len} bytes");
}

#[derive(Debug)]
struct ReadCounter {
    bytes: Memory,
    reads: AtomicUsize,
}

impl ReadAt for ReadCounter {
    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.read_at(offset, buffer)
    }
}
