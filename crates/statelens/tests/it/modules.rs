//! Pickled modules and other objects, compared with what the real torch returns for them. See
//! `tests/fixtures/README.md` for how the files were made.

use std::path::{Path, PathBuf};

use statelens::{Checkpoint, Target, convert, diff, open};
use statelens_checkpoint::{Builder, Dict, FileSet, FormatInfo, Leaf, Limits, Value};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/reports").join(name)
}

fn opened(name: &str) -> Checkpoint {
    open(fixture(name)).unwrap()
}

fn leaves(checkpoint: &Checkpoint) -> Vec<Leaf> {
    checkpoint.inner().leaves()
}

/// Returns the keys that `state_dict()` returns, and those that it leaves out.
fn sorted_keys(checkpoint: &Checkpoint) -> (Vec<String>, Vec<String>) {
    let (outside, state): (Vec<Leaf>, Vec<Leaf>) =
        leaves(checkpoint).into_iter().partition(|leaf| leaf.outside_state);
    let names = |leaves: Vec<Leaf>| leaves.iter().map(|leaf| leaf.flat.to_string()).collect();
    (names(state), names(outside))
}

fn texts(checkpoint: &Checkpoint) -> Vec<String> {
    let inner = checkpoint.inner();
    let line =
        |leaf: &Leaf| format!("{} {}", leaf.flat, statelens_describe::text_of(inner, leaf.target));
    leaves(checkpoint).iter().map(line).collect()
}

#[test]
fn pickled_module_equals_its_state_dict() {
    let scratch = tempfile::tempdir().unwrap();
    for (file, state) in [
        ("zoo.pt", "zoo_state.pt"),
        ("zoo_legacy.pt", "zoo_state.pt"),
        ("zoo.pkl", "zoo_state.pt"),
        ("zoo0.pkl", "zoo_state.pt"),
        ("zoo_dp.pt", "zoo_dp_state.pt"),
    ] {
        let whole = opened(&format!("modules/{file}"));
        let state = opened(&format!("modules/{state}"));
        let expected: Vec<String> = state.keys().collect();
        let (mut keys, outside) = sorted_keys(&whole);
        keys.retain(|key| key != "epoch");
        assert_eq!(keys, expected, "{file}");
        for name in ["first.mask", "plain.0.weight", "none", "gone", "cfg.lr", "training"] {
            let there = outside.iter().any(|key| key == name || key.ends_with(&format!(".{name}")));
            assert!(there, "{file}: {name} in {outside:?}");
        }
        let to = scratch.path().join(format!("{file}.safetensors"));
        let converted = convert(&whole, Target::Safetensors).exclude("epoch").lossy();
        let written = match file {
            "zoo_dp.pt" => converted.write(&to),
            _ => convert(&whole, Target::Safetensors).lossy().write(&to),
        };
        let written = written.unwrap();
        let reported_loss =
            written.losses.iter().any(|loss| loss.keys.iter().any(|key| key.ends_with("cfg.lr")));
        assert!(reported_loss, "{file}");
        let again = open(&to).unwrap();
        let mut found: Vec<String> = again.keys().collect();
        let mut wanted = expected.clone();
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted, "{file}");
        assert!(diff(&state, &again).unwrap().matches(), "{file}");
    }
}

#[test]
fn module_used_twice_is_tied() {
    let whole = opened("modules/zoo.pt");
    let leaves = leaves(&whole);
    let alias = |key: &str| leaves.iter().find(|leaf| leaf.flat == key).unwrap().alias_of.clone();
    assert_eq!(alias("again.lin.weight").unwrap(), "first.lin.weight");
    assert_eq!(alias("head.weight").unwrap(), "first.lin.weight");
    assert_eq!(alias("first.lin.weight"), None);
}

