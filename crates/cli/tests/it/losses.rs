//! Losses and falsified values of conversions are reported or refused: incomplete sources, casts,
//! tied tensors, excluded optimizers.

use std::path::{Path, PathBuf};

use crate::common::{Folder, Ran, fixture, run, text};
use serde_json::Value;

fn convert(input: &Path, output: &Path, more: &[&str]) -> Ran {
    let (input, output) = (text(input), text(output));
    run(["convert", &input, &output].into_iter().chain(more.iter().copied()))
}

/// Writes a safetensors file of tensors: name, dtype, shape, bytes.
fn tensors(folder: &Folder, name: &str, tensors: &[(&str, &str, &str, Vec<u8>)]) -> PathBuf {
    let (mut entries, mut data) = (Vec::new(), Vec::<u8>::new());
    for (name, dtype, shape, bytes) in tensors {
        let begin = data.len();
        data.extend(bytes);
        entries.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{}]}}"#,
            data.len()
        ));
    }
    let header = format!("{{{}}}", entries.join(","));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    folder.with(name, &file)
}

fn singles(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn losses(plan: &Value) -> Vec<(String, bool)> {
    let loss = |loss: &Value| {
        (loss["what"].as_str().unwrap().to_owned(), loss["harmless"].as_bool().unwrap())
    };
    plan["losses"].as_array().unwrap().iter().map(loss).collect()
}

#[test]
fn incomplete_source_is_a_loss_in_every_format() {
    let folder = Folder::new();
    for source in ["no_success", "success_false"] {
        let source = fixture(&format!("cerebras/errors/{source}.mdl"));
        for name in ["a.pt", "a.safetensors", "a.npz", "a.mdl", "a.index"] {
            let target = folder.file(name);
            let refused = convert(&source, &target, &[]);
            assert_eq!(refused.code, Some(2), "{name}: {}", refused.out);
            assert!(refused.err.contains("not written to its end"), "{name}: {}", refused.err);
            assert!(refused.err.contains("--lossy"), "{name}: {}", refused.err);
            assert!(folder.names().is_empty(), "{name}");
            let plan = convert(&source, &target, &["--dry-run", "--json"]).json();
            let reported_loss = losses(&plan);
            assert!(
                reported_loss
                    .iter()
                    .any(|(what, harmless)| what.contains("not written to its end") && !harmless),
                "{name}: {reported_loss:?}"
            );
        }
    }
    // The tensors that exist can be converted with `--lossy`.
    let source = fixture("cerebras/errors/no_success.mdl");
    for (name, marked) in [
        ("a.pt", true),
        ("a.safetensors", true),
        ("a.mdl", true),
        ("a.npz", true),
        ("a.index", false),
    ] {
        let target = folder.file(name);
        let printed = convert(&source, &target, &["--lossy"]).ok();
        assert!(printed.contains("not written to its end"), "{printed}");
        let info = run(["info", "--json", &text(&target)]).json();
        let reported_loss = info["findings"].to_string().contains("not written to its end");
        assert_eq!(reported_loss, marked, "{name}: {}", info["findings"]);
        // Afterwards, the copy does not pass for a complete checkpoint.
        let again = convert(&target, &folder.file("again.pt"), &[]);
        assert_eq!(again.code, Some(if marked { 2 } else { 0 }), "{name}: {}", again.err);
    }
}

#[test]
fn damaged_keys_can_be_excluded() {
    let folder = Folder::new();
    let source = fixture("cerebras/errors/dset_missing.mdl");
    let target = folder.file("a.pt");
    let refused = convert(&source, &target, &[]);
    assert_eq!(refused.code, Some(2));
    let plan = convert(&source, &target, &["--dry-run", "--json"]).json();
    let damage: Vec<&Value> = plan["losses"].as_array().unwrap().iter().collect();
    let damage = damage.iter().find(|loss| loss["harmless"] == false).unwrap();
    let key = damage["keys"][0].as_str().unwrap();
    convert(&source, &target, &["--exclude", key]).ok();
    assert_eq!(folder.names(), ["a.pt"]);
}

#[test]
fn check_reports_an_incomplete_source() {
    let source = text(&fixture("cerebras/errors/no_success.mdl"));
    let ran = run(["check", &source, "--against", &source]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("it would not load"), "{}", ran.out);
    assert!(ran.out.contains("not written to its end"), "{}", ran.out);
    let ran = run(["check", "--json", &source, "--against", &source]);
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &json["loads"]), (Some(1), &Value::Bool(false)));
    assert!(json["damage"][0].as_str().unwrap().contains("not written to its end"), "{json}");
}

