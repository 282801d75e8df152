//! Reports progress of opening to the page.

use std::fmt::Display;
use std::sync::Arc;

use statelens_checkpoint::{DType, Layout, Progress, Tensor};

use crate::messages::PREVIEW_KEYS;
use crate::protocol::FromWorker;
use crate::rows::{LeafKind, PackedRows, Row};
use crate::worker::blob::ReadCounter;
use crate::worker::job::Job;
use crate::worker::port::now;

/// Milliseconds after which the first keys are sent before opening is complete.
const PREVIEW_AFTER: f64 = 80.0;
/// Reports progress of opening, at most four times a second.
pub(crate) struct OpenProgress {
    job: Job,
    /// Counts reads from disk; `None` for a remote checkpoint.
    read_counter: Option<Arc<ReadCounter>>,
    began: f64,
    last: f64,
    /// The number of tensors found, and the first of them until they are sent.
    found: u32,
    first: Vec<Row>,
}

impl OpenProgress {
    /// Creates a watch for a job that opens files; `read_counter` counts the reads of files on disk.
    pub(crate) fn new(job: &Job, read_counter: Option<&Arc<ReadCounter>>) -> Self {
        let (began, last) = (now(), now());
        Self {
            job: job.clone(),
            read_counter: read_counter.cloned(),
            began,
            last,
            found: 0,
            first: Vec::new(),
        }
    }
}

impl OpenProgress {
    /// Sends the first tensors once. A checkpoint that opens in a moment is shown only when
    /// complete.
    fn send_first(&mut self) {
        if !self.first.is_empty() && now() - self.began >= PREVIEW_AFTER {
            let rows = std::mem::take(&mut self.first);
            self.job.post(&FromWorker::Found(PackedRows::pack(&rows)));
        }
    }
}

impl Progress for OpenProgress {
    fn report(&mut self, done: u64, _total: u64) -> bool {
        let time = now();
        if self.found >= PREVIEW_KEYS {
            self.send_first();
        }
        if time - self.last >= 250.0 {
            self.last = time;
            let meter = self.job.meter();
            let fetched = || (meter.fetched(), meter.requests());
            let (read, calls) = self
                .read_counter
                .as_ref()
                .map_or_else(fetched, |read_counter| read_counter.so_far());
            self.job.post(&FromWorker::Opening { doing: String::new(), keys: done, read, calls });
        }
        // Opening is stopped by terminating the worker: it can't receive messages meanwhile.
        true
    }

    fn hears(&self) -> bool {
        true
    }

    fn found(&mut self, key: &dyn Display, dtype: &DType, shape: &[u64]) {
        if self.found < PREVIEW_KEYS {
            self.first.push(first_row(key, dtype, shape));
        }
        self.found += 1;
        if self.found.is_multiple_of(PREVIEW_KEYS) {
            self.send_first();
        }
    }
}

/// Returns the row of a tensor of which only key, dtype and shape are known.
fn first_row(key: &dyn Display, dtype: &DType, shape: &[u64]) -> Row {
    let tensor = Tensor::new(dtype.clone(), shape.to_vec(), Layout::Inline([].into()));
    Row {
        key: key.to_string(),
        kind: LeafKind::Tensor,
        dtype: dtype.name().to_owned(),
        params: tensor.numel().unwrap_or(u64::MAX),
        bytes: tensor.nbytes().unwrap_or(u64::MAX),
        shape: tensor.shape,
        value: String::new(),
        link: None,
    }
}
