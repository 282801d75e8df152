//! Cases in which new users failed: the command did something else than they requested, or was
//! silent.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Folder, Ran, fixture, run, safetensors, statelens, stored_zip, text};

const TRAINER: &str = "cerebras/v2.10.0/gpt_small.mdl";

/// Copies a trainer's checkpoint into a folder.
fn trainer(folder: &Folder) -> PathBuf {
    let path = folder.file("g.mdl");
    fs::copy(fixture(TRAINER), &path).unwrap();
    path
}

fn keys(path: &Path) -> Vec<String> {
    let listed = run(["ls", "--json", &text(path)]).json();
    let entries = listed["entries"].as_array().unwrap();
    entries.iter().map(|one| one["key"].as_str().unwrap().to_owned()).collect()
}

/// Returns the output and the warnings of a successful run.
#[track_caller]
fn warned(ran: Ran) -> (String, String) {
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    (ran.out, ran.err)
}

#[test]
fn default_output_name_has_states_and_extension() {
    let folder = Folder::new();
    let source = text(&trainer(&folder));
    run(["convert", &source, "--to", "safetensors", "--states", "model"]).ok();
    assert_eq!(folder.names(), ["g.mdl", "model_g.safetensors"]);
    run(["convert", &source, "--states", "model,optimizer"]).ok();
    assert!(folder.names().contains(&"model_optimizer_g.mdl".to_owned()), "{:?}", folder.names());
}

#[test]
fn strips_a_prefix_from_a_trainer_checkpoint() {
    let folder = Folder::new();
    let source = trainer(&folder);
    let out = folder.file("m.pt");
    let args = ["--states", "model", "--strip-prefix", "model."];
    run([&["convert", &text(&source), &text(&out)][..], &args].concat()).ok();
    let keys = keys(&out);
    assert!(keys.contains(&"model.wte.weight".to_owned()), "{keys:?}");
    assert!(keys.iter().any(|key| key.starts_with("__metadata__.")), "{keys:?}");
    // The command that `check` suggests works.
    let reference =
        folder.with("keys.txt", b"wte.weight float32 [97, 32]\nwpe.weight float32 [16, 32]\n");
    let against = text(&reference);
    let check = run(["check", "--json", &text(&out), "--against", &against]);
    let answer: serde_json::Value = serde_json::from_str(&check.out).unwrap();
    assert_eq!(answer["rename"]["option"], "--strip-prefix model.");
    run(["convert", &text(&out), &text(&folder.file("n.pt")), "--strip-prefix", "model."]).ok();
}

#[test]
fn diff_applies_edits_in_the_order_of_convert() {
    let folder = Folder::new();
    let source = text(&trainer(&folder));
    let out = text(&folder.file("m.pt"));
    let edits = ["--select", "model.*", "--exclude", "*.wpe.*", "--strip-prefix", "model."];
    run([&["convert", &source, &out][..], &edits].concat()).ok();
    run([&["diff", &source, &out][..], &edits].concat()).ok();
    // In the other direction, with the prefix on the right.
    let all = text(&folder.file("all.pt"));
    run(["convert", &source, &all, "--select", "model.*", "--strip-prefix", "model."]).ok();
    run(["diff", &all, &source, "--prefix", "model.", "--select", "model.*"]).ok();
}

#[test]
fn commands_that_suggest_force_accept_it() {
    let folder = Folder::new();
    let old = folder.file("old.mdl");
    fs::copy(fixture("cerebras/compat/synthetic_1.7.mdl"), &old).unwrap();
    let out = text(&folder.with("out.mdl", b"precious"));
    let old = text(&old);
    let v04 = text(&folder.file("v04.mdl"));
    run(["convert", &text(&fixture(TRAINER)), &v04, "--format-version", "0.4"]).ok();
    for args in [
        &["fix-checkpoint-spec", &old, "--fixed_checkpoint_path", &out][..],
        &["upgrade", &v04, "-o", &out],
    ] {
        fs::write(&out, b"precious").unwrap();
        let error = run(args).failed();
        assert!(error.contains("--force"), "{error}");
        assert_eq!(fs::read(&out).unwrap(), b"precious");
        run([args, &["--force"]].concat()).ok();
        assert_ne!(fs::read(&out).unwrap(), b"precious");
    }
}

