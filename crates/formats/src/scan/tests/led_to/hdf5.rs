//! Values of HDF5 files, each of which may be a pickle or a Keras configuration.

use std::sync::Arc;

use statelens_checkpoint::Segment;
use statelens_hdf5::write::{
    Attribute, AttributeValue, CompoundField, Content, Dataset, Datatype, FilePlan, Space,
};

use super::*;

/// [`HIDDEN`] as text.
const TEXT: &str = "]I1\naI0\nI2\ns.";

fn file(plan: FilePlan) -> Vec<u8> {
    let mut bytes = Vec::new();
    for segment in plan.plan(None).unwrap().segments {
        match segment {
            Segment::Bytes(part) => bytes.extend_from_slice(&part),
            Segment::Zeros(len) => bytes.resize(bytes.len() + len as usize, 0),
            _ => panic!("a segment that is not known"),
        }
    }
    bytes
}

fn with_attribute(name: &'static str, value: AttributeValue) -> Vec<u8> {
    let mut plan = FilePlan::new();
    plan.attributes.push(Attribute::new(name, value));
    file(plan)
}

fn with_dataset(datatype: Datatype, count: u64, bytes: Vec<u8>) -> Vec<u8> {
    let mut plan = FilePlan::new();
    add(&mut plan, "a", datatype, count, bytes);
    file(plan)
}

fn add(plan: &mut FilePlan, name: &str, datatype: Datatype, count: u64, bytes: Vec<u8>) {
    let (space, content) = (Space::Simple(vec![count]), Content::Bytes(bytes));
    plan.add(name, Dataset { datatype, space, content, attributes: [].into() }).unwrap();
}

fn record(datatype: Datatype, dims: Vec<u32>) -> Datatype {
    let field = CompoundField { name: "f".to_owned(), offset: 3, dims, datatype };
    Datatype::Compound { size: 3 + TEXT.len() as u32, fields: vec![field] }
}

#[test]
fn examines_every_value_of_hdf5() {
    let (text, len) = (TEXT.as_bytes().to_vec(), TEXT.len() as u32);
    let behind = [b"\xff\xff\xff", &text[..]].concat();
    let byte = Datatype::Int { size: 1, signed: false };
    let mut silent = Vec::new();
    for (what, bytes) in [
        ("a text", with_attribute("a", AttributeValue::Text(TEXT.to_owned()))),
        ("texts", {
            with_attribute("a", AttributeValue::Texts(vec!["x".to_owned(), TEXT.to_owned()]))
        }),
        ("bytes", with_attribute("a", AttributeValue::Bytes(Arc::from(&*text)))),
        ("strings", with_dataset(Datatype::FixedAscii(len), 1, text.clone())),
        ("opaque", with_dataset(Datatype::Opaque(len), 1, text.clone())),
        ("integers", with_dataset(byte.clone(), len.into(), text.clone())),
        (
            "strings in a record",
            with_dataset(record(Datatype::FixedAscii(len), vec![]), 1, behind.clone()),
        ),
        ("an array of strings in a record", {
            let field = CompoundField {
                name: "f".to_owned(),
                offset: 0,
                dims: vec![2],
                datatype: Datatype::FixedAscii(len),
            };
            let record = Datatype::Compound { size: 2 * len, fields: vec![field] };
            with_dataset(record, 1, [vec![0xff; text.len()], text.clone()].concat())
        }),
        ("integers in a record", with_dataset(record(byte, vec![len]), 1, behind.clone())),
        ("a record in a record", {
            let inner = record(Datatype::FixedAscii(len), vec![]);
            let field =
                CompoundField { name: "r".to_owned(), offset: 2, dims: vec![], datatype: inner };
            let outer = Datatype::Compound { size: 5 + len, fields: vec![field] };
            with_dataset(outer, 1, [b"\xff\xff", &behind[..]].concat())
        }),
    ] {
        if !is_hidden_found(bytes) {
            silent.push(what);
        }
    }
    assert_eq!(silent, Vec::<&str>::new());
    let lambda = r#"{"class_name":"Lambda","config":{"function":["4wEA",null,null]}}"#;
    for name in ["model_config", "training_config", "layer_config"] {
        let bytes = with_attribute(name, AttributeValue::Text(lambda.to_owned()));
        assert_eq!(worst("x.bin", bytes), Some(Grade::Danger), "{name}");
    }
    // A configuration may begin with a byte order mark.
    let bytes = with_attribute("model_config", AttributeValue::Text("\u{feff}{}".to_owned()));
    assert!(worst("x.bin", bytes) <= Some(Grade::Warning));
}

