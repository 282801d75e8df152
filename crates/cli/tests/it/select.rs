//! Sorted and filtered lists, slices, lists of names, several files at once, merging, and the
//! destinations of conversions.

use std::fs;
use std::path::PathBuf;

use crate::common::{Folder, Ran, fixture, run, safetensors, text};

const TRAINER: &str = "cerebras/v2.10.0/gpt_small.mdl";

fn keys(args: &[&str]) -> Vec<String> {
    let listed = run([&["ls", "--json"][..], args].concat()).json();
    let entries = listed["entries"].as_array().unwrap();
    entries.iter().map(|one| one["key"].as_str().unwrap().to_owned()).collect()
}

/// Writes four tensors of several sizes and dtypes.
fn small(folder: &Folder) -> PathBuf {
    let file = safetensors(&[
        ("h.10.w", "U8", &[3], &[1, 2, 3]),
        ("h.2.w", "F32", &[2], &[0; 8]),
        ("h.2.b", "BF16", &[1], &[0; 2]),
        ("x", "I64", &[1], &[0; 8]),
    ]);
    folder.with("small.safetensors", &file)
}

#[test]
fn ls_sorts_and_filters() {
    let folder = Folder::new();
    let file = text(&small(&folder));
    assert_eq!(keys(&[&file, "--sort", "bytes"]), ["h.2.w", "x", "h.10.w", "h.2.b"]);
    assert_eq!(keys(&[&file, "--sort", "bytes", "--reverse"])[0], "h.2.b");
    assert_eq!(keys(&[&file, "--sort", "elements"])[..2], ["h.10.w", "h.2.w"]);
    assert_eq!(keys(&[&file, "--sort", "name"]), ["h.2.b", "h.2.w", "h.10.w", "x"]);
    assert_eq!(keys(&[&file, "--sort", "dtype"])[0], "h.2.b");
    assert_eq!(keys(&[&file, "--min-bytes", "8"]), ["h.2.w", "x"]);
    assert_eq!(keys(&[&file, "--dtype", "bf16", "--dtype", "int64"]), ["h.2.b", "x"]);
    assert_eq!(keys(&[&file, "x", "*.b"]), ["h.2.b", "x"]);
    let trainer = text(&fixture("torch/lightning_like.ckpt"));
    let (all, tensors) = (keys(&[&trainer]).len(), keys(&[&trainer, "--tensors"]).len());
    assert!(0 < tensors && tensors < all, "{tensors} of {all}");
}

#[test]
fn tree_shows_repeated_layers_once() {
    let tree = run(["ls", "--tree", &text(&fixture(TRAINER)), "optimizer.state.*"]).ok();
    assert!(tree.starts_with("optimizer\n  state\n"), "{tree}");
    assert!(tree.contains('\u{d7}') && tree.lines().count() < 84, "{tree}");
}

#[test]
fn slices_match_numpy() {
    let folder = Folder::new();
    let values: Vec<u8> = (0..24u16).flat_map(|value| (value * 100).to_le_bytes()).collect();
    let file = folder.with(
        "a.safetensors",
        &safetensors(&[("w", "U16", &[4, 6], &values), ("w[0]", "U8", &[1], &[9])]),
    );
    let file = text(&file);
    let shown = |key: &str| run(["show", "--json", &file, key]).json()["entries"][0].clone();
    let slice = shown("w[0:2, :4]");
    assert_eq!(slice["slice_shape"], serde_json::json!([2, 4]));
    assert_eq!(slice["values"], serde_json::json!([0, 100, 200, 300, 600, 700, 800, 900]));
    assert_eq!(shown("w[-1, ::-2]")["values"], serde_json::json!([2300, 2100, 1900]));
    assert_eq!(shown("w[3]")["values"][0], 1800);
    // A key that ends with brackets takes precedence over a slice.
    assert_eq!(shown("w[0]")["values"], serde_json::json!([9]));
    let printed = run(["show", &file, "w[1:3, 0:2]"]).ok();
    let at = printed.find("values").unwrap();
    let words: Vec<&str> = printed[at..].split_whitespace().collect();
    assert_eq!(words, ["values", "600", "700", "1200", "1300"], "{printed}");
    assert!(run(["show", &file, "w[4]"]).failed().contains("outside of 4"));
    // Several keys, and a view of a file of another layout.
    let both = run(["show", "--json", &file, "w[0, 0]", "w[0]"]).json();
    assert_eq!(both["entries"].as_array().unwrap().len(), 2);
    let (torch, lz4) = (text(&folder.file("a.pt")), text(&folder.file("a.mdl")));
    for (out, more) in [(&torch, &[][..]), (&lz4, &["--compress", "lz4"])] {
        run([&["convert", &file, out, "--exclude", "w[0]", "--cast", "w=float32"][..], more]
            .concat())
        .failed();
    }
    let trainer = text(&fixture(TRAINER));
    run(["convert", &trainer, &lz4, "--compress", "lz4"]).ok();
    let of = |file: &str| {
        let key = "model.model.wte.weight[90:, -3::2]";
        run(["show", "--json", file, key]).json()["entries"][0]["values"].clone()
    };
    assert_eq!(of(&trainer), of(&lz4));
    assert_eq!(of(&trainer).as_array().unwrap().len(), 14);
}