#[test]
fn tolerance_implies_allclose() {
    let folder = Folder::new();
    let one = folder.with("a.safetensors", &safetensors(&[("w", "F32", &[2], &f32s(&[1.0, 2.0]))]));
    let near = f32s(&[1.001, 2.0]);
    let other = folder.with("b.safetensors", &safetensors(&[("w", "F32", &[2], &near)]));
    let (one, other) = (text(&one), text(&other));
    assert_eq!(run(["diff", &one, &other]).code, Some(1));
    run(["diff", &one, &other, "--rtol", "1e-2"]).ok();
    run(["diff", &one, &other, "--atol", "1e-2"]).ok();
    let error = run(["diff", &one, &other, "--op", "equal", "--rtol", "1e-2"]).failed();
    assert!(error.contains("--op allclose"), "{error}");
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn rename_group_may_precede_an_underscore() {
    let folder = Folder::new();
    let source = folder.with("a.safetensors", &safetensors(&[("h.12.w", "U8", &[1], &[1])]));
    let out = folder.file("b.safetensors");
    let args = ["--rename", r"h\.(\d+)=>layer_$1_x"];
    run([&["convert", &text(&source), &text(&out)][..], &args].concat()).ok();
    assert_eq!(keys(&out), ["layer_12_x.w"]);
    let args = ["--force", "--rename", r"h\.(\d+)=>${1}0"];
    run([&["convert", &text(&source), &text(&out)][..], &args].concat()).ok();
    assert_eq!(keys(&out), ["120.w"]);
    let args = ["--force", "--rename", r"h\.(\d+)=>$2"];
    let error = run([&["convert", &text(&source), &text(&out)][..], &args].concat()).failed();
    assert!(error.contains("no group `2`"), "{error}");
    assert!(run(["convert", "--help"]).ok().contains("${1}"));
}

#[test]
fn warns_about_edits_without_matches() {
    let folder = Folder::new();
    let source = text(&trainer(&folder));
    let out = text(&folder.file("a.pt"));
    let args = ["convert", &source, &out, "--rename", "nothing=>x", "--exclude", "none.*"];
    let (_, err) = warned(run(args));
    assert!(err.contains("--rename nothing=>x: no key matches"), "{err}");
    assert!(err.contains("--exclude none.*: no key matches"), "{err}");
    // A rename may match the result of an earlier one.
    let out = text(&folder.file("b.pt"));
    let args = ["--rename", "wte=>emb", "--rename", "emb=>tok", "--exclude", "optimizer.*"];
    run([&["convert", &source, &out][..], &args].concat()).ok();
}

#[test]
fn shows_the_requested_number_of_values() {
    let folder = Folder::new();
    let many: Vec<u8> = vec![7; 150_000];
    let file = folder.with("a.safetensors", &safetensors(&[("w", "U8", &[150_000], &many)]));
    let shown = run(["show", "--json", &text(&file), "w", "--values", "120000"]).json();
    assert_eq!(shown["entries"][0]["values"].as_array().unwrap().len(), 120_000);
    let shown = run(["show", &text(&file), "w", "--values", "all"]).ok();
    assert_eq!(shown.split(' ').filter(|word| word.trim() == "7").count(), 150_000);
    assert!(!shown.contains('…'));
    let shown = run(["show", &text(&file), "w", "--values", "3"]).ok();
    assert!(shown.contains("7 7 7 …"), "{shown}");
}

#[test]
fn ckpt_extension_is_ambiguous() {
    let folder = Folder::new();
    let source = text(&trainer(&folder));
    let out = text(&folder.file("a.ckpt"));
    let error = run(["convert", &source, &out]).failed();
    assert!(error.contains("--to torch") && error.contains("--to tensorflow"), "{error}");
    run(["convert", &source, &out, "--to", "torch"]).ok();
    assert_eq!(folder.names(), ["a.ckpt", "g.mdl"]);
}

#[test]
fn dash_means_standard_input_and_output() {
    use std::process::Stdio;
    let folder = Folder::new();
    let source = trainer(&folder);
    let input = || Stdio::from(fs::File::open(&source).unwrap());
    let ran = Ran::from(statelens().args(["info", "-"]).stdin(input()).output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("Cerebras") && ran.err.contains("standard input"), "{}", ran.err);
    let piped = statelens()
        .current_dir(folder.path())
        .args(["convert", "-", "-", "--to", "safetensors", "--states", "model"])
        .stdin(input())
        .output()
        .unwrap();
    assert_eq!(piped.status.code(), Some(0), "{}", String::from_utf8_lossy(&piped.stderr));
    let out = folder.with("out.safetensors", &piped.stdout);
    assert_eq!(keys(&out).iter().filter(|key| key.starts_with("model.")).count(), 29);
    assert_eq!(folder.names(), ["g.mdl", "out.safetensors"]);
    // Several files can't be written to a stream.
    let args = ["convert", &text(&source), "-", "--to", "tensorflow"];
    let error = run(args).failed();
    assert!(error.contains("standard output"), "{error}");
    let error = run(["convert", &text(&source), "-"]).failed();
    assert!(error.contains("--to"), "{error}");
}

#[test]
fn patterns_support_classes_and_braces() {
    let folder = Folder::new();
    let names = ["h.0.w", "h.1.w", "h.2.w", "h.10.w", "x.w", "a[0].w"];
    let tensors: Vec<_> = names.iter().map(|name| (*name, "U8", &[1u64][..], &[1u8][..])).collect();
    let file = text(&folder.with("a.safetensors", &safetensors(&tensors)));
    let listed = |pattern: &str| {
        let listed = run(["ls", "--json", &file, pattern]).json();
        let keys = listed["entries"].as_array().unwrap().iter().map(|one| one["key"].clone());
        keys.map(|key| key.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed("h.[0-1].w"), ["h.0.w", "h.1.w"]);
    assert_eq!(listed("h.[!0-1].w"), ["h.2.w"]);
    assert_eq!(listed("{x,h.1?}.w"), ["h.10.w", "x.w"]);
    assert_eq!(listed("a[0].w"), ["a[0].w"]);
}

#[test]
fn info_counts_model_parameters_separately() {
    let file = text(&fixture(TRAINER));
    let json = run(["info", "--json", &file]).json();
    assert_eq!(json["model_parameters"], 32_192);
    assert!(json["elements"].as_u64().unwrap() > 90_000);
    let printed = run(["info", &file]).ok();
    let line = printed.lines().find(|line| line.starts_with("parameters")).unwrap();
    assert!(line.contains("32,192 in `model`, of 90,"), "{line}");
}

#[test]
fn danger_is_coloured_unless_disabled() {
    let file = text(&fixture("attacks/os_system_reduce.pkl"));
    let ran = |name: &str, value: &str| {
        let mut command = statelens();
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").env(name, value);
        Ran::from(command.args(["scan", &file]).output().unwrap()).out
    };
    assert!(ran("CLICOLOR_FORCE", "1").contains("\u{1b}["));
    assert!(!ran("X", "1").contains('\u{1b}'), "it is not a terminal");
    let mut command = statelens();
    command.env("NO_COLOR", "1").env("CLICOLOR_FORCE", "1");
    let both = Ran::from(command.args(["scan", &file]).output().unwrap()).out;
    assert!(!both.contains('\u{1b}'), "NO_COLOR comes first: {both:?}");
}

#[test]
fn help_lists_options_only_where_they_apply() {
    assert!(run(["help"]).ok().contains("convert"));
    assert!(run(["help", "convert"]).ok().contains("--lossy"));
    for command in ["man", "completions", "formats", "runs", "latest", "prune", "serve", "open"] {
        let help = run([command, "--help"]).ok();
        for option in ["--max-fetch", "--scratch"] {
            assert!(!help.contains(option), "{command}: {help}");
        }
        // These open every checkpoint of the folder.
        let opens = ["runs", "latest", "prune"].contains(&command);
        assert_eq!(help.contains("--limit"), opens, "{command}: {help}");
    }
    for command in ["info", "convert", "verify", "summary"] {
        assert!(run([command, "--help"]).ok().contains("--max-fetch"), "{command}");
    }
}

#[test]
fn help_names_every_extension_and_format() {
    let convert = run(["convert", "--help"]).ok();
    for extension in
        [".mdl", ".h5", ".hdf5", ".pt", ".pth", ".bin", ".safetensors", ".index", ".npy", ".npz"]
    {
        assert!(convert.contains(extension), "{extension}: {convert}");
    }
    let help = run(["--help"]).ok().split_whitespace().collect::<Vec<_>>().join(" ");
    let formats = run(["formats", "--json"]).json();
    for format in formats["formats"].as_array().unwrap() {
        let name = format["name"].as_str().unwrap().trim_start_matches("any other ");
        assert!(help.contains(name), "{name}: {help}");
    }
}

#[test]
fn man_prints_a_single_page() {
    let page = run(["man"]).ok();
    assert!(!page.contains("EXTRA"), "{page}");
    assert!(
        !page.contains("(1)\n") && !page.contains("\\-info(1)"),
        "it refers to pages that are not there"
    );
    for (at, line) in page.lines().enumerate() {
        // Names of files, not of pages.
        let line = line.replace("statelens\\-trash", "").replace("statelens\\-values", "");
        assert!(!line.contains("statelens\\-"), "{at}: {line}");
    }
}

#[test]
fn suggests_excluding_strings_of_a_saved_model() {
    let folder = Folder::new();
    let model = text(&fixture("tf/saved_model"));
    let out = text(&folder.file("a.safetensors"));
    let ran = run(["convert", &model, &out]);
    let printed = ran.failed_after_losses();
    assert!(printed.contains("--exclude 'mt/.ATTRIBUTES/table-keys'"), "{printed}");
    run(["convert", &model, &out, "--exclude", "mt/.ATTRIBUTES/table-keys"]).ok();
}

#[test]
fn diff_suggests_ignore_type() {
    let folder = Folder::new();
    let keras = text(&fixture("keras/k3_seq.weights.h5"));
    let torch = text(&folder.file("k.pt"));
    run(["convert", &keras, &torch]).ok();
    let ran = run(["diff", &keras, &torch]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("--ignore-type"), "{}", ran.out);
    run(["diff", &keras, &torch, "--ignore-type"]).ok();
}

#[test]
fn counts_of_one_use_the_singular() {
    let folder = Folder::new();
    let file = folder.with("a.safetensors", &safetensors(&[("w", "U8", &[1], &[1])]));
    let file = text(&file);
    let printed = run(["show", &file, "w[0, 0]"]).failed();
    assert!(printed.contains("more parts than the tensor has dimensions"), "{printed}");
    for args in [
        &["info", &file][..],
        &["diff", &file, &file],
        &["verify", &file],
        &["check", &file, "--against", &file],
    ] {
        let printed = run(args).ok();
        for wrong in [
            " 1 keys",
            " 1 tensors",
            " 1 parts",
            " 1 leaves",
            " 1 files",
            " 1 differences",
            " 1 entries",
        ] {
            assert!(!format!(" {printed}").contains(wrong), "{args:?}: {printed}");
        }
    }
}

#[test]
fn unknown_code_fits_its_column() {
    let folder = Folder::new();
    let file = folder.with("a.pkl", b"cmymodel\nConfig\n(tR.");
    let ran = run(["scan", &text(&file)]);
    assert!(ran.out.starts_with("unknown code  "), "{}", ran.out);
    for line in ran.out.lines().skip(1) {
        assert!(line.starts_with("              "), "{}", ran.out);
    }
}

#[test]
fn to_accepts_a_file_extension() {
    let folder = Folder::new();
    let file = folder.with("a.safetensors", &safetensors(&[("w", "U8", &[1], &[1])]));
    let written = |to: &str| {
        let out = text(&folder.file("out"));
        run(["convert", &text(&file), &out, "--to", to, "--force"]).ok();
        fs::read(out).unwrap()
    };
    for (named, of) in [("pt", "torch"), ("pth", "torch"), ("mdl", "cerebras")] {
        assert_eq!(written(named), written(of), "--to {named}");
    }
    // Two formats use these names, so the format must be given.
    assert_eq!(run(["convert", &text(&file), "b.out", "--to", "ckpt"]).code, Some(2));
    assert_eq!(run(["convert", &text(&file), "b.out", "--to", "h5"]).code, Some(2));
}

#[test]
fn upgrade_accepts_the_output_path_as_argument() {
    let folder = Folder::new();
    let (old, out) = (trainer(&folder), folder.file("new.mdl"));
    run(["upgrade", &text(&old), &text(&out), "--to", "0.4"]).ok();
    assert!(out.exists());
}

#[test]
fn diff_sorts_by_largest_change() {
    let folder = Folder::new();
    let floats = |values: [f32; 2]| values.map(f32::to_le_bytes).concat();
    let write = |name: &str, a: [f32; 2], b: [f32; 2], c: [f32; 2]| {
        let [a, b, c] = [a, b, c].map(floats);
        let shape = &[2][..];
        let tensors =
            [("a", "F32", shape, &a[..]), ("b", "F32", shape, &b[..]), ("c", "F32", shape, &c[..])];
        text(&folder.with(name, &safetensors(&tensors)))
    };
    let left = write("l.safetensors", [1.0, 0.0], [3.0, 4.0], [f32::NAN, 1.0]);
    let right = write("r.safetensors", [1.01, 0.0], [3.0, 8.0], [1.0, 1.0]);
    let keys = |args: &[&str]| {
        let ran = run([&["diff", &left, &right, "--json"], args].concat());
        let found: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        let differences = found["differences"].as_array().unwrap().clone();
        let changes: Vec<_> = differences.iter().map(|one| one["change"].as_f64()).collect();
        let keys: Vec<_> =
            differences.iter().map(|one| one["key"].as_str().unwrap().to_owned()).collect();
        (keys.join(""), changes)
    };
    assert_eq!(keys(&[]).0, "abc");
    let (order, changes) = keys(&["--sort", "change"]);
    assert_eq!(order, "cba");
    assert_eq!(changes[0], None);
    assert!((changes[1].unwrap() - 4.0 / 73f64.sqrt()).abs() < 1e-12);
}

#[test]
fn diff_suggests_strip_prefix() {
    let folder = Folder::new();
    let one = |name, keys: &[&str]| {
        let tensors: Vec<_> = keys.iter().map(|key| (*key, "U8", &[1][..], &[1][..])).collect();
        text(&folder.with(name, &safetensors(&tensors)))
    };
    let left = one("l.safetensors", &["model.a.w", "model.b.w"]);
    let right = one("r.safetensors", &["a.w", "b.w"]);
    let ran = run(["diff", &left, &right]);
    assert!(
        ran.out.contains("2 keys would be on both sides with --strip-prefix model."),
        "{}",
        ran.out
    );
    run(["diff", &left, &right, "--strip-prefix", "model."]).ok();
    let other = one("o.safetensors", &["model.a.w", "model.b.w", "extra.b"]);
    let ran = run(["diff", &other, &right]);
    assert!(ran.out.contains("with --select 'model.*' --strip-prefix model."), "{}", ran.out);
}

#[test]
fn diff_suggests_no_prefix_for_unrelated_keys() {
    let folder = Folder::new();
    let one = |name: &str, keys: [&str; 3]| {
        let tensors = keys.map(|key| (key, "U8", &[1][..], &[1][..]));
        text(&folder.with(name, &safetensors(&tensors)))
    };
    // Only one ending of three is the same, which proves nothing.
    let left = one("l.safetensors", ["net.a.w", "net.b.w", "net.c.w"]);
    let right = one("r.safetensors", ["a.w", "x", "y"]);
    let ran = run(["diff", &left, &right]);
    assert!(!ran.out.contains("hint"), "{}", ran.out);
}

#[test]
fn zip_with_a_config_is_not_a_keras_model() {
    let folder = Folder::new();
    let zip = stored_zip(&[("config.json", b"{\"hidden_size\": 64}")]);
    let file = folder.with("c.zip", &zip);
    let printed = run(["info", &text(&file)]).err;
    assert!(printed.contains("holds config.json") && printed.contains("Unpack it"), "{printed}");
}
