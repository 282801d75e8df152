//! Tests sets by name, and real shards.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use statelens_checkpoint::{
    Checkpoint, FileSet, FindingKind, Grade, Layout, Limits, Memory, Result, Text, Unwatched, Value,
};

use super::sort;
use crate::counted::CountedFile;

/// Returns a set of files in memory, the first of them the main file.
fn files(named: &[(&str, &[u8])]) -> FileSet {
    let mut files = FileSet::default();
    for (name, bytes) in named {
        files.push(*name, Arc::new(Memory::from(bytes.to_vec())));
    }
    files
}

fn sorted(names: &[&str]) -> Vec<(String, String, usize)> {
    let named: Vec<(&str, &[u8])> = names.iter().map(|name| (*name, &b""[..])).collect();
    let found = sort(&files(&named));
    found.into_iter().map(|found| (found.name, found.main, found.members.len())).collect()
}

fn row(name: &str, main: &str, members: usize) -> (String, String, usize) {
    (name.into(), main.into(), members)
}

#[test]
fn groups_names_into_sets() {
    assert_eq!(
        sorted(&[
            "m/config.json",
            "m/model-00002-of-00002.safetensors",
            "m/model.safetensors.index.json",
            "m/model-00001-of-00002.safetensors",
            "m/pytorch_model_00001-of-00003.bin",
            "m/pytorch_model_00003-of-00003.bin",
            "m/model.fp16-00001-of-00001.safetensors",
            "m/model.safetensors.index.fp16.json",
        ]),
        [
            row("model.fp16.safetensors", "m/model.safetensors.index.fp16.json", 2),
            row("model.safetensors", "m/model.safetensors.index.json", 3),
            row("pytorch_model.bin", "m/pytorch_model_00001-of-00003.bin", 2),
        ]
    );
    assert_eq!(
        sorted(&[
            "run/checkpoint",
            "run/model-10.index",
            "run/model-10.data-00000-of-00002",
            "run/model-10.data-00001-of-00002",
            "run/model-10.meta",
            "saved/saved_model.pb",
            "saved/variables/variables.index",
            "saved/variables/variables.data-00000-of-00001",
            "alone.index",
        ]),
        [
            row("model-10", "run/model-10.index", 5),
            row("saved", "saved/variables/variables.index", 3)
        ]
    );
    assert_eq!(
        sorted(&[
            "v1/checkpoint",
            "v1/old-00000-of-00003",
            "v1/old-00001-of-00003",
            "v1/old-00001-of-00004",
            "v1/old-1-of-00003",
            "m.data-00000-of-00001",
        ]),
        // Opening the second reports the missing index.
        [
            row("old", "v1/old-00000-of-00003", 3),
            row("m.data-00000-of-00001", "m.data-00000-of-00001", 1),
        ]
    );
    assert_eq!(
        sorted(&["step/.metadata", "step/__0_0.distcp", "step/__1_0.distcp", "step/notes.txt"]),
        [row("step", "step/.metadata", 3)]
    );
    // Opening the first reports the missing metadata.
    assert_eq!(
        sorted(&["step/__0_0.distcp", "step/__1_0.distcp", "step/notes.txt"]),
        [row("step", "step/__0_0.distcp", 2)]
    );
    assert_eq!(
        sorted(&["k.weights.json", "k_00000.weights.h5", "k_00001.weights.h5", "k_x.weights.h5"]),
        [row("k", "k.weights.json", 3)]
    );
}

#[test]
fn recognises_single_files_by_content() {
    let zip = b"PK\x03\x04 and so on";
    let found = sort(&files(&[("a/b.bin", zip), ("readme.md", b"# PK"), ("c.txt", zip)]));
    let mains: Vec<&str> = found.iter().map(|found| found.main.as_str()).collect();
    assert_eq!(mains, ["a/b.bin", "c.txt"]);
    assert_eq!(found[0].name, "b.bin");
}

