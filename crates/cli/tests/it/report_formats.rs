//! Files of public bug reports, by format: the command reads what the libraries read, and does not
//! call sound what they refuse. `tests/fixtures/reports` has the files and the scripts that wrote
//! them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Folder, Ran, fixture, run, text};

fn report(name: &str) -> String {
    text(&fixture(&format!("reports/{name}")))
}

/// Returns the files of a folder of reports.
fn files(folder: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(fixture(&format!("reports/{folder}")))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end != "py"))
        .collect();
    files.sort();
    files
}

fn convert(source: &str, target: &Path, options: &[&str]) -> Ran {
    run([&["convert", source, &text(target)][..], options].concat())
}

fn verify(path: &str) -> Ran {
    run(["verify", path])
}

/// Returns the output of `verify` for a file that is not sound.
#[track_caller]
fn not_sound(path: &str) -> String {
    let ran = verify(path);
    assert_eq!(ran.code, Some(1), "{path}: {}{}", ran.out, ran.err);
    ran.out
}

#[test]
fn non_utf8_text_keeps_its_bytes() {
    let (a, b) = (report("h5_not_utf8/latin1_a.h5"), report("h5_not_utf8/latin1_b.h5"));
    // h5py: f["fixed"][()] == b"caf\xe9"
    assert!(run(["show", &a, "fixed"]).ok().contains(r"b'caf\xe9'"));
    let listed = run(["ls", &a]).ok();
    assert!(!listed.contains('\u{fffd}'), "{listed}");
    // h5py: f["w"].attrs["unit"] == np.bytes_(b"\xb0C\xe9")
    assert!(run(["show", &a, "w"]).ok().contains(r"\udcb0C\udce9"));
    let diff = run(["diff", &a, &b]);
    assert_eq!(diff.code, Some(1), "{}", diff.out);
    for key in ["fixed", "vlen.0", "vlen_utf8.0", "arr.0"] {
        assert!(diff.out.contains(key), "{key}: {}", diff.out);
    }
    let folder = Folder::new();
    let manifest = text(&folder.file("m.txt"));
    run(["manifest", &a, "-o", &manifest]).ok();
    assert_eq!(run(["verify", &b, "--manifest", &manifest]).code, Some(1));
    // Names stay distinct.
    let names = report("h5_not_utf8/link_name.h5");
    for target in ["l.npz", "l.pt"] {
        let target = folder.file(target);
        let ran = convert(&names, &target, &["--lossy"]);
        assert_eq!(ran.code, Some(0), "{}: {}", target.display(), ran.err);
        let listed = run(["ls", &text(&target)]).ok();
        assert!(listed.contains("udce8") && listed.contains("udce9"), "{listed}");
    }
    // These formats hold UTF-8 only.
    for target in ["l.safetensors", "l.mdl"] {
        assert_eq!(convert(&names, &folder.file(target), &["--lossy"]).code, Some(2), "{target}");
    }
}

#[test]
fn writes_records_and_unusual_number_sizes() {
    let folder = Folder::new();
    let mut converted = 0;
    let sources =
        [files("h5_void_npz"), files("h5_void_npz/be"), files("h5_void_npz/more")].concat();
    for source in sources.into_iter().chain([PathBuf::from(report("h5_mixed_records/table.h5"))]) {
        for target in ["o.npz", "o.mdl"] {
            let target = folder.file(target);
            let ran = convert(&text(&source), &target, &["--lossy", "--force"]);
            assert!(!ran.err.contains("bug in the writer"), "{}: {}", source.display(), ran.err);
            let refused = ran.err.contains("can't hold an entry");
            assert!(ran.code == Some(0) || refused, "{}: {}", source.display(), ran.err);
            converted += usize::from(!refused);
        }
    }
    assert!(converted >= 55, "{converted}");
    // `numpy.load` of numpy 2.4 reads the same values from the output for big-endian fields.
    let mixed = report("h5_void_npz/be/mixed.npy");
    convert(&mixed, &folder.file("m.npy"), &[]).ok();
    run(["diff", &mixed, &text(&folder.file("m.npy"))]).ok();
}

