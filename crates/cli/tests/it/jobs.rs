//! `statelens job`: tasks in processes of their own, one of which is killed; and one job for many
//! checkpoints.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Folder, Ran, fixture, run, safetensors, statelens};

/// Runs `statelens job STEP JOB …`.
fn job(step: &str, place: &Path, more: &[&str]) -> Ran {
    run([&["job", step, place.to_str().unwrap()][..], more].concat())
}

/// Returns the names and contents of the files in a folder.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().flatten().filter(|one| one.path().is_file());
    files
        .map(|one| (one.file_name().into_string().unwrap(), fs::read(one.path()).unwrap()))
        .collect()
}

/// Writes a safetensors file of about `megabytes` MB whose numbers all differ.
fn large(folder: &Folder, megabytes: u32) -> String {
    let count = megabytes << 18;
    let bytes: Vec<u8> = (0..count).flat_map(|at| (at as f32 * 1.1).to_le_bytes()).collect();
    let (one, two) = bytes.split_at(bytes.len() / 4);
    let half = |bytes: &[u8]| [bytes.len() as u64 / 4];
    let file =
        safetensors(&[("a.weight", "F32", &half(one), one), ("b.weight", "F32", &half(two), two)]);
    folder.with("source.safetensors", &file).to_str().unwrap().to_owned()
}

