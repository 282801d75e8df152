//! Compares the manifest of every fixture with what the format's own library read from it: the keys
//! and their order, kind, dtype, shape, value, hash and link.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use statelens::parts::checkpoint::Unwatched;
use statelens::parts::formats::FORMATS;

use crate::corpus::{files, fixtures, manifest, name, open};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Leaves that intentionally differ from the library's, with the reason. The test fails if one is
/// no longer needed.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("cerebras/v2.10.0/numpy.mdl", "bigend", BIG_ENDIAN),
    ("cerebras/v2.4.0/numpy.mdl", "bigend", BIG_ENDIAN),
    (
        "cerebras/v2.10.0-special/full_tensors.mdl",
        "none",
        "a constant tensor without a value: the library gives whatever was in memory",
    ),
    ("cerebras/v2.4.0/keys_collide.mdl", "a.b", ONE_DATASET),
    ("cerebras/v2.4.0/keys_int_str_collide.mdl", "0", ONE_DATASET),
    ("cerebras/v2.10.0/custom.mdl", "c", OBJECT),
    ("cerebras/v2.10.0-special/dirty.mdl", "o", OBJECT),
    ("cerebras/v2.10.0-special/link_external.mdl", "x.o", OBJECT),
    ("cerebras/v2.10.0-special/link_materialized.mdl", "x.o", OBJECT),
    ("cerebras/v2.10.0-special/link_target.mdl", "o", OBJECT),
    ("cerebras/v2.4.0/custom.mdl", "c", OBJECT),
    ("numpy/object.npy", "", OBJECT),
    ("torch/legacy_full_module.pt", "", OBJECT),
    ("torch/zip_full_torchnn_module.pt", "", OBJECT),
    (
        "torch/zip_rng_states.pt",
        "npgen",
        "the pickle names the function that would make the generator, not its class",
    ),
    (
        "pickle/p5_oob_inline.pkl",
        "w",
        "the expectation has no entries; the file holds a bytearray of three bytes",
    ),
    (
        "torch/lightning_like.ckpt",
        "hyper_parameters.lr",
        "the expectation was made without the class of these dict-like hyperparameters",
    ),
    (
        "torch/zip_cyclic.pt",
        "t.0.0.0",
        "`t` is a tuple in itself; the expectation follows it round once more",
    ),
    ("numpy/mixed_members.npz", "readme.txt", NOT_LISTED),
    ("gguf/bigendian.gguf", "a", BIG_ENDIAN),
    ("flax/flax_dtypes.msgpack", "small.uint1.bits", UNSIGNED),
    ("flax/flax_dtypes.msgpack", "small.uint2.bits", UNSIGNED),
    ("flax/flax_dtypes.msgpack", "small.uint4.bits", UNSIGNED),
    ("flax/flax_dtypes.msgpack", "pieces.uint4", UNSIGNED),
    ("keras/k3_bfloat16.keras", "layers.dense.vars.0", OPAQUE),
    ("keras/k3_bfloat16.keras", "layers.dense.vars.1", OPAQUE),
    ("keras/k3_bfloat16.weights.h5", "layers.dense.vars.0", OPAQUE),
    ("keras/k3_bfloat16.weights.h5", "layers.dense.vars.1", OPAQUE),
];

const UNSIGNED: &str = "a byte each, with the same value as uint8; the file's name is an attribute";
const NOT_LISTED: &str = "numpy's list of arrays leaves out members that are not arrays";
const OPAQUE: &str = "h5py gave bytes; the attribute `dtype` says that they are bfloat16";
const BIG_ENDIAN: &str = "the expectation hashed the bytes as they are in the file, big-endian";
const ONE_DATASET: &str = "two leaves with one flat key: the file holds one, and the other is it";
const OBJECT: &str = "the expectation has one value for an object of Python; we list its fields";

/// Fixtures that are intentionally refused, with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("torch_crafted/zero_bytes.pt", "empty: its expectation is a placeholder"),
    (
        "torch_crafted/lfs_pointer.bin",
        "a pointer to a checkpoint: its expectation is a placeholder",
    ),
];

#[test]
fn cerebras() {
    compare("cerebras", 114);
}

#[test]
fn torch() {
    compare("torch", 56);
}

#[test]
fn crafted_torch() {
    compare("torch_crafted", 15);
}

