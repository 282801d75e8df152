//! Cerebras checkpoints, whose values are objects below a prefix of a bucket.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use super::common::{Folder, fixture};
use super::store::{Protocol, Store};
use super::{command, example, large, run};

fn json(path: &str) -> Json {
    serde_json::from_str(&fs::read_to_string(fixture(path)).unwrap()).unwrap()
}

/// Adds the objects of fixtures to a store.
fn add(store: &Store, name: &str) {
    let folder = format!("cerebras_s3/{name}");
    for object in json(&format!("{folder}/objects.json"))["objects"].as_array().unwrap() {
        let text = |name: &str| object[name].as_str().unwrap();
        let mut body = fs::read(fixture(&format!("{folder}/{}", text("file")))).unwrap();
        if object["gzip"] == true {
            let mut unpacked = Vec::new();
            flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut unpacked).unwrap();
            body = unpacked;
        }
        let key = format!("bucket/{}", text("key"));
        store.put(&key, body);
        if let Some(header) = object["metadata"]["metadata"].as_str() {
            store.shelf().headers.insert(key, header.to_owned());
        }
    }
}

fn store_with(name: &str) -> Store {
    let store = Store::start(Protocol::S3);
    add(&store, name);
    store
}

/// Returns methods and keys of the requests since the last call.
fn requests(store: &Store) -> Vec<(String, String)> {
    let asked = std::mem::take(&mut store.shelf().asked);
    asked.into_iter().map(|asked| (asked.method, asked.path)).collect()
}

/// Returns the checksums of the library and those of `manifest`, by key.
fn sums(store: &Store, name: &str) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let expected = json(&format!("cerebras_s3/{name}.expected.json"));
    let mut wanted = BTreeMap::new();
    for entry in expected["entries"].as_array().unwrap() {
        if let Some(sum) = entry[1]["sha256"].as_str() {
            wanted.insert(entry[0].as_str().unwrap().to_owned(), sum.to_owned());
        }
    }
    let url = expected["address"].as_str().unwrap();
    let manifest = run(store, &["manifest", "--json", url]).json();
    let mut found = BTreeMap::new();
    for entry in manifest["entries"].as_array().unwrap() {
        if let Some(sum) = entry["sha256"].as_str() {
            found.insert(entry["key"].as_str().unwrap().to_owned(), sum.to_owned());
        }
    }
    (wanted, found)
}

#[test]
fn opening_is_one_request() {
    for name in ["gpt_small", "dtypes_zstd", "keys_hard", "many_1100"] {
        let store = store_with(name);
        let url = format!("s3://bucket/{name}");
        for command in ["info", "ls"] {
            run(&store, &[command, &url]).ok();
            let metadata = format!("/bucket/{name}/__METADATA__");
            assert_eq!(requests(&store), [("GET".to_owned(), metadata)], "{command} {name}");
        }
    }
}

#[test]
fn values_are_one_request_each() {
    let store = store_with("dtypes_zstd");
    let (wanted, found) = sums(&store, "dtypes_zstd");
    assert_eq!(found, wanted);
    let asked = requests(&store);
    let of_objects = asked.iter().filter(|(_, path)| !path.ends_with("__METADATA__"));
    let mut names: Vec<&String> = of_objects.map(|(_, path)| path).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert!(count == names.len() && count <= wanted.len(), "{asked:?}");
    assert!(asked.iter().all(|(method, _)| method == "GET"), "{asked:?}");
}