/// Returns a pickle of protocol 2 of `{key: number}`, the smallest possible shard.
fn pickle(entries: &[(&str, u8)]) -> Vec<u8> {
    let mut bytes = b"\x80\x02}(".to_vec();
    for (key, number) in entries {
        bytes.extend([b'X', key.len() as u8, 0, 0, 0]);
        bytes.extend(key.as_bytes());
        bytes.extend([b'K', *number]);
    }
    bytes.extend(b"u.");
    bytes
}

fn open(files: FileSet) -> Result<Checkpoint> {
    crate::open(files, &Limits::default(), &mut Unwatched)
}

fn keys(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.leaves().iter().map(|leaf| leaf.flat.to_string()).collect()
}

const INDEX: &str = r#"{"metadata": {"total_size": 12}, "weight_map": {
    "c": "x-00002-of-00002.bin", "a": "x-00001-of-00002.bin", "b": "x-00001-of-00002.bin"}}"#;

#[test]
fn index_determines_the_order_of_keys() {
    let (one, two) = (pickle(&[("a", 1), ("b", 2)]), pickle(&[("d", 4), ("c", 3)]));
    let all: [(&str, &[u8]); 3] = [
        ("x.bin.index.json", INDEX.as_bytes()),
        ("x-00002-of-00002.bin", &two),
        ("x-00001-of-00002.bin", &one),
    ];
    for main in 0..3 {
        let mut named = all;
        named.swap(0, main);
        let checkpoint = open(files(&named)).unwrap();
        assert_eq!(keys(&checkpoint), ["c", "a", "b", "d"], "{}", named[0].0);
        assert!(checkpoint.format.facts.contains(&("Index: total_size".into(), "12".into())));
    }
}

#[test]
fn reads_an_index_only_for_files_that_it_may_name() {
    let index = Arc::new(CountedFile::new(INDEX.into()));
    let sorted = |other: &str| {
        let mut files = FileSet::default();
        files.push("x.bin.index.json", index.clone());
        for name in ["x-00001-of-00002.bin", "x-00002-of-00002.bin", "config.json", other] {
            files.push(name, Arc::new(Memory::from(Vec::new())));
        }
        sort(&files)
    };
    assert_eq!(sorted("tokenizer.model")[0].members.len(), 3);
    assert_eq!(index.bytes_read(), 0);
    sorted("extra.bin");
    assert!(index.bytes_read() > 0);
}

#[test]
fn index_may_name_shards_freely() {
    let index = INDEX.replace("x-00002-of-00002", "head").replace("x-00001-of-00002", "body");
    let (one, two) = (pickle(&[("a", 1), ("b", 2)]), pickle(&[("c", 3)]));
    let all: [(&str, &[u8]); 4] = [
        ("f/body.bin", &one),
        ("f/head.bin", &two),
        ("f/x.bin.index.json", index.as_bytes()),
        ("f/other.bin", &two),
    ];
    for main in 0..3 {
        let mut named = all;
        named.swap(0, main);
        assert_eq!(keys(&open(files(&named)).unwrap()), ["c", "a", "b"], "{}", named[0].0);
    }
    let mut named = all;
    named.swap(0, 3);
    assert_eq!(keys(&open(files(&named)).unwrap()), ["c"]);
    // If one is missing, opening another reports it.
    let checkpoint = open(files(&[all[0], all[2]])).unwrap();
    assert_eq!(checkpoint.findings[0].missing, ["f/head.bin"]);

    let found = sort(&files(&all));
    let mains: Vec<(&str, usize)> =
        found.iter().map(|found| (found.main.as_str(), found.members.len())).collect();
    assert_eq!(mains, [("f/x.bin.index.json", 3), ("f/other.bin", 1)]);
}