#[test]
fn quiet_diff_prints_nothing() {
    let folder = Folder::new();
    let one = text(&small(&folder));
    let ran = run(["diff", "-q", &one, &one]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(0), "", ""));
    let ran = run(["diff", "--quiet", &one, &text(&fixture(TRAINER))]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(1), "", ""));
}

#[test]
fn convert_creates_folders_and_accepts_a_folder_as_target() {
    let folder = Folder::new();
    let source = text(&small(&folder));
    let deep = folder.file("a/b/c.pt");
    run(["convert", &source, "-o", &text(&deep)]).ok();
    assert!(deep.is_file());
    let into = folder.file("a");
    run(["convert", &source, &text(&into), "--to", "safetensors"]).ok();
    assert!(folder.file("a/small.safetensors").is_file());
    run(["convert", &source, &format!("{}/new/", text(&into)), "--to", "torch"]).ok();
    assert!(folder.file("a/new/small.pt").is_file());
    assert!(run(["convert", &source, &text(&into)]).failed().contains("--to"));
    // A failed conversion leaves no folder behind.
    let lost = folder.file("x/y/z.safetensors");
    let strings = text(&fixture("tf/saved_model"));
    run(["convert", &strings, &text(&lost)]).failed_after_losses();
    assert!(!folder.file("x").exists());
}

#[test]
fn in_place_replaces_the_file_after_success() {
    let folder = Folder::new();
    let file = folder.file("g.mdl");
    run(["convert", &text(&fixture(TRAINER)), &text(&file), "--format-version", "0.4"]).ok();
    run(["convert", &text(&file), "--in-place", "--states", "model", "--cast", "bfloat16"]).ok();
    assert_eq!(folder.names(), ["g.mdl"]);
    let info = run(["info", "--json", &text(&file)]).json();
    assert_eq!(info["format"]["version"], "0.4");
    assert_eq!(info["dtypes"][0]["dtype"], "bfloat16");
    let before = fs::read(&file).unwrap();
    // Falsified output is not kept.
    let error = run(["convert", &text(&file), "--in-place", "--select", "nothing"]).failed();
    assert!(error.contains("nothing"), "{error}");
    assert!(fs::read(&file).unwrap() == before);
    let keras = folder.file("k.h5");
    fs::copy(fixture("keras/k3_seq.weights.h5"), &keras).unwrap();
    let error = run(["convert", &text(&keras), "--in-place"]).failed();
    assert!(error.contains("does not write the format"), "{error}");
}