#[test]
fn torch_export() {
    compare("torch_export", 2);
}

#[test]
fn torchscript() {
    compare("torchscript", 6);
}

#[test]
fn pickle() {
    compare("pickle", 7);
}

#[test]
fn numpy() {
    compare("numpy", 29);
}

#[test]
fn gguf() {
    compare("gguf", 5);
}

#[test]
fn flax() {
    compare("flax", 2);
}

#[test]
fn keras() {
    compare("keras", 11);
}

/// Folders that another test compares, here or elsewhere.
const COMPARED: [&str; 14] = [
    "attacks",
    "cerebras",
    "deepspeed",
    "flax",
    "gguf",
    "hdf5",
    "keras",
    "numpy",
    "pickle",
    "safetensors",
    "torch",
    "torch_crafted",
    "torch_export",
    "torchscript",
];

#[test]
fn other_formats() {
    for format in FORMATS.iter().flat_map(|format| format.ids) {
        if !COMPARED.contains(format) && fixtures().join(format).is_dir() {
            assert!(compared(format) > 0, "{format}: there is no X.expected.json with `entries`");
        }
    }
}

/// Fixtures that open in part and whose expectations are placeholders.
const PARTIAL: &[&str] = &["torch_crafted/truncated.pt"];

/// Compares all files of a folder, `count` of which must have expectations.
fn compare(folder: &str, count: usize) {
    assert_eq!(compared(folder), count, "fixtures with expectations");
}

/// Compares all files of a folder that have expectations, and returns their number.
fn compared(folder: &str) -> usize {
    let mut report = String::new();
    let mut compared = 0;
    let mut needed = BTreeSet::new();
    for path in files(folder) {
        let Some(mut expected) = expectation(&path) else { continue };
        compared += 1;
        let name = name(&path);
        let refused = REFUSED.iter().find(|(file, _)| *file == name);
        let actual =
            open_fixture(&path).and_then(|checkpoint| manifest(&checkpoint, &mut Unwatched));
        let actual = match (actual, refused) {
            (Ok(_), None) if PARTIAL.contains(&name.as_str()) => continue,
            (Ok(text), None) => parse(&text),
            (Err(_), Some(_)) => continue,
            (Ok(_), Some(_)) => {
                let _ = writeln!(report, "{name}: opens, so it need not be in REFUSED");
                continue;
            }
            (Err(error), None) => {
                let _ = writeln!(report, "{name}: {error}");
                continue;
            }
        };
        let mut actual: Vec<Value> = actual["entries"].as_array().unwrap().clone();
        match folder {
            // The expectation has the results of `parameters()` and `buffers()` only. Remove the
            // objects that contain them, other references to them, and the constants of the code,
            // which the tests of the format compare.
            "torchscript" => {
                let wanted = |key: &Value| expected.iter().any(|entry| entry["key"] == *key);
                actual.retain(|entry| match entry.get("alias_of") {
                    Some(_) => wanted(&entry["key"]),
                    None => {
                        entry["kind"] == "tensor" && !text(entry, "key").starts_with("CONSTANTS.")
                    }
                });
            }
            // The expectation has no metadata.
            "gguf" => actual.retain(|entry| !text(entry, "key").starts_with("metadata.")),
            // The expectation is sorted. Our order is that of the model, which has its own tests.
            "keras" => {
                actual.sort_by_key(|entry| text(entry, "key"));
                expected.sort_by_key(|entry| text(entry, "key"));
                // A model without weights is an empty dict.
                actual.retain(|entry| entry["kind"] != "dict");
            }
            // The expectation has arrays only, without a numpy scalar and a part of a list.
            "flax" => {
                let wanted = |key: &Value| expected.iter().any(|entry| entry["key"] == *key);
                actual.retain(|entry| wanted(&entry["key"]));
            }
            // The expectation has no empty containers.
            "cerebras" => actual.retain(|entry| {
                let containers = ["dict", "list", "tuple", "set"];
                !containers.iter().any(|container| entry["kind"] == *container)
            }),
            _ => {}
        }
        drop_parts(&mut expected, &mut actual);
        for (key, difference) in differences(&expected, &actual) {
            match EXCEPTIONS.iter().position(|(file, k, _)| *file == name && *k == key) {
                Some(index) => drop(needed.insert(index)),
                None => drop(writeln!(report, "{name}: {key}: {difference}")),
            }
        }
    }
    for (index, (file, key, _)) in EXCEPTIONS.iter().enumerate() {
        if file.starts_with(&format!("{folder}/")) && !needed.contains(&index) {
            let _ = writeln!(report, "{file}: {key}: agrees, so it need not be in EXCEPTIONS");
        }
    }
    println!("{folder}: {compared} manifests compared");
    assert!(report.is_empty(), "{report}");
    compared
}

