//! Checkpoints that expand to far more than their file: every command that reads all values
//! requires permission.

use std::path::Path;

use crate::common::{Folder, run, stored_zip, text};

/// Writes a tensor of `numel` float32 ones, all of which are the same element of the storage.
fn ones(path: &Path, numel: u32) -> String {
    let int = |int: u32| [&b"J"[..], &int.to_le_bytes()[..]].concat();
    let text_of =
        |text: &str| [&b"X"[..], &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let pickle = [
        b"\x80\x02}(".to_vec(),
        text_of("k"),
        b"ctorch._utils\n_rebuild_tensor_v2\n((".to_vec(),
        text_of("storage"),
        b"ctorch\nFloatStorage\n".to_vec(),
        [text_of("0"), text_of("cpu"), int(1)].concat(),
        b"tQK\x00(".to_vec(),
        int(numel),
        b"t(K\x00t\x89ccollections\nOrderedDict\n)RtRu.".to_vec(),
    ];
    let storage = 1f32.to_le_bytes();
    let members: [(&str, &[u8]); 3] =
        [("a/data.pkl", &pickle.concat()), ("a/version", b"3\n"), ("a/data/0", &storage)];
    std::fs::write(path, stored_zip(&members)).unwrap();
    text(path)
}

#[test]
fn commands_refuse_large_expansion_without_limit() {
    let folder = Folder::new();
    // 8 GB.
    let file = ones(&folder.path().join("ones.pt"), 2_000_000_000);
    let out = |name: &str| text(&folder.path().join(name));
    for args in [
        vec!["stats", &file],
        vec!["stats", "--histogram", &file, "k"],
        vec!["verify", &file],
        vec!["manifest", &file],
        vec!["diff", &file, &file],
        vec!["summary", "--stats", &file],
        vec!["convert", &file, &out("c.safetensors")],
        vec!["convert", &file, &out("c.safetensors"), "--dry-run", "--scan"],
        vec!["export", &file, "k", &out("e.npy")],
        vec!["export", &file, "k", &out("e.safetensors")],
        vec!["export", &file, "k", &out("e.raw")],
        vec!["export", &file, "k", &out("e.csv")],
        vec!["export", &file, "k", &out("e.png")],
        vec!["merge", &file, &file, &out("m.safetensors"), "--lossy"],
    ] {
        let ran = run(&args);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{args:?}: {}", ran.err);
        let printed = "more than 1000 times its size. If you trust the file";
        assert!(ran.err.contains(printed) && ran.err.contains("--limit"), "{args:?}: {}", ran.err);
    }
    let written = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(written, 1, "nothing was written");
    // Reading a few values is allowed.
    run(["show", &file, "k"]).ok();
    run(["export", &file, "k[:10]", &out("few.npy")]).ok();
    run(["scan", &file]).ok();
}

#[test]
fn limit_none_allows_large_expansion() {
    let folder = Folder::new();
    // A little over a gigabyte, below which no permission is required.
    let file = ones(&folder.path().join("ones.pt"), 270_000_000);
    run(["stats", &file]).failed();
    let statistics = run(["stats", "--json", "--limit", "none", &file]).json();
    assert_eq!(statistics["tensors"][0]["count"], 270_000_000);
    assert_eq!(statistics["tensors"][0]["mean"], 1.0);
}

#[test]
fn every_command_accepts_a_raised_limit() {
    let folder = Folder::new();
    // A text of 4 kB with so many references that they total 72 MB, which exceeds the limit but is
    // processed quickly.
    let mut pickle = b"\x80\x02](X".to_vec();
    pickle.extend(4096u32.to_le_bytes());
    pickle.extend([b'x'; 4096]);
    pickle.extend(b"q\0");
    pickle.extend(b"h\0".repeat(17_499));
    pickle.extend(b"e.");
    let members: [(&str, &[u8]); 2] = [("a/data.pkl", &pickle), ("a/version", b"3\n")];
    let file = text(&folder.with("texts.pt", &stored_zip(&members)));
    let out = |name: &str| text(&folder.file(name));
    for args in [
        &["stats", &file][..],
        &["diff", &file, &file],
        &["verify", &file],
        &["manifest", &file],
        &["summary", "--stats", &file],
        &["convert", "--dry-run", "--scan", "--cast", "float16", &file, &out("a.pt")],
        &["convert", "--dry-run", &file, &out("a.safetensors")],
    ] {
        let printed = run(args).failed();
        assert!(printed.contains("--limit 10"), "{args:?}: {printed}");
        run([args, &["--limit", "10"]].concat()).ok();
    }
}
