//! Checkpoints of several files.

use super::*;

/// All files of a set are scanned, and what opening it reports is reported.
#[test]
fn scans_every_file_of_a_set() {
    let scan = |files: &[(&str, &[u8])]| {
        let (name, bytes) = files[0];
        let mut set = FileSet::single(name, Memory::from(bytes.to_vec()));
        for (name, bytes) in &files[1..] {
            set.push(*name, std::sync::Arc::new(Memory::from(bytes.to_vec())));
        }
        let options = ScanOptions::default();
        crate::scan(set, &Limits::default(), &options, &mut Unwatched).unwrap()
    };
    let worst = |files: &[(&str, &[u8])]| scan(files).iter().map(|finding| finding.grade).max();
    let index = br#"{"weight_map":{"a":"pytorch_model-00001-of-00002.bin","b":"pytorch_model-00002-of-00002.bin"}}"#;
    let (index, first, second) = (
        ("pytorch_model.bin.index.json", &index[..]),
        "pytorch_model-00001-of-00002.bin",
        "pytorch_model-00002-of-00002.bin",
    );
    let plain = zip(&[member("archive/data.pkl", PLAIN), member("archive/version", b"3\n")]);
    let evil = zip(&[member("archive/data.pkl", MARKED), member("archive/version", b"3\n")]);
    assert!(worst(&[index, (first, &plain), (second, &plain)]) <= Some(Grade::Warning));
    assert_eq!(worst(&[index, (first, &plain), (second, &evil)]), Some(Grade::Danger));
    let missing = scan(&[index, (first, &plain)]);
    assert!(
        missing
            .iter()
            .any(|finding| finding.detail.contains(second) || finding.title.contains(second)),
        "{missing:?}"
    );
    assert_eq!(worst(&[(index.0, b"{")]), Some(Grade::Damage));
    // A file of a known format that can't be opened.
    assert_eq!(worst(&[("x.bin", b"GGUF\x03\0\0\0\x01")]), Some(Grade::Damage));
}

/// torch loads parts of the files of a distributed checkpoint, which its metadata locates.
#[test]
fn scans_distributed_files_with_their_metadata() {
    let read =
        |name: &str| std::fs::read(statelens_fixtures::path("dcp_single").join(name)).unwrap();
    let (metadata, mut data) = (read(".metadata"), read("__0_0.distcp"));
    let found = |main: &str, files: &[(&str, &[u8])], title: &str| {
        let bytes = files.iter().find(|(name, _)| *name == main).unwrap().1;
        let mut set = FileSet::single(main, Memory::from(bytes.to_vec()));
        for (name, bytes) in files.iter().filter(|(name, _)| *name != main) {
            set.push(*name, std::sync::Arc::new(Memory::from(bytes.to_vec())));
        }
        let options = ScanOptions::default();
        let findings = crate::scan(set, &Limits::default(), &options, &mut Unwatched).unwrap();
        findings
            .iter()
            .any(|finding| finding.grade > Grade::Warning && finding.title.contains(title))
    };
    let whole = [(".metadata", &metadata[..]), ("__0_0.distcp", &data)];
    assert!(!found(".metadata", &whole, ""));
    assert!(!found("__0_0.distcp", &whole, ""));
    // A file that the metadata does not name.
    let more = join(&[&[0; 99], MARKED]);
    let with_more = [whole[0], whole[1], ("__7_0.distcp", &more)];
    assert!(found(".metadata", &with_more, "os.system"));
    // A pickle at the start of a part, and not at the start of the file.
    data[1261..1261 + HIDDEN.len()].copy_from_slice(HIDDEN);
    let changed = [(".metadata", &metadata[..]), ("__0_0.distcp", &data)];
    assert!(found(".metadata", &changed, "replaces items of a list"));
    assert!(found("__0_0.distcp", &changed, "replaces items of a list"));
}

/// What opening a file reports is reported, too.
#[test]
fn includes_findings_of_opening() {
    let path = statelens_fixtures::path("tf/saver_v2_basic/model.ckpt-1.index");
    let bytes = std::fs::read(path).unwrap();
    let files = || FileSet::single("model.ckpt-1.index", Memory::from(bytes.clone()));
    let opened = crate::open(files(), &Limits::default(), &mut Unwatched).unwrap().findings;
    let scanned = scan("model.ckpt-1.index", bytes.clone());
    assert!(!opened.is_empty());
    assert!(opened.iter().all(|finding| scanned.contains(finding)), "{opened:?}: {scanned:?}");
}