#[test]
fn check_fails_if_nothing_would_be_loaded() {
    let folder = Folder::new();
    let one = tensors(&folder, "one.safetensors", &[("a", "F32", "[1]", singles(&[1.0]))]);
    let other = tensors(&folder, "other.safetensors", &[("b", "F32", "[1]", singles(&[1.0]))]);
    let ran = run(["check", "--no-strict", &text(&one), "--against", &text(&other)]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.out.contains("nothing would be loaded"), "{}", ran.out);
    let ran = run(["check", "--no-strict", "--json", &text(&one), "--against", &text(&other)]);
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &json["loads"]), (Some(1), &Value::Bool(false)));
}

#[test]
fn upgrade_refuses_unknown_versions() {
    let folder = Folder::new();
    for name in ["version_99", "version_0_6"] {
        let source = text(&fixture(&format!("cerebras/errors/{name}.mdl")));
        let target = text(&folder.file("a.mdl"));
        let refused = run(["upgrade", &source, "--output", &target]);
        assert_eq!(refused.code, Some(2), "{name}: {}{}", refused.out, refused.err);
        assert!(refused.err.contains("newer than 0.5"), "{}", refused.err);
        assert!(folder.names().is_empty());
    }
    let source = text(&fixture("cerebras/errors/version_99.mdl"));
    run(["upgrade", &source, "--lossy", "--output", &text(&folder.file("a.mdl"))]).ok();
    assert_eq!(folder.names(), ["a.mdl"]);
}

#[test]
fn refuses_casts_that_overflow() {
    let folder = Folder::new();
    let source = tensors(
        &folder,
        "a.safetensors",
        &[
            ("fine", "F32", "[2]", singles(&[0.5, 0.1])),
            ("large", "F32", "[3]", singles(&[1e6, 1.0, -7e4])),
        ],
    );
    for (dtype, count) in [("float16", "2"), ("float8_e4m3fn", "2"), ("float8_e5m2", "2")] {
        for name in ["b.safetensors", "b.pt", "b.npz", "b.mdl", "b.index"] {
            let target = folder.file(name);
            let refused = convert(&source, &target, &["--cast", dtype]);
            if refused.err.contains("would be lost") || refused.err.contains("can't hold some") {
                // NumPy, Cerebras and TensorFlow don't have every dtype, which is reported earlier.
                assert!(dtype.starts_with("float8"), "{}", refused.err);
                continue;
            }
            assert_eq!(refused.code, Some(2), "{dtype} {name}: {}", refused.out);
            let reported_loss = refused.err.lines().find(|line| line.contains("`large`"));
            let reported_loss = reported_loss.unwrap_or_else(|| panic!("{}", refused.err));
            assert!(reported_loss.contains(&format!("{count} of 3 numbers")), "{reported_loss}");
            assert!(!refused.err.contains("`fine`"), "{}", refused.err);
            assert!(refused.err.contains("--lossy"), "{}", refused.err);
            assert_eq!(folder.names(), ["a.safetensors"], "{dtype} {name}");
        }
    }
    // Reported by the dry run, and counted after the conversion.
    let target = folder.file("b.safetensors");
    let plan = convert(&source, &target, &["--cast", "float16", "--dry-run", "--json"]).json();
    let reported_loss = losses(&plan);
    let narrowing =
        reported_loss.iter().find(|(what, _)| what.contains("float32 becomes float16")).unwrap();
    assert!(narrowing.0.contains("65504"), "{reported_loss:?}");
    let done = convert(&source, &target, &["--cast", "float16", "--lossy", "--json"]).json();
    let pair = &done["cast"]["pairs"][0];
    assert_eq!((&pair["from"], &pair["to"]), (&"float32".into(), &"float16".into()));
    assert_eq!(pair["tensors"], 2);
    assert_eq!(pair["overflowed"], 2);
    assert_eq!(pair["flushed"], 0);
    // 0.1 as float16 is 0.0999755859375.
    let error = pair["largest_relative_error"].as_f64().unwrap();
    assert!((error - (0.1f32 as f64 - 0.0999755859375) / 0.1f32 as f64).abs() < 1e-9, "{error}");
    assert_eq!(done["cast"]["keys"][0]["key"], "large");
    assert_eq!(done["cast"]["keys"][0]["overflowed"], 2);
}