#[test]
fn exponentially_shared_modules_are_bounded() {
    // Each module holds the next one twice: written out, 2^60 names.
    let mut pickle = b"\x80\x02".to_vec();
    let depth = 60;
    let dict = |pickle: &mut Vec<u8>, name: &str| {
        pickle.push(b'U');
        pickle.push(name.len() as u8);
        pickle.extend(name.as_bytes());
    };
    for level in 0..depth {
        pickle.extend(b"cnet\nBlock\n)\x81}(");
        dict(&mut pickle, "_parameters");
        pickle.extend(b"}");
        dict(&mut pickle, "_buffers");
        pickle.extend(b"}");
        dict(&mut pickle, "_modules");
        pickle.extend(b"}(");
        dict(&mut pickle, "a");
        if level + 1 == depth {
            pickle.extend(b"N");
        }
    }
    for level in (0..depth).rev() {
        // The inner module is memoised, and referenced here a second time.
        let number = (depth - level) as u8;
        if level + 1 < depth {
            pickle.extend([b'q', number]);
            dict(&mut pickle, "b");
            pickle.extend([b'h', number]);
        }
        pickle.extend(b"uub");
    }
    pickle.push(b'.');
    let files = FileSet::single("bomb.pkl", statelens_checkpoint::Memory::from(pickle));
    let limits = Limits::default();
    let opened = statelens_formats::open(files, &limits, &mut statelens_checkpoint::Unwatched);
    assert!(opened.unwrap().values().len() < 1 << 22);
}

#[test]
fn nested_and_stylegan_modules_become_state_dicts() {
    let (keys, outside) = sorted_keys(&opened("modules/best.pt"));
    let model: Vec<&str> = keys.iter().filter_map(|key| key.strip_prefix("model.")).collect();
    assert_eq!(
        model,
        [
            "tied",
            "model.0.weight",
            "model.0.bias",
            "model.1.weight",
            "model.1.bias",
            "model.1.running_mean",
            "model.1.running_var",
            "model.1.num_batches_tracked",
            "model.2.anchors",
            "model.2.m.0.weight",
            "model.2.m.0.bias",
            "model.2.m.1.weight",
            "model.2.m.1.bias",
        ]
    );
    for key in ["model.model.2.grid", "model.model.2.stride", "model.yaml.nc", "model.none"] {
        assert!(outside.iter().any(|name| name == key), "{key}");
    }
    let (keys, outside) = sorted_keys(&opened("modules/network.pkl"));
    assert_eq!(
        keys,
        [
            "G.noise",
            "G.conv.weight",
            "G.conv.bias",
            "G.conv.noise",
            "D",
            "G_ema.noise",
            "G_ema.conv.weight",
            "G_ema.conv.bias",
            "G_ema.conv.noise",
            "training_set_kwargs.path",
        ]
    );
    assert!(outside.iter().any(|name| name == "G.z_dim"));
}

#[test]
fn edits_apply_inside_modules() {
    let scratch = tempfile::tempdir().unwrap();
    let best = opened("modules/best.pt");
    let to = |name: &str| scratch.path().join(name);
    let keys = |path: &Path| -> Vec<String> { open(path).unwrap().keys().collect() };
    let target = || convert(&best, Target::Safetensors).lossy();
    target().select("model.*weight").write(to("select.safetensors")).unwrap();
    let mut found = keys(&to("select.safetensors"));
    found.sort();
    assert_eq!(
        found,
        [
            "model.model.0.weight",
            "model.model.1.weight",
            "model.model.2.m.0.weight",
            "model.model.2.m.1.weight"
        ]
    );
    target()
        .select("model.*")
        .exclude("*anchors")
        .strip_prefix("model.")
        .rename("^model\\.", "net.")
        .prefix("x.")
        .write(to("names.safetensors"))
        .unwrap();
    let found = keys(&to("names.safetensors"));
    assert_eq!(found.len(), 12, "{found:?}");
    assert!(found.iter().all(|key| key == "x.tied" || key.starts_with("x.net.")), "{found:?}");
    // An attribute is written if it is selected explicitly; renaming it is refused.
    target().select("*stride").write(to("stride.safetensors")).unwrap();
    assert_eq!(keys(&to("stride.safetensors")), ["model.model.2.stride"]);
    let refused = target().rename("stride", "step").plan("x.safetensors").unwrap_err();
    assert!(refused.to_string().contains("outside the state dict"), "{refused}");
}