/// Removes values that the library has as a whole and we list in parts: tensors inside an object
/// that was not built, and members of values for which the expectation has Python's output
/// ([`WHOLE`]).
fn drop_parts(expected: &mut Vec<Value>, actual: &mut Vec<Value>) {
    let below = |key: &str, top: &str| top.is_empty() || key.starts_with(&format!("{top}."));
    let tops: Vec<(String, bool)> = expected
        .iter()
        .filter(|entry| entry["kind"] == "object" || entry["kind"] == WHOLE)
        .map(|entry| (text(entry, "key"), entry["kind"] == WHOLE))
        .collect();
    let wanted: BTreeSet<String> = expected.iter().map(|entry| text(entry, "key")).collect();
    let is_there = |top: &str| {
        let keys = actual.iter().map(|entry| text(entry, "key"));
        keys.into_iter().any(|key| key == top || below(&key, top))
    };
    expected.retain(|entry| entry["kind"] != WHOLE || !is_there(&text(entry, "key")));
    actual.retain(|entry| {
        let key = text(entry, "key");
        let part = |(top, whole): &(String, bool)| match key == *top {
            true => *whole,
            false => below(&key, top) && !wanted.contains(&key),
        };
        !tops.iter().any(part)
    });
}

fn text(entry: &Value, field: &str) -> String {
    entry[field].as_str().unwrap_or_default().to_owned()
}

/// The kind of an expected value whose presence is checked, but not its contents.
const WHOLE: &str = "whole";

fn open_fixture(path: &Path) -> statelens::Result<statelens::parts::checkpoint::Checkpoint> {
    // Links refer to files in the same folder.
    let folder = path.parent().unwrap();
    let others: Vec<PathBuf> =
        match folder.ends_with("v2.10.0-special") || folder.ends_with("v2.4.0-special") {
            true => ["link_target.mdl", "raw.bin"].iter().map(|name| folder.join(name)).collect(),
            false => Vec::new(),
        };
    let others: Vec<PathBuf> =
        others.into_iter().filter(|other| other != path && other.exists()).collect();
    open(&path.file_name().unwrap().to_string_lossy(), fs::read(path).unwrap(), &others, None)
}

/// Returns the expected entries of the manifest, in the order of keys, with the fields that the
/// library determines; `None` if there is no expectation.
fn expectation(path: &Path) -> Option<Vec<Value>> {
    if let Some(entries) = by_rule(&name(path)) {
        return Some(entries);
    }
    let beside = ["", path.extension()?.to_str()?].map(|extension| {
        let stem = match extension {
            "" => path.as_os_str().to_string_lossy().into_owned(),
            _ => path.with_extension("").to_string_lossy().into_owned(),
        };
        PathBuf::from(format!("{stem}.expected.json"))
    });
    let cerebras = name(path).starts_with("cerebras/");
    // The expectation of a Cerebras file has what `cstorch.load` read from the `.mdl`.
    if cerebras && path.extension()? != "mdl" {
        return None;
    }
    let text = fs::read_to_string(beside.into_iter().find(|file| file.exists())?).unwrap();
    let parsed = parse(&text);
    let entries = parsed.get("entries")?.as_array()?.iter();
    let linking = name(path).contains("/v2.10.0");
    Some(match cerebras {
        true => entries.flat_map(|entry| cerebras_entry(&entry[0], &entry[1], linking)).collect(),
        // This expectation has Python's output for each object.
        false if name(path) == "torch/zip_python_objects.pt" => entries
            .map(|entry| match &entry["kind"] {
                kind if kind == "str" => json!({ "key": entry["key"], "kind": WHOLE }),
                _ => torch_entry(entry).remove(0),
            })
            .collect(),
        false => entries.flat_map(torch_entry).collect(),
    })
}

