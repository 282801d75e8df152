//! `statelens diff` and `info --states`.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

use crate::common::{Folder, Ran, fixture, run};

fn diff(left: &Path, right: &Path, more: &[&str]) -> Ran {
    let paths = [left, right].map(|path| path.to_string_lossy().into_owned());
    let mut args = vec!["diff", &paths[0], &paths[1]];
    args.extend(more);
    run(args)
}

#[test]
fn lists_states_with_their_sizes() {
    let file = fixture("cerebras/v2.10.0/gpt_small.mdl").to_string_lossy().into_owned();
    let table = run(["info", "--states", &file]).ok();
    assert!(table.lines().nth(1).unwrap().starts_with("model "), "{table}");
    let json = run(["info", "--states", "--json", &file]).json();
    let states = json["states"].as_array().unwrap();
    let named = |name: &str| states.iter().find(|state| state["state"] == name).unwrap();
    assert_eq!(named("model")["elements"], 32_192);
    assert_eq!(named("model")["bytes"], 128_768);
    assert_eq!(named("global_step")["leaves"], 1);
    assert_eq!(named("global_step")["tensors"], 0);
    // The listed states are those that `convert --states` accepts, even in files without nesting.
    for (file, expected) in [
        ("hf_sharded_safetensors/model.safetensors.index.json", &["model"][..]),
        ("tf/tf2_checkpoint/ckpt-1.index", &["_CHECKPOINTABLE_OBJECT_GRAPH", "mod", "model"]),
    ] {
        let listed = run(["info", "--states", "--json", &fixture(file).to_string_lossy()]).json();
        let listed = listed["states"].as_array().unwrap().iter().map(|state| &state["state"]);
        let listed: Vec<_> = listed.take(expected.len()).collect();
        assert_eq!(listed, expected, "{file}");
    }
    let error = run(["info", "--states", "no such file"]).failed();
    assert!(error.contains("no such file"), "{error}");
}

#[test]
fn same_state_in_two_formats_matches() {
    let (mdl, pt) =
        (fixture("cerebras/v2.10.0/gpt_small.mdl"), fixture("cerebras/v2.10.0/gpt_small.pt"));
    for more in [&[][..], &["--op", "allclose"], &["--select", "model.*"]] {
        let printed = diff(&mdl, &pt, more).ok();
        assert!(printed.starts_with("the checkpoints match"), "{printed}");
    }
    assert_eq!(diff(&mdl, &pt, &["--json"]).json()["matches"], true);
}

#[test]
fn differences_are_listed_with_exit_status_1() {
    let before = fixture("cerebras/compat/synthetic_1.7.mdl");
    let after = fixture("cerebras/compat/synthetic_1.7_fixed.mdl");
    let ran = diff(&before, &after, &[]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""));
    assert!(ran.out.contains("lr_scheduler.last_epoch"), "{}", ran.out);
    assert!(ran.out.contains("value: 24 / 25"), "{}", ran.out);
    let ran = diff(&before, &after, &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["differences"].as_array().unwrap().len(), 6);
    let more =
        &["--exclude", "lr_scheduler*", "--exclude", "model.ln_f*", "--exclude", "model.emb*"];
    diff(&before, &after, more).ok();
}

#[test]
fn tolerance_accepts_rounding() {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0/gpt_small.mdl");
    let rounded = folder.file("bf16.pt");
    let paths = [&source, &rounded].map(|path| path.to_string_lossy().into_owned());
    run(["convert", &paths[0], &paths[1], "--cast", "bf16"]).ok();
    let first = |more: &[&str]| {
        let ran = diff(&source, &rounded, more);
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        json["differences"][0].clone()
    };
    let at_once = first(&["--json"]);
    assert_eq!((&at_once["what"], &at_once["precision"]), (&"dtype".into(), &"bfloat16".into()));
    assert_eq!(at_once["values"], "equal at bfloat16 precision", "{at_once}");
    assert!(at_once["max_abs"].as_f64().unwrap() > 0.0, "{at_once}");
    let found = first(&["--json", "--ignore-dtype"]);
    assert_eq!(found["what"], "elements");
    // Eight bits of precision: half a unit in the last place.
    assert!(found["max_rel"].as_f64().unwrap() <= 1.0 / 256.0, "{found}");
    assert!(found["cosine"].as_f64().unwrap() > 0.9999, "{found}");
    let close = ["--ignore-dtype", "--op", "allclose", "--rtol", "0.004"];
    let printed = diff(&source, &rounded, &close).ok();
    assert!(printed.contains("within the tolerance only"), "{printed}");
}

