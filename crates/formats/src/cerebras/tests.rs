//! Compares files of the real library with what it read back from them; and reads broken files.

use crate::counted::CountedFile;
use crate::damaged_copies::damaged_copies;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use statelens_checkpoint::{
    Array, ByteOrder, Checkpoint, FileSet, Grade, Leaf, Limits, Memory, Tensor, Text, Unwatched,
    Value, float_repr,
};

use super::read::read;

/// Values that differ from those of the real library, with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("v2.4.0/pyobjects", "the pickled set in it has a line for each member here"),
    ("v2.4.0/set_only", "the pickled set has a line for each member here"),
    (
        "v2.10.0-special/full_tensors none",
        "saved without values: the library gives whatever is in memory",
    ),
    ("v2.10.0-special/dirty", OBJECT),
    ("v2.10.0-special/link_external", OBJECT),
    ("v2.10.0-special/link_materialized", OBJECT),
    ("v2.10.0-special/link_target", OBJECT),
    ("v2.10.0/custom", OBJECT),
    ("v2.4.0/custom", OBJECT),
    ("v2.4.0/keys_int_str_collide 0", "quotes distinguish the text `0` from the integer"),
    ("v2.10.0-special/graph_tensor g", "the library fails to load it, too; shown without data"),
];

const OBJECT: &str = "the pickled object in it has a line for each attribute here";

fn folder() -> PathBuf {
    statelens_fixtures::path("cerebras")
}

/// Returns the file together with the files of its folder that it may refer to.
fn files(name: &str) -> FileSet {
    let path = folder().join(name);
    let mut files = FileSet::single(name, Memory::from(std::fs::read(&path).unwrap()));
    let others =
        ["link_target.mdl", "raw.bin", "link_safetensors.safetensors", "link_legacy_target.mdl"];
    for other in others {
        if let Ok(bytes) = std::fs::read(path.with_file_name(other)) {
            files.push(other, Arc::new(Memory::from(bytes)));
        }
    }
    files
}

fn open(name: &str) -> Checkpoint {
    read(files(name), &Limits::default(), &mut Unwatched)
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn leaf<'a>(leaves: &'a [Leaf], key: &str) -> &'a Leaf {
    leaves.iter().find(|leaf| leaf.flat == key).unwrap_or_else(|| panic!("no {key}"))
}

