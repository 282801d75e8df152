//! Replaced files and their shards, and the exit status when standard output is closed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::common::{Folder, fixture, run, statelens};

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn replaced_file_keeps_its_permissions() {
    let folder = Folder::new();
    let source = text(&fixture("cerebras/v2.10.0/gpt_small.mdl"));
    let out = folder.with("private.pt", b"mine");
    fs::set_permissions(&out, fs::Permissions::from_mode(0o600)).unwrap();
    run(["convert", &source, &text(&out), "--force"]).ok();
    assert_eq!(mode(&out), 0o600);
    assert!(fs::metadata(&out).unwrap().len() > 1000);
    // The same holds for a file that is repaired in place.
    let old = folder.file("old.mdl");
    fs::copy(fixture("cerebras/compat/synthetic_1.7.mdl"), &old).unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).unwrap();
    run(["fix-checkpoint-spec", &text(&old), "--fix_inplace", "-y"]).ok();
    assert_eq!(mode(&old), 0o640);
}

#[test]
fn replacing_a_set_removes_its_old_shards() {
    let folder = Folder::new();
    // In the same folder: other files in a checkpoint's folder are not read with it.
    let source = text(&folder.file("gpt.pt"));
    run(["convert", &text(&fixture("cerebras/v2.10.0/gpt_small.mdl")), &source]).ok();
    let out = text(&folder.file("model.safetensors"));
    let states = ["--states", "model", "--lossy"];
    let convert = |size: &str, more: &[&str]| {
        let args = ["convert", &source, &out, "--shard-size", size];
        run(args.into_iter().chain(states).chain(more.iter().copied())).ok()
    };
    convert("20kB", &[]);
    let many = folder.names();
    // Files that only look like shards of it stay.
    folder.with("model-00001-of-00099.safetensors", b"another's");
    convert("100kB", &["--force", "--dry-run", "--json"]);
    assert!(many.iter().all(|name| folder.names().contains(name)));
    let report = convert("100kB", &["--force", "--json"]);
    let few = folder.names();
    // The report lists the removed files.
    let removed: serde_json::Value = serde_json::from_str(&report).unwrap();
    let removed = removed["removed"].as_array().unwrap();
    let gone = many.iter().filter(|name| !few.contains(name)).count();
    assert_eq!(removed.len(), gone);
    assert!(few.len() < many.len(), "{many:?} {few:?}");
    let shards = few.iter().filter(|name| name.ends_with(".safetensors")).count();
    let of = few.iter().filter(|name| many.contains(name)).collect::<Vec<_>>();
    assert_eq!(of, ["gpt.pt", "model.safetensors.index.json"]);
    assert!(few.contains(&"model-00001-of-00099.safetensors".to_owned()));
    let info = run(["info", &text(&folder.file("model.safetensors.index.json"))]).ok();
    assert!(shards > 1 && !info.contains("missing"), "{info}");
    // The data files of a TensorFlow bundle are removed, too.
    let bundle = Folder::new();
    let index = text(&bundle.file("m.index"));
    run(["convert", &source, &index, "--states", "model", "--lossy", "--shard-size", "50kB"]).ok();
    assert!(bundle.names().len() > 3, "{:?}", bundle.names());
    run(["convert", &source, &index, "--states", "model", "--lossy", "--force"]).ok();
    assert_eq!(bundle.names(), ["m.data-00000-of-00001", "m.index"]);
}

