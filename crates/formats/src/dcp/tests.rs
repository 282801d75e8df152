//! Compares real checkpoints with what the real library read from them.

use crate::damaged_copies::survive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use statelens_checkpoint::{
    Checkpoint, ErrorKind, FileId, FileSet, Grade, Layout, Limits, Memory, ReadAt, Result,
    Unwatched,
};

use crate::joined::tests::fixtures::{
    damaged, file_counts_as_missing, folder as sharded, missing, open_only, survive_damage, texts,
};
use crate::torch::tests::{compare, differences_of, fixtures};

/// Returns the files in a folder of the fixtures that `keep` accepts, with `prefix` before their
/// names.
fn folder(name: &str, prefix: &str, keep: impl Fn(&str) -> bool) -> FileSet {
    let mut paths: Vec<_> = std::fs::read_dir(fixtures().join(name)).unwrap().collect();
    paths.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    let mut files = FileSet::default();
    for entry in paths {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if keep(&name) {
            let bytes = Memory::from(std::fs::read(entry.path()).unwrap());
            files.push(format!("{prefix}{name}"), Arc::new(bytes));
        }
    }
    files
}

fn open(files: FileSet) -> Result<Checkpoint> {
    crate::open(files, &Limits::default(), &mut Unwatched)
}

/// The library drops the names of dicts without values when saving. Lazily negated and conjugated
/// tensors, in the last, are stored without the operation.
const FOLDERS: [&str; 3] = ["dcp_single", "dcp_ranks", "dcp_views"];

#[test]
fn values_match_torch_for_every_opened_file() {
    for name in FOLDERS {
        let files = folder(name, "", |_| true);
        assert!(files.count() > 1);
        for id in 0..files.count() as u32 {
            let opened = open(files.opened_at(FileId(id)));
            assert_eq!(opened.as_ref().unwrap().format.id, "torch-dcp");
            assert_eq!(opened.as_ref().unwrap().findings, []);
            assert_eq!(differences_of(opened, name, &[]), Vec::<String>::new(), "{name}");
        }
        let below = folder(name, "run/step_10/", |_| true);
        assert_eq!(differences_of(open(below), name, &[]), Vec::<String>::new(), "{name}");
    }
}

/// Folders written by several releases of torch, and by Megatron. Their expectations have the tensors
/// only, or the tensors and the objects.
#[test]
fn every_tensor_of_sharded_folders_is_as_torch_joins_it() {
    for name in [
        "dcp_w2_async",
        "dcp_w2_files",
        "dcp_w2_mix",
        "dcp_w2_nocoord",
        "dcp_w2_optim",
        "dcp_w2_zstd",
        "dcp_w4_mesh2",
        "dcp_w4_tp_fsdp",
        "torch24_dcp_w2",
        "mcore012_flattened",
        "mcore019_common_state",
        "mcore_pp2",
        "mcore_tp2",
    ] {
        let json = fixtures().join(format!("sharded/{name}.expected.json"));
        let json: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
        let files = sharded(&format!("sharded/{name}"), |_| true);
        let checkpoint = open_only(&files).unwrap();
        assert_eq!(checkpoint.format.id, "torch-dcp");
        let bad = checkpoint.findings.iter().filter(|finding| finding.grade > Grade::Note);
        assert_eq!(bad.collect::<Vec<_>>(), Vec::<&statelens_checkpoint::Finding>::new(), "{name}");
        let leaves = checkpoint.leaves();
        let keys: Vec<String> = leaves.iter().map(|leaf| leaf.flat.to_string()).collect();
        let mut compared = 0;
        for (list, prefix) in [("entries", ""), ("objects", ""), ("common", "common.")] {
            for entry in json[list].as_array().unwrap_or(&Vec::new()) {
                let compared_elsewhere = ["object", "set", "dtype", "ndarray"];
                if compared_elsewhere.iter().any(|kind| entry["kind"] == *kind) {
                    continue;
                }
                let key = format!("{prefix}{}", entry["key"].as_str().unwrap());
                let at = keys.iter().position(|known| *known == key);
                let at = at.unwrap_or_else(|| panic!("{name}: {key} is not in {keys:?}"));
                assert_eq!(compare(&checkpoint, &leaves[at], entry), Ok(()), "{name}: {key}");
                compared += 1;
            }
        }
        assert!(compared > 2, "{name}");
    }
}

