//! Uses the library as a program would.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use sha2::{Digest as _, Sha256};
use statelens::{DType, ErrorKind, Opener, ReadAt, Target, Value, convert, diff, s};

pub(crate) fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name)
}

/// Returns an empty folder for the files that a test writes.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn tensor_bytes_match_torch() {
    let mut compared = 0;
    for name in ["zip_all_dtypes.pt", "zip_views.pt", "zip_training_ckpt.pt", "legacy_tied.pt"] {
        let path = fixture("torch").join(name);
        let expected = fs::read(format!("{}.expected.json", path.display())).unwrap();
        let expected: serde_json::Value = serde_json::from_slice(&expected).unwrap();
        let checkpoint = statelens::open(&path).unwrap();
        for entry in expected["entries"].as_array().unwrap() {
            let (Some(key), Some(hash)) = (entry["key"].as_str(), entry["sha256"].as_str()) else {
                continue;
            };
            let tensor = checkpoint.tensor(key).unwrap();
            let bytes = tensor.bytes().unwrap();
            assert_eq!(bytes.len() as u64, tensor.nbytes());
            let found: String =
                Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found, hash, "{name} {key}");
            let shape: Vec<u64> = serde_json::from_value(entry["shape"].clone()).unwrap();
            assert_eq!(tensor.shape(), shape);
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}

/// A file in memory that records the offset and length of each read.
#[derive(Debug)]
struct Recorded(Vec<u8>, Arc<Mutex<Vec<(u64, usize)>>>);

impl ReadAt for Recorded {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> statelens::Result<()> {
        self.1.lock().unwrap().push((offset, buffer.len()));
        let at = offset as usize;
        buffer.copy_from_slice(&self.0[at..at + buffer.len()]);
        Ok(())
    }
}

#[test]
fn reading_a_slice_reads_no_other_bytes() {
    let header = br#"{"a":{"dtype":"F32","shape":[400,1000],"data_offsets":[0,1600000]}}     "#;
    let start = 8 + header.len() as u64;
    let mut file = [&(header.len() as u64).to_le_bytes()[..], header].concat();
    file.extend((0..400_000u32).flat_map(|value| (value as f32).to_le_bytes()));
    let reads = Arc::default();
    let source = Recorded(file, Arc::clone(&reads));
    let checkpoint = Opener::new().open_source("a.safetensors", source).unwrap();
    let rows = checkpoint.tensor("a").unwrap().slice(&s![200..210]).unwrap();
    reads.lock().unwrap().clear();
    let bytes = rows.bytes().unwrap();
    assert_eq!(bytes[..4], 200_000f32.to_le_bytes());
    assert_eq!(*reads.lock().unwrap(), [(start + 800_000, 40_000)]);
}