fn sha256(checkpoint: &Checkpoint, tensor: &Tensor, order: ByteOrder) -> Result<String, String> {
    let mut bytes = Vec::new();
    statelens_tensor::drain(&checkpoint.files, tensor, 1 << 16, &mut Unwatched, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })
    .map_err(|error| error.to_string())?;
    if order == ByteOrder::Big {
        bytes.chunks_exact_mut(tensor.dtype.word() as usize).for_each(<[u8]>::reverse);
    }
    Ok(Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns every file with what the library read from it.
fn expected() -> BTreeMap<String, Json> {
    let mut found = BTreeMap::new();
    for version in ["v2.10.0", "v2.10.0-special", "v2.4.0", "v2.4.0-special"] {
        for entry in std::fs::read_dir(folder().join(version)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if let Some(stem) = name.strip_suffix(".expected.json") {
                let text = std::fs::read_to_string(folder().join(version).join(&name)).unwrap();
                let json: Json = serde_json::from_str(&spelled(&text)).unwrap();
                if folder().join(version).join(format!("{stem}.mdl")).exists() {
                    found.insert(format!("{version}/{stem}"), json);
                }
            }
        }
    }
    found
}

/// Replaces lone surrogates in JSON, which serde rejects, with the notation of [`Text`].
pub(super) fn spelled(json: &str) -> String {
    let mut out = String::new();
    let mut rest = json;
    while let Some(at) = rest.find("\\ud") {
        let (head, tail) = rest.split_at(at);
        out.push_str(head);
        if head.ends_with('\\') {
            // An escaped backslash.
            let (two, after) = tail.split_at(2);
            out.push_str(two);
            rest = after;
            continue;
        }
        let pair = tail.as_bytes()[3] < b'c' && tail[6..].starts_with("\\ud");
        let (escape, after) = tail.split_at(if pair { 12 } else { 6 });
        out.push_str(if pair { "" } else { "\\" });
        out.push_str(escape);
        rest = after;
    }
    out + rest
}

/// Returns the differences between a leaf and the library's value.
pub(super) fn differences(
    checkpoint: &Checkpoint,
    leaf: &Leaf,
    key: &str,
    want: &Json,
) -> Vec<String> {
    let value = checkpoint.value(leaf.target);
    let mut wrong = Vec::new();
    let mut same = |what: &str, got: String, want: String| {
        if got != want {
            wrong.push(format!("{what} {got} instead of {want}"));
        }
    };
    same("key", leaf.flat.to_string(), key.to_owned());
    let kind = want["kind"].as_str().unwrap();
    let kind = match kind {
        "npscalar" => "ndarray",
        "bytearray" => "bytes",
        // Distinguished from other pickled objects here.
        "object" if matches!(value, Value::Complex(..)) => "complex",
        kind => kind,
    };
    same("kind", value.kind().to_owned(), kind.to_owned());
    match value {
        Value::Tensor(_) | Value::Array(_) => {
            let (_, tensor) = checkpoint.tensor_of(leaf.id).unwrap();
            let dtype = want["dtype"].as_str().unwrap_or_default();
            if !dtype.starts_with('[') {
                let name = dtype.trim_start_matches("torch.").trim_start_matches(['<', '>', '|']);
                same("dtype", tensor.dtype.name().to_owned(), numpy_name(name).to_owned());
            }
            if let Some(shape) = want.get("shape") {
                same("shape", format!("{:?}", tensor.shape), format!("{:?}", numbers(shape)));
            }
            if let Some(sum) = want.get("sha256") {
                // The expected hashes are over numpy's byte order.
                let order = match dtype.starts_with('>') {
                    true => ByteOrder::Big,
                    false => ByteOrder::Little,
                };
                let got = sha256(checkpoint, tensor, order).unwrap_or_else(|error| error);
                same("sha256", got, sum.as_str().unwrap().to_owned());
            }
            if let Value::Array(Array { scalar, .. }) = value {
                same("scalar", scalar.to_string(), (want["kind"] == "npscalar").to_string());
            }
        }
        Value::Int(int) => {
            same("value", int.to_string(), want["value"].as_str().unwrap().to_owned())
        }
        Value::Bool(value) => same("value", value.to_string(), want["value"].to_string()),
        Value::Float(float) => {
            same("value", float_repr(*float), want["repr"].as_str().unwrap().to_owned());
        }
        Value::Str(text) => same("value", text.to_string(), want_text(want)),
        Value::Bytes { data, mutable } => {
            same("bytes", STANDARD.encode(data), want["base64"].as_str().unwrap().to_owned());
            same("mutable", mutable.to_string(), (want["kind"] == "bytearray").to_string());
        }
        _ => {}
    }
    wrong
}

/// Expected strings are JSON, in which Rust can't represent lone surrogates.
fn want_text(want: &Json) -> String {
    want["value"].as_str().unwrap_or_default().to_owned()
}

fn numpy_name(dtype: &str) -> &str {
    match dtype {
        "f4" => "float32",
        "f8" => "float64",
        "i4" => "int32",
        "S2" => "bytes16",
        "U2" => "str64",
        name => name,
    }
}

fn numbers(json: &Json) -> Vec<u64> {
    json.as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap()).collect()
}

