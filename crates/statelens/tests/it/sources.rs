//! Where checkpoints are found: folders, subfolders, links, archives, and files that change.

use std::fs;
use std::path::{Path, PathBuf};

use statelens::{Error, ErrorKind, Target, convert};

use crate::library::{fixture, folder};

/// Converts a checkpoint, and replaces the output if it exists.
fn write(source: &Path, out: impl AsRef<Path>) {
    let checkpoint = statelens::open(source).unwrap();
    let target = match out.as_ref().extension().unwrap().to_str().unwrap() {
        "npz" => Target::Numpy,
        "pt" => Target::Torch,
        _ => Target::Safetensors,
    };
    convert(&checkpoint, target).replace().write(out).unwrap();
}

/// Returns the error of opening a checkpoint.
fn refused(path: impl AsRef<Path>) -> Error {
    statelens::open(path).err().unwrap()
}

fn values(checkpoint: &statelens::Checkpoint, key: &str) -> Vec<f32> {
    let bytes = checkpoint.tensor(key).unwrap().bytes().unwrap();
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Copies a folder with its subfolders.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

#[test]
fn shards_in_subfolders_are_found() {
    let layers = fixture("reports4/st_index_paths/layers");
    for path in [
        layers.clone(),
        layers.join("model.safetensors.index.json"),
        layers.join("model.embed.safetensors"),
    ] {
        let checkpoint = statelens::open(&path).unwrap();
        assert_eq!(values(&checkpoint, "model.layers.1.w"), [2.0, 3.0, 4.0, 5.0]);
        assert!(checkpoint.inner().findings.is_empty(), "{:?}", checkpoint.inner().findings);
        assert!(checkpoint.verify().unwrap().answer(false));
    }
    // All shards are in the subfolder.
    let checkpoint = statelens::open(fixture("reports4/st_overlay/subfolder")).unwrap();
    assert_eq!(values(&checkpoint, "x"), [0.0, 1.0, 2.0, 3.0]);
    let out = folder("subfolders").join("out.safetensors");
    write(&layers, &out);
    assert_eq!(values(&statelens::open(&out).unwrap(), "model.layers.0.w"), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn shards_outside_the_folder_are_missing() {
    let missing = |path: &Path| {
        let checkpoint = statelens::open(path).unwrap();
        let missing = checkpoint.inner().findings.iter().flat_map(|it| it.missing.clone());
        missing.collect::<Vec<_>>()
    };
    let out = fixture("reports4/st_index_paths/out/model");
    assert_eq!(missing(&out), ["../other.safetensors"]);
    #[cfg(unix)]
    {
        // A link to a folder leads out as well.
        let top = folder("linked_out");
        copy(&fixture("reports4/st_index_paths/layers"), &top.join("layers"));
        fs::rename(top.join("layers/model.layers.0"), top.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("../elsewhere", top.join("layers/model.layers.0")).unwrap();
        assert_eq!(missing(&top.join("layers")), ["model.layers.0/layer.safetensors"]);
    }
}

#[test]
fn overlays_are_converted_and_reported() {
    let overlay = fixture("reports4/st_overlay/overlay");
    let out = folder("overlay").join("out.safetensors");
    write(&overlay, &out);
    assert_eq!(values(&statelens::open(&out).unwrap(), "y"), [99.0, 100.0, 101.0, 102.0]);
    let verdict = statelens::open(&overlay).unwrap().verify().unwrap();
    assert!(!verdict.answer(false));
    assert!(verdict.result.problems.iter().any(|it| it.text.contains("Two shards hold y")));
}

#[test]
#[cfg(unix)]
fn links_to_files_that_do_not_exist_are_named() {
    let top = folder("dangling");
    let index = r#"{"weight_map": {"w": "a.safetensors"}}"#;
    fs::write(top.join("m.safetensors.index.json"), index).unwrap();
    std::os::unix::fs::symlink("../blobs/0123", top.join("a.safetensors")).unwrap();
    for path in [top.clone(), top.join("a.safetensors")] {
        let error = refused(&path).to_string();
        assert!(error.contains("link") && error.contains("not exist"), "{error}");
        assert!(!error.contains("next to the index"), "{error}");
    }
}

#[test]
fn cache_of_hugging_face_lists_snapshots() {
    let cache = folder("hub_cache");
    let model = cache.join("models--a--b");
    let tensor = fixture("reports4/st_index_paths/out/other.safetensors");
    for file in ["blobs/0123", "snapshots/4567/model.safetensors"] {
        let path = model.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(&tensor, path).unwrap();
    }
    for path in [&cache, &model] {
        assert_eq!(values(&statelens::open(path).unwrap(), "secret"), [0.0, 1.0, 2.0, 3.0]);
    }
}

#[test]
fn folder_without_a_checkpoint_says_what_it_has() {
    let top = folder("no_checkpoint");
    for name in ["a.csv", "b.csv", "readme.txt"] {
        fs::write(top.join(name), "a,b\n1,2\n").unwrap();
    }
    let error = refused(&top).to_string();
    assert!(error.contains("It has 3 files: 2 csv, 1 txt"), "{error}");
}

/// Returns a zip archive of members without compression, as `zip -0` writes it.
fn zip(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in members {
        let (at, len) = (out.len() as u32, bytes.len() as u32);
        let mut common = [20u16, 0, 0, 0, 0].map(u16::to_le_bytes).concat();
        common.extend([crc32fast::hash(bytes), len, len].map(u32::to_le_bytes).concat());
        common.extend([name.len() as u16, 0].map(u16::to_le_bytes).concat());
        out.extend([b"PK\x03\x04", &common[..], name.as_bytes(), bytes].concat());
        let start = [b"PK\x01\x02\x14\0", &common[..], &[0; 10], &at.to_le_bytes()].concat();
        directory.extend([&start, name.as_bytes()].concat());
    }
    let (at, len) = (out.len() as u32, directory.len() as u32);
    out.extend(directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([members.len() as u16; 2].map(u16::to_le_bytes).concat());
    out.extend([len, at].map(u32::to_le_bytes).concat());
    out.extend([0, 0]);
    out
}

#[test]
fn members_of_archives_are_opened_in_place() {
    let top = folder("archives");
    let read = |name: &str| fs::read(fixture(name)).unwrap();
    let tensor = read("reports4/st_index_paths/out/other.safetensors");
    let one = top.join("one.zip");
    fs::write(&one, zip(&[("m/readme.md", b"# A".to_vec()), ("m/a.safetensors", tensor.clone())]))
        .unwrap();
    for path in [one.clone(), one.join("m/a.safetensors")] {
        let checkpoint = statelens::open(&path).unwrap();
        assert_eq!(values(&checkpoint, "secret"), [0.0, 1.0, 2.0, 3.0]);
        assert!(checkpoint.verify().unwrap().answer(false));
        let out = top.join("out.npz");
        write(&path, &out);
        assert_eq!(values(&statelens::open(&out).unwrap(), "secret"), [0.0, 1.0, 2.0, 3.0]);
    }
    let error = refused(one.join("m/b.safetensors"));
    assert!(error.to_string().contains("no such member"), "{error}");
    // A PyTorch file is itself a zip archive.
    let pt = read("reports4/pt_quint4/tensors.pt");
    let two = top.join("two.zip");
    fs::write(&two, zip(&[("b.pt", pt), ("a.safetensors", tensor)])).unwrap();
    let error = refused(&two).to_string();
    assert!(error.contains("2 checkpoints: two.zip/a.safetensors, two.zip/b.pt"), "{error}");
    assert!(statelens::open(two.join("b.pt")).unwrap().tensor("q4").is_ok());
}

#[test]
fn sources_that_change_while_they_are_read_are_reported() {
    let top = folder("changed");
    let path = top.join("a.safetensors");
    fs::copy(fixture("reports4/st_index_paths/out/other.safetensors"), &path).unwrap();
    let checkpoint = statelens::open(&path).unwrap();
    assert!(checkpoint.verify().is_ok());
    let touch = |seconds: u64| {
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(time).unwrap();
    };
    touch(1_000_000_000);
    for error in [
        checkpoint.verify().unwrap_err(),
        statelens::diff(&checkpoint, &checkpoint).unwrap_err(),
        convert(&checkpoint, Target::Numpy).write(top.join("b.npz")).unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.code()), (ErrorKind::Io, "changed"), "{error}");
    }
    assert_eq!(fs::read_dir(&top).unwrap().count(), 1);
    // A file that is replaced is still read as it was.
    let checkpoint = statelens::open(&path).unwrap();
    fs::write(top.join("new"), b"new").unwrap();
    fs::rename(top.join("new"), &path).unwrap();
    assert_eq!(values(&checkpoint, "secret"), [0.0, 1.0, 2.0, 3.0]);
    assert!(checkpoint.verify().is_ok());
}

#[test]
#[cfg(unix)]
fn outputs_may_have_names_that_are_not_utf8() {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    let top = folder("not_utf8");
    let name = |bytes: &[u8]| top.join(std::ffi::OsStr::from_bytes(bytes));
    let source = fixture("reports4/st_index_paths/layers");
    let names = || -> Vec<Vec<u8>> {
        let entries = fs::read_dir(&top).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_vec()).collect();
        names.sort();
        names
    };
    for bytes in [&b"o\xff.npz"[..], b"o\xfe.npz", b"caf\xe9\xe8.pt"] {
        write(&source, name(bytes));
    }
    assert_eq!(names(), [&b"caf\xe9\xe8.pt"[..], b"o\xfe.npz", b"o\xff.npz"]);
    for bytes in names() {
        assert_eq!(statelens::open(name(&bytes)).unwrap().inner().leaves().len(), 3);
    }
    for bytes in names() {
        fs::remove_file(name(&bytes)).unwrap();
    }
    // The names of shards begin with the stem.
    let checkpoint = statelens::open(&source).unwrap();
    let shards = convert(&checkpoint, Target::Safetensors).shard_size("16");
    shards.write(name(b"s\xff.safetensors")).unwrap();
    let expected: [&[u8]; 4] = [
        b"s\xff-00001-of-00003.safetensors",
        b"s\xff-00002-of-00003.safetensors",
        b"s\xff-00003-of-00003.safetensors",
        b"s\xff.safetensors.index.json",
    ];
    assert_eq!(names(), expected);
    assert!(statelens::open(name(b"s\xff.safetensors.index.json")).is_ok());
    // The only checkpoint in a folder.
    let only = folder("not_utf8_only");
    let path: PathBuf = only.join(std::ffi::OsStr::from_bytes(b"m\xff.safetensors"));
    fs::copy(fixture("reports4/st_index_paths/out/other.safetensors"), path).unwrap();
    assert!(statelens::open(&only).is_ok());
    // Another one with the same letters is another file.
    let path = only.join(std::ffi::OsStr::from_bytes(b"m\xfe.safetensors"));
    fs::copy(fixture("reports4/st_overlay/stray/model.safetensors"), path).unwrap();
    let error = refused(&only).to_string();
    assert!(error.contains(r"m\xfe.safetensors, m\xff.safetensors"), "{error}");
}