#[test]
fn rename_map_reads_names_from_a_file() {
    let folder = Folder::new();
    let source = text(&small(&folder));
    let out = text(&folder.file("out.safetensors"));
    let columns = text(&folder.with("names.txt", b"# old new\nh.10.w layers.10.weight\nx  y\n"));
    run(["convert", &source, &out, "--rename-map", &columns]).ok();
    assert_eq!(keys(&[&out, "--sort", "name"]), ["h.2.b", "h.2.w", "layers.10.weight", "y"]);
    let json = text(&folder.with("names.json", br#"{"x": "z"}"#));
    run(["convert", &source, &out, "--force", "--rename-map", &json]).ok();
    assert!(keys(&[&out]).contains(&"z".to_owned()));
    let none = text(&folder.with("none.txt", b"nobody somebody\n"));
    let ran = run(["convert", &source, &out, "--force", "--rename-map", &none]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.err.contains("no key is in this list"), "{}", ran.err);
    let bad = text(&folder.with("bad.txt", b"one\n"));
    let error = run(["convert", &source, &out, "--force", "--rename-map", &bad]).failed();
    assert!(error.contains("bad.txt") && error.contains("line 1"), "{error}");
}

#[test]
fn several_files_are_shown_as_one_table() {
    let folder = Folder::new();
    let one = text(&small(&folder));
    let other = text(&fixture(TRAINER));
    for command in ["info", "verify"] {
        let printed = run([command, &one, &other]).ok();
        assert_eq!(printed.lines().count(), 3, "{printed}");
        assert!(printed.lines().next().unwrap().starts_with("file "), "{printed}");
        let json = run([command, "--json", &one, &other]).json();
        assert_eq!(json["statelens"], 1);
        let rows = json["checkpoints"].as_array().unwrap();
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| row["path"].is_string() && row["bytes"].is_u64()), "{json}");
        let ran = run([command, &one, "missing.pt"]);
        assert_eq!(ran.code, Some(2), "{}", ran.out);
        assert!(ran.err.contains("missing.pt") && ran.out.contains("could not be read"));
    }
    let mut broken = fs::read(&other).unwrap();
    broken.truncate(3_000);
    let broken = text(&folder.with("broken.mdl", &broken));
    assert_eq!(run(["verify", &one, &broken]).code, Some(1));
    let attack = text(&fixture("attacks/os_system_reduce.pkl"));
    let ran = run(["scan", &one, &attack]);
    let table = ran.out.lines().position(|line| line.starts_with("file ")).unwrap();
    assert!(ran.out.lines().nth(table + 1).unwrap().contains("danger"), "{}", ran.out);
}

#[test]
fn merge_refuses_colliding_keys() {
    let folder = Folder::new();
    let model = text(&small(&folder));
    let bytes = safetensors(&[("lora.a", "U8", &[2], &[4, 5]), ("lora.b", "U8", &[1], &[6])]);
    fs::create_dir(folder.file("other")).unwrap();
    // A file with the same name in another folder.
    let adapter = text(&folder.with("other/small.safetensors", &bytes));
    let out = text(&folder.file("merged.safetensors"));
    run(["merge", &model, &adapter, &out]).ok();
    assert_eq!(keys(&[&out]).len(), 6);
    let values =
        |key: &str| run(["show", "--json", &out, key]).json()["entries"][0]["values"].clone();
    assert_eq!((values("h.10.w"), values("lora.a")), (vec![1, 2, 3].into(), vec![4, 5].into()));
    let clash = text(&folder.with("clash.safetensors", &safetensors(&[("x", "U8", &[1], &[7])])));
    let ran: Ran = run(["merge", &model, &clash, "-o", &out, "--force"]);
    let printed = ran.failed_after_losses();
    assert!(printed.contains("`x` is in") && printed.contains("clash.safetensors"), "{printed}");
    assert_eq!(keys(&[&out]).len(), 6, "nothing was written");
    let ran = run(["merge", &model, &clash, "-o", &out, "--force", "--lossy"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("the last of each is kept"), "{}", ran.err);
    assert_eq!((keys(&[&out]).len(), values("x")), (4, vec![7].into()));
    // Nested dicts are merged, and the formats may differ.
    let trainer = text(&fixture(TRAINER));
    let mine = text(&folder.file("m.pt"));
    let theirs = text(&folder.file("o.mdl"));
    run(["convert", &trainer, &mine, "--select", "model.model.*ln*"]).ok();
    run(["convert", &trainer, &theirs, "--exclude", "model.model.*ln*"]).ok();
    let whole = text(&folder.file("whole.mdl"));
    run(["merge", &theirs, &mine, &whole]).ok();
    run(["diff", &whole, &trainer]).ok();
    assert!(run(["merge", &model, &out]).failed().contains("two or more"));
}