#[test]
fn values_match_the_library() {
    let mut wrong: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut compared, mut opened) = (0, 0);
    for (name, json) in expected() {
        let Some(entries) = json.get("entries").and_then(Json::as_array) else { continue };
        let checkpoint = open(&format!("{name}.mdl"));
        opened += 1;
        let leaves = checkpoint.leaves();
        // Empty containers are leaves here, but the library's flat keys do not include them.
        let leaves: Vec<&Leaf> =
            leaves.iter().filter(|leaf| !checkpoint.value(leaf.target).is_container()).collect();
        if leaves.len() != entries.len() {
            let keys: Vec<_> = leaves.iter().map(|leaf| leaf.flat.to_string()).collect();
            wrong.entry(name.clone()).or_default().push(format!(
                "{} leaves instead of {}: {keys:?}",
                leaves.len(),
                entries.len()
            ));
            continue;
        }
        for (leaf, entry) in leaves.iter().zip(entries) {
            let key = entry[0].as_str().unwrap();
            let mut found = differences(&checkpoint, leaf, key, &entry[1]);
            // The loader of 0.4 files makes new values. The only aliases it reports are objects
            // that CPython interned.
            if name.starts_with("v2.10.0") {
                let alias = leaf.alias_of.as_ref().map(Text::to_string);
                let want = entry[1].get("alias_of").map(|key| key.as_str().unwrap().to_owned());
                if alias != want {
                    found.push(format!("alias of {alias:?} instead of {want:?}"));
                }
            }
            compared += 1;
            if !found.is_empty() {
                wrong.insert(format!("{name} {key}"), found);
            }
        }
    }
    let unexpected: Vec<_> = wrong
        .iter()
        .filter(|(place, _)| !EXCEPTIONS.iter().any(|(known, _)| known == place))
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    for (place, reason) in EXCEPTIONS {
        assert!(wrong.contains_key(*place), "{place} is as expected after all, though {reason}");
    }
    assert!((opened, compared) >= (110, 1800), "{opened} files, {compared} values");
}

/// Returns the nesting in the notation of the expectations: `__t__` and items, keys as Python
/// prints them.
pub(super) fn structure(checkpoint: &Checkpoint, id: statelens_checkpoint::ValueId) -> Json {
    use statelens_checkpoint::{DictClass, DictKey, ListClass};
    let list = |name: &str, items: &[statelens_checkpoint::ValueId]| {
        let items: Vec<Json> = items.iter().map(|id| structure(checkpoint, *id)).collect();
        serde_json::json!({"__t__": name, "items": items})
    };
    match checkpoint.value(id) {
        Value::List(value) => match value.class {
            ListClass::List => list("list", &value.items),
            // The expectations treat sets and deques as leaves.
            ListClass::Deque(_) => Json::Null,
        },
        // The expectations treat a `torch.Size` as a tuple.
        Value::Tuple(value) => list("tuple", &value.items),
        // The expectations treat pickled objects as leaves.
        Value::Dict(value) if matches!(value.class, DictClass::Object(_)) => Json::Null,
        Value::Dict(value) => {
            let name = match &value.class {
                DictClass::Ordered => "OrderedDict",
                DictClass::Default(_) => "defaultdict",
                _ => "dict",
            };
            let items: Vec<Json> = value
                .entries
                .iter()
                .map(|(key, id)| {
                    let key = match key {
                        DictKey::Str(_) => "str".to_owned(),
                        key => key.to_string(),
                    };
                    serde_json::json!([key, structure(checkpoint, *id)])
                })
                .collect();
            serde_json::json!({"__t__": name, "items": items})
        }
        _ => Json::Null,
    }
}

/// Returns the expected nesting, without leaves and without the quotes of string keys.
pub(super) fn expected_structure(json: &Json) -> Json {
    let Some(name) = json.get("__t__").and_then(Json::as_str) else { return Json::Null };
    let Some(items) = json["items"].as_array() else { return Json::Null };
    let dict = matches!(name, "dict" | "OrderedDict" | "defaultdict");
    let items: Vec<Json> = items
        .iter()
        .map(|item| match dict {
            true => {
                let key = item[0].as_str().unwrap();
                let key = if key.starts_with(['\'', '"']) { "str" } else { key };
                serde_json::json!([key, expected_structure(&item[1])])
            }
            false => expected_structure(item),
        })
        .collect();
    serde_json::json!({"__t__": name, "items": items})
}

#[test]
fn keeps_nesting_and_key_types() {
    for (name, json) in expected() {
        let Some(want) = json.get("structure") else { continue };
        let checkpoint = open(&format!("{name}.mdl"));
        let got = structure(&checkpoint, checkpoint.root());
        assert_eq!(got, expected_structure(want), "{name}");
    }
}

