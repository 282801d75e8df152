//! `statelens convert`: refusals, cleanup and results.

use std::path::Path;

use crate::common::{Folder, Ran, fixture, heeding, run, text};

fn convert(input: &Path, output: &Path, more: &[&str]) -> Ran {
    let (input, output) = (text(input), text(output));
    let mut args = vec!["convert", &input, &output];
    args.extend(more);
    run(args)
}

/// Returns key, kind, dtype, shape, and hash or value of every leaf, which a conversion must
/// preserve.
fn entries(path: &Path) -> Vec<serde_json::Value> {
    let manifest = run(["manifest", "--json", &text(path)]).json();
    manifest["entries"].as_array().unwrap().clone()
}

#[test]
fn round_trip_keeps_every_value() {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0/gpt_small.mdl");
    let torch = folder.file("a.pt");
    let printed = convert(&source, &torch, &[]).ok();
    assert!(printed.starts_with("wrote "), "{printed}");
    assert_eq!(folder.names(), ["a.pt"]);
    let hashes = |path: &Path| -> Vec<(String, String, String)> {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or("").to_owned();
        entries(path)
            .iter()
            .map(|entry| (text(&entry["key"]), text(&entry["kind"]), text(&entry["sha256"])))
            .collect()
    };
    assert_eq!(hashes(&source), hashes(&torch));
    for more in [&[][..], &["--compress", "lz4"], &["--compress", "gzip"]] {
        let back = folder.file("back.mdl");
        convert(&torch, &back, more).ok();
        assert_eq!(hashes(&source), hashes(&back), "{more:?}");
        std::fs::remove_file(back).unwrap();
    }
    let old = folder.file("old.mdl");
    convert(&torch, &old, &["--format-version", "0.4"]).ok();
    assert_eq!(run(["info", "--json", &text(&old)]).json()["format"]["version"], "0.4");
    assert_eq!(hashes(&source), hashes(&old));
}

#[test]
fn keeps_an_existing_target_without_force() {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0/seed.mdl");
    let target = folder.with("a.pt", b"precious");
    let error = convert(&source, &target, &[]).failed();
    assert!(error.contains("--force"), "{error}");
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    convert(&source, &target, &["--force"]).ok();
    assert_eq!(entries(&target).len(), 5);
    assert_eq!(folder.names(), ["a.pt"]);
}

#[test]
fn refuses_the_source_as_target() {
    let folder = Folder::new();
    let source = folder.file("a.mdl");
    std::fs::copy(fixture("cerebras/v2.10.0/seed.mdl"), &source).unwrap();
    let before = std::fs::read(&source).unwrap();
    let error = convert(&source, &source, &["--force"]).failed();
    assert!(error.contains("read from"), "{error}");
    assert_eq!(std::fs::read(&source).unwrap(), before);
    #[cfg(unix)]
    {
        let link = folder.file("b.mdl");
        std::os::unix::fs::symlink(&source, &link).unwrap();
        let error = convert(&source, &link, &["--force"]).failed();
        assert!(error.contains("read from"), "{error}");
    }
}

#[test]
fn dry_run_reports_the_size_and_writes_nothing() {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0/gpt_small.mdl");
    let target = folder.file("a.pt");
    let plan = convert(&source, &target, &["--dry-run", "--json"]).json();
    assert_eq!(plan["dry_run"], true);
    assert_eq!(plan["exact"], true);
    assert!(convert(&source, &target, &["--dry-run"]).ok().contains("would write"));
    assert!(folder.names().is_empty());
    let done = convert(&source, &target, &["--json"]).json();
    assert_eq!(done["bytes"], plan["bytes"]);
    assert_eq!(std::fs::metadata(&target).unwrap().len(), done["bytes"].as_u64().unwrap());
}

#[test]
fn writes_only_selected_keys_in_the_cast_dtype() {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0/gpt_small.mdl");
    let target = folder.file("a.pt");
    convert(&source, &target, &["--select", "model.*", "--exclude", "*bias", "--cast", "bf16"])
        .ok();
    let entries = entries(&target);
    assert!(!entries.is_empty());
    for entry in &entries {
        let key = entry["key"].as_str().unwrap();
        assert!(key.starts_with("model.") && !key.ends_with("bias"), "{key}");
        assert_eq!(entry["dtype"], "bfloat16", "{key}");
    }
    let error = convert(&source, &folder.file("b.pt"), &["--select", "nothing.*"]).failed();
    assert!(error.contains("nothing.*"), "{error}");
    let error = convert(&source, &folder.file("b.pt"), &["--cast", "float7"]).failed();
    assert!(error.contains("float7"), "{error}");
    assert_eq!(folder.names(), ["a.pt"]);
}

