//! Errors of every command for unusable inputs and targets, for a full disk, and after an
//! interrupt: one sentence, and nothing is lost or left behind.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Folder, Ran, fixture, heeding, run, statelens, text};

/// A command that writes a file: its arguments, in which `IN` and `OUT` are replaced by paths, an
/// input that it accepts, and the suffix of the first file that it writes.
struct WritingCommand {
    words: &'static [&'static str],
    sound: &'static str,
    also: &'static str,
}

const WRITING: [WritingCommand; 8] = [
    WritingCommand {
        words: &["upgrade", "IN", "-o", "OUT"],
        sound: "cerebras/v2.4.0/gpt_small.mdl",
        also: "",
    },
    WritingCommand {
        words: &["fix-checkpoint-spec", "IN", "--fixed_checkpoint_path", "OUT"],
        sound: "cerebras/compat/synthetic_1.7.mdl",
        also: "",
    },
    WritingCommand {
        words: &["fix_checkpoint_spec", "--upgrade", "IN", "--fixed_checkpoint_path", "OUT"],
        sound: "cerebras/compat/synthetic_1.7.mdl",
        also: "",
    },
    WritingCommand {
        words: &["convert-dataloader-state", "-c", "IN", "-w", "STATES", "-o", "OUT"],
        sound: "cerebras/v2.4.0/gpt_small.mdl",
        also: "",
    },
    WritingCommand {
        words: &["convert", "IN", "OUT", "--to", "torch"],
        sound: "cerebras/v2.10.0/gpt_small.mdl",
        also: "",
    },
    WritingCommand {
        words: &["tensorflow-to-h5", "IN", "OUT"],
        sound: "tf/saver_v2_basic/model.ckpt-1.index",
        also: "",
    },
    WritingCommand {
        words: &["h5-to-tensorflow", "IN", "OUT", "--lossy"],
        sound: "cerebras/v2.10.0/gpt_small.mdl",
        also: ".data-00000-of-00001",
    },
    WritingCommand {
        words: &["manifest", "IN", "-o", "OUT"],
        sound: "cerebras/v2.10.0/gpt_small.mdl",
        also: "",
    },
];

/// Commands that read one checkpoint, `IN`; `OTHER` is a sound one.
const READING: [&[&str]; 8] = [
    &["info", "--states", "IN"],
    &["check", "IN", "--against", "OTHER"],
    &["check", "OTHER", "--against", "IN"],
    &["diff", "IN", "OTHER"],
    &["diff", "OTHER", "IN"],
    &["verify", "IN"],
    &["verify", "OTHER", "--manifest", "IN"],
    &["info", "IN"],
];

/// Commands that read a run folder.
const FOLDERS: [&[&str]; 3] =
    [&["runs", "IN"], &["latest", "IN"], &["prune", "IN", "--keep", "1", "--apply"]];

/// Replaces the placeholders in the arguments by paths.
fn filled(words: &[&str], input: &str, output: &str) -> Vec<String> {
    let states = text(&fixture("cerebras/compat/dl_state"));
    let other = text(&fixture("cerebras/v2.10.0/seed.mdl"));
    let fill = |word: &&str| match *word {
        "IN" => input.to_owned(),
        "OUT" => output.to_owned(),
        "STATES" => states.clone(),
        "OTHER" => other.clone(),
        word => word.to_owned(),
    };
    words.iter().map(fill).collect()
}

impl WritingCommand {
    fn args(&self, input: &str, output: &Path) -> Vec<String> {
        filled(self.words, input, &text(output))
    }

    fn sound(&self) -> String {
        text(&fixture(self.sound))
    }

    /// Returns the path of the output, or of the first file of a bundle.
    fn written(&self, folder: &Folder) -> std::path::PathBuf {
        folder.file(&format!("out.mdl{}", self.also))
    }
}

