//! Folders of training runs: which checkpoints there are, which one the trainer loads, and what
//! `prune` removes.

use std::fs;

use crate::common::{Folder, fixture, run, text, write_floats};

fn report(name: &str) -> String {
    text(&fixture(&format!("reports/{name}")))
}

#[test]
fn recognises_run_folders_of_other_trainers() {
    let folder = Folder::new();
    for (name, latest, count) in [
        ("hf_trainer", "checkpoint-1000", 2),
        ("deepspeed", "global_step10", 1),
        ("megatron", "iter_0000100", 1),
    ] {
        let source = report(&format!("folders/{name}"));
        let printed = run(["latest", &source]).ok();
        assert!(printed.trim_end().ends_with(latest), "{printed}");
        let json = run(["runs", "--json", &source]).json();
        let files = json["files"].as_array().unwrap();
        let checkpoints = files.iter().filter(|file| file["what"] == "checkpoint");
        assert_eq!(checkpoints.count(), count, "{name}");
        assert!(files.iter().all(|file| file.get("wrong").is_none()), "{json}");
    }
    let values = run(["runs", "--values", "--json", &report("folders/hf_trainer")]).json();
    assert_eq!(values["checkpoints"].as_array().unwrap().len(), 2);
    assert_ne!(values["checkpoints"][1]["groups"].as_array().unwrap().len(), 0);
    // Pruning moves the whole folder of a checkpoint, and nothing else.
    let run_folder = folder.file("run");
    for step in ["500", "1000"] {
        let from = fixture(&format!("reports/folders/hf_trainer/checkpoint-{step}"));
        let to = run_folder.join(format!("checkpoint-{step}"));
        fs::create_dir_all(&to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
    fs::create_dir(run_folder.join("runs")).unwrap();
    let printed = run(["prune", &text(&run_folder), "--keep", "1", "--apply"]).ok();
    assert!(printed.contains("checkpoint-500"), "{printed}");
    let mut left: Vec<String> = fs::read_dir(&run_folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["checkpoint-1000", "runs", "statelens-trash"]);
    assert!(run_folder.join("statelens-trash/checkpoint-500/optimizer.pt").exists());
}

/// DeepSpeed's `save_checkpoint` takes a tag of any name.
#[test]
fn recognises_tags_of_deepspeed() {
    let folder = Folder::new();
    for tag in ["epoch_2", "epoch_10", "best-model", "final"] {
        fs::create_dir(folder.file(tag)).unwrap();
        for entry in fs::read_dir(report("folders/deepspeed/global_step10")).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), folder.file(tag).join(entry.file_name())).unwrap();
        }
    }
    fs::create_dir(folder.file("logs")).unwrap();
    let path = text(folder.path());
    for latest in ["epoch_2", "best-model", "final"] {
        fs::write(folder.file("latest"), latest).unwrap();
        assert!(run(["latest", &path]).ok().trim_end().ends_with(latest));
    }
    let rows = run(["runs", &path]).ok();
    let row = |name: &str| rows.lines().find(|row| row.starts_with(name)).unwrap().to_owned();
    assert!(row("final").contains("latest"), "{rows}");
    assert!(row("epoch_10").contains("checkpoint"), "{rows}");
    assert!(!rows.contains("logs"), "{rows}");
    for tag in ["best-model", "final"] {
        let info = run(["info", &text(&folder.file(tag))]).ok();
        assert!(info.contains("mp_rank_00_model_states.pt"), "{info}");
    }
    run(["prune", &path, "--keep", "1", "--apply"]).ok();
    let left = ["best-model", "epoch_10", "final", "latest", "logs", "statelens-trash"];
    let mut names = folder.names();
    names.sort();
    assert_eq!(names, left);
}

#[test]
fn reports_a_latest_checkpoint_that_is_not_there() {
    for (file, content, dir) in [
        ("latest", "global_step30\n", "global_step10"),
        ("latest_checkpointed_iteration.txt", "300", "iter_0000100"),
    ] {
        let folder = Folder::new();
        fs::create_dir(folder.file(dir)).unwrap();
        let weights = report("folders/hf_trainer/checkpoint-500/model.safetensors");
        fs::copy(weights, folder.file(dir).join("model.safetensors")).unwrap();
        fs::write(folder.file(file), content).unwrap();
        let path = text(folder.path());
        let output = run(["latest", &path]);
        assert_eq!(output.code, Some(1));
        assert!(output.err.contains("is not there"), "{}", output.err);
        assert!(run(["runs", &path]).ok().contains("is not there"));
        let json = run(["runs", "--json", &path]).json();
        assert!(json["latest"].is_null() && json["absent_latest"].is_string(), "{json}");
        assert!(run(["latest", "--sound", &path]).ok().contains(dir));
    }
}