#[test]
fn a_killed_task_is_run_again_and_the_output_is_that_of_convert() {
    let folder = Folder::new();
    let source = large(&folder, 96);
    let [one, many] = ["one", "many"].map(|name| folder.file(name));
    let target =
        |folder: &Path, end: &str| folder.join(format!("m.{end}")).to_str().unwrap().to_owned();
    for (end, more) in [("pt", &[][..]), ("npz", &["--cast", "float64"]), ("index", &[])] {
        run([&["convert", &source, &target(&one, end)][..], more].concat()).ok();
        let place = folder.file(&format!("job-{end}"));
        let (out, at) = (target(&many, end), place.to_str().unwrap());
        let plan = ["job", "plan", &source, &out, "-o", at, "--tasks", "4", "--json"];
        let recipe = run([&plan[..], more].concat()).json();
        assert_eq!(recipe["tasks"], 4);
        let temporary = recipe["outputs"][0]["temporary"].as_str().unwrap().to_owned();
        let before = fs::metadata(&temporary).unwrap().mtime_nsec();
        let mut child = statelens()
            .args(["job", "run", place.to_str().unwrap(), "2"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It is killed as soon as it has written something.
        let start = Instant::now();
        while child.try_wait().unwrap().is_none()
            && fs::metadata(&temporary).unwrap().mtime_nsec() == before
        {
            assert!(start.elapsed() < Duration::from_secs(60), "it never wrote anything");
            std::thread::sleep(Duration::from_micros(200));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let status = job("status", &place, &["--json"]).json();
        assert_eq!(status["done"], 0, "{status}");
        let refused = job("commit", &place, &[]);
        assert_eq!(refused.code, Some(2), "{}", refused.err);
        assert!(refused.err.contains("4 of 4 tasks have no result yet"), "{}", refused.err);
        for task in ["3", "1", "2", "0", "2"] {
            job("run", &place, &[task]).ok();
        }
        assert!(job("run", &place, &["1"]).ok().contains("was done before"));
        job("commit", &place, &[]).ok();
        assert!(job("commit", &place, &[]).ok().contains("committed before"));
        assert!(contents(&one) == contents(&many), "{end}");
        // Only the record of the job is removed.
        job("abort", &place, &[]).ok();
        assert!(!place.exists() && contents(&one) == contents(&many));
    }
}

#[test]
fn the_number_of_a_task_comes_from_the_engine() {
    let folder = Folder::new();
    let source = large(&folder, 1);
    let place = folder.file("job");
    let (job_text, out) = (place.to_str().unwrap(), folder.file("out.pt"));
    run(["job", "plan", &source, out.to_str().unwrap(), "-o", job_text, "--tasks", "9"]).ok();
    let with = |name: &str, value: &str, more: &[&str]| {
        let mut command = statelens();
        for name in ["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "AWS_BATCH_JOB_ARRAY_INDEX"] {
            command.env_remove(name);
        }
        let args = [&["job", "run", job_text, "--json"][..], more].concat();
        Ran::from(command.env(name, value).args(args).output().unwrap())
    };
    for (task, name) in [
        "SLURM_ARRAY_TASK_ID",
        "JOB_COMPLETION_INDEX",
        "AWS_BATCH_JOB_ARRAY_INDEX",
        "STATELENS_TASK",
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(with(name, &task.to_string(), &[]).json()["task"], task);
    }
    // The second half, of which one task is left out at the end.
    let ran = with("STATELENS_TASK", "1", &["--per", "5"]).ok();
    assert_eq!(ran.lines().count(), 4, "{ran}");
    let status = job("status", &place, &["--json"]).json();
    assert_eq!(status["missing"], serde_json::json!([4]));
    for (name, value, printed) in [
        ("STATELENS_TASK", "x", "is not the number of a task"),
        ("STATELENS_TASK", "9", "there is no task 9"),
        ("OTHER", "1", "the number of the task is not given"),
    ] {
        let ran = with(name, value, &[]);
        assert!(ran.err.contains(printed) && ran.code == Some(1), "{:?} {}", ran.code, ran.err);
    }
    let none = run(["job", "status", folder.file("other").to_str().unwrap()]);
    assert!(none.err.contains("there is no job") && none.code == Some(1), "{}", none.err);
}

#[test]
fn a_changed_source_is_not_tried_again_and_abort_leaves_nothing() {
    let folder = Folder::new();
    let source = large(&folder, 1);
    let place = folder.file("job");
    let out = folder.file("new/folder/out.npz");
    let plan = [
        "job",
        "plan",
        &source,
        out.to_str().unwrap(),
        "-o",
        place.to_str().unwrap(),
        "--tasks",
        "2",
    ];
    let printed = run(plan).ok();
    for line in ["tasks        2", "memory       at most", "statelens job commit"] {
        assert!(printed.contains(line), "{printed}");
    }
    assert_eq!(run(plan).code, Some(2));
    job("run", &place, &["0"]).ok();
    let mut bytes = fs::read(&source).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&source, &bytes).unwrap();
    let changed = job("run", &place, &["1"]);
    assert_eq!(changed.code, Some(1), "{}", changed.err);
    assert!(changed.err.contains("the source has changed"), "{}", changed.err);
    let status = job("status", &place, &[]).ok();
    assert!(status.contains("1 of 2 tasks done") || status.contains("1 of 2 task"), "{status}");
    assert!(status.contains("task 1 failed: "), "{status}");
    job("abort", &place, &[]).ok();
    assert_eq!(folder.names(), ["source.safetensors"]);
}

#[test]
fn losses_are_refused_when_planning_and_when_committing() {
    let folder = Folder::new();
    let source = folder.with(
        "huge.safetensors",
        &safetensors(&[("w", "F32", &[2], &[1e30f32.to_le_bytes(), 1f32.to_le_bytes()].concat())]),
    );
    let place = folder.file("job");
    let out = folder.file("out.pt");
    let plan = [
        "job",
        "plan",
        source.to_str().unwrap(),
        out.to_str().unwrap(),
        "-o",
        place.to_str().unwrap(),
        "--cast",
        "float16",
    ];
    run(plan).ok();
    job("run", &place, &["0"]).ok();
    let refused = job("commit", &place, &[]);
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    assert!(refused.err.contains("casting loses numbers"), "{}", refused.err);
    job("abort", &place, &[]).ok();
    assert_eq!(folder.names(), ["huge.safetensors"]);
    // NumPy does not have this dtype.
    let (source, out) = (source.to_str().unwrap(), folder.file("out.npz"));
    let plan = ["job", "plan", source, out.to_str().unwrap(), "-o", place.to_str().unwrap()];
    let planned = run([&plan[..], &["--cast", "bfloat16"]].concat());
    assert_eq!(planned.code, Some(2), "{}", planned.out);
    assert!(planned.err.contains("would be lost"), "{}", planned.err);
    assert!(!place.exists());
}

/// Writes 1,000 small checkpoints, some of them damaged or dangerous; returns their folder.
fn thousand(folder: &Folder) -> std::path::PathBuf {
    let top = folder.file("all");
    fs::create_dir(&top).unwrap();
    let zip = fs::read(fixture("torch/zip_views.pt")).unwrap();
    for number in 0..1_000u32 {
        let path = top.join(format!("{}/m{number:04}.safetensors", number / 500));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let values: Vec<u8> =
            (0..8).flat_map(|at| ((number * 8 + at) as f32).to_le_bytes()).collect();
        match number {
            17 => fs::write(path.with_extension("pt"), &zip[..zip.len() / 2]).unwrap(),
            400 => fs::write(path, b"not a checkpoint").unwrap(),
            _ => fs::write(path, safetensors(&[("w", "F32", &[8], &values)])).unwrap(),
        }
    }
    // It calls `os.system`.
    fs::write(top.join("1/m0555.pkl"), b"cos\nsystem\n(S'echo'\ntR.").unwrap();
    top
}

#[test]
fn a_thousand_checkpoints_are_one_job() {
    let folder = Folder::new();
    let top = thousand(&folder);
    let glob = format!("{}/*/m*", top.display());
    let list = folder.file("list.txt");
    let mut names: Vec<String> = fs::read_dir(&top)
        .unwrap()
        .flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap())
        .map(|file| format!("{}\n", file.unwrap().path().display()))
        .collect();
    names.sort();
    fs::write(&list, names.concat()).unwrap();
    let mut reports: BTreeMap<&str, Value> = BTreeMap::new();
    for (command, what) in [
        ("verify", glob.clone()),
        ("scan", top.to_str().unwrap().to_owned()),
        ("stats", format!("@{}", list.display())),
        ("manifest", glob.clone()),
    ] {
        let place = folder.file(command);
        let text = place.to_str().unwrap();
        let plan =
            run(["job", "plan", command, &what, "-o", text, "--tasks", "7", "--json"]).json();
        assert_eq!(plan["checkpoints"].as_array().unwrap().len(), 1_001, "{command}");
        for task in ["6", "0", "3", "2", "1", "5", "4", "3"] {
            job("run", &place, &[task]).ok();
        }
        let committed = job("commit", &place, &["--json"]);
        assert_eq!(committed.code, Some(1), "{command}: {}", committed.err);
        let again = job("commit", &place, &["--json"]);
        assert_eq!((again.code, &again.out), (Some(1), &committed.out));
        let report: Value = serde_json::from_str(&committed.out).unwrap();
        let paths: Vec<&str> = report["checkpoints"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["path"].as_str().unwrap())
            .collect();
        assert_eq!(paths.len(), 1_001);
        assert!(paths.is_sorted());
        reports.insert(command, report);
    }
    let failing = |command: &str| -> Vec<String> {
        let all = reports[command]["checkpoints"].as_array().unwrap();
        let bad = all.iter().filter(|one| one["passes"] == false);
        bad.map(|one| {
            let path = one["path"].as_str().unwrap();
            path.rsplit('/').next().unwrap().to_owned()
        })
        .collect()
    };
    for command in ["verify", "stats", "manifest"] {
        let bad = failing(command);
        assert!(bad.contains(&"m0400.safetensors".to_owned()), "{command}: {bad:?}");
        assert!(bad.len() <= 3, "{command}: {bad:?}");
    }
    assert!(failing("verify").contains(&"m0017.pt".to_owned()), "{:?}", failing("verify"));
    assert!(failing("scan").contains(&"m0555.pkl".to_owned()), "{:?}", failing("scan"));
    // A report of a checkpoint is what the command prints for it.
    let one = top.join("0/m0123.safetensors");
    for command in ["verify", "manifest"] {
        let alone = run([command, "--json", one.to_str().unwrap()]).json();
        let all = reports[command]["checkpoints"].as_array().unwrap();
        let own = all.iter().find(|it| it["path"] == one.to_str().unwrap()).unwrap();
        assert_eq!(own["report"], alone, "{command}");
    }
    // The statistics of all add up to those of one file with all values, to the last bit.
    let values: Vec<u8> = (0..1_000u32)
        .filter(|number| ![17, 400].contains(number))
        .flat_map(|number| (0..8).flat_map(move |at| ((number * 8 + at) as f32).to_le_bytes()))
        .collect();
    let whole = folder.with(
        "whole.safetensors",
        &safetensors(&[("w", "F32", &[values.len() as u64 / 4], &values)]),
    );
    let whole = run(["stats", "--json", "--bins", "64", whole.to_str().unwrap()]).json();
    let (mut together, mut alone) =
        (reports["stats"]["groups"][0].clone(), whole["groups"][0].clone());
    assert_eq!(together["tensors"], 998);
    for groups in [&mut together, &mut alone] {
        let groups = groups.as_object_mut().unwrap();
        groups.remove("tensors");
        // Positions are those within a tensor.
        groups.retain(|name, _| !name.contains("_at") && !name.contains("first"));
    }
    assert_eq!(together, alone);
}

#[test]
fn a_folder_lists_files_that_are_named_as_weights_but_are_no_checkpoints() {
    let folder = Folder::new();
    let sound = safetensors(&[("w", "F32", &[1], &[0; 4])]);
    for (name, bytes) in [
        ("c/m2.safetensors", &sound[..]),
        ("c/m1.pt", b""),
        ("c/m0.safetensors", b"not a checkpoint"),
        ("c/notes.txt", b"not a checkpoint"),
    ] {
        fs::create_dir_all(folder.file("c")).unwrap();
        folder.with(name, bytes);
    }
    let (top, place) = (folder.file("c"), folder.file("job"));
    run(["job", "plan", "verify", top.to_str().unwrap(), "-o", place.to_str().unwrap()]).ok();
    job("run", &place, &["0"]).ok();
    let committed = job("commit", &place, &["--json"]);
    assert_eq!(committed.code, Some(1), "{}", committed.err);
    let report: Value = serde_json::from_str(&committed.out).unwrap();
    let of = |one: &Value| (one["path"].as_str().unwrap().to_owned(), one["passes"] == true);
    let all: Vec<_> = report["checkpoints"].as_array().unwrap().iter().map(of).collect();
    let path = |name: &str| top.join(name).to_str().unwrap().to_owned();
    let expected =
        [(path("m0.safetensors"), false), (path("m1.pt"), false), (path("m2.safetensors"), true)];
    assert_eq!(all, expected);
}
