//! Tests of layouts and damaged files. The command's tests compare the fixtures with what numpy
//! read.

use crate::damaged_copies::survive;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use statelens_checkpoint::{
    Array, Block, Builder, ByteOrder, Checkpoint, DType, ErrorKind, Field, FileSet, FormatInfo,
    Grade, Layout, Limits, Memory, Outcomes, Plan, Result, Segment, Tensor, Unwatched, Value,
    WrittenSegment,
};

fn fixtures() -> PathBuf {
    statelens_fixtures::root().to_owned()
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(fixtures().join(name)).unwrap()
}

fn open_bytes(name: &str, bytes: Vec<u8>) -> Result<Checkpoint> {
    crate::open(FileSet::single(name, Memory::from(bytes)), &Limits::default(), &mut Unwatched)
}

fn open(name: &str) -> Checkpoint {
    open_bytes(name, bytes(name)).unwrap()
}

fn tensor<'a>(checkpoint: &'a Checkpoint, key: &str) -> &'a Tensor {
    let leaves = checkpoint.leaves();
    let leaf = leaves.iter().find(|leaf| leaf.flat == key).unwrap();
    checkpoint.tensor_of(leaf.id).unwrap().1
}

/// Returns a zip file with these members, deflated.
fn deflated(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut directory = Vec::new();
    for (name, bytes) in members {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        let stored = encoder.finish().unwrap();
        let offset = (file.len() as u32).to_le_bytes();
        // Version, flags, method, time and date, checksum, sizes, lengths of name and extra field.
        let mut facts = vec![20, 0, 0, 0, 8, 0, 0, 0, 0, 0];
        facts.extend(crc32fast::hash(bytes).to_le_bytes());
        facts.extend((stored.len() as u32).to_le_bytes());
        facts.extend((bytes.len() as u32).to_le_bytes());
        facts.extend((name.len() as u32).to_le_bytes());
        file.extend([b"PK\x03\x04", &facts[..], name.as_bytes(), &stored].concat());
        directory
            .extend([b"PK\x01\x02\x14\0", &facts[..], &[0; 10], &offset, name.as_bytes()].concat());
    }
    let count = (members.len() as u16).to_le_bytes();
    let len = (directory.len() as u32).to_le_bytes();
    let start = (file.len() as u32).to_le_bytes();
    [&file[..], &directory, b"PK\x05\x06\0\0\0\0", &count, &count, &len, &start, &[0; 2]].concat()
}

#[test]
fn arrays_are_spans_of_the_file() {
    let plain = open("numpy/plain.npz");
    assert_eq!(plain.format.id, "npz");
    assert!(matches!(tensor(&plain, "f4").layout, Layout::Span(_)));
    assert!(tensor(&plain, "f4").is_verbatim());
    assert!(matches!(tensor(&plain, "fortran").layout, Layout::Strided(_)));
    let packed = open("numpy/compressed.npz");
    assert!(matches!(&tensor(&packed, "b").layout, Layout::Packed(packed) if packed.skip == 128));
    let one = open("numpy/ver3.npy");
    assert_eq!((one.format.id, one.format.version.as_str()), ("npy", "3.0"));
}

/// Returns what `tests/interop/numpy_headers.py` says about an array.
fn described(checkpoint: &Checkpoint) -> serde_json::Value {
    let Value::Array(array) = checkpoint.value(checkpoint.root()) else { return "objects".into() };
    let tensor = checkpoint.tensor(array.tensor).unwrap();
    let order = match tensor.byte_order {
        _ if tensor.dtype.words().is_empty() || !fields(&tensor.dtype).is_empty() => "|",
        ByteOrder::Little => "<",
        ByteOrder::Big => ">",
    };
    let fortran = !checkpoint.format.facts.is_empty();
    serde_json::json!([order, element(&tensor.dtype), tensor.shape, fortran])
}

fn fields(dtype: &DType) -> &[Field] {
    if let DType::Numpy(numpy) = dtype { &numpy.fields } else { &[] }
}

