//! The numbers of a tensor, or of a slice of it, as a file: bytes as they are, as text, as an array.

use js_sys::{Array, Uint8Array};
use statelens_checkpoint::{DType, Error, Result, Tensor};
use statelens_formats::numpy::write::head;
use statelens_inspect::Csv;
use statelens_stats::Matrix;
use statelens_tensor::{BUDGET, Cast, Machine as _, Pour, Receive};
use wasm_bindgen::JsValue;
use web_sys::Blob;

use crate::protocol::FromWorker;
use crate::protocol::job::JobKind;
use crate::protocol::looking::{LookingReply, Take, TakeAs};
use crate::text;
use crate::worker::job::Job;
use crate::worker::looked::numbers_of;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::reading::drive;
use crate::worker::session::SharedSession;

/// What is handed to the browser at once, which keeps it on the disk if it has to.
const PART: usize = 8 << 20;

/// Answers the page.
pub(super) fn answer(session: &SharedSession, job: Job, ask: Option<Take>) {
    let Some(ask) = ask else { return session.borrow().jobs.stop(JobKind::Take) };
    let Some(open) = session.borrow().open.clone() else { return };
    job.clone().spawn(async move {
        match take(&open, &ask, &job).await {
            Ok(blob) => {
                let told = FromWorker::Looking(LookingReply::Taken(ask.name));
                job.post_with(&told, &Array::of1(&blob));
            }
            Err(error) => {
                if let Some(error) = text::failure(&error) {
                    job.post(&FromWorker::Looking(LookingReply::NotTaken(error)));
                }
            }
        }
        open.tell_fetched(&job);
    });
}

async fn take(open: &OpenCheckpoint, ask: &Take, job: &Job) -> Result<Blob> {
    let mut tensor: Tensor = numbers_of(open, ask.row)?.into_owned();
    if ask.single {
        Cast::new(&tensor.stored, &DType::F32)?;
        tensor.dtype = DType::F32;
    }
    let all = tensor.numel().unwrap_or(0);
    let (range, shape) = match ask.leading.as_slice() {
        [] => (0..all, tensor.shape.clone()),
        leading => {
            let matrix = Matrix::of(&tensor.shape, leading);
            let matrix = matrix.ok_or_else(|| Error::refused("there is no such slice"))?;
            let shape = tensor.shape[leading.len()..].to_vec();
            (matrix.first..matrix.first + matrix.len, shape)
        }
    };
    let mut taken =
        TakenOutput { csv: None, text: String::new(), bytes: Vec::new(), parts: Array::new() };
    match ask.kind {
        TakeAs::Raw => {}
        TakeAs::Csv => taken.csv = Some(Csv::new(&tensor.dtype, &shape)),
        TakeAs::Npy => {
            let head = head(&tensor.dtype, &shape);
            taken.bytes = head.ok_or_else(|| {
                Error::unsupported(format!("numpy has no {}", tensor.dtype))
                    .advice("As float32 it has all the numbers.")
            })?;
        }
    }
    let mut pour = Pour::new(&open.checkpoint.files, &tensor, range, BUDGET, taken)?;
    drive(&mut pour, &[&open.sources], job, |pour, time| {
        if time {
            let (done, total) = pour.progress();
            job.post(&FromWorker::Looking(LookingReply::Taking(done, total)));
        }
    })
    .await?;
    pour.into.flush(true)?;
    Blob::new_with_blob_sequence(&pour.into.parts).map_err(|_| full())
}

struct TakenOutput {
    csv: Option<Csv>,
    text: String,
    bytes: Vec<u8>,
    /// What was handed to the browser.
    parts: Array,
}

impl TakenOutput {
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

impl Receive for TakenOutput {
    fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        // A piece of text is several times as long.
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
    Error::io("the browser has no room for this file")
}
