//! The commands that examine a checkpoint: info, ls, show, manifest, scan; and the command line
//! itself.

use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;

use crate::common::{Folder, fixture, run, safetensors, statelens, text};

const SEED: &str = "cerebras/v2.10.0/seed.mdl";

fn path(name: &str) -> String {
    fixture(name).to_string_lossy().into_owned()
}

#[test]
fn help_lists_every_command_with_examples() {
    let help = run(["--help"]).ok();
    for command in [
        "info",
        "ls",
        "show",
        "manifest",
        "convert",
        "scan",
        "formats",
        "completions",
        "man",
        "Examples:",
    ] {
        assert!(help.contains(command), "{command} is not in\n{help}");
    }
    for command in
        ["info", "ls", "show", "manifest", "convert", "scan", "formats", "completions", "man"]
    {
        let help = run([command, "--help"]).ok();
        assert!(help.contains("Example"), "{command}: {help}");
    }
    assert!(run(["--version"]).ok().starts_with("statelens "));
}

#[test]
fn wrong_command_line_exits_with_status_2() {
    for args in [&["frobnicate"][..], &["info"], &["ls", "--frobnicate", "x"], &[]] {
        let ran = run(args);
        assert_eq!(ran.code, Some(2), "{args:?}");
        assert!(ran.out.is_empty() && !ran.err.is_empty(), "{args:?}");
    }
}

#[test]
fn completions_and_man_page_match_the_definitions() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = run(["completions", shell]).ok();
        assert!(script.contains("format-version"), "{shell}");
    }
    let page = run(["man"]).ok();
    assert!(page.starts_with(".ie") || page.starts_with(".TH"), "{}", &page[..80]);
    for word in ["CONVERT", "format\\-version", "Examples"] {
        assert!(page.contains(word), "{word}");
    }
}

#[test]
fn ls_flattens_keys_as_the_library_does() {
    let listed = run(["ls", "--json", &path(SEED)]).json();
    let keys: Vec<_> =
        listed["entries"].as_array().unwrap().iter().map(|leaf| &leaf["key"]).collect();
    assert_eq!(keys, ["a.b", "a.c", "d.0", "d.1", "d.2"]);
    assert_eq!(listed["entries"][1]["kind"], "float");
    assert_eq!(listed["entries"][1]["value"], 0.001);
    let text = run(["ls", &path(SEED), "d.*"]).ok();
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.starts_with("key"), "{text}");
    let text = run(["ls", &path(SEED), "/^a[.]c$/"]).ok();
    assert!(text.lines().nth(1).unwrap().starts_with("a.c"), "{text}");
    assert_eq!(run(["ls", &path(SEED), "nothing"]).ok(), "no key matches\n");
    assert_eq!(run(["ls", &path(SEED), "d"]).ok(), "no key matches; the keys in d match 'd.*'\n");
    let error = run(["info", "some-owner/some-model"]).failed();
    assert!(error.contains("the file does not exist"), "{error}");
    assert!(error.contains("write hf://some-owner/some-model"), "{error}");
    for other in ["some-owner/model.safetensors", "a/b/c", "src/nothing"] {
        let error = run(["info", other]).failed();
        assert!(!error.contains("hf://"), "{error}");
    }
    assert!(run(["ls", &path(SEED), "/(/"]).failed().contains("/(/"));
}