fn element(dtype: &DType) -> Vec<serde_json::Value> {
    if fields(dtype).is_empty() {
        return vec![dtype.numpy_code().into()];
    }
    let field = |field: &Field| {
        let start = vec![field.name.clone().into(), field.offset.into()];
        [start, element(&field.dtype), vec![field.shape.clone().into()]].concat()
    };
    let fields: Vec<_> = fields(dtype).iter().map(field).collect();
    vec![fields.into(), dtype.itemsize().into()]
}

/// Headers that numpy does not write itself, too. Those that it refuses are refused, and a few more.
#[test]
fn headers_mean_what_they_mean_to_numpy() {
    let kinds: serde_json::Value = serde_json::from_slice(&bytes("numpy/headers.json")).unwrap();
    let (mut read, mut unread) = (0, Vec::new());
    for (kind, cases) in kinds.as_object().unwrap() {
        for (text, expected) in cases.as_object().unwrap() {
            let (descr, shape) = match kind.as_str() {
                "descr" => (text.as_str(), "(2,)"),
                _ => ("'<f4'", text.as_str()),
            };
            let header = match kind.as_str() {
                "header" => text.clone(),
                _ => format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}"),
            };
            let latin: Vec<u8> = header.chars().map(|c| c as u8).collect();
            let len = (latin.len() as u16).to_le_bytes();
            let file = [b"\x93NUMPY\x01\0", &len[..], &latin, &[0; 4096]].concat();
            let Ok(checkpoint) = open_bytes("a.npy", file) else {
                unread.extend(Some(text.as_str()).filter(|_| !expected.is_null()));
                continue;
            };
            assert_eq!(described(&checkpoint), *expected, "{header}");
            read += 1;
        }
    }
    assert!(read > 200, "{read}");
    assert_eq!(unread, ["'2<2f4,i1'", "'M8[s/2]'", "'f04'"]);
}

#[test]
fn members_that_are_not_arrays_are_bytes() {
    let checkpoint = open("numpy/mixed_members.npz");
    let leaves = checkpoint.leaves();
    assert_eq!(leaves[1].flat, "readme.txt");
    assert!(
        matches!(checkpoint.value(leaves[1].id), Value::Bytes { data, .. } if &**data == b"hi")
    );
}

#[test]
fn recognises_arrays_by_content() {
    let array = bytes("numpy/f4.npy");
    let mut padded = array.clone();
    padded.extend_from_slice(b"more");
    let members: &[(&str, &[u8])] = &[
        ("a.npy", &array),
        ("a", &array),
        ("long.npy", &padded),
        ("cut.npy", &array[..array.len() - 1]),
        ("broken.npy", b"\x93NUMPY\x01\x00\x05\x00{nope"),
        ("text.npy", b"no array"),
    ];
    let checkpoint = open_bytes("x.npz", deflated(members)).unwrap();
    let kinds: Vec<String> = checkpoint
        .leaves()
        .iter()
        .map(|leaf| format!("{} {}", leaf.flat, checkpoint.value(leaf.id).kind()))
        .collect();
    let expected =
        ["a ndarray", "a ndarray", "long ndarray", "cut object", "broken object", "text bytes"];
    assert_eq!(kinds, expected);
    let grades: Vec<Grade> = checkpoint.findings.iter().map(|finding| finding.grade).collect();
    // Two members that have the same name in numpy; a note; two that can't be read.
    assert_eq!(grades, [Grade::Damage, Grade::Note, Grade::Damage, Grade::Damage]);
    let read = |key: &str| {
        let tensor = tensor(&checkpoint, key);
        statelens_tensor::elements(&checkpoint.files, tensor, 0..6).unwrap()
    };
    assert_eq!(read("a"), array[128..]);
    assert_eq!(read("long"), array[128..]);
}

/// numpy 2.4 refuses such a file, but it is not one of torch's.
#[test]
fn opens_archives_behind_other_bytes() {
    for name in ["x.npz", "x.bin"] {
        let file = [b"#!/bin/sh\n", &bytes("numpy/plain.npz")[..]].concat();
        let checkpoint = open_bytes(name, file).unwrap();
        assert_eq!(checkpoint.format.id, "npz");
        assert!(checkpoint.findings.iter().any(|finding| finding.refused));
        let whole = open("numpy/plain.npz");
        let of = |checkpoint: &Checkpoint| {
            statelens_tensor::elements(&checkpoint.files, tensor(checkpoint, "f4"), 0..2).unwrap()
        };
        assert_eq!(of(&checkpoint), of(&whole));
        let checks = crate::checks(&checkpoint, &Limits::default()).unwrap();
        assert!(checks.broken.is_empty() && !checks.checks.is_empty());
    }
}