#[test]
fn decodes_hdf5_filters() {
    for file in ["h5_filters/lzf.h5", "h5_filters/orders_latest.h5"] {
        let ran = verify(&report(file));
        assert_eq!(ran.code, Some(0), "{file}: {}{}", ran.out, ran.err);
    }
    // h5py reads arange(300) from fl, sfl, fsl and fld.
    let folder = Folder::new();
    let source = report("h5_filters/lzf.h5");
    let rest = folder.file("x.npy");
    for key in ["fl", "sfl", "fsl", "fld", "l"] {
        convert(&source, &rest, &["--select", key, "--force"]);
        let bytes = fs::read(&rest).unwrap();
        let expected: Vec<u8> = (0..300i64).flat_map(i64::to_le_bytes).collect();
        assert!(bytes.ends_with(&expected), "{key}");
    }
}

#[test]
fn reads_bzip2_and_lzma_members() {
    let plain = report("npz_odd/plain.npz");
    for file in ["npz_odd/bzip2.npz", "npz_odd/lzma.npz"] {
        run(["diff", &plain, &report(file)]).ok();
        assert!(verify(&report(file)).ok().contains("CRC-32"));
    }
    let stored = report("pt_packed/rezip_stored.pt");
    for file in ["pt_packed/rezip_bzip2.pt", "pt_packed/rezip_lzma.pt"] {
        run(["diff", &stored, &report(file)]).ok();
        // torch reads stored and deflated records only.
        assert!(not_sound(&report(file)).contains("compressed with"));
    }
}

#[test]
fn files_refused_by_torch_are_not_sound() {
    for (file, printed) in [
        ("pt_packed/rezip_mac.pt", "not in the folder"),
        ("pt_packed/note.pt", "not in the folder"),
        ("pt_packed/rezip_flat.pt", "not in a folder"),
        ("pt_packed/rezip_extra_folder.pt", "folder"),
        ("pt_packed/rezip_backslash.pt", "backslashes"),
        ("pt_prefix_flip/flip.pt", "checksum"),
    ] {
        let said_there = not_sound(&report(file));
        assert!(said_there.contains(printed), "{file}: {said_there}");
        assert!(run(["ls", &report(file)]).out.contains("float32"), "{file}");
    }
    for file in ["rezip_deflate", "rezip_stored", "rezip_reordered"] {
        verify(&report(&format!("pt_packed/{file}.pt"))).ok();
    }
}

#[test]
fn file_open_for_writing_is_not_sound() {
    let printed = not_sound(&report("h5_open_for_write/killed_plain.h5"));
    assert!(printed.contains("open for writing"), "{printed}");
    assert!(run(["info", &report("h5_open_for_write/killed_plain.h5")]).out.contains("h5clear"));
}

#[test]
fn files_refused_by_llama_cpp_are_not_sound() {
    for (file, printed) in [
        ("misaligned", "not where it should be"),
        ("long_name", "too long"),
        ("align_u64", "not a uint32"),
        ("count_too_high", "counts 2 tensors and describes 1"),
        ("unknown_type", "not known"),
        ("arrays", "holds arrays"),
    ] {
        let said_there = not_sound(&report(&format!("gguf_odd/{file}.gguf")));
        assert!(said_there.contains(printed), "{file}: {said_there}");
    }
    for file in [
        "good",
        "align_64",
        "padded_tail",
        "nopad_tail",
        "trailing",
        "types",
        "zero_tensors",
        "empty_dim",
        "scalar",
    ] {
        let ran = verify(&report(&format!("gguf_odd/{file}.gguf")));
        assert_eq!(ran.code, Some(0), "{file}: {}{}", ran.out, ran.err);
    }
}