#[test]
fn pickled_values_are_those_of_the_library() {
    let store = store_with("objects");
    let manifest = run(&store, &["manifest", "--json", "s3://bucket/objects"]).json();
    let mut found = manifest["entries"].as_array().unwrap().iter();
    let sum = |bytes: Vec<u8>| {
        let sum: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Json::from(sum)
    };
    let expected = json("cerebras_s3/objects.expected.json");
    let entries = expected["entries"].as_array().unwrap();
    for entry in entries {
        let (key, want) = (entry[0].as_str().unwrap(), &entry[1]);
        let repr = want["repr"].as_str().unwrap_or_default();
        // A dict of another class has a line for each item.
        if let Some(items) = repr.strip_prefix("Counter({").and_then(|it| it.strip_suffix("})")) {
            for item in items.split(", ") {
                let (name, number) = item.split_once(": ").unwrap();
                let got = found.next().unwrap();
                assert_eq!(got["key"], format!("{key}.{}", name.trim_matches('\'')));
                assert_eq!((&got["kind"], &got["value"]), (&"int".into(), &number.into()));
            }
            continue;
        }
        let got = found.next().unwrap();
        assert_eq!(got["key"], key);
        match want["kind"].as_str().unwrap() {
            "bytes" | "bytearray" => {
                let bytes = STANDARD.decode(want["base64"].as_str().unwrap()).unwrap();
                assert_eq!((&got["kind"], &got["sha256"]), (&"bytes".into(), &sum(bytes)), "{key}");
                let mutable = want["kind"] == "bytearray";
                assert_eq!(got["types"] == "builtins.bytearray", mutable, "{key}");
            }
            "npscalar" => {
                let digits = want["hex"].as_str().unwrap();
                let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
                let bytes = (0..digits.len()).step_by(2).map(byte).collect();
                assert_eq!((&got["dtype"], &got["sha256"]), (&want["dtype"], &sum(bytes)), "{key}");
            }
            "float" => assert_eq!(got["value"], repr, "{key}"),
            _ if got["kind"] == "complex" => {
                let [real, imaginary] = [0, 1].map(|at| got["value"][at].as_str().unwrap());
                let short = |text: &str| text.trim_end_matches(".0").to_owned();
                assert_eq!(format!("({}+{}j)", short(real), short(imaginary)), repr);
            }
            // The manifest has a hash instead of a long text.
            _ if got["sha256"].is_string() => {
                let listed = run(&store, &["ls", "s3://bucket/objects"]).ok();
                let text = listed.lines().find(|line| line.starts_with(key)).unwrap();
                let (start, _) = text.split_once('…').unwrap();
                assert!(repr.starts_with(start.split_once("object").unwrap().1.trim()), "{text}");
            }
            _ => {
                assert_eq!((&got["kind"], &got["value"]), (&"object".into(), &repr.into()), "{key}")
            }
        }
    }
    assert!(entries.len() == 21 && found.next().is_none());
}

#[test]
fn every_key_of_the_library_can_be_read() {
    for name in
        ["keys_hard", "keys_empty", "keys_slash", "keys_dots", "keys_long", "trailing_slash"]
    {
        let (wanted, found) = sums(&store_with(name), name);
        assert!(!wanted.is_empty());
        assert_eq!(found, wanted, "{name}");
    }
}

#[test]
fn checkpoint_equals_the_hdf5_file_with_the_same_state() {
    let store = store_with("from_mdl");
    let file = fixture("cerebras_s3/from_mdl.mdl");
    for command in ["manifest", "ls"] {
        let expected = run(&store, &[command, file.to_str().unwrap()]).ok();
        assert_eq!(run(&store, &[command, "s3://bucket/from_mdl"]).ok(), expected);
    }
    assert_eq!(
        run(&store, &["diff", "s3://bucket/from_mdl", file.to_str().unwrap()]).code,
        Some(0)
    );
    // The address of the metadata is that of the checkpoint.
    run(&store, &["ls", "s3://bucket/from_mdl/__METADATA__"]).ok();
    run(&store, &["ls", "s3://bucket/from_mdl/"]).ok();
    let error = run(&store, &["ls", "s3://bucket/from"]).failed();
    assert!(error.contains("does not exist") && error.contains("__METADATA__"), "{error}");
}

#[test]
fn converts_to_and_from_objects() {
    let folder = Folder::new();
    let source = folder.with("source.mdl", &example());
    let source = source.to_str().unwrap();
    let store = Store::start(Protocol::S3);
    store.put("bucket/run/ckpt2/w", b"a neighbour".to_vec());
    store.put("bucket/run/ckpt-notes.txt", b"a neighbour".to_vec());
    let url = "s3://bucket/run/ckpt";
    run(&store, &["convert", source, url]).ok();
    let asked = requests(&store);
    let puts: Vec<&str> =
        asked.iter().filter(|(method, _)| method == "PUT").map(|(_, path)| &**path).collect();
    let metadata = "/bucket/run/ckpt/__METADATA__";
    assert_eq!((puts.first(), puts.last()), (Some(&metadata), Some(&metadata)));
    assert_eq!(puts.iter().filter(|path| **path == metadata).count(), 2);
    let expected = run(&store, &["manifest", source]).ok();
    assert_eq!(run(&store, &["manifest", url]).ok(), expected);
    let report = run(&store, &["verify", url]);
    assert_eq!(report.code, Some(0), "{}{}", report.out, report.err);
    {
        let shelf = store.shelf();
        let with_header = |name: &&String| {
            name.starts_with("bucket/run/ckpt/") && !name.ends_with("__METADATA__")
        };
        let objects: Vec<&String> = shelf.objects.keys().filter(with_header).collect();
        assert!(objects.len() > 10);
        for name in objects {
            let header: Json = serde_json::from_str(&shelf.headers[name]).unwrap();
            assert_eq!(header["boundaries"][0], shelf.objects[name].len(), "{name}");
        }
    }

    let error = run(&store, &["convert", source, url]).failed();
    assert!(error.contains("already") && error.contains("--force"), "{error}");
    // Objects of the replaced checkpoint that the new one does not have are removed.
    let small = folder.with("small.safetensors", &large(1));
    store.put("bucket/run/ckpt/unknown", b"not of the checkpoint".to_vec());
    run(&store, &["convert", small.to_str().unwrap(), url, "--force"]).ok();
    let names: Vec<String> = store.shelf().objects.keys().cloned().collect();
    let expected = [
        "bucket/run/ckpt-notes.txt",
        "bucket/run/ckpt/__METADATA__",
        "bucket/run/ckpt/unknown",
        "bucket/run/ckpt/w",
        "bucket/run/ckpt2/w",
    ];
    assert_eq!(names, expected);
    assert_eq!(run(&store, &["diff", url, small.to_str().unwrap()]).code, Some(0));
    let back = folder.file("back.safetensors");
    run(&store, &["convert", url, back.to_str().unwrap()]).ok();

    let here = folder.file("here");
    let refused =
        run(&store, &["convert", source, here.to_str().unwrap(), "--to", "cerebras-s3"]).failed();
    assert!(refused.contains("S3 only"), "{refused}");
}

