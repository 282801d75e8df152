//! Checkpoints of several files: named by a folder, an index or a shard, and written in shards.

use std::fs;

use crate::common::{Folder, fixture, run, text};

const SHARDS: [&str; 3] = [
    "model-00001-of-00003.safetensors",
    "model-00002-of-00003.safetensors",
    "model-00003-of-00003.safetensors",
];

/// Copies the set of the fixtures without some of its files.
fn set(folder: &Folder, without: &[&str]) {
    let source = fixture("hf_sharded_safetensors");
    for name in SHARDS.iter().chain(&["model.safetensors.index.json"]) {
        if !without.contains(name) {
            fs::copy(source.join(name), folder.file(name)).unwrap();
        }
    }
}

#[test]
fn folder_index_and_shard_open_the_same_checkpoint() {
    let folder = Folder::new();
    set(&folder, &[]);
    fs::write(folder.file("config.json"), "{}").unwrap();
    let whole = run(["manifest", &text(folder.path())]).ok();
    assert!(whole.contains("model.layers.4.w"), "{whole}");
    for name in ["model.safetensors.index.json", SHARDS[1]] {
        assert_eq!(run(["manifest", &text(&folder.file(name))]).ok(), whole);
    }
    // With a second checkpoint in the folder, the file must be named.
    fs::copy(fixture("safetensors/order.safetensors"), folder.file("order.safetensors")).unwrap();
    let error = run(["manifest", &text(folder.path())]).failed();
    assert!(
        error.contains("2 checkpoints: model.safetensors.index.json, order.safetensors"),
        "{error}"
    );
    let listed = run(["ls", &text(folder.path())]).ok();
    // The width of the column depends on the path of the folder.
    for name in ["model.safetensors.index.json", "order.safetensors"] {
        let row = listed.lines().find(|line| line.contains(name)).unwrap_or_default();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert!(cells[0].ends_with(name) && cells[1] == "whole", "{listed}");
    }
    let empty = Folder::new();
    let error = run(["ls", &text(empty.path())]).failed();
    assert!(error.contains("holds no checkpoint"), "{error}");
}

#[test]
fn describes_folders_without_a_checkpoint() {
    for folder in ["orbax/steps", "orbax/steps/10", "orbax/steps/0/default"] {
        let error = run(["ls", &text(&fixture(folder))]).failed();
        assert!(error.contains("Orbax") && error.contains("orbax.checkpoint"), "{error}");
    }
    let clone = Folder::new();
    fs::write(clone.file("config.json"), "{}").unwrap();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4938993736\n";
    fs::write(clone.file("model.safetensors"), pointer).unwrap();
    let error = run(["ls", &text(clone.path())]).failed();
    for word in ["model.safetensors: ", "4,938,993,736 bytes", "git lfs pull"] {
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn names_a_missing_shard() {
    let folder = Folder::new();
    set(&folder, &[SHARDS[1]]);
    let info = run(["info", "--json", &text(folder.path())]).json();
    let finding = &info["findings"][0];
    assert_eq!(finding["missing"], serde_json::json!([SHARDS[1]]));
    let listed = run(["ls", &text(folder.path())]).ok();
    assert_eq!(listed.lines().filter(|line| line.contains("unknown")).count(), 2, "{listed}");
    // It can't be converted whole, but it can without the missing keys.
    let out = folder.file("out.pt");
    let input = text(&folder.file(SHARDS[0]));
    let error = run(["convert", &input, &text(&out)]).failed_after_losses();
    assert!(error.contains(SHARDS[1]), "{error}");
    let rest = ["--exclude", "*.2.w", "--exclude", "*.3.w"];
    run(["convert", &input, &text(&out)].into_iter().chain(rest)).ok();
}

#[test]
fn incomplete_set_requires_lossy() {
    let folder = Folder::new();
    // Without the index, the contents of the missing shards are unknown.
    set(&folder, &[SHARDS[1], "model.safetensors.index.json"]);
    let keras = fixture("keras");
    for name in ["k3_sharded.weights.json", "k3_sharded_00001.weights.h5"] {
        fs::copy(keras.join(name), folder.file(name)).unwrap();
    }
    for (name, missing) in
        [(SHARDS[0], SHARDS[1]), ("k3_sharded.weights.json", "k3_sharded_00000.weights.h5")]
    {
        let (input, out) = (text(&folder.file(name)), text(&folder.file("out.npz")));
        let refused = run(["convert", &input, &out]);
        assert_eq!(refused.code, Some(2));
        let named = format!("would be lost: `{missing}");
        assert!(refused.err.contains(&named) && refused.err.contains("--lossy"), "{}", refused.err);
        run(["convert", &input, &out, "--lossy", "--force"]).ok();
    }
}

#[test]
fn writes_shards_by_size_and_name() {
    let folder = Folder::new();
    let source = text(&fixture("hf_sharded_safetensors"));
    let by_size = text(&folder.file("model.safetensors"));
    run(["convert", &source, &by_size, "--shard-size", "512"]).ok();
    for name in SHARDS {
        let original = fs::read(fixture("hf_sharded_safetensors").join(name)).unwrap();
        assert!(fs::read(folder.file(name)).unwrap() == original, "{name}");
    }
    let manifest = |path: &str| run(["manifest", path]).ok();
    assert_eq!(manifest(&text(folder.path())), manifest(&source));

    let named = Folder::new();
    let out = text(&named.file("m.safetensors"));
    run([
        "convert",
        &source,
        &out,
        "--shard",
        "*.0.w=first",
        "--shard",
        "lm_head*=head.safetensors",
    ])
    .ok();
    let mut names = named.names();
    names.sort();
    assert_eq!(
        names,
        ["first.safetensors", "head.safetensors", "m.safetensors", "m.safetensors.index.json"]
    );
    assert_eq!(manifest(&text(&named.file("m.safetensors.index.json"))), manifest(&source));
    for (option, word) in [("--shard=nothing*=x", "no key"), ("--shard-size=5XB", "not a size")] {
        let error = run(["convert", &source, &out, "--force", option]).failed();
        assert!(error.contains(word), "{error}");
    }
    let error = run(["convert", &source, &text(&named.file("a.mdl")), "--shard-size=5GB"]).failed();
    assert!(error.contains("can't be sharded"), "{error}");
}
