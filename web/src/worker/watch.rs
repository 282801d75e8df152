//! How far opening is, as the page is told.

use std::fmt::Display;
use std::sync::Arc;

use statelens_checkpoint::{DType, Layout, Progress, Tensor};

use crate::messages::FIRST;
use crate::protocol::FromWorker;
use crate::rows::{LeafKind, PackedRows, Row};
use crate::worker::blob::Spent;
use crate::worker::job::Job;
use crate::worker::now;

/// Milliseconds that opening takes at least before the first keys are told of by themselves.
const MOMENT: f64 = 80.0;
/// Tells the page how far it is, four times a second at most.
pub(super) struct Watch {
    job: Job,
    /// What is read of the disk; `None` where it is fetched.
    spent: Option<Arc<Spent>>,
    began: f64,
    last: f64,
    /// How many tensors were found, and the first of them until the page is told.
    found: u32,
    first: Vec<Row>,
}

impl Watch {
    /// For a job that opens files; `spent` is noted of those of the disk.
    pub(super) fn new(job: &Job, spent: Option<&Arc<Spent>>) -> Self {
        let (began, last) = (now(), now());
        Self { job: job.clone(), spent: spent.cloned(), began, last, found: 0, first: Vec::new() }
    }
}

impl Watch {
    /// Tells of the first tensors once. What is open in a moment is shown as a whole.
    fn tell(&mut self) {
        if !self.first.is_empty() && now() - self.began >= MOMENT {
            let rows = std::mem::take(&mut self.first);
            self.job.post(&FromWorker::Found(PackedRows::pack(&rows)));
        }
    }
}

impl Progress for Watch {
    fn report(&mut self, done: u64, _total: u64) -> bool {
        let time = now();
        if self.found >= FIRST {
            self.tell();
        }
        if time - self.last >= 250.0 {
            self.last = time;
            let meter = self.job.meter();
            let fetched = || (meter.fetched(), meter.requests());
            let (read, calls) = self.spent.as_ref().map_or_else(fetched, |spent| spent.so_far());
            self.job.post(&FromWorker::Opening { doing: String::new(), keys: done, read, calls });
        }
        // Opening is stopped by ending the worker: it could not hear the wish.
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
            self.tell();
        }
    }
}

/// A tensor of which no more is known than what it is.
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
