//! Properties of an array other than its values: its Python class, and the metadata of its dtype.

use std::fs;

use crate::common::{Folder, run, text};

/// The dict `{"units": "m"}`.
const UNITS: &[u8] = b"}X\x05\0\0\0unitsX\x01\0\0\0ms";

/// Returns the pickle of `{"w": array}`: four float32 in two rows, as NumPy pickles them.
fn pickle(class: &str, metadata: Option<&[u8]>) -> Vec<u8> {
    let version = if metadata.is_some() { b"K\x04" } else { b"K\x03" };
    let rest = [metadata.unwrap_or_default(), b"tb\x89C\x10", &[0; 16], b"tbs."].concat();
    [
        b"\x80\x03}X\x01\0\0\0wcnumpy.core.multiarray\n_reconstruct\nc",
        class.as_bytes(),
        b"\nK\x00\x85C\x01b\x87R(K\x01K\x02K\x02\x86cnumpy\ndtype\nX\x02\0\0\0f4K\x00K\x01\x87R(",
        version,
        b"X\x01\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00",
        &rest,
    ]
    .concat()
}

#[test]
fn classes_and_metadata_of_arrays_are_compared() {
    let folder = Folder::new();
    let file = |name: &str, class: &str, metadata: Option<&[u8]>| {
        let path = folder.file(name);
        fs::write(&path, pickle(class, metadata)).unwrap();
        text(&path)
    };
    let plain = file("plain.pkl", "numpy\nndarray", None);
    let mapped = file("mapped.pkl", "numpy\nmemmap", None);
    let matrix = file("matrix.pkl", "numpy\nmatrix", None);
    let old = file("old.pkl", "numpy.matrixlib.defmatrix\nmatrix", None);
    let own = file("own.pkl", "shop\nPrices", None);
    let metres = file("metres.pkl", "numpy\nndarray", Some(UNITS));
    let feet = file("feet.pkl", "numpy\nndarray", Some(b"}X\x05\0\0\0unitsX\x01\0\0\0fs"));
    for (one, other, words) in [
        (&plain, &mapped, None),
        (&matrix, &old, None),
        (&plain, &matrix, Some("numpy.ndarray / numpy.matrix")),
        (&matrix, &own, Some("numpy.matrix / shop.Prices")),
        (&metres, &feet, Some("@units")),
    ] {
        let differ = run(["diff", one, other]);
        let found = words.is_none_or(|words| differ.out.contains(words));
        assert!(found, "{words:?}: {}", differ.out);
        assert_eq!(differ.code, Some(i32::from(words.is_some())), "{}", differ.out);
        let manifest = text(&folder.file("manifest.json"));
        run(["manifest", one, "--json", "-o", &manifest, "--force"]).ok();
        run(["verify", one, "--manifest", &manifest]).ok();
        let verified = run(["verify", other, "--manifest", &manifest]);
        assert_eq!(verified.code, Some(i32::from(words.is_some())), "{}", verified.out);
        assert_eq!(verified.out.contains("its class differs"), words.is_some(), "{}", verified.out);
        assert!(!verified.out.contains("attributes are not compared"), "{}", verified.out);
    }
    for file in [&plain, &matrix, &metres] {
        assert_eq!(run(["scan", file]).ok(), "nothing to report\n");
    }
    assert!(run(["show", &matrix, "w"]).ok().contains("numpy.matrix"));
    // `np.save` writes plain arrays, too: the form changes, no value is lost.
    let archive = text(&folder.file("w.npz"));
    let converted = run(["convert", &matrix, &archive]).ok();
    assert!(converted.contains("become plain arrays"), "{converted}");
    // Other formats have no classes, so there is nothing to compare.
    let manifest = text(&folder.file("of-matrix.json"));
    run(["manifest", &matrix, "--json", "-o", &manifest]).ok();
    run(["verify", &archive, "--manifest", &manifest]).ok();
}