#[test]
fn diff_finds_a_changed_field() {
    for (name, key) in [
        ("training_args_%.bin", "learning_rate"),
        ("objs_%.pt", "cfg.lr"),
        ("opt_%.pt", "param_groups.0.lr"),
        ("net_%.pt", "0.p"),
    ] {
        let [one, two] =
            ["a", "b"].map(|side| opened(&format!("objects/{}", name.replace('%', side))));
        assert!(!diff(&one, &two).unwrap().matches(), "{name}");
        let texts = [texts(&one), texts(&two)];
        let differing: Vec<&String> = texts[0]
            .iter()
            .zip(&texts[1])
            .filter(|(one, two)| one != two)
            .map(|(one, _)| one)
            .collect();
        assert!(differing.iter().any(|text| text.starts_with(key)), "{name}: {differing:?}");
    }
    let texts = texts(&opened("objects/objs_a.pt"));
    for text in [
        "cfg.__class__ lib.cfg.Cfg",
        "cfg.nested.lr 0.1",
        "slots.a 0.1",
        "slots.b 'two'",
        "state.state.0 0.1",
        "sub.k 1",
        "sub.extra 0.1",
        "lst.0 1",
        "lst.extra 0.1",
    ] {
        assert!(texts.iter().any(|line| line == text), "{text} in {texts:#?}");
    }
}

#[test]
fn keys_of_different_types_get_distinct_names() {
    let mut builder = Builder::new(&Limits::default());
    let one = builder.push(Value::Int(1i64.into())).unwrap();
    let two = builder.push(Value::Int(2i64.into())).unwrap();
    let entries = vec![(statelens_checkpoint::DictKey::Int(1i64.into()), one), ("1".into(), two)];
    let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap();
    let checkpoint =
        builder.finish(root, FormatInfo::default(), FileSet::default(), vec![]).unwrap();
    let names: Vec<String> = checkpoint.leaves().iter().map(|leaf| leaf.flat.to_string()).collect();
    assert_eq!(names, ["1", "'1'"]);
    let edit = statelens_convert::Edit {
        exclude: vec![statelens_convert::Pattern::parse("1").unwrap()],
        ..statelens_convert::Edit::default()
    };
    let left = edit.apply(&checkpoint).unwrap();
    let Value::Dict(left) = left.value(left.root()) else { panic!() };
    let keys: Vec<_> = left.entries.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(keys, ["1".into()]);
}

#[test]
fn object_and_masked_arrays_are_compared_by_value() {
    let [one, two] = ["a", "b"].map(|side| opened(&format!("objects/arrays_{side}.pkl")));
    let found = diff(&one, &two).unwrap();
    let places: Vec<(String, String)> = found
        .differences
        .iter()
        .map(|difference| (difference.key.to_string(), difference.part.clone()))
        .collect();
    let text = |key: &str, part: &str| (key.to_owned(), part.to_owned());
    assert_eq!(
        places,
        [
            text("masked.data", ""),
            text("flipped.mask", ""),
            text("objects", "[1]"),
            text("nested.0.k", ""),
            text("strings", "[1]"),
            text("na", "[2]"),
        ]
    );
    // The one-line text is shortened, but the manifest has a hash of the whole value.
    let lines = |checkpoint: &Checkpoint| {
        let mut lines = String::new();
        let inner = checkpoint.inner();
        let progress = &mut statelens_checkpoint::Unwatched;
        statelens_describe::write_manifest_lines(inner, &inner.leaves(), progress, &mut |line| {
            lines.push_str(line);
            Ok(())
        })
        .unwrap();
        lines
    };
    for name in ["arrays_%.pkl", "strings_%.npy"] {
        let [one, two] =
            ["a", "b"].map(|side| lines(&opened(&format!("objects/{}", name.replace('%', side)))));
        for key in ["masked.data", "flipped.mask", "objects", "nested.0.k", "strings", "na"] {
            let of = |lines: &str| {
                lines.lines().find(|line| line.ends_with(&format!("\t{key}"))).map(str::to_owned)
            };
            assert!(name.ends_with("npy") || of(&one).is_some() && of(&one) != of(&two), "{key}");
        }
        assert_ne!(one, two, "{name}");
    }
    let values = one.tensor("masked.data").unwrap().read::<f64>().unwrap();
    assert_eq!(values, [1.5, 2.0, 3.0, 4.0]);
    assert_eq!(one.tensor("masked.mask").unwrap().bytes().unwrap(), [0, 1, 0, 0]);
}

#[test]
fn reads_an_unpacked_checkpoint_folder() {
    let unpacked = opened("unpacked");
    let packed = opened("unpacked.pt");
    assert!(diff(&packed, &unpacked).unwrap().matches());
    assert!(unpacked.verify().unwrap().sound());
    assert_eq!(unpacked.format().name, "PyTorch, unpacked");
}

