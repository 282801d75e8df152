//! `statelens scan`: its findings, anywhere in a file.

use crate::common::{Folder, fixture, run, statelens};

fn path(name: &str) -> String {
    fixture(name).to_str().unwrap().to_owned()
}

/// Hostile files, with the exit status and a word in the output.
const ATTACKS: &[(&str, i32, &str)] = &[
    ("computed_names.pkl", 1, "os.system"),
    ("dataclasses_create_fn.pkl", 1, "dataclasses._create_fn"),
    ("dcp_bytes", 1, "os.system"),
    ("dcp_bytes/.metadata", 1, "os.system"),
    ("dcp_bytes/__0_0.distcp", 1, "os.system"),
    ("dcp_meta", 1, "os.system"),
    ("dcp_meta/.metadata", 1, "os.system"),
    ("dup_pickle.pkl", 0, "nothing to report"),
    ("dup_pickle_intbool.pkl", 0, "nothing to report"),
    ("enum_global_enum.pkl", 1, "enum.eval"),
    ("evil.joblib", 1, "os.system"),
    ("evil.pkl.gz", 1, "os.system"),
    ("evil.pkl.xz", 1, "os.system"),
    ("evil.pkl.zlib", 1, "os.system"),
    ("gguf_ssti.gguf", 1, "__class__"),
    ("keras_lambda.keras", 1, "Lambda"),
    ("keras_module.keras", 1, "subprocess"),
    ("keras_poly.pt", 1, "os.system"),
    ("legacy_sysinfo.pt", 1, "os.system"),
    ("legacy_version.pt", 1, "os.system"),
    ("npy_object.npy", 1, "os.system"),
    ("npz_object.npz", 1, "os.system"),
    ("npz_raw_member.npz", 1, "os.system"),
    ("npz_rawname.npz", 1, "os.system"),
    ("numpy_savetxt.pkl", 1, "numpy.savetxt"),
    ("osx_support_read_output.pkl", 1, "_osx_support._read_output"),
    ("package.pt", 1, "torch.package"),
    ("poly_h5.pt", 1, "os.system"),
    ("poly_st.bin", 1, "os.system"),
    ("pt2_old_example.pt2", 1, "os.system"),
    ("pt2_old_state.pt2", 1, "os.system"),
    ("random_builtins_dict.pkl", 1, "random"),
    ("shard", 1, "os.system"),
    ("shard2", 1, "os.system"),
    ("shard2/pytorch_model.bin.index.json", 1, "os.system"),
    ("shard2/pytorch_model-00001-of-00002.bin", 1, "os.system"),
    ("shard3", 1, "os.system"),
    ("tar_storages.pth", 1, "os.system"),
    ("tar_with_zip.tar", 1, "os.system"),
    ("torch_named.keras", 1, "os.system"),
    ("zip_ok.pt", 1, "os.system"),
    ("zip_other_pkl.pt", 1, "os.system"),
    ("zip_two_roots.pt", 1, "os.system"),
];