/// Returns a dtype as NumPy pickles it, with metadata: its code and byte order, and the names and
/// table of its fields.
fn dtype(code: &str, order: &str, fields: Option<&[u8]>, metadata: Option<&[u8]>) -> Vec<u8> {
    let version = if metadata.is_some() { b"K\x04" } else { b"K\x03" };
    // Objects have references that are counted; a record is aligned.
    let flags = match (code, fields) {
        ("O8", _) => b"\x3f",
        (_, Some(_)) => b"\x10",
        _ => b"\0",
    };
    let sizes = match fields {
        Some(_) => &b"K\x04K\x01K"[..],
        None => b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK",
    };
    [
        b"cnumpy\ndtype\nX\x02\0\0\0",
        code.as_bytes(),
        b"\x89\x88\x87R(",
        version,
        b"X\x01\0\0\0",
        order.as_bytes(),
        b"N",
        fields.unwrap_or(b"NN"),
        sizes,
        flags,
        metadata.unwrap_or_default(),
        b"tb",
    ]
    .concat()
}

#[test]
fn metadata_is_kept_for_dtypes_fields_scalars_and_arrays_of_objects() {
    let folder = Folder::new();
    let metadata = |units: &str| format!("}}X\x05\0\0\0unitsX\x01\0\0\0{units}s").into_bytes();
    let float = |units: &str| dtype("f4", "<", None, Some(&metadata(units)));
    let record = |units: &str| {
        let fields = [b"X\x01\0\0\0a\x85}X\x01\0\0\0a", &*float(units), b"K\0\x86s"].concat();
        dtype("V4", "|", Some(&fields), None)
    };
    let array = |dtype: Vec<u8>, data: &[u8]| {
        let start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85C\x01b\x87R";
        [start, &b"(K\x01K\x01\x85"[..], &dtype, b"\x89", data, b"tb"].concat()
    };
    let objects = |units: &str| dtype("O8", "|", None, Some(&metadata(units)));
    let scalar = |units: &str| {
        [b"cnumpy.core.multiarray\nscalar\n", &*float(units), b"C\x04\0\0\0\0\x86R"].concat()
    };
    let both = |units: &str| {
        let fields = [b"X\x01\0\0\0a\x85}X\x01\0\0\0a", &*float("s"), b"K\0\x86s"].concat();
        dtype("V4", "|", Some(&fields), Some(&metadata(units)))
    };
    type Value<'a> = &'a dyn Fn(&str) -> Vec<u8>;
    let values: [(&str, Value); 7] = [
        ("dtype", &float),
        ("record", &record),
        ("array-of-records", &|units| array(record(units), b"C\x04\0\0\0\0")),
        ("scalar", &scalar),
        ("record-and-field", &both),
        ("objects", &|units| array(objects(units), b"]K\x01a")),
        ("objects-with-parts", &|units| array(objects(units), b"]]K\x01aa")),
    ];
    for (name, value) in values {
        let [metres, feet] = ["m", "f"].map(|units| {
            let path = folder.file(&format!("{name}-{units}.pkl"));
            let pickle = [b"\x80\x03}X\x01\0\0\0w", &*value(units), b"s."].concat();
            fs::write(&path, pickle).unwrap();
            text(&path)
        });
        let differ = run(["diff", &metres, &feet]);
        assert_eq!(differ.code, Some(1), "{name}: {}{}", differ.out, differ.err);
        assert!(differ.out.contains('@') || name.starts_with("objects"), "{name}: {}", differ.out);
        let manifest = text(&folder.file("manifest.json"));
        run(["manifest", &metres, "--json", "-o", &manifest, "--force"]).ok();
        run(["verify", &metres, "--manifest", &manifest]).ok();
        let verified = run(["verify", &feet, "--manifest", &manifest]);
        // A manifest has the attributes of tensors only, and `verify` reports that.
        let is_seen =
            verified.code == Some(1) || verified.out.contains("attributes are not compared");
        assert!(is_seen, "{name}: {}", verified.out);
        assert_eq!(run(["scan", &metres]).ok(), "nothing to report\n", "{name}");
    }
}
