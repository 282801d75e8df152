//! The scripts of the GitHub action and of the hooks for pre-commit, run as they are there.
#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::{Folder, Ran, fixture};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../action").join(name)
}

/// Runs a script of the action in a folder.
fn bash(folder: &Path, name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut bash = Command::new("bash");
    bash.arg(script(name)).args(arguments).current_dir(folder);
    bash.env("STATELENS", env!("CARGO_BIN_EXE_statelens"));
    for name in ["RUNNER_TEMP", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "BASE", "PATHS", "LEVELS"] {
        bash.env_remove(name);
    }
    Ran::from(bash.envs(variables.iter().copied()).output().expect("bash starts"))
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let identity =
        ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"];
    let output =
        Command::new("git").args(identity).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Copies a folder of fixtures into a repository.
fn copy(name: &str, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(fixture(&format!("folders/{name}"))).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// A pull request that breaks one folder: only what it changes is examined.
#[test]
fn action_examines_what_a_pull_request_changes() {
    let repository = Folder::new();
    let top = repository.path();
    git(top, &["init", "-q"]);
    copy("llama_single", &top.join("models/whole"));
    copy("missing_shard", &top.join("models/old fault"));
    git(top, &["add", "-A"]);
    git(top, &["commit", "-qm", "Base"]);
    let base = git(top, &["rev-parse", "HEAD"]);
    copy("shard_cut", &top.join("models/new"));
    fs::write(top.join("notes.txt"), "nothing").unwrap();
    git(top, &["add", "-A"]);
    git(top, &["commit", "-qm", "Change"]);

    let temp = Folder::new();
    let output = temp.file("output.txt");
    let variables = [
        ("BASE", base.as_str()),
        ("RUNNER_TEMP", temp.path().to_str().unwrap()),
        ("GITHUB_OUTPUT", output.to_str().unwrap()),
    ];
    let ran = bash(top, "run.sh", &[], &variables);
    assert_eq!(ran.code, Some(0), "{} {}", ran.out, ran.err);
    let outputs = fs::read_to_string(&output).unwrap();
    assert!(outputs.contains("whole=false\n"), "{outputs}");
    assert!(ran.out.contains("is cut") && !ran.out.contains("old fault"), "{}", ran.out);
    let results = temp.file("statelens-results");
    for (name, expected) in [("check", Some("file-cut")), ("scan", None)] {
        let log = fs::read(results.join(format!("sarif/{name}.sarif"))).unwrap();
        let log: Value = serde_json::from_slice(&log).unwrap();
        let found = &log["runs"][0]["results"];
        if let Some(expected) = expected {
            assert_eq!(found[0]["ruleId"], expected);
            let place = &found[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
            assert_eq!(place, "models/new/model-00002-of-00003.safetensors");
        }
    }
    let report = fs::read_to_string(results.join("report.md")).unwrap();
    assert!(report.starts_with("<!-- statelens -->\n") && report.contains("not whole"), "{report}");
}

/// Names that git quotes, that look like options, and more output than a comment may have.
#[test]
fn action_takes_any_names_and_long_reports() {
    let repository = Folder::new();
    let top = repository.path();
    git(top, &["init", "-q"]);
    fs::write(top.join("readme.txt"), "nothing").unwrap();
    git(top, &["add", "-A"]);
    git(top, &["commit", "-qm", "Base"]);
    let base = git(top, &["rev-parse", "HEAD"]);
    copy("shard_cut", &top.join("größe \"neu\""));
    fs::copy(fixture("attacks4/bytesio_evil.pt"), top.join("-evil.pt")).unwrap();
    let evil = fs::read(top.join("-evil.pt")).unwrap();
    for number in 0..300 {
        fs::write(top.join(format!("copy with a rather long name {number}.pt")), &evil).unwrap();
    }
    git(top, &["add", "-A"]);
    git(top, &["commit", "-qm", "Change"]);
    let temp = Folder::new();
    let variables = [("BASE", base.as_str()), ("RUNNER_TEMP", temp.path().to_str().unwrap())];
    let ran = bash(top, "run.sh", &[], &variables);
    assert_eq!(ran.code, Some(0), "{} {}", ran.out, ran.err);
    assert!(ran.out.contains("-evil.pt") && ran.out.contains("whole: false"), "{}", ran.out);
    let results = temp.file("statelens-results");
    let report = fs::read_to_string(results.join("report.md")).unwrap();
    assert!(report.contains("file-cut") && report.len() < 65_000, "{}", report.len());
    let log = fs::read(results.join("sarif/check.sarif")).unwrap();
    let log: Value = serde_json::from_slice(&log).unwrap();
    assert_eq!(log["runs"][0]["results"][0]["ruleId"], "file-cut");
}

/// A stand-in for `gh` notes its arguments, and lists the comment of an earlier run.
#[test]
fn action_writes_one_comment_and_updates_it() {
    let folder = Folder::new();
    let stand_in = "#!/usr/bin/env bash\nprintf '%s\\n' \"$*\" >> \"$LOG\"\n\
                    case \"$*\" in *--paginate*) printf '%s' \"$OLD\" ;; esac\n";
    fs::write(folder.file("gh"), stand_in).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.file("gh"), mode).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let log = folder.file("log.txt");
    for (old, expected) in [
        ("", "api --method POST repos/o/r/issues/5/comments --field body=@report.md --silent"),
        (
            "77\n78",
            "api --method PATCH repos/o/r/issues/comments/77 --field body=@report.md --silent",
        ),
    ] {
        let variables = [
            ("PATH", path.as_str()),
            ("LOG", log.to_str().unwrap()),
            ("OLD", old),
            ("GITHUB_REPOSITORY", "o/r"),
            ("NUMBER", "5"),
            ("REPORT", "report.md"),
        ];
        let ran = bash(folder.path(), "comment.sh", &[], &variables);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert_eq!(fs::read_to_string(&log).unwrap().lines().last(), Some(expected));
    }
}

#[test]
fn scripts_need_bash_3_2_only() {
    for name in ["run.sh", "hook.sh", "install.sh", "comment.sh"] {
        let text = fs::read_to_string(script(name)).unwrap();
        let newer = ["declare -A", "mapfile", "readarray", "${!", ",,}", "^^}", "coproc", "|&"];
        assert!(!newer.iter().any(|word| text.contains(word)), "{name}");
    }
}

#[test]
fn action_examines_paths_with_levels_and_nothing_without_checkpoints() {
    let repository = Folder::new();
    let top = repository.path();
    git(top, &["init", "-q"]);
    fs::write(top.join("readme.txt"), "nothing").unwrap();
    git(top, &["add", "-A"]);
    let temp = Folder::new();
    let temp_path = temp.path().to_str().unwrap();
    let ran = bash(top, "run.sh", &[], &[("RUNNER_TEMP", temp_path)]);
    assert!(ran.code == Some(0) && ran.out.contains("whole: true"), "{} {}", ran.out, ran.err);

    copy("shard_cut", &top.join("model"));
    let ran = bash(top, "run.sh", &[], &[("RUNNER_TEMP", temp_path), ("PATHS", "model")]);
    assert!(ran.code == Some(0) && ran.out.contains("whole: false"), "{} {}", ran.out, ran.err);
    let levels = [("RUNNER_TEMP", temp_path), ("PATHS", "model"), ("LEVELS", "no-such-rule=off")];
    let ran = bash(top, "run.sh", &[], &levels);
    assert_eq!(ran.code, Some(2), "{} {}", ran.out, ran.err);
}

#[test]
fn hooks_scan_files_and_check_folders_once() {
    let folder = Folder::new();
    copy("llama_three_shards", &folder.path().join("whole"));
    copy("total_size_wrong", &folder.path().join("warned"));
    copy("shard_empty", &folder.path().join("broken"));
    let hook = |arguments: &[&str]| bash(folder.path(), "hook.sh", arguments, &[]);
    let ran = hook(&["check", "whole/model-00001-of-00003.safetensors", "whole/config.json"]);
    assert_eq!((ran.code, ran.out.matches("whole").count()), (Some(0), 1), "{}", ran.out);
    let ran = hook(&["check", "warned/config.json", "broken/config.json"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("broken") && ran.out.contains("file-empty"), "{}", ran.out);
    assert_eq!(hook(&["scan", "whole/model-00001-of-00003.safetensors"]).code, Some(0));
    fs::copy(fixture("attacks4/bytesio_evil.pt"), folder.file("evil.pt")).unwrap();
    assert_eq!(hook(&["scan", "evil.pt"]).code, Some(1));
}
