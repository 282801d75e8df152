//! Graphs of TensorFlow and ONNX, whose operators may call Python or use files.

use super::*;

/// A field of a protocol buffer with a length.
fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    for mut value in [number << 3 | 2, bytes.len() as u64] {
        while value > 0x7f {
            field.push(value as u8 | 0x80);
            value >>= 7;
        }
        field.push(value as u8);
    }
    join(&[&field, bytes])
}

fn node(operator: &str) -> Vec<u8> {
    join(&[&field(1, b"x"), &field(2, operator.as_bytes())])
}

fn saved_model(graph: &[u8]) -> Vec<u8> {
    join(&[b"\x08\x01", &field(2, &field(2, graph))])
}

/// A model with a weight in another file.
fn onnx(location: &str) -> Vec<u8> {
    let entry = join(&[&field(1, b"location"), &field(2, location.as_bytes())]);
    let tensor = join(&[b"\x08\x04\x10\x01", &field(8, b"w"), &field(13, &entry), b"\x70\x01"]);
    join(&[b"\x08\x08", &field(2, b"pytorch"), &field(7, &field(5, &tensor))])
}

#[test]
fn examines_graphs() {
    let write = field(1, &node("WriteFile"));
    let function = field(2, &field(1, &field(3, &node("EagerPyFunc"))));
    let print = field(5, &field(2, &field(2, b"file:///tmp/x")));
    let print = field(1, &join(&[&node("PrintV2"), &print]));
    let python = field(1, &field(4, b"PyOp"));
    for (name, bytes) in [
        ("saved_model.pb", saved_model(&write)),
        ("renamed.bin", saved_model(&write)),
        ("in a group", saved_model(&join(&[b"\x0b", &write, b"\x0c"]))),
        ("saved_model.pb", saved_model(&function)),
        ("saved_model.pb", saved_model(&print)),
        ("frozen.pb", write.clone()),
        ("model.ckpt-1.meta", field(2, &write)),
        ("saved_model.pbtxt", b"node {\n  name: \"x\"\n  op: \"ReadFile\"\n}\n".to_vec()),
        ("saved_model.pbtxt", b"node {\n  op: \"Read\\106ile\"\n}\n".to_vec()),
        ("assets.pb", field(2, &field(6, &field(2, b"../../x")))),
        ("model.onnx", onnx("../../etc/passwd")),
        ("model.onnx", onnx("/etc/passwd")),
        ("renamed.bin", onnx("..\\x")),
        ("model.onnx", join(&[b"\x08\x08", &field(7, &python)])),
        ("model.onnx", {
            // Parsers in C++ drop the bits of a tag above 32.
            let entry = join(&[b"\x92\x80\x80\x80\x90\x01\x02/x"]);
            let tensor = field(13, &entry);
            join(&[b"\x08\x08", &field(7, &field(5, &tensor))])
        }),
        ("packed.zip", zip(&[member("m/saved_model.pb", &saved_model(&write))])),
    ] {
        let worst = worst(name, bytes.clone());
        assert!(worst >= Some(Grade::UnknownCode), "{name}: {worst:?} {bytes:?}");
    }
}

#[test]
fn graphs_that_only_compute_are_no_finding() {
    let operators = ["MatMul", "Const", "RestoreV2", "SaveV2", "MergeV2Checkpoints", "PrintV2"];
    let nodes: Vec<u8> = operators.iter().flat_map(|name| field(1, &node(name))).collect();
    for (name, bytes) in [
        ("saved_model.pb", saved_model(&nodes)),
        ("frozen.pb", nodes.clone()),
        ("model.onnx", onnx("model.onnx_data")),
        ("model.onnx", onnx("data/w.bin")),
        ("saved_model.pbtxt", b"node { name: \"WriteFiles\" op: \"MatMul\" }\n".to_vec()),
    ] {
        let findings = scan(name, bytes);
        assert!(findings.iter().all(|finding| finding.grade < Grade::Warning), "{findings:?}");
    }
}

/// Messages within messages, as deep as the file allows; a text beyond the limit; lengths beyond
/// the file.
#[test]
fn graphs_of_any_size_end() {
    let mut nested = Vec::new();
    for _ in 0..3_000 {
        nested = field(1, &field(5, &field(6, &nested)));
    }
    let model = join(&[b"\x08\x08", &field(7, &nested)]);
    assert_eq!(worst("model.onnx", model), Some(Grade::UnknownCode));
    assert_eq!(worst("long.pbtxt", vec![b' '; (32 << 20) + 1]), Some(Grade::UnknownCode));
    let far = [0x08, 0x01, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0];
    scan("saved_model.pb", far.to_vec());
}
