//! Questions that two commands, or two ways of asking, must answer alike; checks that can't cover
//! everything say so.

use std::fs;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::common::{Folder, fixture, run, stored_zip, text};

fn report(name: &str) -> String {
    text(&fixture(&format!("reports/{name}")))
}

#[test]
fn finds_values_that_are_not_finite_in_every_dtype() {
    for (file, key) in [
        ("gguf_inf_scale/inf.gguf", "q4k"),
        ("finite_kinds/longdouble.npy", ""),
        ("finite_kinds/record.h5", "r"),
        ("finite_kinds/sparse.pt", "t"),
    ] {
        let file = report(file);
        for args in [
            vec!["verify", "--finite", &file],
            vec!["stats", &file, "--fail-on", "nan,inf"],
            vec!["verify", "--finite", &file, &file],
        ] {
            let ran = run(&args);
            assert_eq!(ran.code, Some(1), "{args:?}: {}{}", ran.out, ran.err);
        }
        let json = run(["verify", "--finite", "--json", &file]).out;
        let json: Value = serde_json::from_str(&json).unwrap();
        let keys: Vec<&str> = json["not_finite"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["key"].as_str().unwrap())
            .collect();
        assert!(keys.iter().any(|it| it.starts_with(key)), "{file}: {keys:?}");
        assert_eq!(json["sound"], false);
    }
}

/// A dtype that can't be decoded has a status of its own.
#[test]
fn reports_tensors_that_were_not_checked() {
    let folder = Folder::new();
    let header = "{'descr': '|V8', 'fortran_order': False, 'shape': (2,), }";
    let array = [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes()];
    let array = [&array.concat()[..], &[0; 16]].concat();
    let file = text(&folder.with("opaque.npz", &stored_zip(&[("a.npy", &array)])));
    run(["verify", &file]).ok();
    for args in [
        vec!["verify", "--finite", &file],
        vec!["verify", "--finite", &file, &file],
        vec!["stats", &file, "--fail-on", "nan"],
    ] {
        let ran = run(&args);
        assert_eq!(ran.code, Some(3), "{args:?}: {}{}", ran.out, ran.err);
    }
    let ran = run(["verify", "--finite", &file]);
    assert!(ran.out.contains("not checked for NaN and infinity: 1 value"), "{}", ran.out);
    for args in
        [["verify", "--finite", "--json", &file], ["stats", "--fail-on=inf", "--json", &file]]
    {
        let json: Value = serde_json::from_str(&run(args).out).unwrap();
        assert_eq!(json["not_checked"][0]["key"], "a", "{json}");
    }
}

