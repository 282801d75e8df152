//! The commands for training, on files that the original tools read and wrote.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use crate::common::{Folder, Ran, fixture, run, statelens, text};

#[track_caller]
fn matches(left: &Path, right: &Path, more: &[&str]) {
    let (left, right) = (text(left), text(right));
    let mut args = vec!["diff", &left, &right];
    args.extend(more);
    run(args).ok();
}

fn version(path: &Path) -> serde_json::Value {
    run(["info", "--json", &text(path)]).json()["format"]["version"].clone()
}

#[test]
fn repair_matches_the_original_script() {
    let folder = Folder::new();
    let (old, new) = (fixture("cerebras/compat/synthetic_1.7.mdl"), folder.file("new.mdl"));
    let original = fixture("cerebras/compat/synthetic_1.7_fixed.mdl");
    let printed =
        run(["fix-checkpoint-spec", &text(&old), "--fixed_checkpoint_path", &text(&new)]).ok();
    assert_eq!(printed.lines().filter(|line| line.starts_with("repaired")).count(), 7, "{printed}");
    assert!(printed.contains("model.ln_f.weight, which was missing"), "{printed}");
    matches(&new, &original, &[]);
    // As in the original's output: no version, no codecs, and tied weights stored once.
    let show = |path: &Path| run(["show", &text(path), "global_step"]).ok();
    assert_eq!(version(&new), version(&original));
    assert!(show(&new).contains("is_scalar"), "{}", show(&new));
    let links = run(["info", "--json", &text(&new)]).json()["links"].clone();
    assert_eq!(links, run(["info", "--json", &text(&original)]).json()["links"]);
    // It needs no further repair.
    let printed = run(["fix-checkpoint-spec", &text(&new)]).ok();
    assert!(printed.contains("nothing to repair"), "{printed}");
    assert_eq!(folder.names(), ["new.mdl"]);
}

#[test]
fn repair_can_upgrade_and_reports_its_output() {
    let folder = Folder::new();
    let old = folder.file("checkpoint_1.7.mdl");
    fs::copy(fixture("cerebras/compat/synthetic_1.7.mdl"), &old).unwrap();
    let json = run(["fix-checkpoint-spec", &text(&old), "--upgrade", "--json"]).json();
    let new = folder.file("checkpoint_1.7_fixed.mdl");
    assert_eq!(json["output"], text(&new));
    assert_eq!(version(&new), "0.5");
    matches(&new, &fixture("cerebras/compat/synthetic_1.7_fixed.mdl"), &[]);
    let error = run(["fix-checkpoint-spec", &text(&old)]).failed();
    assert!(error.contains("exists"), "{error}");
}

fn answered(file: &Path, answer: &str) -> Ran {
    let mut child = statelens()
        .args(["fix-checkpoint-spec", "--fix_inplace"])
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    Ran::from(child.wait_with_output().unwrap())
}

#[test]
fn in_place_repair_asks_for_confirmation() {
    let folder = Folder::new();
    let file = folder.file("a.mdl");
    let old = fixture("cerebras/compat/synthetic_1.7.mdl");
    fs::copy(&old, &file).unwrap();
    let before = fs::read(&file).unwrap();
    for answer in ["", "n\n", "\n", "maybe\n"] {
        let ran = answered(&file, answer);
        assert_eq!(ran.code, Some(2));
        assert!(
            ran.err.contains("[y/N]") && ran.err.contains("nothing was changed"),
            "{}",
            ran.err
        );
        assert_eq!(fs::read(&file).unwrap(), before);
    }
    let ran = answered(&file, "y\n");
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let original = fixture("cerebras/compat/synthetic_1.7_fixed.mdl");
    matches(&file, &original, &[]);
    fs::copy(&old, &file).unwrap();
    run(["fix-checkpoint-spec", "--fix_inplace", "--yes", &text(&file)]).ok();
    matches(&file, &original, &[]);
    assert_eq!(folder.names(), ["a.mdl"]);
}