#[test]
fn joins_gguf_shards_with_metadata_of_the_first() {
    // Written by the gguf package 0.19 with `split_max_tensors=2`. The hashes are of what it reads.
    let sums = [
        ("blk.0.weight", "748fd1215cd7e141ea2182854fb425b288ab124d4c2d0df9c628ace7eb5694ef"),
        ("blk.1.weight", "4adf4c0cd17ef7540b28774c4681bebcff3c2690b428a8fa5499f429c4eaf675"),
        ("blk.2.weight", "ccb5920ebe4062b88223ddf214dbcd9f2894af4f68d95e9eb3328a2cf016c198"),
        ("blk.3.weight", "7b9d72b196cccc5c206816af15c2c1216085edf996d750c3ce3a528fe23ce8b0"),
        ("blk.4.weight", "b3af79e1fd7eea0c33518f6f9974bd01e4f4a1f9436c11547cadc097467e61bf"),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/gguf_split");
    let names = [1, 2, 3].map(|number| format!("model-{number:05}-of-00003.gguf"));
    let parts = names.clone().map(|name| std::fs::read(folder.join(name)).unwrap());
    for main in 0..3 {
        let mut all: Vec<(&str, &[u8])> =
            names.iter().zip(&parts).map(|(name, part)| (name.as_str(), &part[..])).collect();
        all.swap(0, main);
        let checkpoint = open(files(&all)).unwrap();
        assert!(checkpoint.findings.is_empty(), "{:?}", checkpoint.findings);
        let keys = keys(&checkpoint);
        assert!(keys.contains(&"metadata.general.architecture".to_owned()), "{keys:?}");
        let tensors = checkpoint.leaves().into_iter().filter_map(|leaf| {
            let (_, tensor) = checkpoint.tensor_of(leaf.target)?;
            let count = tensor.numel().unwrap();
            let bytes = statelens_tensor::elements(&checkpoint.files, tensor, 0..count).unwrap();
            let sum: String =
                Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            Some((leaf.flat.to_string(), sum))
        });
        let expected: Vec<(String, String)> =
            sums.iter().map(|(key, sum)| (key.to_string(), sum.to_string())).collect();
        assert_eq!(tensors.collect::<Vec<_>>(), expected);
    }
    let checkpoint = open(files(&[(&names[2], &parts[2])])).unwrap();
    assert_eq!(checkpoint.findings[0].missing, names[..2]);
}

/// Compares the numbers in `split.*` with the files that are there.
#[test]
fn reports_gguf_parts_that_contradict_their_set() {
    let names = [1, 2, 3].map(|number| format!("model-{number:05}-of-00003.gguf"));
    let parts = names.clone().map(|name| statelens_fixtures::read(&format!("gguf_split/{name}")));
    let damage = |named: &[(&str, &[u8])]| -> Vec<String> {
        let findings = open(files(named)).unwrap().findings;
        assert!(findings.iter().all(|finding| finding.grade == Grade::Damage), "{findings:?}");
        findings.into_iter().map(|finding| finding.title).collect()
    };
    let all = |bytes: [&[u8]; 3]| damage(&[0, 1, 2].map(|at| (names[at].as_str(), bytes[at])));
    let [one, two, three] = parts.each_ref().map(|part| &part[..]);
    assert!(all([one, two, three]).is_empty());
    // A part under another name.
    assert_eq!(damage(&[("renamed.gguf", two)]), ["This is part 2 of 3 of a split model"]);
    let swapped = all([two, one, three]);
    assert!(swapped[0].contains("says that it is part 2, and its name says 1"), "{swapped:?}");
    // Fewer parts by their names, and another number of tensors.
    let fewer = damage(&[("m-1-of-2.gguf", one), ("m-2-of-2.gguf", two)]);
    assert!(fewer.iter().any(|title| title.contains("there are 3 parts")), "{fewer:?}");
    let key = b"split.tensors.count";
    let at = one.windows(key.len()).position(|window| window == key).unwrap() + key.len() + 4;
    let mut changed = one.to_vec();
    assert_eq!(changed[at], 5);
    changed[at] = 7;
    let wrong = all([&changed, two, three]);
    assert_eq!(wrong, [format!("{} says that the model has 7 tensors, and there are 5", names[0])]);
}

#[test]
fn lists_tensors_of_missing_shards() {
    let one = pickle(&[("a", 1), ("b", 2)]);
    let set = files(&[("f/x-00001-of-00002.bin", &one), ("f/x.bin.index.json", INDEX.as_bytes())]);
    let checkpoint = open(set).unwrap();
    assert_eq!(keys(&checkpoint), ["c", "a", "b"]);
    let finding = &checkpoint.findings[0];
    assert_eq!(finding.grade, Grade::Damage);
    assert_eq!(finding.missing, ["f/x-00002-of-00002.bin"]);
    let leaf = &checkpoint.leaves()[0];
    let (_, tensor) = checkpoint.tensor_of(leaf.target).unwrap();
    assert!(matches!(&tensor.layout, Layout::Missing(why) if why.to_lossy().contains("00002")));
    assert_eq!(tensor.nbytes(), Some(0));

    // Without an index, the names of missing shards follow from the number.
    let checkpoint = open(files(&[("x-00001-of-00003.bin", &one)])).unwrap();
    assert_eq!(checkpoint.findings[0].missing, ["x-00002-of-00003.bin", "x-00003-of-00003.bin"]);
    assert_eq!(keys(&checkpoint), ["a", "b"]);

    // An index without any of its shards is an error.
    let error = open(files(&[("x.bin.index.json", INDEX.as_bytes())])).unwrap_err();
    assert!(error.to_string().contains("x-00002-of-00002.bin"), "{error}");
}

/// A shard whose own reader fails costs only its tensors.
#[test]
fn shards_that_cannot_be_read_count_as_missing() {
    let one = pickle(&[("a", 1), ("b", 2)]);
    let cut = &pickle(&[("c", 3)])[..12];
    let index = ("x.bin.index.json", INDEX.as_bytes());
    let set = files(&[("x-00001-of-00002.bin", &one), ("x-00002-of-00002.bin", cut), index]);
    let checkpoint = open(set).unwrap();
    assert_eq!(keys(&checkpoint), ["c", "a", "b"]);
    let titles: Vec<&str> = checkpoint.findings.iter().map(|it| it.title.as_str()).collect();
    assert_eq!(
        titles,
        ["x-00002-of-00002.bin can't be read", "1 of 2 shards can't be read: x-00002-of-00002.bin"]
    );
    assert_eq!(checkpoint.findings[1].missing, ["x-00002-of-00002.bin"]);
    let leaf = &checkpoint.leaves()[0];
    let (_, tensor) = checkpoint.tensor_of(leaf.target).unwrap();
    let is_reason = |why: &Text| why.to_lossy().contains("can't be read");
    assert!(matches!(&tensor.layout, Layout::Missing(why) if is_reason(why)));

    // Without an index, the keys in the shard are unknown.
    let all: [(&str, &[u8]); 3] =
        [("x-00001-of-00003.bin", &one), ("x-00002-of-00003.bin", cut), ("readme.md", b"")];
    let checkpoint = open(files(&all)).unwrap();
    assert_eq!(keys(&checkpoint), ["a", "b"]);
    let kinds: Vec<FindingKind> = checkpoint.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::WrongFile, FindingKind::UnlistedFiles]);
    let title = &checkpoint.findings[1].title;
    assert!(title.starts_with("2 of 3 shards are missing or can't be read: "), "{title}");

    // One that holds something else than a dict is not a shard.
    let list = b"\x80\x02].";
    let error =
        open(files(&[("x-00001-of-00002.bin", &one), ("x-00002-of-00002.bin", list), index]));
    assert!(error.unwrap_err().to_string().contains("does not hold a dict"));

    // If no shard can be read, the reason of the first is the error.
    let error = open(files(&[("x-00001-of-00002.bin", cut), index])).unwrap_err();
    assert!(error.to_string().contains("x-00001-of-00002.bin"), "{error}");
}

