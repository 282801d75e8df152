//! Texts that loaders interpret: whatever they hold, code next to it is found.

use statelens_checkpoint::json::Document;
use statelens_checkpoint::{FileSet, Grade, Limits, Memory, Unwatched};
use statelens_formats::ScanOptions;

pub(crate) fn jinja(bytes: &[u8]) {
    grade("x.jinja", bytes);
    let behind = [bytes, b"{{ x.__class__ }}"].concat();
    assert!(grade("x.jinja", &behind) > Grade::Warning, "a template hides what follows");
}

pub(crate) fn json(bytes: &[u8]) {
    grade("config.json", bytes);
    let around = [b"{\"a\": ", bytes, b", \"auto_map\": {\"a\": \"b.c\"}}"].concat();
    let is_json = Document::parse(&around).is_ok();
    assert!(!is_json || grade("x.json", &around) > Grade::Warning, "a value hides what follows");
}

pub(crate) fn yaml(bytes: &[u8]) {
    grade("x.yaml", bytes);
    let behind = [bytes, b"\n---\n_target_: os.system\n"].concat();
    assert!(grade("x.yaml", &behind) > Grade::Warning, "a document hides what follows");
}

fn grade(name: &str, bytes: &[u8]) -> Grade {
    let files = FileSet::single(name, Memory::from(bytes.to_vec()));
    let options = ScanOptions::default();
    let findings = statelens_formats::scan(files, &Limits::default(), &options, &mut Unwatched);
    findings.into_iter().flatten().map(|finding| finding.grade).max().unwrap_or(Grade::Note)
}