#[test]
fn upgrades_old_and_downgrades_new_versions() {
    let folder = Folder::new();
    for name in
        ["compat/synthetic_1.7_fixed.mdl", "errors/v03_from_201.mdl", "v2.4.0/gpt_small.mdl"]
    {
        let source = folder.file("source.mdl");
        fs::copy(fixture(&format!("cerebras/{name}")), &source).unwrap();
        let printed = run(["upgrade", &text(&source)]).ok();
        assert!(printed.contains("became 0.5"), "{printed}");
        let new = folder.file("source_0.5.mdl");
        assert_eq!(version(&new), "0.5", "{name}");
        matches(&source, &new, &[]);
        let printed = run(["upgrade", &text(&new)]).ok();
        assert!(printed.contains("already"), "{printed}");
        let back = folder.file("back.mdl");
        run(["upgrade", &text(&new), "--to", "0.4", "-o", &text(&back)]).ok();
        assert_eq!(version(&back), "0.4", "{name}");
        matches(&source, &back, &[]);
        let error = run(["upgrade", &text(&source), "-o", &text(&back)]).failed();
        assert!(error.contains("exists"), "{error}");
        for name in ["source.mdl", "source_0.5.mdl", "back.mdl"] {
            fs::remove_file(folder.file(name)).unwrap();
        }
    }
    let error = run(["upgrade", &text(&fixture("cerebras/v2.10.0/seed.pt"))]).failed();
    assert!(error.contains("convert"), "{error}");
}

/// An address is not a folder on this disk.
#[test]
fn refuses_to_write_to_web_servers() {
    let old = text(&fixture("cerebras/v2.4.0/gpt_small.mdl"));
    let broken = text(&fixture("cerebras/compat/synthetic_1.7.mdl"));
    let states = text(&fixture("cerebras/compat/dl_state"));
    for args in [
        &["upgrade", &old, "-o", "https://example.org/new.mdl"][..],
        &["fix-checkpoint-spec", &broken, "--fixed-checkpoint-path", "https://example.org/new.mdl"],
        &[
            "convert-dataloader-state",
            "-c",
            &old,
            "-w",
            &states,
            "-o",
            "https://example.org/new.mdl",
        ],
        &["export", &old, "model.model.ln_f.weight", "https://example.org/new.npy"],
    ] {
        let error = run(args).failed();
        assert!(error.contains("https://example.org/new."), "{error}");
        assert!(error.contains("files are not written to web servers"), "{error}");
        assert!(error.contains("Write to a file, or to an object store"), "{error}");
        assert!(!Path::new("https:").exists());
    }
}

#[test]
fn refuses_to_write_other_files_to_addresses() {
    let file = text(&fixture("cerebras/v2.4.0/gpt_small.mdl"));
    for args in [
        &["summary", &file, "-o", "s3://bucket/model.html"][..],
        &["manifest", &file, "-o", "https://example.org/manifest.txt"],
        &["export", &file, "model.model.ln_f.weight", "s3://bucket/weight.csv"],
        &["export", &file, "model.model.ln_f.weight", "https://example.org/weight.png"],
    ] {
        let error = run(args).failed();
        assert!(error.contains("this output can't be written to an address"), "{error}");
        assert!(!Path::new("https:").exists() && !Path::new("s3:").exists());
    }
}