#[test]
fn opens_minimal_files() {
    let mut seen = 0;
    for entry in std::fs::read_dir(folder().join("minimal")).unwrap() {
        let name = format!("minimal/{}", entry.unwrap().file_name().to_str().unwrap());
        let checkpoint = open(&name);
        assert!(!checkpoint.leaves().is_empty(), "{name}");
        for leaf in checkpoint.leaves() {
            if let Some((_, tensor)) = checkpoint.tensor_of(leaf.id) {
                sha256(&checkpoint, tensor, ByteOrder::Little).unwrap();
            }
            assert_ne!(checkpoint.value(leaf.target).kind(), "object", "{name} {}", leaf.flat);
        }
        seen += 1;
    }
    assert_eq!(seen, 8);
}

fn worst(checkpoint: &Checkpoint) -> Option<Grade> {
    checkpoint.findings.iter().map(|finding| finding.grade).max()
}

#[test]
fn unfinished_file_opens_with_damage() {
    for name in ["errors/no_success.mdl", "errors/success_false.mdl"] {
        let checkpoint = open(name);
        assert_eq!(worst(&checkpoint), Some(Grade::Damage), "{name}");
        assert!(!checkpoint.leaves().is_empty());
    }
}

#[test]
fn opens_what_is_readable_of_refused_files() {
    for (name, grade) in [
        ("no_version", Some(Grade::Warning)),
        ("version_0_4_on_new", Some(Grade::Warning)),
        ("version_0_6", Some(Grade::Warning)),
        ("version_99", Some(Grade::Warning)),
        ("no_cstorch_version", None),
        ("missing_key_meta", Some(Grade::Damage)),
        ("unknown_type", Some(Grade::Damage)),
        ("link_missing", Some(Grade::Damage)),
        // The library failed half-way through saving it.
        ("../v2.4.0-special/full_none", Some(Grade::Damage)),
        ("dset_missing", Some(Grade::Damage)),
        ("dset_without_attrs", None),
        ("dset_min_attrs", None),
        ("dset_only_NUMPY_attr", None),
        ("gzip_shuffle", None),
        ("uncompressed_contig", None),
        ("v03_from_201", None),
        ("v02", None),
        ("v01", None),
    ] {
        let checkpoint = open(&format!("errors/{name}.mdl"));
        assert_eq!(worst(&checkpoint), grade, "{name}: {:?}", checkpoint.findings);
    }
}

#[test]
fn opens_releases_before_1_9() {
    let checkpoint = open("compat/synthetic_1.7.mdl");
    let leaves = checkpoint.leaves();
    assert_eq!(checkpoint.format.version, "0.1");
    assert_eq!(checkpoint.value(leaf(&leaves, "global_step").target).kind(), "int");
    let (_, tensor) = checkpoint.tensor_of(leaf(&leaves, "model.h.0.w").id).unwrap();
    assert_eq!(tensor.dtype.name(), "bfloat16");
    assert!(leaves.iter().all(|leaf| checkpoint.value(leaf.target).kind() != "object"));
}

#[test]
fn reads_links_of_release_2_4() {
    for (name, alias) in [
        ("hardlink_alias", Some(("model.wte.weight", "model.lm_head.weight"))),
        ("link_to_self", Some(("model.lm_head.weight", "model.wte.weight"))),
        ("link_external", None),
        ("file_tensor_link", None),
        ("full_tensors", None),
    ] {
        let checkpoint = open(&format!("v2.4.0-special/{name}.mdl"));
        assert_eq!(worst(&checkpoint), None, "{name}: {:?}", checkpoint.findings);
        let leaves = checkpoint.leaves();
        for leaf in &leaves {
            if let Some((_, tensor)) = checkpoint.tensor_of(leaf.id) {
                sha256(&checkpoint, tensor, ByteOrder::Little).unwrap();
            }
        }
        if let Some((one, other)) = alias {
            let aliases: Vec<_> = leaves.iter().filter(|leaf| leaf.alias_of.is_some()).collect();
            assert_eq!(aliases.len(), 1, "{name}");
            let names =
                [aliases[0].flat.to_string(), aliases[0].alias_of.as_ref().unwrap().to_string()];
            assert!(
                names.contains(&one.to_owned()) && names.contains(&other.to_owned()),
                "{names:?}"
            );
        }
    }
}