/// `--finite` counts every number, and has a status of its own if some can't be decoded.
#[test]
fn finite_counts_plain_values_and_arrays_of_objects() {
    let array = |shape: &str, items: &str| {
        format!(
            "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n({shape}t\
             cnumpy\ndtype\n(S'O8'\nI00\nI01\ntR(I3\nS'|'\nNNNI-1\nI-1\nI63\ntbI00\n({items}tb"
        )
    };
    let objects = array("I2\nI2\n", "lF1.0\naI7\naFnan\naVtext\na");
    let sound = array("I2\n", "lF1.0\naVnan\na");
    let opaque = "carray\n_array_reconstructor\n(carray\narray\nS'd'\nI14\nC\x08\0\0\0\0\0\0\0\0tR";
    let decimal = |text: &str| format!("cdecimal\nDecimal\n(V{text}\ntR");
    let dict = |value: &str| format!("(dVkey\n{value}s.");
    let header = "{'descr': '|O', 'fortran_order': False, 'shape': (2, 2), }";
    let npy = format!("{}\0{header}{objects}.", char::from(header.len() as u8));
    let npy = [&b"\x93NUMPY\x01\x00"[..], npy.as_bytes()].concat();
    let folder = Folder::new();
    for (name, bytes, code, expected) in [
        ("nan.pkl", dict("Fnan\n"), 1, "not finite  key  1 NaN\n"),
        ("inf.pkl", dict("F-inf\n"), 1, "not finite  key  1 infinite\n"),
        ("list.pkl", dict("(lF0.5\naFinf\na"), 1, "not finite  key.1  1 infinite\n"),
        ("decimal.pkl", dict(&decimal("-sNaN")), 1, "not finite  key  1 NaN\n"),
        ("digits.pkl", dict(&decimal("1e9")), 0, ""),
        ("text.pkl", dict("Vnan\n"), 0, ""),
        ("objects.pkl", dict(&objects), 1, "1 NaN of 4 elements, first at [1, 0]"),
        ("sound.pkl", dict(&sound), 0, ""),
        ("array.pkl", dict(opaque), 3, "not checked for NaN and infinity: 1 value"),
    ] {
        let file = text(&folder.with(name, bytes.as_bytes()));
        run(["verify", &file]).ok();
        let verified = run(["verify", "--finite", &file]);
        assert_eq!(verified.code, Some(code), "{name}: {}{}", verified.out, verified.err);
        assert!(verified.out.contains(expected), "{name}: {}", verified.out);
        let stats = run(["stats", &file, "--fail-on", "nan", "--fail-on", "inf"]);
        assert_eq!(stats.code, Some(code), "{name}: {}{}", stats.out, stats.err);
    }
    let file = text(&folder.with("objects.npy", &npy));
    assert_eq!(run(["verify", "--finite", &file]).code, Some(1));
    let json = run(["verify", "--json", &file]).json();
    assert_eq!(json["not_finite_values"][0]["first"], serde_json::json!([1, 0]), "{json}");
}

#[test]
fn counts_packed_parameters_with_the_config_everywhere() {
    let all = ["ct", "gptq_bare", "mlx"].map(|name| report(&format!("quant_counts/{name}")));
    for folder in &all {
        let json = run(["info", "--json", folder]).json();
        assert_eq!(json["model_parameters"], 2080, "{folder}");
        let facts = json["model"]["facts"].as_array().unwrap();
        let fact = facts.iter().find(|fact| fact["name"] == "parameters").unwrap();
        assert_eq!(fact["value"], 2080, "{folder}");
        let summary = run(["summary", folder, "--to", "json"]).json();
        assert_eq!(summary["totals"]["model_parameters"], 2080, "{folder}");
    }
    // Several files have the fields of one.
    let several = run(["info", "--json", &all[0], &all[1]]).json();
    for (at, folder) in all.iter().take(2).enumerate() {
        let mut one = run(["info", "--json", folder]).json();
        let mut of_several = several["checkpoints"][at].clone();
        one.as_object_mut().unwrap().remove("statelens");
        of_several.as_object_mut().unwrap().remove("path");
        assert_eq!(one, of_several, "{folder}");
    }
    run(["info", "--model", &all[0], &all[1]]).failed();
}

/// The optimizers of two files number the parameters differently.
#[test]
fn compares_optimizer_states_by_number_only_if_it_says_so() {
    let (one, two) =
        (report("diff_optimizer_groups/one.pt"), report("diff_optimizer_groups/two.pt"));
    for args in [["diff", &one, &two], ["diff", &two, &one]] {
        let ran = run(args);
        assert_eq!(ran.code, Some(1));
        assert!(!ran.out.contains("of `model.1.weight`: shape"), "{}", ran.out);
        assert!(ran.out.contains("compared by their numbers"), "{}", ran.out);
    }
    assert!(!run(["diff", &one, &one]).ok().contains("numbers"));
}