#[test]
fn dataloader_state_matches_the_original_script() {
    let folder = Folder::new();
    let source = text(&fixture("cerebras/v2.10.0/gpt_small.mdl"));
    let states = text(&fixture("cerebras/compat/dl_state"));
    let map = folder.file("map.mdl");
    let args = ["convert-dataloader-state", "-c", &source, "-w", &states, "-s", "42", "-o"];
    let printed = run(args.iter().copied().chain([text(&map).as_str()])).ok();
    assert!(printed.starts_with("replaced "), "{printed}");
    assert!(printed.contains("1,230 samples"), "{printed}");
    // The original was run on a checkpoint of another run with the same seed, whose weights differ
    // in the last bits. So only its state is compared with it, and everything else with the source.
    matches(&map, &fixture("cerebras/compat/dl_map.mdl"), &["--select", "dataloader*"]);
    matches(&map, Path::new(&source), &["--exclude", "dataloader*"]);
    assert_eq!(version(&map), "0.4");
    let iterable = folder.file("iterable.mdl");
    run([
        "convert-dataloader-state",
        "--old_checkpoint",
        &source,
        "--worker_data_iter_files_dir",
        &states,
        "--output_file",
        &text(&iterable),
        "--dataloader_type",
        "iterable",
        "--shuffle_seed",
        "42",
    ])
    .ok();
    matches(&iterable, &fixture("cerebras/compat/dl_iterable.mdl"), &["--select", "dataloader*"]);
    matches(&iterable, Path::new(&source), &["--exclude", "dataloader*"]);
    // A checkpoint without this state.
    let without = folder.file("without.mdl");
    run(["convert", &source, &text(&without), "--exclude", "dataloader*"]).ok();
    let added = folder.file("added.mdl");
    let json = run([
        "convert-dataloader-state",
        "-c",
        &text(&without),
        "-w",
        &states,
        "-o",
        &text(&added),
        "--json",
    ])
    .json();
    assert_eq!(json["replaced"], false);
    assert_eq!(json["samples_streamed"], 1230);
}

#[test]
fn wrong_state_folder_names_the_bad_file() {
    let folder = Folder::new();
    let source = text(&fixture("cerebras/v2.10.0/seed.mdl"));
    let out = text(&folder.file("out.mdl"));
    let convert = |states: &Path| {
        run(["convert-dataloader-state", "-c", &source, "-w", &text(states), "-o", &out]).failed()
    };
    let states = folder.file("states");
    assert!(convert(&states).contains("the folder does not exist"));
    fs::create_dir(&states).unwrap();
    let error = convert(&states);
    assert!(error.contains("data_iter_checkpoint_state_file_global"), "{error}");
    fs::write(states.join("data_iter_checkpoint_state_file_global"), "100\n").unwrap();
    fs::write(states.join("data_iter_state_file_worker_0_step_100.txt"), "many\n").unwrap();
    let error = convert(&states);
    assert!(error.contains("worker_0_step_100.txt") && error.contains("whole number"), "{error}");
    assert!(convert(Path::new(&source)).contains("not a folder"));
    assert_eq!(folder.names(), ["states"]);
}

fn check(file: &Path, against: &Path, more: &[&str]) -> (Option<i32>, serde_json::Value) {
    let (file, against) = (text(file), text(against));
    let mut args = vec!["check", &file, "--against", &against, "--json"];
    args.extend(more);
    let ran = run(args);
    assert_eq!(ran.err, "");
    (ran.code, serde_json::from_str(&ran.out).unwrap())
}

#[test]
fn check_reports_whether_loading_succeeds() {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0/gpt_small.mdl");
    let (old, pt) =
        (fixture("cerebras/v2.4.0/gpt_small.mdl"), fixture("cerebras/v2.10.0/gpt_small.pt"));
    for reference in [&old, &pt] {
        let (code, answer) = check(&source, reference, &[]);
        assert_eq!((code, answer["matching"].as_u64()), (Some(0), Some(29)), "{answer}");
    }
    let manifest =
        folder.with("m.json", run(["manifest", "--json", &text(&source)]).ok().as_bytes());
    assert_eq!(check(&pt, &manifest, &[]).0, Some(0));
    let list = folder.with("ls.json", run(["ls", "--json", &text(&source)]).ok().as_bytes());
    assert_eq!(check(&pt, &list, &[]).0, Some(0));
    let lines = folder.with("m.txt", run(["manifest", &text(&source)]).ok().as_bytes());
    assert_eq!(check(&pt, &lines, &["--all"]).0, Some(0));

    let keys = folder.with("keys.txt", b"model.ln_f.weight float32 [32]\nhead float32 [2]\n");
    let (code, answer) = check(&source, &keys, &["--all"]);
    assert_eq!(code, Some(1));
    assert_eq!(answer["missing"].as_array().unwrap().len(), 2);
    assert_eq!(check(&source, &keys, &["--no-strict"]).0, Some(0));
    let shape = folder.with("shape.txt", b"model.ln_f.weight float32 [33]\n");
    let (code, answer) = check(&source, &shape, &["--no-strict"]);
    assert_eq!((code, answer["shapes"][0]["key"].as_str()), (Some(1), Some("model.ln_f.weight")));

    // An extra prefix, and the option that removes it.
    let bare = folder.file("bare.pt");
    run([
        "convert",
        &text(&source),
        &text(&bare),
        "--states",
        "model",
        "--exclude",
        "__metadata__*",
        "--strip-prefix",
        "model.model.",
    ])
    .ok();
    let (code, answer) = check(&source, &bare, &[]);
    assert_eq!(
        (code, answer["rename"]["option"].as_str()),
        (Some(1), Some("--strip-prefix model.")),
        "{answer}"
    );
    assert_eq!(answer["rename"]["keys"], 29);
    // The same change makes both match for `diff`.
    matches(&bare, &source, &["--prefix", "model.model.", "--select", "model.*"]);

    // Neither a checkpoint nor a list.
    let image = folder.with("image.png", b"\x89PNG\r\n\x1a\n\0\0");
    let error = run(["check", &text(&source), "--against", &text(&image)]).failed();
    assert!(error.contains("image.png"), "{error}");
    let poem = folder.with("poem.txt", b"so much depends upon a red wheel barrow\n");
    let error = run(["check", &text(&source), "--against", &text(&poem)]).failed();
    assert!(error.contains("poem.txt") && error.contains("line 1"), "{error}");
}

