//! Scans of containers whose reading by Python is easy to get wrong.

use std::path::{Path, PathBuf};

use statelens_checkpoint::{FileSet, Finding, Grade, Limits, Memory, Unwatched};
use statelens_formats::ScanOptions;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

fn scan(name: &str, bytes: Vec<u8>) -> Vec<Finding> {
    let files = FileSet::single(name, Memory::from(bytes));
    statelens_formats::scan(files, &Limits::default(), &ScanOptions::default(), &mut Unwatched)
        .unwrap()
}

/// Returns whether the command would exit with status 1.
fn is_found(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.grade > Grade::Warning)
}

/// The folders of `attacks3` in which every file must cause exit status 1, and their number of
/// files.
const FOUND: &[(&str, usize)] = &[
    ("compressed", 2),
    ("distcp/covered", 1),
    ("distcp/slice", 1),
    ("hdf5", 1),
    ("joblib", 1),
    ("keras", 4),
    ("npy_headers", 2),
    ("other_code", 2),
    ("tar", 5),
    ("templates", 4),
    ("zip64", 1),
];

#[test]
fn finds_every_attack() {
    let mut missed = Vec::new();
    for (folder, count) in FOUND {
        let mut seen = 0;
        for entry in std::fs::read_dir(fixtures().join("attacks3").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let findings = scan(&name, std::fs::read(&path).unwrap());
            if !is_found(&findings) {
                missed.push(format!("{folder}/{name}: {findings:?}"));
            }
            seen += 1;
        }
        assert_eq!(seen, *count, "{folder}");
    }
    assert_eq!(missed, Vec::<String>::new());
}

/// Streams that start again and again: a limit must end the scan, or all of the file must be read.
#[test]
fn endless_compression_is_bounded() {
    let path = fixtures().join("attacks3/unbounded/xz_79_bytes.gz");
    assert!(is_found(&scan("a.gz", std::fs::read(path).unwrap())));
    let empty_xz = b"\xfd7zXZ\0\0\x01\x69\x22\xde\x36\0\0\0\0\x1c\xdf\x44\x21\x1f\xb6\xf3\x7d\x01\0\0\0\0\x01YZ";
    for (name, part, found) in [
        ("bzip2", &b"BZh91AY&SY\x01\x02\x03\x04\0"[..], true),
        ("zstd", b"\x28\xb5\x2f\xfd\x04\x58\xb9\0", true),
        ("empty xz", empty_xz, false),
        ("empty gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0", false),
    ] {
        let findings = scan("file", part.repeat((2 << 20) / part.len()));
        assert_eq!(is_found(&findings), found, "{name}: {findings:?}");
    }
}
