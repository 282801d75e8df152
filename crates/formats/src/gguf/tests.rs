//! Tests of metadata, decoded blocks and damaged files. The command's tests compare the fixtures
//! with what the library read.

use crate::damaged_copies::survive;
use std::path::Path;

use sha2::{Digest, Sha256};
use statelens_checkpoint::{
    Checkpoint, DType, Error, ErrorKind, FileSet, Grade, Limits, Memory, Tensor, Unwatched, Value,
};

fn bytes(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/gguf");
    std::fs::read(folder.join(name)).unwrap()
}

fn open_bytes(bytes: Vec<u8>) -> Result<Checkpoint, Error> {
    crate::open(FileSet::single("x.gguf", Memory::from(bytes)), &Limits::default(), &mut Unwatched)
}

fn open(name: &str) -> Checkpoint {
    open_bytes(bytes(name)).unwrap()
}

fn find(checkpoint: &Checkpoint, key: &str) -> Value {
    let leaves = checkpoint.leaves();
    let leaf = leaves.iter().find(|leaf| leaf.flat == key).unwrap_or_else(|| panic!("{key}"));
    checkpoint.value(leaf.id).clone()
}

fn tensor<'a>(checkpoint: &'a Checkpoint, key: &str) -> &'a Tensor {
    let leaves = checkpoint.leaves();
    let leaf = leaves.iter().find(|leaf| leaf.flat == key).unwrap_or_else(|| panic!("{key}"));
    checkpoint.tensor_of(leaf.id).unwrap().1
}