/// An interrupted save leaves an empty folder, which the trainer loads all the same.
#[test]
fn empty_folder_counts_as_a_checkpoint_that_is_not_sound() {
    let folder = Folder::new();
    for step in ["1", "2"] {
        fs::create_dir(folder.file(&format!("checkpoint-{step}"))).unwrap();
    }
    let weights = report("folders/hf_trainer/checkpoint-500/model.safetensors");
    fs::copy(weights, folder.file("checkpoint-1/model.safetensors")).unwrap();
    let path = text(folder.path());
    let output = run(["latest", &path]);
    assert!(output.out.contains("checkpoint-2"), "{}", output.out);
    assert!(output.err.contains("no file in it holds weights"), "{}", output.err);
    assert!(run(["latest", "--sound", &path]).out.contains("checkpoint-1"));
}

/// A link to another checkpoint is not a copy of it.
#[cfg(unix)]
#[test]
fn prune_keeps_what_links_refer_to() {
    use std::os::unix::fs::symlink;

    let folder = Folder::new();
    let weights = report("folders/hf_trainer/checkpoint-500/model.safetensors");
    for step in ["1", "2", "3"] {
        let path = folder.file(&format!("checkpoint-{step}"));
        fs::create_dir(&path).unwrap();
        if step != "3" {
            fs::copy(&weights, path.join("model.safetensors")).unwrap();
        }
    }
    symlink("../checkpoint-1/model.safetensors", folder.file("checkpoint-3/model.safetensors"))
        .unwrap();
    symlink("checkpoint-2", folder.file("checkpoint-4")).unwrap();
    let path = text(folder.path());
    // `checkpoint-4` is a link to 2, and the weights of 3 are those of 1.
    for keep in ["1", "2"] {
        let json = run(["prune", "--keep", keep, "--json", &path]).json();
        assert_eq!(json["files"], serde_json::json!([]), "{json}");
    }

    // A link that is not a checkpoint.
    let folder = Folder::new();
    for step in ["1", "2", "3"] {
        let path = folder.file(&format!("checkpoint-{step}"));
        fs::create_dir(&path).unwrap();
        fs::copy(&weights, path.join("model.safetensors")).unwrap();
    }
    symlink("checkpoint-1", folder.file("best")).unwrap();
    let json = run(["prune", "--keep", "1", "--json", &text(folder.path())]).json();
    assert_eq!(json["files"], serde_json::json!(["checkpoint-2"]), "{json}");
}