/// Numbers with and without leading zeros, in the order of the numbers.
#[test]
fn joins_shards_numbered_in_any_width() {
    let shards: Vec<Vec<u8>> = (1..=12).map(|at| pickle(&[(&format!("k{at}"), at)])).collect();
    let keys: Vec<String> = (1..=12).map(|at| format!("k{at}")).collect();
    for (at, of) in [(1, 1), (2, 2), (3, 3), (5, 5), (6, 6), (8, 8), (1, 5), (5, 1)] {
        let name = |number: usize| format!("m/x-{number:0at$}-of-{:0of$}.bin", 12);
        let names: Vec<String> = (1..=12).map(name).collect();
        let mut all: Vec<(&str, &[u8])> =
            names.iter().zip(&shards).map(|(name, bytes)| (name.as_str(), &bytes[..])).collect();
        for main in [0, 1, 9, 11] {
            all.swap(0, main);
            assert_eq!(self::keys(&open(files(&all)).unwrap()), keys, "{}", all[0].0);
            all.swap(0, main);
        }
        assert_eq!(sort(&files(&all)).len(), 1, "{}", names[0]);
        let missing = open(files(&all[1..])).unwrap().findings.remove(0).missing;
        assert_eq!(missing, names[..1]);
    }
    let gguf = statelens_fixtures::read("gguf_split/model-00001-of-00003.gguf");
    let checkpoint = open(files(&[("model-1-of-3.gguf", &gguf)])).unwrap();
    assert_eq!(checkpoint.findings[0].missing, ["model-2-of-3.gguf", "model-3-of-3.gguf"]);
}

