//! Opens written files again, to check that they match the plan.

use std::sync::Arc;

use js_sys::Array;
use statelens_checkpoint::{Error, Limits, ReadAt, Result, Unwatched};
use statelens_compare::ReadBack;
use wasm_bindgen::JsCast;
use web_sys::{Blob, File};

use crate::worker::blob::BlobSource;

/// Opens the files and compares their structure with the plan: the kind, dtype, shape, plain value
/// and tying of every leaf. Bytes of tensors are not read.
///
/// # Errors
/// On the first difference from the plan, or if a file can't be read.
pub fn read_back(planned: &ReadBack, files: &Array, limits: &Limits) -> Result<()> {
    let source = |(value, name): (wasm_bindgen::JsValue, &String)| {
        let blob: Blob = value.dyn_into().ok()?;
        let file = File::new_with_blob_sequence(&Array::of1(&blob), name).ok()?;
        Some(Arc::new(BlobSource::alone(file)) as Arc<dyn ReadAt>)
    };
    let written: Option<Vec<_>> = files.iter().zip(planned.names()).map(source).collect();
    let written = written.ok_or_else(|| Error::io("the written files can\u{2019}t be read"))?;
    planned.check(written, limits, &mut Unwatched)
}
