//! The first tensors of a large file are reported before its tree is read.

use std::fmt::Display;
use std::fs;
use std::path::PathBuf;

use statelens::parts::checkpoint::{DType, FileSet, Limits, Memory, Progress};
use statelens::parts::formats;
use statelens::{Target, convert};

/// Enough tensors for a tree of more than a megabyte.
const COUNT: usize = 12_000;

/// The tensors reported before the first count of values.
#[derive(Default)]
struct Early {
    early_tensors: Vec<(String, String, Vec<u64>)>,
    read: Option<u64>,
}

impl Progress for Early {
    fn report(&mut self, done: u64, _total: u64) -> bool {
        if !self.early_tensors.is_empty() {
            self.read.get_or_insert(done);
        }
        true
    }

    fn hears(&self) -> bool {
        true
    }

    fn found(&mut self, key: &dyn Display, dtype: &DType, shape: &[u64]) {
        if self.read.is_none() {
            self.early_tensors.push((key.to_string(), dtype.name().to_owned(), shape.to_vec()));
        }
    }
}

#[test]
fn reports_first_cerebras_tensors_before_the_tree_is_read() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("early");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let source = folder.join("plain.safetensors");
    let mut header = String::new();
    for at in 0..COUNT {
        let (comma, from) = (if at == 0 { '{' } else { ',' }, at * 8);
        header += &format!(
            "{comma}\"model.layers.{}.part{}\":{{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[{from},{}]}}",
            at / 10,
            at % 10,
            from + 8
        );
    }
    header.push('}');
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + COUNT * 8, 1);
    fs::write(&source, bytes).unwrap();
    let checkpoint = statelens::open(&source).unwrap();
    let file = folder.join("large.mdl");
    convert(&checkpoint, Target::Cerebras).lossy().write(&file).unwrap();

    let files = FileSet::single("large.mdl", Memory::from(fs::read(&file).unwrap()));
    let mut early = Early::default();
    let opened = formats::open(files, &Limits::default(), &mut early).unwrap();
    assert_eq!((early.early_tensors.len(), early.read), (128, Some(0)));
    let leaves = opened.leaves();
    assert_eq!(leaves.len(), COUNT);
    for (leaf, (key, dtype, shape)) in leaves.iter().zip(&early.early_tensors) {
        let (_, tensor) = opened.tensor_of(leaf.id).unwrap();
        let expected = (leaf.flat.to_lossy(), tensor.dtype.name(), &tensor.shape);
        assert_eq!((key.as_str().into(), dtype.as_str(), shape), expected);
    }
    fs::remove_dir_all(&folder).unwrap();
}