fn floats(checkpoint: &Checkpoint, tensor: &Tensor) -> Vec<f32> {
    let wanted = statelens_tensor::dequantized(tensor)
        .unwrap_or_else(|| Tensor { dtype: DType::F32, ..tensor.clone() });
    let numel = tensor.numel().unwrap();
    let bytes = statelens_tensor::elements(&checkpoint.files, &wanted, 0..numel).unwrap();
    bytes.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

#[test]
fn metadata_becomes_plain_values() {
    let checkpoint = open("types_v3.gguf");
    let int = |value: i64| Value::Int(value.into());
    for (key, value) in [
        ("u8", int(255)),
        ("i8", int(-1)),
        ("u16", int(65535)),
        ("i16", int(-2)),
        ("u32", int(4_294_967_295)),
        ("i32", int(-3)),
        ("u64", Value::Int(u64::MAX.into())),
        ("i64", int(i64::MIN)),
        ("f32", Value::Float(1.5)),
        ("f64", Value::Float(2.5)),
        ("bt", Value::Bool(true)),
        ("bf", Value::Bool(false)),
        ("s", Value::Str("é重😀".into())),
        ("arr_s.1", Value::Str("bé".into())),
        ("arr_s.2", Value::Str("".into())),
        ("general.architecture", Value::Str("llama".into())),
    ] {
        assert_eq!(find(&checkpoint, &format!("metadata.{key}")), value, "{key}");
    }
    assert_eq!(floats(&checkpoint, tensor(&checkpoint, "metadata.arr_f")), [1.5, 2.5]);
    assert_eq!(tensor(&checkpoint, "metadata.arr_b").dtype, DType::Bool);
    let ints = tensor(&checkpoint, "metadata.arr_i");
    assert_eq!((ints.dtype.clone(), ints.shape.clone()), (DType::I32, vec![3]));
    let leaves = checkpoint.leaves();
    let below =
        |start: &str| leaves.iter().filter(|leaf| leaf.flat.to_lossy().starts_with(start)).count();
    assert_eq!(below("metadata.tokens."), 3000);
    assert!(below("metadata.arr_nested") > 0);
}

#[test]
fn reads_big_endian_files_and_version_1() {
    let big = open("bigendian.gguf");
    assert_eq!(floats(&big, tensor(&big, "a")), [0.0, 1.0, 2.0, 3.0, 4.0]);
    let old = open("v1_crafted.gguf");
    assert_eq!(old.format.version, "1");
    assert_eq!(tensor(&old, "w").shape, [2]);
    assert!(floats(&old, tensor(&old, "w")).iter().all(|value| value.is_finite()));
}

/// All block types encode the same numbers with different rounding, so the decoded values must be
/// close.
#[test]
fn decoded_blocks_are_close_to_the_original() {
    let checkpoint = open("quants.gguf");
    let exact = floats(&checkpoint, tensor(&checkpoint, "q.F32"));
    let largest = exact.iter().fold(0f32, |most, value| most.max(value.abs()));
    for (name, steps) in
        [("Q4_0", 8.0), ("Q4_1", 7.5), ("Q5_0", 16.0), ("Q5_1", 15.5), ("Q8_0", 127.0)]
    {
        let quantised = tensor(&checkpoint, &format!("q.{name}"));
        assert_eq!((quantised.dtype.name(), &*quantised.shape), (name, &[4, 512][..]));
        let decoded = floats(&checkpoint, quantised);
        let worst = exact.iter().zip(&decoded).fold(0f32, |w, (a, b)| w.max((a - b).abs()));
        assert!(worst > 0.0 && worst <= 1.1 * largest / steps, "{name}: {worst} of {largest}");
    }
}

/// The decoded values must match `gguf.dequantize` of the package gguf 0.19 bit for bit.
#[test]
fn decoded_blocks_match_the_library() {
    let checkpoint = open("quants.gguf");
    for (name, hash) in [
        ("Q4_0", "6e857a7358ba0fd47f8f8ccd178b2435b039c59774d7433fce2e85b210b43da5"),
        ("Q4_1", "1c8fefb04448f14f546cbcde8bde0a7b3c9314799bcd425861af5316b7e5e325"),
        ("Q5_0", "9a63673d63d8d4331929e8318021d6db340598801a8537499b02b6e3c2d3270b"),
        ("Q5_1", "78268d2988d369c8884a8089302d583a308b2bfe78d71ffbb6f1ba84b6090e90"),
        ("Q8_0", "2c205c0e0a7f73bd040940def75f8ffde6c002a7f42aa2fcd2e9ae7e18689666"),
    ] {
        let decoded = floats(&checkpoint, tensor(&checkpoint, &format!("q.{name}")));
        let bytes: Vec<u8> = decoded.iter().flat_map(|value| value.to_le_bytes()).collect();
        let found: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(found, hash, "{name}");
    }
}

/// Every block type, at its edges and in four shapes: the values must be those of `gguf.dequantize`
/// of gguf 0.19, bit for bit, and of the C source for the two types that it has no function for.
#[test]
fn every_block_type_matches_the_library() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/gguf_k");
    let mut compared = 0;
    for name in ["each_type", "special", "by_library", "dims", "no_dequant", "bigendian_k"] {
        let read = |end: &str| std::fs::read(folder.join(format!("{name}.gguf{end}"))).unwrap();
        let checkpoint = open_bytes(read("")).unwrap();
        let expected: serde_json::Value = serde_json::from_slice(&read(".expected.json")).unwrap();
        for entry in expected["entries"].as_array().unwrap() {
            let stored = tensor(&checkpoint, entry["key"].as_str().unwrap());
            let decoded = statelens_tensor::dequantized(stored);
            let decoded = decoded.as_ref().unwrap_or(stored);
            let numel = decoded.numel().unwrap();
            let bytes = statelens_tensor::elements(&checkpoint.files, decoded, 0..numel).unwrap();
            let found: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(entry["sha256"], found, "{name}: {} {}", entry["key"], entry["dtype"]);
            compared += 1;
        }
        assert!(checkpoint.findings.is_empty(), "{name}: {:?}", checkpoint.findings);
    }
    assert_eq!(compared, 73);
}

