//! Small files that claim to hold far more: no command processes them by default or takes much
//! memory for them, and none is killed for lack of memory. The output can be opened.

use std::fs;
use std::path::{Path, PathBuf};

use statelens_fixtures::times;

use crate::common::{Folder, fixture, run, stored_zip, texts, within};

const ATTACKS: [&str; 9] = [
    "zz_strs_3.9M.pt",
    "zz_ints_3.9M.pt",
    "zz_tensor_aliases_3M.pt",
    "h5_fill_64GB.h5",
    "h5_fill_2000x1GB.h5",
    "torch_150k_views_of_400MB.pt",
    "h5_fill_1EB.h5",
    "h5_exp_hard.h5",
    "torch_expand_8GB.pt",
];

/// Writes views of one 4 MB storage, each with a different offset.
fn views(path: &Path, count: u32) {
    const NUMEL: u32 = 1 << 20;
    let text =
        |text: &str| [&b"X"[..], &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let int = |int: u32| [&b"J"[..], &int.to_le_bytes()[..]].concat();
    let mut pickle = b"\x80\x02}(".to_vec();
    for index in 0..count {
        pickle.extend(text(&format!("view{index}")));
        if index == 0 {
            pickle.extend(b"ctorch._utils\n_rebuild_tensor_v2\nq\0((");
            pickle.extend(text("storage"));
            pickle.extend(b"ctorch\nFloatStorage\n");
            pickle.extend([text("0"), text("cpu"), int(NUMEL)].concat());
            pickle.extend(b"tQq\x01");
        } else {
            pickle.extend(b"h\0(h\x01");
        }
        pickle.extend(int(index));
        pickle.extend([b"(".to_vec(), int(NUMEL - count), b"t(K\x01t\x89".to_vec()].concat());
        pickle.extend(b"ccollections\nOrderedDict\n)RtR");
    }
    pickle.extend(b"u.");
    let storage = vec![0; 4 << 20];
    let members: [(&str, &[u8]); 3] =
        [("a/data.pkl", &pickle), ("a/version", b"3\n"), ("a/data/0", &storage)];
    fs::write(path, stored_zip(&members)).unwrap();
}

/// Writes a safetensors file of `count` tensors of eight bytes.
fn many(path: &Path, count: usize) {
    let entries: Vec<String> = (0..count)
        .map(|index| {
            let (from, to) = (index * 8, index * 8 + 8);
            format!(
                "\"model.layers.{}.part{}\":{{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[{from},{to}]}}",
                index / 10,
                index % 10
            )
        })
        .collect();
    let header = format!("{{{}}}", entries.join(","));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + count * 8, 1);
    fs::write(path, file).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn expanding_files_stay_within_time_and_memory() {
    let folder = Folder::new();
    let generated = folder.path().join("views.pt");
    views(&generated, 100_000);
    let files = ATTACKS.map(|name| fixture(&format!("attacks2/{name}")));
    for file in files.iter().chain([&generated]).step_by(times(3, 1)) {
        let file = file.to_str().unwrap();
        for command in ["info", "ls", "summary", "verify", "manifest", "scan"] {
            let ran = within(512, &[command, file]);
            // A killed process has no exit status.
            assert!(ran.code.is_some(), "{command} {file}: {}", ran.err);
            assert!(ran.out.len() < 300 << 20, "{command} {file}: {} bytes", ran.out.len());
        }
        let out = folder.path().join("out.pt");
        let ran = within(1_000, &["convert", "--force", "--lossy", file, out.to_str().unwrap()]);
        assert!(ran.code.is_some(), "convert {file}: {}", ran.err);
        assert!(!out.exists() || fs::metadata(&out).unwrap().len() < 1 << 30, "convert {file}");
        let _ = fs::remove_file(out);
    }
}

#[test]
fn large_expansion_is_reported_and_requires_limit() {
    let folder = Folder::new();
    let views_file = folder.path().join("views.pt");
    views(&views_file, 20_000);
    for file in [fixture("attacks2/torch_expand_8GB.pt"), views_file] {
        let file = file.to_str().unwrap();
        let info = run(["info", file]).ok();
        assert!(info.contains("expands to more than 1000 times its size"), "{info}");
        for command in ["verify", "manifest"] {
            let printed = run([command, file]).failed();
            assert!(printed.contains("--limit"), "{printed}");
        }
        let printed = run(["summary", "--stats", file]).failed();
        assert!(printed.contains("--limit"), "{printed}");
        let out = folder.path().join("out.safetensors");
        let printed = run(["convert", file, out.to_str().unwrap()]).failed();
        assert!(printed.contains("--limit") && !out.exists(), "{printed}");
        // A constant of ordinary size does not exceed the limits.
    }
    let printed = run(["info", "--limit", "0", "x.pt"]);
    assert_eq!(printed.code, Some(2), "{}", printed.err);
}

#[test]
fn limits_can_be_raised() {
    let file = fixture("attacks2/zz_ints_3.9M.pt");
    let file = file.to_str().unwrap();
    let printed = run(["info", file]).failed();
    assert!(printed.contains("more than the limit") && printed.contains("--limit"), "{printed}");
    let info = run(["info", "--limit", "20", file]);
    assert_eq!(info.code, Some(0), "{}", info.err);
    // The limits also apply to commands that only examine a file.
    let scan = run(["scan", file]);
    assert_eq!(scan.code, Some(1), "{}", scan.err);
    assert!(scan.out.contains("too large to examine completely"), "{}", scan.out);
    assert!(!scan.out.contains(".."), "{}", scan.out);
    assert_eq!(run(["scan", "--limit", "20", file]).ok(), "nothing to report\n");
    if times(0, 1) == 0 {
        return;
    }
    let folder = Folder::new();
    for name in ["checkpoint_7.mdl", "checkpoint_8.mdl"] {
        fs::copy(file, folder.file(name)).unwrap();
    }
    let path = folder.path().to_str().unwrap();
    assert_eq!(run(["latest", "--sound", path]).code, Some(1));
    let newest = run(["latest", "--sound", "--limit", "20", path]).ok();
    assert!(newest.contains("checkpoint_8.mdl"), "{newest}");
    assert!(run(["runs", path]).ok().contains("more than the limit"));
    assert!(!run(["runs", "--limit", "20", path]).ok().contains("limit"));
    // A checkpoint over the limits doesn't count as kept, and nothing is removed because of it.
    let kept = |more: &[&str]| {
        run([&["prune", path, "--keep", "1", "--json"], more].concat()).json()["files"].clone()
    };
    assert_eq!(kept(&[]).as_array().map(Vec::len), Some(0));
    assert_eq!(kept(&["--limit", "20"]).as_array().map(Vec::len), Some(1));
}

#[test]
fn repeated_text_is_written_once() {
    let folder = Folder::new();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, torch) = (path("texts.pt"), path("out.pt"));
    let count = times(100_000, 400_000);
    texts(Path::new(&file), count);
    let len = fs::metadata(&file).unwrap().len();
    let info = run(["info", &file]).ok();
    assert!(info.contains("expands"), "{info}");
    assert!(run(["manifest", &file]).failed().contains("--limit"));
    run(["convert", &file, &torch]).ok();
    assert!(fs::metadata(&torch).unwrap().len() < 3 * len);
    let again = run(["info", "--json", &torch]).json();
    assert_eq!(again["leaves"], count);
    // Other formats would repeat it.
    for to in ["safetensors", "cerebras", "npz", "tensorflow"] {
        let printed = run(["convert", "--to", to, &file, &path("out")]).failed();
        assert!(printed.contains("--limit"), "{to}: {printed}");
    }
}

