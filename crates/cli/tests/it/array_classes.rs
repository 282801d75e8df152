//! What Python knows of an array besides its values: its class, and the metadata of its dtype.

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