#[test]
fn opens_and_repairs_safetensors_refused_by_the_library() {
    let folder = Folder::new();
    let good = report("st_trailing_bytes/good.safetensors");
    for file in [
        "st_trailing_bytes/trailing_zeros",
        "st_trailing_bytes/trailing_junk",
        "st_trailing_bytes/hole_between",
    ] {
        let file = report(&format!("{file}.safetensors"));
        run(["diff", &good, &file]).ok();
        assert!(not_sound(&file).contains("belong to no tensor"));
        let target = folder.file("fixed.safetensors");
        let _ = fs::remove_file(&target);
        assert_eq!(convert(&file, &target, &[]).code, Some(2));
        assert_eq!(convert(&file, &target, &["--lossy"]).code, Some(0));
        verify(&text(&target)).ok();
        run(["diff", &good, &text(&target)]).ok();
    }
    not_sound(&report("st_trailing_bytes/shared_offsets.safetensors"));
    for (file, value) in
        [("int", "3"), ("bool", "true"), ("null_value", "null"), ("list", r#"["a","b"]"#)]
    {
        let file = report(&format!("st_metadata_values/{file}.safetensors"));
        assert!(run(["info", &file]).out.contains(value), "{file}");
        assert!(not_sound(&file).contains("not text"), "{file}");
        let target = folder.file("text.safetensors");
        let _ = fs::remove_file(&target);
        assert_eq!(convert(&file, &target, &["--lossy"]).code, Some(0));
        verify(&text(&target)).ok();
    }
    let old = report("st_metadata_only/bad_old_writer.safetensors");
    assert!(not_sound(&old).contains("__metadata__"));
    assert!(run(["info", &old]).out.contains("lab"));
}

#[test]
fn compares_the_index_with_its_shards() {
    // The index names the first of two shards.
    let subset = report("sharded/index_subset");
    let printed = not_sound(&subset);
    assert!(printed.contains("model-00002-of-00002.safetensors"), "{printed}");
    let folder = Folder::new();
    assert_eq!(convert(&subset, &folder.file("s.safetensors"), &[]).code, Some(2));
    // The index names four shards, none of which exists; there are two others.
    let stale = report("sharded/stale_index");
    let listed = run(["ls", &stale]).ok();
    assert!(listed.contains("k1") && listed.contains("k2"), "{listed}");
    assert!(not_sound(&stale).contains("names other files"));
    convert(&stale, &folder.file("w.safetensors"), &[]).ok();
}

#[test]
fn reads_a_deflated_keras_model() {
    run(["diff", &report("keras_rezip/stored.keras"), &report("keras_rezip/deflated.keras")]).ok();
}

#[test]
fn hdf5_external_links_open_files_in_the_folder() {
    let listed = run(["ls", &report("h5_links/dest.h5")]).ok();
    for line in listed.lines() {
        let key = line.split_whitespace().next().unwrap();
        // h5py resolves these.
        if ["through", "link.soft", "link.softsoft", "link.external", "link.extsoft"].contains(&key)
        {
            assert!(line.contains("float64"), "{line}");
        }
        if ["self", "ping", "pong"].contains(&key) {
            assert!(line.contains("a cycle"), "{line}");
        }
        if key == "extmissing" {
            assert!(line.contains("not in this folder"), "{line}");
        }
    }
    let folder = Folder::new();
    let source = report("h5_links/dest.h5");
    convert(&source, &folder.file("t.npy"), &["--select", "through"]).ok();
    let bytes = fs::read(folder.file("t.npy")).unwrap();
    let expected: Vec<u8> = [0f64, 1.0, 2.0, 3.0].into_iter().flat_map(f64::to_le_bytes).collect();
    assert!(bytes.ends_with(&expected));
    // Without the other file they are listed as links to it.
    let alone = folder.file("alone.h5");
    fs::copy(fixture("reports/h5_links/dest.h5"), &alone).unwrap();
    assert!(run(["ls", &text(&alone)]).ok().contains("source.h5, which is not in this folder"));
}

#[test]
fn group_attributes_are_shown_and_compared() {
    let (a, b) = (report("h5_attributes/att_a.h5"), report("h5_attributes/att_b.h5"));
    for (key, shown) in [("", "@version"), ("g", "@x"), ("w", "@scale")] {
        let printed = run(["show", &a, key]).ok();
        assert!(
            printed.lines().any(|line| line.starts_with(shown) && line.ends_with('1')),
            "{printed}"
        );
    }
    let json = run(["info", "--json", &a]).json();
    assert_eq!(json["groups"][""]["version"], "1");
    assert_eq!(json["groups"]["g"]["x"], "1");
    let diff = run(["diff", &a, &b]);
    assert_eq!(diff.code, Some(1));
    for part in ["@version", "@x", "@scale"] {
        assert!(diff.out.contains(part), "{part}: {}", diff.out);
    }
    run(["diff", &a, &a]).ok();
    // Attributes of another type with the same text, an enum whose names are swapped, also in a
    // record, and a dataset without elements.
    let [one, two] = ["a", "b"].map(|tag| report(&format!("h5_attributes/types_{tag}.h5")));
    let diff = run(["diff", &one, &two]).out;
    for line in [
        "w  @(datatype): value: enum of uint8 (A = 0, B = 1) / enum of uint8 (A = 1, B = 0)",
        "w  @digit: type: string / int64",
        "w  @shape: type: int64 / int64 [1]",
        "w  @whole: type: int32 / int64",
        "r  @(datatype): value: record (kind enum of uint8 (A = 0, B = 1)) / record (kind",
        "z  @(type): value: float32 / int64",
        "6 differences",
    ] {
        assert!(diff.contains(line), "{line}: {diff}");
    }
    run(["diff", &one, &one]).ok();
    // As h5py reads them.
    let printed = run(["show", &report("h5_attributes/kinds.h5"), "w"]).ok();
    for line in [
        "@enum       B",
        "@cplx       (1+2j)",
        "@rec        {n: 1, x: 2.5}",
        "@vlen       [[0, 1], [0, 1, 2]]",
        "@arr2d      [[0, 1, 2], [3, 4, 5]]",
        "@ref        reference to /w",
        "@ld         1.5",
        "@void       0x616263",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    assert!(printed.lines().all(|line| line.len() < 3_000));
    // The same holds for `__metadata__` of safetensors.
    let diff = run([
        "diff",
        &report("st_metadata_values/text.safetensors"),
        &report("st_metadata_values/empty.safetensors"),
    ]);
    assert_eq!((diff.code, diff.out.contains("@epoch")), (Some(1), true), "{}", diff.out);
}

#[test]
fn shows_names_of_fields_and_enums() {
    let table = report("h5_mixed_records/table.h5");
    let listed = run(["ls", &report("h5_attributes/kinds.h5")]).ok();
    assert!(listed.contains("enum of uint8 (A = 0, B = 1)"), "{listed}");
    let json = run(["ls", "--json", &table]).json();
    let record = json["entries"].as_array().unwrap().iter().find(|one| one.get("fields").is_some());
    let record = record.unwrap();
    let key = record["key"].as_str().unwrap();
    let first = record["fields"][0]["name"].as_str().unwrap();
    let shown = run(["show", &table, key]).ok();
    assert!(
        shown.lines().any(|line| line.starts_with("fields") && line.contains(first)),
        "{shown}"
    );
    let folder = Folder::new();
    let csv = folder.file("r.csv");
    run(["export", &table, key, &text(&csv)]).ok();
    let lines = fs::read_to_string(&csv).unwrap();
    assert!(lines.starts_with(first), "{lines}");
}

#[test]
fn read_as_sets_the_dtype_of_untyped_arrays() {
    let source = report("npy_mldtypes/jax_bf16.npz");
    let info = run(["info", &source]).ok();
    assert!(
        info.contains("No dtype is stored for 2 arrays") && info.contains("--read-as"),
        "{info}"
    );
    let args = ["--read-as", "params*=bfloat16", "--read-as", "f8=float8_e4m3fn"];
    let shown = run([&["show", &source, "params/dense/kernel"][..], &args].concat()).ok();
    assert!(shown.contains("1.0 -2.5 0.125 96.0"), "{shown}");
    let shown = run([&["show", &source, "f8"][..], &args].concat()).ok();
    assert!(shown.contains("1.0 -2.5 0.125 96.0"), "{shown}");
    let folder = Folder::new();
    let target = folder.file("j.safetensors");
    convert(&source, &target, &args).ok();
    assert!(run(["ls", &text(&target)]).ok().contains("bfloat16"));
    for (file, dtype) in [
        ("bf16_V2.npy", "bfloat16"),
        ("bf16_ltV2.npy", "bfloat16"),
        ("bf16_E.npy", "bfloat16"),
        ("f8_f1.npy", "float8_e5m2"),
    ] {
        let file = report(&format!("npy_mldtypes/{file}"));
        let shown = run(["show", &file, "", "--read-as", dtype]).ok();
        assert!(shown.contains("1.0 -2.5 0.125 96.0"), "{file}: {shown}");
    }
    let wrong = run(["ls", &source, "--read-as", "nothing*=bfloat16"]).failed();
    assert!(wrong.contains("there is no array"), "{wrong}");
}

#[test]
fn warns_if_the_config_does_not_fit_the_model() {
    let folder = Folder::new();
    let model = fixture("trainer/gpt2/pytorch_model.bin");
    let copy = folder.file("pytorch_model.bin");
    fs::copy(model, &copy).unwrap();
    let config = fs::read_to_string(fixture("trainer/gpt2/config.json")).unwrap();
    fs::write(folder.file("config.json"), &config).unwrap();
    assert!(!run(["info", &text(&copy)]).ok().contains("does not fit"));
    let mut other: serde_json::Value = serde_json::from_str(&config).unwrap();
    other["n_layer"] = 48.into();
    fs::write(folder.file("config.json"), other.to_string()).unwrap();
    let info = run(["info", &text(&copy)]).ok();
    assert!(info.contains("config.json does not fit this checkpoint"), "{info}");
    assert!(info.contains("layers: 48"), "{info}");
    let json = run(["info", "--json", &text(&copy)]).json();
    let findings = json["findings"].as_array().unwrap();
    assert!(
        findings
            .iter()
            .any(|one| one["grade"] == "warning" && one["title"].as_str().unwrap().contains("fit"))
    );
}

#[test]
fn reads_matlab_values() {
    let listed = run(["ls", &report("h5_matlab/net.mat")]).ok();
    for (key, words) in [
        ("name", "'conv1'"),
        ("#refs#.b", "'relu'"),
        ("flag", "bool"),
        ("nothing", "float64"),
        ("z", "complex128"),
        ("layers.0", "reference to /#refs#/a"),
    ] {
        let line = listed.lines().find(|line| line.split_whitespace().next() == Some(key)).unwrap();
        assert!(line.contains(words), "{line}");
    }
    let shown = run(["show", &report("h5_matlab/net.mat"), "z"]).ok();
    assert!(shown.contains("(1+3j) (2-4j)"), "{shown}");
}

#[test]
fn follows_links_into_subfolders_only() {
    // h5py: f["linked"][...] == arange(5.), f["raw"][...] == arange(6)
    let outer = report("h5_links/outer.h5");
    assert!(run(["show", &outer, "linked"]).ok().contains("0.0 1.0 2.0 3.0 4.0"));
    assert!(run(["show", &outer, "raw"]).ok().contains("0 1 2 3 4 5"));
    let listed = run(["ls", &outer]).ok();
    assert!(listed.contains("att_a.h5, which is not in this folder"), "{listed}");
}

#[test]
fn lists_the_class_of_an_object_as_a_loss() {
    let folder = Folder::new();
    let source = report("folders/hf_trainer/checkpoint-500/training_args.bin");
    let target = folder.file("args.mdl");
    let refused = convert(&source, &target, &[]).failed_after_losses();
    let lost = "`__class__`: objects become plain dicts of their fields, without their class";
    assert!(refused.contains(lost), "{refused}");
    convert(&source, &target, &["--lossy"]).ok();
    let listed = run(["ls", &text(&target)]).ok();
    assert!(listed.contains("output_dir") && !listed.contains("__class__"), "{listed}");
    // The same for an object below a key; other keys are not affected.
    let inner = folder.file("inner.pt");
    fs::copy(fixture("reports/objects/objs_a.pt"), &inner).unwrap();
    let refused = convert(&text(&inner), &folder.file("inner.mdl"), &[]).failed_after_losses();
    assert!(refused.contains(".__class__`"), "{refused}");
}

#[test]
fn opens_the_weights_in_the_folder_of_a_model() {
    let checkpoint = report("folders/hf_trainer/checkpoint-500");
    let weights = run(["ls", &format!("{checkpoint}/model.safetensors")]).ok();
    assert_eq!(run(["ls", &checkpoint]).ok(), weights);
    // As on the Hub: the same weights for other libraries, and in folders below.
    let folder = Folder::new();
    let hub = folder.file("hub");
    fs::create_dir_all(hub.join("onnx")).unwrap();
    let source = fixture("reports/folders/hf_trainer/checkpoint-500/model.safetensors");
    for name in ["model.safetensors", "pytorch_model.bin", "onnx/model.safetensors"] {
        fs::copy(&source, hub.join(name)).unwrap();
    }
    assert_eq!(run(["ls", &text(&hub)]).ok(), weights);
    fs::copy(&source, hub.join("other.safetensors")).unwrap();
    let several = run(["info", &text(&hub)]).failed();
    assert!(several.contains("this folder holds 4 checkpoints"), "{several}");
    // Here each is listed, with its grade.
    let listed = run(["ls", &text(&hub)]).ok();
    assert_eq!(listed.matches("  whole  ").count(), 4, "{listed}");
    let json: serde_json::Value =
        serde_json::from_str(&run(["ls", "--json", &text(&hub)]).ok()).unwrap();
    let checkpoints = json["checkpoints"].as_array().unwrap();
    assert_eq!(checkpoints.len(), 4);
    assert!(checkpoints.iter().all(|one| one["grade"] == "whole"), "{json}");
}

#[test]
fn compares_python_attributes_and_lists_their_loss() {
    let folder = Folder::new();
    let [one, two] = ["a", "b"].map(|tag| report(&format!("attributes/attributes_{tag}.pt")));
    let differing = run(["diff", &one, &two]);
    assert_eq!(differing.code, Some(1), "{}", differing.out);
    let lines: Vec<Vec<&str>> =
        differing.out.lines().map(|line| line.split_whitespace().collect()).collect();
    for (key, at) in [("p", "@extra:"), ("sd", "@_metadata..version:"), ("t", "@note:")] {
        assert!(lines.contains(&vec![key, at, "value:", "1", "/", "2"]), "{}", differing.out);
    }
    run(["diff", &one, &one]).ok();
    for (target, told) in [
        ("o.mdl", ["`sd`: attributes set on a dict", "`p`, `t`: Python attributes of tensors"]),
        ("o.npz", ["`p`, `sd`, `t`: Python attributes of dicts and tensors"; 2]),
        ("o.safetensors", ["`p`, `sd`, `t`: Python attributes of dicts and tensors"; 2]),
        ("o.pt", ["`p`, `t`: Python attributes of tensors"; 2]),
    ] {
        let printed = convert(&one, &folder.file(target), &[]).ok();
        for told in told {
            assert!(printed.contains(told), "{target}: {printed}");
        }
    }
    // A state dict by itself has them at its root, whose key is empty.
    let plain = text(&fixture("torch/zip_module_state_dict.pt"));
    let printed = convert(&plain, &folder.file("plain.safetensors"), &[]).ok();
    assert!(printed.contains("changed      the root: Python attributes of dicts"), "{printed}");
    let bundle = folder.file("bundle");
    let printed = convert(&one, &bundle, &["--to", "tensorflow"]).ok();
    assert!(
        printed.contains("`p`, `sd`, `t`: Python attributes of dicts and tensors"),
        "{printed}"
    );
}

#[test]
fn tensors_in_python_attributes_are_shown_compared_and_not_dropped() {
    let folder = Folder::new();
    let [one, two] = ["a", "b"].map(|tag| report(&format!("attributes/tensors_{tag}.pt")));
    let differing = run(["diff", &one, &two]);
    assert_eq!(differing.code, Some(1), "{}", differing.out);
    for text in ["p  @state.absmax: elements: 1 of 1 differ", "1 difference:"] {
        assert!(differing.out.contains(text), "{}", differing.out);
    }
    run(["diff", &one, &one]).ok();
    assert!(run(["show", &one, "p"]).ok().contains("@state"));
    assert!(run(["show", "--json", &one, "p"]).ok().contains(r#""state":"{…}""#));
    for json in [&[][..], &["--json"]] {
        let manifest = text(&folder.file(&format!("manifest{}", json.len())));
        run([&["manifest", &one, "-o", &manifest], json].concat()).ok();
        run(["verify", &one, "--manifest", &manifest]).ok();
        let changed = run(["verify", &two, "--manifest", &manifest]);
        assert!(changed.code == Some(1) && changed.out.contains("differ"), "{}", changed.out);
    }
    for target in ["o.mdl", "o.npz", "o.safetensors", "o.pt"] {
        let target = folder.file(target);
        let refused = convert(&one, &target, &[]);
        assert_eq!(refused.code, Some(2), "{}", refused.err);
        assert!(refused.err.contains("tensors that are Python attributes"), "{}", refused.err);
        convert(&one, &target, &["--lossy"]).ok();
    }
}

#[test]
fn writes_a_group_that_contains_the_root() {
    // `/loop/back` is another name of the root.
    let folder = Folder::new();
    for target in ["o.pt", "o.mdl"] {
        let ran = convert(&report("h5_links/dest.h5"), &folder.file(target), &["--lossy"]);
        assert!(!ran.err.contains("bug in the writer"), "{target}: {}", ran.err);
    }
    let listed = run(["ls", &text(&folder.file("o.pt"))]).ok();
    assert!(listed.contains("loop.back"), "{listed}");
}

#[test]
fn writes_bytes_without_a_name_as_an_array() {
    let folder = Folder::new();
    let source = folder.with("bytes.pkl", b"\x80\x04C\x03abc.");
    let target = folder.file("o.npz");
    convert(&text(&source), &target, &[]).ok();
    let shown = run(["show", &text(&target), "arr_0"]).ok();
    assert!(shown.contains("97 98 99"), "{shown}");
}

/// Attributes are not values: a manifest does not cover them, and the answer says so. The names of
/// a record's fields are part of its values.
#[test]
fn a_manifest_covers_names_of_fields_but_not_attributes() {
    let folder = Folder::new();
    let record = |names: [&str; 2]| {
        let header = format!(
            "{{'descr': [('{}', '<i4'), ('{}', '<i4')], 'fortran_order': False, 'shape': (2,), }}\n",
            names[0], names[1]
        );
        let mut file = b"\x93NUMPY\x01\0".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(0_u8..16);
        file
    };
    let (one, two) = (folder.file("one.npy"), folder.file("two.npy"));
    fs::write(&one, record(["a", "b"])).unwrap();
    fs::write(&two, record(["b", "a"])).unwrap();
    let (one, two) = (text(&one), text(&two));
    for json in [&[][..], &["--json"]] {
        let manifest = text(&folder.file(&format!("manifest{}", json.len())));
        run([&["manifest", &one, "-o", &manifest], json].concat()).ok();
        run(["verify", &one, "--manifest", &manifest]).ok();
        assert_eq!(run(["verify", &two, "--manifest", &manifest]).code, Some(1));
    }
    let differ = run(["diff", &one, &two]);
    assert!(differ.out.contains("a int32, b int32 / b int32, a int32"), "{}", differ.out);
    let with_metadata = folder.file("metadata.safetensors");
    let header =
        br#"{"__metadata__":{"epoch":"1"},"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#;
    let length = (header.len() as u64).to_le_bytes();
    fs::write(&with_metadata, [&length[..], header].concat()).unwrap();
    let (file, manifest) = (text(&with_metadata), text(&folder.file("manifest")));
    run(["manifest", &file, "-o", &manifest]).ok();
    let same = run(["verify", &file, "--manifest", &manifest]).ok();
    assert!(same.contains("match; attributes are not compared"), "{same}");
}