#[test]
fn names_inputs_that_are_not_checkpoints() {
    let folder = Folder::new();
    let empty = folder.file("empty-folder");
    fs::create_dir(&empty).unwrap();
    let notes = text(&folder.with("notes.txt", b"so much depends upon a red wheel barrow\n"));
    let nothing = text(&folder.with("nothing.pt", b""));
    let missing = text(&folder.file("missing.mdl"));
    let before = folder.names();
    let cases = [
        (missing.as_str(), ["the file does not exist", "missing.mdl"]),
        (&text(&empty), ["", "empty-folder"]),
        (&notes, ["", "notes.txt"]),
        ("/dev/null", ["not a regular file", "/dev/null"]),
    ];
    for (input, printed) in cases {
        let writing = WRITING.iter().map(|one| one.args(input, &folder.file("out.mdl")));
        let reading = READING.iter().map(|words| filled(words, input, ""));
        for args in writing.chain(reading) {
            let error = run(&args).failed();
            // A manifest has its own error message.
            let own = args.contains(&"--manifest".to_owned());
            assert!(error.contains(printed[1]), "{args:?}: {error}");
            assert!(own || error.contains(printed[0]), "{args:?}: {error}");
        }
    }
    // An empty file is a damaged one, so verify reports a negative result.
    for one in &WRITING {
        let error = run(one.args(&nothing, &folder.file("out.mdl"))).failed();
        assert!(error.contains("empty"), "{error}");
    }
    let ran = run(["verify", &nothing]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""));
    assert!(ran.out.contains("the file is empty"), "{}", ran.out);
    assert_eq!(folder.names(), before);
}

#[test]
fn names_invalid_folders() {
    let folder = Folder::new();
    let file = text(&folder.with("notes.txt", b"mine"));
    let missing = text(&folder.file("missing"));
    for words in FOLDERS {
        let error = run(filled(words, &missing, "")).failed();
        assert!(
            error.contains("the folder does not exist") && error.contains("missing"),
            "{error}"
        );
        let error = run(filled(words, &file, "")).failed();
        assert!(error.contains("not a folder") && error.contains("notes.txt"), "{error}");
    }
    // A folder without checkpoints is not an error, and nothing in it is lost.
    let path = text(folder.path());
    assert!(run(["runs", &path]).ok().contains("0 checkpoints"));
    assert_eq!(run(["latest", &path]).code, Some(1));
    assert!(run(["prune", &path, "--keep", "1", "--apply"]).ok().contains("nothing to remove"));
    assert_eq!(folder.names(), ["notes.txt"]);
    // The error for a bad index names the file.
    folder.with("checkpoint_1.mdl", b"x");
    folder.with("checkpoints_index.yaml", b"a: {b: c}\n");
    for words in FOLDERS {
        let error = run(filled(words, &path, "")).failed();
        assert!(error.contains("checkpoints_index.yaml"), "{error}");
    }
    assert!(folder.file("checkpoint_1.mdl").exists());
}

#[test]
fn existing_targets_are_not_overwritten() {
    for one in &WRITING {
        let folder = Folder::new();
        let target = one.written(&folder);
        fs::write(&target, b"precious").unwrap();
        let args = one.args(&one.sound(), &folder.file("out.mdl"));
        let error = run(&args).failed();
        assert!(error.contains("exists"), "{args:?}: {error}");
        assert_eq!(fs::read(&target).unwrap(), b"precious", "{args:?}");
        // A folder with that name is not replaced: a conversion writes into it, the other commands
        // are refused.
        fs::remove_file(&target).unwrap();
        fs::create_dir(&target).unwrap();
        let ran = run(&args);
        match one.words[0] {
            "convert" | "tensorflow-to-h5" => {
                ran.ok();
                assert_eq!(fs::read_dir(&target).unwrap().count(), 1, "{args:?}");
            }
            _ => assert!(ran.failed().contains("folder"), "{args:?}"),
        }
        fs::remove_dir_all(&target).unwrap();
        // A dangling link is not followed either.
        std::os::unix::fs::symlink("nowhere", &target).unwrap();
        let error = run(&args).failed();
        assert!(error.contains("link"), "{args:?}: {error}");
        fs::remove_file(&target).unwrap();
        assert!(folder.names().is_empty(), "{args:?}: {:?}", folder.names());
    }
}

