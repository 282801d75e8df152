//! Pickles in which joblib reads arrays.

use statelens_fixtures::opcodes;

use super::*;

/// Returns a pickle of protocol 2 without `STOP`.
fn pickle(notation: &str) -> Vec<u8> {
    [&b"\x80\x02"[..], &opcodes(notation)].concat()
}

/// Returns the opcodes of a dtype for joblib.
fn dtype(text: &str) -> String {
    format!("cnumpy\ndtype\n(«{text}»\u{89}\u{88}tR")
}

/// Returns the opcodes of joblib's description of an array of two elements.
fn wrapper(dtype: &str, more: &str) -> String {
    format!(
        "cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\u{81}q\x07}}(«subclass»cnumpy\nndarray\n«shape»\
         K\x02\u{85}«order»«C»«allow_mmap»\u{88}{more}«dtype»{dtype}ub"
    )
}

/// [`HIDDEN`] is found if joblib's arrays have the length that joblib reads.
#[test]
fn joblib_array_lengths_match_joblib() {
    let plain = "I3\n«|»NNNI8\nI1\nI0\n";
    let described = |text: &str, state: &str| format!("{}({state}tb", dtype(text));
    let file = |wrapper: &str, data: &[u8], rest: &[u8]| join(&[&pickle(wrapper), data, rest]);
    let hidden = join(&[b"0", HIDDEN]);
    for (what, wrapper, len) in [
        ("floats", wrapper(&dtype("f8"), ""), 16),
        ("texts", wrapper(&dtype("U3"), ""), 24),
        ("bytes that are described", wrapper(&described("V8", plain), ""), 16),
        ("padding", wrapper(&dtype("f8"), "«numpy_array_alignment_bytes»K\x10"), 1 + 0x5d + 16),
        ("no padding", wrapper(&dtype("f8"), "«numpy_array_alignment_bytes»N"), 16),
    ] {
        // No opcode, so that the length must be exact. The first byte is the length of the padding.
        let mut data = vec![0xff; len];
        if what == "padding" {
            data[0] = 0x5d;
        }
        assert!(is_hidden_found(file(&wrapper, &data, &hidden)), "{what}");
        let found = worst("x.bin", file(&wrapper, &data, b"."));
        assert!(found <= Some(Grade::Warning), "{what}: {found:?}");
    }
    // A pickle in place of an array of objects.
    let objects = wrapper(&dtype("O"), "");
    assert!(is_hidden_found(file(&objects, HIDDEN, b".")));
    // The second array's class is in the memo, where the search through all bytes does not see it.
    let class = "cjoblib.numpy_pickle\nNumpyArrayWrapper\n";
    let first = objects.replace(class, &format!("{class}q\x05"));
    let second = objects.replace(class, "h\x05");
    let two = join(&[&pickle(&first), b"N.0", &opcodes(&second), HIDDEN, b"."]);
    assert!(is_hidden_found(two));
    // joblib leaves an array on the stack, which has a state of its own.
    let state = opcodes(&format!("(I1\n(I1\nt{}\u{89}«AAAAAAAA»tb.", dtype("f8")));
    let found = worst("x.bin", file(&wrapper(&dtype("f8"), ""), &[0xff; 16], &state));
    assert!(found <= Some(Grade::Warning), "{found:?}");
    for (what, wrapper) in [
        ("another letter", wrapper(&dtype("T8"), "")),
        ("no dtype", wrapper("ccollections\nOrderedDict\n(«f8»tR", "")),
        ("another size", wrapper(&described("V8", "I3\n«|»NNNI4\nI1\nI0\n"), "")),
        ("another version", wrapper(&described("V8", &plain.replace("I3", "I9")), "")),
        ("two descriptions", wrapper(&format!("{}({plain}tb", described("V8", plain)), "")),
        ("described as objects", wrapper(&described("V8", "I3\n«|»NNNI8\nI1\nI1\n"), "")),
        (
            "a state that is no dict",
            "cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\u{81}Nb".to_owned(),
        ),
        // The array is read again, by what both states say.
        ("two states", {
            let (first, second) = (wrapper(&dtype("i1"), ""), dtype("i4"));
            format!("{first}\u{ff}\u{ff}0h\x07}}«dtype»{second}sb")
        }),
        ("a shape of texts", wrapper(&dtype("f8"), "").replace("K\x02\u{85}", "«2»\u{85}")),
        ("past the end", wrapper(&dtype("S9999"), "")),
    ] {
        let findings = scan("x.bin", file(&wrapper, &[b']'; 16], b"."));
        assert!(is_unseen(&findings, "looks like a pickle", "joblib"), "{what}: {findings:?}");
    }
    // The class as a value, which may be called out of sight.
    for (what, parts) in [
        ("a tuple", "cjoblib.numpy_pickle\nNumpyArrayWrapper\n\u{85}"),
        ("a dict", "}cjoblib.numpy_pickle\nNumpyArrayWrapper\nNs"),
        ("a value of a dict", "}Ncjoblib.numpy_pickle\nNumpyArrayWrapper\ns"),
        ("a set", "\u{8f}(cjoblib.numpy_pickle\nNumpyArrayWrapper\n\u{90}"),
    ] {
        let alone = worst("x.bin", join(&[&pickle(parts), b"."]));
        assert!(alone > Some(Grade::Warning), "{what}: {alone:?}");
        let both = format!("{parts}0{}", wrapper(&dtype("f8"), ""));
        let both = worst("x.bin", file(&both, &[0; 16], b"."));
        assert!(both > Some(Grade::Warning), "{what}: {both:?}");
    }
    // More arrays than the budget allows.
    let many = file(&wrapper(&dtype("f8"), ""), &[0; 16], b"0").repeat(2_000);
    let findings = scan("x.bin", join(&[&many, b"N."]));
    assert!(is_unseen(&findings, "looks like a pickle", "joblib"), "{}", findings.len());
}

/// Reports the opcodes before an array of unknown length.
#[test]
fn reports_calls_before_an_unclear_array() {
    let hidden = join(&[&HIDDEN[..HIDDEN.len() - 1], b"0"]);
    let file = join(&[b"\x80\x02", &hidden, &pickle(&wrapper(&dtype("T8"), ""))[2..]]);
    assert!(is_hidden_found(file));
}

/// A pickle with arrays is kept in memory without their data, up to the limit.
#[test]
fn limits_the_length_of_a_pickle_with_arrays() {
    let values = join(&[&b"N0".repeat(50_000), b"."]);
    let file = join(&[&pickle(&wrapper(&dtype("f8"), "")), &[0; 16], &values]);
    assert!(worst("x.bin", file.clone()) <= Some(Grade::Warning));
    let findings = scan_with("x.bin", file, &super::packed::small_limits());
    assert!(is_unseen(&findings, "looks like a pickle", "joblib"), "{findings:?}");
}

/// Sparse tensors are checked when the file is opened, or they are findings.
#[test]
fn reports_unchecked_sparse_indices() {
    let sparse = b"ctorch._utils\n_rebuild_sparse_tensor\n)R.";
    let array = join(&[&pickle(&wrapper(&dtype("f8"), "")), &[0; 16], b"0", sparse]);
    for (what, bytes) in [
        ("a pickle", sparse.to_vec()),
        ("in tar", tar(&[("a", sparse)], true)),
        ("in gzip", gzip(sparse)),
        ("behind an array of joblib", array),
    ] {
        let titles = titles("x.bin", bytes);
        let unchecked = titles.iter().any(|(_, title)| title.contains("could not be checked"));
        assert!(unchecked, "{what}: {titles:?}");
    }
}