#[test]
fn reports_inputs_that_cannot_be_compared() {
    let folder = Folder::new();
    let source = fixture("cerebras/v2.10.0/seed.mdl");
    let error = diff(&source, Path::new("no such file"), &[]).failed();
    assert!(error.contains("no such file"), "{error}");
    let error = diff(&source, folder.path(), &[]).failed();
    assert!(error.contains("folder"), "{error}");
    let text = folder.with("notes.txt", b"no checkpoint");
    let error = diff(&text, &source, &[]).failed();
    assert!(error.contains("notes.txt"), "{error}");
    let error = diff(&source, &source, &["--select", "nothing"]).failed();
    assert!(error.contains("nothing"), "{error}");
    let wrong = diff(&source, &source, &["--rtol", "-1"]);
    assert_eq!(wrong.code, Some(2));
}

#[test]
fn structure_option_compares_classes_and_ties() {
    let folder = Folder::new();
    // Both hold the same state, including tied weights.
    for name in ["gpt_small", "tied"] {
        let [mdl, pt] = ["mdl", "pt"].map(|end| fixture(&format!("cerebras/v2.10.0/{name}.{end}")));
        diff(&mdl, &pt, &["--structure"]).ok();
    }
    let old = fixture("cerebras/compat/synthetic_1.7_fixed.mdl");
    let new = folder.file("new.mdl");
    let paths = [&old, &new].map(|path| path.to_string_lossy().into_owned());
    run(["upgrade", &paths[0], "-o", &paths[1]]).ok();
    diff(&old, &new, &["--structure"]).ok();
    // A list instead of a tuple, and an ordered dict instead of a plain one.
    let before = folder.with("before.pkl", b"\x80\x02}(U\x01a(K\x01K\x02tU\x01b}U\x01cK\x03su.");
    let after = folder.with(
        "after.pkl",
        b"\x80\x02}(U\x01a](K\x01K\x02eU\x01bccollections\nOrderedDict\n)RU\x01cK\x03su.",
    );
    diff(&before, &after, &[]).ok();
    let ran = diff(&before, &after, &["--structure"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("container: type: tuple / list"), "{}", ran.out);
    assert!(ran.out.contains("container: type: dict / collections.OrderedDict"), "{}", ran.out);
    // Tied weights, and separate copies as in a format without links.
    let tied = fixture("cerebras/v2.10.0/tied.pt");
    let apart = folder.file("apart.npz");
    let paths = [&tied, &apart].map(|path| path.to_string_lossy().into_owned());
    run(["convert", &paths[0], &paths[1], "--lossy"]);
    let ran = diff(&tied, &apart, &["--structure", "--ignore-type"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("tie: value: tied to `"), "{}", ran.out);
}

#[test]
fn types_of_keys_and_of_empty_values_are_compared() {
    let folder = Folder::new();
    let gguf = |kind: &[u8], value: &[u8]| {
        let head = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0k";
        [&head[..], kind, b"\0\0\0", value].concat()
    };
    let pickled = |value: &[u8]| [b"\x80\x02}U\x01a", value, b"s."].concat();
    let deque = |len: u8| pickled(&[b"ccollections\ndeque\n)K", &[len][..], b"\x86R"].concat());
    let factory = |of: &str| {
        let call = format!("ccollections\ndefaultdict\nc__builtin__\n{of}\n");
        pickled(&[call.as_bytes(), b"\x85R"].concat())
    };
    let pairs = [
        ("pkl", pickled(b"}K\x01K\x03s"), pickled(b"}U\x011K\x03s")),
        ("pkl", pickled(b"}NK\x03s"), pickled(b"}U\x04NoneK\x03s")),
        ("pkl", pickled(b"}K\x01}s"), pickled(b"}U\x011}s")),
        ("pkl", deque(3), deque(4)),
        ("pkl", factory("list"), factory("int")),
        ("gguf", gguf(b"\0", b"\x05"), gguf(b"\x04", b"\x05\0\0\0")),
        ("gguf", gguf(b"\x06", &0.5f32.to_le_bytes()), gguf(b"\x0c", &0.5f64.to_le_bytes())),
        ("msgpack", b"\x81\xa1w\xc7\x01\x09a".to_vec(), b"\x81\xa1w\xc7\x01\x09b".to_vec()),
    ];
    for (at, (end, one, other)) in pairs.iter().enumerate() {
        let [one, other] = [(1, one), (2, other)]
            .map(|(side, bytes)| folder.with(&format!("{at}-{side}.{end}"), bytes));
        diff(&one, &one, &["--structure"]).ok();
        for options in [&[][..], &["--structure"]] {
            let ran = diff(&one, &other, options);
            assert_eq!(ran.code, Some(1), "pair {at}: {}{}", ran.out, ran.err);
        }
        // A manifest in text form has no types.
        let manifest = folder.file(&format!("{at}.json"));
        let manifest = manifest.to_str().unwrap();
        let made = run(["manifest", one.to_str().unwrap(), "-o", manifest]);
        // An extension that can't be read is missing from the manifest.
        assert_eq!(made.code, Some(i32::from(*end == "msgpack")), "{}", made.err);
        let verify = |path: &Path, manifest: &str| {
            run(["verify", path.to_str().unwrap(), "--manifest", manifest])
        };
        let ran = verify(&other, manifest);
        assert_eq!(ran.code, Some(1), "pair {at}: {}{}", ran.out, ran.err);
        // An extension of MessagePack is a finding.
        if *end != "msgpack" {
            assert!(ran.out.contains("its types differ"), "{}", ran.out);
            verify(&one, manifest).ok();
            // Earlier manifests do not have the types.
            let text = std::fs::read_to_string(manifest).unwrap();
            let (head, rest) = text.split_once(",\"types\"").unwrap();
            let old = format!("{head}{}", &rest[rest.find('}').unwrap()..]);
            let before = folder.with(&format!("{at}-old.json"), old.as_bytes());
            verify(&one, before.to_str().unwrap()).ok();
        }
    }
    // A tuple in a set, and its only item.
    let tuple = folder.with("tuple.pkl", &pickled(b"\x8f(U\x01q\x85\x90"));
    let item = folder.with("item.pkl", &pickled(b"\x8f(U\x01q\x90"));
    assert_eq!(diff(&tuple, &item, &[]).code, Some(1));
    // Different nesting and item types below one flat key.
    let nested = folder.with("nested.pkl", b"\x80\x02}U\x01a}U\x01bK\x03ss.");
    let flat = folder.with("flat.pkl", b"\x80\x02}U\x03a.bK\x03s.");
    diff(&nested, &flat, &[]).ok();
    assert_eq!(diff(&nested, &flat, &["--structure"]).code, Some(1));
}

/// The hour that occurs twice when clocks are set back: pickled as the top bit of the month.
#[test]
fn the_fold_of_times_is_compared() {
    let folder = Folder::new();
    let file = |name: &str, month: u8| {
        let packed = [0x07, 0xe4, month, 25, 2, 30, 0, 0, 0, 0];
        let call = b"\x80\x03cdatetime\ndatetime\nC\x0a";
        folder.with(name, &[&call[..], &packed, b"\x85R."].concat())
    };
    let [first, second] = [file("first.pkl", 10), file("second.pkl", 10 | 0x80)];
    let ran = diff(&first, &second, &[]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("datetime.datetime(2020, 10, 25, 2, 30, fold=1)"), "{}", ran.out);
}

#[test]
fn reports_nan_on_one_side_only() {
    let folder = Folder::new();
    let file = |name: &str, values: [f32; 2]| {
        let header = br#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        folder.with(name, &bytes)
    };
    let (left, right) = (file("a.safetensors", [1.0, 2.0]), file("b.safetensors", [1.0, f32::NAN]));
    let ran = diff(&left, &right, &[]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""));
    assert!(ran.out.contains("NaN: 1 element is NaN on one side only"), "{}", ran.out);
    assert!(ran.out.contains("max abs, MSE and cosine undefined"), "{}", ran.out);
    let json: serde_json::Value =
        serde_json::from_str(&diff(&left, &right, &["--json"]).out).unwrap();
    let found = &json["differences"][0];
    assert_eq!(found["what"], "nan");
    assert!(found["cosine"].is_null() && found["max_abs"].is_null(), "{found}");
}

#[test]
fn optimizer_differences_name_the_parameter() {
    let folder = Folder::new();
    let (mdl, without) = (fixture("cerebras/v2.10.0/gpt_small.mdl"), folder.file("without.mdl"));
    let [from, to] = [&mdl, &without].map(|path| path.to_string_lossy().into_owned());
    run(["convert", &from, &to, "--exclude", "optimizer.state.4.exp_avg"]).ok();
    // cstorch numbers parameters in the model's order.
    let parameter = "model.model.blocks.0.qkv.weight";
    let ran = diff(&mdl, &without, &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let found = &json["differences"][0];
    assert_eq!((&found["what"], &found["parameter"]), (&"only_left".into(), &parameter.into()));
    assert!(found["right_parameter"].is_null());
    let text = diff(&mdl, &without, &[]).out;
    assert!(text.contains(&format!("of `{parameter}`: only left")), "{text}");
}

/// Texts, sequences and references of HDF5 are compared by what they are, in files of h5py.
#[test]
fn values_in_heaps_are_compared_by_value() {
    let folder = Folder::new();
    let [one, moved, changed, anonymous] =
        ["indirect", "indirect_moved", "indirect_changed", "anonymous"].map(|name| {
            let packed = std::fs::read(fixture(&format!("hdf5/{name}.h5.gz"))).unwrap();
            let mut data = Vec::new();
            flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut data).unwrap();
            folder.with(&format!("{name}.h5"), &data)
        });
    assert!(diff(&one, &moved, &[]).ok().starts_with("the checkpoints match"));
    let ran = diff(&one, &changed, &["--json"]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let differences = json["differences"].as_array().unwrap();
    let keys: BTreeSet<&str> = differences.iter().filter_map(|one| one["key"].as_str()).collect();
    let changed_keys = ["far", "flat", "many", "objects", "records", "regions", "sequences"];
    for key in changed_keys {
        assert!(keys.contains(key), "{key}: {}", ran.out);
    }
    let many = differences.iter().find(|one| one["key"] == "many").unwrap();
    assert_eq!(many["first"], serde_json::json!([11_000]), "{many}");
    let manifest = |path: &Path| run(["manifest", "--json", &path.to_string_lossy()]).json();
    let entries = [&one, &moved, &changed].map(|path| manifest(path)["entries"].clone());
    assert_eq!(entries[0], entries[1]);
    for (one, other) in entries[0].as_array().unwrap().iter().zip(entries[2].as_array().unwrap()) {
        let key = one["key"].as_str().unwrap();
        // The shape of `two` differs, so its keys do.
        if !key.starts_with("two.") {
            assert_eq!(one != other, changed_keys.contains(&key), "{key}");
        }
    }
    let lines = run(["manifest", &one.to_string_lossy()]).ok();
    let lines = folder.with("lines.txt", lines.as_bytes());
    let verify = |path: &Path| {
        run(["verify", &path.to_string_lossy(), "--manifest", &lines.to_string_lossy()])
    };
    assert_eq!((verify(&moved).code, verify(&changed).code), (Some(0), Some(1)));
    // What a reference to an anonymous dataset refers to is not known.
    let ran = diff(&anonymous, &anonymous, &[]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert_eq!(ran.out.matches("can't be compared").count(), 2, "{}", ran.out);
    let verified = run(["verify", &anonymous.to_string_lossy()]);
    assert!(verified.out.contains("1 tensor not read"), "{}{}", verified.out, verified.err);
}