#[test]
fn reports_targets_that_cannot_be_created() {
    for one in &WRITING {
        let folder = Folder::new();
        folder.with("file", b"mine");
        // Missing folders are created.
        run(one.args(&one.sound(), &folder.file("no/such/out.mdl"))).ok();
        let made = folder.file(&format!("no/such/out.mdl{}", one.also));
        assert!(made.is_file(), "{made:?}");
        let mut cases = vec![
            // Not even root can create a file below a file.
            (folder.file("file/out.mdl"), "it can't be created"),
        ];
        // A file system that refuses new files, even for root.
        if Path::new("/sys/kernel").is_dir() {
            cases.push((
                "/sys/kernel/out.mdl".into(),
                "you don't have permission to write in the folder",
            ));
        }
        for (target, printed) in cases {
            let args = one.args(&one.sound(), &target);
            let error = run(&args).failed();
            assert!(error.contains(printed), "{args:?}: {error}");
        }
        // Devices are not regular files: neither replaced nor written to.
        if one.also.is_empty() {
            let error = run(one.args(&one.sound(), Path::new("/dev/full"))).failed();
            assert!(error.contains("not a regular file"), "{error}");
        }
        assert_eq!(folder.names(), ["file", "no"]);
        assert_eq!(fs::read(folder.file("file")).unwrap(), b"mine");
    }
}

#[test]
fn refuses_to_write_onto_the_input() {
    for one in &WRITING {
        let folder = Folder::new();
        let input = folder.file("out.mdl");
        fs::copy(one.sound(), &input).unwrap();
        let before = fs::read(&input).unwrap();
        if one.also.is_empty() && !one.words.contains(&"tensorflow-to-h5") {
            let mut args = one.args(&text(&input), &input);
            if one.words[0] == "convert" || one.words[0] == "manifest" {
                args.push("--force".to_owned());
            }
            let error = run(&args).failed();
            assert!(error.contains("out.mdl"), "{args:?}: {error}");
        }
        assert_eq!(fs::read(&input).unwrap(), before);
        assert_eq!(folder.names(), ["out.mdl"]);
    }
}

/// Runs the command with a limit of one kilobyte on the size of files, which acts like a full disk.
/// The shell ignores the signal that the limit would send.
fn limited(args: &[String]) -> Ran {
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_statelens"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Ran::from(output)
}

#[test]
fn full_disk_leaves_no_files() {
    for one in &WRITING {
        let folder = Folder::new();
        let args = one.args(&one.sound(), &folder.file("out.mdl"));
        let error = limited(&args).failed();
        assert!(error.contains("writing failed"), "{args:?}: {error}");
        assert!(folder.names().is_empty(), "{args:?}: {:?}", folder.names());
    }
    let folder = Folder::new();
    let file = folder.file("a.mdl");
    fs::copy(fixture("cerebras/compat/synthetic_1.7.mdl"), &file).unwrap();
    let before = fs::read(&file).unwrap();
    for more in [&[][..], &["--upgrade"]] {
        let words = ["fix_checkpoint_spec", "--fix_inplace", "--yes", "IN"];
        let args: Vec<&str> = words.iter().chain(more).copied().collect();
        let error = limited(&filled(&args, &text(&file), "")).failed();
        assert!(error.contains("writing failed"), "{error}");
        assert_eq!(fs::read(&file).unwrap(), before);
        assert_eq!(folder.names(), ["a.mdl"]);
    }
}

#[test]
fn reports_failed_printing() {
    if !Path::new("/dev/full").exists() {
        crate::common::skipped("there is no /dev/full");
        return;
    }
    let folder = Folder::new();
    for step in [1, 2] {
        let whole = fixture("cerebras/v2.10.0/seed.mdl");
        fs::copy(whole, folder.file(&format!("checkpoint_{step}.mdl"))).unwrap();
    }
    let input = text(&fixture("cerebras/v2.10.0/gpt_small.mdl"));
    let reading = READING.iter().filter(|words| !words.contains(&"--manifest"));
    let mut all: Vec<Vec<String>> = reading.map(|words| filled(words, &input, "")).collect();
    let path = text(folder.path());
    all.extend(
        [&["runs", "IN"][..], &["latest", "IN"], &["prune", "IN", "--keep", "1"]]
            .map(|words| filled(words, &path, "")),
    );
    for args in all {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = statelens().args(&args).stdout(full).output().unwrap();
        let error = Ran::from(output).failed();
        assert!(error.contains("printing failed"), "{args:?}: {error}");
    }
    assert_eq!(folder.names(), ["checkpoint_1.mdl", "checkpoint_2.mdl"]);
}