#[test]
fn check_compares_the_release_with_the_metadata() {
    let source = fixture("cerebras/v2.10.0/gpt_small.mdl");
    assert_eq!(check(&source, &source, &["--release", "2.10"]).0, Some(0));
    let (code, answer) = check(&source, &source, &["--release", "2.9.1"]);
    assert_eq!((code, answer["release"]["compatible"].as_bool()), (Some(1), Some(false)));
    let (code, _) = check(&source, &source, &["--release", "2.9", "--no-strict-version"]);
    assert_eq!(code, Some(0));
    let (code, answer) = check(&source, &source, &["--release", "2.4", "--no-strict-version"]);
    assert_eq!(code, Some(1));
    assert!(answer["format"].as_str().unwrap().contains("0.5"), "{answer}");
    let old = fixture("cerebras/compat/synthetic_1.7_fixed.mdl");
    assert_eq!(check(&old, &old, &["--release", "2.4"]).0, Some(0));
    assert_eq!(check(&old, &old, &["--release", "2.10"]).0, Some(1));
    let path = text(&source);
    let shown = run(["check", &path, "--against", &path, "--release", "2.9"]);
    assert_eq!(shown.code, Some(1));
    assert!(shown.out.contains("it would not load"), "{}", shown.out);
    let error = run(["check", &path, "--against", "no such file"]).failed();
    assert!(error.contains("no such file"), "{error}");
    let error = run(["check", &path, "--against", &path, "--release", "new"]).failed();
    assert!(error.contains("new"), "{error}");
}

fn run_folder() -> Folder {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0/seed.mdl");
    for name in [
        "checkpoint_5",
        "checkpoint_10",
        "checkpoint_100",
        "checkpoint_100_20240131_235959",
        "model_checkpoint_5",
    ] {
        fs::copy(&source, folder.file(&format!("{name}.mdl"))).unwrap();
    }
    fs::copy(fixture("cerebras/errors/no_success.mdl"), folder.file("checkpoint_20.mdl")).unwrap();
    folder.with("checkpoint_30.mdl", b"cut");
    folder.with("checkpoint_40.mdl.0123abcd.tmp", b"left");
    folder.with("notes.txt", b"mine");
    folder
}