#[test]
fn large_objects_are_sent_in_parts() {
    let folder = Folder::new();
    let source = folder.with("large.safetensors", &large(40));
    let store = Store::start(Protocol::S3);
    run(&store, &["convert", source.to_str().unwrap(), "s3://bucket/large"]).ok();
    assert!(store.shelf().uploads.is_empty());
    assert!(store.shelf().headers["bucket/large/w"].contains("__NUMPY__"));
    let source = source.to_str().unwrap();
    assert_eq!(run(&store, &["diff", "s3://bucket/large", source]).code, Some(0));
}

#[test]
fn a_write_that_fails_leaves_no_checkpoint() {
    let folder = Folder::new();
    let source = folder.with("source.mdl", &example());
    let store = Store::twisted(Protocol::S3, |asked, _| {
        let fails = asked.method == "PUT" && asked.path.contains("ln_f");
        fails.then(|| (403, String::new(), Vec::new()))
    });
    store.put("bucket/run10/w", b"a neighbour".to_vec());
    let error = run(&store, &["convert", source.to_str().unwrap(), "s3://bucket/run1"]).failed();
    assert!(error.contains("denies you access"), "{error}");
    let names: Vec<String> = store.shelf().objects.keys().cloned().collect();
    assert_eq!(names, ["bucket/run10/w"]);
    let complete = requests(&store)
        .iter()
        .filter(|(method, path)| method == "PUT" && path.ends_with("__METADATA__"))
        .count();
    assert_eq!(complete, 1, "only the first form was written");
}

#[test]
fn scan_asks_for_each_header_once() {
    let store = store_with("gpt_small");
    let ran = run(&store, &["scan", "s3://bucket/gpt_small"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    let asked = requests(&store);
    let heads = asked.iter().filter(|(method, _)| method == "HEAD").count();
    assert_eq!(heads, store.shelf().objects.len() - 1);
    let store = Store::start(Protocol::S3);
    for name in ["evil_metadata", "evil_object", "evil_header"] {
        add(&store, &format!("evil/{name}"));
        let ran = run(&store, &["scan", &format!("s3://bucket/{name}")]);
        assert!(ran.code == Some(1) && ran.out.contains("posix.system"), "{name}: {}", ran.out);
    }
}

#[test]
fn damage_is_reported_by_name() {
    let store = Store::start(Protocol::S3);
    for name in ["object_missing", "body_short", "headers_lost", "header_dtype", "zstd_two_frames"]
    {
        add(&store, &format!("errors/{name}"));
        let ran = run(&store, &["verify", &format!("s3://bucket/{name}")]);
        assert_eq!(ran.code, Some(1), "{name}: {}{}", ran.out, ran.err);
    }
    for name in ["no_metadata", "metadata_empty", "metadata_json", "metadata_list"] {
        add(&store, &format!("errors/{name}"));
        let error = run(&store, &["ls", &format!("s3://bucket/{name}")]).failed();
        assert!(error.contains("__METADATA__"), "{name}: {error}");
    }
}

#[test]
fn requests_are_not_made_for_names_of_files() {
    let store = Store::start(Protocol::S3);
    store.put("bucket/model.safetensors", large(1));
    run(&store, &["ls", "s3://bucket/model.safetensors"]).ok();
    assert!(requests(&store).iter().all(|(_, path)| path == "/bucket/model.safetensors"));
    // The environment of the Cerebras library needs no permission for http.
    let environment: Vec<(&str, String)> = store
        .environment()
        .into_iter()
        .filter(|(name, _)| *name != "AWS_ALLOW_HTTP")
        .map(|(name, value)| {
            (if name == "AWS_ENDPOINT" { "AWS_ENDPOINT_URL" } else { name }, value)
        })
        .collect();
    add(&store, "seed");
    let output = command(&environment).args(["ls", "s3://bucket/seed"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
