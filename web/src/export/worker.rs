//! Exports a tensor, or a slice of it, as a file: as raw bytes, text, or an array.

use std::sync::Arc;

use js_sys::{Array, Uint8Array};
use statelens_checkpoint::{DType, Error, Result, Tensor};
use statelens_convert::{alone, in_dtype};
use statelens_formats::{RequestedOptions, writing};
use statelens_tensor::{BUDGET, Machine as _, Pour, Receive};
use statelens_values::Csv;
use wasm_bindgen::JsValue;
use web_sys::Blob;

use crate::convert::message::{SaveTo, WriteMethod};
use crate::convert::worker::running::run;
use crate::matrix::message::{ExportFormat, ExportRequest, ExportedFile};
use crate::protocol::FromWorker;
use crate::worker::job::Job;
use crate::worker::outputs;
use crate::worker::reading::drive;
use crate::worker::selection::{numbers_of, slice_of};
use crate::worker::session::SharedSession;
use crate::worker::task::Task;

/// Bytes passed to the browser at once, which moves them to disk if needed.
const PART: usize = 8 << 20;

/// Handles a request of the page.
pub(crate) fn start(session: &SharedSession, job: Job, request: ExportRequest, _: &JsValue) {
    let Some(open) = session.borrow().open.clone() else { return };
    Task::start(open, job, async move |task: &Task| {
        task.attach(export(task, &request).await?);
        Ok(ExportedFile { name: request.name })
    });
}

async fn export(task: &Task, request: &ExportRequest) -> Result<Array> {
    let open = &task.open;
    let mut tensor: Tensor = numbers_of(open, request.row)?.into_owned();
    if !request.slice.is_empty() {
        tensor = slice_of(open, &tensor, &request.slice.parse()?)?;
    }
    if request.single {
        tensor = in_dtype(tensor, DType::F32)?;
    }
    match request.kind {
        ExportFormat::Csv => {
            plain(task, &tensor, Some(Csv::new(&tensor.dtype, &tensor.shape))).await
        }
        ExportFormat::Raw => plain(task, &tensor, None).await,
        ExportFormat::Npy | ExportFormat::Npz | ExportFormat::Safetensors => {
            written(task, request, tensor).await
        }
    }
}

/// Exports raw bytes, or numbers as text.
async fn plain(task: &Task, tensor: &Tensor, csv: Option<Csv>) -> Result<Array> {
    let open = &task.open;
    let taken = ExportOutput { csv, text: String::new(), bytes: Vec::new(), parts: Array::new() };
    let mut pour = Pour::all(&open.checkpoint.files, tensor, BUDGET, taken)?;
    drive(&mut pour, &[&open.sources], &task.job, |pour, time| {
        if time {
            task.progress(pour.progress());
        }
    })
    .await?;
    pour.into.flush(true)?;
    let blob = Blob::new_with_blob_sequence(&pour.into.parts).map_err(|_| full())?;
    Ok(Array::of1(&blob))
}

/// Exports a file of a format that holds dtype and shape, by the same writer as any conversion.
async fn written(task: &Task, request: &ExportRequest, tensor: Tensor) -> Result<Array> {
    let open = &task.open;
    let key = open.leaves.get(request.row as usize).map(|leaf| leaf.flat.to_lossy());
    let key = key.unwrap_or_default();
    let alone = alone(&open.checkpoint, [(&*key, tensor)], &open.limits)?;
    let target = writing(request.kind.extension())?.target(&RequestedOptions::default())?;
    let plan = statelens_formats::plan(Arc::new(alone), &target, &request.name)?;
    let ran = run(plan, task, SaveTo::Download, JsValue::UNDEFINED, true).await;
    let (done, files) = ran?;
    if done.method == WriteMethod::Private {
        let bytes = outputs::add(&files, &done.names);
        task.job.post(&FromWorker::KeptOutputs(bytes));
    }
    Ok(files)
}

struct ExportOutput {
    csv: Option<Csv>,
    text: String,
    bytes: Vec<u8>,
    /// Blobs passed to the browser.
    parts: Array,
}

impl ExportOutput {
    fn flush(&mut self, end: bool) -> Result<()> {
        if self.bytes.len() >= PART || end {
            let part: JsValue = Uint8Array::from(self.bytes.as_slice()).into();
            let blob = Blob::new_with_u8_array_sequence(&Array::of1(&part));
            let blob: Blob = blob.map_err(|_| full())?;
            self.parts.push(&blob);
            self.bytes.clear();
        }
        Ok(())
    }
}

impl Receive for ExportOutput {
    fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        // The text is several times as long as the bytes.
        for bytes in bytes.chunks(PART / 8) {
            match &mut self.csv {
                Some(csv) => {
                    self.text.clear();
                    csv.feed(bytes, &mut self.text);
                    self.bytes.extend_from_slice(self.text.as_bytes());
                }
                None => self.bytes.extend_from_slice(bytes),
            }
            self.flush(false)?;
        }
        Ok(())
    }
}

fn full() -> Error {
    Error::io("the browser does not have enough memory for this file")
}