#[test]
fn scan_finds_attacks_in_every_container() {
    let mut wrong = Vec::new();
    for (name, code, word) in ATTACKS {
        let ran = run(["scan", &path(&format!("attacks2/{name}"))]);
        if ran.code != Some(*code) || !ran.out.contains(word) {
            wrong.push(format!(
                "{name}: {:?}, not {code} with {word:?}: {}{}",
                ran.code, ran.out, ran.err
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), ATTACKS.len(), wrong.join("\n"));
}

/// Python objects in HDF5, and a layer with code.
#[test]
fn scan_finds_code_in_hdf5() {
    for (name, word) in [
        ("attribute_text.h5", "os.system"),
        ("attribute_bytes.h5", "os.system"),
        ("attribute_opaque.h5", "os.system"),
        ("sequences.h5", "os.system"),
        ("packed_strings.h5", "os.system"),
        ("shuffled_strings.h5", "os.system"),
        ("lambda.h5", "Lambda"),
    ] {
        let ran = run(["scan", &path(&format!("attacks_hdf5/{name}"))]);
        assert_eq!(ran.code, Some(1), "{name}: {}{}", ran.out, ran.err);
        assert!(ran.out.contains(word) && ran.out.contains("danger"), "{name}: {}", ran.out);
    }
}

/// Real files with a finding worse than a warning, by the start of their path, and the reason why
/// the finding is right.
const REAL: &[(&str, &str, &str)] = &[
    ("cerebras/errors/", "damage", BROKEN),
    ("cerebras_s3/", "damage", "objects in files of other names"),
    ("cerebras_s3/evil/", "danger", "made to be hostile"),
    ("cerebras/v2.10.0/custom.mdl", "danger", CODE),
    ("cerebras/v2.10.0/custom.pt", "unknown code", CLASS),
    (
        "cerebras/v2.10.0-special/defaultdict3.mdl",
        "damage",
        "the library lost values when it wrote it",
    ),
    ("cerebras/v2.10.0-special/dictsub.mdl", "danger", CODE),
    ("cerebras/v2.10.0-special/dirty.mdl", "danger", CODE),
    ("cerebras/v2.10.0-special/link_external.mdl", "danger", CODE),
    ("cerebras/v2.10.0-special/link_materialized.mdl", "danger", CODE),
    ("cerebras/v2.10.0-special/link_target.mdl", "danger", CODE),
    ("cerebras/v2.10.0-special/link_target.pt", "unknown code", CLASS),
    ("cerebras/v2.10.0-special/listsub.mdl", "danger", CODE),
    ("cerebras/v2.4.0/custom.mdl", "danger", CODE),
    ("cerebras/compat/synthetic_1.7.mdl", "damage", LISTED),
    ("cerebras/v2.10.0-special/full_tensors.mdl", "damage", EMPTY),
    ("cerebras/v2.4.0-special/full_none.mdl", "damage", EMPTY),
    ("cerebras/v2.4.0/dtype_", "damage", LISTED),
    ("cerebras/v2.4.0/keys_dot_only.mdl", "damage", LISTED),
    ("cerebras/v2.4.0/keys_empty", "damage", LISTED),
    ("cerebras/v2.4.0/numpy_", "damage", LISTED),
    ("cerebras/v2.4.0/py_bigint.mdl", "damage", LISTED),
    ("cerebras/v2.4.0/string_", "damage", LISTED),
    ("cerebras/v2.4.0/top_leaf_", "damage", LISTED),
    ("cerebras/v2.4.0/custom.pt", "unknown code", CLASS),
    ("folders/index_points_outside/", "unknown code", OUTSIDE),
    ("folders/shard_cut/", "damage", BROKEN),
    ("gguf/x_", "damage", BROKEN),
    ("keras/k3_sharded.weights.json.expected.json", "damage", "it looks like an index of shards"),
    ("quantized_torch/torchao_", "unknown code", CLASS),
    ("recipes/", "unknown code", "the configuration of a model with its own code"),
    ("reports/gguf_odd/dup_", "damage", BROKEN),
    ("reports/h5_links/outer.h5", "unknown code", OUTSIDE),
    ("reports/modules/", "unknown code", MODULE),
    ("reports/objects/", "unknown code", CLASS),
    ("reports/pt_packed/rezip_mac.pt", "damage", "`._data.pkl` of macOS is called like a pickle"),
    ("reports4/h5_blosc/pandas_blosc.h5", "unknown code", "its texts may hold pickles"),
    ("reports4/st_index_paths/out/", "unknown code", OUTSIDE),
    ("safetensors/x_", "damage", BROKEN),
    ("sharded/broken_", "damage", BROKEN),
    ("sharded/broken_dcp_zstd_bomb/", "unknown code", BROKEN),
    ("tf/raw_missing_slice/", "damage", BROKEN),
    ("torch/legacy_full_module.pt", "unknown code", MODULE),
    ("torch/zip_full_torchnn_module.pt", "unknown code", MODULE),
    ("torch/zip_python_objects.pt", "unknown code", CLASS),
    ("torch/zip_tensor_attrs_subclass.pt", "unknown code", CLASS),
    ("torchscript/", "unknown code", "its classes come with their code, which runs in torch"),
];

const LISTED: &str = "release 2.4 lists a value that it failed to write";
const EMPTY: &str = "a tensor that was saved without its memory";
const BROKEN: &str = "made to be broken";
const OUTSIDE: &str = "it names a file outside of its folder";
const CODE: &str = "a class that dill pickled with its code";
const CLASS: &str = "a class of the program that wrote it";
const MODULE: &str = "a module that was pickled whole";

#[test]
fn real_files_have_only_known_findings() {
    let all = path("README.md").replace("README.md", "");
    let mut folders: Vec<String> = std::fs::read_dir(&all)
        .unwrap()
        .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
        .collect();
    folders.retain(|folder| {
        !["attacks", "attacks2", "attacks3", "attacks4", "attacks_hdf5"]
            .iter()
            .any(|hostile| folder.ends_with(hostile))
    });
    folders.sort();
    let ran = run([&["scan", "--json"].map(str::to_owned)[..], &folders].concat());
    let mut wrong = Vec::new();
    let mut needed = std::collections::BTreeSet::new();
    let mut count = 0;
    for line in ran.out.lines() {
        count += 1;
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let file = line["path"].as_str().unwrap().strip_prefix(&all).unwrap();
        let worst = line["worst"].as_str().unwrap_or("");
        if ["", "note", "warning"].contains(&worst) && line["error"].is_null() {
            continue;
        }
        let known = REAL.iter().find(|(name, grade, _)| file.starts_with(name) && worst == *grade);
        match known {
            Some((name, ..)) => {
                needed.insert(*name);
            }
            None => wrong.push(line.to_string()),
        }
    }
    assert!(count > 500, "{count}: {}", ran.err);
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    let stale: Vec<_> = REAL.iter().filter(|(name, ..)| !needed.contains(name)).collect();
    assert!(stale.is_empty(), "no longer needed: {stale:?}");
}

#[test]
fn scan_of_several_paths_prints_a_summary_or_json_lines() {
    let bad = path("attacks2/zip_ok.pt");
    let good = path("torch/zip_tied.pt");
    let folder = Folder::new();
    folder.with("readme.md", b"# A model\n");
    let deep = folder.path().join("a/b");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::copy(&bad, deep.join("evil.png")).unwrap();
    let folder = folder.path().to_str().unwrap().to_owned();

    let ran = run(["scan", &bad, &good, &folder]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    let last = ran.out.lines().last().unwrap();
    assert!(last.contains("4 files") && last.contains("2 with danger"), "{last}");
    assert!(ran.out.contains("readme.md: not a checkpoint"), "{}", ran.out);
    assert!(ran.out.contains("evil.png"), "{}", ran.out);

    let ran = run(["scan", "--json", &good, &folder, "/nowhere/at/all.pt"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    let lines: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    assert!(lines.iter().all(|line| line["statelens"] == 1 && line["path"].is_string()));
    let worst = |name: &str| {
        let line = lines.iter().find(|line| line["path"].as_str().unwrap().ends_with(name));
        line.unwrap()["worst"].clone()
    };
    assert_eq!(worst("evil.png"), "danger");
    assert_eq!(worst("zip_tied.pt"), serde_json::Value::Null);
    let unread = lines.iter().find(|line| line["error"].is_string()).unwrap();
    assert!(unread["error"].as_str().unwrap().contains("does not exist"), "{unread}");

    let ran = run(["scan", &good, "/nowhere/at/all.pt"]);
    assert_eq!(ran.code, Some(2), "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("does not exist"), "{}", ran.err);
    // The report of a single file is one object.
    let ran = run(["scan", "--json", &good]);
    assert_eq!(ran.json(), serde_json::json!({"statelens": 1, "worst": null, "findings": []}));
}

#[test]
fn truncated_pickle_is_reported_in_json() {
    let bytes = std::fs::read(fixture("attacks2/zip_ok.pt")).unwrap();
    let folder = Folder::new();
    // `data.pkl` follows its local header; the cut is before the end of the archive.
    let cut = folder.with("cut.pt", &bytes[..bytes.len() - 40]);
    let pickle = folder.with("cut.pkl", b"\x80\x02}q\x00X\x03\x00\x00\x00ab");
    for (file, word) in [(cut, "danger"), (pickle, "damage")] {
        let ran = run(["scan".as_ref(), "--json".as_ref(), file.as_os_str()]);
        assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
        let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(report["worst"], word, "{report}");
    }
}

#[test]
fn closed_pipe_keeps_the_verdict() {
    let file = path("attacks2/zip_ok.pt");
    for args in [vec!["scan", &file], vec!["scan", &file, &file], vec!["scan", "--json", &file]] {
        let mut child =
            statelens().args(&args).stdout(std::process::Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(1), "{args:?}");
    }
}

#[test]
fn allow_accepts_unknown_names_but_not_dangerous_ones() {
    let folder = Folder::new();
    let known = folder.with("known.pkl", b"\x80\x02cmymodel\nConfig\n)R.");
    let evil = folder.with("evil.pkl", b"\x80\x02cos\nsystem\n(X\x04\0\0\0truetR.");
    for (file, allow, code) in
        [(&known, "other.Config", 1), (&known, "mymodel.Config", 0), (&evil, "os.system", 1)]
    {
        let args = ["scan".as_ref(), "--allow".as_ref(), allow.as_ref(), file.as_os_str()];
        let ran = run(args);
        assert_eq!(ran.code, Some(code), "{allow}: {}{}", ran.out, ran.err);
    }
}

/// An index of shards is one in a folder, too.
#[test]
fn index_in_a_folder_has_nothing_to_report() {
    let out = run(["scan".into(), fixture("hf_sharded_safetensors")]).ok();
    assert!(out.contains("model.safetensors.index.json: nothing to report"), "{out}");
}

/// The files of a set that are all named are scanned once each; a file alone is scanned with its
/// set.
#[test]
fn shards_that_are_named_are_scanned_once() {
    let folder = Folder::new();
    let set = fixture("hf_sharded_safetensors");
    for entry in std::fs::read_dir(set).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.file(entry.file_name().to_str().unwrap())).unwrap();
    }
    let shard = |number| format!("model-0000{number}-of-00003.safetensors");
    let path = |name: &str| folder.file(name).to_str().unwrap().to_owned();
    let whole = std::fs::read(path(&shard(2))).unwrap();
    std::fs::write(path(&shard(2)), &whole[..whole.len() - 8]).unwrap();
    let count = |args: &[String]| {
        let ran = run([&["scan".to_owned(), "--json".to_owned()], args].concat());
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        ran.out.matches("\"title\":\"The file is cut short").count()
    };
    let shards = [1, 2, 3].map(|number| path(&shard(number)));
    let index = path("model.safetensors.index.json");
    assert_eq!(count(&shards), 1);
    assert_eq!(count(&[&shards[..], std::slice::from_ref(&index)].concat()), 1);
    assert_eq!(count(&[path("")]), 1);
    for one in [&shards[0], &index] {
        assert_eq!(count(std::slice::from_ref(one)), 1);
    }
}
