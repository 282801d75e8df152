//! Runs each of the examples and checks its output. They are built with the tests.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PT: &str = "torch/zip_numpy.pt";
const MDL: &str = "cerebras/v2.10.0/gpt_small.mdl";

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name);
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// Returns the command of an example, from the path of this test in `target/PROFILE/deps`.
fn example(name: &str) -> Command {
    let tests = std::env::current_exe().unwrap();
    let profile = tests.parent().unwrap().parent().unwrap();
    Command::new(profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX)))
}

/// Returns the output of an example, and whether it succeeded.
#[track_caller]
fn run(name: &str, args: &[&str]) -> (String, bool) {
    let output = example(name).args(args).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (text + &String::from_utf8_lossy(&output.stderr), output.status.success())
}

#[track_caller]
fn prints(name: &str, args: &[&str], wanted: &[&str]) {
    let (text, ended_well) = run(name, args);
    assert!(ended_well, "{name}: {text}");
    for wanted in wanted {
        assert!(text.contains(wanted), "{name} does not print {wanted:?}: {text}");
    }
}

#[test]
fn examples_are_short() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut count = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines < 40, "{} has {lines} lines", path.display());
        count += 1;
    }
    assert_eq!(count, 10);
}

#[test]
fn reading_examples_print_the_expected_output() {
    prints("list", &[&fixture(PT)], &["PyTorch zip", "arr\tfloat32\t[2, 3]\t24"]);
    prints("slice", &[&fixture(PT), "arr", "0:2, :2"], &["[2, 2] [0.0, 1.0, 3.0, 4.0]"]);
    prints("read_at", &[&fixture(PT)], &["PyTorch zip: "]);
    prints("format", &[], &["Weights: [1.0, 2.0]"]);
    let tied = fixture("torch/zip_tied.pt");
    let bytes = statelens::open(&tied).unwrap().tensor("emb.weight").unwrap().bytes().unwrap();
    let crc = format!("emb.weight: {:08x} in 1 pieces", crc32fast::hash(&bytes));
    prints("machine", &[&tied, "emb.weight"], &[&crc]);
}

#[test]
fn scan_and_diff_examples_print_the_expected_output() {
    let (text, harmless) = run("scan", &[&fixture("attacks/builtins_eval.pkl")]);
    assert!(!harmless && text.contains("eval"), "{text}");
    let (text, harmless) = run("scan", &[&fixture("torch/legacy_tied.pt")]);
    assert!(harmless, "{text}");
    let (a, b) = (fixture(MDL), fixture("cerebras/v2.10.0/gpt_small.pt"));
    prints("diff", &[&a, &b], &["0 differences"]);
    prints("diff", &[&a, &fixture(PT)], &["arr: "]);
}

#[test]
fn convert_example_writes_a_readable_file() {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("example.safetensors");
    let _ = fs::remove_file(&out);
    let path = out.to_str().unwrap();
    prints("convert", &[&fixture(MDL), path], &["bytes in"]);
    prints("list", &[path], &["safetensors", "model."]);
}

#[test]
fn remote_examples_compare_two_revisions() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("revisions");
    let _ = fs::remove_dir_all(&folder);
    for (revision, file) in [("main", "zip_tied.pt"), ("v2", "zip_tied.pt"), ("v3", "zip_numpy.pt")]
    {
        fs::create_dir_all(folder.join(revision)).unwrap();
        fs::copy(fixture(&format!("torch/{file}")), folder.join(revision).join("m.pt")).unwrap();
    }
    let mut server =
        example("serve").arg(&folder).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut address = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let address = format!("{}/{{}}/m.pt", address.trim().trim_end_matches('/'));
    prints("revisions", &[&address, "main", "v2"], &["0 of 5 keys differ"]);
    prints("revisions", &[&address, "main", "v3"], &["emb.weight: ", "arr: "]);
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
}
