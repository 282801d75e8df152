//! TensorFlow checkpoints named by their prefix, and the two commands that convert them.

use std::path::{Path, PathBuf};

use crate::common::{Folder, fixture, run, text};

/// Returns a prefix below `tests/fixtures`, which is not itself a file.
fn prefix(folder: &str, name: &str) -> PathBuf {
    fixture(folder).join(name)
}

/// Returns key and hash of every leaf.
fn hashes(path: &Path) -> Vec<(String, String)> {
    let manifest = run(["manifest", "--json", &text(path)]).json();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("").to_owned();
    let entries = manifest["entries"].as_array().unwrap();
    entries.iter().map(|entry| (text(&entry["key"]), text(&entry["sha256"]))).collect()
}

#[test]
fn prefix_opens_all_files_of_the_checkpoint() {
    let whole = hashes(&prefix("tf/saver_v2_sharded", "sh"));
    assert_eq!(whole.len(), 6);
    for member in ["sh.index", "sh.data-00002-of-00003", "checkpoint"] {
        assert_eq!(hashes(&prefix("tf/saver_v2_sharded", member)), whole, "{member}");
    }
    assert_eq!(hashes(&prefix("tf/saver_v1_sharded", "old")).len(), 7);
    let error = run(["ls", &text(&prefix("tf/saver_v2_sharded", "s"))]).failed();
    assert!(error.contains("does not exist"), "{error}");
}

#[test]
fn round_trip_through_h5_keeps_every_value() {
    let folder = Folder::new();
    let source = prefix("tf/saver_v2_partitioned", "part");
    let h5 = folder.file("part.h5");
    run(["tensorflow-to-h5", &text(&source), &text(&h5)]).ok();
    let info = run(["info", "--json", &text(&h5)]).json();
    assert_eq!(info["format"]["name"], "cerebras-h5");
    assert_eq!(hashes(&h5), hashes(&source));
    let back = folder.file("model.ckpt-100");
    run(["h5-to-tensorflow", &text(&h5), &text(&back), "--state-file"]).ok();
    assert_eq!(
        folder.names(),
        ["checkpoint", "model.ckpt-100.data-00000-of-00001", "model.ckpt-100.index", "part.h5"]
    );
    assert_eq!(hashes(&back), hashes(&source));
    assert_eq!(hashes(&folder.file("checkpoint")), hashes(&source));
    // By default none of the existing files is replaced.
    std::fs::remove_file(folder.file("model.ckpt-100.index")).unwrap();
    let error = run(["h5-to-tensorflow", &text(&h5), &text(&back)]).failed();
    assert!(error.contains("--force"), "{error}");
    run(["h5-to-tensorflow", &text(&h5), &text(&back), "--force"]).ok();
}

#[test]
fn tensorflow_options_require_tensorflow_output() {
    let folder = Folder::new();
    let source = text(&fixture("torch/zip_training_ckpt.pt"));
    let out = text(&folder.file("m.index"));
    for (more, key) in
        [(&[][..], "model/emb..weight"), (&["--nest", "--force"], "model/emb/weight")]
    {
        run([&["convert", &source, &out, "--lossy", "--object-graph"], more].concat()).ok();
        let key = format!("{key}/.ATTRIBUTES/VARIABLE_VALUE");
        assert!(hashes(&folder.file("m")).iter().any(|(found, _)| *found == key), "{key}");
    }
    let h5 = text(&folder.file("m.h5"));
    for option in ["--object-graph", "--state-file"] {
        let error = run(["convert", &source, &h5, option]).failed();
        assert!(error.contains("--to tensorflow"), "{error}");
    }
    let error = run(["tensorflow-to-h5", &out, &h5, "--to", "torch"]).failed();
    assert!(error.contains("writes cerebras"), "{error}");
}

#[test]
fn object_graph_variables_have_short_names() {
    let file = text(&prefix("tf/tf2_checkpoint", "ckpt-1"));
    let listed = run(["ls", &file, "mod/*"]).ok();
    let whole = "mod/w/.ATTRIBUTES/VARIABLE_VALUE";
    // The first column has the key that every other command accepts; the second, the name that
    // users know.
    let line = listed.lines().find(|line| line.starts_with(whole)).unwrap();
    assert_eq!(line.split_whitespace().nth(1), Some("mod/w"), "{listed}");
    for key in ["mod/w", whole] {
        assert!(run(["show", &file, key]).ok().contains(whole));
        assert!(run(["ls", &file, key]).ok().contains("mod/w "));
    }
    // The part before the first slash is the state.
    let folder = Folder::new();
    let out = text(&folder.path().join("out.safetensors"));
    for (options, left) in [
        (["--states", "mod"], "mod/"),
        (["--states", "model"], "model/"),
        (["--select", "mod/w"], "mod/w/"),
    ] {
        let ran = run([&["convert", "--force", "--lossy", &file, &out], &options[..]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let keys = run(["ls", "--json", &out]).json();
        let keys = keys["entries"].as_array().unwrap();
        assert!(keys.iter().all(|leaf| leaf["key"].as_str().unwrap().starts_with(left)));
        assert_eq!(keys.len() == 1, left == "mod/w/", "{keys:?}");
    }
    // JSON has the key of the file.
    let keys = run(["ls", "--json", &file]).json();
    assert!(keys["entries"].as_array().unwrap().iter().any(|leaf| leaf["key"] == whole));
}
