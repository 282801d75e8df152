//! Names and steps in run folders.

use super::*;

fn run(names: &[&str], index: Option<&[&str]>) -> RunContents {
    let files = names.iter().map(|name| ((*name).to_owned(), 10)).collect();
    let index = index.map(|paths| paths.iter().map(|path| (*path).to_owned()).collect());
    RunContents::new(files, index, &NamePattern::default())
}

const NAMES: [&str; 13] = [
    "checkpoint_20.mdl",
    "checkpoint_100.mdl",
    "checkpoint_100_20240131_235959.mdl",
    "checkpoint_100_20240201_000000.mdl",
    "checkpoint_100_20240231_000000.mdl",
    "model_checkpoint_500.mdl",
    "checkpoint_200.mdl.0a1b2c3d.tmp",
    "checkpoint_300.mdl.tmp",
    "trainer_state_100.mdl",
    "checkpoints_index.yaml",
    "checkpoints_index.yaml.lock",
    "checkpoint_100_1700000000.5.mdl",
    "notes.txt",
];

#[test]
fn checkpoints_of_tensorflow_v1_have_no_index() {
    let latest = |names: &[&str], prefix: &str| {
        let text = format!("model_checkpoint_path: \"/tmp/{prefix}\"");
        let run = run(names, None).with_latest(named_latest("checkpoint", &text));
        assert_eq!(run.absent_latest.is_some(), run.latest.is_none());
        (run.checkpoints().count(), run.latest)
    };
    let some = |name: &str| Some(name.to_owned());
    let names = ["checkpoint", "model.ckpt-7", "model.ckpt-10", "model.ckpt-10.meta"];
    assert_eq!(latest(&names, "model.ckpt-7"), (2, some("model.ckpt-7")));
    assert_eq!(latest(&names, "model.ckpt-8"), (2, None));
    assert_eq!(run(&names, None).latest, some("model.ckpt-10"));
    assert_eq!(run(&names, None).entries[1].files().len(), 2);
    let sharded = ["checkpoint", "m-3-00001-of-00002", "m-3-00000-of-00002", "m-3.meta"];
    assert_eq!(latest(&sharded, "m-3"), (1, some("m-3-00000-of-00002")));
    // Only the state file says that this is a checkpoint.
    assert_eq!(latest(&["checkpoint", "m-3", "m-4"], "m-3"), (0, some("m-3")));
    assert_eq!(latest(&["checkpoint", "m-3.meta"], "m-3"), (0, None));
}

#[test]
fn classifies_files_by_name() {
    let run = run(&NAMES, None);
    let words: Vec<(&str, &str)> =
        run.entries.iter().map(|entry| (entry.name.as_str(), entry.kind.word())).collect();
    assert_eq!(
        words,
        [
            ("checkpoint_20.mdl", "checkpoint"),
            ("checkpoint_100.mdl", "checkpoint"),
            ("checkpoint_100_20240131_235959.mdl", "checkpoint"),
            ("checkpoint_100_20240201_000000.mdl", "checkpoint"),
            ("checkpoint_100_20240231_000000.mdl", "no date"),
            ("model_checkpoint_500.mdl", "subset"),
            ("trainer_state_100.mdl", "trainer state"),
            ("checkpoint_200.mdl.0a1b2c3d.tmp", "temporary"),
            ("checkpoint_300.mdl.tmp", "temporary"),
            ("checkpoints_index.yaml", "index"),
            ("checkpoints_index.yaml.lock", "index"),
            ("checkpoint_100_1700000000.5.mdl", "other"),
            ("notes.txt", "other"),
        ]
    );
    assert_eq!(run.latest.as_deref(), Some("checkpoint_100_20240201_000000.mdl"));
    let subset = RunFile::Subset { states: "model".into(), of: "checkpoint_500.mdl".into() };
    assert_eq!(run.entries[5].kind, subset);
}

#[test]
fn index_limits_the_checkpoints() {
    let index = ["/runs/a/checkpoint_20.mdl", "checkpoint_9.mdl", "/runs/a/checkpoint_100.mdl"];
    let run = run(&NAMES, Some(&index));
    assert_eq!(run.latest.as_deref(), Some("checkpoint_100.mdl"));
    assert_eq!(run.only_index, ["checkpoint_9.mdl"]);
    assert_eq!(run.only_folder.len(), 2);
}