/// `numpy.savez(file)` writes only the end of a zip archive.
#[test]
fn opens_archives_without_arrays() {
    let checkpoint = open_bytes("x.npz", deflated(&[])).unwrap();
    assert_eq!((checkpoint.format.id, checkpoint.findings.len()), ("npz", 0));
}

/// `numpy.load` (2.4) returns the last of two members with one name.
#[test]
fn the_last_of_several_members_of_a_name_counts() {
    let first = bytes("numpy/f4.npy");
    let mut last = first.clone();
    *last.last_mut().unwrap() ^= 1;
    let members: &[(&str, &[u8])] = &[("a.npy", &first), ("b.npy", &first), ("a.npy", &last)];
    let checkpoint = open_bytes("x.npz", deflated(members)).unwrap();
    let keys: Vec<String> = checkpoint.leaves().iter().map(|leaf| leaf.flat.to_string()).collect();
    assert_eq!(keys, ["a", "b"]);
    assert_eq!(checkpoint.findings[0].grade, Grade::Damage);
    let read = statelens_tensor::elements(&checkpoint.files, tensor(&checkpoint, "a"), 0..6);
    assert_eq!(read.unwrap(), last[128..]);
}

/// Python decodes names that are not UTF-8 with code page 437: byte 0x82 is `é`, 0xe1 is `ß`.
#[test]
fn names_that_are_not_utf8_are_decoded_as_in_python() {
    let array = bytes("numpy/f4.npy");
    let open = |names: &[&str]| {
        let members: Vec<(&str, &[u8])> = names.iter().map(|name| (*name, &array[..])).collect();
        let mut file = deflated(&members);
        for (from, to) in [(b"1.npy", b"\x82.npy"), (b"2.npy", b"\xe1.npy")] {
            while let Some(at) = file.windows(5).position(|part| part == from) {
                file[at..at + 5].copy_from_slice(to);
            }
        }
        let checkpoint = open_bytes("x.npz", file).unwrap();
        let keys: Vec<String> =
            checkpoint.leaves().iter().map(|leaf| leaf.flat.to_string()).collect();
        (keys, checkpoint.findings.len())
    };
    assert_eq!(open(&["1.npy", "2.npy"]), (vec!["é".into(), "ß".into()], 0));
    // These have the same name in Python.
    assert_eq!(open(&["1.npy", "é.npy"]), (vec!["é".into(), "é.npy".into()], 1));
    assert_eq!(open(&["é.npy", "1.npy"]), (vec!["é".into(), "é.npy".into()], 1));
}

#[test]
fn attacks_are_refused_or_inert() {
    for (name, word) in [
        ("npy_deep_header", "nests deeper"),
        ("npy_eval_header", "not a text, number"),
        ("npy_hdr_len_bomb", "limit"),
        ("npy_neg_shape", "no valid shape"),
        ("npy_shape_bomb", "larger than 64 bits can count"),
    ] {
        let error = open_bytes("a.npy", bytes(&format!("attacks/{name}.npy"))).unwrap_err();
        assert!(error.to_string().contains(word), "{name}: {error}");
        assert!(matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Limit), "{name}: {error}");
    }
    let object = open("attacks/npy_object.npy");
    assert_eq!(object.findings[0].grade, Grade::Danger);
    assert_eq!(object.findings[0].call.as_ref().unwrap().name, "system");
    assert_eq!(tensor(&open("attacks/npy_py2_long.npy"), "").shape, [2]);
    assert_eq!(tensor(&open("attacks/npy_zero_itemsize.npy"), "").nbytes(), Some(0));
    assert!(!Path::new("statelens-canary-PWNED").exists());
}

