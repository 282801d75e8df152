//! Opening what was written again, to see whether it is what was planned.

use std::collections::HashMap;

use js_sys::Array;
use statelens_checkpoint::{Checkpoint, DType, Error, FileId, Limits, Result, Unwatched};
use statelens_inspect::{dtype_of, shape_of};
use wasm_bindgen::JsCast;
use web_sys::{Blob, File};

use crate::protocol::{FileName, ReadBack};
use crate::worker::sources::Sources;
use crate::worker::text;

/// Keys that are named.
const NAMED: usize = 3;

/// Opens the files and compares keys, dtypes and shapes of tensors with those that were to be
/// written. Bytes of tensors are not read.
pub fn read_back(planned: &Checkpoint, names: &[String], files: &Array) -> ReadBack {
    let tensors = tensors(planned);
    let mut result = ReadBack { tensors: tensors.len() as u64, ..ReadBack::default() };
    match open(as_files(names, files)) {
        Ok(written) => {
            let written: HashMap<String, Facts> = self::tensors(&written).into_iter().collect();
            for (key, facts) in &tensors {
                if written.get(key) == Some(facts) {
                    result.equal += 1;
                } else if result.others.len() < NAMED {
                    result.others.push(key.clone());
                }
            }
        }
        Err(error) => result.error = Some(text::error(&error)),
    }
    result
}

fn as_files(names: &[String], files: &Array) -> Vec<File> {
    let file = |(value, name): (wasm_bindgen::JsValue, &String)| {
        let blob: Blob = value.dyn_into().ok()?;
        File::new_with_blob_sequence(&Array::of1(&blob), name).ok()
    };
    files.iter().zip(names).filter_map(file).collect()
}

fn open(files: Vec<File>) -> Result<Checkpoint> {
    let name = |file: &File| FileName { path: file.name(), size: file.size() as u64 };
    let names: Vec<FileName> = files.iter().map(name).collect();
    let set = Sources::of_disk(files).set(&names);
    let main = match statelens_formats::sets::sort(&set).first() {
        Some(found) => set.iter().find(|(_, file)| file.name == found.main).map(|(id, _)| id),
        None => set.iter().next().map(|(id, _)| id),
    };
    let main: FileId = main.ok_or_else(|| Error::io("no file was written"))?;
    statelens_formats::open(set.opened_at(main), &Limits::default(), &mut Unwatched)
}

type Facts = (Option<DType>, Vec<u64>);

/// Every tensor and array by key.
fn tensors(checkpoint: &Checkpoint) -> Vec<(String, Facts)> {
    let leaves = checkpoint.leaves();
    let of = leaves
        .iter()
        .filter(|leaf| !leaf.inside_object && checkpoint.tensor_of(leaf.target).is_some());
    of.map(|leaf| {
        let shape = shape_of(checkpoint, leaf.id).map(<[u64]>::to_vec).unwrap_or_default();
        (leaf.flat.to_lossy().into_owned(), (dtype_of(checkpoint, leaf.id).cloned(), shape))
    })
    .collect()
}