/// Waits until `holds` returns true, for a minute at most.
#[track_caller]
fn wait(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never came to pass");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Starts a command and sends it SIGINT as soon as it handles the signal and, if it writes, has
/// written something. Returns its output.
#[track_caller]
fn stopped(args: &[String], writes: Option<&Folder>) -> Ran {
    let child = heeding().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let listens = || {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        caught.is_some_and(|mask| mask >> 1 & 1 == 1)
    };
    wait(listens);
    if let Some(folder) = writes {
        let end = format!("-{}-0.part", child.id());
        let is_long = |name: &String| {
            name.ends_with(&end)
                && fs::metadata(folder.file(name)).is_ok_and(|data| data.len() > 1 << 20)
        };
        wait(|| folder.names().iter().any(is_long));
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    Ran::from(child.wait_with_output().unwrap())
}

/// Bytes; large enough to interrupt a command midway.
const LARGE: u64 = 192 << 20;

/// Returns a checkpoint of the old format and a bundle, of `LARGE` bytes each.
fn large(folder: &Folder) -> (String, String) {
    let header = format!(
        "{{\"model.w\":{{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[0,{LARGE}]}}}}",
        LARGE / 4
    );
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    let sparse = folder.with("sparse.safetensors", &bytes);
    let file = fs::OpenOptions::new().write(true).open(&sparse).unwrap();
    file.set_len(bytes.len() as u64 + LARGE).unwrap();
    let (old, bundle) = (text(&folder.file("old.mdl")), text(&folder.file("bundle")));
    let sparse = text(&sparse);
    run(["convert", &sparse, &old, "--format-version", "0.4"]).ok();
    run(["convert", &sparse, &bundle, "--to", "tensorflow"]).ok();
    (old, format!("{bundle}.index"))
}

#[test]
fn interrupted_commands_leave_no_partial_files() {
    if !Path::new("/proc/self/status").exists() {
        crate::common::skipped("without /proc there is no telling when the command has begun");
        return;
    }
    let (inputs, folder) = (Folder::new(), Folder::new());
    let (old, bundle) = large(&inputs);
    for one in &WRITING {
        let input = if one.words[0] == "tensorflow-to-h5" { &bundle } else { &old };
        // A manifest is written after each tensor, and here there is only one.
        let writes = (one.words[0] != "manifest").then_some(&folder);
        if one.words[0].starts_with("fix") && !one.words.contains(&"--upgrade") {
            // Nothing in it needs repair, so nothing is written.
            continue;
        }
        let args = one.args(input, &folder.file("out.mdl"));
        let error = stopped(&args, writes).interrupted();
        assert!(error.contains("stopped"), "{args:?}: {error}");
        assert!(folder.names().is_empty(), "{args:?}: {:?}", folder.names());
    }
    // In place: the old file stays, byte for byte.
    let before = inputs.names();
    let args = ["fix-checkpoint-spec", "--upgrade", "--fix_inplace", "--yes", &old];
    let error = stopped(&args.map(str::to_owned), Some(&inputs)).interrupted();
    assert!(error.contains("stopped"), "{error}");
    assert_eq!(inputs.names(), before);
    run(["diff", &old, &text(&inputs.file("sparse.safetensors"))]).ok();
    for words in [&["diff", "IN", "IN"][..], &["verify", "IN"], &["manifest", "IN"]] {
        let ran = stopped(&filled(words, &bundle, ""), None);
        assert_eq!((ran.code, ran.out.as_str()), (Some(130), ""), "{words:?}");
        assert!(ran.err.contains("stopped"), "{words:?}: {}", ran.err);
    }
}
