//! Fixtures that are folders.

use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, FileId, FileSet, FindingKind, Grade, Layout, Leaf, Limits, Memory, Result,
    Unwatched,
};

use crate::torch::tests::{differences_of, fixtures};

/// Returns the files in and below a folder of the fixtures that `keep` accepts, sorted.
pub(crate) fn folder(name: &str, keep: impl Fn(&str) -> bool) -> FileSet {
    let top = fixtures().join(name);
    let mut found = Vec::new();
    let mut open = vec![top.clone()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => found.push(path),
            }
        }
    }
    let name = |path: &std::path::Path| {
        let path = path.strip_prefix(&top).unwrap();
        let parts = path.components().map(|part| part.as_os_str().to_string_lossy());
        parts.collect::<Vec<_>>().join("/")
    };
    found.sort();
    let mut files = FileSet::default();
    for path in found.iter().filter(|path| keep(&name(path))) {
        files.push(name(path), Arc::new(Memory::from(std::fs::read(path).unwrap())));
    }
    files
}

pub(crate) fn open(files: FileSet) -> Result<Checkpoint> {
    crate::open(files, &Limits::default(), &mut Unwatched)
}

/// Opens the only checkpoint among these files.
pub(crate) fn open_only(files: &FileSet) -> Result<Checkpoint> {
    let sets = crate::sets::sort(files);
    let [set] = &sets[..] else { panic!("{sets:?}") };
    open(files.opened_at(files.find(&set.main).unwrap()))
}

/// Compares a folder with what the library read, and the same opened by each file that `is_main`
/// accepts. Returns the differences. `except` are prefixes of keys that are not compared.
pub(crate) fn differences(
    name: &str,
    except: &[&str],
    is_main: impl Fn(&str) -> bool,
) -> Vec<String> {
    let files = folder(name, |_| true);
    let mut found = differences_of(open_only(&files), name, except);
    for id in (0..files.count() as u32).map(FileId) {
        if is_main(files.name(id)) {
            found.extend(differences_of(open(files.opened_at(id)), name, except));
        }
    }
    found
}

/// Returns the findings of a checkpoint as texts.
pub(crate) fn texts(checkpoint: &Checkpoint) -> String {
    let text = |finding: &statelens_checkpoint::Finding| {
        format!("{}: {} {}\n", finding.title, finding.place, finding.detail)
    };
    checkpoint.findings.iter().map(text).collect()
}

/// Returns the files of a folder, of which one is replaced by `damage` of its bytes.
pub(crate) fn damaged(name: &str, file: &str, damage: impl Fn(&[u8]) -> Vec<u8>) -> FileSet {
    let whole = folder(name, |name| !name.ends_with(".expected.json"));
    let mut files = FileSet::default();
    for (id, of) in whole.iter() {
        let bytes = whole.read_vec(id, 0, of.source.len()).unwrap();
        let bytes = if of.name.ends_with(file) { damage(&bytes) } else { bytes };
        files.push(of.name.clone(), Arc::new(Memory::from(bytes)));
    }
    assert!(files.names().any(|(_, name)| name.ends_with(file)), "{file}");
    files
}

/// Opens a folder with a file cut, empty, and replaced by other text. Each must open as without the
/// file, with a finding that gives the reason.
pub(crate) fn file_counts_as_missing(name: &str, file: &str) {
    let without = open_only(&folder(name, |name| !name.ends_with(file))).unwrap();
    let page = "<!DOCTYPE html><html><body>Not found</body></html>";
    for (reason, text) in [("", None), ("the file is empty", Some("")), ("a web page", Some(page))]
    {
        let damage = |bytes: &[u8]| match text {
            Some(text) => text.as_bytes().to_vec(),
            None => bytes[..bytes.len() / 2].to_vec(),
        };
        let checkpoint = open_only(&damaged(name, file, damage)).unwrap();
        let of = checkpoint.findings.iter().find(|finding| finding.place.ends_with(file));
        let of = of.unwrap_or_else(|| panic!("{name} {file}: {}", texts(&checkpoint)));
        assert!(of.title.ends_with("can't be read"), "{}", of.title);
        assert!(of.detail.contains(reason) && of.detail.len() > 20, "{}", of.detail);
        assert!(!of.detail.starts_with(&of.place), "{}", of.detail);
        assert_eq!(of.grade, Grade::Damage);
        assert_eq!(missing(&checkpoint), missing(&without), "{name} {file}: {reason}");
        let named = |checkpoint: &Checkpoint| -> Vec<String> {
            let findings = checkpoint.findings.iter();
            findings.flat_map(|finding| finding.missing.clone()).collect()
        };
        let all = named(&checkpoint);
        assert!(named(&without).iter().all(|name| all.contains(name)), "{name} {file}: {all:?}");
        // The reason is given once.
        let all = checkpoint.findings.iter();
        let count = all.filter(|finding| finding.kind == FindingKind::WrongFile).count();
        assert_eq!(count, 1, "{}", texts(&checkpoint));
    }
}

/// Returns the keys of tensors without bytes.
pub(crate) fn missing(checkpoint: &Checkpoint) -> Vec<String> {
    let is_missing = |leaf: &Leaf| {
        let tensor = checkpoint.tensor_of(leaf.id);
        tensor.is_some_and(|(_, tensor)| matches!(tensor.layout, Layout::Missing(_)))
    };
    let leaves = checkpoint.leaves();
    leaves.iter().filter(|leaf| is_missing(leaf)).map(|leaf| leaf.flat.to_string()).collect()
}

/// Opens a folder with each of its files damaged at arbitrary places, and reads all tensors: a tree
/// or an error, and an end.
pub(crate) fn survive_damage(name: &str) {
    let whole = folder(name, |name| !name.ends_with(".json"));
    let contents: Vec<(String, Vec<u8>)> = whole
        .iter()
        .map(|(id, file)| (file.name.clone(), whole.read_vec(id, 0, file.source.len()).unwrap()))
        .collect();
    let main = crate::sets::sort(&whole)[0].main.clone();
    // The other files are like these.
    for (index, (name, bytes)) in contents.iter().enumerate().take(2) {
        let times = statelens_fixtures::times(40, 200);
        crate::damaged_copies::survive(name, bytes, times, |copy| {
            let mut files = FileSet::default();
            for (other, (name, bytes)) in contents.iter().enumerate() {
                let bytes = if other == index { copy.clone() } else { bytes.clone() };
                files.push(name.clone(), Arc::new(Memory::from(bytes)));
            }
            let main = files.find(&main).unwrap();
            let Ok(checkpoint) = open(files.opened_at(main)) else { return false };
            checkpoint.leaves();
            for tensor in checkpoint.tensors() {
                if tensor.nbytes().is_some_and(|bytes| bytes < 1 << 20) {
                    let drop = &mut |_: &[u8]| Ok(());
                    let files = &checkpoint.files;
                    let _ = statelens_tensor::drain(files, tensor, 1 << 16, &mut Unwatched, drop);
                }
            }
            true
        });
    }
}
