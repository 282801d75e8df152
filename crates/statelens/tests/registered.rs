//! A registered format works like the built-in ones.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod tpack;

use std::fs;
use std::path::{Path, PathBuf};

use statelens::parts::formats::{is_named_as_weights, snippets};
use statelens::{ErrorKind, Grade, Target, convert, diff, open, register, scan};

#[test]
fn empty_tensors_are_not_reported_as_damaged() {
    register(&tpack::TPACK).unwrap();
    let pack = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("empty.tpack");
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    // Its last tensor and three empty ones begin at the same offset.
    let source = open(fixtures.join("safetensors/scalar_empty.safetensors")).unwrap();
    convert(&source, Target::Registered("tpack")).replace().write(&pack).unwrap();
    let mut bytes = fs::read(&pack).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&pack, &bytes).unwrap();
    let verdict = open(&pack).unwrap().verify().unwrap();
    let reported: Vec<_> =
        verdict.result.problems.iter().map(|one| (&*one.key, &*one.text)).collect();
    assert_eq!(reported, [("scalar", "its bytes have changed since they were written")]);
}

#[test]
fn registered_format_supports_every_operation() {
    register(&tpack::TPACK).unwrap();
    // Registering it twice is allowed; another format with the same name is refused.
    register(&tpack::TPACK).unwrap();
    static SAME: statelens::Format = statelens::Format::named(&["tpack"], "Another");
    assert_eq!(register(&SAME).unwrap_err().kind(), ErrorKind::Refused);

    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("registered");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let source = open(fixtures.join("torch/zip_module_state_dict.pt")).unwrap();
    let (pack, back) = (folder.join("a.tpack"), folder.join("back.safetensors"));
    // The output is opened by the format's own reader before it gets its name.
    convert(&source, Target::Registered("tpack")).write(&pack).unwrap();
    let opened = open(&pack).unwrap();
    assert_eq!((opened.format().id, opened.tensors().count()), ("tpack", source.tensors().count()));
    assert!(diff(&source, &opened).unwrap().differences.is_empty());
    // Its facts and its code reach everything that decides by the format.
    assert_eq!(opened.format().traits, tpack::TPACK.traits);
    let core = opened.inner();
    let leaf = core.leaves().remove(0);
    let code = snippets(core, &leaf, None, &|file| core.files.name(file).to_owned()).remove(0);
    assert_eq!((code.library, code.code.contains("tpack.load(")), ("tpack", true));
    assert!(is_named_as_weights("a/b.tpack"));
    convert(&opened, Target::Safetensors).write(&back).unwrap();
    assert!(diff(&source, &open(&back).unwrap()).unwrap().differences.is_empty());
    assert!(scan(&pack).unwrap().is_empty());

    assert!(opened.verify().unwrap().sound());
    let mut bytes = fs::read(&pack).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&pack, &bytes).unwrap();
    assert!(!open(&pack).unwrap().verify().unwrap().sound());

    // No tensors, and a script of two letters.
    fs::write(&pack, b"TPACK1\0\0\0\0\x02\0rm").unwrap();
    let findings = scan(&pack).unwrap();
    assert!(findings.iter().any(|one| one.grade == Grade::UnknownCode), "{findings:?}");
}
