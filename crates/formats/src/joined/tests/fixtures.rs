//! Fixtures that are folders.

use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, FileId, FileSet, Limits, Memory, Result, Unwatched};

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
