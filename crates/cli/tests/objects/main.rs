//! Checkpoints in object stores, read by ranges and written by parts. The test store (`store.rs`)
//! speaks the protocols of S3, Google and Azure.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod cerebras;
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../it/common.rs"]
mod common;
mod store;

use std::fs;
use std::process::{Command, Stdio};

use common::{Folder, Ran, fixture, heeding};
use store::{KINDS, Protocol, SECRET, Store};

/// Returns the command in an environment that leads to the test store only.
fn command(environment: &[(&'static str, String)]) -> Command {
    let mut command = heeding();
    for (name, _) in std::env::vars() {
        if ["AWS_", "GOOGLE_", "AZURE_", "STORAGE_"].iter().any(|start| name.starts_with(start)) {
            command.env_remove(name);
        }
    }
    command.envs(environment.iter().map(|(name, value)| (*name, value)));
    command
}

/// Runs the command and checks that it prints no secrets.
fn run(store: &Store, args: &[&str]) -> Ran {
    let ran = Ran::from(command(&store.environment()).args(args).output().unwrap());
    assert!(!ran.out.contains(SECRET) && !ran.err.contains(SECRET), "{}{}", ran.out, ran.err);
    ran
}

fn example() -> Vec<u8> {
    fs::read(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/cerebras/v2.10.0/gpt_small.mdl"
    ))
    .unwrap()
}

/// Returns a safetensors file of one tensor whose values are their own indices.
fn large(megabytes: usize) -> Vec<u8> {
    let len = megabytes << 20;
    let head =
        format!(r#"{{"w":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{len}]}}}}"#, len / 4);
    let mut file = (head.len() as u64).to_le_bytes().to_vec();
    file.extend(head.as_bytes());
    file.extend((0..len as u32 / 4).flat_map(|at| (at as f32).to_le_bytes()));
    file
}

#[test]
fn object_equals_the_local_file() {
    let folder = Folder::new();
    let file = folder.with("a b.mdl", &example());
    let file = file.to_str().unwrap();
    for kind in KINDS {
        let store = Store::start(kind);
        store.put("bucket/m/a b.mdl", example());
        let url = store.at("bucket/m/a b.mdl");
        for command in ["info", "ls", "manifest", "scan"] {
            assert_eq!(run(&store, &[command, &url]).ok(), run(&store, &[command, file]).ok());
        }
        assert_eq!(run(&store, &["diff", &url, file]).code, Some(0));
        for asked in &store.shelf().asked {
            let ranged = asked.method == "GET" && asked.head.contains_key("range");
            assert!(ranged || asked.method == "HEAD", "{kind:?}: {asked:?}");
        }
    }
}

#[test]
fn finds_shards_in_a_bucket_through_the_index() {
    let folder = fixture("hf_sharded_safetensors");
    let index = folder.join("model.safetensors.index.json");
    for kind in KINDS {
        let store = Store::start(kind);
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            store.put(&format!("bucket/set/{name}"), fs::read(&path).unwrap());
        }
        let url = store.at("bucket/set/model.safetensors.index.json");
        let expected = run(&store, &["manifest", index.to_str().unwrap()]).ok();
        assert_eq!(run(&store, &["manifest", &url]).ok(), expected);
    }
}

#[test]
fn output_in_a_bucket_equals_output_on_disk() {
    let folder = Folder::new();
    let source = large(11);
    let file = folder.with("source.safetensors", &source);
    for (kind, target, more) in [
        (Protocol::S3, "out.pt", &[][..]),
        (Protocol::S3, "out.mdl", &["--compress", "gzip"]),
        (Protocol::S3, "out.npz", &["--cast", "bfloat16", "--lossy"]),
        (Protocol::Google, "out.pt", &[]),
        (Protocol::Azure, "out.pt", &[]),
        (Protocol::Azure, "out.mdl", &[]),
    ] {
        let store = Store::start(kind);
        store.put("bucket/source.safetensors", source.clone());
        let (from, to) =
            (store.at("bucket/source.safetensors"), store.at(&format!("other/x/{target}")));
        run(&store, &[&["convert", &from, &to][..], more].concat()).ok();
        let here = folder.file(target);
        run(
            &store,
            &[&["convert", file.to_str().unwrap(), here.to_str().unwrap(), "--force"][..], more]
                .concat(),
        )
        .ok();
        let written = store.object(&format!("other/x/{target}"));
        assert!(
            written.is_some_and(|bytes| *bytes == fs::read(&here).unwrap()),
            "{kind:?} {target}"
        );
        assert!(store.shelf().uploads.is_empty(), "{kind:?}");
    }
}

#[test]
fn writes_shards_as_objects() {
    let index = fixture("hf_sharded_safetensors/model.safetensors.index.json");
    let expected = Ran::from(command(&[]).arg("manifest").arg(&index).output().unwrap()).ok();
    for kind in KINDS {
        let store = Store::start(kind);
        let to = store.at("bucket/new.safetensors");
        run(&store, &["convert", index.to_str().unwrap(), &to, "--shard-size", "700"]).ok();
        let names: Vec<String> = store.shelf().objects.keys().cloned().collect();
        assert!(names.len() > 2, "{names:?}");
        let index = names.iter().find(|name| name.ends_with(".index.json")).unwrap();
        assert_eq!(run(&store, &["manifest", &store.at(index)]).ok(), expected);
    }
}

#[test]
fn upgrade_and_export_write_objects() {
    let folder = Folder::new();
    let old = fixture("cerebras/v2.4.0/gpt_small.mdl");
    let old = old.to_str().unwrap();
    let store = Store::start(Protocol::S3);
    for (command, name) in [
        (&["upgrade", old][..], "new.mdl"),
        (&["export", old, "model.model.ln_f.weight"], "weight.npy"),
    ] {
        let here = folder.file(name);
        run(&store, &[command, &[here.to_str().unwrap()]].concat()).ok();
        run(&store, &[command, &[store.at(&format!("bucket/{name}")).as_str()]].concat()).ok();
        let written = store.object(&format!("bucket/{name}"));
        assert!(written.is_some_and(|bytes| *bytes == fs::read(&here).unwrap()), "{name}");
    }
    assert!(store.shelf().uploads.is_empty());
}

#[test]
fn replacing_an_object_requires_force() {
    let folder = Folder::new();
    let file = folder.with("a.mdl", &example());
    for kind in KINDS {
        let store = Store::start(kind);
        store.put("bucket/a.pt", b"old".to_vec());
        let to = store.at("bucket/a.pt");
        let error = run(&store, &["convert", file.to_str().unwrap(), &to]).failed();
        assert!(error.contains("exists") && error.contains("--force"), "{error}");
        assert_eq!(**store.object("bucket/a.pt").unwrap(), *b"old");
        run(&store, &["convert", file.to_str().unwrap(), &to, "--force"]).ok();
        assert!(store.object("bucket/a.pt").unwrap().len() > 100_000);
    }
}

#[test]
fn store_errors_are_reported_and_leave_no_objects() {
    let folder = Folder::new();
    let file = folder.with("large.safetensors", &large(40));
    let file = file.to_str().unwrap();
    for kind in KINDS {
        let store = Store::start(kind);
        let error = run(&store, &["ls", &store.at("bucket/none.pt")]).failed();
        assert!(error.contains("the object does not exist"), "{error}");
        let error = run(&store, &["ls", &store.at("bucket/folder/")]).failed();
        assert!(error.contains("names a bucket or a folder"), "{error}");

        let store = Store::twisted(kind, |_, _| Some((403, String::new(), Vec::new())));
        let error = run(&store, &["ls", &store.at("bucket/a.mdl")]).failed();
        assert!(error.contains("denies you access") && error.contains("credentials"), "{error}");

        // A store that ignores ranges.
        let whole = example();
        let store = Store::twisted(kind, move |asked, _| {
            let head = "ETag: \"1\"\r\nLast-Modified: Fri, 01 Mar 2024 12:00:00 GMT\r\n".to_owned();
            (asked.method == "GET").then(|| (200, head, whole.clone()))
        });
        store.put("bucket/a.mdl", example());
        let error = run(&store, &["ls", &store.at("bucket/a.mdl")]).failed();
        assert!(error.contains("does not support range requests"), "{error}");

        // The object changes after it is opened.
        let store = Store::twisted(kind, |asked, _| {
            (asked.method == "GET").then(|| (412, String::new(), Vec::new()))
        });
        store.put("bucket/a.mdl", example());
        let error = run(&store, &["ls", &store.at("bucket/a.mdl")]).failed();
        assert!(error.contains("has changed since it was opened"), "{error}");

        // The store refuses a part: no object appears, and no parts remain.
        let store = Store::twisted(kind, |asked, _| {
            let part = asked.query.get("partNumber").is_some_and(|number| number == "2");
            let block = asked.query.get("comp").is_some_and(|comp| comp == "block");
            (part || block).then(|| (403, String::new(), Vec::new()))
        });
        let error = run(&store, &["convert", file, &store.at("bucket/a.pt")]).failed();
        assert!(error.contains("a part could not be written"), "{error}");
        assert!(store.shelf().uploads.is_empty() && store.shelf().objects.is_empty());
    }
}

/// With a store that corrupts objects, the output is read back and then removed.
#[test]
fn removes_objects_that_fail_verification() {
    let folder = Folder::new();
    let file = folder.with("a.mdl", &example());
    // Azure deletes with a batch of requests in one, which the test store doesn't support.
    for kind in [Protocol::S3, Protocol::Google] {
        let store = Store::twisted(kind, |asked, _| {
            let read = asked.method == "GET" && asked.head.contains_key("range");
            let head = "ETag: \"1\"\r\nLast-Modified: Fri, 01 Mar 2024 12:00:00 GMT\r\n";
            let range = asked.head.get("range").and_then(|range| range.strip_prefix("bytes="));
            let (first, last) = range.filter(|_| read)?.split_once('-')?;
            let (from, to): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            let head = format!("{head}Content-Range: bytes {from}-{to}/1000000\r\n");
            Some((206, head, vec![0; to - from + 1]))
        });
        let to = store.at("bucket/a.safetensors");
        let ran = run(&store, &["convert", file.to_str().unwrap(), &to, "--lossy"]);
        let error = ran.failed();
        assert!(error.contains("the written file can't be opened again"), "{error}");
        let shelf = store.shelf();
        assert!(shelf.objects.is_empty() && shelf.uploads.is_empty(), "{kind:?}");
    }
}

#[test]
fn names_missing_credentials() {
    let folder = Folder::new();
    let store = Store::start(Protocol::S3);
    for (kind, words) in [
        (Protocol::S3, "AWS_ACCESS_KEY_ID"),
        (Protocol::Google, "GOOGLE_APPLICATION_CREDENTIALS"),
        (Protocol::Azure, "AZURE_STORAGE_ACCOUNT_NAME"),
    ] {
        let url = match kind {
            Protocol::S3 => "s3://bucket/a.pt",
            Protocol::Google => "gs://bucket/a.pt",
            Protocol::Azure => "az://bucket/a.pt",
        };
        let mut command = command(&[]);
        // The metadata services of cloud machines do not respond here.
        command.env("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1");
        command.env("GCE_METADATA_HOST", "127.0.0.1:1").env("GCE_METADATA_IP", "127.0.0.1:1");
        command.env("HOME", folder.path());
        let error = Ran::from(command.args(["ls", url]).output().unwrap()).failed();
        assert!(error.contains(words), "{error}");
    }
    assert!(store.shelf().asked.is_empty());
}

#[test]
fn interruption_aborts_the_upload() {
    let folder = Folder::new();
    let file = folder.with("large.safetensors", &large(100));
    // Azure has no request for it: it discards unlisted blocks after a week.
    for kind in [Protocol::S3, Protocol::Google] {
        let store = Store::twisted(kind, |asked, _| {
            if asked.method == "PUT" {
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            None
        });
        let to = store.at("bucket/a.pt");
        let mut command = command(&store.environment());
        command.args(["convert", file.to_str().unwrap(), &to]).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let begun = |store: &Store| store.shelf().uploads.values().any(|parts| !parts.is_empty());
        while !begun(&store) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(130), "{}", ran.err);
        let shelf = store.shelf();
        assert!(shelf.uploads.is_empty() && shelf.objects.is_empty(), "{kind:?}");
        assert_eq!(shelf.asked.iter().filter(|asked| asked.method == "DELETE").count(), 1);
    }
}

/// Returns a safetensors file of four tensors of `megabytes` MB each.
fn four(megabytes: usize) -> Vec<u8> {
    let len = megabytes << 20;
    let entries: Vec<String> = (0..4)
        .map(|at| {
            let (start, end) = (at * len, (at + 1) * len);
            format!(
                r#""w{at}":{{"dtype":"F32","shape":[{}],"data_offsets":[{start},{end}]}}"#,
                len / 4
            )
        })
        .collect();
    let head = format!("{{{}}}", entries.join(","));
    let mut file = (head.len() as u64).to_le_bytes().to_vec();
    file.extend(head.as_bytes());
    file.extend((0..len as u32).flat_map(|at| (at as f32 * 1.5).to_le_bytes()));
    file
}

#[test]
fn the_tasks_of_a_job_send_the_parts_of_one_upload() {
    let folder = Folder::new();
    let source = four(9);
    let file = folder.with("source.safetensors", &source);
    for (kind, target, tasks, more) in [
        (Protocol::S3, "out.pt", 3, &[][..]),
        (Protocol::S3, "out.safetensors", 4, &[]),
        (Protocol::S3, "out.npz", 2, &["--cast", "float64"]),
        (Protocol::S3, "out.mdl", 1, &["--compress", "lz4"]),
        (Protocol::S3, "out.index", 4, &[]),
        (Protocol::Google, "out.pt", 3, &[]),
    ] {
        let store = Store::start(kind);
        store.put("bucket/source.safetensors", source.clone());
        let from = store.at("bucket/source.safetensors");
        let (to, job) = (store.at(&format!("other/x/{target}")), store.at("other/job"));
        let count = tasks.to_string();
        let plan = ["job", "plan", &from, &to, "-o", &job, "--tasks", &count, "--json"];
        let planned = run(&store, &[&plan[..], more].concat()).json();
        assert_eq!(planned["tasks"], tasks, "{kind:?} {target}");
        assert!(!store.shelf().uploads.is_empty());
        let again = run(&store, &[&plan[..], more].concat());
        assert_eq!(again.code, Some(2), "{}", again.err);
        let early = run(&store, &["job", "commit", &job]);
        assert_eq!(early.code, Some(2), "{}", early.err);
        for task in (0..tasks).rev() {
            run(&store, &["job", "run", &job, &task.to_string()]).ok();
        }
        // A task whose result was lost is run again.
        store.shelf().objects.remove("other/job/results/00000.json").unwrap();
        run(&store, &["job", "run", &job, "0"]).ok();
        assert!(run(&store, &["job", "run", &job, "0"]).ok().contains("was done before"));
        run(&store, &["job", "commit", &job]).ok();
        assert!(run(&store, &["job", "commit", &job]).ok().contains("committed before"));
        let here = folder.file(target);
        let convert = ["convert", file.to_str().unwrap(), here.to_str().unwrap(), "--force"];
        run(&store, &[&convert[..], more].concat()).ok();
        let written = store.shelf().objects.clone();
        for (name, bytes) in written.iter().filter(|(name, _)| name.starts_with("other/x/")) {
            let name = name.rsplit('/').next().unwrap();
            assert!(**bytes == fs::read(folder.file(name)).unwrap(), "{kind:?} {name}");
        }
        assert!(written.contains_key(&format!("other/x/{target}")), "{kind:?} {target}");
        assert!(store.shelf().uploads.is_empty(), "{kind:?} {target}");
    }
}

/// The store keeps other bytes than the tasks sent: the object is read back and removed.
#[test]
fn commit_removes_objects_with_other_bytes() {
    let store = Store::start(Protocol::S3);
    store.put("bucket/source.safetensors", four(9));
    let from = store.at("bucket/source.safetensors");
    let (to, job) = (store.at("other/out.pt"), store.at("other/job"));
    run(&store, &["job", "plan", &from, &to, "-o", &job, "--tasks", "2"]).ok();
    for task in ["0", "1"] {
        run(&store, &["job", "run", &job, task]).ok();
    }
    let twist = |store: &Store| {
        let mut shelf = store.shelf();
        let part = shelf.uploads.values_mut().next().unwrap().values_mut().last().unwrap();
        let middle = part.len() / 2;
        part[middle] ^= 1;
    };
    twist(&store);
    let commit = run(&store, &["job", "commit", &job]);
    assert_eq!(commit.code, Some(1), "{}{}", commit.out, commit.err);
    assert!(commit.err.contains("the output has changed since a task wrote it"), "{}", commit.err);
    assert!(store.object("other/out.pt").is_none());
}

#[test]
fn an_aborted_job_leaves_nothing_in_the_store() {
    for kind in [Protocol::S3, Protocol::Google] {
        let store = Store::start(kind);
        store.put("bucket/source.safetensors", four(9));
        let from = store.at("bucket/source.safetensors");
        let (to, job) = (store.at("bucket/out.safetensors"), store.at("bucket/jobs/a"));
        run(&store, &["job", "plan", &from, &to, "-o", &job, "--tasks", "3"]).ok();
        run(&store, &["job", "run", &job, "1"]).ok();
        // The source changes: the tag is another one.
        let mut other = four(9);
        *other.last_mut().unwrap() ^= 1;
        store.put("bucket/source.safetensors", other);
        let changed = run(&store, &["job", "run", &job, "0"]);
        assert_eq!(changed.code, Some(1), "{}", changed.err);
        assert!(changed.err.contains("the source has changed"), "{}", changed.err);
        run(&store, &["job", "abort", &job]).ok();
        let names: Vec<String> = store.shelf().objects.keys().cloned().collect();
        assert_eq!(names, ["bucket/source.safetensors"]);
        assert!(store.shelf().uploads.is_empty());
    }
}

#[test]
fn a_prefix_of_a_store_is_verified_as_one_job() {
    let store = Store::start(Protocol::S3);
    for number in 0..40 {
        let mut file = large(0);
        if number == 7 {
            file.truncate(5);
        }
        store.put(&format!("bucket/runs/{}/m{number:02}.safetensors", number % 3), file);
    }
    store.put("bucket/other.safetensors", large(0));
    let job = store.at("bucket/job");
    let plan = ["job", "plan", "verify", &store.at("bucket/runs/"), "-o", &job, "--tasks", "3"];
    run(&store, &plan).ok();
    for task in ["2", "0", "1"] {
        run(&store, &["job", "run", &job, task]).ok();
    }
    let committed = run(&store, &["job", "commit", &job, "--json"]);
    assert_eq!(committed.code, Some(1), "{}", committed.err);
    let report: serde_json::Value = serde_json::from_str(&committed.out).unwrap();
    assert_eq!(report["passed"], 39, "{report}");
    let bad = report["checkpoints"].as_array().unwrap().iter().find(|one| one["passes"] == false);
    assert!(bad.unwrap()["path"].as_str().unwrap().ends_with("m07.safetensors"));
}

/// Returns the peak memory of a running process, in bytes.
#[cfg(target_os = "linux")]
fn peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
}

#[cfg(target_os = "linux")]
#[test]
fn copies_between_buckets_in_bounded_memory() {
    let source = large(250);
    for kind in KINDS {
        let store = Store::start(kind);
        store.put("from/large.safetensors", source.clone());
        let (from, to) = (store.at("from/large.safetensors"), store.at("to/large.pt"));
        let mut child = command(&store.environment())
            .args(["convert", &from, &to])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut most = 0;
        while child.try_wait().unwrap().is_none() {
            most = most.max(peak(child.id()).unwrap_or(0));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        println!("{kind:?}: 262 MB from bucket to bucket with {} MB of memory", most / 1_000_000);
        assert!(most > 0 && most < 160 << 20, "{kind:?}: {most} bytes of memory");
        let written = store.object("to/large.pt").unwrap();
        let tensor = &source[source.len() - (250 << 20)..];
        let at = written.windows(64).position(|window| *window == tensor[4..68]).unwrap() - 4;
        assert!(written[at..].starts_with(tensor), "{kind:?}");
    }
}