#[test]
fn output_with_very_many_keys_opens_again() {
    // A pickle of 300,000 keys has more than four million objects, which was the limit for all
    // files.
    let count = times(50_000, 300_000);
    let folder = Folder::new();
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let (source, target) = (path("many.safetensors"), path("many.pt"));
    many(&source, count);
    run(["convert".as_ref(), source.as_os_str(), target.as_os_str()]).ok();
    let info = run(["info".as_ref(), "--json".as_ref(), target.as_os_str()]).json();
    assert_eq!(info["leaves"], count);
}

#[test]
fn invisible_characters_are_escaped_in_text_and_json() {
    let folder = Folder::new();
    let file = folder.path().join("hidden.safetensors");
    let key = "a\u{61c}\u{2028}\u{2029}\u{feff}\u{ad}\u{2060}\u{e0041}\u{202e}b";
    let header =
        format!("{{\"{key}\":{{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}}}");
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([0; 8]);
    fs::write(&file, bytes).unwrap();
    let file = file.to_str().unwrap();
    for args in [
        &["ls", file][..],
        &["ls", "--json", file],
        &["info", file],
        &["info", "--json", file],
        &["manifest", file],
        &["manifest", "--json", file],
        &["summary", "--to", "md", file],
        &["summary", "--to", "json", file],
        &["summary", "--to", "txt", file],
        &["verify", "--json", file],
        &["show", file, key],
    ] {
        let out = run(args).ok();
        let hidden = key.chars().find(|c| !c.is_ascii() && out.contains(*c));
        assert_eq!(hidden, None, "{args:?}: {out}");
    }
    let listed = run(["ls", "--json", file]).json();
    assert_eq!(listed["entries"][0]["key"], key, "its value is the same");
}

#[test]
fn broken_chunk_index_does_not_hide_other_keys() {
    let whole = fixture("cerebras/v2.10.0/dtypes.mdl");
    let expected = run(["manifest".as_ref(), whole.as_os_str()]).ok();
    let mut bytes = fs::read(&whole).unwrap();
    // The signature of the first index of chunks.
    let at = bytes.windows(5).position(|window| window == b"TREE\x01").unwrap();
    bytes[at] = b'X';
    let folder = Folder::new();
    let file = folder.path().join("broken.mdl");
    fs::write(&file, bytes).unwrap();
    for json in [&["--json"][..], &[]] {
        let ran = run([&["manifest"], json, &[file.to_str().unwrap()]].concat());
        assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
        assert_eq!(ran.err.matches("can't be read").count(), 1, "{}", ran.err);
        if json.is_empty() {
            let kept = ran.out.lines().filter(|line| expected.contains(line)).count();
            assert_eq!(kept, expected.lines().count() - 1, "{}", ran.out);
        } else {
            let manifest: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
            let entries = manifest["entries"].as_array().unwrap();
            assert_eq!(entries.iter().filter(|entry| entry["error"].is_string()).count(), 1);
            assert_eq!(entries.len(), expected.lines().count());
        }
    }
}