#[test]
fn index_decides_between_duplicate_keys() {
    let (one, two) = (pickle(&[("a", 1), ("c", 9), ("b", 2)]), pickle(&[("c", 3)]));
    let mut set = files(&[("x-00001-of-00002.bin", &one), ("x-00002-of-00002.bin", &two)]);
    let value = |set: &FileSet| {
        let checkpoint = open(set.clone()).unwrap();
        let twice = checkpoint.findings.iter().filter(|f| f.title == "Two shards hold c");
        // If the index decides, a copy loses nothing, but the shards are not sound.
        let decided = set.find("x.bin.index.json").is_some();
        let grade = if decided { Grade::Warning } else { Grade::Damage };
        let twice: Vec<_> = twice.map(|finding| (finding.grade, finding.refused)).collect();
        assert_eq!(twice, [(grade, decided)]);
        let leaves = checkpoint.leaves();
        let leaf = leaves.iter().find(|leaf| leaf.flat == "c").unwrap();
        match checkpoint.value(leaf.id) {
            Value::Int(int) => int.to_i64().unwrap(),
            value => panic!("{value:?}"),
        }
    };
    assert_eq!(value(&set), 9);
    set.push("x.bin.index.json", Arc::new(Memory::from(INDEX.as_bytes().to_vec())));
    assert_eq!(value(&set), 3);
}

const TENSOR: &[u8] =
    b"\x3c\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}       \x07\x08";

#[test]
fn notes_a_wrong_size_in_the_index_and_a_single_file() {
    let titles = |size: u64, single: bool| {
        let index = format!(
            r#"{{"metadata": {{"total_size": {size}}}, "weight_map": {{"w": "a.safetensors"}}}}"#
        );
        let mut named =
            vec![("f/m.safetensors.index.json", index.as_bytes()), ("f/a.safetensors", TENSOR)];
        if single {
            named.push(("f/m.safetensors", TENSOR));
        }
        let findings = open(files(&named)).unwrap().findings;
        assert!(findings.iter().all(|finding| finding.grade == Grade::Note));
        findings.into_iter().map(|finding| finding.title).collect::<Vec<_>>()
    };
    assert_eq!(titles(2, false), [""; 0]);
    assert_eq!(titles(1, false), ["The index has a wrong `total_size`"]);
    assert_eq!(titles(2, true), ["There is also a single file, m.safetensors"]);
}

#[test]
fn unfinished_outputs_are_not_checkpoints() {
    let found =
        sort(&files(&[("out/.statelens-4690-0.part", TENSOR), ("out/o.safetensors", TENSOR)]));
    let mains: Vec<&str> = found.iter().map(|found| found.main.as_str()).collect();
    assert_eq!(mains, ["out/o.safetensors"]);
}

