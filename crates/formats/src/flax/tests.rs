//! Tests of values other than arrays, and of damaged files. The command's tests compare the arrays.

use crate::damaged_copies::survive;
use std::path::Path;

use statelens_checkpoint::{
    Checkpoint, DType, Error, FileSet, Grade, Layout, Limits, Memory, Tensor, Unwatched, Value,
};

fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/flax");
    std::fs::read(folder.join(name)).unwrap()
}

fn bytes() -> Vec<u8> {
    fixture("flax_model.msgpack")
}

fn open(bytes: Vec<u8>) -> Result<Checkpoint, Error> {
    crate::open(FileSet::single("x", Memory::from(bytes)), &Limits::default(), &mut Unwatched)
}

#[test]
fn reads_every_kind_of_value() {
    let checkpoint = open(bytes()).unwrap();
    assert_eq!(checkpoint.format.id, "flax");
    let leaves = checkpoint.leaves();
    let keys: Vec<String> = leaves.iter().map(|leaf| leaf.flat.to_string()).collect();
    let expected = [
        "params.Dense_0.kernel",
        "params.Dense_0.bias",
        "step",
        "np_scalar",
        "cplx",
        "l.0",
        "chunked",
    ];
    assert_eq!(keys, expected);
    let value = |at: usize| checkpoint.value(leaves[at].id);
    let tensor = |at: usize| checkpoint.tensor_of(leaves[at].id).unwrap().1;
    assert!(tensor(0).is_verbatim());
    assert_eq!(tensor(1).dtype, DType::BF16);
    assert_eq!(value(2), &Value::Int(7i64.into()));
    assert!(matches!(value(3), Value::Array(array) if array.scalar));
    assert_eq!(value(4), &Value::Complex(1.0, 2.0));
    assert_eq!(tensor(5).dtype, DType::C64);
    assert!(matches!(tensor(6).layout, Layout::Concat(_)));
    assert_eq!(checkpoint.findings, []);
}

/// The library wrote the elements of each dtype twice: unchanged, and converted to a dtype that
/// numpy has.
#[test]
fn dtypes_beyond_numpy_match_the_library() {
    let checkpoint = open(fixture("flax_dtypes.msgpack")).unwrap();
    assert_eq!(checkpoint.findings, []);
    let leaves = checkpoint.leaves();
    let mut compared = 0;
    for pair in leaves.windows(2) {
        let (bits, numbers) = (pair[0].flat.to_lossy(), pair[1].flat.to_lossy());
        if !bits.ends_with(".bits") || !numbers.ends_with(".numbers") {
            continue;
        }
        let tensor = |at: usize| checkpoint.tensor_of(pair[at].id).unwrap().1;
        let mut found = statelens_tensor::numbers(tensor(0)).unwrap().into_owned();
        let mut wanted = tensor(1).clone();
        if statelens_tensor::plain(&tensor(0).dtype).is_some() {
            assert_eq!(found.dtype, wanted.dtype, "{bits}");
        }
        // NaN has many bit patterns but one text.
        let text = |tensor: &mut Tensor| -> Vec<String> {
            tensor.dtype = DType::F64;
            let count = tensor.numel().unwrap();
            let bytes = statelens_tensor::elements(&checkpoint.files, tensor, 0..count).unwrap();
            let (numbers, _) = bytes.as_chunks::<8>();
            numbers.iter().map(|bytes| f64::from_le_bytes(*bytes).to_string()).collect()
        };
        assert_eq!(text(&mut found), text(&mut wanted), "{bits}");
        compared += 1;
    }
    assert_eq!(compared, 18);
}