/// A link into a cache in which files are named after their content.
#[test]
fn in_place_refuses_files_named_after_their_content() {
    let folder = Folder::new();
    let source = fixture("safetensors/f4.safetensors");
    let blob = "4d345b17c30c74af2ea603bc07102fd4bd7e0c614fa0536e9a91e05c2c99dbcf";
    fs::create_dir_all(folder.file("models--a--b/blobs")).unwrap();
    fs::create_dir_all(folder.file("models--a--b/snapshots/1")).unwrap();
    let blob = folder.file(&format!("models--a--b/blobs/{blob}"));
    fs::copy(&source, &blob).unwrap();
    let link = folder.file("models--a--b/snapshots/1/model.safetensors");
    std::os::unix::fs::symlink(&blob, &link).unwrap();
    let before = fs::read(&blob).unwrap();
    let in_place = ["convert", "--in-place", &text(&link), "--prefix", "x."];
    for args in [
        in_place.to_vec(),
        [&in_place[..], &["--dry-run"]].concat(),
        vec!["convert", &text(&source), &text(&link), "--force"],
        vec!["summary", &text(&source), "--to", "json", "-o", &text(&link), "--force"],
        vec!["manifest", &text(&source), "-o", &text(&link), "--force"],
    ] {
        let error = run(&args).failed();
        assert!(error.contains("named after its content"), "{args:?}: {error}");
        assert_eq!(fs::read(&blob).unwrap(), before, "{args:?}");
    }
}

#[test]
fn removes_leftovers_of_killed_runs() {
    let folder = Folder::new();
    let host = Command::new("uname").arg("-n").output().unwrap().stdout;
    let host = String::from_utf8(host).unwrap();
    let name = |pid| format!(".statelens-{}-{pid}-0.part", host.trim());
    let old = folder.with(&name(4_000_000), b"left");
    let file = fs::OpenOptions::new().write(true).open(&old).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    let recent = folder.with(&name(4_000_001), b"perhaps somebody's");
    let source = text(&fixture("cerebras/v2.10.0/seed.mdl"));
    run(["convert", &source, &text(&folder.file("out.pt"))]).ok();
    assert!(!old.exists());
    assert!(recent.exists());
}

#[test]
fn closed_pipe_keeps_the_exit_status() {
    let unfinished = text(&fixture("cerebras/errors/no_success.mdl"));
    let one = text(&fixture("cerebras/v2.10.0/gpt_small.mdl"));
    let other = text(&fixture("cerebras/v2.10.0/gpt_small_bf16.mdl"));
    for args in [
        vec!["verify", &unfinished],
        vec!["verify", &unfinished, "--json"],
        vec!["check", &one, "--against", &unfinished],
        vec!["diff", &one, &other],
        vec!["diff", &one, &other, "--json"],
        vec!["scan", &text(&fixture("attacks/os_system_reduce.pt"))],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = statelens();
        command.args(&args).stdout(writer).stderr(std::process::Stdio::null());
        assert_eq!(command.status().unwrap().code(), Some(1), "{args:?}");
    }
    // A command that only lists succeeds even if its output is closed.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(statelens().args(["ls", &one]).stdout(writer).status().unwrap().code(), Some(0));
}

/// A source that is overwritten while a tensor of it is exported: nothing is kept.
#[test]
fn export_notices_a_source_that_changes() {
    for megabytes in [8, 32, 128] {
        let folder = Folder::new();
        let (len, source) = (megabytes << 20, folder.file("source.safetensors"));
        let header =
            format!(r#"{{"w":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{len}]}}}}"#, len / 4);
        let head = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
        fs::write(&source, &head).unwrap();
        let file = fs::File::options().write(true).open(&source).unwrap();
        file.set_len((head.len() + len) as u64).unwrap();
        let args = ["export", &text(&source), "w", &text(&folder.file("w.csv"))];
        let mut command = statelens();
        let mut export = command.args(args).stderr(std::process::Stdio::piped()).spawn().unwrap();
        // The unfinished file appears once the source was opened.
        while folder.names().len() < 2 && export.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
        if export.try_wait().unwrap().is_some() {
            // It was faster; a larger source takes longer.
            continue;
        }
        let ran = export.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&ran.stderr);
        assert!(error.contains("was changed by another program while it was read"), "{error}");
        assert_eq!(folder.names(), ["source.safetensors"]);
        return;
    }
    panic!("every export ended before its source changed");
}