#[test]
fn losses_are_listed_and_require_lossy() {
    let folder = Folder::new();
    let source = fixture("torch/zip_python_objects.pt");
    let target = folder.file("a.pt");
    let refused = convert(&source, &target, &[]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("would be lost: `") && refused.err.contains("--lossy"));
    assert!(refused.err.lines().count() > 1, "{}", refused.err);
    assert!(folder.names().is_empty());
    let plan = convert(&source, &target, &["--dry-run", "--json"]).json();
    let losses = plan["losses"].as_array().unwrap();
    assert!(losses.iter().any(|loss| loss["harmless"] == false), "{plan}");
    let printed = convert(&source, &target, &["--lossy"]).ok();
    assert!(printed.contains("lost "), "{printed}");
    assert_eq!(folder.names(), ["a.pt"]);
}

#[test]
fn refuses_unknown_formats_and_options_of_other_formats() {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0/seed.mdl");
    let error = convert(&source, &folder.file("a.xyz"), &[]).failed();
    assert!(error.contains("--to"), "{error}");
    let error = convert(&source, &folder.file("a.pt"), &["--compress", "lz4"]).failed();
    assert!(error.contains("--compress"), "{error}");
    let error = convert(&source, &folder.file("a.pt"), &["--format-version", "0.4"]).failed();
    assert!(error.contains("--format-version"), "{error}");
    assert!(folder.names().is_empty());
    convert(&source, &folder.file("a.xyz"), &["--to", "torch"]).ok();
    assert_eq!(entries(&folder.file("a.xyz")).len(), 5);
}

#[test]
fn reports_a_target_that_cannot_be_written() {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0/seed.mdl");
    folder.with("file", b"mine");
    let error = convert(&source, &folder.file("file/a.pt"), &[]).failed();
    assert!(error.contains("can't be created"), "{error}");
    assert_eq!(folder.names(), ["file"]);
}

#[cfg(unix)]
#[test]
fn reports_a_read_only_folder() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let locked = folder.file("locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::set_permissions(&locked, PermissionsExt::from_mode(0o555)).unwrap();
    if std::fs::write(locked.join("probe"), b"").is_ok() {
        crate::common::skipped("root may write anywhere");
        return;
    }
    let error = convert(&fixture("cerebras/v2.10.0/seed.mdl"), &locked.join("a.pt"), &[]).failed();
    assert!(error.contains("permission to write"), "{error}");
}

#[cfg(unix)]
#[test]
fn full_disk_keeps_the_old_target() {
    let folder = Folder::new();
    let target = folder.with("a.pt", b"precious");
    // The shell ignores the signal that the limit would send, so writing fails as on a full disk.
    // The limit is in blocks of 512 or 1024 bytes, less than the file needs.
    let script = "trap '' XFSZ; ulimit -f 16; exec \"$@\"";
    let output = std::process::Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_statelens"), "convert", "--force"])
        .arg(fixture("cerebras/v2.10.0/gpt_small.mdl"))
        .arg(&target)
        .output()
        .unwrap();
    let error = Ran::from(output).failed();
    assert!(error.contains("writing failed"), "{error}");
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    assert_eq!(folder.names(), ["a.pt"]);
}

