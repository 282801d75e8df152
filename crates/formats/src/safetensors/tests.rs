//! Compares real files with what the reference library read from them, and tests each rule.

use std::sync::Arc;

use serde_json::Value as Json;
use statelens_checkpoint::{
    ByteOrder, Checkpoint, DType, ErrorKind, FileSet, FindingKind, Grade, Layout, Limits, Memory,
    Result, Tensor, Unwatched, Value,
};

use crate::counted::CountedFile;
use crate::torch::tests::{compare, expected_in, fixtures, open};

/// Returns a file with this header, padded as by the reference library, and `data` bytes of data.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend((0..data).map(|n| n as u8));
    bytes
}

fn read(bytes: Vec<u8>) -> Result<Checkpoint> {
    let files = FileSet::single("x.safetensors", Memory::from(bytes));
    crate::open(files, &Limits::default(), &mut Unwatched)
}

fn keys(checkpoint: &Checkpoint) -> Vec<String> {
    let leaves = checkpoint.leaves();
    leaves.iter().map(|leaf| leaf.flat.to_string()).collect()
}

fn expected(name: &str) -> Json {
    let text = std::fs::read_to_string(fixtures().join(format!("{name}.expected.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Returns the differences from the expectation. Its entries are in the order of the saved dict;
/// the file has another order.
fn differences(checkpoint: &Checkpoint, expected: &Json) -> Vec<String> {
    let mut differences = Vec::new();
    let leaves = checkpoint.leaves();
    let entries = expected["entries"].as_array().unwrap();
    for entry in entries {
        let key = entry["key"].as_str().unwrap();
        match leaves.iter().find(|leaf| leaf.flat == key) {
            Some(leaf) => differences.extend(
                compare(checkpoint, leaf, entry).err().map(|error| format!("{key}: {error}")),
            ),
            None => differences.push(format!("{key:?} is not there")),
        }
    }
    if leaves.len() != entries.len() && !entries.is_empty() {
        differences.push(format!("{} leaves, expected {}", leaves.len(), entries.len()));
    }
    differences
}

#[test]
fn verdicts_and_values_match_the_reference_library() {
    let mut failures = Vec::new();
    let (mut accepted, mut refused, mut repairable, mut damaged, mut compared) = (0, 0, 0, 0, 0);
    for name in expected_in("safetensors") {
        let expected = expected(&name);
        match (open(&name), expected["reference_error"].as_str()) {
            (Ok(checkpoint), None) => {
                accepted += 1;
                compared += expected["entries"].as_array().unwrap().len();
                let differences = differences(&checkpoint, &expected);
                failures.extend(differences.into_iter().map(|text| format!("{name}: {text}")));
            }
            (Err(error), Some(_)) => {
                refused += 1;
                let kinds = [ErrorKind::Damaged, ErrorKind::Unsupported];
                assert!(kinds.contains(&error.kind()), "{name}: {error}");
            }
            // Intact tensors in a file that the library refuses.
            (Ok(checkpoint), Some(_))
                if checkpoint
                    .findings
                    .iter()
                    .any(|found| found.refused && found.kind == FindingKind::LeftOut) =>
            {
                repairable += 1;
            }
            // The complete part of a truncated file is opened and reported as damaged.
            (Ok(checkpoint), Some(_))
                if checkpoint.findings.iter().any(|found| found.grade == Grade::Damage) =>
            {
                damaged += 1;
            }
            (Ok(_), Some(reference)) => failures.push(format!("{name}: opens; {reference}")),
            (Err(error), None) => failures.push(format!("{name}: {error}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!((accepted, refused, repairable, damaged), (14, 13, 3, 1));
    assert!(compared > 12, "{compared}");
}

/// Each rule of the reference library has its own message.
#[test]
fn errors_name_the_violated_rule() {
    for (name, words) in [
        ("x_deep_json", "an array where an object belongs"),
        ("x_empty_file", "empty"),
        ("x_header_100MB_plus", "claims 100,000,001 bytes, and the file has "),
        ("x_header_too_big", "cut short, or is not a safetensors file"),
        ("x_overlap", "the data of `b` overlaps that of the tensor before it by "),
        ("x_invalid_utf8", "not UTF-8 (at byte 11)"),
        ("x_neg_offsets", "`a` ends before it begins"),
        ("x_not_json", "something that is not a value"),
        ("x_null_pad", "something after the end"),
        ("x_shape_mismatch", "its data_offsets leave it"),
        ("x_shape_overflow", "does not fit 64 bits"),
        ("x_unknown_dtype", "has no dtype F99"),
        ("x_zero_header", "nothing but zeros"),
    ] {
        let error = open(&format!("safetensors/{name}.safetensors")).unwrap_err().to_string();
        assert!(error.contains(words), "{name}: {error}");
    }
}

/// The low byte of a header's length may be an opcode with which a pickle can begin.
#[test]
fn cut_files_with_any_length_are_not_pickles() {
    let text: &[u8] =
        br#"{"data.sample.0000000":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"#;
    // 0x80 and a version are the first bytes of a pickle.
    let marked = [0x0280, 0x0380, 0x0480, 0x0580, 0x1_0280];
    let high = (0x0718_7a00_u64..=0x0718_7aff).chain([600_000_000, 5_000_000_000]);
    for length in marked.into_iter().chain(high) {
        let text = if length == 0x0280 { &text[..50] } else { text };
        let bytes = [&length.to_le_bytes()[..], &text.repeat(9)].concat();
        for name in ["m.safetensors", "m.bin"] {
            let files = FileSet::single(name, Memory::from(bytes.clone()));
            let error = crate::open(files, &Limits::default(), &mut Unwatched).unwrap_err();
            assert!(error.what().starts_with("the header claims"), "{name} {length}: {error}");
        }
    }
}

/// A file of one byte per element, with spaces between its header and its data.
#[derive(Debug)]
struct LongHeader(u64);

impl statelens_checkpoint::ReadAt for LongHeader {
    fn len(&self) -> u64 {
        8 + self.0 + 2
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> statelens_checkpoint::Result<()> {
        let start = [
            &self.0.to_le_bytes()[..],
            br#"{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#,
        ]
        .concat();
        for (at, byte) in (offset..).zip(buffer) {
            *byte = start.get(at as usize).copied().unwrap_or(b' ');
        }
        Ok(())
    }
}

#[test]
fn headers_above_the_limit_of_the_library_open_with_higher_limits() {
    let open = |limits: &Limits| {
        let files = FileSet::single("m.bin", LongHeader(100_000_001));
        crate::open(files, limits, &mut Unwatched)
    };
    let error = open(&Limits::default()).unwrap_err();
    assert_eq!(error.kind(), statelens_checkpoint::ErrorKind::Limit);
    assert!(
        error.what().contains("100,000,001 bytes, more than the limit of 100,000,000"),
        "{error}"
    );
    let opened = open(&Limits::times(2)).unwrap();
    assert_eq!(opened.leaves().len(), 1);
    assert!(opened.findings.iter().any(|finding| finding.refused), "{:?}", opened.findings);
}

#[test]
fn checks_rules_without_fixtures() {
    let refused = [
        ("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "not whole bytes"),
        ("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "not two numbers"),
        ("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, "not two numbers"),
        ("{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1, "a number where"),
        ("{\"a\":{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}}", 1, "a number where"),
        ("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "no field `data_offsets`"),
        (
            "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
            1,
            "two fields",
        ),
        ("{\"a\":[]}", 0, "an array where an object belongs"),
        ("[]", 0, "an array where an object belongs"),
        ("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "two entries"),
        ("{\"a\":", 0, "its end"),
    ];
    for (header, data, words) in refused {
        let error = read(file(header, data)).unwrap_err().to_string();
        assert!(error.contains(words), "{header}: {error}");
    }
    let nested = |depth| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        read(file(
            &format!(
                "{{\"a\":{{\"x\":{open}{close},\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}}}"
            ),
            0,
        ))
    };
    assert!(nested(125).is_ok());
    let error = nested(126).unwrap_err().to_string();
    assert!(error.contains("nested too deep"), "{error}");
    let cut = file("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    // Without its last byte, the file has a complete header and a missing tensor.
    for len in 0..cut.len() - 1 {
        assert!(read(cut[..len].to_vec()).is_err(), "{len}");
    }
    let error = read(cut[..20].to_vec()).unwrap_err().to_string();
    assert!(error.contains("and the file has 12 after it"), "{error}");
    assert!(read(file("{\"__metadata__\":null}", 0)).is_ok());
}

#[test]
fn opens_complete_tensors_of_a_truncated_file() {
    let header = "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\
        \"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[2,10]},\
        \"c\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[10,10]}}";
    for (there, whole) in [(10, 3), (9, 1), (2, 1), (1, 0), (0, 0)] {
        let checkpoint = read(file(header, there)).unwrap();
        let is_there = |tensor: &&Tensor| !matches!(tensor.layout, Layout::Missing(_));
        assert_eq!(checkpoint.tensors().iter().filter(is_there).count(), whole, "{there}");
        let damage = checkpoint.findings.iter().filter(|found| found.grade == Grade::Damage);
        assert_eq!(damage.count(), usize::from(there < 10), "{there}");
    }
    let fixture = open("safetensors/x_short.safetensors").unwrap();
    assert!(fixture.findings[0].title.contains("cut short"), "{:?}", fixture.findings);
}

#[test]
fn sub_byte_dtypes_are_counted_as_in_torch() {
    let checkpoint = open("safetensors/f4.safetensors").unwrap();
    let tensor = &checkpoint.tensors()[0];
    assert_eq!((&tensor.dtype, &tensor.shape[..]), (&DType::F4E2M1FNX2, &[2, 4][..]));
    let checkpoint = open("safetensors/x_f4.safetensors").unwrap();
    let shown: Vec<(&str, &[u64], u64)> = checkpoint
        .tensors()
        .iter()
        .map(|tensor| (tensor.dtype.name(), &tensor.shape[..], tensor.nbytes().unwrap()))
        .collect();
    assert_eq!(
        shown,
        [
            ("float4_e2m1fn_x2", &[2, 2][..], 4),
            ("F6_E2M3", &[4][..], 3),
            ("F6_E3M2", &[4][..], 3),
            ("float8_e8m0fnu", &[2][..], 2),
        ]
    );
    let odd = "{\"a\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[0,3]}}";
    let checkpoint = read(file(odd, 3)).unwrap();
    let tensor = &checkpoint.tensors()[0];
    assert_eq!((&tensor.dtype, &tensor.shape[..]), (&DType::F4E2M1FNX2, &[3][..]));
    assert_eq!(checkpoint.findings[0].title, "a is shown as one row");
}

#[test]
fn tied_weights_of_save_model_are_links() {
    let checkpoint = open("safetensors/save_model_tied.safetensors").unwrap();
    let leaves = checkpoint.leaves();
    assert_eq!(keys(&checkpoint), ["a.bias", "a.weight", "b.bias", "b.weight"]);
    assert_eq!(leaves[3].alias_of, Some("a.weight".into()));
    assert!(checkpoint.raw_attributes(checkpoint.root()).is_empty());
}

#[test]
fn metadata_becomes_attributes_of_the_root() {
    let header = "{\"__metadata__\":{\"format\":\"pt\",\"note\":\"x\"}}";
    let checkpoint = read(file(header, 0)).unwrap();
    let attributes = checkpoint.raw_attributes(checkpoint.root());
    assert_eq!(attributes, [("format".into(), "pt".into()), ("note".into(), "x".into())]);
    assert!(checkpoint.format.facts.contains(&("metadata format".into(), "pt".into())));
}

#[test]
fn reads_plain_values_from_the_metadata() {
    let values = r#"{"version": 1, "values": {"lr": 1e-3, "step": 12345678901234567890123, "n": NaN,
        "t": true, "u": null, "s": "x", "b": {"bytes": "00fF"}, "c": {"complex": [1, -0.5]},
        "e": {"empty": "dict"}, "d": {"dtype": "bfloat16"}, "o": {"device": "cuda:0"}}}"#;
    let metadata = |text: &str| {
        let text = serde_json::to_string(text).unwrap();
        read(file(&format!("{{\"__metadata__\":{{\"statelens\":{text}}}}}"), 0)).unwrap()
    };
    let checkpoint = metadata(values);
    let found: Vec<&Value> =
        checkpoint.leaves().iter().map(|leaf| checkpoint.value(leaf.id)).collect::<Vec<_>>();
    assert_eq!(keys(&checkpoint), ["lr", "step", "n", "t", "u", "s", "b", "c", "e", "d", "o"]);
    assert_eq!(found[0], &Value::Float(0.001));
    assert!(matches!(found[1], Value::Int(int) if int.to_string() == "12345678901234567890123"));
    assert!(matches!(found[2], Value::Float(float) if float.is_nan()));
    assert_eq!(found[6], &Value::Bytes { data: Arc::new([0, 255]), mutable: false });
    assert_eq!(found[7], &Value::Complex(1.0, -0.5));
    assert_eq!(found[9], &Value::DType { dtype: DType::BF16, numpy: None });
    assert!(checkpoint.findings.is_empty());

    // Metadata with this key that Statelens did not write is kept unchanged.
    for other in ["", "7", "{\"version\": 2}", "{\"version\": 1, \"values\": {\"a\": [1]}}"] {
        let checkpoint = metadata(other);
        assert_eq!(checkpoint.findings.len(), 1, "{other}");
        assert_eq!(checkpoint.raw_attributes(checkpoint.root()).len(), 1);
    }
}

#[test]
fn reports_duplicate_names() {
    let checkpoint = open("safetensors/x_dup_key.safetensors").unwrap();
    assert_eq!(keys(&checkpoint).len(), 1);
    assert!(checkpoint.findings[0].title.contains("twice"));
}

#[test]
fn shards_contain_every_saved_key() {
    let folder = fixtures().join("hf_sharded_safetensors");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names.len(), 4);
    let expected = expected("hf_sharded_safetensors");
    for main in 0..names.len() {
        let mut files = FileSet::default();
        let order = std::iter::once(main).chain((0..names.len()).filter(|at| *at != main));
        for at in order {
            let bytes = std::fs::read(folder.join(&names[at])).unwrap();
            files.push(names[at].clone(), Arc::new(Memory::from(bytes)));
        }
        assert_eq!(crate::sets::sort(&files)[0].main, "model.safetensors.index.json");
        let checkpoint = crate::open(files, &Limits::default(), &mut Unwatched).unwrap();
        assert_eq!(differences(&checkpoint, &expected), [""; 0], "opened at {}", names[main]);
        let order: Vec<&str> = expected["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e["key"].as_str().unwrap())
            .collect();
        assert_eq!(keys(&checkpoint), order);
        assert!(checkpoint.findings.is_empty(), "{:?}", checkpoint.findings);
    }
}

#[test]
fn opens_20_000_tensors() {
    let mut header = String::from("{");
    for index in 0..20_000 {
        let comma = if index > 0 { "," } else { "" };
        let (begin, end) = (index * 4, index * 4 + 4);
        header += &format!(
            "{comma}\"model.layers.{index}.weight\":{{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[{begin},{end}]}}"
        );
    }
    header += "}";
    let bytes = file(&header, 80_000);
    let source = Arc::new(CountedFile::new(bytes));
    let mut files = FileSet::default();
    files.push("x.safetensors", source.clone());
    let checkpoint = crate::open(files, &Limits::default(), &mut Unwatched).unwrap();
    assert_eq!(checkpoint.tensors().len(), 20_000);
    source.assert_read_at_most(2, "20,000 tensors");
    let last = &checkpoint.tensors()[19_999];
    let data = 8 + header.len() as u64;
    assert!(matches!(&last.layout, Layout::Span(span) if span.offset == data + 79_996));
    assert_eq!(last.byte_order, ByteOrder::Little);
}