#[test]
fn truncated_file_opens_with_its_complete_tensors() {
    let bytes = std::fs::read(fixture("cut.pt")).unwrap();
    let whole = opened("cut.pt");
    let legacy = std::fs::read(fixture("cut_legacy.pt")).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    // Ten storages of 1600 bytes.
    for (bytes, percent, expected) in [
        (&bytes, 30, 2),
        (&bytes, 60, 6),
        (&bytes, 90, 9),
        (&bytes, 99, 10),
        (&legacy, 60, 5),
        (&legacy, 95, 9),
    ] {
        let path = scratch.path().join("cut.pt");
        std::fs::write(&path, &bytes[..bytes.len() * percent / 100]).unwrap();
        let cut = open(&path).unwrap();
        let finding =
            cut.findings().iter().find(|finding| finding.title == "The file is cut short");
        assert!(finding.is_some(), "{percent} %: {:?}", cut.findings());
        let mut there = 0;
        for tensor in whole.tensors() {
            let own = cut.tensor(tensor.key()).unwrap();
            if statelens_values::missing(own.inner()).is_none() {
                assert_eq!(own.bytes().unwrap(), tensor.bytes().unwrap(), "{}", tensor.key());
                there += 1;
            }
        }
        assert_eq!(there, expected, "{percent} % of {} bytes", bytes.len());
        assert!(!cut.verify().unwrap().sound());
        // Complete tensors are converted, and the others reported.
        let plan = convert(&cut, Target::Numpy).plan("cut.npz").unwrap();
        let reported_loss =
            plan.losses.iter().find(|loss| loss.what == "tensors without data are left out");
        assert_eq!(reported_loss.map_or(0, |loss| loss.keys.len()), 10 - expected, "{percent} %");
    }
}

#[test]
fn reports_unused_storage() {
    let finding = |name: &str| {
        let checkpoint = opened(name);
        let reported_loss = |title: &&str| title.contains(" unused: ");
        checkpoint
            .findings()
            .iter()
            .map(|finding| &*finding.title)
            .find(reported_loss)
            .map(str::to_owned)
    };
    for (name, unused, used) in [
        ("slice.pt", "80.0 kB", "40 bytes"),
        ("slice_legacy.pt", "80.0 kB", "40 bytes"),
        ("column.pt", "79.6 kB", "404 bytes"),
    ] {
        let title = finding(&format!("storage/{name}")).unwrap();
        let expected =
            format!("{unused} of 80.0 kB unused: the tensors use {used} of their storages");
        assert_eq!(title, expected, "{name}");
    }
    assert_eq!(finding("storage/clone.pt"), None);
}

#[test]
fn untie_duplicates_a_shared_dict() {
    let whole = opened("modules/shared.pt");
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("untied.safetensors");
    convert(&whole, Target::Safetensors).untie().lossy().write(&path).unwrap();
    let mut keys: Vec<String> = open(&path).unwrap().keys().collect();
    keys.sort();
    assert_eq!(keys, ["a.w", "b.w", "c.0.w"]);
}

#[test]
fn keras_layers_keep_the_order_of_the_file() {
    let keys = |name: &str| -> Vec<String> { opened(&format!("keras/{name}.h5")).keys().collect() };
    let nested = keys("nested_names");
    assert_eq!(
        nested,
        [
            "conv1.conv1.kernel:0",
            "conv1.conv1.bias:0",
            "conv1.bn.conv1.bn.gamma:0",
            "conv1.bn.conv1.bn.moving_mean:0"
        ]
    );
    let numbered = keys("keras0_nb_layers");
    let layers = [0, 2, 4, 6, 8, 10];
    let expected: Vec<String> =
        layers.iter().flat_map(|at| [0, 1].map(|of| format!("layer_{at}.param_{of}"))).collect();
    assert_eq!(numbered, expected);
}

#[test]
fn integer_and_string_keys_stay_distinct() {
    let flax = opened("mixed_keys.msgpack");
    let names: Vec<String> = leaves(&flax).iter().map(|leaf| leaf.flat.to_string()).collect();
    assert!(names.contains(&"a.0".to_owned()) && names.contains(&"a.'0'".to_owned()), "{names:?}");
    assert!(flax.findings().is_empty(), "{:?}", flax.findings());
}
