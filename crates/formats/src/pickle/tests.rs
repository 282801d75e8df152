//! Compares real pickles with what Python read from them.

use statelens_checkpoint::Value;

use crate::torch::tests::{differences, expected_in, open};

#[test]
fn values_match_python() {
    for name in expected_in("pickle") {
        // This one has no expectation; see the next test.
        let except: &[&str] = if name == "pickle/p5_oob_inline.pkl" { &["w"] } else { &[] };
        assert_eq!(differences(&name, except), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn in_band_buffer_is_a_bytearray() {
    let checkpoint = open("pickle/p5_oob_inline.pkl").unwrap();
    let leaves = checkpoint.leaves();
    assert_eq!(leaves.len(), 1);
    assert_eq!(leaves[0].flat, "w");
    let expected = Value::Bytes { data: (*b"abc").into(), mutable: true };
    assert_eq!(checkpoint.value(leaves[0].id), &expected);
}