#[test]
fn prune_selects_only_old_checkpoints() {
    let names = |entries: Vec<&FileEntry>| -> Vec<String> {
        entries.into_iter().map(|entry| entry.name.clone()).collect()
    };
    let all = run(&NAMES, None);
    let sound = vec![None; NAMES.len()];
    let gone = |keep, every| names(all.prunable(keep, every, &sound, &[]));
    assert_eq!(gone(2, None), ["checkpoint_20.mdl", "checkpoint_100.mdl"]);
    assert_eq!(gone(1, Some(100)), ["checkpoint_20.mdl"]);
    assert_eq!(gone(9, None), [""; 0]);
    // The checkpoint that would be loaded stays, and so does the newest one even if `keep` is
    // 0.
    let listed = run(&NAMES, Some(&["checkpoint_20.mdl"]));
    assert_eq!(
        names(listed.prunable(0, None, &sound, &[])),
        ["checkpoint_100.mdl", "checkpoint_100_20240131_235959.mdl"]
    );
}

#[test]
fn groups_files_of_other_trainers() {
    let names = |names: &[&str]| {
        let run = run(names, None);
        let entries = run.entries.iter().map(|entry| (entry.name.clone(), entry.kind.word()));
        (entries.collect::<Vec<_>>(), run.latest)
    };
    let (entries, latest) = names(&[
        "ckpt-3.index",
        "ckpt-3.data-00000-of-00001",
        "ckpt-12.data-00000-of-00001",
        "ckpt-12.index",
        "ckpt-13.data-00000-of-00001",
        "10/_CHECKPOINT_METADATA",
        "10/default/d/x",
        "11/x",
    ]);
    let entries: Vec<(&str, &str)> =
        entries.iter().map(|(name, word)| (name.as_str(), *word)).collect();
    let wanted = [
        ("ckpt-3.index", "checkpoint"),
        ("10", "checkpoint"),
        ("ckpt-12.index", "checkpoint"),
        ("ckpt-13.data-00000-of-00001", "other"),
    ];
    assert_eq!(entries, wanted);
    assert_eq!(latest.as_deref(), Some("ckpt-12.index"));
    let (_, latest) = names(&["checkpoint3.pt", "checkpoint_last.pt", "checkpoint_best.pt"]);
    assert_eq!(latest.as_deref(), Some("checkpoint_last.pt"));
    let (_, latest) = names(&["last.ckpt", "last-v1.ckpt", "epoch=3.ckpt"]);
    assert_eq!(latest.as_deref(), Some("last-v1.ckpt"));
}

#[test]
fn tags_of_deepspeed_may_have_any_name() {
    let tag = |tag: &str| format!("{tag}/mp_rank_00_model_states.pt");
    let mut paths = ["epoch_1", "epoch_10", "epoch_9", "best-model", "final"].map(tag).to_vec();
    paths.push("sharded/zero_pp_rank_0_mp_rank_00_model_states.pt".into());
    paths.push("logs/model_states.pt".into());
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let entries = |run: &RunContents| -> Vec<String> {
        run.entries.iter().map(|entry| format!("{} {}", entry.name, entry.kind.word())).collect()
    };
    let all = run(&paths, None).with_latest(Some("epoch_9".into()));
    let wanted = [
        "epoch_1 checkpoint",
        "epoch_9 checkpoint",
        "epoch_10 checkpoint",
        "final last",
        "sharded last",
        "best-model best",
    ];
    assert_eq!(entries(&all), wanted);
    assert_eq!(all.latest.as_deref(), Some("epoch_9"));
    let opened = all.entries.iter().map(|entry| entry.opened().unwrap());
    assert!(opened.clone().all(|path| path.ends_with("model_states.pt")));
    let gone = all.prunable(1, None, &vec![None; all.entries.len()], &[]);
    assert_eq!(gone.iter().map(|entry| &*entry.name).collect::<Vec<_>>(), ["epoch_1"]);
    // The trainer loads the best one.
    let best = run(&paths, None).with_latest(Some("best-model".into()));
    assert_eq!(best.latest.as_deref(), Some("best-model"));
    assert!(best.entries.iter().any(|entry| entry.name == "best-model" && entry.is_loadable()));
    let absent = run(&paths, None).with_latest(Some("epoch_11".into()));
    assert_eq!((absent.latest, absent.absent_latest.as_deref()), (None, Some("epoch_11")));
    // Something else is called `latest`.
    let other = run(&["checkpoint_1.pt"], None).with_latest(Some("2026-01-31".into()));
    assert_eq!((other.latest.as_deref(), other.absent_latest), (Some("checkpoint_1.pt"), None));
}

