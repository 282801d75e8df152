//! Exports a tensor, or a slice of it, as a file: as raw bytes, text, or an array.

use std::sync::Arc;

use js_sys::{Array, Uint8Array};
use statelens_checkpoint::{DType, Error, Result, Tensor};
use statelens_convert::{alone, in_dtype};
use statelens_formats::{RequestedOptions, writing};
use statelens_inspect::Csv;
use statelens_tensor::{BUDGET, Machine as _, Pour, Receive};
use wasm_bindgen::JsValue;
use web_sys::Blob;

use crate::protocol::FromWorker;
use crate::protocol::conversion::SaveTo;
use crate::protocol::job::JobKind;
use crate::protocol::matrix::{ExportFormat, ExportRequest, MatrixReply};
use crate::text;
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::reading::drive;
use crate::worker::running::{PostProgress, run};
use crate::worker::selection::{numbers_of, slice_of};
use crate::worker::session::SharedSession;

/// Bytes passed to the browser at once, which moves them to disk if needed.
const PART: usize = 8 << 20;

/// Handles a request of the page.
pub(super) fn handle_request(session: &SharedSession, job: Job, request: Option<ExportRequest>) {
    let Some(request) = request else { return session.borrow().jobs.stop(JobKind::Export) };
    let Some(open) = session.borrow().open.clone() else { return };
    job.clone().spawn(async move {
        match export(&open, &request, &job).await {
            Ok(files) => {
                let reply = FromWorker::Matrix(MatrixReply::Exported(request.name));
                job.post_with(&reply, &files);
            }
            Err(error) => {
                if let Some(error) = text::failure(&error) {
                    job.post(&FromWorker::Matrix(MatrixReply::ExportFailed(error)));
                }
            }
        }
        open.report_fetched(&job);
    });
}

async fn export(open: &OpenCheckpoint, request: &ExportRequest, job: &Job) -> Result<Array> {
    let mut tensor: Tensor = numbers_of(open, request.row)?.into_owned();
    if !request.slice.is_empty() {
        tensor = slice_of(open, &tensor, &request.slice.parse()?)?;
    }
    if request.single {
        tensor = in_dtype(tensor, DType::F32)?;
    }
    match request.kind {
        ExportFormat::Csv => {
            plain(open, &tensor, Some(Csv::new(&tensor.dtype, &tensor.shape)), job).await
        }
        ExportFormat::Raw => plain(open, &tensor, None, job).await,
        ExportFormat::Npy | ExportFormat::Npz | ExportFormat::Safetensors => {
            written(open, request, tensor, job).await
        }
    }
}

/// Exports raw bytes, or numbers as text.
async fn plain(
    open: &OpenCheckpoint,
    tensor: &Tensor,
    csv: Option<Csv>,
    job: &Job,
) -> Result<Array> {
    let taken = ExportOutput { csv, text: String::new(), bytes: Vec::new(), parts: Array::new() };
    let mut pour = Pour::all(&open.checkpoint.files, tensor, BUDGET, taken)?;
    drive(&mut pour, &[&open.sources], job, |pour, time| {
        if time {
            let (done, total) = pour.progress();
            job.post(&FromWorker::Matrix(MatrixReply::Exporting(done, total)));
        }
    })
    .await?;
    pour.into.flush(true)?;
    let blob = Blob::new_with_blob_sequence(&pour.into.parts).map_err(|_| full())?;
    Ok(Array::of1(&blob))
}

/// Exports a file of a format that holds dtype and shape, by the same writer as any conversion.
async fn written(
    open: &OpenCheckpoint,
    request: &ExportRequest,
    tensor: Tensor,
    job: &Job,
) -> Result<Array> {
    let key = open.leaves.get(request.row as usize).map(|leaf| leaf.flat.to_lossy());
    let key = key.unwrap_or_default();
    let alone = alone(&open.checkpoint, [(&*key, tensor)], &open.limits)?;
    let target = writing(request.kind.extension())?.target(&RequestedOptions::default())?;
    let plan = statelens_formats::plan(Arc::new(alone), &target, &request.name)?;
    let post_progress: PostProgress = |job, now| {
        job.post(&FromWorker::Matrix(MatrixReply::Exporting(now.done, now.total)));
    };
    let (sink, limits) = (SaveTo::Download, &open.limits);
    let ran =
        run(plan, &open.sources, sink, JsValue::UNDEFINED, true, limits, (job, post_progress))
            .await;
    ran.map(|(_, files)| files)
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