/// Returns the entries of regular files, whose expectations would be megabytes of JSON.
fn by_rule(name: &str) -> Option<Vec<Value>> {
    let floats = |key: String, values: &[f32]| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        json!({
            "key": key, "kind": "tensor", "dtype": "float32", "shape": [values.len()],
            "nbytes": bytes.len(), "sha256": sha256(&bytes),
        })
    };
    Some(match name {
        "torch/zip_many_20k.pt" => (0..20_000)
            .map(|i| {
                floats(format!("model.layers.{}.sub.{}.weight", i / 10, i % 10), &[i as f32; 2])
            })
            .collect(),
        "torch/zip_20k_views_one_storage.pt" => (0..20_000)
            .map(|i| {
                let values: Vec<f32> = (i * 10..i * 10 + 10).map(|value| value as f32).collect();
                floats(format!("v{i}"), &values)
            })
            .collect(),
        "torch/legacy_many_5k.pt" => {
            (0..5_000).map(|i| floats(format!("w{i}"), &[i as f32; 3])).collect()
        }
        "numpy/many_20k.npz" => (0..20_000)
            .map(|i| {
                let mut entry = floats(format!("w{i}"), &[i as f32]);
                entry["kind"] = "ndarray".into();
                entry
            })
            .collect(),
        _ => return None,
    })
}

/// Converts `[key, {…}]` of a Cerebras expectation to entries of the manifest. In a `linking` file,
/// any value can be a link.
fn cerebras_entry(key: &Value, entry: &Value, linking: bool) -> Vec<Value> {
    let kind = entry["kind"].as_str().unwrap();
    let mut fields = match kind {
        "tensor" | "ndarray" => {
            let mut fields = pick(entry, &["kind", "shape", "nbytes", "sha256"]);
            let dtype = match entry["dtype"].as_str().unwrap() {
                ">f4" => "float32".into(),
                "|S2" => "bytes16".into(),
                "[('a', '<i4'), ('b', '<f8')]" => "void96".into(),
                dtype => dtype.replace("torch.", ""),
            };
            fields.insert("dtype".into(), dtype.into());
            fields
        }
        "npscalar" => {
            let bytes = from_hex(entry["hex"].as_str().unwrap());
            object(json!({
                "kind": "ndarray", "dtype": entry["dtype"], "shape": [], "nbytes": bytes.len(),
                "sha256": sha256(&bytes),
            }))
        }
        "float" => object(json!({ "kind": "float", "value": entry["repr"] })),
        "bytes" | "bytearray" => {
            let bytes = STANDARD.decode(entry["base64"].as_str().unwrap()).unwrap();
            object(json!({ "kind": "bytes", "nbytes": bytes.len(), "sha256": sha256(&bytes) }))
        }
        "object" if entry["class"] == "builtins.set" => object(json!({ "kind": WHOLE })),
        "object" if entry["repr"] == "(1+2j)" => {
            object(json!({ "kind": "complex", "value": ["1.0", "2.0"] }))
        }
        "object" => match entry["class"].as_str().unwrap() {
            // The library had not read it either.
            "DeferredObject" => object(json!({ "kind": "object" })),
            class => object(object_entry("", class, &entry["repr"])),
        },
        "LOAD_ERROR" => object(json!({ "kind": "tensor" })),
        _ => pick(entry, &["kind", "value"]),
    };
    fields.insert("key".into(), key.clone());
    // Most leaves are not links, and the manifest must not claim that they are. In 0.4, no plain
    // value is a link: there the expectation only shows which objects Python keeps a single copy
    // of.
    let plain = kind != "tensor" && kind != "ndarray";
    let alias = entry.get("alias_of").filter(|_| linking || !plain);
    fields.insert("alias_of".into(), alias.cloned().unwrap_or(Value::Null));
    vec![fields.into()]
}

