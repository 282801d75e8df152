//! `convert-config` and `list-converters`: file names, texts and exit status are those of the
//! original tool.

use std::fs;
use std::path::PathBuf;

use crate::common::{Folder, fixture, run};

fn case(name: &str) -> PathBuf {
    fixture("recipes").join(name)
}

fn text(path: impl Into<PathBuf>) -> String {
    path.into().to_string_lossy().into_owned()
}

#[test]
fn configs_match_the_name_and_text_of_the_original() {
    let folder = Folder::new();
    let out = text(folder.file("out"));
    for (name, input, model, from, to, output) in [
        (
            "gpt2/config_only.cs2.9-to-hf",
            "params.yaml",
            "gpt2",
            "cs-2.9",
            "hf",
            "params_to_hf.json",
        ),
        (
            "llama/config_only.hf-to-cs2.9",
            "config.json",
            "llama",
            "hf",
            "cs-2.9",
            "config_to_cs-2.9.yaml",
        ),
        (
            "t5/config_only.cs1.7-to-cs1.8",
            "params.yaml",
            "t5",
            "cs-1.7",
            "cs-1.8",
            "params_to_cs-1.8.yaml",
        ),
    ] {
        let input = text(case(name).join("in").join(input));
        let ran = run([
            "convert-config",
            &input,
            "--model",
            model,
            "--src-fmt",
            from,
            "--tgt-fmt",
            to,
            "--output-dir",
            &out,
        ]);
        assert!(ran.ok().contains(output));
        let ours = fs::read_to_string(folder.file("out").join(output)).unwrap();
        assert_eq!(ours, fs::read_to_string(case(name).join("out").join(output)).unwrap());
    }
}

#[test]
fn recognises_the_model_from_its_config() {
    let folder = Folder::new();
    let input = text(case("llama/config_only.hf-to-cs2.9").join("in/config.json"));
    let out = text(folder.file("new"));
    let printed = run(["convert-config", &input, "--to", "cs-current", "-o", &out]).ok();
    assert!(printed.contains("llama") && printed.contains("config_to_cs-2.10.yaml"), "{printed}");
    let json = run(["convert-config", &input, "--to", "cs-2.4", "-o", &out, "--json"]).json();
    assert_eq!(json["model"], "llama");
    assert_eq!(json["recognised"], true);
    assert_eq!(json["steps"][0]["table"], "llama/hf");
    let unknown = folder.file("unknown.yaml");
    fs::write(&unknown, "model: {}\n").unwrap();
    let error = run(["convert-config", &text(&unknown), "--to", "hf"]).failed();
    assert!(error.contains("--model"), "{error}");
}

#[test]
fn unconvertible_config_exits_with_status_1() {
    let folder = Folder::new();
    let input = text(case("bert/typevocab3.hf-to-cs2.9").join("in/config.json"));
    let out = text(folder.file("out"));
    let ran = run([
        "convert-config",
        &input,
        "--model",
        "bert",
        "--src-fmt",
        "hf",
        "--tgt-fmt",
        "cs-2.9",
        "-o",
        &out,
    ]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.contains("type_vocab_size is 3") && ran.err.contains("expected 2"),
        "{}",
        ran.err
    );
    assert!(!folder.file("out").exists());
    let ran = run([
        "convert-config",
        &input,
        "--model",
        "bert",
        "--src-fmt",
        "hf",
        "--tgt-fmt",
        "cs-2.9-dpo",
        "-o",
        &out,
    ]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("cs-2.1 to cs-2.2") || ran.err.contains("hf <->"), "{}", ran.err);
}

#[test]
fn writes_parts_into_folders() {
    let folder = Folder::new();
    let input = text(case("llava/layer3_tune.hf-to-cs2.9").join("in"));
    let out = text(folder.file("out"));
    run([
        "convert-config",
        &input,
        "--model",
        "llava",
        "--src-fmt",
        "hf",
        "--tgt-fmt",
        "cs-2.9",
        "-o",
        &out,
    ])
    .ok();
    let ours = fs::read_to_string(folder.file("out").join("config_to_cs-2.9.yaml")).unwrap();
    let theirs = case("llava/layer3_tune.hf-to-cs2.9").join("out/config_to_cs-2.9.yaml");
    assert_eq!(ours, fs::read_to_string(theirs).unwrap());
    let back = text(folder.file("out").join("config_to_cs-2.9.yaml"));
    run([
        "convert-config",
        &back,
        "--model",
        "llava",
        "--src-fmt",
        "cs-2.9",
        "--tgt-fmt",
        "hf",
        "-o",
        &out,
    ])
    .ok();
    for part in [
        "image_model/config.json",
        "image_model/preprocessor_config.json",
        "text_model/config.json",
    ] {
        assert!(folder.file("out").join(part).exists(), "{part}");
    }
    let text_model = fs::read_to_string(folder.file("out").join("text_model/config.json")).unwrap();
    assert!(text_model.contains("out/image_model\""), "{text_model}");
}

#[test]
fn existing_files_are_not_overwritten() {
    let folder = Folder::new();
    let input = text(case("gpt2/config_only.cs2.9-to-hf").join("in/params.yaml"));
    let out = text(folder.file("out"));
    let args = [
        "convert-config",
        &input,
        "--model",
        "gpt2",
        "--src-fmt",
        "cs-2.9",
        "--tgt-fmt",
        "hf",
        "-o",
        &out,
    ];
    run(args).ok();
    let error = run(args).failed();
    assert!(error.contains("params_to_hf.json"), "{error}");
    run(args.into_iter().chain(["--force"])).ok();
    let error = run([
        "convert-config",
        &text(folder.file("none.yaml")),
        "--model",
        "gpt2",
        "--src-fmt",
        "cs-2.9",
        "--tgt-fmt",
        "hf",
    ])
    .failed();
    assert!(error.contains("none.yaml"), "{error}");
}

#[test]
fn lists_converters() {
    let all = run(["list-converters"]).ok();
    assert!(all.contains("llama") && all.contains("cs-2.1 to cs-2.10"), "{all}");
    let one = run(["list-converters", "T5", "--hide-notes"]).ok();
    assert!(one.contains("cs-1.6") && !one.contains("llama"), "{one}");
    let json = run(["list-converters", "gpt2", "--json"]).json();
    assert_eq!(json["models"][0]["converters"][0]["left"][0], "cs-1.8");
    let none = run(["list-converters", "gpt5"]);
    assert_eq!(none.code, Some(1));
    assert!(none.err.contains("gpt2"), "{}", none.err);
}