#[test]
fn broken_folders_are_reported_by_key() {
    for (name, key, words) in [
        ("broken_dcp_file_missing", "", "__1_0.distcp"),
        ("broken_dcp_overlap", "model.w0", "overlap"),
        ("broken_dcp_path_escape", "", "outside of the folder"),
        ("broken_dcp_short", "", "__1_2.distcp"),
    ] {
        let checkpoint = open_only(&sharded(&format!("sharded/{name}"), |_| true)).unwrap();
        let text = texts(&checkpoint);
        assert!(text.contains(key) && text.contains(words), "{name}: {text}");
        let lost = checkpoint.tensors().iter();
        let lost = lost.filter(|tensor| matches!(tensor.layout, Layout::Missing(_))).count();
        assert!(lost > 0 || name == "broken_dcp_path_escape", "{name}");
    }
    // A gigabyte of zeros in 32 kB.
    let checkpoint = open_only(&sharded("sharded/broken_dcp_zstd_bomb", |_| true)).unwrap();
    let failed = checkpoint.tensors().iter().filter(|tensor| {
        let files = &checkpoint.files;
        let watch = &mut Unwatched;
        statelens_tensor::drain(files, tensor, 1 << 16, watch, &mut |_| Ok(())).is_err()
    });
    assert!(failed.count() > 0 || texts(&checkpoint).contains("holds more than"));
}

/// Without coordination, the metadata of a rank and its pieces may be missing.
#[test]
fn missing_metadata_of_a_rank_is_named() {
    let files = sharded("sharded/dcp_w2_nocoord", |name| !name.starts_with("__0"));
    let checkpoint = open_only(&files).unwrap();
    let text = texts(&checkpoint);
    assert!(text.contains("__0.metadata"), "{text}");
    let lost = checkpoint.tensors().iter();
    assert!(lost.filter(|tensor| matches!(tensor.layout, Layout::Missing(_))).count() > 0);
}

/// With `SerializationFormat.SAFETENSORS`, torch writes files that it can't load.
#[test]
fn files_of_safetensors_are_named() {
    let name = "sharded/dcp_w4_mesh2";
    let other = |bytes: &[u8]| [&[40, 0, 0, 0, 0, 0, 0, 0], &b"{\"w\":"[..], &bytes[13..]].concat();
    let checkpoint = open_only(&damaged(name, "__0_0.distcp", other)).unwrap();
    let errors = checkpoint.tensors().iter().filter_map(|tensor| {
        let files = &checkpoint.files;
        statelens_tensor::drain(files, tensor, 1 << 16, &mut Unwatched, &mut |_| Ok(())).err()
    });
    let errors: Vec<String> = errors.map(|error| error.to_string()).collect();
    let named = errors.iter().filter(|error| error.contains("stored as one safetensors file"));
    assert!(named.count() > 0, "{errors:?}");
}