/// Returns a PyTorch file of a few hundred bytes whose one tensor has 1 GB: a single zero, repeated
/// by a stride of 0. Converting it takes long enough to be interrupted.
#[cfg(unix)]
fn large(folder: &Folder) -> std::path::PathBuf {
    let mut pickle = b"\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((".to_vec();
    pickle
        .extend(b"X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x01tQK\0J");
    pickle.extend((1u32 << 28).to_le_bytes());
    pickle.extend(b"\x85K\0\x85\x89ccollections\nOrderedDict\n)RtRs.");
    let members = [("a/data.pkl", &pickle[..]), ("a/version", b"3\n"), ("a/data/0", &[0; 4])];
    folder.with("large.pt", &crate::common::stored_zip(&members))
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_the_old_target() {
    let folder = Folder::new();
    let target = folder.with("a.pt", b"precious");
    let mut child = heeding()
        // It expands to far more than its size.
        .args(["convert", "--force", "--limit", "none"])
        .arg(large(&folder))
        .arg(&target)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Wait until it begins to write.
    let started = std::time::Instant::now();
    while folder.names().len() < 3 {
        assert!(started.elapsed().as_secs() < 30, "it does not begin");
        if child.try_wait().unwrap().is_some() {
            panic!("it ended too early: {:?}", child.wait_with_output().unwrap());
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pid = child.id().to_string();
    let sent = std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    let error = Ran::from(output).interrupted();
    assert!(error.contains("stopped"), "{error}");
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    assert_eq!(folder.names(), ["a.pt", "large.pt"]);
}

#[test]
fn preview_shows_the_renamed_keys() {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0/gpt_small.mdl");
    let target = folder.file("a.pt");
    let edits = [
        "--states",
        "model,global_step",
        "--rename",
        "^model\\.=>net.",
        "--rename",
        r"\bbias$=>b",
        "--cast",
        "*.b=bfloat16",
        "--lossy",
    ];
    let dry = [&edits[..], &["--dry-run", "--json"]].concat();
    let json = convert(&source, &target, &dry).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let planned: Vec<(String, Option<String>, Option<String>)> = json["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let text = |name: &str| row[name].as_str().map(str::to_owned);
            (text("old").unwrap(), text("new"), text("new_dtype"))
        })
        .collect();
    let before: Vec<String> =
        entries(&source).iter().map(|entry| entry["key"].as_str().unwrap().to_owned()).collect();
    assert_eq!(planned.iter().map(|row| row.0.clone()).collect::<Vec<_>>(), before);
    let shown = convert(&source, &target, &[&edits[..], &["--dry-run"]].concat()).ok();
    assert!(shown.contains("left out") && shown.contains("float32 -> bfloat16"), "{shown}");
    assert!(!target.exists());
    convert(&source, &target, &edits).ok();
    let after: Vec<(String, Option<String>)> = entries(&target)
        .iter()
        .map(|entry| {
            let text = |name: &str| entry[name].as_str().map(str::to_owned);
            (text("key").unwrap(), text("dtype"))
        })
        .collect();
    let kept: Vec<&(String, Option<String>, Option<String>)> =
        planned.iter().filter(|row| row.1.is_some()).collect();
    assert_eq!(
        after.iter().map(|row| Some(&row.0)).collect::<Vec<_>>(),
        kept.iter().map(|row| row.1.as_ref()).collect::<Vec<_>>()
    );
    assert!(after.iter().any(|(key, _)| key.starts_with("net.")));
    assert!(after.iter().all(|(key, _)| !key.starts_with("model.") && !key.starts_with("optim")));
    let cast: Vec<_> = after.iter().filter(|(key, _)| key.ends_with(".b")).collect();
    assert!(!cast.is_empty());
    for (key, dtype) in cast {
        assert!(
            dtype.as_deref().is_some_and(|dtype| dtype.contains("bfloat16")),
            "{key} {dtype:?}"
        );
    }
}

#[test]
fn tied_tensors_stay_tied_after_renaming() {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0/tied.mdl");
    let target = folder.file("a.pt");
    convert(&source, &target, &["--rename", "^model=>net", "--exclude", "list.0"]).ok();
    let ties: Vec<(String, String)> = entries(&target)
        .iter()
        .filter_map(|entry| {
            let text = |name: &str| entry[name].as_str().map(str::to_owned);
            Some((text("key")?, text("alias_of")?))
        })
        .filter(|(_, of)| of.starts_with("net."))
        .collect();
    let tied = |key: &str| (key.to_owned(), "net.emb".to_owned());
    assert_eq!(ties, [tied("net.head"), tied("list.0")]);
}

#[test]
fn reports_impossible_edits() {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0/gpt_small.mdl");
    let error = |more: &[&str]| convert(&source, &folder.file("a.pt"), more).failed();
    assert!(error(&["--states", "modle"]).contains("optimizer"));
    assert!(error(&["--strip-prefix", "model."]).contains("the prefix `model.` is missing from `"));
    assert!(error(&["--rename", r"^.*\.weight$=>w"]).contains("would both become `w`"));
    assert!(error(&["--rename", "a"]).contains("REGEX=>REPLACEMENT"));
    assert!(error(&["--cast", "none.such=bf16"]).contains("none.such"));
    assert_eq!(folder.names(), Vec::<String>::new());
}

#[test]
fn subset_of_states_is_named_as_the_trainer_does() {
    let folder = Folder::new();
    let source = folder.file("checkpoint_5.mdl");
    std::fs::copy(fixture("cerebras/v2.10.0/gpt_small.mdl"), &source).unwrap();
    let path = source.to_string_lossy().into_owned();
    run(["convert", &path, "--states", "model"]).ok();
    run(["convert", &path, "--states", "model,optimizer"]).ok();
    assert_eq!(
        folder.names(),
        ["checkpoint_5.mdl", "model_checkpoint_5.mdl", "model_optimizer_checkpoint_5.mdl"]
    );
    let states = |name: &str| -> Vec<String> {
        let json = run(["info", "--states", "--json", &folder.file(name).to_string_lossy()]).json();
        let states = json["states"].as_array().unwrap().clone();
        states.iter().map(|state| state["state"].as_str().unwrap().to_owned()).collect()
    };
    // States whose names start with two underscores stay.
    assert_eq!(states("model_checkpoint_5.mdl").len(), 2);
    assert!(states("model_checkpoint_5.mdl").contains(&"__metadata__".to_owned()));
    let error = run(["convert", &path, "--states", "weights"]).failed();
    assert!(error.contains("optimizer") && error.contains("model"), "{error}");
    assert_eq!(run(["convert", &path]).code, Some(2));
}

#[test]
fn empty_roots_of_any_class_become_safetensors() {
    let folder = Folder::new();
    let ordered = b"\x80\x02ccollections\nOrderedDict\n)R.";
    let module = b"\x80\x02ca\nReLU\n)\x81}(X\x0b\0\0\0_parameters}X\x08\0\0\0_buffers}\
        X\x08\0\0\0_modules}X\x07\0\0\0inplace\x89ub.";
    let files: [(&str, &[u8]); 3] =
        [("list.pkl", b"\x80\x02]."), ("ordered.pkl", ordered), ("module.pkl", module)];
    for (name, bytes) in files {
        let (file, out) = (folder.with(name, bytes), folder.file(&format!("{name}.safetensors")));
        let printed = run(["convert", &text(&file), &text(&out), "--lossy"]).ok();
        assert!(printed.contains("empty"), "{printed}");
        assert_eq!(run(["ls", "--json", &text(&out)]).json()["entries"][0]["kind"], "dict");
    }
}

#[test]
fn names_the_keys_that_become_strings() {
    let folder = Folder::new();
    let file = folder.with("a.pkl", b"\x80\x02}ca\nE\nK\x01\x85RK\x02s.");
    let output = convert(&file, &folder.file("a.pt"), &[]);
    assert_eq!(output.code, Some(2));
    assert!(output.err.contains("--exclude '<a.E(1) object 0>'"), "{}", output.err);
}

/// `{"a.b": 1, "a": {"b": 2}}`: no pattern matches only one of them.
#[test]
fn advises_pytorch_for_keys_that_are_written_alike() {
    let folder = Folder::new();
    let source = text(&folder.with("alike.msgpack", b"\x82\xa3a.b\x01\xa1a\x81\xa1b\x02"));
    for target in ["x.npz", "x.mdl", "x.safetensors"] {
        let refused = run(["convert", &source, &text(&folder.file(target)), "--lossy"]);
        assert_eq!(refused.code, Some(2), "{target}: {}", refused.out);
        let advice = refused.err.to_lowercase();
        assert!(advice.contains("patterns find both") && advice.contains("pytorch"), "{advice}");
    }
    let target = text(&folder.file("x.pt"));
    run(["convert", &source, &target, "--lossy"]).ok();
    let rows = run(["ls", &target]).ok();
    assert_eq!(rows.lines().filter(|line| line.starts_with("a.b ")).count(), 2, "{rows}");
}
