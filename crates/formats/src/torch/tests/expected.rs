//! Compares a checkpoint with what the real library read from its file.

use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use statelens_checkpoint::{
    Checkpoint, DType, Error, Layout, Leaf, Result, Tensor, TensorClass, Unwatched, Value,
    contiguous_strides, float_repr,
};

use super::{fixtures, open};

/// Returns the fixtures in a folder that have expected content, by path below `tests/fixtures`.
pub(crate) fn expected_in(folder: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(fixtures().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{folder}/{}", entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                open.push(name);
            } else if let Some(name) = name.strip_suffix(".expected.json") {
                names.push(name.to_owned());
            }
        }
    }
    names.sort();
    assert!(!names.is_empty());
    names
}

/// Returns the differences between a fixture's leaves and what the library read, except for the
/// keys in `except`.
pub(crate) fn differences(name: &str, except: &[&str]) -> Vec<String> {
    differences_of(open(name), name, except)
}

/// Like [`differences`], for a checkpoint that was opened in another way.
pub(crate) fn differences_of(
    opened: Result<Checkpoint>,
    name: &str,
    except: &[&str],
) -> Vec<String> {
    let json = std::fs::read_to_string(fixtures().join(format!("{name}.expected.json"))).unwrap();
    let json: Json = serde_json::from_str(&without_lone_surrogates(&json)).unwrap();
    let checkpoint = match opened {
        Ok(checkpoint) => checkpoint,
        Err(error) => return vec![error.to_string()],
    };
    let leaves = checkpoint.leaves();
    let excepted = |key: &str| {
        except.iter().any(|except| {
            except.is_empty()
                || key
                    .strip_prefix(except)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    let leaves: Vec<&Leaf> =
        leaves.iter().filter(|leaf| !excepted(&leaf.flat.to_lossy())).collect();
    let entries = json["entries"].as_array().unwrap();
    let entries: Vec<&Json> =
        entries.iter().filter(|entry| !excepted(entry["key"].as_str().unwrap())).collect();
    let mut differences = Vec::new();
    let mut leaves = leaves.into_iter();
    for entry in &entries {
        let key = entry["key"].as_str().unwrap();
        // A set is one entry in the expectations, but a container here.
        let sets = entry["kind"] == "set";
        let members = if sets { entry["items"].as_array().unwrap().len() } else { 1 };
        for member in 0..members {
            let Some(leaf) = leaves.next() else {
                differences.push(format!("{key} is not there"));
                continue;
            };
            let key = if sets { format!("{key}.{member}") } else { key.to_owned() };
            if leaf.flat.to_lossy() != *key {
                differences.push(format!("{} should be {key}", leaf.flat));
            } else if !sets && let Err(difference) = compare(&checkpoint, leaf, entry) {
                differences.push(format!("{key}: {difference}"));
            }
        }
    }
    differences.extend(leaves.map(|leaf| format!("{} should not be there", leaf.flat)));
    differences
}

pub(crate) fn compare(checkpoint: &Checkpoint, leaf: &Leaf, entry: &Json) -> Result<(), String> {
    let value = checkpoint.value(leaf.target);
    let text = |found: String| same("value", &*found, entry["value"].as_str().unwrap());
    match (entry["kind"].as_str().unwrap(), value) {
        ("ref", _) => match &leaf.alias_of {
            Some(target) => same("target", &*target.to_lossy(), entry["to"].as_str().unwrap()),
            None => Err("is not a link".into()),
        },
        ("none", Value::None) => Ok(()),
        ("bool", Value::Bool(found)) => same("value", &Json::Bool(*found), &entry["value"]),
        ("int", Value::Int(found)) => text(found.to_string()),
        ("float", Value::Float(found)) => text(float_repr(*found)),
        ("str", Value::Str(found)) => text(found.to_lossy().into_owned()),
        // If the library's object was not a plain value, the expectation has its repr.
        ("str", Value::Opaque(opaque)) => match &opaque.repr {
            Some(repr) => text(repr.to_lossy().into_owned()),
            None => Err(format!("{} has no repr", opaque.global)),
        },
        ("complex", Value::Complex(re, im)) => {
            let found = serde_json::json!([float_repr(*re), float_repr(*im)]);
            same("value", &found, &entry["value"])
        }
        ("bytes", Value::Bytes { data, mutable: false })
        | ("bytearray", Value::Bytes { data, mutable: true }) => {
            same("sha256", &*hex(&Sha256::digest(data)), entry["sha256"].as_str().unwrap())
        }
        ("dict_empty", Value::Dict(dict)) if dict.entries.is_empty() => Ok(()),
        ("list_empty", Value::List(list)) if list.items.is_empty() => Ok(()),
        ("tuple_empty", Value::Tuple(tuple)) if tuple.items.is_empty() => Ok(()),
        ("object", Value::Opaque(opaque)) => {
            let found = opaque.repr.as_ref().map(|repr| repr.to_lossy().into_owned());
            same("repr", &*found.unwrap_or_default(), entry["repr"].as_str().unwrap())
        }
        ("object", Value::DType { dtype, numpy: Some(_) }) => {
            let repr = entry["repr"].as_str().unwrap();
            match dtype {
                DType::Numpy(numpy) if !numpy.fields.is_empty() => Ok(()),
                _ => same("repr", &*format!("dtype('{dtype}')"), repr),
            }
        }
        ("object_array", Value::Opaque(opaque)) => {
            let count = entry["values"].as_array().unwrap().len();
            same("elements", &opaque.items.len(), &count)
        }
        ("frozenset", Value::Set(set)) => {
            same("items", &set.items.len(), &entry["items"].as_array().unwrap().len())
        }
        ("tensor", Value::Tensor(_) | Value::Array(_)) => tensor(checkpoint, leaf, entry),
        ("sparse", Value::Sparse(sparse)) => {
            same(
                "layout",
                &*format!("torch.{}", sparse.layout),
                entry["layout"].as_str().unwrap(),
            )?;
            same("shape", &serde_json::json!(sparse.shape), &entry["shape"])?;
            let parts = entry["parts"].as_object().unwrap();
            for (name, id) in &sparse.parts {
                let (_, part) = checkpoint.tensor_of(*id).unwrap();
                dense(checkpoint, part, &parts[*name]).map_err(|e| format!("{name}: {e}"))?;
            }
            same("parts", &sparse.parts.len(), &parts.len())
        }
        (kind, value) => Err(format!("is {}, should be {kind}: {value:?}", value.kind())),
    }
}

fn tensor(checkpoint: &Checkpoint, leaf: &Leaf, entry: &Json) -> Result<(), String> {
    let (_, tensor) = checkpoint.tensor_of(leaf.target).unwrap();
    let class = match (&tensor.class, checkpoint.value(leaf.target)) {
        (_, Value::Array(array)) if array.scalar => Some("np_scalar"),
        (_, Value::Array(_)) => Some("ndarray"),
        (TensorClass::Parameter, _) => Some("Parameter"),
        (TensorClass::Other(name), _) => name.as_str().unwrap().rsplit('.').next(),
        (TensorClass::Tensor, _) => None,
    };
    same("class", &class, &entry["cls"].as_str())?;
    let grad = entry["requires_grad"].as_bool().unwrap_or(false);
    same("requires_grad", &tensor.requires_grad, &grad)?;
    dense(checkpoint, tensor, entry)
}

/// Compares the dtype, shape and values of a tensor.
pub(crate) fn dense(checkpoint: &Checkpoint, tensor: &Tensor, entry: &Json) -> Result<(), String> {
    let dtype = match entry["torch_dtype"].as_str() {
        Some(name) => name.strip_prefix("torch.").unwrap(),
        None => numpy_name(entry["dtype"].as_str().unwrap()),
    };
    same("dtype", tensor.dtype.name(), dtype)?;
    same("shape", &serde_json::json!(tensor.shape), &entry["shape"])?;
    if entry["meta"] == Json::Bool(true) {
        return match tensor.layout {
            Layout::Missing(_) => Ok(()),
            _ => Err("a meta tensor has data".into()),
        };
    }
    let empty = tensor.numel() == Some(0);
    // Some expectations have the strides of the library's own copy.
    let is_stored =
        !entry["storage_nbytes"].is_null() || !matches!(tensor.layout, Layout::Strided(_));
    if let (Some(strides), false, true) = (entry["stride"].as_array(), empty, is_stored) {
        let strides: Vec<i64> = strides.iter().map(|stride| stride.as_i64().unwrap()).collect();
        match &tensor.layout {
            Layout::Strided(view) => {
                same("strides", &view.strides, &strides)?;
                same("offset", &view.offset, &entry["storage_offset"].as_u64().unwrap())?;
                same("storage", &view.storage_len, &entry["storage_nbytes"].as_u64().unwrap())?;
            }
            _ => {
                // Strides of dimensions of length 1 are arbitrary.
                let contiguous = contiguous_strides(&tensor.shape).unwrap();
                for ((found, expected), dim) in contiguous.iter().zip(&strides).zip(&tensor.shape) {
                    if *dim > 1 {
                        same("strides", found, expected)?;
                    }
                }
            }
        }
    }
    if let Some(scale) = entry["scale"].as_f64() {
        let zero_point = entry["zero_point"].as_i64().unwrap();
        let expected = statelens_checkpoint::Quantizer::PerTensor { scale, zero_point };
        same("quantizer", &tensor.quantizer, &Some(expected))?;
    }
    let Some(expected) = entry["sha256"].as_str() else { return Err("no hash".into()) };
    same("sha256", &*hash(checkpoint, tensor).map_err(|error| error.to_string())?, expected)
}

fn hash(checkpoint: &Checkpoint, tensor: &Tensor) -> Result<String, Error> {
    let mut hasher = Sha256::new();
    statelens_tensor::drain(&checkpoint.files, tensor, 1 << 16, &mut Unwatched, &mut |bytes| {
        hasher.update(bytes);
        Ok(())
    })?;
    Ok(hex(&hasher.finalize()))
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

/// Replaces lone surrogates in Python's JSON, which no Rust string can hold, by the six characters
/// that `Text::to_lossy` makes of them.
fn without_lone_surrogates(json: &str) -> String {
    let mut out = String::new();
    let mut rest = json;
    let unit = |text: &str| {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let next = rest.get(6..).and_then(unit);
        let len = match (unit(rest), next) {
            // Any other escape, including an escaped backslash.
            (None, _) => 2,
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => 12,
            (Some(0xd800..0xe000), _) => {
                out.push('\\');
                6
            }
            _ => 6,
        };
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    out + rest
}

fn numpy_name(name: &str) -> &str {
    match name {
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
        "BF16" => "bfloat16",
        "F8_E4M3" => "float8_e4m3fn",
        name => name,
    }
}