/// The search through all bytes finds none of these.
#[test]
fn finds_pickles_within_decoded_values() {
    let file = statelens_fixtures::read("attacks_hdf5/shuffled_strings.h5");
    assert_eq!(worst("x.bin", file), Some(Grade::Danger));
    for name in ["enumeration", "bit_field", "nested_sequences"] {
        let file = statelens_fixtures::read(&format!("attacks_hdf5/{name}.h5"));
        assert!(is_hidden_found(file), "{name}");
    }
}

/// Values beyond the limits are findings, each with its own text.
#[test]
fn reports_values_beyond_the_limits() {
    let strings = |size: u32, count: u64| {
        let datatype = Datatype::FixedAscii(size);
        with_dataset(datatype, count, vec![b'x'; size as usize * count as usize])
    };
    let findings = scan("x.bin", strings(1 << 10, (64 << 10) + 1));
    assert!(is_unseen(&findings, "a dataset", "more bytes"), "{findings:?}");
    let findings = scan("x.bin", strings(2, (4 << 20) + 1));
    assert!(is_unseen(&findings, "a part", "values in one value"), "{findings:?}");
    let mut plan = FilePlan::new();
    for name in ["a", "b"] {
        let count = 5 << 19;
        let bytes = vec![b'x'; 2 * count];
        add(&mut plan, name, Datatype::FixedAscii(2), count as u64, bytes);
    }
    let findings = scan("x.bin", file(plan));
    assert!(is_unseen(&findings, "all attributes and strings", "too many"), "{findings:?}");
    // The search through all bytes covers integers.
    let byte = Datatype::Int { size: 1, signed: true };
    let long = with_dataset(byte, (64 << 20) + 1, vec![0; (64 << 20) + 1]);
    assert!(worst("x.bin", long) <= Some(Grade::Warning));
}

/// Each part of a file that can't be read may hide a value.
#[test]
fn reports_unreadable_parts() {
    let whole = with_dataset(Datatype::FixedAscii(9), 1, b"text text".to_vec());
    assert!(worst("x.bin", whole.clone()) <= Some(Grade::Warning));
    let mut silent = Vec::new();
    for signature in ["SNOD", "HEAP", "TREE"] {
        let found = whole.windows(4).position(|bytes| bytes == signature.as_bytes());
        let mut broken = whole.clone();
        broken[found.unwrap()] = b'x';
        for bytes in [broken.clone(), join(&[&noise(99), &broken])] {
            if !is_unseen(&scan("x.bin", bytes), "a part of the HDF5 file", "") {
                silent.push(signature);
            }
        }
    }
    let superblock = join(&[&noise(99), b"\x89HDF\r\n\x1a\n", &[9; 100]]);
    let findings = scan("x.bin", superblock);
    let detail = "unsupported superblock version 9.";
    assert!(findings.iter().any(|finding| finding.detail == detail), "{findings:?}");
    // More objects than the limit allows.
    let mut plan = FilePlan::new();
    for name in ["a", "b", "c"] {
        add(&mut plan, name, Datatype::FixedAscii(1), 1, b"x".to_vec());
    }
    let mut limits = Limits::default();
    limits.members = 3;
    let findings = scan_with("x.bin", join(&[&noise(99), &file(plan)]), &limits);
    assert!(is_unseen(&findings, "a part of the HDF5 file", "objects in the file"), "{findings:?}");
    assert_eq!(silent, Vec::<&str>::new());
}