#[test]
fn reads_values_exactly_or_fails() {
    let checkpoint = statelens::open(fixture("torch/zip_numpy.pt")).unwrap();
    let array = checkpoint.tensor("arr").unwrap();
    assert!(matches!(checkpoint.value("arr").unwrap(), Value::Array(_)));
    assert_eq!((array.dtype(), array.shape(), array.numel()), (&DType::F32, &[2, 3][..], 6));
    assert_eq!(array.read::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(array.read::<f64>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let corner = array.slice(&s![.., 1..]).unwrap();
    assert_eq!(
        (corner.shape(), corner.read::<f32>().unwrap()),
        (&[2, 2][..], vec![1.0, 2.0, 4.0, 5.0])
    );
    let stats = array.slice(&s![1]).unwrap().stats().unwrap().unwrap();
    assert_eq!(
        (stats.count, stats.min, stats.max, stats.mean),
        (3, Some(3.0), Some(5.0), Some(4.0))
    );
    let last = array.slice(&s![-1, -1]).unwrap();
    assert_eq!((last.shape(), last.read::<f64>().unwrap()), (&[][..], vec![5.0]));
    let state = statelens::open(fixture("torch/zip_training_ckpt.pt")).unwrap();
    let step = state.value("global_step").unwrap();
    assert!(matches!(step, Value::Int(step) if step.to_i64() == Some(1234)), "{step:?}");
    // The fixture's random numbers can't be represented as float16.
    let tied = statelens::open(fixture("torch/legacy_tied.pt")).unwrap();
    let error = tied.tensor("emb.weight").unwrap().read::<half::f16>().unwrap_err();
    assert_eq!(error.code(), "inexact", "{error}");
    assert!(error.to_string().contains("emb.weight"), "{error}");
}

#[test]
fn missing_key_suggests_similar_keys() {
    let checkpoint = statelens::open(fixture("torch/legacy_tied.pt")).unwrap();
    let error = checkpoint.tensor("emb.weights").err().unwrap();
    assert_eq!((error.code(), error.kind()), ("no-such-key", ErrorKind::Refused));
    assert!(error.to_string().contains("`emb.weight`"), "{error}");
    assert_eq!(checkpoint.value("emb.weights").unwrap_err().code(), "no-such-key");
    let error = statelens::open("no such file.pt").err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("no such file.pt"), "{error}");
    let outside = checkpoint.tensor("emb.weight").unwrap().slice(&s![99]).err().unwrap();
    assert_eq!(outside.code(), "slice");
}

#[test]
fn conversion_round_trips() {
    let folder = folder("library-convert");
    let source = statelens::open(fixture("cerebras/v2.10.0/gpt_small.mdl")).unwrap();
    let path = folder.join("out.pt");
    let written = convert(&source, Target::Torch).write(&path).unwrap();
    assert_eq!(written.files, std::slice::from_ref(&path));
    assert_eq!(written.bytes, fs::metadata(&path).unwrap().len());
    let found = diff(&source, &statelens::open(&path).unwrap()).unwrap();
    assert!(found.matches() && found.keys > 50, "{found:?}");
    // A file is not replaced by default.
    let error = convert(&source, Target::Torch).write(&path).unwrap_err();
    assert_eq!(error.code(), "exists", "{error}");
    convert(&source, Target::Torch).select("model.*").replace().write(&path).unwrap();
    let smaller = statelens::open(&path).unwrap();
    assert!(smaller.keys().all(|key| key.starts_with("model.")));
    assert!(smaller.verify().unwrap().result.problems.is_empty());
    // An address is not a folder on this disk.
    let error = convert(&source, Target::Torch).write("https://example.org/out.pt").unwrap_err();
    assert!(error.to_string().contains("not written to web servers"), "{error}");
    // The report names the requested file, as that of the command does, not the first shard.
    let path = folder.join("shards.pt");
    let sharded = convert(&source, Target::Torch).shard_size("100kB").lossy().write(&path).unwrap();
    assert!(sharded.files.len() > 1 && !sharded.files.contains(&path), "{sharded:?}");
    let report: serde_json::Value = serde_json::from_str(&sharded.json()).unwrap();
    assert_eq!(report["output"], path.to_str().unwrap());
}

#[test]
fn lossy_conversion_is_refused_without_permission() {
    let folder = folder("library-losses");
    let source = statelens::open(fixture("torch/zip_numpy.pt")).unwrap();
    let path = folder.join("out.safetensors");
    let error = convert(&source, Target::Safetensors).write(&path).unwrap_err();
    assert_eq!(error.code(), "lossy", "{error}");
    assert!(!path.exists());
    let written = convert(&source, Target::Safetensors).lossy().write(&path).unwrap();
    assert!(written.losses.iter().any(|loss| !loss.harmless));
    // A bad pattern is reported when the conversion runs.
    let error = convert(&source, Target::Torch).select("/(/").write(folder.join("x.pt"));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn crate_readme_example_matches_the_main_readme() {
    let of = |path: &str| {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
        let text = fs::read_to_string(path).unwrap();
        let (_, rest) = text.split_once("```rust,no_run\n").unwrap();
        rest.split_once("```").unwrap().0.to_owned()
    };
    // That of the crate is a doc test.
    assert_eq!(of("README.md"), of("../../README.md"));
}