#[test]
fn run_folder_is_sorted_as_the_trainer_does() {
    let folder = run_folder();
    let path = text(folder.path());
    let json = run(["runs", &path, "--json"]).json();
    assert_eq!(json["latest"], "checkpoint_100_20240131_235959.mdl");
    let files = json["files"].as_array().unwrap();
    let file = |name: &str| files.iter().find(|file| file["name"] == name).unwrap();
    assert_eq!(files[0]["name"], "checkpoint_5.mdl");
    assert_eq!(file("model_checkpoint_5.mdl")["what"], "subset");
    assert_eq!(file("checkpoint_40.mdl.0123abcd.tmp")["what"], "temporary");
    assert!(
        file("checkpoint_20.mdl")["wrong"].as_str().unwrap().contains("not written to its end")
    );
    assert!(file("checkpoint_30.mdl")["wrong"].is_string());
    assert!(file("checkpoint_5.mdl")["wrong"].is_null());
    let table = run(["runs", &path]).ok();
    assert!(table.contains("6 checkpoints"), "{table}");
    let latest = run(["latest", &path]).ok();
    assert_eq!(latest.trim_end(), text(&folder.file("checkpoint_100_20240131_235959.mdl")));
    // If there is an index, it decides.
    folder.with("checkpoints_index.yaml", b"- m/checkpoint_10.mdl\n- m/checkpoint_7.mdl\n");
    let json = run(["runs", &path, "--json", "--quick"]).json();
    assert_eq!(json["latest"], "checkpoint_10.mdl");
    assert_eq!(json["only_index"], serde_json::json!(["m/checkpoint_7.mdl"]));
    assert_eq!(json["only_folder"].as_array().unwrap().len(), 5);
    folder.with("checkpoints_index.yaml", b"a: {b: c}\n");
    let error = run(["runs", &path]).failed();
    assert!(error.contains("checkpoints_index.yaml"), "{error}");
}

#[test]
fn name_option_finds_custom_names() {
    let folder = Folder::new();
    fs::copy(fixture("cerebras/v2.10.0/seed.mdl"), folder.file("ckpt-7.mdl")).unwrap();
    let path = text(folder.path());
    let latest = run(["latest", &path, "--name", "ckpt-{step}.mdl"]).ok();
    assert!(latest.trim_end().ends_with("ckpt-7.mdl"), "{latest}");
    let none = run(["latest", &path]);
    assert_eq!((none.code, none.out.as_str()), (Some(1), ""));
    assert!(none.err.contains("checkpoint_{step}.mdl"), "{}", none.err);
    let error = run(["runs", &path, "--name", "ckpt"]).failed();
    assert!(error.contains("{step}"), "{error}");
    for command in ["runs", "latest"] {
        let error = run([command, "no such folder"]).failed();
        assert!(error.contains("the folder does not exist"), "{error}");
        let file = text(&folder.file("ckpt-7.mdl"));
        assert!(run([command, &file]).failed().contains("not a folder"));
    }
}

#[test]
fn prune_requires_apply_and_removes_old_checkpoints_only() {
    let folder = run_folder();
    let path = text(folder.path());
    let before = folder.names();
    let json = run(["prune", &path, "--keep", "2", "--every", "10", "--json"]).json();
    assert_eq!(json["files"], serde_json::json!(["checkpoint_5.mdl"]));
    assert_eq!(json["applied"], false);
    let printed = run(["prune", &path, "--keep", "2"]).ok();
    assert!(
        printed.contains("would remove  checkpoint_5.mdl") && printed.contains("--apply"),
        "{printed}"
    );
    assert_eq!(folder.names(), before);
    let seed = fs::read(folder.file("checkpoint_5.mdl")).unwrap();
    run(["prune", &path, "--keep", "2", "--apply"]).ok();
    let trash = folder.file("statelens-trash");
    assert_eq!(fs::read(trash.join("checkpoint_5.mdl")).unwrap(), seed);
    assert_eq!(
        folder.names(),
        [
            "checkpoint_100.mdl",
            "checkpoint_100_20240131_235959.mdl",
            "checkpoint_40.mdl.0123abcd.tmp",
            "model_checkpoint_5.mdl",
            "notes.txt",
            "statelens-trash",
        ]
    );
    // Files in the trash are kept when another one with the same name follows.
    fs::write(folder.file("checkpoint_5.mdl"), b"another").unwrap();
    run(["prune", &path, "--keep", "2", "--apply"]).ok();
    assert_eq!(fs::read(trash.join("checkpoint_5.mdl")).unwrap(), seed);
    assert_eq!(fs::read(trash.join("checkpoint_5.mdl.1")).unwrap(), b"another");
    run(["prune", &path, "--keep", "1", "--apply", "--delete"]).ok();
    assert!(!folder.file("checkpoint_100.mdl").exists());
    assert!(!trash.join("checkpoint_100.mdl").exists());
    assert!(folder.file("checkpoint_100_20240131_235959.mdl").exists());
    assert_eq!(run(["prune", &path, "--keep", "0"]).code, Some(2));
    assert_eq!(run(["prune", &path, "--keep", "1", "--delete"]).code, Some(2));
    assert!(
        run(["prune", "no such folder", "--keep", "1"])
            .failed()
            .contains("the folder does not exist")
    );
}