/// Converts an entry of a torch, numpy or pickle expectation to entries of the manifest.
fn torch_entry(entry: &Value) -> Vec<Value> {
    // The expectation of a hand-made GGUF file has only dtype and shape.
    let kind = entry["kind"].as_str().unwrap_or("tensor");
    // The parts of a sparse tensor have no keys.
    let key = entry["key"].as_str().unwrap_or_default();
    let mut fields = match kind {
        "tensor" if entry.get("meta").is_some() => {
            let mut fields = pick(entry, &["kind", "shape"]);
            fields.insert("sha256".into(), Value::Null);
            fields
        }
        "tensor" => {
            let mut fields = pick(entry, &["kind", "shape", "nbytes", "sha256"]);
            if entry.get("np_dtype").is_some() {
                fields.insert("kind".into(), "ndarray".into());
            }
            fields
        }
        "sparse" => {
            let parts = entry["parts"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, part)| (name.clone(), torch_entry(part).pop().unwrap()));
            let layout = entry["layout"].as_str().unwrap().replace("torch.", "");
            let mut fields = pick(entry, &["kind", "shape"]);
            fields.insert("layout".into(), layout.into());
            fields.insert("parts".into(), parts.collect::<Map<_, _>>().into());
            fields
        }
        "bytes" | "bytearray" => {
            object(json!({ "kind": "bytes", "nbytes": entry["len"], "sha256": entry["sha256"] }))
        }
        "dict_empty" | "list_empty" | "tuple_empty" => {
            object(json!({ "kind": kind.trim_end_matches("_empty") }))
        }
        "ref" => object(json!({ "alias_of": entry["to"] })),
        "frozenset" => object(json!({ "kind": "object", "type": "builtins.frozenset" })),
        "object_array" => object(json!({ "kind": "object" })),
        "object" => return vec![object_entry(key, entry["cls"].as_str().unwrap(), &entry["repr"])],
        // A set is a container: its members are the leaves.
        "set" => {
            let members = entry["items"].as_array().unwrap().iter().enumerate();
            return members
                .map(|(i, item)| json!({ "key": format!("{key}.{i}"), "kind": "int", "value": item }))
                .collect();
        }
        _ => pick(entry, &["kind", "value"]),
    };
    if let Some(dtype) = entry["torch_dtype"].as_str() {
        fields.insert("dtype".into(), dtype.replace("torch.", "").into());
    } else if entry["dtype"] == "BF16" {
        fields.insert("dtype".into(), "bfloat16".into());
    } else if let Some(shape) = entry["ggml_shape"].as_array() {
        // GGUF lists the fastest dimension first and has its own names for block types.
        fields.insert("shape".into(), shape.iter().rev().cloned().collect());
        let name = entry["dtype"].as_str().unwrap();
        let plain = match name.split_at(1) {
            ("F", bits) => format!("float{bits}"),
            ("I", bits) if bits.parse::<u32>().is_ok() => format!("int{bits}"),
            _ => name.to_owned(),
        };
        fields.insert("dtype".into(), plain.into());
    } else if let Some(dtype) = entry["np_dtype"].as_str() {
        fields.insert("dtype".into(), numpy_name(dtype, entry).into());
    }
    // h5py and Flax separate the names of groups by slashes.
    let grouped = entry.get("compression").is_some() || key.starts_with("params/");
    let key = if grouped { key.replace('/', ".") } else { key.to_owned() };
    fields.insert("key".into(), key.into());
    vec![fields.into()]
}

/// Returns the fields of an object. The manifest has the class that a pickle refers to, not the
/// class of the result.
fn object_entry(key: &str, class: &str, repr: &Value) -> Value {
    let repr = repr.as_str().unwrap_or_default();
    let class = match class {
        _ if class.starts_with("numpy.dtypes.") || class.starts_with("numpy.dtype[") => {
            "numpy.dtype"
        }
        "builtins.type" => match repr.trim_start_matches("<class '").trim_end_matches("'>") {
            "int" => "builtins.int",
            name => name,
        },
        "builtins.ellipsis" => "builtins.Ellipsis",
        "builtins.NotImplementedType" => "builtins.NotImplemented",
        class => class,
    };
    json!({ "key": key, "kind": "object", "type": class })
}

/// Returns numpy's name of a dtype from its code, such as `float32` for `<f4`. The byte order is
/// ignored, because logical values don't have one.
fn numpy_name(code: &str, entry: &Value) -> String {
    let (kind, size) = code.trim_start_matches(['<', '>', '|', '=']).split_at(1);
    let bits = || size.parse::<u32>().unwrap() * 8;
    match kind {
        "f" => format!("float{}", bits()),
        "i" => format!("int{}", bits()),
        "u" => format!("uint{}", bits()),
        "c" => format!("complex{}", bits()),
        "b" => "bool".into(),
        _ => entry["dtype"].as_str().unwrap().into(),
    }
}

