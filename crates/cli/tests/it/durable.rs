//! A power failure loses nothing: a new file is on the disk before it replaces another one, and
//! files that are kept are on the disk before others are deleted. A replaced file keeps its owner.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::process::Command;

use crate::common::{Folder, fixture, run, skipped};

/// Returns the system calls of a run, in order, as `fsync PATH`, `rename FROM TO` and so on,
/// without the folder; `None` if strace is not installed.
fn steps(folder: &Folder, args: &[&str]) -> Option<Vec<String>> {
    let log = folder.path().join("log");
    let calls = "trace=fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat";
    let ran = Command::new("strace")
        .args(["-f", "-y", "-qq", "-e", "signal=none", "-e", calls, "-o"])
        .arg(&log)
        .arg(env!("CARGO_BIN_EXE_statelens"))
        .args(args)
        .current_dir(folder.path())
        .output();
    let Ok(ran) = ran else {
        skipped("there is no strace, which shows the order in which files reach the disk");
        return None;
    };
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let text = fs::read_to_string(&log).unwrap();
    fs::remove_file(&log).unwrap();
    let here = folder.path().canonicalize().unwrap().to_string_lossy().into_owned();
    let steps: Vec<String> = text
        .lines()
        .filter(|line| line.ends_with("= 0"))
        .filter_map(|line| step(line, &here))
        .collect();
    assert!(!steps.is_empty(), "{text}");
    Some(steps)
}

/// Shortens a line such as `4711 fsync(4</tmp/x/.statelens-4711-0.part>) = 0` to `fsync .part`.
fn step(line: &str, here: &str) -> Option<String> {
    let (call, rest) = line.split_once('(')?;
    let call = call.rsplit(' ').next()?.trim_end_matches("at2").trim_end_matches("at");
    let paths: Vec<&str> = match call {
        "fsync" | "fdatasync" => vec![rest.split_once('<')?.1.split_once('>')?.0],
        _ => rest.split('"').skip(1).step_by(2).collect(),
    };
    let short = |path: &str| {
        let path = path.strip_prefix(here).unwrap_or(path).trim_start_matches(['.', '/']);
        match path {
            "" => "FOLDER".to_owned(),
            path if path.ends_with("9.part") && path.contains("0000") => "OLD".to_owned(),
            path if path.ends_with(".part") => "NEW".to_owned(),
            path => path.to_owned(),
        }
    };
    Some([call.to_owned(), paths.into_iter().map(short).collect::<Vec<_>>().join(" ")].join(" "))
}

const REPLACING: [&str; 5] =
    ["fsync NEW", "link out OLD", "rename NEW out", "fsync FOLDER", "unlink OLD"];

fn text(folder: &Folder, name: &str) -> String {
    folder.file(name).to_string_lossy().into_owned()
}

fn replacing(out: &str) -> Vec<String> {
    REPLACING.iter().map(|step| step.replace("out", out)).collect()
}

#[test]
fn new_file_is_synced_before_the_old_one_is_replaced() {
    let folder = Folder::new();
    let source = fixture("torch/zip_module_state_dict.pt");
    fs::copy(source, folder.file("a.pt")).unwrap();
    let convert = ["convert", "a.pt", "b.safetensors"];
    // By default, a new file is left to the system, as `cp` does.
    let Some(new) = steps(&folder, &convert) else { return };
    assert_eq!(new, ["link NEW b.safetensors", "unlink NEW"]);
    let replaced = steps(&folder, &[&convert[..], &["--force"]].concat()).unwrap();
    assert_eq!(replaced, replacing("b.safetensors"));
    let synced = steps(&folder, &["convert", "a.pt", "c.npz", "--sync"]).unwrap();
    let last = synced.iter().position(|step| step == "fsync FOLDER");
    assert_eq!(synced[..2], ["fsync NEW", "link NEW c.npz"]);
    assert!(last.is_some(), "{synced:?}");
    // The same holds for the export of a single tensor.
    run(["export", &text(&folder, "a.pt"), "lin.weight", &text(&folder, "w.npy")]).ok();
    let export = ["export", "a.pt", "lin.weight", "w.npy", "--force"];
    assert_eq!(steps(&folder, &export).unwrap(), replacing("w.npy"));
}

#[test]
fn old_shards_are_deleted_after_the_new_ones_are_synced() {
    let folder = Folder::new();
    fs::copy(fixture("torch/zip_module_state_dict.pt"), folder.file("a.pt")).unwrap();
    let convert = |size: &str| {
        let args = ["convert", "a.pt", "s.safetensors", "--shard-size", size, "--force"];
        steps(&folder, &args)
    };
    let Some(_) = convert("400") else { return };
    let steps = convert("1000").unwrap();
    let is_sync = |step: &String| step.starts_with("fsync");
    let is_gone = |step: &String| step.starts_with("unlink") && !step.contains("NEW");
    let (synced, gone) = (steps.iter().rposition(is_sync), steps.iter().position(is_gone));
    assert!(gone.is_some() && synced < gone, "{steps:?}");
    assert!(steps.iter().any(|step| step.starts_with("unlink s-")), "{steps:?}");
}

#[test]
fn prune_syncs_kept_checkpoints_before_deleting_others() {
    let folder = Folder::new();
    for step in [1, 2, 3] {
        let name = format!("checkpoint_{step}.mdl");
        fs::copy(fixture("cerebras/v2.10.0/seed.mdl"), folder.file(&name)).unwrap();
    }
    let args = ["prune", ".", "--keep", "1", "--apply", "--delete"];
    let Some(steps) = steps(&folder, &args) else { return };
    assert_eq!(
        steps,
        [
            "fsync checkpoint_3.mdl",
            "fsync FOLDER",
            "unlink checkpoint_1.mdl",
            "unlink checkpoint_2.mdl"
        ]
    );
}

#[test]
fn replaced_file_keeps_its_owner() {
    let folder = Folder::new();
    fs::copy(fixture("torch/zip_module_state_dict.pt"), folder.file("a.pt")).unwrap();
    let out = folder.file("b.safetensors");
    run(["convert", &text(&folder, "a.pt"), &text(&folder, "b.safetensors")]).ok();
    // Only root may change the owner of a file.
    let is_root = chown(&out, Some(1234), Some(2345)).is_ok();
    let before = fs::metadata(&out).unwrap();
    run(["convert", &text(&folder, "a.pt"), &text(&folder, "b.safetensors"), "--force"]).ok();
    let after = fs::metadata(&out).unwrap();
    assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
    assert!(!is_root || after.uid() == 1234);
    assert_ne!(before.ino(), after.ino(), "it is another file");
}
