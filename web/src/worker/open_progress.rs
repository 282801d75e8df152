//! Reports progress of opening to the page.

use std::fmt::Display;
use std::sync::Arc;

use statelens_checkpoint::{DType, Layout, Progress, Tensor};

use crate::messages::FIRST;
use crate::protocol::FromWorker;
use crate::rows::{LeafKind, PackedRows, Row};
use crate::worker::blob::Spent;
use crate::worker::job::Job;
use crate::worker::now;

/// Milliseconds after which the first keys are sent before opening is complete.
const MOMENT: f64 = 80.0;
/// Reports progress of opening, at most four times a second.
pub(super) struct OpenProgress {
    job: Job,
    /// Counts reads from disk; `None` for a remote checkpoint.
    spent: Option<Arc<Spent>>,
    began: f64,
    last: f64,
    /// The number of tensors found, and the first of them until they are sent.
    found: u32,
    first: Vec<Row>,
}

impl OpenProgress {
    /// Creates a watch for a job that opens files; `spent` counts the reads of files on disk.
    pub(super) fn new(job: &Job, spent: Option<&Arc<Spent>>) -> Self {
        let (began, last) = (now(), now());
        Self { job: job.clone(), spent: spent.cloned(), began, last, found: 0, first: Vec::new() }
    }
}

impl OpenProgress {
    /// Sends the first tensors once. A checkpoint that opens in a moment is shown only when
    /// complete.
    fn send_first(&mut self) {
        if !self.first.is_empty() && now() - self.began >= MOMENT {
            let rows = std::mem::take(&mut self.first);
            self.job.post(&FromWorker::Found(PackedRows::pack(&rows)));
        }
    }
}

impl Progress for OpenProgress {
    fn report(&mut self, done: u64, _total: u64) -> bool {
        let time = now();
        if self.found >= FIRST {
            self.send_first();
        }
        if time - self.last >= 250.0 {
            self.last = time;
            let meter = self.job.meter();
            let fetched = || (meter.fetched(), meter.requests());
            let (read, calls) = self.spent.as_ref().map_or_else(fetched, |spent| spent.so_far());
            self.job.post(&FromWorker::Opening { doing: String::new(), keys: done, read, calls });
        }
        // Opening is stopped by terminating the worker: it can't receive messages meanwhile.
        true
    }

    fn hears(&self) -> bool {
        true
    }

    fn found(&mut self, key: &dyn Display, dtype: &DType, shape: &[u64]) {
        if self.found < FIRST {
            self.first.push(first_row(key, dtype, shape));
        }
        self.found += 1;
        if self.found.is_multiple_of(FIRST) {
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
