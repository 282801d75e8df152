//! Tests of order, types, shards and archives. The command's tests compare the fixtures with what
//! h5py read.

use crate::damaged_copies::survive;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use statelens_checkpoint::{Checkpoint, DType, Error, FileSet, Grade, Limits, Memory, Unwatched};

fn bytes(name: &str) -> Vec<u8> {
    let folder = statelens_fixtures::path("keras");
    std::fs::read(folder.join(name)).unwrap()
}

fn open_set(names: &[&str]) -> Result<Checkpoint, Error> {
    let mut files = FileSet::default();
    for name in names {
        files.push(*name, Arc::new(Memory::from(bytes(name))));
    }
    crate::open(files, &Limits::default(), &mut Unwatched)
}

fn open(name: &str) -> Checkpoint {
    open_set(&[name]).unwrap()
}

fn keys(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.leaves().iter().map(|leaf| leaf.flat.to_lossy().into_owned()).collect()
}

#[test]
fn layers_follow_the_order_of_the_model() {
    let weights = open("k2_weights.h5");
    assert_eq!((weights.format.id, &*weights.format.producer), ("keras-h5", "Keras 2.21.0"));
    let expected = [
        "lstm.lstm.lstm_cell.kernel:0",
        "lstm.lstm.lstm_cell.recurrent_kernel:0",
        "lstm.lstm.lstm_cell.bias:0",
        "dense.dense.kernel:0",
        "dense.dense.bias:0",
        "sequential.dense_1.kernel:0",
    ];
    assert_eq!(keys(&weights), expected);
    let whole = keys(&open("k2_full.h5"));
    let under = |start: &str| whole.iter().position(|key| key.starts_with(start)).unwrap();
    assert!(under("model_weights.lstm") < under("model_weights.dense"));
    assert_eq!(whole.len(), 19);
    assert_eq!(whole[6], "optimizer_weights.iteration:0");
    let legacy = keys(&open("k3_legacy_full.h5"));
    assert!(legacy[0].starts_with("model_weights.lstm."), "{legacy:?}");
}

#[test]
fn joins_chunked_name_lists() {
    let checkpoint = open("k2_chunked_attrs.weights.h5x");
    let keys = keys(&checkpoint);
    assert_eq!(keys.len(), 1200);
    assert!(keys.is_sorted());
    assert_eq!(checkpoint.format.id, "keras-h5");
}

#[test]
fn numbers_variables_in_order() {
    let checkpoint = open("k3_seq.weights.h5");
    assert_eq!(checkpoint.format.id, "keras-weights");
    let keys = keys(&checkpoint);
    let optimizer: Vec<_> = keys.iter().filter(|key| key.starts_with("optimizer.")).collect();
    let expected: Vec<_> = (0..optimizer.len()).map(|n| format!("optimizer.vars.{n}")).collect();
    assert!(optimizer.len() > 10 && optimizer.iter().zip(&expected).all(|(a, b)| *a == b));
}

#[test]
fn opens_keras_archives() {
    for (name, producer) in
        [("k3_seq_compiled.keras", "Keras 3.15.1"), ("k2_v3.keras", "Keras 2.21.0")]
    {
        let checkpoint = open(name);
        assert_eq!((checkpoint.format.id, &*checkpoint.format.producer), ("keras", producer));
        let keys = keys(&checkpoint);
        // The model's order, which only the configuration has.
        assert_eq!(keys[0], "layers.lstm.cell.vars.0", "{name}");
        let (_, tensor) = checkpoint.tensor_of(checkpoint.leaves()[0].id).unwrap();
        assert!(tensor.is_verbatim());
        let names: Vec<String> = checkpoint
            .raw_attributes(checkpoint.root())
            .iter()
            .map(|(name, _)| name.to_string())
            .collect();
        assert!(names.contains(&"config.json".to_owned()), "{names:?}");
    }
    assert!(
        keys(&open("k3_assets.keras")).is_empty() || open("k3_assets.keras").leaves().len() == 1
    );
}

#[test]
fn dtype_attribute_gives_opaque_bytes_their_dtype() {
    for name in ["k3_bfloat16.weights.h5", "k3_bfloat16.keras"] {
        let checkpoint = open(name);
        for leaf in checkpoint.leaves() {
            assert_eq!(checkpoint.tensor_of(leaf.id).unwrap().1.dtype, DType::BF16, "{name}");
        }
    }
}

const SHARDS: [&str; 4] = [
    "k3_sharded.weights.json",
    "k3_sharded_00000.weights.h5",
    "k3_sharded_00001.weights.h5",
    "k3_sharded_00002.weights.h5",
];

#[test]
fn any_shard_opens_the_whole_checkpoint() {
    let all = keys(&open_set(&SHARDS).unwrap());
    assert_eq!(all.len(), 20);
    assert_eq!(all[0], "layers.lstm.cell.vars.0");
    let mut turned = SHARDS;
    for _ in 0..4 {
        turned.rotate_left(1);
        assert_eq!(keys(&open_set(&turned).unwrap()), all);
    }
    let part = open_set(&SHARDS[..2]).unwrap();
    assert_eq!(part.findings[0].grade, Grade::Damage);
    assert!(part.findings[0].detail.contains(SHARDS[3]));
    let error = open_set(&SHARDS[..1]).unwrap_err().to_string();
    assert!(error.contains(SHARDS[1]), "{error}");
}