#[test]
fn damaged_files_of_a_rank_leave_the_others() {
    for file in ["__0.metadata", "__1.metadata"] {
        file_counts_as_missing("sharded/dcp_w2_nocoord", file);
    }
    let empty = |_: &[u8]| Vec::new();
    let error = open_only(&damaged("sharded/dcp_w2_nocoord", ".metadata", empty)).unwrap_err();
    assert!(error.to_string().contains("the file is empty"), "{error}");
    // Opening reads the offsets and lengths in the metadata, and no item.
    let name = "sharded/dcp_w4_mesh2";
    let without = open_only(&sharded(name, |name| name != "__2_0.distcp")).unwrap();
    let checkpoint = open_only(&damaged(name, "__2_0.distcp", empty)).unwrap();
    assert_eq!(missing(&checkpoint), missing(&without));
    assert!(!missing(&checkpoint).is_empty());
    assert_eq!(checkpoint.partial.len(), without.partial.len());
    let line = &checkpoint.format.facts[0].1;
    assert!(line.ends_with("incomplete: __2_0.distcp is cut short"), "{line}");
    assert!(texts(&checkpoint).contains("__2_0.distcp ends at byte 0"), "{}", texts(&checkpoint));
}

/// The fixture has all kinds of partitions: rows, columns, a grid.
#[test]
fn chunks_become_nested_layouts() {
    let checkpoint = open(folder("dcp_ranks", "", |_| true)).unwrap();
    let leaves = checkpoint.leaves();
    let layout = |key: &str| {
        let leaf = leaves.iter().find(|leaf| leaf.flat == key).unwrap();
        &checkpoint.tensor_of(leaf.id).unwrap().1.layout
    };
    let cuts = |key: &str| match layout(key) {
        Layout::Concat(concat) => (concat.axis, concat.parts.len()),
        layout => panic!("{layout:?}"),
    };
    assert_eq!(cuts("model.row"), (0, 3));
    assert_eq!(cuts("model.col"), (1, 3));
    assert_eq!(cuts("model.grid"), (0, 2));
    let Layout::Concat(grid) = layout("model.grid") else { panic!() };
    assert!(matches!(&grid.parts[0].layout, Layout::Concat(row) if row.axis == 1));
    assert!(matches!(layout("model.rep"), Layout::Deferred(_)));
}

#[test]
fn missing_file_is_named_and_the_rest_opens() {
    let files = folder("dcp_ranks", "x/", |name| name != "__2_0.distcp");
    let checkpoint = open(files).unwrap();
    let [finding] = &checkpoint.findings[..] else { panic!("{:?}", checkpoint.findings) };
    assert_eq!(finding.grade, Grade::Damage);
    assert_eq!(finding.missing, ["x/__2_0.distcp"]);
    let missing = checkpoint.tensors().iter();
    let missing = missing.filter(|tensor| matches!(tensor.layout, Layout::Missing(_))).count();
    assert!(missing > 0 && missing < checkpoint.tensors().len());

    let alone = folder("dcp_ranks", "", |name| name == "__0_0.distcp");
    let error = open(alone).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains(".metadata"), "{error}");

    let metadata = open(folder("dcp_ranks", "", |name| name == ".metadata")).unwrap();
    assert_eq!(metadata.findings[0].missing.len(), 4);
    assert!(metadata.tensors().iter().all(|tensor| {
        matches!(tensor.layout, Layout::Missing(_)) || tensor.numel() == Some(0)
    }));
}

/// Opening reads the archives of small values, never those of tensors.
#[test]
fn opening_reads_no_tensor_data() {
    let mut files = FileSet::default();
    let mut counters = Vec::new();
    for (_, file) in folder("dcp_ranks", "", |_| true).iter() {
        let counted =
            Arc::new(ReadCounter { file: file.source.clone(), reads: AtomicUsize::new(0) });
        counters.push(counted.clone());
        files.push(file.name.clone(), counted);
    }
    let checkpoint = open(files).unwrap();
    let reads = || counters.iter().map(|file| file.reads.load(Ordering::Relaxed)).sum::<usize>();
    assert!(reads() < 10, "{}", reads());
    let tensors = checkpoint.tensors();
    let chunked = tensors.iter().find(|t| matches!(t.layout, Layout::Concat(_))).unwrap();
    let before = reads();
    let mut len = 0;
    let files = &checkpoint.files;
    let mut count = |bytes: &[u8]| {
        len += bytes.len() as u64;
        Ok(())
    };
    statelens_tensor::drain(files, chunked, 1 << 16, &mut Unwatched, &mut count).unwrap();
    assert_eq!(Some(len), chunked.nbytes());
    assert!(reads() > before);
}