/// Returns a run folder with sound checkpoints of steps 1 to 3, and the bytes `newest` as step 4.
fn run_with_newest(newest: &[u8]) -> Folder {
    let folder = Folder::new();
    for step in 1..=3 {
        let source = fixture("cerebras/v2.10.0/gpt_small.mdl");
        fs::copy(source, folder.file(&format!("checkpoint_{step}.mdl"))).unwrap();
    }
    folder.with("checkpoint_4.mdl", newest);
    folder
}

#[test]
fn prune_does_not_count_damaged_checkpoints_as_kept() {
    let whole = fs::read(fixture("cerebras/v2.10.0/gpt_small.mdl")).unwrap();
    let unfinished = fs::read(fixture("cerebras/errors/no_success.mdl")).unwrap();
    let made = Folder::new();
    let subset = text(&made.file("subset.mdl"));
    let source = text(&fixture("cerebras/v2.10.0/gpt_small.mdl"));
    run(["convert", &source, &subset, "--states", "model"]).ok();
    let fewer = fs::read(&subset).unwrap();
    for (newest, why) in [
        (&whole[..whole.len() / 2], "the file ends at byte"),
        (&[], "empty"),
        (&unfinished, "not written to its end"),
        (&fewer, "it lacks the state"),
    ] {
        let folder = run_with_newest(newest);
        let path = text(folder.path());
        let newest = text(&folder.file("checkpoint_4.mdl"));
        // `latest` prints it with a warning, and `--sound` skips it.
        let latest = run(["latest", &path]);
        assert_eq!((latest.code, latest.out.trim_end()), (Some(0), newest.as_str()));
        assert!(latest.err.contains("not sound") && latest.err.contains(why), "{}", latest.err);
        let sound = run(["latest", &path, "--sound"]);
        assert_eq!(sound.code, Some(0));
        assert_eq!(sound.out.trim_end(), text(&folder.file("checkpoint_3.mdl")));
        assert!(sound.err.contains("skipped: checkpoint_4.mdl"), "{}", sound.err);
        let table = run(["runs", &path]).ok();
        assert!(table.contains(why), "{table}");
        // The plan lists it as unsound; the newest sound one stays with it.
        let json = run(["prune", &path, "--keep", "1", "--json"]).json();
        assert_eq!(json["files"], serde_json::json!(["checkpoint_1.mdl", "checkpoint_2.mdl"]));
        assert_eq!(json["unsound"][0]["name"], "checkpoint_4.mdl");
        assert!(json["unsound"][0]["why"].as_str().unwrap().contains(why), "{json}");
        let printed = run(["prune", &path, "--keep", "1", "--apply", "--delete"]).ok();
        assert!(printed.contains("not sound  checkpoint_4.mdl"), "{printed}");
        assert_eq!(folder.names(), ["checkpoint_3.mdl", "checkpoint_4.mdl"]);
        // Nothing is removed if there are fewer sound ones than must be kept.
        let printed = run(["prune", &path, "--keep", "2", "--apply"]).ok();
        assert!(printed.contains("1 of 2 to keep"), "{printed}");
        assert_eq!(folder.names(), ["checkpoint_3.mdl", "checkpoint_4.mdl"]);
    }
    let folder = Folder::new();
    folder.with("checkpoint_1.mdl", b"cut");
    let none = run(["latest", &text(folder.path()), "--sound"]);
    assert_eq!((none.code, none.out.as_str()), (Some(1), ""));
    assert!(none.err.contains("no checkpoint here is sound"), "{}", none.err);
}