#[test]
fn info_counts_bytes_by_dtype_and_state() {
    let file = path("cerebras/v2.10.0/gpt_small.mdl");
    let info = run(["info", "--json", &file]).json();
    assert_eq!(info["statelens"], 1);
    assert_eq!(info["format"]["name"], "cerebras-h5");
    let of = |list: &str| -> u64 {
        info[list].as_array().unwrap().iter().map(|row| row["bytes"].as_u64().unwrap()).sum()
    };
    assert!(info["bytes"].as_u64().unwrap() > 0);
    assert_eq!(of("dtypes"), info["bytes"]);
    assert_eq!(of("states"), info["bytes"]);
    let text = run(["info", &file]).ok();
    for word in ["Cerebras", "gpt_small.mdl", "float32", "model", "optimizer"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn show_prints_values_and_suggests_similar_keys() {
    let file = path("cerebras/v2.10.0/dtypes.mdl");
    let listed = run(["ls", "--json", &file]).json();
    let leaves = listed["entries"].as_array().unwrap();
    let tensor = leaves.iter().find(|leaf| leaf["dtype"] == "float32").unwrap();
    let key = tensor["key"].as_str().unwrap();
    let shown = run(["show", "--json", &file, key, "--values", "2"]).json();
    assert_eq!(shown["entries"][0]["shape"], tensor["shape"]);
    assert!(shown["entries"][0]["values"].as_array().unwrap().len() <= 2);
    assert!(shown["entries"][0]["values"][0].is_number(), "{shown}");
    let text = run(["show", &file, key]).ok();
    for word in ["float32", "stored in", "values"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let error = run(["show", &path(SEED), "a.bb"]).failed();
    assert!(error.contains("`a.b`"), "{error}");
}

#[test]
fn manifest_has_one_entry_per_line() {
    let manifest = run(["manifest", "--json", &path(SEED)]).json();
    assert_eq!(manifest["statelens"], 1);
    for name in ["name", "version", "producer"] {
        assert!(manifest["format"][name].is_string(), "{name}");
    }
    assert_eq!(
        manifest["entries"][1],
        serde_json::json!({"key": "a.c", "kind": "float", "value": "0.001"})
    );
    let lines = run(["manifest", &path(SEED)]).ok();
    assert_eq!(lines.lines().count(), 5, "{lines}");
}

#[test]
fn scan_exits_with_status_1_on_danger() {
    let ran = run(["scan", &path("attacks/os_system_reduce.pkl")]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("danger") && ran.out.contains("system"), "{}", ran.out);
    let ran = run(["scan", "--json", &path("attacks/os_system_reduce.pt")]);
    assert_eq!(ran.code, Some(1));
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["worst"], "danger");
    let ran = run(["scan", &path("torch/zip_tied.pt")]);
    assert_eq!(ran.code, Some(0), "{}", ran.out);
}

#[test]
fn describes_non_checkpoints_in_one_sentence() {
    let folder = Folder::new();
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    for (name, bytes, word) in [
        ("pointer.pt", &pointer[..], "LFS"),
        ("page.mdl", b"<!DOCTYPE html><html>", "web page"),
        ("empty.pt", b"", "empty"),
        ("zeros.mdl", &[0; 5_000], "zeros"),
        ("text.pt", b"hello there, this is text", "not a checkpoint"),
    ] {
        let error =
            run([std::ffi::OsStr::new("info"), folder.with(name, bytes).as_os_str()]).failed();
        assert!(error.contains(word) && error.contains(name), "{error}");
    }
    let error = run(["info", &folder.path().to_string_lossy()]).failed();
    assert!(error.contains("pointer.pt: this is a Git LFS pointer"), "{error}");
    let error = run(["info", &folder.file("missing.pt").to_string_lossy()]).failed();
    assert!(error.contains("does not exist"), "{error}");
}

#[cfg(unix)]
#[test]
fn refuses_a_named_pipe_without_blocking() {
    let folder = Folder::new();
    let pipe = folder.file("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let error = run(["info", &pipe.to_string_lossy()]).failed();
    assert!(error.contains("not a regular file"), "{error}");
}

#[test]
fn closed_pipe_prints_no_error() {
    let mut child = statelens()
        .args(["ls", "--json", &path("torch/zip_many_20k.pt")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 1];
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut first).unwrap();
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn external_links_are_followed_in_the_folder_and_with_option() {
    let folder = Folder::new();
    let special = "cerebras/v2.10.0-special";
    let copy = |name: &str, to: &std::path::Path| {
        std::fs::copy(fixture(&format!("{special}/{name}")), to).unwrap();
    };
    let link = folder.file("link_external.mdl");
    copy("link_external.mdl", &link);
    let link = link.to_string_lossy().into_owned();
    let missing = |args: &[&str]| run(args).json()["missing"].as_u64().unwrap();
    assert!(missing(&["info", "--json", &link]) > 0, "the other file was not given");
    let elsewhere = Folder::new();
    let target = elsewhere.file("link_target.mdl");
    copy("link_target.mdl", &target);
    let target = target.to_string_lossy().into_owned();
    assert_eq!(missing(&["info", "--json", &link, "--with", &target]), 0);
    copy("link_target.mdl", &folder.file("link_target.mdl"));
    assert_eq!(missing(&["info", "--json", &link]), 0);
}

/// The README's table matches the code.
#[test]
fn readme_table_matches_the_formats() {
    let printed = run(["formats", "--markdown"]).ok();
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let (_, rest) = readme.split_once("<!-- formats: ").unwrap();
    let (_, rest) = rest.split_once("-->\n").unwrap();
    let (table, _) = rest.split_once("<!-- /formats -->").unwrap();
    assert_eq!(table, printed, "put the output of `statelens formats --markdown` there");
    let json = run(["formats", "--json"]).json();
    let names: Vec<&str> = json["formats"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"PyTorch"), "{names:?}");
    let plain = run(["formats"]).ok();
    assert!(names.iter().all(|name| plain.contains(name)), "{plain}");
}

#[test]
fn link_shows_its_value_and_target() {
    let file = path("cerebras/v2.10.0/tied.mdl");
    let listed = run(["ls", "--json", &file]).json();
    let link = listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["key"] == "same_int.1")
        .unwrap();
    let first = listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["key"] == "same_int.0")
        .unwrap();
    assert_eq!((&link["alias_of"], &link["value"]), (&"same_int.0".into(), &first["value"]));
    let value = &*first["value"].to_string();
    let table = run(["ls", &file, "same_int.1"]).ok();
    assert!(table.contains(&format!("{value} (= same_int.0)")), "{table}");
    let key = "same_int.1";
    let shown = run(["show", &file, key]).ok();
    let row = |name: &str| {
        let line = shown.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.trim_start_matches(name).trim().to_owned()
    };
    assert_eq!((row("link").as_str(), row("value").as_str()), ("= same_int.0", value), "{shown}");
    let json = run(["show", "--json", &file, key]).json();
    assert_eq!(json["entries"][0]["value"], link["value"]);
}

#[test]
fn tensorflow_variables_accept_their_short_name() {
    let file = path("tf/tf2_checkpoint/ckpt-1.index");
    let listed = run(["ls", "--json", &file]).json();
    let mut entries = listed["entries"].as_array().unwrap().iter();
    let is_float = |one: &&serde_json::Value| one["dtype"] == "float32";
    let variable = entries.find(|one| is_float(one) && !one["short"].is_null()).unwrap();
    let (key, short) = (variable["key"].as_str().unwrap(), variable["short"].as_str().unwrap());
    assert_eq!(key, format!("{short}/.ATTRIBUTES/VARIABLE_VALUE"));
    let table = run(["ls", &file]).ok();
    assert!(table.lines().next().unwrap().starts_with("key "), "{table}");
    let row = table.lines().find(|line| line.starts_with(key)).unwrap();
    assert!(row.contains(&format!("  {short}  ")), "{row}");
    // Both names find the key.
    assert_eq!(run(["show", "--json", &file, short]).json()["entries"][0]["key"], key);
    assert_eq!(run(["show", "--json", &file, key]).json()["entries"][0]["key"], key);
    // Both can be renamed and cast.
    let folder = Folder::new();
    let out = folder.path().join("out.safetensors").to_string_lossy().into_owned();
    let written = |edit: &[&str]| {
        let args = ["convert", &file, &out, "--lossy", "--force"];
        run([&args, edit].concat()).ok();
        run(["ls", "--json", &out]).json()["entries"].as_array().unwrap().clone()
    };
    for (name, new) in [(short, "kernel/.ATTRIBUTES/VARIABLE_VALUE"), (key, "kernel")] {
        let entries = written(&["--rename", &format!("^{name}$=>kernel")]);
        assert!(entries.iter().any(|one| one["key"] == new), "{entries:?}");
        assert!(entries.iter().all(|one| one["key"] != key), "{name}");
        let entries = written(&["--cast", &format!("{name}=float16")]);
        let one = entries.iter().find(|one| one["key"] == key).unwrap();
        assert_eq!(one["dtype"], "float16", "{name}");
    }
}

#[test]
fn show_names_the_parameter_of_an_optimizer_entry() {
    let file = path("cerebras/v2.10.0/gpt_small.mdl");
    let shown = |key: &str| run(["show", "--json", &file, key]).json()["entries"][0].clone();
    // cstorch numbers parameters in the model's order, and does not count a tied head.
    assert_eq!(
        shown("optimizer.state.4.exp_avg")["parameter"]["key"],
        "model.model.blocks.0.qkv.weight"
    );
    assert_eq!(shown("optimizer.state.27.exp_avg")["parameter"]["key"], "model.model.ln_f.bias");
    assert!(shown("model.model.wte.weight")["parameter"].is_null());
    let printed = run(["show", &file, "optimizer.state.4.exp_avg"]).ok();
    assert!(printed.contains(" model.model.blocks.0.qkv.weight (matched by order"), "{printed}");
}

#[test]
fn show_prints_python_code_that_reads_a_tensor() {
    let file = path("torch/zip_training_ckpt.pt");
    let listed = run(["ls", "--json", &file, "--tensors"]).json();
    let key = listed["entries"][0]["key"].as_str().unwrap().to_owned();
    let code = run(["show", &file, &key, "--code"]).ok();
    assert!(code.starts_with("import torch\n"), "{code}");
    assert!(code.contains(&file) && code.contains("weights_only=True"), "{code}");
    assert!(run(["show", &file, &key, "--code=numpy.memmap"]).ok().contains("np.memmap"));
    assert!(run(["show", &file, &key, "--code=jax"]).ok().contains("jnp.asarray(tensor)"));
    let error = run(["show", &file, &key, "--code=tensorflow"]).failed();
    assert!(error.contains("expected torch or numpy.memmap or jax"), "{error}");
}

/// The libraries read it: it has no elements, however long its rows are.
#[test]
fn empty_tensors_may_have_a_huge_dimension() {
    let folder = Folder::new();
    let tensors: [(&str, &str, &[u64], &[u8]); 5] = [
        ("w", "F32", &[0, 1 << 62], &[]),
        ("x", "F64", &[1 << 62, 0], &[]),
        ("y", "BF16", &[1, 1 << 31, 0, 1 << 31], &[]),
        ("z", "F32", &[1 << 62, 2, 0], &[]),
        ("z2", "F16", &[1 << 62, 0, 2], &[]),
    ];
    let file = text(&folder.with("a.safetensors", &safetensors(&tensors)));
    let out = |name: &str| text(&folder.file(name));
    let [pt, st, mdl] = [out("b.pt"), out("b.safetensors"), out("b.mdl")];
    let [tf, npz] = [out("b.index"), out("b.npz")];
    for args in [
        &["ls", &file][..],
        &["summary", &file],
        &["info", "--model", &file],
        &["stats", &file],
        &["verify", &file],
        &["manifest", &file],
        &["scan", &file],
        &["diff", &file, &file],
        &["show", &file, "w"],
        &["show", &file, "w[:, 5:7]"],
        &["convert", &file, &pt],
        &["convert", &file, &st, "--cast", "float16"],
        &["convert", &file, &mdl],
        &["convert", &file, &tf],
        &["convert", &pt, &st, "--force"],
        &["stats", &mdl],
        &["diff", &file, &tf],
        &["verify", &pt],
    ] {
        let ran = run(args);
        assert_eq!(ran.code, Some(0), "{args:?}: {}{}", ran.out, ran.err);
    }
    // numpy refuses it.
    let refused = run(["convert", &file, &npz, "--lossy"]).err;
    assert!(refused.contains("numpy refuses the shape"), "{refused}");
}