/// Steps of Orbax are folders, which can't be opened.
#[test]
fn prunes_completed_steps_of_orbax() {
    let folder = Folder::new();
    for (step, from, loss) in [(5, 0, 0.25), (900, 0, 0.5), (1000, 10, 0.75), (1100, 10, 0.5)] {
        for name in ["_CHECKPOINT_METADATA", "default/_METADATA", "default/manifest.ocdbt"] {
            let to = folder.file(&format!("{step}/{name}"));
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(fixture(&format!("orbax/steps/{from}/{name}")), to).unwrap();
        }
        let metrics = folder.file(&format!("{step}/metrics"));
        fs::create_dir(&metrics).unwrap();
        fs::write(metrics.join("metrics"), format!(r#"{{"loss": {loss}}}"#)).unwrap();
    }
    // The newest is not complete, and 5 has the lowest loss.
    fs::remove_dir_all(folder.file("1100/default")).unwrap();
    fs::create_dir(folder.file("1200.orbax-checkpoint-tmp-1")).unwrap();
    let path = text(folder.path());
    let sound = run(["latest", "--sound", &path]);
    assert!(sound.out.trim().ends_with("1000") && sound.err.contains("`default`"), "{}", sound.err);
    let json = run(["prune", "--keep", "1", "--apply", "--json", &path]).json();
    assert_eq!(json["files"], serde_json::json!(["900"]), "{json}");
    assert!(folder.file("statelens-trash/900/default/manifest.ocdbt").exists());
    assert!(folder.file("1200.orbax-checkpoint-tmp-1").exists());
}

/// A run of TensorFlow: a checkpoint is several files, and the newest is the one in `checkpoint`.
#[test]
fn prunes_all_files_of_a_checkpoint_of_tensorflow() {
    let folder = Folder::new();
    for step in ["8", "9", "10"] {
        for end in ["index", "data-00000-of-00001"] {
            let from = fixture(&format!("tf/tf2_checkpoint/ckpt-1.{end}"));
            fs::copy(from, folder.file(&format!("ckpt-{step}.{end}"))).unwrap();
        }
    }
    fs::write(folder.file("checkpoint"), "model_checkpoint_path: \"ckpt-9\"\n").unwrap();
    let path = text(folder.path());
    assert!(run(["latest", &path]).ok().trim().ends_with("ckpt-9.index"));
    let json = run(["prune", "--keep", "1", "--apply", "--json", &path]).json();
    assert_eq!(json["files"], serde_json::json!(["ckpt-8.index"]), "{json}");
    let mut names: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("ckpt"))
        .collect();
    names.sort();
    let kept = ["ckpt-10.data-00000-of-00001", "ckpt-10.index", "ckpt-9.data-00000-of-00001"];
    assert_eq!(names[..3], kept);
    let trash = folder.file("statelens-trash");
    assert_eq!(fs::read_dir(trash).unwrap().count(), 2);
}

/// Lightning has its checkpoints in `version_0/checkpoints`, and Hugging Face's Trainer says which
/// one is the best.
#[test]
fn prune_keeps_the_best_of_a_run() {
    let weights = report("folders/hf_trainer/checkpoint-500/model.safetensors");
    let folder = Folder::new();
    let inner = folder.file("lightning_logs/version_0/checkpoints");
    fs::create_dir_all(&inner).unwrap();
    for epoch in 1..=4 {
        let loss = [0.9, 0.2, 0.5, 0.4][epoch - 1];
        let name = format!("epoch={epoch}-val_loss={loss:.2}.safetensors");
        fs::copy(&weights, inner.join(name)).unwrap();
    }
    let path = text(folder.path());
    assert!(run(["latest", &path]).ok().contains("checkpoints/epoch=4-"));
    let logs = text(&folder.file("lightning_logs"));
    assert_eq!(run(["latest", &logs]).ok(), run(["latest", &path]).ok());
    let json = run(["prune", "--keep", "1", "--json", &path]).json();
    assert_eq!(json["files"], serde_json::json!(["epoch=3-val_loss=0.50.safetensors"]), "{json}");

    let folder = Folder::new();
    for step in ["1", "2", "3"] {
        let path = folder.file(&format!("checkpoint-{step}"));
        fs::create_dir(&path).unwrap();
        fs::copy(&weights, path.join("model.safetensors")).unwrap();
        let state = r#"{"best_model_checkpoint": "out/checkpoint-1"}"#;
        fs::write(path.join("trainer_state.json"), state).unwrap();
    }
    let json = run(["prune", "--keep", "1", "--json", &text(folder.path())]).json();
    assert_eq!(json["files"], serde_json::json!(["checkpoint-2"]), "{json}");
}

/// Values that were read once and kept in the folder count from then on: a checkpoint with a NaN is
/// not sound, and one that was changed since is not known.
#[test]
fn kept_values_decide_which_checkpoints_are_sound() {
    let folder = Folder::new();
    for (step, value) in [(1, 1.0), (2, 2.0), (3, f32::NAN)] {
        let path = folder.file(&format!("checkpoint-{step}"));
        fs::create_dir(&path).unwrap();
        write_floats(&path.join("model.safetensors"), &[("w", &[2], [0.5, value])]);
        fs::write(path.join("trainer_state.json"), "{}").unwrap();
    }
    let path = text(folder.path());
    let sound = || run(["latest", "--sound", &path]).out;
    assert!(sound().trim_end().ends_with("checkpoint-3"), "values are not known");
    // The values that are kept are the same as before, and read once only.
    for _ in 0..2 {
        let values = run(["runs", "--values", "--keep", "--json", &path]);
        let values: serde_json::Value = serde_json::from_str(&values.out).unwrap();
        assert_eq!(values["checkpoints"][2]["groups"][0]["nan"], 1, "{values}");
        assert_eq!(values["checkpoints"].as_array().unwrap().len(), 3);
    }
    assert!(sound().trim_end().ends_with("checkpoint-2"), "{}", sound());
    let latest = run(["latest", &path]);
    assert!(
        latest.err.contains("not sound: not finite: 1 value is NaN or infinite"),
        "{}",
        latest.err
    );
    let listed = run(["runs", &path]).ok();
    assert!(listed.contains("not finite") && listed.contains("1 value is NaN"), "{listed}");
    let json = run(["prune", "--keep", "1", "--json", &path]).json();
    assert_eq!(json["files"], serde_json::json!(["checkpoint-1"]), "{json}");
    assert_eq!(json["unsound"][0]["name"], "checkpoint-3");

    // Other bytes under the same name.
    write_floats(&folder.file("checkpoint-3/model.safetensors"), &[("w", &[3], [0.5, 1.0, 2.0])]);
    assert!(sound().trim_end().ends_with("checkpoint-3"), "{}", sound());
}