/// Returns the keys that differ, each with a description of the differences.
fn differences(expected: &[Value], actual: &[Value]) -> Vec<(String, String)> {
    let keys = |entries: &[Value]| -> Vec<String> {
        entries.iter().map(|entry| entry["key"].as_str().unwrap_or("?").to_owned()).collect()
    };
    let (wanted, found) = (keys(expected), keys(actual));
    if wanted != found {
        let at = wanted.iter().zip(&found).take_while(|(a, b)| a == b).count();
        let key = wanted.get(at).or(found.get(at)).cloned().unwrap_or_default();
        let text = format!(
            "the keys differ from number {at}: expected {:?}, found {:?} ({} and {} in all)",
            &wanted[at..wanted.len().min(at + 4)],
            &found[at..found.len().min(at + 4)],
            wanted.len(),
            found.len()
        );
        return vec![(key, text)];
    }
    let mut all = Vec::new();
    for (wanted, found) in expected.iter().zip(actual) {
        let key = wanted["key"].as_str().unwrap_or("?");
        all.extend(fields_that_differ(wanted, found).map(|text| (key.to_owned(), text)));
    }
    all
}

fn fields_that_differ(wanted: &Value, found: &Value) -> Option<String> {
    let mut text = String::new();
    for (field, value) in wanted.as_object().unwrap() {
        let actual = found.get(field).unwrap_or(&Value::Null);
        let same = match field.as_str() {
            "parts" => value.as_object().unwrap().iter().all(|(name, part)| {
                let mut part = part.clone();
                let fields = part.as_object_mut().unwrap();
                // Parts have neither.
                fields.remove("key");
                fields.remove("kind");
                fields_that_differ(&part, &actual[name]).is_none()
            }),
            _ => actual == value,
        };
        if !same {
            let _ = write!(text, "{field}: expected {value}, found {actual}; ");
        }
    }
    (!text.is_empty()).then_some(text)
}

fn pick(entry: &Value, fields: &[&str]) -> Map<String, Value> {
    let known =
        fields.iter().filter_map(|field| Some(((*field).to_owned(), entry.get(field)?.clone())));
    known.collect()
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// Parses JSON that may hold lone surrogates, which Rust's strings can't hold: their escapes are
/// kept as text, on both sides alike. Numbers that JSON lacks (`NaN`) do not occur.
fn parse(text: &str) -> Value {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\\u") {
        // After an escaped backslash, `u` does not begin an escape.
        let backslashes = rest[..at].bytes().rev().take_while(|byte| *byte == b'\\').count();
        let unit = |text: &str| u32::from_str_radix(text.get(2..6)?, 16).ok();
        let first = unit(&rest[at..]).unwrap_or(0);
        let next = rest[at..].get(6..).filter(|next| next.starts_with("\\u"));
        let paired = next.and_then(unit).is_some_and(|low| (0xdc00..0xe000).contains(&low));
        let (len, lone) = match first {
            0xd800..0xdc00 if paired => (12, false),
            0xd800..0xe000 => (6, true),
            _ => (2, false),
        };
        kept.push_str(&rest[..at]);
        if lone && backslashes % 2 == 0 {
            kept.push('\\');
        }
        kept.push_str(&rest[at..at + len]);
        rest = &rest[at + len..];
    }
    kept.push_str(rest);
    serde_json::from_str(&kept).unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

fn from_hex(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn comparison_helpers_detect_differences() {
    let lone = parse(r#"{"a":"x\ud800y","b":"\ud83d\ude00","c":"\\ud800"}"#);
    assert_eq!(lone["a"], r"x\ud800y");
    assert_eq!((&lone["b"], &lone["c"]), (&json!("😀"), &json!(r"\ud800")));
    let entry = [json!({ "key": "a", "kind": "int", "value": "1", "alias_of": null })];
    assert!(differences(&entry, &entry).is_empty());
    for (field, wrong) in [("value", json!("2")), ("kind", json!("str")), ("alias_of", json!("b"))]
    {
        let mut other = entry.clone();
        other[0][field] = wrong;
        assert_eq!(differences(&entry, &other).len(), 1, "{field}");
    }
    assert_eq!(differences(&entry, &[]).len(), 1);
}
