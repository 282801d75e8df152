//! Ctrl-C during commands that write no file of their own: a run folder keeps its contents, and no
//! output is cut off midway. (`bad_inputs.rs` has the commands that write.)

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Folder, fixture, heeding, run, statelens};

const SIGINT: i32 = 2;

/// Starts a command and sends it SIGINT when `ready` returns true, unless it has ended.
#[track_caller]
fn interrupted(args: &[&str], ready: impl Fn(&Child) -> bool) -> Output {
    let mut child =
        heeding().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() && !ready(&child) {
        assert!(start.elapsed() < Duration::from_secs(60), "{args:?}: it never came to pass");
        std::thread::sleep(Duration::from_micros(200));
    }
    // Fails if it has ended, which the caller sees.
    let mut kill = Command::new("kill");
    let _ = kill.args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status().unwrap();
    child.wait_with_output().unwrap()
}

/// Returns whether a process has a file open below `path`.
fn has_open(child: &Child, path: &Path) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{}/fd", child.id())) else { return false };
    open.flatten().any(|one| fs::read_link(one.path()).is_ok_and(|to| to.starts_with(path)))
}

/// Checks that the signal ended the run and nothing was printed.
#[track_caller]
fn ended_by_it(args: &[&str], output: &Output) {
    assert_eq!(output.status.signal(), Some(SIGINT), "{args:?}: {output:?}");
    assert_eq!((output.stdout.len(), output.stderr.len()), (0, 0), "{args:?}: {output:?}");
}

/// Returns the names and contents of the files in a folder.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().flatten().filter(|one| one.path().is_file());
    files
        .map(|one| (one.file_name().into_string().unwrap(), fs::read(one.path()).unwrap()))
        .collect()
}

#[test]
fn interrupted_prune_loses_no_checkpoint() {
    const FILES: usize = 3_000;
    let folder = Folder::new();
    for step in 0..FILES {
        // A minimal checkpoint, different for each step.
        let header = format!(
            r#"{{"w":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},"__metadata__":{{"step":"{step}"}}}}"#
        );
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
        folder.with(&format!("checkpoint_{step}.mdl"), &bytes);
    }
    folder.with("notes.txt", b"not a checkpoint");
    let before = contents(folder.path());
    let path = folder.path().to_str().unwrap();
    let trash = folder.path().join("statelens-trash");
    let begun = |_: &Child| fs::read_dir(&trash).is_ok_and(|mut files| files.next().is_some());
    let output = interrupted(&["prune", path, "--keep", "2", "--apply"], begun);
    let (stayed, moved) = (contents(folder.path()), contents(&trash));
    let error = String::from_utf8(output.stderr.clone()).unwrap();
    match output.status.code() {
        Some(130) => {
            assert!(output.stdout.is_empty(), "{output:?}");
            let told: String = error.chars().filter(char::is_ascii).collect();
            let count = told.split("stopped after ").nth(1).unwrap().split(' ').next().unwrap();
            assert_eq!(count.replace(',', ""), moved.len().to_string(), "{error}");
            assert!(stayed.len() > 3, "{error}");
        }
        // It had finished before the signal came.
        code => assert_eq!((code, moved.len()), (Some(0), FILES - 2), "{error}"),
    }
    let mut after = stayed;
    for (name, bytes) in moved {
        assert!(after.insert(name.clone(), bytes).is_none(), "{name} is there twice");
    }
    assert_eq!(after, before);
    // Running the same command again completes the job.
    run(["prune", path, "--keep", "2", "--apply"]).ok();
    assert_eq!(contents(folder.path()).len(), 3);
    assert_eq!(contents(&trash).len(), FILES - 2);
    // A plan moves nothing, however it ends.
    let before = contents(folder.path());
    interrupted(&["prune", path, "--keep", "1"], |_| true);
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn listing_a_run_folder_can_be_interrupted() {
    let folder = Folder::new();
    let one = folder.file("checkpoint_0.mdl");
    fs::copy(fixture("cerebras/v2.10.0/gpt_small.mdl"), &one).unwrap();
    // Hard links to one file; each is opened.
    for step in 1..4000 {
        fs::hard_link(&one, folder.file(&format!("checkpoint_{step}.mdl"))).unwrap();
    }
    let names = folder.names();
    let path = folder.path().to_str().unwrap();
    let args = ["runs", path];
    ended_by_it(&args, &interrupted(&args, |child| has_open(child, folder.path())));
    // It opens two of them, within milliseconds, and prints one line at its end. Whenever the
    // signal comes, the line is printed whole or not at all.
    for delay in 0..8 {
        let start = Instant::now();
        let after = |_: &Child| start.elapsed() >= Duration::from_millis(delay);
        let output = interrupted(&["latest", path], after);
        let line = format!("{path}/checkpoint_3999.mdl\n");
        let ended = (output.status.code(), output.status.signal());
        let printed = String::from_utf8(output.stdout).unwrap();
        let whole = ended == (Some(0), None) && printed == line;
        let nothing = ended == (None, Some(SIGINT)) && (printed.is_empty() || printed == line);
        assert!(whole || nothing, "{ended:?} {printed:?}");
    }
    assert_eq!(folder.names(), names);
}

#[test]
fn opening_a_million_keys_can_be_interrupted() {
    // A pickle of a dict of a million floats, which takes a second even in an optimised build.
    let mut bytes = vec![0x80, 2, b'}', b'('];
    for at in 0..1_000_000u32 {
        let key = format!("module.{}.part_{at}.weight_scale", at % 7);
        bytes.push(b'X');
        bytes.extend((key.len() as u32).to_le_bytes());
        bytes.extend(key.bytes());
        bytes.push(b'G');
        bytes.extend(f64::from(at).to_be_bytes());
    }
    bytes.extend(b"u.");
    let folder = Folder::new();
    let file = folder.with("many.pt", &bytes);
    let path = file.to_str().unwrap();
    for args in [&["info", "--states", path][..], &["check", path, "--against", path]] {
        ended_by_it(args, &interrupted(args, |child| has_open(child, &file)));
    }
    assert_eq!(folder.names(), ["many.pt"]);
    assert!(fs::read(&file).unwrap() == bytes);
}

#[test]
fn ignored_ctrl_c_does_not_stop_a_conversion() {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0/gpt_small.mdl");
    let out = folder.file("out.pt");
    let mut child = Command::new("env")
        .arg("--ignore-signal=INT")
        .arg(statelens().get_program())
        .args(["convert", source.to_str().unwrap(), out.to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Wait for the command itself to run: `env` does not ignore the signal at first.
    let program = Path::new(statelens().get_program()).canonicalize().unwrap();
    let itself = format!("/proc/{}/exe", child.id());
    while child.try_wait().unwrap().is_none()
        && !fs::read_link(&itself).is_ok_and(|running| running == program)
    {
        std::thread::sleep(Duration::from_micros(100));
    }
    while child.try_wait().unwrap().is_none() {
        let mut kill = Command::new("kill");
        let _ =
            kill.args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status().unwrap();
    }
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(out.exists());
}