#[test]
fn shard_values_match_h5py() {
    let checkpoint = open_set(&SHARDS).unwrap();
    let json: serde_json::Value =
        serde_json::from_slice(&bytes("k3_sharded.weights.json.expected.json")).unwrap();
    let leaves = checkpoint.leaves();
    let mut compared = 0;
    for entry in json["shards"].as_object().unwrap().values().flat_map(|v| v.as_array().unwrap()) {
        let key = entry["key"].as_str().unwrap().replace('/', ".");
        let leaf = leaves.iter().find(|leaf| leaf.flat == *key).unwrap_or_else(|| panic!("{key}"));
        let (_, tensor) = checkpoint.tensor_of(leaf.id).unwrap();
        let numel = tensor.numel().unwrap();
        let values = statelens_tensor::elements(&checkpoint.files, tensor, 0..numel).unwrap();
        let hash: String = Sha256::digest(values).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(entry["sha256"], *hash, "{key}");
        compared += 1;
    }
    assert_eq!(compared, leaves.len());
}

#[test]
fn other_hdf5_files_are_not_keras() {
    let folder = statelens_fixtures::root();
    for (name, id) in [("hdf5/links_e.h5", "hdf5"), ("cerebras/v2.10.0/numpy.mdl", "cerebras-h5")] {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        let files = FileSet::single("x.weights.h5", Memory::from(bytes));
        let checkpoint = crate::open(files, &Limits::default(), &mut Unwatched).unwrap();
        assert_eq!(checkpoint.format.id, id);
    }
}

#[test]
fn damaged_copies_never_panic() {
    for name in ["k2_weights.h5", "k3_bfloat16.keras", "k3_seq.weights.h5"] {
        survive(name, &bytes(name), statelens_fixtures::times(20, 100), |copy| {
            let files = FileSet::single(name, Memory::from(copy));
            let opened = crate::open(files, &Limits::default(), &mut Unwatched);
            opened.map(|open| open.leaves()).is_ok()
        });
    }
}

/// h5py refuses the weights ("truncated file"), and so does Keras.
#[test]
fn weights_cut_short_in_an_archive_are_damaged() {
    let mut file = bytes("k3_seq_compiled.keras");
    let at = file.windows(8).position(|bytes| bytes == b"\x89HDF\r\n\x1a\n").unwrap();
    // The end of the file in a superblock of version 0.
    let end = &mut file[at + 40..at + 48];
    let recorded = u64::from_le_bytes((*end).try_into().unwrap());
    end.copy_from_slice(&(recorded + 100).to_le_bytes());
    let files = FileSet::single("x.keras", Memory::from(file));
    let checkpoint = crate::open(files, &Limits::default(), &mut Unwatched).unwrap();
    let titles: Vec<&str> = checkpoint.findings.iter().map(|found| found.title.as_str()).collect();
    assert!(titles.contains(&"The file is cut short: 100 bytes are missing"), "{titles:?}");
}

/// Keras 3 also reads weights that are a NumPy archive.
#[test]
fn weights_may_be_a_numpy_archive() {
    let stored = statelens_fixtures::read("reports4/keras_npz/npz.keras");
    let inner = stored.windows(4).position(|four| four == b"\x93NUM").unwrap();
    assert!(inner > 0);
    let files = FileSet::single("npz.keras", Memory::from(stored));
    let checkpoint = crate::open(files, &Limits::default(), &mut Unwatched).unwrap();
    assert_eq!(checkpoint.format.id, "keras");
    // An array of objects, which holds a dict of the two arrays.
    let expected =
        ["__class__", "shape", "0.0", "0.1"].map(|end| format!("layers/dense/vars.{end}"));
    assert_eq!(keys(&checkpoint), expected);
    assert!(checkpoint.findings.iter().all(|it| it.grade < Grade::Damage));
}

/// Keras looks up every name in the lists. Here, one name in the attribute `weight_names` is another.
#[test]
fn lists_name_weights_that_are_missing() {
    let mut bytes = bytes("k2_weights.h5");
    let name = b"dense/kernel:0";
    let at = bytes.windows(name.len()).position(|some| some == name).unwrap();
    bytes[at + 6] = b'K';
    let set = FileSet::single("x.h5", Memory::from(bytes));
    let opened = crate::open(set, &Limits::default(), &mut Unwatched).unwrap();
    let about = |finding: &&statelens_checkpoint::Finding| finding.title.contains("lists weights");
    let found = opened.findings.iter().find(about).unwrap();
    assert!(found.refused && found.detail.contains("dense/Kernel:0"), "{found:?}");
    let whole = open("k2_weights.h5");
    assert!(whole.findings.iter().find(about).is_none());
}
