//! Compares real checkpoints with what TensorFlow read from them.

use crate::damaged_copies::survive;
use std::path::PathBuf;

use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use statelens_checkpoint::{
    Checkpoint, DType, ErrorKind, FileSet, Grade, Layout, Limits, Memory, Result, Tensor,
    Unwatched, Value,
};

fn fixtures() -> PathBuf {
    statelens_fixtures::root().to_owned()
}

/// Returns the files in a folder of the fixtures, recursively, the main file first.
pub(super) fn files(folder: &str, main: &str) -> Vec<(String, Vec<u8>)> {
    let top = fixtures().join(folder);
    let mut found = Vec::new();
    let mut open = vec![String::new()];
    while let Some(below) = open.pop() {
        for entry in std::fs::read_dir(top.join(&below)).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{below}{}", entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                open.push(format!("{name}/"));
            } else {
                found.push((name, std::fs::read(entry.path()).unwrap()));
            }
        }
    }
    found.sort_by_key(|(name, _)| (name != main, name.clone()));
    assert_eq!(found[0].0, main);
    found
}

pub(super) fn open_files(files: &[(String, Vec<u8>)]) -> Result<Checkpoint> {
    let mut set = FileSet::default();
    for (name, bytes) in files {
        set.push(name.clone(), std::sync::Arc::new(Memory::from(bytes.clone())));
    }
    crate::open(set, &Limits::default(), &mut Unwatched)
}

pub(super) fn open(folder: &str, main: &str) -> Result<Checkpoint> {
    open_files(&files(folder, main))
}

/// Returns the folder, the name of the main file, and the expected content of each checkpoint.
pub(super) fn expected() -> Vec<(String, String, Json)> {
    let mut found = Vec::new();
    for top in ["tf", "tf_crafted"] {
        let mut open = vec![top.to_owned()];
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(fixtures().join(&folder)).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                if entry.file_type().unwrap().is_dir() {
                    open.push(format!("{folder}/{name}"));
                } else if let Some(prefix) = name.strip_suffix(".expected.json") {
                    let json = std::fs::read(entry.path()).unwrap();
                    let json = serde_json::from_slice(&json).unwrap();
                    let index = format!("{prefix}.index");
                    let main = match fixtures().join(&folder).join(&index).exists() {
                        true => index,
                        false => prefix.to_owned(),
                    };
                    found.push((folder.clone(), main, json));
                }
            }
        }
    }
    found.sort_by_key(|(folder, main, _)| (folder.clone(), main.clone()));
    found
}

/// Errors of TensorFlow's `load_checkpoint` for tensors that it can't read. Its restore operation
/// can, see `reads_v1_values_beyond_the_reader_api`.
const UNREADABLE: [&str; 3] =
    ["Data type not supported", "Sliced checkpoints", "not convertible to numpy"];

