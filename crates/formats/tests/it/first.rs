//! Tensors reported while opening is still running must be the same as in the opened checkpoint.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use statelens_checkpoint::{DType, FileSet, Limits, Memory, Progress};

use crate::counted::CountedFile;

#[derive(Default)]
struct FoundTensors(Vec<(String, String, Vec<u64>)>);

impl Progress for FoundTensors {
    fn report(&mut self, _done: u64, _total: u64) -> bool {
        true
    }

    fn hears(&self) -> bool {
        true
    }

    fn found(&mut self, key: &dyn Display, dtype: &DType, shape: &[u64]) {
        self.0.push((key.to_string(), dtype.name().to_owned(), shape.to_vec()));
    }
}

#[test]
fn early_reports_match_the_file() {
    for name in [
        "safetensors/order.safetensors",
        "numpy/plain.npz",
        "torch/zip_training_ckpt.pt",
        "cerebras/v2.10.0/gpt_small.mdl",
    ] {
        let path = statelens_fixtures::path(name);
        let bytes = std::fs::read(&path).expect("a fixture");
        let files = FileSet::single(name, Memory::from(bytes));
        let mut found_tensors = FoundTensors::default();
        let checkpoint = statelens_formats::open(files, &Limits::default(), &mut found_tensors)
            .expect("it opens");
        let leaves = checkpoint.leaves();
        let mut known = HashMap::new();
        for leaf in &leaves {
            if let Some((_, tensor)) = checkpoint.tensor_of(leaf.id) {
                known.insert(leaf.flat.to_string(), tensor);
            }
        }
        assert!(found_tensors.0.len() >= 3, "{name}: {} are told", found_tensors.0.len());
        let mut order = leaves.iter().map(|leaf| leaf.flat.to_string());
        for (key, dtype, shape) in &found_tensors.0 {
            let tensor = known.get(key).unwrap_or_else(|| panic!("{name} has no {key}"));
            assert_eq!((tensor.dtype.name(), &tensor.shape), (&**dtype, shape), "{name}: {key}");
            assert!(order.any(|other| other == *key), "{name}: {key} is told out of order");
        }
    }
}

/// Records how many bytes had been read when the first tensor was reported.
struct Early(Arc<CountedFile>, FoundTensors, Option<u64>);

impl Progress for Early {
    fn report(&mut self, _done: u64, _total: u64) -> bool {
        true
    }

    fn hears(&self) -> bool {
        true
    }

    fn found(&mut self, key: &dyn Display, dtype: &DType, shape: &[u64]) {
        self.2.get_or_insert_with(|| self.0.bytes_read());
        self.1.found(key, dtype, shape);
    }
}

#[test]
fn first_tensors_are_reported_before_the_rest_is_read() {
    let bytes = statelens_fixtures::read("torch/zip_many_20k.pt");
    let source = Arc::new(CountedFile::new(bytes));
    let mut files = FileSet::default();
    files.push("zip_many_20k.pt", source.clone());
    let mut early = Early(source, FoundTensors::default(), None);
    let checkpoint =
        statelens_formats::open(files, &Limits::default(), &mut early).expect("it opens");
    assert!(early.2.expect("some are told of") < 1 << 20, "{:?} bytes were read", early.2);
    let leaves = checkpoint.leaves();
    for (leaf, (key, dtype, shape)) in leaves.iter().zip(early.1.0.iter().take(128)) {
        let (_, tensor) = checkpoint.tensor_of(leaf.id).expect("a tensor");
        assert_eq!(
            (&*leaf.flat.to_lossy(), tensor.dtype.name(), &tensor.shape),
            (&**key, &**dtype, shape)
        );
    }
}