/// Any range of elements is the same part of the whole, however the file is read.
#[test]
fn parts_of_blocks_match_the_whole() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/gguf_k");
    let bytes = std::fs::read(folder.join("each_type.gguf")).unwrap();
    let checkpoint = open_bytes(bytes).unwrap();
    for stored in checkpoint.tensors() {
        let Some(decoded) = statelens_tensor::dequantized(stored) else { continue };
        let read = |range| statelens_tensor::elements(&checkpoint.files, &decoded, range).unwrap();
        let numel = decoded.numel().unwrap();
        let whole = read(0..numel);
        for range in [0..1, 1..numel - 1, 255..257, numel / 2..numel / 2 + 3, numel - 1..numel] {
            let bytes = range.start as usize * 4..range.end as usize * 4;
            assert_eq!(read(range.clone()), whole[bytes], "{} {range:?}", stored.dtype);
        }
    }
}

/// No program defines what a big-endian file has for most types.
#[test]
fn warns_of_types_that_have_no_byte_order() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/gguf_k");
    let mut bytes = std::fs::read(folder.join("bigendian_k.gguf")).unwrap();
    // The type of the tensor `t.q4_k` becomes Q2_K, which is smaller.
    let name = bytes.windows(6).position(|name| name == b"t.q4_k").unwrap();
    let at = name + 6 + 4 + 2 * 8;
    assert_eq!(bytes[at..at + 4], 12u32.to_be_bytes());
    bytes[at..at + 4].copy_from_slice(&10u32.to_be_bytes());
    let findings = open_bytes(bytes).unwrap().findings;
    assert!(findings.iter().any(|it| it.title == "Values of Q2_K may be wrong"), "{findings:?}");
}

/// A count that the file has no room for is damage; a higher limit would not help.
#[test]
fn impossible_counts_are_damage_at_their_place() {
    let whole = bytes("types_v3.gguf");
    for (at, counted) in [(8, "tensors"), (16, "metadata entries")] {
        for count in [1u64 << 20, 1 << 40, u64::MAX] {
            let mut file = whole.clone();
            file[at..at + 8].copy_from_slice(&count.to_le_bytes());
            let error = match open_bytes(file) {
                Err(error) => error,
                // All tensors that are there are shown.
                Ok(checkpoint) => {
                    assert!(at == 8 && checkpoint.findings.iter().any(|it| it.refused), "{count}");
                    continue;
                }
            };
            assert_eq!(error.kind(), ErrorKind::Damaged, "{counted} {count}: {error}");
            assert!(error.offset().is_some(), "{counted} {count}: {error}");
        }
    }
    for name in ["x_kvcount_bomb", "x_strlen_bomb"] {
        let error = open_bytes(bytes(&format!("{name}.gguf"))).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{name}: {error}");
        assert!(error.offset().is_some(), "{name}: {error}");
    }
}

#[test]
fn refuses_bombs_and_truncated_files() {
    let counted = open("x_tensorcount_bomb.gguf");
    assert!(counted.findings[0].refused && counted.findings[0].title.ends_with("describes 8"));
    for name in ["x_kvcount_bomb", "x_strlen_bomb", "x_truncated"] {
        let error = open_bytes(bytes(&format!("{name}.gguf"))).map(drop).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Limit), "{name}: {error}");
    }
    let whole = bytes("types_v3.gguf");
    let cut = open_bytes(whole[..whole.len() - 1].to_vec()).unwrap();
    assert_eq!(cut.findings[0].grade, Grade::Damage);
    for len in (4..38_848).step_by(97) {
        assert!(open_bytes(whole[..len].to_vec()).is_err(), "{len}");
    }
}

#[test]
fn damaged_copies_never_panic() {
    for name in ["types_v3.gguf", "v1_crafted.gguf", "bigendian.gguf"] {
        survive(name, &bytes(name), statelens_fixtures::times(40, 200), |copy| {
            open_bytes(copy).map(|open| open.leaves()).is_ok()
        });
    }
}

#[test]
fn refuses_impossible_shapes_without_elements() {
    let folder = statelens_fixtures::path("attacks2");
    let file = std::fs::read(folder.join("gguf_zero_dim_overflow.gguf")).unwrap();
    let error = open_bytes(file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains("larger than 64 bits can count"), "{error}");
}