#[test]
fn values_match_tensorflow() {
    let mut failures = Vec::new();
    let (mut checkpoints, mut leaves_seen) = (0, 0);
    for (folder, main, json) in expected() {
        // TensorFlow refuses these, see `bad_and_missing_checksums`.
        if ["tf_crafted/bad_crc", "tf_crafted/no_crc"].contains(&&*folder) {
            continue;
        }
        let entries = json["entries"].as_array().unwrap();
        checkpoints += 1;
        let checkpoint = match open(&folder, &main) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                failures.push(format!("{folder}: {error}"));
                continue;
            }
        };
        let leaves = checkpoint.leaves();
        let mut entries: Vec<&Json> = entries.iter().collect();
        // The expected entries are in the order of writing, ours are in the order of the index.
        if folder == "tf_crafted/object_graph" {
            entries.sort_by_key(|entry| entry["key"].as_str().unwrap());
            assert_eq!(leaves[0].flat, "_CHECKPOINTABLE_OBJECT_GRAPH");
            assert_eq!(leaves.len(), entries.len() + 1);
        } else if leaves.len() != entries.len() {
            failures.push(format!("{folder}: {} of {} leaves", leaves.len(), entries.len()));
        }
        let skip = leaves.len().saturating_sub(entries.len());
        for (leaf, entry) in leaves.iter().skip(skip).zip(entries) {
            leaves_seen += 1;
            let key = entry["key"].as_str().unwrap();
            let found = match leaf.flat == key {
                true => compare(&checkpoint, checkpoint.value(leaf.id), entry),
                false => Err(format!("should be {key}")),
            };
            if let Err(difference) = found {
                failures.push(format!("{folder}/{main}: {}: {difference}", leaf.flat));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(checkpoints >= 20 && leaves_seen > 400, "{checkpoints}, {leaves_seen}");
}

/// Compares with what `tf.raw_ops.Restore` returns for the rest of the V1 file.
#[test]
fn reads_v1_values_beyond_the_reader_api() {
    let checkpoint = open("tf/saver_v1", "old.ckpt").unwrap();
    assert_eq!(checkpoint.format.id, "tensorflow-v1");
    let bytes = |key: &str| {
        let leaves = checkpoint.leaves();
        let leaf = leaves.iter().find(|leaf| leaf.flat == key).unwrap();
        logical_bytes(&checkpoint, checkpoint.tensor_of(leaf.id).unwrap().1).unwrap()
    };
    assert_eq!(bytes("c"), [0, 0, 0x80, 0x3f, 0, 0, 0, 0x40]);
    assert_eq!(bytes("h"), [0, 0x3c, 0, 0x3c, 0, 0x3c]);
    assert_eq!(
        hex(&Sha256::digest(bytes("p"))),
        "f07a3f2cdc10c7ab9aca076585fc3dc76d7ec97b52def0151fc63d806225a682"
    );
    assert!(checkpoint.findings.is_empty(), "{:?}", checkpoint.findings);
}

/// TensorFlow writes slices of strings and restores each separately, but refuses to restore the
/// whole.
#[test]
fn joins_slices_of_strings() {
    for main in ["v2.index", "v1"] {
        let checkpoint = open("tf/raw_string_slices", main).unwrap();
        assert_eq!(checkpoint.findings, [], "{main}");
        let leaves = checkpoint.leaves();
        let found: Vec<_> = leaves
            .iter()
            .map(|leaf| strings(&checkpoint, checkpoint.value(leaf.id)).unwrap())
            .collect();
        let flat = [&b"a"[..], b"bb", b"", b"dddd", b"\xff\x00"].map(<[u8]>::to_vec);
        let grid = ["p", "q", "r", "s", "t", "u"].map(|text| text.as_bytes().to_vec());
        assert_eq!(found, [(flat.to_vec(), vec![5]), (grid.to_vec(), vec![2, 3])], "{main}");
    }
    // If a slice is missing, nothing is substituted.
    let mut files = files("tf/raw_string_slices", "v2.index");
    let data = files.iter_mut().find(|(name, _)| name.contains("data")).unwrap();
    data.1.pop();
    let checkpoint = open_files(&files).unwrap();
    assert_eq!(checkpoint.findings.len(), 1);
    assert!(checkpoint.findings[0].title.contains("Strings can't be read"));
}

/// TensorFlow verifies the checksums of data, so it refuses these files. Opening reads no data.
#[test]
fn reports_missing_checksums() {
    let checkpoint = open("tf_crafted/no_crc", "m.index").unwrap();
    assert_eq!(checkpoint.findings.len(), 1);
    assert!(checkpoint.findings[0].title.contains("no checksum"));
    assert!(open("tf_crafted/bad_crc", "m.index").unwrap().findings.is_empty());
}

/// A checkpoint can be opened by any of its files.
#[test]
fn any_file_opens_the_whole_checkpoint() {
    let keys = |folder: &str, main: &str| {
        let checkpoint = open(folder, main).unwrap();
        assert_eq!(checkpoint.findings, [], "{folder} {main}");
        let leaves = checkpoint.leaves();
        leaves.iter().map(|leaf| leaf.flat.to_string()).collect::<Vec<_>>()
    };
    let sharded = keys("tf/saver_v2_sharded", "sh.index");
    assert_eq!(sharded.len(), 6);
    assert_eq!(keys("tf/saver_v2_sharded", "sh.data-00001-of-00003"), sharded);
    // The state file has absolute paths of the machine that wrote it.
    assert_eq!(keys("tf/saver_v2_sharded", "checkpoint"), sharded);
    assert_eq!(keys("tf/saver_v2_basic", "model.ckpt-200.meta").len(), 3);
    let latest = open("tf/saver_v2_basic", "checkpoint").unwrap();
    assert!(latest.format.facts.iter().any(|(_, text)| text.ends_with("model.ckpt-200")));
    assert_eq!(keys("tf/saver_v1", "checkpoint").len(), 11);
    let sharded = keys("tf/saver_v1_sharded", "old-00000-of-00004");
    assert_eq!(sharded.len(), 7);
    assert_eq!(keys("tf/saver_v1_sharded", "old-00003-of-00004"), sharded);
    assert_eq!(keys("tf/saver_v1_sharded", "checkpoint"), sharded);
    let model = keys("tf/saved_model", "saved_model.pb");
    assert_eq!(model, keys("tf/saved_model", "variables/variables.index"));
    assert_eq!(model, keys("tf/saved_model", "fingerprint.pb"));
    assert_eq!(keys("tf/tf2_checkpoint", "mgr/checkpoint").len(), 16);
}

#[test]
fn names_the_missing_index() {
    for (folder, main, word) in [
        ("tf/saver_v2_sharded", "sh.data-00001-of-00003", "sh.index"),
        ("tf/saver_v2_sharded", "checkpoint", ".index"),
        ("tf/saved_model", "saved_model.pb", "variables/variables.index"),
    ] {
        let mut files = files(folder, main);
        files.retain(|(name, _)| !name.ends_with(".index"));
        let error = open_files(&files).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn falls_back_to_the_previous_checkpoint() {
    let mut files = files("tf/saver_v2_basic", "checkpoint");
    files.retain(|(name, _)| !name.starts_with("model.ckpt-200"));
    let checkpoint = open_files(&files).unwrap();
    assert_eq!(checkpoint.findings.len(), 1);
    assert!(checkpoint.findings[0].title.contains("model.ckpt-1"));
    assert_eq!(checkpoint.leaves().len(), 3);
}

#[test]
fn reports_missing_and_short_data_files() {
    let mut files = files("tf/saver_v2_sharded", "sh.index");
    files.retain(|(name, _)| name != "sh.data-00001-of-00003");
    let last = files.iter_mut().find(|(name, _)| name == "sh.data-00002-of-00003").unwrap();
    last.1.pop();
    let checkpoint = open_files(&files).unwrap();
    let missing = checkpoint.tensors().iter().map(|t| matches!(t.layout, Layout::Missing(_)));
    assert_eq!(missing.filter(|missing| *missing).count(), 3);
    let findings = &checkpoint.findings;
    assert!(findings.iter().all(|finding| finding.grade == Grade::Damage));
    assert!(findings.iter().any(|finding| finding.missing == ["sh.data-00001-of-00003"]));
}

#[test]
fn names_objects_as_python_does() {
    let checkpoint = open("tf/tf2_checkpoint", "ckpt-1.index").unwrap();
    let leaves = checkpoint.leaves();
    let named = |key: &str, attribute: &str| {
        let leaf = leaves.iter().find(|leaf| leaf.flat == key).unwrap();
        let raw = checkpoint.raw_attributes(leaf.id);
        raw.iter().find(|(name, _)| *name == attribute).map(|(_, text)| text.to_string())
    };
    let value = |path: &str| format!("{path}/.ATTRIBUTES/VARIABLE_VALUE");
    assert_eq!(named(&value("mod/lst/1"), "object").unwrap(), "mod.lst.1");
    assert_eq!(named(&value("mod/dct/we.Sird..key"), "object").unwrap(), "mod.dct.we/ird.key");
    assert_eq!(named("_CHECKPOINTABLE_OBJECT_GRAPH", "object"), None);
    assert!(checkpoint.findings.is_empty(), "{:?}", checkpoint.findings);
}

#[test]
fn slots_name_their_variable() {
    let checkpoint = open("tf/tf2_slots", "slots.index").unwrap();
    let key = "model/inner/bias/.OPTIMIZER_SLOT/optimizer/v/.ATTRIBUTES/VARIABLE_VALUE";
    let leaves = checkpoint.leaves();
    let leaf = leaves.iter().find(|leaf| leaf.flat == key).unwrap();
    let raw = checkpoint.raw_attributes(leaf.id);
    assert!(raw.contains(&("object".into(), "optimizer".into())), "{raw:?}");
    assert!(raw.contains(&("slot".into(), "v of model.inner.bias".into())), "{raw:?}");
}

#[test]
fn names_missing_shards_of_v1() {
    let mut files = files("tf/saver_v1_sharded", "old-00000-of-00004");
    files.retain(|(name, _)| name != "old-00002-of-00004");
    let checkpoint = open_files(&files).unwrap();
    let missing: Vec<_> = checkpoint.findings.iter().flat_map(|f| &f.missing).collect();
    assert_eq!(missing, ["old-00002-of-00004"]);
}

#[test]
fn keeps_unusual_names() {
    let checkpoint = open("tf/raw_names", "r.index").unwrap();
    assert!(checkpoint.leaves().len() > 5);
    assert!(checkpoint.tensors().iter().all(|t| !matches!(t.layout, Layout::Missing(_))));
}

#[test]
fn reports_wrong_block_checksums() {
    let mut files = files("tf/saver_v2_basic", "model.ckpt-1.index");
    let index = &mut files[0].1;
    let at = index.windows(4).position(|name| name == b"bias").unwrap();
    index[at] = b'c';
    let checkpoint = open_files(&files).unwrap();
    assert_eq!(checkpoint.findings.len(), 1);
    assert_eq!(checkpoint.findings[0].grade, Grade::Damage);
    assert!(checkpoint.leaves().iter().any(|leaf| leaf.flat == "layer1/cias"));
}

#[test]
fn damaged_copies_never_panic() {
    let sets = [
        ("tf/saver_v2_dtypes", "all.index"),
        ("tf/raw_slices", "s.index"),
        ("tf/tf2_checkpoint", "ckpt-1.index"),
        ("tf/saver_v1", "old.ckpt"),
        ("tf/saver_v1", "checkpoint"),
        ("tf_crafted/snappy_small_blocks", "m.index"),
        ("tf/saver_v2_dtypes", "all.data-00000-of-00001"),
    ];
    for (folder, main) in sets {
        let whole = files(folder, main);
        survive(main, &whole[0].1, statelens_fixtures::times(60, 450), |copy| {
            let mut damaged = whole.clone();
            damaged[0].1 = copy;
            let Ok(checkpoint) = open_files(&damaged) else { return false };
            checkpoint.leaves();
            for tensor in checkpoint.tensors().iter().filter(|t| t.numel() < Some(1 << 20)) {
                let _ = logical_bytes(&checkpoint, tensor);
            }
            true
        });
    }
}

fn compare(checkpoint: &Checkpoint, value: &Value, entry: &Json) -> Result<(), String> {
    let kind = entry["kind"].as_str().unwrap();
    let shape: Vec<u64> =
        entry["shape"].as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap()).collect();
    match (kind, value) {
        ("string", Value::Bytes { data, mutable: false }) => {
            same("sha256", &*hex(&Sha256::digest(data)), entry["sha256"].as_str().unwrap())
        }
        ("string_array", value) => {
            let (found, found_shape) = strings(checkpoint, value)?;
            let wanted = entry["values_hex"].as_array().unwrap();
            let wanted: Vec<&str> = wanted.iter().map(|hex| hex.as_str().unwrap()).collect();
            same("shape", &found_shape, &shape)?;
            same("strings", &found.len(), &wanted.len())?;
            // Long strings are compared by hash.
            found.iter().zip(wanted).try_for_each(|(found, wanted)| match wanted.split_once(':') {
                Some((_, hash)) => same("sha256", &*hex(&Sha256::digest(found)), hash),
                None => same("string", &*hex(found), wanted),
            })
        }
        ("tensor", Value::Tensor(tensor)) => {
            numbers(checkpoint, checkpoint.tensor(*tensor).unwrap(), entry)
        }
        // A dtype that torch lacks.
        ("tensor", Value::Array(array)) => {
            let dtype = entry["dtype"].as_str().unwrap();
            same("no torch dtype", &["F8_E4M3B11FNUZ", "I4"].contains(&dtype), &true)?;
            numbers(checkpoint, checkpoint.tensor(array.tensor).unwrap(), entry)
        }
        ("unreadable", Value::Opaque(opaque)) => {
            same("kind", &*opaque.global.name, entry["tf_dtype"].as_str().unwrap())
        }
        ("unreadable", Value::Tensor(tensor)) => {
            let tensor = checkpoint.tensor(*tensor).unwrap();
            same("shape", &tensor.shape, &shape)?;
            let error = entry["error"].as_str().unwrap();
            let readable = UNREADABLE.iter().any(|reason| error.contains(reason));
            same("missing", &matches!(tensor.layout, Layout::Missing(_)), &!readable)
        }
        (kind, value) => Err(format!("is {}, should be {kind}", value.kind())),
    }
}

fn numbers(checkpoint: &Checkpoint, tensor: &Tensor, entry: &Json) -> Result<(), String> {
    let dtype = match entry["dtype"].as_str().unwrap() {
        "I4" => "int4",
        "U4" => "uint8",
        "F8_E4M3" => "float8_e4m3fn",
        "F8_E4M3B11FNUZ" => "float8_e4m3b11fnuz",
        "F8_E4M3FNUZ" => "float8_e4m3fnuz",
        "F8_E5M2" => "float8_e5m2",
        "F8_E5M2FNUZ" => "float8_e5m2fnuz",
        "BF16" => "bfloat16",
        "F16" => "float16",
        "F32" => "float32",
        "F64" => "float64",
        "BOOL" => "bool",
        "U8" => "uint8",
        "U16" => "uint16",
        "U32" => "uint32",
        "U64" => "uint64",
        "I8" => "int8",
        "I16" => "int16",
        "I32" => "int32",
        "I64" => "int64",
        "C64" => "complex64",
        "C128" => "complex128",
        name => name,
    };
    same("dtype", tensor.dtype.name(), dtype)?;
    same("shape", &serde_json::json!(tensor.shape), &entry["shape"])?;
    let bytes = logical_bytes(checkpoint, tensor).map_err(|error| error.to_string())?;
    same("sha256", &*hex(&Sha256::digest(&bytes)), entry["sha256"].as_str().unwrap())
}

pub(super) fn logical_bytes(checkpoint: &Checkpoint, tensor: &Tensor) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    statelens_tensor::drain(&checkpoint.files, tensor, 1 << 16, &mut Unwatched, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(bytes)
}

/// Returns the strings of a string tensor, and its shape.
fn strings(checkpoint: &Checkpoint, value: &Value) -> Result<(Vec<Vec<u8>>, Vec<u64>), String> {
    match value {
        Value::Array(array) => {
            let tensor = checkpoint.tensor(array.tensor).unwrap();
            let DType::Numpy(numpy) = &tensor.dtype else { return Err("no strings".into()) };
            same("dtype", &numpy.code, &format!("S{}", numpy.itemsize))?;
            let bytes = logical_bytes(checkpoint, tensor).map_err(|error| error.to_string())?;
            let strings = bytes.chunks_exact(numpy.itemsize as usize).map(|string| {
                let len = string.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
                string[..len].to_vec()
            });
            Ok((strings.collect(), tensor.shape.clone()))
        }
        Value::Opaque(array) => {
            let Value::Tuple(shape) = checkpoint.value(array.args[0]) else {
                return Err("no shape".into());
            };
            let dims = shape.items.iter().map(|dim| match checkpoint.value(*dim) {
                Value::Int(dim) => dim.to_u64().unwrap(),
                other => panic!("{other:?}"),
            });
            let items = array.items.iter().map(|item| match checkpoint.value(*item) {
                Value::Bytes { data, .. } => data.to_vec(),
                other => panic!("{other:?}"),
            });
            Ok((items.collect(), dims.collect()))
        }
        other => Err(format!("is {}", other.kind())),
    }
}

fn same<T: PartialEq + std::fmt::Debug + ?Sized>(
    what: &str,
    found: &T,
    expected: &T,
) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what} {found:?} should be {expected:?}")) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// TensorFlow 2.21 wrote the state of an iterator of tf.data, and restores it.
#[test]
fn checksums_cover_variants() {
    let mut files = files("reports4/tf2_objects", "ckpt-12.data-00000-of-00001");
    let check = |files: &[(String, Vec<u8>)]| {
        let mut set = FileSet::default();
        for (name, bytes) in files {
            set.push(name.clone(), std::sync::Arc::new(Memory::from(bytes.clone())));
        }
        super::checks::checks(&set, &Limits::default()).unwrap()
    };
    let checks = check(&files);
    assert!(checks.broken.is_empty(), "{:?}", checks.broken);
    let key = "it/.ATTRIBUTES/ITERATOR_STATE";
    let state = checks.checks.into_iter().find(|check| check.what == key).unwrap();
    assert_eq!(state.found, Some(state.expected));
    let Layout::Span(span) = state.layout else { panic!("{state:?}") };
    for at in span.offset..span.offset + span.len {
        files[0].1[at as usize] ^= 1;
        let checks = check(&files);
        let mut found = checks.checks.iter().filter(|check| check.what == key);
        assert!(found.all(|check| check.found != Some(check.expected)), "byte {at}");
        files[0].1[at as usize] ^= 1;
    }
}
