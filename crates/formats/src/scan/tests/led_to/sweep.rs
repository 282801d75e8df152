//! Data that only the search through all bytes finds.

use super::*;

/// The search works in pieces of 1 MiB. A match may span two of them.
#[test]
fn finds_names_across_piece_boundaries() {
    let by_name = b"\x8c\x02os\x8c\x06system\x93(\x8c\x02idtR.";
    for (what, bytes, offset) in [
        ("a name in front of its opcode", &by_name[..], 12),
        ("a name behind its opcode", b"cos\nsystem\n(S'x'\ntR.", 2),
    ] {
        let start = (1 << 20) - offset;
        let file = join(&[&vec![0; start], bytes, &[0; 99]]);
        assert_eq!(worst("x.bin", file), Some(Grade::Danger), "{what}");
    }
}

/// An archive in the middle of a file: the directory says how its members are packed.
#[test]
fn finds_archives_between_other_data() {
    let mut archive = zip(&[ZipMember { deflated: true, ..member("a", HIDDEN) }]);
    archive[8] = 0;
    assert!(is_hidden_found(join(&[&noise(99), &archive, &[0; 70 << 10]])));
}

/// Findings in an HDF5 file have the name of the attribute, not of the search.
#[test]
fn names_the_place_within_hdf5() {
    let bytes = statelens_fixtures::read("attacks_hdf5/shuffled_strings.h5");
    let findings = scan("x.h5", bytes);
    let found = findings.iter().find(|finding| finding.grade == Grade::Danger).unwrap();
    assert!(!found.place.contains("HDF5"), "{}", found.place);
}

/// Texts that could begin at each of many places before a name.
#[test]
fn limits_the_search_for_the_texts_before_a_name() {
    let file = join(&[&b"V".repeat(598), b"\n\x93"]).repeat(100);
    let findings = scan_within("x.bin", file, &Limits::default(), 1 << 23);
    assert!(ends_early(&findings), "{findings:?}");
}

/// The same bytes may be run from many places.
#[test]
fn limits_the_bytes_run_by_the_search() {
    // Each place runs 512 bytes.
    let file = join(&[b"\0", &b"\x80\x02(".repeat(500)]);
    let findings = scan_within("x.bin", file, &Limits::default(), 1 << 20);
    assert!(ends_early(&findings), "{findings:?}");
}

/// Python refuses a header with a NUL, which the next array has: none is read that reaches into it.
#[test]
fn headers_of_arrays_are_read_once() {
    for file in [
        b"\x93NUMPY\x01\0\xff\xff{   ".repeat(10_000),
        b"\x93NUMPY\x02\0\xff\xff\0\0{".repeat(10_000),
    ] {
        // 20,000 units for each place, but not two for each byte of a header of 64 KB.
        let findings = scan_within("x.bin", file, &Limits::default(), 1 << 28);
        assert!(!ends_early(&findings), "{findings:?}");
    }
}
