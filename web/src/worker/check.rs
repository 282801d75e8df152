//! Opening what was written again, to see whether it is what was planned.

use std::sync::Arc;

use js_sys::Array;
use statelens_checkpoint::{Error, Limits, ReadAt, Result, Unwatched};
use statelens_inspect::ReadBack;
use wasm_bindgen::JsCast;
use web_sys::{Blob, File};

use crate::worker::blob::BlobSource;

/// Opens the files and compares their structure with what was to be written: every leaf with its
/// kind, dtype, shape, plain value and what it is tied to. Bytes of tensors are not read.
///
/// # Errors
/// What does not read back.
pub fn read_back(planned: &ReadBack, files: &Array, limits: &Limits) -> Result<()> {
    let source = |(value, name): (wasm_bindgen::JsValue, &String)| {
        let blob: Blob = value.dyn_into().ok()?;
        let file = File::new_with_blob_sequence(&Array::of1(&blob), name).ok()?;
        Some(Arc::new(BlobSource::alone(file)) as Arc<dyn ReadAt>)
    };
    let written: Option<Vec<_>> = files.iter().zip(planned.names()).map(source).collect();
    let written = written.ok_or_else(|| Error::io("what was written can\u{2019}t be read"))?;
    planned.check(written, limits, &mut Unwatched)
}
