//! Invisible characters, and characters that change the direction of text, in keys, file names,
//! values and arguments: no command prints them, to either stream, in text or in JSON.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Folder, Ran, fixture, run, text};

/// All of them, between visible characters.
const UNSEEN: &str =
    "a\u{61c}\u{2028}\u{2029}\u{feff}\u{ad}\u{2060}\u{e0041}\u{202e}\u{2066}\u{1b}b";

/// Writes a safetensors file with tensors of two float32 values under these keys.
fn weights(path: &Path, keys: &[&str], values: [f32; 2]) -> String {
    let mut header = serde_json::Map::new();
    for (at, key) in keys.iter().enumerate() {
        let offsets = [at * 8, at * 8 + 8];
        let entry = serde_json::json!({"dtype": "F32", "shape": [2], "data_offsets": offsets});
        header.insert((*key).to_owned(), entry);
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    keys.iter().for_each(|_| bytes.extend(values.map(f32::to_le_bytes).concat()));
    fs::write(path, bytes).unwrap();
    text(path)
}

/// Returns the first invisible character that was printed, with the command.
fn unseen(args: &[&str], ran: &Ran) -> Option<String> {
    let printed = format!("{}{}", ran.out, ran.err);
    let found = UNSEEN.chars().find(|c| !c.is_ascii_alphabetic() && printed.contains(*c))?;
    Some(format!("{found:?} of {} {:?}: {printed:?}", args[0], &args[2.min(args.len())..]))
}

#[test]
fn keys_and_file_names_are_escaped() {
    let folder = Folder::new();
    let at = |name: &str| folder.path().join(name);
    let one = weights(&at(&format!("{UNSEEN}.safetensors")), &[UNSEEN, "same"], [1.0, f32::NAN]);
    let other = weights(&at("other.safetensors"), &["same", "more"], [2.0, 3.0]);
    let damaged = text(&at(&format!("{UNSEEN}.pt")));
    fs::write(&damaged, b"PK\x03\x04 and nothing else").unwrap();
    let out = text(&at(&format!("out{UNSEEN}.pt")));
    let npy = text(&at(&format!("out{UNSEEN}.npy")));
    let missing = text(&at(&format!("none{UNSEEN}.pt")));
    let commands: &[&[&str]] = &[
        &["info", &one],
        &["ls", &one],
        &["show", &one, UNSEEN],
        &["show", &one, "no such key"],
        &["manifest", &one],
        &["info", "--states", &one],
        &["stats", &one],
        &["stats", &one, "--fail-on", "nan"],
        &["stats", "--histogram", &one, UNSEEN],
        &["singular", &one, UNSEEN],
        &["stats", "--rank", "rows", &one, UNSEEN],
        &["diff", &one, &other],
        &["diff", &other, &one],
        &["check", "--against", &one, &other],
        &["check", "--against", &other, &one],
        &["check", &one, &one],
        &["verify", &one],
        &["verify", &one, "--finite"],
        &["scan", &one],
        &["scan", &damaged],
        &["info", &damaged],
        &["verify", &damaged],
        &["info", &missing],
        &["summary", &one],
        &["summary", &one, "--stats"],
        &["convert", &one, &out, "--dry-run"],
        &["convert", &one, &out, "--select", UNSEEN],
        &["convert", &one, &out, "--force", "--exclude", "nothing"],
        &["convert", &one, &out, "--force", "--cast", "nothing=float16"],
        &["convert", &one, &out],
        &["export", &one, UNSEEN, &npy],
        &["export", &one, UNSEEN, &npy],
        &["merge", &one, &one, &out],
        &["ls", &one, UNSEEN],
    ];
    let mut wrong = Vec::new();
    for args in commands {
        wrong.extend(unseen(args, &run(*args)));
        let help = run([args[0], "--help"]);
        if help.out.contains("--json") {
            let json = [args, &["--json"][..]].concat();
            wrong.extend(unseen(&json, &run(&json)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pickle_findings_are_escaped() {
    let folder = Folder::new();
    let name = UNSEEN.replace('\u{1b}', "");
    // `GLOBAL os system` with an argument, and one with a hidden name.
    let evil = folder.path().join(format!("{UNSEEN}.pkl"));
    let long =
        |text: &str| [&b"X"[..], &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let call = |module: &str, name: &str| {
        [long(module), long(name), b"\x93".to_vec(), long(UNSEEN), b"\x85R".to_vec()].concat()
    };
    let pickle = [
        b"\x80\x04".to_vec(),
        call("os", "system"),
        b"0".to_vec(),
        call(&name, &name),
        b".".to_vec(),
    ];
    fs::write(&evil, pickle.concat()).unwrap();
    let evil = text(&evil);
    let beside = folder.path().join("more");
    fs::create_dir(&beside).unwrap();
    fs::copy(&evil, beside.join(format!("{UNSEEN}2.pkl"))).unwrap();
    let beside = text(&beside);
    for args in [
        &["scan", &evil][..],
        &["scan", &evil, "--json"],
        &["scan", &beside],
        &["scan", &beside, &evil, "--json"],
        &["info", &evil],
        &["ls", &evil],
        &["show", &evil],
    ] {
        let ran = run(args);
        assert_eq!(unseen(args, &ran), None);
        assert!(
            args[0] != "scan" || ran.code == Some(1) && ran.out.contains("os.system"),
            "{args:?}"
        );
    }
}

#[test]
fn run_folder_names_are_escaped() {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0/seed.mdl");
    let names = [format!("checkpoint_1{UNSEEN}.mdl"), "checkpoint_2.mdl".into(), UNSEEN.into()];
    let mut paths: Vec<PathBuf> = Vec::new();
    for name in &names {
        let path = folder.path().join(name);
        fs::copy(&source, &path).unwrap();
        paths.push(path);
    }
    let inner = folder.path().join(format!("run{UNSEEN}"));
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("checkpoint_3.mdl"), b"\x89HDF\r\n\x1a\n and no more").unwrap();
    for path in [text(folder.path()), text(&inner)] {
        for args in [
            &["runs", &path][..],
            &["runs", &path, "--json"],
            &["prune", &path, "--keep", "1"],
            &["prune", &path, "--keep", "1", "--json"],
            &["latest", &path, "--sound"],
            &["latest", &path, "--sound", "--json"],
        ] {
            let ran = run(args);
            // `latest` prints a path for use by other commands, so it is the file's own.
            let is_path = args[0] == "latest" && ran.code == Some(0);
            if !is_path {
                assert_eq!(unseen(args, &ran), None);
            }
        }
    }
}