#[test]
fn lists_the_worst_casts_first() {
    let folder = Folder::new();
    let source = tensors(
        &folder,
        "a.safetensors",
        &[
            // 0.1 is rounded; 0.5 is not. The others lose 1 of 4 numbers, 2 of 4, and all to zero.
            // Numbers that overflow come before those.
            ("exact", "F32", "[2]", singles(&[0.5, 2.0])),
            ("rounded", "F32", "[2]", singles(&[0.5, 0.1])),
            ("quarter", "F32", "[4]", singles(&[1.0, 1.0, 1.0, 1e-9])),
            ("one", "F32", "[2]", singles(&[1e6, 1.0])),
            ("half", "F32", "[4]", singles(&[1.0, 1.0, 1e-9, 1e-9])),
            ("all", "F32", "[2]", singles(&[1e-9, -1e-9])),
            ("two", "F32", "[2]", singles(&[1e6, -1e6])),
        ],
    );
    let target = folder.file("b.pt");
    let done = convert(&source, &target, &["--cast", "float16", "--lossy", "--json"]).json();
    let keys = done["cast"]["keys"].as_array().unwrap();
    let keys: Vec<&str> = keys.iter().map(|one| one["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["two", "one", "all", "half", "quarter", "rounded"]);
    // A refusal lists them in the same order.
    let refused = convert(&source, &folder.file("c.pt"), &["--cast", "float16"]).err;
    let places: Vec<usize> =
        ["`two`", "`one`", "`all`", "`half`"].map(|key| refused.find(key).unwrap()).to_vec();
    assert!(places.is_sorted(), "{refused}");
}

#[test]
fn casts_may_flush_one_percent_to_zero() {
    let folder = Folder::new();
    // Numbers that were zero before don't count.
    let with = |flushed: usize| {
        let mut values = vec![0.0; 1_000];
        values.extend(vec![1e-9; flushed]);
        values.extend(vec![1.0; 300 - flushed]);
        singles(&values)
    };
    for (flushed, code) in [(3, 0), (4, 2)] {
        let source = tensors(&folder, "a.safetensors", &[("w", "F32", "[1300]", with(flushed))]);
        let target = folder.file("b.pt");
        let ran = convert(&source, &target, &["--cast", "float16", "--force"]);
        assert_eq!(ran.code, Some(code), "{flushed}: {}{}", ran.out, ran.err);
        assert!(code == 0 || ran.err.contains("4 of 300"), "{}", ran.err);
    }
}

#[test]
fn refuses_to_flush_second_moments_to_zero() {
    let folder = Folder::new();
    let moments: Vec<f32> = (1..=4096).map(|at| at as f32 * 1e-12).collect();
    let source = tensors(
        &folder,
        "a.safetensors",
        &[
            ("exp_avg_sq", "F32", "[4096]", singles(&moments)),
            ("w", "F32", "[2]", singles(&[1.0, 3.1])),
        ],
    );
    let target = folder.file("b.pt");
    let refused = convert(&source, &target, &["--cast", "float16"]);
    assert_eq!(refused.code, Some(2), "{}", refused.out);
    assert!(refused.err.contains("`exp_avg_sq`: 4,096 of 4,096"), "{}", refused.err);
    assert!(refused.err.contains("become 0"), "{}", refused.err);
    assert_eq!(folder.names(), ["a.safetensors"]);
    // bfloat16 has the range of float32: requested rounding is reported, not refused.
    let printed = convert(&source, &target, &["--cast", "bfloat16"]).ok();
    assert!(printed.contains("float32 -> bfloat16"), "{printed}");
    assert!(printed.contains("largest relative error"), "{printed}");
    // One number of more than a hundred may become 0.
    let mut few = vec![1.0f32; 200];
    few[7] = 1e-12;
    let source = tensors(&folder, "c.safetensors", &[("w", "F32", "[200]", singles(&few))]);
    let printed = convert(&source, &folder.file("d.pt"), &["--cast", "float16"]).ok();
    assert!(printed.contains("1 became 0"), "{printed}");
}

#[test]
fn casting_to_a_wider_dtype_loses_nothing() {
    let folder = Folder::new();
    let source = tensors(&folder, "a.safetensors", &[("w", "F16", "[1]", vec![0, 0x3c])]);
    let plan =
        convert(&source, &folder.file("b.pt"), &["--cast", "float32", "--dry-run", "--json"]);
    assert!(losses(&plan.json()).is_empty());
}

#[test]
fn reports_an_omitted_optimizer() {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0/gpt_small.mdl");
    let resumes = "training can't resume from this";
    for (more, reported_loss) in [
        (&["--states", "model"][..], true),
        (&["--select", "model.*"], true),
        (&["--exclude", "optimizer.*exp_avg_sq*"], true),
        (&["--exclude", "model.model.ln_f.bias"], false),
        (&["--cast", "bfloat16"], false),
        (&[], false),
    ] {
        let target = folder.file("a.pt");
        let plan = convert(&source, &target, &[more, &["--dry-run", "--json"]].concat()).json();
        let printed = losses(&plan).into_iter().any(|(what, harmless)| {
            // The user requested it, so it is reported, not refused.
            what.contains(resumes) && harmless
        });
        assert_eq!(printed, reported_loss, "{more:?}: {plan}");
        let printed = convert(&source, &target, &[more, &["--force"]].concat()).ok();
        assert_eq!(printed.contains(resumes), reported_loss, "{more:?}: {printed}");
    }
    // safetensors lacks a dtype of this source.
    let source = fixture("torch/zip_training_ckpt.pt");
    let plan = convert(&source, &folder.file("a.safetensors"), &["--dry-run", "--json"]).json();
    assert!(!plan.to_string().contains(resumes), "{plan}");
    // A file of one array leaves out its name, not the array.
    let (pt, npy) = (folder.file("one.pt"), folder.file("one.npy"));
    convert(&source, &pt, &["--select", "optimizer.state.0.exp_avg"]).ok();
    let plan = convert(&pt, &npy, &["--dry-run", "--json"]).json();
    assert!(plan.to_string().contains("name is left out"), "{plan}");
    assert!(!plan.to_string().contains(resumes), "{plan}");
}

#[test]
fn tied_tensors_are_reported_and_can_be_untied() {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0/tied.mdl");
    let target = folder.file("a.safetensors");
    let plan = convert(&source, &target, &["--dry-run", "--json"]).json();
    let tied = plan["losses"]
        .as_array()
        .unwrap()
        .iter()
        .find(|loss| loss["what"].as_str().unwrap().contains("written once"));
    let tied = tied.unwrap_or_else(|| panic!("{plan}"));
    assert_eq!(tied["harmless"], true);
    let gone = tied["keys"][0].as_str().unwrap();
    let printed = convert(&source, &target, &[]).ok();
    assert!(printed.contains(gone) && printed.contains("--untie"), "{printed}");
    let kept = names_of(&target);
    assert!(!kept.contains(&gone.to_owned()), "{kept:?}");
    // The loss names the key that is kept.
    assert!(kept.iter().any(|kept| tied["why"].as_str().unwrap().contains(&format!("`{kept}`"))));
    for name in ["b.safetensors", "b.pt", "b.mdl", "b.npz", "b.index"] {
        let target = folder.file(name);
        let plan = convert(&source, &target, &["--untie", "--dry-run", "--json"]).json();
        // Plain values that are one object stay tied, because they have no bytes of their own.
        let tied = plan["losses"].as_array().unwrap().iter().any(|loss| {
            let of_tensors = |key: &Value| !key.as_str().unwrap().starts_with("same_");
            loss["what"].as_str().unwrap().contains("tied")
                && loss["keys"].as_array().unwrap().iter().any(of_tensors)
        });
        assert!(!tied, "{name}: {plan}");
        convert(&source, &target, &["--untie"]).ok();
        let manifest = run(["manifest", "--json", &text(&target)]).json();
        let entries = manifest["entries"].as_array().unwrap();
        // Plain values that are equal are links in the Cerebras format.
        let mut tensors =
            entries.iter().filter(|entry| entry["kind"] != "int" && entry["kind"] != "str");
        assert!(tensors.all(|entry| entry["alias_of"].is_null()), "{name}: {manifest}");
        assert!(entries.iter().any(|entry| entry["key"] == gone), "{name}: {manifest}");
    }
    assert!(names_of(&folder.file("b.safetensors")).contains(&gone.to_owned()));
}

/// Returns the names of the tensors in the header of a safetensors file.
fn names_of(path: &Path) -> Vec<String> {
    let bytes = std::fs::read(path).unwrap();
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    let names = header.as_object().unwrap().keys().filter(|name| *name != "__metadata__");
    names.cloned().collect()
}

#[test]
fn constant_without_a_value_is_damage() {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0-special/full_tensors.mdl");
    let info = run(["info", "--json", &text(&source)]).json();
    let findings = info["findings"].to_string();
    assert!(findings.contains("saved without") && findings.contains("none"), "{findings}");
    let target = folder.file("a.pt");
    let refused = convert(&source, &target, &[]);
    assert_eq!(refused.code, Some(2), "{}", refused.out);
    assert!(refused.err.contains("`none`"), "{}", refused.err);
    convert(&source, &target, &["--exclude", "none"]).ok();
    convert(&source, &target, &["--lossy", "--force"]).ok();
}

#[test]
fn sets_compare_equal_in_any_order() {
    let folder = Folder::new();
    let set = |items: &[u8]| {
        // {"s": {items}}, by the opcodes of protocol 4.
        let mut bytes = b"\x80\x04}\x8c\x01s\x8f(".to_vec();
        items.iter().for_each(|item| bytes.extend([b'K', *item]));
        bytes.extend(b"\x90s.");
        bytes
    };
    let one = folder.with("one.pkl", &set(&[1, 2, 3]));
    let two = folder.with("two.pkl", &set(&[3, 1, 2]));
    let other = folder.with("other.pkl", &set(&[1, 2, 4]));
    let same = run(["diff", &text(&one), &text(&two)]);
    assert_eq!(same.code, Some(0), "{}{}", same.out, same.err);
    let differs = run(["diff", &text(&one), &text(&other)]);
    assert_eq!(differs.code, Some(1), "{}{}", differs.out, differs.err);
    assert!(differs.out.contains('4') && !differs.out.contains("s.0"), "{}", differs.out);
}