#[test]
fn unknown_dtype_is_kept_as_bytes_with_a_finding() {
    let mut file = vec![0x81, 0xa1, b'a', 0xc7, 17, 1, 0x93, 0x91, 2, 0xa7];
    file.extend(b"float99\xc4\x06xyzabc");
    file[4] = (file.len() - 6) as u8;
    let checkpoint = open(file.clone()).unwrap();
    let leaves = checkpoint.leaves();
    let (_, tensor) = checkpoint.tensor_of(leaves[0].id).unwrap();
    assert_eq!((tensor.dtype.name(), tensor.nbytes()), ("float99", Some(6)));
    assert!(checkpoint.findings[0].title.contains("float99"));
    // Six bytes can't be four elements, so the leaf has the reason.
    file[8] = 4;
    let checkpoint = open(file).unwrap();
    let leaf = checkpoint.leaves()[0].id;
    let Value::Opaque(entry) = checkpoint.value(leaf) else { panic!() };
    assert!(entry.repr.as_ref().unwrap().to_lossy().contains("float99"), "{entry:?}");
}

#[test]
fn single_array_is_a_checkpoint() {
    let mut file = vec![0xc7, 13, 1, 0x93, 0x91, 1, 0xa5];
    file.extend(b"int16\xc4\x02\x07\0");
    file[1] = (file.len() - 3) as u8;
    let checkpoint = open(file).unwrap();
    let (_, tensor) = checkpoint.tensor_of(checkpoint.root()).unwrap();
    assert_eq!(tensor.dtype, DType::I16);
}

#[test]
fn invalid_entries_are_skipped_with_damage() {
    // {"a": an array of 3 bytes for 4, "b": an unknown extension, "c": None}
    let mut file = vec![0x83, 0xa1, b'a', 0xc7, 16, 1, 0x93, 0x91, 1, 0xa7];
    file.extend(b"float32\xc4\x03xyz");
    file.extend(b"\xa1b\xd4\x63z\xa1c\xc0");
    let checkpoint = open(file).unwrap();
    let kinds: Vec<&str> =
        checkpoint.leaves().iter().map(|leaf| checkpoint.value(leaf.id).kind()).collect();
    assert_eq!(kinds, ["object", "object", "none"]);
    let grades: Vec<Grade> = checkpoint.findings.iter().map(|finding| finding.grade).collect();
    assert_eq!(grades, [Grade::Damage; 2]);
}

#[test]
fn reads_maps_with_an_integer_key() {
    let array = b"\xc7\x11\x01\x93\x91\x01\xa7float32\xc4\x04\0\0\x80?";
    let checkpoint = open([&b"\x81\x01"[..], array].concat()).unwrap();
    assert_eq!(checkpoint.format.id, "flax");
    assert_eq!(checkpoint.leaves()[0].flat, "1");
    // Without an array, too much else looks like this.
    assert!(open(vec![0x81, 1, 2]).is_err());
}

#[test]
fn refuses_bombs_and_truncated_files() {
    let whole = bytes();
    // After the first array.
    let first = whole.windows(4).position(|bytes| bytes == b"bias").unwrap() - 1;
    for len in 1..whole.len() {
        let error = open(whole[..len].to_vec()).unwrap_err().to_string();
        let is_reported = error.contains("cut short") || len < first;
        assert!(is_reported, "{len}: {error}");
    }
    let key = [0xa1, b'k'];
    let deep: Vec<u8> = [0x81, 0xa1, b'k'].repeat(100_000);
    let wide = [&[0x81][..], &key, &[0xdd, 0xff, 0xff, 0xff, 0xff]].concat();
    let long = [&[0x81][..], &key, &[0xdb, 0xff, 0xff, 0xff, 0xff]].concat();
    let many = [&[0xdf, 0xff, 0xff, 0xff, 0xff][..], &key, &[0xc0]].concat();
    for file in [deep, wide, long, many] {
        assert!(open(file).is_err());
    }
}

#[test]
fn damaged_copies_never_panic() {
    survive("flax", &bytes(), statelens_fixtures::times(200, 2000), |copy| {
        open(copy).map(|open| open.leaves()).is_ok()
    });
}