#[test]
fn follows_links_to_other_formats() {
    for (name, expected) in [
        // A state dict loaded from a safetensors file is saved as links to that file.
        ("link_safetensors", vec!["model.b: tensor", "model.w: tensor", "step: int"]),
        // A file of release 2.4, which stores pickled objects elsewhere.
        ("link_legacy", vec!["raw: bytes", "set.0: int", "set.1: int", "t: tensor"]),
    ] {
        let checkpoint = open(&format!("v2.10.0-special/{name}.mdl"));
        assert_eq!(worst(&checkpoint), None, "{name}: {:?}", checkpoint.findings);
        let leaves = checkpoint.leaves();
        let kind = |leaf: &Leaf| {
            if let Some((_, tensor)) = checkpoint.tensor_of(leaf.id) {
                sha256(&checkpoint, tensor, ByteOrder::Little).unwrap();
            }
            format!("{}: {}", leaf.flat, checkpoint.value(leaf.target).kind())
        };
        assert_eq!(leaves.iter().map(kind).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn names_missing_linked_files() {
    for (folder_name, file, missing) in [
        ("v2.10.0-special", "link_external.mdl", "link_target.mdl"),
        ("v2.10.0-special", "link_safetensors.mdl", "link_safetensors.safetensors"),
        ("v2.4.0-special", "link_external.mdl", "link_target.mdl"),
        ("v2.4.0-special", "file_tensor_link.mdl", "raw.bin"),
    ] {
        let bytes = std::fs::read(folder().join(folder_name).join(file)).unwrap();
        let alone = FileSet::single(file, Memory::from(bytes));
        let checkpoint = read(alone, &Limits::default(), &mut Unwatched).unwrap();
        assert!(
            checkpoint.findings.iter().any(|finding| finding.title.contains(missing)),
            "{:?}",
            checkpoint.findings
        );
    }
}

/// Reads everything that remains of a damaged file. Nothing may panic or be read over and over.
fn read_all(name: &str, number: usize, bytes: Vec<u8>) {
    let file = Arc::new(CountedFile::new(bytes));
    let mut files = FileSet::default();
    files.push(name, file.clone());
    if let Ok(checkpoint) = crate::open(files, &Limits::default(), &mut Unwatched) {
        for leaf in checkpoint.leaves() {
            // A flipped length can give a tensor of terabytes of zeros, which would take too long
            // to read.
            if let Some((_, tensor)) = checkpoint.tensor_of(leaf.id)
                && tensor.nbytes().is_some_and(|bytes| bytes < 1 << 22)
            {
                let _ = sha256(&checkpoint, tensor, ByteOrder::Little);
            }
        }
    }
    file.assert_read_at_most(64, &format!("{name}, copy {number}"));
}

fn every_file() -> Vec<String> {
    let mut names = Vec::new();
    for place in [
        "cerebras",
        "cerebras/v2.10.0",
        "cerebras/v2.10.0-special",
        "cerebras/v2.4.0",
        "cerebras/v2.4.0-special",
        "cerebras/minimal",
        "cerebras/errors",
        "cerebras/compat",
        "hdf5",
    ] {
        for entry in std::fs::read_dir(folder().join("..").join(place)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".mdl") || name.ends_with(".h5") {
                names.push(format!("../{place}/{name}"));
            }
        }
    }
    names.sort();
    names
}

#[test]
fn damaged_copies_never_panic() {
    for name in every_file() {
        let whole = std::fs::read(folder().join(&name)).unwrap();
        for (number, copy) in damaged_copies(&whole, statelens_fixtures::times(16, 400)).enumerate()
        {
            read_all(&name, number, copy);
        }
    }
}
