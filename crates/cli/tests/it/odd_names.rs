//! Files whose names are not UTF-8: every output is text, and different files have different names.
#![cfg(all(unix, not(target_os = "macos")))]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::common::{Folder, Ran, fixture, run};

const NAMES: [&[u8]; 2] = [b"m\xfe.safetensors", b"m\xff.safetensors"];
const SHOWN: [&str; 2] = [r"m\xfe.safetensors", r"m\xff.safetensors"];

fn copies(folder: &Folder) -> [PathBuf; 2] {
    let source = fixture("reports4/st_index_paths/out/other.safetensors");
    NAMES.map(|name| {
        let path = folder.file("").join(OsStr::from_bytes(name));
        fs::copy(&source, &path).unwrap();
        path
    })
}

/// Runs the command, whose output is text, or panics.
fn ran(command: &[&str], files: &[&PathBuf]) -> Ran {
    let args = command.iter().map(OsString::from);
    run(args.chain(files.iter().map(|file| file.as_os_str().to_owned())))
}

/// `Path::display` shows bytes that are not UTF-8 alike: messages use `PathText`.
#[test]
fn no_message_displays_a_path() {
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut open: Vec<PathBuf> =
        ["cli", "python", "statelens"].map(|name| crates.join(name).join("src")).into();
    let mut count = 0;
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension() == Some(OsStr::new("rs")) {
            count += 1;
            let text = fs::read_to_string(&path).unwrap();
            assert!(!text.contains(".display()"), "{path:?}");
        }
    }
    assert!(count > 100, "{count} files");
}

#[test]
fn all_outputs_name_files_that_are_not_utf8() {
    let folder = Folder::new();
    let [one, two] = &copies(&folder);
    for command in [
        &["scan"][..],
        &["scan", "--json"],
        &["scan", "--sarif"],
        &["verify"],
        &["verify", "--json"],
        &["verify", "--sarif"],
        &["info"],
        &["info", "--json"],
    ] {
        let out = ran(command, &[one, two]).ok();
        for shown in SHOWN {
            // A log names only files with results.
            let (json, log) = (command.contains(&"--json"), command.contains(&"--sarif"));
            let shown = if json { shown.replace('\\', r"\\") } else { shown.to_owned() };
            assert!(log || out.contains(&shown), "{command:?}: {out}");
        }
        assert!(!out.contains('\u{fffd}'), "{command:?}: {out}");
    }
    for command in [
        &["info"][..],
        &["ls"],
        &["ls", "--json"],
        &["manifest"],
        &["manifest", "--json"],
        &["stats"],
        &["stats", "--json"],
        &["summary"],
        &["verify"],
        &["scan"],
    ] {
        let out = ran(command, &[one]).ok();
        assert!(!out.contains('\u{fffd}'), "{command:?}: {out}");
    }
    assert_eq!(ran(&["diff"], &[one, two]).code, Some(0));
    let listed = ran(&["scan"], &[&folder.file("")]).ok();
    assert!(SHOWN.iter().all(|shown| listed.contains(shown)), "{listed}");
}

#[test]
fn errors_and_reports_name_files_that_are_not_utf8() {
    let folder = Folder::new();
    let [one, _] = &copies(&folder);
    let to = folder.file("").join(OsStr::from_bytes(b"o\xff.npz"));
    let planned = ran(&["convert", "--dry-run"], &[one, &to]);
    assert!(planned.out.contains(r"o\xff.npz"), "{}{}", planned.out, planned.err);
    let written = ran(&["convert", "--json"], &[one, &to]).json();
    assert!(written["files"][0].as_str().unwrap().ends_with(r"o\xff.npz"), "{written}");
    let again = ran(&["convert"], &[one, &to]);
    assert_eq!(again.code, Some(2));
    assert!(again.err.contains(r"o\xff.npz"), "{}", again.err);
    for path in [folder.file("").join(OsStr::from_bytes(b"gone\xff.pt")), {
        let cut = folder.file("").join(OsStr::from_bytes(b"cut\xff.pt"));
        fs::write(&cut, b"no").unwrap();
        cut
    }] {
        let error = ran(&["info"], &[&path]);
        assert_eq!(error.code, Some(2));
        assert!(error.err.contains(r"\xff.pt"), "{}", error.err);
    }
}