#[test]
fn prune_counts_each_series_and_keeps_the_best() {
    let gone = |names: &[&str], bad: &str, best: &str| -> Vec<String> {
        let run = run(names, None);
        let why = |entry: &FileEntry| (entry.name == bad).then(String::new);
        let unsound: Vec<_> = run.entries.iter().map(why).collect();
        let gone = run.prunable(1, None, &unsound, &[best.to_owned()]);
        gone.iter().map(|entry| entry.name.clone()).collect()
    };
    let fairseq = [
        "checkpoint1.pt",
        "checkpoint2.pt",
        "checkpoint_1_100.pt",
        "checkpoint_2_200.pt",
        "checkpoint_best.pt",
        "checkpoint_last.pt",
    ];
    assert_eq!(gone(&fairseq, "", ""), ["checkpoint1.pt", "checkpoint_1_100.pt"]);
    // Not certainly a checkpoint.
    assert_eq!(gone(&fairseq, "checkpoint1.pt", ""), ["checkpoint_1_100.pt"]);
    // Folds rather than epochs.
    assert_eq!(gone(&["checkpoint_1_100.pt", "checkpoint_2_100.pt"], "", ""), [""; 0]);
    let keras =
        ["weights.01-0.50.h5", "weights.02-0.10.h5", "weights.03-0.30.h5", "weights.04-0.40.h5"];
    assert_eq!(gone(&keras, "", ""), ["weights.03-0.30.h5"]);
    let lightning = ["epoch=1.ckpt", "epoch=2.ckpt", "epoch=3.ckpt", "last.ckpt"];
    assert_eq!(gone(&lightning, "", "epoch=1.ckpt"), ["epoch=2.ckpt"]);
    // Two networks.
    assert_eq!(gone(&["a_epoch.01.h5", "b_epoch.02.h5"], "", ""), [""; 0]);
}

/// A second run in the folder of an older one: its steps are lower, its files newer.
#[test]
fn prune_keeps_the_newest_of_a_restarted_run() {
    let names = [100, 200, 500, 600, 700].map(|step| format!("checkpoint-{step}"));
    let files = names.iter().map(|name| (format!("{name}/model.safetensors"), 10)).collect();
    let run = RunContents::new(files, None, &NamePattern::default());
    let gone = |run: &RunContents, keep, unsound: &str| -> Vec<String> {
        let why = |entry: &FileEntry| (entry.name == unsound).then(String::new);
        let unsound: Vec<_> = run.entries.iter().map(why).collect();
        let gone = run.prunable(keep, None, &unsound, &[]);
        gone.iter().map(|entry| entry.name.clone()).collect()
    };
    let times = |times: [u64; 5]| {
        run.clone().with_times(|path| {
            let folder = path.split('/').next();
            let at = names.iter().position(|name| Some(name.as_str()) == folder);
            at.map(|at| times[at])
        })
    };
    let restarted = times([9_000, 9_500, 1_000, 2_000, 3_000]);
    assert_eq!(restarted.newer_by_time, ["checkpoint-200", "checkpoint-100"]);
    assert!(restarted.restarted().unwrap().contains("checkpoint-200 and 1 more were written"));
    assert_eq!(gone(&restarted, 1, ""), ["checkpoint-100", "checkpoint-500", "checkpoint-600"]);
    assert_eq!(gone(&restarted, 2, ""), ["checkpoint-500"]);
    // An unsound one does not count.
    let bad = gone(&restarted, 1, "checkpoint-200");
    assert_eq!(bad, ["checkpoint-500", "checkpoint-600"]);
    // Written in order, or copied at about the same time.
    for ordered in [[1, 2, 3, 4, 5], [1_040, 1_030, 1_020, 1_010, 1_000]] {
        let ordered = times(ordered);
        assert_eq!((ordered.restarted(), &*ordered.newer_by_time), (None, &[][..]));
        assert_eq!(gone(&ordered, 1, "").len(), 4);
    }
}

#[test]
fn folders_of_unfinished_saves_are_temporary() {
    let names = [
        "tmp-checkpoint-300",
        "checkpoint-300-tmp",
        "checkpoint-400.incomplete",
        ".tmp-checkpoint-5",
        "500.orbax-checkpoint-tmp-1700000000",
    ];
    let paths: Vec<String> = names.iter().map(|name| format!("{name}/w.safetensors")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).chain(["a.pt.part"]).collect();
    let run = run(&paths, None);
    assert_eq!(run.entries.len(), names.len() + 1);
    assert!(run.entries.iter().all(|entry| entry.kind == RunFile::Temporary));
    assert_eq!(run.latest, None);
    for other in ["tmp", "tmp-data", "checkpoint-300", "attempt-checkpoint-3", "x-tmp"] {
        assert!(!is_unfinished_folder(other), "{other}");
    }
}