#[test]
fn truncated_arrays_are_damaged() {
    let whole = bytes("numpy/F3d.npy");
    for len in 6..whole.len() {
        let error = open_bytes("a.npy", whole[..len].to_vec()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{len}: {error}");
    }
}

#[test]
fn empty_archive_is_an_empty_checkpoint() {
    let checkpoint = open_bytes("nothing.npz", deflated(&[])).unwrap();
    assert_eq!(checkpoint.format.id, "npz");
    let (back, _) = written(checkpoint);
    assert!(matches!(back.value(back.root()), Value::Dict(dict) if dict.entries.is_empty()));
}

#[test]
fn damaged_copies_never_panic() {
    for name in
        ["numpy/plain.npz", "numpy/compressed.npz", "numpy/nested_struct.npy", "numpy/object.npy"]
    {
        survive(name, &bytes(name), statelens_fixtures::times(60, 300), |copy| {
            open_bytes(name, copy).map(|open| open.leaves()).is_ok()
        });
    }
}

/// Returns the file of a plan.
fn run(plan: &Plan) -> Vec<u8> {
    let mut out = Vec::new();
    let mut outcomes = vec![Vec::new()];
    for segment in plan.segments() {
        let offset = out.len() as u64;
        match segment {
            Segment::Bytes(bytes) => out.extend_from_slice(bytes),
            Segment::Zeros(len) => out.resize(out.len() + *len as usize, 0),
            Segment::Data(data) => {
                let tensor = plan.source.tensor(data.tensor).unwrap();
                let numel = tensor.numel().unwrap();
                out.extend(
                    statelens_tensor::elements(&plan.source.files, tensor, 0..numel).unwrap(),
                );
            }
            Segment::Late { len, make } => {
                let made = make(&Outcomes::new(&outcomes)).unwrap();
                assert_eq!(*len, Some(made.len() as u64));
                out.extend(made);
            }
        }
        let written = &out[offset as usize..];
        let (len, checksum) = (written.len() as u64, Some(crc32fast::hash(written)));
        outcomes[0].push(WrittenSegment { offset, len, checksum, ..WrittenSegment::default() });
    }
    assert_eq!(plan.size().unwrap().bytes(), out.len() as u64);
    out
}

fn written(source: Checkpoint) -> (Checkpoint, Vec<String>) {
    let target = crate::writing("npz").unwrap().target(&Default::default()).unwrap();
    let plan = crate::plan(Arc::new(source), &target, "x.npz").unwrap();
    let losses = plan.losses.iter().map(|loss| format!("{}: {}", loss.what, loss.keys.join(" ")));
    let losses = losses.collect();
    (open_bytes("x.npz", run(&plan)).unwrap(), losses)
}

/// Returns key, dtype, shape and bytes of every array.
fn arrays(checkpoint: &Checkpoint) -> Vec<(String, String, Vec<u64>, Vec<u8>)> {
    let leaves = checkpoint.leaves();
    let arrays = leaves.iter().filter_map(|leaf| {
        let (_, tensor) = checkpoint.tensor_of(leaf.id)?;
        let numel = tensor.numel().unwrap();
        let bytes = statelens_tensor::elements(&checkpoint.files, tensor, 0..numel).unwrap();
        let dtype = format!("{:?}", tensor.dtype);
        Some((leaf.flat.to_string(), dtype, tensor.shape.clone(), bytes))
    });
    arrays.collect()
}

#[test]
fn written_arrays_are_read_back() {
    for name in ["plain.npz", "slash_keys.npz", "compressed.npz"] {
        let name = format!("numpy/{name}");
        let (back, losses) = written(open(&name));
        assert_eq!(arrays(&back), arrays(&open(&name)), "{name}");
        assert_eq!(losses, [] as [String; 0]);
        let mapped = back.tensors().iter().all(
            |tensor| matches!(tensor.layout, Layout::Span(span) if span.offset.is_multiple_of(64)),
        );
        assert!(mapped, "{name}");
    }
    for (name, dtype) in [
        ("struct.npy", "void112"),
        ("dt64.npy", "datetime64[s]"),
        ("auto_v2_big_header.npy", "void128000"),
    ] {
        let (back, _) = written(open(&format!("numpy/{name}")));
        let [(key, _, _, bytes)] = &arrays(&back)[..] else { panic!("{name}") };
        assert_eq!((&**key, back.tensors()[0].dtype.name()), ("arr_0", dtype));
        assert_eq!(*bytes, arrays(&open(&format!("numpy/{name}")))[0].3);
    }
}

#[test]
fn records_keep_fields_and_padding() {
    let field = |name: &str, offset, code| {
        let dtype = DType::from_numpy_code(code).unwrap();
        let title = String::new();
        (Field { name: name.into(), title, offset, dtype, shape: vec![] }, ByteOrder::Little)
    };
    for (fields, kept) in [
        (vec![field("it's é", 2, "i2"), field("重", 8, "f4")], true),
        (vec![field("a", 0, "i4"), field("b", 2, "i2")], false),
    ] {
        let record = DType::record(16, fields).unwrap();
        let mut builder = Builder::new(&Limits::default());
        let data: Vec<u8> = (0..32).collect();
        let tensor = Tensor::new(record.clone(), vec![2], Layout::Inline(data.clone().into()));
        let tensor = builder.push_tensor(tensor).unwrap();
        let root = builder.push(Value::Array(Array { tensor, scalar: false })).unwrap();
        let source =
            builder.finish(root, FormatInfo::default(), FileSet::default(), Vec::new()).unwrap();
        let (back, losses) = written(source);
        let tensor = &back.tensors()[0];
        assert_eq!(tensor.dtype == record, kept, "{:?}", tensor.dtype);
        // The array gets a name in any case.
        assert_eq!(losses.len(), if kept { 1 } else { 2 }, "{losses:?}");
        assert_eq!(arrays(&back)[0].3, data);
    }
}

#[test]
fn npy_output_matches_numpy() {
    let target = crate::writing("npy").unwrap().target(&Default::default()).unwrap();
    for name in ["f4", "be_f8", "fortran", "struct", "U", "ver2"] {
        let source = open(&format!("numpy/{name}.npy"));
        let plan = crate::plan(Arc::new(source), &target, "x.npy").unwrap();
        assert!(plan.losses.is_empty(), "{name}");
        let back = open_bytes("x.npy", run(&plan)).unwrap();
        assert_eq!(arrays(&back), arrays(&open(&format!("numpy/{name}.npy"))), "{name}");
    }
    // In C order and little-endian, it equals the file that numpy wrote.
    let plan = crate::plan(Arc::new(open("numpy/f4.npy")), &target, "x.npy").unwrap();
    assert_eq!(run(&plan), bytes("numpy/f4.npy"));
    let error = crate::plan(Arc::new(open("numpy/plain.npz")), &target, "x.npy").unwrap_err();
    assert!(error.to_string().contains("--select"), "{error}");
}

#[test]
fn reports_losses_for_numpy() {
    let (back, losses) = written(open("torch/zip_training_ckpt.pt"));
    assert!(losses.iter().any(|loss| loss.starts_with("plain values become arrays")), "{losses:?}");
    assert!(back.leaves().len() > 10);
    let (back, losses) = written(open("torch/zip_new_dtypes.pt"));
    assert!(losses.iter().any(|loss| loss.starts_with("floats of eight")), "{losses:?}");
    assert!(back.tensors().iter().all(|tensor| tensor.dtype.numpy_code().is_some()));
    let (back, losses) = written(open("gguf/quants.gguf"));
    let of = |key: &str| tensor(&back, key).dtype.clone();
    assert_eq!((of("q.Q4_0"), of("q.MXFP4"), of("q.BF16")), (DType::F32, DType::F32, DType::U16));
    assert_eq!(tensor(&back, "q.MXFP4").shape, [4, 512]);
    let reported: Vec<&str> = losses.iter().filter_map(|loss| loss.split(':').next()).collect();
    for what in ["quantised blocks are dequantised to float32", "bfloat16 becomes uint16"] {
        assert!(reported.contains(&what), "{reported:?}");
    }
    // A type of intermediate results, which files don't have.
    static Q8_1: Block = Block { name: "Q8_1", elements: 32, bytes: 40, words: &[] };
    let mut builder = Builder::new(&Limits::default());
    let data = Layout::Inline(vec![0; 80].into());
    let blocks = builder.push_tensor(Tensor::new(DType::Blocks(&Q8_1), vec![2, 32], data)).unwrap();
    let root = builder.push(Value::Tensor(blocks)).unwrap();
    let source = builder.finish(root, FormatInfo::default(), FileSet::default(), Vec::new());
    let (back, losses) = written(source.unwrap());
    assert_eq!((&back.tensors()[0].dtype, &*back.tensors()[0].shape), (&DType::U8, &[2, 40][..]));
    let loss = "quantised blocks become their bytes, as uint8";
    assert!(losses.iter().any(|reported| reported.starts_with(loss)), "{losses:?}");
}

/// Returns the plan of an archive, from a safetensors file with these keys.
fn named(keys: &[&str]) -> Result<Plan> {
    let entry = |(index, key): (usize, &&str)| {
        let offsets = [index * 4, index * 4 + 4];
        let entry = serde_json::json!({ "dtype": "F32", "shape": [1], "data_offsets": offsets });
        ((*key).to_owned(), entry)
    };
    let head: serde_json::Map<String, serde_json::Value> =
        keys.iter().enumerate().map(entry).collect();
    let head = serde_json::to_vec(&head).unwrap();
    let data: Vec<u8> = (0..keys.len()).flat_map(|index| (index as f32).to_le_bytes()).collect();
    let file = [&(head.len() as u64).to_le_bytes()[..], &head, &data].concat();
    let source = open_bytes("x.safetensors", file)?;
    let target = crate::writing("npz").unwrap().target(&Default::default()).unwrap();
    crate::plan(Arc::new(source), &target, "x.npz")
}

#[test]
fn refuses_members_outside_the_folder() {
    let keys = ["../../etc/cron/x", "/abs", "C:\\x", "a\0b", "a/./b", "plain", "a/b", "50%"];
    let plan = named(&keys).unwrap();
    let lost: Vec<_> = plan.losses.iter().filter(|loss| !loss.harmless).collect();
    assert_eq!(lost.len(), 1, "{:?}", plan.losses);
    assert!(
        lost[0].what.starts_with("in names that are not safe as file names"),
        "{}",
        lost[0].what
    );
    assert_eq!(lost[0].keys.len(), 5);
    let back = open_bytes("x.npz", run(&plan)).unwrap();
    let mut found: Vec<String> =
        back.leaves().iter().map(|leaf| leaf.flat.to_lossy().into_owned()).collect();
    found.sort();
    let safe = [
        "%2E%2E/%2E%2E/etc/cron/x",
        "%2Fabs",
        "50%",
        "C%3A%5Cx",
        "a%00b",
        "a/%2E/b",
        "a/b",
        "plain",
    ];
    assert_eq!(found, safe);
    assert!(back.findings.is_empty(), "{:?}", back.findings);
    // Names that would collide are still refused.
    let error = named(&["../x", "%2E%2E/x"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
}

#[test]
fn warns_about_members_outside_the_folder() {
    let array = bytes("numpy/f4.npy");
    for name in ["../../x.npy", "/etc/x.npy", "a/../../x.npy", "C:x.npy", "a\\..\\x.npy"] {
        let found = open_bytes("x.npz", deflated(&[("fine.npy", &array), (name, &array)])).unwrap();
        assert_eq!(found.leaves().len(), 2);
        let [finding] = found.findings.as_slice() else { panic!("{:?}", found.findings) };
        assert_eq!((finding.grade, finding.place.as_str()), (Grade::Warning, name));
    }
}

/// NumPy: "we only support format version (1,0), (2,0), and (3,0)".
#[test]
fn refuses_minor_versions() {
    let text = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }\n";
    for (minor, opens) in [(0, true), (1, false)] {
        let len = (text.len() as u16).to_le_bytes();
        let bytes = [&b"\x93NUMPY\x01"[..], &[minor], &len, text, b"\x07"].concat();
        let files = FileSet::single("a.npy", Memory::from(bytes));
        let opened = crate::open(files, &Limits::default(), &mut Unwatched);
        assert_eq!(opened.is_ok(), opens, "{opened:?}");
    }
}