#[test]
fn whole_checkpoint_of_tensorflow_v1_has_its_state_file() {
    let [table, state] = ["model.ckpt-7", "checkpoint"]
        .map(|name| statelens_fixtures::read(&format!("reports4/tf1_kinds/v1/{name}")));
    let named = files(&[("v/checkpoint", &state), ("v/model.ckpt-7", &table)]);
    let found = sort(&named);
    let found: Vec<_> = found.iter().map(|it| (it.main.as_str(), it.members.len())).collect();
    assert_eq!(found, [("v/model.ckpt-7", 2)]);
    // A graph next to the file says the same.
    let named = files(&[("v/m", &table), ("v/m.meta", b"\x0a\x01")]);
    let found = sort(&named);
    let found: Vec<_> = found.iter().map(|it| (it.main.as_str(), it.members.len())).collect();
    assert_eq!(found, [("v/m", 2)]);
}

#[test]
fn reports_invalid_indexes() {
    for (text, word) in [
        ("{}", "not an index"),
        (r#"{"weight_map": {}}"#, "empty"),
        (r#"{"weight_map": {"a": 1}}"#, "no file name for a"),
        (r#"{"weight_map": {"a": "b"}"#, "JSON"),
    ] {
        let error = open(files(&[("m.index.json", text.as_bytes())])).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn reports_tensors_in_another_shard_than_the_index_says() {
    let (one, two) = (pickle(&[("a", 1)]), pickle(&[("b", 2), ("c", 3)]));
    let set = files(&[
        ("x.bin.index.json", INDEX.as_bytes()),
        ("x-00001-of-00002.bin", &one),
        ("x-00002-of-00002.bin", &two),
    ]);
    let checkpoint = open(set).unwrap();
    assert_eq!(keys(&checkpoint), ["c", "a", "b"]);
    let titles: Vec<&str> = checkpoint.findings.iter().map(|it| it.title.as_str()).collect();
    assert_eq!(titles, ["The index names the wrong shard for b"]);
}

#[test]
fn opens_complete_shards_next_to_an_unreadable_index() {
    let (one, two) = (pickle(&[("a", 1), ("b", 2)]), pickle(&[("c", 3)]));
    let (first, second) = (("x-00001-of-00002.bin", &one[..]), ("x-00002-of-00002.bin", &two[..]));
    for text in
        [&INDEX[..90], &INDEX.replace('}', ",}"), "\u{feff}{}", "{}", r#"{"weight_map": {}}"#]
    {
        let index = ("x.bin.index.json", text.as_bytes());
        let checkpoint = open(files(&[index, first, second])).unwrap();
        assert_eq!(keys(&checkpoint), ["a", "b", "c"], "{text}");
        let finding = &checkpoint.findings[0];
        assert_eq!(finding.grade, Grade::Damage);
        assert_eq!(finding.title, "The index x.bin.index.json can't be read");
        assert!(open(files(&[index, first])).is_err(), "{text}");
    }
}

#[test]
fn orbax_folder_is_one_set() {
    assert_eq!(
        sorted(&[
            "run/0/_CHECKPOINT_METADATA",
            "run/0/default/_METADATA",
            "run/0/default/params.w/.zarray",
            "run/0/default/params.w/0.0",
            "run/10/_CHECKPOINT_METADATA",
            "run/10/default/manifest.ocdbt",
            "run/10/default/d/af9dfc7d",
            "run/notes.txt",
        ]),
        [row("0", "run/0/_CHECKPOINT_METADATA", 7)]
    );
    // Files without folders.
    assert_eq!(sorted(&["_METADATA", "manifest.ocdbt"]), [row("_METADATA", "_METADATA", 2)]);
    let array = b"\x80\x02}.";
    let set = files(&[("o/_METADATA", b"{}"), ("o/w/0", array), ("o/state.pkl", array)]);
    let mains: Vec<String> = sort(&set).into_iter().map(|found| found.main).collect();
    assert_eq!(mains, ["o/_METADATA", "o/state.pkl"]);
}