#[cfg(unix)]
#[test]
fn full_disk_keeps_the_original() {
    let folder = Folder::new();
    let file = folder.file("a.mdl");
    fs::copy(fixture("cerebras/compat/synthetic_1.7.mdl"), &file).unwrap();
    let before = fs::read(&file).unwrap();
    // The shell ignores the signal that the limit would send. The limit is in blocks of 512 or 1024
    // bytes, less than either file needs.
    let limited = |args: &[&str]| {
        let output = std::process::Command::new("sh")
            .args(["-c", "trap '' XFSZ; ulimit -f 2; exec \"$@\"", "sh"])
            .arg(env!("CARGO_BIN_EXE_statelens"))
            .args(args)
            .output()
            .unwrap();
        Ran::from(output).failed()
    };
    let path = text(&file);
    let error = limited(&["fix_checkpoint_spec", "--fix_inplace", "--yes", &path]);
    assert!(error.contains("writing failed"), "{error}");
    let new = text(&folder.file("new.mdl"));
    let sound = text(&fixture("cerebras/v2.4.0/gpt_small.mdl"));
    let error = limited(&["upgrade", &sound, "-o", &new]);
    assert!(error.contains("writing failed"), "{error}");
    // Created folders are removed again.
    let error = limited(&["upgrade", &sound, "-o", &text(&folder.file("no/such/new.mdl"))]);
    assert!(error.contains("writing failed"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), before);
    assert_eq!(folder.names(), ["a.mdl"]);
}

#[test]
fn bad_inputs_are_reported_without_changes() {
    let folder = Folder::new();
    let notes = folder.with("notes.txt", b"no checkpoint");
    let out = text(&folder.file("out.mdl"));
    let states = text(&fixture("cerebras/compat/dl_state"));
    let tools = |file: &str| -> Vec<Vec<String>> {
        let list: [Vec<&str>; 3] = [
            vec!["upgrade", file, "-o", &out],
            vec!["fix-checkpoint-spec", file, "--fixed_checkpoint_path", &out],
            vec!["convert-dataloader-state", "-c", file, "-w", &states, "-o", &out],
        ];
        list.into_iter().map(|args| args.into_iter().map(str::to_owned).collect()).collect()
    };
    for (file, printed) in [
        ("no such file".to_owned(), "no such file"),
        (text(folder.path()), "folder"),
        (text(&notes), "notes.txt"),
    ] {
        for args in tools(&file) {
            let error = run(&args).failed();
            assert!(error.contains(printed), "{args:?}: {error}");
        }
    }
    // An incomplete checkpoint must not become one that looks complete.
    let cut = text(&fixture("cerebras/errors/no_success.mdl"));
    for args in [
        vec!["upgrade", &cut, "--to", "0.4", "-o", &out],
        vec!["convert-dataloader-state", "-c", &cut, "-w", &states, "-o", &out],
        vec!["upgrade", &text(&fixture("cerebras/compat/synthetic_1.7.mdl")), "-o", &out],
    ] {
        let error = run(&args).failed();
        assert!(error.contains("incomplete"), "{args:?}: {error}");
    }
    // An existing target is kept.
    folder.with("out.mdl", b"precious");
    let old = text(&fixture("cerebras/compat/synthetic_1.7.mdl"));
    let sound = text(&fixture("cerebras/v2.4.0/gpt_small.mdl"));
    for args in [&tools(&sound)[..1], &tools(&old)[1..2], &tools(&sound)[2..]].concat() {
        let error = run(&args).failed();
        assert!(error.contains("exists"), "{args:?}: {error}");
    }
    assert_eq!(fs::read(folder.file("out.mdl")).unwrap(), b"precious");
    assert_eq!(folder.names(), ["notes.txt", "out.mdl"]);
    let error = run(["fix-checkpoint-spec", &text(&fixture("cerebras/v2.10.0/seed.mdl"))]).failed();
    assert!(error.contains("0.5"), "{error}");
    let error = run(["fix-checkpoint-spec", &text(&fixture("cerebras/v2.10.0/seed.pt"))]).failed();
    assert!(error.contains("not a Cerebras checkpoint"), "{error}");
}