#[test]
fn keeps_the_newest_checkpoint_of_a_restarted_run() {
    let folder = Folder::new();
    let source = fs::read(fixture("safetensors/f4.safetensors")).unwrap();
    let age = |name: &str, hours: u64| {
        fs::create_dir_all(folder.file(name)).unwrap();
        let path = folder.with(&format!("{name}/model.safetensors"), &source);
        let time = SystemTime::now() - Duration::from_secs(hours * 3600);
        fs::OpenOptions::new().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    for (name, hours) in [
        ("checkpoint-500", 30),
        ("checkpoint-600", 29),
        ("checkpoint-700", 28),
        ("checkpoint-100", 1),
        ("tmp-checkpoint-200", 0),
    ] {
        age(name, hours);
    }
    let here = text(&folder.file("."));
    let out = run(["prune", &here, "--keep", "1"]).ok();
    assert!(!out.contains("would remove  checkpoint-100"), "{out}");
    assert!(out.contains("would remove  checkpoint-600"), "{out}");
    assert!(out.contains("a new run may have been started"), "{out}");
    let runs = run(["runs", &here]).ok();
    assert!(runs.contains("tmp-checkpoint-200") && runs.contains("temporary"), "{runs}");
    let ran = run(["latest", &here]);
    assert!(
        ran.out.contains("checkpoint-700") && ran.err.contains("checkpoint-100"),
        "{}",
        ran.err
    );
    assert_eq!(run(["runs", "--json", &here]).json()["newer_by_time"][0], "checkpoint-100");
}

/// The interop tests run the code of all fixtures.
#[test]
fn code_names_what_the_library_finds() {
    let code = |file: &str, key: &str| run(["show", &text(&fixture(file)), key, "--code"]);
    for (file, key, expected) in [
        // Compressed records can't be mapped.
        ("torch_crafted/deflated.pt", "f", "weights_only=True)\n"),
        // An opcode that `weights_only` refuses.
        ("torch/zip_cyclic.pt", "w", "np.memmap("),
        // Any file of a bundle opens all of it.
        ("tf/saver_v2_basic/checkpoint", "layer1/kernel", "/model.ckpt-200\")"),
        ("tf/merged/m.data-00000-of-00002", "w1", "/merged/m\")"),
        ("hdf5/vlen_e.h5", "vi.3", "file[\"vi\"][3]"),
        ("hdf5/filter_lz4_e.h5", "x", "import hdf5plugin"),
        // The library follows the link in the file that was opened.
        ("reports/h5_links/outer.h5", "linked", "outer.h5\", \"r\")"),
        ("safetensors/save_model_tied.safetensors", "b.weight", "get_tensor(\"a.weight\")"),
    ] {
        let code = code(file, key).ok();
        assert!(code.contains(expected), "{file}: {code}");
    }
    // h5py does not have the dtype; torch refuses the archive, whose only tensor is compressed.
    for (file, key) in
        [("reports/h5_void_npz/i24.h5", "x"), ("reports/pt_packed/rezip_flat.pt", "w")]
    {
        let error = code(file, key).failed();
        assert!(error.contains("no known library reads"), "{file}: {error}");
    }
    // The file of an element in another folder.
    let outer = text(&fixture("reports/h5_links/outer.h5"));
    let mapped = run(["show", &outer, "raw", "--code=numpy.memmap"]).ok();
    assert!(mapped.contains("/below/raw.bin\""), "{mapped}");
}

#[test]
fn code_reads_what_the_library_can_read() {
    let code = |file: &str, key: &str| run(["show", &report(file), key, "--code"]);
    for (file, key) in [("show_code/tensorlayer.npz", "params.1"), ("show_code/dict.npy", "0.bias")]
    {
        let ran = code(file, key);
        assert!(!ran.out.contains("np.load"), "{file}: {}", ran.out);
        assert!(
            ran.code == Some(2) || ran.out.contains("memmap"),
            "{file}: {}{}",
            ran.out,
            ran.err
        );
    }
    for (file, key) in
        [("show_code/train.pth", "model.0.weight"), ("show_code/posix.pt", "model.w")]
    {
        let out = code(file, key).ok();
        assert!(out.contains("np.memmap") && !out.contains("torch.load"), "{file}: {out}");
    }
}