#[derive(Debug)]
struct ReadCounter {
    file: Arc<dyn ReadAt>,
    reads: AtomicUsize,
}

impl ReadAt for ReadCounter {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.file.read_at(offset, buffer)
    }
}

#[test]
fn files_written_by_torch_have_no_findings() {
    for name in FOLDERS {
        let files = folder(name, "", |_| true);
        let findings =
            crate::scan(files, &Limits::default(), &crate::ScanOptions::default(), &mut Unwatched)
                .unwrap();
        assert_eq!(findings, [], "{name}");
    }
}

/// Arbitrarily damaged metadata and archives must give a tree or an error, and reading all tensors
/// must end.
#[test]
fn damaged_copies_never_panic() {
    let whole = folder("dcp_ranks", "", |_| true);
    let contents: Vec<(String, Vec<u8>)> = whole
        .iter()
        .map(|(id, file)| (file.name.clone(), whole.read_vec(id, 0, file.source.len()).unwrap()))
        .collect();
    for (index, (name, bytes)) in contents.iter().enumerate() {
        survive(name, bytes, statelens_fixtures::times(80, 400) / contents.len(), |copy| {
            let mut files = FileSet::default();
            for (other, (name, bytes)) in contents.iter().enumerate() {
                let bytes = if other == index { copy.clone() } else { bytes.clone() };
                files.push(name.clone(), Arc::new(Memory::from(bytes)));
            }
            let options = crate::ScanOptions::default();
            let _ = crate::scan(files.clone(), &Limits::default(), &options, &mut Unwatched);
            let Ok(checkpoint) = open(files) else { return false };
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

#[test]
fn damaged_streams_and_flattened_tensors_never_panic() {
    survive_damage("sharded/dcp_w2_zstd");
    survive_damage("sharded/mcore012_flattened");
    survive_damage("sharded/dcp_w2_nocoord");
}

/// Uses each hostile pickle as the metadata, and each hostile archive as a file of a rank.
#[test]
fn attacks_yield_inert_values_or_an_error() {
    let whole = folder("dcp_single", "", |_| true);
    let real = |name: &str| {
        let id = whole.find(name).unwrap();
        whole.read_vec(id, 0, whole.len(id)).unwrap()
    };
    let (metadata, rank) = (real(".metadata"), real("__0_0.distcp"));
    let mut seen = 0;
    for entry in std::fs::read_dir(fixtures().join("attacks")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let attack = std::fs::read(entry.path()).unwrap();
        let (metadata, rank) = match name.rsplit_once('.') {
            Some((_, "pkl")) => (attack, rank.clone()),
            Some((_, "pt")) => (metadata.clone(), attack),
            _ => continue,
        };
        seen += 1;
        let mut files = FileSet::default();
        files.push(".metadata", Arc::new(Memory::from(metadata)));
        files.push("__0_0.distcp", Arc::new(Memory::from(rank)));
        let limits = Limits::default();
        let _ = crate::scan(files.clone(), &limits, &crate::ScanOptions::default(), &mut Unwatched);
        let Ok(checkpoint) = super::read::read(files, &limits, &mut Unwatched) else { continue };
        for tensor in checkpoint.tensors() {
            let drop = &mut |_: &[u8]| Ok(());
            let files = &checkpoint.files;
            let drained = statelens_tensor::drain(files, tensor, 1 << 16, &mut Unwatched, drop);
            assert!(drained.is_err() || tensor.numel() == Some(0), "{name}");
        }
    }
    assert_eq!(seen, 136);
    assert!(!std::path::Path::new("statelens-canary-PWNED").exists());
}
